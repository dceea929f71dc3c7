"""Guaranteed thresholds: against brute force, and on populations whose risk is known."""

import math
from itertools import product

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.metrics import conformal
from spacy_costner.metrics.conformal import miss_losses

from ..support.strategies import seeds

LIMITS = st.sampled_from([0.05, 0.1, 0.25, 0.4])
BY = ("doc", "any")
"""What is guaranteed: the mean of the share of entities missed in a doc, or of docs that miss
any."""

SCORES = (0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 1.0)
"""The thresholds at which losses of `random_scores` may change, the lowest threshold that the tests
allow, 0.05, and the highest, 1."""


def random_scores(rng: numpy.random.Generator) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Docs of 1 to 4 entities: for each entity the threshold up to which it is found, often equal,
    0 for never, infinite for always; and the number of its doc."""
    sizes = rng.integers(1, 5, size=rng.integers(1, 30))
    doc = numpy.repeat(numpy.arange(len(sizes)) * 3, sizes)  # numbers with gaps
    scores = rng.choice([0.0, 0.1, 0.2, 0.5, 0.7, 0.9, 1.0, numpy.inf], size=len(doc))
    return scores, doc


def miss_loss(scores: list[float], threshold: float, by: str) -> float:
    """The loss of a doc whose entities have these scores."""
    n_missed = sum(score < threshold for score in scores)
    return n_missed / len(scores) if by == "doc" else float(n_missed > 0)


def p_value(mean: float, limit: float, n: int, *, binary: bool) -> float:
    """The definition, term by term: the binomial tail; for losses between 0 and 1 the bound of
    Hoeffding and Bentkus (Bates et al., 2021, section 3.1)."""
    most = math.ceil(n * mean - 1e-9)
    terms = [math.comb(n, k) * limit**k * (1 - limit) ** (n - k) for k in range(most + 1)]
    tail = sum(terms)
    if binary:
        return min(tail, 1.0)
    # The divergence of Bernoulli(a) from Bernoulli(limit).
    a = min(mean, limit)
    divergence = (1 - a) * math.log((1 - a) / (1 - limit))
    if a > 0:
        divergence += a * math.log(a / limit)
    hoeffding = math.exp(-n * divergence)
    bentkus = math.e * tail
    return min(1.0, hoeffding, bentkus)


def has_passed(mean: float, limit: float, n: int, delta: float | None, *, binary: bool) -> bool:
    """Whether n docs with this mean loss are enough for the guarantee: of the mean over samples of
    docs where delta is None, else with the probability 1 - delta."""
    if delta is None:
        return (n * mean + 1) / (n + 1) <= limit + 1e-12
    return p_value(mean, limit, n, binary=binary) <= delta


@given(seeds, st.sampled_from(BY))
def test_mean_loss_of_a_threshold_is_that_of_a_loop_over_docs(
    rng: numpy.random.Generator, by: str
) -> None:
    scores, doc = random_scores(rng)
    scores_of_docs = [scores[doc == i].tolist() for i in numpy.unique(doc)]

    losses = miss_losses(scores, doc, by=by)

    assert losses.n == len(scores_of_docs)
    for threshold in SCORES:
        total = sum(miss_loss(of_doc, threshold, by) for of_doc in scores_of_docs)
        mean = losses.mean(numpy.asarray([threshold]))[0]
        assert mean == pytest.approx(total / len(scores_of_docs))


@given(seeds, st.sampled_from(BY), LIMITS, st.sampled_from([None, 0.05, 0.3]))
def test_the_threshold_is_the_largest_that_passes(
    rng: numpy.random.Generator, by: str, limit: float, delta: float | None
) -> None:
    """None where none does. Between the thresholds of SCORES losses don't change, so one of these
    is the largest."""
    scores, doc = random_scores(rng)
    losses = miss_losses(scores, doc, by=by)

    threshold = conformal.threshold(losses, limit, delta=delta, floor=0.05)

    largest = None
    for candidate in SCORES:
        mean = losses.mean(numpy.asarray([candidate]))[0]
        if has_passed(mean, limit, losses.n, delta, binary=by == "any"):
            largest = candidate
    assert threshold == largest


@given(st.integers(1, 40), LIMITS, st.floats(0, 1), st.booleans())
def test_p_values_by_definition(n: int, limit: float, mean: float, binary: bool) -> None:
    if binary:  # the share of n docs
        mean = round(mean * n) / n

    p = conformal.p_values(numpy.asarray([mean]), limit, n, binary=binary)[0]

    assert p == pytest.approx(p_value(mean, limit, n, binary=binary), abs=1e-12)


def test_p_values_of_many_docs_are_finite_and_grow_with_the_mean() -> None:
    """Terms of the sum are too small for a float there. At the limit and above, p is 1."""
    means = numpy.asarray([0.0, 0.009, 0.01, 0.5])

    p = conformal.p_values(means, 0.01, 200_000)

    assert numpy.isfinite(p).all()
    assert (numpy.diff(p) >= 0).all()
    assert p[0] < 1e-300
    assert p[1] < 1e-4
    assert p[2:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("delta", [None, 0.1, 0.01])
@pytest.mark.parametrize(
    ("mean", "limit"), [(0.0, 0.1), (0.05, 0.1), (0.0, 0.01), (0.15, 0.2), (0.31, 0.5), (0.07, 0.3)]
)
def test_docs_needed_is_the_least_number_from_which_all_pass(
    mean: float, limit: float, delta: float | None, binary: bool
) -> None:
    needed = conformal.docs_needed(mean, limit, delta=delta, binary=binary)
    assert needed is not None
    assert not has_passed(mean, limit, needed - 1, delta, binary=binary)
    for n in range(needed, min(2 * needed + 50, 1000)):  # not up to infinity, but far enough
        assert has_passed(mean, limit, n, delta, binary=binary)
    assert conformal.docs_needed(limit, limit, delta=delta, binary=binary) is None
    if delta is None and not mean:
        # (n * 0 + 1) / (n + 1) <= limit
        assert needed == math.ceil(1 / limit - 1 - 1e-9)


def test_docs_needed_is_larger_than_a_number_that_passes_by_chance_of_rounding() -> None:
    """Losses are whole numbers of docs: 0.15 * 126 = 18.9 is rounded up to 19, but 0.15 * 127 =
    19.05 to 20. So with 126 docs a mean of 0.15 passes, and with more docs it may not. From 149 on
    it always does."""
    passes = {n: has_passed(0.15, 0.2, n, 0.1, binary=True) for n in (126, 127, 131, 148, 149)}
    assert passes == {126: True, 127: False, 131: False, 148: False, 149: True}

    assert conformal.docs_needed(0.15, 0.2, delta=0.1, binary=True) == 149


def test_docs_needed_near_the_limit_are_many_and_pass() -> None:
    """More than `docs_needed` tries one after another."""
    needed = conformal.docs_needed(0.199, 0.2, delta=0.1, binary=True)

    assert needed is not None and needed > conformal.MOST_EXACT
    assert conformal.p_values(numpy.asarray([0.199]), 0.2, needed, binary=True)[0] <= 0.1


@pytest.mark.parametrize("binary", [True, False])
def test_docs_needed_of_docs_without_losses_for_a_small_limit(binary: bool) -> None:
    """More than `docs_needed` tries one after another. The p-value of n docs without a loss is
    (1 - limit)^n."""
    delta = 0.05
    limit = 2e-5
    expected = math.ceil(math.log(delta) / math.log1p(-limit))

    needed = conformal.docs_needed(0.0, limit, delta=delta, binary=binary)

    assert expected > conformal.MOST_EXACT
    assert needed == expected


def test_no_number_of_docs_is_enough_a_hair_below_the_limit() -> None:
    assert conformal.docs_needed(0.2 - 1e-7, 0.2, delta=0.1) is None


def risks_of_a_known_population(by: str, *, together: bool, delta: float | None) -> numpy.ndarray:
    """The true risks of 400 thresholds, each made from 150 docs for a limit of 0.1. An entity is
    found at thresholds up to a uniform number, its own or that of its doc (`together`): the miss
    rate at t is exactly t; of docs with any miss it is t where they are missed together, else
    1 - (1 - t)^size."""
    rng = numpy.random.default_rng(0)
    risks = []
    for _ in range(400):
        sizes = rng.integers(1, 5, size=150)
        doc = numpy.repeat(numpy.arange(150), sizes)
        scores = rng.uniform(size=150)[doc] if together else rng.uniform(size=len(doc))
        losses = miss_losses(scores, doc, by=by)
        t = conformal.threshold(losses, limit=0.1, delta=delta, floor=1e-9)
        if t is None:  # nothing is guaranteed, and nothing missed
            t = 0.0
        if by == "any" and not together:
            risks.append(numpy.mean([1 - (1 - t) ** size for size in (1, 2, 3, 4)]))
        else:
            risks.append(t)
    return numpy.asarray(risks)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("by", BY)
def test_without_delta_the_mean_risk_keeps_the_limit_and_is_near_it(
    by: str, together: bool
) -> None:
    """The mean risk over calibrations with n docs is at most the limit, and not below it by more
    than 1 / (n + 1), but for two standard errors. Single thresholds are not guaranteed anything:
    more than a fifth of them have a risk above the limit."""
    limit = 0.1
    n_docs = 150
    risks = risks_of_a_known_population(by, together=together, delta=None)

    standard_error = risks.std() / len(risks) ** 0.5
    assert risks.mean() <= limit + 2 * standard_error
    assert risks.mean() >= limit - 1 / (n_docs + 1) - 2 * standard_error
    assert (risks > limit).mean() > 0.2


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("by", BY)
def test_with_delta_a_risk_is_above_the_limit_as_rarely_as_delta_says(
    by: str, together: bool
) -> None:
    """Within two standard errors of a share of 0.1."""
    risks = risks_of_a_known_population(by, together=together, delta=0.1)

    standard_error = (0.1 * 0.9 / len(risks)) ** 0.5
    assert (risks > 0.1).mean() <= 0.1 + 2 * standard_error


@given(seeds)
def test_false_alarm_risk_is_the_mean_share_of_wrong_spans_above_the_threshold(
    rng: numpy.random.Generator,
) -> None:
    """The mean is over all docs. A doc without a span above the threshold has the share 0."""
    thresholds = numpy.asarray([0.9, 0.5, 0.3])
    n_docs = 4
    n_spans = int(rng.integers(0, 20))
    scores = rng.choice([0.2, 0.3, 0.4, 0.5, 0.8, 0.9, 0.95], size=n_spans)
    wrong = rng.uniform(size=n_spans) < 0.5
    doc = rng.integers(0, n_docs, size=n_spans)

    risks = conformal.false_alarm_risk(scores, wrong, doc, n_docs, thresholds)

    for t, risk in zip(thresholds, risks):
        shares = []
        for i in range(n_docs):
            wrong_in_set = wrong[(doc == i) & (scores >= t)]
            shares.append(wrong_in_set.mean() if len(wrong_in_set) else 0.0)
        assert risk == pytest.approx(numpy.mean(shares))


def test_fixed_sequence_counts_the_p_values_before_the_first_above_delta() -> None:
    """Later ones don't count, as small as they are."""
    assert conformal.fixed_sequence(numpy.asarray([0.01, 0.04, 0.2, 0.001]), 0.05) == 2
    assert conformal.fixed_sequence(numpy.asarray([0.2, 0.001]), 0.05) == 0
    assert conformal.fixed_sequence(numpy.asarray([0.02, 0.001]), 0.05) == 2


def test_the_false_alarm_risk_of_a_known_population_is_rarely_above_the_limit() -> None:
    """Spans are right with their score as probability: of those above t, (1 - t) / 2 are wrong. A
    doc has five spans, none of which is above t with the probability t^5: then nothing is wrong.
    Nor is the risk far below what is allowed."""
    rng = numpy.random.default_rng(1)
    limit = 0.2
    delta = 0.1
    n_docs = 300
    n_times = 200
    thresholds = numpy.linspace(0.99, 0.01, 60)

    risks = []
    for _ in range(n_times):
        doc = numpy.repeat(numpy.arange(n_docs), 5)
        scores = rng.uniform(size=len(doc))
        wrong = rng.uniform(size=len(doc)) > scores
        means = conformal.false_alarm_risk(scores, wrong, doc, n_docs, thresholds)
        p = conformal.p_values(means, limit, n_docs)
        t = thresholds[conformal.fixed_sequence(p, delta) - 1]
        risks.append((1 - t) / 2 * (1 - t**5))

    share_above = numpy.mean(numpy.asarray(risks) > limit)
    assert share_above <= delta + 2 * (delta * (1 - delta) / n_times) ** 0.5
    assert min(risks) > limit / 2


@given(seeds, st.sampled_from(BY), LIMITS)
def test_a_doc_of_the_weight_two_counts_as_two_docs(
    rng: numpy.random.Generator, by: str, limit: float
) -> None:
    """Docs with the weight 2 have the threshold of the same docs, each of them there twice."""
    scores, doc = random_scores(rng)
    doc_weights = numpy.zeros(doc.max() + 1)
    doc_weights[doc] = 2.0
    weighted = miss_losses(scores, doc, by=by, doc_weights=doc_weights)

    # Only every third number is that of a doc. So `doc + 1` are new docs.
    doc_of_repeated = numpy.concatenate([doc, doc + 1])
    repeated = miss_losses(numpy.concatenate([scores, scores]), doc_of_repeated, by=by)

    assert weighted.n == repeated.n
    assert conformal.threshold(weighted, limit) == conformal.threshold(repeated, limit)


@pytest.mark.parametrize("probs", [(0.2, 0.2, 0.2, 0.4), (0.15, 0.15, 0.35, 0.35)])
@pytest.mark.parametrize("limit", [0.4, 0.5])
def test_weighted_docs_keep_the_promise_in_the_mean_over_all_drawings(
    probs: tuple[float, ...], limit: float
) -> None:
    """There are four docs of one entity each. Docs that are drawn rarely have the lowest scores.
    The mean is over all samples of five draws, by their probability, of the risk of all four docs.
    If there is no threshold, nothing is guaranteed. Without weights the risk would be higher."""
    scores = numpy.asarray([0.1, 0.2, 0.8, 0.9])
    docs = numpy.arange(4)
    means = {}
    for is_weighted in (True, False):
        mean = 0.0
        for sample in product(range(4), repeat=5):
            times = numpy.bincount(sample, minlength=4)
            weights = times.astype("float64")
            if is_weighted:  # by 1 / probability, so that the rarest docs have the weight 1
                weights *= min(probs) / numpy.asarray(probs)
            is_drawn = times > 0
            losses = miss_losses(scores[is_drawn], docs[is_drawn], doc_weights=weights)
            threshold = conformal.threshold(losses, limit)
            if threshold is not None:
                risk = (scores < threshold).mean()
                mean += numpy.prod([probs[i] for i in sample]) * risk
        means[is_weighted] = mean

    assert means[True] <= limit
    assert means[False] > means[True]
