"""Lookup of features in a vocabulary, with array operations."""

from threading import Lock
from typing import Dict, Iterable, List, Optional, Sequence

import numpy
from spacy.strings import get_string_id
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d, Ints2d

from .. import sparse
from .gazetteer import Gazetteer
from .template import Column
from .tokens import Tokens

MOST_WORDS = 1 << 18
"""Words that are remembered at a time, with what can be seen of them."""

MOST_ROWS = (1 << 31) - 1
"""Features that have a number: rows are int32."""


class SeenWords:
    """Cached values of words.

    Rows are only added, and are there before `numbers` has their words: so any threads may
    read, without waiting. Those that add wait for each other. `table` grows by another taking
    its place, so it is to be read after `numbers`.
    """

    def __init__(self, width: int) -> None:
        """Initialize without words.

        width (int): The number of values of each word.
        """
        self.numbers = sparse.IdMap()
        self.table: Ints2d = numpy.zeros((0, width), dtype="int32")
        self.n_words = 0
        self._adding = Lock()

    def add(self, orth: Array1d, rows: Ints2d) -> None:
        """Add words, but for those that another thread has added meanwhile.

        orth (Array1d): Their hashes, each once. Shape: (W,)
        rows (Ints2d): What is seen of them. Shape: (W, width)
        """
        with self._adding:
            is_new = self.numbers.find(orth) < 0
            first, end = self.n_words, self.n_words + int(is_new.sum())
            if end > len(self.table):
                larger = numpy.full((2 * end, self.table.shape[1]), -1, dtype="int32")
                larger[:first] = self.table[:first]
                self.table = larger
            self.table[first:end] = rows[is_new]
            self.numbers.set(orth[is_new], numpy.arange(first, end, dtype="int32"))
            self.n_words = end


class Lookup:
    """A vocabulary with fast lookup. Threads can share it."""

    def __init__(
        self,
        columns: Sequence[Column],
        values: Dict[str, List[str]],
        pairs: Dict[str, Array1d],
        phrases: Dict[str, List[str]],
    ) -> None:
        """Initialize the tables.

        columns (Sequence[Column]): The columns, in the order of their features.
        values (Dict[str, List[str]]): The values of each column, in the order of their
            numbers; but for those of pairs.
        pairs (Dict[str, Array1d]): The same of columns of pairs, as `pair_up` writes them.
        phrases (Dict[str, List[str]]): The phrases of each column of a gazetteer.
        """
        self.columns = columns
        self.index = {column.name: i for i, column in enumerate(columns)}
        self.of_words = [column for column in columns if column.view is not None]
        self.of_tokens = of_tokens(columns)
        self.gazetteers = {name: Gazetteer(lines) for name, lines in phrases.items()}
        self.numbers: Dict[str, Dict[Optional[str], int]] = {
            name: {v: i for i, v in enumerate(names)} for name, names in values.items()
        }
        self.keys = {column.name: sparse.IdMap() for column in self.of_tokens}
        for name, keys in self.keys.items():
            keys.set(_hashes(values[name]), numpy.arange(len(values[name]), dtype="int32"))
        self.pairs = {name: sparse.IdMap() for name in pairs}
        for name, pair_keys in pairs.items():
            self.pairs[name].set(
                pair_keys.astype("uint64"), numpy.arange(len(pair_keys), dtype="int32")
            )
        self.slots = [(column, offset) for column in columns for offset in column.offsets]
        sizes = {name: len(found) for name, found in [*values.items(), *pairs.items()]}
        per_slot = [sizes.get(column.name, 0) for column, _ in self.slots]
        self.slot_columns = _int32(self.index[column.name] for column, _ in self.slots)
        self.slot_offsets = _int32(offset for _, offset in self.slots)
        self.n_rows = sum(per_slot)
        if self.n_rows > MOST_ROWS:
            raise ValueError(
                f"features of a linear CRF: expected at most {MOST_ROWS}, got {self.n_rows}"
            )
        self.first_rows = (numpy.cumsum([0, *per_slot])[:-1]).astype("int32")
        self._seen = SeenWords(len(self.of_words))

    def values(self, tokens: Tokens, vocab: Optional[Vocab]) -> Ints2d:
        """The number of the value of each token in each column, -1 for none. Shape: (N, C)"""
        found = numpy.full((len(tokens.orth), len(self.columns)), -1, dtype="int32")
        if vocab is None or not len(tokens.orth):
            return found
        found[:, [self.index[column.name] for column in self.of_words]] = self._of_words(
            tokens.orth, vocab
        )
        for column in self.of_tokens:
            found[:, self.index[column.name]] = self.keys[column.name].find(
                tokens.keys[column.name]
            )
        for column in self.columns:
            if column.pair_of is not None and column.name in self.pairs:
                pairs = pair_up(found[:, self.index[column.pair_of]], tokens.lengths)
                numbers = self.pairs[column.name].find(pairs.astype("uint64"))
                found[:, self.index[column.name]] = numpy.where(pairs < 0, -1, numbers)
        return found

    def _of_words(self, orth: Array1d, vocab: Vocab) -> Ints2d:
        seen = self._seen
        words = seen.numbers.find(orth)
        if (words < 0).any():
            if seen.n_words > MOST_WORDS:
                self._seen = seen = SeenWords(len(self.of_words))
                words[:] = -1
            unseen = numpy.unique(orth[words < 0])
            seen.add(unseen, self._look_at(unseen, vocab))
            words = seen.numbers.find(orth)
        return seen.table[words]

    def _look_at(self, orth: Array1d, vocab: Vocab) -> Ints2d:
        """The values of words. Shape: (W, columns of words)"""
        views = [(column.view, self.numbers[column.name]) for column in self.of_words]
        lexemes = [vocab[key] for key in orth.tolist()]
        rows = [
            [numbers.get(view(word), -1) for view, numbers in views if view] for word in lexemes
        ]
        return numpy.asarray(rows, dtype="int32").reshape(len(orth), len(views))


def _hashes(values: Sequence[str]) -> Array1d:
    return numpy.asarray([get_string_id(value) for value in values], dtype="uint64")


def _int32(numbers: Iterable[int]) -> Ints1d:
    return numpy.asarray(list(numbers), dtype="int32")


def of_tokens(columns: Sequence[Column]) -> List[Column]:
    """The columns that depend on the token and not only on the word."""
    return [column for column in columns if column.view is None and column.pair_of is None]


def pair_up(values: Ints1d, lengths: Ints1d) -> Array1d:
    """The value of each token and of the next as one number; -1 where one of them has none.
    In int64. Shape: (N,)"""
    after = numpy.full(len(values), -1, dtype="int64")
    after[:-1] = values[1:]
    after[(numpy.cumsum(lengths) - 1)[lengths > 0]] = -1
    pairs = (values.astype("int64") << 32) | after
    return numpy.where((values < 0) | (after < 0), -1, pairs)
