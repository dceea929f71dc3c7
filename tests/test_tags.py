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
    entities = []
    start = 0
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
def test_decoding_undoes_encoding(scheme: str, sentence: tuple[list[int], Entities]) -> None:
    lengths, entities = sentence
    tags = Tags(LABELS, scheme)

    path = tags.encode(entities, sum(lengths))
    decoded = tags.decode(path, numpy.asarray(lengths, dtype="int32"))

    for column, expected in zip(decoded, entities):
        assert column.tolist() == expected.tolist()


def count_segmentations(length: int, n_labels: int) -> int:
    """Ways to cover a sentence with O tokens and with entities: the last token is O, or an entity
    with any of the labels begins at any token and ends there."""
    if length == 0:
        return 1
    ways = [count_segmentations(n, n_labels) for n in range(length)]
    return ways[-1] + n_labels * sum(ways)


def legal_paths(tags: Tags, length: int) -> list[tuple[int, ...]]:
    """All paths of a sentence that the constraints of the tags allow."""
    allowed = tags.constraints
    paths = []
    for path in product(range(len(tags)), repeat=length):
        has_legal_ends = allowed.start[path[0]] and allowed.end[path[-1]]
        if has_legal_ends and all(allowed.transitions[step] for step in pairwise(path)):
            paths.append(path)
    return paths


def labels_for(length: int) -> list[str]:
    """Fewer labels for longer sentences, as the number of paths grows quickly."""
    return LABELS if length < 4 else LABELS[:1]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_there_is_a_legal_path_for_each_way_to_cover_a_sentence(scheme: str, length: int) -> None:
    labels = labels_for(length)

    paths = legal_paths(Tags(labels, scheme), length)

    assert len(paths) == count_segmentations(length, len(labels))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_each_legal_path_is_split_in_one_way(scheme: str, length: int) -> None:
    """O is split into one tag before each label and one for other tokens."""
    labels = labels_for(length)
    plain_paths = legal_paths(Tags(labels, scheme), length)
    split_tags = Tags(labels, scheme, "before")

    paths = legal_paths(split_tags, length)

    assert sorted(paths) == sorted(split_path(split_tags, path) for path in plain_paths)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_splitting_a_path_does_not_change_its_entities(scheme: str, length: int) -> None:
    """The entities are encoded as the same paths again, split and collapsed."""
    labels = labels_for(length)
    plain = Tags(labels, scheme)
    split_tags = Tags(labels, scheme, "before")
    lengths = numpy.asarray([length], dtype="int32")
    for path in legal_paths(plain, length):
        split = split_path(split_tags, path)

        entities = split_tags.decode(numpy.asarray(split), lengths)

        encoded = split_tags.encode(entities, length)
        assert split_tags.split_outside(encoded, lengths).tolist() == list(split)
        assert split_tags.collapsed_of[list(split)].tolist() == list(path)
        for tags in (plain, split_tags.collapsed):
            assert tags.encode(entities, length).tolist() == list(path)
            for column, expected in zip(entities, tags.decode(numpy.asarray(path), lengths)):
                assert column.tolist() == expected.tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentence=sentences())
def test_sentences_are_split_one_by_one(scheme: str, sentence: tuple[list[int], Entities]) -> None:
    """O at the end of a sentence isn't before the entity of the next. The argument stays."""
    lengths, entities = sentence
    tags = Tags(LABELS, scheme, "before")
    encoded = tags.encode(entities, sum(lengths))
    copy = encoded.copy()

    split = tags.split_outside(encoded, numpy.asarray(lengths, dtype="int32"))

    path = tags.collapsed.encode(entities, sum(lengths)).tolist()
    expected: list[int] = []
    start = 0
    for length in lengths:
        expected += split_path(tags, tuple(path[start : start + length]))
        start += length
    assert split.tolist() == expected
    assert encoded.tolist() == copy.tolist()


def test_missing_tags_and_o_before_them_are_not_split() -> None:
    """Tags are O, B-a, I-a and O-a, the O before a: only that of token 5 is before B-a."""
    tags = Tags(["a"], "IOB2", "before")
    path = numpy.asarray([0, -1, 1, 0, -1, 0, 1])

    split = tags.split_outside(path, numpy.asarray([7]))

    assert split.tolist() == [0, -1, 1, 0, -1, 3, 1]


def test_tags_with_a_single_o_leave_paths_and_values_as_they_are() -> None:
    tags = Tags(["a"], "IOB2")
    path = numpy.asarray([0, -1, 1])
    values = numpy.ones((2, 3))

    assert tags.collapsed is tags
    assert tags.split_outside(path, numpy.asarray([3])) is path
    assert tags.collapse(values) is values


def test_collapse_adds_up_the_values_of_all_o() -> None:
    """Truth values: whether any is true."""
    tags = Tags(["a", "b"], "IOB2", "before")
    assert tags.names == ("O", "B-a", "I-a", "O-a", "B-b", "I-b", "O-b")
    assert tags.label_of.tolist() == [-1, 0, 0, -1, 1, 1, -1]
    # Powers of two, so that a sum says what it is of.
    values = numpy.asarray([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]])
    value_of_o = 1.0 + 8.0 + 64.0

    assert tags.collapse(values).tolist() == [[value_of_o, 2.0, 4.0, 16.0, 32.0]]
    assert tags.collapse(values == 8).tolist() == [[True, False, False, False, False]]


@pytest.mark.parametrize("outside", ["single", "before"])
def test_a_new_label_leaves_the_numbers_of_the_old_tags(outside: str) -> None:
    of_two = Tags(["a", "b"], "IOB2", outside).names
    of_three = Tags(["a", "b", "c"], "IOB2", outside).names

    assert of_three[: len(of_two)] == of_two


@pytest.mark.parametrize("outside", ["single", "before"])
def test_without_labels_the_only_tag_is_o(outside: str) -> None:
    tags = Tags([], outside=outside)

    assert tags.names == ("O",)
    assert tags.constraints.transitions.tolist() == [[True]]


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ValueError, match="scheme: expected 'BILUO' or 'IOB2', got 'BIO'"):
        Tags(["PER"], "BIO")


def test_an_unknown_way_to_split_o_is_named() -> None:
    with pytest.raises(ValueError, match="outside: expected 'single' or 'before', got 'one'"):
        Tags(["PER"], outside="one")


def test_an_entity_is_in_others_only_with_the_same_tokens_and_label() -> None:
    entities = Entities(
        begin=numpy.array([0, 0, 0, 1]),
        end=numpy.array([2, 2, 3, 2]),
        label=numpy.array([0, 1, 0, 0]),
    )
    assert entities.is_in(entities.select([0, 3])).tolist() == [True, False, False, True]
    assert entities.is_in(entities.select([])).tolist() == [False] * 4
    assert entities.select([]).is_in(entities).dtype == bool
