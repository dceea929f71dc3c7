"""Cost matrices over labels, which the user gives.

A matrix is a block of the config, `[gold][predicted]`, or a CSV file. The first row of the file has
the predicted labels, the first cell of each other row the gold label:

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
"""A matrix as the config gives it: the path of a CSV file, or its rows."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A cost matrix over labels. A file is read when its first cost is needed.

    source (MatrixSource): The rows, or the path of a CSV file.
    where (str): The name of the matrix in error messages.
    """

    source: MatrixSource
    where: str

    @cached_property
    def rows(self) -> dict[str, dict[str, float]]:
        """The costs, `[gold][predicted]`. They are checked.

        RAISES (ValueError): If a file can't be read, or a cost is negative, not finite, too large
            for float32, or not 0 on the diagonal.
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
        """Return the cost of predicting a label instead of the gold label: 0 if they are the same.
        Either may be "O".

        RAISES (ValueError): If the matrix doesn't have the cost, or can't be read: see `rows`.
        """
        if gold == predicted:
            return 0.0
        try:
            return self.rows[gold][predicted]
        except KeyError:
            expected = f"a cost for gold {gold!r} and predicted {predicted!r}"
            raise ValueError(f"{self.where}: expected {expected}, got none") from None


def make_matrix(source: MatrixSource, where: str) -> Matrix:
    """Build a cost matrix. A block of the config is checked here. A file is checked later, when it
    is read: a pipeline has to load on a machine that doesn't have the file.

    source (MatrixSource): The rows, or the path of a CSV file.
    where (str): The name of the matrix in error messages. The path of a file is added to it.
    RAISES (ValueError): If a block has a wrong cost (see `Matrix.rows`), or a label that a config
        can't have as a name.
    """
    if not isinstance(source, dict):
        return Matrix(source, f"{where}: {source}")
    matrix = Matrix(source, where)
    rows = matrix.rows  # the property checks the costs when it is first read
    # The config is saved with the pipeline, and labels are names of blocks in it.
    check_config_names(rows, where)
    return matrix


def _read_rows(path: str | Path, where: str) -> dict[str, dict[str, float]]:
    """Read the costs of a CSV file, `[gold][predicted]`. An empty cell has no cost.

    RAISES (ValueError): If the file can't be read, a row has too few or too many cells, a cost is
        not a number, or a label comes twice.
    """
    try:
        # Excel begins a file with a byte order mark, which "utf-8-sig" skips.
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
        if not rows:
            return {}
        # The first cell, above the gold labels, is not read.
        _, *predicted_labels = rows[0]
        costs_of_labels = []  # pairs of a gold label and its costs
        for gold, *cells in rows[1:]:
            if len(cells) != len(predicted_labels):
                expected = f"expected {len(predicted_labels)} costs, got {len(cells)}"
                raise ValueError(f"row {gold!r}: {expected}")
            costs = []  # pairs of a predicted label and the cost
            for predicted, cell in zip(predicted_labels, cells):
                if cell:
                    costs.append((predicted, float(cell)))
            costs_of_labels.append((gold, without_repetition(costs)))
        return without_repetition(costs_of_labels)
    except (OSError, ValueError, csv.Error) as error:
        expected = "expected a CSV file of costs"
        raise ValueError(f"{where}: {expected}, but could not read it: {error}") from error
