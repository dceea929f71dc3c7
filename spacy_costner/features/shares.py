"""Features that say how often a value, such as a word, has each label: the share of each label, in
bins.

If a word was O once and LOC three times, the share of LOC is .75. Two kinds of features are made
so: label memory, which counts labels in the training docs, and features of the other occurrences of
a word in its doc, which sum the probabilities of a first pass.
"""

from collections.abc import Sequence

import numpy
from thinc.types import Array2d, Ints2d

BORDERS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
"""The borders between the 8 bins of shares. A share in the lowest bin is no feature."""

RANGES = [f"{low:g}-{high:g}" for low, high in zip((0, *BORDERS), (*BORDERS, 1))]
"""The names of the bins of shares, such as "0.5-0.75"."""

TIMES_BORDERS = (2, 4)
"""The borders between the bins of the number of times that a value occurs."""

N_TIMES = ("1", "2-3", "4+")
"""The names of the bins of these numbers."""


def share_names(labels: Sequence[str]) -> list[str]:
    """The names of the features whose ids `share_ids` finds, in the order of the ids.

    First come the features "LOC:0.5-0.75", for each label and each bin but the lowest: the share of
    the label is in the bin. Then come the features "best:LOC:0.5-0.75:2-3", for each label, each
    bin of shares and each bin of counts: the label is the most frequent one, its share is in the
    first bin, and the count of the value is in the second.

    labels (Sequence[str]): The labels, O first.
    RETURNS (list[str]): The names.
    """
    names = []
    for label in labels:
        for share in RANGES[1:]:
            names.append(f"{label}:{share}")
    for label in labels:
        for share in RANGES:
            for n_times in N_TIMES:
                names.append(f"best:{label}:{share}:{n_times}")
    return names


def share_ids(counts: Array2d, width: int) -> Ints2d:
    """Find the features of values, such as words, from the number of times that each value had each
    label.

    A word that was O once and LOC three times has the features "best:LOC:0.75-0.9:4+",
    "LOC:0.75-0.9" and "O:0.25-0.5". A share that is a border belongs to the bin above it.

    counts (Array2d): How often each of M values had each of L labels, or sums of probabilities.
        Shape: (M, L)
    width (int): The number of ids to return for each value: first the id of the most frequent label
        ("best"), then the ids of the shares of labels. If there are more, some are left out. There
        is room for all if the width is 1 + the largest number of labels that a value has.
    RETURNS (Ints2d): Ids in the order of `share_names`, -1 for none. Shape: (M, width)
    """
    n_values, n_labels = counts.shape
    n_bins_above_lowest = len(BORDERS)
    # The number of times that each value occurs. Sums of probabilities are only close to whole
    # numbers. Shape: (M,)
    total = numpy.rint(counts.sum(axis=1))
    # The bin of the share of each label, 0 for the lowest. A value that doesn't occur has shares of
    # 0. Shapes: (M, L)
    shares = counts / numpy.maximum(total, 1)[:, None]
    bins = numpy.searchsorted(BORDERS, shares, side="right")
    # The id of the share of each label. A label has an id for every bin but the lowest, which has
    # none. Shape: (M, L)
    first_ids = numpy.arange(n_labels) * n_bins_above_lowest
    share_id = numpy.where(bins > 0, first_ids + bins - 1, -1)

    # The id of the most frequent label. These ids come after the ids of the shares: a label has an
    # id for every bin of its share and every bin of the total. Shape: (M,)
    best_label = counts.argmax(axis=1)
    best_bin = bins[numpy.arange(n_values), best_label]
    total_bin = numpy.searchsorted(TIMES_BORDERS, total, side="right")
    index_of_best = (best_label * len(RANGES) + best_bin) * len(N_TIMES) + total_bin
    best_id = n_labels * n_bins_above_lowest + index_of_best

    ids = numpy.full((n_values, width), -1, dtype="int32")
    ids[:, 0] = numpy.where(total == 0, -1, best_id)
    # In descending order, -1 comes last, so that ids are not left out for it.
    descending_ids = -numpy.sort(-share_id, axis=1)[:, : width - 1]
    ids[:, 1 : 1 + descending_ids.shape[1]] = descending_ids
    return ids
