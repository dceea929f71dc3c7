"""Base classes for columns. They define the interface shared by all kinds of features.

A *column* is a property of tokens, such as the lowercase form. Each value in a column has an id. A
value at an offset is a feature, such as "of" at the previous token, and has a row of weights. A
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
"""The saved data of all columns of a model. It's divided into parts, such as "values" and
"clusters". Most parts are dictionaries that map column names to the column's data. The exceptions
are "labels", a list that the columns share, and "memory", which is written by
`LabelMemory.save`."""


class Selection(NamedTuple):
    """The values that a pruned model keeps. Each field is a dictionary keyed by column name.

    is_needed (dict[str, Array1d]): Whether each value is needed, either because it has a weight or
        because a value of another column depends on it. Shapes: (n_values,)
    ids (dict[str, Ints1d]): The ids of the kept values, in ascending order.
    columns (dict[str, Column]): The new columns, with only the kept values. They're added in order,
        so each column can access the columns before it.
    """

    is_needed: "dict[str, Array1d]"
    ids: "dict[str, Ints1d]"
    columns: "dict[str, Column]"


class Window(NamedTuple):
    """The offsets at which the values of a column are used as features, and how frequent the values
    have to be.

    offsets (tuple[int, ...]): The offsets. 0 is the token itself, -1 the previous token.
    min_count (int): The minimum number of times a value has to occur in the training docs.
    """

    offsets: tuple[int, ...]
    min_count: int = 1


class Column(ABC):
    """A property of tokens, such as the lowercase form.

    The template creates columns without values. `collect` sets the values from the training docs
    and `load` sets them from a saved model. After that, the column is immutable and can be shared
    between threads. Value ids start at 0 and are in the same order as `value_names`. A token can
    have up to `width` values.

    `Lookup` computes the values of a `WordColumn` once per word, the values of a `BatchColumn` once
    per batch, and the values of a `LabelColumn` after a first pass.

    name (str): The name, which is the prefix of the feature names.
    window (Window): The offsets of the features and the minimum frequency of values.
    """

    attributes: Sequence[str] = ()
    """The token attributes and extension attributes that the column requires: see `Tokens.keys`."""

    lexeme_attributes: Sequence[str] = ()
    """The lexeme attributes that the column requires, in addition to the word itself: see
    `Tokens.word_keys`."""

    reads_docs: ClassVar[bool] = False
    """Whether the column implements `read` to read its values directly from docs."""

    wants_labels: ClassVar[bool] = False
    """Whether `collect` requires the labels of the training docs."""

    wants_all_tokens: ClassVar[bool] = False
    """Whether `collect` requires all training tokens, not only the counts of their values."""

    text_ids: Array1d = numpy.zeros(0, dtype="uint64")
    """The hashes of the training docs' texts, if the column stores them: see `text_id`.
    Shape: (D,)"""

    def __init__(self, name: str, window: Window) -> None:
        self.name = name
        self.offsets = window.offsets
        self.min_count = window.min_count

    # Training

    def prepare(self) -> None:  # noqa: B027 (optional)
        """Read the files that the column requires. Called before any docs are read."""

    def read(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """Read the values of the tokens in docs. Must be implemented if `reads_docs` is True.
        `TokenReader` stores the result in `Tokens.keys[name]`.

        docs (Sequence[Doc]): The docs, which have at least been tokenized.
        hash_of (HashOf): Function to hash a value.
        RETURNS (Array1d): The hash of each token's value, or 0 if it has none. Shape: (N,)
        """
        raise NotImplementedError

    @abstractmethod
    def collect(self, counts: TrainingCounts) -> None:
        """Collect the values from the counts of the training docs."""

    def recount(self, labels: LabelCounts) -> "Column":
        """Return the column for a model that is trained on a subset of the training docs, with only
        the labels of these docs. Columns that don't count labels return themselves."""
        return self

    # Pruning: see `select_values`

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:  # noqa: B027 (optional)
        """Mark values of another column as needed if this column depends on them. For example, a
        pair consists of two values of another column. If the pair is needed, so are the two values.
        Columns that don't depend on other columns do nothing.

        is_needed (dict[str, Array1d]): Whether each value of a column is needed, keyed by column
            name. The other column's entry is modified in place. Shapes: (n_values,)
        """

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """Return the ids of the values to keep. By default, all values are kept. See `mark_needed`
        for the argument."""
        return numpy.arange(self.n_values)

    def select(self, selection: Selection) -> "Column":
        """Return the column with only the values to keep. They get new ids in the same order."""
        return self

    # Serialization

    @property
    def layout(self) -> list[Any]:
        """The settings of the template that determine which feature each weight row represents.
        They're saved with the model, which can only be loaded with a config that has the same
        settings."""
        return [self.name, list(self.offsets)]

    @abstractmethod
    def save(self, saved: SavedColumns) -> None:
        """Write the values to the parts of `saved`."""

    @abstractmethod
    def load(self, saved: SavedColumns) -> None:
        """Read the values from the parts of `saved` and validate them.

        RAISES (Exception): Any exception, if the values are damaged.
        """

    # Prediction

    @property
    @abstractmethod
    def value_names(self) -> Sequence[str]:
        """The names of the values, in the order of their ids."""

    @property
    def n_values(self) -> int:
        """The number of values."""
        return len(self.value_names)

    @property
    def width(self) -> int:
        """The maximum number of values that a token can have."""
        return 1

    def slot_name(self, offset: int) -> str:
        """Return the name of the slot at an offset, such as "LOWER[-1]", or "LOWER" for the token
        itself. It's the prefix of the feature names."""
        if not offset:
            return self.name
        return f"{self.name}[{offset:+d}]"

    def examples_of_values(self, strings: StringStore) -> dict[int, str]:
        """Return examples of the values, such as words of a cluster, keyed by value id. Empty for
        most columns, because their value names are self-explanatory.

        strings (StringStore): The string store used to look up words by their hashes.
        """
        return {}

    def words_in(self, strings: StringStore) -> Sequence[str]:
        """Return the words in a string store that `examples_of_values` can show."""
        return ()


class BatchColumn(Column):
    """A column whose values are computed for a whole batch of tokens at once."""

    @abstractmethod
    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Compute the values of the tokens in a batch and write their ids to an array.

        batch (TokenBatch): The tokens. There is at least one. The value ids of the previous columns
            are already set, because values such as pairs are computed from them.
        value_ids (Ints2d): The array to write to, which is filled with -1. If a token has fewer
            than `width` values, the rest should remain -1. Shape: (N, width)
        """


class StringColumn(Column):
    """A column with string values. The name of a value is the value itself."""

    def __init__(self, name: str, window: Window) -> None:
        super().__init__(name, window)
        self.values: list[str] = []

    @property
    def value_names(self) -> list[str]:
        """The values themselves."""
        return self.values

    def set_values(self, values: list[str]) -> None:
        """Set the values. Subclasses that map values to ids override this method to update the
        map."""
        self.values = values

    def collect_frequent(self, value_counts: Counter[str]) -> None:
        """Collect the values that occur at least `min_count` times. They're sorted, so that their
        ids don't depend on the order of the docs."""
        frequent = [value for value, count in value_counts.items() if count >= self.min_count]
        self.set_values(sorted(frequent))

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """Return the ids of the values that are needed."""
        return numpy.flatnonzero(is_needed[self.name])

    def select(self, selection: Selection) -> "StringColumn":
        """Create a copy of the column with only the values to keep."""
        column = copy(self)
        column.set_values([self.values[i] for i in selection.ids[self.name].tolist()])
        return column

    def save(self, saved: SavedColumns) -> None:
        """Write the list of values."""
        saved["values"][self.name] = self.values

    def load(self, saved: SavedColumns) -> None:
        """Read the list of values and validate it."""
        values = saved["values"][self.name]
        check_strings(self.name, values)
        if len(set(values)) < len(values):
            raise ValueError(f"{self.name}: expected each value once")
        self.set_values(values)


class LabelColumn(Column):
    """A column whose values are computed from the labels predicted by a first pass. Before that, no
    token has a value."""

    @abstractmethod
    def group_tokens(self, batch: TokenBatch) -> Ints1d:
        """Group the tokens of a batch. Each token gets features based on the labels that the first
        pass predicts for the other tokens in its group.

        batch (TokenBatch): The tokens, with the values of all columns except label columns.
        RETURNS (Ints1d): The index of each token's group, or -1 if it's not in a group. Shape: (N,)
        """

    @abstractmethod
    def find_label_values(
        self, probabilities: Floats2d, labels: Sequence[str], groups: Ints1d
    ) -> Ints2d:
        """Compute the values of tokens after a first pass.

        probabilities (Floats2d): The probabilities of O and of each label, as predicted by the
            first pass. Shape: (N, L + 1)
        labels (Sequence[str]): The L labels.
        groups (Ints1d): The groups returned by `group_tokens`. Shape: (N,)
        RETURNS (Ints2d): The ids of the values, -1 for no value. Shape: (N, width)
        """


def reader_of(columns: Sequence[Column]) -> TokenReader:
    """Create a reader for everything that the columns require from docs."""
    attributes: list[str] = []  # read from each token, such as POS
    lexeme_attributes: list[str] = []  # read from each word
    doc_readers: dict[str, ReadDocs] = {}
    for column in columns:
        attributes.extend(column.attributes)
        lexeme_attributes.extend(column.lexeme_attributes)
        if column.reads_docs:
            doc_readers[column.name] = column.read
    # Remove duplicates, because several columns may read the same attribute.
    attributes = list(dict.fromkeys(attributes))
    lexeme_attributes = list(dict.fromkeys(lexeme_attributes))
    return TokenReader(attributes, lexeme_attributes, doc_readers)


def check_strings(name: str, strings: Any) -> None:
    """Check that a loaded object is a list of strings.

    name (str): The name of the column or of the model part, for the error message.
    strings (Any): The loaded object.
    RAISES (ValueError): If it isn't a list of strings.
    """
    is_list = isinstance(strings, list)
    if not is_list or not all(isinstance(string, str) for string in strings):
        raise ValueError(f"{name}: expected a list of strings, got {type(strings).__name__}")
