"""Best paths of all kinds, by compiled or by array code."""

from typing import Union

from ..types import Potentials
from . import array as batched
from .compiled import is_used_for, native, query

MaxMessages = Union["native.MaxMessages", batched.MaxMessages]


def max_messages(potentials: Potentials) -> MaxMessages:
    """Run the messages of both sides, once for all that is to be asked.

    potentials (Potentials): The scores of a batch.
    RETURNS (MaxMessages): How the best paths go. Its methods are the functions of this module that
        have their name.
    """
    if is_used_for(potentials):
        return native.MaxMessages(potentials)
    return batched.MaxMessages(potentials)


max_marginals = query(max_messages, batched.max_marginals)
segment_max_scores = query(max_messages, batched.segment_max_scores)
