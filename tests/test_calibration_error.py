"""Calibration error and reliability, counted by hand."""

import numpy
import pytest

from spacy_costner.metrics.calibration import calibration_error, reliability

PROBS = numpy.asarray([0.0, 0.3, 0.35, 0.95, 1.0])
RIGHT = numpy.asarray([False, True, False, True, True])


def test_reliability_by_hand() -> None:
    rows = reliability(PROBS, RIGHT, n_bins=4)
    assert [(row["from"], row["to"], row["n"]) for row in rows] == [
        (0.0, 0.25, 1),
        (0.25, 0.5, 2),
        (0.5, 0.75, 0),
        (0.75, 1.0, 2),
    ]
    assert [row["confidence"] for row in rows] == [0.0, pytest.approx(0.325), None, 0.975]
    assert [row["right"] for row in rows] == [0.0, 0.5, None, 1.0]


def test_calibration_error_by_hand() -> None:
    expected = (1 * 0.0 + 2 * abs(0.325 - 0.5) + 2 * abs(0.975 - 1)) / 5
    assert calibration_error(PROBS, RIGHT, n_bins=4) == pytest.approx(expected)
    assert calibration_error(PROBS, RIGHT, n_bins=1) == pytest.approx(abs(0.52 - 0.6))


def test_answers_that_are_as_often_right_as_they_say_have_no_error() -> None:
    rng = numpy.random.default_rng(0)
    probs = rng.uniform(size=200_000)
    assert calibration_error(probs, rng.uniform(size=len(probs)) < probs) < 0.01
    assert calibration_error(probs, rng.uniform(size=len(probs)) < probs**3) > 0.1
