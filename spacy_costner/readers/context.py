"""What the reader of a file is given: a `Context`.

It has the pipeline, the user's choices (`ReadOptions`), and a `CorpusInfo`, to which the reader
reports the format of the file and what it could not read as it is written (`Problem`).
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from spacy.language import Language
from spacy.tokens import Doc

from .files import FilePlace

Predicted = WeakKeyDictionary[Doc, Doc]
"""The doc that the tokenizer made, by the annotated doc of the same text."""

MAX_PLACES = 3
"""How many places of a problem are shown. Later ones are only counted."""


@dataclass(frozen=True)
class ReadOptions:
    """Choices that the files of a corpus leave open.

    n_sents (int | None): For formats of sentences: sentences of a doc. 0: all up to the next
        -DOCSTART- line or the end of the file. None: docs end at -DOCSTART- lines and, in files
        without, at each sentence.
    column (int | None): For columns: the column of the tags, from 2, or from -1 at the end.
        None: the last.
    tag_names (list[str] | None): The names of tags that are numbers, in their order.
    incorrect_spans_key (str | None): The key of `doc.spans` for spans that were rejected.
    spans_key (str | None): The key of `doc.spans` for entities that may overlap, in place of
        `doc.ents`. Where a format has no such spans, it gets the entities.
    doc_id (str | None): The key with the id of the document that a text or sentence is from, or
        the extension attribute of docs. Those of a document become one doc.
    sentences (bool | None): True: predicted docs have the sentence starts of the annotation.
        None: they have none, but training also cuts docs there. False: not even that.
    RAISES (ValueError): If a number is out of its range.
    """

    n_sents: int | None = None
    column: int | None = None
    tag_names: list[str] | None = None
    incorrect_spans_key: str | None = None
    spans_key: str | None = None
    doc_id: str | None = None
    sentences: bool | None = None

    def __post_init__(self) -> None:
        if self.n_sents is not None and self.n_sents < 0:
            raise ValueError(f"n_sents: expected a number of at least 0, got {self.n_sents}")
        if self.column in (0, 1):
            expected = "the column of the tags, from 2, or from -1 at the end"
            raise ValueError(f"column: expected {expected}, got {self.column}")


DEFAULTS = ReadOptions()


class Problem(NamedTuple):
    """Something that could not be read as it is written.

    message (str): What it is, and what happens to it.
    n (int): How often it was met.
    places (list[str]): The first places: file, line and text.
    """

    message: str
    n: int
    places: list[str]

    def as_text(self) -> str:
        """The message with the count, and each place on an indented line."""
        return "\n    ".join([f"{self.message} ({self.n:,})", *self.places])


class CorpusInfo:
    """The formats, tag schemes and problems of a corpus, collected while it is read.

    formats (dict[str, int]): The number of files of each format.
    schemes (dict[str, int]): The number of files of each tag scheme.
    """

    def __init__(self) -> None:
        self.formats: dict[str, int] = Counter()
        self.schemes: dict[str, int] = Counter()
        self._problems: dict[str, Problem] = {}

    def add_file(self, format_name: str, scheme: str = "") -> None:
        """Count a file of a format and, if it has tags, of a scheme."""
        self.formats[format_name] += 1
        if scheme:
            self.schemes[scheme] += 1

    def add_problem(
        self, message: str, place: FilePlace | None, text: str = "", *, more: int = 0
    ) -> None:
        """Count a problem of a file.

        message (str): What the problem is. The same message is the same problem.
        place (FilePlace | None): Where it is, if that is known.
        text (str): The text there, to show it.
        more (int): How often the problem is at later places, which are only counted.
        """
        earlier = self._problems.get(message, Problem(message, n=0, places=[]))
        n = earlier.n + 1 + more
        places = earlier.places
        if place is not None and len(places) < MAX_PLACES:
            shown_place = f"{place}: {text}" if text else str(place)
            places = [*places, shown_place]
        self._problems[message] = Problem(message, n, places)

    @property
    def problems(self) -> list[Problem]:
        """The problems of all files so far, in the order in which each was first met."""
        return list(self._problems.values())


class Context(NamedTuple):
    """What the reader of a file needs.

    nlp (Language): The pipeline, for its tokenizer and its vocab.
    options (ReadOptions): Choices that the file leaves open.
    info (CorpusInfo): Gets the format, the scheme and the problems of the file.
    predicted (Predicted | None): Gets, for docs whose tokens are from the pipeline's tokenizer, the
        doc that the tokenizer made, as an example needs both.
    """

    nlp: Language
    options: ReadOptions
    info: CorpusInfo
    predicted: Predicted | None = None
