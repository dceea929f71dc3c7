"""The distribution of paths, to be asked several things."""

from typing import Callable, NamedTuple, Tuple

from thinc.types import Array2d, Floats1d

from ...types import Potentials, Scored
from .covariance import expectation, log_marginals
from .outside import log_partition_outside
from .segments import Segments, segment_log_probs
from .sum_product import log_partition

OfEach = Tuple[Floats1d, Callable[[Floats1d], Potentials]]
"""As `Scored`, but one number a token or a segment."""


class Posterior(NamedTuple):
    """The distribution p(y) = exp(s(y)) / Z over the paths of each sequence. The questions are
    the functions of the same name; the compiled form runs the messages once for all of them.

    potentials (Potentials): The scores of a batch.
    """

    potentials: Potentials

    def log_partition(self) -> Scored:
        return log_partition(self.potentials)

    def log_marginals(self, allowed: Array2d) -> OfEach:
        return log_marginals(self.potentials, allowed)

    def expectation(self, values: Potentials) -> Scored:
        return expectation(self.potentials, values)

    def log_partition_outside(self, allowed: Array2d) -> Scored:
        return log_partition_outside(self.potentials, allowed)

    def segment_log_probs(self, segments: Segments) -> OfEach:
        return segment_log_probs(self.potentials, segments)
