"""Tests of the estimators: they are compared with an enumeration of all samples of a tiny
population, and with the bootstrap."""

import math
from itertools import combinations, product
from typing import NamedTuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thinc.types import Floats1d, Ints1d, Ints2d

from spacy_costner.workflows.sampling.estimators import (
    UNIFORM,
    Count,
    Sample,
    degrees_of_freedom,
    draw_docs,
    drawing_probs,
    drawings_for_half,
    estimate_rate,
    estimate_ratio,
    estimate_share,
    estimate_total,
    most_docs_with_any,
    student_quantile,
    variance_of_mean,
)

from ...support.strategies import seeds


class Population(NamedTuple):
    """D docs, each with its annotated count, its expected count, and its probability at each
    drawing. Shapes: (D,)"""

    annotated: Floats1d
    expected: Floats1d
    probs: Floats1d

    def count(self, docs: Ints1d) -> Count:
        """The count in drawn docs, given by their indices. Shape: (..., n)"""
        return Count(self.annotated[docs], self.expected[docs], float(self.expected.sum()))


def population(rng: numpy.random.Generator, n_docs: int) -> Population:
    """Random docs in which a model expects about as much as there is."""
    annotated = rng.poisson(3.0, size=n_docs).astype("float64")
    expected = annotated * rng.uniform(0.5, 1.2, size=n_docs)
    return Population(annotated, expected, drawing_probs(rng.uniform(size=n_docs)))


def all_sequences(n_docs: int, n: int) -> Ints2d:
    """All sequences of docs that n drawings with replacement can give. Shape: (D^n, n)"""
    return numpy.asarray(list(product(range(n_docs), repeat=n)))


def influences(docs: Population, drawn: Ints2d) -> numpy.ndarray:
    """What each drawing alone says of the total, by the definition. Shape: (S, n)"""
    errors = docs.annotated[drawn] - docs.expected[drawn]
    return docs.expected.sum() + errors / docs.probs[drawn]


@given(seeds, st.integers(2, 5), st.integers(2, 4))
def test_total_and_its_variance_have_no_bias(
    rng: numpy.random.Generator, n_docs: int, n: int
) -> None:
    """The mean of the estimates over all possible samples is the true total, however wrong the
    model is. The mean of the estimated variances is the true variance of the estimates."""
    docs = population(rng, n_docs)
    drawn = all_sequences(n_docs, n)
    prob_of_sample = docs.probs[drawn].prod(axis=1)
    sample = Sample(docs.probs[drawn], n_docs)

    totals = estimate_total(docs.count(drawn), sample).value
    variances = variance_of_mean(influences(docs, drawn), sample)

    assert prob_of_sample.sum() == pytest.approx(1.0)
    truth = docs.annotated.sum()
    assert prob_of_sample @ totals == pytest.approx(truth)
    assert prob_of_sample @ variances == pytest.approx(prob_of_sample @ (totals - truth) ** 2)


@given(seeds, st.integers(2, 6))
def test_without_replacement_total_and_variance_have_no_bias_either(
    rng: numpy.random.Generator, n_docs: int
) -> None:
    """The mean is over all sets of docs, which have the same probability."""
    docs = population(rng, n_docs)._replace(probs=numpy.full(n_docs, 1 / n_docs))
    for n in range(2, n_docs + 1):
        drawn = numpy.asarray(list(combinations(range(n_docs), n)))
        sample = Sample(docs.probs[drawn], n_docs, with_replacement=False)

        total = estimate_total(docs.count(drawn), sample)
        variances = variance_of_mean(influences(docs, drawn), sample)

        truth = docs.annotated.sum()
        assert total.value.mean() == pytest.approx(truth)
        assert variances.mean() == pytest.approx(((total.value - truth) ** 2).mean())
        if n == n_docs:  # nothing is left to chance
            assert total.low == pytest.approx(truth) == total.high


@given(seeds, st.integers(3, 5), st.integers(2, 4))
def test_parts_of_the_docs_may_be_drawn_with_different_shares(
    rng: numpy.random.Generator, n_docs: int, n_other_docs: int
) -> None:
    """Over all sets of 2 docs of one part with 1 of another: the mean of the estimates is the true
    total, and the mean of the estimated variances isn't below their variance."""
    docs = population(rng, n_docs + n_other_docs)
    pairs = combinations(range(n_docs), 2)
    others = range(n_docs, n_docs + n_other_docs)
    drawn = numpy.asarray([[*pair, other] for pair, other in product(pairs, others)])
    shares = numpy.asarray([2 / n_docs] * n_docs + [1 / n_other_docs] * n_other_docs)
    docs = docs._replace(probs=shares / 3)  # of each of the three drawings
    n_all = n_docs + n_other_docs
    sample = Sample(docs.probs[drawn], n_all, with_replacement=False, n_parts=2)

    totals = estimate_total(docs.count(drawn), sample).value
    variances = variance_of_mean(influences(docs, drawn), sample)

    truth = docs.annotated.sum()
    assert totals.mean() == pytest.approx(truth)
    assert variances.mean() >= ((totals - truth) ** 2).mean() - 1e-9


@given(seeds)
def test_an_exact_model_leaves_no_doubt(rng: numpy.random.Generator) -> None:
    docs = population(rng, 8)
    docs = docs._replace(expected=docs.annotated)
    drawn = draw_docs(docs.probs, 5, rng)
    total = estimate_total(docs.count(drawn), Sample(docs.probs[drawn], 8))
    assert total == pytest.approx([docs.annotated.sum()] * 3)


def test_ratio_is_the_ratio_of_the_estimated_totals() -> None:
    docs = population(numpy.random.default_rng(0), 20)
    others = docs._replace(annotated=docs.annotated + 2, expected=docs.expected * 1.5)
    drawn = draw_docs(docs.probs, 10, numpy.random.default_rng(1))
    sample = Sample(docs.probs[drawn], 20)

    ratio = estimate_ratio(docs.count(drawn), others.count(drawn), sample)
    both = estimate_total(docs.count(drawn) + others.count(drawn), sample)

    numerator = estimate_total(docs.count(drawn), sample).value
    denominator = estimate_total(others.count(drawn), sample).value
    assert ratio.value == pytest.approx(numerator / denominator)
    assert both.value == pytest.approx(numerator + denominator)


def test_ratio_is_0_if_the_estimated_denominator_is() -> None:
    """The denominator is expected too high, and corrected to 0: with probabilities of 0.5 it is
    1 + ((1 - 1) / 0.5 + (0 - 1) / 0.5) / 2. The numerator isn't 0."""
    sample = Sample(numpy.full(2, 0.5), 2)
    denominator = Count(numpy.asarray([1.0, 0.0]), numpy.asarray([1.0, 1.0]), 1.0)
    numerator = Count(numpy.asarray([1.0, 1.0]), numpy.zeros(2), 0.0)
    assert estimate_total(denominator, sample).value == 0
    assert estimate_ratio(numerator, denominator, sample).value == 0
    assert estimate_share(numerator, denominator, sample).value == 0


def test_margin_of_a_ratio_equals_the_bootstrap() -> None:
    """The standard error of the ratio, by its linear part, is close to the standard deviation of
    the ratio over resampled drawings."""
    rng = numpy.random.default_rng(0)
    docs = population(rng, 500)
    others = docs._replace(annotated=docs.annotated + rng.poisson(4.0, size=500))
    drawn = draw_docs(docs.probs, 300, rng)
    again = drawn[rng.integers(300, size=(4_000, 300))]

    ratio = estimate_ratio(docs.count(drawn), others.count(drawn), Sample(docs.probs[drawn], 500))
    resampled = estimate_ratio(
        docs.count(again), others.count(again), Sample(docs.probs[again], 500)
    )

    assert (ratio.high - ratio.low) / 2 / 1.96 == pytest.approx(resampled.value.std(), rel=0.05)
    assert ratio.value - ratio.low == pytest.approx(ratio.high - ratio.value)


@given(seeds)
def test_share_is_the_ratio_with_the_interval_of_its_log_odds(rng: numpy.random.Generator) -> None:
    """Near a ratio R, a change of the ratio divided by R (1 - R) is the change of its log odds."""
    whole = population(rng, 30)
    part = whole._replace(annotated=whole.annotated * 0.5, expected=whole.expected * 0.5)
    part.annotated[:5] *= 1.5
    drawn = draw_docs(whole.probs, 20, rng)
    sample = Sample(whole.probs[drawn], 30)

    ratio = estimate_ratio(part.count(drawn), whole.count(drawn), sample)
    share = estimate_share(part.count(drawn), whole.count(drawn), sample)

    assert share.value == ratio.value
    assert 0 < share.low <= share.value <= share.high < 1
    odds_margin = (ratio.high - ratio.value) / (share.value * (1 - share.value))
    log_odds = [math.log(bound / (1 - bound)) for bound in share]
    assert log_odds[2] - log_odds[0] == pytest.approx(odds_margin, abs=1e-9)
    assert log_odds[0] - log_odds[1] == pytest.approx(odds_margin, abs=1e-9)


@pytest.mark.parametrize("value", [-0.5, 0.0, 1.0, 1.5])
def test_share_outside_of_0_and_1_has_the_interval_of_the_ratio(value: float) -> None:
    """The part and the whole are estimates. The part may be negative, or larger than the whole."""
    sample = Sample(numpy.full(4, 0.1), 10)
    whole = Count(numpy.asarray([1.0, 2.0, 1.0, 2.0]), numpy.zeros(4), 0.0)
    part = Count(value * whole.annotated + [0.1, -0.1, -0.1, 0.1], numpy.zeros(4), 0.0)

    share = estimate_share(part, whole, sample)

    assert share.value == pytest.approx(value)
    assert share == estimate_ratio(part, whole, sample)
    assert share.low < share.value < share.high


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_intervals_have_the_truth_as_often_as_they_say(confidence: float) -> None:
    """Of 4,000 intervals, the share that contains the true value is the confidence. The standard
    error of that share is below 0.7 %."""
    rng = numpy.random.default_rng(0)
    docs = population(rng, 400)
    others = docs._replace(annotated=docs.annotated + rng.poisson(1.0, size=400))
    drawn = rng.choice(400, size=(4_000, 50), p=docs.probs)
    sample = Sample(docs.probs[drawn], 400)

    total = estimate_total(docs.count(drawn), sample, confidence=confidence)
    ratio = estimate_ratio(docs.count(drawn), others.count(drawn), sample, confidence=confidence)
    rate = estimate_rate(docs.count(drawn), others.count(drawn), sample, confidence=confidence)
    share = estimate_share(docs.count(drawn), others.count(drawn), sample, confidence=confidence)

    true_total = docs.annotated.sum()
    true_ratio = true_total / others.annotated.sum()
    intervals_of_ratio = [(interval, true_ratio) for interval in (ratio, rate, share)]
    for interval, truth in [(total, true_total), *intervals_of_ratio]:
        has_truth = (interval.low <= truth) & (truth <= interval.high)
        assert has_truth.mean() == pytest.approx(confidence, abs=0.02)


def test_interval_of_a_count_is_the_interval_of_its_logarithm() -> None:
    """If a few docs have most of the count, the interval stays above 0. Its upper end is as many
    times the estimate as the estimate is the lower end. The estimate is the mean of four drawings
    with the probability 0.1: (9 / 0.1) / 4 = 22.5."""
    drawn = Count(numpy.asarray([0.0, 0.0, 0.0, 9.0]), numpy.zeros(4), 0.0)
    total = estimate_total(drawn, Sample(numpy.full(4, 0.1), 10))
    assert 0 < total.low < total.value == pytest.approx(22.5)
    assert total.high / total.value == pytest.approx(total.value / total.low)


def test_interval_of_a_rate_is_the_interval_of_its_logarithm() -> None:
    """Of 4 docs with 10 tokens each, only one has entities. The rate is 9 / 40, and its interval is
    that of the total divided by the number of tokens, which is the same in all docs."""
    sample = Sample(numpy.full(4, 0.1), 10)
    entities = Count(numpy.asarray([0.0, 0.0, 0.0, 9.0]), numpy.zeros(4), 0.0)
    tokens = Count(numpy.full(4, 10.0), numpy.zeros(4), 0.0)
    rate = estimate_rate(entities, tokens, sample)
    assert rate.value == pytest.approx(9 / 40)
    assert rate.low > 0 > estimate_ratio(entities, tokens, sample).low
    assert rate == pytest.approx(numpy.asarray(estimate_total(entities, sample)) / 100)


def test_simple_random_docs_take_the_finite_population_into_account() -> None:
    """Half of the docs are drawn. Without replacement the variance is half of that with
    replacement, as 1 - 30 / 60 is 0.5, so the interval is narrower by a factor of sqrt(0.5)."""
    docs = population(numpy.random.default_rng(0), 60)._replace(probs=numpy.full(60, 1 / 60))
    drawn = numpy.arange(30)
    number_of_docs = Count(annotated=numpy.ones(30), expected=numpy.ones(30), expected_total=60.0)
    widths = []
    for with_replacement in (False, True):
        sample = Sample(docs.probs[drawn], 60, with_replacement)
        interval = estimate_ratio(docs.count(drawn), number_of_docs, sample)
        widths.append(interval.high - interval.low)
    assert widths[0] / widths[1] == pytest.approx(math.sqrt(0.5))


def test_total_of_the_annotated_docs_alone_expects_nothing() -> None:
    """Without a model, each drawn doc says of the total its count divided by the probability of
    drawing it. The estimate is the mean (Hansen & Hurwitz, 1943)."""
    docs = population(numpy.random.default_rng(0), 30)
    drawn = draw_docs(docs.probs, 10, numpy.random.default_rng(1))
    sample = Sample(docs.probs[drawn], 30)

    estimate = estimate_total(docs.count(drawn).without_model(), sample)

    totals_of_drawings = docs.annotated[drawn] / docs.probs[drawn]
    assert estimate.value == pytest.approx(totals_of_drawings.mean())


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20))
def test_probabilities_of_drawing(mistakes: list[float]) -> None:
    """They sum to 1. None is so small that a doc counts more than twice as much as in a simple
    random sample."""
    probs = drawing_probs(numpy.asarray(mistakes))
    assert probs.sum() == pytest.approx(1.0)
    assert probs.min() >= UNIFORM / len(mistakes) - 1e-12
    surest = numpy.argmin(mistakes)
    assert probs[surest] == pytest.approx(probs.min())


def test_docs_are_drawn_with_their_probabilities() -> None:
    probs = drawing_probs(numpy.asarray([0.0, 1.0, 3.0]))
    drawn = draw_docs(probs, 100_000, numpy.random.default_rng(0))
    assert numpy.bincount(drawn) / 100_000 == pytest.approx(probs, abs=0.01)


@pytest.mark.parametrize("with_replacement", [True, False])
def test_drawings_for_half_are_as_few_as_possible(with_replacement: bool) -> None:
    """With this number of drawings the variance of the mean is a quarter, so that the interval is
    half as wide. With one drawing less it isn't."""
    sample = Sample(numpy.full(50, 1 / 1000), 1000, with_replacement)
    m = drawings_for_half(sample)

    def factor(n: int) -> float:
        """The variance of the mean of n drawings, if a single value has the variance 1."""
        return Sample(numpy.full(n, 1 / 1000), 1000, with_replacement).correction / n

    assert factor(m) <= factor(50) / 4 + 1e-12
    assert factor(m - 1) > factor(50) / 4


@pytest.mark.parametrize("with_replacement", [True, False])
def test_more_docs_than_the_bound_would_have_been_drawn(with_replacement: bool) -> None:
    """If there were one doc more than the bound with some property, and all of them had the lowest
    probability, one would have been drawn with the given confidence."""
    sample = Sample(numpy.full(50, 1 / 1000), 1000, with_replacement)
    most = most_docs_with_any(sample, confidence=0.95)
    least_prob = (UNIFORM if with_replacement else 1) / 1000
    assert (1 - most * least_prob) ** 50 >= 0.05 > (1 - (most + 1) * least_prob) ** 50


def test_degrees_of_freedom_fall_with_the_kurtosis() -> None:
    """The degrees of freedom of n values are 2 n / (kurtosis - (n - 3) / (n - 1)), at most n - 1.
    Of 50 normal values there are about 47, close to 49. One outlier leaves few: the kurtosis of a
    one among 49 zeros is 48 + 1 / 49 = 48.02. Constant values have no kurtosis, and get the most,
    49."""
    numbers = numpy.random.default_rng(0).normal(size=(2_000, 50))
    assert degrees_of_freedom(numbers).mean() == pytest.approx(47, abs=2)
    outlier = numpy.zeros(50)
    outlier[0] = 1
    assert degrees_of_freedom(outlier) == pytest.approx(2 * 50 / (48.02 - 47 / 49), rel=0.01)
    assert degrees_of_freedom(numpy.ones(50)) == 49


@pytest.mark.parametrize(
    ("prob", "degrees", "quantile"),
    [(0.975, 1, 12.7062), (0.975, 2.5, 3.57465), (0.975, 29, 2.04523), (0.995, 10, 3.16927)],
)
def test_quantiles_of_student(prob: float, degrees: float, quantile: float) -> None:
    """The expected quantiles are SciPy's."""
    assert student_quantile(prob, numpy.asarray([degrees]))[0] == pytest.approx(quantile, rel=1e-4)
