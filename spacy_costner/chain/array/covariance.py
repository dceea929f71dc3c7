"""Expectations and marginals of sets of tags, with gradients.

The derivative of E_p[v(y)] with respect to a potential is the covariance of v(y) and of the
number of times that y uses this potential; all of them are the Hessian of log Z times v. For a
value v of the tag at s and the emission of tag j at t this is

    sum_k p(y_s = k) (v[k] - E_p[v]) p(y_t = j | y_s = k)

So the mass p(y_s = k) (v[k] - E_p[v]), which adds up to 0 over the tags at s, is propagated
in both directions by the conditional probabilities of adjacent tags. One recursion in each
direction does so for all tokens s. Neither the K^T paths nor the matrix of covariances are
enumerated (after Li & Eisner, 2009, "First- and Second-Order Expectation Semirings", with
conditional probabilities for their weights).
"""

from typing import Callable, Tuple

from thinc.types import Floats1d
from thinc.util import get_array_module

from ...types import Potentials, ScoreWithVjp, map_scores
from ..constraints import Allowed, to_mask
from ..validation import check_allowed, check_derivatives, check_values
from .log_domain import log_sum_exp, zero_if_infinite
from .messages import BothMessages
from .packing import add_to_transitions, fold_ends, pack, sum_by_sequence, unpack
from .sum_product import log_tag_probabilities, sum_product_messages


def expectation(potentials: Potentials, values: Potentials) -> ScoreWithVjp:
    """The expectation of a value that adds up over the tags and transitions of a path.

        E_p[v(y)],  v(y) = sum of the values of the tags and transitions of y

    potentials (Potentials): The scores of a batch.
    values (Potentials): The values; minus infinity counts as 0.
    RETURNS (ScoreWithVjp): The expectations, 0 for a sequence without a legal path; and the
        callback to their gradient. Shape: (B,)
    """
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    check_values(values, potentials)
    before, after = (sum_product_messages(potentials, packing, side) for side in (True, False))
    unary = xp.exp(log_tag_probabilities(before, after))
    values = map_scores(zero_if_infinite, values)
    of_tag, of_transition = fold_ends(values, packing), before.mean(values.transitions)
    mean_tag = (unary * of_tag).sum(axis=1, keepdims=True)
    mean_transition = (unary * of_transition).sum(axis=1, keepdims=True)
    means = sum_by_sequence((mean_tag + mean_transition)[:, 0], packing)

    def backprop(d_means: Floats1d) -> Potentials:
        check_derivatives(d_means, means.shape)
        weighted = unary * xp.asarray(d_means, dtype="float64")[packing.sequence, None]
        messages = BothMessages(potentials, packing, before, after)
        sources = weighted * (of_tag - mean_tag)
        if not values.transitions.any():
            return messages.propagate(sources, sources, sources)
        of_next, mean_next = after.mean(values.transitions), xp.zeros_like(mean_transition)
        mean_next[packing.before] = mean_transition[packing.later]
        to_left = sources + weighted * (of_next - mean_next)
        to_right = sources + weighted * (of_transition - mean_transition)
        gradient = messages.propagate(to_left, to_right, sources)
        d_transitions = values.transitions * before.expected_transitions(weighted)
        d_transitions -= before.expected_transitions(weighted * mean_transition)
        return add_to_transitions(gradient, d_transitions)

    return means, backprop


def log_marginals(
    potentials: Potentials, allowed: Allowed
) -> Tuple[Floats1d, Callable[[Floats1d], Potentials]]:
    """The log-probability that the tag of a token is in a set, for each token.

        log p(y_t in allowed_t)

    potentials (Potentials): The scores of a batch.
    allowed (Allowed): The set of each token.
    RETURNS (Tuple): The log-probabilities, minus infinity where no legal path has
        such a tag, in float64, shape (N,); and the callback that takes the
        derivative with respect to them, shape (N,), to that of the potentials.
    """
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    check_allowed(allowed, potentials)
    allowed = to_mask(xp.asarray(allowed), len(potentials.start))[packing.tokens]
    before, after = (sum_product_messages(potentials, packing, side) for side in (True, False))
    log_unary = log_tag_probabilities(before, after)
    log_allowed = xp.where(allowed, log_unary, -xp.inf)
    log_p = log_sum_exp(log_allowed, axis=1)

    def backprop(d_log_p: Floats1d) -> Potentials:
        check_derivatives(d_log_p, log_p.shape, "tokens")
        weights = xp.where(xp.isfinite(log_p), xp.asarray(d_log_p)[packing.tokens], 0.0)
        given = xp.exp(log_allowed - zero_if_infinite(log_p)[:, None])
        sources = (given - xp.exp(log_unary)) * weights[:, None]
        return BothMessages(potentials, packing, before, after).propagate(sources, sources, sources)

    return unpack(log_p, packing), backprop
