"""Sparse weights: compute sums of rows and update only the rows used by a batch."""

from .merge import Merged, merge_equal
from .native import (
    IdMap,
    adagrad,
    add_rows,
    average,
    collect_rows,
    gather_window,
    lazy_regularise,
    multiply_rows,
    sum_rows,
)
from .table import AdaGrad, Table

__all__ = [
    "AdaGrad",
    "IdMap",
    "Merged",
    "Table",
    "adagrad",
    "add_rows",
    "average",
    "collect_rows",
    "gather_window",
    "lazy_regularise",
    "merge_equal",
    "multiply_rows",
    "sum_rows",
]
