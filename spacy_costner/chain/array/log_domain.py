"""Forward and backward messages in the log domain and float64: slow, exact for any scores.

The same messages as in `sum_product`, as logarithms:

    alpha_t[j]    = log sum_i exp(alpha_{t-1}[i] + transitions[i, j]) + emissions[t, j]
    beta_{t-1}[i] = log sum_j exp(transitions[i, j] + emissions[t, j] + beta_t[j])
"""

from typing import Any, Iterator, NamedTuple, Tuple, TypeVar

import numpy
from thinc.types import Floats1d, Floats2d, Floats3d
from thinc.util import get_array_module

from ...types import Potentials, ScoreWithVjp
from .packing import Packing, fold_ends, pack, unfold_ends, unpack

FloatsT = TypeVar("FloatsT", Floats1d, Floats2d, Floats3d)


class MessagesOfSide(NamedTuple):
    """As `messages.MessagesOfSide`.

    packing (Packing): The order of the rows.
    leftwards (bool): Whether the adjacent token is the one before.
    transitions (Floats2d): Scores, [adjacent tag, tag]. Shape: (K, K)
    filtered (Floats2d): Messages with the emission of the row. Shape: (N, K)
    predicted (Floats2d): Messages without it. Shape: (N, K)
    """

    packing: Packing
    leftwards: bool
    transitions: Floats2d
    filtered: Floats2d
    predicted: Floats2d

    def conditionals(self) -> Iterator[Tuple[slice, slice, Floats3d]]:
        """Rows, their adjacent rows, and p(adjacent tag = k | tag = j) as [row, k, j]."""
        for rows, adjacent in self.packing.walk(self.leftwards):
            joint = self.filtered[adjacent][:, :, None] + self.transitions
            yield rows, adjacent, _exp(joint - zero_if_infinite(self.predicted[rows])[:, None, :])

    def propagate(self, sources: Floats2d) -> Floats2d:
        """As `messages.MessagesOfSide.propagate`."""
        mass = sources.astype("float64")
        for rows, adjacent, conditional in self.conditionals():
            mass[adjacent] += (conditional * mass[rows][:, None, :]).sum(axis=2)
        return mass

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        """As `messages.MessagesOfSide.expected_transitions`."""
        xp = get_array_module(mass)
        total = xp.zeros_like(self.transitions)
        for rows, _, conditional in self.conditionals():
            total += (conditional * mass[rows][:, None, :]).sum(axis=0)
        return total if self.leftwards else total.T

    def mean(self, values: Floats2d) -> Floats2d:
        """As `messages.MessagesOfSide.mean`."""
        means = get_array_module(values).zeros_like(self.filtered)
        oriented = values if self.leftwards else values.T
        for rows, _, conditional in self.conditionals():
            means[rows] = (conditional * oriented).sum(axis=1)
        return means


def sum_product_messages(
    potentials: Potentials, packing: Packing, leftwards: bool
) -> MessagesOfSide:
    """Compute the messages of one direction."""
    emissions = fold_ends(potentials, packing).astype("float64")
    transitions = potentials.transitions.astype("float64")
    transitions = transitions if leftwards else transitions.T
    filtered = emissions.copy()
    predicted = get_array_module(emissions).zeros_like(emissions)
    for adjacent, rows in packing.walk(not leftwards):
        predicted[rows] = log_sum_exp(filtered[adjacent][:, :, None] + transitions, axis=1)
        filtered[rows] += predicted[rows]
    return MessagesOfSide(packing, leftwards, transitions, filtered, predicted)


def log_partition(potentials: Potentials) -> ScoreWithVjp:
    """As `sum_product.log_partition`."""
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    before = sum_product_messages(potentials, packing, leftwards=True)
    log_z = _log_z(before.filtered, packing)

    def backprop(d_log_z: Floats1d) -> Potentials:
        weights = xp.asarray(d_log_z, dtype="float64")[packing.sequence]
        d_emissions = _unary(potentials, before, log_z) * weights[:, None]
        d_transitions = before.expected_transitions(d_emissions)
        dtype = potentials.emissions.dtype
        return unfold_ends(
            d_emissions.astype(dtype), d_transitions.astype(dtype), packing, potentials.lengths
        )

    return log_z, backprop


def log_sum_exp(scores: Any, axis: int) -> Any:
    """log sum exp along an axis; minus infinity if all scores are."""
    xp = get_array_module(scores)
    largest = zero_if_infinite(scores.max(axis=axis, keepdims=True))
    return logarithm(xp.exp(scores - largest).sum(axis=axis)) + largest.squeeze(axis)


def logarithm(numbers: FloatsT) -> FloatsT:
    """The logarithm in float64, minus infinity of 0."""
    with numpy.errstate(divide="ignore"):
        return get_array_module(numbers).log(numbers.astype("float64"))


def zero_if_infinite(scores: FloatsT) -> FloatsT:
    """0 in place of minus infinity, so that it can be subtracted from itself."""
    xp = get_array_module(scores)
    return xp.where(xp.isfinite(scores), scores, xp.zeros_like(scores))


def _unary(potentials: Potentials, before: MessagesOfSide, log_z: Floats1d) -> Floats2d:
    after = sum_product_messages(potentials, before.packing, leftwards=False)
    log_z_of_row = zero_if_infinite(log_z)[before.packing.sequence]
    return _exp(before.filtered + after.predicted - log_z_of_row[:, None])


def _log_z(alpha: Floats2d, packing: Packing) -> Floats1d:
    xp = get_array_module(alpha)
    log_z = xp.zeros(packing.n_sequences)
    by_token = unpack(log_sum_exp(alpha, axis=1), packing)
    log_z[unpack(packing.sequence, packing)[packing.last]] = by_token[packing.last]
    return log_z


def _exp(scores: Floats3d) -> Floats3d:
    return get_array_module(scores).exp(scores)
