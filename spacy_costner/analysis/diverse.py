"""Choosing items that are worth much together: what is like those chosen before is worth less."""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Ints1d


class Shares(NamedTuple):
    """Why an item is worth something: its features, and what share of its value each has.

    features (Ints1d): The features, each once. Shape: (F,)
    parts (Floats1d): The share of each; their sum is 1. Shape: (F,)
    """

    features: Ints1d
    parts: Floats1d


def make_shares(features: Ints1d, weights: Floats1d, least: float = 0.0) -> Shares:
    """Divide the value of an item among its features: add up the weights of each feature, and make
    shares of the sums.

    features (Ints1d): Features, which may occur several times. Shape: (N,)
    weights (Floats1d): The weight of each occurrence. Shape: (N,)
    least (float): Features whose sum is at most this part of the largest sum are left out.
    RETURNS (Shares): The shares; without features, if no sum is above 0.
    """
    distinct, place = numpy.unique(features, return_inverse=True)
    # With weights, `bincount` sums those of the occurrences of each feature. Shape: (distinct,)
    totals = numpy.bincount(place, weights, minlength=len(distinct))
    is_large = totals > least * totals.max(initial=0.0)
    large_totals = totals[is_large]
    return Shares(distinct[is_large], large_totals / large_totals.sum())


def choose_diverse(
    values: Floats1d, shares: Sequence[Shares], n: int, *, decay: float = 0.5
) -> list[int]:
    """Choose items one after another, each time the one with the largest gain.

        gain_i = value_i sum_f share_if decay^(number of items with f that are chosen)

    No gain ever rises. So the gain of an item is computed again only when it comes first ("lazy
    greedy").

    values (Floats1d): The value of each item, at least 0. Shape: (items,)
    shares (Sequence[Shares]): The features of each item.
    n (int): How many to choose. If there are fewer items, all are chosen.
    decay (float): What the share of a feature is multiplied by for each chosen item with it.
    RETURNS (list[int]): The indices of the chosen items, in the order in which they were chosen.

    Wei, Iyer & Bilmes, 2015, "Submodularity in Data Subset Selection and Active Learning"; Minoux,
    1978, "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions".
    """
    n_chosen: dict[int, int] = {}  # for each feature the number of chosen items with it
    # Before anything is chosen the gain of an item is its value, as its shares sum to 1. heapq has
    # the smallest first, so gains are negative here. They may be out of date: they are then too
    # large.
    heap = [(-value, i) for i, value in enumerate(values.tolist())]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < n:
        _, i = heapq.heappop(heap)
        features = shares[i].features.tolist()
        n_before = [n_chosen.get(feature, 0) for feature in features]
        decays = decay ** numpy.asarray(n_before, dtype="float64")
        gain = float(values[i]) * float((shares[i].parts * decays).sum())
        if heap and (-gain, i) > heap[0]:
            # Another item may gain more: this one is put back with its gain of now.
            heapq.heappush(heap, (-gain, i))
            continue
        chosen.append(i)
        for feature in features:
            n_chosen[feature] = n_chosen.get(feature, 0) + 1
    return chosen
