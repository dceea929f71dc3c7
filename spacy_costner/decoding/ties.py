"""The most probable of several best paths."""

import numpy
from thinc.types import Floats2d, Ints1d

from .. import chain
from ..chain.array.max_product import max_product_messages
from ..chain.array.packing import pack, select, unpack
from ..types import Potentials


def best_of_tied(scores: Potentials, log_probs: Floats2d, tolerance: float) -> Ints1d:
    """The most probable of the best paths, with a tolerance per token.

        gamma_t[i] = max_j transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j]
        regret_t[i, j] = gamma_t[i] - (transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j])
        argmax_y sum_t log p(y_t)    where regret_t[y_t, y_{t+1}] <= tolerance for all t

    The score of a path is that of the best one minus the sum of its regrets. The result is
    therefore within T times the tolerance of the best path, whatever its probability.

    scores (Potentials): The scores to maximise, as NumPy arrays.
    log_probs (Floats2d): The log-probabilities that decide ties. Shape: (N, K)
    tolerance (float): The regret that is allowed at each token.
    RETURNS (Ints1d): The tag of each token. Shape: (N,)
    """
    through, lengths = chain.max_marginals(scores), scores.lengths
    least = through.max(axis=1) - tolerance * numpy.repeat(lengths, lengths)
    several = (through >= least[:, None]).sum(axis=1) > 1
    sequence = numpy.repeat(numpy.arange(len(lengths)), lengths)
    has_ties = numpy.bincount(sequence[several], minlength=len(lengths)) > 0
    path = through.argmax(axis=1)
    if has_ties.any():
        taken, tokens = select(scores, has_ties)
        path[tokens] = _most_probable(taken, log_probs[tokens], tolerance)
    return path


def _most_probable(scores: Potentials, log_probs: Floats2d, tolerance: float) -> Ints1d:
    """The best path by log-probability over the transitions without much regret."""
    packing = pack(scores)
    after, transitions = max_product_messages(scores, packing, leftwards=False), scores.transitions
    likely, came_from = log_probs[packing.tokens], numpy.zeros(log_probs.shape, dtype="int64")
    first = after.filtered[packing.rows(0)]
    likely[packing.rows(0)][first < first.max(axis=1, keepdims=True) - tolerance] = -numpy.inf
    for before, rows in packing.walk(leftwards=False):
        ways = transitions + after.filtered[rows][:, None, :]
        tied = ways >= after.predicted[before][:, :, None] - tolerance
        arrivals = numpy.where(tied, likely[before][:, :, None], -numpy.inf)
        came_from[rows] = arrivals.argmax(axis=1)
        likely[rows] += arrivals.max(axis=1)
    path = likely.argmax(axis=1)
    for rows, before in packing.walk(leftwards=True):
        path[before] = came_from[rows][numpy.arange(len(path[rows])), path[rows]]
    return unpack(path, packing)
