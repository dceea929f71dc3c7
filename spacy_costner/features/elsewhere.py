"""Features of the other occurrences of a word in its doc: the words beside them."""

from typing import Any

import numpy
from thinc.types import Array1d, Ints1d, Ints2d

from ..ragged import first_tokens, last_tokens, sequence_ids
from .column import BatchColumn, Column, Saved, Window
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

    def __init__(self, base: Column, side: int, n_nearest: int) -> None:
        super().__init__(f"elsewhere:{base.name}[{side:+d}]", Window((0,)))
        self.base = base
        self.side = side
        self.n_nearest = n_nearest
        self.attributes = (base.name,)

    def collect(self, counts: TrainingCounts) -> None:
        """Take nothing: its values are those of the other column."""

    @property
    def layout(self) -> list[Any]:
        return [*super().layout, self.n_nearest]

    def save(self, saved: Saved) -> None:
        """Write nothing: its values are those of the other column."""

    def load(self, saved: Saved) -> None:
        """Read nothing: its values are those of the other column."""

    @property
    def value_names(self) -> list[str]:
        return list(self.base.value_names)

    @property
    def width(self) -> int:
        return self.n_nearest

    def find_values(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        key = ("nearest_elsewhere", self.base.name, self.n_nearest)
        tokens, occurrences = batch.share(key, lambda: self._find_occurrences(batch))
        if len(tokens):  # in most short docs there are none
            base_ids = batch.value_ids_of(self.base.name)
            lengths = batch.tokens.lengths
            value_ids[tokens] = values_beside(base_ids, occurrences, lengths, self.side)

    def _find_occurrences(self, batch: TokenBatch) -> tuple[Ints1d, Ints2d]:
        keys = batch.tokens.keys[self.base.name]
        takes_part = batch.is_capitalised & (keys != 0)
        return nearest_elsewhere(keys, takes_part, batch.tokens.lengths, self.n_nearest)


def group_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Find the values that occur several times in a doc. Returns the tokens with other occurrences,
    grouped by doc and value, from the left; and the number of the group of each. Shapes: (M,)"""
    tokens = takes_part.nonzero()[0]
    key = keys[tokens]
    if len(set(key.tolist())) == len(tokens):  # as in most short docs
        no_tokens = tokens[:0]
        return no_tokens, no_tokens
    doc = sequence_ids(lengths)[tokens]
    order = numpy.lexsort((key, doc))  # equal ones stay in order
    tokens = tokens[order]
    key = key[order]
    doc = doc[order]
    begins_group = (key[1:] != key[:-1]) | (doc[1:] != doc[:-1])
    group = numpy.append(0, numpy.cumsum(begins_group))
    group_size = numpy.bincount(group)[group]
    return tokens[group_size > 1], group[group_size > 1]


def nearest_elsewhere(
    keys: Array1d, takes_part: Array1d, lengths: Ints1d, n_nearest: int
) -> tuple[Ints1d, Ints2d]:
    """Find the nearest other occurrences of values in their docs, the left one first of two that
    are equally near. Time and memory are linear in tokens, but for a sort of those that take part.
    Returns the tokens that have some, (M,), and their nearest occurrences, -1 for none, (M,
    n_nearest)."""
    tokens, group = group_occurrences(keys, takes_part, lengths)
    if not len(tokens):
        return tokens, numpy.zeros((0, n_nearest), dtype="int64")
    # Occurrences of a group stand side by side, in order. So the nearest ones of a token are among
    # those up to `n_steps` places before and after it. Shape: (M, 2 n_steps)
    largest_group = int(numpy.bincount(group).max())
    n_steps = min(n_nearest, largest_group - 1)
    steps = numpy.arange(1, n_steps + 1)
    places = numpy.arange(len(tokens))[:, None] + numpy.concatenate([-steps, steps])
    inside = places.clip(0, len(tokens) - 1)
    is_occurrence = (places == inside) & (group[inside] == group[:, None])
    occurrences = numpy.where(is_occurrence, tokens[inside], -1)
    # What is no occurrence is farther than any that is one.
    distance = numpy.abs(tokens[inside] - tokens[:, None])
    distance = numpy.where(is_occurrence, distance, len(keys))
    by_distance = numpy.argsort(distance, axis=1, kind="stable")[:, :n_nearest]
    nearest = numpy.take_along_axis(occurrences, by_distance, axis=1)
    n_missing = n_nearest - nearest.shape[1]
    return tokens, numpy.pad(nearest, ((0, 0), (0, n_missing)), constant_values=-1)


def values_beside(value_ids: Ints1d, tokens: Ints2d, lengths: Ints1d, side: int) -> Ints2d:
    """The values before (side -1) or after (side 1) some tokens, each value once, in descending
    order; -1 for none. Shapes: value_ids (N,), tokens and result (M, n)"""
    # The value of each token's neighbour. The last one is for token -1. Shape: (N + 1,)
    neighbour_ids = numpy.append(numpy.roll(value_ids, -side), -1)
    if side < 0:
        neighbour_ids[first_tokens(lengths)] = -1
    else:
        neighbour_ids[last_tokens(lengths)] = -1
    # Sorted, equal values stand side by side.
    sorted_ids = -numpy.sort(-neighbour_ids[tokens], axis=1)
    is_repeated = sorted_ids[:, 1:] == sorted_ids[:, :-1]
    sorted_ids[:, 1:][is_repeated] = -1
    return sorted_ids
