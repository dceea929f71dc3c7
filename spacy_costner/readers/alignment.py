"""Refuse a corpus if most of its spans don't begin and end with tokens.

A few such spans are problems of the annotation, which the reader reports. If most spans are like
this, something is wrong with all of them: the tokenizer is for another language, or the offsets
don't count characters. Such a corpus would be read with nearly no entities.
"""

from collections import Counter
from collections.abc import Callable

from spacy.tokens import Doc

from .files import CorpusError, FilePlace

MIN_MISALIGNED = 5
"""A corpus is refused if it has at least this many misaligned spans, as fewer may be chance."""

MAX_EXAMINED = 200
"""The maximum number of misaligned spans that are examined to find out what their offsets count."""

EXPLAINED_SHARE = 0.8
"""The minimum share of the misaligned spans that another way to count has to align, so that an
error names it."""

Convert = Callable[[str, int, int], tuple[int, int]]
"""Takes a text and the offsets of a span, and returns the offsets in characters, if the given ones
count something else."""


def _end_after_last(text: str, start: int, end: int) -> tuple[int, int]:
    """The end is the number of the last character, and not of the one after it."""
    return start, end + 1


def _begin_at_zero(text: str, start: int, end: int) -> tuple[int, int]:
    """The first character of a text has the number 1."""
    return start - 1, end - 1


def _begin_at_zero_end_after_last(text: str, start: int, end: int) -> tuple[int, int]:
    """The first character has the number 1, and the end is the number of the last character."""
    return start - 1, end


def _from_bytes(text: str, start: int, end: int) -> tuple[int, int]:
    """The offsets count the UTF-8 bytes of the text."""
    encoded = text.encode("utf8", "replace")
    # Bytes of a character that is cut in two are left out.
    before_start = encoded[:start].decode("utf8", "ignore")
    before_end = encoded[:end].decode("utf8", "ignore")
    return len(before_start), len(before_end)


def _from_utf16(text: str, start: int, end: int) -> tuple[int, int]:
    """The offsets count UTF-16 code units, as in JavaScript: two bytes each."""
    encoded = text.encode("utf-16-le", "replace")
    before_start = encoded[: 2 * start].decode("utf-16-le", "ignore")
    before_end = encoded[: 2 * end].decode("utf-16-le", "ignore")
    return len(before_start), len(before_end)


CONVERSIONS: dict[str, Convert] = {
    "offsets in characters, got offsets in UTF-8 bytes": _from_bytes,
    "offsets in characters, got offsets in UTF-16 code units": _from_utf16,
    "exclusive ends, got inclusive ends": _end_after_last,
    "offsets from 0, got offsets from 1": _begin_at_zero,
    "offsets from 0 and exclusive ends, got offsets from 1 and inclusive ends": (
        _begin_at_zero_end_after_last
    ),
}
"""The units that offsets may count, as the error names them, and the conversion to characters. If
several align equally many spans, the first one is named: bytes look like a shift by one if there is
one accent."""


class LanguageError(CorpusError):
    """A corpus whose spans don't fit the tokens of a language.

    problem (str): What doesn't fit, without the setting of the language.
    lang (str): The language of the tokenizer.
    """

    def __init__(self, problem: str, lang: str) -> None:
        self.problem = problem
        self.lang = lang
        super().__init__(self.as_text("lang"))

    def as_text(self, setting: str) -> str:
        """The message of the error.

        setting (str): The setting or parameter that chooses the language, such as "lang".
        """
        return f"{self.problem}: {setting}: expected the language of the texts, got {self.lang!r}"


class Alignment:
    """Counts the spans of a corpus that begin and end with tokens, and those that don't."""

    def __init__(self) -> None:
        self._n_aligned = 0
        self._n_misaligned = 0
        self._n_tokenized = 0  # misaligned spans of texts that the tokenizer has divided
        self._example = ""  # the first misaligned span
        self._place: FilePlace | None = None  # its place
        self._n_examined = 0
        # The number of examined spans that each conversion would align
        self._n_explained: Counter[str] = Counter()

    def add_aligned(self) -> None:
        """Count a span that begins and ends with tokens."""
        self._n_aligned += 1

    def add_misaligned(
        self, doc: Doc, start: int, end: int, place: FilePlace, shown_span: str, *, tokenized: bool
    ) -> None:
        """Count a span that doesn't begin and end with tokens.

        doc (Doc): The doc of its text.
        start (int): The first character of the span.
        end (int): The character after its last.
        place (FilePlace): The place of the text.
        shown_span (str): The span as an error shows it.
        tokenized (bool): Whether the tokens are from the tokenizer, and not from the file.
        """
        self._n_misaligned += 1
        self._n_tokenized += tokenized
        if not self._example:
            self._example = shown_span
            self._place = place
        if self._n_examined == MAX_EXAMINED:
            return
        self._n_examined += 1
        for expected, convert in CONVERSIONS.items():
            new_start, new_end = convert(doc.text, start, end)
            is_inside = 0 <= new_start < new_end <= len(doc.text)
            if is_inside and doc.char_span(new_start, new_end) is not None:
                self._n_explained[expected] += 1

    def check(self, lang: str) -> None:
        """Check that most spans of a corpus begin and end with tokens.

        lang (str): The language of the tokenizer.
        RAISES (CorpusError): If they don't.
        """
        n_spans = self._n_aligned + self._n_misaligned
        if self._n_misaligned < MIN_MISALIGNED or self._n_misaligned <= n_spans / 2:
            return
        problem = (
            f"{self._place}: expected spans that begin and end with tokens, got {self._example} "
            f"and {self._n_misaligned - 1:,} others of {n_spans:,} that don't"
        )
        for expected, n_explained in self._n_explained.most_common(1):
            if n_explained >= EXPLAINED_SHARE * self._n_examined:
                raise CorpusError(f"{problem}: expected {expected}")
        if self._n_tokenized > self._n_misaligned / 2:
            raise LanguageError(problem, lang)
        raise CorpusError(f"{problem}: these tokens are in the file")
