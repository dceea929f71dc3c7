"""Words beside other occurrences in the doc, against looking through the doc for each token."""

import tracemalloc
from typing import Any, Dict, List

import numpy
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_costner.features import Features, make_features
from spacy_costner.features.elsewhere import nearest_elsewhere, values_beside

VOCAB = spacy.blank("en").vocab
WORDS = ["Rome", "ROME", "rome", "Ana", "in", "of", "12", "Éa"]
DOCS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=4)


def slow_places(words: List[str], i: int, n_nearest: int) -> List[int]:
    """The nearest other occurrences of a token, from the nearest."""
    if not words[i][0].isupper():
        return []
    places = [
        j
        for j, word in enumerate(words)
        if j != i and word[0].isupper() and word.lower() == words[i].lower()
    ]
    return sorted(places, key=lambda j: (abs(j - i), j))[:n_nearest]


def slow_names(words: List[str], i: int, n_nearest: int) -> List[str]:
    found = set()
    for j in slow_places(words, i, n_nearest):
        found |= {f"[-1]={words[j - 1].lower()}"} if j > 0 else set()
        found |= {f"[+1]={words[j + 1].lower()}"} if j + 1 < len(words) else set()
    return sorted(f"elsewhere:LOWER{name}" for name in found)


def collected(docs: List[List[str]], **settings: Any) -> Features:
    windows = settings.pop("windows", {"LOWER": 0})
    features = Features(make_features(windows=windows, **settings))
    features.build_vocab([Doc(VOCAB, words=words) for words in docs])
    return features


def names_elsewhere(features: Features, docs: List[List[str]]) -> List[List[str]]:
    names, rows = features.names(), features.find([Doc(VOCAB, words=d) for d in docs]).rows
    found = [sorted(names[row] for row in token if row >= 0) for token in rows]
    return [[name for name in token if name.startswith("elsewhere")] for token in found]


@given(DOCS, DOCS, st.integers(1, 5))
def test_features_are_those_of_the_slow_version(
    train: List[List[str]], new: List[List[str]], n_nearest: int
) -> None:
    """Values that are not in the training data have no features, but their neighbours have."""
    features = collected(train, elsewhere={"LOWER": n_nearest})
    known = {word.lower() for words in train for word in words}
    expected = [
        [name for name in slow_names(words, i, n_nearest) if name.split("=")[1] in known]
        for words in new
        for i in range(len(words))
    ]
    assert names_elsewhere(features, new) == expected


@given(DOCS, st.integers(1, 5))
def test_places_are_those_of_the_slow_version(docs: List[List[str]], n_nearest: int) -> None:
    words = [word for doc in docs for word in doc]
    lower = sorted({word.lower() for word in words})
    tokens, places = nearest_elsewhere(
        numpy.asarray([lower.index(word.lower()) for word in words], dtype="uint64"),
        numpy.asarray([word[0].isupper() for word in words], dtype=bool),
        numpy.asarray([len(doc) for doc in docs], dtype="int32"),
        n_nearest,
    )
    found = {t: [p for p in row if p >= 0] for t, row in zip(tokens.tolist(), places.tolist())}
    start, expected = 0, {}
    for doc in docs:
        near = {start + i: slow_places(doc, i, n_nearest) for i in range(len(doc))}
        expected.update({t: [start + j for j in row] for t, row in near.items() if row})
        start += len(doc)
    assert found == expected


def test_values_beside_places() -> None:
    """Each once, and none beyond the ends of docs."""
    values = numpy.asarray([5, 6, 5, 7, -1, 8], dtype="int32")
    lengths = numpy.asarray([4, 0, 2], dtype="int32")
    places = numpy.asarray([[1, 3, 0], [4, -1, -1], [5, 3, -1]])
    before = values_beside(values, places, lengths, -1).tolist()
    after = values_beside(values, places, lengths, 1).tolist()
    assert [set(row) - {-1} for row in before] == [{5}, set(), {5}]
    assert [set(row) - {-1} for row in after] == [{5, 6}, {8}, set()]
    assert before[0].count(5) == 1


def peak(features: Features, words: List[str]) -> int:
    """The most memory that the features of a doc take, in bytes."""
    doc = Doc(VOCAB, words=words)
    features.find([doc])
    tracemalloc.start()
    features.find([doc])
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.parametrize("words", [["Rome"], ["Rome", "in"], WORDS])
def test_long_docs_take_no_more_for_each_token(words: List[str]) -> None:
    """A doc of 100,000 tokens, all alike or nearly so."""
    features = collected([words], memory={"LOWER": 1}, elsewhere={"LOWER": 8})
    half, whole = (peak(features, (words * n)[:n]) for n in (50_000, 100_000))
    assert whole < 2.1 * half and whole < 1000 * 100_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"elsewhere": {"LOWER": 0}}, r"elsewhere\.LOWER: expected a whole number of at least 1"),
        ({"elsewhere": {"suffix": 1}}, r"elsewhere: expected some of ORTH.*got 'suffix'"),
        ({"elsewhere": {"TAG": 1}}, r"elsewhere: expected some of the kinds in windows.*'TAG'"),
    ],
)
def test_bad_settings_are_named(settings: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"spacy_costner.Features: {message}"):
        make_features(**settings)


def test_another_number_of_occurrences_is_another_template() -> None:
    data = collected([WORDS], elsewhere={"LOWER": 8}).to_bytes()
    other = make_features(windows={"LOWER": 0}, elsewhere={"LOWER": 3})
    with pytest.raises(ValueError, match=r"expected those of the config, .*\[0\], 3\]"):
        Features(other).from_bytes(data)
