"""Learn word vectors from text: words that occur next to the same words get similar vectors.

A form is a word as it is written, such as "Bank" or "bank". Forms that are the same in lower case
are one word. A context of a word is another word at an offset from it, such as "river, directly
before". The vectors come from a matrix with a row for each word and a column for each context.

The text is read once, sentence by sentence. Memory has a number of 4 bytes for each of its tokens,
its different forms, and the entries of the matrix that are above 0.

In shapes, W is the number of words, C of contexts, D of dimensions of a vector, and N of tokens.
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
"""Contexts of a word are the words up to this number of tokens before and after it."""

OFFSETS = tuple(offset for offset in range(-WINDOW, WINDOW + 1) if offset != 0)
"""The offsets of contexts from a word: -2, -1, 1, 2. The same word at another offset is another
context."""

MAX_CONTEXT_WORDS = 20_000
"""Only the most frequent words make contexts: at most this number of words, at each offset."""

SMOOTHING = 0.75
"""The power of the counts of contexts in the matrix: see `learn_word_vectors`."""

SINGULAR_VALUE_POWER = 0.5
"""The power of the singular values in the vectors: see `learn_word_vectors`."""

CHUNK = 1 << 22
"""The number of tokens whose contexts are looked up at a time. It bounds the memory."""

MOST_PAIRS = 1 << 23
"""The number of pairs of a word and a context that are counted at a time. It bounds the memory."""

SMALL_SIDE = 1000
"""If a matrix has at most this number of rows or of columns, all its singular values are computed:
that is fast enough, and exact."""


class WordVectors(NamedTuple):
    """Words with a vector for each.

    words (list[str]): The words in lower case, from the most frequent one.
    data (Floats2d): The vectors of these words, each of length 1. Shape: (W, D)
    row_of_form (dict[str, int]): The row in `data` for each word in lower case, and for each other
        form of a word that the text has.
    n_tokens (int): The number of tokens of the text.
    """

    words: list[str]
    data: Floats2d
    row_of_form: dict[str, int]
    n_tokens: int


def learn_word_vectors(
    sentences: Iterable[Sequence[str]], *, dim: int = 100, min_count: int = 3, seed: int = 0
) -> WordVectors:
    """Learn word vectors from text.

    Let n(w, c) be the number of times word w has context c, and n(w) and n(c) the sums over
    contexts and over words. The matrix M says how much more often a word has a context than
    expected by chance:

        M[w, c] = max(0, log(n(w, c) sum_c' n(c')^.75 / (n(w) n(c)^.75)))

    It is positive pointwise mutual information (PMI). With the D largest singular values,

        M ~ U S V'

    and the rows of U S^.5 are the vectors, each divided by its length.

    sentences (Iterable[Sequence[str]]): The words of each sentence, as they are written. They are
        read once.
    dim (int): The number of dimensions of the vectors, D, at least 1. It is the rank of the matrix,
        if that is smaller.
    min_count (int): Words that occur less often have no vector.
    seed (int): The seed of the decomposition.
    RETURNS (WordVectors): The vectors. A word has no vector if none of its contexts is more
        frequent than expected by chance, or if none of the D dimensions represents its contexts.
    RAISES (ValueError): If `dim` is below 1, or fewer than two words have a vector.
    RAISES (ImportError): If SciPy is missing.

    Levy, Goldberg & Dagan (2015), Improving distributional similarity with lessons learned from
    word embeddings: smoothed positive PMI, and eigenvalue weighting.
    """
    # Errors come before the text is read, which may take long.
    require_scipy()
    if dim < 1:
        raise ValueError(f"vectors: dim: expected at least 1, got {dim}")
    text = number_words(sentences, min_count)
    pmi = positive_pmi(text.tokens, len(text.words))
    # `indptr` says where the entries of each row begin. A row has entries if the next one begins
    # later.
    with_contexts = numpy.flatnonzero(numpy.diff(pmi.indptr))
    if len(with_contexts) < 2:
        raise ValueError(
            f"vectors: expected words that occur at least {min_count} times, next to other such "
            f"words, got {len(with_contexts)} in {text.n_tokens:,} tokens: use more text or a "
            "lower min_count"
        )

    data = factorise(pmi[with_contexts], dim=dim, seed=seed)
    has_vector = data.any(axis=1)
    data = data[has_vector]
    words = [text.words[i] for i in with_contexts[has_vector]]
    row_of_form = {word: row for row, word in enumerate(words)}
    for form in text.forms:
        row = row_of_form.get(form.lower())
        if row is not None:
            row_of_form[form] = row
    return WordVectors(words, data, row_of_form, text.n_tokens)


class NumberedText(NamedTuple):
    """A text in which each token is the index of its word. Rare words have no index.

    words (list[str]): The words that have a number, from the most frequent one, number 0.
    forms (list[str]): The forms of these words that the text has.
    tokens (Ints1d): For each token the index of its word, -1 for a rare word. Before and after each
        sentence there are `WINDOW` more entries of -1, so that words of different sentences are
        never next to each other. Shape: (N,)
    n_tokens (int): The number of tokens of the text, including rare words.
    """

    words: list[str]
    forms: list[str]
    tokens: Ints1d
    n_tokens: int


def number_words(sentences: Iterable[Sequence[str]], min_count: int) -> NumberedText:
    """Number the words of a text that occur at least `min_count` times, in all forms together.
    Rarer words have no number. The sentences are read once."""
    # 1. Number the forms in the order in which they come: looking up a new form in this dictionary
    # gives it the next number.
    number_of_form: dict[str, int] = defaultdict(lambda: len(number_of_form))
    # Between sentences there are entries of -1, so that no context is in another sentence.
    gap = array("i", [-1] * WINDOW)
    numbers = array("i", gap)
    for sentence in sentences:
        numbers.extend(map(number_of_form.__getitem__, sentence))
        numbers.extend(gap)
    form_of_token = numpy.frombuffer(numbers, dtype="int32")
    forms = list(number_of_form)
    number_of_form.clear()  # it takes more memory than all that follows

    # 2. Number the words, in the order of their first forms. Shape of `word_of_form`: (forms,)
    number_of_word: dict[str, int] = defaultdict(lambda: len(number_of_word))
    word_of_form = numpy.asarray([number_of_word[form.lower()] for form in forms], dtype="int32")
    words = list(number_of_word)

    # 3. Count the words.
    is_token = form_of_token >= 0  # not an entry between sentences
    form_counts = numpy.bincount(form_of_token[is_token], minlength=len(forms))
    word_counts = numpy.zeros(len(words), dtype="int64")
    numpy.add.at(word_counts, word_of_form, form_counts)
    by_frequency = numpy.argsort(-word_counts, kind="stable")
    frequent = by_frequency[word_counts[by_frequency] >= min_count]

    # 4. Give the frequent words new numbers, from the most frequent one. Rare words get -1.
    new_number = numpy.full(len(words), -1, dtype="int32")
    new_number[frequent] = numpy.arange(len(frequent))
    # One more entry at the end: it is the one that -1, the entries between sentences, looks up.
    new_number_of_form = numpy.append(new_number[word_of_form], numpy.int32(-1))
    return NumberedText(
        words=[words[i] for i in frequent],
        forms=[form for i, form in enumerate(forms) if new_number_of_form[i] >= 0],
        tokens=new_number_of_form[form_of_token],
        n_tokens=int(word_counts.sum()),
    )


def positive_pmi(tokens: Ints1d, n_words: int) -> Any:
    """Compute the matrix M of `learn_word_vectors`. Returns a SciPy `csr_matrix`, which stores only
    the numbers above 0. Shapes: (N,) to (W, C)

    A context is one of the F most frequent words at one of four offsets. So there are C = 4 F
    contexts: column i F + c is word c at the offset `OFFSETS[i]`.
    """
    n_context_words = min(n_words, MAX_CONTEXT_WORDS)
    word_counts, context_counts = count_margins(tokens, n_words, n_context_words)
    smoothed_counts = context_counts**SMOOTHING  # n(c)^.75
    csr_matrix = require_scipy().csr_matrix
    # An empty block, as SciPy needs at least one, and there may be no words.
    blocks: list[Any] = [csr_matrix((0, len(smoothed_counts)), dtype="float32")]
    # Range by range, as the pairs of all words may not fit in memory.
    for first, end in divide_words(word_counts):
        # A row, a column and a count n(w, c) for each pair of a word of this range and a context.
        pairs = count_pairs(tokens, first, end, n_context_words).tocoo()
        # n(w) n(c)^.75 of each pair. Shape: (number of pairs,)
        by_chance = word_counts[first + pairs.row] * smoothed_counts[pairs.col]
        pmi = numpy.log(pairs.data * smoothed_counts.sum() / by_chance)
        is_above_chance = pmi > 0
        row = pairs.row[is_above_chance]
        column = pairs.col[is_above_chance]
        positive = pmi[is_above_chance].astype("float32")
        blocks.append(csr_matrix((positive, (row, column)), shape=pairs.shape))
    return require_scipy().vstack(blocks, format="csr")


def count_margins(tokens: Ints1d, n_words: int, n_context_words: int) -> tuple[Floats1d, Floats1d]:
    """Count the pairs that each word is in, n(w), and the pairs that each context is in, n(c). The
    first `n_context_words` words make contexts. For `tokens` see `NumberedText`.
    Shapes: (N,) to (W,), (C,)"""
    word_counts = numpy.zeros(n_words)
    context_counts = numpy.zeros((len(OFFSETS), n_context_words))
    # The text begins and ends with `WINDOW` entries of -1, so each word has neighbours. It is read
    # in chunks, to save memory.
    for begin in range(WINDOW, len(tokens) - WINDOW, CHUNK):
        places = numpy.arange(begin, min(begin + CHUNK, len(tokens) - WINDOW))
        places = places[tokens[places] >= 0]
        for i, offset in enumerate(OFFSETS):
            words, context_words = pairs_at_offset(tokens, places, offset, n_context_words)
            word_counts += numpy.bincount(words, minlength=n_words)
            context_counts[i] += numpy.bincount(context_words, minlength=n_context_words)
    return word_counts, context_counts.ravel()


def pairs_at_offset(
    tokens: Ints1d, places: Ints1d, offset: int, n_context_words: int
) -> tuple[Ints1d, Ints1d]:
    """Find the pairs of a word at one of some places, which are indices in `tokens`, and a context
    at an offset from it. The first `n_context_words` words make contexts. Returns the word of each
    pair, and the word of its context."""
    neighbours = tokens[places + offset]
    is_context = (neighbours >= 0) & (neighbours < n_context_words)
    return tokens[places[is_context]], neighbours[is_context]


def divide_words(word_counts: Floats1d) -> Iterator[tuple[int, int]]:
    """Divide words into ranges, each with at most `MOST_PAIRS` pairs of a word and a context, or
    with a single word. `word_counts` has the number of pairs that each word is in. Yields the first
    word of each range, and the word after its last one. Shape: (W,)"""
    pairs_up_to = numpy.cumsum(word_counts)
    first = 0
    while first < len(word_counts):
        pairs_before = pairs_up_to[first] - word_counts[first]
        end = int(numpy.searchsorted(pairs_up_to, pairs_before + MOST_PAIRS, side="right"))
        end = max(end, first + 1)
        yield first, end
        first = end


def count_pairs(tokens: Ints1d, first: int, end: int, n_context_words: int) -> Any:
    """Count how often each word of a range, from `first` up to `end` (exclusive), has each context,
    n(w, c). Returns a SciPy `csr_matrix` with the columns of `positive_pmi`. Shape: (end - first,
    C)"""
    places = numpy.flatnonzero((tokens >= first) & (tokens < end))
    rows: list[Ints1d] = []
    columns: list[Ints1d] = []
    for i, offset in enumerate(OFFSETS):
        words, context_words = pairs_at_offset(tokens, places, offset, n_context_words)
        rows.append(words - first)
        columns.append(context_words + i * n_context_words)
    row = numpy.concatenate(rows)
    column = numpy.concatenate(columns)
    shape = (end - first, len(OFFSETS) * n_context_words)
    # Each pair is an entry of 1. SciPy sums the entries in the same place.
    return require_scipy().csr_matrix((numpy.ones(len(row)), (row, column)), shape=shape)


def factorise(matrix: Any, *, dim: int, seed: int) -> Floats2d:
    """Compute a vector for each row of a matrix by singular value decomposition, U S V': the rows
    of U S^.5 for the largest singular values, each divided by its length. The matrix is a
    SciPy `csr_matrix` without rows of 0. `dim` is the number of singular values, D; a matrix of a
    lower rank has fewer. `seed` is the seed of the vector from which the iteration starts. Rows
    that are orthogonal to all these singular vectors have vectors of 0. Shapes: (W, C) to (W, D)"""
    smaller_side = min(matrix.shape)
    if smaller_side <= max(SMALL_SIDE, 2 * dim):
        left_vectors, singular_values, _ = numpy.linalg.svd(matrix.toarray(), full_matrices=False)
        by_size = numpy.arange(min(dim, smaller_side))  # NumPy has the largest ones first
    else:
        # An iteration finds the largest singular values alone. Without `v0`, SciPy would start from
        # a random vector that no seed repeats.
        first_vector = numpy.random.default_rng(seed).standard_normal(smaller_side, dtype="float32")
        svds = require_scipy().linalg.svds
        left_vectors, singular_values, _ = svds(matrix, k=dim, v0=first_vector)
        by_size = numpy.argsort(-singular_values)
    ordered_values = singular_values[by_size]
    # If the rank is lower than `dim`, some singular values are 0. As floats they are not quite 0,
    # but below this limit, and their columns of U have no meaning.
    rounding_error = ordered_values[0] * smaller_side * numpy.finfo("float32").eps
    kept_indices = by_size[ordered_values > rounding_error]
    kept_vectors = left_vectors[:, kept_indices]
    kept_values = singular_values[kept_indices]
    rows = kept_vectors * kept_values**SINGULAR_VALUE_POWER

    # Two words that occur only with each other have singular vectors of their own. Where these are
    # not among the D largest, the row of U is 0 but for rounding, which division by its length
    # would make a vector. A row of U S is as long as the projection of the row of the matrix onto
    # the singular vectors. It is wrong by about eps S_1, where S_1 is the largest singular value.
    # Errors of sums of n numbers grow with sqrt(n): Higham & Mary (2019), A new approach to
    # probabilistic rounding error analysis.
    lengths = numpy.linalg.norm(kept_vectors * kept_values, axis=1)
    least_length = ordered_values[0] * numpy.sqrt(smaller_side) * numpy.finfo("float32").eps
    rows[lengths <= least_length] = 0
    return to_unit_length(rows)


def require_scipy() -> Any:
    """Return the module `scipy.sparse`, with its part `linalg` loaded.

    RAISES (ImportError): If SciPy is not installed.
    """
    missing = "vectors: SciPy is not installed"
    require("scipy.sparse.linalg", "vectors", missing)
    return require("scipy.sparse", "vectors", missing)
