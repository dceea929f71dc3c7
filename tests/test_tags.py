"""Tag schemes: spans to tags and back, and the paths that they allow."""

from itertools import pairwise, product
from typing import List, Tuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.tags import SCHEMES, Entities, Tags

from .support.split import split_path

LABELS = ["PER", "sports-team"]


@st.composite
def sentences(draw: st.DrawFn) -> Tuple[List[int], Entities]:
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
def test_entities_come_back(scheme: str, sentence: Tuple[List[int], Entities]) -> None:
    lengths, entities = sentence
    tags = Tags(LABELS, scheme)
    path = tags.encode(entities, sum(lengths))
    for found, expected in zip(tags.decode(path, numpy.asarray(lengths, dtype="int32")), entities):
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_legal_paths_are_those_that_entities_make(scheme: str, length: int) -> None:
    tags = Tags(LABELS, scheme)
    lengths, paths = numpy.asarray([length], dtype="int32"), legal_paths(tags, length)
    for path in paths:
        entities = tags.decode(numpy.asarray(path), lengths)
        assert tags.encode(entities, length).tolist() == list(path)
    assert len(paths) == count_segmentations(length)


def count_segmentations(length: int) -> int:
    """Ways to cover a sentence with O tokens and with entities of two labels."""
    if length == 0:
        return 1
    entities = sum(len(LABELS) * count_segmentations(length - n) for n in range(1, length + 1))
    return count_segmentations(length - 1) + entities


def legal_paths(tags: Tags, length: int) -> List[Tuple[int, ...]]:
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
def test_each_legal_path_is_split_in_one_way(scheme: str, length: int) -> None:
    labels = LABELS[: 2 if length < 4 else 1]
    tags = Tags(labels, scheme, "before")
    paths = legal_paths(Tags(labels, scheme), length)
    lengths = numpy.asarray([length], dtype="int32")
    assert sorted(legal_paths(tags, length)) == sorted(split_path(tags, path) for path in paths)
    for path in paths:
        split = split_path(tags, path)
        entities = tags.decode(numpy.asarray(split), lengths)
        encoded = tags.encode(entities, length)
        assert tags.split_outside(encoded, lengths).tolist() == list(split)
        assert tags.collapsed_of[list(split)].tolist() == list(path)
        for one, other in zip(entities, tags.collapsed.decode(numpy.asarray(path), lengths)):
            assert one.tolist() == other.tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentence=sentences())
def test_sentences_are_split_one_by_one(scheme: str, sentence: Tuple[List[int], Entities]) -> None:
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


def test_what_is_unknown_is_not_split() -> None:
    tags = Tags(["a"], "IOB2", "before")
    path = numpy.asarray([0, -1, 1, 0, -1, 0, 1])
    assert tags.split_outside(path, numpy.asarray([7])).tolist() == [0, -1, 1, 0, -1, 3, 1]


def test_a_single_outside_is_left_as_it_is() -> None:
    tags, path = Tags(LABELS), numpy.asarray([0, 1])
    assert tags.collapsed is tags and tags.split_outside(path, numpy.asarray([2])) is path
    values = numpy.ones((2, len(tags)))
    assert tags.collapse(values) is values


def test_values_of_the_same_annotation_are_put_together() -> None:
    tags = Tags(["a", "b"], "IOB2", "before")
    assert tags.names == ("O", "B-a", "I-a", "O-a", "B-b", "I-b", "O-b")
    assert tags.label_of.tolist() == [-1, 0, 0, -1, 1, 1, -1]
    values = numpy.asarray([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]])
    assert tags.collapse(values).tolist() == [[73.0, 2.0, 4.0, 16.0, 32.0]]
    assert tags.collapse(values == 8).tolist() == [[True, False, False, False, False]]


def test_a_new_label_leaves_the_old_tags() -> None:
    assert Tags(["a", "b", "c"], "IOB2").names[:5] == Tags(["a", "b"], "IOB2").names
    larger = Tags(["a", "b", "c"], "IOB2", "before").names
    assert larger[:7] == Tags(["a", "b"], "IOB2", "before").names


def test_without_labels_all_is_outside() -> None:
    for tags in (Tags([]), Tags([], outside="before")):
        assert tags.names == ("O",)
        assert tags.constraints.transitions.tolist() == [[True]]


def test_unknown_settings_are_named() -> None:
    with pytest.raises(ValueError, match="scheme: expected 'BILUO' or 'IOB2', got 'BIO'"):
        Tags(["PER"], "BIO")
    with pytest.raises(ValueError, match="outside: expected 'single' or 'before', got 'one'"):
        Tags(["PER"], outside="one")
