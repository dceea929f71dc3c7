"""Load Jinja templates: of the pages that commands write, and of the config that `init` writes."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


@lru_cache
def get_template(
    name: str,
    *filters: Callable[..., Any],
    package: str = __package__,
    autoescape: bool = False,
) -> Template:
    """Load a template. Each is loaded once, and then kept.

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
