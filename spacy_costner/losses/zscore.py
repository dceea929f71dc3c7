"""The Z-score of the gold path among all paths."""

from functools import partial

from thinc.types import Floats1d
from thinc.util import get_array_module

from .. import chain
from ..types import Cost, Gold, Loss, LossResult, Potentials, add_to, map_scores
from ..validation import above
from .composition import (
    annotated,
    cost_augment,
    sequence_weights,
    uniform_over_legal,
    zero_forbidden,
)


def make_zscore(*, cost: Cost | None = None, multiplier: float = 1.0) -> Loss:
    """Build the Z-score: see `zscore`.

    cost (Cost | None): What each mistake costs; the Hamming cost is the paper's "Hamming
        loss". Without weight decay training then has no finite optimum.
    multiplier (float): Score per unit of cost, above 0.
    RAISES (ValueError): If the multiplier is not above 0, or not finite.
    """
    multiplier = above(0, "ZScore", "multiplier", multiplier)
    compute = partial(zscore, multiplier=multiplier)
    return Loss(compute, cost, is_ratio=True, has_probabilities=False, needs_start=True)


def zscore(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The negative Z-score of the gold path.

        loss = - sum (s(y*) - mu) / sqrt(sum sigma^2)

    mu and sigma^2 are the mean and the variance of the score over all legal paths, each with
    the same probability. With partial annotation s(y*) is the mean over the paths that
    agree with it; their log-sum would stay above mu as all scores go to 0, and sigma would
    vanish. With a cost, s(y) is s(y) + m C(y*, y). If all legal paths have the same score,
    the loss and its gradient are 0: it needs a likelihood model to start from.

    Ricci, De Bie & Cristianini, definition 1 and section 5.1.
    """
    scores = zero_forbidden(cost_augment(potentials, gold, multiplier))
    paths = chain.forward_backward(uniform_over_legal(potentials))
    mean, backprop_mean = paths.expectation(scores)
    weights = sequence_weights(gold, mean) * annotated(gold, potentials)
    average, covariance = paths.log_partition()[1](-weights), backprop_mean(weights)
    ahead = add_to(average, mean_right(potentials, gold, weights))
    margin, variance = dot(ahead, scores), dot(covariance, scores)
    slope = variance**-0.5 if variance > rounding(scores) else 0.0
    z = slope * margin
    return LossResult(-z, add_to(scaled(-slope, ahead), scaled(slope**2 * z, covariance)))


def rounding(scores: Potentials) -> float:
    """The variance that rounding can give to scores that are all equal."""
    xp = get_array_module(scores.emissions)
    largest = max(float(max(array.max(), -array.min())) for array in scores[:4] if array.size)
    return 100 * float(xp.finfo(scores.emissions.dtype).eps) * len(scores.emissions) * largest**2


def mean_right(potentials: Potentials, gold: Gold, weights: Floats1d) -> Potentials:
    """The mean features of the paths that agree with gold."""
    if gold.allowed is None:
        return chain.path_score(potentials, gold.tags)[1](weights)
    right = chain.restrict(potentials, gold.allowed)
    return chain.log_partition(uniform_over_legal(right))[1](weights)


def dot(one: Potentials, other: Potentials) -> float:
    """The inner product of two gradients."""
    return sum(float(a.ravel() @ b.ravel()) for a, b in zip(one[:4], other[:4]))


def scaled(factor: float, gradient: Potentials) -> Potentials:
    """A gradient times a number."""
    return map_scores(lambda array: factor * array, gradient)
