"""The distribution of paths and what can be asked of it, by compiled or by array code."""

from typing import Union

from thinc.types import Floats1d

from ..types import Potentials, ScoreWithVjp, map_scores
from . import array as batched
from .array.log_domain import zero_if_infinite
from .compiled import is_used_for, native, query
from .validation import check_derivatives, check_potentials

ForwardBackward = Union["native.ForwardBackward", batched.ForwardBackward]


def forward_backward(potentials: Potentials) -> ForwardBackward:
    """Run the messages of both sides, once for all that is to be asked.

    potentials (Potentials): The scores of a batch.
    RETURNS (ForwardBackward): p(y) = exp(s(y)) / Z over the paths of each sequence. Its methods are
        the functions of this module that have their name, and `log_partition`.
    """
    if is_used_for(potentials):
        return native.ForwardBackward(potentials)
    return batched.ForwardBackward(potentials)


expectation = query(forward_backward, batched.expectation)
log_marginals = query(forward_backward, batched.log_marginals)
log_partition_excluding = query(forward_backward, batched.log_partition_excluding)
segment_log_probs = query(forward_backward, batched.segment_log_probs)


def entropy(potentials: Potentials) -> ScoreWithVjp:
    """How uncertain the path is.

        -E_p[log p(y)] = log Z - E_p[s(y)]

    potentials (Potentials): The scores of a batch.
    RETURNS (ScoreWithVjp): The entropies in nats, 0 for a sequence without a legal path; and the
        callback to their gradient, which is the covariance of the features times the
        potentials, negative. Shape: (B,)
    """
    check_potentials(potentials)
    dtype = potentials.emissions.dtype
    exact = map_scores(lambda scores: scores.astype("float64"), potentials)
    paths = forward_backward(exact)
    log_z, (mean_score, backprop_mean) = paths.log_partition()[0], paths.expectation(exact)

    def backprop(d_entropy: Floats1d) -> Potentials:
        check_derivatives(d_entropy, log_z.shape)
        return map_scores(lambda scores: scores.astype(dtype), backprop_mean(-d_entropy))

    return zero_if_infinite(log_z) - mean_score, backprop
