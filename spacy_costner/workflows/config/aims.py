"""Parse aims: the scores to optimize."""

from contextlib import suppress
from typing import Any


def parse_aim(text: str, *other_names: str, option: str = "`tune`") -> dict[str, Any]:
    """Parse an aim: the score to optimize.

    text (str): "f", "precision=0.9" or "recall=0.9", with any number between 0 and 1.
    *other_names (str): Additional aims to accept.
    option (str): The name of the parameter, for the error message.
    RETURNS (dict[str, Any]): The arguments for `tune`, e.g. {"precision": 0.9}. Empty for "f" and
        for additional aims.
    RAISES (ValueError): If the text isn't a valid aim.
    """
    names = ["f", *other_names]
    if text in names:
        return {}
    score, _, required = text.partition("=")
    # If the text after "=" isn't a number, the error is raised below.
    with suppress(ValueError):
        if score in ("precision", "recall") and 0 < float(required) < 1:
            return {score: float(required)}
    expected = ", ".join(names)
    raise ValueError(f"{option}: expected {expected}, precision=0.9 or recall=0.9, got {text!r}")
