"""Tables, in Markdown and for the terminal; results as JSON."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy


def markdown_table(
    header: Sequence[object], rows: Sequence[Sequence[object]], *, align: bool = False
) -> str:
    """Write a table in Markdown. Floats are written with two digits. `align` pads the cells, and
    right-aligns all columns but the first."""
    rule = ["---"] + ["--:" if align else "---"] * (len(header) - 1)
    lines = [[_text(cell) for cell in row] for row in (header, rule, *rows)]
    if align:
        lines = _padded(lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text_table(rows: Sequence[Sequence[object]]) -> str:
    """Write a table for the terminal. All columns but the first are right-aligned."""
    lines = _padded([[_text(cell) for cell in row] for row in rows])
    return "\n".join("  ".join(line).rstrip() for line in lines)


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """The mean and, if there are several values, their standard deviation, for a table."""
    mean = f"{numpy.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {numpy.std(values, ddof=1):.{digits}f}"


def as_json(value: Any) -> Any:
    """A result as JSON: named tuples as objects, arrays as lists, NaN and infinity as null."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): as_json(member) for name, member in value.items()}
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(member) for member in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def _text(cell: object) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows with the cells of a column padded to the same width. Numbers, to the right of the first
    column, end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    padded = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        padded.append(cells)
    return padded
