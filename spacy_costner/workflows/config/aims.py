"""Parse an aim: the score to optimize."""

from contextlib import suppress
from typing import Any


def parse_aim(text: str, *other_names: str, option: str = "`tune`") -> dict[str, Any]:
    """Parse an aim: the score to optimize.

    text (str): "f", "precision=0.9" or "recall=0.9", with any number between 0 and 1.
    *other_names (str): Other aims that are allowed.
    option (str): The parameter with the text, for the error.
    RETURNS (dict[str, Any]): The arguments of `tune`, such as {"precision": 0.9}. Empty for "f" and
        for other aims.
    RAISES (ValueError): If the text is none of these.
    """
    names = ["f", *other_names]
    if text in names:
        return {}
    score, _, required = text.partition("=")
    # If there is no number after "=", the text is refused below.
    with suppress(ValueError):
        if score in ("precision", "recall") and 0 < float(required) < 1:
            return {score: float(required)}
    expected = ", ".join(names)
    raise ValueError(f"{option}: expected {expected}, precision=0.9 or recall=0.9, got {text!r}")
