"""Rehearsal: the divergence by enumeration, and that models forget less."""

import math
from itertools import pairwise
from typing import Any

import numpy
import pytest
from spacy.training import Example
from thinc.api import fix_random_seed

from spacy_costner.pipeline.rehearsal import rehearsal_targets
from spacy_costner.tags import Tags
from spacy_costner.training.soft_targets import divergence
from spacy_costner.types import Constraints, LossResult, Potentials

from . import oracle
from .support.batches import random_potentials
from .support.gradients import check_loss_gradient
from .support.linear import SPARSE
from .support.pipelines import TEXTS, examples, pipeline, train

LENGTHS = [3, 0, 1, 4]
DEFAULTS = {"model": SPARSE}


def model_and_teacher(n_added: int, outside: str = "single") -> Any:
    """Scores of some tags, of fewer, and what is possible."""
    tags = Tags(("LOC", "PERSON")[: 1 + n_added], "IOB2", outside)
    n_known = len(Tags(["LOC"], "IOB2", outside))
    rng = numpy.random.default_rng(3)
    possible = rng.uniform(size=(sum(LENGTHS), len(tags))) < 0.8
    possible[:, tags.label_of < 0] = True
    constraints = tags.constraints._replace(emissions=possible)
    scores = random_potentials(LENGTHS, len(tags), scale=2)
    return scores, random_potentials(LENGTHS, n_known, scale=2, seed=1), constraints


def rehearsed(scores: Potentials, teacher: Potentials, constraints: Constraints) -> LossResult:
    return divergence(scores, rehearsal_targets(teacher, len(scores.start), constraints))


def enumerated(scores: Potentials, teacher: Potentials, constraints: Constraints) -> float:
    """sum_y p(y) log (p(y) / q(y)) over the paths of the teacher's tags."""
    total = 0.0
    for b in range(len(teacher.lengths)):
        token = oracle.spans(teacher)[b].start
        every = oracle.paths(teacher, b)
        legal = [path for path in every if is_possible(path.tags, constraints, token)]
        mine = [path._replace(score=oracle.score(scores, b, path.tags)) for path in legal]
        pairs = zip(oracle.probabilities(legal), oracle.probabilities(mine))
        total += sum(p * math.log(p / q) for p, q in pairs)
    return total


def is_possible(tags: oracle.Tags, constraints: Constraints, token: int) -> bool:
    steps = pairwise(tags)
    return (
        all(constraints.emissions[token + t, tag] for t, tag in enumerate(tags))
        and all(constraints.transitions[step] for step in steps)
        and (not tags or bool(constraints.start[tags[0]] and constraints.end[tags[-1]]))
    )


@pytest.mark.parametrize("outside", ["single", "before"])
@pytest.mark.parametrize("n_added", [0, 1])
def test_divergence_is_that_of_enumerated_paths(n_added: int, outside: str) -> None:
    scores, teacher, constraints = model_and_teacher(n_added, outside)
    result = rehearsed(scores, teacher, constraints)
    assert result.value > 0.1
    assert result.value == pytest.approx(enumerated(scores, teacher, constraints), rel=1e-6)
    check_loss_gradient(
        lambda moved: rehearsed(moved, teacher, constraints),
        lambda moved: enumerated(moved, teacher, constraints),
        scores,
    )
    assert n_added == 0 or not result.gradient.emissions[:, len(teacher.start) :].any()


@pytest.mark.parametrize(
    "settings",
    [{}, DEFAULTS, {"outside": "before"}, {**DEFAULTS, "outside": "before"}],
    ids=["dense", "sparse", "dense, split", "sparse, split"],
)
def test_rehearsal_keeps_what_was_known(settings: Any) -> None:
    """A new label is learned from one text; the old ones are in texts without annotation."""
    divergences = {}
    for rehearse in (False, True):
        fix_random_seed(0)
        nlp = pipeline(**settings)
        train(nlp)
        ner = nlp.get_pipe("ner")
        ner.add_label("GPE")
        optimizer = nlp.resume_training()
        optimizer.learn_rate = 0.01
        new = Example.from_dict(nlp.make_doc("Mordor burns"), {"entities": [(0, 6, "GPE")]})
        raw = [Example.from_dict(nlp.make_doc(text), {}) for text in TEXTS]
        for _ in range(20):
            nlp.update([new], sgd=optimizer)
            if rehearse:
                nlp.rehearse(raw, sgd=optimizer)
        assert [ent.label_ for ent in nlp("Mordor burns").ents] == ["GPE"]
        divergences[rehearse] = ner.rehearse(raw)["ner"]
        assert ner.labels == ("LOC", "PERSON", "sports-team", "GPE")
        if rehearse:
            assert nlp.evaluate(examples(nlp))["ents_f"] == 1.0
    assert 0 < divergences[True] < divergences[False] / 2


def test_without_a_teacher_nothing_is_rehearsed() -> None:
    nlp = pipeline()
    train(nlp, steps=1)
    assert nlp.get_pipe("ner").rehearse(examples(nlp)) == {"ner": 0.0}
    nlp.resume_training()
    empty = Example.from_dict(nlp.make_doc(""), {})
    assert nlp.rehearse([empty], losses={}) == {"ner": 0.0}
