"""Description of a pipeline's tokenizer for a web page. `javascript/tokenizer.js` creates an
equivalent tokenizer from the description."""

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
"""The tokenizer settings that are regular expressions, with the method that spaCy calls."""


def describe_tokenizer(nlp: Language) -> dict[str, Any]:
    """Describe spaCy's rule-based tokenizer in JSON format, for use in JavaScript.

    nlp (Language): The pipeline.
    RETURNS (dict[str, Any]): Each setting in `METHODS` as a JavaScript regular expression or None;
        "infix_can_be_empty", whether an infix can match the empty string, which JavaScript handles
        differently; "rules", the special cases in the order in which spaCy saves them, as lists of
        tokens; and the tokenizer setting "faster_heuristics".
    RAISES (ValueError): If the tokenizer is of another type or uses a pattern that isn't supported
        in JavaScript.
    """
    tokenizer = nlp.tokenizer
    # A subclass may behave differently. (`isinstance` narrows the type for mypy.)
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
    """Return the regular expression of a tokenizer setting (see `METHODS`), or None if it isn't
    set.

    RAISES (ValueError): If the setting isn't a method of a regular expression.
    """
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
    """Translate the regular expression of a setting to JavaScript.

    RAISES (ValueError): If JavaScript doesn't support the pattern. The message names the setting.
    """
    try:
        return to_javascript(pattern)
    except ValueError as error:
        raise ValueError(f"tokenizer: {setting}: {error}") from None


def _words_of(rule: list[dict[Any, Any]]) -> list[str]:
    """Return the words that a special case is split into, e.g. "do" and "n't" for "don't"."""
    return [intify_attrs(attributes, _do_deprecated=True)[ORTH] for attributes in rule]
