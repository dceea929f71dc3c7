"""Render HTML pages from templates. Templates call the functions of this file to format numbers."""

import math


def number(value: float | None, digits: int = 0) -> str:
    """Format a number with a thousands separator. None and NaN become a dash.

    digits (int): The number of digits after the point.
    """
    if value is None or math.isnan(value):
        return "\N{EN DASH}"
    return f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 2) -> str:
    """Format a share, a number from 0 to 1, in percent without the sign %."""
    if share is None:
        return number(None)
    return number(100 * share, digits)


def probability(prob: float) -> str:
    """Format a probability in whole percent, with the sign %. Only exactly 1 is "100 %": others
    from 0.995 on become "> 99 %". Those up to 0.005 become "< 1 %", except exactly 0."""
    half_percent = 0.005
    if 0 < prob <= half_percent:
        return "< 1 %"
    if 1 - half_percent <= prob < 1:
        return "> 99 %"
    return f"{percent(prob, digits=0)} %"


def cost_number(cost: float) -> str:
    """Format a cost with two digits after the point, or with none if it is a whole number."""
    if float(cost).is_integer():
        return number(cost)
    return number(cost, digits=2)
