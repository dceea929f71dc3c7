"""Choose items that have high values and differ from each other.

The value of an item is divided among its features. The more chosen items have a feature, the less
its share counts, so items that are similar to chosen items count less. `suggest` uses this to
choose docs, so that annotators don't see the same content repeatedly.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Ints1d


class Shares(NamedTuple):
    """The features of an item, and their shares of the item's value.

    features (Ints1d): The distinct features. Shape: (F,)
    shares (Floats1d): The shares of the features, which sum to 1. Shape: (F,)
    """

    features: Ints1d
    shares: Floats1d


def make_shares(features: Ints1d, weights: Floats1d, least: float = 0.0) -> Shares:
    """Divide the value of an item among its features, in proportion to the total weight of each
    feature.

    features (Ints1d): The features of the item. A feature may occur several times. Shape: (N,)
    weights (Floats1d): The weight of each occurrence. Shape: (N,)
    least (float): Omit features if their total weight is at most this fraction of the largest total
        weight.
    RETURNS (Shares): The shares. Empty if no total weight is positive.
    """
    distinct_features, index_in_distinct = numpy.unique(features, return_inverse=True)
    # The total weight of each feature. Shape: (distinct features,)
    sums = numpy.bincount(index_in_distinct, weights=weights, minlength=len(distinct_features))
    is_large = sums > least * sums.max(initial=0.0)
    large_sums = sums[is_large]
    return Shares(distinct_features[is_large], large_sums / large_sums.sum())


def choose_diverse(
    values: Floats1d, shares: Sequence[Shares], n: int, *, decay: float = 0.5
) -> list[int]:
    """Choose items greedily: in each step, choose the item with the largest gain.

        gain_i = value_i sum_f share_if decay^(number of chosen items with the feature f)

    The gain of an item never increases as more items are chosen, so an outdated gain is an upper
    bound. Only the gain of the item with the highest bound is recomputed ("lazy greedy").

    values (Floats1d): The value of each item, non-negative. Shape: (items,)
    shares (Sequence[Shares]): The features of each item.
    n (int): The number of items to choose. If there are fewer, all are chosen.
    decay (float): The factor by which the share of a feature is multiplied for each chosen item
        with that feature.
    RETURNS (list[int]): The indices of the chosen items, in the order they were chosen.

    Wei, Iyer & Bilmes, 2015, "Submodularity in Data Subset Selection and Active Learning"; Minoux,
    1978, "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions".
    """
    n_chosen: dict[int, int] = {}  # the number of chosen items with each feature
    # An upper bound on the gain of each item: initially the value, because the shares sum to 1, and
    # later the most recently computed gain. The bounds are negated, because heapq is a min-heap.
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
            # Another item may have a larger gain. Put this item back with its updated gain.
            heapq.heappush(heap, (-gain, i))
            continue
        chosen_items.append(i)
        for feature in features:
            n_chosen[feature] = n_chosen.get(feature, 0) + 1
    return chosen_items
