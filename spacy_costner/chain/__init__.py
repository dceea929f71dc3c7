"""Algorithms on linear chains: forward-backward, Viterbi, k-best, sampling, gradients.

Each function takes `Potentials`. Forbidden tags and transitions have the potential minus
infinity. A sequence without a legal path has the log partition function minus infinity and the
gradient 0. A sequence without tokens has the score 0.
"""

from . import array as batched
from .array import Segments
from .compiled import compiled, set_threads
from .constraints import Allowed, constrain, restrict, to_mask
from .forward_backward import (
    ForwardBackward,
    entropy,
    expectation,
    forward_backward,
    log_marginals,
    log_partition_excluding,
    segment_log_probs,
)
from .max_messages import MaxMessages, max_marginals, max_messages, segment_max_scores

best_path_excluding = compiled(batched.best_path_excluding)
best_path = compiled(batched.best_path)
k_best = compiled(batched.k_best)
log_partition = compiled(batched.log_partition)
marginals = compiled(batched.marginals)
path_log_prob = compiled(batched.path_log_prob)
path_score = compiled(batched.path_score)
sample_paths = compiled(batched.sample_paths)

__all__ = [
    "Allowed",
    "ForwardBackward",
    "MaxMessages",
    "Segments",
    "best_path",
    "best_path_excluding",
    "constrain",
    "entropy",
    "expectation",
    "forward_backward",
    "k_best",
    "log_marginals",
    "log_partition",
    "log_partition_excluding",
    "marginals",
    "max_marginals",
    "max_messages",
    "path_log_prob",
    "path_score",
    "restrict",
    "sample_paths",
    "segment_log_probs",
    "segment_max_scores",
    "set_threads",
    "to_mask",
]
