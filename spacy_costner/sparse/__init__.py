"""Sparse weights: sums of rows, and updates of only the rows that a batch uses."""

from typing import TYPE_CHECKING

from ..compiled import compiled, form_of
from . import arrays
from .merge import Merged, merge_equal
from .table import AdaGrad, Table

if TYPE_CHECKING:
    from .arrays import IdMap
else:
    IdMap = form_of(arrays.IdMap)
gather_window = compiled(arrays.gather_window)
sum_rows = compiled(arrays.sum_rows)
collect_rows = compiled(arrays.collect_rows)
add_rows = compiled(arrays.add_rows)
lazy_regularise = compiled(arrays.lazy_regularise)
adagrad = compiled(arrays.adagrad)

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
