"""From the tokens of a batch to rows of weights, with array operations.

A column gives each token the ids of its values, and has a slot at each of its offsets. The slot at
offset -1 shows a token the values of the token before it. A slot and a value are one feature, which
has a row of weights.

The ids of all columns stand side by side, C for each token. A place is one of these C. A word key
is the hash of a word.
"""

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
from .words import CHARACTER_TYPES, TEXT_FLAGS, WordColumn, character_type

MOST_WORDS = 1 << 16
"""The number of words that are remembered, with their values and the sums of their weights. Above
it all are forgotten."""

MOST_ROWS = (1 << 31) - 1
"""The largest number of features: rows are numbered in int32."""

MARKS = ("is_first_upper", "has_digit")
"""The flags of words that are found for each word, for the columns that look for other occurrences
of such words in the doc: the columns of `TokenBatch.marks`."""

_ADDING = make_lock()
"""Held while a thread adds words."""


class Slots(NamedTuple):
    """S slots: each is a column at some offset. A column of up to w values has w slots there.

    places (Ints1d): Which of the C ids in a row of value ids each slot reads. Shape: (S,)
    offsets (Ints1d): How many tokens to the right it reads it. Shape: (S,)
    first_rows (Ints1d): The row of weights of its value 0. Shape: (S,)
    """

    places: Ints1d
    offsets: Ints1d
    first_rows: Ints1d

    def gather(self, value_ids: Ints2d, lengths: Ints1d) -> Ints2d:
        """The rows of weights of tokens, from the ids of their values and the lengths of docs; -1
        for none. Shapes: (N, C), (B,) to (N, S)"""
        return sparse.gather_window(value_ids, lengths, self.places, self.offsets, self.first_rows)

    def select(self, is_selected: Array1d) -> "Slots":
        """The slots for which this is True. Shape: (S,)"""
        return Slots(
            places=self.places[is_selected],
            offsets=self.offsets[is_selected],
            first_rows=self.first_rows[is_selected],
        )


class WordSlots(NamedTuple):
    """What a word adds to the scores of a token, by where it stands: the sum is the same for all
    tokens, so it can be kept. Places are those in a row of `WordCache`.

    by_offset (dict[int, Slots]): At each offset from the token the slots of features, with offset
        0, as words are looked up by themselves. The offsets of vectors are there, too.
    vectors (Slots): The id of the static vector, at each offset where it is an input.
    """

    by_offset: dict[int, Slots]
    vectors: Slots

    @property
    def window(self) -> Slots:
        """For a table with O rows for each word, one for each offset, such as the sums of weights.
        From the first row of each token's own word, (N, 1), these slots gather the rows for the
        words in the token's window, (N, O): at offset number i, row i of the word there."""
        offsets = to_int32([*self.by_offset])
        return Slots(
            places=numpy.zeros_like(offsets),
            offsets=offsets,
            first_rows=numpy.arange(len(offsets), dtype="int32"),
        )


class WordCache:
    """The values of the words so far, so that they are computed once for each word. Words have ids
    in the order in which they come; `table` has a row for each, with the ids of its values.

    Any threads may read without waiting; those that add words wait for each other. A reader finds
    the id of a word first, then its row. Rows are never changed and are there before `word_ids` has
    their words. When `table` is full, a larger one with the same rows takes its place: so a reader
    takes `table` after it found ids.

    width (int): The number of values of a word. A row of `table` has so many.
    slots (WordSlots): The slots that depend on the word alone.
    hidden_slots (WordSlots): Those of a hidden layer, which sees vectors only.
    vectors (StaticVectors | None): The static vectors, if they are inputs.
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
        """Add words, but for those that another thread has added in the meantime.

        word_keys (Array1d): What the words are known by: see `Tokens`. Shape: (W,)
        rows (Ints2d): The ids of their values. Shape: (W, width)
        """
        with _ADDING:
            is_new = self.word_ids.find(word_keys) < 0
            first_id = self.n_words
            end_id = first_id + int(is_new.sum())
            if end_id > len(self.table):
                # Twice as large as what is needed now, so that it seldom grows.
                n_more = 2 * end_id - len(self.table)
                self.table = numpy.pad(self.table, ((0, n_more), (0, 0)), constant_values=-1)
            self.table[first_id:end_id] = rows[is_new]
            self.n_words = end_id
            new_ids = numpy.arange(first_id, end_id, dtype="int32")
            self.word_ids.set(word_keys[is_new], new_ids)


class Lookup:
    """Finds the ids of the values of tokens, in all columns, and says which rows of weights these
    are. Threads can share it.

    A row of value ids has C places: each column has as many, side by side, as a token has values of
    it at most.

    columns (Sequence[Column]): The columns, with their values.
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

        # The places of word columns come first: they are copied from the rows of `WordCache` at
        # once. After them come the id of the static vector, if vectors are inputs, and the number
        # of the word's type, for a hidden layer.
        self.places: dict[str, slice] = {}
        for i, word_column in enumerate(self.word_columns):
            self.places[word_column.name] = slice(i, i + 1)
        self.n_word_places = len(self.word_columns)
        self.vector_slots = slots_of_vectors(0, ())
        self.hidden_slots = slots_of_vectors(0, ())
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
            first = self.n_places
            self.n_places += column.width
            self.places[column.name] = slice(first, self.n_places)

        self.slots, self.n_rows = self._make_slots()
        self.batch_slots, self._word_slots = self._divide_slots()
        self._word_cache = self._empty_cache(None)
        self._training_vectors: StaticVectors | None = None

    def _make_slots(self) -> tuple[Slots, int]:
        """Make the slots of each column at each of its offsets, and number the rows of weights. A
        slot has a row for each value of its column. Returns the slots and the number of rows."""
        places: list[int] = []
        offsets: list[int] = []
        first_rows: list[int] = []
        n_rows = 0
        for column in self.columns:
            if isinstance(column, VectorColumn):
                continue  # see `vector_slots`
            column_places = self.places[column.name]
            n_values = column.n_values
            for offset in column.offsets:
                # Several values of a token have the same rows, whichever place they are in.
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
        """Divide the slots: those that depend on the batch; and those that depend on the word
        alone. What static vectors add is part of the latter: their offsets are there, too, even if
        no slots have them."""
        # The places of word columns are the first ones, and the same in a row of `WordCache`.
        is_of_word = self.slots.places < len(self.word_columns)
        word_slots = self.slots.select(is_of_word)
        by_offset = group_by_offset(word_slots, self.vector_slots.offsets)
        return self.slots.select(~is_of_word), WordSlots(by_offset, self.vector_slots)

    def _empty_cache(self, vectors: StaticVectors | None) -> WordCache:
        """A cache for the rows that `_rows_of_words` makes, with these vectors."""
        width = self.n_word_places + len(MARKS)
        types_by_offset = group_by_offset(self.type_slots)
        hidden_slots = WordSlots(types_by_offset, self.hidden_slots)
        return WordCache(width, self._word_slots, hidden_slots, vectors)

    def find_words(self, tokens: Tokens) -> tuple[WordCache, Ints1d]:
        """Find the words of tokens in the cache, and add those that are new.

        RETURNS (tuple[WordCache, Ints1d]): The cache, and the id of the word of each token in it.
            Another thread may begin a new cache: ids are of this one. Shape: (N,)
        """
        cache = self._cache_for(tokens)
        word_ids = cache.word_ids.find(tokens.word_keys)
        if word_ids.min(initial=0) >= 0:
            return cache, word_ids
        if cache.n_words > MOST_WORDS:
            cache = self._empty_cache(self._vectors_for(tokens))
            self._word_cache = cache
            word_ids[:] = -1  # the new cache has no words

        # The first token of each word that is new, to compute its values from its lexeme.
        new_tokens = numpy.flatnonzero(word_ids < 0)
        word_keys, first_indices = numpy.unique(tokens.word_keys[new_tokens], return_index=True)
        lexemes = tokens.lexemes(new_tokens[first_indices])
        cache.add(word_keys, self._rows_of_words(lexemes, cache.vectors))
        return cache, cache.word_ids.find(tokens.word_keys)

    def _cache_for(self, tokens: Tokens) -> WordCache:
        """The cache to find the words of tokens in. It is a new one if static vectors are inputs
        and those of the cache are others than those of the docs."""
        cache = self._word_cache
        if self.vector_column is None or not tokens.vocabs:
            return cache
        source = vectors_of(tokens)
        has_vectors = cache.vectors is not None and cache.vectors.source is source
        if tokens.text_ids is not None:
            # In training ids have to stay the same, and a prediction may have begun a new cache.
            has_vectors = has_vectors and cache.vectors is self._training_vectors
        if not has_vectors:
            cache = self._empty_cache(self._vectors_for(tokens))
            self._word_cache = cache
        return cache

    def _vectors_for(self, tokens: Tokens) -> StaticVectors | None:
        """The static vectors for a new cache. In training they are the same as before, as the ids
        of vectors are kept for all docs, while words may be forgotten."""
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
        """What the cache stores of words: the ids of their values, -1 for none; the id of their
        static vector, if there are vectors; the number of their type, if there is a hidden layer;
        and whether they have each of `MARKS`, as 0 or 1. Shape: (W, width)"""
        rows = numpy.asarray([self._row_of_word(lexeme) for lexeme in lexemes], dtype="int32")
        if vectors is None:
            return rows
        place = len(self.word_columns)
        rows = numpy.insert(rows, place, vectors.find_ids(lexemes), axis=1)
        if not self.n_type_rows:
            return rows
        types = [CHARACTER_TYPES.index(character_type(lexeme.orth_)) for lexeme in lexemes]
        return numpy.insert(rows, place + 1, types, axis=1)

    def _row_of_word(self, lexeme: Lexeme) -> list[int]:
        """See `_rows_of_words`. The vector is left out."""
        word = lexeme.orth_
        row = []
        for column in self.word_columns:
            row.append(column.value_id(lexeme, word))
        for name in MARKS:
            row.append(int(TEXT_FLAGS[name](word)))
        return row

    def find_values(self, tokens: Tokens) -> TokenBatch:
        """Find the ids of the values of tokens."""
        word_cache, word_ids = self.find_words(tokens)
        return self.find_values_of_words(tokens, word_cache, word_ids)

    def find_values_of_words(
        self, tokens: Tokens, cache: WordCache, word_ids: Ints1d
    ) -> TokenBatch:
        """Find the ids of the values of tokens whose words `find_words` has found: copy those that
        depend on the word from the cache, and let the other columns find theirs."""
        rows = cache.table[word_ids]  # (N, word places + marks): see `_rows_of_words`
        n_word_places = self.n_word_places
        value_ids = numpy.empty((len(rows), self.n_places), dtype="int32")  # (N, C)
        value_ids[:, :n_word_places] = rows[:, :n_word_places]
        value_ids[:, n_word_places:] = -1
        marks = rows[:, n_word_places:]
        batch = TokenBatch(tokens, marks, value_ids, self.places)
        if len(rows):
            for column in self.batch_columns:
                column.find_values(batch, value_ids[:, self.places[column.name]])
        return batch


def slots_of_vectors(place: int, offsets: Sequence[int]) -> Slots:
    """The static vector of the word at each offset, by its id, which stands at this place in a row
    of value ids and in a row of `WordCache`."""
    return Slots(
        places=numpy.full(len(offsets), place, dtype="int32"),
        offsets=to_int32(offsets),
        first_rows=numpy.zeros(len(offsets), dtype="int32"),
    )


def slots_of_types(place: int, offsets: Ints1d) -> Slots:
    """The type of the word at each offset, one of `CHARACTER_TYPES`, by its number, which stands at
    this place in a row of value ids and in a row of `WordCache`. Each has a row of weights. Shape:
    (O,)"""
    return Slots(
        places=numpy.full(len(offsets), place, dtype="int32"),
        offsets=offsets,
        first_rows=numpy.arange(len(offsets), dtype="int32") * len(CHARACTER_TYPES),
    )


def group_by_offset(slots: Slots, more_offsets: Sequence[int] = ()) -> dict[int, Slots]:
    """Slots of words, and their slots at each offset. These have offset 0, as words are looked up
    by themselves, not in their windows. More offsets may have none."""
    by_offset: dict[int, Slots] = {}
    for offset in numpy.union1d(slots.offsets, more_offsets).astype("int32").tolist():
        at_offset = slots.select(slots.offsets == offset)
        by_offset[offset] = at_offset._replace(offsets=numpy.zeros_like(at_offset.offsets))
    return by_offset


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


def to_int32(numbers: Sequence[int]) -> Ints1d:
    """Numbers as an array for native code, which takes no other type."""
    return numpy.asarray(numbers, dtype="int32")
