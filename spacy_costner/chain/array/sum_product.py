"""Sums over all paths, by scaled forward and backward messages.

alpha_t[j] is the sum over the paths that end in tag j at token t; beta_t[i] is the sum over
the continuations of tag i at token t (Rabiner, 1989, sections III.A and V.A):

    alpha_t[j]    = sum_i alpha_{t-1}[i] exp(transitions[i, j]) exp(emissions[t, j])
    beta_{t-1}[i] = sum_j exp(transitions[i, j]) exp(emissions[t, j]) beta_t[j]

The potentials are exponentiated, so that each message is one matrix product, and each message
is divided by its sum. A small entry may underflow then, and with it the paths through it. So a
sequence that has a possible entry below SMALLEST is marked as underflow and computed again by
`log_domain`, which is exact for any finite scores.
"""

from typing import NamedTuple

from thinc.types import Array1d, Array2d, Floats1d, Floats2d
from thinc.util import get_array_module

from ...types import Potentials, ScoreWithVjp
from ..validation import check_derivatives
from . import log_domain
from .log_domain import zero_if_infinite
from .packing import (
    Packing,
    add_selected,
    fold_ends,
    pack,
    select,
    sum_by_sequence,
    unfold_ends,
)

SMALLEST = 1e-30


class Kernel(NamedTuple):
    """The exponentiated potentials of a packed batch.

    emissions (Floats2d): exp(emissions - shift), 1 at most. Shape: (N, K)
    transitions (Floats2d): exp(transitions - their largest), 1 at most. Shape: (K, K)
    shift (Floats1d): The shift of each row, with that of the transition to it.
        Shape: (N,)
    transition_shift (Floats1d): The shift of the transitions. Shape: (1,)
    possible (Array2d): The mask of the tags possible in each row. Shape: (N, K)
    legal (Floats2d): 1 where a transition is allowed, else 0. Shape: (K, K)
    underflow (Array1d): Rows with a possible entry below SMALLEST. Shape: (N,)
    """

    emissions: Floats2d
    transitions: Floats2d
    shift: Floats1d
    transition_shift: Floats1d
    possible: Array2d
    legal: Floats2d
    underflow: Array1d


class Messages(NamedTuple):
    """The messages of one direction.

    values (Floats2d): alpha or beta, each row divided by its sum. Shape: (N, K)
    scale (Floats1d): The sum that each row was divided by. Shape: (N,)
    underflow (Array1d): Rows with a possible entry below SMALLEST. Shape: (N,)
    """

    values: Floats2d
    scale: Floats1d
    underflow: Array1d


class ForwardBackward(NamedTuple):
    """The posterior, from forward and backward messages.

    unary (Floats2d): p(y_t = j). Shape: (N, K)
    ahead (Floats2d): For each row but the first of a sequence, the factor f with
        p(y_{t-1} = i, y_t = j) = alpha_{t-1}[i] exp(transitions[i, j]) f_t[j].
        Shape: (N - offsets[1], K)
    underflow (Array1d): The sequences that underflow. Shape: (B,)
    """

    unary: Floats2d
    ahead: Floats2d
    underflow: Array1d


def log_partition(potentials: Potentials) -> ScoreWithVjp:
    """The log partition function.

        log Z = log sum_y exp(s(y))

    potentials (Potentials): The scores of a batch.
    RETURNS (ScoreWithVjp): log Z of each sequence, and the callback to its gradient: the
        expected number of times that a path uses each potential. Shape: (B,)
    """
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    kernel = exponentiate(fold_ends(potentials, packing), potentials.transitions, packing)
    alpha = forward(kernel, packing)
    log_z = sum_by_sequence(xp.log(xp.maximum(alpha.scale, SMALLEST)) + kernel.shift, packing)
    underflow = sequences(alpha.underflow | kernel.underflow, packing)
    if underflow.any():
        log_z[underflow] = log_domain.log_partition(select(potentials, underflow)[0])[0]

    def backprop(d_log_z: Floats1d) -> Potentials:
        check_derivatives(d_log_z, log_z.shape)
        posterior = _posterior(kernel, alpha, packing)
        weights = xp.where(posterior.underflow, 0.0, d_log_z).astype(alpha.values.dtype)
        weights = weights[packing.sequence]
        d_emissions = posterior.unary * weights[:, None]
        ahead = posterior.ahead * weights[packing.later, None]
        d_transitions = alpha.values[packing.before].T @ ahead * kernel.transitions
        gradient = unfold_ends(d_emissions, d_transitions, packing, potentials.lengths)
        if posterior.underflow.any():
            taken, tokens = select(potentials, posterior.underflow)
            exact = log_domain.log_partition(taken)[1](d_log_z[posterior.underflow])
            gradient = add_selected(gradient, exact, tokens)
        return gradient

    return log_z, backprop


def marginals(potentials: Potentials) -> Floats2d:
    """The marginals, p(y_t = k).

    RETURNS (Floats2d): Shape: (N, K)
    """
    log_z, backprop = log_partition(potentials)
    return backprop(get_array_module(log_z).ones_like(log_z)).emissions


def exponentiate(emissions: Floats2d, transitions: Floats2d, packing: Packing) -> Kernel:
    """Exponentiate the scores of a packed batch; see `fold_ends`."""
    xp = get_array_module(emissions)
    row_shift = zero_if_infinite(emissions.max(axis=1))
    transition_shift = zero_if_infinite(transitions.max(keepdims=True))[0]
    scaled = xp.exp(emissions - row_shift[:, None])
    scaled_transitions = xp.exp(transitions - transition_shift)
    possible, allowed = emissions > -xp.inf, transitions > -xp.inf
    shift = row_shift.astype("float64")
    shift[packing.later] += transition_shift
    underflow = ((scaled < SMALLEST) & possible).any(axis=1)
    underflow |= ((scaled_transitions < SMALLEST) & allowed).any()
    legal = allowed.astype(emissions.dtype)
    return Kernel(scaled, scaled_transitions, shift, transition_shift, possible, legal, underflow)


def forward(kernel: Kernel, packing: Packing) -> Messages:
    """The forward messages alpha."""
    xp = get_array_module(kernel.emissions)
    alpha = kernel.emissions.copy()
    scale = xp.empty(len(alpha), dtype=alpha.dtype)
    for t in range(packing.n_steps):
        rows, before = packing.step(t)
        if t > 0:
            alpha[rows] *= alpha[before] @ kernel.transitions
        _normalise(alpha, scale, rows)
    small = (alpha * xp.minimum(scale, 1)[:, None] < SMALLEST) & kernel.possible
    underflow = scale < SMALLEST
    underflow[packing.later] |= underflows(
        small[packing.later], alpha[packing.before] > 0, kernel.legal
    )
    return Messages(alpha, scale, underflow)


def backward(kernel: Kernel, packing: Packing) -> Messages:
    """The backward messages beta."""
    xp = get_array_module(kernel.emissions)
    beta = xp.ones_like(kernel.emissions)
    scale = xp.ones(len(beta), dtype=beta.dtype)
    for t in range(packing.n_steps - 1, 0, -1):
        rows, before = packing.step(t)
        beta[before] = (kernel.emissions[rows] * beta[rows]) @ kernel.transitions.T
        _normalise(beta, scale, before)
    small = beta * xp.minimum(scale, 1)[:, None] < SMALLEST
    underflow = scale < SMALLEST
    underflow[packing.before] |= underflows(
        small[packing.before],
        (beta[packing.later] > 0) & kernel.possible[packing.later],
        kernel.legal.T,
    )
    return Messages(beta, scale, underflow)


def _posterior(kernel: Kernel, alpha: Messages, packing: Packing) -> ForwardBackward:
    xp = get_array_module(kernel.emissions)
    beta = backward(kernel, packing)
    unary = alpha.values * beta.values
    overlap = unary.sum(axis=1)
    joint = (overlap * beta.scale)[packing.before]
    underflow = kernel.underflow | alpha.underflow | beta.underflow | (overlap < SMALLEST)
    underflow[packing.later] |= joint < SMALLEST
    unary /= xp.maximum(overlap, SMALLEST)[:, None]
    ahead = kernel.emissions[packing.later] * beta.values[packing.later]
    ahead /= xp.maximum(joint, SMALLEST)[:, None]
    return ForwardBackward(unary, ahead, sequences(underflow, packing))


def _normalise(messages: Floats2d, scale: Floats1d, rows: slice) -> None:
    """Divide rows by their sums, in place; rows of zeros stay."""
    total = messages[rows].sum(axis=1)
    scale[rows] = total
    total[total == 0] = 1
    messages[rows] /= total[:, None]


def underflows(small: Array2d, positive: Array2d, legal: Floats2d) -> Array1d:
    """The rows with a small entry that a legal transition connects to a positive entry of the
    adjacent row. Shapes: (N, K), (N, K), (K, K) to (N,)"""
    xp = get_array_module(small)
    found = small.any(axis=1)
    rows = xp.nonzero(found)[0]
    if len(rows):
        led_to = positive[rows].astype(legal.dtype) @ legal > 0
        found[rows] = (small[rows] & led_to).any(axis=1)
    return found


def sequences(rows: Array1d, packing: Packing) -> Array1d:
    """The mask of the sequences with any of these rows. Shape: (N,) to (B,)"""
    return sum_by_sequence(rows, packing) > 0
