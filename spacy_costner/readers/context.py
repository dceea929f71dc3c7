"""The `Context` that the reader of a file is given.

It has the pipeline, the user's choices (`ReadOptions`), and a `CorpusInfo`. To the latter the
reader reports the format of the file, and each *problem*: something that the file has but docs
can't have, such as a span that ends within a token.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

from spacy.language import Language
from spacy.tokens import Doc

from .files import FilePlace

Predicted = WeakKeyDictionary[Doc, Doc]
"""Maps an annotated doc to the doc that the tokenizer made of the same text. An entry lasts as long
as its annotated doc."""

Places = WeakKeyDictionary[Doc, FilePlace]
"""Maps a doc to its place in a file. An entry lasts as long as its doc."""

CONFLICTS = ("first", "last", "agree", "majority")
"""The values of the option `conflicts`."""

MAX_PLACES = 3
"""The number of places of a problem that are shown. Later places are only counted."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read a corpus, where its files can be read in several ways.

    n_sents (int | None): The number of sentences of a doc, for formats that have sentences. 0: a
        doc has all sentences up to the next -DOCSTART- line or the end of the file. None: the same
        if there are -DOCSTART- lines; otherwise each sentence is a doc.
    column (int | None): The number of the column that has the tags, for files of columns: at least
        2 from the left, where the first column is 1, or negative from the right, where the last
        column is -1. None: the last column. For WebAnno TSV, the column that has the labels, at
        least 4 or negative. None: see `layer`.
    layer (str | None): For WebAnno TSV, the name of the layer or feature that has the labels, such
        as "NamedEntity.value". None: that of named entities, or the only feature of the layers of
        spans that the user has added.
    tag_names (list[str] | None): The names of tags that are numbers, in the order of the numbers.
    incorrect_spans_key (str | None): The key of `doc.spans` for spans that were rejected.
    spans_key (str | None): The key of `doc.spans` for entities that may overlap, in place of
        `doc.ents`. If a format has no such spans, the entities are written there.
    doc_id (str | None): The key with the id of the document that a text or sentence is from, or
        the extension attribute of docs that has it. The texts of a file with the same id, which
        have to follow each other, become one doc.
    conflicts (str | None): What to do with a text that several docs have. "first", "last": the
        first or last doc is kept. "agree": the entities that all have are kept, and where they
        differ, annotation is missing. "majority": the entities that more than half have are kept.
        None: all docs are kept, and those that contradict each other are reported.
    sentences (bool | None): Whether predicted docs have the sentence starts of the annotation.
        None: they don't, but a component with `sentence_boundaries` cuts docs there in some epochs
        of training. False: they don't, and training doesn't cut docs there either.
    RAISES (ValueError): If a number is out of its range.
    """

    n_sents: int | None = None
    column: int | None = None
    layer: str | None = None
    tag_names: list[str] | None = None
    incorrect_spans_key: str | None = None
    spans_key: str | None = None
    doc_id: str | None = None
    conflicts: str | None = None
    sentences: bool | None = None

    def __post_init__(self) -> None:
        if self.n_sents is not None and self.n_sents < 0:
            raise ValueError(f"n_sents: expected a number of at least 0, got {self.n_sents}")
        if self.column in (0, 1):
            expected = "the column of the tags, from 2, or from -1 at the end"
            raise ValueError(f"column: expected {expected}, got {self.column}")
        if self.conflicts is not None and self.conflicts not in CONFLICTS:
            expected = ", ".join(CONFLICTS)
            raise ValueError(f"conflicts: expected one of {expected}, got {self.conflicts!r}")


DEFAULTS = ReadOptions()


class Problem(NamedTuple):
    """Something that a file has, but docs can't have.

    message (str): What it is, and how it was read.
    n (int): How often the readers have met it.
    places (list[str]): Where they met it first: the file, the line and the text there.
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
        text (str): The text at this place, which is shown.
        more (int): How often the problem is at further places, which are counted but not shown.
        """
        earlier_problem = self._problems.get(message, Problem(message, n=0, places=[]))
        n = earlier_problem.n + 1 + more
        places = earlier_problem.places
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
    options (ReadOptions): How to read the file, where there are several ways.
    info (CorpusInfo): The reader adds the format, the scheme and the problems of the file to it.
    predicted (Predicted | None): The reader adds the docs that the pipeline's tokenizer makes to
        it, as a spaCy example needs both an annotated doc and one without annotation. None: they
        are not kept.
    places (Places | None): The reader adds the places of docs to it. None: they are not kept.
    label_feature (str | None): For WebAnno TSV, the feature that has the labels in the files of the
        corpus. None: no file has such a feature.
    """

    nlp: Language
    options: ReadOptions
    info: CorpusInfo
    predicted: Predicted | None = None
    places: Places | None = None
    label_feature: str | None = None

    def placed(self, doc: Doc, place: FilePlace) -> Doc:
        """Keep the place of a doc, and return the doc."""
        if self.places is not None:
            self.places[doc] = place
        return doc
