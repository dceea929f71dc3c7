"""Losses with a cost: margin losses, whose margin increases with the cost of a mistake, and the
expected cost, also called risk.

In formulas, y* is the gold path, C(y*, y) the cost of predicting the path y instead, and m the
cost multiplier.
"""

from functools import partial
from typing import cast

from thinc.types import Floats2d
from thinc.util import get_array_module

from .. import chain
from ..costs.tables import hamming_cost
from ..types import Cost, Gold, Loss, LossResult, Potentials, map_scores
from ..validation import at_least
from .composition import (
    best_competitor,
    best_gold,
    cost_augment,
    difference_of_scores,
    hinge,
    sequence_weights,
)
from .likelihood import sequential


def make_softmax_margin(*, cost: Cost | None = None, multiplier: float = 1.0) -> Loss:
    """Create the softmax-margin loss: see `softmax_margin`.

    cost (Cost | None): The cost of each mistake. Defaults to the Hamming cost.
    multiplier (float): The amount added to a score per unit of cost, at least 0.
    RAISES (ValueError): If the multiplier is negative or not finite.
    """
    multiplier = at_least(0, "SoftmaxMargin", "multiplier", multiplier)
    compute = partial(softmax_margin, multiplier=multiplier)
    # Adding the cost to the scores shifts probabilities away from expensive mistakes.
    return Loss(compute, cost or hamming_cost, shifts_probabilities=True)


def make_max_margin(*, cost: Cost | None = None, multiplier: float = 1.0) -> Loss:
    """Create the max-margin loss: see `max_margin`.

    cost (Cost | None): The cost of each mistake. Defaults to the Hamming cost.
    multiplier (float): The amount added to a score per unit of cost, at least 0.
    RAISES (ValueError): If the multiplier is negative or not finite.
    """
    multiplier = at_least(0, "MaxMargin", "multiplier", multiplier)
    compute = partial(max_margin, multiplier=multiplier)
    # The hinge has kinks. It only compares scores, so they can't be converted to probabilities.
    return Loss(compute, cost or hamming_cost, is_smooth=False, has_probabilities=False)


def make_risk(*, cost: Cost | None = None) -> Loss:
    """Create the risk loss: see `risk`.

    cost (Cost | None): The cost of each mistake. Defaults to the Hamming cost.
    """
    # The risk isn't convex, so training has to start from weights trained with another loss.
    return Loss(risk, cost or hamming_cost, needs_start=True)


def make_jensen_risk_bound(*, cost: Cost | None = None, multiplier: float = 1.0) -> Loss:
    """Create the Jensen risk bound: see `jensen_risk_bound`.

    cost (Cost | None): The cost of each mistake. Defaults to the Hamming cost.
    multiplier (float): The amount added to a score per unit of cost, at least 0.
    RAISES (ValueError): If the multiplier is negative or not finite.
    """
    multiplier = at_least(0, "JensenRiskBound", "multiplier", multiplier)
    compute = partial(jensen_risk_bound, multiplier=multiplier)
    # Adding the cost to the scores shifts probabilities away from expensive mistakes. The loss
    # isn't convex, so training needs an initial model.
    return Loss(compute, cost or hamming_cost, shifts_probabilities=True, needs_start=True)


def softmax_margin(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The negative log-likelihood of cost-augmented scores.

        loss = log sum_y exp(s(y) + m C(y*, y)) - s(y*)

    The loss is convex. It is an upper bound on `max_margin` and `sequential`, and equal to
    `sequential` for m = 0. With partial annotation, s(y*) is the log-sum of the scores of all paths
    that agree with it.

    Gimpel & Smith (2010), eq 6.
    """
    return sequential(cost_augment(potentials, gold, multiplier), gold)


def max_margin(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The structured hinge loss: the margin between gold and each path must be at least the cost of
    the path.

        loss = max_y (s(y) + m C(y*, y)) - s(y*)

    The loss is convex. With partial annotation, s(y*) is the score of the best path that agrees
    with it.

    Taskar, Guestrin & Koller (2003); Gimpel & Smith (2010), eq 4.
    """
    # Only paths that are not gold have to be considered: for gold, the difference is 0, which is
    # the minimum of the hinge.
    augmented = cost_augment(potentials, gold, multiplier)
    _, competitor_score = best_competitor(augmented, gold)
    _, gold_path_score = best_gold(potentials, gold)
    return difference_of_scores(competitor_score, gold_path_score, gold, hinge)


def risk(potentials: Potentials, gold: Gold) -> LossResult:
    """The expected cost of a path drawn from the model.

        loss = sum_y p(y) C(y*, y)

    The loss isn't convex, so start from a model that was trained with the likelihood.

    Gimpel & Smith (2010), eq 5.
    """
    xp = get_array_module(gold.costs)
    # The cost of a path is a sum over its tags, like a score: the costs of tags replace the
    # emissions, and the costs of transitions, start and end are 0.
    zeros = map_scores(xp.zeros_like, potentials)
    costs = zeros._replace(emissions=cast(Floats2d, gold.costs))
    expected_costs, backprop = chain.expectation(potentials, costs)
    weights = sequence_weights(gold, expected_costs)
    return LossResult(float((weights * expected_costs).sum()), backprop(weights))


def jensen_risk_bound(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """An upper bound on m times the risk, which requires only two passes over the chain.

        loss = log sum_y p(y) exp(m C(y*, y))

    The loss is `softmax_margin` minus `sequential`. It isn't convex, so start from a model that was
    trained with the likelihood.

    Gimpel & Smith (2010), section 3.1.
    """
    augmented = cost_augment(potentials, gold, multiplier)
    augmented_log_z = chain.log_partition(augmented)
    return difference_of_scores(augmented_log_z, chain.log_partition(potentials), gold)
