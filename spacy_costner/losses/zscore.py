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

    cost (Cost | None): What each mistake costs. The Hamming cost makes the paper's "Hamming
        loss". With a cost, use weight decay: otherwise training has no finite optimum.
    multiplier (float): The amount added to a score per unit of cost. It has to be above 0.
    RAISES (ValueError): If the multiplier is not above 0, or not finite.
    """
    # `above` returns the number, or raises an error that names the loss and the parameter.
    multiplier = above(0, "ZScore", "multiplier", multiplier)
    compute = partial(zscore, multiplier=multiplier)
    # The loss is one ratio over the batch. Scores that were trained with it give no probabilities.
    # With weights of 0, all legal paths have the same score, and the gradient is 0. So the loss
    # needs a start.
    return Loss(compute, cost, is_ratio=True, has_probabilities=False, needs_start=True)


def zscore(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The negative Z-score of the gold path.

        loss = - sum (s(y*) - mu) / sqrt(sum sigma^2)

    mu and sigma^2 are the mean and the variance of the score over all legal paths, which all have
    the same probability here. With a cost, s(y) is s(y) + m C(y*, y). If all legal paths have the
    same score, the loss and its gradient are 0. So start from a model that was trained with the
    likelihood.

    With partial annotation s(y*) is the mean score of the paths that agree with it. (Other losses
    take the log-sum. Here it would stay above mu while all scores go to 0, and sigma with them: the
    loss would have no minimum.)

    Ricci, De Bie & Cristianini, definition 1 and section 5.1.
    """
    # The score of a path is the inner product of the scores and the features of the path, which are
    # its tags and transitions. So mu is the inner product of the scores and the mean features. And
    # sigma^2 is the inner product of the scores and the covariances of each feature with the score
    # of the path. These covariances are what `backprop_mean` returns.
    scores = zero_forbidden(cost_augment(potentials, gold, multiplier))
    paths = chain.forward_backward(uniform_over_legal(potentials))
    mean, backprop_mean = paths.expectation(scores)
    _, backprop_log_z = paths.log_partition()
    # A sequence without annotation has the weight 0.
    weights = sequence_weights(gold, mean) * has_annotation(gold, potentials)
    covariance = backprop_mean(weights)
    # The features of gold minus the mean features of all paths, summed over the batch.
    feature_lead = add_to(backprop_log_z(-weights), gold_features(potentials, gold, weights))
    score_lead = inner_product(feature_lead, scores)  # sum (s(y*) - mu)
    variance = inner_product(covariance, scores)  # sum sigma^2
    # 1 / sqrt(sum sigma^2), but 0 if all legal paths have the same score.
    inverse_deviation = 0.0
    if variance > largest_rounding(scores):
        inverse_deviation = variance**-0.5
    z = inverse_deviation * score_lead
    # d loss = - variance^(-1/2) d score_lead + 1/2 score_lead variance^(-3/2) d variance. The
    # gradient of `score_lead` is `feature_lead`, and the gradient of `variance` is 2 `covariance`.
    term_of_lead = scale(-inverse_deviation, feature_lead)
    term_of_variance = scale(inverse_deviation**2 * z, covariance)
    return LossResult(-z, add_to(term_of_lead, term_of_variance))


def largest_rounding(scores: Potentials) -> float:
    """Return the largest variance that can come from rounding alone, when all legal paths have the
    same score. A larger variance is taken as real."""
    xp = get_array_module(scores.emissions)
    largest_score = 0.0
    for array in scores[:4]:  # emissions, transitions, start and end
        if array.size > 0:
            largest_score = max(largest_score, float(array.max()), float(-array.min()))
    epsilon = float(xp.finfo(scores.emissions.dtype).eps)
    n_tokens = len(scores.emissions)
    # The squared scores of all tokens, times the rounding error of a number. 100 is a margin.
    return 100 * epsilon * n_tokens * largest_score**2


def gold_features(potentials: Potentials, gold: Gold, weights: Floats1d) -> Potentials:
    """Count the features of gold: how often it has each tag at each token, and each transition. The
    counts of a sequence are multiplied by its weight. With partial annotation they are the mean
    over the paths that agree with it. Shape of the weights: (B,)"""
    # These counts are the gradient of the score of the gold path. The mean counts are the gradient
    # of a log-sum over paths with equal scores.
    if gold.allowed is None:
        _, backprop = chain.path_score(potentials, gold.tags)
    else:
        agreeing = chain.restrict(potentials, gold.allowed)
        _, backprop = chain.log_partition(uniform_over_legal(agreeing))
    return backprop(weights)


def inner_product(gradient: Potentials, scores: Potentials) -> float:
    """Compute the inner product of a gradient and scores, over all four arrays."""
    return sum(float(d.ravel() @ s.ravel()) for d, s in zip(gradient[:4], scores[:4]))


def scale(factor: float, gradient: Potentials) -> Potentials:
    """Multiply a gradient by a number."""
    return map_scores(lambda array: factor * array, gradient)
