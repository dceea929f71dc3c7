"""Render pages, and format the numbers in them."""

import hashlib
import math
from base64 import b64encode
from datetime import date
from typing import Any

from ..rendering import get_template


def render(template: str, **values: Any) -> str:
    """Render a template of this package. Values are escaped, but those of type Markup."""
    filters = number, percent, probability, cost_number, source_hash
    page = get_template(template, *filters, autoescape=True)
    page.environment.policies["json.dumps_kwargs"] = {}  # keys in our order
    return f"{page.render(today=date.today().isoformat(), **values).strip()}\n"


def source_hash(text: str) -> str:
    """The hash by which a Content-Security-Policy names a style sheet or a script."""
    digest = hashlib.sha256(text.encode("utf8")).digest()
    return f"sha256-{b64encode(digest).decode()}"


def number(value: float | None, digits: int = 0) -> str:
    """Format a number with a thousands separator, None and NaN as a dash."""
    return "\N{EN DASH}" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(share: float | None, digits: int = 2) -> str:
    """Format a share in percent, without the sign."""
    return number(None if share is None else 100 * share, digits)


def probability(prob: float) -> str:
    """Format a probability in percent, with the sign."""
    if 0 < prob < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= prob < 1 else f"{percent(prob, 0)} %"


def cost_number(value: float) -> str:
    """Format a cost: with two digits unless it is a whole number."""
    return number(value, 0 if float(value).is_integer() else 2)
