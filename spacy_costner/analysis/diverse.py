"""Choose items that are worth much together.

An item has features, and each feature has a share of its value. The more chosen items have a
feature, the less its share is worth in the next one. So items that are like those chosen before are
worth less.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Ints1d


class Shares(NamedTuple):
    """The features of an item, and the share of its value that each has.

    features (Ints1d): The features, each once. Shape: (F,)
    shares (Floats1d): The share of each; their sum is 1. Shape: (F,)
    """

    features: Ints1d
    shares: Floats1d


def make_shares(features: Ints1d, weights: Floats1d, least: float = 0.0) -> Shares:
    """Divide the value of an item among its features: add up the weights of each feature, and make
    shares of the sums.

    features (Ints1d): Features, which may occur several times. Shape: (N,)
    weights (Floats1d): The weight of each occurrence. Shape: (N,)
    least (float): Features whose sum is at most this part of the largest sum are left out.
    RETURNS (Shares): The shares; without features, if no sum is above 0.
    """
    distinct, feature_of_occurrence = numpy.unique(features, return_inverse=True)
    # With weights, `bincount` sums those of the occurrences of each feature. Shape: (distinct,)
    sums = numpy.bincount(feature_of_occurrence, weights, minlength=len(distinct))
    is_large = sums > least * sums.max(initial=0.0)
    large_sums = sums[is_large]
    return Shares(distinct[is_large], large_sums / large_sums.sum())


def choose_diverse(
    values: Floats1d, shares: Sequence[Shares], n: int, *, decay: float = 0.5
) -> list[int]:
    """Choose items one after another, each time the one with the largest gain.

        gain_i = value_i sum_f share_if decay^(number of items with f that are chosen)

    The gain of an item never rises. So it is computed again only when the item comes first by the
    gain that it had before ("lazy greedy").

    values (Floats1d): The value of each item, at least 0. Shape: (items,)
    shares (Sequence[Shares]): The features of each item.
    n (int): How many to choose. If there are fewer items, all are chosen.
    decay (float): What the share of a feature is multiplied by for each chosen item with it.
    RETURNS (list[int]): The indices of the chosen items, in the order in which they were chosen.

    Wei, Iyer & Bilmes, 2015, "Submodularity in Data Subset Selection and Active Learning"; Minoux,
    1978, "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions".
    """
    n_chosen: dict[int, int] = {}  # for each feature the number of chosen items with it
    # The gain that each item had when it was last computed, or a higher one. At first that is its
    # value, as its shares sum to 1. heapq has the smallest first, so gains are negative here.
    heap = [(-value, i) for i, value in enumerate(values.tolist())]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < n:
        _, i = heapq.heappop(heap)
        features = shares[i].features.tolist()
        n_before = [n_chosen.get(feature, 0) for feature in features]
        decays = decay ** numpy.asarray(n_before, dtype="float64")
        gain = float(values[i]) * float((shares[i].shares * decays).sum())
        if heap and (-gain, i) > heap[0]:
            # Another item may gain more. This one is put back with the gain that it has now.
            heapq.heappush(heap, (-gain, i))
            continue
        chosen.append(i)
        for feature in features:
            n_chosen[feature] = n_chosen.get(feature, 0) + 1
    return chosen
