"""Format numbers and marked texts in HTML pages. The functions are used as template filters."""

import math
from collections.abc import Iterable
from typing import TypeVar

MarkT = TypeVar("MarkT", bound=tuple)
"""A tuple that starts with the first character of a marked entity and the character after it."""


def number(value: float | None, digits: int = 0) -> str:
    """Format a number with a thousands separator. None and NaN are formatted as a dash.

    digits (int): The number of decimal places.
    """
    if value is None or math.isnan(value):
        return "\N{EN DASH}"
    return f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 2) -> str:
    """Format a proportion between 0 and 1 as a percentage without the percent sign."""
    if share is None:
        return number(None)
    return number(100 * share, digits)


def probability(prob: float) -> str:
    """Format a probability as a rounded percentage with a percent sign. Probabilities of at least
    0.995 but less than 1 are formatted as "> 99 %". Probabilities of at most 0.005 but greater than
    0 are formatted as "< 1 %"."""
    half_percent = 0.005
    if 0 < prob <= half_percent:
        return "< 1 %"
    if 1 - half_percent <= prob < 1:
        return "> 99 %"
    return f"{percent(prob, digits=0)} %"


def cost_number(cost: float) -> str:
    """Format a cost with two decimal places, or with none if it is a whole number."""
    if float(cost).is_integer():
        return number(cost)
    return number(cost, digits=2)


def without_overlap(marks: Iterable[MarkT]) -> list[list[MarkT]]:
    """Divide the marks of a text into as few lists as possible, so that the marks of a list don't
    overlap. Without marks, a single empty list is returned.

    marks (Iterable[MarkT]): The marks, sorted by their start.
    """
    lines: list[list[MarkT]] = [[]]
    for mark in marks:
        start = mark[0]
        for line in lines:
            if not line or line[-1][1] <= start:
                line.append(mark)
                break
        else:
            lines.append([mark])
    return lines
