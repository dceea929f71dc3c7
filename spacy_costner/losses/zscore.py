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
    """Create the Z-score loss: see `zscore`.

    cost (Cost | None): The cost of each mistake. With the Hamming cost, the loss is the paper's
        "Hamming loss". If there is a cost, use weight decay: without it, training has no finite
        optimum.
    multiplier (float): The amount added to a score per unit of cost. Must be above 0.
    RAISES (ValueError): If the multiplier is not above 0 or not finite.
    """
    # `above` returns the number, or raises an error that names the loss and the parameter.
    multiplier = above(0, "ZScore", "multiplier", multiplier)
    compute = partial(zscore, multiplier=multiplier)
    # The loss is a ratio over the batch. The trained scores can't be converted to probabilities.
    # With weights of 0, all legal paths have the same score and the gradient is 0, so training
    # needs an initial model.
    return Loss(compute, cost, is_ratio=True, has_probabilities=False, needs_start=True)


def zscore(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The negative Z-score of the gold path.

        loss = - sum (s(y*) - mu) / sqrt(sum sigma^2)

    mu and sigma^2 are the mean and the variance of the score over all legal paths, treated as
    equally likely. With a cost, s(y) is replaced by s(y) + m C(y*, y). If all legal paths have the
    same score, the loss and its gradient are 0, so start from a model that was trained with the
    likelihood.

    With partial annotation, s(y*) is the mean score of the paths that agree with it. (Other losses
    use the log-sum. Here, the log-sum would stay above mu while all scores, and with them sigma,
    approach 0, so the loss would have no minimum.)

    Ricci, De Bie & Cristianini, definition 1 and section 5.1.
    """
    # The score of a path is the inner product of the scores and the path's features, which are its
    # tags and transitions. So mu is the inner product of the scores and the mean features, and
    # sigma^2 is the inner product of the scores and the covariances between each feature and the
    # path score. `backprop_mean` returns these covariances.
    scores = zero_forbidden(cost_augment(potentials, gold, multiplier))
    paths = chain.forward_backward(uniform_over_legal(potentials))
    mean, backprop_mean = paths.expectation(scores)
    _, backprop_log_z = paths.log_partition()
    # Sequences without annotation get the weight 0.
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
    """Return the largest variance that can result from rounding errors if all legal paths have the
    same score. Larger variances are treated as nonzero."""
    xp = get_array_module(scores.emissions)
    largest_score = 0.0
    for array in scores[:4]:  # emissions, transitions, start and end
        if array.size > 0:
            largest_score = max(largest_score, float(array.max()), float(-array.min()))
    epsilon = float(xp.finfo(scores.emissions.dtype).eps)
    n_tokens = len(scores.emissions)
    # The squared scores of all tokens, multiplied by the rounding error of a number and a safety
    # factor of 100.
    return 100 * epsilon * n_tokens * largest_score**2


def gold_features(potentials: Potentials, gold: Gold, weights: Floats1d) -> Potentials:
    """Count the features of gold: each tag at each token, and each transition. The counts of a
    sequence are multiplied by its weight. With partial annotation, they are averaged over the paths
    that agree with it. Shape of the weights: (B,)"""
    # The counts are the gradient of the gold path's score. Mean counts are the gradient of a
    # log-sum over paths with equal scores.
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
