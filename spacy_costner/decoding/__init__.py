"""Decoding: from scores to predicted entities, and their probabilities."""

from .decoders import (
    DecodedSpans,
    Decoding,
    Settings,
    make_threshold,
    make_viterbi,
    of_labels,
    without_overlap,
)
from .min_cost import MinCost, make_min_cost
from .posterior import FINEST, LEAST, Posterior, Temperature, temper

__all__ = [
    "FINEST",
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
    "of_labels",
    "temper",
    "without_overlap",
]
