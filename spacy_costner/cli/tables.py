"""Write tables of results as text: in Markdown, or for the terminal."""

import sys
from collections.abc import Sequence
from typing import Literal

import numpy
import wasabi
from wasabi import MarkdownRenderer

Align = Literal["l", "r"]
"""How a column is aligned: to the left or to the right."""


def markdown_table(
    header: Sequence[object], rows: Sequence[Sequence[object]], *, align: bool = False
) -> str:
    """Write a table in Markdown. Floats have two digits after the point.

    header (Sequence[object]): The names of the columns.
    rows (Sequence[Sequence[object]]): The cells of the other rows.
    align (bool): Whether cells are filled with spaces, so that columns are straight. All columns
        but the first are then aligned to the right.
    """
    header_cells, *cells_of_rows = _as_text([header, *rows])
    if not align:
        # Without rows, wasabi ends the table with an empty line.
        return MarkdownRenderer().table(cells_of_rows, header_cells).rstrip("\n")
    # In the line under the header, "--:" aligns a column to the right.
    rule = ["---", *["--:"] * (len(header) - 1)]
    # The renderer of wasabi doesn't fill cells. So this is a table for the terminal, which has
    # columns of "|" between the other columns.
    lines_of_cells: list[list[str]] = []
    for cells in [header_cells, rule, *cells_of_rows]:
        line = ["|"]
        for cell in cells:
            line += [cell, "|"]
        lines_of_cells.append(line)
    aligns: list[Align] = ["l", "l", "l"]
    for _ in header[1:]:
        aligns += ["r", "l"]
    return _aligned(lines_of_cells, aligns, spacing=1)


def text_table(rows: Sequence[Sequence[object]]) -> str:
    """Write a table for the terminal. All columns but the first are right-aligned. It has no
    colours, so that it is the same in a file."""
    aligns: list[Align] = ["l"]
    for _ in rows[0][1:]:
        aligns.append("r")
    return _aligned(_as_text(rows), aligns, spacing=2)


def number_or_dash(number: float | None, format_spec: str) -> str:
    """Format a number for a table. None becomes "-".

    format_spec (str): The second argument of `format`, such as ".4f".
    """
    if number is None:
        return "-"
    return format(number, format_spec)


def mean_and_deviation(numbers: Sequence[float], digits: int = 2) -> str:
    """Write the mean of numbers for a table, followed by their standard deviation if there are
    several: "81.20 ± 0.15".

    digits (int): The number of digits after the point.
    """
    mean = f"{numpy.mean(numbers):.{digits}f}"
    if len(numbers) < 2:
        return mean
    deviation = f"{numpy.std(numbers, ddof=1):.{digits}f}"
    return f"{mean} ± {deviation}"


def _as_text(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Turn all cells into text. Floats have two digits after the point."""
    text_rows: list[list[str]] = []
    for row in rows:
        cells: list[str] = []
        for cell in row:
            if isinstance(cell, float):
                cells.append(f"{cell:.2f}")
            else:
                cells.append(str(cell))
        text_rows.append(cells)
    return text_rows


def _aligned(rows: Sequence[Sequence[str]], aligns: Sequence[Align], spacing: int) -> str:
    """Fill cells with spaces, so that all cells of a column have the same width. The spacing is the
    number of spaces between two columns."""
    # By default wasabi doesn't align cells that are longer than 30 characters.
    text = wasabi.table(rows, aligns=aligns, spacing=spacing, max_col=sys.maxsize)
    # wasabi puts an empty line before and after the table. A row may end with empty cells.
    lines = [line.rstrip() for line in text[1:-1].split("\n")]
    return "\n".join(lines)
