"""The other occurrences of a value in the same doc."""

from typing import Tuple

import numpy
from thinc.types import Array1d, Ints1d, Ints2d


def group_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Tuple[Ints1d, Ints1d]:
    """Find the values that occur several times in a doc.

    keys (Array1d): The value of each token. Shape: (N,)
    takes_part (Array1d): True for the tokens that have occurrences, and are some. Shape: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    RETURNS (Tuple[Ints1d, Ints1d]): The tokens with other occurrences, those of a value in a doc
        next to each other, from the left; a number for each, the same for these. Shapes: (M,)
    """
    tokens = numpy.flatnonzero(takes_part)
    doc = numpy.repeat(numpy.arange(len(lengths)), lengths)[tokens]
    order = numpy.lexsort((keys[tokens], doc))  # equal ones stay in order
    tokens, key, doc = tokens[order], keys[tokens][order], doc[order]
    is_first = numpy.ones(len(tokens), dtype=bool)
    is_first[1:] = (key[1:] != key[:-1]) | (doc[1:] != doc[:-1])
    group = numpy.cumsum(is_first) - 1
    has_others = numpy.bincount(group)[group] > 1
    return tokens[has_others], group[has_others]


def nearest_elsewhere(
    keys: Array1d, takes_part: Array1d, lengths: Ints1d, n_nearest: int
) -> Tuple[Ints1d, Ints2d]:
    """Find the nearest other occurrences of values in their docs. Of two that are equally near,
    the left one is nearer. Time and memory are linear in tokens, but for a sort of those that
    take part.

    keys (Array1d): The value of each token. Shape: (N,)
    takes_part (Array1d): True for the tokens that have occurrences, and are some. Shape: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    n_nearest (int): How many, in all.
    RETURNS (Tuple[Ints1d, Ints2d]): The tokens that have some, and the tokens that these are, from
        the nearest; -1 for none. Shapes: (M,), (M, n_nearest)
    """
    tokens, group = group_occurrences(keys, takes_part, lengths)
    if not len(tokens):
        return tokens, numpy.zeros((0, n_nearest), dtype="int64")
    n_away = min(n_nearest, int(numpy.bincount(group).max()) - 1)
    steps = numpy.concatenate([-numpy.arange(1, n_away + 1), numpy.arange(1, n_away + 1)])
    others = numpy.arange(len(tokens))[:, None] + steps
    is_there = (others >= 0) & (others < len(tokens))
    others[~is_there] = 0
    is_there &= group[others] == group[:, None]
    distance = numpy.where(is_there, numpy.abs(tokens[others] - tokens[:, None]), len(keys))
    near = numpy.argsort(distance, axis=1, kind="stable")[:, :n_nearest]
    rows = numpy.arange(len(tokens))[:, None]
    found = numpy.full((len(tokens), n_nearest), -1, dtype="int64")
    found[:, : near.shape[1]] = numpy.where(is_there[rows, near], tokens[others[rows, near]], -1)
    return tokens, found


def values_beside(values: Ints1d, places: Ints2d, lengths: Ints1d, side: int) -> Ints2d:
    """The values before or after some tokens, each once.

    values (Ints1d): The number of the value of each token, -1 for none. Shape: (N,)
    places (Ints2d): The tokens, -1 for none. Shape: (M, n)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    side (int): -1 for before, 1 for after.
    RETURNS (Ints2d): The numbers of values from the left; -1 for none. Shape: (M, n)
    """
    ends = numpy.cumsum(lengths)[lengths > 0]
    beside = numpy.append(numpy.roll(values, -side), -1)  # that of place -1
    beside[ends - lengths[lengths > 0] if side < 0 else ends - 1] = -1
    found = -numpy.sort(-beside[places], axis=1)
    found[:, 1:][found[:, 1:] == found[:, :-1]] = -1
    return found
