"""Decoding of scores to predicted entities, and the probabilities of entities."""

from .decoders import (
    DecodedSpans,
    Decoding,
    DecodingSettings,
    by_label,
    make_threshold,
    make_viterbi,
    without_overlap,
)
from .min_cost import MinCost, make_min_cost
from .posterior import LEAST_PROB, LEAST_PROB_OF_SETS, Posterior, Temperature, temper

__all__ = [
    "LEAST_PROB",
    "LEAST_PROB_OF_SETS",
    "DecodedSpans",
    "Decoding",
    "DecodingSettings",
    "MinCost",
    "Posterior",
    "Temperature",
    "by_label",
    "make_min_cost",
    "make_threshold",
    "make_viterbi",
    "temper",
    "without_overlap",
]
