"""Write tables of results as text: in Markdown, or for the terminal."""

from collections.abc import Sequence

import numpy


def markdown_table(
    header: Sequence[object], rows: Sequence[Sequence[object]], *, align: bool = False
) -> str:
    """Write a table in Markdown. Floats have two digits after the point.

    header (Sequence[object]): The names of the columns.
    rows (Sequence[Sequence[object]]): The cells of the other rows.
    align (bool): Whether cells are filled with spaces, so that columns are straight. All columns
        but the first are then aligned to the right.
    """
    # In the line under the header, "--:" aligns a column to the right.
    rule = ["---"] * len(header)
    if align:
        rule[1:] = ["--:"] * (len(header) - 1)
    rows_of_cells = _as_text([header, rule, *rows])
    if align:
        rows_of_cells = _pad(rows_of_cells)
    lines: list[str] = []
    for cells in rows_of_cells:
        joined_cells = " | ".join(cells)
        lines.append(f"| {joined_cells} |")
    return "\n".join(lines)


def text_table(rows: Sequence[Sequence[object]]) -> str:
    """Write a table for the terminal. All columns but the first are right-aligned."""
    lines = ["  ".join(cells).rstrip() for cells in _pad(_as_text(rows))]
    return "\n".join(lines)


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


def _pad(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Fill cells with spaces, so that all cells of a column have the same width. The first column
    is aligned to the left, the others to the right."""
    columns = zip(*rows)
    widths = [max(len(cell) for cell in column) for column in columns]
    padded_rows: list[list[str]] = []
    for cells in rows:
        padded_cells = [cell.rjust(width) for cell, width in zip(cells, widths)]
        padded_cells[0] = cells[0].ljust(widths[0])
        padded_rows.append(padded_cells)
    return padded_rows
