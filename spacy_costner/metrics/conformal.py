"""Thresholds with a guaranteed risk: conformal risk control, and learn then test.

The set of a doc has all spans with at least a threshold as score. Each of n calibration docs has a
loss L_i in [0, 1] at each threshold. Calibration docs and the docs to come have to be exchangeable:
drawn from the same source, in any order.

Angelopoulos et al., 2022, "Conformal Risk Control", arXiv 2208.02814. Bates et al., 2021,
"Distribution-Free, Risk-Controlling Prediction Sets", arXiv 2101.02703. Angelopoulos et al., 2021,
"Learn then Test", arXiv 2110.01052.
"""

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Floats1d, Ints1d

MOST_DOCS = 2**22
"""The largest number of docs that `docs_needed` tries."""

MOST_EXACT = 50_000
"""The largest number of docs for which `docs_needed` is exact."""


class Losses(NamedTuple):
    """The losses of n docs, which fall as the threshold falls.

        sum_i L_i(t) = sum_{j: score_j < t} weight_j

    score (Floats1d): The highest threshold at which the set has each entity; above 1 if it always
        has, 0 if it never has. Shape: (E,)
    weight (Floats1d): What missing it adds to the losses. Shape: (E,)
    n (int): The number of docs.
    binary (bool): Whether each loss is 0 or 1.
    """

    score: Floats1d
    weight: Floats1d
    n: int
    binary: bool = False

    def mean(self, thresholds: Floats1d) -> Floats1d:
        """The mean loss at thresholds. Shape: (S,)"""
        order = numpy.argsort(self.score)
        missed = numpy.concatenate([[0.0], numpy.cumsum(self.weight[order])])
        return missed[numpy.searchsorted(self.score[order], thresholds)] / max(self.n, 1)


def miss_losses(score: Floats1d, doc: Ints1d, *, by: str = "doc") -> Losses:
    """The losses of docs with entities, for what is missed of them. Docs without entities don't
    count. `score` is that of `Losses`, `doc` the doc of each entity. Shapes: (E,)

        L_i = missed_i / entities_i                                     by doc
        L_i = 1 if missed_i > 0, else 0                                 any
    """
    _, doc, sizes = numpy.unique(doc, return_inverse=True, return_counts=True)
    n = len(sizes)
    if by == "doc":
        return Losses(score, 1.0 / sizes[doc], n)
    order = numpy.lexsort((score, doc))
    hardest = score[order[numpy.cumsum(sizes) - sizes]]
    return Losses(hardest, numpy.ones(n), n, binary=True)


def threshold(
    losses: Losses, limit: float, *, delta: float | None = None, floor: float = 0.0
) -> float | None:
    """The largest threshold with a guaranteed risk.

        max {t: (n mean(t) + 1) / (n + 1) <= limit}         E[L] <= limit        no delta
        max {t: p_value(mean(t)) <= delta}                  P(E[L] > limit) <= delta

    The first holds in the mean over calibration docs and the next doc, the second for all but a
    share of delta of all calibrations. As losses fall with the threshold, all below it pass too.

    losses (Losses): The losses of the calibration docs.
    limit (float): The limit of the risk.
    delta (float | None): The share of calibrations that may fail; None: in the mean.
    floor (float): The least threshold.
    RETURNS (float | None): From the floor to 1; None if no threshold passes.

    Angelopoulos et al., 2022, eq 4, with B = 1; Bates et al., 2021, Theorem 1.
    """
    there = losses.score[(losses.score >= floor) & (losses.score <= 1)]
    candidates = numpy.unique(numpy.append(there, [floor, 1.0]))
    mean = losses.mean(candidates)
    if delta is None:
        passed = (losses.n * mean + 1) / (losses.n + 1) <= limit + 1e-12
    else:
        passed = p_values(mean, limit, losses.n, binary=losses.binary) <= delta
    return float(candidates[passed][-1]) if passed.any() else None


def p_values(means: Floats1d, limit: float, n: int, *, binary: bool = False) -> Floats1d:
    """The Hoeffding-Bentkus p-value of the hypothesis that the risk is above a limit.

        min(exp(-n h(min(mean, limit), limit)),  e P(Binomial(n, limit) <= ceil(n mean)))
        h(a, b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b))

    means (Floats1d): Mean losses of n docs, each loss from 0 to 1. Shape: (S,)
    limit (float): The limit, between 0 and 1.
    n (int): The number of docs.
    binary (bool): Whether losses are 0 or 1: P(Binomial(n, limit) <= n mean) is then exact.
    RETURNS (Floats1d): The p-values. Shape: (S,)

    Bates et al., 2021, section 3.1; Angelopoulos et al., 2021.
    """
    cumulative = _binomial(n, limit)
    tail = cumulative[numpy.clip(numpy.ceil(n * means - 1e-9), 0, n).astype("int64")]
    if binary:
        return tail
    a = numpy.clip(means, 0.0, limit)
    h = a * numpy.log(numpy.where(a > 0, a / limit, 1.0)) + (1 - a) * numpy.log(
        (1 - a) / (1 - limit)
    )
    return numpy.minimum(numpy.minimum(numpy.exp(-n * h), math.e * tail), 1.0)


def _binomial(n: int, p: float) -> Floats1d:
    """P(Binomial(n, p) <= k) for k = 0..n. Shape: (n + 1,)"""
    k = numpy.arange(1, n + 1)
    steps = numpy.log((n - k + 1) / k) + math.log(p) - math.log1p(-p)
    logs = numpy.concatenate([[0.0], numpy.cumsum(steps)]) + n * math.log1p(-p)
    return numpy.minimum(numpy.cumsum(numpy.exp(logs)), 1.0)


def docs_needed(
    mean: float, limit: float, *, delta: float | None = None, binary: bool = False
) -> int | None:
    """The least number of docs from which on any number meets a limit, if their mean loss is this:
    1 / limit - 1 at least. With a mean of 0, it is the number that is needed however good the
    scores. None if the mean is not below the limit, or it takes more than `MOST_DOCS`. For `delta`
    see `threshold`, for `binary` see `p_values`. Above `MOST_EXACT` docs it is close to that."""
    if mean >= limit:
        return None
    if delta is None:
        return math.ceil((1 - limit) / (limit - mean) - 1e-9)
    # Docs with k = ceil(n mean) losses pass if a binomial tail is below this.
    bound = delta if binary else delta / math.e

    def first_with(k: int) -> int:
        """The least number of docs with k losses. Its tail is the highest of them."""
        return 1 if k == 0 else math.floor((k - 1 + 1e-9) / mean) + 1

    def fails(k: int) -> bool:
        return _log_tail(first_with(k), k, limit) > math.log(bound)

    # From here on all pass, by Hoeffding's bound, which falls with n. A binary loss has a whole
    # number of losses, up to one above n mean.
    def passes_surely(n: int) -> bool:
        share = mean + 1 / n if binary else mean
        return share < limit and -n * _divergence(share, limit) <= math.log(delta)

    if not passes_surely(MOST_DOCS):
        return None
    enough = bisect_left(range(MOST_DOCS), True, lo=1, key=passes_surely)
    last = math.ceil(enough * mean - 1e-9)
    if enough > MOST_EXACT:  # as if the tail fell from each k to the next
        k = bisect_left(range(last), True, key=lambda k: not fails(k)) - 1
    else:
        k = next((k for k in range(last, -1, -1) if fails(k)), -1)
    if k < 0:
        return 1
    end = enough if mean == 0 else min(enough, first_with(k + 1))
    numbers = range(first_with(k), end)
    return numbers.start + bisect_left(
        numbers, True, key=lambda n: _log_tail(n, k, limit) <= math.log(bound)
    )


def _divergence(share: float, limit: float) -> float:
    """h(share, limit): see `p_values`."""
    missed = share * math.log(share / limit) if share else 0.0
    return missed + (1 - share) * math.log((1 - share) / (1 - limit))


def _log_tail(n: int, k: int, p: float) -> float:
    """log P(Binomial(n, p) <= k), for k below or about n p."""
    if k >= n:
        return 0.0
    log_last = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    log_last += k * math.log(p) + (n - k) * math.log1p(-p)
    # The terms of k - 1, k - 2, … over that of k: beyond 40 deviations they are below 1e-16.
    n_terms = min(k, 50 + int(40 * math.sqrt(n * p)))
    i = numpy.arange(k, k - n_terms, -1)
    terms = numpy.cumprod(i / (n - i + 1) * ((1 - p) / p))
    return log_last + math.log1p(float(terms.sum()))


def false_alarm_risk(
    scores: Floats1d, wrong: Array1d, doc: Ints1d, n_docs: int, thresholds: Floats1d
) -> Floats1d:
    """The mean over docs of the share of the set that is wrong, 0 for an empty set, at each of T
    descending thresholds. `doc` is the doc of each span. Shapes: (S,) to (T,)"""
    first = numpy.searchsorted(-thresholds, -scores)
    shape = (doc.max(initial=-1) + 1, len(thresholds) + 1)
    cell, size = doc * shape[1] + first, shape[0] * shape[1]
    in_set = numpy.bincount(cell, minlength=size).reshape(shape).cumsum(axis=1)
    n_wrong = numpy.bincount(cell, weights=wrong, minlength=size).reshape(shape).cumsum(axis=1)
    return (n_wrong / numpy.maximum(in_set, 1)).sum(axis=0)[:-1] / n_docs


def fixed_sequence(p: Floats1d, delta: float) -> int:
    """Count the hypotheses that are rejected: in an order that was fixed before, up to the first
    whose p-value is above delta. The probability that any rejection is wrong is at most delta.

    Angelopoulos et al., 2021: fixed sequence testing.
    """
    kept = numpy.flatnonzero(p > delta)
    return int(kept[0]) if len(kept) else len(p)
