"""What values of the losses by enumeration don't say: ties, long sequences, running totals."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest
from hypothesis import assume, given, settings
from numpy.testing import assert_allclose, assert_array_equal

from spacy_costner import chain
from spacy_costner.losses import max_margin, mira, mixed, perceptron, pointwise, sequential, zscore
from spacy_costner.losses.fscore import make_mce_f
from spacy_costner.losses.perceptron import squared_distance
from spacy_costner.types import Gold, Potentials, map_scores

from .. import oracle, oracle_losses
from ..support.batches import in_precision
from ..support.gold import example
from ..support.strategies import Annotated, annotated_NK

# Mistake-driven losses


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("score", [0.0, 1.0, 1000.0, 1 / 3])
@pytest.mark.parametrize(
    "loss",
    [
        perceptron,
        partial(max_margin, multiplier=0.0),
        partial(max_margin, multiplier=1.0),
        partial(perceptron, alpha=0.5),
    ],
)
def test_a_model_whose_scores_are_all_the_same_learns(
    loss: Callable, score: float, dtype: str
) -> None:
    """All paths tie. If gold won ties, a model that starts at 0 would stay there. Each sequence has
    a gradient, unless no token of it is annotated."""
    potentials, complete, partial_gold = example([7, 0, 1, 40], 3, dtype)
    potentials = map_scores(lambda array: numpy.full_like(array, score), potentials)

    for gold in (complete, partial_gold, *(of_one_tag(complete, tag) for tag in range(3))):
        _, gradient = loss(potentials, gold)

        for tokens in oracle.spans(potentials):
            is_annotated = (gold.tags[tokens] >= 0).any()
            assert (gradient.emissions[tokens] != 0).any() == is_annotated


def of_one_tag(gold: Gold, tag: int) -> Gold:
    """Gold whose tokens all have the same of three tags, with the Hamming cost."""
    tags = numpy.full_like(gold.tags, tag)
    return gold._replace(tags=tags, costs=(tags[:, None] != numpy.arange(3)).astype("float64"))


@pytest.mark.parametrize("loss", [max_margin, mira, partial(perceptron, alpha=1.0)])
def test_the_best_competitor_is_the_best_path_with_costs_added_to_scores(loss: Callable) -> None:
    """However long the sequence is, and however large the scores are. The gradient is positive
    where the rival has a tag that gold doesn't have."""
    potentials, gold, _ = example([2_000], 9, "float32", scale=50.0)
    raised = potentials._replace(emissions=potentials.emissions + gold.costs)
    rival = chain.best_path(in_precision(raised, "float64"))

    gradient = loss(potentials, gold).gradient

    _, backprop = chain.path_score(potentials, rival.tags)
    rival_has_tag = backprop(numpy.ones(1)).emissions > 0
    is_wrong = gold.costs > 0
    assert_array_equal(gradient.emissions > 0, rival_has_tag & is_wrong)


class CupyLike(numpy.ndarray):
    """An array whose `max` has the arguments that it has in CuPy: there is no `initial`."""

    __array_priority__ = 1.0  # so that `numpy.concatenate` returns such arrays

    def max(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        return super().max(axis=axis, out=out, keepdims=keepdims)


@pytest.mark.parametrize("lengths", [[5, 2], [1, 1]], ids=["transitions", "no transitions"])
def test_the_distance_of_paths_needs_only_what_cupy_has(lengths: list[int]) -> None:
    potentials, gold, _ = example(lengths, 3, "float32")
    other_tags = (gold.tags + 1) % 3
    expected = squared_distance(potentials, gold.tags, other_tags)

    distance = squared_distance(potentials, gold.tags.view(CupyLike), other_tags.view(CupyLike))

    assert_array_equal(distance, expected)


# Likelihoods


@pytest.mark.parametrize("lam, loss", [(0.0, pointwise), (1.0, sequential)])
def test_a_mixture_of_one_likelihood_is_that_likelihood(lam: float, loss: Callable) -> None:
    """Also for partial annotation, and as the limit of mixtures of both."""
    potentials, *golds = example([4, 0, 3], 3)
    for gold in golds:
        expected = loss(potentials, gold)
        for lam_of_mixture in (lam, abs(lam - 1e-9)):
            result = mixed(potentials, gold, lam=lam_of_mixture)
            assert result.value == pytest.approx(expected.value, rel=1e-6)
            assert_allclose(result.gradient.emissions, expected.gradient.emissions, atol=1e-6)


# The F-score


@pytest.mark.parametrize("psi", [1.0, math.inf])
@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
def test_mce_f_is_that_of_decaying_totals_of_all_batches(decay: float, psi: float) -> None:
    """With psi 1 counts are expected ones, with infinity those of the best path. 1 is added to the
    true positives, so that there is an F from the start."""
    compute = make_mce_f(psi=psi, decay=decay).compute
    totals = oracle_losses.Counts(tp=0.0, fp=0.0, fn=0.0)

    for lengths in ([4, 2], [], [3], [0], [5, 1]):
        potentials, gold, _ = example(lengths, 3)
        value = compute(potentials, gold).value

        batch = oracle_losses.sequences(potentials, gold)
        if psi == 1:
            counts = oracle_losses.expected_counts(batch)
        else:
            counts = oracle_losses.best_counts(batch, slope=1.0, offset=0.0)
        decayed = [decay * total + count for total, count in zip(totals, counts)]
        totals = oracle_losses.Counts(*decayed)
        expected = oracle_losses.mce_f(totals._replace(tp=1 + totals.tp), 1.0)
        assert value == pytest.approx(expected, rel=1e-7)


# The Z-score

LEAST_SPREAD = 1e-3
"""The minimum standard deviation of the scores of paths that aren't all equal."""


@pytest.mark.parametrize("factor", [1e-9, 1e6])
@given(batch=annotated_NK())
@settings(max_examples=20)
def test_the_z_score_does_not_depend_on_the_scale_of_scores(
    factor: float, batch: Annotated
) -> None:
    """The value is the same. The gradient is divided by the factor."""
    scaled = map_scores(lambda scores: factor * scores, batch.potentials)
    for gold in (batch.complete, batch.partial):
        gold = gold._replace(costs=None)
        # The spread of nearly equal scores is a small difference of large numbers, so it is
        # inaccurate, and the gradient, which is divided by it, even more so.
        spread = spread_of_scores(batch.potentials, gold)
        assume(spread == 0 or spread > LEAST_SPREAD)
        result = zscore(batch.potentials, gold)
        scaled_result = zscore(scaled, gold)
        assert result.value == pytest.approx(scaled_result.value, rel=1e-7, abs=1e-7)
        # The chain rule: a score that is scaled has the slope over the factor.
        slopes = factor * oracle.vector(scaled_result.gradient)
        assert_allclose(oracle.vector(result.gradient), slopes, rtol=1e-6, atol=1e-7)


def spread_of_scores(potentials: Potentials, gold: Gold) -> float:
    """Return the standard deviation of the scores of all paths: the denominator of the Z-score."""
    variance = 0.0
    for sequence in oracle_losses.sequences(potentials, gold):
        if sequence.annotated:
            variance += numpy.var(sequence.raised(0.0))
    return math.sqrt(variance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_z_score_of_a_model_whose_scores_are_all_the_same_is_0(dtype: str) -> None:
    """The gradient is 0, too. The score would be divided by the variance, which is 0."""
    potentials, complete, partial_gold = example([30, 1, 0], 5, dtype)
    potentials = map_scores(lambda array: numpy.full_like(array, 5.37), potentials)
    for gold in (complete, partial_gold):
        value, gradient = zscore(potentials, gold._replace(costs=None))
        assert value == 0
        assert (oracle.vector(gradient) == 0).all()
