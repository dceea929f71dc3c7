"""Sparse features of tokens, from a template in the config."""

from .extractor import FeatureBatch, Features
from .template import Template

__all__ = ["FeatureBatch", "Features", "Template"]
