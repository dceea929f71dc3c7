"""Values of words. Each view maps a lexeme to a value or None."""

import re
from typing import Callable, Dict, Optional

from spacy.attrs import IDS
from spacy.lexeme import Lexeme

WordView = Callable[[Lexeme], Optional[str]]
YES = "yes"

OWN_FLAGS: Dict[str, Callable[[str], bool]] = {
    "has_digit": lambda word: any(map(str.isdigit, word)),
    "has_hyphen": lambda word: "-" in word,
    "has_upper": lambda word: any(map(str.isupper, word)),
    "ends_with_period": lambda word: word.endswith("."),
    "is_first_upper": lambda word: word[:1].isupper(),
}
LEXEME_FLAGS = tuple(
    name for name in IDS if re.match("(IS|LIKE)_", name) and hasattr(Lexeme, name.lower())
)
FLAGS = (*LEXEME_FLAGS, *OWN_FLAGS)


def orth(lexeme: Lexeme) -> str:
    """The word."""
    return lexeme.orth_


def lower(lexeme: Lexeme) -> str:
    """The word in lower case."""
    return lexeme.lower_


def shape(lexeme: Lexeme) -> str:
    """The shape of the word as in spaCy: Xxxxx, dd-dd."""
    return lexeme.shape_


def prefix(size: int) -> WordView:
    """The first characters, of words that are long enough."""
    return lambda lexeme: lexeme.orth_[:size] if len(lexeme.orth_) >= size else None


def suffix(size: int) -> WordView:
    """The last characters, of words that are long enough."""
    return lambda lexeme: lexeme.orth_[-size:] if len(lexeme.orth_) >= size else None


def flag(name: str) -> WordView:
    """A yes-or-no attribute of a word."""
    if name in OWN_FLAGS:
        is_so = OWN_FLAGS[name]
        return lambda lexeme: YES if is_so(lexeme.orth_) else None
    attribute = name.lower()
    return lambda lexeme: YES if getattr(lexeme, attribute) else None


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


def character_type(lexeme: Lexeme) -> str:
    """The first of 17 types that fits a word as a whole, after those of Zhou and Su (2004);
    "other" if none does."""
    word = lexeme.orth_
    outline = "".join(map(_outline, word))
    for types, written in ((SPELLINGS, word), (OUTLINES, outline)):
        for name, pattern in types.items():
            if pattern.fullmatch(written):
                return name
    return "other"


def _outline(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isalpha():
        return "A" if character.isupper() else "a"
    return character
