"""Algorithms on linear chains: forward-backward, Viterbi, k-best, sampling, gradients.

Most functions take `Potentials`. The potentials of forbidden tags and transitions are minus
infinity. For a sequence without a legal path, the log partition function is minus infinity and the
gradient is 0. For a sequence without tokens, the score is 0.
"""

from .constraints import Allowed, constrain, restrict, to_mask
from .queries import (
    BestPath,
    ForwardBackward,
    MaxMessages,
    Segments,
    any_path,
    best_of_tied,
    best_path,
    best_path_excluding,
    entity_probs,
    entropy,
    expectation,
    forward_backward,
    k_best,
    likely_entities,
    log_marginals,
    log_partition,
    log_partition_excluding,
    marginals,
    max_marginals,
    max_messages,
    path_log_prob,
    path_score,
    sample_paths,
    segment_log_probs,
    segment_max_scores,
    set_threads,
)
