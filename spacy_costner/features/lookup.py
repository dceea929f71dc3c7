"""Lookup of the values of tokens, with array operations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.lexeme import Lexeme
from spacy.vectors import BaseVectors
from thinc.types import Array1d, Ints1d, Ints2d

from .. import sparse
from ..locks import make_lock
from .column import BatchColumn, Column, LabelColumn, reader_of
from .static_vectors import WHERE, StaticVectors, VectorColumn
from .tokens import TokenBatch, Tokens
from .words import TEXT_FLAGS, WordColumn

MOST_WORDS = 1 << 16
"""Words that are remembered at a time, with their values and the sums of their weights."""

MOST_ROWS = (1 << 31) - 1
"""Features that have a number: rows are int32."""

MARKS = ("is_first_upper", "has_digit")
"""The flags of words whose other occurrences in the doc count."""

_ADDING = make_lock()
"""Held while a thread adds words."""


class Slots(NamedTuple):
    """Columns at an offset. A column of several values has as many slots.

    places (Ints1d): Where in an array of value ids its values stand. Shape: (S,)
    offsets (Ints1d): The offset, positive to the right. Shape: (S,)
    first_rows (Ints1d): The row of its value 0. Shape: (S,)
    """

    places: Ints1d
    offsets: Ints1d
    first_rows: Ints1d

    def gather(self, value_ids: Ints2d, lengths: Ints1d) -> Ints2d:
        """The rows of tokens, from the values in their windows, -1 for none. Shapes: (N, C), (B,)
        to (N, S)"""
        return sparse.gather_window(value_ids, lengths, self.places, self.offsets, self.first_rows)

    def select(self, is_selected: Array1d) -> "Slots":
        """Some of the slots. Shape: (S,)"""
        return Slots(*(column[is_selected] for column in self))


class WordCache:
    """The ids of the values of words, `width` for each word. Words have numbers in the order in
    which they come.

    Rows are only added, and are there before `word_ids` has their words. So any threads may read,
    without waiting. Those that add wait for each other. `table` grows by another taking its place,
    so it is read after `word_ids`.

    slots_by_offset (dict[int, Slots]): At each offset the slots that depend on the word alone, with
        places in `table`.
    vectors (StaticVectors | None): The static vectors, if they are inputs. The last column of
        `table` has the ids of those of words.
    vector_slots (Slots): That column at the offsets of the vectors. Shape: (O,)
    window (Slots): Takes the ids of words, times the number of offsets, to a row for each word and
        offset. Shape: (number of offsets,)
    """

    def __init__(
        self,
        width: int,
        slots_by_offset: dict[int, Slots],
        vectors: StaticVectors | None = None,
        vector_offsets: Sequence[int] = (),
    ) -> None:
        self.slots_by_offset = slots_by_offset
        self.vectors = vectors
        self.vector_slots = slots_of_vectors(width - 1, vector_offsets)
        offsets = to_int32(list(slots_by_offset))
        self.window = Slots(
            places=numpy.zeros_like(offsets),
            offsets=offsets,
            first_rows=numpy.arange(len(offsets), dtype="int32"),
        )
        self.word_ids = sparse.IdMap()
        self.table: Ints2d = numpy.zeros((0, width), dtype="int32")
        self.n_words = 0

    def add(self, word_keys: Array1d, rows: Ints2d) -> None:
        """Add words by their keys, but for those that another thread has added. Shapes: (W,), (W,
        width)"""
        with _ADDING:
            is_new = self.word_ids.find(word_keys) < 0
            first = self.n_words
            end = first + int(is_new.sum())
            if end > len(self.table):
                # Twice as large as what is needed now, so that it seldom grows.
                n_more = 2 * end - len(self.table)
                self.table = numpy.pad(self.table, ((0, n_more), (0, 0)), constant_values=-1)
            self.table[first:end] = rows[is_new]
            self.n_words = end
            self.word_ids.set(word_keys[is_new], numpy.arange(first, end, dtype="int32"))


class Lookup:
    """Columns with their values, as arrays to look tokens up in. Threads can share it.

    The values of a column have places next to each other in an array of value ids. A slot is a
    column at some offset, or each of its places if it has several.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.word_columns = [column for column in columns if isinstance(column, WordColumn)]
        self.batch_columns = [column for column in columns if isinstance(column, BatchColumn)]
        self.label_columns = [column for column in columns if isinstance(column, LabelColumn)]
        self.reader = reader_of(columns)
        self.places: dict[str, slice] = {}
        self.n_places = 0
        for column in columns:
            first = self.n_places
            self.n_places += column.width
            self.places[column.name] = slice(first, self.n_places)
        self._word_places = to_int32(
            [self.places[column.name].start for column in self.word_columns]
        )
        self.vector_column = vector_column_of(columns)
        self.vector_slots = slots_of_vectors(0, ())
        if self.vector_column is not None:
            place = self.places[self.vector_column.name].start
            self.vector_slots = slots_of_vectors(place, self.vector_column.offsets)
        self.slots, self.n_rows = self._make_slots()
        self.batch_slots, self._word_slots = self._divide_slots()
        self._word_cache = self._empty_cache(None)
        self._training_vectors: StaticVectors | None = None

    def _make_slots(self) -> tuple[Slots, int]:
        """Number the features: the slots of each column at each offset, and how many rows there
        are."""
        places: list[int] = []
        offsets: list[int] = []
        first_rows: list[int] = []
        n_rows = 0
        for column in self.columns:
            if column is self.vector_column:
                continue
            place = self.places[column.name]
            n_values = column.n_values
            for offset in column.offsets:
                places.extend(range(place.start, place.stop))
                offsets.extend([offset] * column.width)
                first_rows.extend([n_rows] * column.width)
                n_rows += n_values
        if n_rows > MOST_ROWS:
            expected = f"expected at most {MOST_ROWS}, got {n_rows}"
            raise ValueError(f"features of a linear CRF: {expected}")
        return Slots(to_int32(places), to_int32(offsets), to_int32(first_rows)), n_rows

    def _divide_slots(self) -> tuple[Slots, dict[int, Slots]]:
        """The slots that are looked up for each batch; and those that depend on the word alone, by
        offset, with places in the rows of `WordCache`."""
        # The place in a row of `WordCache`, -1 for none: first of each place in an array of value
        # ids, then of each slot.
        word_place_of_place = numpy.full(self.n_places, -1, dtype="int32")
        for i, place in enumerate(self._word_places):
            word_place_of_place[place] = i
        word_place = word_place_of_place[self.slots.places]
        is_of_word = word_place >= 0
        word_slots = {}
        word_offsets = numpy.union1d(self.slots.offsets[is_of_word], self.vector_slots.offsets)
        for offset in word_offsets.tolist():
            is_selected = is_of_word & (self.slots.offsets == offset)
            at_offset = self.slots.select(is_selected)
            # Words are looked up one by one, without the windows that they stand in.
            word_slots[offset] = Slots(
                places=word_place[is_selected],
                offsets=numpy.zeros_like(at_offset.offsets),
                first_rows=at_offset.first_rows,
            )
        return self.slots.select(~is_of_word), word_slots

    def _empty_cache(self, vectors: StaticVectors | None) -> WordCache:
        # The values of a word, its marks, and last the id of its vector if vectors are inputs.
        width = len(self.word_columns) + len(MARKS)
        if vectors is None or self.vector_column is None:
            return WordCache(width, self._word_slots)
        return WordCache(width + 1, self._word_slots, vectors, self.vector_column.offsets)

    def find_words(self, tokens: Tokens) -> tuple[WordCache, Ints1d]:
        """The words so far, and the ids of those of tokens among them, (N,). Their values are found
        once and cached."""
        cache = self._cache_for(tokens)
        word_ids = cache.word_ids.find(tokens.word_keys)
        if (word_ids >= 0).all():
            return cache, word_ids
        if cache.n_words > MOST_WORDS:
            self._word_cache = cache = self._empty_cache(self._vectors_for(tokens))
            word_ids[:] = -1
        unknown_tokens = numpy.flatnonzero(word_ids < 0)
        word_keys, index = numpy.unique(tokens.word_keys[unknown_tokens], return_index=True)
        lexemes = tokens.lexemes(unknown_tokens[index])
        rows = numpy.asarray([self._row_of_word(lexeme) for lexeme in lexemes])
        if cache.vectors is not None:
            rows = numpy.column_stack([rows, cache.vectors.find_ids(lexemes)])
        cache.add(word_keys, rows)
        return cache, cache.word_ids.find(tokens.word_keys)

    def _cache_for(self, tokens: Tokens) -> WordCache:
        """The words so far, or no words if their vectors are others than those of tokens."""
        cache = self._word_cache
        if self.vector_column is None or not tokens.vocabs:
            return cache
        source = vectors_of(tokens)
        is_of_source = cache.vectors is not None and cache.vectors.source is source
        # A prediction may have begun a new cache since the last batch of training.
        has_other_ids = tokens.text_ids is not None and cache.vectors is not self._training_vectors
        if not is_of_source or has_other_ids:
            self._word_cache = cache = self._empty_cache(self._vectors_for(tokens))
        return cache

    def _vectors_for(self, tokens: Tokens) -> StaticVectors | None:
        """The vectors of a new cache. In training they stay the same: the ids of vectors are kept
        for all docs, while words may be forgotten."""
        if self.vector_column is None:
            return None
        source = vectors_of(tokens)
        in_training = tokens.text_ids is not None
        vectors = self._training_vectors
        if in_training and vectors is not None and vectors.source is source:
            return vectors
        vectors = self.vector_column.read_vectors(source)
        if in_training:
            self._training_vectors = vectors
        return vectors

    def _row_of_word(self, lexeme: Lexeme) -> list[int]:
        """The ids of the values of a word, and its marks as 0 or 1."""
        word = lexeme.orth_
        row = [column.value_id(lexeme, word) for column in self.word_columns]
        for name in MARKS:
            row.append(int(TEXT_FLAGS[name](word)))
        return row

    def find_values(self, tokens: Tokens) -> TokenBatch:
        """Find the values of the tokens of a batch."""
        word_cache, word_ids = self.find_words(tokens)
        return self.find_values_of_words(tokens, word_cache, word_ids)

    def find_values_of_words(
        self, tokens: Tokens, cache: WordCache, word_ids: Ints1d
    ) -> TokenBatch:
        """Find the values of tokens, whose words were found."""
        rows = cache.table[word_ids]
        value_ids = numpy.full((len(rows), self.n_places), -1, dtype="int32")
        n_word_columns = len(self.word_columns)
        value_ids[:, self._word_places] = rows[:, :n_word_columns]
        marks = rows[:, n_word_columns : n_word_columns + len(MARKS)]
        is_capitalised, has_digit = marks.T > 0
        if self.vector_column is not None and len(rows):
            value_ids[:, self.places[self.vector_column.name]] = rows[:, -1:]
        batch = TokenBatch(tokens, is_capitalised, has_digit, value_ids, self.places)
        if len(rows):
            for column in self.batch_columns:
                column.find_values(batch, value_ids[:, self.places[column.name]])
        return batch


def to_int32(numbers: Sequence[int]) -> Ints1d:
    return numpy.asarray(numbers, dtype="int32")


def slots_of_vectors(place: int, offsets: Sequence[int]) -> Slots:
    """The static vector of the word at each offset, by its id, which stands at a place in an array
    of value ids."""
    return Slots(
        places=numpy.full(len(offsets), place, dtype="int32"),
        offsets=to_int32(offsets),
        first_rows=numpy.zeros(len(offsets), dtype="int32"),
    )


def vector_column_of(columns: Sequence[Column]) -> VectorColumn | None:
    """The column of static vectors. None if there is none, or if its dimension isn't known, as no
    docs were there in initialization."""
    for column in columns:
        if isinstance(column, VectorColumn) and column.dim:
            return column
    return None


def vectors_of(tokens: Tokens) -> BaseVectors:
    """The static vectors that the vocabs of docs, at least one, have in common."""
    first_vocab = tokens.vocabs[0]
    for vocab in tokens.vocabs:
        if vocab is not first_vocab and vocab.vectors is not first_vocab.vectors:
            raise ValueError(
                f"{WHERE}: expected docs whose vocabs have the same vectors in a batch, got vocabs "
                "with others"
            )
    return first_vocab.vectors
