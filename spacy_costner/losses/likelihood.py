"""Likelihood losses: the likelihood of paths, the likelihood of individual tags, and their weighted
sum."""

from functools import partial

from thinc.types import Floats1d
from thinc.util import get_array_module

from .. import chain
from ..types import Cost, Gold, Loss, LossResult, Potentials, add_to
from ..validation import at_least, within
from .composition import (
    cost_augment,
    gold_log_prob,
    gold_score,
    sequence_weights,
    sequences_of_tokens,
)


def make_sequential() -> Loss:
    """Create the likelihood loss for whole paths: see `sequential`."""
    return Loss(sequential)


def make_pointwise() -> Loss:
    """Create the likelihood loss for individual tags: see `pointwise`."""
    return Loss(pointwise, weighs_tokens=True)


def make_mixed(
    *,
    lam: float | None = None,
    k: float | None = None,
    cost: Cost | None = None,
    multiplier: float = 1.0,
) -> Loss:
    """Create the weighted sum of both likelihoods: see `mixed`. Exactly one of lam and k must be
    set.

    lam (float | None): The weight of `sequential`, from 0 to 1.
    k (float | None): Sets lam to k / (k + 1). The loss is then a multiple of the k-th order Markov
        loss. Must be at least 0, and can be fractional.
    cost (Cost | None): The cost of each mistake, which is added to the scores.
    multiplier (float): The amount added to a score per unit of cost, at least 0.
    RAISES (ValueError): If both or neither of lam and k are set, or if a number is out of range.
    """
    is_exactly_one_given = (lam is None) != (k is None)
    if not is_exactly_one_given:
        where = "spacy_costner.Mixed: lam, k"
        raise ValueError(f"{where}: expected exactly one of them, got {lam!r}, {k!r}")
    # `at_least` and `within` return a number, or raise an error with the names of the loss and the
    # parameter.
    if lam is None:
        order = at_least(0, "Mixed", "k", k)
        lam = order / (order + 1)
    lam = within(0, 1, "Mixed", "lam", lam)
    score_per_cost = 0.0  # without a cost, the multiplier has no effect
    if cost is not None:
        score_per_cost = at_least(0, "Mixed", "multiplier", multiplier)
    compute = partial(mixed, lam=lam, multiplier=score_per_cost)
    # Adding a cost to the scores during training shifts the model's probabilities.
    return Loss(compute, cost, weighs_tokens=True, shifts_probabilities=cost is not None)


def sequential(potentials: Potentials, gold: Gold) -> LossResult:
    """The negative log-likelihood of the gold path, the usual loss of a CRF.

        loss = log Z - s(y*)

    With partial annotation, s(y*) is the log-sum of the scores of all paths that agree with it.

    Lafferty, McCallum & Pereira (2001); L_1 of Tsuboi & Kashima, definition 1.
    """
    log_p, backprop = gold_log_prob(potentials, gold)
    weights = sequence_weights(gold, log_p)
    return LossResult(float(-(weights * log_p).sum()), backprop(-weights))


def pointwise(potentials: Potentials, gold: Gold) -> LossResult:
    """The negative log-likelihood of each individual gold tag, summed over tokens.

        loss = - sum_t w_t log p(y_t = y*_t)

    w_t is the weight of token t. With partial annotation, p(y_t = y*_t) is the total probability of
    all tags that agree with it.

    Kakade, Teh & Roweis (2002); L_0 of Tsuboi & Kashima, eq 2.2, weights as in section 6.
    """
    log_p, backprop = chain.log_marginals(potentials, gold.token_tags)
    weights = weights_of_tokens(potentials, gold)
    return LossResult(float(-(weights * log_p).sum()), backprop(-weights))


def mixed(potentials: Potentials, gold: Gold, *, lam: float, multiplier: float = 0.0) -> LossResult:
    """The weighted sum of `sequential` and `pointwise`.

        loss = lam (log Z - s(y*)) - (1 - lam) sum_t w_t log p(y_t = y*_t)

    With lam = k / (k + 1) and weights w_t of 1, this is the k-th order Markov loss, the likelihood
    of windows of k + 1 tags, divided by k + 1. With a multiplier above 0, the cost is added to the
    scores as in `softmax_margin`, which is the same loss for lam = 1.

    Tsuboi & Kashima, eq 3.4, theorem 1, and section 6 for the weights; Gimpel & Smith (2010), eq 6,
    for the margin.
    """
    if multiplier:
        potentials = cost_augment(potentials, gold, multiplier)
    if lam == 0:
        return pointwise(potentials, gold)
    if lam == 1:
        return sequential(potentials, gold)
    # Both terms use the same forward-backward pass.
    paths = chain.forward_backward(potentials)
    log_z, backprop_all = paths.log_partition()
    score, backprop_gold = gold_score(potentials, gold)
    log_p, backprop_tags = paths.log_marginals(gold.token_tags)
    path_weights = lam * sequence_weights(gold, log_z)
    tag_weights = (1 - lam) * weights_of_tokens(potentials, gold)
    value = (path_weights * (log_z - score)).sum() - (tag_weights * log_p).sum()
    gradient = paths.backprop((backprop_all, path_weights), (backprop_tags, -tag_weights))
    return LossResult(float(value), add_to(gradient, backprop_gold(-path_weights)))


def weights_of_tokens(potentials: Potentials, gold: Gold) -> Floats1d:
    """Return the weight of each token, multiplied by the weight of its sequence. Shape: (N,)"""
    xp = get_array_module(potentials.emissions)
    by_sequence = sequence_weights(gold, xp.ones(len(potentials.lengths)))
    weights = by_sequence[sequences_of_tokens(potentials)]
    if gold.token_weights is None:
        return weights
    return weights * gold.token_weights
