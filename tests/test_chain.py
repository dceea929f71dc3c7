"""The chain's first primitives against enumeration; `test_chain_*.py` has the others."""

from typing import Callable, List

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from spacy_costner import chain
from spacy_costner.types import Constraints, Potentials

from . import oracle
from .support.batches import forbid_all, random_potentials, single
from .support.gradients import check_gradient
from .support.strategies import allowed_NK, constraints_NK, potentials_NK, tags_N, weights_B

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
few = settings(max_examples=15)


# Against enumeration


@given(potentials_NK())
def test_log_partition_is_the_sum_over_all_paths(potentials: Potentials) -> None:
    log_z, _ = chain.log_partition(potentials)
    assert log_z.shape == potentials.lengths.shape
    assert log_z.dtype == "float64"
    assert_allclose(log_z, oracle.log_partition(potentials), **CLOSE)


@given(potentials_NK(), st.data())
def test_gradient_of_log_partition_is_the_expected_features(
    potentials: Potentials, data: st.DataObject
) -> None:
    d_log_z = data.draw(weights_B(potentials))
    gradient = chain.log_partition(potentials)[1](d_log_z)
    expected = sum(
        (d * oracle.vector(oracle.expected_features(potentials, b)) for b, d in enumerate(d_log_z)),
        oracle.vector(oracle.zeros(potentials)),
    )
    assert_allclose(oracle.vector(gradient), expected, **CLOSE)


@given(potentials_NK())
def test_marginals(potentials: Potentials) -> None:
    expected = oracle.zeros(potentials).emissions
    for b in range(len(potentials.lengths)):
        expected += oracle.expected_features(potentials, b).emissions
    assert_allclose(chain.marginals(potentials), expected, **CLOSE)


@given(potentials_NK(), st.data())
def test_path_score(potentials: Potentials, data: st.DataObject) -> None:
    tags = data.draw(tags_N(potentials))
    scores, backprop = chain.path_score(potentials, tags)
    d_scores = data.draw(weights_B(potentials))
    expected = oracle.vector(oracle.zeros(potentials))
    for b, tokens in enumerate(oracle.spans(potentials)):
        legal_score = oracle.score(potentials, b, tags[tokens])
        assert scores[b] == pytest.approx(legal_score, rel=1e-12, abs=1e-12)
        if legal_score > -numpy.inf:
            features = oracle.features(potentials, b, tags[tokens])
            expected += d_scores[b] * oracle.vector(features)
    assert_allclose(oracle.vector(backprop(d_scores)), expected, **CLOSE)


@given(potentials_NK(), st.data())
def test_path_log_prob(potentials: Potentials, data: st.DataObject) -> None:
    tags = data.draw(tags_N(potentials))
    log_p, _ = chain.path_log_prob(potentials, tags)
    log_z = oracle.log_partition(potentials)
    for b, tokens in enumerate(oracle.spans(potentials)):
        score = oracle.score(potentials, b, tags[tokens])
        expected = score if numpy.isneginf(score) else score - log_z[b]
        assert log_p[b] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@few
@given(potentials_NK(), st.data())
def test_gradient_of_path_log_prob(potentials: Potentials, data: st.DataObject) -> None:
    tags = data.draw(tags_N(potentials))
    check_gradient(lambda moved: chain.path_log_prob(moved, tags), potentials)


@given(potentials_NK())
def test_best_path_has_the_best_score(potentials: Potentials) -> None:
    best = chain.best_path(potentials)
    assert best.tags.shape == (len(potentials.emissions),)
    assert_allclose(best.scores, oracle.best_score(potentials), **CLOSE)
    for b, tokens in enumerate(oracle.spans(potentials)):
        if best.scores[b] > -numpy.inf:
            assert oracle.score(potentials, b, best.tags[tokens]) == pytest.approx(best.scores[b])


@given(potentials_NK(constrained=False), st.data())
def test_constrain_leaves_the_allowed_paths(potentials: Potentials, data: st.DataObject) -> None:
    n_tokens, n_tags = potentials.emissions.shape
    constraints = data.draw(constraints_NK(n_tokens, n_tags))
    constrained = chain.constrain(potentials, constraints)
    for scores, before, possible in zip(constrained, potentials, constraints):
        kept = numpy.ones(before.shape, dtype=bool) if possible is None else possible
        assert_array_equal(scores, numpy.where(kept, before, -numpy.inf))


@given(potentials_NK(), st.data())
def test_restrict_leaves_the_paths_through_allowed_tags(
    potentials: Potentials, data: st.DataObject
) -> None:
    allowed = data.draw(allowed_NK(potentials))
    restricted = chain.restrict(potentials, allowed)
    assert_allclose(
        chain.log_partition(restricted)[0], oracle.log_partition(potentials, allowed), **CLOSE
    )
    assert chain.restrict(potentials, None) is not None


# Gradients


@few
@given(potentials_NK(longest=3, most_tags=3))
def test_gradient_of_log_partition_by_differences(potentials: Potentials) -> None:
    check_gradient(chain.log_partition, potentials)


@few
@given(potentials_NK(longest=3, most_tags=3), st.data())
def test_gradient_of_path_score_by_differences(potentials: Potentials, data: st.DataObject) -> None:
    tags = data.draw(tags_N(potentials))
    check_gradient(lambda moved: chain.path_score(moved, tags), potentials)


@given(potentials_NK())
def test_gradient_is_exactly_zero_at_forbidden_steps(potentials: Potentials) -> None:
    gradient = chain.log_partition(potentials)[1](numpy.ones(len(potentials.lengths)))
    for array, scores in zip(gradient[:4], potentials):
        assert (array[scores == -numpy.inf] == 0).all()
        assert numpy.isfinite(array).all()


# Edges


@pytest.mark.parametrize("n_tags", [1, 3])
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_batch_without_tokens(lengths: List[int], n_tags: int) -> None:
    potentials = random_potentials(lengths, n_tags)
    log_z, backprop = chain.log_partition(potentials)
    assert_array_equal(log_z, numpy.zeros(len(lengths)))
    gradient = backprop(numpy.ones(len(lengths)))
    assert gradient.emissions.shape == (0, n_tags)
    assert all((array == 0).all() for array in gradient[:4])
    best = chain.best_path(potentials)
    assert best.tags.shape == (0,)
    assert_array_equal(best.scores, numpy.zeros(len(lengths)))


def test_one_token() -> None:
    potentials = random_potentials([1], 3)
    scores = potentials.start + potentials.emissions[0] + potentials.end
    log_z, backprop = chain.log_partition(potentials)
    assert_allclose(log_z, [numpy.log(numpy.exp(scores).sum())])
    gradient = backprop(numpy.ones(1))
    softmax = numpy.exp(scores - log_z)
    for array in (gradient.start, gradient.end, gradient.emissions[0]):
        assert_allclose(array, softmax)
    assert (gradient.transitions == 0).all()
    assert chain.best_path(potentials).tags.tolist() == [scores.argmax()]


def test_one_tag() -> None:
    potentials = random_potentials([3, 1, 0], 1)
    tags = numpy.zeros(4, dtype="int32")
    expected = chain.path_score(potentials, tags)[0]
    assert_allclose(chain.log_partition(potentials)[0], expected)
    assert_allclose(chain.best_path(potentials).scores, expected)
    assert_array_equal(chain.marginals(potentials), numpy.ones((4, 1)))


def test_no_legal_path() -> None:
    free = random_potentials([3, 2, 0, 4], 3)
    potentials = forbid_all(free, 1)
    log_z, backprop = chain.log_partition(potentials)
    assert log_z[1] == -numpy.inf
    assert numpy.isfinite(log_z[[0, 2, 3]]).all()
    gradient = backprop(numpy.ones(4))
    tokens = oracle.spans(potentials)[1]
    assert (gradient.emissions[tokens] == 0).all()
    others = random_potentials([3, 4], 3)._replace(
        emissions=numpy.delete(free.emissions, tokens, axis=0),
        transitions=free.transitions,
        start=free.start,
        end=free.end,
    )
    expected = chain.log_partition(others)[1](numpy.ones(2))
    assert_allclose(gradient.transitions, expected.transitions)
    best = chain.best_path(potentials)
    assert best.scores[1] == -numpy.inf
    tags = best.tags.copy()
    scores, backprop = chain.path_score(potentials, tags)
    assert scores[1] == -numpy.inf
    assert (backprop(numpy.ones(4)).emissions[tokens] == 0).all()


def test_everything_forbidden() -> None:
    potentials = random_potentials([3, 1], 2)
    nothing = numpy.zeros((2, 2), dtype=bool)
    neither = numpy.zeros(2, dtype=bool)
    potentials = chain.constrain(
        potentials, Constraints(transitions=nothing, start=neither, end=neither)
    )
    log_z, backprop = chain.log_partition(potentials)
    assert_array_equal(log_z, [-numpy.inf, -numpy.inf])
    assert all((array == 0).all() for array in backprop(numpy.ones(2))[:4])
    assert_array_equal(chain.best_path(potentials).scores, [-numpy.inf, -numpy.inf])


@given(potentials_NK())
def test_ragged_batch_equals_its_sequences_one_by_one(potentials: Potentials) -> None:
    n_sequences = len(potentials.lengths)
    log_z, backprop = chain.log_partition(potentials)
    best = chain.best_path(potentials)
    d_log_z = numpy.linspace(0.5, 1.5, n_sequences)
    total = oracle.vector(oracle.zeros(potentials._replace(emissions=numpy.zeros((0, 0)))))
    for b, tokens in enumerate(oracle.spans(potentials)):
        alone = single(potentials, b)
        log_z_alone, backprop_alone = chain.log_partition(alone)
        gradient = backprop_alone(d_log_z[b : b + 1])
        assert_allclose(log_z[b], log_z_alone[0], **CLOSE)
        assert_allclose(backprop(d_log_z).emissions[tokens], gradient.emissions, **CLOSE)
        total += oracle.vector(gradient._replace(emissions=numpy.zeros((0, 0))))
        assert_array_equal(best.tags[tokens], chain.best_path(alone).tags)
    shared = backprop(d_log_z)._replace(emissions=numpy.zeros((0, 0)))
    assert_allclose(oracle.vector(shared), total, **CLOSE)


# IdMap


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_sequences_of_large_scores_stay_finite(dtype: str) -> None:
    potentials = random_potentials([10_000], 5, scale=100, dtype=dtype)
    log_z, backprop = chain.log_partition(potentials)
    gradient = backprop(numpy.ones(1))
    assert numpy.isfinite(log_z).all()
    assert all(numpy.isfinite(array).all() for array in gradient[:4])
    assert_allclose(gradient.emissions.sum(axis=1), 1, rtol=1e-5)
    assert gradient.transitions.sum() == pytest.approx(9_999, rel=1e-5)
    best = chain.best_path(potentials)
    assert 0 <= log_z[0] - best.scores[0] <= 10_000 * numpy.log(5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [30, 300, 3_000, 10_000])
def test_scores_beyond_the_range_of_exponentials(scale: float, dtype: str) -> None:
    potentials = random_potentials([5, 1, 0, 4], 3, scale=scale, dtype=dtype)
    exact = Potentials(*(array.astype("float64") for array in potentials[:4]), potentials.lengths)
    log_z, backprop = chain.log_partition(potentials)
    assert_allclose(log_z, oracle.log_partition(exact), rtol=1e-6)
    expected = sum(oracle.vector(oracle.expected_features(exact, b)) for b in range(4))
    assert_allclose(oracle.vector(backprop(numpy.ones(4))), expected, rtol=1e-3, atol=1e-5)


def test_paths_of_tiny_but_only_probability() -> None:
    """The best way on from every step leads through what a float cannot hold."""
    potentials = random_potentials([6, 6], 3)
    potentials.emissions[:] = 0
    potentials.emissions[2:4, 1:] = -5_000
    potentials.transitions[:] = [[0, -4_000, -4_000], [-4_000, 0, 0], [-4_000, 0, 0]]
    potentials.start[:] = [-9_000, 0, 0]
    log_z, backprop = chain.log_partition(potentials)
    assert_allclose(log_z, oracle.log_partition(potentials))
    expected = sum(oracle.vector(oracle.expected_features(potentials, b)) for b in range(2))
    assert_allclose(oracle.vector(backprop(numpy.ones(2))), expected, **CLOSE)


@given(potentials_NK())
def test_float32_agrees_with_float64(potentials: Potentials) -> None:
    single_precision = Potentials(
        *(array.astype("float32") for array in potentials[:4]), potentials.lengths
    )
    ones = numpy.ones(len(potentials.lengths))
    log_z, backprop = chain.log_partition(single_precision)
    expected, backprop_64 = chain.log_partition(potentials)
    assert_allclose(log_z, expected, rtol=1e-5, atol=1e-4)
    gradient = backprop(ones)
    assert all(array.dtype == "float32" for array in gradient[:4])
    assert_allclose(oracle.vector(gradient), oracle.vector(backprop_64(ones)), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(
    "function",
    [chain.log_partition, chain.marginals, chain.best_path],
)
def test_potentials_are_left_as_they_were(function: Callable) -> None:
    potentials = random_potentials([3, 0, 2], 3)
    before = [array.copy() for array in potentials]
    function(potentials)
    for array, copy in zip(potentials, before):
        assert_array_equal(array, copy)
