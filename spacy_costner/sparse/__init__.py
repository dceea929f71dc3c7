"""Sparse rows of weights: adding them up, and steps that touch only what a batch has to do with.

Compiled where there was a compiler (`native`), array code elsewhere (`arrays`).
"""

from . import arrays
from .merge import Merged, merge_equal
from .table import AdaGrad, Table

try:
    from . import native as form
except ImportError:  # the chain has warned already
    form = arrays  # type: ignore[misc]

Numbers = form.Numbers
look_around = form.look_around
sum_rows = form.sum_rows
collect_rows = form.collect_rows
add_rows = form.add_rows
catch_up = form.catch_up
adagrad = form.adagrad

__all__ = [
    "AdaGrad",
    "Merged",
    "Numbers",
    "Table",
    "adagrad",
    "add_rows",
    "catch_up",
    "collect_rows",
    "look_around",
    "merge_equal",
    "sum_rows",
]
