"""Ragged batches stood upright: all first tokens, then all second tokens, and so on.

The recursions run step by step over the sequences still running. With the longest
sequence first, those are always the first rows of a step, so that a step is a slice.
"""

from typing import Any, Iterator, NamedTuple, Tuple

import numpy
from thinc.types import Array1d, Floats1d, Floats2d, Ints1d, Ints2d
from thinc.util import get_array_module

from ...types import Potentials
from ..validation import check_potentials


class Packing(NamedTuple):
    """Where each token of a ragged batch stands when the batch is stood upright.

    n_sequences (int): B, the sequences of the batch, empty ones too.
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

    def rows(self, t: int) -> slice:
        """The rows of step t."""
        return slice(int(self.offsets[t]), int(self.offsets[t + 1]))

    def step(self, t: int) -> Tuple[slice, slice]:
        """The rows of step t, and those of step t - 1 that lead to them."""
        rows, before = self.rows(t), int(self.offsets[t - 1])
        return rows, slice(before, before + rows.stop - rows.start)

    def walk(self, leftwards: bool) -> Iterator[Tuple[slice, slice]]:
        """The rows come from and the rows gone to, step after step along the chain."""
        if leftwards:
            return (self.step(t) for t in range(self.n_steps - 1, 0, -1))
        return (self.step(t)[::-1] for t in range(1, self.n_steps))

    def transition_rows(self, leftwards: bool) -> Tuple[Any, Any]:
        """The rows that all steps of a walk come from, and the rows they go to."""
        return (self.later, self.before) if leftwards else (self.before, self.later)


def pack(potentials: Potentials) -> Packing:
    """Plan how a batch is stood upright.

    potentials (Potentials): The scores of the batch.
    RETURNS (Packing): The plan, `offsets` on the host.
    RAISES (ValueError): If they don't fit together.
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

    What remains is a chain of emissions and transitions alone, which is all that the
    recursions see.

    RETURNS (Floats2d): The emissions, a row a token, packed. Shape: (N, K)
    """
    emissions = potentials.emissions.copy()
    emissions[packing.first] += potentials.start
    emissions[packing.last] += potentials.end
    return emissions[packing.tokens]


def unfold_ends(
    d_emissions: Floats2d, d_transitions: Floats2d, packing: Packing, lengths: Ints1d
) -> Potentials:
    """Take the gradient of a packed, folded chain to the gradient of its potentials."""
    d_tokens = unpack(d_emissions, packing)
    return Potentials(
        emissions=d_tokens,
        transitions=d_transitions,
        start=d_tokens[packing.first].sum(axis=0),
        end=d_tokens[packing.last].sum(axis=0),
        lengths=lengths,
    )


def unpack(rows: Any, packing: Packing) -> Any:
    """Put rows back in the order of the tokens."""
    tokens = get_array_module(rows).empty_like(rows)
    tokens[packing.tokens] = rows
    return tokens


def sum_by_sequence(rows: Array1d, packing: Packing) -> Floats1d:
    """Add up one number a row over each sequence, in float64. Shape: (N,) to (B,)"""
    return sum_by_group(rows, packing.sequence, packing.n_sequences)


def sum_by_group(numbers: Array1d, groups: Ints1d, n_groups: int) -> Floats1d:
    """Add up the numbers of each group, in float64. Shape: (R,) to (G,)"""
    xp = get_array_module(numbers)
    if numbers.size == 0:
        return xp.zeros(n_groups, dtype="float64")
    return xp.bincount(groups, weights=numbers.astype("float64"), minlength=n_groups)


def sum_beyond(rows: Floats1d, packing: Packing, leftwards: bool) -> Floats1d:
    """Add up one number a row over all tokens of the sequence on one side of it.

    leftwards (bool): Whether over those before it rather than those after.
    RETURNS (Floats1d): Shape: (N,)
    """
    xp = get_array_module(rows)
    step_0 = slice(0, packing.later.start)
    first_of = xp.zeros(packing.n_sequences, dtype="int64")
    first_of[packing.sequence[step_0]] = packing.tokens[step_0]
    first = first_of[packing.sequence]
    before = running_sum(unpack(rows, packing), unpack(first, packing))[packing.tokens]
    if leftwards:
        return before
    return sum_by_sequence(rows, packing)[packing.sequence] - before - rows


def running_sum(numbers: Floats1d, first: Ints1d) -> Floats1d:
    """Add up, for each number, those before it in its group, in float64.

    numbers (Floats1d): The numbers, group after group. Shape: (R,)
    first (Ints1d): Where the group of each number begins. Shape: (R,)
    """
    numbers = numbers.astype("float64")
    before = get_array_module(numbers).cumsum(numbers) - numbers
    return before - before[first]


def add_up(places: Ints2d, mass: Floats2d, shape: Tuple[int, int]) -> Floats2d:
    """Add up mass at places of an array, given as positions in the array laid flat.

    places (Ints2d): Where each mass goes. Shape: (R, K)
    RETURNS (Floats2d): The array, in float64.
    """
    return sum_by_group(mass.ravel(), places.ravel(), shape[0] * shape[1]).reshape(shape)


def select(potentials: Potentials, which: Array1d) -> Tuple[Potentials, Array1d]:
    """Take some of the sequences of a batch.

    which (Array1d): True for the sequences to take. Shape: (B,)
    RETURNS (Tuple[Potentials, Array1d]): Their potentials, and which tokens of the
        batch are theirs. Shape: (N,)
    """
    xp = get_array_module(potentials.emissions)
    on_host = which if xp is numpy else which.get()
    tokens = xp.asarray(numpy.repeat(on_host, potentials.lengths.astype("int64")))
    taken = potentials._replace(
        emissions=potentials.emissions[tokens], lengths=potentials.lengths[on_host]
    )
    return taken, tokens


def add_selected(gradient: Potentials, part: Potentials, tokens: Array1d) -> Potentials:
    """Put the gradient of some sequences, which is 0 there so far, back among the others.

    gradient (Potentials): The gradient of a batch; its emissions are filled in.
    part (Potentials): The gradient of what `select` took.
    tokens (Array1d): Which tokens that were. Shape: (N,)
    RETURNS (Potentials): The gradient of all.
    """
    gradient.emissions[tokens] = part.emissions
    return gradient._replace(
        transitions=gradient.transitions + part.transitions,
        start=gradient.start + part.start,
        end=gradient.end + part.end,
    )
