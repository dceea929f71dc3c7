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
from collections.abc import Callable
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Array2d, Floats1d, Ints1d

MOST_DOCS = 2**22
"""The largest number of docs that `docs_needed` tries."""

MOST_EXACT = 50_000
"""The largest number of docs for which `docs_needed` is exact."""

ROUNDING_OF_RISK = 1e-12
"""How far a risk may be above its limit by rounding alone."""

ROUNDING_OF_COUNT = 1e-9
"""How far n times a mean may be above a whole number by rounding alone."""


class Losses(NamedTuple):
    """The losses of n docs, which fall as the threshold falls.

        sum_i L_i(t) = sum_{j: score_j < t} weight_j

    score (Floats1d): The highest threshold at which the set has each entity; above 1 if it always
        has, 0 if it never has. Shape: (E,)
    weight (Floats1d): What missing it adds to the losses. Shape: (E,)
    n (float): The number of docs or, if they are weighted, the sum of their weights.
    binary (bool): Whether each loss is 0 or 1.
    """

    score: Floats1d
    weight: Floats1d
    n: float
    binary: bool = False

    def mean(self, thresholds: Floats1d) -> Floats1d:
        """The mean loss of the docs at thresholds. Shape: (S,)"""
        order = numpy.argsort(self.score)
        # The sum of the losses if the i entities with the lowest scores are missed. Shape: (E + 1,)
        sums = numpy.concatenate([[0.0], numpy.cumsum(self.weight[order])])
        # At a threshold, the entities with a lower score are missed. Shape: (S,)
        n_missed = numpy.searchsorted(self.score[order], thresholds)
        return sums[n_missed] / (self.n or 1)


def miss_losses(
    score: Floats1d, doc: Ints1d, *, by: str = "doc", doc_weights: Floats1d | None = None
) -> Losses:
    """The losses of calibration docs for a promise of a miss rate. Docs without entities don't
    count.

        L_i = missed_i / entities_i                                     by doc
        L_i = 1 if missed_i > 0, else 0                                 any

    score (Floats1d): The highest threshold at which each entity is in the set: see `Losses`.
        Shape: (E,)
    doc (Ints1d): The number of the doc of each entity. Shape: (E,)
    by (str): "doc" or "any": see above.
    doc_weights (Floats1d | None): The weight of each of all docs, as calibration docs that were
        drawn with unequal probabilities have: see `threshold`. None: each has the weight 1.
        Shape: (D,)
    """
    # Docs with entities are numbered anew, from 0 to n - 1: the doc of each entity, (E,), and the
    # number of entities of each doc, (n,)
    docs, doc, n_entities = numpy.unique(doc, return_inverse=True, return_counts=True)
    n: float = len(n_entities)
    weights = numpy.ones(len(docs))
    if doc_weights is not None:
        weights = doc_weights[docs]
        n = float(weights.sum())
    if by == "doc":
        return Losses(score, weight=(weights / n_entities)[doc], n=n)
    # Any entity that is missed makes the loss 1, so only the lowest score of a doc counts. In the
    # order by doc, then by score, it is the first one of the doc.
    order = numpy.lexsort((score, doc))
    begin_of_doc = numpy.cumsum(n_entities) - n_entities
    lowest_of_doc = order[begin_of_doc]
    return Losses(score[lowest_of_doc], weight=weights, n=n, binary=True)


def threshold(
    losses: Losses, limit: float, *, delta: float | None = None, floor: float = 0.0
) -> float | None:
    """The largest threshold with a guaranteed risk: the smallest set that keeps the promise.

        max {t: (n mean(t) + 1) / (n + 1) <= limit}         E[L] <= limit        no delta
        max {t: p_value(mean(t)) <= delta}                  P(E[L] > limit) <= delta

    The first promise holds on average over calibration docs and the next doc. The second holds for
    all calibrations but a share of delta. As losses fall with the threshold, all lower thresholds
    keep the promise, too.

    The first also holds for docs that were drawn with unequal probabilities q_i, if the weights of
    their losses are proportional to 1 / q_i, and at most 1 for any doc that could be drawn: n is
    then the sum of the weights, and 1 at least the weight of the next doc.

    losses (Losses): The losses of the calibration docs.
    limit (float): The limit of the risk.
    delta (float | None): The share of calibrations that may fail. None: the promise holds on
        average.
    floor (float): The least threshold.
    RETURNS (float | None): The threshold, from `floor` to 1; None if none passes.

    Angelopoulos et al., 2022, eq 4, with B = 1, and section 4.1 for weights; Tibshirani et al.,
    2019, "Conformal Prediction Under Covariate Shift"; Bates et al., 2021, Theorem 1.
    """
    # Between two scores the losses are the same: only the scores and the limits have to be tried.
    is_in_range = (losses.score >= floor) & (losses.score <= 1)
    candidates = numpy.unique(numpy.append(losses.score[is_in_range], [floor, 1.0]))
    means = losses.mean(candidates)
    if delta is None:
        passes = (losses.n * means + 1) / (losses.n + 1) <= limit + ROUNDING_OF_RISK
    else:
        passes = p_values(means, limit, int(losses.n), binary=losses.binary) <= delta
    if not passes.any():
        return None
    # `unique` has sorted the candidates.
    return float(candidates[passes][-1])


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
    sums_of_losses = numpy.ceil(n * means - ROUNDING_OF_COUNT)
    n_lost = numpy.clip(sums_of_losses, 0, n).astype("int64")
    tail = _binomial_cdf(n, limit)[n_lost]  # P(Binomial(n, limit) <= n_lost)
    if binary:
        return tail
    # If the mean is above the limit, h is 0, and Hoeffding's bound 1.
    a = numpy.clip(means, 0.0, limit)
    log_ratio = numpy.log(numpy.where(a > 0, a / limit, 1.0))  # a log(a / b) is 0 at 0
    h = a * log_ratio + (1 - a) * numpy.log((1 - a) / (1 - limit))
    hoeffding = numpy.exp(-n * h)
    bentkus = math.e * tail
    return numpy.minimum(numpy.minimum(hoeffding, bentkus), 1.0)


def _binomial_cdf(n: int, p: float) -> Floats1d:
    """P(Binomial(n, p) <= k) for k = 0..n. Shape: (n + 1,)"""
    k = numpy.arange(1, n + 1)
    # log P(k) - log P(k - 1). In logarithms, as with many docs P(0) is too small for a float.
    steps = numpy.log((n - k + 1) / k) + math.log(p) - math.log1p(-p)
    log_prob_of_0 = n * math.log1p(-p)
    log_probs = numpy.concatenate([[0.0], numpy.cumsum(steps)]) + log_prob_of_0
    probs = numpy.exp(log_probs)
    return numpy.minimum(numpy.cumsum(probs), 1.0)


def docs_needed(
    mean: float, limit: float, *, delta: float | None = None, binary: bool = False
) -> int | None:
    """How many calibration docs a promise takes, if further docs have the same mean loss: the least
    number such that it and all larger numbers meet the limit. It is 1 / limit - 1 at least.

    mean (float): The mean loss of the docs. With 0, the result is the number that is needed however
        good the scores are.
    limit (float): The limit of the risk.
    delta (float | None): See `threshold`.
    binary (bool): See `p_values`.
    RETURNS (int | None): The number of docs, close to it above `MOST_EXACT`. None if the mean is
        not below the limit, or if it takes more than `MOST_DOCS`.
    """
    if mean >= limit:
        return None
    if delta is None:
        # (n mean + 1) / (n + 1) <= limit, solved for n: see `threshold`.
        return math.ceil((1 - limit) / (limit - mean) - ROUNDING_OF_COUNT)
    # Below, k = ceil(n mean) is the sum of the losses of n docs. They meet the limit ("pass") if
    # log P(Binomial(n, limit) <= k), the tail, is at most this.
    log_bound = math.log(delta)
    if not binary:
        log_bound = math.log(delta / math.e)

    def least_docs_with(k: int) -> int:
        """The least number n of docs with ceil(n mean) = k. It has the highest tail of all such
        numbers."""
        if k == 0:
            return 1
        return math.floor((k - 1 + ROUNDING_OF_COUNT) / mean) + 1

    def fails(k: int) -> bool:
        """Whether any number n of docs with ceil(n mean) = k fails to meet the limit."""
        return _log_tail(least_docs_with(k), k, limit) > log_bound

    def passes_surely(n: int) -> bool:
        """Whether n docs pass by Hoeffding's bound, which falls with n: more docs pass, too. If
        losses are binary, their sum is n mean rounded up, and so less than n mean + 1."""
        share = mean
        if binary:
            share += 1 / n
        return share < limit and -n * _divergence(share, limit) <= math.log(delta)

    if not passes_surely(MOST_DOCS):
        return None
    enough_docs = bisect_left(range(MOST_DOCS), True, lo=1, key=passes_surely)
    # As n grows, the tail falls while k is the same, and rises when k does. So the largest number
    # of docs that fails is among the numbers that lose the largest k that fails.
    last_k = math.ceil(enough_docs * mean - ROUNDING_OF_COUNT)
    k = _last_failing(fails, last_k, is_exact=enough_docs <= MOST_EXACT)
    if k is None:
        return 1
    end = enough_docs
    if mean > 0:
        end = min(enough_docs, least_docs_with(k + 1))
    numbers_with_k = range(least_docs_with(k), end)
    n_failing = bisect_left(numbers_with_k, True, key=lambda n: _log_tail(n, k, limit) <= log_bound)
    return numbers_with_k.start + n_failing


def _last_failing(fails: Callable[[int], bool], last: int, *, is_exact: bool) -> int | None:
    """The largest k, from 0 to `last`, that fails; None if none does. If it need not be exact, it
    is found by bisection, which assumes that all k after one that passes pass, too."""
    if is_exact:
        for k in range(last, -1, -1):
            if fails(k):
                return k
        return None
    n_failing = bisect_left(range(last + 1), True, key=lambda k: not fails(k))
    if n_failing == 0:
        return None
    return n_failing - 1


def _divergence(share: float, limit: float) -> float:
    """h(share, limit) of Hoeffding's bound: see `p_values`."""
    first_term = 0.0  # its limit, as the share goes to 0
    if share > 0:
        first_term = share * math.log(share / limit)
    return first_term + (1 - share) * math.log((1 - share) / (1 - limit))


def _log_tail(n: int, k: int, p: float) -> float:
    """log P(Binomial(n, p) <= k), for k below n p or about n p.

    log P(k) + log(1 + P(k - 1) / P(k) + P(k - 2) / P(k) + …)
    """
    if k >= n:
        return 0.0
    log_choices = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    log_prob_of_k = log_choices + (k * math.log(p) + (n - k) * math.log1p(-p))
    # The ratios P(i) / P(k), for i = k - 1, k - 2, …: products of P(i - 1) / P(i). They are below
    # 1e-16 after 40 standard deviations.
    n_terms = min(k, 50 + int(40 * math.sqrt(n * p)))
    i = numpy.arange(k, k - n_terms, -1)
    ratios = numpy.cumprod(i / (n - i + 1) * ((1 - p) / p))
    return log_prob_of_k + math.log1p(float(ratios.sum()))


def false_alarm_risk(
    scores: Floats1d, wrong: Array1d, doc: Ints1d, n_docs: int, thresholds: Floats1d
) -> Floats1d:
    """The risk of false alarms at thresholds: the mean over docs of the share of the set that is
    wrong, 0 for an empty set.

    scores (Floats1d): The score of each span. Shape: (S,)
    wrong (Array1d): 1 for spans that are wrong, else 0. Shape: (S,)
    doc (Ints1d): The doc of each span. Shape: (S,)
    n_docs (int): The number of docs, with those without spans.
    thresholds (Floats1d): Descending thresholds. Shape: (T,)
    RETURNS (Floats1d): The mean at each threshold. Shape: (T,)
    """
    # The index of the first threshold at which each span is in the set; T if it never is. Shape:
    # (S,) `searchsorted` needs ascending numbers, so both have a minus.
    first_threshold = numpy.searchsorted(-thresholds, -scores)
    n_rows = doc.max(initial=-1) + 1
    n_columns = len(thresholds) + 1

    def count_in_sets(weights: Array1d | None = None) -> Array2d:
        """The number of spans in the set of each doc at each threshold, or the sum of their
        weights. Shape: (docs, T + 1)"""
        # How many spans each set gains at each threshold. The index of a cell of the flattened
        # table is doc * (T + 1) + threshold.
        cells = doc * n_columns + first_threshold
        gains = numpy.bincount(cells, weights=weights, minlength=n_rows * n_columns)
        # A set keeps its spans at all lower thresholds.
        return gains.reshape(n_rows, n_columns).cumsum(axis=1)

    n_wrong = count_in_sets(wrong)
    set_size = count_in_sets()
    shares = n_wrong / numpy.maximum(set_size, 1)
    # The last column has the spans that are in no set.
    return shares.sum(axis=0)[:-1] / n_docs


def fixed_sequence(p: Floats1d, delta: float) -> int:
    """Count the hypotheses that are rejected. They are tested in an order that was fixed before,
    up to the first whose p-value is above delta. The probability that any rejection is wrong is at
    most delta.

    Angelopoulos et al., 2021: fixed sequence testing.
    """
    not_rejected = numpy.flatnonzero(p > delta)
    if len(not_rejected) == 0:
        return len(p)
    return int(not_rejected[0])
