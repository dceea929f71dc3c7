"""Merge rows that the same tokens have."""

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

    rows (Ints2d): The groups of each token, from the left; -1 for none. Shape: (N, S')
    group_of (Ints1d): The group of each row. Shape: (V,)
    roots (Floats1d): sqrt(c) of each group. Shape: (G,)
    """

    rows: Ints2d
    group_of: Ints1d
    roots: Floats1d

    def merge(self, weights: Floats2d) -> Floats2d:
        """The vectors nearest to some weights. Shape: (V, K) to (G, K)"""
        sums = numpy.zeros((len(self.roots), weights.shape[1]))
        numpy.add.at(sums, self.group_of, weights)
        return sums / self.roots[:, None]

    def spread(self, vectors: Floats2d) -> Floats2d:
        """The weights of all rows. Shape: (G, K) to (V, K)"""
        return (vectors / self.roots[:, None])[self.group_of]


def merge_equal(rows: Ints2d, n_rows: int) -> Merged:
    """Find the rows that the same tokens have.

    They are told apart by the sum, modulo 2^64, of a random number for each of their tokens.
    That two which differ fall together has a probability of about V^2 / 2^65.

    rows (Ints2d): The rows of each token, -1 for none. Shape: (N, S)
    n_rows (int): V.
    RETURNS (Merged): The groups, in the order in which they first come up.
    """
    # The sum of each row over its tokens, and its first token. Shapes: (V,)
    numbers_of_tokens = numpy.random.default_rng(0).integers(2**64, size=len(rows), dtype="uint64")
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

    # A group stands at its first row. Other rows of it, and no row, the last one, are empty.
    group_at_row = numpy.full(n_rows + 1, -1, dtype="int32")
    group_at_row[first_row] = group_of_rank
    return Merged(
        rows=_pack_left(group_at_row[rows]),
        group_of=group_of_rank[rank_of_row.reshape(-1)],
        roots=numpy.sqrt(sizes[order]),
    )


def _pack_left(rows: Ints2d) -> Ints2d:
    """The same without empty slots between others, and without slots that are all empty."""
    descending = -numpy.sort(-rows, axis=1)
    n_slots = int((descending >= 0).sum(axis=1).max(initial=0))
    return numpy.ascontiguousarray(descending[:, :n_slots])
