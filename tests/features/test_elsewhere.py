"""Tests of features of the words beside other occurrences of a word in the doc. They are compared
with a slow version, which looks through the doc for each token."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_costner.features import Features, Template

from ..support.linear import found_names
from ..support.vocabs import blank_vocab

VOCAB = blank_vocab()
WORDS = ["Rome", "ROME", "rome", "Ana", "in", "of", "12", "Éa"]
DOCS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=4)
"""Up to 4 docs of up to 12 words, some of them capitalised."""


def slow_places(words: list[str], i: int, n_nearest: int) -> list[int]:
    """The nearest other occurrences of a token, the nearest one first."""
    if not words[i][0].isupper():
        return []
    places = []
    for j, word in enumerate(words):
        if j != i and word[0].isupper() and word.lower() == words[i].lower():
            places.append(j)
    return sorted(places, key=lambda j: (abs(j - i), j))[:n_nearest]


def slow_names(words: list[str], i: int, n_nearest: int, values: set[str]) -> list[str]:
    """The names of the features of a token: of the words before and after its nearest other
    occurrences, if the training docs have these values."""
    names = set()
    for place in slow_places(words, i, n_nearest):
        for side in (-1, 1):
            neighbour = place + side
            if 0 <= neighbour < len(words) and words[neighbour].lower() in values:
                names.add(f"elsewhere:LOWER[{side:+d}]={words[neighbour].lower()}")
    return sorted(names)


def collected(docs: list[list[str]], **settings: Any) -> Features:
    """Features that were learned from docs: of words in lower case, and with these other
    settings."""
    features = Features(Template(windows={"LOWER": 0}, **settings))
    features.build_vocab([Doc(VOCAB, words=words) for words in docs])
    return features


@given(DOCS, DOCS, st.integers(1, 5))
def test_features_are_those_of_the_slow_version(
    train: list[list[str]], new: list[list[str]], n_nearest: int
) -> None:
    """A value that the training docs don't have has no features, but its neighbours have."""
    features = collected(train, elsewhere={"LOWER": n_nearest})
    values = set()
    for words in train:
        values.update(word.lower() for word in words)
    expected = []
    for words in new:
        for i in range(len(words)):
            expected.append(slow_names(words, i, n_nearest, values))
    names_of_elsewhere = []
    for names in found_names(features, [Doc(VOCAB, words=words) for words in new]):
        names_of_elsewhere.append([name for name in names if name.startswith("elsewhere")])
    assert names_of_elsewhere == expected


def peak_memory(features: Features, words: list[str], n_tokens: int) -> int:
    """The most memory, in bytes, that it takes to find the features of a doc in which these words
    are repeated."""
    doc = Doc(VOCAB, words=(words * n_tokens)[:n_tokens])
    features.find([doc])  # words are cached now
    tracemalloc.start()
    features.find([doc])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.slow
@pytest.mark.parametrize("words", [["Rome"], ["Rome", "in"], WORDS])
def test_memory_is_linear_in_the_tokens_of_a_doc(words: list[str]) -> None:
    """A doc of 100,000 tokens takes twice as much memory as one of 50,000, even if all its tokens
    are alike or nearly so, and less than 1,000 bytes for each token."""
    features = collected([words], memory={"LOWER": 1}, elsewhere={"LOWER": 8})
    peak_of_half = peak_memory(features, words, n_tokens=50_000)
    peak = peak_memory(features, words, n_tokens=100_000)
    assert peak < 2.1 * peak_of_half
    assert peak < 1000 * 100_000


def test_another_number_of_occurrences_is_another_template() -> None:
    data = collected([WORDS], elsewhere={"LOWER": 8}).to_bytes()
    other = Template(windows={"LOWER": 0}, elsewhere={"LOWER": 3})
    message = r"expected the columns of the config, .*'elsewhere:LOWER\[\+1\]', \[0\], 3\]\], got "
    with pytest.raises(ValueError, match=message):
        Features(other).from_bytes(data)
