"""Sparse features of tokens, from a template in the config."""

from .extractor import FeatureBatch, Features, TokenValues
from .template import Template, make_features

__all__ = ["FeatureBatch", "Features", "Template", "TokenValues", "make_features"]
