"""The recursions as array code, for NumPy and CuPy alike: the readable form."""

from .best_ways import BestWays
from .covariance import expectation, log_marginals
from .k_best import k_best
from .max_product import best_path, max_marginals
from .outside import best_outside, log_partition_outside
from .paths import path_log_prob, path_score
from .posterior import Posterior
from .sampling import sample_paths
from .segments import Segments, segment_log_probs, segment_max_scores
from .sum_product import log_partition, marginals, pairwise_marginals

__all__ = [
    "BestWays",
    "Posterior",
    "Segments",
    "best_outside",
    "best_path",
    "expectation",
    "k_best",
    "log_marginals",
    "log_partition",
    "log_partition_outside",
    "marginals",
    "max_marginals",
    "pairwise_marginals",
    "path_log_prob",
    "path_score",
    "sample_paths",
    "segment_log_probs",
    "segment_max_scores",
]
