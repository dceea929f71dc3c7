"""The algorithms as array code: the reference for the compiled form."""

from .excluding import best_path_excluding
from .k_best import k_best
from .max_product import best_path
from .paths import path_log_prob, path_score
from .sampling import sample_paths
from .segments import Segments
from .sum_product import log_partition, marginals

__all__ = [
    "Segments",
    "best_path",
    "best_path_excluding",
    "k_best",
    "log_partition",
    "marginals",
    "path_log_prob",
    "path_score",
    "sample_paths",
]
