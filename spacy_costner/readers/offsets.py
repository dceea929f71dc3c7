"""Offsets in a text: ranges of characters, and of UTF-16 code units.

JavaScript counts code units instead of characters, so some annotation tools do.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

Range = tuple[int, int]
"""The first character of a piece of text and the character after its last; or likewise tokens."""


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units, which JavaScript counts instead of characters."""
    # A code unit is two bytes. "surrogatepass" lets half of a surrogate pair count as one, too.
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_ends(text: str) -> list[int]:
    """The end of each character of a text, in UTF-16 code units from the beginning of the text. A
    character above U+FFFF, such as an emoji, is two code units. Length: the number of
    characters."""
    return list(accumulate(2 if character > "\uffff" else 1 for character in text))


def range_in_characters(units: Range, ends: Sequence[int]) -> Range:
    """Convert a range of UTF-16 code units of a text to one of characters.

    units (Range): The first code unit and the one after the last.
    ends (Sequence[int]): The `utf16_ends` of the text: after each character the number of code
        units so far.
    RETURNS (Range): The first character and the one after the last.
    """
    start_unit, end_unit = units
    # The number of characters that end at a code unit or before it is the index of the character
    # that begins there.
    return bisect_right(ends, start_unit), bisect_right(ends, end_unit)
