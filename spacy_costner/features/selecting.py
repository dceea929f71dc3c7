"""Make columns smaller for a saved model: leave out the values whose features have no weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Ints1d

from .column import Column, Selection


class PrunedColumns(NamedTuple):
    """Columns with only some of their values.

    columns (list[Column]): The columns, with the values that are kept.
    rows (Ints1d): For each of the V' features that are left, the row of weights that it had before.
        Shape: (V',)
    """

    columns: list[Column]
    rows: Ints1d


def select_values(columns: Sequence[Column], has_weights: Array1d) -> PrunedColumns:
    """Leave out the values whose features have no weights at any offset. The values that are left
    are found in docs as before.

    columns (Sequence[Column]): The columns. They aren't changed.
    has_weights (Array1d): Whether each row of weights has a weight other than 0. Shape: (V,)
    RETURNS (PrunedColumns): The columns with the values that are left.
    """
    # The rows of weights of each column, for each of its offsets and values. They are numbered as
    # `Lookup` numbers them. Shapes: (number of offsets, n_values)
    rows_of_column: dict[str, Ints1d] = {}
    first_row = 0
    for column in columns:
        shape = (len(column.offsets), column.n_values)
        n_rows = len(column.offsets) * column.n_values
        rows_of_column[column.name] = numpy.arange(first_row, first_row + n_rows).reshape(shape)
        first_row += n_rows

    # A value is needed if it has weights at any offset, or if a needed value of another column is
    # made of it. That column comes after this one, so the loop goes from the last column to the
    # first. Shapes: (n_values,)
    is_needed: dict[str, Array1d] = {}
    for column in columns:
        has_weights_at_offset = has_weights[rows_of_column[column.name]]
        is_needed[column.name] = has_weights_at_offset.any(axis=0)
    for column in reversed(columns):
        column.mark_needed(is_needed)

    # It grows column by column: a column that is made of earlier columns finds their new ids in it.
    selection = Selection(is_needed, ids={}, columns={})
    # The first array is empty, as there may be no columns.
    rows: list[Ints1d] = [numpy.zeros(0, dtype="int64")]
    for column in columns:
        ids = column.needed_ids(is_needed)
        selection.ids[column.name] = ids
        selection.columns[column.name] = column.select(selection)
        rows.append(rows_of_column[column.name][:, ids].reshape(-1))
    return PrunedColumns(list(selection.columns.values()), numpy.concatenate(rows))
