"""The algorithms as array code: the reference for the compiled form."""

from .covariance import expectation, log_marginals
from .excluding import best_path_excluding, log_partition_excluding
from .k_best import k_best
from .max_product import best_path, max_marginals
from .paths import path_log_prob, path_score
from .sampling import sample_paths
from .segments import Segments, segment_log_probs, segment_max_scores
from .sum_product import log_partition, marginals

__all__ = [
    "Segments",
    "best_path",
    "best_path_excluding",
    "expectation",
    "k_best",
    "log_marginals",
    "log_partition",
    "log_partition_excluding",
    "marginals",
    "max_marginals",
    "path_log_prob",
    "path_score",
    "sample_paths",
    "segment_log_probs",
    "segment_max_scores",
]
