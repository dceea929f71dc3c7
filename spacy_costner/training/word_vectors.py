"""Learn vectors of words from text: words that occur beside the same words get similar vectors.
A form is a word as it is written. Forms that are the same in lower case are one word.

The text is read once, sentence by sentence. What is kept of it is a number of 4 bytes for each
token, its distinct words, and the matrix of words and their contexts, of which only what is above 0
is stored.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, Ints1d

from ..features.clusters import to_unit_length
from ..validation import require

WINDOW = 2
"""Contexts are the words up to this number of tokens to either side."""

OFFSETS = tuple(offset for offset in range(-WINDOW, WINDOW + 1) if offset != 0)
"""Where the contexts of a word stand. Each offset has contexts of its own: a word before is another
context than the word after."""

MAX_CONTEXTS = 20_000
"""The most frequent words are contexts: not more than this number."""

SMOOTHING = 0.75
"""The power of the counts of contexts."""

POWER = 0.5
"""The power of the singular values."""

CHUNK = 1 << 22
"""Tokens whose contexts are looked up at a time."""

PAIRS = 1 << 23
"""Pairs of a word and a context that are counted at a time: of so many words as have these."""

SMALL = 1000
"""A matrix of at most so many rows or columns is decomposed wholly."""


class WordVectors(NamedTuple):
    """Words, from the most frequent one, with a vector of unit length for each.

    words (list[str]): The words, in lower case.
    data (Floats2d): Their vectors. Shape: (D, W)
    row_of_form (dict[str, int]): The row of each word, and of each form of it that the text has.
    n_tokens (int): The number of tokens that they were learned from.
    """

    words: list[str]
    data: Floats2d
    row_of_form: dict[str, int]
    n_tokens: int


def learn_word_vectors(
    sentences: Iterable[Sequence[str]], *, dim: int = 100, min_count: int = 3, seed: int = 0
) -> WordVectors:
    """Learn vectors of words from text.

    A context of a word is a frequent word at one of the offsets up to `WINDOW` in the same
    sentence. From n(w, c), how often word w has context c, comes a matrix of how much more often
    that is than by chance, and from its singular value decomposition the vectors:

        M[w, c] = max(0, log(n(w, c) sum_c' n(c')^.75 / (n(w) n(c)^.75)))    M ~ U S V'    U S^.5

    sentences (Iterable[Sequence[str]]): The words of each sentence, as written. They are read once.
    dim (int): Length of the vectors. If the matrix has a lower rank, vectors have that length.
    min_count (int): Minimum number of times that a word occurs.
    seed (int): Seed of the decomposition.
    RETURNS (WordVectors): The vectors of words that some context has more often than by chance.
    RAISES (ValueError): If fewer than two words are left.
    RAISES (ImportError): If SciPy is missing.

    Levy, Goldberg & Dagan (2015), Improving distributional similarity with lessons learned from
    word embeddings: smoothed positive PMI, and eigenvalue weighting.
    """
    require_scipy()  # before all of the text is read in vain
    text = number_words(sentences, min_count)
    pmi = positive_pmi(text.tokens, len(text.words))
    # `indptr` is where the stored numbers of each row begin: it grows where a row has some.
    has_contexts = numpy.diff(pmi.indptr) > 0
    words = [text.words[i] for i in numpy.flatnonzero(has_contexts)]
    if len(words) < 2:
        raise ValueError(
            f"vectors: expected words that occur {min_count} times or more, beside others that do, "
            f"got {len(words)} in {text.n_tokens:,} tokens: use more text, or a lower min_count"
        )

    data = factorise(pmi[has_contexts], dim=dim, seed=seed)
    row_of_form = {word: row for row, word in enumerate(words)}
    for form in text.forms:
        row = row_of_form.get(form.lower())
        if row is not None:
            row_of_form[form] = row
    return WordVectors(words, data, row_of_form, text.n_tokens)


class NumberedText(NamedTuple):
    """A text as numbers of its frequent words.

    words (list[str]): The frequent words, from the most frequent one.
    forms (list[str]): The distinct forms of these words, as they are written.
    tokens (Ints1d): The number of the word of each token, -1 for a rare word. `WINDOW` times -1
        stand before and after each sentence, so that no word has one of another sentence beside it.
    n_tokens (int): The number of tokens, with those of rare words.
    """

    words: list[str]
    forms: list[str]
    tokens: Ints1d
    n_tokens: int


def number_words(sentences: Iterable[Sequence[str]], min_count: int) -> NumberedText:
    """Number the words of a text that occur `min_count` times or more, in any form."""
    # First the forms of all words are numbered as they come.
    number_of_form: dict[str, int] = defaultdict(lambda: len(number_of_form))
    gap = array("i", [-1] * WINDOW)
    numbers = array("i", gap)
    for sentence in sentences:
        numbers.extend(map(number_of_form.__getitem__, sentence))
        numbers.extend(gap)
    tokens = numpy.frombuffer(numbers, dtype="int32")
    forms = list(number_of_form)
    number_of_form.clear()  # it takes more memory than all that follows

    # Then words are numbered, in the order of their first forms. (number of forms,)
    number_of_word: dict[str, int] = defaultdict(lambda: len(number_of_word))
    word_of_form = numpy.asarray([number_of_word[form.lower()] for form in forms], dtype="int32")
    words = list(number_of_word)

    form_counts = numpy.bincount(tokens[tokens >= 0], minlength=len(forms))
    word_counts = numpy.zeros(len(words), dtype="int64")
    numpy.add.at(word_counts, word_of_form, form_counts)
    by_frequency = numpy.argsort(-word_counts, kind="stable")  # from the most frequent
    frequent = by_frequency[word_counts[by_frequency] >= min_count]

    # At last the frequent words get new numbers, from the most frequent one; others have -1.
    new_number = numpy.full(len(words), -1, dtype="int32")
    new_number[frequent] = numpy.arange(len(frequent))
    # Those of the words of forms. The entry at the end is for the -1 between sentences.
    new_number_of_form = numpy.append(new_number[word_of_form], numpy.int32(-1))
    frequent_words = [words[i] for i in frequent]
    frequent_forms = [form for i, form in enumerate(forms) if new_number_of_form[i] >= 0]
    n_tokens = int(word_counts.sum())
    return NumberedText(frequent_words, frequent_forms, new_number_of_form[tokens], n_tokens)


def positive_pmi(tokens: Ints1d, n_words: int) -> Any:
    """The matrix M of `learn_word_vectors`.

    tokens (Ints1d): The text as numbers of words: see `NumberedText`. Shape: (N,)
    n_words (int): D, the number of words.
    RETURNS (scipy.sparse.csr_matrix): The matrix, of which the positive numbers are stored. Column
        i C / 4 + c is word c at the offset `OFFSETS[i]`. Shape: (D, C)
    """
    n_frequent = min(n_words, MAX_CONTEXTS)
    word_counts, context_counts = count_margins(tokens, n_words, n_frequent)
    smoothed = context_counts**SMOOTHING
    csr_matrix = require_scipy().csr_matrix
    # SciPy needs a block, also where there are no words.
    blocks: list[Any] = [csr_matrix((0, len(smoothed)), dtype="float32")]
    for first, end in divide_words(word_counts):
        # A row, a column and a count for each pair of a word of this range and a context.
        pairs = count_pairs(tokens, first, end, n_frequent).tocoo()
        # How often the pair would occur by chance. Shape: (pairs,)
        by_chance = word_counts[first + pairs.row] * smoothed[pairs.col]
        pmi = numpy.log(pairs.data * smoothed.sum() / by_chance)
        is_above_chance = pmi > 0
        row = pairs.row[is_above_chance]
        column = pairs.col[is_above_chance]
        positive = pmi[is_above_chance].astype("float32")
        blocks.append(csr_matrix((positive, (row, column)), shape=pairs.shape))
    return require_scipy().vstack(blocks, format="csr")


def count_margins(tokens: Ints1d, n_words: int, n_frequent: int) -> tuple[Floats1d, Floats1d]:
    """How often each word has any context, and each context any word. The `n_frequent` first words
    are contexts, at each offset. Shapes: (D,), (C,)"""
    word_counts = numpy.zeros(n_words)
    context_counts = numpy.zeros((len(OFFSETS), n_frequent))
    for begin in range(WINDOW, len(tokens) - WINDOW, CHUNK):
        places = numpy.arange(begin, min(begin + CHUNK, len(tokens) - WINDOW))
        places = places[tokens[places] >= 0]
        for i, offset in enumerate(OFFSETS):
            words, contexts = pairs_at_offset(tokens, places, offset, n_frequent)
            word_counts += numpy.bincount(words, minlength=n_words)
            context_counts[i] += numpy.bincount(contexts, minlength=n_frequent)
    return word_counts, context_counts.ravel()


def pairs_at_offset(
    tokens: Ints1d, places: Ints1d, offset: int, n_frequent: int
) -> tuple[Ints1d, Ints1d]:
    """The words at some places of a text and the words at an offset from them, where these are
    contexts. Shape of the places: (P,)"""
    neighbours = tokens[places + offset]
    is_context = (neighbours >= 0) & (neighbours < n_frequent)
    return tokens[places[is_context]], neighbours[is_context]


def divide_words(word_counts: Floats1d) -> Iterator[tuple[int, int]]:
    """Divide words into ranges with at most `PAIRS` pairs of a word and a context in each.

    word_counts (Floats1d): In how many pairs each word is. Shape: (D,)
    YIELDS (tuple[int, int]): The first word of a range, and the one after its last.
    """
    pairs_up_to = numpy.cumsum(word_counts)
    first = 0
    while first < len(word_counts):
        pairs_before = pairs_up_to[first] - word_counts[first]
        end = int(numpy.searchsorted(pairs_up_to, pairs_before + PAIRS, side="right"))
        end = max(end, first + 1)  # a word with more pairs than that is alone
        yield first, end
        first = end


def count_pairs(tokens: Ints1d, first: int, end: int, n_frequent: int) -> Any:
    """Count how often each word of a range has each context: see `positive_pmi`.

    RETURNS (scipy.sparse.csr_matrix): The counts. Shape: (end - first, C)
    """
    places = numpy.flatnonzero((tokens >= first) & (tokens < end))
    rows: list[Ints1d] = []
    columns: list[Ints1d] = []
    for i, offset in enumerate(OFFSETS):
        words, contexts = pairs_at_offset(tokens, places, offset, n_frequent)
        rows.append(words - first)
        columns.append(contexts + i * n_frequent)
    row = numpy.concatenate(rows)
    column = numpy.concatenate(columns)
    shape = (end - first, len(OFFSETS) * n_frequent)
    # A one for each pair: SciPy sums those of equal pairs.
    return require_scipy().csr_matrix((numpy.ones(len(row)), (row, column)), shape=shape)


def factorise(matrix: Any, *, dim: int, seed: int) -> Floats2d:
    """Vectors U S^.5 of the rows of a matrix U S V', of unit length, from its largest singular
    values.

    matrix (scipy.sparse.csr_matrix): The matrix, without rows of zeros. Shape: (D, C)
    dim (int): W, the number of singular values; fewer if the matrix has a lower rank.
    seed (int): Seed of the first vector of the iteration.
    RETURNS (Floats2d): The vectors. Shape: (D, W)
    """
    smaller_side = min(matrix.shape)
    if smaller_side <= max(SMALL, 2 * dim):
        left, singular_values, _ = numpy.linalg.svd(matrix.toarray(), full_matrices=False)
        order = numpy.arange(min(dim, smaller_side))
    else:
        # SciPy would draw the first vector by chance, without a seed.
        first_vector = numpy.random.default_rng(seed).standard_normal(smaller_side, dtype="float32")
        svds = require_scipy().linalg.svds
        left, singular_values, _ = svds(matrix, k=dim, v0=first_vector)
        order = numpy.argsort(-singular_values)
    largest = singular_values[order]
    # Singular values of 0 are very small numbers after rounding: leave their vectors out.
    rounding = largest[0] * smaller_side * numpy.finfo("float32").eps
    order = order[largest > rounding]
    return to_unit_length(left[:, order] * singular_values[order] ** POWER)


def require_scipy() -> Any:
    """The module `scipy.sparse`, with `linalg`."""
    missing = "vectors: expected SciPy, it is not installed"
    require("scipy.sparse.linalg", "vectors", missing)
    return require("scipy.sparse", "vectors", missing)
