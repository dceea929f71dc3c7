"""Read docstrings: they are the help texts of commands and the comments in configs."""

import re
from collections.abc import Callable
from inspect import getdoc
from typing import Any

NOT_PARAMETERS = ("RETURNS", "RAISES")
"""Parts of a docstring that look like parameters."""


def first_paragraph(function: Callable[..., Any]) -> str:
    """The first paragraph of the docstring of a function. Empty if it has no docstring."""
    paragraph, _, _ = (getdoc(function) or "").partition("\n\n")
    return paragraph


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """The texts of the parameters in the docstring of a function, keyed by parameter name. Each
    text is on one line."""
    docstring = getdoc(function) or ""
    # A parameter is a line `name (Type): text`. Its text continues in the indented lines below.
    names_and_texts = re.findall(r"^(\w+) \(.*?\): (.*(?:\n +.*)*)", docstring, re.MULTILINE)
    texts: dict[str, str] = {}
    for name, text in names_and_texts:
        if name not in NOT_PARAMETERS:
            texts[name] = " ".join(text.split())
    return texts
