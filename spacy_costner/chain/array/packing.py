"""Packing of ragged batches by position: all first tokens, then all second tokens, and so on.

A recursion computes one position of all sequences at a time. With the longest sequence first,
the sequences that have a next token are the first rows of a position, so that each position is
a slice. Such a position is called a step.
"""

from typing import Any, Iterator, NamedTuple, Tuple

import numpy
from thinc.types import Array1d, Floats1d, Floats2d, Ints1d, Ints2d
from thinc.util import get_array_module

from ...types import Potentials
from ..validation import check_potentials


class Packing(NamedTuple):
    """The order of the tokens of a packed batch.

    n_sequences (int): B, the number of sequences, with the empty ones.
    offsets (Ints1d): Step t is rows offsets[t] to offsets[t + 1]; on the host.
        Shape: (T + 1,)
    tokens (Ints1d): The token in each row. Shape: (N,)
    sequence (Ints1d): The sequence of each row. Shape: (N,)
    before (Ints1d): The row of the token before, for each row of a later step.
        Shape: (N - offsets[1],)
    first (Ints1d): The first token of each sequence that has one.
    last (Ints1d): The last token of each sequence that has one.
    """

    n_sequences: int
    offsets: Ints1d
    tokens: Ints1d
    sequence: Ints1d
    before: Ints1d
    first: Ints1d
    last: Ints1d

    @property
    def n_steps(self) -> int:
        return len(self.offsets) - 1

    @property
    def later(self) -> slice:
        """The rows that have a row before them."""
        return slice(len(self.tokens) - len(self.before), None)

    @property
    def ends(self) -> Ints1d:
        """The row of the last token of each sequence that has one."""
        return unpack(get_array_module(self.tokens).arange(len(self.tokens)), self)[self.last]

    def rows(self, t: int) -> slice:
        """The rows of step t."""
        return slice(int(self.offsets[t]), int(self.offsets[t + 1]))

    def step(self, t: int) -> Tuple[slice, slice]:
        """The rows of step t, and the rows of the tokens before them."""
        rows, before = self.rows(t), int(self.offsets[t - 1])
        return rows, slice(before, before + rows.stop - rows.start)

    def walk(self, leftwards: bool) -> Iterator[Tuple[slice, slice]]:
        """The rows of each step and the adjacent rows of the next, in order."""
        if leftwards:
            return (self.step(t) for t in range(self.n_steps - 1, 0, -1))
        return (self.step(t)[::-1] for t in range(1, self.n_steps))

    def transition_rows(self, leftwards: bool) -> Tuple[Any, Any]:
        """The same for all steps of a walk at once."""
        return (self.later, self.before) if leftwards else (self.before, self.later)


def pack(potentials: Potentials) -> Packing:
    """Compute the packing of a batch.

    potentials (Potentials): The scores of the batch.
    RETURNS (Packing): The packing, with `offsets` on the host.
    RAISES (ValueError): If shapes, types or lengths don't fit together.
    """
    check_potentials(potentials)
    xp = get_array_module(potentials.emissions)
    lengths = potentials.lengths.astype("int64")
    order = numpy.argsort(-lengths, kind="stable")
    longest = int(lengths.max(initial=0))
    running = len(lengths) - numpy.searchsorted(numpy.sort(lengths), numpy.arange(longest), "right")
    offsets = numpy.concatenate([[0], numpy.cumsum(running)]).astype("int64")
    step = numpy.repeat(numpy.arange(longest), running)
    rank = numpy.arange(len(step)) - offsets[step]
    begins = numpy.cumsum(lengths) - lengths
    later = step > 0
    nonempty = lengths > 0
    return Packing(
        n_sequences=len(lengths),
        offsets=offsets,
        tokens=xp.asarray(begins[order][rank] + step),
        sequence=xp.asarray(order[rank]),
        before=xp.asarray(offsets[step[later] - 1] + rank[later]),
        first=xp.asarray(begins[nonempty]),
        last=xp.asarray((begins + lengths - 1)[nonempty]),
    )


def fold_ends(potentials: Potentials, packing: Packing) -> Floats2d:
    """Add the start and end scores to the emissions of the first and last tokens.

    The recursions use these emissions and the transitions only.

    RETURNS (Floats2d): The emissions, packed, in float64. Shape: (N, K)
    """
    emissions = potentials.emissions.astype("float64")
    emissions[packing.first] += potentials.start
    emissions[packing.last] += potentials.end
    return emissions[packing.tokens]


def unfold_ends(
    d_emissions: Floats2d, d_transitions: Floats2d, packing: Packing, potentials: Potentials
) -> Potentials:
    """The gradient of the potentials, from the gradient of packed emissions and transitions."""
    dtype = potentials.emissions.dtype
    d_tokens = unpack(d_emissions, packing).astype(dtype)
    return Potentials(
        emissions=d_tokens,
        transitions=d_transitions.astype(dtype),
        start=d_tokens[packing.first].sum(axis=0),
        end=d_tokens[packing.last].sum(axis=0),
        lengths=potentials.lengths,
    )


def add_to_transitions(gradient: Potentials, d_transitions: Floats2d) -> Potentials:
    """A gradient with more mass on transitions. Shape: (K, K)"""
    total = gradient.transitions + d_transitions.astype(gradient.transitions.dtype)
    return gradient._replace(transitions=total)


def unpack(rows: Any, packing: Packing) -> Any:
    """Put packed rows in the order of the tokens."""
    tokens = get_array_module(rows).empty_like(rows)
    tokens[packing.tokens] = rows
    return tokens


def sum_by_sequence(rows: Array1d, packing: Packing) -> Floats1d:
    """The sum of one number a row over each sequence, in float64. Shape: (N,) to (B,)"""
    return sum_by_group(rows, packing.sequence, packing.n_sequences)


def sum_by_group(numbers: Array1d, groups: Ints1d, n_groups: int) -> Floats1d:
    """The sum of the numbers of each group, in float64. Shape: (R,) to (G,)"""
    xp = get_array_module(numbers)
    if numbers.size == 0:
        return xp.zeros(n_groups, dtype="float64")
    return xp.bincount(groups, weights=numbers.astype("float64"), minlength=n_groups)


def running_sum(numbers: Floats1d, first: Ints1d) -> Floats1d:
    """The sum of the numbers before each number in its group, in float64.

    numbers (Floats1d): The numbers, group after group. Shape: (R,)
    first (Ints1d): The index of the first number of the group of each number. Shape: (R,)
    """
    numbers = numbers.astype("float64")
    before = get_array_module(numbers).cumsum(numbers) - numbers
    return before - before[first]


def add_up(places: Ints2d, mass: Floats2d, shape: Tuple[int, int]) -> Floats2d:
    """Add up mass at flat indices of an array.

    places (Ints2d): The index of each mass. Shape: (R, K)
    mass (Floats2d): The mass. Shape: (R, K)
    shape (Tuple[int, int]): The shape of the array.
    RETURNS (Floats2d): The array, in float64.
    """
    return sum_by_group(mass.ravel(), places.ravel(), shape[0] * shape[1]).reshape(shape)


def select(potentials: Potentials, which: Array1d) -> Tuple[Potentials, Array1d]:
    """Select some of the sequences of a batch.

    which (Array1d): True for the sequences to select. Shape: (B,)
    RETURNS (Tuple[Potentials, Array1d]): Their potentials, and the mask of their tokens in the
        batch, shape (N,).
    """
    xp = get_array_module(potentials.emissions)
    on_host = which if xp is numpy else which.get()
    tokens = xp.asarray(numpy.repeat(on_host, potentials.lengths.astype("int64")))
    taken = potentials._replace(
        emissions=potentials.emissions[tokens], lengths=potentials.lengths[on_host]
    )
    return taken, tokens
