"""The primitives that have a gradient, each against its definition by enumeration.

`PRIMITIVES` is the table: what is asked of one is asked of all. What a primitive needs
besides potentials (allowed tags, values, segments) is drawn from the shape of the batch.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from spacy_costner import chain
from spacy_costner.types import Potentials

from . import oracle
from .support.batches import forbid_all, in_precision, random_potentials
from .support.gradients import check_gradient
from .support.strategies import allowed_NK, potentials_NK, segments_S, values_NK


class Primitive(NamedTuple):
    """A primitive and its definition.

    compute (Callable): Potentials and what else it needs, to values and callback.
    define (Callable): The same, to the values with their gradients, in the same order.
    draw (Callable): What else it needs, as a Hypothesis strategy.
    """

    compute: Callable[..., Tuple[numpy.ndarray, Callable]]
    define: Callable[..., List[oracle.Value]]
    draw: Callable[[Potentials], st.SearchStrategy]


def of_sequences(potentials: Potentials) -> range:
    return range(len(potentials.lengths))


def of_tokens(potentials: Potentials) -> List[Tuple[int, int]]:
    """The sequence and the position of each token."""
    return [(b, t) for b, n in enumerate(potentials.lengths.tolist()) for t in range(n)]


def value_of_path(values: Potentials, b: int, tags: oracle.Tags) -> float:
    finite = Potentials(*(numpy.nan_to_num(a, neginf=0.0) for a in values[:4]), values.lengths)
    return oracle.score(finite, b, tags)


def leaves(allowed: numpy.ndarray, potentials: Potentials, b: int, tags: oracle.Tags) -> bool:
    first = oracle.spans(potentials)[b].start
    return any(not allowed[first + t, tag] for t, tag in enumerate(tags))


def define_segments(potentials: Potentials, segments: chain.Segments) -> List[oracle.Value]:
    return [
        oracle.log_probability(potentials, *oracle.has_segment(potentials, segments, s))
        for s in range(len(segments.begin))
    ]


PRIMITIVES: Dict[str, Primitive] = {
    "log_partition": Primitive(
        lambda potentials, _: chain.log_partition(potentials),
        lambda potentials, _: [oracle.log_sum(potentials, b) for b in of_sequences(potentials)],
        lambda potentials: st.none(),
    ),
    "expectation": Primitive(
        chain.expectation,
        lambda potentials, values: [
            oracle.mean(potentials, b, lambda y, b=b: value_of_path(values, b, y))
            for b in of_sequences(potentials)
        ],
        values_NK,
    ),
    "log_marginals": Primitive(
        chain.log_marginals,
        lambda potentials, allowed: [
            oracle.log_probability(potentials, b, lambda y, n=n, t=t: allowed[n, y[t]])
            for n, (b, t) in enumerate(of_tokens(potentials))
        ],
        allowed_NK,
    ),
    "entropy": Primitive(
        lambda potentials, _: chain.entropy(potentials),
        lambda potentials, _: [oracle.entropy(potentials, b) for b in of_sequences(potentials)],
        lambda potentials: st.none(),
    ),
    "log_partition_excluding": Primitive(
        chain.log_partition_excluding,
        lambda potentials, allowed: [
            oracle.log_sum(potentials, b, lambda y, b=b: leaves(allowed, potentials, b, y))
            for b in of_sequences(potentials)
        ],
        allowed_NK,
    ),
    "segment_log_probs": Primitive(chain.segment_log_probs, define_segments, segments_S),
}
each_primitive = pytest.mark.parametrize("name", PRIMITIVES)


def check_against_definition(
    primitive: Primitive, potentials: Potentials, more: Any, rtol: float, atol: float
) -> None:
    values, backprop = primitive.compute(potentials, more)
    expected = primitive.define(in_precision(potentials, "float64"), more)
    assert values.dtype == "float64"
    assert_allclose(values, [each.value for each in expected], rtol=rtol, atol=atol)
    weights = numpy.random.default_rng(0).normal(size=len(expected))
    gradient = sum(
        (weight * each.gradient for weight, each in zip(weights, expected)),
        oracle.vector(oracle.zeros(potentials)),
    )
    computed = backprop(weights)
    assert all(array.dtype == potentials.emissions.dtype for array in computed[:4])
    assert_allclose(oracle.vector(computed), gradient, rtol=rtol, atol=atol)


@each_primitive
@given(st.data())
@settings(max_examples=40)
def test_values_and_gradients(name: str, data: st.DataObject) -> None:
    potentials = data.draw(potentials_NK(longest=4))
    more = data.draw(PRIMITIVES[name].draw(potentials))
    check_against_definition(PRIMITIVES[name], potentials, more, rtol=1e-7, atol=1e-7)


@each_primitive
@given(st.data())
@settings(max_examples=10)
def test_gradients_by_differences(name: str, data: st.DataObject) -> None:
    potentials = data.draw(potentials_NK(longest=3, most_tags=3))
    more = data.draw(PRIMITIVES[name].draw(potentials))
    check_gradient(lambda moved: PRIMITIVES[name].compute(moved, more), potentials)


def example(name: str, potentials: Potentials, seed: int = 0) -> Any:
    """What else a primitive needs, for an example batch."""
    rng = numpy.random.default_rng(seed)
    shape = potentials.emissions.shape
    if name == "expectation":
        return random_potentials(potentials.lengths.tolist(), shape[1], seed=seed)
    if name in ("log_marginals", "log_partition_excluding"):
        return rng.uniform(size=shape) < 0.5
    if name == "segment_log_probs":
        begin = numpy.flatnonzero(rng.uniform(size=shape[0]) < 0.3)
        after = rng.uniform(size=(len(begin), shape[1])) < 0.8
        return chain.Segments(begin, begin + 1, rng.integers(shape[1], size=len(begin)), after)
    return None


@each_primitive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [30, 300, 3_000, 10_000])
def test_scores_beyond_the_range_of_exponentials(name: str, scale: float, dtype: str) -> None:
    for seed in range(5):
        potentials = random_potentials([4, 1, 0, 5, 3], 3, scale, dtype, seed)
        more = example(name, potentials, seed)
        check_against_definition(PRIMITIVES[name], potentials, more, rtol=1e-4, atol=2e-4)


@each_primitive
@given(st.data())
@settings(max_examples=20)
def test_float32_agrees_with_the_definition(name: str, data: st.DataObject) -> None:
    potentials = in_precision(data.draw(potentials_NK(longest=4)), "float32")
    more = data.draw(PRIMITIVES[name].draw(potentials))
    check_against_definition(PRIMITIVES[name], potentials, more, rtol=1e-3, atol=1e-3)


@each_primitive
def test_batch_without_tokens(name: str) -> None:
    for lengths in ([], [0], [0, 0]):
        potentials = random_potentials(lengths, 3)
        check_against_definition(
            PRIMITIVES[name], potentials, example(name, potentials), rtol=0, atol=0
        )


@each_primitive
def test_sequences_do_not_disturb_each_other(name: str) -> None:
    """Whatever the neighbours are: without a legal path, empty, or of extreme scores."""
    potentials = random_potentials([3, 2, 0, 4, 3, 1], 3, dtype="float32")
    more = example(name, potentials)
    if name == "segment_log_probs":
        more = more._replace(begin=more.begin[:0], end=more.end[:0], tags=more.tags[:0], after=None)
    disturbed = forbid_all(potentials, 1)
    disturbed.emissions[oracle.spans(potentials)[3]] *= 5_000
    with_all = PRIMITIVES[name].compute(potentials, more)[1]
    check_against_definition(PRIMITIVES[name], disturbed, more, rtol=1e-5, atol=1e-5)
    values, backprop = PRIMITIVES[name].compute(disturbed, more)
    gradient, before = backprop(numpy.ones(len(values))), with_all(numpy.ones(len(values)))
    assert (gradient.emissions[oracle.spans(potentials)[1]] == 0).all()
    for b in (0, 4, 5):
        tokens = oracle.spans(potentials)[b]
        assert_allclose(gradient.emissions[tokens], before.emissions[tokens], atol=1e-6)


@each_primitive
def test_long_sequence_in_single_precision(name: str) -> None:
    potentials = random_potentials([10_000], 3, 3, dtype="float32")
    more = example(name, potentials)
    values, backprop = PRIMITIVES[name].compute(potentials, more)
    exact, exact_backprop = PRIMITIVES[name].compute(in_precision(potentials, "float64"), more)
    assert_allclose(values, exact, rtol=1e-5, atol=1e-3)
    weights = numpy.random.default_rng(0).normal(size=len(values))
    gradient, expected = backprop(weights), exact_backprop(weights)
    for name, array in zip(gradient._fields, gradient[:4]):
        atol = 1e-2 if name == "transitions" else 1e-4
        assert_allclose(array, getattr(expected, name), rtol=1e-3, atol=atol, err_msg=name)


@each_primitive
def test_long_sequence_of_large_scores(name: str) -> None:
    potentials = random_potentials([10_000], 3, 100, dtype="float32")
    values, backprop = PRIMITIVES[name].compute(potentials, example(name, potentials))
    assert not numpy.isnan(values).any()
    gradient = backprop(numpy.ones(len(values)))
    assert all(numpy.isfinite(array).all() for array in gradient[:4])


# Identities


@given(st.data())
@settings(max_examples=20)
def test_all_paths_are_those_inside_a_set_and_those_outside(data: st.DataObject) -> None:
    potentials = data.draw(potentials_NK())
    allowed = data.draw(allowed_NK(potentials))
    inside = chain.log_partition(chain.restrict(potentials, allowed))[0]
    outside = chain.log_partition_excluding(potentials, allowed)[0]
    assert_allclose(numpy.logaddexp(inside, outside), chain.log_partition(potentials)[0])


def test_outside_keeps_its_digits_where_the_set_has_all_the_probability() -> None:
    potentials = random_potentials([6], 3)
    allowed = numpy.arange(3)[None] == numpy.zeros((6, 1))
    potentials.emissions[:, 0] += 60
    expected = oracle.log_sum(potentials, 0, lambda y: any(y)).value
    assert_allclose(chain.log_partition_excluding(potentials, allowed)[0], expected, rtol=1e-12)


def test_outside_that_only_a_tiny_message_leads_to() -> None:
    """The one way out of the set counts exp(-106), which float32 does not hold."""
    potentials = in_precision(random_potentials([2], 3, scale=0), "float32")
    potentials.emissions[0] = [0, -46, -numpy.inf]
    potentials.transitions[:2, 2] = [-numpy.inf, -60]
    allowed = numpy.asarray([[True, True, False]] * 2)
    values = chain.log_partition_excluding(potentials, allowed)[0]
    assert_allclose(values, [-106], rtol=1e-6)


def test_segment_of_one_token_is_a_marginal() -> None:
    potentials = random_potentials([4, 1, 3], 3)
    tags = numpy.asarray([0, 2, 1, 1, 0, 2, 0, 1])
    segments = chain.Segments(numpy.arange(8), numpy.arange(8) + 1, tags)
    log_p, backprop = chain.segment_log_probs(potentials, segments)
    expected, expected_backprop = chain.log_marginals(potentials, tags[:, None] == numpy.arange(3))
    assert_allclose(log_p, expected)
    weights = numpy.linspace(-1, 1, 8)
    assert_allclose(
        oracle.vector(backprop(weights)), oracle.vector(expected_backprop(weights)), atol=1e-12
    )
