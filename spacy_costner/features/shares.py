"""Features of the labels of a value: the share of each label, in bins.

If a word was O once and LOC three times, the share of LOC is .75. Label memory counts labels;
features of the other occurrences in a doc sum the probabilities of a first pass.
"""

from collections.abc import Sequence

import numpy
from thinc.types import Array2d, Ints2d

BORDERS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
"""The borders between the 8 bins of shares. A share in the lowest bin is no feature."""

RANGES = [f"{low:g}-{high:g}" for low, high in zip((0, *BORDERS), (*BORDERS, 1))]
"""The names of the bins of shares, such as "0.5-0.75"."""

TIMES_BORDERS = (2, 4)
"""The borders between the bins of the number of times that a value was there."""

N_TIMES = ("1", "2-3", "4+")
"""The names of these bins."""


def share_names(labels: Sequence[str]) -> list[str]:
    """The names of the features that `share_ids` numbers, in the order of their ids.

    First, for each label and each bin but the lowest, that the label has this share:
    "LOC:0.5-0.75". Then, for each label, bin and number of times, that it is the most frequent
    label: "best:LOC:0.5-0.75:2-3".

    labels (Sequence[str]): The labels, O first.
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
    """Find the features of M values, such as words, of which it is known how often each had each of
    L labels.

    A word that was O once and LOC three times has the features "best:LOC:0.75-0.9:4+",
    "LOC:0.75-0.9" and "O:0.25-0.5": a share that is a border belongs to the bin above it.

    counts (Array2d): How often, or sums of probabilities. Shape: (M, L)
    width (int): The number of ids to return for a value: that of its most frequent label ("best"),
        then those of the shares of labels. All fit if it is one more than the most labels that a
        value has.
    RETURNS (Ints2d): Ids in the order of `share_names`, -1 for none. Shape: (M, width)
    """
    n_values, n_labels = counts.shape
    n_bins_above_lowest = len(BORDERS)
    total = numpy.rint(counts.sum(axis=1))
    # The bin of the share of each label, 0 for the lowest. Shape: (M, L)
    bins = numpy.searchsorted(BORDERS, counts / numpy.maximum(total, 1)[:, None], side="right")
    # The id of each label with its bin: each label has an id for every bin but the lowest.
    first_ids = numpy.arange(n_labels) * n_bins_above_lowest
    share_id = numpy.where(bins > 0, first_ids + bins - 1, -1)

    # The ids of the most frequent labels come after those: a label has one for every bin of its
    # share and bin of the total. Shape: (M,)
    best_label = counts.argmax(axis=1)
    best_bin = bins[numpy.arange(n_values), best_label]
    total_bin = numpy.searchsorted(TIMES_BORDERS, total, side="right")
    index_of_best = (best_label * len(RANGES) + best_bin) * len(N_TIMES) + total_bin
    best_id = n_labels * n_bins_above_lowest + index_of_best

    ids = numpy.full((n_values, width), -1, dtype="int32")
    ids[:, 0] = numpy.where(total == 0, -1, best_id)
    # In descending order, ids come before -1.
    descending_ids = -numpy.sort(-share_id, axis=1)[:, : width - 1]
    ids[:, 1 : 1 + descending_ids.shape[1]] = descending_ids
    return ids
