"""The labels of a word's other occurrences in its doc, as a first pass predicts them."""

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .memory import features_of

WIDTH = 8
"""The largest number of features of a token: the most probable label, and shares of 7."""


def group_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Ints1d:
    """Number the values that occur several times in a doc.

    keys (Array1d): The value of each token. Shape: (N,)
    takes_part (Array1d): True for the tokens that have occurrences, and are some. Shape: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    RETURNS (Ints1d): The same number for all occurrences of a value in a doc, and -1 for those
        that are the only one. Shape: (N,)
    """
    groups = numpy.full(len(keys), -1, dtype="int32")
    tokens = numpy.flatnonzero(takes_part)
    doc = numpy.repeat(numpy.arange(len(lengths)), lengths)[tokens]
    order = numpy.lexsort((keys[tokens], doc))
    tokens, key, doc = tokens[order], keys[tokens][order], doc[order]
    is_first = numpy.ones(len(tokens), dtype=bool)
    is_first[1:] = (key[1:] != key[:-1]) | (doc[1:] != doc[:-1])
    group = numpy.cumsum(is_first) - 1
    groups[tokens] = numpy.where(numpy.bincount(group)[group] > 1, group, -1)
    return groups


def find_labels_elsewhere(probabilities: Floats2d, groups: Ints1d) -> Ints2d:
    """Find the features of the mean probabilities of labels at the other occurrences.

    probabilities (Floats2d): Of O and each label at each token, by the first pass.
        Shape: (N, L + 1)
    groups (Ints1d): What `group_occurrences` returned. Shape: (N,)
    RETURNS (Ints2d): The numbers of the features, in the order of `LabelMemory.names`, -1 for
        none. Shape: (N, WIDTH)
    """
    found = numpy.full((len(groups), WIDTH), -1, dtype="int32")
    tokens = numpy.flatnonzero(groups >= 0)
    if len(tokens):
        group = groups[tokens]
        sums = numpy.zeros((group.max() + 1, probabilities.shape[1]))
        numpy.add.at(sums, group, probabilities[tokens])
        found[tokens] = features_of(sums[group] - probabilities[tokens], WIDTH)
    return found
