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
    marks = numpy.random.default_rng(0).integers(2**64, size=len(rows), dtype="uint64")
    sums = numpy.zeros(n_rows, dtype="uint64")
    first_token = numpy.full(n_rows, len(rows))
    for slot in rows.T:
        tokens = numpy.flatnonzero(slot >= 0)
        numpy.add.at(sums, slot[tokens], marks[tokens])
        numpy.minimum.at(first_token, slot[tokens], tokens)
    _, first, group, sizes = numpy.unique(
        sums, return_index=True, return_inverse=True, return_counts=True
    )
    order = numpy.argsort(first_token[first], kind="stable")
    number = numpy.empty(len(order), dtype="int32")
    number[order] = numpy.arange(len(order), dtype="int32")
    tied_to = numpy.full(n_rows + 1, -1, dtype="int32")  # the last one for no row at all
    tied_to[first] = number
    return Merged(
        rows=_to_the_left(tied_to[rows]),
        group_of=number[group.reshape(-1)],
        roots=numpy.sqrt(sizes[order]),
    )


def _to_the_left(rows: Ints2d) -> Ints2d:
    """The same without empty slots between others, and without slots that are all empty."""
    packed = -numpy.sort(-rows, axis=1)
    n_slots = int((packed >= 0).sum(axis=1).max(initial=0))
    return numpy.ascontiguousarray(packed[:, :n_slots])
