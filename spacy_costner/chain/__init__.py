"""Algorithms on linear chains: forward-backward, Viterbi, k-best, sampling, gradients.

Each function takes `Potentials`. Forbidden tags and transitions have the potential minus
infinity. A sequence without a legal path has the log partition function minus infinity and the
gradient 0. A sequence without tokens has the score 0.
"""

import warnings

from ..compiled import compiled, native_of
from . import array
from .array import Segments
from .constraints import Allowed, constrain, restrict, to_mask
from .queries import ForwardBackward, MaxMessages, entropy, forward_backward, max_messages, query

if native_of("chain") is None:
    warnings.warn(
        "spacy_costner runs without its compiled chain: training and decoding take 10 to 100 "
        "times as long in the CRF. Installed with a C++ compiler at hand, it builds it.",
        stacklevel=2,
    )

best_path = compiled(array.best_path)
best_path_excluding = compiled(array.best_path_excluding)
k_best = compiled(array.k_best)
path_score = compiled(array.path_score)
sample_paths = compiled(array.sample_paths)

expectation = query(forward_backward, ForwardBackward.expectation)
log_marginals = query(forward_backward, ForwardBackward.log_marginals)
log_partition = query(forward_backward, ForwardBackward.log_partition)
log_partition_excluding = query(forward_backward, ForwardBackward.log_partition_excluding)
marginals = query(forward_backward, ForwardBackward.marginals)
path_log_prob = query(forward_backward, ForwardBackward.path_log_prob)
segment_log_probs = query(forward_backward, ForwardBackward.segment_log_probs)

max_marginals = query(max_messages, MaxMessages.max_marginals)
segment_max_scores = query(max_messages, MaxMessages.segment_max_scores)


def set_threads(n_threads: int) -> None:
    """Distribute the sequences of each batch over threads; the default is one.

    Only compiled code does; a small batch uses fewer threads.

    n_threads (int): Maximum number of threads.
    RAISES (ValueError): If it is less than 1.
    """
    if n_threads < 1:
        raise ValueError(f"expected at least 1 thread, got {n_threads}")
    if native_of("chain") is not None:
        native_of("chain").set_threads(n_threads)


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
