"""Choose items that have high values and differ from each other.

The value of an item is divided among its features. The more chosen items have a feature, the less
its share of the value counts in the next item. So an item similar to chosen items counts less.
`suggest` chooses docs in this way, so that people don't annotate the same thing again and again.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Ints1d


class Shares(NamedTuple):
    """The features of an item, and the share of each feature in the value of the item.

    features (Ints1d): The features, each once. Shape: (F,)
    shares (Floats1d): The shares of the features, whose sum is 1. Shape: (F,)
    """

    features: Ints1d
    shares: Floats1d


def make_shares(features: Ints1d, weights: Floats1d, least: float = 0.0) -> Shares:
    """Divide the value of an item among its features, in proportion to the sum of the weights of
    each feature.

    features (Ints1d): The features of the item. A feature may occur several times. Shape: (N,)
    weights (Floats1d): The weight of each occurrence. Shape: (N,)
    least (float): Features are left out if their sum is at most this part of the largest sum.
    RETURNS (Shares): The shares. Empty if no sum is above 0.
    """
    distinct_features, index_in_distinct = numpy.unique(features, return_inverse=True)
    # The sum of the weights of each feature. Shape: (distinct features,)
    sums = numpy.bincount(index_in_distinct, weights=weights, minlength=len(distinct_features))
    is_large = sums > least * sums.max(initial=0.0)
    large_sums = sums[is_large]
    return Shares(distinct_features[is_large], large_sums / large_sums.sum())


def choose_diverse(
    values: Floats1d, shares: Sequence[Shares], n: int, *, decay: float = 0.5
) -> list[int]:
    """Choose items one after another, each time the item with the largest gain.

        gain_i = value_i sum_f share_if decay^(number of chosen items with the feature f)

    The gain of an item never rises as more items are chosen. So an old gain is an upper bound, and
    only the gain of the item with the highest bound is computed again ("lazy greedy").

    values (Floats1d): The value of each item, at least 0. Shape: (items,)
    shares (Sequence[Shares]): The features of each item.
    n (int): The number of items to choose. If there are fewer, all are chosen.
    decay (float): For each chosen item with a feature, the share of that feature is multiplied by
        this.
    RETURNS (list[int]): The indices of the chosen items, in the order in which they were chosen.

    Wei, Iyer & Bilmes, 2015, "Submodularity in Data Subset Selection and Active Learning"; Minoux,
    1978, "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions".
    """
    n_chosen: dict[int, int] = {}  # for each feature the number of chosen items with it
    # An upper bound of the gain of each item. At first it is the value, as the shares sum to 1;
    # later it is the gain when it was last computed. heapq has the smallest item first, so the
    # bounds are negative here.
    heap = [(-value, i) for i, value in enumerate(values.tolist())]
    heapq.heapify(heap)
    chosen_items: list[int] = []
    while heap and len(chosen_items) < n:
        _, i = heapq.heappop(heap)
        features = shares[i].features.tolist()
        n_chosen_with = [n_chosen.get(feature, 0) for feature in features]
        decays = decay ** numpy.asarray(n_chosen_with, dtype="float64")
        gain = float(values[i]) * float((shares[i].shares * decays).sum())
        if heap and (-gain, i) > heap[0]:
            # Another item may have a larger gain. This item is put back with its present gain.
            heapq.heappush(heap, (-gain, i))
            continue
        chosen_items.append(i)
        for feature in features:
            n_chosen[feature] = n_chosen.get(feature, 0) + 1
    return chosen_items
