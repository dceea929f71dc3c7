"""Write tables of results as text: in Markdown, or for the terminal."""

from collections.abc import Sequence

import numpy


def markdown_table(
    header: Sequence[object], rows: Sequence[Sequence[object]], *, align: bool = False
) -> str:
    """Write a table in Markdown. Floats are written with two digits.

    header (Sequence[object]): The names of the columns.
    rows (Sequence[Sequence[object]]): The cells of the other rows.
    align (bool): Whether cells are filled with spaces, so that columns are straight. All columns
        but the first are then aligned to the right.
    """
    # The line under the header: "--:" aligns a column to the right.
    rule = ["---"] * len(header)
    if align:
        rule[1:] = ["--:"] * (len(header) - 1)
    lines = _as_text([header, rule, *rows])
    if align:
        lines = _pad(lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def text_table(rows: Sequence[Sequence[object]]) -> str:
    """Write a table for the terminal. All columns but the first are right-aligned."""
    lines = _pad(_as_text(rows))
    return "\n".join("  ".join(cells).rstrip() for cells in lines)


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
    """Turn all cells into text. Floats are written with two digits."""
    lines: list[list[str]] = []
    for row in rows:
        cells: list[str] = []
        for cell in row:
            if isinstance(cell, float):
                cells.append(f"{cell:.2f}")
            else:
                cells.append(str(cell))
        lines.append(cells)
    return lines


def _pad(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Fill cells with spaces, so that all cells of a column have the same width. The first column
    is aligned to the left, the others to the right."""
    columns = zip(*lines)
    widths = [max(len(cell) for cell in column) for column in columns]
    padded_lines: list[list[str]] = []
    for cells in lines:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths)]
        padded[0] = cells[0].ljust(widths[0])
        padded_lines.append(padded)
    return padded_lines
