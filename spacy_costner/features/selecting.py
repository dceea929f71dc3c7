"""Make columns smaller for saved models by removing values whose features have no weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Ints1d

from .column import Column, Selection


class PrunedColumns(NamedTuple):
    """Columns with only some of their values.

    columns (list[Column]): The columns, with the remaining values.
    rows (Ints1d): The original weight row of each of the V' remaining features. Shape: (V',)
    """

    columns: list[Column]
    rows: Ints1d


def select_values(columns: Sequence[Column], has_weights: Array1d) -> PrunedColumns:
    """Remove the values whose features have no weights at any offset. The remaining values are
    recognised in docs as before.

    columns (Sequence[Column]): The columns. They aren't modified.
    has_weights (Array1d): Whether each weight row has a nonzero weight. Shape: (V,)
    RETURNS (PrunedColumns): The columns with the remaining values.
    """
    # The weight rows of each column, by offset and value. The numbering is the same as in `Lookup`.
    # Shapes: (number of offsets, n_values)
    rows_of_column: dict[str, Ints1d] = {}
    first_row = 0
    for column in columns:
        shape = (len(column.offsets), column.n_values)
        n_rows = len(column.offsets) * column.n_values
        rows_of_column[column.name] = numpy.arange(first_row, first_row + n_rows).reshape(shape)
        first_row += n_rows

    # A value is needed if it has weights at any offset, or if a needed value of another column
    # depends on it. Columns only depend on earlier columns, so iterate in reverse order.
    # Shapes: (n_values,)
    is_needed: dict[str, Array1d] = {}
    for column in columns:
        has_weights_at_offset = has_weights[rows_of_column[column.name]]
        is_needed[column.name] = has_weights_at_offset.any(axis=0)
    for column in reversed(columns):
        column.mark_needed(is_needed)

    # This is filled in order, so that each column can look up the new ids of the columns it depends
    # on.
    selection = Selection(is_needed, ids={}, columns={})
    # Start with an empty array, because there may be no columns.
    rows: list[Ints1d] = [numpy.zeros(0, dtype="int64")]
    for column in columns:
        ids = column.needed_ids(is_needed)
        selection.ids[column.name] = ids
        selection.columns[column.name] = column.select(selection)
        rows.append(rows_of_column[column.name][:, ids].reshape(-1))
    return PrunedColumns(list(selection.columns.values()), numpy.concatenate(rows))
