"""Features based on the neighbours of a word's other occurrences in the same doc.

Tokens in a doc that have the same value, for example the same word, are *occurrences* of this value
and form a *group*. Of the N tokens in a batch, M are in a group of two or more tokens.
"""

from copy import copy
from typing import Any

import numpy
from thinc.types import Array1d, Ints1d, Ints2d

from ..ragged import first_tokens, last_tokens, sequence_ids
from .column import BatchColumn, Column, SavedColumns, Selection, Window
from .counts import TrainingCounts
from .tokens import TokenBatch


class ElsewhereColumn(BatchColumn):
    """Column of the words next to other occurrences of a word. Its values for a capitalised word
    are another column's values for the tokens before (or after) the nearest other occurrences of
    the word in the doc.

    base (Column): The other column, which belongs to a token attribute and comes before this one.
        Tokens with the same value in the other column are occurrences of the same word.
    side (int): -1 for the tokens before other occurrences, 1 for the tokens after them.
    n_nearest (int): The maximum number of other occurrences to use for a token.
    """

    def __init__(self, base: Column, *, side: int, n_nearest: int) -> None:
        # The only offset is 0, because the column itself looks up the neighbours of other
        # occurrences.
        super().__init__(f"elsewhere:{base.name}[{side:+d}]", Window(offsets=(0,)))
        self.base = base
        self.side = side
        self.n_nearest = n_nearest
        self.attributes = (base.name,)  # used to compare words

    def collect(self, counts: TrainingCounts) -> None:
        """Do nothing. This column uses the values of the base column."""

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:
        """Mark the needed values of this column as needed in the base column, which has the same
        values."""
        is_needed[self.base.name] |= is_needed[self.name]

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """Return the ids of the values that the base column keeps. Both columns have the same
        values."""
        return self.base.needed_ids(is_needed)

    def select(self, selection: Selection) -> "ElsewhereColumn":
        """Create a copy of the column that uses the new base column."""
        column = copy(self)
        column.base = selection.columns[self.base.name]
        return column

    @property
    def layout(self) -> list[Any]:
        """The layout of the base class and the number of nearest occurrences."""
        return [*super().layout, self.n_nearest]

    def save(self, saved: SavedColumns) -> None:
        """Do nothing. This column uses the values of the base column."""

    def load(self, saved: SavedColumns) -> None:
        """Do nothing. This column uses the values of the base column."""

    @property
    def value_names(self) -> list[str]:
        """The value names of the base column."""
        return list(self.base.value_names)

    @property
    def width(self) -> int:
        """The maximum number of values: one for each of the nearest occurrences."""
        return self.n_nearest

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Find the tokens whose word occurs more than once in the doc, and write the values of the
        tokens next to the other occurrences to `value_ids`. The rows of other tokens aren't
        modified.

        batch (TokenBatch): The N tokens of a batch of docs.
        value_ids (Ints2d): The array to write to. Shape: (N, n_nearest)
        """
        # Share the occurrences with the column for the other side, so that they're only computed
        # once. Shapes: (M,), (M, n_nearest)
        key = ("nearest_elsewhere", self.base.name, self.n_nearest)
        repeated_tokens, occurrences = batch.share(key, lambda: self._find_occurrences(batch))
        if not len(repeated_tokens):
            return
        base_ids = batch.value_ids_of(self.base.name)  # (N,)
        neighbour_ids = neighbour_values(base_ids, occurrences, batch.tokens.lengths, self.side)
        value_ids[repeated_tokens] = neighbour_ids

    def _find_occurrences(self, batch: TokenBatch) -> tuple[Ints1d, Ints2d]:
        """Find the capitalised words in a batch that occur more than once in their doc, and their
        nearest other occurrences: see `nearest_elsewhere`. Shapes: (M,), (M, n_nearest)"""
        keys = batch.tokens.keys[self.base.name]
        takes_part = batch.is_capitalised & (keys != 0)
        return nearest_elsewhere(keys, takes_part, batch.tokens.lengths, self.n_nearest)


def group_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Group the tokens in each doc by value. Groups with a single token are left out.

    keys (Array1d): The hash of each token's value. Shape: (N,)
    takes_part (Array1d): Whether each token can be in a group. Shape: (N,)
    lengths (Ints1d): The number of tokens in each doc. Shape: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): The tokens that are in a group, sorted by group and then from
        left to right, and the index of each token's group. Shapes: (M,)
    """
    tokens = numpy.flatnonzero(takes_part)
    key_of_token = keys[tokens]
    if len(set(key_of_token.tolist())) == len(tokens):
        # All values are distinct, as in most short docs, so skip sorting.
        no_tokens = tokens[:0]
        return no_tokens, no_tokens

    # Sort tokens by doc and value. The tokens of a group are then adjacent and still in order.
    doc_of_token = sequence_ids(lengths)[tokens]
    order = numpy.lexsort((key_of_token, doc_of_token))
    tokens = tokens[order]
    key_of_token = key_of_token[order]
    doc_of_token = doc_of_token[order]

    # A new group starts where the value or the doc differs from the previous token.
    is_other_value = key_of_token[1:] != key_of_token[:-1]
    is_other_doc = doc_of_token[1:] != doc_of_token[:-1]
    group_of_token = numpy.append(0, numpy.cumsum(is_other_value | is_other_doc))
    group_sizes = numpy.bincount(group_of_token)
    occurs_again = group_sizes[group_of_token] > 1
    return tokens[occurs_again], group_of_token[occurs_again]


def nearest_elsewhere(
    keys: Array1d, takes_part: Array1d, lengths: Ints1d, n_nearest: int
) -> tuple[Ints1d, Ints2d]:
    """Find the nearest other occurrences of each token's value in its doc. For example, in the doc
    "A b A A", the tokens 0, 2 and 3 have other occurrences, and the nearest ones are 2, 3 and 2.
    Tokens for which `takes_part` is False are ignored. Returns the tokens that have other
    occurrences, and up to `n_nearest` other occurrences of each, sorted by distance and padded with
    -1. If two are equally near, the left one comes first.
    Shapes: (N,), (N,), (B,) to (M,), (M, n_nearest)"""
    tokens, group = group_occurrences(keys, takes_part, lengths)
    if not len(tokens):
        return tokens, numpy.zeros((0, n_nearest), dtype="int64")

    # The tokens of a group are adjacent in `tokens` and sorted from left to right. The nearest
    # occurrences of token i are therefore among its neighbours i - n_steps, …, i - 1, i + 1, …, i +
    # n_steps in this array. Ignore tokens of other groups and indices out of range.
    # Shapes: (M, 2 n_steps)
    largest_group = int(numpy.bincount(group).max())
    n_steps = min(n_nearest, largest_group - 1)
    steps = numpy.arange(1, n_steps + 1)
    neighbours = numpy.arange(len(tokens))[:, None] + numpy.concatenate([-steps, steps])
    valid_neighbours = neighbours.clip(0, len(tokens) - 1)
    is_valid = neighbours == valid_neighbours
    is_in_group = is_valid & (group[valid_neighbours] == group[:, None])
    occurrences = numpy.where(is_in_group, tokens[valid_neighbours], -1)

    # Sort by the distance in the text. Invalid entries get the number of tokens, which is larger
    # than any distance, so they're sorted last.
    distance = numpy.abs(occurrences - tokens[:, None])
    distance = numpy.where(is_in_group, distance, len(keys))
    by_distance = numpy.argsort(distance, axis=1, kind="stable")[:, :n_nearest]
    nearest = numpy.take_along_axis(occurrences, by_distance, axis=1)

    # If all groups are small, there are fewer than `n_nearest` columns. Add columns of -1.
    n_missing = n_nearest - nearest.shape[1]
    return tokens, numpy.pad(nearest, ((0, 0), (0, n_missing)), constant_values=-1)


def neighbour_values(value_ids: Ints1d, tokens: Ints2d, lengths: Ints1d, side: int) -> Ints2d:
    """Look up the values of the tokens before (`side` is -1) or after (1) the given tokens.
    `value_ids` contains the value id of each token in a batch, and each of the M rows of `tokens`
    contains up to n tokens. In both arrays, -1 means none. Returns the value ids for each row in
    descending order. Duplicate values in a row are replaced with -1.
    Shapes: (N,), (M, n) to (M, n)"""
    # The value of each token's neighbour on this side. Tokens at the doc boundary have no
    # neighbour. The last entry is for the token -1. Shape: (N + 1,)
    neighbour_ids = numpy.append(numpy.roll(value_ids, -side), -1)
    if side < 0:
        neighbour_ids[first_tokens(lengths)] = -1
    else:
        neighbour_ids[last_tokens(lengths)] = -1

    # Sort in descending order, so that equal values are adjacent, and keep the first of them.
    sorted_ids = -numpy.sort(-neighbour_ids[tokens], axis=1)
    is_repeated = sorted_ids[:, 1:] == sorted_ids[:, :-1]
    sorted_ids[:, 1:][is_repeated] = -1
    return sorted_ids
