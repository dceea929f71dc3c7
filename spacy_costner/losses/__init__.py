"""The training losses: potentials and gold in, value and gradient out.

One file per family. A loss returns the sum over the sequences of a batch, and the gradient of
exactly this value. Each loss has a factory, which checks its parameters and which setup.cfg names.
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
