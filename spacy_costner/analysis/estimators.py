"""Estimate totals of a population of docs, and ratios of them, from docs that were drawn from it.

A model expects e_i of doc i, with which it may be wrong. Annotated docs say y_i. Over D docs, of
which n are drawn, doc i with the probability q_i at each drawing:

    total = sum_i e_i + (1/n) sum_{drawn} (y_i - e_i) / q_i

Its mean over all drawings is sum_i y_i, whatever the model is worth: only the drawing is random.
The better the model, the narrower the interval. With e = 0 it is the estimate of the annotated docs
alone.

Hansen & Hurwitz, 1943, "On the Theory of Sampling from Finite Populations"; Särndal, Swensson &
Wretman, 1992, "Model Assisted Survey Sampling", section 6.3 (the difference estimator);
Angelopoulos et al., 2023, "Prediction-Powered Inference", arXiv 2301.09633; Zrnic & Candès, 2024,
"Active Statistical Inference", arXiv 2403.03208.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy
from numpy.random import Generator
from thinc.types import Floats1d, FloatsXd, Ints1d

UNIFORM = 0.5
"""The part of the drawing that is uniform, so that docs of which a model is wrongly sure are drawn,
too: no doc counts more than 1 / UNIFORM times as much as in a simple random sample."""

STEPS_OF_DEGREES = 10
"""Degrees of freedom are rounded down to a tenth, so that each quantile is computed once."""

MAX_LOG_MARGIN = 100.0
"""The largest margin of a logarithm, so that its exponential doesn't overflow."""

N_ANGLES = 20_001
"""Points of the integral of Student's t."""


class Interval(NamedTuple):
    """An estimate and its confidence interval: numbers, or arrays of the same shape."""

    value: Any
    low: Any
    high: Any


class Sample(NamedTuple):
    """Docs that were drawn from D docs. The leading dimensions are of several samples, to simulate.

    probs (FloatsXd): The probability of each drawn doc at each drawing. Shape: (..., n)
    n_docs (int): D.
    with_replacement (bool): Whether a doc may be drawn twice, and then counts twice. False: a
        simple random sample, in which no doc is twice.
    """

    probs: FloatsXd
    n_docs: int
    with_replacement: bool = True

    @property
    def n_drawn(self) -> int:
        """The number of drawings, n."""
        return int(self.probs.shape[-1])

    @property
    def correction(self) -> float:
        """The finite population's correction of a variance: if all docs are drawn once, nothing is
        left to chance. 1 for draws with replacement."""
        if self.with_replacement:
            return 1.0
        return 1 - self.n_drawn / self.n_docs


@dataclass(frozen=True)
class Count:
    """What is counted in docs. Counts add up.

    annotated (FloatsXd): The count in each drawn doc, by annotation. Shape: (..., n)
    expected (FloatsXd): What the model expects of each drawn doc. Shape: (..., n)
    expected_total (float): What it expects of all docs.
    """

    annotated: FloatsXd
    expected: FloatsXd
    expected_total: float

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.annotated + other.annotated,
            self.expected + other.expected,
            self.expected_total + other.expected_total,
        )

    def without_model(self) -> "Count":
        """The same count, of which nothing is expected."""
        return Count(self.annotated, numpy.zeros_like(self.expected), 0.0)


def drawing_probs(mistakes: Floats1d) -> Floats1d:
    """The probability of each doc at each drawing: half in proportion to the mistakes that the
    model expects in the doc, half uniform.

        q_i = (1 - u) mistakes_i / sum_j mistakes_j + u / D,   u = UNIFORM

    mistakes (Floats1d): The expected number of mistakes of each doc, at least one doc. Shape: (D,)
    RETURNS (Floats1d): The probabilities, which sum to 1. Shape: (D,)

    Zrnic & Candès, 2024, section 3: the best probabilities are proportional to the error that is
    expected; mixed with uniform ones they are safe if that is wrong.
    """
    n_docs = len(mistakes)
    uniform = numpy.full(n_docs, 1 / n_docs)
    total = mistakes.sum()
    if total == 0:  # the model is sure of all docs
        return uniform
    return (1 - UNIFORM) * (mistakes / total) + UNIFORM * uniform


def draw_docs(probs: Floats1d, n: int, rng: Generator) -> Ints1d:
    """Draw n docs with replacement. Shapes: (D,) to (n,)

    probs (Floats1d): The probability of each doc at each drawing.
    n (int): The number of drawings.
    rng (Generator): The source of chance.
    RETURNS (Ints1d): The numbers of the docs, in the order of the drawings.
    """
    return rng.choice(len(probs), size=n, p=probs)


def estimate_total(count: Count, sample: Sample, *, confidence: float = 0.95) -> Interval:
    """Estimate the count in all docs: the first equation of this file. The estimate has no bias.

        total = mean of z_k = sum_i e_i + (y_k - e_k) / q_k over the drawings k

    The interval is that of log total, if the total is above 0.

    count (Count): The count in the drawn docs, and what the model expects.
    sample (Sample): The drawn docs, at least 2.
    confidence (float): The probability that the interval has the true count, for many docs.
    RETURNS (Interval): The estimate and its interval. Shape: (...)
    """
    scaled = _scaled_counts(count, sample)
    total = scaled.mean(axis=-1)
    margin = _margin(scaled, sample, confidence)
    # The interval of the logarithm has the margin that a small change of the total has there.
    is_positive = total > 0
    safe_total = numpy.where(is_positive, total, 1.0)
    log_margin = numpy.where(is_positive, margin / safe_total, 0.0)
    factor = numpy.exp(numpy.minimum(log_margin, MAX_LOG_MARGIN))
    low = numpy.where(is_positive, total / factor, total - margin)
    high = numpy.where(is_positive, total * factor, total + margin)
    return Interval(total, low, high)


def estimate_ratio(
    numerator: Count, denominator: Count, sample: Sample, *, confidence: float = 0.95
) -> Interval:
    """Estimate the ratio of two counts in all docs, such as the entities of a token.

        ratio = R = A / B,   variance = that of the total of (a - R b) / B

    It is linearised (Taylor), so its bias is of the order of 1 / n.

    numerator, denominator (Count): The counts. A denominator of 0 gives the ratio 0.
    sample (Sample): The drawn docs, at least 2.
    confidence (float): See `estimate_total`.
    RETURNS (Interval): The estimate and its interval. Shape: (...)

    Särndal, Swensson & Wretman, 1992, section 5.6.
    """
    value, margin = _ratio_and_margin(numerator, denominator, sample, confidence)
    return Interval(value, value - margin, value + margin)


def estimate_share(
    part: Count, whole: Count, sample: Sample, *, confidence: float = 0.95
) -> Interval:
    """Estimate a share of a count in all docs, such as a precision or F.

        share = R = A / B,   log odds = log R / (1 - R),   margin of log odds = margin / (R (1 - R))

    The estimate is that of `estimate_ratio`. The interval is that of the log odds, which stays
    between 0 and 1, and has the truth more often if few docs are drawn.

    part, whole (Count): The counts. A whole of 0 gives the share 0.
    sample (Sample): The drawn docs, at least 2.
    confidence (float): See `estimate_total`.
    RETURNS (Interval): The estimate and its interval. Shape: (...)
    """
    value, margin = _ratio_and_margin(part, whole, sample, confidence)
    # An estimate is an estimated part of an estimated whole, so it may be outside of 0 and 1, where
    # there are no log odds. Its interval is that of the ratio.
    has_odds = (value > 0) & (value < 1)
    safe_value = numpy.where(has_odds, value, 0.5)
    log_odds = numpy.log(safe_value / (1 - safe_value))
    odds_margin = margin / (safe_value * (1 - safe_value))
    odds_margin = numpy.minimum(odds_margin, MAX_LOG_MARGIN)
    low = numpy.where(has_odds, _logistic(log_odds - odds_margin), value - margin)
    high = numpy.where(has_odds, _logistic(log_odds + odds_margin), value + margin)
    return Interval(value, low, high)


def _ratio_and_margin(
    numerator: Count, denominator: Count, sample: Sample, confidence: float
) -> tuple[FloatsXd, FloatsXd]:
    """The ratio of two estimated totals, and half of its interval: see `estimate_ratio`. Shapes:
    (...)"""
    scaled_numerator = _scaled_counts(numerator, sample)
    scaled_denominator = _scaled_counts(denominator, sample)
    total = scaled_denominator.mean(axis=-1, keepdims=True)
    safe_total = numpy.where(total == 0, 1.0, total)
    ratio = scaled_numerator.mean(axis=-1, keepdims=True) / safe_total
    influences = (scaled_numerator - ratio * scaled_denominator) / safe_total
    return ratio[..., 0], _margin(influences, sample, confidence)


def _logistic(log_odds: FloatsXd) -> FloatsXd:
    """The probabilities with these log odds."""
    return 1 / (1 + numpy.exp(-log_odds))


def drawings_for_half(sample: Sample) -> int:
    """How many drawings in all an interval of half the width takes: four times as many or, without
    replacement, fewer, as the variance falls to 0 with the last doc.

        (1/m - 1/D) = (1/n - 1/D) / 4        without replacement
    """
    n = sample.n_drawn
    if sample.with_replacement:
        return 4 * n
    inverse = 1 / sample.n_docs + (1 / n - 1 / sample.n_docs) / 4
    return math.ceil(1 / inverse - 1e-9)


def most_docs_with_any(sample: Sample, *, confidence: float = 0.95) -> int:
    """The most docs that may have some label, say, if none of the drawn docs has it.

        P(no such doc is drawn) = (1 - Q)^n >= 1 - confidence,   Q = sum of q_i over these docs

    As q_i is at least UNIFORM / D, or 1 / D in a simple random sample, they are at most
    D (1 - (1 - confidence)^(1/n)) divided by UNIFORM, or by 1. Without replacement the probability
    is smaller, so the bound holds, too.
    """
    least_prob = 1 / sample.n_docs
    if sample.with_replacement:
        least_prob *= UNIFORM
    most_mass = 1 - (1 - confidence) ** (1 / sample.n_drawn)
    return min(int(most_mass / least_prob), sample.n_docs)


def _scaled_counts(count: Count, sample: Sample) -> FloatsXd:
    """What each drawing says of the count in all docs: its mean is the estimate. Shape: (..., n)"""
    return count.expected_total + (count.annotated - count.expected) / sample.probs


def _margin(influences: FloatsXd, sample: Sample, confidence: float) -> FloatsXd:
    """Half of the confidence interval of a mean. Shapes: (..., n) to (...)"""
    quantile = student_quantile((1 + confidence) / 2, degrees_of_freedom(influences))
    return quantile * numpy.sqrt(variance_of_mean(influences, sample))


def variance_of_mean(influences: FloatsXd, sample: Sample) -> FloatsXd:
    """Estimate the variance of a mean over drawings, without bias.

        f s^2 / n,   f = 1, or 1 - n / D without replacement

    influences (FloatsXd): What is averaged. Shape: (..., n)
    sample (Sample): The drawn docs, at least 2.
    RETURNS (FloatsXd): The variance. Shape: (...)
    """
    return sample.correction * influences.var(axis=-1, ddof=1) / sample.n_drawn


def degrees_of_freedom(influences: FloatsXd) -> FloatsXd:
    """The degrees of freedom of an estimated variance, at most n - 1.

        2 n / (kurtosis - (n - 3) / (n - 1))

    If a few docs have most of the error, the variance isn't known as well as that of n normal
    numbers, which have a kurtosis of 3.

    influences (FloatsXd): The numbers whose variance is estimated. Shape: (..., n)
    RETURNS (FloatsXd): The degrees of freedom, at least 1. Shape: (...)

    Satterthwaite, 1946, "An Approximate Distribution of Estimates of Variance Components".
    """
    n = influences.shape[-1]
    deviations = influences - influences.mean(axis=-1, keepdims=True)
    squares = (deviations**2).mean(axis=-1)
    fourths = (deviations**4).mean(axis=-1)
    is_constant = squares == 0
    kurtosis = fourths / numpy.where(is_constant, 1.0, squares) ** 2
    # The kurtosis is at least 1, so the divisor is positive. Constant numbers have none.
    divisor = numpy.where(is_constant, 1.0, kurtosis - (n - 3) / (n - 1))
    return numpy.clip(2 * n / divisor, 1, n - 1)


def student_quantile(prob: float, degrees: FloatsXd) -> FloatsXd:
    """The quantile of Student's t, for a probability of at least one half.

    prob (float): The probability.
    degrees (FloatsXd): Degrees of freedom, at least 1. They are rounded down to a tenth.
    RETURNS (FloatsXd): The quantiles, of the same shape.
    """
    steps = numpy.floor(numpy.asarray(degrees) * STEPS_OF_DEGREES).astype("int64")
    # Each distinct number of degrees is looked up once.
    distinct, index_in_distinct = numpy.unique(steps, return_inverse=True)
    quantiles = [_student_quantile(prob, step / STEPS_OF_DEGREES) for step in distinct.tolist()]
    return numpy.asarray(quantiles)[index_in_distinct].reshape(steps.shape)


@cache
def _student_quantile(prob: float, degrees: float) -> float:
    """The quantile of Student's t. With t = sqrt(v) tan a, its density is that of cos(a)^(v - 1),
    from 0 to a right angle, which is integrated by Simpson's rule."""
    angles = numpy.linspace(0, math.pi / 2, N_ANGLES)
    density = numpy.maximum(numpy.cos(angles), 0.0) ** (degrees - 1)
    # The integral from 0 to each second point, by the three points of each step. (N_ANGLES // 2,)
    steps = (density[:-2:2] + 4 * density[1:-1:2] + density[2::2]) / 6
    integral = numpy.append(0.0, numpy.cumsum(steps))
    half_probs = integral / integral[-1] / 2  # P(0 < T < t) for each second angle
    angle = numpy.interp(prob - 0.5, half_probs, angles[::2])
    return math.sqrt(degrees) * math.tan(angle)
