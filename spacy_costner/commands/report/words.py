"""Format numbers for the report."""

import math
from typing import Optional


def number(value: Optional[float], digits: int = 0) -> str:
    """Format a number with a thousands separator, None and NaN as a dash.

    value (Optional[float]): The number.
    digits (int): Digits after the point.
    """
    return "\N{EN DASH}" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(share: Optional[float], digits: int = 2) -> str:
    """Format a share in percent, without the sign.

    share (Optional[float]): The share.
    digits (int): Digits after the point.
    """
    return number(None if share is None else 100 * share, digits)


def probability(prob: float) -> str:
    """Format a probability in percent, with the sign."""
    if 0 < prob < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= prob < 1 else f"{percent(prob, 0)} %"


def cost(value: float) -> str:
    """Format a cost: with two digits unless it is a whole number."""
    return number(value, 0 if float(value).is_integer() else 2)
