"""Tag schemes: spans to tags and back, and the paths that they allow."""

from itertools import pairwise, product

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.tags import SCHEMES, Entities, Tags

from .support.split import split_path

LABELS = ["PER", "sports-team"]


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[int], Entities]:
    """Lengths of some sentences, and entities that cross none of their borders."""
    lengths = draw(st.lists(st.integers(0, 6), max_size=4))
    entities, start = [], 0
    for length in lengths:
        cuts = draw(st.lists(st.integers(start, start + length), unique=True).map(sorted))
        for begin, end in pairwise(cuts):
            if draw(st.booleans()):
                entities.append((begin, end, draw(st.integers(0, len(LABELS) - 1))))
        start += length
    begin, end, label = numpy.asarray(entities, dtype="int32").reshape(-1, 3).T
    return lengths, Entities(begin, end, label)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentence=sentences())
def test_entities_come_back(scheme: str, sentence: tuple[list[int], Entities]) -> None:
    lengths, entities = sentence
    tags = Tags(LABELS, scheme)
    path = tags.encode(entities, sum(lengths))
    for found, expected in zip(tags.decode(path, numpy.asarray(lengths, dtype="int32")), entities):
        assert found.tolist() == expected.tolist()


def count_segmentations(length: int, n_labels: int) -> int:
    """Ways to cover a sentence with O tokens and with entities."""
    if length == 0:
        return 1
    rest = [count_segmentations(n, n_labels) for n in range(length)]
    return rest[-1] + n_labels * sum(rest)


def legal_paths(tags: Tags, length: int) -> list[tuple[int, ...]]:
    allowed = tags.constraints
    return [
        path
        for path in product(range(len(tags)), repeat=length)
        if allowed.start[path[0]]
        and allowed.end[path[-1]]
        and all(allowed.transitions[step] for step in pairwise(path))
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_legal_paths_are_those_that_entities_make(scheme: str, length: int) -> None:
    """And each is split in one way."""
    labels = LABELS[: 2 if length < 4 else 1]
    plain, tags = Tags(labels, scheme), Tags(labels, scheme, "before")
    paths, lengths = legal_paths(plain, length), numpy.asarray([length], dtype="int32")
    assert len(paths) == count_segmentations(length, len(labels))
    assert sorted(legal_paths(tags, length)) == sorted(split_path(tags, path) for path in paths)
    for path in paths:
        split = split_path(tags, path)
        entities = tags.decode(numpy.asarray(split), lengths)
        encoded = tags.encode(entities, length)
        assert tags.split_outside(encoded, lengths).tolist() == list(split)
        assert tags.collapsed_of[list(split)].tolist() == list(path)
        for own in (plain, tags.collapsed):
            assert own.encode(entities, length).tolist() == list(path)
            for one, other in zip(entities, own.decode(numpy.asarray(path), lengths)):
                assert one.tolist() == other.tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentence=sentences())
def test_sentences_are_split_one_by_one(scheme: str, sentence: tuple[list[int], Entities]) -> None:
    lengths, entities = sentence
    tags, start, expected = Tags(LABELS, scheme, "before"), 0, []
    path = tags.collapsed.encode(entities, sum(lengths)).tolist()
    for length in lengths:
        expected += split_path(tags, tuple(path[start : start + length]))
        start += length
    encoded = tags.encode(entities, sum(lengths))
    before = encoded.copy()
    split = tags.split_outside(encoded, numpy.asarray(lengths, dtype="int32"))
    assert split.tolist() == expected and (encoded == before).all()


def test_what_is_unknown_or_single_is_not_split() -> None:
    tags, lengths = Tags(["a"], "IOB2", "before"), numpy.asarray([7])
    path = numpy.asarray([0, -1, 1, 0, -1, 0, 1])
    assert tags.split_outside(path, lengths).tolist() == [0, -1, 1, 0, -1, 3, 1]
    single, values = tags.collapsed, numpy.ones((2, 3))
    assert single.collapsed is single and single.split_outside(path, lengths) is path
    assert single.collapse(values) is values


def test_values_of_the_same_annotation_are_put_together() -> None:
    tags = Tags(["a", "b"], "IOB2", "before")
    assert tags.names == ("O", "B-a", "I-a", "O-a", "B-b", "I-b", "O-b")
    assert tags.label_of.tolist() == [-1, 0, 0, -1, 1, 1, -1]
    values = numpy.asarray([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]])
    assert tags.collapse(values).tolist() == [[73.0, 2.0, 4.0, 16.0, 32.0]]
    assert tags.collapse(values == 8).tolist() == [[True, False, False, False, False]]


@pytest.mark.parametrize("outside", ["single", "before"])
def test_labels_one_after_another(outside: str) -> None:
    """A new label leaves the old tags. Without labels all is outside."""
    two, three = (Tags(labels, "IOB2", outside).names for labels in (["a", "b"], ["a", "b", "c"]))
    assert three[: len(two)] == two
    none = Tags([], outside=outside)
    assert none.names == ("O",) and none.constraints.transitions.tolist() == [[True]]


def test_unknown_settings_are_named() -> None:
    with pytest.raises(ValueError, match="scheme: expected 'BILUO' or 'IOB2', got 'BIO'"):
        Tags(["PER"], "BIO")
    with pytest.raises(ValueError, match="outside: expected 'single' or 'before', got 'one'"):
        Tags(["PER"], outside="one")
