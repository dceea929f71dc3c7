"""Learn clusters of words from text: words that occur beside the same words are alike."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
from thinc.types import Floats2d, Ints1d

from ..features.clusters import k_means, to_unit_length
from ..validation import require

SIZES = (64, 256, 1024)

WINDOW = 2
"""Contexts are the words up to this number of tokens to either side."""

MAX_CONTEXTS = 20_000
"""The most frequent words are contexts: not more than this number."""

SMOOTHING = 0.75
"""The power of the counts of contexts."""

POWER = 0.5
"""The power of the singular values."""

CHUNK = 1 << 22
"""Tokens whose contexts are counted at a time."""


def learn_clusters(
    sentences: Iterable[Sequence[str]],
    *,
    sizes: Sequence[int] = SIZES,
    min_count: int = 3,
    dim: int = 100,
    seed: int = 0,
) -> tuple[int, dict[str, list[str]]]:
    """Learn clusters of words that occur beside the same words: spherical k-means of the vectors
    that `embed` makes of them.

    sentences (Iterable[Sequence[str]]): The words of each sentence.
    sizes (Sequence[int]): Numbers of clusters.
    min_count (int): Minimum number of times that a word occurs.
    dim (int): Length of the vectors of words.
    seed (int): Seed of the singular value decomposition and of the first centres.
    RETURNS (tuple[int, dict[str, list[str]]]): The number of tokens, and the names of the clusters
        of each word, one for each size, from the most frequent word.
    RAISES (ValueError): If too few words are left.
    RAISES (ImportError): If SciPy is missing.
    """
    words, tokens, n_tokens = number_words(sentences, min_count)
    if len(words) <= dim:
        raise ValueError(
            f"clusters: expected more than {dim} words that occur {min_count} times or more, got "
            f"{len(words)}: use more text, or lower dim or min_count"
        )
    vectors = embed(tokens, len(words), dim=dim, seed=seed)
    names: dict[str, list[str]] = {word: [] for word in words}
    for size in sizes:
        clusters = k_means(vectors, size, seed=seed)
        for word, cluster in zip(words, clusters):
            names[word].append(f"{size}:{cluster}")
    return n_tokens, names


def number_words(
    sentences: Iterable[Sequence[str]], min_count: int
) -> tuple[list[str], Ints1d, int]:
    """Number the frequent words of a text, from the most frequent one.

    sentences (Iterable[Sequence[str]]): The words of each sentence.
    min_count (int): How often a word has to occur to be frequent.
    RETURNS (tuple[list[str], Ints1d, int]): The frequent words; the text as the number of the word
        of each token, -1 for a rare word, with `WINDOW` times -1 before and after each sentence,
        so that no word has one of another sentence beside it; and the number of tokens.
    """
    # First all words are numbered as they come.
    number_of_word: dict[str, int] = defaultdict(lambda: len(number_of_word))
    gap = [-1] * WINDOW
    parts = [numpy.asarray(gap, dtype="int32")]
    for sentence in sentences:
        numbers = [number_of_word[word] for word in sentence]
        parts.append(numpy.asarray([*numbers, *gap], dtype="int32"))
    tokens = numpy.concatenate(parts)
    words = list(number_of_word)
    n_times = numpy.bincount(tokens[tokens >= 0], minlength=len(words))
    by_frequency = numpy.argsort(-n_times, kind="stable")  # from the most frequent
    frequent = by_frequency[n_times[by_frequency] >= min_count]
    # From a word's number to its place among the frequent ones. The last row is for -1.
    place = numpy.full(len(words) + 1, -1, dtype="int32")
    place[frequent] = numpy.arange(len(frequent))
    return [words[i] for i in frequent], place[tokens], int(n_times.sum())


def embed(tokens: Ints1d, n_words: int, *, dim: int, seed: int) -> Floats2d:
    """Make vectors of words, such that words with the same contexts have similar ones.

    A context of a word is a frequent word at one of the offsets up to `WINDOW`. From n(w, c), how
    often word w has context c, comes a matrix of how much more often that is than by chance, and
    from its singular value decomposition the vectors:

        M[w, c] = max(0, log(n(w, c) sum_c' n(c')^.75 / (n(w) n(c)^.75)))    M ~ U S V'    U S^.5

    tokens (Ints1d): The text as numbers of words: see `number_words`. Shape: (N,)
    n_words (int): D, the number of words.
    dim (int): W, the length of the vectors.
    seed (int): Seed of the first vector of the decomposition.
    RETURNS (Floats2d): The vectors of words, of unit length. Shape: (D, W)

    Levy, Goldberg & Dagan (2015), Improving distributional similarity with lessons learned from
    word embeddings: smoothed positive PMI, and eigenvalue weighting.
    """
    shape = (n_words, 2 * WINDOW * min(n_words, MAX_CONTEXTS))
    n_times = scipy_sparse().csr_matrix(shape)
    for begin in range(0, len(tokens), CHUNK):
        chunk = tokens[max(begin - WINDOW, 0) : begin + CHUNK + WINDOW]
        n_times += count_contexts(chunk, shape)
    word_counts = numpy.asarray(n_times.sum(axis=1)).ravel()
    context_counts = numpy.asarray(n_times.sum(axis=0)).ravel() ** SMOOTHING
    pmi = n_times.tocoo()
    # How often the pair would occur by chance. Shape: (pairs,)
    by_chance = word_counts[pmi.row] * context_counts[pmi.col]
    pmi.data = numpy.log(pmi.data * context_counts.sum() / by_chance)
    pmi.data = numpy.maximum(pmi.data, 0)
    # The first vector of the iteration is drawn by chance in SciPy, without a seed.
    first_vector = numpy.random.default_rng(seed).normal(size=min(pmi.shape))
    left, singular_values, _ = scipy_sparse().linalg.svds(pmi.tocsr(), k=dim, v0=first_vector)
    return to_unit_length(left * singular_values**POWER)


def count_contexts(tokens: Ints1d, shape: tuple[int, int]) -> Any:
    """Count how often each word of a part of the text has each context: see `embed`.

    tokens (Ints1d): Numbers of words, -1 for none. The first and the last `WINDOW` of them are
        contexts only: other parts count theirs. Shape: (N,)
    shape (tuple[int, int]): The numbers of words and of contexts.
    RETURNS (scipy.sparse.csr_matrix): The counts, in this shape.
    """
    words = tokens[WINDOW:-WINDOW]
    n_contexts = shape[1] // (2 * WINDOW)
    offsets = [offset for offset in range(-WINDOW, WINDOW + 1) if offset != 0]
    rows: list[Ints1d] = []
    columns: list[Ints1d] = []
    # Each offset has columns of its own: a word before is another context than the word after.
    for i, offset in enumerate(offsets):
        first = WINDOW + offset
        neighbours = tokens[first : first + len(words)]
        is_counted = (words >= 0) & (neighbours >= 0) & (neighbours < n_contexts)
        rows.append(words[is_counted])
        columns.append(neighbours[is_counted] + i * n_contexts)
    row = numpy.concatenate(rows)
    column = numpy.concatenate(columns)
    # A one for each pair of a word and a context: SciPy sums those of equal pairs.
    return scipy_sparse().csr_matrix((numpy.ones(len(row)), (row, column)), shape=shape)


def scipy_sparse() -> Any:
    """The module `scipy.sparse`, with `linalg`."""
    missing = "clusters: expected SciPy, it is not installed"
    require("scipy.sparse.linalg", "clusters", missing)
    return require("scipy.sparse", "clusters", missing)
