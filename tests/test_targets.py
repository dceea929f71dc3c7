"""From docs to gold paths and to what the docs rule out."""

from itertools import pairwise
from typing import Any, List, Optional

import numpy
import pytest
import spacy
from hypothesis import given
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_costner import chain
from spacy_costner.tags import SCHEMES, Entities, Tags
from spacy_costner.training.targets import allowed_tags, gold_cost
from spacy_costner.training.token_attrs import (
    TokenAttrs,
    possible_paths,
    read_docs,
    read_reference,
)
from spacy_costner.types import no_scores

from .support.strategies import seeds

TAGS = Tags(["LOC", "PER"])
NLP = spacy.blank("xx")
VOCAB = NLP.vocab


def names(path: List[int]) -> List[str]:
    return ["-" if tag < 0 else TAGS.names[tag] for tag in path]


def gold_names(*examples: Example) -> List[str]:
    reference = read_reference(examples, read_docs([eg.predicted for eg in examples]))
    entities = reference.entities(TAGS, VOCAB.strings)
    return names(TAGS.gold_path(entities, reference.is_annotated))


def doc_of(words: str, ents: Optional[List[str]] = None) -> Doc:
    return Doc(VOCAB, words=words.split(" "), ents=ents)


def possible_tags(tokens: TokenAttrs, tags: Tags) -> Any:
    return possible_paths(tokens, tags, VOCAB.strings).emissions


def example(words: str, ents: List[str]) -> Example:
    return Example(doc_of(words), doc_of(words, ents))


@pytest.mark.parametrize(
    "examples, expected",
    [
        (
            [("Ana in New York City", "B-PER O B-LOC I-LOC I-LOC"), ("York", "B-LOC")],
            "U-PER O B-LOC I-LOC L-LOC U-LOC",
        ),
        ([("a b c", "B-LOC B-LOC I-LOC")], "U-LOC B-LOC L-LOC"),
        ([("a b", "B-GPE B-LOC"), ("a", "O")], "O U-LOC O"),
        ([("a b", "O O"), ("a b", None)], "O O - -"),
        ([("", None)], ""),
        ([], ""),
    ],
    ids=["of many tokens", "that touch", "of other labels", "none annotated", "no token", "no doc"],
)
def test_entities_become_tags(examples: Any, expected: str) -> None:
    docs = [
        (
            Doc(VOCAB, words=words.split()),
            Doc(VOCAB, words=words.split(), ents=ents and ents.split()),
        )
        for words, ents in examples
    ]
    assert gold_names(*(Example(*pair) for pair in docs)) == expected.split()


def test_missing_tokens_stay_missing() -> None:
    doc = doc_of("a b \n d")
    reference = doc_of("a b \n d")
    reference.set_ents([Span(reference, 1, 2, "LOC")], default="missing")
    assert gold_names(Example(doc, reference)) == ["-", "U-LOC", "-", "-"]


def test_entities_of_other_tokens() -> None:
    """They are missing where they don't align."""
    merged = Doc(VOCAB, words=["New York", "City"], ents=["B-LOC", "O"])
    split = Example(Doc(VOCAB, words=["New", "York", "City"]), merged)
    assert gold_names(split, example("x", ["O"])) == ["B-LOC", "L-LOC", "O", "O"]
    predicted = Doc(
        VOCAB, words=["New", "York-", "based", "Ana"], spaces=[True, False, True, False]
    )
    reference = Doc(
        VOCAB,
        words=["New", "York", "-based", "Ana"],
        spaces=[True, False, True, False],
        ents=["B-LOC", "I-LOC", "O", "B-PER"],
    )
    assert gold_names(Example(predicted, reference)) == ["-", "-", "O", "U-PER"]


def entities(*spans: List[int]) -> Entities:
    return Entities(*numpy.asarray(spans, dtype="int32").reshape(-1, 3).T)


@given(seeds)
def test_an_entity_is_from_its_first_word_to_its_last(rng: numpy.random.Generator) -> None:
    is_space = rng.uniform(size=6) < rng.choice([0.2, 0.5, 0.9])
    spans = [[begin, end, 1] for begin in range(6) for end in range(begin + 1, 7)]
    expected = []
    for begin, end, label in spans:
        words = [t for t in range(begin, end) if not is_space[t]]
        expected += [[words[0], words[-1] + 1, label]] if words else []
    assert numpy.stack(entities(*spans).trim(is_space), axis=1).tolist() == expected


def test_nothing_ruled_out_needs_no_mask() -> None:
    tokens = read_docs([doc_of("a b c")])
    assert possible_tags(tokens, TAGS) is None


def possible_names(doc: Doc, tags: Tags = TAGS) -> List[str]:
    possible = possible_tags(read_docs([doc]), tags)
    return [" ".join(name for name, ok in zip(tags.names, row) if ok) for row in possible]


def test_white_space_neither_begins_nor_ends_an_entity() -> None:
    everything = " ".join(TAGS.names)
    assert possible_names(doc_of("a \n b")) == [
        everything,
        "O I-LOC I-PER",
        everything,
    ]
    iob2 = Tags(["LOC"], "IOB2")
    assert possible_names(doc_of("\n"), iob2) == ["O I-LOC"]


def test_presets_rule_out_all_else() -> None:
    doc = doc_of("a b c d \n f")
    doc.set_ents(
        [Span(doc, 0, 2, "LOC"), Span(doc, 4, 5, "GPE")],
        outside=[Span(doc, 2, 3)],
        blocked=[Span(doc, 3, 4)],
        default="missing",
    )
    assert possible_names(doc) == [
        "B-LOC",
        "L-LOC",
        "O",
        "O",
        "O",
        " ".join(TAGS.names),
    ]


def test_missing_tokens_allow_all_and_cost_nothing() -> None:
    """Complete gold needs no mask."""
    assert allowed_tags(numpy.asarray([1, 0]), Tags(["LOC"], "IOB2"), numpy.asarray([2])) is None
    path = numpy.asarray([1, -1])
    table = numpy.asarray([[0, 2], [3, 0]], dtype="float32")
    tags = Tags(["LOC"], "IOB2")
    allowed = allowed_tags(numpy.asarray([0, -1]), tags, numpy.asarray([2]))
    assert allowed.tolist() == [[True, False, False], [True, True, True]]
    assert gold_cost(path, table, None).tolist() == [[3, 0], [0, 0]]
    assert gold_cost(path, table, numpy.asarray([2.0, 5.0])).tolist() == [[6, 0], [0, 0]]


def test_what_is_missing_after_an_entity_is_no_more_of_it() -> None:
    """But of the next doc it may be anything that the scheme allows there."""
    tags = Tags(["LOC"], "IOB2")
    path = numpy.asarray([1, -1, -1, 1, -1])
    allowed = allowed_tags(path, tags, numpy.asarray([4, 1]))
    either, not_inside = [True, True, True], [True, True, False]
    assert allowed[[1, 2, 4]].tolist() == [not_inside, either, either]


def test_what_follows_a_preset_entity_is_no_more_of_it() -> None:
    doc = Doc(NLP.vocab, words=["New", "York", "City"])
    doc.set_ents([Span(doc, 0, 2, "LOC")], default="missing")
    possible = possible_tags(read_docs([doc]), Tags(["LOC"], "IOB2"))
    assert possible.tolist() == [[False, True, False], [False, False, True], [True, True, False]]


def random_doc(rng: numpy.random.Generator) -> Doc:
    """Words and white space, sentences, and entities of any label; the others are missing, or O
    too."""
    doc = Doc(VOCAB, words=rng.choice(["a", "\n"], size=6).tolist())
    starts = numpy.flatnonzero(rng.uniform(size=6) < 0.4).tolist()
    ends = [rng.integers(a, b) + 1 for a, b in pairwise([*starts, 6])]
    names = rng.choice(["LOC", "PER", "GPE"], size=len(starts))
    for token in doc:
        token.is_sent_start = bool(rng.integers(2))
    doc.set_ents(
        [Span(doc, a, int(b), str(x)) for a, b, x in zip(starts, ends, names)],
        default=str(rng.choice(["missing", "outside"])),
    )
    return doc


@pytest.mark.parametrize("scheme", SCHEMES)
@given(seeds)
def test_a_split_outside_is_annotated_as_a_single_one(
    scheme: str, rng: numpy.random.Generator
) -> None:
    tags = Tags(["LOC", "PER"], scheme, "before")
    tokens = read_docs([random_doc(rng), Doc(VOCAB), random_doc(rng)])
    possible = possible_tags(tokens, tags)
    single = possible_tags(tokens, tags.collapsed)
    paths = [
        some.gold_path(tokens.entities(some, VOCAB.strings), tokens.is_annotated)
        for some in (tags, tags.collapsed)
    ]
    assert numpy.where(paths[0] < 0, -1, tags.collapsed_of[paths[0]]).tolist() == paths[1].tolist()
    allowed = allowed_tags(paths[0], tags, tokens.lengths)
    for found, expected in (
        (possible, single),
        (allowed, allowed_tags(paths[1], tags.collapsed, tokens.lengths)),
    ):
        assert (found is None) == (expected is None)
        assert found is None or (found == expected[:, tags.collapsed_of]).all()


@pytest.mark.parametrize("outside", ["single", "before"])
@pytest.mark.parametrize("scheme", SCHEMES)
@given(seeds)
def test_the_preset_entities_are_always_a_possible_path(
    scheme: str, outside: str, rng: numpy.random.Generator
) -> None:
    tags = Tags(["LOC", "PER"], scheme, outside)
    tokens = read_docs([random_doc(rng)])
    possible = possible_tags(tokens, tags)
    scores = no_scores(tokens.lengths, len(tags), "float64")
    if possible is not None:
        entities = tokens.entities(tags, VOCAB.strings)
        path = tags.gold_path(entities, numpy.ones(6, dtype=bool))
        path = tags.split_outside(path, tokens.lengths)
        legal = chain.constrain(scores, tags.constraints._replace(emissions=possible))
        assert chain.path_score(legal, path)[0] == 0
