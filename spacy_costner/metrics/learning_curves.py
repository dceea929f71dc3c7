"""Forecasts of learning curves: the expected score with more training texts, and its interval.

A score is a proportion, e.g. F-score, precision or recall. Its learning curve is modeled by a
Gaussian process for the log odds of the score over x = log2(n / n_1), where n is the number of
training texts and n_1 the smallest n with a measured score:

    log odds(x) = level + slope x + roughness W(x)

The slope has a normal prior based on other corpora. W is integrated Brownian motion, so the slope
can vary slowly. The forecast therefore continues with the current slope and becomes less certain
with each doubling. Measured scores have two sources of error: the sample of held-out texts, which
is shared by all points of the curve, and the sample of training texts. The variance of the first
error is estimated from the texts. The variance of the second error is `noise` divided by the number
of entities in the training texts.

Rasmussen & Williams (2006), "Gaussian Processes for Machine Learning", sections 2.2, 2.7 and 6.3.
"""

from dataclasses import dataclass
from math import log, log2
from statistics import NormalDist
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, Floats3d

from .scores import logistic

CONFIDENCE = 0.9
"""The probability that an interval contains the score."""

LEVEL_SD = 3.0
"""The prior standard deviation of the level. It is large enough to allow nearly all scores."""

SMOOTHING = 0.5
"""Added to the right and wrong counts, so that scores of 0 and 1 have finite log odds."""

MAX_TIMES = 16
"""The largest number of texts considered, as a multiple of the current number."""

POINTS_PER_DOUBLING = 64
"""The number of points per doubling at which the curve is evaluated to find a score."""


class CurvePrior(NamedTuple):
    """The prior of a learning curve, for log odds as a function of doublings.

    slope (float), slope_sd (float): The mean and standard deviation of the slope.
    roughness (float): The standard deviation of the change in the slope per doubling.
    noise (float): The variance caused by the choice of training texts, if the texts contain a
        single entity.
    """

    slope: float
    slope_sd: float
    roughness: float
    noise: float


PRIOR = CurvePrior(slope=0.22, slope_sd=0.1, roughness=0.04, noise=2.0)
"""The prior for named entities: rounded values, fitted to the overall and per-label curves and true
scores of benchmarks/forecast.py. The standard deviation of the slope was increased a little,
because there are only four corpora."""


class ScoreCounts(NamedTuple):
    """The counts that define a score as 1 - wrong / total. Rows are the measured points of the
    curve, columns the held-out texts. Shapes: (P, U)"""

    wrong: Floats2d
    total: Floats2d

    @classmethod
    def of_f(cls, counts: Floats3d) -> "ScoreCounts":
        """Create the counts of the F-score, (fp + fn) / (2 tp + fp + fn), from tp, fp and fn.
        Shape: (P, U, 3)"""
        tp, fp, fn = numpy.moveaxis(counts, -1, 0)
        return cls(fp + fn, 2 * tp + fp + fn)

    @classmethod
    def of_precision(cls, counts: Floats3d) -> "ScoreCounts":
        """Create the counts of precision, fp / (tp + fp), from tp, fp and fn. Shape: (P, U, 3)"""
        tp, fp, _ = numpy.moveaxis(counts, -1, 0)
        return cls(fp, tp + fp)

    @classmethod
    def of_recall(cls, counts: Floats3d) -> "ScoreCounts":
        """Create the counts of recall, fn / (tp + fn), from tp, fp and fn. Shape: (P, U, 3)"""
        tp, _, fn = numpy.moveaxis(counts, -1, 0)
        return cls(fn, tp + fn)

    def scores(self) -> Floats1d:
        """Return the measured scores. A score is 0 if the total is 0. Shape: (P,)"""
        total = self.total.sum(axis=1)
        return (total - self.wrong.sum(axis=1)) / numpy.where(total == 0, 1, total)

    def log_odds(self) -> Floats1d:
        """Return the smoothed log odds of the scores. Shape: (P,)"""
        wrong = self.wrong.sum(axis=1)
        right = self.total.sum(axis=1) - wrong
        return numpy.log((right + SMOOTHING) / (wrong + SMOOTHING))

    def covariance(self) -> Floats2d:
        """Compute the covariance of the log odds at the points of the curve, due to the choice of
        held-out texts, using the infinitesimal jackknife. The bootstrap over texts would give
        approximately the same result. Shape: (P, P)

        Efron & Tibshirani (1993), "An Introduction to the Bootstrap", section 21.4."""
        # Treat the counts added by `SMOOTHING` as two additional texts: one right, one wrong.
        added = numpy.full((len(self.total), 1), SMOOTHING)
        right = numpy.hstack([self.total - self.wrong, added, 0 * added])
        wrong = numpy.hstack([self.wrong, 0 * added, added])
        # The change in log odds per unit of weight added to a text. Shape: (P, U + 2)
        influence = right / right.sum(axis=1, keepdims=True)
        influence -= wrong / wrong.sum(axis=1, keepdims=True)
        n_texts = influence.shape[1]
        return influence @ influence.T * (n_texts / max(n_texts - 1, 1))


class ForecastScores(NamedTuple):
    """Scores and their intervals. Shapes: (n,)"""

    value: Floats1d
    low: Floats1d
    high: Floats1d


class TextsNeeded(NamedTuple):
    """The number of training texts needed to reach a score. None if it is more than `MAX_TIMES`
    times the current number.

    value (float | None): The number of texts at which the curve reaches the score.
    low (float | None), high (float | None): The numbers of texts at which the upper and the lower
        bound of the interval reach the score.
    """

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FittedCurve:
    """A learning curve fitted to measured scores. See `fit_curve`.

    n_texts (Floats1d): The measured numbers of training texts. Shape: (P,)
    weights (Floats1d): The inverse covariance times the residuals of the log odds. Shape: (P,)
    precision (Floats2d): The inverse covariance of the measured values. Shape: (P, P)
    entities_per_text (float): The mean number of entities per text.
    prior (CurvePrior): The prior.
    """

    n_texts: Floats1d
    weights: Floats1d
    precision: Floats2d
    entities_per_text: float
    prior: CurvePrior

    def forecast(self, n_texts: Floats1d, *, confidence: float = CONFIDENCE) -> ForecastScores:
        """Forecast the score of a model trained on more texts. The interval is for the score of a
        single model, evaluated on a very large number of similar texts.

        n_texts (Floats1d): The numbers of texts. They must not be less than the smallest measured
            number. Shape: (n,)
        confidence (float): The probability that an interval contains the score.
        RETURNS (ForecastScores): The scores with their intervals. Shapes: (n,)
        """
        x = numpy.log2(numpy.asarray(n_texts) / self.n_texts[0])
        measured_x = numpy.log2(self.n_texts / self.n_texts[0])
        covariance = kernel(x, measured_x, self.prior)  # (n, P)
        log_odds = self.prior.slope * x + covariance @ self.weights

        # The measured scores explain part of the variance of the curve. In addition, a single model
        # varies around the curve.
        curve_variance = numpy.diag(kernel(x, x, self.prior))
        explained = ((covariance @ self.precision) * covariance).sum(axis=1)
        noise = training_noise(n_texts, self.entities_per_text, self.prior)
        standard_deviation = numpy.sqrt(curve_variance - explained + noise)

        margin = NormalDist().inv_cdf((1 + confidence) / 2) * standard_deviation
        return ForecastScores(
            value=logistic(log_odds),
            low=logistic(log_odds - margin),
            high=logistic(log_odds + margin),
        )

    def find_n_texts(
        self, score: float, n_now: int, *, confidence: float = CONFIDENCE
    ) -> TextsNeeded:
        """Find the number of training texts needed to reach a score.

        score (float): The score.
        n_now (int): The current number of texts, which is the smallest number considered.
        confidence (float): The probability that an interval contains the score.
        RETURNS (TextsNeeded): The number of texts, or `n_now` if it is already sufficient.
        """
        n_points = int(numpy.log2(MAX_TIMES) * POINTS_PER_DOUBLING) + 1
        n_texts = numpy.geomspace(n_now, MAX_TIMES * n_now, n_points)
        curve = self.forecast(n_texts, confidence=confidence)

        def first_reaching(scores: Floats1d) -> float | None:
            """Return the smallest number of texts at which a curve reaches the score."""
            reached = numpy.flatnonzero(scores >= score)
            return float(n_texts[reached[0]]) if len(reached) else None

        return TextsNeeded(
            first_reaching(curve.value), first_reaching(curve.high), first_reaching(curve.low)
        )


def fit_curve(
    n_texts: Floats1d, score: ScoreCounts, entities_per_text: float, prior: CurvePrior = PRIOR
) -> FittedCurve:
    """Fit a learning curve to the scores of models trained on different numbers of texts.

    n_texts (Floats1d): The numbers of training texts in ascending order. Shape: (P,)
    score (ScoreCounts): The counts of the score. Shapes: (P, U)
    entities_per_text (float): The mean number of entities per text.
    prior (CurvePrior): The prior.
    RETURNS (FittedCurve): The fitted curve.
    """
    x = numpy.log2(n_texts / n_texts[0])
    noise = training_noise(n_texts, entities_per_text, prior)
    # The sum of the covariances due to the curve, the held-out texts and the training texts.
    covariance = kernel(x, x, prior) + score.covariance() + numpy.diag(noise)
    precision = numpy.linalg.inv(covariance)
    residuals = score.log_odds() - prior.slope * x
    weights = precision @ residuals
    return FittedCurve(n_texts, weights, precision, entities_per_text, prior)


def expect_with_more(score: float, n_texts: int, n_more: int, prior: CurvePrior = PRIOR) -> float:
    """Estimate how high a model's score would be with more training texts, given its current score.
    The log odds are assumed to grow with the mean slope of the prior.

    score (float): The current score. A score of 0 or 1 stays the same.
    n_texts (int): The number of training texts.
    n_more (int): The number of additional texts.
    RETURNS (float): The expected score.
    """
    if not 0 < score < 1:
        return score
    doublings = log2((n_texts + n_more) / n_texts)
    log_odds = log(score / (1 - score)) + prior.slope * doublings
    return float(logistic(log_odds))


def kernel(x: Floats1d, other_x: Floats1d, prior: CurvePrior) -> Floats2d:
    """Compute the prior covariance of the log odds at `x` and `other_x`, which are numbers of
    doublings. It is the sum of the covariances of the level, the slope and the integrated Brownian
    motion. Shape: (x, other x)"""
    lower = numpy.minimum(x[:, None], other_x)
    higher = numpy.maximum(x[:, None], other_x)
    motion = lower**2 * (3 * higher - lower) / 6
    slopes = prior.slope_sd**2 * lower * higher
    return LEVEL_SD**2 + slopes + prior.roughness**2 * motion


def training_noise(n_texts: Floats1d, entities_per_text: float, prior: CurvePrior) -> Floats1d:
    """Compute the variance of the log odds caused by the choice of training texts. Shape: (n,)"""
    return prior.noise / numpy.maximum(entities_per_text * numpy.asarray(n_texts), 1)
