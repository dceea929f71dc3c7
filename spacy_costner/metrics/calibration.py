"""Calibration of confidence: reliability, the expected calibration error, and a confidence interval
for a proportion.

In shapes, E is the number of predictions.
"""

from math import sqrt
from typing import Any

import numpy
from thinc.types import Array1d, Floats1d, Ints1d

N_BINS = 10
"""The default number of bins. Each bin has a width of 0.1."""


def reliability(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> list[dict[str, Any]]:
    """Compare confidence with precision in bins of confidence.

    probs (Floats1d): The confidence of each prediction. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): The number of equal-width bins.
    RETURNS (list[dict[str, Any]]): The bins in ascending order. Each bin contains its bounds "from"
        (inclusive) and "to" (exclusive, except for 1), the number of predictions "n", their mean
        "confidence" and the fraction of correct predictions, "right". The last two are None for an
        empty bin.
    """
    bin_of_prediction = _find_bins(probs, n_bins)
    rows: list[dict[str, Any]] = []
    for i in range(n_bins):
        is_in_bin = bin_of_prediction == i
        n = int(is_in_bin.sum())
        confidence = None
        share_right = None
        if n > 0:
            confidence = float(probs[is_in_bin].mean())
            share_right = float(right[is_in_bin].mean())
        rows.append(
            {
                "from": i / n_bins,
                "to": (i + 1) / n_bins,
                "n": n,
                "confidence": confidence,
                "right": share_right,
            }
        )
    return rows


def calibration_error(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> float:
    """Compute the expected calibration error, between 0 and 1. It is the weighted mean absolute
    difference between confidence and precision over bins of confidence:

        sum_bins n_bin / n |mean confidence - fraction of correct predictions|

    probs (Floats1d): The confidence of each prediction, at least one. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): The number of equal-width bins.
    RETURNS (float): The expected calibration error.

    Naeini et al., 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    # n_bin times the difference between the two means equals the sum of the differences in the bin,
    # which is computed with a weighted `bincount`. Shape: (n_bins,)
    differences = numpy.bincount(_find_bins(probs, n_bins), weights=probs - right, minlength=n_bins)
    return float(numpy.abs(differences).sum() / len(probs))


def _find_bins(probs: Floats1d, n_bins: int) -> Ints1d:
    """Return the index of the equal-width bin of each probability. A probability of 1 belongs to
    the last bin. Shape: (E,)"""
    rounded_down = (numpy.asarray(probs) * n_bins).astype("int64")
    return numpy.minimum(rounded_down, n_bins - 1)


def wilson_interval(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Compute the Wilson score interval, a confidence interval for a proportion.

        (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    share (float): The observed proportion p.
    n (int): The number of observations, at least 1.
    z (float): The quantile of the normal distribution, e.g. 1.96 for a 95% interval.
    RETURNS (tuple[float, float]): The lower and upper bounds.

    Wilson, 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    middle = share + z * z / (2 * n)
    half_width = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (middle - half_width) / scale, (middle + half_width) / scale
