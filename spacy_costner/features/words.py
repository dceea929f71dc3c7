"""Features of words: the word itself, its shape, prefixes and suffixes, flags, and word type.

The values in these columns only depend on the word, not on the context, so they're computed once
per word: see `column.py`. A *view* defines how to compute a value from a word. It can use spaCy's
lexeme attributes, such as the lowercase form.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from spacy.attrs import IDS
from spacy.lexeme import Lexeme

from .column import StringColumn, Window
from .counts import TrainingCounts


class WordView(NamedTuple):
    """Defines how to compute a value, such as the shape or the last three characters, from a word.

    value_of (Callable): Function that takes a lexeme and its text and returns the value, or None if
        the word has no value. The text is passed in because several columns need it and reading it
        from the lexeme is slow.
    attribute (str | None): The lexeme attribute that the function reads. None if it only uses the
        text.
    """

    value_of: Callable[[Lexeme, str], str | None]
    attribute: str | None = None


class WordColumn(StringColumn):
    """A column whose values only depend on the word. `Lookup` computes the value of each word once
    and caches it.

    view (WordView): Defines how values are computed from words.
    """

    def __init__(self, name: str, window: Window, view: WordView) -> None:
        super().__init__(name, window)
        self.view = view
        if view.attribute is not None:
            self.lexeme_attributes = (view.attribute,)
        self._ids: dict[str | None, int] = {}  # keyed by value: see `set_values`

    def set_values(self, values: list[str]) -> None:
        """Set the values and build the map from values to ids."""
        super().set_values(values)
        self._ids = {value: i for i, value in enumerate(values)}

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the values that are frequent enough in the training docs."""
        value_counts: Counter[str] = Counter()
        for word_key, word_count in counts.word_counts.items():
            lexeme = counts.lexemes[word_key]
            value = self.view.value_of(lexeme, lexeme.orth_)
            if value:
                value_counts[value] += word_count
        self.collect_frequent(value_counts)

    def value_id(self, lexeme: Lexeme, word: str) -> int:
        """Return the id of a word's value, or -1 if it has no value or an unknown one."""
        return self._ids.get(self.view.value_of(lexeme, word), -1)


YES = "yes"
"""The only value of a flag. Words without the flag have no value."""

TEXT_FLAGS: dict[str, Callable[[str], bool]] = {
    "has_digit": lambda word: any(map(str.isdigit, word)),
    "has_hyphen": lambda word: "-" in word,
    "has_upper": lambda word: any(map(str.isupper, word)),
    "ends_with_period": lambda word: word.endswith("."),
    "is_first_upper": lambda word: word[:1].isupper(),
}
"""Flags that are computed from the text of a word."""

LEXEME_FLAGS = tuple(
    name for name in IDS if re.match("(IS|LIKE)_", name) and hasattr(Lexeme, name.lower())
)
"""The boolean attributes of spaCy's lexemes, such as IS_TITLE. Some names in `IDS`, such as
IS_OOV_DEPRECATED, aren't lexeme attributes and are excluded."""

FLAGS = (*LEXEME_FLAGS, *TEXT_FLAGS)
"""The names of all flags."""


def prefix(size: int) -> WordView:
    """Create a view of the first `size` characters of a word. Shorter words have no value."""

    def first_characters(lexeme: Lexeme, word: str) -> str | None:
        if len(word) < size:
            return None
        return word[:size]

    return WordView(first_characters)


def suffix(size: int) -> WordView:
    """Create a view of the last `size` characters of a word. Shorter words have no value."""

    def last_characters(lexeme: Lexeme, word: str) -> str | None:
        if len(word) < size:
            return None
        return word[-size:]

    return WordView(last_characters)


def flag(name: str) -> WordView:
    """Create a view of one of `FLAGS`. The value is "yes" if the word has the flag. Otherwise, the
    word has no value."""
    if name in TEXT_FLAGS:
        has_flag = TEXT_FLAGS[name]

        def flag_of_text(lexeme: Lexeme, word: str) -> str | None:
            return YES if has_flag(word) else None

        return WordView(flag_of_text)

    attribute = name.lower()  # "is_title" for IS_TITLE

    def flag_of_lexeme(lexeme: Lexeme, word: str) -> str | None:
        return YES if getattr(lexeme, attribute) else None

    return WordView(flag_of_lexeme, attribute=name)


GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|"
    "sigma|tau|upsilon|phi|chi|psi|omega"
)
SPELLINGS = {
    # The lookahead excludes the empty string.
    "Roman numeral": re.compile("(?=.)(?:X{0,3})(?:IX|IV|V?I{0,3})"),
    "Greek letter": re.compile(f"(?i:{GREEK})|[\u0391-\u03c9]"),
    "base sequence": re.compile("[ACGTU]{4,}"),
}
"""Word types that depend on specific letters. These patterns are matched first."""

OUTLINES = {
    "comma": re.compile(","),
    "full stop": re.compile(r"\.+|…"),
    "bracket": re.compile(r"[\[\](){}<>]+"),
    "punctuation": re.compile("[^Aa0]+"),
    "one digit": re.compile("0"),
    "digits": re.compile("0+"),
    "number": re.compile("[-+]?0+(?:[.,:/]0+)+"),
    "one capital": re.compile("A"),
    "capitals": re.compile("A+"),
    "capitalised": re.compile("Aa+"),
    "lower case": re.compile("a+"),
    "mixed case": re.compile("[Aa]+"),
    "letters, then digits": re.compile("[Aa]+[-./]?0+"),
    "digits, then letters": re.compile("0+[-./]?[Aa]+"),
}
"""The other word types. These patterns are matched against the outline of a word, in which
uppercase letters are replaced with A, other letters with a, and digits with 0."""

CHARACTER_TYPES = (*SPELLINGS, *OUTLINES, "other")
"""All word types."""


def character_type(word: str) -> str:
    """Return the type of a word: the first of `CHARACTER_TYPES` that matches the whole word, or
    "other". The types are similar to the types in Zhou and Su (2004)."""
    for name, pattern in SPELLINGS.items():
        if pattern.fullmatch(word):
            return name
    outline = "".join(_outline(character) for character in word)
    for name, pattern in OUTLINES.items():
        if pattern.fullmatch(outline):
            return name
    return "other"


def _outline(character: str) -> str:
    """Return the replacement for a character in the outline of a word: see `OUTLINES`."""
    if character.isdigit():
        return "0"
    if character.isupper() and character.isalpha():  # the symbol Ⓐ is uppercase but not a letter
        return "A"
    if character.isalpha():
        return "a"
    return character


WORD_VIEWS: dict[str, WordView] = {
    "ORTH": WordView(lambda lexeme, word: word),
    "LOWER": WordView(lambda lexeme, word: lexeme.lower_, "LOWER"),
    "SHAPE": WordView(lambda lexeme, word: lexeme.shape_, "SHAPE"),
    "character_type": WordView(lambda lexeme, word: character_type(word)),
}
"""Word features that have a single column and no settings, keyed by their name in `windows`."""
