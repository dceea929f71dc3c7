"""The `Context` that is passed to the reader of a file.

It contains the pipeline, the user's options (`ReadOptions`), and a `CorpusInfo`. The reader adds
the format of the file, its columns and tag scheme, and any *problems* to the `CorpusInfo`. A
problem is content that docs can't represent, such as a span that ends within a token. Commands
print the resulting `CorpusSummary`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from spacy.language import Language
from spacy.tokens import Doc

from .alignment import Alignment
from .files import FilePlace
from .schemes import TagScheme, check_scheme

Predicted = WeakKeyDictionary[Doc, Doc]
"""Maps an annotated doc to the doc that the tokenizer created from the same text. An entry is
removed when its annotated doc is garbage-collected."""

Places = WeakKeyDictionary[Doc, FilePlace]
"""Maps a doc to its location in a file. An entry is removed when its doc is garbage-collected."""

SpanScores = WeakKeyDictionary[Doc, dict[tuple[int, int, str], float]]
"""Maps a doc to the scores of its spans, by start token, end token (exclusive) and label. An entry
is removed when its doc is garbage-collected. Docs that are joined by the option `doc_id` have no
scores."""

CONFLICTS = ("first", "last", "agree", "majority")
"""The values of the option `conflicts`."""

MAX_PLACES = 3
"""The maximum number of locations to show per problem. Other occurrences are only counted."""

MAX_LABELS = 12
"""The maximum number of labels to show in a summary. Other labels are only counted."""


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a corpus.

    n_sents (int | None): The number of sentences per doc, for formats with sentences. If 0, a doc
        contains all sentences up to the next -DOCSTART- line or the end of the file. If None, the
        same applies to files with -DOCSTART- lines. In other files, each sentence is a doc.
    token_column (int | str | None): The token column in column files: its number (counted from 1 on
        the left or from -1 on the right) or its name, if the columns are named. Defaults to the
        FORM column, or the first column that doesn't contain token numbers.
    tag_column (int | str | None): The tag column, specified in the same way, or a key in the MISC
        column of CoNLL-U. Defaults to the last column, the first of several layers with the same
        labels, or the only key or named column with tags. For WebAnno TSV, the number of the label
        column (at least 4, or negative), or the name of its layer or feature, such as
        "NamedEntity.value". In this case, defaults to the named entity feature, or the only feature
        of the user's custom span layers.
    scheme (str | None): The tag scheme: IO, IOB1, IOB2 (or BIO), IOE, BILUO, IOBES or BMES; one of
        these with "-suffix" if the prefix follows the label; or "labels" if there are no prefixes.
        If None, the scheme is inferred from the tags.
    column (int | None): An alias of `tag_column`.
    tag_names (list[str] | None): The names of numeric tags, in numerical order.
    incorrect_spans_key (str | None): The key in `doc.spans` for rejected spans.
    spans_key (str | None): The key in `doc.spans` for entities that may overlap, instead of
        `doc.ents`. Entities from formats without overlapping spans are also stored there.
    text_key (str | None): The key of the text in the data of Label Studio's tasks. Defaults to the
        text that the regions quote. If they don't quote any text, defaults to "text", or to the
        only key with a text.
    doc_id (str | None): The key of the document ID in the data, or the extension attribute with the
        document ID. Texts with the same ID must be consecutive and are joined into one doc.
    conflicts (str | None): How to merge docs with the same text. "first" and "last" keep the first
        or last doc. "agree" keeps the entities that all docs agree on, and treats annotation as
        missing where they differ. "majority" keeps the entities in more than half of the docs. If
        None, all docs are kept, and docs that contradict each other are reported.
    sentences (bool | None): Whether to copy the annotated sentence starts to the predicted docs. If
        None, they aren't copied, but a component with `sentence_boundaries` splits docs there in
        some training epochs. If False, training doesn't split docs there either.
    RAISES (ValueError): If a number is out of range, or an option has an invalid value.
    """

    n_sents: int | None = None
    token_column: int | str | None = None
    tag_column: int | str | None = None
    scheme: str | None = None
    column: int | None = None
    tag_names: list[str] | None = None
    incorrect_spans_key: str | None = None
    spans_key: str | None = None
    text_key: str | None = None
    doc_id: str | None = None
    conflicts: str | None = None
    sentences: bool | None = None

    def __post_init__(self) -> None:
        if self.n_sents is not None and self.n_sents < 0:
            raise ValueError(f"n_sents: expected a number of at least 0, got {self.n_sents}")
        if self.column is not None:
            if self.tag_column not in (None, self.column):
                got = f"got {self.column} and {self.tag_column!r}"
                raise ValueError(f"column: expected only one of column and tag_column, {got}")
            object.__setattr__(self, "tag_column", self.column)  # the object is frozen
        for name in ("token_column", "tag_column"):
            if getattr(self, name) in (0, ""):
                expected = "expected a number from 1, or from -1 at the end, or a name"
                raise ValueError(f"{name}: {expected}, got {getattr(self, name)!r}")
        if self.tag_column is not None and self.tag_column == self.token_column:
            expected = "expected a column other than the token column"
            raise ValueError(f"tag_column: {expected}, got {self.tag_column!r}")
        if self.scheme is not None:
            object.__setattr__(self, "scheme", check_scheme(self.scheme))
        if self.conflicts is not None and self.conflicts not in CONFLICTS:
            expected = ", ".join(CONFLICTS)
            raise ValueError(f"conflicts: expected one of {expected}, got {self.conflicts!r}")

    def settings(self) -> dict[str, Any]:
        """Return the options that aren't None, as settings for the reader in a config."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        del values["column"]  # same as `tag_column`
        return {name: value for name, value in values.items() if value is not None}


DEFAULTS = ReadOptions()


class Problem(NamedTuple):
    """Content of a corpus that docs can't represent.

    message (str): What the problem is, and how the content was read.
    n (int): The number of occurrences.
    places (list[str]): The first occurrences, each with the file, the line and the text.
    """

    message: str
    n: int
    places: list[str]

    def as_text(self) -> str:
        """Format the message with its count, followed by one indented line per location."""
        return "\n    ".join([f"{self.message} ({self.n:,})", *self.places])


class CorpusSummary(NamedTuple):
    """A summary of what a corpus contains and how it was read.

    formats (dict[str, int]): The number of files per format.
    columns (dict[str, int]): The number of files per description of the columns that were read.
    schemes (dict[str, int]): The number of files per tag scheme.
    docs (int): The number of docs.
    entities (int): The number of entities, or of spans if the option `spans_key` is set.
    labels (dict[str, int]): The number of entities per label, in alphabetical order.
    problems (list[Problem]): What was omitted or changed in the docs, and why.
    """

    formats: dict[str, int]
    columns: dict[str, int]
    schemes: dict[str, int]
    docs: int
    entities: int
    labels: dict[str, int]
    problems: list[Problem]

    def as_text(self, name: str) -> str:
        """Format the summary as one line that begins with the given name. Problems aren't
        included."""
        schemes = {f"{scheme} tags": n for scheme, n in self.schemes.items()}
        parts = [
            ", ".join([*with_counts(self.formats), *with_counts(schemes)]),
            *with_counts(self.columns),
            f"{self.docs:,} docs",
            f"{self.entities:,} entities{self._labels_text()}",
        ]
        return f"{name}: {'; '.join(parts)}"

    def _labels_text(self) -> str:
        """Format the labels and their counts in parentheses. Returns "" if there are no labels."""
        if not self.labels:
            return ""
        counts = [f"{label} {n:,}" for label, n in self.labels.items()]
        if len(counts) > MAX_LABELS:
            counts[MAX_LABELS:] = [f"{len(counts) - MAX_LABELS} more labels"]
        return f" ({', '.join(counts)})"


def with_counts(n_files: Mapping[str, int]) -> list[str]:
    """Format file counts. Counts of 1 are omitted."""
    return [key if n == 1 else f"{n:,} x {key}" for key, n in n_files.items()]


class CorpusInfo:
    """Information that readers collect about a corpus: formats, columns, tag schemes, problems, and
    the numbers of docs and entities.

    formats (dict[str, int]): The number of files per format.
    columns (dict[str, int]): The number of files per description of the columns that were read.
    schemes (dict[str, int]): The number of files per tag scheme.
    labels (dict[str, int]): The number of entities per label.
    n_docs (int): The number of docs.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset everything, so that the corpus can be read again."""
        self.formats: dict[str, int] = Counter()
        self.columns: dict[str, int] = Counter()
        self.schemes: dict[str, int] = Counter()
        self.labels: dict[str, int] = Counter()
        self.n_docs = 0
        self._problems: dict[str, Problem] = {}

    def add_file(self, format_name: str, scheme: str = "", columns: str = "") -> None:
        """Count a file.

        format_name (str): The format.
        scheme (str): The tag scheme, or "" if the file has no tags.
        columns (str): A description of the columns that are read, if the file has columns.
        """
        self.formats[format_name] += 1
        if scheme:
            self.schemes[scheme] += 1
        if columns:
            self.columns[columns] += 1

    def add_doc(self, doc: Doc, spans_key: str | None = None) -> None:
        """Count a doc and its entities.

        doc (Doc): An annotated doc.
        spans_key (str | None): The key in `doc.spans` of the spans to count as entities. If None,
            the spans in `doc.ents` are counted.
        """
        self.n_docs += 1
        for span in doc.ents if spans_key is None else doc.spans.get(spans_key, ()):
            self.labels[span.label_] += 1

    def summary(self) -> CorpusSummary:
        """Summarize everything that has been read so far."""
        return CorpusSummary(
            formats=dict(self.formats),
            columns=dict(self.columns),
            schemes=dict(self.schemes),
            docs=self.n_docs,
            entities=sum(self.labels.values()),
            labels=dict(sorted(self.labels.items())),
            problems=self.problems,
        )

    def add_problem(
        self, message: str, place: FilePlace | None, text: str = "", *, more: int = 0
    ) -> None:
        """Count an occurrence of a problem.

        message (str): The description of the problem. Occurrences with the same message are counted
            as one problem.
        place (FilePlace | None): The location, if known.
        text (str): The text at this location, for display.
        more (int): The number of additional occurrences to count. Their locations aren't shown.
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
        """The problems of all files so far, in order of first occurrence."""
        return list(self._problems.values())


class Context(NamedTuple):
    """Arguments for the function that reads a file.

    nlp (Language): The pipeline, which provides the tokenizer and the vocab.
    options (ReadOptions): Options for reading the file.
    info (CorpusInfo): The reader adds the file's format, scheme and problems to it.
    predicted (Predicted | None): The reader adds the docs created by the tokenizer to it, because a
        spaCy example requires both an annotated doc and one without annotation. If None, these docs
        aren't stored.
    alignment (Alignment | None): Counts the aligned and misaligned spans of all files in the
        corpus. If None, spans aren't counted.
    scheme (TagScheme | None): The tag scheme of all column files in the corpus. If None, it is
        inferred from the tags of the file.
    places (Places | None): The reader adds the location of each doc to it. If None, locations
        aren't stored.
    label_feature (str | None): The feature that contains the labels in all WebAnno files of the
        corpus, or None if no file contains such a feature.
    scores (SpanScores | None): The reader adds the scores of the spans in tasks to it. If None,
        scores aren't read.
    """

    nlp: Language
    options: ReadOptions
    info: CorpusInfo
    predicted: Predicted | None = None
    alignment: Alignment | None = None
    scheme: TagScheme | None = None
    places: Places | None = None
    label_feature: str | None = None
    scores: SpanScores | None = None

    def placed(self, doc: Doc, place: FilePlace) -> Doc:
        """Store the location of a doc, and return the doc."""
        if self.places is not None:
            self.places[doc] = place
        return doc
