"""The functions that people call from Python: to train pipelines, calibrate them, make promises
about them and more. Most commands have a function of the same name here; that of `vectors` is
`learn_vectors`. Functions compute and return results. Printing and pages are left to the commands
in `cli/`."""

from .apply.annotating import annotate, annotate_texts
from .calibration.guarantees import guarantee
from .calibration.temperature import calibrate
from .calibration.tuning import tune
from .calibration.watching import watch
from .config.checks import check
from .config.initial_config import init
from .fitting.comparison import compare
from .fitting.fitting import fit
from .noisy_labels.auditing import audit
from .noisy_labels.distillation import distill
from .reports.explanation import explain
from .reports.reporting import report
from .sampling.drawing import draw
from .sampling.estimation import estimate
from .sampling.suggestions import suggest, suggest_first
from .vectors import learn_vectors

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
