"""Merge the features that always occur together, so that training has fewer weights.

For example, the features of a rare word for its text, its shape and its prefix may occur in the
same tokens and nowhere else. Then their rows of weights always have the same gradient.

In shapes, V is the number of rows of weights (one for each feature), G of groups of them, N of
tokens, S of features that a token can have, and K of tags.
"""

from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, Ints1d, Ints2d


class Merged(NamedTuple):
    """Groups of rows of weights that occur in exactly the same tokens.

    Rows of a group that start with the same weights have the same weights throughout training,
    because their gradients are equal. So one vector v can replace the c equal rows w of a group. It
    is

        v = sqrt(c) w

    With the factor sqrt(c), lengths, angles and gradients are the same as with all rows, so a
    method such as L-BFGS makes the same steps.

    rows (Ints2d): The groups that each token has, packed to the left; -1 for none. S' is the most
        that a token has. Shape: (N, S')
    group_of (Ints1d): The group of each row of weights. Shape: (V,)
    roots (Floats1d): sqrt(c) of each group, where c is its number of rows. Shape: (G,)
    """

    rows: Ints2d
    group_of: Ints1d
    roots: Floats1d

    def merge(self, weights: Floats2d) -> Floats2d:
        """Compute the vectors that replace weights. If the rows of a group differ, it is as if each
        were their mean. Shape: (V, K) to (G, K)"""
        sums = numpy.zeros((len(self.roots), weights.shape[1]))
        numpy.add.at(sums, self.group_of, weights)
        return sums / self.roots[:, None]

    def spread(self, vectors: Floats2d) -> Floats2d:
        """Compute the weights of all rows from the vectors of groups: the inverse of `merge`.
        Shape: (G, K) to (V, K)"""
        return (vectors / self.roots[:, None])[self.group_of]


def merge_equal(rows: Ints2d, n_rows: int) -> Merged:
    """Find the rows that occur in exactly the same tokens, and group them.

    Comparing sets of tokens would be slow. Instead each token gets a random number of 64 bits, and
    each row the sum of the numbers of its tokens, modulo 2^64. Rows with the same sum are a group.
    The probability that some rows with different tokens have the same sum is about V^2 / 2^65.

    rows (Ints2d): The rows of each token, -1 for none. Shape: (N, S)
    n_rows (int): The number of rows of weights, V.
    RETURNS (Merged): The groups, in the order of their first tokens.
    """
    rng = numpy.random.default_rng(0)
    numbers_of_tokens = rng.integers(2**64, size=len(rows), dtype="uint64")
    # For each row the sum of the numbers of its tokens, and its first token. Shapes: (V,)
    sums = numpy.zeros(n_rows, dtype="uint64")
    first_token = numpy.full(n_rows, len(rows))
    for slot in rows.T:
        tokens = numpy.flatnonzero(slot >= 0)
        numpy.add.at(sums, slot[tokens], numbers_of_tokens[tokens])
        numpy.minimum.at(first_token, slot[tokens], tokens)

    # Rows with the same sum are a group. `numpy.unique` numbers groups in the order of their sums:
    # the rank. The index of a group is its place in the order of first tokens.
    _, first_row, rank_of_row, sizes = numpy.unique(
        sums, return_index=True, return_inverse=True, return_counts=True
    )
    order = numpy.argsort(first_token[first_row], kind="stable")
    group_of_rank = numpy.empty(len(order), dtype="int32")
    group_of_rank[order] = numpy.arange(len(order), dtype="int32")

    # A token has a group if it has the first row of the group. Other rows of the group become -1.
    # So does -1, which is no row: as an index it is the last entry. Shape: (V + 1,)
    group_at_row = numpy.full(n_rows + 1, -1, dtype="int32")
    group_at_row[first_row] = group_of_rank
    return Merged(
        rows=_pack_left(group_at_row[rows]),
        group_of=group_of_rank[rank_of_row],
        roots=numpy.sqrt(sizes[order]),
    )


def _pack_left(rows: Ints2d) -> Ints2d:
    """Sort the rows of each token in descending order, so that every -1 is on the right. Then leave
    out the columns in which all tokens have -1. Shapes: (N, S) to (N, S')"""
    descending = -numpy.sort(-rows, axis=1)
    n_slots = int((descending >= 0).sum(axis=1).max(initial=0))
    return numpy.ascontiguousarray(descending[:, :n_slots])
