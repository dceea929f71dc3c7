"""What people call from Python: training, calibration, promises and more, as functions of
pipelines and docs. Nothing here prints, and no page is made; the commands of `cli/` do that."""

from .annotate import annotate, annotate_texts
from .audit import audit
from .calibrate import calibrate
from .check import check
from .compare import compare
from .distill import distill
from .explain import explain
from .fit import fit
from .guarantee import guarantee
from .init import init
from .report import report
from .suggest import suggest
from .tune import tune
from .watch import watch

__all__ = [
    "annotate",
    "annotate_texts",
    "audit",
    "calibrate",
    "check",
    "compare",
    "distill",
    "explain",
    "fit",
    "guarantee",
    "init",
    "report",
    "suggest",
    "tune",
    "watch",
]
