"""Choosing items that are worth much together: what is like those chosen before is worth less."""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Ints1d


class Shares(NamedTuple):
    """The features of an item, and the share of each in its value, in all 1 or 0. Shapes: (F,)"""

    kinds: Ints1d
    values: Floats1d


def make_shares(kinds: Ints1d, weights: Floats1d, least: float = 0.0) -> Shares:
    """Add up the weights of each feature, and make shares of them. Features with a smaller part of
    the largest weight than `least` are left out. Shapes: (N,)"""
    found, place = numpy.unique(kinds, return_inverse=True)
    totals = numpy.bincount(place, weights, minlength=len(found))
    kept = totals > least * totals.max(initial=0.0)
    return Shares(found[kept], totals[kept] / totals[kept].sum())


def choose_diverse(
    values: Floats1d, shares: Sequence[Shares], n: int, *, decay: float = 0.5
) -> list[int]:
    """Choose items one after another, each time the one with the largest gain.

        gain_i = value_i sum_f share_if decay^(number of items with f that are chosen)

    No gain ever rises. So the gain of an item is computed again only when it comes first ("lazy
    greedy").
    Values are at least 0. If there are fewer than n items, all are chosen. Returns them in the
    order in which they were chosen.

    Wei, Iyer & Bilmes, 2015, "Submodularity in Data Subset Selection and Active Learning"; Minoux,
    1978, "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions".
    """
    n_chosen: dict[int, int] = {}
    heap = [(-value, i) for i, value in enumerate(values.tolist())]
    heapq.heapify(heap)
    order: list[int] = []
    while heap and len(order) < n:
        _, i = heapq.heappop(heap)
        kinds, parts = shares[i].kinds.tolist(), shares[i].values
        exponents = numpy.asarray([n_chosen.get(kind, 0) for kind in kinds], dtype="float64")
        gain = float(values[i]) * float((parts * decay**exponents).sum())
        if heap and (-gain, i) > heap[0]:
            heapq.heappush(heap, (-gain, i))
            continue
        order.append(i)
        for kind in kinds:
            n_chosen[kind] = n_chosen.get(kind, 0) + 1
    return order
