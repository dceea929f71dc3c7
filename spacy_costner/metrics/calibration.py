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
    bins, rows = _bins(probs, n_bins), []
    for i in range(n_bins):
        n = int((bins == i).sum())
        sure, share = (float(x[bins == i].mean()) if n else None for x in (probs, right))
        bounds = {"from": i / n_bins, "to": (i + 1) / n_bins}
        rows.append({**bounds, "n": n, "confidence": sure, "right": share})
    return rows


def calibration_error(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> float:
    """The expected calibration error, from 0 to 1: the mean distance between confidence and
    precision. Shapes: (E,), at least one prediction

        sum_bins n_bin / n |mean confidence - share of correct predictions|

    Naeini et al., 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    too_sure = numpy.bincount(_bins(probs, n_bins), weights=probs - right, minlength=n_bins)
    return float(numpy.abs(too_sure).sum() / len(probs))


def _bins(probs: Floats1d, n_bins: int) -> Ints1d:
    return numpy.minimum((numpy.asarray(probs) * n_bins).astype("int64"), n_bins - 1)


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """The bounds of the Wilson score interval of a share p of n observations. z is the quantile
    of the normal distribution.

        (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Wilson, 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    middle = share + z * z / (2 * n)
    reach = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - reach) / (1 + z * z / n), (middle + reach) / (1 + z * z / n)
