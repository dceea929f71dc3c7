"""Sums over all paths: forward and backward messages, and propagation of mass by them.

alpha_t[j] is the logarithm of the sum over the paths that end in tag j at token t; beta_t[i]
of the sum over the continuations of tag i at token t (Rabiner, 1989, sections III.A and V.A):

    alpha_t[j]    = log sum_i exp(alpha_{t-1}[i] + transitions[i, j]) + emissions[t, j]
    beta_{t-1}[i] = log sum_j exp(transitions[i, j] + emissions[t, j] + beta_t[j])

Given the tag of a token, the tags before it are a Markov chain that runs leftwards, and the
tags after it one that runs rightwards, both with conditional probabilities of the form

    p(adjacent tag = k | tag = j) = exp(filtered[k] + transition - predicted[j])

where `filtered` is the message with the emission of its token, and `predicted` is the message
without it. Second-order quantities (covariances, conditional probabilities) are a mass on tags
that these conditional probabilities propagate. Each is a sum of positive numbers that do not
exceed the mass, so that nothing overflows and no small probability is a divisor.

All is in float64. A sum is a product of exponentials, lowered by the largest, which is a matrix
product for many rows. Where a sum is below SMALLEST the row underflows: it is computed by
log-sum-exp and has its conditional probabilities in full, which is exact for any finite scores.
"""

from typing import Iterator, NamedTuple, Tuple

from thinc.types import Array1d, Floats1d, Floats2d, Floats3d, Ints1d
from thinc.util import get_array_module

from ...types import Potentials, ScoreWithVjp
from ..validation import check_derivatives
from .log_domain import log_sum_exp, logarithm, zero_if_infinite
from .packing import Packing, fold_ends, pack, unfold_ends

SMALLEST = 1e-280


class SumProductMessages(NamedTuple):
    """As `messages.MessagesOfSide`.

    packing (Packing): The order of the rows.
    leftwards (bool): Whether the adjacent token is the one before.
    transitions (Floats2d): Scores, [adjacent tag, tag]. Shape: (K, K)
    factors (Floats2d): exp(transitions - their largest). Shape: (K, K)
    filtered (Floats2d): Messages with the emission of the row. Shape: (N, K)
    predicted (Floats2d): Messages without it. Shape: (N, K)
    scaled (Floats2d): exp(filtered - the largest of its row). Shape: (N, K)
    inverse (Floats2d): 1 / (scaled @ factors) of the adjacent row; 0 of a row that underflows and
        where no path has the tag. Shape: (N, K)
    underflow (Array1d): True for a row that underflows. Shape: (N,)
    """

    packing: Packing
    leftwards: bool
    transitions: Floats2d
    factors: Floats2d
    filtered: Floats2d
    predicted: Floats2d
    scaled: Floats2d
    inverse: Floats2d
    underflow: Array1d

    def propagate(self, sources: Floats2d) -> Floats2d:
        mass = sources.astype("float64")
        for rows, adjacent in self.packing.walk(self.leftwards):
            weights = (mass[rows] * self.inverse[rows]) @ self.factors.T
            mass[adjacent] += self.scaled[adjacent] * weights
            for which, conditional in self._conditionals(rows, adjacent):
                moved = conditional * mass[rows][which][:, None, :]
                mass[adjacent][which] += moved.sum(axis=2)
        return mass

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        later, before = self.packing.transition_rows(self.leftwards)
        total = self.factors * (self.scaled[before].T @ (mass * self.inverse)[later])
        for rows, adjacent in self.packing.walk(self.leftwards):
            for which, conditional in self._conditionals(rows, adjacent):
                total += (conditional * mass[rows][which][:, None, :]).sum(axis=0)
        return total if self.leftwards else total.T

    def mean(self, values: Floats2d) -> Floats2d:
        """The conditional expectation of a value of the transition, given each tag.

            sum_i p(y_{t-1} = i | y_t = j) values[i, j]

        values (Floats2d): The value of each transition, [from, to]. Shape: (K, K)
        RETURNS (Floats2d): The expectations, 0 where there is no adjacent token. Shape: (N, K)
        """
        later, before = self.packing.transition_rows(self.leftwards)
        means = get_array_module(values).zeros_like(self.filtered)
        oriented = values if self.leftwards else values.T
        means[later] = self.scaled[before] @ (self.factors * oriented)
        means *= self.inverse
        for rows, adjacent in self.packing.walk(self.leftwards):
            for which, conditional in self._conditionals(rows, adjacent):
                means[rows][which] = (conditional * oriented).sum(axis=1)
        return means

    def _conditionals(self, rows: slice, adjacent: slice) -> Iterator[Tuple[Ints1d, Floats3d]]:
        """The rows of a step that underflow, if there are any, and p(adjacent tag = k | tag = j)
        of each. Shapes: (U,), (U, K, K)"""
        xp = get_array_module(self.filtered)
        which = xp.nonzero(self.underflow[rows])[0]
        if len(which):
            joint = self.filtered[adjacent][which][:, :, None] + self.transitions
            yield which, xp.exp(joint - zero_if_infinite(self.predicted[rows][which])[:, None, :])


def sum_product_messages(
    potentials: Potentials, packing: Packing, leftwards: bool
) -> SumProductMessages:
    """The forward messages (leftwards) or the backward messages."""
    filtered = fold_ends(potentials, packing)
    xp = get_array_module(filtered)
    transitions = potentials.transitions.astype("float64")
    transitions = transitions if leftwards else transitions.T
    shift = zero_if_infinite(transitions.max(keepdims=True))
    factors, legal = xp.exp(transitions - shift), (transitions > -xp.inf).astype("float64")
    predicted, scaled, sums = (xp.zeros_like(filtered) for _ in range(3))
    underflow = xp.zeros(len(filtered), dtype=bool)
    for adjacent, rows in packing.walk(not leftwards):
        before = filtered[adjacent]
        largest = zero_if_infinite(before.max(axis=1, keepdims=True))
        scaled[adjacent] = xp.exp(before - largest)
        sums[rows] = scaled[adjacent] @ factors
        predicted[rows] = logarithm(sums[rows]) + largest + shift
        small = sums[rows] < SMALLEST
        if small.any():
            small &= (before > -xp.inf) @ legal > 0
            which = xp.nonzero(small.any(axis=1))[0]
            predicted[rows][which] = log_sum_exp(before[which][:, :, None] + transitions, axis=1)
            underflow[rows][which] = True
        filtered[rows] += predicted[rows]
    inverse = xp.where(sums > 0, 1 / xp.maximum(sums, SMALLEST), 0.0)
    inverse[underflow] = 0
    return SumProductMessages(
        packing, leftwards, transitions, factors, filtered, predicted, scaled, inverse, underflow
    )


def log_partition(potentials: Potentials) -> ScoreWithVjp:
    """The log partition function.

        log Z = log sum_y exp(s(y))

    potentials (Potentials): The scores of a batch.
    RETURNS (ScoreWithVjp): log Z of each sequence, and the callback to its gradient: the
        expected number of times that a path uses each potential. Shape: (B,)
    """
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    before, ends = sum_product_messages(potentials, packing, leftwards=True), packing.ends
    log_z = xp.zeros(packing.n_sequences)
    log_z[packing.sequence[ends]] = log_sum_exp(before.filtered[ends], axis=1)

    def backprop(d_log_z: Floats1d) -> Potentials:
        check_derivatives(d_log_z, log_z.shape)
        after = sum_product_messages(potentials, packing, leftwards=False)
        weights = xp.asarray(d_log_z, dtype="float64")[packing.sequence]
        mass = xp.exp(log_tag_probabilities(before, after)) * weights[:, None]
        return unfold_ends(mass, before.expected_transitions(mass), packing, potentials)

    return log_z, backprop


def marginals(potentials: Potentials) -> Floats2d:
    """The marginals, p(y_t = k).

    RETURNS (Floats2d): Shape: (N, K)
    """
    log_z, backprop = log_partition(potentials)
    return backprop(get_array_module(log_z).ones_like(log_z)).emissions


def log_tag_probabilities(before: SumProductMessages, after: SumProductMessages) -> Floats2d:
    """log p(y_t = j). Shape: (N, K)"""
    joint = before.filtered + after.predicted
    return joint - zero_if_infinite(log_sum_exp(joint, axis=1))[:, None]
