"""Scores, significance tests, calibration, risk guarantees and shift detection."""

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
