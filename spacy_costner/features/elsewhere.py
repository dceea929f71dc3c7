"""Features of the other occurrences of a word in its doc: the words next to them.

Tokens of a doc that have the same value, such as the same word, are *occurrences* of this value,
and form a *group*. Of the N tokens of a batch, M are in a group of at least two.
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
    """The column of the words next to other occurrences. A capitalised word has the values, in
    another column, of the tokens before (or after) its nearest other occurrences in the doc.

    base (Column): The other column, of an attribute of tokens. It comes before this one. It also
        decides which tokens are occurrences of the same word: tokens with the same value.
    side (int): -1 for the tokens before other occurrences, 1 for the tokens after them.
    n_nearest (int): The maximum number of other occurrences that count for a token.
    """

    def __init__(self, base: Column, *, side: int, n_nearest: int) -> None:
        # The offset is 0: the column itself finds the words next to other occurrences.
        super().__init__(f"elsewhere:{base.name}[{side:+d}]", Window(offsets=(0,)))
        self.base = base
        self.side = side
        self.n_nearest = n_nearest
        self.attributes = (base.name,)  # tokens are read with this attribute, to compare words

    def collect(self, counts: TrainingCounts) -> None:
        """Do nothing: this column has the values of the other column."""

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:
        """Mark the values of this column in the other column, which has the same values."""
        is_needed[self.base.name] |= is_needed[self.name]

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """The ids of the values that the other column keeps, as both have the same values."""
        return self.base.needed_ids(is_needed)

    def select(self, selection: Selection) -> "ElsewhereColumn":
        """A copy of the column that refers to the new other column."""
        column = copy(self)
        column.base = selection.columns[self.base.name]
        return column

    @property
    def layout(self) -> list[Any]:
        """The layout as in other columns, and the number of occurrences."""
        return [*super().layout, self.n_nearest]

    def save(self, saved: SavedColumns) -> None:
        """Do nothing: this column has the values of the other column."""

    def load(self, saved: SavedColumns) -> None:
        """Do nothing: this column has the values of the other column."""

    @property
    def value_names(self) -> list[str]:
        """The names of the values of the other column."""
        return list(self.base.value_names)

    @property
    def width(self) -> int:
        """One value for each of the nearest occurrences."""
        return self.n_nearest

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Find the tokens whose word occurs again in the doc, and write the values next to these
        other occurrences to `value_ids`. The rows of other tokens stay as they are.

        batch (TokenBatch): The N tokens of some docs.
        value_ids (Ints2d): The array to write to. Shape: (N, n_nearest)
        """
        # The column of the other side needs the same occurrences, so the batch keeps them under a
        # key, and finds them only once. Shapes: (M,), (M, n_nearest)
        key = ("nearest_elsewhere", self.base.name, self.n_nearest)
        repeated_tokens, occurrences = batch.share(key, lambda: self._find_occurrences(batch))
        if not len(repeated_tokens):
            return
        base_ids = batch.value_ids_of(self.base.name)  # (N,)
        neighbour_ids = neighbour_values(base_ids, occurrences, batch.tokens.lengths, self.side)
        value_ids[repeated_tokens] = neighbour_ids

    def _find_occurrences(self, batch: TokenBatch) -> tuple[Ints1d, Ints2d]:
        """Find the capitalised words of a batch that occur again in their doc, and their nearest
        other occurrences: see `nearest_elsewhere`. Shapes: (M,), (M, n_nearest)"""
        keys = batch.tokens.keys[self.base.name]
        takes_part = batch.is_capitalised & (keys != 0)
        return nearest_elsewhere(keys, takes_part, batch.tokens.lengths, self.n_nearest)


def group_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Group the tokens of a doc that have the same value. Groups of a single token are left out.

    keys (Array1d): The hash of the value of each token. Shape: (N,)
    takes_part (Array1d): False for tokens that are left out of all groups. Shape: (N,)
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): The tokens that are in a group, group after group, and within a
        group from left to right; and the index of the group of each. Shapes: (M,)
    """
    tokens = numpy.flatnonzero(takes_part)
    key_of_token = keys[tokens]
    if len(set(key_of_token.tolist())) == len(tokens):
        # No value occurs twice, as in most short docs. There is no need to sort.
        no_tokens = tokens[:0]
        return no_tokens, no_tokens

    # Sort tokens by doc, and then by value. Tokens of a group are then adjacent, still from left to
    # right.
    doc_of_token = sequence_ids(lengths)[tokens]
    order = numpy.lexsort((key_of_token, doc_of_token))
    tokens = tokens[order]
    key_of_token = key_of_token[order]
    doc_of_token = doc_of_token[order]

    # A group begins where the value or the doc differs from the token before.
    is_other_value = key_of_token[1:] != key_of_token[:-1]
    is_other_doc = doc_of_token[1:] != doc_of_token[:-1]
    group_of_token = numpy.append(0, numpy.cumsum(is_other_value | is_other_doc))
    group_sizes = numpy.bincount(group_of_token)
    occurs_again = group_sizes[group_of_token] > 1
    return tokens[occurs_again], group_of_token[occurs_again]


def nearest_elsewhere(
    keys: Array1d, takes_part: Array1d, lengths: Ints1d, n_nearest: int
) -> tuple[Ints1d, Ints2d]:
    """Find the nearest other occurrences of each token's value in its doc. For example, in a doc
    with the words "A b A A" the tokens 0, 2 and 3 have other occurrences. Their nearest ones are 2,
    3 and 2. `takes_part` is False for tokens that are left out: they have no occurrences, and are
    no occurrences of another token. Returns the tokens that have other occurrences; and up to
    `n_nearest` other occurrences of each, the nearest first, -1 for none. If two are equally near,
    the left one comes first. Shapes: (N,), (N,), (B,) to (M,), (M, n_nearest)"""
    tokens, group = group_occurrences(keys, takes_part, lengths)
    if not len(tokens):
        return tokens, numpy.zeros((0, n_nearest), dtype="int64")

    # The tokens of a group are adjacent in `tokens`, from left to right. So the nearest occurrences
    # of token i are among its neighbours i - n_steps, …, i - 1, i + 1, …, i + n_steps in this
    # array. Tokens of other groups, and indices beyond its ends, don't count.
    # Shapes: (M, 2 n_steps)
    largest_group = int(numpy.bincount(group).max())
    n_steps = min(n_nearest, largest_group - 1)
    steps = numpy.arange(1, n_steps + 1)
    neighbours = numpy.arange(len(tokens))[:, None] + numpy.concatenate([-steps, steps])
    valid_neighbours = neighbours.clip(0, len(tokens) - 1)
    is_valid = neighbours == valid_neighbours
    is_in_group = is_valid & (group[valid_neighbours] == group[:, None])
    occurrences = numpy.where(is_in_group, tokens[valid_neighbours], -1)

    # Sort by the distance in the text. Entries that are no occurrences come last, as no distance is
    # larger than the number of tokens.
    distance = numpy.abs(occurrences - tokens[:, None])
    distance = numpy.where(is_in_group, distance, len(keys))
    by_distance = numpy.argsort(distance, axis=1, kind="stable")[:, :n_nearest]
    nearest = numpy.take_along_axis(occurrences, by_distance, axis=1)

    # If all groups are small there are fewer than `n_nearest` columns: others of -1 are added.
    n_missing = n_nearest - nearest.shape[1]
    return tokens, numpy.pad(nearest, ((0, 0), (0, n_missing)), constant_values=-1)


def neighbour_values(value_ids: Ints1d, tokens: Ints2d, lengths: Ints1d, side: int) -> Ints2d:
    """Find the values of the tokens before some tokens (`side` is -1) or after them (1).
    `value_ids` has the value id of each token of a batch, and `tokens` has M rows of up to n
    tokens, both with -1 for none. Returns, for each row, the ids of the values in descending order.
    A value that several tokens have comes once, with -1 in the places of the others. Shapes: (N,),
    (M, n) to (M, n)"""
    # The value of each token's neighbour on this side. A token at the border of a doc has no
    # neighbour. The last entry is for the token -1. Shape: (N + 1,)
    neighbour_ids = numpy.append(numpy.roll(value_ids, -side), -1)
    if side < 0:
        neighbour_ids[first_tokens(lengths)] = -1
    else:
        neighbour_ids[last_tokens(lengths)] = -1

    # In descending order equal values are adjacent, and the first of them is kept.
    sorted_ids = -numpy.sort(-neighbour_ids[tokens], axis=1)
    is_repeated = sorted_ids[:, 1:] == sorted_ids[:, :-1]
    sorted_ids[:, 1:][is_repeated] = -1
    return sorted_ids
