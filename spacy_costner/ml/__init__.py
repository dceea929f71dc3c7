"""Thinc models: from docs to potentials, and backprop of their gradient."""

from .dense import build_linear_chain_crf
from .first_pass import FirstPass
from .hybrid import build_hybrid_crf
from .sparse import (
    build_sparse_crf,
    find_features,
    first_pass_of,
    has_linear_part,
    is_linear,
    linear_part,
)
from .vector_inputs import VectorInputs
from .weights import SparseWeights, inputs_of

__all__ = [
    "FirstPass",
    "SparseWeights",
    "VectorInputs",
    "build_hybrid_crf",
    "build_linear_chain_crf",
    "build_sparse_crf",
    "find_features",
    "first_pass_of",
    "has_linear_part",
    "inputs_of",
    "is_linear",
    "linear_part",
]
