"""The functions that people call from Python: to train pipelines, calibrate them, make promises
about them and more. Most commands have a function of the same name here; that of `vectors` is
`learn_vectors`. Functions compute and return results. Printing and pages are left to the commands
in `cli/`."""

from .annotating import annotate, annotate_texts
from .auditing import audit
from .calibration import calibrate
from .checks import check
from .comparison import compare
from .distillation import distill
from .drawing import draw
from .estimation import estimate
from .explanation import explain
from .fitting import fit
from .guarantees import guarantee
from .initial_config import init
from .reporting import report
from .suggestions import suggest, suggest_first
from .tuning import tune
from .vectors import learn_vectors
from .watching import watch

__all__ = [
    "annotate",
    "annotate_texts",
    "audit",
    "calibrate",
    "check",
    "compare",
    "distill",
    "draw",
    "estimate",
    "explain",
    "fit",
    "guarantee",
    "init",
    "learn_vectors",
    "report",
    "suggest",
    "suggest_first",
    "tune",
    "watch",
]
