"""Precision, recall and F, of one system or of an array of them; and the significance of the
difference between systems, by the paired bootstrap."""

from collections.abc import Callable
from typing import NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, FloatsXd

MOST_DRAWN = 2**22
"""The largest number of docs that are drawn at once, to limit memory."""


def f_score(tp: FloatsXd, fp: FloatsXd, fn: FloatsXd, beta: float = 1.0) -> FloatsXd:
    """F-beta of entities.

        F = (1 + beta^2) tp / ((1 + beta^2) tp + fp + beta^2 fn)

    tp, fp, fn (FloatsXd): Predicted entities that are gold, predicted ones that are not, and gold
        ones that are not predicted.
    beta (float): How many times as important recall is as precision.
    RETURNS (FloatsXd): F from 0 to 1; 0 where all counts are 0. Shape: that of the counts.
    """
    weighted = (1 + beta**2) * tp
    return ratio(weighted, weighted + fp + beta**2 * fn)


def f_beta(p: FloatsXd, r: FloatsXd, beta: float = 1.0) -> FloatsXd:
    """F-beta from precision and recall, their weighted harmonic mean: the same as `f_score`.

    F = (1 + beta^2) P R / (beta^2 P + R)
    """
    return ratio((1 + beta**2) * p * r, beta**2 * p + r)


def precision(tp: FloatsXd, fp: FloatsXd) -> FloatsXd:
    """The share of predicted entities that are gold: see `f_score`."""
    return ratio(tp, tp + fp)


def recall(tp: FloatsXd, fn: FloatsXd) -> FloatsXd:
    """The share of gold entities that are predicted: see `f_score`."""
    return ratio(tp, tp + fn)


def ratio(numerator: FloatsXd, denominator: FloatsXd) -> FloatsXd:
    """Divide counts; 0 where the denominator is 0, as the numerator then is 0, too."""
    return numerator / numpy.where(denominator == 0, 1, denominator)


class Difference(NamedTuple):
    """The difference between the scores of two systems on the test docs, and its 95 % confidence
    interval. p is two-sided: twice the share of samples in which it is 0 or has the other sign."""

    value: float
    low: float
    high: float
    p: float


def bootstrap(counts: Floats2d, *, n_samples: int = 10_000, seed: int = 0) -> Floats2d:
    """Sum the counts of docs over bootstrap samples: D of the D docs, drawn with replacement. All
    columns have the same samples, so comparisons of columns are paired.

        sums[i, m] = sum_d n_id counts[d, m],  n_i ~ Multinomial(D; 1/D, ..., 1/D)

    counts (Floats2d): The counts of each doc. Shape: (D, M)
    n_samples (int): The number of samples.
    seed (int): Seed of the random numbers.
    RETURNS (Floats2d): The sums. Shape: (n_samples, M)

    Koehn (2004), as in Gimpel & Smith (2010), section 4.2.
    """
    rng = numpy.random.default_rng(seed)
    n_docs = len(counts)
    block_size = max(MOST_DRAWN // n_docs, 1)
    sums = []
    for begin in range(0, n_samples, block_size):
        n_in_block = min(block_size, n_samples - begin)
        times_drawn = _times_drawn(rng, n_docs, n_in_block)
        sums.append(times_drawn @ counts)
    return numpy.concatenate(sums)


class ScoreIntervals(NamedTuple):
    """The confidence intervals of scores, each from low to high."""

    precision: tuple[float, float]
    recall: tuple[float, float]
    f: tuple[float, float]


def bootstrap_intervals(counts: Floats2d, *, n_samples: int = 2_000) -> ScoreIntervals:
    """The 95 % confidence intervals of precision, recall and F over docs like the test docs, by the
    percentiles of bootstrap samples of docs.

    counts (Floats2d): The columns tp, fp and fn of each doc: see `f_score`. Shape: (D, 3)
    n_samples (int): The number of samples.
    RETURNS (ScoreIntervals): The intervals.

    Efron & Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13.
    """
    tp, fp, fn = bootstrap(counts, n_samples=n_samples).T
    return ScoreIntervals(
        _middle(precision(tp, fp)), _middle(recall(tp, fn)), _middle(f_score(tp, fp, fn))
    )


def _middle(sampled: Floats1d) -> tuple[float, float]:
    """The range of the middle 95 % of samples, (n,)."""
    low, high = numpy.percentile(sampled, [2.5, 97.5]).tolist()
    return low, high


def _times_drawn(rng: numpy.random.Generator, n_docs: int, n_samples: int) -> Floats2d:
    """How often each doc is drawn in each sample. Shape: (n_samples, D)"""
    drawn = rng.integers(n_docs, size=(n_samples, n_docs))
    # `bincount` counts the indices of cells of the flattened table: sample * D + doc.
    cells = drawn + n_docs * numpy.arange(n_samples)[:, None]
    times = numpy.bincount(cells.ravel(), minlength=n_samples * n_docs)
    return times.reshape(n_samples, n_docs).astype("float64")


def difference(value: float, sampled: Floats1d) -> Difference:
    """How sure a difference between two systems is: its confidence interval and its p-value.

        p = min(1, 2 (1 + min(#(d_i <= 0), #(d_i >= 0))) / (1 + n))

    value (float): The difference on the test docs.
    sampled (Floats1d): The differences d_i on n samples of these docs. Shape: (n,)
    """
    n_not_above = int((sampled <= 0).sum())
    n_not_below = int((sampled >= 0).sum())
    p = 2 * (1 + min(n_not_above, n_not_below)) / (1 + len(sampled))
    low, high = _middle(sampled)
    return Difference(value, low, high, min(1.0, p))


def paired_differences(
    counts: FloatsXd,
    score: Callable[[FloatsXd], FloatsXd],
    *,
    baseline: int = 0,
    n_samples: int = 10_000,
) -> list[list[Difference]]:
    """Compare systems with a baseline by the paired bootstrap over docs. Scores are averaged
    over seeds. The samples are the same for all systems, seeds and scores.

    counts (FloatsXd): The counts. Shape: (systems, seeds, docs, columns)
    score (Callable[[FloatsXd], FloatsXd]): Computes scores from counts summed over docs.
        Shape: (..., columns) to (scores, ...)
    baseline (int): The index of the system that the others are compared with.
    n_samples (int): The number of bootstrap samples.
    RETURNS (list[list[Difference]]): For each score, the difference of each system.
    """
    n_systems, n_seeds, n_docs, n_columns = counts.shape
    # A row for each doc, with the counts of all systems and seeds, so that they share the samples.
    by_doc = numpy.moveaxis(counts, 2, 0).reshape(n_docs, -1)
    sums = bootstrap(by_doc, n_samples=n_samples)
    sampled_counts = sums.reshape(-1, n_systems, n_seeds, n_columns)
    # Means over seeds. Shapes: (scores, systems), (scores, samples, systems)
    means = score(counts.sum(axis=2)).mean(axis=-1)
    sampled_means = score(sampled_counts).mean(axis=-1)
    differences_of_scores: list[list[Difference]] = []
    for mean, sampled_mean in zip(means, sampled_means):
        # How far each system is ahead of the baseline. Shapes: (systems,), (samples, systems)
        leads = mean - mean[baseline]
        sampled_leads = sampled_mean - sampled_mean[:, baseline, None]
        differences: list[Difference] = []
        for lead, sampled_leads_of_system in zip(leads.tolist(), sampled_leads.T):
            differences.append(difference(lead, sampled_leads_of_system))
        differences_of_scores.append(differences)
    return differences_of_scores
