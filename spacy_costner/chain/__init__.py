"""The linear chain: every recursion, and nothing else.

Each function takes `Potentials` of NumPy or CuPy arrays. Forbidden steps score minus
infinity; a sequence without a legal path has the log partition minus infinity and the
gradient 0. Sequences without tokens score 0.
"""

from .batched import (
    Segments,
    best_outside,
    best_path,
    entropy,
    expectation,
    k_best,
    log_marginals,
    log_partition,
    log_partition_outside,
    marginals,
    marginals_jvp,
    max_marginals,
    pairwise_marginals,
    path_score,
    sample_paths,
    segment_log_probs,
    segment_max_scores,
)
from .constraints import constrain, restrict

__all__ = [
    "Segments",
    "best_outside",
    "best_path",
    "constrain",
    "entropy",
    "expectation",
    "k_best",
    "log_marginals",
    "log_partition",
    "log_partition_outside",
    "marginals",
    "marginals_jvp",
    "max_marginals",
    "pairwise_marginals",
    "path_score",
    "restrict",
    "sample_paths",
    "segment_log_probs",
    "segment_max_scores",
]
