"""The other occurrences of a value in the same doc: what is beside them, and the labels that a
first pass predicts for them."""

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from ..ragged import first_tokens, last_tokens, sequence_ids
from .memory import features_of

WIDTH = 8
"""The largest number of features of labels of a token: the most probable label, and shares of 7."""


def group_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Find the values that occur several times in a doc. Returns the tokens with other occurrences,
    grouped by doc and value, from the left; and the number of the group of each. Shapes: (M,)"""
    tokens = numpy.flatnonzero(takes_part)
    if len({*keys[tokens].tolist()}) == len(tokens):  # as in most short docs
        return tokens[:0], tokens[:0]
    doc = sequence_ids(lengths)[tokens]
    order = numpy.lexsort((keys[tokens], doc))  # equal ones stay in order
    tokens, key, doc = tokens[order], keys[tokens][order], doc[order]
    is_new = (key[1:] != key[:-1]) | (doc[1:] != doc[:-1])
    group = numpy.append(0, numpy.cumsum(is_new))
    has_others = numpy.bincount(group)[group] > 1
    return tokens[has_others], group[has_others]


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
    n_away = min(n_nearest, int(numpy.bincount(group).max()) - 1)
    steps = numpy.arange(1, n_away + 1)
    others = numpy.arange(len(tokens))[:, None] + numpy.concatenate([-steps, steps])
    inside = others.clip(0, len(tokens) - 1)
    is_there = (others == inside) & (group[inside] == group[:, None])
    distance = numpy.where(is_there, numpy.abs(tokens[inside] - tokens[:, None]), len(keys))
    near = numpy.argsort(distance, axis=1, kind="stable")[:, :n_nearest]
    found = numpy.take_along_axis(numpy.where(is_there, tokens[inside], -1), near, axis=1)
    missing = n_nearest - near.shape[1]
    return tokens, numpy.pad(found, ((0, 0), (0, missing)), constant_values=-1)


def values_beside(values: Ints1d, places: Ints2d, lengths: Ints1d, side: int) -> Ints2d:
    """The values before (side -1) or after (side 1) some places, each value once, from the left; -1
    for none. Shapes: values (N,), places and result (M, n)"""
    beside = numpy.append(numpy.roll(values, -side), -1)  # The last is for place -1.
    beside[first_tokens(lengths) if side < 0 else last_tokens(lengths)] = -1
    found = -numpy.sort(-beside[places], axis=1)
    found[:, 1:][found[:, 1:] == found[:, :-1]] = -1
    return found


def number_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Ints1d:
    """The same number for all occurrences of a value in a doc, -1 for those that are the only one:
    see `group_occurrences`. Shape: (N,)"""
    groups = numpy.full(len(keys), -1, dtype="int32")
    tokens, group = group_occurrences(keys, takes_part, lengths)
    groups[tokens] = group
    return groups


def find_labels_elsewhere(probabilities: Floats2d, groups: Ints1d) -> Ints2d:
    """Find the features of the mean probabilities of O and each label, by the first pass, at the
    other occurrences: see `number_occurrences` and `share_names`; -1 for none.
    Shapes: (N, L + 1), (N,) to (N, WIDTH)"""
    found = numpy.full((len(groups), WIDTH), -1, dtype="int32")
    tokens = numpy.flatnonzero(groups >= 0)
    if len(tokens):
        group = groups[tokens]
        sums = numpy.zeros((group.max() + 1, probabilities.shape[1]))
        numpy.add.at(sums, group, probabilities[tokens])
        found[tokens] = features_of(sums[group] - probabilities[tokens], WIDTH)
    return found
