"""Features of words: the word itself, its shape, its first and last characters, flags, its type.

A column gives each token a value, such as its shape: see `column.py`. Here a value depends on the
word alone, not on its doc, so it is computed once for each word. A *view* says how: it has a
function that computes the value of a word. The function can use the attributes of spaCy's lexeme of
the word, such as the word in lower case.
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
    """How the value of a word is computed, such as its shape or its last three characters.

    value_of (Callable): Takes a lexeme and its text, and returns the value, or None if the word has
        none. The text is an argument because several columns need it, and reading it from a lexeme
        is slow.
    attribute (str | None): The attribute of the lexeme that the function reads. None: the text is
        enough.
    """

    value_of: Callable[[Lexeme, str], str | None]
    attribute: str | None = None


class WordColumn(StringColumn):
    """A column whose values depend on the word alone. `Lookup` computes the value of a word once,
    and caches it.

    view (WordView): How the value of a word is computed.
    """

    def __init__(self, name: str, window: Window, view: WordView) -> None:
        super().__init__(name, window)
        self.view = view
        if view.attribute is not None:
            self.lexeme_attributes = (view.attribute,)
        self._ids: dict[str | None, int] = {}  # by value: see `set_values`

    def set_values(self, values: list[str]) -> None:
        """Set the values, and make the map from values to ids."""
        super().set_values(values)
        self._ids = {value: i for i, value in enumerate(values)}

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the values that are frequent in the training docs."""
        value_counts: Counter[str] = Counter()
        for word_key, word_count in counts.word_counts.items():
            lexeme = counts.lexemes[word_key]
            value = self.view.value_of(lexeme, lexeme.orth_)
            if value:
                value_counts[value] += word_count
        self.collect_frequent(value_counts)

    def value_id(self, lexeme: Lexeme, word: str) -> int:
        """The id of the value of a word. -1: the word has no value, or one that isn't a value of
        the column."""
        return self._ids.get(self.view.value_of(lexeme, word), -1)


YES = "yes"
"""The only value of a flag. A word without the flag has no value."""

TEXT_FLAGS: dict[str, Callable[[str], bool]] = {
    "has_digit": lambda word: any(map(str.isdigit, word)),
    "has_hyphen": lambda word: "-" in word,
    "has_upper": lambda word: any(map(str.isupper, word)),
    "ends_with_period": lambda word: word.endswith("."),
    "is_first_upper": lambda word: word[:1].isupper(),
}
"""The flags that are computed from the text of a word."""

LEXEME_FLAGS = tuple(
    name for name in IDS if re.match("(IS|LIKE)_", name) and hasattr(Lexeme, name.lower())
)
"""The yes-or-no attributes of spaCy's lexemes, such as IS_TITLE. Not every such name in `IDS` is an
attribute of lexemes: IS_OOV_DEPRECATED, for example, isn't."""

FLAGS = (*LEXEME_FLAGS, *TEXT_FLAGS)
"""The names of all flags."""


def prefix(size: int) -> WordView:
    """A view of the first `size` characters of a word. A shorter word has no value."""

    def first_characters(lexeme: Lexeme, word: str) -> str | None:
        if len(word) < size:
            return None
        return word[:size]

    return WordView(first_characters)


def suffix(size: int) -> WordView:
    """A view of the last `size` characters of a word. A shorter word has no value."""

    def last_characters(lexeme: Lexeme, word: str) -> str | None:
        if len(word) < size:
            return None
        return word[-size:]

    return WordView(last_characters)


def flag(name: str) -> WordView:
    """A view of one of `FLAGS`. The value of a word is "yes" if it has the flag. Otherwise it has
    no value."""
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
    # The empty text, which has no first character, is no numeral.
    "Roman numeral": re.compile("(?=.)(?:X{0,3})(?:IX|IV|V?I{0,3})"),
    "Greek letter": re.compile(f"(?i:{GREEK})|[\u0391-\u03c9]"),
    "base sequence": re.compile("[ACGTU]{4,}"),
}
"""The types of words that depend on their letters. A word is compared with these first."""

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
"""The other types of words. They are compared with the outline of a word, in which each capital is
replaced by A, each other letter by a, and each digit by 0."""

CHARACTER_TYPES = (*SPELLINGS, *OUTLINES, "other")
"""All types of words."""


def character_type(word: str) -> str:
    """Find the type of a word: the first of `CHARACTER_TYPES` that fits all of it, or "other". The
    types are similar to the types of Zhou and Su (2004)."""
    for name, pattern in SPELLINGS.items():
        if pattern.fullmatch(word):
            return name
    outline = "".join(_outline(character) for character in word)
    for name, pattern in OUTLINES.items():
        if pattern.fullmatch(outline):
            return name
    return "other"


def _outline(character: str) -> str:
    """The character that replaces another one in the outline of a word: see `OUTLINES`."""
    if character.isdigit():
        return "0"
    if character.isupper() and character.isalpha():  # the symbol Ⓐ is upper, but no letter
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
"""The kinds of features of words that have a single column and no settings, keyed by their names in
`windows`."""
