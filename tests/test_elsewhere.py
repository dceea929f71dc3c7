"""Words beside other occurrences in the doc, against looking through the doc for each token."""

import tracemalloc
from typing import Any

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_costner.features import Features, Template

from .support.linear import found_names

VOCAB = spacy.blank("xx").vocab
WORDS = ["Rome", "ROME", "rome", "Ana", "in", "of", "12", "Éa"]
DOCS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=4)


def slow_places(words: list[str], i: int, n_nearest: int) -> list[int]:
    """The nearest other occurrences of a token, from the nearest."""
    if not words[i][0].isupper():
        return []
    places = [
        j
        for j, word in enumerate(words)
        if j != i and word[0].isupper() and word.lower() == words[i].lower()
    ]
    return sorted(places, key=lambda j: (abs(j - i), j))[:n_nearest]


def slow_names(words: list[str], i: int, n_nearest: int) -> list[str]:
    places = [(j + by, f"[{by:+d}]") for j in slow_places(words, i, n_nearest) for by in (-1, 1)]
    found = {f"{side}={words[j].lower()}" for j, side in places if 0 <= j < len(words)}
    return sorted(f"elsewhere:LOWER{name}" for name in found)


def collected(docs: list[list[str]], **settings: Any) -> Features:
    windows = settings.pop("windows", {"LOWER": 0})
    features = Features(Template(windows=windows, **settings))
    features.build_vocab([Doc(VOCAB, words=words) for words in docs])
    return features


@given(DOCS, DOCS, st.integers(1, 5))
def test_features_are_those_of_the_slow_version(
    train: list[list[str]], new: list[list[str]], n_nearest: int
) -> None:
    """Values that are not in the training data have no features, but their neighbours have."""
    features = collected(train, elsewhere={"LOWER": n_nearest})
    known = {word.lower() for words in train for word in words}
    slow = [slow_names(words, i, n_nearest) for words in new for i in range(len(words))]
    expected = [[name for name in token if name.split("=")[1] in known] for token in slow]
    found = found_names(features, [Doc(VOCAB, words=words) for words in new])
    of_others = [[name for name in token if name.startswith("elsewhere")] for token in found]
    assert of_others == expected


def peak(features: Features, words: list[str]) -> int:
    """The most memory that the features of a doc take, in bytes."""
    doc = Doc(VOCAB, words=words)
    features.find([doc])
    tracemalloc.start()
    features.find([doc])
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.parametrize("words", [["Rome"], ["Rome", "in"], WORDS])
def test_long_docs_take_no_more_for_each_token(words: list[str]) -> None:
    """A doc of 100,000 tokens, all alike or nearly so."""
    features = collected([words], memory={"LOWER": 1}, elsewhere={"LOWER": 8})
    half, whole = (peak(features, (words * n)[:n]) for n in (50_000, 100_000))
    assert whole < 2.1 * half and whole < 1000 * 100_000


def test_another_number_of_occurrences_is_another_template() -> None:
    data = collected([WORDS], elsewhere={"LOWER": 8}).to_bytes()
    other = Template(windows={"LOWER": 0}, elsewhere={"LOWER": 3})
    with pytest.raises(ValueError, match=r"expected those of the config, .*\[0\], 3\]"):
        Features(other).from_bytes(data)
