"""Scores, significance tests, calibration, guarantees and tests for a shift."""

from .scores import (
    Difference,
    ScoreIntervals,
    bootstrap,
    bootstrap_intervals,
    difference,
    f_beta,
    f_score,
    logistic,
    paired_differences,
    precision,
    ratio,
    recall,
)

__all__ = [
    "Difference",
    "ScoreIntervals",
    "bootstrap",
    "bootstrap_intervals",
    "difference",
    "f_beta",
    "f_score",
    "logistic",
    "paired_differences",
    "precision",
    "ratio",
    "recall",
]
