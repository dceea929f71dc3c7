"""User-defined cost matrices over labels.

A matrix is defined in a config block, `[gold][predicted]`, or in a CSV file. The first row of the
file contains the predicted labels, and the first cell of each other row the gold label:

    gold,city,country,O
    city,0,1,5
    country,1,0,5
    O,2,2,0

The diagonal is 0 and can be omitted.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from ..caching import cached_property
from ..validation import check_config_names, check_cost, without_repetition

MatrixSource = str | Path | dict[str, dict[str, float]]
"""The definition of a matrix in the config: the path to a CSV file, or the rows."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A cost matrix over labels. If it is defined in a file, the file is only read when it is
    needed.

    source (MatrixSource): The rows, or the path to a CSV file.
    where (str): The name of the matrix in error messages.
    """

    source: MatrixSource
    where: str

    @cached_property
    def rows(self) -> dict[str, dict[str, float]]:
        """The validated costs, `[gold][predicted]`.

        RAISES (ValueError): If a file can't be read, or if a cost is negative, not finite, too
            large for float32 or nonzero on the diagonal.
        """
        rows = self.source
        if not isinstance(rows, dict):
            rows = _read_rows(rows, self.where)
        for gold, row in rows.items():
            for predicted, cost in row.items():
                check_cost(cost, f"{self.where}: {gold}.{predicted}")
            if row.get(gold, 0) != 0:
                expected = "expected 0 on the diagonal"
                raise ValueError(f"{self.where}: {gold}.{gold}: {expected}, got {row[gold]!r}")
        return rows

    def cost(self, gold: str, predicted: str) -> float:
        """Return the cost of predicting a label, which is 0 if it is the gold label. Both labels
        can be "O".

        RAISES (ValueError): If the cost is missing or the matrix can't be read. See `rows`.
        """
        if gold == predicted:
            return 0.0
        try:
            return self.rows[gold][predicted]
        except KeyError:
            expected = f"a cost for gold {gold!r} and predicted {predicted!r}"
            raise ValueError(f"{self.where}: expected {expected}, got none") from None


def make_matrix(source: MatrixSource, where: str) -> Matrix:
    """Create a cost matrix. A config block is checked immediately. A file is only checked when it
    is read, because the pipeline must also load on machines without the file.

    source (MatrixSource): The rows, or the path to a CSV file.
    where (str): The name of the matrix in error messages. For a file, the path is appended.
    RAISES (ValueError): If a block contains an invalid cost (see `Matrix.rows`), or a label that is
        not a valid name in a config.
    """
    if not isinstance(source, dict):
        return Matrix(source, f"{where}: {source}")
    matrix = Matrix(source, where)
    rows = matrix.rows  # accessing the property checks the costs
    # The config is saved with the pipeline, and the labels are the names of its blocks.
    check_config_names(rows, where)
    return matrix


def _read_rows(path: str | Path, where: str) -> dict[str, dict[str, float]]:
    """Read the costs from a CSV file, `[gold][predicted]`. Empty cells are skipped.

    RAISES (ValueError): If the file can't be read, a row has the wrong number of cells, a cost is
        not a number, or there are duplicate labels.
    """
    try:
        # Excel writes a byte order mark, which "utf-8-sig" skips.
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
        if not rows:
            return {}
        # Ignore the first cell, above the gold labels.
        _, *predicted_labels = rows[0]
        costs_of_labels = []  # (gold label, costs) pairs
        for gold, *cells in rows[1:]:
            if len(cells) != len(predicted_labels):
                expected = f"expected {len(predicted_labels)} costs, got {len(cells)}"
                raise ValueError(f"row {gold!r}: {expected}")
            costs = []  # (predicted label, cost) pairs
            for predicted, cell in zip(predicted_labels, cells):
                if cell:
                    costs.append((predicted, float(cell)))
            costs_of_labels.append((gold, without_repetition(costs)))
        return without_repetition(costs_of_labels)
    except (OSError, ValueError, csv.Error) as error:
        expected = "expected a CSV file of costs"
        raise ValueError(f"{where}: {expected}, but could not read it: {error}") from error
