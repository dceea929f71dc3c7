"""Learn clusters of words from text."""

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
"""Of the most frequent words."""

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
    seed (int): The seed of the singular value decomposition and of the first centres.
    min_count (int): Minimum number of times that a word occurs.
    dim (int): Length of the vectors of words.
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
    names = [[f"{size}:{i}" for i in k_means(vectors, size, seed=seed)] for size in sizes]
    return n_tokens, dict(zip(words, map(list, zip(*names))))


def number_words(
    sentences: Iterable[Sequence[str]], min_count: int
) -> tuple[list[str], Ints1d, int]:
    """Number words from the most frequent: the words; the number of each token, with -1 for rare
    words and, `WINDOW` times, before and after each sentence; and the number of tokens."""
    ids: dict[str, int] = defaultdict(lambda: len(ids))
    gap = [-1] * WINDOW
    parts = [numpy.asarray(gap, dtype="int32")]
    parts += [numpy.asarray([*map(ids.__getitem__, s), *gap], dtype="int32") for s in sentences]
    tokens, names = numpy.concatenate(parts), [*ids]
    n_times = numpy.bincount(tokens[tokens >= 0], minlength=len(names))
    order = numpy.argsort(-n_times, kind="stable")
    order = order[n_times[order] >= min_count]
    new = numpy.full(len(names) + 1, -1, dtype="int32")  # the last is for -1
    new[order] = numpy.arange(len(order))
    return [names[i] for i in order], new[tokens], int(n_times.sum())


def embed(tokens: Ints1d, n_words: int, *, dim: int, seed: int) -> Floats2d:
    """Make vectors of words from n(w, c), how often word w has context c: a frequent word at an
    offset of up to `WINDOW`.

        M[w, c] = max(0, log(n(w, c) sum_c' n(c')^.75 / (n(w) n(c)^.75)))    M ~ U S V'    U S^.5

    tokens (Ints1d): The number of each token: see `number_words`. Shape: (N,)
    RETURNS (Floats2d): The vectors of D words, of unit length. W is `dim`. Shape: (D, W)

    Levy, Goldberg & Dagan (2015), Improving distributional similarity with lessons learned from
    word embeddings: smoothed positive PMI, and eigenvalue weighting.
    """
    shape = (n_words, 2 * WINDOW * min(n_words, MAX_CONTEXTS))
    n_times = scipy_sparse().csr_matrix(shape)
    for begin in range(0, len(tokens), CHUNK):
        chunk = tokens[max(begin - WINDOW, 0) : begin + CHUNK + WINDOW]
        n_times += count_contexts(chunk, shape)
    of_word, of_context = (numpy.asarray(n_times.sum(axis=i)).ravel() for i in (1, 0))
    of_context = of_context**SMOOTHING
    pmi = n_times.tocoo()
    pmi.data = numpy.log(pmi.data * of_context.sum() / (of_word[pmi.row] * of_context[pmi.col]))
    pmi.data = numpy.maximum(pmi.data, 0)
    start = numpy.random.default_rng(seed).normal(size=min(pmi.shape))
    left, values, _ = scipy_sparse().linalg.svds(pmi.tocsr(), k=dim, v0=start)
    return to_unit_length(left * values**POWER)


def count_contexts(tokens: Ints1d, shape: tuple[int, int]) -> Any:
    """Count the contexts of the tokens between the first and the last `WINDOW`: see `embed`. The
    shape of the result, `shape`, has the numbers of words and of contexts."""
    words, n_contexts = tokens[WINDOW:-WINDOW], shape[1] // (2 * WINDOW)
    rows, columns = [], []
    for i in range(2 * WINDOW + 1):
        there = tokens[i : i + len(words)]
        counts = (words >= 0) & (there >= 0) & (there < n_contexts) & (i != WINDOW)
        rows.append(words[counts])
        columns.append(there[counts] + (i - (i > WINDOW)) * n_contexts)
    places = numpy.concatenate(rows), numpy.concatenate(columns)
    return scipy_sparse().csr_matrix((numpy.ones(len(places[0])), places), shape=shape)


def scipy_sparse() -> Any:
    """The module `scipy.sparse`, with `linalg`."""
    missing = "clusters: expected SciPy, it is not installed"
    require("scipy.sparse.linalg", "clusters", missing)
    return require("scipy.sparse", "clusters", missing)
