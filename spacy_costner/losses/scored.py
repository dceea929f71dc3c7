"""What the losses are made of: scores of sequences, and differences of two of them."""

from thinc.util import get_array_module

from .. import chain
from ..types import Gold, LossResult, Potentials, Scored, linear_combination


def gold_score(potentials: Potentials, gold: Gold) -> Scored:
    """The score of gold: of the gold path or, where the annotation is partial, the
    log-sum over the paths Y* that agree with it.

        log sum_{y in Y*} exp(s(y))

    RETURNS (Scored): The scores and the callback to their gradient. Shape: (B,)
    """
    if gold.allowed is None:
        return chain.path_score(potentials, gold.tags)
    return chain.log_partition(chain.restrict(potentials, gold.allowed))


def augment(potentials: Potentials, gold: Gold, multiplier: float) -> Potentials:
    """Raise every answer by its cost, s(y) + m C(y*, y)."""
    return potentials._replace(emissions=potentials.emissions + multiplier * gold.cost)


def difference(above: Scored, below: Scored) -> LossResult:
    """The sum over the sequences of one score less another, with its gradient.

    above (Scored): What is to sink, such as log Z.
    below (Scored): What is to rise, such as the score of gold.
    RETURNS (LossResult): The difference.
    """
    (high, backprop_high), (low, backprop_low) = above, below
    ones = get_array_module(high).ones_like(high)
    gradient = linear_combination((1.0, backprop_high(ones)), (-1.0, backprop_low(ones)))
    return LossResult(float((high - low).sum()), gradient)
