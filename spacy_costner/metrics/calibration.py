"""Calibration error and reliability of confidences."""

from typing import Any, Dict, List

import numpy
from thinc.types import Array1d, Floats1d, Ints1d

N_BINS = 10


def reliability(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> List[Dict[str, Any]]:
    """Compare the confidence of predictions with the share that is correct.

    probs (Floats1d): The probability of each prediction. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): Bins of equal width.
    RETURNS (List[Dict[str, Any]]): For each bin, by increasing confidence, "from" (included) and
        "to" (excluded), the number of predictions "n", their mean "confidence", and the share
        "right" that is correct; the latter two are None for an empty bin. Probability 1 is in the
        last bin.
    """
    bins = _bins(probs, n_bins)
    counts = numpy.bincount(bins, minlength=n_bins)
    sure = numpy.bincount(bins, weights=probs, minlength=n_bins)
    n_right = numpy.bincount(bins, weights=right, minlength=n_bins)
    return [
        {
            "from": i / n_bins,
            "to": (i + 1) / n_bins,
            "n": int(n),
            "confidence": float(sure[i] / n) if n else None,
            "right": float(n_right[i] / n) if n else None,
        }
        for i, n in enumerate(counts.tolist())
    ]


def calibration_error(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> float:
    """The expected calibration error: the mean distance of confidence and precision.

        sum_bins n_bin / n |mean confidence - share of correct predictions|

    probs (Floats1d): The probability of each prediction, at least one. Shape: (E,)
    right (Array1d): True for correct predictions. Shape: (E,)
    n_bins (int): Bins of equal width.
    RETURNS (float): The error, between 0 and 1.

    Naeini et al., 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    too_sure = numpy.bincount(_bins(probs, n_bins), weights=probs - right, minlength=n_bins)
    return float(numpy.abs(too_sure).sum() / len(probs))


def _bins(probs: Floats1d, n_bins: int) -> Ints1d:
    return numpy.minimum((numpy.asarray(probs) * n_bins).astype("int64"), n_bins - 1)
