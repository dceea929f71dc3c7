"""Scores, significance tests, and tables of scores."""

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
from .table import as_json, markdown_table, mean_and_deviation, text_table, to_percent

__all__ = [
    "Difference",
    "as_json",
    "bootstrap",
    "difference",
    "f_beta",
    "f_score",
    "markdown_table",
    "mean_and_deviation",
    "paired_differences",
    "precision",
    "ratio",
    "recall",
    "text_table",
    "to_percent",
]
