"""Lookup of the values of tokens in a vocabulary, with array operations."""

from collections.abc import Iterable, Sequence

import numpy
from spacy.strings import get_string_id
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d, Ints2d

from .. import sparse
from ..locks import make_lock
from ..ragged import last_tokens
from .clusters import find_words
from .elsewhere import nearest_elsewhere, number_occurrences, values_beside
from .memory import number_keys
from .template import YES, Column, Form, attributes_of, flag
from .tokens import Gazetteer, Tokens
from .vocabulary import Vocabulary

MOST_WORDS = 1 << 16
"""Words that are remembered at a time, with their values and the sums of their weights."""

MOST_ROWS = (1 << 31) - 1
"""Features that have a number: rows are int32."""

OF_NAMES = ("is_first_upper", "has_digit")
"""The flags of words whose other occurrences count: capitalised ones, and those with a digit."""

_ADDING = make_lock()
"""Held while a thread adds words."""

Slots = tuple[Ints1d, Ints1d, Ints1d]
"""The column, the offset and the row of value 0 of slots. Shapes: (S,)"""


class SeenWords:
    """Cached values of words, `width` of each. At each offset, `slots` has those that depend on the
    word alone. `window` takes the numbers of words, times the number of offsets, to rows.

    Rows are only added, and are there before `numbers` has their words. So any threads may read,
    without waiting. Those that add wait for each other. `table` grows by another taking its place,
    so it is read after `numbers`.
    """

    def __init__(self, width: int, slots: dict[int, Slots]) -> None:
        self.slots = slots
        offsets = _int32(slots)
        self.window: Slots = 0 * offsets, offsets, _int32(range(len(slots)))
        self.numbers = sparse.IdMap()
        self.table: Ints2d = numpy.zeros((0, width), dtype="int32")
        self.n_words = 0

    def add(self, orth: Array1d, rows: Ints2d) -> None:
        """Add words by their hashes, but for those that another thread has added. Shapes: (W,), (W,
        width)"""
        with _ADDING:
            is_new = self.numbers.find(orth) < 0
            first, end = self.n_words, self.n_words + int(is_new.sum())
            if end > len(self.table):
                n_more = 2 * end - len(self.table)
                self.table = numpy.pad(self.table, ((0, n_more), (0, 0)), constant_values=-1)
            self.table[first:end] = rows[is_new]
            self.n_words = end
            self.numbers.set(orth[is_new], numpy.arange(first, end, dtype="int32"))


class Lookup:
    """A vocabulary with fast lookup. Threads can share it.

    The values of a column have places next to each other. A slot is a column at some offset, or
    each of its places if it has several.
    """

    def __init__(self, columns: Sequence[Column], vocabulary: Vocabulary) -> None:
        self.columns, self.vocabulary = columns, vocabulary
        self.attributes = attributes_of(columns)
        self.of_words = [column for column in columns if column.form == Form.WORD]
        self.not_of_words = [column for column in columns if column.form != Form.WORD]
        self.of_documents = [column for column in columns if column.form == Form.DOCUMENT]
        self.elsewhere: dict[str, list[Column]] = {}
        for column in (column for column in columns if column.n_nearest):
            self.elsewhere.setdefault(column.of, []).append(column)
        values = vocabulary.values
        self.gazetteers = {name: Gazetteer(lines) for name, lines in vocabulary.phrases.items()}
        self.numbers: dict[str, dict[str | None, int]] = {
            name: {v: i for i, v in enumerate(names)} for name, names in values.items()
        }
        of_tokens = [column.name for column in columns if column.form == Form.TOKEN]
        keys = {name: [*map(get_string_id, values[name])] for name in of_tokens}
        keys |= {name: each.keys for name, each in vocabulary.clusters.items()} | vocabulary.pairs
        self.keys = {name: number_keys(numpy.asarray(k, "uint64")) for name, k in keys.items()}
        self._place_slots()
        self._seen = SeenWords(len(self.of_words) + len(OF_NAMES), self.word_slots)

    def _place_slots(self) -> None:
        """Find the place of the values of each column, and the rows of each slot."""
        widths = [self.vocabulary.width(column) for column in self.columns]
        ends = numpy.cumsum(widths).tolist()
        places = [slice(end - width, end) for width, end in zip(widths, ends)]
        self.places = {column.name: place for column, place in zip(self.columns, places)}
        self.word_places = _int32(self.places[column.name].start for column in self.of_words)
        self.width = sum(widths)
        self.slots = [(column, offset) for column in self.columns for offset in column.offsets]
        per_slot = [self.vocabulary.size(column) for column, _ in self.slots]
        self.n_rows = sum(per_slot)
        if self.n_rows > MOST_ROWS:
            expected = f"expected at most {MOST_ROWS}, got {self.n_rows}"
            raise ValueError(f"features of a linear CRF: {expected}")
        first_rows = numpy.cumsum([0, *per_slot])[:-1]
        places = [self.places[column.name] for column, _ in self.slots]
        repeats = [place.stop - place.start for place in places]
        columns = _int32(i for place in places for i in range(place.start, place.stop))
        offsets = numpy.repeat(_int32(offset for _, offset in self.slots), repeats)
        first_rows = numpy.repeat(_int32(first_rows), repeats)
        of_word = {self.places[column.name].start: i for i, column in enumerate(self.of_words)}
        number = _int32(of_word.get(i, -1) for i in columns.tolist())
        self.all_slots: Slots = (columns, offsets, first_rows)
        self.other_slots: Slots = tuple(each[number < 0] for each in self.all_slots)
        self.word_slots: dict[int, Slots] = {}
        for offset in numpy.unique(offsets[number >= 0]).tolist():
            there = (number >= 0) & (offsets == offset)
            self.word_slots[offset] = number[there], 0 * offsets[there], first_rows[there]

    def values(self, tokens: Tokens, words: Ints2d) -> Ints2d:
        """The number of the value of each token in each column, -1 for none, from the values
        of words. Shapes: words (N, columns of words + 2), values (N, C)"""
        values = numpy.full((len(tokens.orth), self.width), -1, dtype="int32")
        if not len(words):
            return values
        values[:, self.word_places] = words[:, : len(self.word_places)]
        for column in self.not_of_words:
            name, place = column.name, self.places[column.name]
            if column.form == Form.TOKEN:
                values[:, place] = self.keys[name].find(tokens.keys[name])[:, None]
            elif column.form == Form.CLUSTER:
                found = find_words(self.keys[name], tokens.orth, tokens.keys[column.of])
                numbers = self.vocabulary.clusters[name].numbers
                none = numpy.full((1, numbers.shape[1]), -1, dtype="int32")
                values[:, place] = numpy.concatenate([numbers, none])[found]  # -1 is the last
            elif column.form == Form.MEMORY and self.vocabulary.memory is not None:
                values[:, place] = self.vocabulary.memory.find(column.of, tokens)
            elif column.form == Form.PAIR and name in self.keys:
                pairs = pair_up(values[:, self.places[column.of].start], tokens.lengths)
                numbers = self.keys[name].find(pairs.astype("uint64"))
                values[:, place.start] = numpy.where(pairs < 0, -1, numbers)
        lengths, is_capitalised = tokens.lengths, words[:, -len(OF_NAMES)] >= 0
        for name, columns in self.elsewhere.items():
            keys, own = tokens.keys[name], values[:, self.places[name].start]
            takes_part = is_capitalised & (keys != 0)
            those, others = nearest_elsewhere(keys, takes_part, lengths, columns[0].n_nearest)
            for column in columns if len(those) else ():  # none in most short docs
                side = -1 if column.form == Form.BEFORE else 1
                beside = values_beside(own, others, lengths, side)
                values[those, self.places[column.name]] = beside
        return values

    def occurrences(self, tokens: Tokens, words: Ints2d) -> list[Ints1d]:
        """The occurrences that see each other's labels, for each column of `Form.DOCUMENT`: see
        `number_occurrences`."""
        takes_part = (words[:, -len(OF_NAMES) :] >= 0).any(axis=1)
        keys = [tokens.keys[column.of] for column in self.of_documents]
        return [number_occurrences(key, takes_part & (key != 0), tokens.lengths) for key in keys]

    def words(self, orth: Array1d, vocabs: Sequence[Vocab]) -> tuple[SeenWords, Ints1d]:
        """All words so far, and the numbers of those of tokens among them, (N,). Their values are
        found once and cached. Each word is in one of the vocabs of the docs, mostly a single one.
        """
        seen = self._seen
        numbers = seen.numbers.find(orth)
        if vocabs and (numbers < 0).any():
            if seen.n_words > MOST_WORDS:
                self._seen = seen = SeenWords(seen.table.shape[1], self.word_slots)
                numbers[:] = -1
            unseen = numpy.unique(orth[numbers < 0])
            views = [(column.view, self.numbers[column.name]) for column in self.of_words]
            views += [(flag(name), {YES: 0}) for name in OF_NAMES]
            rows = []
            for key in unseen.tolist():
                lexeme = next(vocab for vocab in vocabs if key in vocab.strings)[key]
                word = lexeme.orth_
                rows.append([known.get(view(lexeme, word), -1) for view, known in views if view])
            seen.add(unseen, numpy.asarray(rows, dtype="int32").reshape(len(unseen), len(views)))
            numbers = seen.numbers.find(orth)
        return seen, numbers


def _int32(numbers: Iterable[int]) -> Ints1d:
    return numpy.asarray(list(numbers), dtype="int32")


def pair_up(values: Ints1d, lengths: Ints1d) -> Array1d:
    """The value of each token and of the next as one number; -1 where one of them has none.
    In int64. Shape: (N,)"""
    after = numpy.append(values[1:], -1).astype("int64")[: len(values)]
    after[last_tokens(lengths)] = -1
    pairs = (values.astype("int64") << 32) | after
    return numpy.where((values < 0) | (after < 0), -1, pairs)
