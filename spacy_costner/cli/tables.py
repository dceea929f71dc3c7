"""Format tables as Markdown or as text for the terminal."""

import sys
from collections.abc import Sequence
from typing import Literal

import numpy
import wasabi
from wasabi import MarkdownRenderer

Align = Literal["l", "r"]
"""The alignment of a column: left or right."""


def markdown_table(
    header: Sequence[object], rows: Sequence[Sequence[object]], *, align: bool = False
) -> str:
    """Format a table as Markdown. Floats are formatted with two decimal places.

    header (Sequence[object]): The names of the columns.
    rows (Sequence[Sequence[object]]): The rows of the table, without the header.
    align (bool): Whether to pad cells with spaces so that columns line up. In this case, all
        columns except the first are right-aligned.
    RETURNS (str): The Markdown table.
    """
    header_cells, *cells_of_rows = _as_text([header, *rows])
    if not align:
        # If there are no rows, wasabi adds an empty line.
        return MarkdownRenderer().table(cells_of_rows, header_cells).rstrip("\n")
    # In the line below the header, "--:" means right-aligned.
    rule = ["---", *["--:"] * (len(header) - 1)]
    # wasabi's Markdown renderer doesn't pad cells, so create a text table with columns of "|"
    # between the other columns.
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
    """Format a table for the terminal. All columns except the first are right-aligned. No colours
    are used, so the output is the same in a file."""
    aligns: list[Align] = ["l"]
    for _ in rows[0][1:]:
        aligns.append("r")
    return _aligned(_as_text(rows), aligns, spacing=2)


def number_or_dash(number: float | None, format_spec: str) -> str:
    """Format a number for a table. None is shown as "-".

    number (float | None): The number.
    format_spec (str): The format specification, such as ".4f".
    RETURNS (str): The formatted number.
    """
    if number is None:
        return "-"
    return format(number, format_spec)


def mean_and_deviation(numbers: Sequence[float], digits: int = 2) -> str:
    """Format the mean of numbers for a table. If there are several numbers, the sample standard
    deviation is appended, as in "81.20 ± 0.15".

    numbers (Sequence[float]): The numbers. There must be at least one.
    digits (int): The number of decimal places.
    RETURNS (str): The formatted mean and standard deviation.
    """
    mean = f"{numpy.mean(numbers):.{digits}f}"
    if len(numbers) < 2:
        return mean
    deviation = f"{numpy.std(numbers, ddof=1):.{digits}f}"
    return f"{mean} ± {deviation}"


def _as_text(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Convert all cells to strings. Floats are formatted with two decimal places."""
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
    """Pad cells with spaces, so that all cells in a column have the same width. `spacing` is the
    number of spaces between columns."""
    # By default, wasabi doesn't align cells with more than 30 characters.
    text = wasabi.table(rows, aligns=aligns, spacing=spacing, max_col=sys.maxsize)
    # Remove the empty lines that wasabi adds before and after the table, and trailing spaces.
    lines = [line.rstrip() for line in text[1:-1].split("\n")]
    return "\n".join(lines)
