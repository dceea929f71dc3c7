"""Merge the features that always occur together, so that training has fewer weights.

A word that occurs once may have features of its own for the word, its shape, its prefix: rows of
weights with the same gradient.
"""

from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, Ints1d, Ints2d


class Merged(NamedTuple):
    """Groups of rows of weights that occur in exactly the same tokens.

    Rows of a group that start with the same weights keep the same weights with any gradient
    method, because their gradients are equal. One vector v therefore replaces a group of c rows w:
    with

        v = sqrt(c) w

    gradients, lengths and angles are those of all rows, and so is each update.

    rows (Ints2d): The groups of each token, S' at most, those that are there from the left; -1 for
        none. Shape: (N, S')
    group_of (Ints1d): The group of each row of weights. Shape: (V,)
    roots (Floats1d): sqrt(c) of each of the G groups. Shape: (G,)
    """

    rows: Ints2d
    group_of: Ints1d
    roots: Floats1d

    def merge(self, weights: Floats2d) -> Floats2d:
        """The vectors that replace weights: exact if rows of a group have the same weights, and the
        nearest otherwise, those of their means. Shape: (V, K) to (G, K)"""
        sums = numpy.zeros((len(self.roots), weights.shape[1]))
        numpy.add.at(sums, self.group_of, weights)
        return sums / self.roots[:, None]

    def spread(self, vectors: Floats2d) -> Floats2d:
        """The weights of all rows, from the vectors that replace them. Shape: (G, K) to (V, K)"""
        return (vectors / self.roots[:, None])[self.group_of]


def merge_equal(rows: Ints2d, n_rows: int) -> Merged:
    """Find the rows that occur in exactly the same tokens, without comparing sets of tokens.

    Each token gets a random number of 64 bits, and each row the sum of the numbers of its tokens,
    modulo 2^64. Rows with the same sum are merged. That two which differ have the same sum has a
    probability of about V^2 / 2^65.

    rows (Ints2d): The rows of each token, -1 for none. Shape: (N, S)
    n_rows (int): V, the number of rows of weights.
    RETURNS (Merged): The groups, in the order of their first tokens.
    """
    rng = numpy.random.default_rng(0)
    numbers_of_tokens = rng.integers(2**64, size=len(rows), dtype="uint64")
    # The sum of each row over its tokens, and its first token. Shapes: (V,)
    sums = numpy.zeros(n_rows, dtype="uint64")
    first_token = numpy.full(n_rows, len(rows))
    for slot in rows.T:
        tokens = numpy.flatnonzero(slot >= 0)
        numpy.add.at(sums, slot[tokens], numbers_of_tokens[tokens])
        numpy.minimum.at(first_token, slot[tokens], tokens)

    # Rows with the same sum are a group. `numpy.unique` orders groups by their sums; they are
    # numbered by their first tokens instead.
    _, first_row, rank_of_row, sizes = numpy.unique(
        sums, return_index=True, return_inverse=True, return_counts=True
    )
    order = numpy.argsort(first_token[first_row], kind="stable")
    group_of_rank = numpy.empty(len(order), dtype="int32")
    group_of_rank[order] = numpy.arange(len(order), dtype="int32")

    # A token that has the first row of a group has the group. Its other rows are left out, and so
    # is row -1, which is the last entry. Shape: (V + 1,)
    group_at_row = numpy.full(n_rows + 1, -1, dtype="int32")
    group_at_row[first_row] = group_of_rank
    return Merged(
        rows=_pack_left(group_at_row[rows]),
        group_of=group_of_rank[rank_of_row.reshape(-1)],
        roots=numpy.sqrt(sizes[order]),
    )


def _pack_left(rows: Ints2d) -> Ints2d:
    """Move the rows of each token to the left, in descending order, and leave out the slots that
    are then -1 for all tokens. Shapes: (N, S) to (N, S')"""
    descending = -numpy.sort(-rows, axis=1)
    n_slots = int((descending >= 0).sum(axis=1).max(initial=0))
    return numpy.ascontiguousarray(descending[:, :n_slots])
