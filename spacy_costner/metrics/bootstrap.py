"""Whether one system is better than another, or was lucky with the test docs."""

from typing import Callable, List, NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, FloatsXd

BLOCK = 2**22
"""How many docs are drawn at once, at most: what fits into memory with ease."""


class Difference(NamedTuple):
    """How far the score of a system is from that of another.

    value (float): The difference on the docs there are.
    low, high (float): The middle 95 % of the differences over samples lie between these.
    p (float): Twice the share of samples that show none, or one of the other sign: the
        two-sided level of significance.
    """

    value: float
    low: float
    high: float
    p: float


def bootstrap(counts: Floats2d, *, n_samples: int = 10_000, seed: int = 0) -> Floats2d:
    """Add up counts over samples of docs, each of as many docs as there are, drawn with
    replacement. All columns see the same samples, which makes comparisons of them paired.

        sums[i, m] = sum_d n_id counts[d, m],  n_i ~ Multinomial(D; 1/D, ..., 1/D)

    counts (Floats2d): What was counted in each of D docs, at least one. Shape: (D, M)
    n_samples (int): How many samples, at least one.
    seed (int): The same seed draws the same samples.
    RETURNS (Floats2d): Shape: (n_samples, M)

    Koehn (2004), as in Gimpel & Smith (2010), section 4.2.
    """
    rng = numpy.random.default_rng(seed)
    n_docs = len(counts)
    in_block = max(BLOCK // n_docs, 1)
    sizes = [min(in_block, n_samples - begin) for begin in range(0, n_samples, in_block)]
    return numpy.concatenate([_times_drawn(rng, n_docs, size) @ counts for size in sizes])


def _times_drawn(rng: numpy.random.Generator, n_docs: int, n_samples: int) -> Floats2d:
    """How often each doc is in each sample. Shape: (n_samples, D)"""
    drawn = rng.integers(n_docs, size=(n_samples, n_docs))
    cells = drawn + n_docs * numpy.arange(n_samples)[:, None]
    times = numpy.bincount(cells.ravel(), minlength=n_samples * n_docs)
    return times.reshape(n_samples, n_docs).astype("float64")


def difference(value: float, sampled: Floats1d) -> Difference:
    """Judge a difference by what it is in samples.

        p = min(1, 2 (1 + min(#(d_i <= 0), #(d_i >= 0))) / (1 + n))

    value (float): The difference d on the docs there are.
    sampled (Floats1d): The difference on each of n samples. Shape: (n,)
    RETURNS (Difference): The judgement.
    """
    tail = min(int((sampled <= 0).sum()), int((sampled >= 0).sum()))
    low, high = numpy.percentile(sampled, [2.5, 97.5]).tolist()
    return Difference(value, low, high, min(1.0, 2 * (1 + tail) / (1 + len(sampled))))


def paired_differences(
    counts: FloatsXd,
    score: Callable[[FloatsXd], FloatsXd],
    *,
    baseline: int = 0,
    n_samples: int = 10_000,
) -> List[List[Difference]]:
    """Compare systems with one of them by the mean scores of their seeds: the paired bootstrap
    over docs, with the same samples for all systems, seeds and scores.

    counts (FloatsXd): What was counted of each system, with each seed, in each doc. Shape:
        (systems, seeds, docs, columns)
    score (Callable[[FloatsXd], FloatsXd]): Makes scores of counts that are added up over docs.
        Shape: (..., columns) to (scores, ...)
    baseline (int): The system that all are compared with.
    n_samples (int): How many samples of docs.
    RETURNS (List[List[Difference]]): For each score one for each system.
    """
    n_systems, n_seeds, n_docs, n_columns = counts.shape
    sums = bootstrap(numpy.moveaxis(counts, 2, 0).reshape(n_docs, -1), n_samples=n_samples)
    sampled = score(sums.reshape(-1, n_systems, n_seeds, n_columns))
    return [
        [
            difference(float(mean[i] - mean[baseline]), means[:, i] - means[:, baseline])
            for i in range(n_systems)
        ]
        for mean, means in zip(score(counts.sum(axis=2)).mean(axis=-1), sampled.mean(axis=-1))
    ]
