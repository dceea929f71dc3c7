"""Losses that ask for a lead over mistakes that grows with their cost, and risks."""

from functools import partial
from typing import cast

from thinc.types import Floats2d
from thinc.util import get_array_module

from .. import chain
from ..types import Cost, Gold, Loss, LossResult, Potentials, map_scores
from ..validation import at_least
from .composition import (
    best_competitor,
    best_gold,
    cost_augment,
    difference,
    hinge,
    possible_only,
    sequence_weights,
)
from .likelihood import sequential


def make_softmax_margin(*, cost: Cost, multiplier: float = 1.0) -> Loss:
    """Build the softmax-margin: see `softmax_margin`.

    cost (Cost): What each mistake costs.
    multiplier (float): How much score a unit of cost is worth, 0 or more.
    RAISES (ValueError): If the multiplier is negative or not finite.
    """
    multiplier = at_least(0, "SoftmaxMargin", "multiplier", multiplier)
    return Loss(partial(softmax_margin, multiplier=multiplier), cost)


def make_max_margin(*, cost: Cost, multiplier: float = 1.0) -> Loss:
    """Build the max-margin: see `max_margin`; parameters as of the softmax-margin."""
    multiplier = at_least(0, "MaxMargin", "multiplier", multiplier)
    return Loss(partial(max_margin, multiplier=multiplier), cost, is_smooth=False)


def make_risk(*, cost: Cost) -> Loss:
    """Build the risk: see `risk`.

    cost (Cost): What each mistake costs.
    """
    return Loss(risk, cost)


def make_jensen_risk_bound(*, cost: Cost, multiplier: float = 1.0) -> Loss:
    """Build the Jensen risk bound: see `jensen_risk_bound`; parameters as of the
    softmax-margin."""
    multiplier = at_least(0, "JensenRiskBound", "multiplier", multiplier)
    return Loss(partial(jensen_risk_bound, multiplier=multiplier), cost)


def softmax_margin(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The likelihood loss, but wrong paths are raised by their cost while training.

        loss = log sum_y exp(s(y) + m C(y*, y)) - s(y*)

    Convex; an upper bound of `sequential`, to which it falls with m = 0, and of
    `max_margin`. With partial annotation s(y*) is the log-sum over the paths that agree.

    potentials (Potentials): The scores of a batch.
    gold (Gold): Gold tags and the cost of each answer.
    multiplier (float): m, how much score a unit of cost is worth.
    RETURNS (LossResult): The sum over the sequences, and its gradient.

    Gimpel & Smith (2010), eq 6.
    """
    return sequential(cost_augment(potentials, gold, multiplier), gold)


@possible_only
def max_margin(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The structured hinge loss: gold has to lead every path by the cost of that path.

        loss = max_y (s(y) + m C(y*, y)) - s(y*)

    Convex. With partial annotation s(y*) is the score of the best path that agrees.

    potentials (Potentials): The scores of a batch.
    gold (Gold): Gold tags and the cost of each answer.
    multiplier (float): m, how much score a unit of cost is worth.
    RETURNS (LossResult): The sum over the sequences, and a subgradient of it.

    Taskar, Guestrin & Koller (2003); Gimpel & Smith (2010), eq 4.
    """
    raised = cost_augment(potentials, gold, multiplier)
    _, above = best_competitor(raised, gold)
    _, below = best_gold(potentials, gold)
    return difference(above, below, gold, hinge)


@possible_only
def risk(potentials: Potentials, gold: Gold) -> LossResult:
    """The cost that is to be expected when a path is drawn from the model.

        loss = sum_y p(y) C(y*, y)

    Not convex: start from a model of the likelihood.

    potentials (Potentials): The scores of a batch.
    gold (Gold): The cost of each answer.
    RETURNS (LossResult): The sum over the sequences, in units of cost, and its gradient.

    Gimpel & Smith (2010), eq 5.
    """
    zeros = map_scores(get_array_module(gold.cost).zeros_like, potentials)
    costs = zeros._replace(emissions=cast(Floats2d, gold.cost))
    expected, backprop = chain.expectation(potentials, costs)
    weights = sequence_weights(gold, expected)
    return LossResult(float((weights * expected).sum()), backprop(weights))


@possible_only
def jensen_risk_bound(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """An upper bound of the risk that costs two passes over the chain.

        loss = log sum_y p(y) exp(m C(y*, y))

    It is what `softmax_margin` is above `sequential`. Not convex: start from a model of
    the likelihood.

    potentials (Potentials): The scores of a batch.
    gold (Gold): The cost of each answer.
    multiplier (float): m, how much score a unit of cost is worth.
    RETURNS (LossResult): The sum over the sequences, and its gradient.

    Gimpel & Smith (2010), section 3.1.
    """
    raised = cost_augment(potentials, gold, multiplier)
    return difference(chain.log_partition(raised), chain.log_partition(potentials), gold)
