"""How well confidence is calibrated: reliability, the expected calibration error, and a confidence
interval for a share.

In shapes, E is the number of predictions.
"""

from math import sqrt
from typing import Any

import numpy
from thinc.types import Array1d, Floats1d, Ints1d

N_BINS = 10
"""The default number of bins, so that a bin is a tenth wide."""


def reliability(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> list[dict[str, Any]]:
    """Compare confidence with precision, in bins of confidence.

    probs (Floats1d): The confidence of each prediction. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): The number of bins, which have equal width.
    RETURNS (list[dict[str, Any]]): For each bin, in ascending order: its bounds "from" (included)
        and "to" (excluded, except 1), the number "n" of its predictions, their mean "confidence",
        and the share of correct ones, "right". The last two are None for an empty bin.
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
    """Compute the expected calibration error, from 0 to 1. It is the mean distance between
    confidence and precision, over bins of confidence:

        sum_bins n_bin / n |mean confidence - share of correct predictions|

    probs (Floats1d): The confidence of each prediction, at least one. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): The number of bins, which have equal width.
    RETURNS (float): The error.

    Naeini et al., 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    # n_bin times the difference of the two means is the sum of all differences in the bin, which
    # `bincount` computes with weights. Shape: (n_bins,)
    differences = numpy.bincount(_find_bins(probs, n_bins), weights=probs - right, minlength=n_bins)
    return float(numpy.abs(differences).sum() / len(probs))


def _find_bins(probs: Floats1d, n_bins: int) -> Ints1d:
    """Find the bin of each probability. Bins have equal width. A probability of 1 is in the last
    one. Shape: (E,)"""
    rounded_down = (numpy.asarray(probs) * n_bins).astype("int64")
    return numpy.minimum(rounded_down, n_bins - 1)


def wilson_interval(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Compute the confidence interval of a share: the Wilson score interval.

        (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    share (float): The share that was observed, p.
    n (int): The number of observations, at least one.
    z (float): The quantile of the normal distribution: 1.96 for an interval of 95 %.
    RETURNS (tuple[float, float]): The lower and the upper bound.

    Wilson, 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    middle = share + z * z / (2 * n)
    half_width = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (middle - half_width) / scale, (middle + half_width) / scale
