"""Tag schemes: spans to tags and back, and the paths that they allow."""

from itertools import pairwise, product
from typing import List, Tuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.tags import SCHEMES, Entities, Tags

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
    allowed = tags.constraints
    lengths = numpy.asarray([length], dtype="int32")
    n_legal = 0
    for path in product(range(len(tags)), repeat=length):
        steps = pairwise(path)
        legal = allowed.start[path[0]] and allowed.end[path[-1]]
        legal = legal and all(allowed.transitions[step] for step in steps)
        if legal:
            n_legal += 1
            entities = tags.decode(numpy.asarray(path), lengths)
            assert tags.encode(entities, length).tolist() == list(path)
    assert n_legal == count_segmentations(length)


def count_segmentations(length: int) -> int:
    """Ways to cover a sentence with O tokens and with entities of two labels."""
    if length == 0:
        return 1
    entities = sum(len(LABELS) * count_segmentations(length - n) for n in range(1, length + 1))
    return count_segmentations(length - 1) + entities


def test_names_keep_hyphens() -> None:
    assert Tags(["sports-team"]).names == (
        "O",
        "B-sports-team",
        "I-sports-team",
        "L-sports-team",
        "U-sports-team",
    )


def test_a_new_label_leaves_the_old_tags() -> None:
    assert Tags(["a", "b", "c"], "IOB2").names[:5] == Tags(["a", "b"], "IOB2").names


def test_without_labels_all_is_outside() -> None:
    tags = Tags([])
    assert tags.names == ("O",)
    assert tags.constraints.transitions.tolist() == [[True]]


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ValueError, match="scheme: expected 'BILUO' or 'IOB2', got 'BIO'"):
        Tags(["PER"], "BIO")
