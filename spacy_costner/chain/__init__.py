"""Algorithms on linear chains: forward-backward, Viterbi, k-best, sampling, gradients.

Most functions take `Potentials`. Forbidden tags and transitions have the potential minus infinity.
A sequence without a legal path has the log partition function minus infinity and the gradient 0. A
sequence without tokens has the score 0.
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
