"""Render HTML pages from templates. Templates call the functions of this file to format numbers."""

import hashlib
import math
from base64 import b64encode
from datetime import date
from typing import Any

from .rendering import get_template


def render(template: str, **values: Any) -> str:
    """Render a template of this package as an HTML page.

    template (str): The file name of the template.
    **values (Any): The variables of the template. They are escaped, except those of type Markup.
    RETURNS (str): The page.
    """
    filters = (number, percent, probability, cost_number, source_hash)
    page_template = get_template(template, *filters, autoescape=True)
    # By default Jinja's filter `tojson` sorts keys. Here they keep their order.
    page_template.environment.policies["json.dumps_kwargs"] = {}
    html = page_template.render(today=date.today().isoformat(), **values)
    return f"{html.strip()}\n"


def source_hash(text: str) -> str:
    """The hash of a style sheet or script. The Content-Security-Policy of a page names it, so that
    browsers use no other style sheet or script."""
    digest = hashlib.sha256(text.encode("utf8")).digest()
    return f"sha256-{b64encode(digest).decode()}"


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
