"""The training losses: potentials and gold in, value and gradient out.

One file a family. A loss returns the sum over the sequences of a batch, and its gradient
is the gradient of just that value. Each has a factory of its own, which checks its
parameters and which setup.cfg names.
"""

from .fscore import mce_f
from .likelihood import mixed, pointwise, sequential
from .margin import jensen_risk_bound, max_margin, risk, softmax_margin
from .mce import mce
from .perceptron import mira, perceptron
from .schedule import LossSchedule
from .zscore import zscore

__all__ = [
    "LossSchedule",
    "jensen_risk_bound",
    "max_margin",
    "mce",
    "mce_f",
    "mira",
    "mixed",
    "perceptron",
    "pointwise",
    "risk",
    "sequential",
    "softmax_margin",
    "zscore",
]
