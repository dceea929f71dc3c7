"""Templates of files that commands write, rendered by Jinja."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


@lru_cache
def get_template(name: str, *filters: Callable[..., Any], autoescape: bool = False) -> Template:
    """Load a template of templates/, once for each name.

    name (str): The name of its file.
    *filters (Callable[..., Any]): Functions that the template calls as filters, by their names.
    autoescape (bool): Whether values are escaped, as HTML needs it.
    RETURNS (Template): The template. A variable that it isn't given is an error.
    """
    environment = Environment(
        autoescape=autoescape,
        loader=PackageLoader(__package__),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    for function in filters:
        environment.filters[function.__name__] = function
    return environment.get_template(name)
