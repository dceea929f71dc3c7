"""Binned label shares as features: how often a value, such as a word, has each label.

For example, if a word was O once and LOC three times, the share of LOC is .75. Shares are used for
two kinds of features: label memory, which counts the labels in the training docs, and features
based on a word's other occurrences in the same doc, which sum the probabilities predicted by a
first pass.
"""

from collections.abc import Sequence

import numpy
from thinc.types import Array2d, Ints2d

BORDERS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
"""The borders of the 8 bins for shares. There are no features for the lowest bin."""

RANGES = [f"{low:g}-{high:g}" for low, high in zip((0, *BORDERS), (*BORDERS, 1))]
"""The names of the bins for shares, such as "0.5-0.75"."""

TIMES_BORDERS = (2, 4)
"""The borders of the bins for the number of times a value occurs."""

N_TIMES = ("1", "2-3", "4+")
"""The names of the bins for the number of times a value occurs."""


def share_names(labels: Sequence[str]) -> list[str]:
    """Return the names of the features whose ids `share_ids` computes, in the order of the ids.

    First, there is a feature such as "LOC:0.5-0.75" for each label and each bin except the lowest.
    It means that the label's share is in this bin. Next, there is a feature such as
    "best:LOC:0.5-0.75:2-3" for each label, share bin and count bin. It means that the label is the
    most frequent one, and that its share and the number of times the value occurs are in these
    bins.

    labels (Sequence[str]): The labels, with O first.
    RETURNS (list[str]): The feature names.
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
    """Compute the feature ids of values, such as words, from the number of times each value had
    each label.

    For example, a word that was O once and LOC three times has the features "best:LOC:0.75-0.9:4+",
    "LOC:0.75-0.9" and "O:0.25-0.5". A share on a border belongs to the bin above it.

    counts (Array2d): How often each of M values had each of L labels, or sums of probabilities.
        Shape: (M, L)
    width (int): The number of ids to return for each value: the id of the most frequent label
        ("best"), followed by the ids of label shares. If there are more, some are left out. A width
        of 1 plus the maximum number of labels per value is sufficient for all ids.
    RETURNS (Ints2d): Feature ids, which are indices into the result of `share_names`, or -1 for
        none. Shape: (M, width)
    """
    n_values, n_labels = counts.shape
    n_bins_above_lowest = len(BORDERS)
    # The number of times each value occurs, rounded because sums of probabilities may not be exact
    # integers. Shape: (M,)
    total = numpy.rint(counts.sum(axis=1))
    # The bin of each label's share, 0 for the lowest. If a value doesn't occur, its shares are 0.
    # Shapes: (M, L)
    shares = counts / numpy.maximum(total, 1)[:, None]
    bins = numpy.searchsorted(BORDERS, shares, side="right")
    # The id of each label's share, or -1 for the lowest bin. Shape: (M, L)
    first_ids = numpy.arange(n_labels) * n_bins_above_lowest
    share_id = numpy.where(bins > 0, first_ids + bins - 1, -1)

    # The id of the most frequent label. These ids come after the ids of the shares. Each label has
    # one id for each pair of a share bin and a count bin. Shape: (M,)
    best_label = counts.argmax(axis=1)
    best_bin = bins[numpy.arange(n_values), best_label]
    total_bin = numpy.searchsorted(TIMES_BORDERS, total, side="right")
    index_of_best = (best_label * len(RANGES) + best_bin) * len(N_TIMES) + total_bin
    best_id = n_labels * n_bins_above_lowest + index_of_best

    ids = numpy.full((n_values, width), -1, dtype="int32")
    ids[:, 0] = numpy.where(total == 0, -1, best_id)
    # Sort in descending order, so that -1 is last and never displaces an id.
    descending_ids = -numpy.sort(-share_id, axis=1)[:, : width - 1]
    ids[:, 1 : 1 + descending_ids.shape[1]] = descending_ids
    return ids
