"""Losses that ask of gold a lead that grows with the cost of the mistake."""

from functools import partial

from ..chain import log_partition
from ..types import Cost, Gold, Loss, LossResult, Potentials
from .parameters import at_least
from .scored import augment, difference, gold_score


def make_softmax_margin(*, cost: Cost, multiplier: float = 1.0) -> Loss:
    """Build the softmax-margin: see `softmax_margin`.

    cost (Cost): What each mistake costs.
    multiplier (float): What costs are multiplied by, 0 or more.
    RAISES (ValueError): If the multiplier is negative or not finite.
    """
    multiplier = at_least(0, "SoftmaxMargin", "multiplier", multiplier)
    return Loss(partial(softmax_margin, multiplier=multiplier), cost)


def softmax_margin(potentials: Potentials, gold: Gold, *, multiplier: float = 1.0) -> LossResult:
    """The likelihood loss in which wrong paths are raised by their cost while training.

        loss = log sum_y exp(s(y) + m C(y*, y)) - s(y*)

    Convex; an upper bound of `sequential`, to which it falls with m = 0, and of the
    max-margin.

    potentials (Potentials): The scores of a batch.
    gold (Gold): Gold tags and the cost of each answer.
    multiplier (float): m, how much score a unit of cost is worth.
    RETURNS (LossResult): The sum over the sequences, and its gradient.

    Gimpel & Smith (2010), eq 6.
    """
    raised = augment(potentials, gold, multiplier)
    return difference(log_partition(raised), gold_score(potentials, gold))
