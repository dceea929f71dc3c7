"""Translation of Python regular expressions to JavaScript regular expressions with the `u` flag.

Python parses a pattern to a syntax tree, which is a list of items. An item is a pair of a kind,
e.g. `sre.BRANCH`, and a value. Each function in `WRITERS` converts the value of an item of one kind
to JavaScript source, based on Python's flags. Working on the syntax tree makes the translation
independent of how the pattern is written.

Character sets are expanded to ranges using Python's definitions. The two languages disagree on
`\\s`, `\\w`, `\\d` and on upper and lower case, and browsers use different Unicode versions.
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
"""Ranges of code points in ascending order, as pairs of the first and last code point."""

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
"""The source of each character class."""

QUANTIFIERS = {
    (0, 1): "?",
    (0, sre.MAXREPEAT): "*",
    (1, sre.MAXREPEAT): "+",
}
"""The source of each quantifier, keyed by the minimum and maximum number of repetitions."""

SYNTAX = frozenset(r"^$\.*+?()[]{}|/-")
"""Characters that are escaped in a set. Outside of a set, `-` is not a special character."""


def to_javascript(pattern: re.Pattern[str]) -> str:
    """Convert a regular expression to the source of a JavaScript regular expression that finds the
    same matches with the `u` flag.

    pattern (re.Pattern[str]): The regular expression with its flags.
    RETURNS (str): The source. It contains no capturing groups.
    RAISES (ValueError): If the pattern contains an item that doesn't exist or has a different
        meaning in JavaScript: references to groups, conditionals, atomic groups, possessive
        quantifiers, and repetitions of possibly empty matches.
    """
    tree = sre_parse.parse(pattern.pattern, pattern.flags)
    return _write_items(tree, pattern.flags)


def can_be_empty(pattern: re.Pattern[str]) -> bool:
    """Check whether a pattern can match the empty string."""
    least, _ = sre_parse.parse(pattern.pattern, pattern.flags).getwidth()
    return bool(least == 0)


def _write_items(tree: Iterable[tuple[Any, Any]], flags: int) -> str:
    """Write all items of a syntax tree in order."""
    return "".join([_write_item(kind, value, flags) for kind, value in tree])


def _write_item(kind: Any, value: Any, flags: int) -> str:
    """Write an item of a syntax tree, using the function for its kind.

    RAISES (ValueError): If JavaScript doesn't support the kind.
    """
    write = WRITERS.get(kind)
    if write is None:
        raise ValueError(
            f"expected no {str(kind).lower()} in a pattern: JavaScript doesn't have it"
        )
    return write(value, flags)


def _write_character(code: int, flags: int) -> str:
    """Write a single character. If case is ignored, it becomes a set, e.g. [Aa] for a."""
    if flags & re.IGNORECASE:
        return _write_set([(sre.LITERAL, code)], flags)
    return _write_code(code, outside=True)


def _write_other_characters(code: int, flags: int) -> str:
    """Write a set of all characters except one, e.g. [^a]."""
    return _write_set([(sre.NEGATE, None), (sre.LITERAL, code)], flags)


def _write_dot(_: None, flags: int) -> str:
    """Write the dot. In Python, it matches any character except a line feed, unless the flag DOTALL
    is set."""
    return "[^]" if flags & re.DOTALL else r"[^\n]"


def _write_set(items: list[tuple[Any, Any]], flags: int) -> str:
    """Write a set of characters, e.g. [^a-z\\d]. The items are characters, ranges, and classes such
    as `\\d`. If the set is negated, the first item is `sre.NEGATE`."""
    is_negated = items[0][0] is sre.NEGATE
    if is_negated:
        items = items[1:]
    ranges: list[tuple[int, int]] = []
    python_source = ""  # the source of the same set in Python, without the negation
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
    """Find the characters of a class, e.g. `\\w`, as defined by the current version of Python. The
    flag is `re.ASCII` or 0."""
    # The index of a character in this string is its code point, so runs of characters in the class
    # correspond to ranges of code points.
    all_characters = "".join(map(chr, range(LAST + 1)))
    runs = re.finditer(f"{escape}+", all_characters, ascii_flag)
    return tuple([(run.start(), run.end() - 1) for run in runs])


def _add_other_case(ranges: Ranges, regex: re.Pattern[str]) -> Ranges:
    """Add the characters that a set contains if case is ignored. For example, (97, 97), which is
    "a", becomes (65, 65), (97, 97). `regex` is a case-insensitive Python regular
    expression for the same set."""
    cased_characters = _characters_with_case()
    matched_characters = set(regex.findall(cased_characters))
    # One byte per code point: 1 if the character is in the set, otherwise 0.
    is_in_set = bytearray(LAST + 1)
    for first, last in ranges:
        is_in_set[first : last + 1] = b"\1" * (last + 1 - first)
    for char in cased_characters:
        is_in_set[ord(char)] = char in matched_characters
    return tuple([(run.start(), run.end() - 1) for run in re.finditer(b"\1+", is_in_set)])


@lru_cache
def _characters_with_case() -> str:
    """Return a string of all characters that have an upper or lower case."""
    cased_characters: list[str] = []
    for char in map(chr, range(LAST + 1)):
        if {char.lower(), char.upper(), char.casefold()} != {char}:
            cased_characters.append(char)
    return "".join(cased_characters)


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and merge overlapping or adjacent ranges: (5, 9), (1, 2), (3, 3) become (1, 3),
    (5, 9). The bounds are inclusive."""
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
    """Write ranges as a JavaScript set, e.g. (97, 97), (104, 105), (120, 122) as [ahix-z]."""
    sources = ["[^" if is_negated else "["]
    for first, last in ranges:
        sources.append(_write_code(first))
        if last > first + 1:  # more than two characters
            sources.append("-")
        if last > first:
            sources.append(_write_code(last))
    return "".join(sources) + "]"


def _write_code(code: int, outside: bool = False) -> str:
    """Write a character, given by its code point. Special characters are escaped with a backslash.
    All characters except letters, numbers, punctuation and symbols are written as numeric escapes.
    Outside of a set, [...], a hyphen is not a special character, and JavaScript's "u" flag forbids
    escaping it."""
    char = chr(code)
    if char in SYNTAX and not (outside and char == "-"):
        return f"\\{char}"
    # Letters, numbers, punctuation and symbols
    if unicodedata.category(char)[0] in "LNPS":
        return char
    return f"\\u{{{code:x}}}"


def _write_alternatives(value: tuple[None, list[Any]], flags: int) -> str:
    """Write alternatives, e.g. (?:a|b)."""
    _, branches = value
    alternatives = [_write_items(branch, flags) for branch in branches]
    return f"(?:{'|'.join(alternatives)})"


def _write_group(value: tuple[int | None, int, int, Any], flags: int) -> str:
    """Write a non-capturing group, e.g. (?:ab). In Python, a group can set flags for its items,
    e.g. (?i:ab)."""
    _, added_flags, removed_flags, tree = value
    flags_of_group = (flags | added_flags) & ~removed_flags
    return f"(?:{_write_items(tree, flags_of_group)})"


def _write_repeat(value: tuple[int, int, Any], flags: int, after: str = "") -> str:
    """Write a repeated item with its quantifier, e.g. (?:a)*. The value consists of the minimum and
    maximum number of repetitions and the items. `after` is appended to the quantifier, e.g. "?" for
    lazy repetition.

    RAISES (ValueError): If JavaScript would repeat the items differently.
    """
    least, most, tree = value
    narrowest, widest = tree.getwidth()
    # Items that are always empty or repeated at most once match the same text in both languages.
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
    """Write a lazily repeated item, e.g. (?:a)*?."""
    return _write_repeat(value, flags, after="?")


def _write_look_around(value: tuple[int, Any], flags: int, sign: str = "=") -> str:
    """Write a lookaround: a pattern that has to match before or after a position, e.g. (?=a) or
    (?<=a). The value consists of the direction, which is negative for a lookbehind, and the items.
    The sign is "=", or "!" for a negative lookaround."""
    direction, tree = value
    sign_of_direction = "<" if direction < 0 else ""
    return f"(?{sign_of_direction}{sign}{_write_items(tree, flags)})"


def _write_negative_look_around(value: tuple[int, Any], flags: int) -> str:
    """Write a negative lookaround: a pattern that must not match before or after a position, e.g.
    (?!a)."""
    return _write_look_around(value, flags, sign="!")


def _write_failure(_: None, flags: int) -> str:
    """Write a pattern that never matches."""
    return "(?!)"


def _write_position(kind: Any, flags: int) -> str:
    """Write an assertion about a position, e.g. the end of the text or a word boundary. In Python,
    `$` also matches before a line feed at the end of the text."""
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
"""The function that writes each kind of item of a syntax tree."""
