"""Rehearsal: the divergence by enumeration, and that models forget less."""

import math
from itertools import pairwise
from typing import Any

import numpy
import pytest
from spacy.language import Language
from spacy.training import Example
from thinc.api import Adam, fix_random_seed

from spacy_costner.pipeline.rehearsal import rehearsal_targets
from spacy_costner.tags import Tags
from spacy_costner.training.soft_targets import divergence
from spacy_costner.types import Constraints, LossResult, Potentials

from .. import oracle
from ..support.batches import random_potentials
from ..support.config import FEATURES
from ..support.gradients import check_loss_gradient
from ..support.linear import HYBRID, SPARSE
from ..support.pipelines import TEXTS, examples, pipeline, train

LENGTHS = [3, 0, 1, 4]
LINEAR = {"model": SPARSE}
WITH_VECTORS = {**FEATURES, "include_static_vectors": True}


def student_and_teacher(
    n_added: int, outside: str = "single"
) -> tuple[Potentials, Potentials, Constraints]:
    """Scores of the tags of LOC and of as many added labels; scores of a teacher, which knows LOC
    alone; and which tags and transitions are possible, some tags at random."""
    tags = Tags(("LOC", "PERSON")[: 1 + n_added], "IOB2", outside)
    tags_of_teacher = Tags(["LOC"], "IOB2", outside)
    rng = numpy.random.default_rng(3)
    possible = rng.uniform(size=(sum(LENGTHS), len(tags))) < 0.8
    possible[:, tags.label_of < 0] = True  # tags outside of entities: every doc has a path
    constraints = tags.constraints._replace(emissions=possible)
    scores = random_potentials(LENGTHS, len(tags), scale=2)
    teacher = random_potentials(LENGTHS, len(tags_of_teacher), scale=2, seed=1)
    return scores, teacher, constraints


def rehearsed(scores: Potentials, teacher: Potentials, constraints: Constraints) -> LossResult:
    """The loss of rehearsal, by the package."""
    return divergence(scores, rehearsal_targets(teacher, len(scores.start), constraints))


def enumerated(scores: Potentials, teacher: Potentials, constraints: Constraints) -> float:
    """sum_y p(y) log (p(y) / q(y)) over the legal paths of the teacher's tags: p of the teacher, q
    of the scores."""
    total = 0.0
    for b in range(len(teacher.lengths)):
        token = oracle.spans(teacher)[b].start
        legal = []
        for path in oracle.paths(teacher, b):
            if is_possible(path.tags, constraints, token):
                legal.append(path)
        rescored = [path._replace(score=oracle.score(scores, b, path.tags)) for path in legal]
        for p, q in zip(oracle.probabilities(legal), oracle.probabilities(rescored)):
            total += p * math.log(p / q)
    return total


def is_possible(tags: oracle.Tags, constraints: Constraints, token: int) -> bool:
    """Whether constraints allow a path whose first token is this one of the batch."""
    if len(tags) == 0:
        return True
    allowed = [constraints.start[tags[0]], constraints.end[tags[-1]]]
    allowed += [constraints.emissions[token + t, tag] for t, tag in enumerate(tags)]
    allowed += [constraints.transitions[step] for step in pairwise(tags)]
    return all(allowed)


@pytest.mark.parametrize("outside", ["single", "before"])
@pytest.mark.parametrize("n_added", [0, 1])
def test_divergence_is_that_of_enumerated_paths(n_added: int, outside: str) -> None:
    scores, teacher, constraints = student_and_teacher(n_added, outside)

    result = rehearsed(scores, teacher, constraints)

    assert result.value > 0.1  # the divergence of equal distributions is 0
    assert result.value == pytest.approx(enumerated(scores, teacher, constraints), rel=1e-6)
    check_loss_gradient(
        lambda moved: rehearsed(moved, teacher, constraints),
        lambda moved: enumerated(moved, teacher, constraints),
        scores,
    )
    # Tags that the teacher doesn't know are not rehearsed.
    n_tags_of_teacher = len(teacher.start)
    assert not result.gradient.emissions[:, n_tags_of_teacher:].any()


@pytest.mark.parametrize(
    "settings",
    [{}, LINEAR, {"outside": "before"}, {**LINEAR, "outside": "before"}],
    ids=["dense", "sparse", "dense, split", "sparse, split"],
)
def test_rehearsal_keeps_old_labels_while_a_new_one_is_learned(settings: dict[str, Any]) -> None:
    """The divergence from the previous pipeline is less than half of the divergence without
    rehearsal."""
    _, divergence_without = learn_mordor(settings, rehearse=False)

    nlp, divergence_with = learn_mordor(settings, rehearse=True)

    assert 0 < divergence_with < divergence_without / 2
    assert nlp.evaluate(examples(nlp))["ents_f"] == 1.0


def learn_mordor(settings: dict[str, Any], *, rehearse: bool) -> tuple[Language, float]:
    """Train on TRAIN, then on one text with the new label GPE alone, and rehearse on the texts of
    TRAIN without annotation. Returns the pipeline, and its divergence from the previous one."""
    fix_random_seed(0)
    nlp = pipeline(**settings)
    train(nlp)

    ner = nlp.get_pipe("ner")
    ner.add_label("GPE")
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.01
    mordor = Example.from_dict(nlp.make_doc("Mordor burns"), {"entities": [(0, 6, "GPE")]})
    raw = [Example.from_dict(nlp.make_doc(text), {}) for text in TEXTS]
    for _ in range(20):
        nlp.update([mordor], sgd=optimizer)
        if rehearse:
            nlp.rehearse(raw, sgd=optimizer)

    assert [ent.label_ for ent in nlp("Mordor burns").ents] == ["GPE"]
    assert ner.labels == ("LOC", "PERSON", "sports-team", "GPE")
    return nlp, ner.rehearse(raw)["ner"]


@pytest.mark.parametrize(
    "model",
    [
        {**SPARSE, "features": {**FEATURES, "memory": {"LOWER": 1}, "document": {"LOWER": 1}}},
        {**SPARSE, "features": WITH_VECTORS, "dropout": 0.5},
        {**SPARSE, "features": WITH_VECTORS, "hidden": 8},
        {**HYBRID, "features": {**FEATURES, "memory": {"LOWER": 1}}, "part_dropout": 0.5},
        {**HYBRID, "features": WITH_VECTORS, "linear_epochs": 2},
    ],
    ids=["memory and two passes", "vectors", "hidden layer", "hybrid", "hybrid with folds"],
)
def test_the_loss_of_an_unchanged_model_on_its_training_texts_is_0(model: dict[str, Any]) -> None:
    """In training, features, vectors, hidden units and parts of a hybrid are dropped, and the label
    memory and the folds ignore what was learned from a doc. Rehearsal preserves predictions, in
    which none of this happens. An update isn't left out: the loss of a changed model has a
    gradient."""
    fix_random_seed(0)
    nlp = pipeline(model=model)
    rng = numpy.random.default_rng(0)
    for eg in examples(nlp):
        for word in eg.reference:
            nlp.vocab.set_vector(word.text, rng.normal(size=4))
    train(nlp)
    ner: Any = nlp.get_pipe("ner")
    nlp.resume_training()
    raw = [Example.from_dict(nlp.make_doc(text), {}) for text in TEXTS]

    assert ner.rehearse(raw)["ner"] == pytest.approx(0, abs=1e-9)

    ner.update([Example.from_dict(nlp.make_doc(TEXTS[0]), {"entities": []})], sgd=Adam(0.1))
    before = ner.rehearse(raw)["ner"]
    for _ in range(10):
        ner.rehearse(raw, sgd=Adam(0.01))
    assert 0 < ner.rehearse(raw)["ner"] < before


def test_without_resume_training_nothing_is_rehearsed() -> None:
    """`nlp.resume_training` makes the copy of the model that is the teacher."""
    nlp = pipeline()
    train(nlp, steps=1)
    assert nlp.get_pipe("ner").rehearse(examples(nlp)) == {"ner": 0.0}


def test_the_loss_of_rehearsal_on_an_empty_doc_is_0() -> None:
    nlp = pipeline()
    train(nlp, steps=1)
    nlp.resume_training()
    empty = Example.from_dict(nlp.make_doc(""), {})
    assert nlp.rehearse([empty], losses={}) == {"ner": 0.0}
