"""What docstrings say, for options of commands and comments of configs."""

import re
from collections.abc import Callable
from inspect import getdoc
from typing import Any


def summary_text(function: Callable[..., Any]) -> str:
    """The first paragraph of a docstring."""
    return (getdoc(function) or "").split("\n\n")[0]


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """The texts of parameters in a docstring, by name: `name (Type): text`. A text goes on in the
    lines below that are indented."""
    docstring = getdoc(function) or ""
    names_and_texts = re.findall(r"^(\w+) \(.*?\): (.*(?:\n +.*)*)", docstring, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in names_and_texts}
