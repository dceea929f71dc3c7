"""What a loss is told of docs: weights, forbidden spans, costs, and which loss it is."""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy
import pytest
from numpy.testing import assert_allclose
from spacy.tokens import Doc, Span, Token
from spacy.training import Example

from spacy_costner import chain
from spacy_costner.costs.tables import hamming_cost
from spacy_costner.losses import risk, sequential
from spacy_costner.losses.schedule import make_schedule
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.tags import Tags
from spacy_costner.training.objective import gold_cost
from spacy_costner.types import CostTable, Gold, Loss, LossResult, Potentials, Progress, TagSet

from . import oracle, oracle_losses
from .support.batches import random_potentials
from .support.config import HAMMING, REQUIRED, declared
from .support.fitting import examples_of, loss_block
from .support.gradients import check_loss_directions
from .support.pipelines import pipeline
from .support.posteriors import entities
from .support.split import split_of

TAGS = Tags(["LOC", "PER"], "IOB2")
SENTENCES = [("Ana Lee sang", "B-PER I-PER O"), ("in Rome", "O B-LOC"), ("", "")]
SENTENCES += [("Lee or Rome", "B-PER O B-LOC")]
PATHS = [[3, 4, 0], [0, 1], [], [3, 0, 1]]
outsides = pytest.mark.parametrize("outside", ["single", "before"])


def recogniser(**settings: Any) -> CostSensitiveNER:
    """A component that knows the labels of `TAGS`."""
    nlp = pipeline(scheme="IOB2", **settings)
    nlp.initialize(lambda: examples_of(nlp, SENTENCES))
    return nlp.get_pipe("ner")


def scores_of(batch: Sequence[Example], seed: int = 0, tags: Tags = TAGS) -> Potentials:
    lengths = [len(eg.predicted) for eg in batch]
    return random_potentials(lengths, len(tags), scale=2.0, seed=seed)


def gold_of(paths: Sequence[Sequence[int]], weights: numpy.ndarray | None = None) -> Gold:
    path = numpy.asarray([tag for tags in paths for tag in tags], dtype="int32")
    return Gold(
        tags=path,
        cost=gold_cost(path, hamming_cost(TAGS), weights),
        token_weights=weights,
        opening=TAGS.having("B"),
        continuing=TAGS.having("I"),
    )


def check_loss(
    ner: CostSensitiveNER, batch: list[Example], define: Any, gold: Gold, spans: Any = ()
) -> None:
    """Check value and gradient of a component against the definition of its loss, with these
    incorrect spans."""
    tags, split = ner.chain_tags, split_of(ner.chain_tags) if ner.chain_tags.is_split else None
    n_annotated = 1 if ner.objective.loss.stages[0].is_ratio else int((gold.tags >= 0).sum())

    def ends_incorrect(b: int, t: int, y: oracle.Tags) -> bool:
        found = [(b, *place, TAGS.labels[i]) for *place, i in entities(TAGS, y)]
        here = [span for span in found if span[2] == t + 1]
        return any(span in spans or (*span[:3], "") in spans for span in here)

    def expected(moved: Potentials) -> float:
        legal = chain.constrain(moved, tags.constraints)
        return define(oracle_losses.sequences(legal, gold, ends_incorrect, split))

    unused = ner.objective.loss
    for seed in range(5):
        scores = scores_of(batch, seed, tags)
        ner.objective.loss = deepcopy(unused)  # as some keep count
        value, gradient = ner.get_loss(batch, scores)
        assert value * n_annotated == pytest.approx(expected(scores))
    check_loss_directions(lambda moved: LossResult(expected(moved), gradient), scores)


# Weights


@pytest.fixture
def extensions() -> Any:
    Token.set_extension("worth", default=1.0)
    Doc.set_extension("trust", default=1.0)
    yield
    Token.remove_extension("worth")
    Doc.remove_extension("trust")


@outsides
@pytest.mark.parametrize("name", ["Pointwise", "SoftmaxMargin"])
def test_weights_of_tokens_and_examples(name: str, outside: str, extensions: None) -> None:
    weights = {"labels": {"PER": 2.0, "O": 0.5}, "boundary": 3.0, "token": "worth"}
    settings = {} if name == "Pointwise" else {"cost": HAMMING}
    ner = recogniser(
        loss=loss_block(name, **settings),
        weights={"@misc": "spacy_costner.Weights.v1", "example": "trust", **weights},
        outside=outside,
    )
    batch = examples_of(ner, SENTENCES)
    batch[0].reference[1]._.worth = 5.0
    batch[3].reference._.trust = 0.25
    of_tokens = numpy.asarray([6.0, 30.0, 0.5, 0.5, 3.0, 6.0, 0.5, 3.0])
    gold = gold_of(PATHS, of_tokens)._replace(weights=numpy.asarray([1.0, 1.0, 1.0, 0.25]))
    define = {
        "Pointwise": oracle_losses.pointwise,
        "SoftmaxMargin": partial(oracle_losses.softmax_margin, multiplier=1.0),
    }[name]
    check_loss(ner, batch, define, gold)


def test_weights_that_no_loss_has_a_use_for() -> None:
    weights = {"@misc": "spacy_costner.Weights.v1", "boundary": 2.0}
    with pytest.raises(ValueError, match=r"ner: weights: expected none .* Pointwise and Mixed"):
        pipeline(loss=loss_block("Sequential"), weights=weights)
    pipeline(loss=loss_block("Mixed", k=1.0), weights=weights)
    pipeline(loss=loss_block("Risk", cost=HAMMING), weights=weights)


def test_weights_of_an_unknown_label() -> None:
    weights = {"@misc": "spacy_costner.Weights.v1", "labels": {"PER": 2.0, "DRUG": 5.0}}
    with pytest.raises(ValueError, match=r"ner: weights: labels: .*'PER', 'O'.*got \['DRUG'\]"):
        recogniser(loss=loss_block("Pointwise"), weights=weights)


# Forbidden spans

WRONG = [(0, 0, 1, "PER"), (0, 1, 3, "LOC"), (0, 2, 3, "")]
WRONG += [(3, 0, 2, "PER"), (3, 1, 3, "LOC"), (3, 1, 2, "")]
"""Sentence, first token, the one after the last, label: "" for any."""


def with_spans(batch: list[Example], spans: list[Any] = WRONG) -> list[Example]:
    for i, eg in enumerate(batch):
        mine = [Span(eg.reference, *span) for b, *span in spans if b == i]
        eg.reference.spans["wrong"] = mine
    return batch


BEST = partial(oracle_losses.best_counts, slope=1.0, offset=0.0)
MCE_F = partial(oracle_losses.mce_f_of_batch, gamma=1.0, count=BEST)


@outsides
@pytest.mark.parametrize("spans", [[], WRONG])
@pytest.mark.parametrize("missing", [[], [0], [1], [2], [0, 1], [1, 2]])
@pytest.mark.parametrize(
    "name, settings, define",
    [("Sequential", {}, oracle_losses.sequential), ("MCEF", {"psi": "inf"}, MCE_F)],
)
def test_incorrect_spans_and_missing_tokens(
    name: str, settings: Any, define: Any, missing: list[int], spans: list[Any], outside: str
) -> None:
    """Gold O before a missing token may be before an entity or not."""
    loss = loss_block(name, **settings)
    ner = recogniser(loss=loss, incorrect_spans_key="wrong", outside=outside)
    batch, paths = with_spans(examples_of(ner, SENTENCES), spans), [list(path) for path in PATHS]
    doc = batch[3].reference
    others = [ent for ent in doc.ents if ent.start not in missing]
    doc.set_ents(others, missing=[doc[t : t + 1] for t in missing])
    for t in missing:
        paths[3][t] = -1
    gold = gold_of(paths)
    allowed = (gold.tags < 0)[:, None] | (gold.tags[:, None] == numpy.arange(len(TAGS)))
    follows = [8 - 3 + t for t in missing if t and paths[3][t - 1] > 0]
    allowed[follows] &= ~TAGS.continuing
    check_loss(ner, batch, define, gold._replace(allowed=allowed), spans)


def test_an_incorrect_span_that_no_path_has_changes_nothing() -> None:
    """It is across a border, and its sequences have no annotation besides."""
    ner = recogniser(
        loss=loss_block("ZScore"), incorrect_spans_key="wrong", sentence_boundaries="sentences"
    )
    ner.cfg["progress"] = Progress(epochs=1)._asdict()  # of sequences, not of whole docs
    batch = examples_of(ner, SENTENCES)
    for eg in (batch[0], batch[3]):
        for doc in (eg.predicted, eg.reference):
            for token in doc:
                token.is_sent_start = token.i != 1
    batch[3].reference.set_ents([], default="missing")
    scores = scores_of(batch)
    expected, gradient = ner.get_loss(batch, scores)
    found, same = ner.get_loss(with_spans(batch, [(3, 1, 3, "LOC")]), scores)
    assert found == pytest.approx(expected)
    assert_allclose(same.emissions, gradient.emissions, atol=1e-6)


@outsides
@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_a_doc_that_contradicts_itself_is_left_out(name: str, outside: str) -> None:
    """Its gold contradicts a preset entity, or is among the incorrect spans; or no path is left at
    all, as it is preset too."""
    loss = {"@losses": name, **REQUIRED.get(name, {})}
    ner = recogniser(loss=loss, incorrect_spans_key="wrong", outside=outside)
    batch, fresh = with_spans(examples_of(ner, SENTENCES)), ner.objective.loss
    predicted, wrong = batch[1].predicted, batch[1].reference
    scores = scores_of(batch, tags=ner.chain_tags)
    ner.objective.loss = deepcopy(fresh)
    expected, gradient = ner.get_loss([batch[0], batch[3]], without(scores, slice(3, 5)))
    for preset, incorrect in (([0], []), ([], wrong.ents), ([1], wrong.ents)):
        predicted.ents = [Span(predicted, t, t + 1, "LOC") for t in preset]
        wrong.spans["wrong"] = list(incorrect)
        ner.objective.loss = deepcopy(fresh)
        with pytest.warns(UserWarning, match="left out of training.*'in Rome'"):
            value, left = ner.get_loss(batch, scores)
        assert value == pytest.approx(expected)
        assert_allclose(left.emissions[3:5], 0, atol=1e-12)
        assert_allclose(numpy.delete(left.emissions, [3, 4], axis=0), gradient.emissions, atol=1e-9)
        for field in ("transitions", "start", "end"):
            assert_allclose(getattr(left, field), getattr(gradient, field), atol=1e-9)


def without(scores: Potentials, tokens: slice) -> Potentials:
    return scores._replace(
        emissions=numpy.delete(scores.emissions, tokens, axis=0),
        lengths=numpy.asarray([3, 3], dtype="int32"),
    )


# Costs


def test_a_table_is_made_once_for_each_tag_set() -> None:
    made = []

    def cost(tags: TagSet) -> CostTable:
        made.append(tags.labels)
        return hamming_cost(tags)

    ner = recogniser()
    ner.objective.loss = make_schedule(Loss(risk, cost), Loss(sequential), steps=[5])
    ner.objective.prepare(ner.tags)
    batch = examples_of(ner, SENTENCES)
    for _ in range(3):
        ner.get_loss(batch, scores_of(batch))
    assert made == [("LOC", "PER")]
    ner.add_label("DATE")
    ner.get_loss(batch, random_potentials([3, 2, 0, 3], len(ner.tags)))
    assert made == [("LOC", "PER"), ("LOC", "PER", "DATE")]


def test_a_cost_without_one_of_the_labels() -> None:
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": {"LOC": {}}}
    later = {"first": loss_block("Sequential"), "then": loss_block("Risk", cost=cost)}
    with pytest.raises(ValueError, match=r"HierarchicalCost: tree: .*'PER'"):
        recogniser(loss=loss_block("Schedule", steps=[10], **{"*": later}))


# Schedules


@pytest.mark.parametrize("ends", [{"steps": [2]}, {"epochs": [0.5]}])
def test_training_switches_losses(ends: dict[str, list[float]]) -> None:
    """Four updates of one example each of four make an epoch."""
    used = []

    def stage(name: str) -> Loss:
        def compute(potentials: Potentials, gold: Gold) -> LossResult:
            used.append(name)
            return sequential(potentials, gold)

        return Loss(compute)

    nlp = pipeline(scheme="IOB2")
    batch = examples_of(nlp, SENTENCES)
    optimizer = nlp.initialize(lambda: batch)
    nlp.get_pipe("ner").objective.loss = make_schedule(stage("first"), stage("then"), **ends)
    for eg in (batch[0], batch[1], batch[3], batch[0]):
        nlp.update([eg], sgd=optimizer)
    assert used == ["first", "first", "then", "then"]
    nlp.initialize(lambda: batch)
    nlp.update(batch[:1], sgd=optimizer)
    assert used[-1] == "first"
