"""The recursions as array code, for NumPy and CuPy alike: the readable form."""

from .max_product import best_path
from .paths import path_score
from .sum_product import log_partition, marginals, pairwise_marginals

__all__ = ["best_path", "log_partition", "marginals", "pairwise_marginals", "path_score"]
