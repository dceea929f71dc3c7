"""The base classes of columns, which say what every kind of feature has to define.

A column is a kind of value of tokens, such as the word in lower case. Each of its values has an id.
A value at an offset, such as "of" at the token before, is a feature, which has a row of weights. A
key is the hash of a value.
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

Saved = dict[str, Any]
"""What a saved model has of the columns: parts such as "values", each with an entry for each column
that has such a part, by name."""


class Selection(NamedTuple):
    """Which values of columns are kept, by the names of the columns, where others are left out.

    is_used (dict[str, Array1d]): Whether each value of a column has a weight. Shapes: (n_values,)
    ids (dict[str, Ints1d]): The ids of the values that are kept, ascending: those with a weight,
        and those that values of other columns are made of.
    columns (dict[str, Column]): The columns with these values only, as far as they are made.
    """

    is_used: "dict[str, Array1d]"
    ids: "dict[str, Ints1d]"
    columns: "dict[str, Column]"


class Window(NamedTuple):
    """Where the values of a column are used, and which of them.

    offsets (tuple[int, ...]): The offsets of its slots, 0 for the token itself.
    min_count (int): How often a value has to be in the training data to be a feature.
    """

    offsets: tuple[int, ...]
    min_count: int = 1


class Column(ABC):
    """A kind of value of tokens, such as the word in lower case.

    The template makes a column without values. `collect` takes them from training docs, `load` from
    a saved model. After that it doesn't change, so that threads can share it. Values have ids from
    0, in the order of `value_names`. A token has up to `width` of them.

    `Lookup` finds the values of a `WordColumn` once for each word, those of a `BatchColumn` for
    each batch, and those of a `LabelColumn` after a first pass.

    name (str): The start of the names of its features.
    window (Window): Where its values are used.
    """

    attributes: Sequence[str] = ()
    """The attributes and extension attributes of tokens that it reads: see `Tokens.keys`."""

    lexeme_attributes: Sequence[str] = ()
    """The attributes of lexemes that it reads besides the word itself: see `Tokens.word_keys`."""

    reads_docs: ClassVar[bool] = False
    """Whether it reads docs by itself, with `read`."""

    wants_labels: ClassVar[bool] = False
    """Whether it collects the labels of training docs."""

    wants_all_tokens: ClassVar[bool] = False
    """Whether it collects from all training tokens, not from counts of them."""

    text_ids: Array1d = numpy.zeros(0, dtype="uint64")
    """The hashes of the training docs, if it remembers them: see `text_id`. Shape: (D,)"""

    def __init__(self, name: str, window: Window) -> None:
        self.name = name
        self.offsets = window.offsets
        self.min_count = window.min_count

    # In training

    def prepare(self) -> None:  # noqa: B027 (few columns need a file)
        """Read what it needs from files, before docs are read."""

    def read(self, docs: Sequence[Doc], hash_of: HashOf) -> Array1d:
        """Read the value of each token of docs, as the hash that `hash_of` makes of it; 0 for none.
        `TokenReader` calls it where `reads_docs` is set. Batches have what it returns as
        `Tokens.keys[name]`. Shape: (N,)"""
        raise NotImplementedError

    @abstractmethod
    def collect(self, counts: TrainingCounts) -> None:
        """Take the values from what was counted in the training docs."""

    def recount(self, labels: LabelCounts) -> "Column":
        """The same column with the labels of other training docs, for a model that is trained on
        some of them. A column that remembers no labels stays as it is."""
        return self

    # Slim models: see `select_values`

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:  # noqa: B027 (few are made so)
        """Mark the values of another column that the needed values of this one are made of. Has for
        each column whether its values are needed. Shapes: (n_values,)"""

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """The ids of the values that have to stay: all, unless a class can do with fewer."""
        return numpy.arange(self.n_values)

    def select(self, selection: Selection) -> "Column":
        """The same column with some of its values only, which are numbered anew, in the same
        order."""
        return self

    # Saved models

    @property
    def layout(self) -> list[Any]:
        """What in the template decides which feature a row of weights is. Models are saved with it,
        and loaded only with a template that agrees."""
        return [self.name, list(self.offsets)]

    @abstractmethod
    def save(self, saved: Saved) -> None:
        """Write the values to the parts of `saved`."""

    @abstractmethod
    def load(self, saved: Saved) -> None:
        """Read the values from the parts of `saved`. Raises an error if they are damaged."""

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
        """The largest number of values that a token has."""
        return 1

    def slot_name(self, offset: int) -> str:
        """The start of the names of its features at an offset: "LOWER[-1]"."""
        if not offset:
            return self.name
        return f"{self.name}[{offset:+d}]"

    def examples_of_values(self, strings: StringStore) -> dict[int, str]:
        """Examples of what values stand for, such as words of a cluster, by the id of the value.
        Most columns have none, as the names of their values say it."""
        return {}

    def words_in(self, strings: StringStore) -> Sequence[str]:
        """The words of a string store that the column knows by hashes alone, and that
        `examples_of_values` can show."""
        return ()


class BatchColumn(Column):
    """A column whose values are found for all tokens of a batch at once."""

    @abstractmethod
    def find_values(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Write the ids of the values of the tokens of a batch, at least one, to `value_ids`, which
        has -1 throughout. Shape: (N, width)"""


class StringColumn(Column):
    """A column of which each value is a string, its name."""

    def __init__(self, name: str, window: Window) -> None:
        super().__init__(name, window)
        self.values: list[str] = []

    @property
    def value_names(self) -> list[str]:
        """The values themselves."""
        return self.values

    def set_values(self, values: list[str]) -> None:
        """Set the values. Classes that look ids up in a map of their own override it, and make the
        map, too."""
        self.values = values

    def collect_frequent(self, value_counts: Counter[str]) -> None:
        """Take the values that occur at least `min_count` times, in alphabetical order, so that
        their ids don't depend on the order of the docs."""
        frequent = [value for value, count in value_counts.items() if count >= self.min_count]
        self.set_values(sorted(frequent))

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """The ids of the values that are marked as needed."""
        return numpy.flatnonzero(is_needed[self.name])

    def select(self, selection: Selection) -> "StringColumn":
        """A copy with the needed values only."""
        column = copy(self)
        column.set_values([self.values[i] for i in selection.ids[self.name].tolist()])
        return column

    def save(self, saved: Saved) -> None:
        """Write the list of values."""
        saved["values"][self.name] = self.values

    def load(self, saved: Saved) -> None:
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
        """The group of each token, within which tokens see each other's labels; -1 for none.
        Shape: (N,)"""

    @abstractmethod
    def find_label_values(
        self, probabilities: Floats2d, labels: Sequence[str], groups: Ints1d
    ) -> Ints2d:
        """The ids of the values of tokens, -1 for none, from the probabilities of O and of the L
        labels of a first pass. Shapes: (N, L + 1), (N,) to (N, width)"""


def reader_of(columns: Sequence[Column]) -> TokenReader:
    """Make the reader that reads of docs all that some columns need."""
    attributes: list[str] = []
    lexeme_attributes: list[str] = []
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
    """Check that what was loaded of a column, or of a part of the model, is a list of strings."""
    is_list = isinstance(strings, list)
    if not is_list or not all(isinstance(string, str) for string in strings):
        raise ValueError(f"{name}: expected a list of strings, got {type(strings).__name__}")
