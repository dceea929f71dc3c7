"""Features of pairs of neighbouring tokens.

A pair is the value of another column, the base, at a token and at the next one. It is kept as one
number of 64 bits: see `join_pairs`.
"""

from copy import copy

import numpy
from thinc.types import Array1d, Ints1d, Ints2d

from ..ragged import last_tokens
from .column import BatchColumn, Column, Saved, Selection, Window
from .counts import TrainingCounts
from .ids import id_map
from .lookup import Lookup
from .tokens import TokenBatch


class PairColumn(BatchColumn):
    """The values of another column at the token and at the next.

    base (Column): The other column. It has one value for each token, and stands before this one.
    """

    wants_all_tokens = True

    def __init__(self, base: Column, window: Window) -> None:
        super().__init__(f"{base.name}+{base.name}", window)
        self.base = base
        self._set_pairs(numpy.zeros(0, dtype="int64"))

    def _set_pairs(self, pairs: Array1d) -> None:
        """Set the pairs, in the order of their ids, and make the map to these. Shape: (P,)"""
        self._pairs = pairs
        self._ids = id_map(pairs.astype("uint64"))

    def collect(self, counts: TrainingCounts) -> None:
        """Take the pairs that are frequent in the training docs."""
        assert counts.tokens is not None  # as it wants all tokens
        batch = Lookup([self.base]).find_values(counts.tokens)
        pair_of_token = pair_up(batch.value_ids_of(self.base.name), counts.tokens.lengths)
        has_pair = pair_of_token >= 0
        pairs, pair_counts = numpy.unique(pair_of_token[has_pair], return_counts=True)
        self._set_pairs(pairs[pair_counts >= self.min_count])

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:
        """Mark both values of each needed pair in the other column."""
        left, right = split_pairs(self._pairs[is_needed[self.name]])
        is_needed[self.base.name][left] = True
        is_needed[self.base.name][right] = True

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """The ids of the pairs that are marked as needed."""
        return numpy.flatnonzero(is_needed[self.name])

    def select(self, selection: Selection) -> "PairColumn":
        """A copy with the needed pairs, made of the new ids of the other column's values."""
        column = copy(self)
        column.base = selection.columns[self.base.name]
        left, right = split_pairs(self._pairs[selection.ids[self.name]])
        # The new id of a value is its place among those that are kept.
        base_ids = selection.ids[self.base.name]
        left = numpy.searchsorted(base_ids, left)
        right = numpy.searchsorted(base_ids, right)
        column._set_pairs(join_pairs(left, right))
        return column

    def save(self, saved: Saved) -> None:
        """Write the numbers of the pairs."""
        saved["pairs"][self.name] = self._pairs.astype("<i8").tobytes()

    def load(self, saved: Saved) -> None:
        """Read the numbers of the pairs, and check that the other column has their values."""
        pairs = numpy.frombuffer(saved["pairs"][self.name], dtype="<i8")
        value_ids = numpy.stack(split_pairs(pairs))  # (2, P)
        n_values = self.base.n_values
        if not ((value_ids >= 0) & (value_ids < n_values)).all():
            raise ValueError(f"{self.name}: expected pairs of {n_values} values")
        self._set_pairs(pairs)

    @property
    def pairs(self) -> tuple[Ints1d, Ints1d]:
        """The ids of the first and of the second value of each pair, in the order of the ids of
        pairs. Shapes: (P,)"""
        return split_pairs(self._pairs)

    @property
    def value_names(self) -> list[str]:
        """The names of both values of each pair, joined by "+"."""
        base_names = self.base.value_names
        left, right = split_pairs(self._pairs)
        names = []
        for left_id, right_id in zip(left.tolist(), right.tolist()):
            names.append(f"{base_names[left_id]}+{base_names[right_id]}")
        return names

    @property
    def n_values(self) -> int:
        """The number of pairs."""
        return len(self._pairs)

    def find_values(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Look up the pair of each token's value and the next one's."""
        pair_of_token = pair_up(batch.value_ids_of(self.base.name), batch.tokens.lengths)
        pair_ids = self._ids.find(pair_of_token.astype("uint64"))
        value_ids[:, 0] = numpy.where(pair_of_token < 0, -1, pair_ids)

    def slot_name(self, offset: int) -> str:
        """The start of the names of its features at an offset: "LOWER+LOWER[-1,+0]"."""
        return f"{self.name}[{offset:+d},{offset + 1:+d}]"


def pair_up(value_ids: Ints1d, lengths: Ints1d) -> Array1d:
    """The pair of the values of each token and the next, as the number that `join_pairs` makes; -1
    where one of them has no value. The last token of a doc has no pair.
    Shapes: (N,), (B,) to (N,)"""
    left = value_ids.astype("int64")
    right = numpy.full(len(left), -1, dtype="int64")
    right[:-1] = left[1:]  # the value of the next token
    right[last_tokens(lengths)] = -1
    has_no_pair = (left < 0) | (right < 0)
    return numpy.where(has_no_pair, -1, join_pairs(left, right))


def join_pairs(left: Array1d, right: Array1d) -> Array1d:
    """The numbers of pairs, in int64: the id of the first value in the upper 32 bits, that of the
    second in the lower 32. `split_pairs` undoes it. Shapes: (P,)"""
    return (left.astype("int64") << 32) | right


def split_pairs(pairs: Array1d) -> tuple[Ints1d, Ints1d]:
    """The ids of the first and of the second values of pairs, from the numbers that `join_pairs`
    makes. Shapes: (P,)"""
    return pairs >> 32, pairs & 0xFFFFFFFF
