"""Precision, recall and F-score, with confidence intervals and significance tests for differences
between systems, based on the bootstrap over docs.

All counts are entity counts: tp is the number of predicted entities that are gold, fp the number of
predicted entities that are not gold, and fn the number of gold entities that are not predicted.
Counts can be scalars or arrays of any shape. In shapes, D is the number of docs.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, FloatsXd

MOST_DRAWN = 2**22
"""The maximum number of docs to draw at a time, to limit memory usage."""


def logistic(log_odds: FloatsXd) -> FloatsXd:
    """Convert log odds to probabilities using the logistic function."""
    return 1 / (1 + numpy.exp(-log_odds))


def f_score(tp: FloatsXd, fp: FloatsXd, fn: FloatsXd, beta: float = 1.0) -> FloatsXd:
    """Compute the F-beta score from entity counts.

        F = (1 + beta^2) tp / ((1 + beta^2) tp + fp + beta^2 fn)

    tp, fp, fn (FloatsXd): The counts. See the module docstring.
    beta (float): How many times as important recall is as precision.
    RETURNS (FloatsXd): The F-beta score, between 0 and 1. It is 0 if all counts are 0. It has the
        same shape as the counts.
    """
    weighted_tp = (1 + beta**2) * tp
    return ratio(weighted_tp, weighted_tp + fp + beta**2 * fn)


def f_beta(p: FloatsXd, r: FloatsXd, beta: float = 1.0) -> FloatsXd:
    """Compute the F-beta score from precision and recall, as their weighted harmonic mean. The
    result is the same as with `f_score`.

        F = (1 + beta^2) P R / (beta^2 P + R)
    """
    return ratio((1 + beta**2) * p * r, beta**2 * p + r)


def precision(tp: FloatsXd, fp: FloatsXd) -> FloatsXd:
    """Compute the fraction of predicted entities that are gold."""
    return ratio(tp, tp + fp)


def recall(tp: FloatsXd, fn: FloatsXd) -> FloatsXd:
    """Compute the fraction of gold entities that are predicted."""
    return ratio(tp, tp + fn)


def ratio(numerator: FloatsXd, denominator: FloatsXd) -> FloatsXd:
    """Divide counts. If the denominator is 0, the numerator is 0, too, and the result is 0."""
    return numerator / numpy.where(denominator == 0, 1, denominator)


class Difference(NamedTuple):
    """The difference between the scores of two systems, with its confidence interval and p-value.

    value (float): The difference on the test docs.
    low (float), high (float): The bounds of the 95% confidence interval.
    p (float): The two-sided p-value. See `difference`.
    """

    value: float
    low: float
    high: float
    p: float


def bootstrap(counts: Floats2d, *, n_samples: int = 10_000, seed: int = 0) -> Floats2d:
    """Draw bootstrap samples of docs and sum the counts of each sample. A sample consists of D docs
    drawn from the D docs with replacement. The same samples are used for all columns, so that
    columns can be compared.

        sums[i, m] = sum_d n_id counts[d, m],  n_i ~ Multinomial(D; 1/D, ..., 1/D)

    n_id is the number of times doc d occurs in sample i.

    counts (Floats2d): M counts per doc, for at least one doc. Shape: (D, M)
    n_samples (int): The number of samples.
    seed (int): The random seed.
    RETURNS (Floats2d): The sums. Shape: (n_samples, M)

    Koehn (2004), as in Gimpel & Smith (2010), section 4.2.
    """
    rng = numpy.random.default_rng(seed)
    n_docs = len(counts)
    # Draw the samples in blocks to limit memory usage.
    block_size = max(MOST_DRAWN // n_docs, 1)
    sums = []
    for begin in range(0, n_samples, block_size):
        n_in_block = min(block_size, n_samples - begin)
        times_drawn = _draw_samples(rng, n_docs, n_in_block)
        sums.append(times_drawn @ counts)
    return numpy.concatenate(sums)


class ScoreIntervals(NamedTuple):
    """The confidence intervals of precision, recall and F-score, as (lower, upper) bounds."""

    precision: tuple[float, float]
    recall: tuple[float, float]
    f: tuple[float, float]


def bootstrap_intervals(counts: Floats2d, *, n_samples: int = 2_000) -> ScoreIntervals:
    """Compute 95% confidence intervals of precision, recall and F-score. They show how much the
    scores would vary on other docs similar to the test docs. The bounds are percentiles of the
    scores of bootstrap samples.

    counts (Floats2d): tp, fp and fn of each doc, for at least one doc. Shape: (D, 3)
    n_samples (int): The number of samples.
    RETURNS (ScoreIntervals): The intervals.

    Efron & Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13.
    """
    tp, fp, fn = bootstrap(counts, n_samples=n_samples).T
    return ScoreIntervals(
        _middle_95_percent(precision(tp, fp)),
        _middle_95_percent(recall(tp, fn)),
        _middle_95_percent(f_score(tp, fp, fn)),
    )


def _middle_95_percent(sampled: Floats1d) -> tuple[float, float]:
    """Return the bounds of the middle 95% of the values. Shape: (n,)"""
    low, high = numpy.percentile(sampled, [2.5, 97.5]).tolist()
    return low, high


def _draw_samples(rng: numpy.random.Generator, n_docs: int, n_samples: int) -> Floats2d:
    """Draw bootstrap samples of docs and count how often each doc occurs in each sample.
    Shape: (n_samples, D)"""
    drawn_docs = rng.integers(n_docs, size=(n_samples, n_docs))
    # Count the occurrences in a flattened table. The index of a cell is sample * D + doc.
    cells = drawn_docs + n_docs * numpy.arange(n_samples)[:, None]
    times = numpy.bincount(cells.ravel(), minlength=n_samples * n_docs)
    return times.reshape(n_samples, n_docs).astype("float64")


def difference(value: float, sampled: Floats1d) -> Difference:
    """Compute the confidence interval and p-value of a difference between two systems. The p-value
    is about twice the fraction of samples in which the difference is 0 or has the opposite sign:

        p = min(1, 2 (1 + min(#(d_i <= 0), #(d_i >= 0))) / (1 + n))

    Here, #(...) is the number of samples that satisfy a condition, and n is the number of samples.

    value (float): The difference on the test docs.
    sampled (Floats1d): The differences d_i on n bootstrap samples of these docs. Shape: (n,)
    RETURNS (Difference): The difference with its interval and p-value.
    """
    n_not_above = int((sampled <= 0).sum())
    n_not_below = int((sampled >= 0).sum())
    p = 2 * (1 + min(n_not_above, n_not_below)) / (1 + len(sampled))
    low, high = _middle_95_percent(sampled)
    return Difference(value, low, high, min(1.0, p))


def paired_differences(
    counts: FloatsXd,
    score: Callable[[FloatsXd], FloatsXd],
    *,
    baseline: int = 0,
    n_samples: int = 10_000,
    with_seeds: bool = False,
) -> list[list[Difference]]:
    """Compare systems with a baseline using the paired bootstrap over docs. If systems were trained
    with several seeds, their scores are averaged over the seeds. The same samples of docs are used
    for all systems, seeds and scores.

    With `with_seeds`, intervals and p-values account not only for the choice of docs but also for
    the choice of seeds. The error of the mean over S seeds is added to the difference d_i of each
    sample:

        d_i + s / sqrt(S) t_i,   t_i ~ Student's t with S - 1 degrees of freedom

    s is the standard deviation, over seeds, of the difference on the test docs. The two errors are
    added as in the Behrens-Fisher test (Fisher 1935, "The fiducial argument in statistical
    inference"). Since s includes part of the error over docs, p-values tend to be too large if the
    choice of seeds has little effect. With a single seed, `with_seeds` has no effect.

    counts (FloatsXd): The counts, e.g. tp, fp and fn, of each system, seed and doc.
        Shape: (systems, seeds, docs, columns)
    score (Callable[[FloatsXd], FloatsXd]): Computes one or more scores from counts summed over
        docs. Shape: (..., columns) to (scores, ...)
    baseline (int): The index of the baseline system.
    n_samples (int): The number of bootstrap samples.
    with_seeds (bool): Whether to account for the variation between seeds, if there are at least
        two.
    RETURNS (list[list[Difference]]): The difference between each system and the baseline, for each
        score.
    """
    n_systems, n_seeds, n_docs, n_columns = counts.shape
    # One row per doc, containing the counts of all systems and seeds, so that they all use the same
    # samples.
    by_doc = numpy.moveaxis(counts, 2, 0).reshape(n_docs, -1)
    sums = bootstrap(by_doc, n_samples=n_samples)
    sampled_counts = sums.reshape(-1, n_systems, n_seeds, n_columns)
    # Student's t for each sample, or 0 if variation between seeds is ignored. Shape: (samples,)
    errors = numpy.zeros(n_samples)
    if with_seeds and n_seeds > 1:
        errors = numpy.random.default_rng(0).standard_t(n_seeds - 1, size=n_samples)
    # The scores of each seed on the test docs, and the means over seeds on the test docs and on
    # each sample. Shapes: (scores, systems, seeds), (scores, systems), (scores, samples, systems)
    scores = score(counts.sum(axis=2))
    means = scores.mean(axis=-1)
    sampled_means = score(sampled_counts).mean(axis=-1)
    differences_of_scores: list[list[Difference]] = []
    for scores_of_seeds, mean, sampled_mean in zip(scores, means, sampled_means):
        # The differences from the baseline. Shapes: (systems,), (samples, systems)
        leads = mean - mean[baseline]
        sampled_leads = sampled_mean - sampled_mean[:, baseline, None]
        if n_seeds > 1:
            leads_of_seeds = scores_of_seeds - scores_of_seeds[baseline]  # (systems, seeds)
            standard_errors = leads_of_seeds.std(axis=-1, ddof=1) / numpy.sqrt(n_seeds)
            sampled_leads += errors[:, None] * standard_errors
        differences: list[Difference] = []
        for lead, sampled_leads_of_system in zip(leads.tolist(), sampled_leads.T):
            differences.append(difference(lead, sampled_leads_of_system))
        differences_of_scores.append(differences)
    return differences_of_scores
