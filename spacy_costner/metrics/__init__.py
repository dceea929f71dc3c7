"""Scores from counts, whether their differences may be chance, and tables of them."""

from .bootstrap import Difference, bootstrap, difference, paired_differences
from .f_score import f_score, precision, ratio, recall
from .table import markdown_table, mean_and_deviation

__all__ = [
    "Difference",
    "bootstrap",
    "difference",
    "f_score",
    "markdown_table",
    "mean_and_deviation",
    "paired_differences",
    "precision",
    "ratio",
    "recall",
]
