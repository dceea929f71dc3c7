"""Max-product messages and their queries, by compiled or array code."""

from typing import Union

from ..types import Potentials
from . import array as batched
from .compiled import form_of, native, query

MaxMessages = Union["native.MaxMessages", batched.MaxMessages]


def max_messages(potentials: Potentials) -> MaxMessages:
    """Compute the max-product messages of both directions once, for several queries.

    potentials (Potentials): The scores of a batch.
    RETURNS (MaxMessages): The messages. Its methods are the functions of this module, without
        the potentials.
    """
    return form_of(batched.MaxMessages, potentials)(potentials)


max_marginals = query(max_messages, batched.max_marginals)
segment_max_scores = query(max_messages, batched.segment_max_scores)
