"""Detect corpora in which most spans don't match token boundaries.

If only a few spans don't match, their annotation is wrong, and the reader reports them as problems.
If most spans don't match, the cause is more general: the tokenizer is for another language, or the
offsets don't count characters. Nearly all entities would be lost, so an error is raised.
"""

from collections import Counter
from collections.abc import Callable

from spacy.tokens import Doc

from .files import CorpusError, FilePlace

MIN_MISALIGNED = 5
"""The minimum number of misaligned spans for which an error is raised. Fewer may be misaligned by
chance."""

MAX_EXAMINED = 200
"""The maximum number of misaligned spans to examine when inferring the unit of their offsets."""

EXPLAINED_SHARE = 0.8
"""The minimum proportion of misaligned spans that a conversion must align to be mentioned in the
error message."""

Convert = Callable[[str, int, int], tuple[int, int]]
"""Converts the offsets of a span to character offsets, assuming that they follow another
convention."""


def _end_after_last(text: str, start: int, end: int) -> tuple[int, int]:
    """Convert an inclusive end, the offset of the last character, to an exclusive end."""
    return start, end + 1


def _begin_at_zero(text: str, start: int, end: int) -> tuple[int, int]:
    """Convert 1-based offsets to 0-based offsets."""
    return start - 1, end - 1


def _begin_at_zero_end_after_last(text: str, start: int, end: int) -> tuple[int, int]:
    """Convert 1-based offsets with an inclusive end to 0-based offsets with an exclusive end."""
    return start - 1, end


def _from_bytes(text: str, start: int, end: int) -> tuple[int, int]:
    """Convert offsets in UTF-8 bytes to character offsets."""
    encoded = text.encode("utf8", "replace")
    # Ignore the bytes of a character that is split by the offset.
    before_start = encoded[:start].decode("utf8", "ignore")
    before_end = encoded[:end].decode("utf8", "ignore")
    return len(before_start), len(before_end)


def _from_utf16(text: str, start: int, end: int) -> tuple[int, int]:
    """Convert offsets in UTF-16 code units (two bytes each), as used by JavaScript."""
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
"""Conversions to character offsets, keyed by the wording of the error message. If several align the
same number of spans, the first one is reported. Bytes come first because, in a text with one
accented letter, they look like a shift by one."""


class LanguageError(CorpusError):
    """Raised if the spans of a corpus don't match the tokens, probably because the tokenizer is for
    another language.

    problem (str): The error message, without the name of the language setting.
    lang (str): The language of the tokenizer.
    """

    def __init__(self, problem: str, lang: str) -> None:
        self.problem = problem
        self.lang = lang
        super().__init__(self.as_text("lang"))

    def as_text(self, setting: str) -> str:
        """Return the error message.

        setting (str): The name of the setting or parameter for the language, such as "lang".
        """
        return f"{self.problem}: {setting}: expected the language of the texts, got {self.lang!r}"


class Alignment:
    """Counts the spans of a corpus that match token boundaries, and the spans that don't."""

    def __init__(self) -> None:
        self._n_aligned = 0
        self._n_misaligned = 0
        self._n_tokenized = 0  # misaligned spans whose tokens come from the tokenizer
        self._example = ""  # the first misaligned span
        self._place: FilePlace | None = None  # the location of the example
        self._n_examined = 0
        # The number of examined spans that each conversion would align.
        self._n_explained: Counter[str] = Counter()

    def add_aligned(self) -> None:
        """Count a span that matches token boundaries."""
        self._n_aligned += 1

    def add_misaligned(
        self, doc: Doc, start: int, end: int, place: FilePlace, shown_span: str, *, tokenized: bool
    ) -> None:
        """Count a span that doesn't match token boundaries.

        doc (Doc): The doc that contains the text of the span.
        start (int): The index of the first character of the span.
        end (int): The index after the last character of the span.
        place (FilePlace): The location of the text.
        shown_span (str): The span, formatted for an error message.
        tokenized (bool): Whether the tokens come from the tokenizer rather than the file.
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
        """Check that most spans of the corpus match token boundaries.

        lang (str): The language of the tokenizer.
        RAISES (CorpusError): If most spans don't.
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
