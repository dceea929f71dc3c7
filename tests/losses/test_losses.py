"""Every loss with every cost, complete and partial gold, against its definition.

What is asked of one loss of `oracle_losses.LOSSES` is asked of all.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import product
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
from spacy_costner.training.incorrect_spans import IncorrectSpan, exclude_spans, sum_over_copies
from spacy_costner.training.objective import costs_given_gold, to_loss_inputs
from spacy_costner.training.targets import Targets
from spacy_costner.types import Constraints, Cost, CostTable, Gold, Loss, LossResult, Potentials

from .. import oracle, oracle_losses
from ..oracle_losses import Split
from ..support.batches import in_precision, random_potentials
from ..support.config import declared
from ..support.gold import GAP, example
from ..support.gradients import check_forbidden, check_loss_directions
from ..support.posteriors import entities
from ..support.split import split_NK, split_of
from ..support.strategies import annotated_NK, random_entities, seeds

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


class DefinedLoss(NamedTuple):
    """A loss as a config builds it, and its definition in the oracle."""

    name: str  # its registered name in short; after a comma, which settings it has
    row: oracle_losses.Row

    def build(self) -> Loss:
        """Anew each time, as some keep count."""
        cost = {"cost": HAMMING} if self.row.has_cost else {}
        return factory(self.name.split(",")[0])(**self.row.settings, **cost)

    def compute(self, potentials: Potentials, gold: Gold) -> LossResult:
        """Its value and gradient, by the package."""
        loss = self.build()
        if loss.cost is None:
            gold = gold._replace(costs=None)
        return loss.compute(potentials, gold)

    def sequences(
        self, potentials: Potentials, gold: Gold, split: Split | None = None
    ) -> oracle_losses.Batch:
        """All paths of a batch, from which `row.define` makes its value."""
        if self.build().cost is None:
            gold = gold._replace(costs=None)
        return oracle_losses.sequences(potentials, gold, split=split)

    def is_smooth(self, batch: oracle_losses.Batch) -> bool:
        """Whether a small step has no corner: the loss picks no best path out of a near tie."""
        for sequence in batch:
            for choices in self.row.choices(sequence):
                if oracle_losses.gap(choices) <= GAP:
                    return False
        return True


@cache
def factory(name: str) -> Callable[..., Loss]:
    """Looked up once: that takes longer than what is tested."""
    return registry.losses.get(f"spacy_costner.{name}.v1")


LOSSES = {name: DefinedLoss(name, row) for name, row in oracle_losses.LOSSES.items()}
each_loss = pytest.mark.parametrize("name", LOSSES)


def test_every_registered_loss_has_its_definition_in_the_oracle() -> None:
    """A schedule has none: it is made of losses."""
    defined = {f"spacy_costner.{name.split(',')[0]}.v1" for name in LOSSES}

    assert {*declared("thinc_losses")} == {*defined, "spacy_costner.Schedule.v1"}


# Against enumeration


def check_by_enumeration(
    loss: DefinedLoss, potentials: Potentials, gold: Gold, annotation: Gold, split: Split | None
) -> None:
    """Check the value, and that the gradient is its derivative, where nothing has a tie. Gold is
    over the tags of the chain, annotation over those of the annotation; `split` maps paths."""
    result = loss.compute(potentials, gold)
    batch = loss.sequences(potentials, annotation, split)
    assert result.value == pytest.approx(loss.row.define(batch), rel=1e-8, abs=1e-8)
    check_forbidden(result.gradient, potentials)
    if loss.is_smooth(batch):
        check_loss_directions(partial(loss.compute, gold=gold), potentials)


COSTS_WITHOUT_COST = ("any table", "hamming")
"""The costs whose tags and constraints are enough for a loss that ignores what mistakes cost: any
tags, and those of a tag set."""


def losses_and_costs(costs: Iterable[str]) -> list[tuple[str, str]]:
    """Each loss with each of these costs; a loss without cost only with some."""
    pairs = []
    for name, cost in product(LOSSES, costs):
        if LOSSES[name].row.has_cost or cost in COSTS_WITHOUT_COST:
            pairs.append((name, cost))
    return pairs


@pytest.mark.parametrize("name, cost", losses_and_costs(COSTS))
@given(data=st.data())
@settings(max_examples=8)
def test_values_and_gradients_are_those_of_the_definition(
    name: str, cost: str, data: st.DataObject
) -> None:
    batch = data.draw(annotated_NK(COSTS[cost]))

    for gold in (batch.complete, batch.partial):
        check_by_enumeration(LOSSES[name], batch.potentials, gold, annotation=gold, split=None)


@pytest.mark.parametrize("name, cost", losses_and_costs(cost for cost in COSTS if COSTS[cost]))
@given(data=st.data())
@settings(max_examples=8)
def test_values_and_gradients_with_a_split_outside_are_those_of_the_definition(
    name: str, cost: str, data: st.DataObject
) -> None:
    """The chain has several tags for O, the annotation has one. Paths have the scores of the chain;
    which paths are right, and what mistakes cost, is a matter of the annotation."""
    batch = data.draw(split_NK(COSTS[cost]))
    split = split_of(batch.tags)

    for gold, annotation in batch.golds:
        check_by_enumeration(LOSSES[name], batch.potentials, gold, annotation, split)


class WithIncorrectSpans(NamedTuple):
    """A sequence with gold, and spans that are known to be no entities."""

    tags: Tags
    targets: Targets  # what training makes of gold and incorrect spans
    scores: Potentials
    annotation: Gold  # over `tags.collapsed`, without the incorrect spans
    spans: set[tuple[int, int]]  # the incorrect ones: first token and end


def with_incorrect_spans(tags: Tags, rng: numpy.random.Generator) -> WithIncorrectSpans:
    """A sequence of 3 to 5 tokens, random entities, some of which are missing, and up to three
    incorrect spans that are none of them."""
    lengths = rng.integers(3, 6, size=1).astype("int32")
    n_tokens = int(lengths[0])
    annotation_tags = tags.collapsed
    gold_entities = random_entities(rng, lengths, 1)
    begin = rng.integers(n_tokens, size=3)
    end = rng.integers(begin, n_tokens) + 1
    gold_spans = {*zip(gold_entities.begin.tolist(), gold_entities.end.tolist())}
    spans = {*zip(begin.tolist(), end.tolist())} - gold_spans

    path = annotation_tags.encode(gold_entities, n_tokens)
    # The tokens of an entity are missing together: each has the number of its entity.
    entity_of_token = numpy.cumsum(~annotation_tags.continuing[path])
    is_missing = (rng.uniform(size=n_tokens + 1) < 0.2)[entity_of_token]
    path = numpy.where(is_missing, -1, path)

    gold = Gold(
        tags.split_outside(path, lengths),
        tags.agreeing(path, lengths) if is_missing.any() else None,
        opening=tags.opening,
        continuing=tags.continuing,
        collapsed_of=tags.collapsed_of if tags.is_split else None,
    )
    targets = Targets(tags, gold, tags.constraints, lengths, doc_of_sequence=numpy.arange(1))
    if spans:
        incorrect = [IncorrectSpan(0, *span, 0) for span in sorted(spans)]  # sequence 0, label 0
        gold, constraints = exclude_spans(incorrect, gold, tags.constraints, tags)
        targets = targets._replace(gold=gold, constraints=constraints)
    targets, _ = targets.leave_out_impossible()

    annotation = Gold(
        path,
        annotation_tags.agreeing(path, lengths) if is_missing.any() else None,
        costs=costs_given_gold(path, HAMMING(annotation_tags), None),
        opening=annotation_tags.opening,
        continuing=annotation_tags.continuing,
    )
    scores = random_potentials([n_tokens], len(tags), scale=2.0, seed=int(rng.integers(2**32)))
    return WithIncorrectSpans(tags, targets, scores, annotation, spans)


@each_loss
@given(scheme=st.sampled_from([*SCHEMES]), outside=st.sampled_from(["single", "before"]), rng=seeds)
@settings(max_examples=12)
def test_values_and_gradients_with_incorrect_spans_are_those_of_the_definition(
    name: str, scheme: str, outside: str, rng: numpy.random.Generator
) -> None:
    """A path with an incorrect span is wrong. To exclude these paths, training makes copies of
    tags, which have the scores of the originals: their gradients are summed up here. Where gold is
    complete, no path that agrees with it has an incorrect span. So the spans change nothing, except
    for losses of single tokens: Pointwise, Mixed, and MCE with this unit."""
    loss = LOSSES[name]
    tags, targets, scores, annotation, spans = with_incorrect_spans(
        Tags(["a"], scheme, outside), rng
    )
    is_partial = (annotation.tags < 0).any()
    cost_table: CostTable | None = HAMMING(tags.collapsed)
    if loss.build().cost is None:
        cost_table, annotation = None, annotation._replace(costs=None)

    def compute(scores: Potentials) -> LossResult:
        value, gradient = loss.build().compute(*to_loss_inputs(targets, scores, cost_table))
        if targets.gold.tied_to is not None:
            gradient = sum_over_copies(gradient, targets.gold.tied_to, len(tags))
        return LossResult(value, gradient)

    def ends_incorrect(b: int, t: int, path: oracle.Tags) -> bool:
        for begin, end, _ in entities(tags.collapsed, path):
            if end == t + 1 and (begin, end) in spans:
                return True
        return False

    legal = chain.constrain(scores, tags.constraints)
    split = split_of(tags) if tags.is_split else None
    batch = oracle_losses.sequences(legal, annotation, ends_incorrect, split)
    expected = loss.row.define(batch)
    assert compute(scores).value == pytest.approx(expected, rel=1e-8, abs=1e-8)
    if not is_partial and not name.startswith(("Pointwise", "Mixed", "MCE, token")):
        without_spans = oracle_losses.sequences(legal, annotation, split=split)
        assert expected == pytest.approx(loss.row.define(without_spans))
    if loss.is_smooth(batch):
        check_loss_directions(compute, scores)


@each_loss
@given(data=st.data())
@settings(max_examples=10)
def test_float32_agrees_with_float64(name: str, data: st.DataObject) -> None:
    """The scores have no ties, because rounding would decide them."""
    loss = LOSSES[name]
    batch = data.draw(annotated_NK())
    in_float32 = in_precision(batch.potentials, "float32")

    for gold in (batch.complete, batch.partial):
        assume(loss.is_smooth(loss.sequences(batch.potentials, gold)))
        gold_in_float32 = gold._replace(costs=gold.costs.astype("float32"))
        result = loss.compute(in_float32, gold_in_float32)
        exact = loss.compute(batch.potentials, gold)

        check_forbidden(result.gradient, in_float32)
        assert result.value == pytest.approx(exact.value, rel=1e-4, abs=1e-4)
        largest = max(1.0, abs(oracle.vector(exact.gradient)).max(initial=0))
        for array, expected in zip(result.gradient[:4], exact.gradient):
            assert array.dtype == "float32"
            assert_allclose(array, expected, atol=2e-4 * largest)


# Sequences of a batch


def take(potentials: Potentials, gold: Gold, sequences: list[int]) -> tuple[Potentials, Gold]:
    """Some of the sequences of a batch."""
    tokens = tokens_of(potentials, sequences)
    taken_potentials = potentials._replace(
        emissions=potentials.emissions[tokens], lengths=potentials.lengths[sequences]
    )
    taken_gold = gold
    if gold.weights is not None:
        taken_gold = taken_gold._replace(weights=gold.weights[sequences])
    for field in ("tags", "allowed", "costs", "token_weights", "features"):
        array = getattr(gold, field)
        if array is not None:
            taken_gold = taken_gold._replace(**{field: array[tokens]})
    return taken_potentials, taken_gold


def tokens_of(potentials: Potentials, sequences: list[int]) -> list[int]:
    """The tokens of some of the sequences."""
    tokens: list[int] = []
    for b in sequences:
        span = oracle.spans(potentials)[b]
        tokens += range(span.start, span.stop)
    return tokens


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loss_is_0_where_gold_is_the_only_legal_path(name: str, dtype: str) -> None:
    """The gradient is 0, too. There is one legal path if there is one tag, or if constraints allow
    one tag at each token. Scores may be large: their larger scale is 50."""
    value_atol = {"float64": 1e-9, "float32": 1e-3}[dtype]
    gradient_atol = {"float64": 1e-9, "float32": 1e-5}[dtype]

    for n_tags, scale in ((1, 1.0), (1, 50.0), (3, 1.0), (3, 50.0)):
        potentials, complete_gold, partial_gold = example([30, 0, 1], n_tags, dtype, scale)
        is_gold = complete_gold.tags[:, None] == numpy.arange(n_tags)  # (tokens, tags)
        potentials = chain.restrict(potentials, is_gold)
        for gold in (complete_gold, partial_gold):
            value, gradient = LOSSES[name].compute(potentials, gold)
            assert value == pytest.approx(0, abs=value_atol)
            assert_allclose(oracle.vector(gradient), 0, atol=gradient_atol)


@each_loss
@pytest.mark.parametrize("reason", ["gold is forbidden", "another tag is preset"])
@pytest.mark.parametrize("impossible", [[1], [0, 2], [0, 1, 2, 3]])
def test_sequences_whose_gold_is_impossible_are_left_out(
    name: str, reason: str, impossible: list[int]
) -> None:
    """Value and gradient are those of the other sequences; their own gradient is 0. One token of
    each sequence can't have its gold tag. Partial gold has the gold of this token, too: without it
    the sequence would be possible."""
    # The second token of each sequence but the last, which has only one: of 4, 3, 5 and 1 tokens,
    # the first ones are 0, 4, 7 and 12.
    token_of_sequence = [1, 5, 8, 12]
    scores, complete, partial_gold = example([4, 3, 5, 1], 3)
    is_gold = complete.tags[:, None] == numpy.arange(3)
    partial_gold = partial_gold._replace(weights=numpy.asarray([1.0, 0.5, 2.0, 1.5]))
    partial_gold.allowed[token_of_sequence] = is_gold[token_of_sequence]
    possible_tags = numpy.ones((13, 3), dtype=bool)
    for b in impossible:
        token = token_of_sequence[b]
        if reason == "gold is forbidden":
            possible_tags[token] = ~is_gold[token]
        else:
            possible_tags[token] = numpy.roll(is_gold[token], 1)  # only the tag after gold
    possible = [b for b in range(4) if b not in impossible]
    # IOB2 with one label has three tags, as the scores have.
    tags = Tags(("A",), "IOB2")
    constraints = Constraints(possible_tags)

    for gold in (complete, partial_gold):
        without_cost = gold._replace(costs=None)
        all_targets = Targets(tags, without_cost, constraints, scores.lengths, numpy.arange(4))
        targets, left_out = all_targets.leave_out_impossible()
        hamming_costs = 1 - numpy.eye(3)
        potentials, loss_gold = to_loss_inputs(targets, scores, hamming_costs)
        result = LOSSES[name].compute(potentials, loss_gold)

        assert numpy.flatnonzero(left_out).tolist() == impossible
        check_forbidden(result.gradient, potentials)
        impossible_tokens = tokens_of(potentials, impossible)
        assert_allclose(result.gradient.emissions[impossible_tokens], 0, atol=1e-12)
        expected = LOSSES[name].compute(*take(potentials, gold, possible))
        assert result.value == pytest.approx(expected.value, rel=1e-9, abs=1e-9)
        d_emissions = numpy.delete(result.gradient.emissions, impossible_tokens, axis=0)
        gradient = result.gradient._replace(emissions=d_emissions)
        for array, expected_array in zip(gradient[:4], expected.gradient):
            assert_allclose(array, expected_array, rtol=1e-7, atol=1e-9)


@each_loss
def test_losses_of_long_sequences_with_large_scores_are_finite(name: str) -> None:
    """With partial gold, the value in float32 is also near the value in float64."""
    potentials, complete, partial_gold = example([2_000], 5, "float32", 50.0)

    value_of_complete, gradient_of_complete = LOSSES[name].compute(potentials, complete)
    value, gradient = LOSSES[name].compute(potentials, partial_gold)

    assert math.isfinite(value_of_complete) and math.isfinite(value)
    check_forbidden(gradient_of_complete, potentials)
    check_forbidden(gradient, potentials)
    exact = LOSSES[name].compute(in_precision(potentials, "float64"), partial_gold)
    assert value == pytest.approx(exact.value, rel=1e-4, abs=1e-3)
