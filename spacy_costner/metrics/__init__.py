"""Scores, significance tests, calibration, guarantees and tests for a shift."""

from .scores import (
    Difference,
    bootstrap,
    difference,
    f_beta,
    f_score,
    paired_differences,
    precision,
    ratio,
    recall,
)

__all__ = [
    "Difference",
    "bootstrap",
    "difference",
    "f_beta",
    "f_score",
    "paired_differences",
    "precision",
    "ratio",
    "recall",
]
