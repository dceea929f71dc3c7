"""The `Context` that the reader of a file is given.

It has the pipeline, the user's choices (`ReadOptions`), and a `CorpusInfo`, to which the reader
reports the format of the file, what it guessed about the file, and each *problem*: something that
the file has but docs can't have, such as a span that ends within a token. Commands print its
`CorpusSummary`.
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
"""Maps an annotated doc to the doc that the tokenizer made from the same text. An entry lasts as
long as its annotated doc."""

Places = WeakKeyDictionary[Doc, FilePlace]
"""Maps a doc to its place in a file. An entry lasts as long as its doc."""

CONFLICTS = ("first", "last", "agree", "majority")
"""The values of the option `conflicts`."""

MAX_PLACES = 3
"""The number of places of a problem that are shown. Later places are only counted."""

MAX_LABELS = 12
"""The number of labels that the line about a corpus shows. Others are only counted."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read a corpus, where its files can be read in several ways.

    n_sents (int | None): The number of sentences of a doc, for formats that have sentences. 0: a
        doc has all sentences up to the next -DOCSTART- line or the end of the file. None: the same
        if there are -DOCSTART- lines; otherwise each sentence is a doc.
    token_column (int | str | None): The column that has the tokens, for column files: its number
        from the left, where the first column is 1, or from the right, where the last column is -1;
        or its name, if the file has names of columns. None: the first column that isn't a number of
        the token, or the column FORM.
    tag_column (int | str | None): The column that has the tags, given in the same way, or a key of
        the column MISC of CoNLL-U. None: the last column, the first of several layers of the same
        labels, or the only key or named column with tags. For WebAnno TSV, the number of the
        column that has the labels, at least 4 or negative, or the name of its layer or feature,
        such as "NamedEntity.value". None: the feature of named entities, or the only feature
        of the layers of spans that the user has added.
    scheme (str | None): The scheme of tags: IO, IOB1, IOB2 (or BIO), IOE, BILUO, IOBES or BMES; one
        of these with "-suffix" if the prefix follows the label; or "labels" if there are no
        prefixes. None: it is inferred from the tags.
    column (int | None): Another name of `tag_column`.
    tag_names (list[str] | None): The names of tags that are numbers, in the order of the numbers.
    incorrect_spans_key (str | None): The key of `doc.spans` for spans that were rejected.
    spans_key (str | None): The key of `doc.spans` for entities that may overlap, instead of
        `doc.ents`. If a format has no such spans, the entities are written there.
    text_key (str | None): The key of the text in the data of Label Studio's tasks. None: the text
        that the regions quote. If they quote none: the key "text", or the only key of a text.
    doc_id (str | None): The key with the id of the document that a text or sentence is from, or
        the extension attribute of docs that has it. The texts of a file with the same id, which
        have to follow each other, become one doc.
    conflicts (str | None): What to do with a text that several docs have. "first", "last": the
        first or last doc is kept. "agree": the entities that all have are kept, and where they
        differ, annotation is missing. "majority": the entities that more than half have are kept.
        None: all docs are kept, and docs that contradict each other are reported.
    sentences (bool | None): Whether predicted docs have the sentence starts of the annotation.
        None: they don't, but a component with `sentence_boundaries` cuts docs there in some epochs
        of training. False: they don't, and training doesn't cut docs there either.
    RAISES (ValueError): If a number is out of its range, or there is no such scheme.
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
        """The options that aren't None, as settings of the reader in a config."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        del values["column"]  # it is `tag_column`
        return {name: value for name, value in values.items() if value is not None}


DEFAULTS = ReadOptions()


class Problem(NamedTuple):
    """Something that a file has, but docs can't have.

    message (str): What it is, and how it was read.
    n (int): How often it occurs.
    places (list[str]): Where it occurs first: the file, the line and the text there.
    """

    message: str
    n: int
    places: list[str]

    def as_text(self) -> str:
        """The message with the count, and each place on an indented line."""
        return "\n    ".join([f"{self.message} ({self.n:,})", *self.places])


class CorpusSummary(NamedTuple):
    """How a corpus was read, and its content.

    formats (dict[str, int]): The number of files of each format.
    columns (dict[str, int]): The number of files in which the same columns were read, by the
        description of these columns.
    schemes (dict[str, int]): The number of files of each tag scheme.
    docs (int): The number of docs.
    entities (int): The number of entities, or of spans with the option `spans_key`.
    labels (dict[str, int]): The number of entities of each label, in alphabetical order.
    problems (list[Problem]): What was left out of the docs or changed, and why.
    """

    formats: dict[str, int]
    columns: dict[str, int]
    schemes: dict[str, int]
    docs: int
    entities: int
    labels: dict[str, int]
    problems: list[Problem]

    def as_text(self, name: str) -> str:
        """One line about the corpus, which begins with its name. Problems aren't part of it."""
        schemes = {f"{scheme} tags": n for scheme, n in self.schemes.items()}
        parts = [
            ", ".join([*with_counts(self.formats), *with_counts(schemes)]),
            *with_counts(self.columns),
            f"{self.docs:,} docs",
            f"{self.entities:,} entities{self._labels_text()}",
        ]
        return f"{name}: {'; '.join(parts)}"

    def _labels_text(self) -> str:
        """The labels and their numbers of entities, in parentheses. It is "" without labels."""
        if not self.labels:
            return ""
        counts = [f"{label} {n:,}" for label, n in self.labels.items()]
        if len(counts) > MAX_LABELS:
            counts[MAX_LABELS:] = [f"{len(counts) - MAX_LABELS} more labels"]
        return f" ({', '.join(counts)})"


def with_counts(n_files: Mapping[str, int]) -> list[str]:
    """The keys of a count of files, each with its number of files if it has several."""
    return [key if n == 1 else f"{n:,} x {key}" for key, n in n_files.items()]


class CorpusInfo:
    """The facts that readers report about a corpus, collected while it is read: formats, columns,
    tag schemes, problems, and the number of docs and entities.

    formats (dict[str, int]): The number of files of each format.
    columns (dict[str, int]): The number of files in which the same columns were read.
    schemes (dict[str, int]): The number of files of each tag scheme.
    labels (dict[str, int]): The number of entities of each label.
    n_docs (int): The number of docs.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset all counts before the corpus is read again."""
        self.formats: dict[str, int] = Counter()
        self.columns: dict[str, int] = Counter()
        self.schemes: dict[str, int] = Counter()
        self.labels: dict[str, int] = Counter()
        self.n_docs = 0
        self._problems: dict[str, Problem] = {}

    def add_file(self, format_name: str, scheme: str = "", columns: str = "") -> None:
        """Count a file.

        format_name (str): Its format.
        scheme (str): The scheme of its tags. "": it has no tags.
        columns (str): Which of its columns are read, if it has columns.
        """
        self.formats[format_name] += 1
        if scheme:
            self.schemes[scheme] += 1
        if columns:
            self.columns[columns] += 1

    def add_doc(self, doc: Doc, spans_key: str | None = None) -> None:
        """Count a doc and its entities.

        doc (Doc): An annotated doc.
        spans_key (str | None): The key of `doc.spans` whose spans count as entities. None: the
            spans of `doc.ents` count.
        """
        self.n_docs += 1
        for span in doc.ents if spans_key is None else doc.spans.get(spans_key, ()):
            self.labels[span.label_] += 1

    def summary(self) -> CorpusSummary:
        """A summary of everything that was read so far."""
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
        """Count a problem of a file.

        message (str): What the problem is. The same message is the same problem.
        place (FilePlace | None): Where it is, if that is known.
        text (str): The text at this place, which is shown.
        more (int): The number of further occurrences, which are counted but not shown.
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
        """The problems of all files so far, in the order of their first occurrence."""
        return list(self._problems.values())


class Context(NamedTuple):
    """The arguments of the reader of a file.

    nlp (Language): The pipeline, for its tokenizer and its vocab.
    options (ReadOptions): How to read the file, where there are several ways.
    info (CorpusInfo): The reader adds the format, the scheme and the problems of the file to it.
    predicted (Predicted | None): The reader adds the docs that the pipeline's tokenizer makes to
        it, as a spaCy example needs both an annotated doc and one without annotation. None: they
        are not kept.
    alignment (Alignment | None): The reader counts spans that fit the tokens, and spans that don't,
        for all files of the corpus. None: they are not counted.
    scheme (TagScheme | None): The scheme of the tags in all column files of the corpus. None: it is
        inferred from the tags of the file.
    places (Places | None): The reader records the place of each doc here. None: they are not kept.
    label_feature (str | None): For WebAnno TSV, the feature that has the labels in the files of the
        corpus. None: no file has such a feature.
    """

    nlp: Language
    options: ReadOptions
    info: CorpusInfo
    predicted: Predicted | None = None
    alignment: Alignment | None = None
    scheme: TagScheme | None = None
    places: Places | None = None
    label_feature: str | None = None

    def placed(self, doc: Doc, place: FilePlace) -> Doc:
        """Keep the place of a doc, and return the doc."""
        if self.places is not None:
            self.places[doc] = place
        return doc
