"""What a mistake costs: tables over tags, [gold, answered], 0 on the diagonal.

Each factory returns a `Cost`: a function that makes the table of a tag set. They are
built before the labels are known and are called when they are.
"""

import numpy

from .types import Cost, CostTable, TagSet


def make_hamming_cost() -> Cost:
    """Build the Hamming cost: see `hamming_cost`."""
    return hamming_cost


def hamming_cost(tags: TagSet) -> CostTable:
    """Every wrong tag costs 1.

        cost[i, j] = 1 if i != j else 0

    tags (TagSet): The tag set.
    RETURNS (CostTable): Shape: (K, K)
    """
    return 1.0 - numpy.eye(len(tags), dtype="float32")
