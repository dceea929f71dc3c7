"""Posteriors of short sequences, and the entities of their paths."""

from functools import cache
from typing import Any

import numpy
from hypothesis import strategies as st

from spacy_costner import chain
from spacy_costner.decoding import Decoding, Posterior
from spacy_costner.tags import Entities, Tags
from spacy_costner.types import zero_scores

from .. import oracle
from .strategies import TAG_SETS, random_scores, scales, seeds

POSTERIOR_TAGS = (
    *TAG_SETS,
    Tags(["a"], outside="before"),
    Tags(["a", "b"], "IOB2", "before"),
)
posterior_tag_sets = st.sampled_from(POSTERIOR_TAGS)
TREE = {"top": {"a": {}, "b": {}}}
Entity = tuple[int, int, int]


@st.composite
def posterior(draw: Any, spaces: bool = True) -> Posterior:
    """One or two short sequences under the constraints of a scheme, with a single or a split O,
    some with whitespace and with tags ruled out."""
    tags = draw(posterior_tag_sets)
    rng = draw(seeds)
    longest = 4 if len(tags) < 9 else 3  # so that all paths can be listed
    lengths = rng.integers(longest + 1, size=rng.choice([1, 2])).astype("int32")
    n_tokens = int(lengths.sum())
    is_space = (rng.uniform(size=n_tokens) < 0.3) & (spaces and bool(rng.integers(2)))
    possible = numpy.ones((n_tokens, len(tags)), dtype=bool)
    scheme = tags.scheme
    # No entity begins or ends with whitespace.
    border = {scheme.begin, scheme.last, scheme.unit} - {scheme.inside}
    possible[is_space] &= ~tags.having(border)
    constraints = tags.constraints._replace(emissions=possible)
    scores = chain.constrain(random_scores(rng, lengths, len(tags), draw(scales)), constraints)
    return Posterior(scores, tags, is_space=is_space)


def collapsed_paths(posterior: Posterior, b: int) -> list[oracle.Path]:
    """The legal paths of sequence b, over `tags.collapsed`, with the scores of the chain."""
    collapsed_of = posterior.tags.collapsed_of.tolist()
    paths = []
    for path in oracle.paths(posterior.scores, b):
        paths.append(path._replace(tags=tuple(collapsed_of[tag] for tag in path.tags)))
    return paths


def entities_of(posterior: Posterior, b: int, path: tuple[int, ...]) -> set[Entity]:
    """The entities of a path of sequence b, read off tag by tag, without whitespace at their
    ends."""
    tags = posterior.tags
    first_token = oracle.spans(posterior.scores)[b].start
    entities: list[Entity] = []
    for token, tag in enumerate(path, first_token):
        prefix = tags.prefix_of[tag]
        if prefix in ("B", "U"):
            entities.append((token, token + 1, int(tags.label_of[tag])))
        elif prefix != "O":
            begin, _, label = entities.pop()
            entities.append((begin, token + 1, label))
    without_space = set()
    for begin, end, label in entities:
        while posterior.is_space[end - 1]:
            end -= 1
        without_space.add((begin, end, label))
    return without_space


def probs_of_entities(posterior: Posterior) -> dict[Entity, float]:
    """Every entity that some path has, and how probable it is."""
    probs: dict[Entity, float] = {}
    for b in range(len(posterior.scores.lengths)):
        legal = oracle.paths(posterior.scores, b)
        for p, path in zip(oracle.probabilities(legal), legal):
            for entity in entities_of(posterior, b, path.tags):
                probs[entity] = probs.get(entity, 0.0) + p
    return probs


def columns(entities: list[Entity]) -> Entities:
    """Entities as arrays."""
    return Entities(*numpy.asarray(entities, dtype="int64").reshape(-1, 3).T)


def rows(entities: Entities) -> list[Entity]:
    """Entities as tuples."""
    return list(zip(*(column.tolist() for column in entities)))


def answer(decoding: Decoding, posterior: Posterior) -> list[tuple[int, int, str]]:
    """The entities of a decoding, with the names of their labels."""
    entities, labels, _ = decoding.decode(posterior, decoding.settings)
    return [(begin, end, labels[label]) for begin, end, label in rows(entities)]


def relabelled(
    path: tuple[int, ...], tags: Tags, answers: Tags, covers: numpy.ndarray
) -> list[tuple[int, ...]]:
    """The answers that a path may become: the same prefixes, and for each entity any label or inner
    node that covers its label. covers (bool[answers, labels])"""
    # An answer to the tokens so far, and the label of the entity that may go on; -1 after O.
    ways: list[tuple[tuple[int, ...], int]] = [((), -1)]
    for tag in path:
        prefix = tags.prefix_of[tag]
        label = tags.label_of[tag]
        longer_ways = []
        for answer_so_far, label_so_far in ways:
            if prefix == "O":
                longer_ways.append(((*answer_so_far, 0), -1))
                continue
            goes_on = bool(tags.continuing[tag])
            labels = [label_so_far] if goes_on else numpy.flatnonzero(covers[:, label]).tolist()
            for answer_label in labels:
                answer_tag = int(answers.index(prefix, answer_label))
                longer_ways.append(((*answer_so_far, answer_tag), answer_label))
        ways = longer_ways
    return [answer for answer, _ in ways]


def sure(*probs: dict[str, float]) -> Posterior:
    """Tokens, each a sequence of its own, with these probabilities of being O or an entity of one
    token with a label: `sure({"a": 0.6, "O": 0.4})` is one token. Labels are a to d."""
    tags = Tags(["a", "b", "c", "d"])
    # Of other tags the probability exp(-100), which is nothing beside these.
    emissions = numpy.full((len(probs), len(tags)), -100.0)
    for token, prob_of_label in enumerate(probs):
        for label, prob in prob_of_label.items():
            name = "O" if label == "O" else f"U-{label}"
            emissions[token, tags.names.index(name)] = numpy.log(prob)
    scores = zero_scores(numpy.ones(len(probs), dtype="int32"), len(tags), "float64")
    scores = scores._replace(emissions=emissions)
    return Posterior(chain.constrain(scores, tags.constraints), tags)


@cache
def entities(tags: Tags, path: tuple[int, ...]) -> tuple[Entity, ...]:
    """The entities of a path of one sequence."""
    lengths = numpy.asarray([len(path)], dtype="int32")
    return tuple(rows(tags.decode(numpy.asarray(path, dtype="int32"), lengths)))
