"""Render pages, and format the numbers in them."""

import hashlib
import math
from base64 import b64encode
from datetime import date
from typing import Any

from .rendering import get_template


def render(template: str, **values: Any) -> str:
    """Render a template of this package as an HTML page.

    template (str): The name of the template.
    **values (Any): Its variables. Their values are escaped, but for those of type Markup.
    """
    filters = (number, percent, probability, cost_number, source_hash)
    page_template = get_template(template, *filters, autoescape=True)
    # Without settings, so that the keys of JSON stay in their order: by default Jinja sorts them.
    page_template.environment.policies["json.dumps_kwargs"] = {}
    html = page_template.render(today=date.today().isoformat(), **values)
    return f"{html.strip()}\n"


def source_hash(text: str) -> str:
    """The hash by which the Content-Security-Policy of a page allows its style sheet or script."""
    digest = hashlib.sha256(text.encode("utf8")).digest()
    return f"sha256-{b64encode(digest).decode()}"


def number(value: float | None, digits: int = 0) -> str:
    """Format a number with a thousands separator, None and NaN as a dash."""
    if value is None or math.isnan(value):
        return "\N{EN DASH}"
    return f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 2) -> str:
    """Format a share in percent, without the sign."""
    if share is None:
        return number(None)
    return number(100 * share, digits)


def probability(prob: float) -> str:
    """Format a probability in whole percent, with the sign. Only 0 and 1 become 0 % and 100 %:
    what would be rounded to them is "< 1 %" and "> 99 %"."""
    if 0 < prob < 0.005:
        return "< 1 %"
    if 0.995 <= prob < 1:
        return "> 99 %"
    return f"{percent(prob, 0)} %"


def cost_number(cost: float) -> str:
    """Format a cost: with two digits unless it is a whole number."""
    if float(cost).is_integer():
        return number(cost)
    return number(cost, digits=2)
