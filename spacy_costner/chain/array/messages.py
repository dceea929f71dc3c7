"""Which tag stands beside each tag, and how anything laid on tags spreads along the chain.

Given the tag of a token, the tags before it are a Markov chain walked leftwards, and the
tags after it one walked rightwards. With alpha and beta of `sum_product`,

    p(y_{t-1} = i | y_t = j) = alpha_{t-1}[i] exp(transitions[i, j]) / predicted_t[j]
    p(y_{t+1} = j | y_t = i) = exp(transitions[i, j]) ahead_{t+1}[j] / beta_t[i]

where predicted_t[j] is alpha_t[j] without exp(emissions[t, j]), and ahead_t[j] is
beta_t[j] with it. So both have the same form,

    p(neighbour = k | tag = j) = reach[k] exp(transition) / predicted[j]

with reach, the message with the emission of its token, and predicted, the message without.
Everything of second order (covariances, probabilities given other tags) is a mass laid on
tags and propagate by these conditional probabilities: sums of positive numbers of which none
exceeds the mass, so that nothing overflows and no small probability is divided by.
"""

from typing import Any, NamedTuple, Optional, Protocol, Tuple

from thinc.types import Array1d, Floats1d, Floats2d
from thinc.util import get_array_module

from ...types import Potentials
from . import log_domain, sum_product
from .log_domain import log_sum_exp, logarithm, zero_if_infinite
from .packing import (
    Packing,
    fold_ends,
    pack,
    select,
    sum_beyond,
    unfold_ends,
)
from .sum_product import SMALLEST, Kernel

PRECISE = 1e-15
"""Two numbers above it have a product that float32 holds with all its digits."""


class MessagesOfSide(Protocol):
    """The tags on one side of each token, given its own: those of the tokens before
    (leftwards) or of the tokens after. Rows are packed."""

    @property
    def filtered(self) -> Floats2d:
        """Logarithm of the message with the emission of its token. Shape: (N, K)"""

    @property
    def predicted(self) -> Floats2d:
        """Logarithm of the message without it. Shape: (N, K)"""

    def propagate(self, sources: Floats2d) -> Floats2d:
        """Carry mass to the neighbours, and from there to theirs, to the end of the chain.

            mass_{t-1}[i] = sources_{t-1}[i] + sum_j p(y_{t-1} = i | y_t = j) mass_t[j]

        sources (Floats2d): Mass laid on each tag. Shape: (N, K)
        RETURNS (Floats2d): Mass that each tag has in the end. Shape: (N, K)
        """

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        """Add up how much of a mass passes from each tag to each neighbour.

            sum_t p(y_{t-1} = i | y_t = j) mass_t[j]

        mass (Floats2d): Mass on each tag, propagate. Shape: (N, K)
        RETURNS (Floats2d): [from, to] in the order of the text. Shape: (K, K)
        """


class BothMessages(NamedTuple):
    """A batch, and what stands on both sides of each token.

    potentials (Potentials): The batch that gradients refer to.
    packing (Packing): How it is stood upright.
    before (MessagesOfSide): The tags before each tag.
    after (MessagesOfSide): The tags after each tag.
    """

    potentials: Potentials
    packing: Packing
    before: MessagesOfSide
    after: MessagesOfSide

    def propagate(self, to_left: Floats2d, to_right: Floats2d, surplus: Floats2d) -> Potentials:
        """Spread mass to both sides and count the steps it takes.

        to_left (Floats2d): Mass laid on tags and propagate to those before. Shape: (N, K)
        to_right (Floats2d): Mass laid on tags and propagate to those after. Shape: (N, K)
        surplus (Floats2d): What is laid on a tag for both sides but counts once.
            Shape: (N, K)
        RETURNS (Potentials): The mass that takes each step: a gradient.
        """
        left, right = self.before.propagate(to_left), self.after.propagate(to_right)
        dtype = self.potentials.emissions.dtype
        return unfold_ends(
            (left + right - surplus).astype(dtype),
            (
                self.before.expected_transitions(left) + self.after.expected_transitions(right)
            ).astype(dtype),
            self.packing,
            self.potentials.lengths,
        )


class SumProductMessages(NamedTuple):
    """`MessagesOfSide` by scaled messages, and in the log domain where these are lost.

    potentials (Potentials): The scores.
    scaled (ScaledMessages): By scaled messages.
    underflow (Array1d): The rows for which these don't hold. Shape: (N,)
    exact (Optional[log_domain.MessagesOfSide]): In the log domain, for those rows only.
    """

    potentials: Potentials
    scaled: "ScaledMessages"
    underflow: Array1d
    exact: Optional[log_domain.MessagesOfSide]

    @property
    def filtered(self) -> Floats2d:
        return self.predicted + fold_ends(self.potentials, self.scaled.packing)

    @property
    def predicted(self) -> Floats2d:
        return self._join(self.scaled.log_predicted(), self.exact and self.exact.predicted)

    def propagate(self, sources: Floats2d) -> Floats2d:
        mass = self.scaled.propagate(self._kept(sources))
        return self._join(mass, self.exact and self.exact.propagate(sources[self.underflow]))

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        total = self.scaled.expected_transitions(self._kept(mass))
        return (
            total
            if self.exact is None
            else total + self.exact.expected_transitions(mass[self.underflow])
        )

    def mean(self, values: Floats2d) -> Floats2d:
        """The mean of a value of pairs, over the neighbours of each tag.

            sum_i p(y_{t-1} = i | y_t = j) values[i, j]

        values (Floats2d): A value of each pair, [from, to]. Shape: (K, K)
        RETURNS (Floats2d): Its means; 0 for tokens without neighbour. Shape: (N, K)
        """
        return self._join(self.scaled.mean(values), self.exact and self.exact.mean(values))

    def _kept(self, rows: Floats2d) -> Floats2d:
        if self.exact is None:
            return rows
        xp = get_array_module(rows)
        return xp.where(self.underflow[:, None], xp.zeros_like(rows), rows)

    def _join(self, rows: Floats2d, exact: Optional[Floats2d]) -> Floats2d:
        if exact is not None:
            rows[self.underflow] = exact
        return rows


class ScaledMessages(NamedTuple):
    """Scaled messages towards each row.

    packing (Packing): How the batch is stood upright.
    leftwards (bool): Whether the neighbour is the token before.
    transitions (Floats2d): Exponentiated, [tag of the neighbour, tag]. Shape: (K, K)
    filtered (Floats2d): Messages with the emissions of the row. Shape: (N, K)
    predicted (Floats2d): Messages without them. Shape: (N, K)
    inverse (Floats2d): 1 / predicted where that is positive. Shape: (N, K)
    scale (Floats1d): Logarithm of what `predicted` was divided by. Shape: (N,)
    """

    packing: Packing
    leftwards: bool
    transitions: Floats2d
    filtered: Floats2d
    predicted: Floats2d
    inverse: Floats2d
    scale: Floats1d

    def log_predicted(self) -> Floats2d:
        return logarithm(self.predicted) + self.scale[:, None]

    def propagate(self, sources: Floats2d) -> Floats2d:
        mass = sources.astype(self.filtered.dtype)
        onwards = self.transitions.T
        for rows, adjacent in self.packing.walk(self.leftwards):
            mass[adjacent] += self.filtered[adjacent] * (
                (mass[rows] * self.inverse[rows]) @ onwards
            )
        return mass

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        rows, adjacent = self.packing.transition_rows(self.leftwards)
        weights = (mass * self.inverse)[rows]
        total = self.transitions * (self.filtered[adjacent].T @ weights)
        return total if self.leftwards else total.T

    def mean(self, values: Floats2d) -> Floats2d:
        rows, adjacent = self.packing.transition_rows(self.leftwards)
        means = get_array_module(values).zeros_like(self.filtered)
        oriented = values if self.leftwards else values.T
        means[rows] = self.filtered[adjacent] @ (self.transitions * oriented)
        return means * self.inverse


def sum_product_messages(
    potentials: Potentials, packing: Packing
) -> Tuple[SumProductMessages, SumProductMessages]:
    """The tags before and after each tag.

    potentials (Potentials): The scores of a batch.
    packing (Packing): How it is stood upright.
    """
    kernel = _exponentiate(potentials, packing)
    return predecessors(potentials, packing, kernel), successors(potentials, packing, kernel)


def predecessors(
    potentials: Potentials, packing: Packing, kernel: Optional[Kernel] = None
) -> SumProductMessages:
    """The tags before each tag. As `neighbours`."""
    kernel = kernel or _exponentiate(potentials, packing)
    alpha = sum_product.forward(kernel, packing)
    predicted = get_array_module(alpha.values).ones_like(alpha.values)
    predicted[packing.later] = alpha.values[packing.before] @ kernel.transitions
    underflow = kernel.underflow | alpha.underflow
    underflow[packing.later] |= sum_product.underflows(
        predicted[packing.later] < SMALLEST, alpha.values[packing.before] > 0, kernel.legal
    )
    scale = _log_scale(alpha.scale, kernel, packing, leftwards=True)
    scale[packing.later] += kernel.transition_shift
    scaled = ScaledMessages(
        packing, True, kernel.transitions, alpha.values, predicted, _inverse(predicted), scale
    )
    return _with_fallback(scaled, underflow, potentials)


def successors(
    potentials: Potentials, packing: Packing, kernel: Optional[Kernel] = None
) -> SumProductMessages:
    """The tags after each tag. As `neighbours`."""
    kernel = kernel or _exponentiate(potentials, packing)
    beta = sum_product.backward(kernel, packing)
    ahead = kernel.emissions * beta.values
    predicted = beta.values * beta.scale[:, None]
    scale = _log_scale(beta.scale, kernel, packing, leftwards=False)
    scaled = ScaledMessages(
        packing, False, kernel.transitions.T, ahead, predicted, _inverse(predicted), scale
    )
    return _with_fallback(scaled, kernel.underflow | beta.underflow, potentials)


def tag_probabilities(before: SumProductMessages, after: SumProductMessages) -> Floats2d:
    """p(y_t = j). Shape: (N, K)"""
    xp = get_array_module(before.underflow)
    unary = before.scaled.filtered * after.scaled.predicted
    total = unary.sum(axis=1)
    unary /= xp.maximum(total, SMALLEST)[:, None]
    underflow = before.underflow | after.underflow | (total < PRECISE)
    if underflow.any():
        unary[underflow] = xp.exp(log_tag_probabilities(before, after)[underflow])
    return unary


def log_tag_probabilities(before: MessagesOfSide, after: MessagesOfSide) -> Floats2d:
    """log p(y_t = j). Shape: (N, K)"""
    joint = before.filtered + after.predicted
    return joint - zero_if_infinite(log_sum_exp(joint, axis=1))[:, None]


def _inverse(predicted: Floats2d) -> Floats2d:
    return 1 / get_array_module(predicted).maximum(predicted, SMALLEST)


def _exponentiate(potentials: Potentials, packing: Packing) -> Kernel:
    emissions = fold_ends(potentials, packing)
    return sum_product.exponentiate(emissions, potentials.transitions, packing)


def _log_scale(scale: Floats1d, kernel: Kernel, packing: Packing, leftwards: bool) -> Floats1d:
    """What the messages towards each row were divided by so far, as a logarithm."""
    xp = get_array_module(scale)
    per_row = logarithm(xp.maximum(scale, SMALLEST)) + kernel.shift
    return sum_beyond(per_row, packing, leftwards)


def _with_fallback(
    scaled: ScaledMessages, underflow: Array1d, potentials: Potentials
) -> SumProductMessages:
    packing = scaled.packing
    sequences = sum_product.sequences(underflow, packing)
    exact: Any = None
    if sequences.any():
        taken, _ = select(potentials, sequences)
        exact = log_domain.sum_product_messages(taken, pack(taken), scaled.leftwards)
    return SumProductMessages(potentials, scaled, sequences[packing.sequence], exact)
