"""Thresholds with a guaranteed risk: conformal risk control, and learn then test.

The guaranteed set of a doc contains all spans whose score is at least a threshold. At each
threshold, each of the n calibration docs has a loss L_i between 0 and 1, e.g. the fraction of its
entities that the set misses. The risk is the expected loss of a new doc. Calibration docs and new
docs must be exchangeable, i.e. drawn from the same source in random order.

In shapes, E is the number of entities, S the number of spans or of candidate thresholds, and D the
number of docs.

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
"""The maximum number of docs tried by `docs_needed`."""

MOST_EXACT = 50_000
"""The maximum number of docs for which `docs_needed` is exact."""

ROUNDING_OF_RISK = 1e-12
"""The tolerance for rounding errors when a risk is compared with its limit."""

ROUNDING_OF_COUNT = 1e-9
"""The tolerance for rounding errors when a number of docs or a sum of losses is rounded to an
integer."""


class Losses(NamedTuple):
    """The losses of n docs as a function of the threshold t. A lower threshold never increases a
    loss.

        sum_i L_i(t) = sum_{j: score_j < t} weight_j

    score (Floats1d): The highest threshold at which each entity j is in the set. Above 1 if the
        entity is in all sets, and 0 if it is in none. Shape: (E,)
    weight (Floats1d): The amount by which missing each entity increases the sum of losses.
        Shape: (E,)
    n (float): The number of docs, or the sum of their weights if docs are weighted.
    binary (bool): Whether the loss of a doc is always 0 or 1.
    """

    score: Floats1d
    weight: Floats1d
    n: float
    binary: bool = False

    def mean(self, thresholds: Floats1d) -> Floats1d:
        """Compute the mean loss of the docs at each threshold. Shape: (S,)"""
        order = numpy.argsort(self.score)
        # sums[i] is the sum of the losses if the i entities with the lowest scores are missed.
        # Shape: (E + 1,)
        sums = numpy.concatenate([[0.0], numpy.cumsum(self.weight[order])])
        # All entities with a score below the threshold are missed. Shape: (S,)
        n_missed = numpy.searchsorted(self.score[order], thresholds)
        # Without docs, n and all sums are 0. The mean is defined as 0 in this case.
        return sums[n_missed] / (self.n or 1)


def miss_losses(
    score: Floats1d, doc: Ints1d, *, by: str = "doc", doc_weights: Floats1d | None = None
) -> Losses:
    """Compute the losses of calibration docs for a guarantee that limits the number of missed
    entities. Docs without entities are ignored. There are two losses:

        L_i = missed_i / entities_i                              by = "doc"
        L_i = 1 if missed_i > 0, else 0                          by = "any"

    score (Floats1d): The highest threshold at which each entity is in the set. See `Losses`.
        Shape: (E,)
    doc (Ints1d): The doc index of each entity. Shape: (E,)
    by (str): "doc" or "any".
    doc_weights (Floats1d | None): The weight of each doc, if docs were sampled with unequal
        probabilities. See `threshold`. If None, all weights are 1. Shape: (D,)
    RETURNS (Losses): The losses.
    """
    # Renumber the docs that have entities from 0 to n - 1. `docs` contains their original indices
    # and `n_entities` their entity counts, (n,). `row` is the new doc index of each entity, (E,).
    docs, row, n_entities = numpy.unique(doc, return_inverse=True, return_counts=True)
    n: float = len(n_entities)
    weights = numpy.ones(len(docs))
    if doc_weights is not None:
        weights = doc_weights[docs]
        n = float(weights.sum())
    if by == "doc":
        return Losses(score, weight=(weights / n_entities)[row], n=n)
    # The loss of a doc is 1 as soon as the entity with the lowest score is missed, so only this
    # entity matters. It is the doc's first entity when entities are sorted by doc and score.
    order = numpy.lexsort((score, row))
    begin_of_doc = numpy.cumsum(n_entities) - n_entities
    lowest_of_doc = order[begin_of_doc]
    return Losses(score[lowest_of_doc], weight=weights, n=n, binary=True)


def threshold(
    losses: Losses, limit: float, *, delta: float | None = None, floor: float = 0.0
) -> float | None:
    """Find the highest threshold that satisfies a guarantee on the risk. The highest threshold
    results in the smallest sets. There are two guarantees, where mean(t) is the mean loss of the
    calibration docs:

        without delta:  E[L] <= limit               max {t: (n mean(t) + 1) / (n + 1) <= limit}
        with delta:     P(E[L] > limit) <= delta    max {t: p_value(mean(t)) <= delta}

    The first guarantee holds on average over calibration docs and the next doc. The second holds
    with probability at least 1 - delta over the calibration docs. Since losses never increase as
    the threshold decreases, all lower thresholds satisfy the guarantee, too.

    The first guarantee also holds for docs sampled with unequal probabilities q_i, if each loss has
    a weight proportional to 1 / q_i. n is then the sum of the weights. The weights must be scaled
    so that they are at most 1 for every doc that may be sampled, because the 1 in the formula is
    the weight of the next doc. The second guarantee doesn't hold for weighted docs.

    losses (Losses): The losses of the calibration docs.
    limit (float): The upper limit of the risk.
    delta (float | None): The maximum probability, over calibration docs, that the risk exceeds the
        limit. If None, the first guarantee is used.
    floor (float): The lowest threshold to consider.
    RETURNS (float | None): The threshold, between `floor` and 1. None if no threshold satisfies the
        guarantee.

    Angelopoulos et al., 2022, eq 4, with B = 1, and section 4.1 for weights; Tibshirani et al.,
    2019, "Conformal Prediction Under Covariate Shift"; Bates et al., 2021, Theorem 1.
    """
    # The losses are constant between two consecutive scores, so it suffices to try the scores and
    # both ends of the range.
    is_in_range = (losses.score >= floor) & (losses.score <= 1)
    candidates = numpy.unique(numpy.append(losses.score[is_in_range], [floor, 1.0]))
    means = losses.mean(candidates)
    if delta is None:
        passes = (losses.n * means + 1) / (losses.n + 1) <= limit + ROUNDING_OF_RISK
    else:
        n = int(losses.n)  # without weights, n is the number of docs
        passes = p_values(means, limit, n, binary=losses.binary) <= delta
    if not passes.any():
        return None
    return float(candidates[passes][-1])  # the highest one, since `unique` sorts


def p_values(means: Floats1d, limit: float, n: int, *, binary: bool = False) -> Floats1d:
    """Compute Hoeffding-Bentkus p-values for the hypothesis that the risk is above a limit.

        min(exp(-n h(min(mean, limit), limit)),  e P(Binomial(n, limit) <= ceil(n mean)))
        h(a, b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b))

    means (Floats1d): The mean loss of n docs at each threshold. Losses are between 0 and 1.
        Shape: (S,)
    limit (float): The limit, between 0 and 1.
    n (int): The number of docs.
    binary (bool): Whether all losses are 0 or 1. If so, the exact p-value is computed instead:
        P(Binomial(n, limit) <= n mean).
    RETURNS (Floats1d): The p-values. Shape: (S,)

    Bates et al., 2021, section 3.1; Angelopoulos et al., 2021.
    """
    sums_of_losses = numpy.ceil(n * means - ROUNDING_OF_COUNT)
    n_lost = numpy.clip(sums_of_losses, 0, n).astype("int64")
    tail = _binomial_cdf(n, limit)[n_lost]  # P(Binomial(n, limit) <= n_lost)
    if binary:
        return tail
    # If the mean is above the limit, clipping makes h = 0 and Hoeffding's bound 1.
    a = numpy.clip(means, 0.0, limit)
    log_ratio = numpy.log(numpy.where(a > 0, a / limit, 1.0))  # a log(a / b) is 0 for a = 0
    h = a * log_ratio + (1 - a) * numpy.log((1 - a) / (1 - limit))
    hoeffding = numpy.exp(-n * h)
    bentkus = math.e * tail
    return numpy.minimum(numpy.minimum(hoeffding, bentkus), 1.0)


def _binomial_cdf(n: int, p: float) -> Floats1d:
    """Compute P(Binomial(n, p) <= k) for all k from 0 to n. Shape: (n + 1,)

    The probabilities P(k) are computed recursively and summed:

        P(0) = (1 - p)^n,    P(k) / P(k - 1) = (n - k + 1) / k · p / (1 - p)

    The computation uses logarithms, because P(0) may underflow.
    """
    k = numpy.arange(1, n + 1)
    log_ratios = numpy.log((n - k + 1) / k) + math.log(p) - math.log1p(-p)  # of P(k) to P(k - 1)
    log_prob_of_0 = n * math.log1p(-p)
    log_probs = numpy.concatenate([[0.0], numpy.cumsum(log_ratios)]) + log_prob_of_0
    probs = numpy.exp(log_probs)
    return numpy.minimum(numpy.cumsum(probs), 1.0)  # the sum may exceed 1 due to rounding


def docs_needed(
    mean: float, limit: float, *, delta: float | None = None, binary: bool = False
) -> int | None:
    """Compute the number of calibration docs required for a guarantee, assuming that additional
    docs don't change the mean loss. With this number of docs or more, some threshold satisfies the
    guarantee. Without `delta`, the result is at least 1 / limit - 1.

    mean (float): The mean loss of the docs. If 0, the result is the number of docs required even
        if the set never misses anything.
    limit (float): The upper limit of the risk.
    delta (float | None): See `threshold`.
    binary (bool): See `p_values`.
    RETURNS (int | None): The number of docs. It is approximate if above `MOST_EXACT`. None if the
        mean is not below the limit or more than `MOST_DOCS` docs are required.
    """
    if mean >= limit:
        return None
    if delta is None:
        # Solve (n mean + 1) / (n + 1) <= limit for n. See `threshold`.
        return math.ceil((1 - limit) / (limit - mean) - ROUNDING_OF_COUNT)
    # Let k = ceil(n mean) be the sum of the losses of n docs, rounded up. n docs pass if the log
    # tail, log P(Binomial(n, limit) <= k), is at most the following bound, because the p-value is
    # then at most delta.
    log_bound = math.log(delta)
    if not binary:
        log_bound = math.log(delta / math.e)

    def least_docs_with(k: int) -> int:
        """Return the smallest number of docs n with ceil(n mean) = k. It has the highest tail among
        all such numbers."""
        if k == 0:
            return 1
        # The smallest n for which n mean is above k - 1.
        return math.floor((k - 1 + ROUNDING_OF_COUNT) / mean) + 1

    def fails(k: int) -> bool:
        """Check whether some number of docs n with ceil(n mean) = k doesn't pass."""
        return _log_tail(least_docs_with(k), k, limit) > log_bound

    def passes_by_bound(n: int) -> bool:
        """Check whether n docs pass according to Hoeffding's bound. The bound decreases with n, so
        all larger numbers pass, too."""
        # The sum of binary losses is an integer: n mean rounded up, which is below n mean + 1.
        share = mean
        if binary:
            share += 1 / n
        return share < limit and -n * _divergence(share, limit) <= math.log(delta)

    if not passes_by_bound(MOST_DOCS):
        return None
    enough_docs = bisect_left(range(MOST_DOCS), True, lo=1, key=passes_by_bound)
    # As n grows, the tail decreases while k is constant and jumps up when k increases by 1.
    # Therefore, first find the largest k that fails, and then the smallest number of docs with this
    # k that passes.
    last_k = math.ceil(enough_docs * mean - ROUNDING_OF_COUNT)
    k = _last_failing(fails, last_k, is_exact=enough_docs <= MOST_EXACT)
    if k is None:
        return 1  # any number of docs passes
    end = enough_docs  # all numbers from here on are known to pass
    if mean > 0:
        end = min(enough_docs, least_docs_with(k + 1))
    numbers_with_k = range(least_docs_with(k), end)
    n_failing = bisect_left(numbers_with_k, True, key=lambda n: _log_tail(n, k, limit) <= log_bound)
    return numbers_with_k.start + n_failing


def _last_failing(fails: Callable[[int], bool], last: int, *, is_exact: bool) -> int | None:
    """Find the largest k from 0 to `last` that fails. Return None if every k passes. If the result
    may be approximate, use bisection, which assumes that no k fails after one that passes."""
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
    """Compute the term h(share, limit) in Hoeffding's bound. See `p_values`."""
    first_term = 0.0  # the limit of a log(a) as a approaches 0
    if share > 0:
        first_term = share * math.log(share / limit)
    return first_term + (1 - share) * math.log((1 - share) / (1 - limit))


def _log_tail(n: int, k: int, p: float) -> float:
    """Compute log P(Binomial(n, p) <= k) for k below or close to n p.

    log P(k) + log(1 + P(k - 1) / P(k) + P(k - 2) / P(k) + ...)
    """
    if k >= n:
        return 0.0
    log_choices = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    log_prob_of_k = log_choices + (k * math.log(p) + (n - k) * math.log1p(-p))
    # The ratios P(k - 1) / P(k), P(k - 2) / P(k), ... are products of P(i - 1) / P(i). After 40
    # standard deviations (at most sqrt(n p) each), they are below 1e-16 and can be omitted.
    n_terms = min(k, 50 + int(40 * math.sqrt(n * p)))
    i = numpy.arange(k, k - n_terms, -1)
    ratios = numpy.cumprod(i / (n - i + 1) * ((1 - p) / p))
    return log_prob_of_k + math.log1p(float(ratios.sum()))


def false_alarm_risk(
    scores: Floats1d, wrong: Array1d, doc: Ints1d, n_docs: int, thresholds: Floats1d
) -> Floats1d:
    """Compute the risk of false alarms at each threshold: the fraction of wrong spans in a doc's
    set, averaged over docs. The fraction is 0 for an empty set.

    scores (Floats1d): The score of each span. Shape: (S,)
    wrong (Array1d): 1 for wrong spans, otherwise 0. Shape: (S,)
    doc (Ints1d): The doc index of each span. Shape: (S,)
    n_docs (int): The number of docs, including docs without spans.
    thresholds (Floats1d): The T thresholds in descending order. Shape: (T,)
    RETURNS (Floats1d): The risk at each threshold. Shape: (T,)
    """
    # The index of the first threshold at which each span is in the set, or T if it is in no set.
    # The arrays are negated because `searchsorted` requires ascending order. Shape: (S,)
    first_threshold = numpy.searchsorted(-thresholds, -scores)
    # Docs after the last doc with spans don't need rows, since their fraction is 0.
    n_rows = doc.max(initial=-1) + 1
    n_columns = len(thresholds) + 1

    def count_in_sets(weights: Array1d | None = None) -> Array2d:
        """Count the spans, or sum their weights, in each doc's set at each threshold. Column T
        includes all spans. Shape: (docs, T + 1)"""
        # The number of spans added to each doc's set at each threshold, as a flattened table. The
        # index of a cell is doc * (T + 1) + threshold.
        cells = doc * n_columns + first_threshold
        gains = numpy.bincount(cells, weights=weights, minlength=n_rows * n_columns)
        # A span also belongs to the sets at all lower thresholds, which come later.
        return gains.reshape(n_rows, n_columns).cumsum(axis=1)

    n_wrong = count_in_sets(wrong)
    set_size = count_in_sets()
    shares = n_wrong / numpy.maximum(set_size, 1)
    # Drop the last column, which includes spans that are in no set.
    return shares.sum(axis=0)[:-1] / n_docs


def fixed_sequence(p: Floats1d, delta: float) -> int:
    """Test hypotheses in a predefined order, stopping at the first p-value above delta, and count
    the rejected hypotheses. The probability of any wrong rejection is at most delta.

    p (Floats1d): The p-values of the hypotheses, in this order.
    delta (float): The significance level.
    RETURNS (int): The number of rejected hypotheses.

    Angelopoulos et al., 2021: fixed sequence testing.
    """
    not_rejected = numpy.flatnonzero(p > delta)
    if len(not_rejected) == 0:
        return len(p)
    return int(not_rejected[0])
