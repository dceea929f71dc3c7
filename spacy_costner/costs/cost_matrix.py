"""The user's own costs over labels: what it costs to answer one for another.

They are written as a block of the config, [gold][predicted], or in a CSV file: its first row
names the labels predicted, the first cell of every other row the gold label.

    gold,city,country,O
    city,0,1,5
    country,1,0,5
    O,2,2,0

The diagonal is 0 and may be left out.
"""

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Dict, List, Union

from ..validation import check_cost, check_names, without_repetition

MatrixSource = Union[str, Path, Dict[str, Dict[str, float]]]
"""A matrix as the config gives it: the path of a CSV file, or its rows."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """Costs over labels. A file is read when a cost is first asked of it.

    source (MatrixSource): The rows, or the path of a CSV file.
    where (str): What messages call it.
    """

    source: MatrixSource
    where: str

    @cached_property
    def rows(self) -> Dict[str, Dict[str, float]]:
        """The costs, [gold][predicted].

        RAISES (ValueError): If the file can't be read or holds no costs.
        """
        if isinstance(self.source, dict):
            return self.source
        rows = _read_rows(self.source, self.where)
        _check_rows(rows, self.where)
        return rows

    def cost(self, gold: str, predicted: str) -> float:
        """What a wrong label costs.

        gold (str): The gold label, or "O".
        predicted (str): The label predicted, or "O".
        RETURNS (float): The cost, 0 if they are the same.
        RAISES (ValueError): If the matrix doesn't say.
        """
        if gold == predicted:
            return 0.0
        try:
            return self.rows[gold][predicted]
        except KeyError:
            raise ValueError(
                f"{self.where}: expected what it costs to answer {predicted!r} for {gold!r}, "
                "found nothing"
            ) from None


def make_matrix(source: MatrixSource, where: str) -> Matrix:
    """Build a matrix. What the config itself says is checked at once, a file when it is read.

    source (MatrixSource): The rows, or the path of a CSV file.
    where (str): What messages call it.
    RETURNS (Matrix): The matrix.
    RAISES (ValueError): If a cost is wrong, or if a label is one that a config can't write
        and read again.
    """
    if not isinstance(source, dict):
        return Matrix(source, f"{where}: {source}")
    _check_rows(source, where)
    check_names(source, where)
    return Matrix(source, where)


def _check_rows(rows: Dict[str, Dict[str, float]], where: str) -> None:
    for gold, row in rows.items():
        for predicted, cost in row.items():
            check_cost(cost, f"{where}: {gold}.{predicted}")
        if row.get(gold, 0) != 0:
            raise ValueError(f"{where}: {gold}.{gold}: expected 0 (it is right), got {row[gold]!r}")


def _read_rows(path: Union[str, Path], where: str) -> Dict[str, Dict[str, float]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row] or [[]]
        predicted = rows[0][1:]
        return without_repetition(
            [(gold, _parse_row(gold, predicted, cells)) for gold, *cells in rows[1:]]
        )
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(
            f"{where}: expected a CSV file of costs, could not read it: {error}"
        ) from error


def _parse_row(gold: str, predicted: List[str], cells: List[str]) -> Dict[str, float]:
    """The costs of a gold label. Those of empty cells are left out."""
    if len(cells) != len(predicted):
        raise ValueError(f"row {gold!r}: expected {len(predicted)} costs, found {len(cells)}")
    return without_repetition(
        [(label, float(cell)) for label, cell in zip(predicted, cells) if cell]
    )
