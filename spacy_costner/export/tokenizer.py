"""Describe the tokenizer of a pipeline for a web page: `javascript/tokenizer.js` makes the same
tokenizer from the description."""

import re
from typing import Any

from spacy.attrs import ORTH, intify_attrs
from spacy.language import Language
from spacy.tokenizer import Tokenizer

from .patterns import can_be_empty, to_javascript

METHODS = {
    "prefix_search": "search",
    "suffix_search": "search",
    "infix_finditer": "finditer",
    "token_match": "match",
    "url_match": "match",
}
"""The settings of spaCy's tokenizer that are regular expressions, with the method that it calls."""


def describe_tokenizer(nlp: Language) -> dict[str, Any]:
    """Describe spaCy's rule tokenizer in what JSON has, for JavaScript.

    nlp (Language): The pipeline.
    RETURNS (dict[str, Any]): Each setting of `METHODS` as a JavaScript regular expression, or None;
        "infix_can_be_empty", whether an infix may be the empty text, for which JavaScript has
        another way; "rules", the special cases in the order in which spaCy saves them, each as the
        list of its tokens; "faster_heuristics", a setting of the tokenizer.
    RAISES (ValueError): If the tokenizer is of another kind, or has a pattern that JavaScript can't
        have.
    """
    tokenizer = nlp.tokenizer
    # A subclass may do something else. (`isinstance` tells mypy the type.)
    if not isinstance(tokenizer, Tokenizer) or type(tokenizer) is not Tokenizer:
        kind = type(tokenizer)
        raise ValueError(
            f"tokenizer: expected spaCy's rule tokenizer, spacy.tokenizer.Tokenizer, got "
            f"{kind.__module__}.{kind.__qualname__}"
        )
    description: dict[str, Any] = {}
    for setting in METHODS:
        pattern = _pattern_of(tokenizer, setting)
        description[setting] = None if pattern is None else _translate(setting, pattern)
    infix = _pattern_of(tokenizer, "infix_finditer")
    description["infix_can_be_empty"] = infix is not None and can_be_empty(infix)
    description["rules"] = [_words_of(rule) for _, rule in sorted(tokenizer.rules.items())]
    description["faster_heuristics"] = tokenizer.faster_heuristics
    return description


def _pattern_of(tokenizer: Tokenizer, setting: str) -> re.Pattern[str] | None:
    """Find the regular expression of a setting of the tokenizer: see `METHODS`. None if it isn't
    set. The value of a setting is a method of a regular expression. Any other function is
    refused."""
    function = getattr(tokenizer, setting)
    if function is None:
        return None
    pattern = getattr(function, "__self__", None)
    method = METHODS[setting]
    if not isinstance(pattern, re.Pattern) or function.__name__ != method:
        raise ValueError(
            f"tokenizer: expected {setting} to be the method {method} of a regular expression, got "
            f"{function!r}"
        )
    return pattern


def _translate(setting: str, pattern: re.Pattern[str]) -> str:
    """Translate the regular expression of a setting to JavaScript. Refuses what JavaScript can't
    have, with an error that names the setting."""
    try:
        return to_javascript(pattern)
    except ValueError as error:
        raise ValueError(f"tokenizer: {setting}: {error}") from None


def _words_of(rule: list[dict[Any, Any]]) -> list[str]:
    """Read the words that a special case is split into: for "don't" these are "do" and "n't"."""
    return [intify_attrs(attributes, _do_deprecated=True)[ORTH] for attributes in rule]
