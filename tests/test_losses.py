"""Every loss with every cost, complete and partial gold, against its definition.

What is asked of one loss of `oracle_losses.LOSSES` is asked of all.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from spacy.util import registry

from spacy_costner import chain
from spacy_costner.costs.tables import (
    make_hamming_cost,
    make_hierarchical_cost,
    make_matrix_cost,
    make_precision_recall_cost,
    make_zero_one_cost,
)
from spacy_costner.tags import SCHEMES, Tags
from spacy_costner.training.incorrect_spans import IncorrectSpan, collapse, exclude
from spacy_costner.training.objective import gold_cost, to_loss_inputs
from spacy_costner.training.targets import Targets
from spacy_costner.types import Constraints, Cost, Gold, Loss, LossResult, Potentials

from . import oracle, oracle_losses
from .oracle_losses import Split
from .support.batches import in_precision, random_potentials
from .support.config import declared
from .support.gold import GAP, example
from .support.gradients import check_forbidden, check_loss_directions
from .support.posteriors import entities
from .support.split import split_NK, split_of
from .support.strategies import annotated_NK, random_entities, seeds

HAMMING = make_hamming_cost()
COSTS: dict[str, Cost | None] = {
    "any table": None,
    "hamming": HAMMING,
    "zero-one": make_zero_one_cost(),
    "hierarchical": make_hierarchical_cost(tree={"place": {"a": {}, "far": {"b": {}}}}),
    "precision-recall": make_precision_recall_cost(
        false_alarm=0.5, miss=2.0, wrong_boundary=0.3, labels={"a": {"miss": 5.0}}
    ),
    "matrix": make_matrix_cost(
        matrix={"a": {"b": 0.7, "O": 3.0}, "b": {"a": 0.2, "O": 1.0}, "O": {"a": 0.5, "b": 0.0}},
        wrong_boundary=0.1,
    ),
}


class Case(NamedTuple):
    """A loss as a config builds it, and its row in the oracle."""

    name: str
    row: oracle_losses.Row

    def build(self) -> Loss:
        """Anew each time, as some keep count."""
        cost = {"cost": HAMMING} if self.row.has_cost else {}
        return factory(self.name.split(",")[0])(**self.row.settings, **cost)

    def compute(self, potentials: Potentials, gold: Gold) -> LossResult:
        loss = self.build()
        if loss.cost is None:
            gold = gold._replace(cost=None)
        return loss.compute(potentials, gold)

    def sequences(
        self, potentials: Potentials, gold: Gold, split: Split | None = None
    ) -> oracle_losses.Batch:
        if self.build().cost is None:
            gold = gold._replace(cost=None)
        return oracle_losses.sequences(potentials, gold, split=split)

    def is_clear(self, batch: oracle_losses.Batch) -> bool:
        """Whether nothing that the loss picks the best of has a tie."""
        return all(oracle_losses.gap(some) > GAP for c in batch for some in self.row.choices(c))


@cache
def factory(name: str) -> Callable[..., Loss]:
    """Looked up once: that takes longer than what is tested."""
    return registry.losses.get(f"spacy_costner.{name}.v1")


LOSSES = {name: Case(name, row) for name, row in oracle_losses.LOSSES.items()}
each_loss = pytest.mark.parametrize("name", LOSSES)


def test_every_loss_is_defined_here() -> None:
    """But a schedule, which is of losses."""
    defined = {f"spacy_costner.{name.split(',')[0]}.v1" for name in LOSSES}
    assert {*declared("thinc_losses")} == {*defined, "spacy_costner.Schedule.v1"}


# Against enumeration


def check_by_enumeration(
    case: Case, potentials: Potentials, gold: Gold, annotation: Gold, split: Split | None
) -> None:
    """Check the value, and that the gradient is its own, where nothing has a tie."""
    result = case.compute(potentials, gold)
    batch = case.sequences(potentials, annotation, split)
    assert result.value == pytest.approx(case.row.define(batch), rel=1e-8, abs=1e-8)
    check_forbidden(result.gradient, potentials)
    if case.is_clear(batch):
        check_loss_directions(partial(case.compute, gold=gold), potentials)


@pytest.mark.parametrize("cost", COSTS)
@each_loss
@given(data=st.data())
@settings(max_examples=8)
def test_values_and_gradients(name: str, cost: str, data: st.DataObject) -> None:
    batch = data.draw(annotated_NK(COSTS[cost]))
    for gold in (batch.complete, batch.partial):
        check_by_enumeration(LOSSES[name], batch.potentials, gold, gold, None)


@pytest.mark.parametrize("cost", [cost for cost in COSTS if COSTS[cost]])
@each_loss
@given(data=st.data())
@settings(max_examples=8)
def test_values_and_gradients_with_a_split_outside(
    name: str, cost: str, data: st.DataObject
) -> None:
    """Paths have the scores of the chain; what is right and what it costs is in the annotation."""
    batch = data.draw(split_NK(COSTS[cost]))
    for gold, annotation in batch.golds:
        check_by_enumeration(LOSSES[name], batch.potentials, gold, annotation, split_of(batch.tags))


@each_loss
@given(scheme=st.sampled_from([*SCHEMES]), outside=st.sampled_from(["single", "before"]), rng=seeds)
@settings(max_examples=20)
def test_values_and_gradients_with_incorrect_spans(
    name: str, scheme: str, outside: str, rng: numpy.random.Generator
) -> None:
    """Paths with an incorrect span are wrong, in whichever copy of the tags they are."""
    tags, lengths = Tags(["a"], scheme, outside), rng.integers(3, 6, size=1).astype("int32")
    plain, n_tokens = tags.collapsed, int(lengths[0])
    right = random_entities(rng, lengths, 1)
    begin = rng.integers(n_tokens, size=3)
    ends = rng.integers(begin, n_tokens) + 1
    spans = {*zip(begin.tolist(), ends.tolist())} - {*zip(right.begin.tolist(), right.end.tolist())}
    path = plain.encode(right, n_tokens)
    missing = (rng.uniform(size=n_tokens + 1) < 0.2)[numpy.cumsum(~plain.continuing[path])]
    path = numpy.where(missing, -1, path)
    gold = Gold(
        tags.split_outside(path, lengths),
        tags.agreeing(path, lengths) if (path < 0).any() else None,
        opening=tags.opening,
        continuing=tags.continuing,
        collapsed_of=tags.collapsed_of if tags.is_split else None,
    )
    targets = Targets(tags, gold, tags.constraints, lengths, doc_of=numpy.arange(len(lengths)))
    if spans:
        incorrect = [IncorrectSpan(0, *span, 0) for span in sorted(spans)]
        gold, constraints = exclude(incorrect, gold, tags.constraints, tags)
        targets = targets._replace(gold=gold, constraints=constraints)
    case, table = LOSSES[name], HAMMING(plain)
    annotation = Gold(
        path,
        plain.agreeing(path, lengths) if (path < 0).any() else None,
        cost=gold_cost(path, table, None),
        opening=plain.opening,
        continuing=plain.continuing,
    )
    if case.build().cost is None:
        table, annotation = None, annotation._replace(cost=None)

    def ends_incorrect(b: int, t: int, y: oracle.Tags) -> bool:
        return any(span[:2] in spans for span in entities(plain, y) if span[1] == t + 1)

    def compute(scores: Potentials) -> LossResult:
        value, gradient = case.build().compute(*to_loss_inputs(targets, scores, table))
        tied_to = targets.gold.tied_to
        if tied_to is not None:
            gradient = collapse(gradient, tied_to, len(tags))
        return LossResult(value, gradient)

    targets, _ = targets.leave_out_impossible()
    scores = random_potentials([n_tokens], len(tags), scale=2.0, seed=int(rng.integers(2**32)))
    legal = chain.constrain(scores, tags.constraints)
    split = split_of(tags) if tags.is_split else None
    batch = oracle_losses.sequences(legal, annotation, ends_incorrect, split)
    expected = case.row.define(batch)
    assert compute(scores).value == pytest.approx(expected, rel=1e-8, abs=1e-8)
    if not missing.any() and not name.startswith(("Pointwise", "Mixed")):
        without_spans = oracle_losses.sequences(legal, annotation, split=split)
        assert expected == pytest.approx(case.row.define(without_spans))
    if case.is_clear(batch):
        check_loss_directions(compute, scores)


@each_loss
@given(data=st.data())
@settings(max_examples=10)
def test_float32_agrees_with_float64(name: str, data: st.DataObject) -> None:
    case, batch = LOSSES[name], data.draw(annotated_NK())
    potentials = in_precision(batch.potentials, "float32")
    for gold in (batch.complete, batch.partial):
        assume(case.is_clear(case.sequences(batch.potentials, gold)))
        single = gold._replace(cost=gold.cost.astype("float32"))
        result, exact = case.compute(potentials, single), case.compute(batch.potentials, gold)
        assert all(array.dtype == "float32" for array in result.gradient[:4])
        check_forbidden(result.gradient, potentials)
        assert result.value == pytest.approx(exact.value, rel=1e-4, abs=1e-4)
        largest = max(1.0, abs(oracle.vector(exact.gradient)).max(initial=0))
        for array, expected in zip(result.gradient[:4], exact.gradient):
            assert_allclose(array, expected, atol=2e-4 * largest)


# Sequences of a batch


def take(potentials: Potentials, gold: Gold, which: list[int]) -> tuple[Potentials, Gold]:
    """Some of the sequences of a batch."""
    tokens = tokens_of(potentials, which)
    potentials_of_these = potentials._replace(
        emissions=potentials.emissions[tokens], lengths=potentials.lengths[which]
    )
    gold_of_these = gold
    if gold.weights is not None:
        gold_of_these = gold_of_these._replace(weights=gold.weights[which])
    for field in ("tags", "allowed", "cost", "token_weights", "features"):
        array = getattr(gold, field)
        if array is not None:
            gold_of_these = gold_of_these._replace(**{field: array[tokens]})
    return potentials_of_these, gold_of_these


def tokens_of(potentials: Potentials, which: list[int]) -> list[int]:
    """The tokens of some of the sequences."""
    tokens: list[int] = []
    for b in which:
        span = oracle.spans(potentials)[b]
        tokens += range(span.start, span.stop)
    return tokens


# Edges


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_to_learn_from_one_legal_path(name: str, dtype: str) -> None:
    value_atol, gradient_atol = (1e-9, 1e-9) if dtype == "float64" else (1e-3, 1e-5)
    for n_tags, scale in ((1, 1.0), (1, 50.0), (3, 1.0), (3, 50.0)):
        potentials, complete, some = example([30, 0, 1], n_tags, dtype, scale)
        only = complete.tags[:, None] == numpy.arange(n_tags)
        potentials = chain.restrict(potentials, only)
        for gold in (complete, some):
            value, gradient = LOSSES[name].compute(potentials, gold)
            assert value == pytest.approx(0, abs=value_atol)
            assert_allclose(oracle.vector(gradient), 0, atol=gradient_atol)


@each_loss
@pytest.mark.parametrize("how", ["gold is forbidden", "another tag is preset"])
@pytest.mark.parametrize("which", [[1], [0, 2], [0, 1, 2, 3]])
def test_what_is_impossible_is_left_out(name: str, how: str, which: list[int]) -> None:
    scores, complete, some = example([4, 3, 5, 1], 3)
    some = some._replace(weights=numpy.asarray([1.0, 0.5, 2.0, 1.5]))
    some.allowed[[1, 5, 8, 12]] = complete.tags[[1, 5, 8, 12], None] == numpy.arange(3)
    possible = numpy.ones((13, 3), dtype=bool)
    for b in which:
        token = [1, 5, 8, 12][b]
        right = numpy.arange(3) == complete.tags[token]
        possible[token] = ~right if how[0] == "g" else numpy.roll(right, 1)
    possible_docs = [b for b in range(4) if b not in which]
    for annotation in (complete, some):
        tags = Tags(("A",), "IOB2")
        constraints = Constraints(possible)
        without_cost = annotation._replace(cost=None)
        all_targets = Targets(tags, without_cost, constraints, scores.lengths, numpy.arange(4))
        targets, left_out = all_targets.leave_out_impossible()
        assert numpy.flatnonzero(left_out).tolist() == which
        potentials, gold = to_loss_inputs(targets, scores, 1 - numpy.eye(3))
        result = LOSSES[name].compute(potentials, gold)
        expected = LOSSES[name].compute(*take(potentials, annotation, possible_docs))
        check_forbidden(result.gradient, potentials)
        assert result.value == pytest.approx(expected.value, rel=1e-9, abs=1e-9)
        tokens = tokens_of(potentials, which)
        assert_allclose(result.gradient.emissions[tokens], 0, atol=1e-12)
        d_emissions = numpy.delete(result.gradient.emissions, tokens, axis=0)
        gradient = result.gradient._replace(emissions=d_emissions)
        for array, wanted in zip(gradient[:4], expected.gradient):
            assert_allclose(array, wanted, rtol=1e-7, atol=1e-9)


@each_loss
def test_long_sequences_of_large_scores(name: str) -> None:
    potentials, complete, some = example([2_000], 5, "float32", 50.0)
    for gold in (complete, some):
        value, gradient = LOSSES[name].compute(potentials, gold)
        assert math.isfinite(value)
        check_forbidden(gradient, potentials)
    exact = LOSSES[name].compute(in_precision(potentials, "float64"), gold)
    assert value == pytest.approx(exact.value, rel=1e-4, abs=1e-3)
