"""Conditional probabilities of adjacent tags, and propagation of mass by them.

Given the tag of a token, the tags before it are a Markov chain that runs leftwards, and the
tags after it one that runs rightwards. With alpha and beta of `sum_product`,

    p(y_{t-1} = i | y_t = j) = alpha_{t-1}[i] exp(transitions[i, j]) / predicted_t[j]
    p(y_{t+1} = j | y_t = i) = exp(transitions[i, j]) ahead_{t+1}[j] / beta_t[i]

where predicted_t[j] is alpha_t[j] without exp(emissions[t, j]), and ahead_t[j] is
beta_t[j] with it. So both have the same form,

    p(adjacent tag = k | tag = j) = filtered[k] exp(transition) / predicted[j]

where `filtered` is the message with the emission of its token, and `predicted` is the message
without it. Second-order quantities (covariances, conditional probabilities) are a mass on tags
that these conditional probabilities propagate. Each is a sum of positive numbers that do not
exceed the mass, so that nothing overflows and no small probability is a divisor.
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
"""The product of two numbers above it is a normal number of float32."""


class MessagesOfSide(Protocol):
    """The messages of one direction: forward messages, which give the distribution of the
    previous tag given a tag (leftwards), or backward messages, for the next tag. Rows are
    packed."""

    @property
    def filtered(self) -> Floats2d:
        """Logarithm of the message with the emission of its token. Shape: (N, K)"""

    @property
    def predicted(self) -> Floats2d:
        """Logarithm of the message without it. Shape: (N, K)"""

    def propagate(self, sources: Floats2d) -> Floats2d:
        """Propagate mass to the adjacent tags, and on to the end of the chain.

            mass_{t-1}[i] = sources_{t-1}[i] + sum_j p(y_{t-1} = i | y_t = j) mass_t[j]

        sources (Floats2d): Mass put on each tag. Shape: (N, K)
        RETURNS (Floats2d): Mass of each tag after propagation. Shape: (N, K)
        """

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        """The mass on each transition, added up over the tokens.

            sum_t p(y_{t-1} = i | y_t = j) mass_t[j]

        mass (Floats2d): Mass on each tag, propagated; with the marginals, the result is the
            expected number of transitions. Shape: (N, K)
        RETURNS (Floats2d): [from, to]. Shape: (K, K)
        """


class BothMessages(NamedTuple):
    """A batch, and its messages of both directions.

    potentials (Potentials): The batch that gradients refer to.
    packing (Packing): The order of the rows.
    before (MessagesOfSide): The forward messages.
    after (MessagesOfSide): The backward messages.
    """

    potentials: Potentials
    packing: Packing
    before: MessagesOfSide
    after: MessagesOfSide

    def propagate(self, to_left: Floats2d, to_right: Floats2d, surplus: Floats2d) -> Potentials:
        """Propagate mass in both directions, and add it up for each potential.

        to_left (Floats2d): Mass to propagate to the tags before. Shape: (N, K)
        to_right (Floats2d): Mass to propagate to the tags after. Shape: (N, K)
        surplus (Floats2d): Mass that is in both and counts once. Shape: (N, K)
        RETURNS (Potentials): The mass of each tag and each transition: a gradient.
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
    """`MessagesOfSide` by scaled messages, and by the log domain where these underflow.

    potentials (Potentials): The scores.
    scaled (ScaledMessages): By scaled messages.
    underflow (Array1d): The rows of sequences that underflow. Shape: (N,)
    exact (Optional[log_domain.MessagesOfSide]): In the log domain, for
        those rows only.
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
        """The conditional expectation of a value of the transition, given each tag.

            sum_i p(y_{t-1} = i | y_t = j) values[i, j]

        values (Floats2d): The value of each transition, [from, to]. Shape: (K, K)
        RETURNS (Floats2d): The expectations, 0 where there is no adjacent token. Shape: (N, K)
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
    """Scaled messages of one direction.

    packing (Packing): The order of the rows.
    leftwards (bool): Whether the adjacent token is the one before.
    transitions (Floats2d): Exponentiated, [adjacent tag, tag]. Shape: (K, K)
    filtered (Floats2d): Messages with the emission of the row. Shape: (N, K)
    predicted (Floats2d): Messages without it. Shape: (N, K)
    inverse (Floats2d): 1 / predicted where that is positive. Shape: (N, K)
    scale (Floats1d): Logarithm of the factor that `predicted` was divided by. Shape: (N,)
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
    """The forward and backward messages.

    potentials (Potentials): The scores of a batch.
    packing (Packing): The order of the rows.
    """
    kernel = _exponentiate(potentials, packing)
    return predecessors(potentials, packing, kernel), successors(potentials, packing, kernel)


def predecessors(
    potentials: Potentials, packing: Packing, kernel: Optional[Kernel] = None
) -> SumProductMessages:
    """The forward messages. As `sum_product_messages`."""
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
    """The backward messages. As `sum_product_messages`."""
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
    """The logarithm of all factors that the message of each row was divided by."""
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
