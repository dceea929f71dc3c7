"""Training of word vectors on raw text: words that occur next to the same words get similar
vectors.

A form is a word as written, such as "Bank" or "bank". Forms that are identical in lower case are
the same word. A context of a word is another word at a given offset, such as "river, directly
before". The vectors are computed from a matrix with a row for each word and a column for each
context.

The text is read once, sentence by sentence. The following data is kept in memory: 4 bytes for each
token, all distinct forms, and the positive entries of the matrix.

In shapes, W is the number of words, C the number of contexts, D the number of dimensions of a
vector, and N the number of tokens.
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
"""The contexts of a word are the words up to this number of tokens before and after it."""

OFFSETS = tuple(offset for offset in range(-WINDOW, WINDOW + 1) if offset != 0)
"""The offsets of contexts from a word: -2, -1, 1, 2. The same word at different offsets counts as
different contexts."""

MAX_CONTEXT_WORDS = 20_000
"""The maximum number of context words, per offset. Only the most frequent words are used."""

SMOOTHING = 0.75
"""The exponent of the context counts in the matrix: see `learn_word_vectors`."""

SINGULAR_VALUE_POWER = 0.5
"""The exponent of the singular values in the vectors: see `learn_word_vectors`."""

CHUNK = 1 << 22
"""The number of tokens to process at a time when counting contexts. It limits memory use."""

MOST_PAIRS = 1 << 23
"""The number of word-context pairs to count at a time. It limits memory use."""

SMALL_SIDE = 1000
"""If a matrix has at most this number of rows or columns, all of its singular values are computed,
which is exact and still fast enough."""


class WordVectors(NamedTuple):
    """Words and their vectors.

    words (list[str]): The words in lower case, in descending order of frequency.
    data (Floats2d): The vectors of these words, normalized to length 1. Shape: (W, D)
    row_of_form (dict[str, int]): The row in `data` of each word in lower case, and of its other
        forms in the text.
    n_tokens (int): The number of tokens in the text.
    """

    words: list[str]
    data: Floats2d
    row_of_form: dict[str, int]
    n_tokens: int


def learn_word_vectors(
    sentences: Iterable[Sequence[str]], *, dim: int = 100, min_count: int = 3, seed: int = 0
) -> WordVectors:
    """Learn word vectors from text.

    Let n(w, c) be the number of times that word w occurs in context c, and let n(w) and n(c) be the
    sums over contexts and over words. The matrix M contains the positive pointwise mutual
    information (PMI), which measures how much more often a word occurs in a context than expected
    by chance:

        M[w, c] = max(0, log(n(w, c) sum_c' n(c')^.75 / (n(w) n(c)^.75)))

    The matrix is approximated using its D largest singular values:

        M ~ U S V'

    The vectors are the rows of U S^.5, normalized to length 1.

    sentences (Iterable[Sequence[str]]): The words of each sentence, as written. They are read once.
    dim (int): The number of dimensions of the vectors, D, at least 1. If the rank of the matrix is
        lower, the vectors have fewer dimensions.
    min_count (int): The minimum frequency for a word to get a vector.
    seed (int): The random seed for the decomposition.
    RETURNS (WordVectors): The vectors. A word has no vector if none of its contexts is more
        frequent than expected by chance, or if its contexts aren't represented by any of the D
        dimensions.
    RAISES (ValueError): If `dim` is below 1, or if there are vectors for fewer than two words.
    RAISES (ImportError): If SciPy isn't installed.

    Levy, Goldberg & Dagan (2015), Improving distributional similarity with lessons learned from
    word embeddings: smoothed positive PMI, and eigenvalue weighting.
    """
    # Check for errors before reading the text, which may take a long time.
    require_scipy()
    if dim < 1:
        raise ValueError(f"vectors: dim: expected at least 1, got {dim}")
    text = number_words(sentences, min_count)
    pmi = positive_pmi(text.tokens, len(text.words))
    # `indptr` contains the index of the first entry of each row. A row has entries if the index of
    # the next row is higher.
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
    """A text in which each token is the index of its word. Rare words don't have an index.

    words (list[str]): The frequent words, in descending order of frequency.
    forms (list[str]): The forms of these words that occur in the text.
    tokens (Ints1d): The index of each token's word, or -1 for rare words. Sentences are preceded
        and followed by `WINDOW` padding entries of -1, so that words in different sentences are
        never neighbours. Shape: (N,)
    n_tokens (int): The number of tokens in the text, including rare words.
    """

    words: list[str]
    forms: list[str]
    tokens: Ints1d
    n_tokens: int


def number_words(sentences: Iterable[Sequence[str]], min_count: int) -> NumberedText:
    """Convert a text to word indices. Only words that occur at least `min_count` times, counted
    over all forms, get an index. The sentences are read once."""
    # 1. Number the forms in order of their first occurrence. Looking up a new form in this
    # dictionary assigns the next number to it.
    number_of_form: dict[str, int] = defaultdict(lambda: len(number_of_form))
    # Separate sentences with entries of -1, so that contexts don't cross sentence boundaries.
    gap = array("i", [-1] * WINDOW)
    numbers = array("i", gap)
    for sentence in sentences:
        numbers.extend(map(number_of_form.__getitem__, sentence))
        numbers.extend(gap)
    form_of_token = numpy.frombuffer(numbers, dtype="int32")
    forms = list(number_of_form)
    number_of_form.clear()  # free memory: this dictionary is larger than all later data

    # 2. Number the words in order of their first forms. Shape of `word_of_form`: (forms,)
    number_of_word: dict[str, int] = defaultdict(lambda: len(number_of_word))
    word_of_form = numpy.asarray([number_of_word[form.lower()] for form in forms], dtype="int32")
    words = list(number_of_word)

    # 3. Count the words.
    is_token = form_of_token >= 0  # excludes the padding between sentences
    form_counts = numpy.bincount(form_of_token[is_token], minlength=len(forms))
    word_counts = numpy.zeros(len(words), dtype="int64")
    numpy.add.at(word_counts, word_of_form, form_counts)
    by_frequency = numpy.argsort(-word_counts, kind="stable")
    frequent = by_frequency[word_counts[by_frequency] >= min_count]

    # 4. Renumber the frequent words, in descending order of frequency. Rare words get -1.
    new_number = numpy.full(len(words), -1, dtype="int32")
    new_number[frequent] = numpy.arange(len(frequent))
    # The padding of -1 selects the last entry, so append another -1.
    new_number_of_form = numpy.append(new_number[word_of_form], numpy.int32(-1))
    return NumberedText(
        words=[words[i] for i in frequent],
        forms=[form for i, form in enumerate(forms) if new_number_of_form[i] >= 0],
        tokens=new_number_of_form[form_of_token],
        n_tokens=int(word_counts.sum()),
    )


def positive_pmi(tokens: Ints1d, n_words: int) -> Any:
    """Compute the matrix M of `learn_word_vectors`. Returns a SciPy `csr_matrix`, which stores only
    positive entries. Shapes: (N,) to (W, C)

    A context is one of the F most frequent words at one of four offsets, so there are C = 4 F
    contexts. Column i F + c is word c at the offset `OFFSETS[i]`.
    """
    n_context_words = min(n_words, MAX_CONTEXT_WORDS)
    word_counts, context_counts = count_margins(tokens, n_words, n_context_words)
    smoothed_counts = context_counts**SMOOTHING  # n(c)^.75
    csr_matrix = require_scipy().csr_matrix
    # Start with an empty block, because SciPy needs at least one block, and there may be no words.
    blocks: list[Any] = [csr_matrix((0, len(smoothed_counts)), dtype="float32")]
    # Process ranges of words, because the pairs of all words may not fit in memory.
    for first, end in divide_words(word_counts):
        # The row, column and count n(w, c) of each word-context pair with a word in this range.
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
    """Count the number of pairs that contain each word, n(w), and each context, n(c). Only the
    first `n_context_words` words are used as contexts. For `tokens`, see `NumberedText`. Shapes:
    (N,) to (W,), (C,)"""
    word_counts = numpy.zeros(n_words)
    context_counts = numpy.zeros((len(OFFSETS), n_context_words))
    # The text begins and ends with `WINDOW` entries of -1, so each word has neighbours on both
    # sides. Process it in chunks to save memory.
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
    """Return the word-context pairs at the given offset. `places` contains the positions
    of the words, as indices in `tokens`. Only the first `n_context_words` words are used as
    contexts. Returns the word and the context word of each pair."""
    neighbours = tokens[places + offset]
    is_context = (neighbours >= 0) & (neighbours < n_context_words)
    return tokens[places[is_context]], neighbours[is_context]


def divide_words(word_counts: Floats1d) -> Iterator[tuple[int, int]]:
    """Divide words into ranges with at most `MOST_PAIRS` word-context pairs. A word
    with more pairs gets a separate range. `word_counts` contains the number of pairs of each word.
    Yields the start and end (exclusive) of each range. Shape: (W,)"""
    pairs_up_to = numpy.cumsum(word_counts)
    first = 0
    while first < len(word_counts):
        pairs_before = pairs_up_to[first] - word_counts[first]
        end = int(numpy.searchsorted(pairs_up_to, pairs_before + MOST_PAIRS, side="right"))
        end = max(end, first + 1)
        yield first, end
        first = end


def count_pairs(tokens: Ints1d, first: int, end: int, n_context_words: int) -> Any:
    """Count the number of times that each word in a range occurs in each context, n(w, c). The
    range is from `first` to `end` (exclusive). Returns a SciPy `csr_matrix` with the same columns
    as in `positive_pmi`. Shape: (end - first, C)"""
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
    # Create an entry of 1 for each pair. SciPy sums entries with the same row and column.
    return require_scipy().csr_matrix((numpy.ones(len(row)), (row, column)), shape=shape)


def factorise(matrix: Any, *, dim: int, seed: int) -> Floats2d:
    """Compute a vector for each row of a matrix by singular value decomposition, U S V'. The
    vectors are the rows of U S^.5 for the largest singular values, normalized to length 1. The
    matrix is a SciPy `csr_matrix` without empty rows. `dim` is the number of singular values, D.
    There are fewer if the rank of the matrix is lower. `seed` is the random seed for the initial
    vector of the iteration. Rows that are orthogonal to all of these singular vectors get a zero
    vector. Shapes: (W, C) to (W, D)"""
    smaller_side = min(matrix.shape)
    if smaller_side <= max(SMALL_SIDE, 2 * dim):
        left_vectors, singular_values, _ = numpy.linalg.svd(matrix.toarray(), full_matrices=False)
        by_size = numpy.arange(min(dim, smaller_side))  # NumPy returns them in descending order
    else:
        # Compute only the largest singular values, by iteration. Without `v0`, SciPy would start
        # from a random vector that can't be reproduced.
        first_vector = numpy.random.default_rng(seed).standard_normal(smaller_side, dtype="float32")
        svds = require_scipy().linalg.svds
        left_vectors, singular_values, _ = svds(matrix, k=dim, v0=first_vector)
        by_size = numpy.argsort(-singular_values)
    ordered_values = singular_values[by_size]
    # If the rank is lower than `dim`, some singular values are 0. Due to rounding, they are not
    # exactly 0, but below this limit, and their columns of U are meaningless.
    rounding_error = ordered_values[0] * smaller_side * numpy.finfo("float32").eps
    kept_indices = by_size[ordered_values > rounding_error]
    kept_vectors = left_vectors[:, kept_indices]
    kept_values = singular_values[kept_indices]
    rows = kept_vectors * kept_values**SINGULAR_VALUE_POWER

    # Words that only occur with each other have separate singular vectors. If these are not among
    # the D largest, the row of U is 0 except for rounding errors, and normalizing it would turn
    # these errors into a vector. The length of a row of U S is the length of the matrix row's
    # projection onto the singular vectors. Its error is about eps S_1, where S_1 is the largest
    # singular value. Errors of sums of n numbers grow with sqrt(n): Higham & Mary (2019), A new
    # approach to probabilistic rounding error analysis.
    lengths = numpy.linalg.norm(kept_vectors * kept_values, axis=1)
    least_length = ordered_values[0] * numpy.sqrt(smaller_side) * numpy.finfo("float32").eps
    rows[lengths <= least_length] = 0
    return to_unit_length(rows)


def require_scipy() -> Any:
    """Import `scipy.sparse`, including `scipy.sparse.linalg`, and return it.

    RAISES (ImportError): If SciPy isn't installed.
    """
    missing = "vectors: SciPy is not installed"
    require("scipy.sparse.linalg", "vectors", missing)
    return require("scipy.sparse", "vectors", missing)
