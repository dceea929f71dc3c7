"""Features of the labels of a value: the share of each label, in bins."""

from collections.abc import Sequence

import numpy
from thinc.types import Array2d, Ints2d

BORDERS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
"""Between the 8 bins of shares. A share in the lowest is no feature."""

RANGES = [f"{low:g}-{high:g}" for low, high in zip((0, *BORDERS), (*BORDERS, 1))]

N_TIMES = ("1", "2-3", "4+")
"""The bins of the number of times that a value was there."""


def share_names(labels: Sequence[str]) -> list[str]:
    """The names of the features of shares of labels, O first, in the order of their ids."""
    names = []
    for label in labels:
        names += [f"{label}:{share}" for share in RANGES[1:]]
    for label in labels:
        for share in RANGES:
            names += [f"best:{label}:{share}:{n_times}" for n_times in N_TIMES]
    return names


def share_ids(counts: Array2d, width: int) -> Ints2d:
    """The features of values with these counts, or sums of probabilities: ids in the order of
    `share_names`, -1 for none. All labels fit if the width is one more than the most labels of a
    value. Shape: (M, L) to (M, width)"""
    n_values, n_labels = counts.shape
    n_shares = len(BORDERS)
    total = numpy.rint(counts.sum(axis=1))
    # The bin of the share of each label, 0 for the lowest. Shape: (M, L)
    bins = numpy.searchsorted(BORDERS, counts / numpy.maximum(total, 1)[:, None], side="right")
    shares = numpy.where(bins > 0, numpy.arange(n_labels) * n_shares + bins - 1, -1)

    # The most frequent label, its bin and the bin of the total are one number, after the shares.
    best_label = counts.argmax(axis=1)
    best_bin = bins[numpy.arange(n_values), best_label]
    total_bin = numpy.searchsorted([2, 4], total, side="right")  # as in N_TIMES
    best = (best_label * len(RANGES) + best_bin) * len(N_TIMES) + total_bin

    ids = numpy.full((n_values, width), -1, dtype="int32")
    ids[:, 0] = numpy.where(total == 0, -1, n_labels * n_shares + best)
    # In descending order those that are there come before the -1.
    descending_shares = -numpy.sort(-shares, axis=1)[:, : width - 1]
    ids[:, 1 : 1 + descending_shares.shape[1]] = descending_shares
    return ids
