"""Lookup of features in a vocabulary, with array operations."""

from threading import Lock
from typing import Dict, Iterable, List, Optional, Sequence

import numpy
from spacy.strings import get_string_id
from spacy.vocab import Vocab
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .. import sparse
from .clusters import find_words
from .document import find_labels_elsewhere, number_occurrences
from .elsewhere import nearest_elsewhere, values_beside
from .gazetteer import Gazetteer
from .memory import number_keys
from .template import Column, Form, attributes_of
from .tokens import Tokens
from .vocabulary import Vocabulary
from .words import YES, flag

MOST_WORDS = 1 << 18
"""Words that are remembered at a time, with what can be seen of them."""

MOST_ROWS = (1 << 31) - 1
"""Features that have a number: rows are int32."""

CAPITALISED = "is_first_upper"
"""The flag of words that are looked for elsewhere."""

HAS_DIGIT = "has_digit"
"""The flag of other words that names are made of."""


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

    def __init__(self, columns: Sequence[Column], vocabulary: Vocabulary) -> None:
        """Initialize the tables.

        columns (Sequence[Column]): The columns, in the order of their features.
        vocabulary (Vocabulary): Their values.
        """
        self.columns, self.vocabulary = columns, vocabulary
        self.attributes = attributes_of(columns)
        self.of_words = [column for column in columns if column.form == Form.WORD]
        self.elsewhere: Dict[str, List[Column]] = {}
        for column in columns:
            if column.form in (Form.BEFORE, Form.AFTER):
                self.elsewhere.setdefault(column.of, []).append(column)
        values = vocabulary.values
        self.gazetteers = {name: Gazetteer(lines) for name, lines in vocabulary.phrases.items()}
        self.numbers: Dict[str, Dict[Optional[str], int]] = {
            name: {v: i for i, v in enumerate(names)} for name, names in values.items()
        }
        self.keys = {
            column.name: number_keys(_hashes(values[column.name]))
            for column in columns
            if column.form == Form.TOKEN
        }
        self.clustered = {
            name: number_keys(found.keys) for name, found in vocabulary.clusters.items()
        }
        self.pairs = {
            name: number_keys(keys.astype("uint64")) for name, keys in vocabulary.pairs.items()
        }
        self._place_slots()
        self._seen = self._no_words()

    def _place_slots(self) -> None:
        """Find the place of the values of each column, and the rows of each slot."""
        widths = [self.vocabulary.width(column) for column in self.columns]
        ends = numpy.cumsum(widths).tolist()
        self.places = {
            column.name: slice(end - width, end)
            for column, width, end in zip(self.columns, widths, ends)
        }
        self.width = sum(widths)
        self.slots = [(column, offset) for column in self.columns for offset in column.offsets]
        per_slot = [self.vocabulary.size(column) for column, _ in self.slots]
        self.n_rows = sum(per_slot)
        if self.n_rows > MOST_ROWS:
            raise ValueError(
                f"features of a linear CRF: expected at most {MOST_ROWS}, got {self.n_rows}"
            )
        first_rows = numpy.cumsum([0, *per_slot])[:-1]
        places = [self.places[column.name] for column, _ in self.slots]
        repeats = [place.stop - place.start for place in places]
        self.slot_columns = _int32(i for place in places for i in range(place.start, place.stop))
        self.slot_offsets = numpy.repeat(_int32(offset for _, offset in self.slots), repeats)
        self.first_rows = numpy.repeat(_int32(first_rows), repeats)

    def values(self, tokens: Tokens, vocab: Optional[Vocab]) -> Ints2d:
        """The numbers of the values of each token, -1 for none. The values of a column are in its
        place. Shape: (N, C)"""
        found = numpy.full((len(tokens.orth), self.width), -1, dtype="int32")
        if vocab is None or not len(tokens.orth):
            return found
        words = self._of_words(tokens.orth, vocab)
        starts = [self.places[column.name].start for column in self.of_words]
        found[:, starts] = words[:, : len(starts)]
        for column in self.columns:
            if column.form == Form.TOKEN:
                numbers = self.keys[column.name].find(tokens.keys[column.name])
                found[:, self.places[column.name]] = numbers[:, None]
            elif column.form == Form.CLUSTER:
                found[:, self.places[column.name]] = self._of_clusters(column, tokens)
            elif column.form == Form.MEMORY and self.vocabulary.memory is not None:
                found[:, self.places[column.name]] = self.vocabulary.memory.find(column.of, tokens)
        self._pair_up(found, tokens)
        self._look_elsewhere(found, tokens, words[:, -2] >= 0)
        return found

    def _of_clusters(self, column: Column, tokens: Tokens) -> Ints2d:
        """The clusters of tokens. Shape: (N, width)"""
        words = find_words(self.clustered[column.name], tokens.orth, tokens.keys[column.of])
        numbers = self.vocabulary.clusters[column.name].numbers
        none = numpy.full((1, numbers.shape[1]), -1, dtype="int32")
        return numpy.concatenate([numbers, none])[words]  # the last row is for no word

    def _pair_up(self, found: Ints2d, tokens: Tokens) -> None:
        for column in self.columns:
            if column.form == Form.PAIR and column.name in self.pairs:
                pairs = pair_up(found[:, self.places[column.of].start], tokens.lengths)
                numbers = self.pairs[column.name].find(pairs.astype("uint64"))
                found[:, self.places[column.name].start] = numpy.where(pairs < 0, -1, numbers)

    def _look_elsewhere(self, found: Ints2d, tokens: Tokens, is_capitalised: Array1d) -> None:
        lengths = tokens.lengths
        for name, columns in self.elsewhere.items():
            keys, values = tokens.keys[name], found[:, self.places[name].start]
            takes_part = is_capitalised & (keys != 0)
            those, others = nearest_elsewhere(keys, takes_part, lengths, columns[0].n_nearest)
            if not len(those):  # as in most short docs
                continue
            for column in columns:
                side = -1 if column.form == Form.BEFORE else 1
                beside = values_beside(values, others, lengths, side)
                found[those, self.places[column.name]] = beside

    def occurrences(self, tokens: Tokens, vocab: Optional[Vocab]) -> List[Ints1d]:
        """The occurrences of values in docs that see each other's labels, for each column of
        `Form.DOCUMENT`: see `number_occurrences`."""
        columns = [column for column in self.columns if column.form == Form.DOCUMENT]
        if vocab is None or not columns:
            return [numpy.full(len(tokens.orth), -1, dtype="int32") for _ in columns]
        takes_part = (self._of_words(tokens.orth, vocab)[:, -2:] >= 0).any(axis=1)
        keys = [tokens.keys[column.of] for column in columns]
        return [number_occurrences(key, takes_part & (key != 0), tokens.lengths) for key in keys]

    def labels_elsewhere(self, probabilities: Floats2d, groups: Sequence[Ints1d]) -> Ints2d:
        """The values of the labels of other occurrences.

        probabilities (Floats2d): Of O and each label at each token. Shape: (N, L + 1)
        groups (Sequence[Ints1d]): What `occurrences` returned.
        RETURNS (Ints2d): -1 in other columns. Shape: (N, C)
        """
        values = numpy.full((len(probabilities), self.width), -1, dtype="int32")
        columns = [column for column in self.columns if column.form == Form.DOCUMENT]
        for column, group in zip(columns, groups):
            values[:, self.places[column.name]] = find_labels_elsewhere(probabilities, group)
        return values

    @property
    def is_of_labels(self) -> Array1d:
        """True for the slots of the labels of other occurrences, which are the last. Shape: (S,)"""
        starts = [self.places[c.name].start for c in self.columns if c.form == Form.DOCUMENT]
        return self.slot_columns >= min(starts, default=self.width)

    def _no_words(self) -> SeenWords:
        return SeenWords(len(self.of_words) + 2)

    def _of_words(self, orth: Array1d, vocab: Vocab) -> Ints2d:
        seen = self._seen
        words = seen.numbers.find(orth)
        if (words < 0).any():
            if seen.n_words > MOST_WORDS:
                self._seen = seen = self._no_words()
                words[:] = -1
            unseen = numpy.unique(orth[words < 0])
            seen.add(unseen, self._look_at(unseen, vocab))
            words = seen.numbers.find(orth)
        return seen.table[words]

    def _look_at(self, orth: Array1d, vocab: Vocab) -> Ints2d:
        """The values of words, 0 for capitalised ones, and 0 for those with a digit.
        Shape: (W, columns of words + 2)"""
        views = [(column.view, self.numbers[column.name]) for column in self.of_words]
        views += [(flag(name), {YES: 0}) for name in (CAPITALISED, HAS_DIGIT)]
        lexemes = [vocab[key] for key in orth.tolist()]
        rows = [
            [numbers.get(view(word), -1) for view, numbers in views if view] for word in lexemes
        ]
        return numpy.asarray(rows, dtype="int32").reshape(len(orth), len(views))


def _hashes(values: Sequence[str]) -> Array1d:
    return numpy.asarray([get_string_id(value) for value in values], dtype="uint64")


def _int32(numbers: Iterable[int]) -> Ints1d:
    return numpy.asarray(list(numbers), dtype="int32")


def pair_up(values: Ints1d, lengths: Ints1d) -> Array1d:
    """The value of each token and of the next as one number; -1 where one of them has none.
    In int64. Shape: (N,)"""
    after = numpy.full(len(values), -1, dtype="int64")
    after[:-1] = values[1:]
    after[(numpy.cumsum(lengths) - 1)[lengths > 0]] = -1
    pairs = (values.astype("int64") << 32) | after
    return numpy.where((values < 0) | (after < 0), -1, pairs)
