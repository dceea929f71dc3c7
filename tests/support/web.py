"""What JavaScript counts: UTF-16 units."""

from itertools import accumulate


def utf16_places(text: str) -> list[int]:
    """The UTF-16 unit at which each character begins, and the number of units."""
    return list(accumulate([1 + (ord(char) > 0xFFFF) for char in text], initial=0))
