"""Load the Jinja templates of pages and of configs, and render pages."""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from .formatting import cost_number, number, percent, probability


@lru_cache
def get_template(
    name: str,
    *filters: Callable[..., Any],
    package: str = __package__,
    autoescape: bool = False,
) -> Template:
    """Load a template, once for each set of arguments.

    name (str): The name of the file.
    *filters (Callable[..., Any]): The functions that the template may call as filters. A filter has
        the name of its function.
    package (str): The package whose folder `templates` has the file.
    autoescape (bool): Whether values are escaped for HTML.
    RETURNS (Template): The template. It is an error to render it without one of its variables.
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
    **values (Any): The variables of the template. They are escaped, except values of type Markup.
    RETURNS (str): The page.
    """
    filters = (number, percent, probability, cost_number, source_hash)
    page_template = get_template(template, *filters, autoescape=True)
    # By default Jinja's filter `tojson` sorts keys. Here they keep their order.
    page_template.environment.policies["json.dumps_kwargs"] = {}
    html = page_template.render(today=date.today().isoformat(), **values)
    return f"{html.strip()}\n"


def colour_variables() -> str:
    """The rule of the style sheet of pages that sets the variables of colours, for light and for
    dark mode."""
    rule, brace, _ = get_template("page.css").render().partition("}")
    return rule + brace


def source_hash(text: str) -> str:
    """The hash of a style sheet or a script. In the Content-Security-Policy of a page, it prevents
    browsers from using any other style sheet or script."""
    digest = hashlib.sha256(text.encode("utf8")).digest()
    return f"sha256-{b64encode(digest).decode()}"
