"""Calibration: reliability and the expected calibration error."""

from math import sqrt
from typing import Any

import numpy
from thinc.types import Array1d, Floats1d, Ints1d

N_BINS = 10


def reliability(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> list[dict[str, Any]]:
    """Compare confidence with precision, in bins of confidence.

    probs (Floats1d): The confidence of each prediction. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): Number of bins of equal width.
    RETURNS (list[dict[str, Any]]): For each bin in ascending order: its bounds "from" (included)
        and "to" (excluded, except 1), the number "n" of predictions, their mean "confidence", and
        the share "right" of correct ones. The last two are None for an empty bin.
    """
    bin_of_prediction = _bins(probs, n_bins)
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
    """The expected calibration error, from 0 to 1: the mean distance between confidence and
    precision.

        sum_bins n_bin / n |mean confidence - share of correct predictions|

    probs (Floats1d): The confidence of each prediction, at least one. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): Number of bins of equal width.

    Naeini et al., 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    # n_bin times the difference of both means is the sum of the differences in the bin. With
    # weights, `bincount` sums them. Shape: (n_bins,)
    differences = numpy.bincount(_bins(probs, n_bins), weights=probs - right, minlength=n_bins)
    return float(numpy.abs(differences).sum() / len(probs))


def _bins(probs: Floats1d, n_bins: int) -> Ints1d:
    """The bin of each probability, of bins of equal width; 1 is in the last one. Shape: (E,)"""
    rounded_down = (numpy.asarray(probs) * n_bins).astype("int64")
    return numpy.minimum(rounded_down, n_bins - 1)


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """The confidence interval of a share p that was seen in n observations: the bounds of the
    Wilson score interval. z is the quantile of the normal distribution, 1.96 for 95 %.

        (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Wilson, 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    middle = share + z * z / (2 * n)
    half_width = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (middle - half_width) / scale, (middle + half_width) / scale
