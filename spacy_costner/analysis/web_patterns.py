"""Translate regular expressions of Python to JavaScript, for the flag `u`.

Python parses the pattern, and its syntax tree is written, so nothing depends on how the pattern was
spelled. A set of characters becomes a list of ranges, as this Python knows them: the two languages
disagree about `\\s`, `\\w`, `\\d` and about upper and lower case, and browsers know different
versions of Unicode.
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
QUANTIFIERS = {
    (0, 1): "?",
    (0, sre.MAXREPEAT): "*",
    (1, sre.MAXREPEAT): "+",
}
SYNTAX = frozenset(r"^$\.*+?()[]{}|/-")
"""Characters that are escaped within a set. `-` is no syntax outside of one."""


def to_javascript(pattern: re.Pattern[str]) -> str:
    """Write a regular expression as the source of one of JavaScript, which finds the same matches
    with the flag `u`.

    pattern (re.Pattern[str]): The regular expression, with its flags.
    RETURNS (str): The source. It has no capturing groups.
    RAISES (ValueError): If the pattern has what JavaScript doesn't have, or what means something
        else there: references to groups, conditions, atomic groups, possessive repeats, and repeats
        of what can be empty.
    """
    tree = sre_parse.parse(pattern.pattern, pattern.flags)
    return _sequence(tree, pattern.flags)


def can_be_empty(pattern: re.Pattern[str]) -> bool:
    """Whether a pattern may match the empty string, here or there."""
    least, _ = sre_parse.parse(pattern.pattern, pattern.flags).getwidth()
    return bool(least == 0)


def _sequence(tree: Iterable[tuple[Any, Any]], flags: int) -> str:
    """Write the items of a syntax tree one after another."""
    return "".join([_item(kind, value, flags) for kind, value in tree])


def _item(kind: Any, value: Any, flags: int) -> str:
    """Write an item of a syntax tree."""
    write = WRITERS.get(kind)
    if write is None:
        raise ValueError(
            f"expected no {str(kind).lower()} in a pattern: JavaScript doesn't have it"
        )
    return write(value, flags)


def _literal(code: int, flags: int) -> str:
    """Write a character."""
    if flags & re.IGNORECASE:
        return _in([(sre.LITERAL, code)], flags)
    return _escape(code, outside=True)


def _not_literal(code: int, flags: int) -> str:
    """Write all characters but one."""
    return _in([(sre.NEGATE, None), (sre.LITERAL, code)], flags)


def _any(_: None, flags: int) -> str:
    """Write the dot."""
    return "[^]" if flags & re.DOTALL else r"[^\n]"


def _in(items: list[tuple[Any, Any]], flags: int) -> str:
    """Write a set of characters."""
    is_negated = items[0][0] is sre.NEGATE
    ranges: list[tuple[int, int]] = []
    source = ""  # the set in Python
    for kind, value in items[1:] if is_negated else items:
        if kind is sre.CATEGORY:
            ranges += _category(CATEGORIES[value], flags & re.ASCII)
            source += CATEGORIES[value]
        else:
            first, last = value if kind is sre.RANGE else (value, value)
            ranges.append((first, last))
            source += rf"\U{first:08x}-\U{last:08x}"
    merged = _merge(ranges)
    if flags & re.IGNORECASE:
        merged = _in_any_case(merged, re.compile(f"[{source}]", flags & (re.IGNORECASE | re.ASCII)))
    return _write_set(merged, is_negated)


@lru_cache
def _category(escape: str, ascii_flag: int) -> Ranges:
    """The characters of a class such as `\\w`, as this Python knows them."""
    everything = "".join(map(chr, range(LAST + 1)))
    runs = re.finditer(f"{escape}+", everything, ascii_flag)
    return tuple([(run.start(), run.end() - 1) for run in runs])


def _in_any_case(ranges: Ranges, regex: re.Pattern[str]) -> Ranges:
    """The characters that Python finds in a set if it ignores case."""
    cased = _cased()
    matched = set(regex.findall(cased))
    # A byte for each character: whether it is in the set.
    is_in = bytearray(LAST + 1)
    for first, last in ranges:
        is_in[first : last + 1] = b"\1" * (last + 1 - first)
    for char in cased:
        is_in[ord(char)] = char in matched
    return tuple([(run.start(), run.end() - 1) for run in re.finditer(b"\1+", is_in)])


@lru_cache
def _cased() -> str:
    """All characters that have another case."""
    chars = map(chr, range(LAST + 1))
    return "".join(
        [char for char in chars if {char.lower(), char.upper(), char.casefold()} != {char}]
    )


def _merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Order ranges, and join those that overlap or touch: (5, 9), (1, 2), (3, 3) become (1, 3),
    (5, 9). The last number of a range belongs to it."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if not merged:
            merged.append((first, last))
            continue
        merged_first, merged_last = merged[-1]
        if first <= merged_last + 1:
            merged[-1] = (merged_first, max(last, merged_last))
        else:
            merged.append((first, last))
    return tuple(merged)


@lru_cache
def _write_set(ranges: Ranges, is_negated: bool) -> str:
    """Write ranges as a set of JavaScript."""
    written = ["[^" if is_negated else "["]
    for first, last in ranges:
        written.append(_escape(first))
        if last > first + 1:
            written.append("-")
        if last > first:
            written.append(_escape(last))
    return "".join(written) + "]"


def _escape(code: int, outside: bool = False) -> str:
    """Write a character of a regular expression. Marks, spaces, control characters and surrogates
    are written by their number.

    code (int): The character.
    outside (bool): Whether the character stands outside of a set, [...]. A hyphen is no syntax
        there, and JavaScript's flag "u" forbids to escape what is no syntax.
    """
    char = chr(code)
    if char in SYNTAX and not (outside and char == "-"):
        return f"\\{char}"
    # Letters, numbers, punctuation and symbols
    if unicodedata.category(char)[0] in "LNPS":
        return char
    return f"\\u{{{code:x}}}"


def _branch(value: tuple[None, list[Any]], flags: int) -> str:
    """Write alternatives."""
    _, branches = value
    return f"(?:{'|'.join([_sequence(branch, flags) for branch in branches])})"


def _group(value: tuple[int | None, int, int, Any], flags: int) -> str:
    """Write a group, which may set flags. It doesn't capture."""
    _, added, removed, tree = value
    return f"(?:{_sequence(tree, (flags | added) & ~removed)})"


def _repeat(value: tuple[int, int, Any], flags: int, after: str = "") -> str:
    """Write what is repeated, with its quantifier."""
    least, most, tree = value
    narrowest, widest = tree.getwidth()
    if narrowest == 0 and most != 1 and widest > 0:
        raise ValueError(
            "expected no repeat of what can be empty in a pattern: JavaScript repeats differently"
        )
    if (least, most) in QUANTIFIERS:
        quantifier = QUANTIFIERS[least, most]
    elif least == most:
        quantifier = f"{{{least}}}"
    else:
        quantifier = f"{{{least},{'' if most == sre.MAXREPEAT else most}}}"
    return f"(?:{_sequence(tree, flags)}){quantifier}{after}"


def _lazy_repeat(value: tuple[int, int, Any], flags: int) -> str:
    """Write what is repeated as seldom as possible."""
    return _repeat(value, flags, after="?")


def _look(value: tuple[int, Any], flags: int, sign: str = "=") -> str:
    """Write what has to stand before or after a place."""
    direction, tree = value
    return f"(?{'<' if direction < 0 else ''}{sign}{_sequence(tree, flags)})"


def _look_not(value: tuple[int, Any], flags: int) -> str:
    """Write what mustn't stand before or after a place."""
    return _look(value, flags, sign="!")


def _failure(_: None, flags: int) -> str:
    """Write what never matches."""
    return "(?!)"


def _place(kind: Any, flags: int) -> str:
    """Write a place, such as the end. `$` of Python is also before a line break at the end."""
    word = _write_set(_category(r"\w", flags & re.ASCII), False)
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
    sre.LITERAL: _literal,
    sre.NOT_LITERAL: _not_literal,
    sre.ANY: _any,
    sre.IN: _in,
    sre.BRANCH: _branch,
    sre.SUBPATTERN: _group,
    sre.MAX_REPEAT: _repeat,
    sre.MIN_REPEAT: _lazy_repeat,
    sre.ASSERT: _look,
    sre.ASSERT_NOT: _look_not,
    sre.FAILURE: _failure,
    sre.AT: _place,
}
"""A function for each kind of item of a syntax tree."""
