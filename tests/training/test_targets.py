"""From docs to gold paths and to possible paths."""

import itertools
from itertools import pairwise
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import given
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_costner import chain
from spacy_costner.annotation.settings import Annotation
from spacy_costner.annotation.tokens import (
    TokenAttrs,
    align_reference,
    possible_paths,
    read_reference,
    read_token_attrs,
    with_label_indices,
)
from spacy_costner.tags import SCHEMES, Entities, Tags
from spacy_costner.training.objective import costs_given_gold
from spacy_costner.training.targets import Weights, make_targets, read_annotation
from spacy_costner.types import zero_scores

from ..support.strategies import seeds

TAGS = Tags(["LOC", "PER"])
NLP = spacy.blank("xx")
VOCAB = NLP.vocab


def gold_names(*examples: Example) -> list[str]:
    """The names of the gold tags of examples, "-" where annotation is missing."""
    reference = read_reference(examples, read_token_attrs([eg.predicted for eg in examples]))
    entities = reference.entities(TAGS, VOCAB.strings)
    path = TAGS.gold_path(entities, reference.is_annotated)
    return ["-" if tag < 0 else TAGS.names[tag] for tag in path]


def doc_of(words: str, ents: str | None = None) -> Doc:
    """Words and tags are separated by single spaces; "-" is missing."""
    tags: Any = None
    if ents:
        tags = [None if tag == "-" else tag for tag in ents.split()]
    return Doc(VOCAB, words=words.split(" ") if words else [], ents=tags)


def possible_tags(tokens: TokenAttrs, tags: Tags) -> Any:
    """True for the tags that docs leave possible, (N, K); None if they are all."""
    return possible_paths(tokens, tags, VOCAB.strings).emissions


@pytest.mark.parametrize(
    "examples, expected",
    [
        (
            [("Ana in New York", "B-PER O B-LOC I-LOC"), ("York", "B-LOC")],
            "U-PER O B-LOC L-LOC U-LOC",
        ),
        ([("a b c d", "B-LOC B-LOC I-LOC I-LOC")], "U-LOC B-LOC I-LOC L-LOC"),
        # GPE is no label of the model.
        ([("a b", "B-GPE B-LOC"), ("a", "O")], "O U-LOC O"),
        ([("a b", "O O"), ("a b", None)], "O O - -"),
        ([("a b \n d", "- B-LOC - -")], "- U-LOC - -"),
        ([("", None)], ""),
        ([], ""),
    ],
)
def test_entities_become_tags(examples: Any, expected: str) -> None:
    pairs = [Example(doc_of(words), doc_of(words, ents)) for words, ents in examples]
    assert gold_names(*pairs) == expected.split()


def test_entities_of_other_tokens_are_aligned() -> None:
    merged = Doc(VOCAB, words=["New York", "City"], ents=["B-LOC", "O"])
    split = Example(Doc(VOCAB, words=["New", "York", "City"]), merged)
    same_tokens = Example(doc_of("x"), doc_of("x", "O"))
    assert gold_names(split, same_tokens) == ["B-LOC", "L-LOC", "O", "O"]


def test_entities_that_do_not_align_are_missing() -> None:
    """ "New York" ends within the token "York-"."""
    spaces = [True, False, True, False]
    predicted = Doc(VOCAB, words=["New", "York-", "based", "Ana"], spaces=spaces)
    tags = ["B-LOC", "I-LOC", "O", "B-PER"]
    reference = Doc(VOCAB, words=["New", "York", "-based", "Ana"], spaces=spaces, ents=tags)
    assert gold_names(Example(predicted, reference)) == ["-", "-", "O", "U-PER"]


def test_misaligned_entities_have_all_tokens_with_which_they_share_characters() -> None:
    """In the second doc, "New York" and "-a" end and begin within the token "York-a", and "c" is
    aligned. "x" isn't annotated."""
    first = Example(doc_of("x y"), doc_of("x y", "B-LOC O"))
    predicted = Doc(VOCAB, words=["New", "York-a", "b", "c", "xy", "z"])
    words = ["New", "York", "-a", "b", "c", "x", "y", "z"]
    spaces = [True, False, True, True, True, False, True, True]
    tags: Any = ["B-LOC", "I-LOC", "B-GPE", "O", "B-PER", None, "O", "O"]
    reference = Doc(VOCAB, words=words, spaces=spaces, ents=tags)
    examples = [first, Example(predicted, reference)]

    tokens, is_annotated, misaligned = align_reference(
        examples, read_token_attrs([eg.predicted for eg in examples])
    )

    with_indices = with_label_indices(misaligned, TAGS, VOCAB.strings)
    assert with_indices.as_tuples() == [(2, 4, 0), (3, 4, -1)]  # GPE is no label of the model
    assert tokens.entities(TAGS, VOCAB.strings).as_tuples() == [(0, 1, 0), (5, 6, 1)]
    # The tags of "New" and "York-a" are unknown, although both are annotated. A part of "xy" isn't.
    assert tokens.is_annotated.tolist() == [True, True, False, False, True, True, False, True]
    assert is_annotated.tolist() == [True, True, True, True, True, True, False, True]


def entities_of(spans: list[list[int]]) -> Entities:
    """Entities from rows of begin, end and label."""
    return Entities(*numpy.asarray(spans, dtype="int32").reshape(-1, 3).T)


@given(seeds)
def test_an_entity_is_from_its_first_word_to_its_last(rng: numpy.random.Generator) -> None:
    is_space = rng.uniform(size=6) < rng.choice([0.2, 0.5, 0.9])
    spans: list[list[int]] = []
    expected: list[list[int]] = []
    for begin in range(6):
        for end in range(begin + 1, 7):
            spans.append([begin, end, 1])
            words = [t for t in range(begin, end) if not is_space[t]]
            if words:
                expected.append([words[0], words[-1] + 1, 1])
    trimmed = entities_of(spans).trim(is_space)
    assert numpy.stack(trimmed, axis=1).tolist() == expected


def names_in(mask: Any, tags: Tags) -> list[str]:
    """The names of the tags that a mask, (N, K), has at each token; empty if there is no mask."""
    if mask is None:
        return []
    return [" ".join(itertools.compress(tags.names, row)) for row in mask]


IOB2 = Tags(["LOC"], "IOB2")
ANY = " ".join(TAGS.names)
ANY_IOB2 = "O B-LOC I-LOC"


@pytest.mark.parametrize(
    "tags, words, ents, expected",
    [
        (TAGS, "a b c", None, []),
        # Whitespace neither begins nor ends an entity.
        (TAGS, "a \n b", None, [ANY, "O I-LOC I-PER", ANY]),
        (IOB2, "\n", None, ["O I-LOC"]),
        # What follows a preset entity is no more of it.
        (IOB2, "New York City", "B-LOC I-LOC -", ["B-LOC", "I-LOC", "O B-LOC"]),
    ],
)
def test_white_space_and_presets_rule_out_tags(
    tags: Tags, words: str, ents: Any, expected: list[str]
) -> None:
    tokens = read_token_attrs([doc_of(words, ents)])
    assert names_in(possible_tags(tokens, tags), tags) == expected


def test_presets_rule_out_all_else() -> None:
    """GPE is no label of the model, so a token with this label can only be O. Only the last token,
    which is missing, may have any tag."""
    doc = doc_of("a b c d \n f")
    doc.set_ents(
        [Span(doc, 0, 2, "LOC"), Span(doc, 4, 5, "GPE")],
        outside=[Span(doc, 2, 3)],
        blocked=[Span(doc, 3, 4)],
        default="missing",
    )
    possible = possible_tags(read_token_attrs([doc]), TAGS)
    assert names_in(possible, TAGS) == ["B-LOC", "L-LOC", "O", "O", "O", ANY]


def test_any_tag_agrees_with_missing_annotation() -> None:
    """The token after an annotated entity is an exception: it can't be in this entity. Docs don't
    affect each other: the second doc begins with B-LOC after a missing token of the first, and the
    token of the third is missing after B-LOC in the second."""
    path = numpy.asarray([0, -1, 1, -1, -1, 1, -1])
    agreeing = IOB2.agreeing(path, lengths=numpy.asarray([2, 4, 1]))
    after_entity = "O B-LOC"
    expected = ["O", ANY_IOB2, "B-LOC", after_entity, ANY_IOB2, "B-LOC", ANY_IOB2]
    assert names_in(agreeing, IOB2) == expected


def test_only_missing_annotation_needs_a_mask() -> None:
    for ents, has_mask in (("B-LOC O", False), ("B-LOC -", True)):
        eg = Example(doc_of("Rome in"), doc_of("Rome in", ents))
        batch = read_annotation([eg], IOB2, VOCAB.strings, Annotation(), Weights(), warned=set())
        gold = make_targets(batch, is_border=numpy.zeros(2, bool)).gold
        assert (gold.allowed is not None) is has_mask


def test_missing_tokens_cost_nothing() -> None:
    """A mistake at the second token, B-LOC, costs 3, times its weight."""
    path = numpy.asarray([-1, 1])
    table = numpy.asarray([[0, 2], [3, 0]], dtype="float32")
    assert costs_given_gold(path, table, None).tolist() == [[0, 0], [3, 0]]
    assert costs_given_gold(path, table, numpy.asarray([2.0, 5.0])).tolist() == [[0, 0], [15, 0]]


def random_doc(rng: numpy.random.Generator) -> Doc:
    """Six words or line breaks, with sentence starts and with entities of labels that `TAGS` has or
    lacks. All other tokens are missing, or all are O."""
    doc = Doc(VOCAB, words=rng.choice(["a", "\n"], size=6).tolist())
    for token in doc:
        token.is_sent_start = bool(rng.integers(2))
    begins = numpy.flatnonzero(rng.uniform(size=6) < 0.4).tolist()
    entities = []
    for begin, next_begin in pairwise([*begins, 6]):
        end = int(rng.integers(begin, next_begin)) + 1
        label = str(rng.choice(["LOC", "PER", "GPE"]))
        entities.append(Span(doc, begin, end, label))
    doc.set_ents(entities, default=str(rng.choice(["missing", "outside"])))
    return doc


@pytest.mark.parametrize("scheme", SCHEMES)
@given(seeds)
def test_a_split_outside_is_annotated_as_a_single_one(
    scheme: str, rng: numpy.random.Generator
) -> None:
    tags = Tags(["LOC", "PER"], scheme, "before")
    tokens = read_token_attrs([random_doc(rng), Doc(VOCAB), random_doc(rng)])
    collapsed = tags.collapsed
    entities = tokens.entities(tags, VOCAB.strings)
    path = tags.gold_path(entities, tokens.is_annotated)
    collapsed_path = collapsed.gold_path(entities, tokens.is_annotated)
    expected_path = numpy.where(path < 0, -1, tags.collapsed_of[path])
    assert collapsed_path.tolist() == expected_path.tolist()

    agreeing = tags.agreeing(path, tokens.lengths)
    agreeing_collapsed = collapsed.agreeing(collapsed_path, tokens.lengths)
    assert (agreeing == agreeing_collapsed[:, tags.collapsed_of]).all()

    possible = possible_tags(tokens, tags)
    possible_collapsed = possible_tags(tokens, collapsed)
    assert (possible is None) == (possible_collapsed is None)
    if possible is not None:
        assert (possible == possible_collapsed[:, tags.collapsed_of]).all()


@pytest.mark.slow
@pytest.mark.parametrize("outside", ["single", "before"])
@pytest.mark.parametrize("scheme", SCHEMES)
@given(seeds)
def test_the_preset_entities_are_always_a_possible_path(
    scheme: str, outside: str, rng: numpy.random.Generator
) -> None:
    tags = Tags(["LOC", "PER"], scheme, outside)
    tokens = read_token_attrs([random_doc(rng)])
    possible = possible_tags(tokens, tags)
    if possible is None:  # all paths are
        return

    entities = tokens.entities(tags, VOCAB.strings)
    path = tags.gold_path(entities, numpy.ones(6, dtype=bool))
    path = tags.split_outside(path, tokens.lengths)
    scores = zero_scores(tokens.lengths, len(tags), "float64")
    legal = chain.constrain(scores, tags.constraints._replace(emissions=possible))
    (score,), _ = chain.path_score(legal, path)
    assert score == 0  # that of an impossible path is minus infinity
