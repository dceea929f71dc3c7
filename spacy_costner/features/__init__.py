"""Sparse features of tokens, from a template in the config."""

from .extractor import FeatureBatch, Features
from .lookup import WordCache
from .template import Template
