"""A vocabulary of features, arranged for looking things up by array operations."""

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


class Lookup:
    """A vocabulary, arranged for looking things up."""

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
        self.keys = {column.name: sparse.Numbers() for column in self.of_tokens}
        for name, keys in self.keys.items():
            keys.set(_hashes(values[name]), numpy.arange(len(values[name]), dtype="int32"))
        self.pairs = {name: sparse.Numbers() for name in pairs}
        for name, pair_keys in pairs.items():
            self.pairs[name].set(
                pair_keys.astype("uint64"), numpy.arange(len(pair_keys), dtype="int32")
            )
        self.slots = [(column, offset) for column in columns for offset in column.offsets]
        sizes = {name: len(found) for name, found in [*values.items(), *pairs.items()]}
        per_slot = [sizes.get(column.name, 0) for column, _ in self.slots]
        self.slot_columns = _int32(self.index[column.name] for column, _ in self.slots)
        self.slot_offsets = _int32(offset for _, offset in self.slots)
        self.first_rows = (numpy.cumsum([0, *per_slot])[:-1]).astype("int32")
        self.n_rows = sum(per_slot)
        self._n_words = 0
        self._table: Ints2d
        self._forget_words()

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
        words = self._words.find(orth)
        if (words < 0).any():
            if self._n_words > MOST_WORDS:
                self._forget_words()
                words[:] = -1
            self._learn_words(numpy.unique(orth[words < 0]), vocab)
            words = self._words.find(orth)
        return self._table[words]

    def _learn_words(self, orth: Array1d, vocab: Vocab) -> None:
        first, end = self._n_words, self._n_words + len(orth)
        if end > len(self._table):
            larger = numpy.full((2 * end, len(self.of_words)), -1, dtype="int32")
            larger[:first] = self._table[:first]
            self._table = larger
        views = [(column.view, self.numbers[column.name]) for column in self.of_words]
        for word, key in enumerate(orth.tolist(), first):
            lexeme = vocab[key]
            self._table[word] = [numbers.get(view(lexeme), -1) for view, numbers in views if view]
        self._words.set(orth, numpy.arange(first, end, dtype="int32"))
        self._n_words = end

    def _forget_words(self) -> None:
        self._words = sparse.Numbers()
        self._n_words = 0
        self._table = numpy.zeros((0, len(self.of_words)), dtype="int32")


def _hashes(values: Sequence[str]) -> Array1d:
    return numpy.asarray([get_string_id(value) for value in values], dtype="uint64")


def _int32(numbers: Iterable[int]) -> Ints1d:
    return numpy.asarray(list(numbers), dtype="int32")


def of_tokens(columns: Sequence[Column]) -> List[Column]:
    """The columns that are not a matter of the word alone."""
    return [column for column in columns if column.view is None and column.pair_of is None]


def pair_up(values: Ints1d, lengths: Ints1d) -> Array1d:
    """The value of each token and of the next as one number; -1 where one of them has none.
    In int64. Shape: (N,)"""
    after = numpy.full(len(values), -1, dtype="int64")
    after[:-1] = values[1:]
    after[(numpy.cumsum(lengths) - 1)[lengths > 0]] = -1
    pairs = (values.astype("int64") << 32) | after
    return numpy.where((values < 0) | (after < 0), -1, pairs)
