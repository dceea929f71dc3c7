"""The score and the probability of given paths."""

from thinc.types import Floats1d, Ints1d
from thinc.util import get_array_module

from ...types import Potentials, ScoreWithVjp, add_to
from ..validation import check_derivatives, check_tags
from .packing import (
    fold_ends,
    pack,
    sum_by_group,
    sum_by_sequence,
    unfold_ends,
)
from .sum_product import log_partition


def path_score(potentials: Potentials, tags: Ints1d) -> ScoreWithVjp:
    """The score of one path a sequence.

        s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]

    potentials (Potentials): The scores of a batch.
    tags (Ints1d): The tag of each token. Shape: (N,)
    RETURNS (ScoreWithVjp): The scores, minus infinity for a forbidden path; and the callback
        to their gradient: the number of times that the path uses each potential, 0 for a
        forbidden path. Shape: (B,)
    """
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    check_tags(tags, potentials)
    rows = xp.arange(len(packing.tokens))
    path = xp.asarray(tags, dtype="int64")[packing.tokens]
    tag_from, tag_to = path[packing.before], path[packing.later]
    steps = fold_ends(potentials, packing)[rows, path]
    steps[packing.later] += potentials.transitions[tag_from, tag_to]
    scores = sum_by_sequence(steps, packing)

    def backprop(d_scores: Floats1d) -> Potentials:
        check_derivatives(d_scores, scores.shape)
        d_steps = xp.where(xp.isfinite(scores), d_scores, 0.0)[packing.sequence]
        d_emissions = xp.zeros(potentials.emissions.shape)
        d_emissions[rows, path] = d_steps
        n_tags = len(potentials.transitions)
        transitions = tag_from * n_tags + tag_to
        d_transitions = sum_by_group(d_steps[packing.later], transitions, n_tags**2)
        d_transitions = d_transitions.reshape(n_tags, n_tags)
        return unfold_ends(d_emissions, d_transitions, packing, potentials)

    return scores, backprop


def path_log_prob(potentials: Potentials, tags: Ints1d) -> ScoreWithVjp:
    """The log-probability of one path a sequence.

        log p(y) = s(y) - log Z

    potentials (Potentials): The scores of a batch.
    tags (Ints1d): The tag of each token. Shape: (N,)
    RETURNS (ScoreWithVjp): The log-probabilities, minus infinity for a forbidden path; and the
        callback to their gradient: the counts of the path minus the expected counts, 0 for a
        forbidden path. Shape: (B,)
    """
    scores, backprop_path = path_score(potentials, tags)
    log_z, backprop_all = log_partition(potentials)
    xp = get_array_module(scores)
    legal = xp.isfinite(scores)

    def backprop(d_log_p: Floats1d) -> Potentials:
        check_derivatives(d_log_p, scores.shape)
        expected = backprop_all(xp.where(legal, -d_log_p, 0.0))
        return add_to(backprop_path(d_log_p), expected)

    return scores - xp.where(legal, log_z, 0.0), backprop
