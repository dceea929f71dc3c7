"""Max-product messages and their queries."""

from typing import Callable, NamedTuple, Tuple

from thinc.types import Floats2d

from ...types import Potentials
from .max_product import max_marginals
from .segments import Segments, segment_max_scores


class MaxMessages(NamedTuple):
    """The best paths of each sequence. The methods are the functions of the same name. The
    compiled form computes the messages once for all of them.

    potentials (Potentials): The scores of a batch.
    """

    potentials: Potentials

    def max_marginals(self) -> Floats2d:
        return max_marginals(self.potentials)

    def segment_max_scores(
        self, segments: Segments
    ) -> Tuple[Floats2d, Callable[[Floats2d], Potentials]]:
        return segment_max_scores(self.potentials, segments)
