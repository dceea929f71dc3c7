"""The distribution of paths and its queries."""

from typing import Callable, NamedTuple, Tuple

from thinc.types import Floats1d

from ...types import Potentials, ScoreWithVjp, add_to
from ..constraints import Allowed
from .covariance import expectation, log_marginals
from .excluding import log_partition_excluding
from .segments import Segments, segment_log_probs
from .sum_product import log_partition

ValuesWithVjp = Tuple[Floats1d, Callable[[Floats1d], Potentials]]
"""As `ScoreWithVjp`, with one value a token or a segment."""

VjpWithDerivative = Tuple[Callable[[Floats1d], Potentials], Floats1d]
"""The callback that a query returned, and the derivative with respect to its values."""


class ForwardBackward(NamedTuple):
    """The distribution p(y) = exp(s(y)) / Z over the paths of each sequence. Its methods are the
    functions of the same name. The compiled form computes the messages once for all of them.

    potentials (Potentials): The scores of a batch.
    """

    potentials: Potentials

    def backprop(self, *vjps: VjpWithDerivative) -> Potentials:
        """The sum of the gradients of several queries.

        *vjps (VjpWithDerivative): The callbacks, with the derivatives of their values.
        RETURNS (Potentials): The gradient.
        """
        return add_to(*(backprop(d_values) for backprop, d_values in vjps))

    def log_partition(self) -> ScoreWithVjp:
        return log_partition(self.potentials)

    def log_marginals(self, allowed: Allowed) -> ValuesWithVjp:
        return log_marginals(self.potentials, allowed)

    def expectation(self, values: Potentials) -> ScoreWithVjp:
        return expectation(self.potentials, values)

    def log_partition_excluding(self, allowed: Allowed) -> ScoreWithVjp:
        return log_partition_excluding(self.potentials, allowed)

    def segment_log_probs(self, segments: Segments) -> ValuesWithVjp:
        return segment_log_probs(self.potentials, segments)
