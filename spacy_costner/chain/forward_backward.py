"""The distribution of paths and its queries, by compiled or array code."""

from typing import Union

from thinc.types import Floats1d

from ..types import Potentials, ScoreWithVjp, map_scores
from . import array as batched
from .array.log_domain import zero_if_infinite
from .compiled import compiled, form_of, native, query
from .validation import check_derivatives, check_potentials

ForwardBackward = Union["native.ForwardBackward", batched.ForwardBackward]


def forward_backward(potentials: Potentials) -> ForwardBackward:
    """Compute the forward and backward messages once, for several queries.

    potentials (Potentials): The scores of a batch.
    RETURNS (ForwardBackward): The distribution p(y) = exp(s(y)) / Z over the paths of each
        sequence. Its methods are `log_partition` and the functions of this module, without
        the potentials.
    """
    return form_of(batched.ForwardBackward, potentials)(potentials)


expectation = query(forward_backward, batched.expectation)
log_marginals = query(forward_backward, batched.log_marginals)
log_partition_excluding = query(forward_backward, batched.log_partition_excluding)
segment_log_probs = query(forward_backward, batched.segment_log_probs)


@compiled
def entropy(potentials: Potentials) -> ScoreWithVjp:
    """The entropy of the distribution of paths.

        -E_p[log p(y)] = log Z - E_p[s(y)]

    potentials (Potentials): The scores of a batch.
    RETURNS (ScoreWithVjp): The entropies in nats, 0 for a sequence without a legal path; and the
        callback to their gradient, minus the covariance of the features times the potentials.
        Shape: (B,)
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
