"""Estimate a total over many docs, such as the number of entities, or the ratio of two totals, from
a random sample of annotated docs.

The true count y_i of doc i is only known for sampled docs. The count e_i expected by a model may be
wrong, but is known for all D docs. There are n draws, and each of them selects doc i with
probability q_i. The estimate is the expected total, corrected by the mean error of the model on the
sampled docs:

    total = sum_i e_i + (1/n) sum_{drawn i} (y_i - e_i) / q_i

The estimator is unbiased: its mean over all possible samples is the true total, sum_i y_i. This
doesn't depend on the quality of the model, because only the sampling is random. Better models
result in narrower intervals. If e_i = 0 for all docs, the estimate doesn't depend on the model.

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

from ...metrics import logistic

UNIFORM = 0.5
"""The uniform part of the sampling probabilities. It ensures that docs are sampled even if the
model is overconfident about them, and that no doc has more than 1 / UNIFORM times its weight in a
simple random sample."""

STEPS_OF_DEGREES = 10
"""Degrees of freedom are rounded down to a multiple of 1 / STEPS_OF_DEGREES, to reduce the number
of quantiles to compute."""

MAX_LOG_MARGIN = 100.0
"""The maximum margin on a log scale. The exponential of a larger margin could overflow."""

N_ANGLES = 20_001
"""The number of points for integrating the density of Student's t. Simpson's rule requires an odd
number."""


class Interval(NamedTuple):
    """An estimate and its confidence interval. The fields are numbers or arrays of the same shape.

    value (Any): The estimate.
    low (Any): The lower end of the interval.
    high (Any): The upper end of the interval.
    """

    value: Any
    low: Any
    high: Any


class Sample(NamedTuple):
    """A random sample of n draws from D docs. Leading dimensions are for several samples, e.g. in a
    simulation.

    probs (FloatsXd): The probability q_i of selecting each drawn doc in a draw. Without
        replacement, n q_i is the sampling fraction of the doc's stratum. Shape: (..., n)
    n_docs (int): The number of docs to draw from, D.
    with_replacement (bool): Whether a doc can be drawn, and counted, more than once. If False, the
        docs are a simple random sample without replacement, or one such sample per stratum.
    n_parts (int): The number of strata.
    """

    probs: FloatsXd
    n_docs: int
    with_replacement: bool = True
    n_parts: int = 1

    @property
    def n_drawn(self) -> int:
        """The number of draws, n."""
        return int(self.probs.shape[-1])

    @property
    def correction(self) -> float:
        """The finite population correction, by which the variance is multiplied. Without
        replacement, it decreases to 0 as more docs are drawn, because a sample of all docs isn't
        random. With replacement, it is 1. It is also 1 if there are several strata, which would
        need different factors, so the variance is overestimated rather than underestimated."""
        if self.with_replacement or self.n_parts > 1:
            return 1.0
        return 1 - self.n_drawn / self.n_docs


@dataclass(frozen=True)
class Count:
    """A number of items in docs, such as the entities with a given label. The sum of two counts is
    a count.

    annotated (FloatsXd): The true count in each drawn doc, y_i. Shape: (..., n)
    expected (FloatsXd): The count expected by the model in each drawn doc, e_i. Shape: (..., n)
    expected_total (float): The count expected by the model in all D docs.
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
        """Return the same count with expected counts of 0, so that the estimate doesn't depend on
        the model."""
        nothing = numpy.zeros_like(self.expected)
        return Count(self.annotated, expected=nothing, expected_total=0.0)


def drawing_probs(mistakes: Floats1d) -> Floats1d:
    """Compute the probability of selecting each doc in a draw. One part is proportional to the
    expected number of mistakes in the doc, and the other part is uniform.

        q_i = (1 - u) mistakes_i / sum_j mistakes_j + u / D,   u = UNIFORM

    mistakes (Floats1d): The expected number of mistakes in each of D docs, non-negative. D is at
        least 1. Shape: (D,)
    RETURNS (Floats1d): The probabilities, which sum to 1. Shape: (D,)

    Zrnic & Candès, 2024, section 3: intervals are narrowest if the probability of a doc is
    proportional to the expected error of its count. The uniform part limits the effect of wrong
    expectations.
    """
    n_docs = len(mistakes)
    uniform = numpy.full(n_docs, 1 / n_docs)
    total = mistakes.sum()
    if total == 0:  # no expected mistakes
        return uniform
    return (1 - UNIFORM) * (mistakes / total) + UNIFORM * uniform


def draw_docs(probs: Floats1d, n: int, rng: Generator) -> Ints1d:
    """Draw n docs with replacement.

    probs (Floats1d): The probability of selecting each doc in a draw. Shape: (D,)
    n (int): The number of draws.
    rng (Generator): The random number generator.
    RETURNS (Ints1d): The indices of the drawn docs, in order. Shape: (n,)
    """
    return rng.choice(len(probs), size=n, p=probs)


def estimate_total(count: Count, sample: Sample, *, confidence: float = 0.95) -> Interval:
    """Compute an unbiased estimate of the count in all docs, using the equation in the module
    docstring. It is the mean over all draws k, where draw k selects doc i:

        total = mean_k z_k,   z_k = sum_j e_j + (y_i - e_i) / q_i

    If the total is positive, the interval is computed on a log scale, so that its ends are
    positive.

    count (Count): The true and expected counts in the drawn docs, and the expected total.
    sample (Sample): The sample, with at least 2 draws.
    confidence (float): The probability that the interval contains the true count. It is only exact
        for large samples.
    RETURNS (Interval): The estimate and its interval. Shape: (...)
    """
    estimates = _estimate_by_drawing(count, sample)
    total = estimates.mean(axis=-1)
    margin = _margin(estimates, sample, confidence)
    return _log_interval(total, margin)


def estimate_ratio(
    numerator: Count, denominator: Count, sample: Sample, *, confidence: float = 0.95
) -> Interval:
    """Estimate the ratio of two counts in all docs, such as the number of entities per token.

        ratio = A / B,   A = mean_k a_k,   B = mean_k b_k
        variance of the ratio = variance of mean_k (a_k - ratio b_k) / B

    a_k and b_k are the estimates of the two counts from draw k: see z_k in `estimate_total`. The
    ratio is linearized (Taylor series). The bias of its variance is of order 1 / n.

    numerator, denominator (Count): The counts. If the estimate B is 0, the ratio is 0.
    sample (Sample): The sample, with at least 2 draws.
    confidence (float): The probability that the interval contains the true value. It is only exact
        for large samples.
    RETURNS (Interval): The estimate and its interval. Shape: (...)

    Särndal, Swensson & Wretman, 1992, section 5.6.
    """
    value, margin = _ratio_and_margin(numerator, denominator, sample, confidence)
    return Interval(value, value - margin, value + margin)


def estimate_rate(
    numerator: Count, denominator: Count, sample: Sample, *, confidence: float = 0.95
) -> Interval:
    """Estimate a ratio that can't be negative and has no upper limit, such as the number of
    entities per token. The interval is computed on a log scale, as in `estimate_total`. See
    `estimate_ratio` for the ratio and its margin.

    numerator, denominator (Count): The counts. If the estimate of the denominator is 0, the rate is
        0.
    sample (Sample): The sample, with at least 2 draws.
    confidence (float): The probability that the interval contains the true value. It is only exact
        for large samples.
    RETURNS (Interval): The estimate and its interval. Shape: (...)
    """
    return _log_interval(*_ratio_and_margin(numerator, denominator, sample, confidence))


def estimate_share(
    part: Count, whole: Count, sample: Sample, *, confidence: float = 0.95
) -> Interval:
    """Estimate a count as a share of another count in all docs, such as a precision or F-score.

        log odds = log(share / (1 - share))
        margin of the log odds = margin / (share (1 - share))

    Share and margin are computed as in `estimate_ratio`. The interval is computed for the log odds,
    so its ends are between 0 and 1, and it has better coverage in small samples. Because both
    counts are estimates, the ratio isn't always between 0 and 1. If it isn't, it has no log odds,
    and the interval of `estimate_ratio` is used.

    part, whole (Count): The counts. If the estimate of the whole is 0, the share is 0.
    sample (Sample): The sample, with at least 2 draws.
    confidence (float): The probability that the interval contains the true value. It is only exact
        for large samples.
    RETURNS (Interval): The estimate and its interval. Shape: (...)
    """
    value, margin = _ratio_and_margin(part, whole, sample, confidence)
    has_odds = (value > 0) & (value < 1)
    # Values without log odds are replaced, so that no logarithm is infinite.
    safe_value = numpy.where(has_odds, value, 0.5)
    log_odds = numpy.log(safe_value / (1 - safe_value))
    odds_margin = margin / (safe_value * (1 - safe_value))
    odds_margin = numpy.minimum(odds_margin, MAX_LOG_MARGIN)
    low = numpy.where(has_odds, logistic(log_odds - odds_margin), value - margin)
    high = numpy.where(has_odds, logistic(log_odds + odds_margin), value + margin)
    return Interval(value, low, high)


def _log_interval(value: FloatsXd, margin: FloatsXd) -> Interval:
    """Convert half the width of an interval to a log scale, so that the ends of the interval are
    positive. Estimates that aren't positive have no logarithm, and their interval isn't converted.
    Shapes: (...)"""
    # Delta method: a small change in the value changes its logarithm by change / value.
    is_positive = value > 0
    safe_value = numpy.where(is_positive, value, 1.0)
    log_margin = numpy.where(is_positive, margin / safe_value, 0.0)
    # Prevent an overflow of `exp`.
    factor = numpy.exp(numpy.minimum(log_margin, MAX_LOG_MARGIN))
    low = numpy.where(is_positive, value / factor, value - margin)
    high = numpy.where(is_positive, value * factor, value + margin)
    return Interval(value, low, high)


def _ratio_and_margin(
    numerator: Count, denominator: Count, sample: Sample, confidence: float
) -> tuple[FloatsXd, FloatsXd]:
    """Compute the ratio of two estimated totals, and half the width of its interval: see
    `estimate_ratio`. Shapes: (...)"""
    numerator_estimates = _estimate_by_drawing(numerator, sample)
    denominator_estimates = _estimate_by_drawing(denominator, sample)
    # Keep the last dimension, so that both totals can be broadcast to the draws. Shape: (..., 1)
    numerator_total = numerator_estimates.mean(axis=-1, keepdims=True)
    denominator_total = denominator_estimates.mean(axis=-1, keepdims=True)
    is_zero = denominator_total == 0
    safe_total = numpy.where(is_zero, 1.0, denominator_total)
    ratio = numpy.where(is_zero, 0.0, numerator_total / safe_total)
    linear_parts = (numerator_estimates - ratio * denominator_estimates) / safe_total
    return ratio[..., 0], _margin(linear_parts, sample, confidence)


def drawings_for_half(sample: Sample) -> int:
    """Compute the number of draws needed to halve the width of an interval, including the n draws
    of the sample. The variance has to decrease to a quarter, so the number m of draws from D docs
    is

        m = 4 n                              with replacement
        1/m - 1/D = (1/n - 1/D) / 4          without replacement

    sample (Sample): The sample.
    RETURNS (int): The number of draws, m.
    """
    n = sample.n_drawn
    if sample.with_replacement:
        return 4 * n
    inverse = 1 / sample.n_docs + (1 / n - 1 / sample.n_docs) / 4
    # Subtract a small number, because rounding errors may result in a value slightly above an
    # integer.
    return math.ceil(1 / inverse - 1e-9)


def most_docs_with_any(sample: Sample, *, confidence: float = 0.95) -> int:
    """Compute an upper bound on the number of docs with some property, such as an entity of a rare
    label, if no drawn doc has this property.

    Q is the probability that a draw selects a doc with the property, i.e. the sum of the q_i of
    these docs. The probability that none of n draws selects one is (1 - Q)^n. It should be at least
    1 - confidence:

        Q <= 1 - (1 - confidence)^(1/n)

    The number of docs with the property is at most Q divided by the lowest q_i. With replacement,
    each q_i is at least UNIFORM / D. Without replacement, all docs of a stratum have the same q_i,
    and each stratum is sampled, so the lowest q_i is the lowest q_i of the drawn docs (1 / D in a
    simple random sample). The bound also holds without replacement, because the probability is then
    below (1 - Q)^n.

    sample (Sample): The sample.
    confidence (float): The probability that the bound holds.
    RETURNS (int): The bound.
    """
    lowest_prob = float(sample.probs.min())
    if sample.with_replacement:
        lowest_prob = UNIFORM / sample.n_docs
    highest_sum = 1 - (1 - confidence) ** (1 / sample.n_drawn)
    return min(int(highest_sum / lowest_prob), sample.n_docs)


def _estimate_by_drawing(count: Count, sample: Sample) -> FloatsXd:
    """Estimate the count in all docs from each draw separately: see z_k in `estimate_total`. The
    estimate is the mean of these values. Shape: (..., n)"""
    return count.expected_total + (count.annotated - count.expected) / sample.probs


def _margin(values: FloatsXd, sample: Sample, confidence: float) -> FloatsXd:
    """Compute half the width of the confidence interval for the mean of `values`, one value per
    draw. Shapes: (..., n) to (...)"""
    quantile = student_quantile((1 + confidence) / 2, degrees_of_freedom(values))
    return quantile * numpy.sqrt(variance_of_mean(values, sample))


def variance_of_mean(values: FloatsXd, sample: Sample) -> FloatsXd:
    """Estimate the variance of a mean over draws. The estimate is unbiased if there is a single
    stratum.

        correction s^2 / n,   correction = 1, or 1 - n / D without replacement

    If there are several strata, s^2 includes the differences between them, so the variance is
    overestimated rather than underestimated. Shapes: (..., n) to (...)
    """
    return sample.correction * values.var(axis=-1, ddof=1) / sample.n_drawn


def degrees_of_freedom(values: FloatsXd) -> FloatsXd:
    """Compute the degrees of freedom of the variance of n values, for an interval based on
    Student's t.

        2 n / (kurtosis - (n - 3) / (n - 1)),   at most n - 1

    Normally distributed values, with a kurtosis of 3, have n - 1 degrees of freedom. If a few docs
    account for most of the error, the kurtosis is higher, and the variance is less certain, as if
    there were fewer values. The result is at least 1. Shapes: (..., n) to (...)

    Satterthwaite, 1946, "An Approximate Distribution of Estimates of Variance Components".
    """
    n = values.shape[-1]
    deviations = values - values.mean(axis=-1, keepdims=True)
    mean_square = (deviations**2).mean(axis=-1)
    mean_fourth_power = (deviations**4).mean(axis=-1)
    is_constant = mean_square == 0
    kurtosis = mean_fourth_power / numpy.where(is_constant, 1.0, mean_square) ** 2
    # The kurtosis is at least 1, so the divisor is positive. If all values are equal, the kurtosis
    # is undefined, but the variance is 0 for any divisor.
    divisor = numpy.where(is_constant, 1.0, kurtosis - (n - 3) / (n - 1))
    return numpy.clip(2 * n / divisor, 1, n - 1)


def student_quantile(prob: float, degrees: FloatsXd) -> FloatsXd:
    """Compute a quantile of Student's t distribution, for a probability of at least 0.5. The
    degrees of freedom, at least 1, are rounded down to a tenth. The result has the shape of
    `degrees`."""
    tenths = numpy.floor(numpy.asarray(degrees) * STEPS_OF_DEGREES).astype("int64")
    # Compute the quantile only once for each distinct number of degrees.
    distinct_tenths, index_in_distinct = numpy.unique(tenths, return_inverse=True)
    quantiles: list[float] = []
    for n_tenths in distinct_tenths.tolist():
        quantiles.append(_student_quantile(prob, n_tenths / STEPS_OF_DEGREES))
    return numpy.asarray(quantiles)[index_in_distinct].reshape(tenths.shape)


@cache
def _student_quantile(prob: float, degrees: float) -> float:
    """Compute a quantile of Student's t with v degrees of freedom.

    After substituting t = sqrt(v) tan(a), the angle a has a density proportional to cos(a)^(v - 1),
    from 0 to a right angle. The density is integrated with Simpson's rule.
    """
    angles = numpy.linspace(0, math.pi / 2, N_ANGLES)
    # Rounding errors may make the cosine of a right angle slightly negative.
    density = numpy.maximum(numpy.cos(angles), 0.0) ** (degrees - 1)
    # Simpson's rule uses three points per step: first, middle and last. The last point of a step is
    # the first point of the next one. The width of the steps cancels out when dividing by the total
    # integral. Shape: (N_ANGLES // 2,)
    first = density[:-2:2]
    middle = density[1:-1:2]
    last = density[2::2]
    steps = (first + 4 * middle + last) / 6
    integral = numpy.append(0.0, numpy.cumsum(steps))  # from 0 to every second angle
    # The distribution is symmetric, so half of the probability is above 0.
    probs_above_0 = integral / integral[-1] / 2  # P(0 < T < t)
    angle = numpy.interp(prob - 0.5, probs_above_0, angles[::2])
    return math.sqrt(degrees) * math.tan(angle)
