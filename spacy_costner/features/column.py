"""The base classes of columns. They declare what every kind of feature has to define.

A *column* is a kind of value of tokens, such as the word in lower case. Each of its values has an
id. A value at an offset is a feature, such as "of" at the token before, and has a row of weights. A
*key* is the hash of a value.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple

import numpy
from spacy.strings import StringStore
from spacy.tokens import Doc
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .counts import TrainingCounts
from .label_counts import LabelCounts
from .tokens import HashOf, ReadDocs, TokenBatch, TokenReader

SavedColumns = dict[str, Any]
"""The saved data of all columns of a model. It has several parts, such as "values" and "clusters".
A part is a dictionary, from the names of columns to the data that they saved in this part. But
"labels" is a list that columns share, and "memory" has what `LabelMemory.save` writes."""


class Selection(NamedTuple):
    """Which values a pruned model keeps. Every field has an entry for each column, keyed by its
    name.

    is_needed (dict[str, Array1d]): Whether each value is needed: it has a weight, or a needed value
        of another column is made of it. Shapes: (n_values,)
    ids (dict[str, Ints1d]): The ids of the values that are kept, ascending.
    columns (dict[str, Column]): The new columns, with the kept values only. They are added one
        after another, so a column finds the columns before it here.
    """

    is_needed: "dict[str, Array1d]"
    ids: "dict[str, Ints1d]"
    columns: "dict[str, Column]"


class Window(NamedTuple):
    """At which offsets from a token the values of a column are features, and how frequent a value
    has to be.

    offsets (tuple[int, ...]): The offsets: 0 is the token itself, -1 the token before.
    min_count (int): How often a value has to occur in the training docs to be a feature.
    """

    offsets: tuple[int, ...]
    min_count: int = 1


class Column(ABC):
    """A kind of value of tokens, such as the word in lower case.

    The template makes a column without values. `collect` takes its values from training docs, and
    `load` takes them from a saved model. After that the column doesn't change, so that threads can
    share it. The ids of values count from 0, in the order of `value_names`. A token has up to
    `width` values.

    `Lookup` finds the values of a `WordColumn` once for each word, the values of a `BatchColumn`
    for each batch, and the values of a `LabelColumn` after a first pass.

    name (str): The name, with which the names of its features begin.
    window (Window): The offsets of its features, and how frequent values have to be.
    """

    attributes: Sequence[str] = ()
    """The attributes and extension attributes of tokens that the column needs: see
    `Tokens.keys`."""

    lexeme_attributes: Sequence[str] = ()
    """The attributes of lexemes that the column needs, in addition to the word itself: see
    `Tokens.word_keys`."""

    reads_docs: ClassVar[bool] = False
    """Whether the column has a method `read` that reads its values from docs."""

    wants_labels: ClassVar[bool] = False
    """Whether `collect` needs the labels of the training docs."""

    wants_all_tokens: ClassVar[bool] = False
    """Whether `collect` needs all training tokens, as counts of their values are not enough."""

    text_ids: Array1d = numpy.zeros(0, dtype="uint64")
    """The hashes of the texts of the training docs, if the column remembers them: see `text_id`.
    Shape: (D,)"""

    def __init__(self, name: str, window: Window) -> None:
        self.name = name
        self.offsets = window.offsets
        self.min_count = window.min_count

    # In training

    def prepare(self) -> None:  # noqa: B027 (few columns need a file)
        """Read the files that the column needs, before docs are read."""

    def read(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """Read the values of the tokens of docs. Columns that set `reads_docs` define it:
        `TokenReader` calls it, and puts the result into `Tokens.keys[name]`.

        docs (Sequence[Doc]): The docs, at least tokenized.
        hash_of (HashOf): Hashes a value.
        RETURNS (Array1d): The hash of each token's value; 0 for none. Shape: (N,)
        """
        raise NotImplementedError

    @abstractmethod
    def collect(self, counts: TrainingCounts) -> None:
        """Collect the values from the counts of the training docs."""

    def recount(self, labels: LabelCounts) -> "Column":
        """The column for a model that is trained on some of the training docs. It has counted only
        the labels of these docs. A column that counts no labels returns itself."""
        return self

    # For pruned models: see `select_values`.

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:  # noqa: B027 (few are made so)
        """Mark the values of another column that this column needs. The values of some columns are
        made of the values of another one: a pair is made of two. If such a value is needed, so are
        the values that it is made of. Other columns do nothing here.

        is_needed (dict[str, Array1d]): Whether each value of a column is needed, keyed by the name
            of the column. The entry of the other column is changed. Shapes: (n_values,)
        """

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """The ids of the values that have to be kept. These are all values, unless a class
        overrides the method. For the argument see `mark_needed`."""
        return numpy.arange(self.n_values)

    def select(self, selection: Selection) -> "Column":
        """The column with only the values that are kept. They get new ids, in the same order."""
        return self

    # For saved models.

    @property
    def layout(self) -> list[Any]:
        """The settings of the template that decide which feature a row of weights is. They are
        saved with a model. The model can be loaded only with a config that has the same
        settings."""
        return [self.name, list(self.offsets)]

    @abstractmethod
    def save(self, saved: SavedColumns) -> None:
        """Write the values to the parts of `saved`."""

    @abstractmethod
    def load(self, saved: SavedColumns) -> None:
        """Read the values from the parts of `saved`, and check them.

        RAISES (Exception): If they are damaged: an error of any kind.
        """

    # In prediction

    @property
    @abstractmethod
    def value_names(self) -> Sequence[str]:
        """The names of its values, in the order of their ids."""

    @property
    def n_values(self) -> int:
        """The number of its values."""
        return len(self.value_names)

    @property
    def width(self) -> int:
        """The maximum number of values that a token has."""
        return 1

    def slot_name(self, offset: int) -> str:
        """The name of the slot at an offset, such as "LOWER[-1]", or "LOWER" for the token itself.
        The names of features begin with it."""
        if not offset:
            return self.name
        return f"{self.name}[{offset:+d}]"

    def examples_of_values(self, strings: StringStore) -> dict[int, str]:
        """Examples of what values stand for, such as some words of a cluster, keyed by the ids of
        the values. Most columns have none, as the names of their values say enough.

        strings (StringStore): Has the strings of words that the column knows by their hashes.
        """
        return {}

    def words_in(self, strings: StringStore) -> Sequence[str]:
        """The words of a string store that `examples_of_values` can show."""
        return ()


class BatchColumn(Column):
    """A column whose values are found for all tokens of a batch at once."""

    @abstractmethod
    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Find the values of the tokens of a batch, and write their ids to an array.

        batch (TokenBatch): The tokens, at least one. It has the ids of the values that the columns
            before this one found: some values, such as pairs, are made of these.
        value_ids (Ints2d): The array, which has -1 everywhere. A token with fewer than `width`
            values keeps -1 in the other places. Shape: (N, width)
        """


class StringColumn(Column):
    """A column whose values are strings. The name of a value is the value itself."""

    def __init__(self, name: str, window: Window) -> None:
        super().__init__(name, window)
        self.values: list[str] = []

    @property
    def value_names(self) -> list[str]:
        """The values themselves."""
        return self.values

    def set_values(self, values: list[str]) -> None:
        """Set the values. A class that has a map from values to ids overrides this method, and
        makes the map here."""
        self.values = values

    def collect_frequent(self, value_counts: Counter[str]) -> None:
        """Collect the values that occur at least `min_count` times. They are sorted, so that their
        ids don't depend on the order of the docs."""
        frequent = [value for value, count in value_counts.items() if count >= self.min_count]
        self.set_values(sorted(frequent))

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """The ids of the values that are needed."""
        return numpy.flatnonzero(is_needed[self.name])

    def select(self, selection: Selection) -> "StringColumn":
        """A copy of the column with only the values that are kept."""
        column = copy(self)
        column.set_values([self.values[i] for i in selection.ids[self.name].tolist()])
        return column

    def save(self, saved: SavedColumns) -> None:
        """Write the list of values."""
        saved["values"][self.name] = self.values

    def load(self, saved: SavedColumns) -> None:
        """Read the list of values, and check it."""
        values = saved["values"][self.name]
        check_strings(self.name, values)
        if len(set(values)) < len(values):
            raise ValueError(f"{self.name}: expected each value once")
        self.set_values(values)


class LabelColumn(Column):
    """A column whose values come from the labels that a first pass predicts. Before that no token
    has a value."""

    @abstractmethod
    def group_tokens(self, batch: TokenBatch) -> Ints1d:
        """Group the tokens of a batch: each token sees the labels that the first pass predicts for
        the other tokens of its group.

        batch (TokenBatch): The tokens, with the values of all columns but label columns.
        RETURNS (Ints1d): The index of each token's group; -1 for a token that sees no labels.
            Shape: (N,)
        """

    @abstractmethod
    def find_label_values(
        self, probabilities: Floats2d, labels: Sequence[str], groups: Ints1d
    ) -> Ints2d:
        """Find the values of tokens, after a first pass.

        probabilities (Floats2d): The probabilities of O and of the labels, by the first pass.
            Shape: (N, L + 1)
        labels (Sequence[str]): The L labels.
        groups (Ints1d): The groups that `group_tokens` has returned. Shape: (N,)
        RETURNS (Ints2d): The ids of the values, -1 for none. Shape: (N, width)
        """


def reader_of(columns: Sequence[Column]) -> TokenReader:
    """Make a reader of everything in docs that these columns need."""
    attributes: list[str] = []  # read from each token, as POS is
    lexeme_attributes: list[str] = []  # read from each word
    doc_readers: dict[str, ReadDocs] = {}
    for column in columns:
        attributes.extend(column.attributes)
        lexeme_attributes.extend(column.lexeme_attributes)
        if column.reads_docs:
            doc_readers[column.name] = column.read
    # Each attribute once: several columns may read it.
    attributes = list(dict.fromkeys(attributes))
    lexeme_attributes = list(dict.fromkeys(lexeme_attributes))
    return TokenReader(attributes, lexeme_attributes, doc_readers)


def check_strings(name: str, strings: Any) -> None:
    """Check that a loaded object is a list of strings.

    name (str): The name of the column or of the part of the model, for the error.
    strings (Any): The loaded object.
    RAISES (ValueError): If it isn't a list of strings.
    """
    is_list = isinstance(strings, list)
    if not is_list or not all(isinstance(string, str) for string in strings):
        raise ValueError(f"{name}: expected a list of strings, got {type(strings).__name__}")
