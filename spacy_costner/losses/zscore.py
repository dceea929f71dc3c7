"""The Z-score: how far gold stands above all paths, in standard deviations of their scores."""

from functools import partial
from typing import Optional

from .. import chain
from ..types import Cost, Gold, Loss, LossResult, Potentials, linear_combination
from .parameters import above
from .scored import annotated, augment, gold_score, level, sequence_weights, zero_forbidden


def make_zscore(*, cost: Optional[Cost] = None, multiplier: float = 1.0) -> Loss:
    """Build the Z-score: see `zscore`.

    cost (Optional[Cost]): What each mistake costs; the Hamming cost is the paper's "Hamming
        loss". Without weight decay training then has no finite optimum.
    multiplier (float): How much score a unit of cost is worth, above 0.
    RAISES (ValueError): If the multiplier is not above 0, or not finite.
    """
    multiplier = above(0, "ZScore", "multiplier", multiplier)
    return Loss(partial(zscore, multiplier=multiplier), cost, is_ratio=True)


def zscore(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """How far gold stands below the mean score of all paths, in standard deviations.

        loss = - sum (s(y*) - mu) / sqrt(sum sigma^2)

    mu and sigma^2 are the mean and the variance of the score over all legal paths, each
    as probable as the other. With a cost, s(y) is s(y) + m C(y*, y). Where all legal
    paths score the same the loss is 0 and so is its gradient: don't start at 0.

    potentials (Potentials): The scores of a batch.
    gold (Gold): Gold tags and, if there is one, the cost of each answer.
    multiplier (float): m, how much score a unit of cost is worth.
    RETURNS (LossResult): One ratio for the batch, and its gradient.

    Ricci, De Bie & Cristianini, definition 1 and section 5.1.
    """
    raised = potentials if gold.cost is None else augment(potentials, gold, multiplier)
    scores, uniform = zero_forbidden(raised), level(potentials)
    right, backprop_right = gold_score(potentials, gold)
    mean, backprop_mean = chain.expectation(uniform, scores)
    weights = sequence_weights(gold, right) * annotated(gold, potentials)
    lead = float((weights * (right - mean)).sum())
    covariance = backprop_mean(weights)
    spread = max(dot(covariance, scores), 0.0) ** 0.5
    if spread < NO_SPREAD:
        return LossResult(0.0, linear_combination((0.0, covariance)))
    average = chain.log_partition(uniform)[1](weights)
    gradient = linear_combination(
        (-1 / spread, backprop_right(weights)),
        (1 / spread, average),
        (lead / spread**3, covariance),
    )
    return LossResult(-lead / spread, gradient)


NO_SPREAD = 1e-6
"""A standard deviation that is but the rounding of 0."""


def dot(one: Potentials, other: Potentials) -> float:
    """The inner product of two gradients."""
    products = (float((a.astype("float64") * b).sum()) for a, b in zip(one[:4], other[:4]))
    return sum(products)
