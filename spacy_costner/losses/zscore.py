"""The Z-score of the gold path among all paths."""

from functools import partial

from thinc.types import Floats1d
from thinc.util import get_array_module

from .. import chain
from ..types import Cost, Gold, Loss, LossResult, Potentials, add_to, map_scores
from ..validation import above
from .composition import (
    cost_augment,
    has_annotation,
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
    # The score of a path is the inner product of the scores and the path's features: its tags and
    # transitions. So mu is the inner product of the scores and the mean features. And sigma^2 is
    # that of the scores and their covariance with the features, which is the gradient of mu.
    scores = zero_forbidden(cost_augment(potentials, gold, multiplier))
    paths = chain.forward_backward(uniform_over_legal(potentials))
    mean, backprop_mean = paths.expectation(scores)
    _, backprop_log_z = paths.log_partition()
    weights = sequence_weights(gold, mean) * has_annotation(gold, potentials)
    covariance = backprop_mean(weights)
    # The mean features of gold minus those of all paths, summed over the batch
    feature_lead = add_to(backprop_log_z(-weights), gold_features(potentials, gold, weights))
    score_lead = dot(feature_lead, scores)  # sum (s(y*) - mu)
    variance = dot(covariance, scores)  # sum sigma^2
    # 1 / sqrt(sum sigma^2), 0 if all legal paths have the same score
    inverse_deviation = 0.0
    if variance > largest_rounding(scores):
        inverse_deviation = variance**-0.5
    z = inverse_deviation * score_lead
    # The derivative of score_lead is feature_lead, that of the variance 2 covariance.
    term_of_lead = scaled(-inverse_deviation, feature_lead)
    term_of_variance = scaled(inverse_deviation**2 * z, covariance)
    return LossResult(-z, add_to(term_of_lead, term_of_variance))


def largest_rounding(scores: Potentials) -> float:
    """The variance of paths that rounding alone can give to scores that are all equal. Above it,
    `zscore` divides by the deviation."""
    xp = get_array_module(scores.emissions)
    largest_score = 0.0
    for array in scores[:4]:  # all but the lengths
        if array.size > 0:
            largest_score = max(largest_score, float(array.max()), float(-array.min()))
    epsilon = float(xp.finfo(scores.emissions.dtype).eps)
    n_tokens = len(scores.emissions)
    return 100 * epsilon * n_tokens * largest_score**2


def gold_features(potentials: Potentials, gold: Gold, weights: Floats1d) -> Potentials:
    """The features of gold: whether it has each tag at each token, and how often each transition.
    They are summed over the sequences, with their weights. Of a partial annotation they are the
    mean over the paths that agree with it."""
    # These counts are the gradient of the score of gold, or of a log-sum of equal scores.
    if gold.allowed is None:
        _, backprop = chain.path_score(potentials, gold.tags)
    else:
        agreeing = chain.restrict(potentials, gold.allowed)
        _, backprop = chain.log_partition(uniform_over_legal(agreeing))
    return backprop(weights)


def dot(gradient: Potentials, scores: Potentials) -> float:
    """The inner product of a gradient and scores: all four arrays of each as one vector."""
    return sum(float(d.ravel() @ s.ravel()) for d, s in zip(gradient[:4], scores[:4]))


def scaled(factor: float, gradient: Potentials) -> Potentials:
    """A gradient times a number."""
    return map_scores(lambda array: factor * array, gradient)
