"""F, calibration and p-values by hand; the bootstrap against the obvious loop."""

import numpy
import pytest

from spacy_costner.metrics import (
    bootstrap,
    difference,
    f_beta,
    f_score,
    paired_differences,
    precision,
    recall,
)
from spacy_costner.metrics.calibration import calibration_error, reliability

COUNTS = numpy.random.default_rng(0).integers(5, size=(7, 3)).astype("float64")


def test_samples_are_sums_over_docs_drawn_with_replacement() -> None:
    sums = bootstrap(COUNTS, n_samples=20, seed=3)
    drawn = numpy.random.default_rng(3).integers(len(COUNTS), size=(20, len(COUNTS)))
    for sample, docs in zip(sums, drawn):
        assert sample.tolist() == sum(COUNTS[doc] for doc in docs).tolist()
    paired = bootstrap(numpy.stack([COUNTS[:, 0], COUNTS[:, 0] + 1], axis=1), n_samples=50)
    assert set(paired[:, 1] - paired[:, 0]) == {len(COUNTS)}


def test_p_and_interval_by_hand() -> None:
    sampled = numpy.asarray([-1.0, 0.0, *[1.0] * 97])
    assert difference(1.0, sampled).p == pytest.approx(2 * (1 + 2) / (1 + 99))
    assert difference(-1.0, -sampled).p == difference(1.0, sampled).p
    assert difference(1.0, numpy.ones(99)).p == pytest.approx(2 / 100)
    assert difference(0.0, numpy.zeros(99)) == (0.0, 0.0, 0.0, 1.0)
    value, low, high, _ = difference(0.5, numpy.linspace(0, 1, 1001))
    assert (value, low, high) == pytest.approx((0.5, 0.025, 0.975))


def test_f_by_hand() -> None:
    tp, fp, fn = numpy.asarray([[3, 0, 0], [3, 0, 2], [1, 0, 0]])
    assert f_score(tp, fp, fn).tolist() == [0.6, 0, 0]
    assert (precision(3, 3), recall(3, 1), precision(0, 0)) == (0.5, 0.75, 0)
    p, r = precision(3, 3), recall(3, 1)
    for beta in (0.5, 1, 2):
        expected = (1 + beta**2) * p * r / (beta**2 * p + r)
        assert f_score(3, 3, 1, beta) == pytest.approx(expected)
        assert f_beta(p, r, beta) == pytest.approx(expected)
    assert f_beta(0.0, 0.0) == 0


def test_mean_scores_of_seeds_are_compared() -> None:
    """What one seed wins and the other loses is no difference; each score has its own."""
    good = numpy.full((60, 3), [1, 0, 0])
    bad = numpy.full((60, 3), [0, 1, 1])
    counts = numpy.asarray([[good, bad], [bad, good], [good, good]])

    def scores(sums: numpy.ndarray) -> numpy.ndarray:
        tp, fp, fn = numpy.moveaxis(sums, -1, 0)
        return numpy.stack([f_score(tp, fp, fn), fp])

    f, fp = paired_differences(counts, scores, n_samples=100)
    assert [(difference.value, difference.p) for difference in f] == [
        (0, 1),
        (0, 1),
        (0.5, 2 / 101),
    ]
    assert [difference.value for difference in fp] == [0, 0, -30]
    assert paired_differences(counts, scores, baseline=2, n_samples=100)[0][0].value == -0.5


PROBS = numpy.asarray([0.0, 0.3, 0.35, 0.95, 1.0])
RIGHT = numpy.asarray([False, True, False, True, True])


def test_reliability_by_hand() -> None:
    rows = reliability(PROBS, RIGHT, n_bins=4)
    assert [row["from"] for row in rows] == [0.0, 0.25, 0.5, 0.75]
    assert [row["to"] for row in rows] == [0.25, 0.5, 0.75, 1.0]
    assert [row["n"] for row in rows] == [1, 2, 0, 2]
    assert [row["confidence"] for row in rows] == [0.0, pytest.approx(0.325), None, 0.975]
    assert [row["right"] for row in rows] == [0.0, 0.5, None, 1.0]


def test_calibration_error_by_hand() -> None:
    expected = (1 * 0.0 + 2 * abs(0.325 - 0.5) + 2 * abs(0.975 - 1)) / 5
    assert calibration_error(PROBS, RIGHT, n_bins=4) == pytest.approx(expected)
    assert calibration_error(PROBS, RIGHT, n_bins=1) == pytest.approx(abs(0.52 - 0.6))
