"""Features based on pairs of adjacent tokens.

A *pair* consists of the values of another column, the *base* column, for a token and the next
token. The two value ids are stored as a single 64-bit integer: see `join_pairs`.
"""

from copy import copy

import numpy
from thinc.types import Array1d, Ints1d, Ints2d

from ..ragged import last_tokens
from .column import BatchColumn, Column, SavedColumns, Selection, Window
from .counts import TrainingCounts
from .ids import id_map
from .lookup import Lookup
from .tokens import TokenBatch


class PairColumn(BatchColumn):
    """Column of pairs: the values of another column for the token and the next token.

    base (Column): The other column. It must have a single value per token and come before this one.
    """

    wants_all_tokens = True

    def __init__(self, base: Column, window: Window) -> None:
        super().__init__(f"{base.name}+{base.name}", window)
        self.base = base
        self._set_pairs(numpy.zeros(0, dtype="int64"))

    def _set_pairs(self, pairs: Array1d) -> None:
        """Set the P pairs, in the order of their ids, and build the map from pairs to ids.
        Shape: (P,)"""
        self._pairs = pairs
        self._ids = id_map(pairs.astype("uint64"))

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the pairs that are frequent enough in the training docs."""
        assert counts.tokens is not None  # the column sets `wants_all_tokens`
        batch = Lookup([self.base]).find_values(counts.tokens)
        pair_of_token = pair_up(batch.value_ids_of(self.base.name), counts.tokens.lengths)
        has_pair = pair_of_token >= 0  # False for the last token of a doc, for example
        pairs, pair_counts = numpy.unique(pair_of_token[has_pair], return_counts=True)
        self._set_pairs(pairs[pair_counts >= self.min_count])

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:
        """Mark both values of each needed pair in the base column."""
        left, right = split_pairs(self._pairs[is_needed[self.name]])
        is_needed[self.base.name][left] = True
        is_needed[self.base.name][right] = True

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """Return the ids of the pairs that are needed."""
        return numpy.flatnonzero(is_needed[self.name])

    def select(self, selection: Selection) -> "PairColumn":
        """Create a copy of the column with only the pairs to keep. Some values of the base column
        may be removed and the others get new ids, so the pairs are rebuilt from the new ids."""
        column = copy(self)
        column.base = selection.columns[self.base.name]
        left, right = split_pairs(self._pairs[selection.ids[self.name]])
        # The new id of a value is its index in the ids to keep, which are in ascending order.
        base_ids = selection.ids[self.base.name]
        left = numpy.searchsorted(base_ids, left)
        right = numpy.searchsorted(base_ids, right)
        column._set_pairs(join_pairs(left, right))
        return column

    def save(self, saved: SavedColumns) -> None:
        """Write the pairs as integers."""
        saved["pairs"][self.name] = self._pairs.astype("<i8").tobytes()

    def load(self, saved: SavedColumns) -> None:
        """Read the pairs and check that their values exist in the base column."""
        pairs = numpy.frombuffer(saved["pairs"][self.name], dtype="<i8")
        value_ids = numpy.stack(split_pairs(pairs))  # (2, P) for P pairs
        n_values = self.base.n_values
        if not ((value_ids >= 0) & (value_ids < n_values)).all():
            raise ValueError(f"{self.name}: expected pairs of {n_values} values")
        self._set_pairs(pairs)

    @property
    def pairs(self) -> tuple[Ints1d, Ints1d]:
        """The ids of the left and right values of the P pairs, in the order of the pairs' ids.
        Shapes: (P,)"""
        return split_pairs(self._pairs)

    @property
    def value_names(self) -> list[str]:
        """The names of the two values in each pair, joined with "+"."""
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

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Look up the pair that starts at each token and write its id to `value_ids`."""
        pair_of_token = pair_up(batch.value_ids_of(self.base.name), batch.tokens.lengths)
        pair_ids = self._ids.find(pair_of_token.astype("uint64"))
        value_ids[:, 0] = numpy.where(pair_of_token < 0, -1, pair_ids)

    def slot_name(self, offset: int) -> str:
        """Return the name of the slot at an offset, such as "LOWER+LOWER[-1,+0]"."""
        return f"{self.name}[{offset:+d},{offset + 1:+d}]"


def pair_up(value_ids: Ints1d, lengths: Ints1d) -> Array1d:
    """Pair the value id of each token with the value id of the next token, encoded by `join_pairs`.
    Returns -1 if one of the tokens has no value, or for the last token of a doc.
    Shapes: (N,), (B,) to (N,)"""
    left = value_ids.astype("int64")
    right = numpy.full(len(left), -1, dtype="int64")
    right[:-1] = left[1:]  # the value of the next token
    right[last_tokens(lengths)] = -1  # the next token is in another doc
    has_no_pair = (left < 0) | (right < 0)
    return numpy.where(has_no_pair, -1, join_pairs(left, right))


def join_pairs(left: Array1d, right: Array1d) -> Array1d:
    """Encode the two ids of each pair as an int64: the upper 32 bits contain the left value's id,
    the lower 32 bits the right value's id. `split_pairs` is the inverse. Shapes: (P,)"""
    return (left.astype("int64") << 32) | right


def split_pairs(pairs: Array1d) -> tuple[Ints1d, Ints1d]:
    """Split the integers created by `join_pairs` into the ids of the left and right values.
    Shapes: (P,)"""
    return pairs >> 32, pairs & 0xFFFFFFFF
