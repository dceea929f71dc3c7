"""Sums, maxima and k-best by plain recursions, in the log domain and float64: no scaling, no
vectors.

It judges sequences that are too long, or have too many tags, for `oracle`. One sequence of a batch
at a time.
"""

from typing import Any

import numpy

from spacy_costner.types import Potentials

from . import oracle
from .oracle import Value


def log_sum_exp(scores: numpy.ndarray, axis: int) -> Any:
    """log sum exp along an axis, minus infinity if all scores are."""
    largest = scores.max(axis=axis, keepdims=True)
    largest = numpy.where(numpy.isfinite(largest), largest, 0.0)
    with numpy.errstate(divide="ignore"):
        return numpy.log(numpy.exp(scores - largest).sum(axis=axis)) + largest.squeeze(axis)


def emissions_of(potentials: Potentials, b: int) -> numpy.ndarray:
    """The emissions, with the start and end scores at both ends. Shape: (T, K)"""
    emissions = potentials.emissions[oracle.spans(potentials)[b]].astype("float64")
    emissions[:1] += potentials.start
    emissions[len(emissions) - 1 :] += potentials.end
    return emissions


def messages(potentials: Potentials, b: int, total: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The logarithms of the forward messages, with the emission of their token, and of the backward
    messages, without it; `total` is log_sum_exp or max. Shape: (T, K)

        forward_t[j]      = total_i (forward_{t-1}[i] + transitions[i, j]) + emissions[t, j]
        backward_{t-1}[i] = total_j (transitions[i, j] + emissions[t, j] + backward_t[j])
    """
    emissions = emissions_of(potentials, b)
    transitions = potentials.transitions.astype("float64")
    forward = emissions.copy()
    backward = numpy.zeros_like(emissions)
    for t in range(1, len(forward)):
        forward[t] += total(forward[t - 1][:, None] + transitions, axis=0)
    for t in range(len(forward) - 1, 0, -1):
        backward[t - 1] = total(transitions + emissions[t] + backward[t], axis=1)
    return forward, backward


def log_sum(potentials: Potentials, b: int) -> Value:
    """log Z, and the expected number of times that a path uses each potential."""
    gradient = oracle.zeros(potentials)
    forward, backward = messages(potentials, b, log_sum_exp)
    if len(forward) == 0:
        return Value(0.0, oracle.vector(gradient))
    log_z = float(log_sum_exp(forward[-1], axis=0))
    if log_z > -numpy.inf:
        p = numpy.exp(forward + backward - log_z)
        gradient.emissions[oracle.spans(potentials)[b]] = p
        gradient.start[:] = p[0]
        gradient.end[:] = p[-1]
        ahead = emissions_of(potentials, b) + backward
        for t in range(1, len(p)):
            steps = forward[t - 1][:, None] + potentials.transitions + ahead[t] - log_z
            gradient.transitions[:] += numpy.exp(steps)
    return Value(log_z, oracle.vector(gradient))


def max_marginals(potentials: Potentials, b: int) -> numpy.ndarray:
    """The score of the best path through each tag. Shape: (T, K)"""
    return sum(messages(potentials, b, numpy.max))


def k_best_scores(potentials: Potentials, b: int, k: int) -> numpy.ndarray:
    """The scores of the k best paths, minus infinity where there are fewer. Shape: (k,)"""
    emissions = emissions_of(potentials, b)
    best = numpy.full((k, emissions.shape[1]), -numpy.inf)
    best[0] = emissions[0]
    for row in emissions[1:]:
        longer = best[:, :, None] + potentials.transitions + row
        best = -numpy.sort(-longer.reshape(-1, len(row)), axis=0)[:k]
    return -numpy.sort(-best.ravel())[:k]


def difference(part: Value, total: Value) -> Value:
    """The logarithm of a ratio; gradient 0 where that is minus infinity."""
    if part.value == -numpy.inf:
        return part
    return Value(part.value - total.value, part.gradient - total.gradient)


def log_total(parts: Any) -> Value:
    """log sum exp of several values."""
    total = float(log_sum_exp(numpy.asarray([part.value for part in parts]), axis=0))
    if total == -numpy.inf:
        return Value(total, 0 * parts[0].gradient)
    return Value(total, sum(numpy.exp(part.value - total) * part.gradient for part in parts))


def expectation(potentials: Potentials, b: int, values: Potentials, step: float = 1e-4) -> Value:
    """E_p[v(y)], and its gradient: the derivative of the expected counts as v is added to the
    scores."""
    v = oracle.vector(values)
    v[~numpy.isfinite(v)] = 0

    def expected_counts(size: float) -> numpy.ndarray:
        """The expected counts with the scores s + size v."""
        raised = oracle.vector(potentials) + size * v
        return log_sum(oracle.from_vector(raised, potentials), b).gradient

    slope = (expected_counts(step) - expected_counts(-step)) / (2 * step)
    return Value(expected_counts(0) @ v, slope)
