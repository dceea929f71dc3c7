"""The labels of a word's other occurrences in its doc, as a first pass predicts them."""

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .elsewhere import group_occurrences
from .memory import features_of

WIDTH = 8
"""The largest number of features of a token: the most probable label, and shares of 7."""


def number_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Ints1d:
    """Number the values that occur several times in a doc: see `group_occurrences`.

    RETURNS (Ints1d): The same number for all occurrences of a value in a doc, and -1 for those
        that are the only one. Shape: (N,)
    """
    groups = numpy.full(len(keys), -1, dtype="int32")
    tokens, group = group_occurrences(keys, takes_part, lengths)
    groups[tokens] = group
    return groups


def find_labels_elsewhere(probabilities: Floats2d, groups: Ints1d) -> Ints2d:
    """Find the features of the mean probabilities of labels at the other occurrences.

    probabilities (Floats2d): Of O and each label at each token, by the first pass.
        Shape: (N, L + 1)
    groups (Ints1d): What `number_occurrences` returned. Shape: (N,)
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
