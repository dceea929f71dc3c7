"""Sums, maxima and k-best paths by plain recursions, in the log domain and float64.

They judge what the package computes for sequences that are too long, or have too many tags, for
`oracle`. Each function takes one sequence of a batch, number b. In shapes, T is the number of its
tokens, and K of tags.
"""

from typing import Any

import numpy

from spacy_costner.types import Potentials

from . import oracle
from .oracle import Value


def log_sum_exp(scores: numpy.ndarray, axis: int) -> Any:
    """Compute log sum exp along an axis. It is minus infinity if all scores are so."""
    largest = scores.max(axis=axis, keepdims=True)
    largest = numpy.where(numpy.isfinite(largest), largest, 0.0)
    with numpy.errstate(divide="ignore"):
        return numpy.log(numpy.exp(scores - largest).sum(axis=axis)) + largest.squeeze(axis)


def emissions_of(potentials: Potentials, b: int) -> numpy.ndarray:
    """Return the emissions of a sequence, to which the start scores are added at the first token,
    and the end scores at the last one. Shape: (T, K)"""
    emissions = potentials.emissions[oracle.spans(potentials)[b]].astype("float64")
    emissions[:1] += potentials.start
    emissions[len(emissions) - 1 :] += potentials.end
    return emissions


def messages(potentials: Potentials, b: int, total: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Compute the logarithms of the forward messages, which include the emission of their token,
    and of the backward messages, which don't. `total` is `log_sum_exp` or `numpy.max`. Shapes: (T,
    K)

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
    """Compute log Z. Its gradient is the expected number of times that a path uses each
    potential."""
    gradient = oracle.zeros(potentials)
    forward, backward = messages(potentials, b, log_sum_exp)
    if len(forward) == 0:
        return Value(0.0, oracle.vector(gradient))
    log_z = float(log_sum_exp(forward[-1], axis=0))
    if log_z > -numpy.inf:
        # p(y_t = i) = exp(forward_t[i] + backward_t[i] - log Z). Shape: (T, K)
        marginals = numpy.exp(forward + backward - log_z)
        gradient.emissions[oracle.spans(potentials)[b]] = marginals
        gradient.start[:] = marginals[0]
        gradient.end[:] = marginals[-1]
        # log p(y_{t-1} = i, y_t = j)
        #   = forward_{t-1}[i] + transitions[i, j] + emissions[t, j] + backward_t[j] - log Z
        after_transition = emissions_of(potentials, b) + backward
        for t in range(1, len(marginals)):
            log_p_of_transitions = (
                forward[t - 1][:, None] + potentials.transitions + after_transition[t] - log_z
            )
            gradient.transitions[:] += numpy.exp(log_p_of_transitions)
    return Value(log_z, oracle.vector(gradient))


def max_marginals(potentials: Potentials, b: int) -> numpy.ndarray:
    """Compute the score of the best path through each tag at each token. Shape: (T, K)"""
    return sum(messages(potentials, b, numpy.max))


def k_best_scores(potentials: Potentials, b: int, k: int) -> numpy.ndarray:
    """Compute the scores of the k best paths, in descending order. If there are fewer paths, the
    last ones are minus infinity. Shape: (k,)"""
    emissions = emissions_of(potentials, b)
    n_tags = emissions.shape[1]
    # For each tag the k best scores of beginnings of paths that end with it, in descending order.
    # Shape: (k, K)
    best = numpy.full((k, n_tags), -numpy.inf)
    best[0] = emissions[0]
    for emissions_of_token in emissions[1:]:
        # The scores of each beginning with one more tag. Shape: (k, K, K), then (k K, K)
        longer = best[:, :, None] + potentials.transitions + emissions_of_token
        longer = longer.reshape(-1, n_tags)
        best = -numpy.sort(-longer, axis=0)[:k]
    return -numpy.sort(-best.ravel())[:k]


def difference(numerator: Value, denominator: Value) -> Value:
    """Compute the logarithm of a ratio from the logarithms of its numerator and denominator. If it
    is minus infinity, the gradient is 0."""
    if numerator.value == -numpy.inf:
        return numerator
    return Value(
        numerator.value - denominator.value,
        numerator.gradient - denominator.gradient,
    )


def log_total(values: Any) -> Value:
    """Compute log sum exp of several values. Its gradient is the mean of theirs, weighed by the
    shares of the values in the sum."""
    total = float(log_sum_exp(numpy.asarray([value.value for value in values]), axis=0))
    gradient = numpy.zeros_like(values[0].gradient)
    if total > -numpy.inf:
        for value in values:
            gradient += numpy.exp(value.value - total) * value.gradient
    return Value(total, gradient)


def expectation(potentials: Potentials, b: int, values: Potentials, step: float = 1e-4) -> Value:
    """Compute E_p[v(y)] of values v that add up over the steps of a path. Its gradient, a
    covariance, is the derivative of the expected counts when v is added to the scores. It is found
    by a finite difference of size `step`."""
    v = oracle.vector(values)
    v[~numpy.isfinite(v)] = 0

    def expected_counts(size: float) -> numpy.ndarray:
        """Compute the expected counts with the scores s + size v."""
        raised = oracle.vector(potentials) + size * v
        return log_sum(oracle.from_vector(raised, potentials), b).gradient

    slope = (expected_counts(step) - expected_counts(-step)) / (2 * step)
    return Value(expected_counts(0) @ v, slope)
