"""The Python API for training, calibrating, evaluating and applying pipelines. Most commands have a
function with the same name. The command `vectors` corresponds to `learn_vectors`. The functions
return their results. The commands in `cli/` print the results and write HTML pages."""

from .apply.annotating import annotate
from .apply.batches import annotate_texts, load_annotator
from .calibration.guarantees import guarantee
from .calibration.observed_rates import observe
from .calibration.temperature import calibrate
from .calibration.tuning import tune
from .calibration.watching import watch
from .config.checks import check
from .config.initial_config import init
from .executors import local_processes
from .fitting.comparison import compare
from .fitting.fitting import fit
from .forecasting.forecasting import forecast
from .noisy_labels.auditing import audit
from .noisy_labels.corrections import apply_answers, suspect_to_task
from .noisy_labels.distillation import distill
from .ray_executor import ray_cluster
from .reports.explanation import explain
from .reports.reporting import report
from .sampling.drawing import draw
from .sampling.estimation import estimate
from .sampling.suggestions import suggest, suggest_first
from .vectors import learn_vectors

__all__ = [
    "annotate",
    "annotate_texts",
    "apply_answers",
    "audit",
    "calibrate",
    "check",
    "compare",
    "distill",
    "draw",
    "estimate",
    "explain",
    "fit",
    "forecast",
    "guarantee",
    "init",
    "learn_vectors",
    "load_annotator",
    "local_processes",
    "observe",
    "ray_cluster",
    "report",
    "suggest",
    "suggest_first",
    "suspect_to_task",
    "tune",
    "watch",
]
