"""Margin losses, whose margin grows with the cost of a mistake, and expected cost."""

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
    difference,
    hinge,
    sequence_weights,
)
from .likelihood import sequential


def make_softmax_margin(*, cost: Cost | None = None, multiplier: float = 1.0) -> Loss:
    """Build the softmax-margin: see `softmax_margin`.

    cost (Cost | None): What each mistake costs. Defaults to the Hamming cost.
    multiplier (float): Score per unit of cost, 0 or more.
    RAISES (ValueError): If the multiplier is negative or not finite.
    """
    multiplier = at_least(0, "SoftmaxMargin", "multiplier", multiplier)
    compute = partial(softmax_margin, multiplier=multiplier)
    return Loss(compute, cost or hamming_cost, shifts_probabilities=True)


def make_max_margin(*, cost: Cost | None = None, multiplier: float = 1.0) -> Loss:
    """Build the max-margin: see `max_margin`; parameters as of the softmax-margin."""
    multiplier = at_least(0, "MaxMargin", "multiplier", multiplier)
    compute = partial(max_margin, multiplier=multiplier)
    return Loss(compute, cost or hamming_cost, is_smooth=False, has_probabilities=False)


def make_risk(*, cost: Cost | None = None) -> Loss:
    """Build the risk: see `risk`.

    cost (Cost | None): What each mistake costs. Defaults to the Hamming cost.
    """
    return Loss(risk, cost or hamming_cost, needs_start=True)


def make_jensen_risk_bound(*, cost: Cost | None = None, multiplier: float = 1.0) -> Loss:
    """Build the Jensen risk bound: see `jensen_risk_bound`; parameters as of the
    softmax-margin."""
    multiplier = at_least(0, "JensenRiskBound", "multiplier", multiplier)
    compute = partial(jensen_risk_bound, multiplier=multiplier)
    return Loss(compute, cost or hamming_cost, shifts_probabilities=True, needs_start=True)


def softmax_margin(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The negative log-likelihood of cost-augmented scores.

        loss = log sum_y exp(s(y) + m C(y*, y)) - s(y*)

    Convex; an upper bound of `sequential`, which it equals for m = 0, and of
    `max_margin`. With partial annotation s(y*) is the log-sum over the paths that agree.

    Gimpel & Smith (2010), eq 6.
    """
    return sequential(cost_augment(potentials, gold, multiplier), gold)


def max_margin(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The structured hinge loss: the margin to every path has to be at least its cost.

        loss = max_y (s(y) + m C(y*, y)) - s(y*)

    Convex. With partial annotation s(y*) is the score of the best path that agrees.

    Taskar, Guestrin & Koller (2003); Gimpel & Smith (2010), eq 4.
    """
    raised = cost_augment(potentials, gold, multiplier)
    _, above = best_competitor(raised, gold)
    _, below = best_gold(potentials, gold)
    return difference(above, below, gold, hinge)


def risk(potentials: Potentials, gold: Gold) -> LossResult:
    """The expected cost of a path that is drawn from the model.

        loss = sum_y p(y) C(y*, y)

    Not convex: it needs a likelihood model to start from.

    Gimpel & Smith (2010), eq 5.
    """
    xp = get_array_module(gold.cost)
    # The cost of a path is the sum over its tags: a "score" with no costs of transitions.
    zeros = map_scores(xp.zeros_like, potentials)
    costs = zeros._replace(emissions=cast(Floats2d, gold.cost))
    expected_costs, backprop = chain.expectation(potentials, costs)
    weights = sequence_weights(gold, expected_costs)
    return LossResult(float((weights * expected_costs).sum()), backprop(weights))


def jensen_risk_bound(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """An upper bound of the risk that needs only two passes over the chain.

        loss = log sum_y p(y) exp(m C(y*, y))

    It is `softmax_margin` minus `sequential`. Not convex: it needs a likelihood model to start
    from.

    Gimpel & Smith (2010), section 3.1.
    """
    raised = cost_augment(potentials, gold, multiplier)
    return difference(chain.log_partition(raised), chain.log_partition(potentials), gold)
