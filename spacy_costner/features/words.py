"""Features of words: the word itself, its shape, its first and last characters, flags, its type."""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from spacy.attrs import IDS
from spacy.lexeme import Lexeme

from .column import StringColumn, Window
from .counts import TrainingCounts


class WordView(NamedTuple):
    """A kind of value of words.

    value_of (Callable): Takes a lexeme and its text, which is slow to get, to the value or None.
    attribute (str | None): The attribute of the lexeme that it reads; None if the text is enough.
    """

    value_of: Callable[[Lexeme, str], str | None]
    attribute: str | None = None


class WordColumn(StringColumn):
    """Values that depend on the word alone. `Lookup` finds them once for each word, and caches
    them.

    view (WordView): Computes the value of a word.
    """

    def __init__(self, name: str, window: Window, view: WordView) -> None:
        super().__init__(name, window)
        self.view = view
        if view.attribute is not None:
            self.lexeme_attributes = (view.attribute,)
        self._ids: dict[str | None, int] = {}

    def set_values(self, values: list[str]) -> None:
        super().set_values(values)
        self._ids = {value: i for i, value in enumerate(values)}

    def collect(self, counts: TrainingCounts) -> None:
        n_times: Counter[str] = Counter()
        for key, n in counts.word_counts.items():
            lexeme = counts.lexemes[key]
            value = self.view.value_of(lexeme, lexeme.orth_)
            if value:
                n_times[value] += n
        self.collect_frequent(n_times)

    def value_id(self, lexeme: Lexeme, word: str) -> int:
        """The id of the value of a word, -1 for none."""
        return self._ids.get(self.view.value_of(lexeme, word), -1)


YES = "yes"

TEXT_FLAGS: dict[str, Callable[[str], bool]] = {
    "has_digit": lambda word: any(map(str.isdigit, word)),
    "has_hyphen": lambda word: "-" in word,
    "has_upper": lambda word: any(map(str.isupper, word)),
    "ends_with_period": lambda word: word.endswith("."),
    "is_first_upper": lambda word: word[:1].isupper(),
}
LEXEME_FLAGS = tuple(
    name for name in IDS if re.match("(IS|LIKE)_", name) and hasattr(Lexeme, name.lower())
)
FLAGS = (*LEXEME_FLAGS, *TEXT_FLAGS)


def prefix(size: int) -> WordView:
    """The first characters, of words that are long enough."""
    return WordView(lambda _, word: word[:size] if len(word) >= size else None)


def suffix(size: int) -> WordView:
    """The last characters, of words that are long enough."""
    return WordView(lambda _, word: word[-size:] if len(word) >= size else None)


def flag(name: str) -> WordView:
    """A yes-or-no attribute of a word."""
    if name in TEXT_FLAGS:
        is_set = TEXT_FLAGS[name]
        return WordView(lambda _, word: YES if is_set(word) else None)
    attribute = name.lower()
    return WordView(lambda lexeme, _: YES if getattr(lexeme, attribute) else None, name)


GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|"
    "sigma|tau|upsilon|phi|chi|psi|omega"
)
SPELLINGS = {
    "Roman numeral": re.compile("(?=.)(?:X{0,3})(?:IX|IV|V?I{0,3})"),
    "Greek letter": re.compile(f"(?i:{GREEK})|[\u0391-\u03c9]"),
    "base sequence": re.compile("[ACGTU]{4,}"),
}
"""Types that are a matter of certain letters. They come before the others."""

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
"""Types of words in which each capital is A, each other letter a, each digit 0."""


def character_type(word: str) -> str:
    """The first of 17 types that fits a word as a whole, after those of Zhou and Su (2004);
    "other" if none does."""
    for name, pattern in SPELLINGS.items():
        if pattern.fullmatch(word):
            return name
    outline = "".join(_outline(character) for character in word)
    for name, pattern in OUTLINES.items():
        if pattern.fullmatch(outline):
            return name
    return "other"


def _outline(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isupper() and character.isalpha():
        return "A"
    if character.isalpha():
        return "a"
    return character


WORD_VIEWS: dict[str, WordView] = {
    "ORTH": WordView(lambda _, word: word),
    "LOWER": WordView(lambda lexeme, _: lexeme.lower_, "LOWER"),
    "SHAPE": WordView(lambda lexeme, _: lexeme.shape_, "SHAPE"),
    "character_type": WordView(lambda _, word: character_type(word)),
}
"""The kinds of values of words that have a single column."""
