"""The training losses: potentials and gold in, value and gradient out.

One file a family. A loss returns the sum over the sequences of a batch, and its gradient
is the gradient of just that value. Each has a factory of its own, which checks its
parameters and which setup.cfg names.
"""

from .likelihood import sequential
from .margin import softmax_margin

__all__ = ["sequential", "softmax_margin"]
