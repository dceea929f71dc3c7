"""F, calibration and p-values by hand; the bootstrap against the obvious loop."""

import math
from typing import Any

import numpy
import pytest

from spacy_costner.metrics import (
    Difference,
    bootstrap,
    bootstrap_intervals,
    difference,
    f_beta,
    f_score,
    paired_differences,
    precision,
    recall,
)
from spacy_costner.metrics.calibration import calibration_error, reliability

COUNTS = numpy.random.default_rng(0).integers(5, size=(7, 3)).astype("float64")
"""Of seven docs three counts, such as true positives."""


def test_samples_are_sums_over_docs_drawn_with_replacement() -> None:
    sums = bootstrap(COUNTS, n_samples=20, seed=3)

    drawn_docs = numpy.random.default_rng(3).integers(len(COUNTS), size=(20, len(COUNTS)))
    for sample, docs in zip(sums, drawn_docs):
        assert sample.tolist() == sum(COUNTS[doc] for doc in docs).tolist()


def test_all_counts_of_a_sample_are_of_the_same_docs() -> None:
    """Of two counts that differ by 1 in each of the seven docs, the sums differ by 7."""
    one_apart = numpy.stack([COUNTS[:, 0], COUNTS[:, 0] + 1], axis=1)

    sums = bootstrap(one_apart, n_samples=50)

    assert set(sums[:, 1] - sums[:, 0]) == {7}


def test_p_is_twice_the_share_of_samples_on_the_other_side_of_0() -> None:
    """Two of 99 samples are 0 or below. The difference itself counts as a sample on that side."""
    sampled = numpy.asarray([-1.0, 0.0, *[1.0] * 97])

    assert difference(1.0, sampled).p == pytest.approx(2 * (1 + 2) / (1 + 99))
    assert difference(-1.0, -sampled).p == difference(1.0, sampled).p
    assert difference(1.0, numpy.ones(99)).p == pytest.approx(2 * (1 + 0) / (1 + 99))


def test_no_difference_has_p_1() -> None:
    value, low, high, p = difference(0.0, numpy.zeros(99))

    assert (value, low, high, p) == (0.0, 0.0, 0.0, 1.0)


def test_the_interval_has_the_middle_95_percent_of_samples() -> None:
    value, low, high, _ = difference(0.5, numpy.linspace(0, 1, 1001))

    assert (value, low, high) == pytest.approx((0.5, 0.025, 0.975))


def test_f_score_of_arrays_is_computed_for_each_entry() -> None:
    """3 right, 3 false alarms, 1 miss: 2 * 3 / (2 * 3 + 3 + 1). Without true positives it is 0."""
    tp, fp, fn = numpy.asarray([[3, 0, 0], [3, 0, 2], [1, 0, 0]])

    assert f_score(tp, fp, fn).tolist() == [0.6, 0, 0]


@pytest.mark.parametrize("beta", [0.5, 1, 2])
def test_f_beta_is_the_weighted_harmonic_mean_of_precision_and_recall(beta: float) -> None:
    """3 right, 3 false alarms, 1 miss."""
    p = precision(3, 3)
    r = recall(3, 1)
    assert (p, r) == (0.5, 0.75)

    expected = (1 + beta**2) * p * r / (beta**2 * p + r)
    assert f_score(3, 3, 1, beta) == pytest.approx(expected)
    assert f_beta(p, r, beta) == pytest.approx(expected)


def test_precision_and_f_of_nothing_are_0() -> None:
    assert precision(0, 0) == 0
    assert f_beta(0.0, 0.0) == 0


GOOD_DOCS = numpy.full((60, 3), [1, 0, 0])
BAD_DOCS = numpy.full((60, 3), [0, 1, 1])
THREE_SYSTEMS = numpy.asarray(
    [[GOOD_DOCS, BAD_DOCS], [BAD_DOCS, GOOD_DOCS], [GOOD_DOCS, GOOD_DOCS]]
)
"""Of three systems, trained with two seeds each, the counts tp, fp and fn of 60 docs. The first two
have F 1 with a seed and 0 with the other, the third F 1 with both."""


def f_and_false_positives(sums: numpy.ndarray) -> numpy.ndarray:
    """Two scores of sums of counts, whose last axis has tp, fp and fn. Shape: (2, ...)"""
    tp, fp, fn = numpy.moveaxis(sums, -1, 0)
    return numpy.stack([f_score(tp, fp, fn), fp])


def test_mean_scores_of_seeds_are_compared() -> None:
    """With the first system: what one seed wins and the other loses is no difference. The third has
    a mean F of 1 in place of 0.5, and 0 false positives in place of a mean of 30. Of 100 samples
    none is on the other side of 0: p = 2 (1 + 0) / (1 + 100)."""
    f, fp = paired_differences(THREE_SYSTEMS, f_and_false_positives, n_samples=100)

    assert [difference.value for difference in f] == [0, 0, 0.5]
    assert [difference.p for difference in f] == [1, 1, 2 / 101]
    assert [difference.value for difference in fp] == [0, 0, -30]


def test_systems_are_compared_with_the_baseline_given() -> None:
    """The third system, which has a mean F of 1; the first two have 0.5, in each sample, too: all
    docs are alike. Of 100 samples none is on the other side of 0: p = 2 (1 + 0) / (1 + 100)."""
    f, _ = paired_differences(THREE_SYSTEMS, f_and_false_positives, baseline=2, n_samples=100)

    worse = Difference(value=-0.5, low=-0.5, high=-0.5, p=2 / 101)
    same = Difference(value=0, low=0, high=0, p=1)
    assert f == [worse, worse, same]


def test_the_spread_over_seeds_makes_differences_less_sure() -> None:
    """All docs are alike, so that samples of docs don't differ. The difference is 1/3 +- 1/3 with
    three seeds, of which the standard error is 1/3: t = 1 with two degrees of freedom, for which
    p = 1 - 1 / sqrt(3) = .42."""
    good, bad = numpy.full((60, 3), [1, 0, 0]), numpy.full((60, 3), [0, 1, 1])
    counts = numpy.asarray([[bad, bad, bad], [good, bad, bad]])

    def compare(**settings: Any) -> Difference:
        (_, difference), _ = paired_differences(counts, f_and_false_positives, **settings)
        return difference

    assert compare(n_samples=100).p == 2 / 101
    difference = compare(with_seeds=True)
    assert difference.value == pytest.approx(1 / 3)
    assert difference.p == pytest.approx(1 - 1 / math.sqrt(3), abs=0.02)
    quantile = 4.303  # 2.5 % of Student's t with two degrees of freedom are above it
    assert difference.high == pytest.approx(1 / 3 + quantile / 3, rel=0.1)
    assert difference.low == pytest.approx(1 / 3 - quantile / 3, rel=0.1)


def test_differences_of_seeds_alone_are_seldom_significant() -> None:
    """Under the null with a deviation of .05 of recall over three seeds, in 50 comparisons. Of
    docs alone, p is below .05 in more than a quarter of them."""
    rng = numpy.random.default_rng(0)
    n_below = {False: 0, True: 0}
    for _ in range(50):
        recalls = rng.normal(0.8, 0.05, size=(2, 3, 1))
        tp = rng.binomial(3, recalls, size=(2, 3, 60))
        counts = numpy.stack([tp, 3 - tp, 3 - tp], axis=-1)
        for with_seeds in n_below:
            (_, difference), _ = paired_differences(
                counts, f_and_false_positives, n_samples=100, with_seeds=with_seeds
            )
            n_below[with_seeds] += difference.p < 0.05
    assert n_below[False] > 12
    assert n_below[True] <= 5


PROBS = numpy.asarray([0.0, 0.3, 0.35, 0.95, 1.0])
RIGHT = numpy.asarray([False, True, False, True, True])
"""Of five predictions the probability, and whether they are right."""


def test_reliability_has_mean_probability_and_share_of_right_ones_of_each_bin() -> None:
    rows = reliability(PROBS, RIGHT, n_bins=4)

    assert [row["from"] for row in rows] == [0.0, 0.25, 0.5, 0.75]
    assert [row["to"] for row in rows] == [0.25, 0.5, 0.75, 1.0]
    assert [row["n"] for row in rows] == [1, 2, 0, 2]
    assert [row["confidence"] for row in rows] == [0.0, pytest.approx(0.325), None, 0.975]
    assert [row["right"] for row in rows] == [0.0, 0.5, None, 1.0]


def test_calibration_error_is_the_mean_gap_of_bins_weighted_by_their_size() -> None:
    """The gap of a bin is the distance of the mean probability from the share of right predictions.
    The four bins have 1, 2, 0 and 2 predictions."""
    gap_of_first_bin = abs(0.0 - 0 / 1)
    gap_of_second_bin = abs((0.3 + 0.35) / 2 - 1 / 2)
    gap_of_last_bin = abs((0.95 + 1.0) / 2 - 2 / 2)
    error_of_four_bins = (1 * gap_of_first_bin + 2 * gap_of_second_bin + 2 * gap_of_last_bin) / 5
    error_of_one_bin = abs((0.0 + 0.3 + 0.35 + 0.95 + 1.0) / 5 - 3 / 5)

    assert calibration_error(PROBS, RIGHT, n_bins=4) == pytest.approx(error_of_four_bins)
    assert calibration_error(PROBS, RIGHT, n_bins=1) == pytest.approx(error_of_one_bin)


def test_intervals_have_the_scores_of_the_middle_samples() -> None:
    """By a loop over samples of docs. Docs that are all the same leave no doubt."""
    rng = numpy.random.default_rng(0)
    counts = rng.poisson([5, 2, 1], size=(60, 3)).astype("float64")
    sampled: list[tuple[float, float, float]] = []
    for _ in range(4_000):
        tp, fp, fn = counts[rng.integers(60, size=60)].sum(axis=0)
        sampled.append((tp / (tp + fp), tp / (tp + fn), 2 * tp / (2 * tp + fp + fn)))
    for interval, column in zip(bootstrap_intervals(counts), zip(*sampled)):
        assert interval == pytest.approx(numpy.percentile(column, [2.5, 97.5]), abs=0.005)
    # 3 right, 1 false alarm and no miss in each doc
    same = bootstrap_intervals(numpy.tile([3.0, 1.0, 0.0], (60, 1)))
    assert same.precision == pytest.approx((0.75, 0.75))
    assert same.recall == pytest.approx((1.0, 1.0))
