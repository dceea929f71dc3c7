"""Sparse token features, based on a template in the config."""

from .extractor import FeatureBatch, Features
from .lookup import WordCache, WordSlots
from .static_vectors import (
    StaticVectors,
    VectorCoverage,
    check_vectors,
    measure_coverage,
    scaled_vectors,
)
from .template import Template
from .words import CHARACTER_TYPES
