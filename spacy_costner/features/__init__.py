"""Tokens to sparse features, from a template in the config."""

from .extractor import Features, Seen
from .template import Template, make_features

__all__ = ["Features", "Seen", "Template", "make_features"]
