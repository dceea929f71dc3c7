"""The linear chain: every recursion, and nothing else.

Each function takes `Potentials` of NumPy or CuPy arrays. Forbidden steps score minus
infinity; a sequence without a legal path has the log partition minus infinity and the
gradient 0. Sequences without tokens score 0.
"""

from .batched import best_path, log_partition, marginals, pairwise_marginals, path_score
from .constraints import constrain, restrict

__all__ = [
    "best_path",
    "constrain",
    "log_partition",
    "marginals",
    "pairwise_marginals",
    "path_score",
    "restrict",
]
