"""From docs to gold paths and to what the docs rule out."""

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
from spacy_costner.tags import SCHEMES, Entities, Tags
from spacy_costner.token_attrs import (
    TokenAttrs,
    possible_paths,
    read_docs,
    read_reference,
)
from spacy_costner.training.objective import gold_cost
from spacy_costner.types import no_scores

from .support.strategies import seeds

TAGS = Tags(["LOC", "PER"])
NLP = spacy.blank("xx")
VOCAB = NLP.vocab


def names(path: list[int]) -> list[str]:
    return ["-" if tag < 0 else TAGS.names[tag] for tag in path]


def gold_names(*examples: Example) -> list[str]:
    reference = read_reference(examples, read_docs([eg.predicted for eg in examples]))
    entities = reference.entities(TAGS, VOCAB.strings)
    return names(TAGS.gold_path(entities, reference.is_annotated))


def doc_of(words: str, ents: str | None = None) -> Doc:
    """Words and tags are separated by single spaces; "-" is missing."""
    tags: Any = ents and [None if tag == "-" else tag for tag in ents.split()]
    return Doc(VOCAB, words=words.split(" ") if words else [], ents=tags)


def possible_tags(tokens: TokenAttrs, tags: Tags) -> Any:
    return possible_paths(tokens, tags, VOCAB.strings).emissions


@pytest.mark.parametrize(
    "examples, expected",
    [
        (
            [("Ana in New York", "B-PER O B-LOC I-LOC"), ("York", "B-LOC")],
            "U-PER O B-LOC L-LOC U-LOC",
        ),
        ([("a b c d", "B-LOC B-LOC I-LOC I-LOC")], "U-LOC B-LOC I-LOC L-LOC"),
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


def test_entities_of_other_tokens() -> None:
    """They are missing where they don't align."""
    merged = Doc(VOCAB, words=["New York", "City"], ents=["B-LOC", "O"])
    split = Example(Doc(VOCAB, words=["New", "York", "City"]), merged)
    assert gold_names(split, Example(doc_of("x"), doc_of("x", "O"))) == ["B-LOC", "L-LOC", "O", "O"]
    spaces, ents = [True, False, True, False], ["B-LOC", "I-LOC", "O", "B-PER"]
    predicted = Doc(VOCAB, words=["New", "York-", "based", "Ana"], spaces=spaces)
    reference = Doc(VOCAB, words=["New", "York", "-based", "Ana"], spaces=spaces, ents=ents)
    assert gold_names(Example(predicted, reference)) == ["-", "-", "O", "U-PER"]


def entities(*spans: list[int]) -> Entities:
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


def some_of(tags: Tags, possible: Any) -> list[str]:
    """The tags that are possible at each token; empty if nothing is ruled out."""
    rows = [] if possible is None else possible
    return [" ".join(itertools.compress(tags.names, row)) for row in rows]


ANY, IOB2 = " ".join(TAGS.names), Tags(["LOC"], "IOB2")


@pytest.mark.parametrize(
    "tags, words, ents, expected",
    [
        (TAGS, "a b c", None, []),
        # White space neither begins nor ends an entity.
        (TAGS, "a \n b", None, [ANY, "O I-LOC I-PER", ANY]),
        (IOB2, "\n", None, ["O I-LOC"]),
        # What follows a preset entity is no more of it.
        (IOB2, "New York City", "B-LOC I-LOC -", ["B-LOC", "I-LOC", "O B-LOC"]),
    ],
)
def test_what_docs_rule_out(tags: Tags, words: str, ents: Any, expected: list[str]) -> None:
    assert some_of(tags, possible_tags(read_docs([doc_of(words, ents)]), tags)) == expected


def test_presets_rule_out_all_else() -> None:
    doc = doc_of("a b c d \n f")
    doc.set_ents(
        [Span(doc, 0, 2, "LOC"), Span(doc, 4, 5, "GPE")],
        outside=[Span(doc, 2, 3)],
        blocked=[Span(doc, 3, 4)],
        default="missing",
    )
    possible = possible_tags(read_docs([doc]), TAGS)
    assert some_of(TAGS, possible) == ["B-LOC", "L-LOC", "O", "O", "O", ANY]


def test_missing_tokens_allow_all_and_cost_nothing() -> None:
    """The token after an entity is no more of it, but at the start of the next doc it may be."""
    path, every = numpy.asarray([0, -1, 1, -1, -1, 1, -1]), "O B-LOC I-LOC"
    names = some_of(IOB2, IOB2.agreeing(path, numpy.asarray([2, 4, 1])))
    assert names == ["O", every, "B-LOC", "O B-LOC", every, "B-LOC", every]
    table = numpy.asarray([[0, 2], [3, 0]], dtype="float32")
    assert gold_cost(path[1:3], table, None).tolist() == [[0, 0], [3, 0]]
    assert gold_cost(path[1:3], table, numpy.asarray([2.0, 5.0])).tolist() == [[0, 0], [15, 0]]


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
    agreeing = tags.agreeing(paths[0], tokens.lengths)
    for found, expected in (
        (possible, single),
        (agreeing, tags.collapsed.agreeing(paths[1], tokens.lengths)),
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
