"""The Thinc side: from docs to potentials, and from their gradient back."""

from .dense import build_linear_chain_crf
from .sparse import build_sparse_crf
from .weights import SparseWeights

__all__ = ["SparseWeights", "build_linear_chain_crf", "build_sparse_crf"]
