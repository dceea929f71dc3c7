"""Look up the weight rows of token features for a whole batch at once.

A *column* is a property of tokens, such as the lowercase form, and each value in a column has an
id. A *slot* is a column at an offset: at offset -1, it reads the value of the previous token. Each
combination of slot and value is a feature, such as "LOWER[-1]=of", with its own row of weights.

The values of a token in all columns form a row of C ids. The positions in this row, 0 to C - 1, are
called *places*. `Lookup` looks up the ids. `Slots` reads the ids from the window around each token
and converts them to weight rows.

Some values depend only on the word, not on its context. `WordCache` caches them by word. A *word
key* is the hash of a word. A *mark* is a flag that some columns check, such as whether the word
contains a digit. A *text id* is the hash of a doc's text. Text ids are only set during training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
from spacy.lexeme import Lexeme
from spacy.vectors import BaseVectors
from thinc.types import Array1d, Ints1d, Ints2d

from .. import sparse
from ..caching import cached_property
from ..locks import make_lock
from .column import BatchColumn, Column, LabelColumn, reader_of
from .static_vectors import WHERE, StaticVectors, VectorColumn
from .tokens import TokenBatch, Tokens
from .words import CHARACTER_TYPES, TEXT_FLAGS, WordColumn, character_type

MOST_CACHED_WORDS = 1 << 16
"""The maximum number of words to cache, with their values and weight sums. If there are more, the
cache is cleared."""

MOST_ROWS = (1 << 31) - 1
"""The maximum number of features. Row numbers are stored as int32."""

MARKS = ("is_first_upper", "has_digit")
"""The flags that `WordCache` stores for each word in addition to its values. Some columns look for
other occurrences of capitalised words or of words with digits: see `TokenBatch.marks`."""

_ADDING = make_lock()
"""Held by a thread while it adds words to a cache."""


class Slots(NamedTuple):
    """A set of S slots. Each slot reads one of the C value ids of the token at its offset. If a
    token can have several values in a column, the column has one slot per value at each offset.

    places (Ints1d): The place of the id that each slot reads. Shape: (S,)
    offsets (Ints1d): The offset of the token that each slot reads. For example, 1 is the next
        token. Shape: (S,)
    first_rows (Ints1d): The weight row of value 0 for each slot. Value i has the row
        first_rows + i. Shape: (S,)
    """

    places: Ints1d
    offsets: Ints1d
    first_rows: Ints1d

    def gather(self, value_ids: Ints2d, lengths: Ints1d) -> Ints2d:
        """Look up the weight rows of tokens.

        value_ids (Ints2d): The value ids of the tokens, -1 for no value. Shape: (N, C)
        lengths (Ints1d): The number of tokens in each doc. Windows don't cross doc boundaries.
            Shape: (B,)
        RETURNS (Ints2d): The row for each token and slot, or -1. Shape: (N, S)
        """
        return sparse.gather_window(value_ids, lengths, self.places, self.offsets, self.first_rows)

    def select(self, is_selected: Array1d) -> "Slots":
        """Return the slots for which the mask is True. Shape: (S,)"""
        return Slots(
            places=self.places[is_selected],
            offsets=self.offsets[is_selected],
            first_rows=self.first_rows[is_selected],
        )


@dataclass(eq=False)
class WordSlots:
    """Slots whose values depend only on the word. At a given offset, a word always adds the same
    sum of weights to the scores of a token, so models cache these sums by word and offset. Places
    are positions in the rows of `WordCache.table`.

    by_offset (dict[int, Slots]): The feature slots at each offset. The offsets inside these `Slots`
        are all 0, because they look up a single word without its window. An offset that only has
        static vectors maps to empty `Slots`.
    vectors (Slots): The slots that read the id of the static vector, one for each offset at which
        vectors are used as inputs.
    """

    by_offset: dict[int, Slots]
    vectors: Slots

    @cached_property
    def window(self) -> Slots:
        """Slots that gather the cached sums of the words in a token's window.

        They read from a table with O rows per word, one for each of the O offsets in `by_offset`.
        Pass the index of the first row of each token's word to `gather`, with shape (N, 1). It
        returns an array of shape (N, O). Column i contains the row of the sum that the word at the
        i-th offset adds to the token. For example, with offsets -1, 0 and 1, the word with id 5 has
        the rows 15, 16 and 17. If it follows a token, that token has row 17 in column 2.
        """
        offsets = to_int32([*self.by_offset])
        return Slots(
            places=numpy.zeros_like(offsets),
            offsets=offsets,
            first_rows=numpy.arange(len(offsets), dtype="int32"),
        )


class WordCache:
    """A cache of the values of words. Words are numbered in the order in which they're added, and
    the number is the word's id. `word_ids` maps word keys to ids, and `table` contains a row of
    value ids for each word: see `Lookup._rows_of_words`.

    Threads can read from the cache without locking. Only threads that add words wait for each
    other. This works because a row is written before its word is added to `word_ids`, and rows
    never change. When `table` is full, it's replaced by a larger copy. A thread must therefore look
    up word ids first and read `table` afterwards.

    width (int): The number of columns in `table`.
    slots (WordSlots): The slots that depend only on the word.
    hidden_slots (WordSlots): The corresponding slots for a hidden layer, which has separate weights
        for static vectors and word types.
    vectors (StaticVectors | None): The static vectors, if they're used as inputs.
    """

    def __init__(
        self,
        width: int,
        slots: WordSlots,
        hidden_slots: WordSlots,
        vectors: StaticVectors | None = None,
    ) -> None:
        self.slots = slots
        self.hidden_slots = hidden_slots
        self.vectors = vectors
        self.word_ids = sparse.IdMap()
        self.table: Ints2d = numpy.zeros((0, width), dtype="int32")
        self.n_words = 0

    def add(self, word_keys: Array1d, rows: Ints2d) -> None:
        """Add words. Words that another thread has added in the meantime are skipped.

        word_keys (Array1d): The word keys: see `Tokens`. Shape: (W,)
        rows (Ints2d): The words' rows in the table. Shape: (W, width)
        """
        with _ADDING:
            is_new = self.word_ids.find(word_keys) < 0
            first_id = self.n_words
            end_id = first_id + int(is_new.sum())
            if end_id > len(self.table):
                # Make the new table twice as large as needed, so that it rarely has to grow. Unused
                # rows are filled with -1, like the row of a word without values.
                n_more = 2 * end_id - len(self.table)
                self.table = numpy.pad(self.table, ((0, n_more), (0, 0)), constant_values=-1)
            self.table[first_id:end_id] = rows[is_new]
            self.n_words = end_id
            new_ids = numpy.arange(first_id, end_id, dtype="int32")
            self.word_ids.set(word_keys[is_new], new_ids)


class Lookup:
    """Looks up the ids of the tokens' values in all columns and numbers the weight rows. Can be
    shared between threads.

    A column occupies `Column.width` of the C places, one for each value that a token can have in
    the column.

    columns (Sequence[Column]): The columns and their values.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.reader = reader_of(columns)
        self.word_columns: list[WordColumn] = []
        self.batch_columns: list[BatchColumn] = []
        self.label_columns: list[LabelColumn] = []
        for column in columns:
            if isinstance(column, WordColumn):
                self.word_columns.append(column)
            elif isinstance(column, BatchColumn):
                self.batch_columns.append(column)
            elif isinstance(column, LabelColumn):
                self.label_columns.append(column)
        self.vector_column = vector_column_of(columns)

        self._number_places()
        self.slots, self.n_rows = self._make_slots()
        self.batch_slots, self._word_slots = self._divide_slots()
        self._word_cache = self._empty_cache(vectors=None)
        self._training_vectors: StaticVectors | None = None  # set by `_vectors_for`

    def with_memory(self, columns: Sequence[Column]) -> "Lookup":
        """Create a lookup for columns that only differ in their label memory. It shares the cache
        of words, because label memory isn't part of it, and the reader, which determines the keys
        of the words in the cache."""
        lookup = Lookup(columns)
        lookup.reader = self.reader
        lookup._word_cache = self._word_cache
        lookup._training_vectors = self._training_vectors
        return lookup

    def _number_places(self) -> None:
        """Number the places of all columns and create the slots for static vectors and word types.

        The places that depend only on the word come first, so that they can be copied from
        `WordCache` in one step: the word columns, the id of the static vector (if vectors are
        inputs), and the index of the word type (if there is a hidden layer). The places of the
        other columns follow.
        """
        self.places: dict[str, slice] = {}
        for i, word_column in enumerate(self.word_columns):
            self.places[word_column.name] = slice(i, i + 1)
        self.n_word_places = len(self.word_columns)

        self.vector_slots = slots_of_vectors(place=0, offsets=())  # empty if there are no vectors
        self.hidden_slots = slots_of_vectors(place=0, offsets=())
        if self.vector_column is not None:
            place = self.n_word_places
            self.vector_slots = slots_of_vectors(place, self.vector_column.offsets)
            self.hidden_slots = slots_of_vectors(place, self.vector_column.hidden_offsets)
            self.n_word_places += 1
        self.type_slots = slots_of_types(self.n_word_places, self.hidden_slots.offsets)
        self.n_type_rows = len(self.type_slots.offsets) * len(CHARACTER_TYPES)
        if self.n_type_rows:
            self.n_word_places += 1

        self.n_places = self.n_word_places
        for column in [*self.batch_columns, *self.label_columns]:
            first_place = self.n_places
            self.n_places += column.width
            self.places[column.name] = slice(first_place, self.n_places)

    def _make_slots(self) -> tuple[Slots, int]:
        """Create the slots of each column at each of its offsets and number the weight rows. A
        column has one row for each offset and value. Returns the slots and the number of rows.

        RAISES (ValueError): If there are too many rows.
        """
        places: list[int] = []
        offsets: list[int] = []
        first_rows: list[int] = []
        n_rows = 0
        for column in self.columns:
            if isinstance(column, VectorColumn):
                continue  # its slots were created by `_number_places`
            column_places = self.places[column.name]
            n_values = column.n_values
            for offset in column.offsets:
                # If a token can have several values in a column, their places are adjacent. A value
                # has the same weight row in each of these places.
                for place in range(column_places.start, column_places.stop):
                    places.append(place)
                    offsets.append(offset)
                    first_rows.append(n_rows)
                n_rows += n_values

        if n_rows > MOST_ROWS:
            expected = f"expected at most {MOST_ROWS}, got {n_rows}"
            raise ValueError(f"features of a linear CRF: {expected}")
        slots = Slots(to_int32(places), to_int32(offsets), to_int32(first_rows))
        return slots, n_rows

    def _divide_slots(self) -> tuple[Slots, WordSlots]:
        """Split the slots into slots that depend on the batch and slots that depend only on the
        word."""
        # The word columns have the first places, both here and in `WordCache.table`.
        is_word_slot = self.slots.places < len(self.word_columns)
        word_slots = self.slots.select(is_word_slot)
        by_offset = group_by_offset(word_slots, more_offsets=self.vector_slots.offsets)
        return self.slots.select(~is_word_slot), WordSlots(by_offset, self.vector_slots)

    def _empty_cache(self, vectors: StaticVectors | None) -> WordCache:
        """Create an empty cache for the rows that `_rows_of_words` creates with the given
        vectors."""
        width = self.n_word_places + len(MARKS)
        types_by_offset = group_by_offset(self.type_slots)
        hidden_slots = WordSlots(types_by_offset, self.hidden_slots)
        return WordCache(width, self._word_slots, hidden_slots, vectors)

    def find_words(self, tokens: Tokens) -> tuple[WordCache, Ints1d]:
        """Look up the words of tokens in the cache and add new words to it.

        tokens (Tokens): The tokens of a batch.
        RETURNS (tuple[WordCache, Ints1d]): The cache and the id of each token's word. The ids are
            only valid for this cache, because another thread may replace it. Shape: (N,)
        RAISES (ValueError): If the docs don't have the static vectors that the model requires.
        """
        cache = self._cache_for(tokens)
        word_ids = cache.word_ids.find(tokens.word_keys)
        if word_ids.min(initial=0) >= 0:
            return cache, word_ids
        if cache.n_words > MOST_CACHED_WORDS:  # limit the cache's memory usage
            cache = self._empty_cache(self._vectors_for(tokens))
            self._word_cache = cache
            word_ids[:] = -1  # the new cache is empty

        # Compute the values of a word from the lexeme of its first token.
        new_tokens = numpy.flatnonzero(word_ids < 0)
        word_keys, first_indices = numpy.unique(tokens.word_keys[new_tokens], return_index=True)
        lexemes = tokens.lexemes(new_tokens[first_indices])
        cache.add(word_keys, self._rows_of_words(lexemes, cache.vectors))
        return cache, cache.word_ids.find(tokens.word_keys)

    def _cache_for(self, tokens: Tokens) -> WordCache:
        """Return the cache for the words of these tokens. If static vectors are inputs and the
        docs' vocab has different vectors from the cache, replace the cache with a new one."""
        cache = self._word_cache
        if self.vector_column is None or not tokens.vocabs:  # no vectors, or no docs
            return cache
        source = vectors_of(tokens)
        has_same_vectors = cache.vectors is not None and cache.vectors.source is source
        in_training = tokens.text_ids is not None
        if in_training:
            # Vector ids must not change during training: see `_vectors_for`. A prediction in
            # between may have created a cache with different ids.
            has_same_vectors = has_same_vectors and cache.vectors is self._training_vectors
        if not has_same_vectors:
            cache = self._empty_cache(self._vectors_for(tokens))
            self._word_cache = cache
        return cache

    def _vectors_for(self, tokens: Tokens) -> StaticVectors | None:
        """Return the static vectors for a new word cache, or None if the model doesn't use vectors.

        In training, this is always the same object. Training keeps the features of docs, including
        their vector ids, so the ids have to remain valid when the cache is replaced.
        """
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

    def _rows_of_words(self, lexemes: Sequence[Lexeme], vectors: StaticVectors | None) -> Ints2d:
        """Create the rows of `WordCache.table` for words. Each row contains:

        - the ids of the word's values, -1 for no value
        - the id of its static vector, if there are vectors
        - the index of its type, if there is a hidden layer
        - 0 or 1 for each of `MARKS`

        Shape: (W, width)
        """
        # The ids of values, followed by the marks. The other columns are inserted between them.
        rows = numpy.asarray([self._row_of_word(lexeme) for lexeme in lexemes], dtype="int32")
        if vectors is None:
            return rows
        vector_column = len(self.word_columns)
        rows = numpy.insert(rows, vector_column, vectors.find_ids(lexemes), axis=1)
        if not self.n_type_rows:
            return rows
        type_numbers: list[int] = []
        for lexeme in lexemes:
            type_numbers.append(CHARACTER_TYPES.index(character_type(lexeme.orth_)))
        return numpy.insert(rows, vector_column + 1, type_numbers, axis=1)

    def _row_of_word(self, lexeme: Lexeme) -> list[int]:
        """Return the ids of a word's values, followed by its marks. This is its row in
        `WordCache.table` without the vector id and the type index."""
        word = lexeme.orth_
        row = []
        for column in self.word_columns:
            row.append(column.value_id(lexeme, word))
        for name in MARKS:
            row.append(int(TEXT_FLAGS[name](word)))
        return row

    def find_values(self, tokens: Tokens) -> TokenBatch:
        """Look up the ids of the tokens' values in all columns except label columns, which get
        their values after a first pass."""
        word_cache, word_ids = self.find_words(tokens)
        return self.find_values_of_words(tokens, word_cache, word_ids)

    def find_values_of_words(
        self, tokens: Tokens, cache: WordCache, word_ids: Ints1d
    ) -> TokenBatch:
        """Look up the ids of the tokens' values if the words have already been looked up: see
        `find_values`.

        tokens (Tokens): The tokens of a batch.
        cache (WordCache): The cache returned by `find_words`. It contains the ids that depend only
            on the word.
        word_ids (Ints1d): The word ids returned by `find_words`. Shape: (N,)
        RETURNS (TokenBatch): The tokens and the ids of their values.
        """
        # The row of each token's word. The marks are at the end: see `_rows_of_words`.
        # Shape: (N, n_word_places + number of marks)
        word_rows = cache.table[word_ids]
        n_word_places = self.n_word_places
        value_ids = numpy.empty((len(word_rows), self.n_places), dtype="int32")  # (N, C)
        value_ids[:, :n_word_places] = word_rows[:, :n_word_places]
        value_ids[:, n_word_places:] = -1  # label columns get their ids after a first pass
        marks = word_rows[:, n_word_places:]
        batch = TokenBatch(tokens, marks, value_ids, self.places)
        if len(word_rows):
            # Let the columns that depend on more than the word write their ids.
            for column in self.batch_columns:
                column.write_value_ids(batch, value_ids[:, self.places[column.name]])
        return batch


def slots_of_vectors(place: int, offsets: Sequence[int]) -> Slots:
    """Create slots that read the id of a word's static vector, one for each offset. `place` is the
    place of this id. They gather vector ids instead of weight rows, so the first "row" is 0 at each
    offset."""
    return Slots(
        places=numpy.full(len(offsets), place, dtype="int32"),
        offsets=to_int32(offsets),
        first_rows=numpy.zeros(len(offsets), dtype="int32"),
    )


def slots_of_types(place: int, offsets: Ints1d) -> Slots:
    """Create slots that read the index of a word's type, one for each of O offsets. `place` is the
    place of this index. There is a weight row for each offset and each of `CHARACTER_TYPES`."""
    return Slots(
        places=numpy.full(len(offsets), place, dtype="int32"),
        offsets=offsets,
        first_rows=numpy.arange(len(offsets), dtype="int32") * len(CHARACTER_TYPES),
    )


def group_by_offset(slots: Slots, more_offsets: Sequence[int] = ()) -> dict[int, Slots]:
    """Group slots by offset: see `WordSlots.by_offset`. The offsets in `more_offsets` are included
    even if they have no slots. Within the groups, all offsets are set to 0."""
    by_offset: dict[int, Slots] = {}
    # `union1d` returns floats if `more_offsets` is empty, because numpy converts () to a float
    # array.
    all_offsets = numpy.union1d(slots.offsets, more_offsets).astype("int32")
    for offset in all_offsets.tolist():
        at_offset = slots.select(slots.offsets == offset)
        by_offset[offset] = at_offset._replace(offsets=numpy.zeros_like(at_offset.offsets))
    return by_offset


def vector_column_of(columns: Sequence[Column]) -> VectorColumn | None:
    """Return the static vector column. Returns None if there is no such column, or if its vectors
    aren't known because the model was initialized without docs."""
    for column in columns:
        if isinstance(column, VectorColumn) and column.dim:
            return column
    return None


def vectors_of(tokens: Tokens) -> BaseVectors:
    """Return the static vectors of the docs' vocab. Expects at least one doc.

    RAISES (ValueError): If the docs have several vocabs with different vectors.
    """
    first_vocab = tokens.vocabs[0]
    for vocab in tokens.vocabs:
        if vocab is not first_vocab and vocab.vectors is not first_vocab.vectors:
            raise ValueError(
                f"{WHERE}: expected docs in a batch whose vocabs have the same vectors, got "
                "different vectors"
            )
    return first_vocab.vectors


def to_int32(numbers: Sequence[int]) -> Ints1d:
    """Convert numbers to an int32 array, the only type that the native code accepts."""
    return numpy.asarray(numbers, dtype="int32")
