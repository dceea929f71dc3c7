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
    rule = ["---", *["--:" if align else "---"] * (len(header) - 1)]
    lines = [[_text(cell) for cell in line] for line in (header, rule, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (_padded(lines) if align else lines))


def text_table(rows: Sequence[Sequence[object]]) -> str:
    """Write a table for the terminal. All columns but the first are right-aligned."""
    lines = _padded([[_text(cell) for cell in row] for row in rows])
    return "\n".join("  ".join(line).rstrip() for line in lines)


def mean_and_deviation(values: Sequence[float], digits: int = 2) -> str:
    """The mean and, if there are several values, their standard deviation, for a table."""
    deviation = f" ± {numpy.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{numpy.mean(values):.{digits}f}{deviation}"


def as_json(value: Any) -> Any:
    """A result as JSON: named tuples, and what has `to_dict`, as objects, arrays as lists, NaN and
    infinity as null."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def to_percent(share: float, place: int) -> str:
    """The label of a tick of an axis of shares."""
    return f"{100 * share:.4g}"


def _text(cell: object) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _padded(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*lines)]
    rights = [[cell.rjust(n) for cell, n in zip(line, widths)] for line in lines]
    return [[line[0].ljust(widths[0]), *right[1:]] for line, right in zip(lines, rights)]
