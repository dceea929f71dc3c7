"""Forecast a learning curve: how good a model will be with more training texts, with an interval.

A score is a share, such as F, precision or recall. Its curve is a Gaussian process of the log odds
of the score over x = log2(n / n_1), where n is the number of training texts, and n_1 the lowest
number with a measured score:

    log odds(x) = level + slope x + roughness W(x)

The slope is normal, as slopes of other corpora are. W is integrated Brownian motion: by chance, the
slope changes little by little. So the forecast goes on with the present slope, and becomes less
sure with each doubling. A measured score has two errors: held-out texts are a sample, the same for
all points of the curve, and so are training texts. The variance of the first is estimated from the
texts, that of the second is `noise` divided by the number of entities in the training texts.

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
"""The standard deviation of the level: nearly all scores are possible."""

SMOOTHING = 0.5
"""Added to the numbers of right and wrong, so that log odds of 0 and 1 are finite."""

MAX_TIMES = 16
"""The largest number of texts that is searched, as a multiple of the present number."""

POINTS_PER_DOUBLING = 64
"""The number of places on the curve at which a score is searched, for each doubling."""


class CurvePrior(NamedTuple):
    """What is known about learning curves before one is measured, for log odds and doublings.

    slope (float), slope_sd (float): The mean and the standard deviation of the slope.
    roughness (float): The standard deviation of the change of the slope in a doubling.
    noise (float): The variance of the error that comes from the choice of the training texts, if
        these have one entity.
    """

    slope: float
    slope_sd: float
    roughness: float
    noise: float


PRIOR = CurvePrior(slope=0.22, slope_sd=0.1, roughness=0.04, noise=2.0)
"""The prior of named entities: fitted to the curves and truths of benchmarks/forecast.py, of all
labels and of each label, and rounded. As these are four corpora only, the slope varies a little
more than it does there."""


class ScoreCounts(NamedTuple):
    """The counts of a score: it is 1 - wrong / total. The rows are the measured points of the
    curve, the columns the held-out texts. Shapes: (P, U)"""

    wrong: Floats2d
    total: Floats2d

    @classmethod
    def of_f(cls, counts: Floats3d) -> "ScoreCounts":
        """The counts of F, (fp + fn) / (2 tp + fp + fn). Shape of tp, fp and fn: (P, U, 3)"""
        tp, fp, fn = numpy.moveaxis(counts, -1, 0)
        return cls(fp + fn, 2 * tp + fp + fn)

    @classmethod
    def of_precision(cls, counts: Floats3d) -> "ScoreCounts":
        """The counts of precision, fp / (tp + fp). Shape of tp, fp and fn: (P, U, 3)"""
        tp, fp, _ = numpy.moveaxis(counts, -1, 0)
        return cls(fp, tp + fp)

    @classmethod
    def of_recall(cls, counts: Floats3d) -> "ScoreCounts":
        """The counts of recall, fn / (tp + fn). Shape of tp, fp and fn: (P, U, 3)"""
        tp, _, fn = numpy.moveaxis(counts, -1, 0)
        return cls(fn, tp + fn)

    def scores(self) -> Floats1d:
        """The measured scores. A score of nothing is 0. Shape: (P,)"""
        total = self.total.sum(axis=1)
        return (total - self.wrong.sum(axis=1)) / numpy.where(total == 0, 1, total)

    def log_odds(self) -> Floats1d:
        """The log odds of the scores, smoothed. Shape: (P,)"""
        wrong = self.wrong.sum(axis=1)
        right = self.total.sum(axis=1) - wrong
        return numpy.log((right + SMOOTHING) / (wrong + SMOOTHING))

    def covariance(self) -> Floats2d:
        """The covariance of the log odds at the points of the curve, as other held-out texts have
        others. It is that of the infinitesimal jackknife, which the bootstrap over texts
        approximates. Shape: (P, P)

        Efron & Tibshirani (1993), "An Introduction to the Bootstrap", section 21.4."""
        # What is added by `SMOOTHING` counts as two more texts, one of them right, one wrong.
        added = numpy.full((len(self.total), 1), SMOOTHING)
        right = numpy.hstack([self.total - self.wrong, added, 0 * added])
        wrong = numpy.hstack([self.wrong, 0 * added, added])
        # How much a text moves the log odds if it has more weight. Shape: (P, U + 2)
        influence = right / right.sum(axis=1, keepdims=True)
        influence -= wrong / wrong.sum(axis=1, keepdims=True)
        n_texts = influence.shape[1]
        return influence @ influence.T * (n_texts / max(n_texts - 1, 1))


class ForecastScores(NamedTuple):
    """Scores, and their intervals. Shapes: (n,)"""

    value: Floats1d
    low: Floats1d
    high: Floats1d


class TextsNeeded(NamedTuple):
    """How many training texts a score takes. None: more than `MAX_TIMES` times as many as there
    are.

    value (float | None): The number of texts where the curve has the score.
    low (float | None), high (float | None): The numbers of texts where the upper and the lower end
        of the interval have the score.
    """

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FittedCurve:
    """A learning curve that was fitted to measured scores: see `fit_curve`.

    n_texts (Floats1d): The numbers of training texts that were measured. Shape: (P,)
    weights (Floats1d): The solution of the linear system of the process. Shape: (P,)
    precision (Floats2d): The inverse of the covariance of what was measured. Shape: (P, P)
    entities_per_text (float): The mean number of entities in a text.
    prior (CurvePrior): The prior.
    """

    n_texts: Floats1d
    weights: Floats1d
    precision: Floats2d
    entities_per_text: float
    prior: CurvePrior

    def forecast(self, n_texts: Floats1d, *, confidence: float = CONFIDENCE) -> ForecastScores:
        """Forecast the score of a model that is trained on more texts. The interval is for one
        such model, scored on very many texts like these.

        n_texts (Floats1d): The numbers of texts, at least the lowest measured one. Shape: (n,)
        confidence (float): The probability that an interval contains the score.
        RETURNS (ForecastScores): The scores with their intervals. Shapes: (n,)
        """
        x = numpy.log2(numpy.asarray(n_texts) / self.n_texts[0])
        measured_x = numpy.log2(self.n_texts / self.n_texts[0])
        covariance = kernel(x, measured_x, self.prior)  # (n, P)
        log_odds = self.prior.slope * x + covariance @ self.weights

        # The measured scores explain a part of the variance of the curve. A single model varies
        # around the curve, too.
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
        """Find how many training texts a score takes.

        score (float): The score.
        n_now (int): The number of texts that there are. Smaller numbers aren't searched.
        confidence (float): The probability of the interval.
        RETURNS (TextsNeeded): The number of texts. It is `n_now` if these are enough.
        """
        n_points = int(numpy.log2(MAX_TIMES) * POINTS_PER_DOUBLING) + 1
        n_texts = numpy.geomspace(n_now, MAX_TIMES * n_now, n_points)
        curve = self.forecast(n_texts, confidence=confidence)

        def first_reaching(scores: Floats1d) -> float | None:
            """The lowest number of texts where the curve of the scores has the score."""
            reached = numpy.flatnonzero(scores >= score)
            return float(n_texts[reached[0]]) if len(reached) else None

        return TextsNeeded(
            first_reaching(curve.value), first_reaching(curve.high), first_reaching(curve.low)
        )


def fit_curve(
    n_texts: Floats1d, score: ScoreCounts, entities_per_text: float, prior: CurvePrior = PRIOR
) -> FittedCurve:
    """Fit a learning curve to the scores of models of several sizes.

    n_texts (Floats1d): The numbers of training texts, ascending. Shape: (P,)
    score (ScoreCounts): The counts of the score. Shapes: (P, U)
    entities_per_text (float): The mean number of entities in a text.
    prior (CurvePrior): The prior.
    RETURNS (FittedCurve): The curve.
    """
    x = numpy.log2(n_texts / n_texts[0])
    noise = training_noise(n_texts, entities_per_text, prior)
    # The curve varies, and so do the held-out and the training texts.
    covariance = kernel(x, x, prior) + score.covariance() + numpy.diag(noise)
    precision = numpy.linalg.inv(covariance)
    residuals = score.log_odds() - prior.slope * x
    weights = precision @ residuals
    return FittedCurve(n_texts, weights, precision, entities_per_text, prior)


def expect_with_more(score: float, n_texts: int, n_more: int, prior: CurvePrior = PRIOR) -> float:
    """Expect the score of a model with more training texts from its score alone: its log odds grow
    with the mean slope of the prior.

    score (float): The score. One of 0 or 1 stays the same.
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
    """The covariance of the log odds at x and other x, doublings from the lowest number: of the
    level, of the slope, and of integrated Brownian motion. Shape: (x, other x)"""
    lower = numpy.minimum(x[:, None], other_x)
    higher = numpy.maximum(x[:, None], other_x)
    motion = lower**2 * (3 * higher - lower) / 6
    slopes = prior.slope_sd**2 * lower * higher
    return LEVEL_SD**2 + slopes + prior.roughness**2 * motion


def training_noise(n_texts: Floats1d, entities_per_text: float, prior: CurvePrior) -> Floats1d:
    """The variance of the log odds from the choice of the training texts. Shape: (n,)"""
    return prior.noise / numpy.maximum(entities_per_text * numpy.asarray(n_texts), 1)
