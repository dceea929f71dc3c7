"""Vectors of words that are learned from text."""

import math
import sys
from collections import Counter
from collections.abc import Iterator

import numpy
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from thinc.types import Floats2d

from spacy_costner.training import word_vectors as module
from spacy_costner.training.word_vectors import (
    count_pairs,
    factorise,
    learn_word_vectors,
    number_words,
    positive_pmi,
)

from ..support.raw_text import CITIES, N_TOKENS, NAMES, SENTENCES


def test_words_of_the_same_neighbours_have_similar_vectors() -> None:
    """In the sentences all cities have the same neighbours, and names have others."""
    vectors = learn_word_vectors(iter(SENTENCES), dim=3, min_count=2)

    assert vectors.n_tokens == N_TOKENS
    assert vectors.data.shape == (len(vectors.words), 3)
    index_of_word = {word: i for i, word in enumerate(vectors.words)}
    rome = vectors.data[index_of_word["rome"]]
    # All vectors have the length 1, so a product of two is their cosine.
    similarity_to_rome = vectors.data @ rome
    assert all(similarity_to_rome[index_of_word[city]] > 0.95 for city in CITIES)
    assert all(similarity_to_rome[index_of_word[name]] < 0.5 for name in NAMES)


def test_forms_of_a_word_are_the_same_word() -> None:
    """They count together, and share a row, also with the word in lower case, if it never occurs
    so."""
    sentences = [[word.capitalize() for word in words] for words in SENTENCES[:12]]
    sentences += [[word.upper() for word in words] for words in SENTENCES[12:]]
    vectors = learn_word_vectors([*sentences, ["Once"]], min_count=2)
    expected = learn_word_vectors(SENTENCES, min_count=2)
    assert vectors.words == expected.words
    assert_array_equal(vectors.data, expected.data)
    for row, word in enumerate(vectors.words):
        for form in (word, word.capitalize(), word.upper()):
            assert vectors.row_of_form[form] == row
    assert "Once" not in vectors.row_of_form


def pmi_pair_by_pair(sentences: list[list[str]], words: list[str]) -> Floats2d:
    """The matrix that is factorised: the positive pointwise mutual information of words (rows) and
    contexts (columns), which are words at an offset, with the counts of contexts to the power of
    0.75."""
    offsets = (-2, -1, 1, 2)
    contexts = [(word, offset) for offset in offsets for word in words]
    pair_counts: Counter[tuple[str, tuple[str, int]]] = Counter()
    for sentence in sentences:
        for i, word in enumerate(sentence):
            for offset in offsets:
                j = i + offset
                if 0 <= j < len(sentence) and word in words and sentence[j] in words:
                    pair_counts[word, (sentence[j], offset)] += 1
    word_counts: Counter[str] = Counter()
    context_counts: Counter[tuple[str, int]] = Counter()
    for (word, context), count in pair_counts.items():
        word_counts[word] += count
        context_counts[context] += count
    total = sum(count**0.75 for count in context_counts.values())

    matrix = numpy.zeros((len(words), len(contexts)))
    for (word, context), count in pair_counts.items():
        smoothed = context_counts[context] ** 0.75
        pmi = math.log(count * total / (word_counts[word] * smoothed))
        matrix[words.index(word), contexts.index(context)] = max(pmi, 0)
    return matrix


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_vectors_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The singular vectors of the matrix of mutual information, times a power of the singular
    values, of length 1; however many tokens and pairs are counted at a time. Cosines are compared,
    as they don't depend on the signs of singular vectors.

    "once" isn't counted, as it occurs once, but keeps its place: "ana" and "left" are two apart.
    """
    monkeypatch.setattr(module, "CHUNK", size)
    monkeypatch.setattr(module, "MOST_PAIRS", size)
    sentences = [*SENTENCES[:9], ["ana", "once", "left"]]
    text = number_words(sentences, 2)
    assert "once" not in text.words
    expected_pmi = pmi_pair_by_pair(sentences, text.words)
    pmi = positive_pmi(text.tokens, len(text.words))
    assert_allclose(pmi.toarray(), expected_pmi, atol=1e-6)

    vectors = learn_word_vectors(sentences, dim=9, min_count=2, seed=1)

    left, singular_values, _ = numpy.linalg.svd(expected_pmi)
    expected = left[:, :9] * singular_values[:9] ** module.SINGULAR_VALUE_POWER
    expected /= numpy.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors.words == text.words
    assert_allclose(vectors.data @ vectors.data.T, expected @ expected.T, atol=1e-4)


def test_contexts_are_the_most_frequent_words() -> None:
    """Of three words the first two are contexts. Each is one at the offsets -2, -1, 1 and 2, which
    makes eight columns. -1 is a place without a word."""
    tokens = numpy.asarray([-1, -1, 0, 1, 2, -1, -1])

    counts = count_pairs(tokens, first=0, end=3, n_context_words=2).toarray()

    expected = numpy.zeros((3, 8))
    expected[0, 5] = 1  # word 1 at offset 1
    expected[1, 2] = 1  # word 0 at offset -1
    expected[2, 0] = 1  # word 0 at offset -2
    expected[2, 3] = 1  # word 1 at offset -1
    assert_array_equal(counts, expected)
    assert_array_equal(count_pairs(tokens, 1, 3, 2).toarray(), expected[1:])


def test_large_matrices_are_iterated_to_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices are decomposed wholly. The seed changes only the last digits."""
    rng = numpy.random.default_rng(0)
    scales = 1 / numpy.arange(1, 61)
    dense = rng.normal(size=(60, 80)) * scales[:, None]
    matrix = scipy.sparse.csr_matrix(dense.astype("float32"))
    expected = factorise(matrix, dim=5, seed=0)
    monkeypatch.setattr(module, "SMALL_SIDE", 0)
    for seed in (0, 1):
        vectors = factorise(matrix, dim=5, seed=seed)
        assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-4)
    assert_array_equal(factorise(matrix, dim=5, seed=1), vectors)


def test_the_same_text_and_seed_make_the_same_bytes() -> None:
    first = learn_word_vectors(SENTENCES, dim=3, min_count=2, seed=3)
    second = learn_word_vectors(SENTENCES, dim=3, min_count=2, seed=3)
    assert first.words == second.words
    assert first.data.tobytes() == second.data.tobytes()


def test_fewer_words_than_dimensions_have_fewer_dimensions() -> None:
    """Two words that alternate have a matrix of rank 2."""
    vectors = learn_word_vectors([["a", "b"] * 20], dim=100, min_count=1)
    assert vectors.words == ["a", "b"]
    assert vectors.data.shape == (2, 2)
    assert_allclose(numpy.linalg.norm(vectors.data, axis=1), 1, atol=1e-6)


def test_matrices_of_a_lower_rank_have_fewer_dimensions() -> None:
    rng = numpy.random.default_rng(0)
    product = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 20))
    vectors = factorise(scipy.sparse.csr_matrix(product.astype("float32")), dim=5, seed=0)
    assert vectors.shape == (9, 2)


def test_words_that_stand_alone_have_no_vector() -> None:
    vectors = learn_word_vectors([*SENTENCES, ["alone"], ["alone"]], min_count=2)
    assert "alone" not in vectors.words
    expected = learn_word_vectors(SENTENCES, min_count=2)
    assert vectors.words == expected.words
    assert_allclose(vectors.data @ vectors.data.T, expected.data @ expected.data.T, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("small_side", [0, 1000], ids=["iterated", "decomposed wholly"])
def test_words_that_no_dimension_represents_have_no_vector(
    monkeypatch: pytest.MonkeyPatch, small_side: int
) -> None:
    """x and y occur only with each other, and rarely. The largest singular vectors are those of the
    other words: what is left of x and y is rounding. With more dimensions they have vectors."""
    monkeypatch.setattr(module, "SMALL_SIDE", small_side)
    rng = numpy.random.default_rng(0)
    words = [f"w{i}" for i in range(60)]
    sentences = [list(rng.choice(words, size=8)) for _ in range(300)]
    rare = [["x", "y"]] * 3

    for seed in range(3):
        vectors = learn_word_vectors([*sentences, *rare], dim=5, seed=seed)
        assert sorted(vectors.words) == sorted(words)
        assert vectors.row_of_form.keys() == set(words)
        assert_allclose(numpy.linalg.norm(vectors.data, axis=1), 1, atol=1e-6)

    vectors = learn_word_vectors([*sentences, *rare], dim=62)
    assert {"x", "y"} < set(vectors.words)


@pytest.mark.parametrize(
    ("sentences", "n_tokens"),
    [([], "0"), ([[]], "0"), ([["one"] * 1000], "1,000"), ([["a", "b"]], "2")],
)
def test_text_without_two_words_is_refused(sentences: list[list[str]], n_tokens: str) -> None:
    message = rf"vectors: expected words that occur at least 3 times, .* in {n_tokens} tokens"
    with pytest.raises(ValueError, match=message):
        learn_word_vectors(sentences)


@pytest.mark.parametrize("dim", [0, -1])
def test_vectors_have_a_dimension(dim: int) -> None:
    with pytest.raises(ValueError, match=f"vectors: dim: expected at least 1, got {dim}"):
        learn_word_vectors([["a", "b"]] * 5, dim=dim)


def test_without_scipy_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)

    def sentences() -> Iterator[list[str]]:
        pytest.fail("the text was read")
        yield []

    with pytest.raises(
        ImportError, match=r"vectors: SciPy is not installed.*spacy-costner\[vectors\]"
    ):
        learn_word_vectors(sentences())
