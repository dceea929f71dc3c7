"""Thinc models that map docs to potentials and backpropagate the gradient."""

from .dense import build_linear_chain_crf
from .first_pass import FirstPass
from .hidden import HiddenLayer, HiddenLayerAlone, WithHiddenLayer
from .hybrid import build_hybrid_crf
from .sparse import (
    build_sparse_crf,
    find_features,
    first_pass_of,
    has_linear_part,
    hidden_layer_of,
    is_linear,
    linear_part,
    load_shims,
    trained_parts,
)
from .vector_inputs import VectorInputs
from .weights import SparseWeights, vector_inputs_of

__all__ = [
    "FirstPass",
    "HiddenLayer",
    "HiddenLayerAlone",
    "SparseWeights",
    "VectorInputs",
    "WithHiddenLayer",
    "build_hybrid_crf",
    "build_linear_chain_crf",
    "build_sparse_crf",
    "find_features",
    "first_pass_of",
    "has_linear_part",
    "hidden_layer_of",
    "is_linear",
    "linear_part",
    "load_shims",
    "trained_parts",
    "vector_inputs_of",
]
