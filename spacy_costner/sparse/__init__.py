"""Sparse weights: sums of rows, and updates of only the rows that a batch uses.

Compiled code (`native`) if it was built, otherwise array code (`arrays`).
"""

from . import arrays
from .merge import Merged, merge_equal
from .table import AdaGrad, Table

try:
    from . import native as form
except ImportError:  # the chain has warned already
    form = arrays  # type: ignore[misc]

IdMap = form.IdMap
gather_window = form.gather_window
sum_rows = form.sum_rows
collect_rows = form.collect_rows
add_rows = form.add_rows
lazy_regularise = form.lazy_regularise
adagrad = form.adagrad

__all__ = [
    "AdaGrad",
    "IdMap",
    "Merged",
    "Table",
    "adagrad",
    "add_rows",
    "collect_rows",
    "gather_window",
    "lazy_regularise",
    "merge_equal",
    "sum_rows",
]
