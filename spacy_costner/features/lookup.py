"""Find the rows of weights of the features of tokens, for all tokens of a batch at once.

A *column* is a kind of value of tokens, such as the word in lower case, and each of its values has
an id. A *slot* is a column at some offset: at offset -1 it reads the value of the token before. A
slot and a value are one feature, such as "LOWER[-1]=of", which has a row of weights.

The values of a token in all columns are a row of C ids, whose indices from 0 to C - 1 are called
*places*. `Lookup` finds these ids. `Slots` then reads the ids in the window of each token, and
turns them into rows of weights.

Some values depend on the word alone, not on its doc. `WordCache` keeps them for each word. A
*word key* is the hash of a word. A *mark* is a flag of a word, such as whether it has a digit, that
some columns look at. Tokens have *text ids*, the hashes of the texts of their docs, only in
training.
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
"""The number of words whose values, and whose sums of weights, are kept. When there are more, all
are dropped, and keeping begins again."""

MOST_ROWS = (1 << 31) - 1
"""The maximum number of features: rows are numbered in int32."""

MARKS = ("is_first_upper", "has_digit")
"""The flags that `WordCache` has for each word next to its values. Some columns look for other
occurrences of capitalised words, or of words with a digit: see `TokenBatch.marks`."""

_ADDING = make_lock()
"""The lock that a thread holds while it adds words to a cache."""


class Slots(NamedTuple):
    """S slots, each of which reads one of the C value ids of the token at its offset. A column of
    which a token can have several values has as many slots at each offset.

    places (Ints1d): The place of the id that each slot reads. Shape: (S,)
    offsets (Ints1d): The offset of the token that it reads the id from: 1 is the next token.
        Shape: (S,)
    first_rows (Ints1d): The row of weights of the value 0. The value i has the row first_rows + i.
        Shape: (S,)
    """

    places: Ints1d
    offsets: Ints1d
    first_rows: Ints1d

    def gather(self, value_ids: Ints2d, lengths: Ints1d) -> Ints2d:
        """Find the rows of weights of tokens.

        value_ids (Ints2d): The ids of the values of tokens, -1 for none. Shape: (N, C)
        lengths (Ints1d): The number of tokens of each doc. Windows end at the ends of docs.
            Shape: (B,)
        RETURNS (Ints2d): The row of each slot, -1 for none. Shape: (N, S)
        """
        return sparse.gather_window(value_ids, lengths, self.places, self.offsets, self.first_rows)

    def select(self, is_selected: Array1d) -> "Slots":
        """The slots for which a mask is True. Shape: (S,)"""
        return Slots(
            places=self.places[is_selected],
            offsets=self.offsets[is_selected],
            first_rows=self.first_rows[is_selected],
        )


@dataclass(eq=False)
class WordSlots:
    """The slots whose values depend on the word alone. What a word adds to the scores of a token at
    some offset from it is always the same sum of weights. So models keep these sums, one for each
    word and offset. The places are those in a row of `WordCache.table`.

    by_offset (dict[int, Slots]): The slots of features at each offset. In these `Slots` themselves
        offsets are 0, as a word is looked up alone, and not in a window. An offset at which there
        are only static vectors has no slots.
    vectors (Slots): The slots that read the id of the static vector, one for each offset at which
        vectors are inputs.
    """

    by_offset: dict[int, Slots]
    vectors: Slots

    @cached_property
    def window(self) -> Slots:
        """The slots that gather the kept sums for the words in the window of a token.

        They are for a table in which each word has O rows, one for each of the O offsets in
        `by_offset`. `gather` takes, for each token, the index of the first row of its word, (N, 1).
        It returns (N, O). Column i belongs to the i-th offset. For a token it has the first row of
        the word at this offset from the token, plus i: the row that keeps the sum of this word for
        this offset. For example, with the offsets -1, 0 and 1 the word with the id 5 has the rows
        15, 16 and 17. A token before this word has the row 17 in column 2.
        """
        offsets = to_int32([*self.by_offset])
        return Slots(
            places=numpy.zeros_like(offsets),
            offsets=offsets,
            first_rows=numpy.arange(len(offsets), dtype="int32"),
        )


class WordCache:
    """The values of the words that were looked up so far. Words are numbered in the order in which
    they come: the number is the id of the word. `word_ids` maps word keys to ids, and `table` has a
    row for each word, with the ids of its values: see `Lookup._rows_of_words`.

    Threads can read without waiting, while threads that add words wait for each other. This needs
    an order: a row is written before `word_ids` gets its word, and is never changed. When `table`
    is full, a larger copy replaces it. So a thread first finds the ids of words, and only then
    takes `table`.

    width (int): The number of columns of `table`.
    slots (WordSlots): The slots that depend on the word alone.
    hidden_slots (WordSlots): The same for a hidden layer, which has its own weights for static
        vectors and for the types of words.
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
        """Add words. Words that another thread has added in the meantime are left out.

        word_keys (Array1d): The keys of the words: see `Tokens`. Shape: (W,)
        rows (Ints2d): Their rows of the table. Shape: (W, width)
        """
        with _ADDING:
            is_new = self.word_ids.find(word_keys) < 0
            first_id = self.n_words
            end_id = first_id + int(is_new.sum())
            if end_id > len(self.table):
                # The new table is twice as large as needed, so that it seldom has to grow. Its
                # empty rows are -1, like the row of a word without values.
                n_more = 2 * end_id - len(self.table)
                self.table = numpy.pad(self.table, ((0, n_more), (0, 0)), constant_values=-1)
            self.table[first_id:end_id] = rows[is_new]
            self.n_words = end_id
            new_ids = numpy.arange(first_id, end_id, dtype="int32")
            self.word_ids.set(word_keys[is_new], new_ids)


class Lookup:
    """Finds the ids of the values of tokens in all columns, and numbers the rows of weights.
    Threads can share it.

    Each column has one or more of the C places: as many as the largest number of values that a
    token can have in it (`Column.width`).

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

        self._number_places()
        self.slots, self.n_rows = self._make_slots()
        self.batch_slots, self._word_slots = self._divide_slots()
        self._word_cache = self._empty_cache(vectors=None)
        self._training_vectors: StaticVectors | None = None  # set by `_vectors_for`

    def _number_places(self) -> None:
        """Number the places of all columns, and make the slots of static vectors and of the types
        of words.

        The places of a word come first, so that they can be copied from `WordCache` at once: the
        places of the word columns, then the place of the id of the static vector, if vectors are
        inputs, then the place of the index of the word's type, if there is a hidden layer. The
        places of other columns follow.
        """
        self.places: dict[str, slice] = {}
        for i, word_column in enumerate(self.word_columns):
            self.places[word_column.name] = slice(i, i + 1)
        self.n_word_places = len(self.word_columns)

        self.vector_slots = slots_of_vectors(place=0, offsets=())  # none, if there are no vectors
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
        """Make the slots of each column at each of its offsets, and number the rows of weights. A
        column has a row for each of its offsets and values. Returns the slots, and the number of
        rows.

        RAISES (ValueError): If there are too many rows.
        """
        places: list[int] = []
        offsets: list[int] = []
        first_rows: list[int] = []
        n_rows = 0
        for column in self.columns:
            if isinstance(column, VectorColumn):
                continue  # `_number_places` has made its slots
            column_places = self.places[column.name]
            n_values = column.n_values
            for offset in column.offsets:
                # A token may have several values in a column, in adjacent places. A value has the
                # same row of weights in all of these places.
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
        """Divide the slots into slots that depend on the batch and slots that depend on the word
        alone."""
        # The places of word columns are the first ones. They are the same in `WordCache.table`.
        is_word_slot = self.slots.places < len(self.word_columns)
        word_slots = self.slots.select(is_word_slot)
        by_offset = group_by_offset(word_slots, more_offsets=self.vector_slots.offsets)
        return self.slots.select(~is_word_slot), WordSlots(by_offset, self.vector_slots)

    def _empty_cache(self, vectors: StaticVectors | None) -> WordCache:
        """Create an empty cache for the rows that `_rows_of_words` makes with these
        vectors."""
        width = self.n_word_places + len(MARKS)
        types_by_offset = group_by_offset(self.type_slots)
        hidden_slots = WordSlots(types_by_offset, self.hidden_slots)
        return WordCache(width, self._word_slots, hidden_slots, vectors)

    def find_words(self, tokens: Tokens) -> tuple[WordCache, Ints1d]:
        """Find the words of tokens in the cache, and add new words.

        tokens (Tokens): The tokens of a batch.
        RETURNS (tuple[WordCache, Ints1d]): The cache, and the id of each token's word in it. Use
            the ids with this cache, as another thread may begin a new one. Shape: (N,)
        RAISES (ValueError): If the docs don't have the static vectors that the model needs.
        """
        cache = self._cache_for(tokens)
        word_ids = cache.word_ids.find(tokens.word_keys)
        if word_ids.min(initial=0) >= 0:
            return cache, word_ids
        if cache.n_words > MOST_CACHED_WORDS:  # otherwise its memory would grow without end
            cache = self._empty_cache(self._vectors_for(tokens))
            self._word_cache = cache
            word_ids[:] = -1  # the new cache has no words

        # The values of a word are computed from the lexeme of the first token that has it.
        new_tokens = numpy.flatnonzero(word_ids < 0)
        word_keys, first_indices = numpy.unique(tokens.word_keys[new_tokens], return_index=True)
        lexemes = tokens.lexemes(new_tokens[first_indices])
        cache.add(word_keys, self._rows_of_words(lexemes, cache.vectors))
        return cache, cache.word_ids.find(tokens.word_keys)

    def _cache_for(self, tokens: Tokens) -> WordCache:
        """The cache to find the words of tokens in. If static vectors are inputs, and the vocab of
        the docs has different vectors from the cache, a new cache replaces it."""
        cache = self._word_cache
        if self.vector_column is None or not tokens.vocabs:  # no vectors, or no docs
            return cache
        source = vectors_of(tokens)
        has_same_vectors = cache.vectors is not None and cache.vectors.source is source
        in_training = tokens.text_ids is not None
        if in_training:
            # The ids of vectors have to stay the same: see `_vectors_for`. A prediction in between
            # may have begun a cache with other ids.
            has_same_vectors = has_same_vectors and cache.vectors is self._training_vectors
        if not has_same_vectors:
            cache = self._empty_cache(self._vectors_for(tokens))
            self._word_cache = cache
        return cache

    def _vectors_for(self, tokens: Tokens) -> StaticVectors | None:
        """Find the static vectors for a new cache of words. None if the model has none.

        In training they are always the same object. Training keeps the features of docs, and these
        have the ids of vectors. So the ids have to stay valid when the cache is rebuilt.
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
        """Make the rows of `WordCache.table` for words. A row has

        - the ids of the word's values, -1 for none;
        - the id of its static vector, if there are vectors;
        - the index of its type, if there is a hidden layer;
        - for each of `MARKS` whether the word has it, as 0 or 1.

        Shape: (W, width)
        """
        # Ids of values, then marks. The other columns are inserted between them.
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
        """The ids of the values of a word, and its marks: its row of `WordCache.table` without the
        id of its vector and the index of its type."""
        word = lexeme.orth_
        row = []
        for column in self.word_columns:
            row.append(column.value_id(lexeme, word))
        for name in MARKS:
            row.append(int(TEXT_FLAGS[name](word)))
        return row

    def find_values(self, tokens: Tokens) -> TokenBatch:
        """Find the ids of the values of tokens in all columns but label columns, whose values are
        found after a first pass."""
        word_cache, word_ids = self.find_words(tokens)
        return self.find_values_of_words(tokens, word_cache, word_ids)

    def find_values_of_words(
        self, tokens: Tokens, cache: WordCache, word_ids: Ints1d
    ) -> TokenBatch:
        """Find the ids of the values of tokens whose words were found before: see `find_values`.

        tokens (Tokens): The tokens of a batch.
        cache (WordCache): The cache that `find_words` has returned. It has the ids that depend on
            the word alone.
        word_ids (Ints1d): The ids of the words that it has returned. Shape: (N,)
        RETURNS (TokenBatch): The tokens with the ids of their values.
        """
        # The row of each token's word, whose last numbers are its marks: see `_rows_of_words`.
        # Shape: (N, n_word_places + number of marks)
        word_rows = cache.table[word_ids]
        n_word_places = self.n_word_places
        value_ids = numpy.empty((len(word_rows), self.n_places), dtype="int32")  # (N, C)
        value_ids[:, :n_word_places] = word_rows[:, :n_word_places]
        value_ids[:, n_word_places:] = -1  # label columns get their ids after a first pass
        marks = word_rows[:, n_word_places:]
        batch = TokenBatch(tokens, marks, value_ids, self.places)
        if len(word_rows):
            # Columns whose values depend on more than the word write their ids now.
            for column in self.batch_columns:
                column.write_value_ids(batch, value_ids[:, self.places[column.name]])
        return batch


def slots_of_vectors(place: int, offsets: Sequence[int]) -> Slots:
    """Make slots that read the id of a word's static vector, one for each offset. `place` is the
    place of this id. They gather ids of vectors, not rows of weights: so the id 0 has the "row" 0
    at each offset."""
    return Slots(
        places=numpy.full(len(offsets), place, dtype="int32"),
        offsets=to_int32(offsets),
        first_rows=numpy.zeros(len(offsets), dtype="int32"),
    )


def slots_of_types(place: int, offsets: Ints1d) -> Slots:
    """Make slots that read the index of a word's type, one for each of O offsets, (O,). `place` is
    the place of this number. Each of `CHARACTER_TYPES` has a row of weights at each offset."""
    return Slots(
        places=numpy.full(len(offsets), place, dtype="int32"),
        offsets=offsets,
        first_rows=numpy.arange(len(offsets), dtype="int32") * len(CHARACTER_TYPES),
    )


def group_by_offset(slots: Slots, more_offsets: Sequence[int] = ()) -> dict[int, Slots]:
    """Group slots by their offsets: see `WordSlots.by_offset`. The offsets in `more_offsets` get a
    group even if no slot has them. In the groups all offsets are 0."""
    by_offset: dict[int, Slots] = {}
    # The default of `more_offsets` becomes an array of floats, and `union1d` then returns floats.
    all_offsets = numpy.union1d(slots.offsets, more_offsets).astype("int32")
    for offset in all_offsets.tolist():
        at_offset = slots.select(slots.offsets == offset)
        by_offset[offset] = at_offset._replace(offsets=numpy.zeros_like(at_offset.offsets))
    return by_offset


def vector_column_of(columns: Sequence[Column]) -> VectorColumn | None:
    """Find the column of static vectors among columns. None if it is missing, or if it has no
    vectors, as the model was initialized without docs."""
    for column in columns:
        if isinstance(column, VectorColumn) and column.dim:
            return column
    return None


def vectors_of(tokens: Tokens) -> BaseVectors:
    """The static vectors in the vocab of docs. There has to be at least one doc.

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
    """Make an array of numbers in the only type that native code takes."""
    return numpy.asarray(numbers, dtype="int32")
