"""Features of the other occurrences of a word in its doc: the words beside them.

Tokens of a doc that have the same value, such as the same word, are occurrences of each other. They
form a group. Of the N tokens of a batch, M occur again in their doc.
"""

from copy import copy
from typing import Any

import numpy
from thinc.types import Array1d, Ints1d, Ints2d

from ..ragged import first_tokens, last_tokens, sequence_ids
from .column import BatchColumn, Column, Saved, Selection, Window
from .counts import TrainingCounts
from .tokens import TokenBatch


class ElsewhereColumn(BatchColumn):
    """The values of another column before or after the nearest other occurrences of a capitalised
    word.

    base (Column): The other column, of an attribute of tokens. It stands before this one. Tokens of
        the same value are occurrences of each other.
    side (int): -1 for before, 1 for after.
    n_nearest (int): The number of other occurrences.
    """

    def __init__(self, base: Column, *, side: int, n_nearest: int) -> None:
        super().__init__(f"elsewhere:{base.name}[{side:+d}]", Window(offsets=(0,)))
        self.base = base
        self.side = side
        self.n_nearest = n_nearest
        self.attributes = (base.name,)

    def collect(self, counts: TrainingCounts) -> None:
        """Take nothing: its values are those of the other column."""

    def mark_needed(self, is_needed: dict[str, Array1d]) -> None:
        """Mark the values of the other column that have weights here."""
        is_needed[self.base.name] |= is_needed[self.name]

    def needed_ids(self, is_needed: dict[str, Array1d]) -> Ints1d:
        """The ids that the other column keeps: values are the same in both."""
        return self.base.needed_ids(is_needed)

    def select(self, selection: Selection) -> "ElsewhereColumn":
        """A copy that refers to the other column with its selected values."""
        column = copy(self)
        column.base = selection.columns[self.base.name]
        return column

    @property
    def layout(self) -> list[Any]:
        """As of other columns, and the number of occurrences."""
        return [*super().layout, self.n_nearest]

    def save(self, saved: Saved) -> None:
        """Write nothing: its values are those of the other column."""

    def load(self, saved: Saved) -> None:
        """Read nothing: its values are those of the other column."""

    @property
    def value_names(self) -> list[str]:
        """The names of the values of the other column."""
        return list(self.base.value_names)

    @property
    def width(self) -> int:
        """A value for each of the nearest occurrences."""
        return self.n_nearest

    def find_values(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Find the values beside the nearest other occurrences of each token's word."""
        # The columns of both sides need the same occurrences.
        key = ("nearest_elsewhere", self.base.name, self.n_nearest)
        tokens, occurrences = batch.share(key, lambda: self._find_occurrences(batch))
        if len(tokens):  # in most short docs there are none
            base_ids = batch.value_ids_of(self.base.name)
            lengths = batch.tokens.lengths
            value_ids[tokens] = values_beside(base_ids, occurrences, lengths, self.side)

    def _find_occurrences(self, batch: TokenBatch) -> tuple[Ints1d, Ints2d]:
        """The capitalised words of a batch that occur again, and where: see `nearest_elsewhere`.
        Shapes: (M,), (M, n_nearest)"""
        keys = batch.tokens.keys[self.base.name]
        takes_part = batch.is_capitalised & (keys != 0)
        return nearest_elsewhere(keys, takes_part, batch.tokens.lengths, self.n_nearest)


def group_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Find the values that occur several times in a doc.

    keys (Array1d): The hash of the value of each token. Shape: (N,)
    takes_part (Array1d): Whether the token counts as an occurrence. Shape: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): The tokens that occur again in their doc, those of the same doc
        and value side by side, from the left; and the number of the group that these make.
        Shapes: (M,)
    """
    tokens = takes_part.nonzero()[0]
    key_of_token = keys[tokens]
    if len(set(key_of_token.tolist())) == len(tokens):
        # No value is there twice, as in most short docs. This saves the sort.
        no_tokens = tokens[:0]
        return no_tokens, no_tokens

    # Sort by doc, then by value, so that occurrences stand side by side; equal ones stay in order.
    doc_of_token = sequence_ids(lengths)[tokens]
    order = numpy.lexsort((key_of_token, doc_of_token))
    tokens = tokens[order]
    key_of_token = key_of_token[order]
    doc_of_token = doc_of_token[order]

    # A group begins where the value or the doc is another than at the token before.
    is_other_value = key_of_token[1:] != key_of_token[:-1]
    is_other_doc = doc_of_token[1:] != doc_of_token[:-1]
    group_of_token = numpy.append(0, numpy.cumsum(is_other_value | is_other_doc))
    group_sizes = numpy.bincount(group_of_token)
    occurs_again = group_sizes[group_of_token] > 1
    return tokens[occurs_again], group_of_token[occurs_again]


def nearest_elsewhere(
    keys: Array1d, takes_part: Array1d, lengths: Ints1d, n_nearest: int
) -> tuple[Ints1d, Ints2d]:
    """Find the nearest other occurrences of values in their docs. The arguments are those of
    `group_occurrences`. Time and memory are linear in tokens, but for a sort of those that take
    part.

    RETURNS (tuple[Ints1d, Ints2d]): The tokens that have other occurrences; for each of them the
        tokens of the nearest ones, the left one first of two that are equally near, -1 for none.
        Shapes: (M,), (M, n_nearest)
    """
    tokens, group = group_occurrences(keys, takes_part, lengths)
    if not len(tokens):
        return tokens, numpy.zeros((0, n_nearest), dtype="int64")

    # Occurrences of a group stand side by side, in order. So the nearest ones of a token are among
    # those up to `n_steps` places before and after it. Shape: (M, 2 n_steps)
    largest_group = int(numpy.bincount(group).max())
    n_steps = min(n_nearest, largest_group - 1)
    steps = numpy.arange(1, n_steps + 1)
    places = numpy.arange(len(tokens))[:, None] + numpy.concatenate([-steps, steps])
    valid_places = places.clip(0, len(tokens) - 1)
    is_in_group = (places == valid_places) & (group[valid_places] == group[:, None])
    occurrences = numpy.where(is_in_group, tokens[valid_places], -1)

    # What is no occurrence is farther away than any that is one.
    distance = numpy.abs(occurrences - tokens[:, None])
    distance = numpy.where(is_in_group, distance, len(keys))
    by_distance = numpy.argsort(distance, axis=1, kind="stable")[:, :n_nearest]
    nearest = numpy.take_along_axis(occurrences, by_distance, axis=1)

    # Where groups are small there are fewer columns: fill up with -1 to (M, n_nearest).
    n_missing = n_nearest - nearest.shape[1]
    return tokens, numpy.pad(nearest, ((0, 0), (0, n_missing)), constant_values=-1)


def values_beside(value_ids: Ints1d, tokens: Ints2d, lengths: Ints1d, side: int) -> Ints2d:
    """The values before (side -1) or after (side 1) some tokens, such as the other occurrences of a
    word.

    value_ids (Ints1d): The id of the value of each token, -1 for none. Shape: (N,)
    tokens (Ints2d): The tokens, -1 for none. Shape: (M, n)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    RETURNS (Ints2d): In each row the ids of the values, each once, in descending order; -1 for
        none. Shape: (M, n)
    """
    # The value of each token's neighbour on this side; none at the border of a doc. The last entry
    # is for the token -1. Shape: (N + 1,)
    neighbour_ids = numpy.append(numpy.roll(value_ids, -side), -1)
    if side < 0:
        neighbour_ids[first_tokens(lengths)] = -1
    else:
        neighbour_ids[last_tokens(lengths)] = -1

    # In descending order, equal values stand side by side: the first of them is kept.
    sorted_ids = -numpy.sort(-neighbour_ids[tokens], axis=1)
    is_repeated = sorted_ids[:, 1:] == sorted_ids[:, :-1]
    sorted_ids[:, 1:][is_repeated] = -1
    return sorted_ids
