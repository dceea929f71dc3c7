"""Best paths of all kinds, by compiled or by array code."""

from typing import Union

from ..types import Potentials
from . import array as batched
from .compiled import asked_of, is_used_for, native

BestWays = Union["native.BestWays", batched.BestWays]


def best_ways(potentials: Potentials) -> BestWays:
    """Run the messages of both sides, once for all that is to be asked.

    potentials (Potentials): The scores of a batch.
    RETURNS (BestWays): How the best paths go. Its methods are the functions of this module that
        have their name.
    """
    if is_used_for(potentials):
        return native.BestWays(potentials)
    return batched.BestWays(potentials)


max_marginals = asked_of(best_ways, batched.max_marginals)
segment_max_scores = asked_of(best_ways, batched.segment_max_scores)
