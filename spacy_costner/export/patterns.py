"""Translate regular expressions of Python to JavaScript, for the flag `u`.

Python parses a pattern to a syntax tree, a list of items. An item is a pair of its kind, such as
`sre.BRANCH`, and its value. Each function in `WRITERS` takes the value of one kind of item and the
flags of Python, and returns the source in JavaScript. Because the tree is written, nothing depends
on how the pattern was spelled.

A set of characters becomes a list of ranges, as this Python knows them: the two languages disagree
about `\\s`, `\\w`, `\\d` and about upper and lower case, and browsers know different versions of
Unicode.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

try:
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as sre_parse  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as sre  # type: ignore[no-redef]
    import sre_parse  # type: ignore[no-redef]

Ranges = tuple[tuple[int, int], ...]
"""Ranges of code points in ascending order, each with its first and its last one."""

LAST = 0x10FFFF
"""The last code point."""

CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
"""The source of each class of characters."""

QUANTIFIERS = {
    (0, 1): "?",
    (0, sre.MAXREPEAT): "*",
    (1, sre.MAXREPEAT): "+",
}
"""The source of each quantifier, keyed by the minimum and maximum number of repeats."""

SYNTAX = frozenset(r"^$\.*+?()[]{}|/-")
"""Characters that are escaped within a set. Outside of a set `-` is not syntax."""


def to_javascript(pattern: re.Pattern[str]) -> str:
    """Write a regular expression as the source of a JavaScript regular expression, which finds the
    same matches with the flag `u`.

    pattern (re.Pattern[str]): The regular expression, with its flags.
    RETURNS (str): The source. It has no capturing groups.
    RAISES (ValueError): If the pattern has what JavaScript doesn't have, or what means something
        else there: references to groups, conditions, atomic groups, possessive repeats, and repeats
        of what can be empty.
    """
    tree = sre_parse.parse(pattern.pattern, pattern.flags)
    return _write_items(tree, pattern.flags)


def can_be_empty(pattern: re.Pattern[str]) -> bool:
    """Whether a pattern may match the empty string in some text."""
    least, _ = sre_parse.parse(pattern.pattern, pattern.flags).getwidth()
    return bool(least == 0)


def _write_items(tree: Iterable[tuple[Any, Any]], flags: int) -> str:
    """Write all items of a syntax tree, one after another."""
    return "".join([_write_item(kind, value, flags) for kind, value in tree])


def _write_item(kind: Any, value: Any, flags: int) -> str:
    """Write an item of a syntax tree by the function for its kind. Refuses kinds that JavaScript
    doesn't have."""
    write = WRITERS.get(kind)
    if write is None:
        raise ValueError(
            f"expected no {str(kind).lower()} in a pattern: JavaScript doesn't have it"
        )
    return write(value, flags)


def _write_character(code: int, flags: int) -> str:
    """Write a single character. If case is ignored, it is a set: a becomes [Aa]."""
    if flags & re.IGNORECASE:
        return _write_set([(sre.LITERAL, code)], flags)
    return _write_code(code, outside=True)


def _write_other_characters(code: int, flags: int) -> str:
    """Write a set of all characters but one, such as [^a]."""
    return _write_set([(sre.NEGATE, None), (sre.LITERAL, code)], flags)


def _write_dot(_: None, flags: int) -> str:
    """Write the dot. In Python it is any character but a line feed, unless the flag DOTALL is
    set."""
    return "[^]" if flags & re.DOTALL else r"[^\n]"


def _write_set(items: list[tuple[Any, Any]], flags: int) -> str:
    """Write a set of characters, such as [^a-z\\d]. Its items are characters, ranges, and classes
    such as `\\d`. If the set is negated, the first item is `sre.NEGATE`."""
    is_negated = items[0][0] is sre.NEGATE
    if is_negated:
        items = items[1:]
    ranges: list[tuple[int, int]] = []
    python_source = ""  # the same set as Python's source, without the negation
    for kind, value in items:
        if kind is sre.CATEGORY:
            ranges += _ranges_of_class(CATEGORIES[value], flags & re.ASCII)
            python_source += CATEGORIES[value]
            continue
        if kind is sre.LITERAL:
            value = (value, value)  # a range of one character
        first, last = value
        ranges.append((first, last))
        python_source += rf"\U{first:08x}-\U{last:08x}"
    all_ranges = _merge_ranges(ranges)
    if flags & re.IGNORECASE:
        set_in_python = re.compile(f"[{python_source}]", flags & (re.IGNORECASE | re.ASCII))
        all_ranges = _add_other_case(all_ranges, set_in_python)
    return _write_ranges(all_ranges, is_negated=is_negated)


@lru_cache
def _ranges_of_class(escape: str, ascii_flag: int) -> Ranges:
    """Find the characters of a class such as `\\w`, as this Python knows them. The flag is
    `re.ASCII`, or 0."""
    # The index of a character in this string is its code point. So where a run of characters of the
    # class begins and ends is a range of code points.
    all_characters = "".join(map(chr, range(LAST + 1)))
    runs = re.finditer(f"{escape}+", all_characters, ascii_flag)
    return tuple([(run.start(), run.end() - 1) for run in runs])


def _add_other_case(ranges: Ranges, regex: re.Pattern[str]) -> Ranges:
    """Add the characters to a set that Python finds in it if case is ignored: the result for (97,
    97), which is "a", is (65, 65), (97, 97). `regex` is the same set as a regular expression of
    Python, which ignores case."""
    cased_characters = _characters_with_case()
    matched_characters = set(regex.findall(cased_characters))
    # A byte for each code point: 1 if the character is in the set, else 0.
    is_in_set = bytearray(LAST + 1)
    for first, last in ranges:
        is_in_set[first : last + 1] = b"\1" * (last + 1 - first)
    for char in cased_characters:
        is_in_set[ord(char)] = char in matched_characters
    return tuple([(run.start(), run.end() - 1) for run in re.finditer(b"\1+", is_in_set)])


@lru_cache
def _characters_with_case() -> str:
    """Join all characters that have an upper or a lower case to a string."""
    cased_characters: list[str] = []
    for char in map(chr, range(LAST + 1)):
        if {char.lower(), char.upper(), char.casefold()} != {char}:
            cased_characters.append(char)
    return "".join(cased_characters)


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges, and join ranges that overlap or touch: (5, 9), (1, 2), (3, 3) become (1, 3), (5,
    9). The last number of a range belongs to it."""
    merged_ranges: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if not merged_ranges:
            merged_ranges.append((first, last))
            continue
        merged_first, merged_last = merged_ranges[-1]
        if first <= merged_last + 1:
            merged_ranges[-1] = (merged_first, max(last, merged_last))
        else:
            merged_ranges.append((first, last))
    return tuple(merged_ranges)


@lru_cache
def _write_ranges(ranges: Ranges, *, is_negated: bool) -> str:
    """Write ranges as a JavaScript set: (97, 97), (104, 105), (120, 122) as [ahix-z]."""
    sources = ["[^" if is_negated else "["]
    for first, last in ranges:
        sources.append(_write_code(first))
        if last > first + 1:  # more than two characters
            sources.append("-")
        if last > first:
            sources.append(_write_code(last))
    return "".join(sources) + "]"


def _write_code(code: int, outside: bool = False) -> str:
    """Write a character of a regular expression, given as its code point, with a backslash if it is
    syntax. All but letters, numbers, punctuation and symbols are written by their number. If the
    character is outside of a set, [...], a hyphen is not syntax, and JavaScript's flag "u" forbids
    escaping what is not syntax."""
    char = chr(code)
    if char in SYNTAX and not (outside and char == "-"):
        return f"\\{char}"
    # Letters, numbers, punctuation and symbols
    if unicodedata.category(char)[0] in "LNPS":
        return char
    return f"\\u{{{code:x}}}"


def _write_alternatives(value: tuple[None, list[Any]], flags: int) -> str:
    """Write alternatives, such as (?:a|b)."""
    _, branches = value
    alternatives = [_write_items(branch, flags) for branch in branches]
    return f"(?:{'|'.join(alternatives)})"


def _write_group(value: tuple[int | None, int, int, Any], flags: int) -> str:
    """Write a group, such as (?:ab). It doesn't capture. In Python a group may set flags for its
    items, as (?i:ab) does."""
    _, added_flags, removed_flags, tree = value
    flags_of_group = (flags | added_flags) & ~removed_flags
    return f"(?:{_write_items(tree, flags_of_group)})"


def _write_repeat(value: tuple[int, int, Any], flags: int, after: str = "") -> str:
    """Write a repeated item with its quantifier, such as (?:a)*. The value is how often it is
    repeated at least and at most, and its items. `after` follows the quantifier: "?" to repeat as
    few times as possible. Refuses what JavaScript would repeat differently."""
    least, most, tree = value
    narrowest, widest = tree.getwidth()
    # What is there at most once, or is always empty, matches the same in both languages.
    if narrowest == 0 and most != 1 and widest > 0:
        raise ValueError(
            "expected a pattern that doesn't repeat an empty match: JavaScript repeats it "
            "differently"
        )
    if (least, most) in QUANTIFIERS:
        quantifier = QUANTIFIERS[least, most]
    elif least == most:
        quantifier = f"{{{least}}}"
    elif most == sre.MAXREPEAT:
        quantifier = f"{{{least},}}"
    else:
        quantifier = f"{{{least},{most}}}"
    return f"(?:{_write_items(tree, flags)}){quantifier}{after}"


def _write_lazy_repeat(value: tuple[int, int, Any], flags: int) -> str:
    """Write a lazily repeated item, such as (?:a)*?."""
    return _write_repeat(value, flags, after="?")


def _write_look_around(value: tuple[int, Any], flags: int, sign: str = "=") -> str:
    """Write a look-around: a pattern that has to match before or after a position, such as (?=a) or
    (?<=a). The value is the direction, which is below 0 for before, and the items. The sign is "=",
    or "!" for what must not match there."""
    direction, tree = value
    sign_of_direction = "<" if direction < 0 else ""
    return f"(?{sign_of_direction}{sign}{_write_items(tree, flags)})"


def _write_negative_look_around(value: tuple[int, Any], flags: int) -> str:
    """Write a negative look-around: a pattern that must not match before or after a position, such
    as (?!a)."""
    return _write_look_around(value, flags, sign="!")


def _write_failure(_: None, flags: int) -> str:
    """Write a pattern that never matches."""
    return "(?!)"


def _write_position(kind: Any, flags: int) -> str:
    """Write a position, such as the end of the text, or the border of a word. In Python, `$` is
    also the position before a line feed at the end."""
    word_ranges = _ranges_of_class(r"\w", flags & re.ASCII)
    word = _write_ranges(word_ranges, is_negated=False)
    is_multiline = bool(flags & re.MULTILINE)
    return {
        sre.AT_BEGINNING: r"(?<![^\n])" if is_multiline else "^",
        sre.AT_BEGINNING_STRING: "^",
        sre.AT_END: r"(?![^\n])" if is_multiline else r"(?=\n?$)",
        sre.AT_END_STRING: "$",
        sre.AT_BOUNDARY: f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))",
        sre.AT_NON_BOUNDARY: f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))",
    }[kind]


WRITERS: dict[Any, Callable[[Any, int], str]] = {
    sre.LITERAL: _write_character,
    sre.NOT_LITERAL: _write_other_characters,
    sre.ANY: _write_dot,
    sre.IN: _write_set,
    sre.BRANCH: _write_alternatives,
    sre.SUBPATTERN: _write_group,
    sre.MAX_REPEAT: _write_repeat,
    sre.MIN_REPEAT: _write_lazy_repeat,
    sre.ASSERT: _write_look_around,
    sre.ASSERT_NOT: _write_negative_look_around,
    sre.FAILURE: _write_failure,
    sre.AT: _write_position,
}
"""A function for each kind of item of a syntax tree."""
