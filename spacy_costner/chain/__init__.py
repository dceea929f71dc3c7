"""The linear chain: every recursion, and nothing else.

Each function takes `Potentials` of NumPy or CuPy arrays. Forbidden steps score minus
infinity; a sequence without a legal path has the log partition minus infinity and the
gradient 0. Sequences without tokens score 0.
"""

from . import array as batched
from .array import Segments, k_best, pairwise_marginals, sample_paths
from .best_ways import BestWays, best_ways, max_marginals, segment_max_scores
from .compiled import compiled, set_threads
from .constraints import Allowed, constrain, restrict, truth_values
from .posterior import (
    Posterior,
    entropy,
    expectation,
    log_marginals,
    log_partition_outside,
    marginals_jvp,
    posterior,
    segment_log_probs,
)

best_outside = compiled(batched.best_outside)
best_path = compiled(batched.best_path)
log_partition = compiled(batched.log_partition)
marginals = compiled(batched.marginals)
path_log_prob = compiled(batched.path_log_prob)
path_score = compiled(batched.path_score)

__all__ = [
    "Allowed",
    "BestWays",
    "Posterior",
    "Segments",
    "best_outside",
    "best_path",
    "best_ways",
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
    "path_log_prob",
    "path_score",
    "posterior",
    "restrict",
    "sample_paths",
    "segment_log_probs",
    "segment_max_scores",
    "set_threads",
    "truth_values",
]
