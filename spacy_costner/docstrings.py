"""What docstrings say, for options of commands and comments of configs."""

import re
from collections.abc import Callable
from inspect import getdoc
from typing import Any


def summary_text(function: Callable[..., Any]) -> str:
    """The first paragraph of a function's docstring; "" if it has none."""
    summary, _, _ = (getdoc(function) or "").partition("\n\n")
    return summary


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """What a function's docstring says of each parameter, by its name, on one line."""
    docstring = getdoc(function) or ""
    # A line `name (Type): text`. The text goes on in the indented lines below.
    names_and_texts = re.findall(r"^(\w+) \(.*?\): (.*(?:\n +.*)*)", docstring, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in names_and_texts}
