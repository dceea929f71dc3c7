"""Guaranteed thresholds: against brute force, and on populations whose risk is known."""

import math
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.metrics import conformal
from spacy_costner.metrics.conformal import miss_losses

from .support.strategies import seeds

LIMITS = st.sampled_from([0.05, 0.1, 0.25, 0.4])
BY = ("doc", "any")


def made_up(rng: numpy.random.Generator) -> Any:
    """Docs of 1 to 4 entities, with scores that are often equal, always or never found."""
    sizes = rng.integers(1, 5, size=rng.integers(1, 30))
    doc = numpy.repeat(numpy.arange(len(sizes)) * 3, sizes)  # numbers with gaps
    scores = rng.choice([0.0, 0.1, 0.2, 0.5, 0.7, 0.9, 1.0, numpy.inf], size=len(doc))
    return scores, doc


def loss(scores: list[float], t: float, by: str) -> float:
    missed = sum(score < t for score in scores)
    return missed / len(scores) if by == "doc" else float(missed > 0)


def p_value(mean: float, limit: float, n: int, *, binary: bool) -> float:
    """The definition, term by term."""
    most = math.ceil(n * mean - 1e-9)
    terms = [math.comb(n, k) * limit**k * (1 - limit) ** (n - k) for k in range(most + 1)]
    if binary:
        return min(sum(terms), 1.0)
    a = min(mean, limit)
    h = a * math.log(a / limit) if a else 0.0
    h += (1 - a) * math.log((1 - a) / (1 - limit))
    return min(1.0, math.exp(-n * h), math.e * sum(terms))


def has_passed(mean: float, limit: float, n: int, delta: float | None, *, binary: bool) -> bool:
    if delta is None:
        return (n * mean + 1) / (n + 1) <= limit + 1e-12
    return p_value(mean, limit, n, binary=binary) <= delta


@given(seeds, st.sampled_from(BY), LIMITS, st.sampled_from([None, 0.05, 0.3]))
def test_threshold_against_brute_force(
    rng: numpy.random.Generator, by: str, limit: float, delta: float | None
) -> None:
    scores, doc = made_up(rng)
    docs = [scores[doc == i].tolist() for i in numpy.unique(doc)]
    n, best = len(docs), None
    losses = miss_losses(scores, doc, by=by)
    assert losses.n == n
    for t in (0.05, 0.1, 0.2, 0.5, 0.7, 0.9, 1.0):
        mean = sum(loss(each, t, by) for each in docs) / n
        assert losses.mean(numpy.asarray([t]))[0] == pytest.approx(mean)
        best = t if has_passed(mean, limit, n, delta, binary=by == "any") else best
    assert conformal.threshold(losses, limit, delta=delta, floor=0.05) == best


@given(st.integers(1, 40), LIMITS, st.floats(0, 1), st.booleans())
def test_p_values_by_definition(n: int, limit: float, mean: float, binary: bool) -> None:
    mean = round(mean * n) / n if binary else mean
    found = conformal.p_values(numpy.asarray([mean]), limit, n, binary=binary)[0]
    assert found == pytest.approx(p_value(mean, limit, n, binary=binary), abs=1e-12)


def test_p_values_of_many_docs() -> None:
    means = numpy.asarray([0.0, 0.009, 0.01, 0.5])
    found = conformal.p_values(means, 0.01, 200_000)
    assert numpy.isfinite(found).all() and (numpy.diff(found) >= 0).all()
    assert found[0] < 1e-300 and found[1] < 1e-4 and found[2:].tolist() == [1.0, 1.0]


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
    for n in range(needed, min(2 * needed + 50, 1000)):
        assert has_passed(mean, limit, n, delta, binary=binary)
    assert conformal.docs_needed(limit, limit, delta=delta, binary=binary) is None
    if delta is None and not mean:
        assert needed == math.ceil(1 / limit - 1 - 1e-9)


def test_docs_needed_where_fewer_pass_too() -> None:
    assert conformal.docs_needed(0.15, 0.2, delta=0.1, binary=True) == 149
    passed = [has_passed(0.15, 0.2, n, 0.1, binary=True) for n in (126, 127, 131, 148, 149)]
    assert passed == [True, False, False, False, True]
    many = conformal.docs_needed(0.199, 0.2, delta=0.1, binary=True)
    assert many is not None and many > conformal.MOST_EXACT
    assert conformal.p_values(numpy.asarray([0.199]), 0.2, many, binary=True)[0] <= 0.1
    assert conformal.docs_needed(0.2 - 1e-7, 0.2, delta=0.1) is None


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("by", BY)
def test_the_risk_of_a_known_population(by: str, together: bool) -> None:
    """An entity is found at thresholds up to a uniform number, one of its own or that of its doc:
    the miss rate at t is exactly t, of docs with any miss 1 - (1 - t)^size or t."""
    rng, limit, n, n_times, true = numpy.random.default_rng(0), 0.1, 150, 400, {}
    for delta in (None, 0.1):
        risks = []
        for _ in range(n_times):
            sizes = rng.integers(1, 5, size=n)
            doc = numpy.repeat(numpy.arange(n), sizes)
            scores = rng.uniform(size=n)[doc] if together else rng.uniform(size=len(doc))
            losses = miss_losses(scores, doc, by=by)
            t = conformal.threshold(losses, limit, delta=delta, floor=1e-9)
            t = t or 0.0  # nothing is promised
            any_missed = numpy.mean([1 - (1 - t) ** size for size in (1, 2, 3, 4)])
            risks.append(any_missed if by == "any" and not together else t)
        true[delta] = numpy.asarray(risks)
    error = true[None].std() / n_times**0.5
    assert true[None].mean() <= limit + 2 * error
    assert true[None].mean() >= limit - 1 / (n + 1) - 2 * error
    assert (true[0.1] > limit).mean() <= 0.1 + 2 * (0.1 * 0.9 / n_times) ** 0.5
    assert (true[None] > limit).mean() > 0.2  # the promise of the mean is no promise of each


@given(seeds)
def test_false_alarm_risk_against_brute_force(rng: numpy.random.Generator) -> None:
    thresholds = numpy.asarray([0.9, 0.5, 0.3])
    n_docs, n = 4, int(rng.integers(0, 20))
    scores = rng.choice([0.2, 0.3, 0.4, 0.5, 0.8, 0.9, 0.95], size=n)
    wrong = rng.uniform(size=n) < 0.5
    doc = rng.integers(0, n_docs, size=n)
    risks = conformal.false_alarm_risk(scores, wrong, doc, n_docs, thresholds)
    for t, risk in zip(thresholds, risks):
        shares = []
        for i in range(n_docs):
            wrong_in_set = wrong[(doc == i) & (scores >= t)]
            shares.append(wrong_in_set.mean() if len(wrong_in_set) else 0.0)
        assert risk == pytest.approx(numpy.mean(shares))


def test_fixed_sequence_stops_at_the_first_that_stays() -> None:
    assert conformal.fixed_sequence(numpy.asarray([0.01, 0.04, 0.2, 0.001]), 0.05) == 2
    assert conformal.fixed_sequence(numpy.asarray([0.2, 0.001]), 0.05) == 0
    assert conformal.fixed_sequence(numpy.asarray([0.02, 0.001]), 0.05) == 2


def test_false_alarms_of_a_known_population() -> None:
    """Spans are right with their score as probability: above t, (1 - t) / 2 of them are wrong."""
    rng, limit, n, delta = numpy.random.default_rng(1), 0.2, 300, 0.1
    grid = numpy.linspace(0.99, 0.01, 60)
    over = []
    for _ in range(200):
        doc = numpy.repeat(numpy.arange(n), 5)
        scores = rng.uniform(size=len(doc))
        wrong = rng.uniform(size=len(doc)) > scores
        p = conformal.p_values(conformal.false_alarm_risk(scores, wrong, doc, n, grid), limit, n)
        t = grid[conformal.fixed_sequence(p, delta) - 1]
        risk = (1 - t) / 2 * (1 - t**5)  # 0 for the empty set
        over.append(risk > limit)
        assert risk > limit / 2  # and not far below what is allowed
    assert numpy.mean(over) <= delta + 2 * (delta * (1 - delta) / 200) ** 0.5
