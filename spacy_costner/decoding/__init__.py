"""Decoding: from scores to predicted entities, and their probabilities."""

from .decoders import (
    DecodedSpans,
    Decoding,
    Settings,
    make_threshold,
    make_viterbi,
    without_overlap,
)
from .min_cost import MinCost, make_min_cost
from .posterior import LEAST, Posterior, Temperature, temper

__all__ = [
    "LEAST",
    "DecodedSpans",
    "Decoding",
    "MinCost",
    "Posterior",
    "Settings",
    "Temperature",
    "make_min_cost",
    "make_threshold",
    "make_viterbi",
    "temper",
    "without_overlap",
]
