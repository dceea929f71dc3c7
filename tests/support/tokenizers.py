"""Tokenizers that take little time to make."""

from typing import Any

from spacy.language import Language


def without_special_cases(language: type[Language]) -> Any:
    """The defaults of a language, but for the special cases of its tokenizer, such as emoticons and
    abbreviations. They take four fifths of the time in which a pipeline is made or loaded."""
    return type("Defaults", (language.Defaults,), {"tokenizer_exceptions": {}})
