"""The values in `doc.user_data` that describe a whole doc, and those that describe a part of it.

spaCy stores the extension attributes of docs, spans and tokens under the keys `("._.", name, start,
end)`, with offsets in characters, or None for docs.
"""

from collections.abc import Mapping
from typing import Any

SOFT_TARGETS_KEY = "spacy_costner.soft_targets"
"""The key of the soft targets in `doc.user_data` of the reference doc."""


def values_of_doc(user_data: Mapping[Any, Any]) -> dict[Any, Any]:
    """Select the values that describe a whole doc, such as its source or its weight in training.
    Soft targets are omitted because they contain values for each token."""
    values: dict[Any, Any] = {}
    for key, value in user_data.items():
        start = key[2] if is_extension(key) else None
        if start is None and key != SOFT_TARGETS_KEY:
            values[key] = value
    return values


def values_of_part(user_data: Mapping[Any, Any], start: int, end: int) -> dict[Any, Any]:
    """Select the values that describe a whole doc (see `values_of_doc`), and those of tokens and
    spans from one character to another, with offsets that count from the first one.

    user_data (Mapping[Any, Any]): The `user_data` of the doc.
    start (int): The first character of the part.
    end (int): The character after the last one of the part.
    RETURNS (dict[Any, Any]): The values, for the `user_data` of a doc that consists of this part.
    """
    values = values_of_doc(user_data)
    for key, value in user_data.items():
        if not is_extension(key) or key[2] is None:
            continue
        prefix, name, first_char, end_char = key
        # The attributes of tokens have no end.
        last_char = first_char if end_char is None else end_char - 1
        if start <= first_char and last_char < end:
            new_end = None if end_char is None else end_char - start
            values[prefix, name, first_char - start, new_end] = value
    return values


def is_extension(key: Any) -> bool:
    """Check whether a key in `user_data` is the key of an extension attribute."""
    return isinstance(key, tuple) and len(key) == 4 and key[0] == "._."
