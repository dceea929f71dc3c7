"""Load the Jinja templates of pages and configs, and render pages."""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from .formatting import cost_number, number, percent, probability, without_overlap


@lru_cache
def get_template(
    name: str,
    *filters: Callable[..., Any],
    package: str = __package__,
    autoescape: bool = False,
) -> Template:
    """Load a template. The loaded templates are cached.

    name (str): The file name of the template.
    *filters (Callable[..., Any]): The functions to use as filters in the template, under their
        function names.
    package (str): The package that contains the template in its folder `templates`.
    autoescape (bool): Whether to escape values for HTML.
    RETURNS (Template): The template. Rendering it raises an error if a variable is undefined.
    """
    environment = Environment(
        autoescape=autoescape,
        loader=PackageLoader(package),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    for function in filters:
        environment.filters[function.__name__] = function
    return environment.get_template(name)


def render(template: str, **values: Any) -> str:
    """Render a template of this package as an HTML page.

    template (str): The file name of the template.
    **values (Any): The variables of the template. Values are escaped unless their type is Markup.
    RETURNS (str): The rendered page.
    """
    filters = (number, percent, probability, cost_number, without_overlap, source_hash)
    page_template = get_template(template, *filters, autoescape=True)
    # By default, Jinja's filter `tojson` sorts keys. Keep the original order instead.
    page_template.environment.policies["json.dumps_kwargs"] = {}
    html = page_template.render(today=date.today().isoformat(), **values)
    return f"{html.strip()}\n"


def colour_variables() -> str:
    """Return the CSS rule that defines the colour variables of pages for light and dark mode."""
    rule, brace, _ = get_template("page.css").render().partition("}")
    return rule + brace


def source_hash(text: str) -> str:
    """Compute the hash of a style sheet or script for the Content-Security-Policy of a page.
    Browsers then block other style sheets and scripts."""
    digest = hashlib.sha256(text.encode("utf8")).digest()
    return f"sha256-{b64encode(digest).decode()}"
