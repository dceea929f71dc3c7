"""Estimate a total over many docs, such as the number of their entities, or the ratio of two such
totals, from a few docs that were drawn at random and annotated.

The true count of doc i is y_i. It is known only for the docs that were drawn. The count that a
model expects, e_i, may be wrong, but is known for all D docs. There are n drawings, and each takes
doc i with the probability q_i. The estimate is the expected total, corrected by the mean error of
the model on the drawn docs:

    total = sum_i e_i + (1/n) sum_{drawn i} (y_i - e_i) / q_i

Its mean over all possible drawings is the true total, sum_i y_i, even if the model is bad: only the
drawing is random. The better the model, the narrower the interval. With e_i = 0 for all docs, the
estimate doesn't depend on the model.

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
"""The part of the probability of a doc that is the same for all docs. So docs about which a model
is overconfident may be drawn, too, and no doc counts more than 1 / UNIFORM times as much as in a
simple random sample."""

STEPS_OF_DEGREES = 10
"""Degrees of freedom are rounded down to a tenth, so that fewer quantiles have to be computed."""

MAX_LOG_MARGIN = 100.0
"""Larger margins of a logarithm are cut off, as their exponential could overflow."""

N_ANGLES = 20_001
"""The number of points at which the density of Student's t is integrated. Simpson's rule needs an
odd number."""


class Interval(NamedTuple):
    """An estimate and its confidence interval: numbers, or arrays of the same shape.

    value (Any): The estimate.
    low (Any): The lower end of the interval.
    high (Any): The upper end of the interval.
    """

    value: Any
    low: Any
    high: Any


class Sample(NamedTuple):
    """Docs that were drawn at random from D docs, by n drawings. Leading dimensions are for several
    samples, as in a simulation.

    probs (FloatsXd): The probability of each drawn doc at each drawing, q_i. Without replacement,
        n q_i is the sampling fraction of its part. Shape: (..., n)
    n_docs (int): The number of docs that were drawn from, D.
    with_replacement (bool): Whether a doc may be drawn twice, and then counts twice. False: the
        docs are a simple random sample without replacement, or one such sample of each part.
    n_parts (int): The number of parts (strata) of the D docs.
    """

    probs: FloatsXd
    n_docs: int
    with_replacement: bool = True
    n_parts: int = 1

    @property
    def n_drawn(self) -> int:
        """The number of drawings, n."""
        return int(self.probs.shape[-1])

    @property
    def correction(self) -> float:
        """The finite population correction: a factor of the variance. Without replacement it falls
        to 0 as more docs are drawn, as the drawing of all docs isn't random. With replacement it is
        1. Several parts would need different factors: it is 1 then, which makes the variance too
        large rather than too small."""
        if self.with_replacement or self.n_parts > 1:
            return 1.0
        return 1 - self.n_drawn / self.n_docs


@dataclass(frozen=True)
class Count:
    """The number of items in docs, such as entities of a label. The sum of two counts is a count.

    annotated (FloatsXd): The true number in each drawn doc, y_i. Shape: (..., n)
    expected (FloatsXd): The number that the model expects in each drawn doc, e_i. Shape: (..., n)
    expected_total (float): The number that the model expects in all D docs.
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
        """The same count with expected numbers of 0, so that the estimate doesn't depend on the
        model."""
        nothing = numpy.zeros_like(self.expected)
        return Count(self.annotated, expected=nothing, expected_total=0.0)


def drawing_probs(mistakes: Floats1d) -> Floats1d:
    """Choose the probability of each doc at a drawing. A part of it is proportional to the expected
    number of mistakes in the doc, the rest is uniform.

        q_i = (1 - u) mistakes_i / sum_j mistakes_j + u / D,   u = UNIFORM

    mistakes (Floats1d): The expected number of mistakes of each of D docs, at least 0. D is at
        least 1. Shape: (D,)
    RETURNS (Floats1d): The probabilities, which sum to 1. Shape: (D,)

    Zrnic & Candès, 2024, section 3: intervals are narrowest if the probability of a doc is
    proportional to the expected error of its count. The uniform part limits the harm if the
    expected error is wrong.
    """
    n_docs = len(mistakes)
    uniform = numpy.full(n_docs, 1 / n_docs)
    total = mistakes.sum()
    if total == 0:  # the model expects no mistakes
        return uniform
    return (1 - UNIFORM) * (mistakes / total) + UNIFORM * uniform


def draw_docs(probs: Floats1d, n: int, rng: Generator) -> Ints1d:
    """Draw n docs with replacement.

    probs (Floats1d): The probability of each doc at each drawing. Shape: (D,)
    n (int): The number of drawings.
    rng (Generator): The random number generator.
    RETURNS (Ints1d): The indices of the drawn docs, in the order of the drawings. Shape: (n,)
    """
    return rng.choice(len(probs), size=n, p=probs)


def estimate_total(count: Count, sample: Sample, *, confidence: float = 0.95) -> Interval:
    """Estimate the count in all docs, without bias, by the equation at the top of this file. It is
    a mean over the drawings k, each of which takes some doc i:

        total = mean_k z_k,   z_k = sum_j e_j + (y_i - e_i) / q_i

    If the total is above 0, the interval of its logarithm is used, so that its ends are above 0.

    count (Count): The true count in the drawn docs, and the expected counts.
    sample (Sample): The drawn docs, at least 2.
    confidence (float): The probability that the interval contains the true count. It is exact only
        for many drawings.
    RETURNS (Interval): The estimate and its interval. Shape: (...)
    """
    estimates = _estimate_by_drawing(count, sample)
    total = estimates.mean(axis=-1)
    margin = _margin(estimates, sample, confidence)
    # A small change of a total changes its logarithm by change / total: the delta method.
    is_positive = total > 0
    safe_total = numpy.where(is_positive, total, 1.0)
    log_margin = numpy.where(is_positive, margin / safe_total, 0.0)
    # The upper limit only keeps `exp` from overflowing.
    factor = numpy.exp(numpy.minimum(log_margin, MAX_LOG_MARGIN))
    low = numpy.where(is_positive, total / factor, total - margin)
    high = numpy.where(is_positive, total * factor, total + margin)
    return Interval(total, low, high)


def estimate_ratio(
    numerator: Count, denominator: Count, sample: Sample, *, confidence: float = 0.95
) -> Interval:
    """Estimate the ratio of two counts in all docs, such as the number of entities per token.

        ratio = A / B,   A = mean_k a_k,   B = mean_k b_k
        variance of the ratio = variance of mean_k (a_k - ratio b_k) / B

    a_k and b_k are the estimates of the two counts from the drawing k: z_k in `estimate_total`. The
    ratio is linearized (Taylor series); the bias of its variance is of the order of 1 / n.

    numerator, denominator (Count): The counts. If the estimate B is 0, the ratio is 0.
    sample (Sample): The drawn docs, at least 2.
    confidence (float): The probability that the interval contains the true value. It is exact for
        many drawings only.
    RETURNS (Interval): The estimate and its interval. Shape: (...)

    Särndal, Swensson & Wretman, 1992, section 5.6.
    """
    value, margin = _ratio_and_margin(numerator, denominator, sample, confidence)
    return Interval(value, value - margin, value + margin)


def estimate_share(
    part: Count, whole: Count, sample: Sample, *, confidence: float = 0.95
) -> Interval:
    """Estimate a count as a share of another count in all docs, such as a precision or F.

        log odds = log(share / (1 - share))
        margin of the log odds = margin / (share (1 - share))

    The share is the ratio of `estimate_ratio`, with its margin. The interval of the log odds is
    used: its ends are between 0 and 1, and if few docs are drawn it contains the true share more
    often. Both counts are estimates, so the ratio may be 0 or less, or 1 or more. Then it has no
    log odds, and gets the interval of `estimate_ratio`.

    part, whole (Count): The counts. If the estimate of the whole is 0, the share is 0.
    sample (Sample): The drawn docs, at least 2.
    confidence (float): The probability that the interval contains the true value. It is exact for
        many drawings only.
    RETURNS (Interval): The estimate and its interval. Shape: (...)
    """
    value, margin = _ratio_and_margin(part, whole, sample, confidence)
    has_odds = (value > 0) & (value < 1)
    safe_value = numpy.where(has_odds, value, 0.5)
    log_odds = numpy.log(safe_value / (1 - safe_value))
    odds_margin = margin / (safe_value * (1 - safe_value))
    odds_margin = numpy.minimum(odds_margin, MAX_LOG_MARGIN)
    low = numpy.where(has_odds, logistic(log_odds - odds_margin), value - margin)
    high = numpy.where(has_odds, logistic(log_odds + odds_margin), value + margin)
    return Interval(value, low, high)


def _ratio_and_margin(
    numerator: Count, denominator: Count, sample: Sample, confidence: float
) -> tuple[FloatsXd, FloatsXd]:
    """The ratio of two estimated totals, and half of the width of its interval: see
    `estimate_ratio`. Shapes: (...)"""
    numerator_estimates = _estimate_by_drawing(numerator, sample)
    denominator_estimates = _estimate_by_drawing(denominator, sample)
    # A last dimension of 1 is kept, so that both can be combined with the drawings. Shape: (..., 1)
    numerator_total = numerator_estimates.mean(axis=-1, keepdims=True)
    denominator_total = denominator_estimates.mean(axis=-1, keepdims=True)
    is_zero = denominator_total == 0
    safe_total = numpy.where(is_zero, 1.0, denominator_total)
    ratio = numpy.where(is_zero, 0.0, numerator_total / safe_total)
    linear_parts = (numerator_estimates - ratio * denominator_estimates) / safe_total
    return ratio[..., 0], _margin(linear_parts, sample, confidence)


def drawings_for_half(sample: Sample) -> int:
    """Compute the number of drawings that halve the width of an interval, including the n drawings
    of the sample. The variance has to fall to a quarter. So the number m of drawings from D docs is

        m = 4 n                              with replacement
        1/m - 1/D = (1/n - 1/D) / 4          without: the variance of m drawings on the left

    sample (Sample): The drawn docs.
    RETURNS (int): The number of drawings, m.
    """
    n = sample.n_drawn
    if sample.with_replacement:
        return 4 * n
    inverse = 1 / sample.n_docs + (1 / n - 1 / sample.n_docs) / 4
    # Rounding may put a whole number slightly above itself.
    return math.ceil(1 / inverse - 1e-9)


def most_docs_with_any(sample: Sample, *, confidence: float = 0.95) -> int:
    """An upper bound of the number of docs with some property, such as an entity of a rare label,
    if no drawn doc has it.

    Q is the probability that a drawing takes any of these docs: the sum of their q_i. The
    probability that n drawings take none of them is (1 - Q)^n. It should not be below
    1 - confidence:

        Q <= 1 - (1 - confidence)^(1/n)

    With replacement, each q_i is at least UNIFORM / D. Without, all docs of a part have the same
    q_i, and some docs of each part are drawn. So q_i is at least the lowest q_i of the drawn docs:
    1 / D in a simple random sample. The number of docs with the property is at most Q divided by
    the lowest q_i. Without replacement the probability is below (1 - Q)^n, so the bound holds, too.

    sample (Sample): The drawn docs.
    confidence (float): The probability that the bound holds.
    RETURNS (int): The bound.
    """
    lowest_prob = float(sample.probs.min())
    if sample.with_replacement:
        lowest_prob = UNIFORM / sample.n_docs
    highest_sum = 1 - (1 - confidence) ** (1 / sample.n_drawn)
    return min(int(highest_sum / lowest_prob), sample.n_docs)


def _estimate_by_drawing(count: Count, sample: Sample) -> FloatsXd:
    """Estimate the count in all docs from each drawing alone: z_k in `estimate_total`. The mean of
    these numbers is the estimate. Shape: (..., n)"""
    return count.expected_total + (count.annotated - count.expected) / sample.probs


def _margin(values: FloatsXd, sample: Sample, confidence: float) -> FloatsXd:
    """Half the width of the confidence interval for the mean of `values`, which has a value for
    each drawing. Shapes: (..., n) to (...)"""
    quantile = student_quantile((1 + confidence) / 2, degrees_of_freedom(values))
    return quantile * numpy.sqrt(variance_of_mean(values, sample))


def variance_of_mean(values: FloatsXd, sample: Sample) -> FloatsXd:
    """Estimate the variance of a mean over drawings, without bias if the sample has one part.

        correction s^2 / n,   correction = 1, or 1 - n / D without replacement

    If it has several, s^2 contains the differences between the parts, too. Then the variance is too
    large rather than too small. Shapes: (..., n) to (...)"""
    return sample.correction * values.var(axis=-1, ddof=1) / sample.n_drawn


def degrees_of_freedom(values: FloatsXd) -> FloatsXd:
    """The degrees of freedom of the variance of n values, for an interval by Student's t.

        2 n / (kurtosis - (n - 3) / (n - 1)),   at most n - 1

    Normal values, with a kurtosis of 3, have n - 1. If a few docs have most of the error, the
    kurtosis is higher and the variance is less certain, as if there were fewer values. The degrees
    are at least 1. Shapes: (..., n) to (...)

    Satterthwaite, 1946, "An Approximate Distribution of Estimates of Variance Components".
    """
    n = values.shape[-1]
    deviations = values - values.mean(axis=-1, keepdims=True)
    mean_square = (deviations**2).mean(axis=-1)
    mean_fourth_power = (deviations**4).mean(axis=-1)
    is_constant = mean_square == 0
    kurtosis = mean_fourth_power / numpy.where(is_constant, 1.0, mean_square) ** 2
    # The kurtosis is at least 1, so the divisor is positive. If all values are equal, the kurtosis
    # is undefined, and the variance is 0 with any divisor.
    divisor = numpy.where(is_constant, 1.0, kurtosis - (n - 3) / (n - 1))
    return numpy.clip(2 * n / divisor, 1, n - 1)


def student_quantile(prob: float, degrees: FloatsXd) -> FloatsXd:
    """The quantile of Student's t distribution at a probability of at least one half. The degrees
    of freedom, at least 1, are rounded down to a tenth. The shape is the shape of `degrees`."""
    tenths = numpy.floor(numpy.asarray(degrees) * STEPS_OF_DEGREES).astype("int64")
    # Each distinct number of degrees is computed once.
    distinct_tenths, index_in_distinct = numpy.unique(tenths, return_inverse=True)
    quantiles: list[float] = []
    for n_tenths in distinct_tenths.tolist():
        quantiles.append(_student_quantile(prob, n_tenths / STEPS_OF_DEGREES))
    return numpy.asarray(quantiles)[index_in_distinct].reshape(tenths.shape)


@cache
def _student_quantile(prob: float, degrees: float) -> float:
    """The quantile of Student's t with v degrees of freedom.

    With the substitution t = sqrt(v) tan(a), the density of the angle a is proportional to
    cos(a)^(v - 1), from 0 to a right angle. It is integrated by Simpson's rule."""
    angles = numpy.linspace(0, math.pi / 2, N_ANGLES)
    # The cosine of a right angle may be slightly below 0 by rounding.
    density = numpy.maximum(numpy.cos(angles), 0.0) ** (degrees - 1)
    # Simpson's rule takes the points in threes: the first, middle and last point of each step. The
    # last point of a step is the first of the next one. All steps have the same width, which the
    # division by the whole integral takes out again. Shape: (N_ANGLES // 2,)
    first = density[:-2:2]
    middle = density[1:-1:2]
    last = density[2::2]
    steps = (first + 4 * middle + last) / 6
    integral = numpy.append(0.0, numpy.cumsum(steps))  # from 0 to each second angle
    # The distribution is symmetric: half of it is above 0.
    probs_above_0 = integral / integral[-1] / 2  # P(0 < T < t)
    angle = numpy.interp(prob - 0.5, probs_above_0, angles[::2])
    return math.sqrt(degrees) * math.tan(angle)
