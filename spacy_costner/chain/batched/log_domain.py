"""Sums over all paths in the log domain and in float64: slow, and right for any scores.

The same messages as in `sum_product`, as logarithms:

    alpha_t[j]    = log sum_i exp(alpha_{t-1}[i] + transitions[i, j]) + emissions[t, j]
    beta_{t-1}[i] = log sum_j exp(transitions[i, j] + emissions[t, j] + beta_t[j])
"""

from typing import Tuple

from thinc.types import Floats1d, Floats2d, Floats3d
from thinc.util import get_array_module

from ...types import Potentials, Scored
from .packing import Packing, fold_ends, pack, unfold_ends, unpack


def log_partition(potentials: Potentials) -> Scored:
    """As `sum_product.log_partition`."""
    xp = get_array_module(potentials.emissions)
    packing = pack(potentials.lengths, xp)
    emissions, transitions = _in_float64(potentials, packing)
    alpha = _forward(emissions, transitions, packing)
    log_z = _log_z(alpha, packing)

    def backprop(d_log_z: Floats1d) -> Potentials:
        weights = xp.asarray(d_log_z, dtype="float64")[packing.sequence]
        beta = _backward(emissions, transitions, packing)
        d_emissions = _exp(alpha + beta - _floor(log_z)[packing.sequence, None]) * weights[:, None]
        d_transitions = xp.zeros_like(transitions)
        for t in range(1, packing.n_steps):
            rows, before = packing.step(t)
            ahead = emissions[rows] + beta[rows] - _floor(log_z)[packing.sequence[rows], None]
            pairs = _exp(alpha[before][:, :, None] + transitions + ahead[:, None, :])
            d_transitions += (pairs * weights[rows, None, None]).sum(axis=0)
        dtype = potentials.emissions.dtype
        return unfold_ends(
            d_emissions.astype(dtype), d_transitions.astype(dtype), packing, potentials.lengths
        )

    return log_z, backprop


def pairwise_marginals(potentials: Potentials) -> Floats3d:
    """As `sum_product.pairwise_marginals`."""
    xp = get_array_module(potentials.emissions)
    packing = pack(potentials.lengths, xp)
    emissions, transitions = _in_float64(potentials, packing)
    alpha = _forward(emissions, transitions, packing)
    beta = _backward(emissions, transitions, packing)
    log_z = _floor(_log_z(alpha, packing))
    pairs = xp.zeros(emissions.shape + emissions.shape[1:])
    ahead = emissions + beta - log_z[packing.sequence, None]
    pairs[packing.later] = _exp(
        alpha[packing.before][:, :, None] + transitions + ahead[packing.later][:, None, :]
    )
    return unpack(pairs, packing)


def _in_float64(potentials: Potentials, packing: Packing) -> Tuple[Floats2d, Floats2d]:
    emissions = fold_ends(potentials, packing).astype("float64")
    return emissions, potentials.transitions.astype("float64")


def _forward(emissions: Floats2d, transitions: Floats2d, packing: Packing) -> Floats2d:
    alpha = emissions.copy()
    for t in range(1, packing.n_steps):
        rows, before = packing.step(t)
        alpha[rows] += _log_sum_exp(alpha[before][:, :, None] + transitions, axis=1)
    return alpha


def _backward(emissions: Floats2d, transitions: Floats2d, packing: Packing) -> Floats2d:
    xp = get_array_module(emissions)
    beta = xp.zeros_like(emissions)
    for t in range(packing.n_steps - 1, 0, -1):
        rows, before = packing.step(t)
        ahead = emissions[rows] + beta[rows]
        beta[before] = _log_sum_exp(transitions + ahead[:, None, :], axis=2)
    return beta


def _log_z(alpha: Floats2d, packing: Packing) -> Floats1d:
    xp = get_array_module(alpha)
    log_z = xp.zeros(packing.n_sequences)
    by_token = unpack(_log_sum_exp(alpha, axis=1), packing)
    log_z[unpack(packing.sequence, packing)[packing.last]] = by_token[packing.last]
    return log_z


def _log_sum_exp(scores: Floats3d, axis: int) -> Floats2d:
    xp = get_array_module(scores)
    largest = _floor(scores.max(axis=axis, keepdims=True))
    total = xp.exp(scores - largest).sum(axis=axis)
    positive = total > 0
    return xp.where(
        positive, xp.log(xp.where(positive, total, 1.0)) + largest.squeeze(axis), -xp.inf
    )


def _exp(scores: Floats3d) -> Floats3d:
    return get_array_module(scores).exp(scores)


def _floor(scores: Floats3d) -> Floats3d:
    """0 in place of minus infinity, so that it can be subtracted from itself."""
    xp = get_array_module(scores)
    return xp.where(xp.isfinite(scores), scores, 0.0)
