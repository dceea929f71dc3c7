"""Templates of files that commands write, rendered by Jinja."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


@lru_cache
def get_template(name: str, *filters: Callable[..., Any], autoescape: bool = False) -> Template:
    """A template in templates/. It calls filters by the names of their functions."""
    environment = Environment(
        autoescape=autoescape,
        loader=PackageLoader(__package__),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update({each.__name__: each for each in filters})
    return environment.get_template(name)
