"""Thresholds with a guaranteed risk: conformal risk control, and learn then test.

The guaranteed set of a doc has all spans whose score is at least a threshold. At each threshold,
each of n calibration docs has a loss L_i from 0 to 1, such as the share of its entities that the
set misses. The risk is the expected loss of a new doc. Calibration docs and new docs have to be
exchangeable: drawn from the same source, in any order.

In shapes, E is the number of entities, S of spans or of thresholds that are tried, and D of docs.

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
"""The maximum number of docs that `docs_needed` tries."""

MOST_EXACT = 50_000
"""The maximum number of docs for which `docs_needed` is exact."""

ROUNDING_OF_RISK = 1e-12
"""A risk that is above its limit by less than this is so because of rounding."""

ROUNDING_OF_COUNT = 1e-9
"""A number of docs times a mean that is above a whole number by less than this is so because of
rounding."""


class Losses(NamedTuple):
    """The losses of n docs at any threshold t. They fall as the threshold falls.

        sum_i L_i(t) = sum_{j: score_j < t} weight_j

    score (Floats1d): For each entity j the highest threshold at which it is in the set. It is above
        1 if the entity is in all sets, and 0 if it is in none. Shape: (E,)
    weight (Floats1d): For each entity how much the losses rise if it is missed. Shape: (E,)
    n (float): The number of docs or, if docs have weights, the sum of the weights.
    binary (bool): Whether the loss of a doc is always 0 or 1.
    """

    score: Floats1d
    weight: Floats1d
    n: float
    binary: bool = False

    def mean(self, thresholds: Floats1d) -> Floats1d:
        """Compute the mean loss of the docs at each of some thresholds. Shape: (S,)"""
        order = numpy.argsort(self.score)
        # sums[i]: the sum of the losses if the i entities with the lowest scores are missed.
        # Shape: (E + 1,)
        sums = numpy.concatenate([[0.0], numpy.cumsum(self.weight[order])])
        # At a threshold, the entities with a lower score are missed. Shape: (S,)
        n_missed = numpy.searchsorted(self.score[order], thresholds)
        # Without docs, n and all sums are 0, and so is the mean.
        return sums[n_missed] / (self.n or 1)


def miss_losses(
    score: Floats1d, doc: Ints1d, *, by: str = "doc", doc_weights: Floats1d | None = None
) -> Losses:
    """Compute the losses of calibration docs for a guarantee that few entities are missed. Docs
    without entities don't count. There are two losses:

        L_i = missed_i / entities_i                              by = "doc"
        L_i = 1 if missed_i > 0, else 0                          by = "any"

    score (Floats1d): The highest threshold at which each entity is in the set: see `Losses`.
        Shape: (E,)
    doc (Ints1d): The index of the doc of each entity. Shape: (E,)
    by (str): "doc" or "any".
    doc_weights (Floats1d | None): The weight of each doc, if docs were drawn with unequal
        probabilities: see `threshold`. None: all have the weight 1. Shape: (D,)
    RETURNS (Losses): The losses.
    """
    # Renumber the docs with entities, from 0 to n - 1. `docs` has their old numbers, (n,), and
    # `n_entities` how many entities each has, (n,). `row` is the new number of the doc of each
    # entity. Shape: (E,)
    docs, row, n_entities = numpy.unique(doc, return_inverse=True, return_counts=True)
    n: float = len(n_entities)
    weights = numpy.ones(len(docs))
    if doc_weights is not None:
        weights = doc_weights[docs]
        n = float(weights.sum())
    if by == "doc":
        return Losses(score, weight=(weights / n_entities)[row], n=n)
    # The loss of a doc is 1 as soon as the entity with the lowest score is missed, so only that one
    # counts. When sorted by doc, then by score, it is the first entity of its doc.
    order = numpy.lexsort((score, row))
    begin_of_doc = numpy.cumsum(n_entities) - n_entities
    lowest_of_doc = order[begin_of_doc]
    return Losses(score[lowest_of_doc], weight=weights, n=n, binary=True)


def threshold(
    losses: Losses, limit: float, *, delta: float | None = None, floor: float = 0.0
) -> float | None:
    """Find the highest threshold that satisfies a guarantee about the risk. It makes the smallest
    sets that satisfy it. There are two guarantees. mean(t) is the mean loss of the calibration
    docs.

        without delta:  E[L] <= limit               max {t: (n mean(t) + 1) / (n + 1) <= limit}
        with delta:     P(E[L] > limit) <= delta    max {t: p_value(mean(t)) <= delta}

    The first guarantee holds on average over calibration docs and the next doc. The second holds
    for all calibrations but a share of delta. As losses fall with the threshold, all lower
    thresholds satisfy the guarantee, too.

    The first guarantee also holds for docs that were drawn with unequal probabilities q_i, if each
    loss has a weight proportional to 1 / q_i. n is then the sum of the weights. Weights have to be
    scaled so that no doc that could be drawn has a weight above 1: the 1 in the formula stands for
    the weight of the next doc. The second guarantee doesn't hold for such docs.

    losses (Losses): The losses of the calibration docs.
    limit (float): The limit of the risk.
    delta (float | None): The share of calibrations that may fail. None: the first guarantee.
    floor (float): The lowest threshold that may be chosen.
    RETURNS (float | None): The threshold, from `floor` to 1. None if no threshold keeps the
        guarantee.

    Angelopoulos et al., 2022, eq 4, with B = 1, and section 4.1 for weights; Tibshirani et al.,
    2019, "Conformal Prediction Under Covariate Shift"; Bates et al., 2021, Theorem 1.
    """
    # Between two scores the losses are the same. So it is enough to try the scores, and both ends
    # of the range.
    is_in_range = (losses.score >= floor) & (losses.score <= 1)
    candidates = numpy.unique(numpy.append(losses.score[is_in_range], [floor, 1.0]))
    means = losses.mean(candidates)
    if delta is None:
        passes = (losses.n * means + 1) / (losses.n + 1) <= limit + ROUNDING_OF_RISK
    else:
        n = int(losses.n)  # without weights it is the number of docs
        passes = p_values(means, limit, n, binary=losses.binary) <= delta
    if not passes.any():
        return None
    return float(candidates[passes][-1])  # the highest: `unique` has sorted the candidates


def p_values(means: Floats1d, limit: float, n: int, *, binary: bool = False) -> Floats1d:
    """Compute Hoeffding-Bentkus p-values of the hypothesis that the risk is above a limit.

        min(exp(-n h(min(mean, limit), limit)),  e P(Binomial(n, limit) <= ceil(n mean)))
        h(a, b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b))

    means (Floats1d): The mean loss of n docs, at each of some thresholds. The losses are from 0 to
        1. Shape: (S,)
    limit (float): The limit, between 0 and 1.
    n (int): The number of docs.
    binary (bool): Whether all losses are 0 or 1. Then P(Binomial(n, limit) <= n mean) is the exact
        p-value.
    RETURNS (Floats1d): The p-values. Shape: (S,)

    Bates et al., 2021, section 3.1; Angelopoulos et al., 2021.
    """
    sums_of_losses = numpy.ceil(n * means - ROUNDING_OF_COUNT)
    n_lost = numpy.clip(sums_of_losses, 0, n).astype("int64")
    tail = _binomial_cdf(n, limit)[n_lost]  # P(Binomial(n, limit) <= n_lost)
    if binary:
        return tail
    # `clip`: if the mean is above the limit, h is 0, and Hoeffding's bound is 1.
    a = numpy.clip(means, 0.0, limit)
    log_ratio = numpy.log(numpy.where(a > 0, a / limit, 1.0))  # so that a log(a / b) is 0 for a = 0
    h = a * log_ratio + (1 - a) * numpy.log((1 - a) / (1 - limit))
    hoeffding = numpy.exp(-n * h)
    bentkus = math.e * tail
    return numpy.minimum(numpy.minimum(hoeffding, bentkus), 1.0)


def _binomial_cdf(n: int, p: float) -> Floats1d:
    """Compute P(Binomial(n, p) <= k) for all k from 0 to n. Shape: (n + 1,)

    The probabilities P(k) that are added up follow from each other:

        P(0) = (1 - p)^n,    P(k) / P(k - 1) = (n - k + 1) / k · p / (1 - p)

    They are computed as logarithms, because P(0) may be too small for a float.
    """
    k = numpy.arange(1, n + 1)
    log_ratios = numpy.log((n - k + 1) / k) + math.log(p) - math.log1p(-p)  # of P(k) to P(k - 1)
    log_prob_of_0 = n * math.log1p(-p)
    log_probs = numpy.concatenate([[0.0], numpy.cumsum(log_ratios)]) + log_prob_of_0
    probs = numpy.exp(log_probs)
    return numpy.minimum(numpy.cumsum(probs), 1.0)  # rounding may take the sum above 1


def docs_needed(
    mean: float, limit: float, *, delta: float | None = None, binary: bool = False
) -> int | None:
    """Compute how many calibration docs a guarantee needs, if the mean loss stays the same when
    docs are added. With this number, and with all larger numbers, some threshold satisfies the
    guarantee. Without `delta` it is never below 1 / limit - 1.

    mean (float): The mean loss of the docs. With 0, the result is the number of docs that is needed
        even if the set never misses anything.
    limit (float): The limit of the risk.
    delta (float | None): See `threshold`.
    binary (bool): See `p_values`.
    RETURNS (int | None): The number of docs. If it is above `MOST_EXACT`, it is only close to the
        right number. None if the mean is not below the limit, or if more than `MOST_DOCS` are
        needed.
    """
    if mean >= limit:
        return None
    if delta is None:
        # (n mean + 1) / (n + 1) <= limit, solved for n: see `threshold`.
        return math.ceil((1 - limit) / (limit - mean) - ROUNDING_OF_COUNT)
    # Let k = ceil(n mean) be the sum of the losses of n docs, rounded up. n docs pass if
    # log P(Binomial(n, limit) <= k), which is called the tail here, is at most this bound: then the
    # p-value is at most delta.
    log_bound = math.log(delta)
    if not binary:
        log_bound = math.log(delta / math.e)

    def least_docs_with(k: int) -> int:
        """Return the least number n of docs with ceil(n mean) = k. Of all such numbers it has the
        highest tail."""
        if k == 0:
            return 1
        # The least n for which n mean is above k - 1.
        return math.floor((k - 1 + ROUNDING_OF_COUNT) / mean) + 1

    def fails(k: int) -> bool:
        """Whether any number n of docs with ceil(n mean) = k doesn't pass."""
        return _log_tail(least_docs_with(k), k, limit) > log_bound

    def passes_by_bound(n: int) -> bool:
        """Whether Hoeffding's bound shows that n docs pass. As it falls with n, all larger numbers
        pass, too."""
        # Binary losses have a whole number as sum: n mean rounded up, which is below n mean + 1.
        share = mean
        if binary:
            share += 1 / n
        return share < limit and -n * _divergence(share, limit) <= math.log(delta)

    if not passes_by_bound(MOST_DOCS):
        return None
    enough_docs = bisect_left(range(MOST_DOCS), True, lo=1, key=passes_by_bound)
    # As n grows, the tail falls while k stays the same, and jumps up when k grows by 1. So find the
    # largest k that fails. Then, among the numbers of docs with this k, find where the tail has
    # fallen enough.
    last_k = math.ceil(enough_docs * mean - ROUNDING_OF_COUNT)
    k = _last_failing(fails, last_k, is_exact=enough_docs <= MOST_EXACT)
    if k is None:
        return 1  # any number of docs passes
    end = enough_docs  # the numbers from here on pass surely
    if mean > 0:
        end = min(enough_docs, least_docs_with(k + 1))
    numbers_with_k = range(least_docs_with(k), end)
    n_failing = bisect_left(numbers_with_k, True, key=lambda n: _log_tail(n, k, limit) <= log_bound)
    return numbers_with_k.start + n_failing


def _last_failing(fails: Callable[[int], bool], last: int, *, is_exact: bool) -> int | None:
    """Find the largest k, from 0 to `last`, that fails. Returns None if none fails. If the result
    need not be exact, it uses bisection, which assumes that no k fails after one that passes."""
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
    """Compute h(share, limit) of Hoeffding's bound: see `p_values`."""
    first_term = 0.0  # if the share is 0: a log(a) goes to 0 with a
    if share > 0:
        first_term = share * math.log(share / limit)
    return first_term + (1 - share) * math.log((1 - share) / (1 - limit))


def _log_tail(n: int, k: int, p: float) -> float:
    """Compute log P(Binomial(n, p) <= k), for k below n p or about n p.

    log P(k) + log(1 + P(k - 1) / P(k) + P(k - 2) / P(k) + ...)
    """
    if k >= n:
        return 0.0
    log_choices = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    log_prob_of_k = log_choices + (k * math.log(p) + (n - k) * math.log1p(-p))
    # The ratios P(k - 1) / P(k), P(k - 2) / P(k), ... are products of P(i - 1) / P(i). After 40
    # standard deviations, which are at most sqrt(n p), they are below 1e-16 and can be left out.
    n_terms = min(k, 50 + int(40 * math.sqrt(n * p)))
    i = numpy.arange(k, k - n_terms, -1)
    ratios = numpy.cumprod(i / (n - i + 1) * ((1 - p) / p))
    return log_prob_of_k + math.log1p(float(ratios.sum()))


def false_alarm_risk(
    scores: Floats1d, wrong: Array1d, doc: Ints1d, n_docs: int, thresholds: Floats1d
) -> Floats1d:
    """Compute the risk of false alarms at each of some thresholds: the mean over docs of the share
    of wrong spans in the set. An empty set has the share 0.

    scores (Floats1d): The score of each span. Shape: (S,)
    wrong (Array1d): 1 for spans that are wrong, else 0. Shape: (S,)
    doc (Ints1d): The doc of each span. Shape: (S,)
    n_docs (int): The number of docs, including those without spans.
    thresholds (Floats1d): The thresholds, T of them, in descending order. Shape: (T,)
    RETURNS (Floats1d): The risk at each threshold. Shape: (T,)
    """
    # For each span the index of the first threshold at which it is in the set, or T if it is in no
    # set. The minus makes both arrays ascending, as `searchsorted` needs. Shape: (S,)
    first_threshold = numpy.searchsorted(-thresholds, -scores)
    # The docs after the last one with spans need no rows: their share is 0.
    n_rows = doc.max(initial=-1) + 1
    n_columns = len(thresholds) + 1

    def count_in_sets(weights: Array1d | None = None) -> Array2d:
        """Count the spans in the set of each doc at each threshold, or sum their weights. Column T
        has all spans. Shape: (docs, T + 1)"""
        # How many spans the set of each doc gains at each threshold, as a flattened table: the
        # number of a cell is doc * (T + 1) + threshold.
        cells = doc * n_columns + first_threshold
        gains = numpy.bincount(cells, weights=weights, minlength=n_rows * n_columns)
        # A span stays in the set at all lower thresholds, which come later.
        return gains.reshape(n_rows, n_columns).cumsum(axis=1)

    n_wrong = count_in_sets(wrong)
    set_size = count_in_sets()
    shares = n_wrong / numpy.maximum(set_size, 1)
    # Without the last column, which also has the spans that are in no set.
    return shares.sum(axis=0)[:-1] / n_docs


def fixed_sequence(p: Floats1d, delta: float) -> int:
    """Count the hypotheses that are rejected, when they are tested in an order that was fixed
    before: all up to the first one whose p-value is above delta. The probability that any rejection
    is wrong is at most delta.

    p (Floats1d): The p-values of the hypotheses, in this order.
    delta (float): The level.
    RETURNS (int): The number of rejected hypotheses.

    Angelopoulos et al., 2021: fixed sequence testing.
    """
    not_rejected = numpy.flatnonzero(p > delta)
    if len(not_rejected) == 0:
        return len(p)
    return int(not_rejected[0])
