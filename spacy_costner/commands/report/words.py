"""IdMap as the report writes them."""

import math
from typing import Optional


def number(value: Optional[float], digits: int = 0) -> str:
    """A number with thousands set apart; a dash for none.

    value (Optional[float]): The number.
    digits (int): Digits after the point.
    """
    return "\N{EN DASH}" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(share: Optional[float], digits: int = 2) -> str:
    """A share in percent, without the sign; a dash for none.

    share (Optional[float]): The share.
    digits (int): Digits after the point.
    """
    return number(None if share is None else 100 * share, digits)


def probability(prob: float) -> str:
    """A probability in percent, with the sign, and without digits that say nothing."""
    if 0 < prob < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= prob < 1 else f"{percent(prob, 0)} %"


def cost(value: float) -> str:
    """A cost: with two digits, if it is no whole number."""
    return number(value, 0 if float(value).is_integer() else 2)
