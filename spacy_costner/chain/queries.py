"""Queries of the messages of a batch: messages are computed once for several queries."""

from functools import wraps
from typing import Any, Callable, Tuple, TypeVar, cast

from thinc.types import Floats1d

from ..compiled import compiled, form_of, native_of
from ..types import Potentials, ScoreWithVjp, add_to, map_scores
from .array import covariance, excluding, max_product, paths, segments, sum_product
from .array.log_domain import zero_if_infinite
from .validation import check_derivatives, check_potentials

QueryT = TypeVar("QueryT", bound=Callable[..., Any])

VjpWithDerivative = Tuple[Callable[[Floats1d], Potentials], Floats1d]
"""The callback that a query returned, and the derivative with respect to its values."""


class ForwardBackward(Potentials):
    """The distribution p(y) = exp(s(y)) / Z over the paths of each sequence. Its methods are
    functions of the potentials. The compiled form computes the messages once for all of them.

    potentials (Potentials): The scores of a batch.
    """

    def __new__(cls, potentials: Potentials) -> "ForwardBackward":
        return cls._make(potentials)

    expectation = covariance.expectation
    log_marginals = covariance.log_marginals
    log_partition = sum_product.log_partition
    log_partition_excluding = excluding.log_partition_excluding
    marginals = sum_product.marginals
    path_log_prob = paths.path_log_prob
    segment_log_probs = segments.segment_log_probs

    def backprop(self, *vjps: VjpWithDerivative) -> Potentials:
        """The sum of the gradients of several queries.

        *vjps (VjpWithDerivative): The callbacks, with the derivatives of their values.
        RETURNS (Potentials): The gradient.
        """
        return add_to(*(backprop(d_values) for backprop, d_values in vjps))


class MaxMessages(Potentials):
    """The best paths of each sequence. As `ForwardBackward`.

    potentials (Potentials): The scores of a batch.
    """

    def __new__(cls, potentials: Potentials) -> "MaxMessages":
        return cls._make(potentials)

    max_marginals = max_product.max_marginals
    segment_max_scores = segments.segment_max_scores


def forward_backward(potentials: Potentials) -> ForwardBackward:
    """Compute the forward and backward messages once, for several queries.

    potentials (Potentials): The scores of a batch.
    RETURNS (ForwardBackward): The distribution of paths.
    """
    return form_of(ForwardBackward, potentials)(potentials)


def max_messages(potentials: Potentials) -> MaxMessages:
    """Compute the max-product messages of both directions once, for several queries.

    potentials (Potentials): The scores of a batch.
    RETURNS (MaxMessages): The messages.
    """
    return form_of(MaxMessages, potentials)(potentials)


def query(messages: Callable[[Potentials], Any], method: QueryT) -> QueryT:
    """Make a function of a query of messages.

    messages (Callable): Takes potentials and returns an object that has the query as a method.
    method (Callable): The array code, taking potentials first.
    RETURNS (Callable): The same function.
    """
    if native_of("chain") is None:
        return method

    @wraps(method)
    def function(potentials: Potentials, *args: Any, **kwargs: Any) -> Any:
        return getattr(messages(potentials), method.__name__)(*args, **kwargs)

    return cast(QueryT, function)


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
