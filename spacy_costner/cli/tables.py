"""Tables, in Markdown and for the terminal."""

from collections.abc import Sequence

import numpy


def markdown_table(
    header: Sequence[object], rows: Sequence[Sequence[object]], *, align: bool = False
) -> str:
    """Write a table in Markdown. Floats are written with two digits. `align` pads the cells, and
    right-aligns all columns but the first."""
    rule_of_column = "--:" if align else "---"
    rule = ["---", *[rule_of_column] * (len(header) - 1)]
    lines = _as_text([header, rule, *rows])
    if align:
        lines = _pad(lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def text_table(rows: Sequence[Sequence[object]]) -> str:
    """Write a table for the terminal. All columns but the first are right-aligned."""
    lines = _pad(_as_text(rows))
    return "\n".join("  ".join(cells).rstrip() for cells in lines)


def mean_and_deviation(numbers: Sequence[float], digits: int = 2) -> str:
    """The mean and, if there are several numbers, their standard deviation, for a table."""
    mean = f"{numpy.mean(numbers):.{digits}f}"
    if len(numbers) < 2:
        return mean
    return f"{mean} ± {numpy.std(numbers, ddof=1):.{digits}f}"


def _as_text(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """The cells as text, floats with two digits."""
    lines: list[list[str]] = []
    for row in rows:
        lines.append([f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row])
    return lines


def _pad(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells, as wide as their columns. The first column is left-aligned, the others right."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    padded: list[list[str]] = []
    for cells in lines:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths)]
        aligned[0] = cells[0].ljust(widths[0])
        padded.append(aligned)
    return padded
