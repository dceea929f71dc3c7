"""Parsing of docstrings, which are used as help texts for commands and as comments in configs."""

import re
from collections.abc import Callable
from inspect import getdoc
from typing import Any

NOT_PARAMETERS = ("RETURNS", "RAISES")
"""Sections of a docstring that look like parameters."""


def first_paragraph(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a function's docstring, or an empty string if there is no
    docstring."""
    paragraph, _, _ = (getdoc(function) or "").partition("\n\n")
    return paragraph


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions of the parameters in a function's docstring, keyed by parameter name.
    Line breaks are removed."""
    docstring = getdoc(function) or ""
    # A parameter is a line `name (Type): text`, optionally followed by indented lines.
    names_and_texts = re.findall(r"^(\w+) \(.*?\): (.*(?:\n +.*)*)", docstring, re.MULTILINE)
    texts: dict[str, str] = {}
    for name, text in names_and_texts:
        if name not in NOT_PARAMETERS:
            texts[name] = " ".join(text.split())
    return texts
