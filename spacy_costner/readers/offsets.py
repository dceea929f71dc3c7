"""Convert offsets in a text from UTF-16 code units to characters.

Some annotation tools count code units because JavaScript does.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

Range = tuple[int, int]
"""The start and end of a range of characters, code units or tokens. The end is exclusive."""


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as in JavaScript."""
    # A code unit is two bytes. With "surrogatepass", a lone surrogate also counts as one.
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_ends(text: str) -> list[int]:
    """Return the end of each character of a text, in UTF-16 code units from the start of the text.
    A character above U+FFFF, such as an emoji, consists of two code units. Length: the number of
    characters."""
    return list(accumulate(2 if character > "\uffff" else 1 for character in text))


def range_in_characters(units: Range, ends: Sequence[int]) -> Range:
    """Convert a range of UTF-16 code units in a text to a range of characters.

    units (Range): The start and end, in code units.
    ends (Sequence[int]): The end of each character, in code units: see `utf16_ends`.
    RETURNS (Range): The start and end, in characters.
    """
    start_unit, end_unit = units
    # The index of the character that begins at a code unit is the number of characters that end at
    # or before it.
    return bisect_right(ends, start_unit), bisect_right(ends, end_unit)
