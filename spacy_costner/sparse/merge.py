"""Merge features that always occur together, to reduce the number of weights in training.

For example, the features for the text, the shape and the prefix of a rare word may only occur
together. Their rows of weights then always have the same gradient.

In shapes, V is the number of rows of weights (one per feature), G the number of groups of rows, N
the number of tokens, S the number of feature slots per token, and K the number of tags.
"""

from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, Ints1d, Ints2d


class Merged(NamedTuple):
    """Groups of rows of weights that occur in exactly the same tokens.

    The gradients of the rows in a group are equal. If the rows are initialized with the same
    weights, they therefore remain equal during training. The c equal rows w of a group can be
    replaced by a single vector

        v = sqrt(c) w

    The factor sqrt(c) preserves norms, angles and gradients, so that methods such as L-BFGS perform
    the same steps.

    rows (Ints2d): The groups of each token, padded on the right with -1. S' is the maximum number
        of groups per token. Shape: (N, S')
    group_of (Ints1d): The group of each row of weights. Shape: (V,)
    roots (Floats1d): sqrt(c) for each group of c rows. Shape: (G,)
    """

    rows: Ints2d
    group_of: Ints1d
    roots: Floats1d

    def merge(self, weights: Floats2d) -> Floats2d:
        """Merge the rows of weights of each group into a single vector. If the rows differ, their
        mean is used. Shape: (V, K) to (G, K)"""
        sums = numpy.zeros((len(self.roots), weights.shape[1]))
        numpy.add.at(sums, self.group_of, weights)
        return sums / self.roots[:, None]

    def spread(self, vectors: Floats2d) -> Floats2d:
        """Compute the weights of all rows from the vectors of the groups. This is the inverse of
        `merge`. Shape: (G, K) to (V, K)"""
        return (vectors / self.roots[:, None])[self.group_of]


def merge_equal(rows: Ints2d, n_rows: int) -> Merged:
    """Group the rows that occur in exactly the same tokens.

    Comparing sets of tokens would be slow. Instead, each token is assigned a random 64-bit number,
    and each row is assigned the sum of the numbers of its tokens, modulo 2^64. Rows with the same
    sum form a group. The probability that any two rows with different tokens have the same sum is
    at most about V^2 / 2^65.

    rows (Ints2d): The rows of each token, or -1. Shape: (N, S)
    n_rows (int): The number of rows of weights, V.
    RETURNS (Merged): The groups, sorted by their first token.
    """
    rng = numpy.random.default_rng(0)
    numbers_of_tokens = rng.integers(2**64, size=len(rows), dtype="uint64")
    # The sum of the token numbers and the first token of each row. Shapes: (V,)
    sums = numpy.zeros(n_rows, dtype="uint64")
    first_token = numpy.full(n_rows, len(rows))
    for slot in rows.T:
        tokens = numpy.flatnonzero(slot >= 0)
        numpy.add.at(sums, slot[tokens], numbers_of_tokens[tokens])
        numpy.minimum.at(first_token, slot[tokens], tokens)

    # `numpy.unique` sorts groups by their sums. The position in this order is the rank of a group.
    # The groups are then renumbered in the order of their first tokens.
    _, first_row, rank_of_row, sizes = numpy.unique(
        sums, return_index=True, return_inverse=True, return_counts=True
    )
    order = numpy.argsort(first_token[first_row], kind="stable")
    group_of_rank = numpy.empty(len(order), dtype="int32")
    group_of_rank[order] = numpy.arange(len(order), dtype="int32")

    # Map the first row of each group to the group, and the other rows to -1, so that each group
    # occurs only once per token. The last entry is for the index -1. Shape: (V + 1,)
    group_at_row = numpy.full(n_rows + 1, -1, dtype="int32")
    group_at_row[first_row] = group_of_rank
    return Merged(
        rows=_pack_left(group_at_row[rows]),
        group_of=group_of_rank[rank_of_row],
        roots=numpy.sqrt(sizes[order]),
    )


def _pack_left(rows: Ints2d) -> Ints2d:
    """Sort the rows of each token in descending order, so that -1 is on the right. Then remove the
    columns that only contain -1. Shapes: (N, S) to (N, S')"""
    descending = -numpy.sort(-rows, axis=1)
    n_slots = int((descending >= 0).sum(axis=1).max(initial=0))
    return numpy.ascontiguousarray(descending[:, :n_slots])
