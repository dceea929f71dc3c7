"""Whether confidences mean what they say: of all answers that are 70 % sure, 70 % are right."""

from typing import Any, Dict, List

import numpy
from thinc.types import Array1d, Floats1d, Ints1d

N_BINS = 10


def reliability(probs: Floats1d, right: Array1d, *, n_bins: int = N_BINS) -> List[Dict[str, Any]]:
    """Compare how sure answers are with how many of them are right.

    probs (Floats1d): The probability of each answer. Shape: (E,)
    right (Array1d): True for those that are right. Shape: (E,)
    n_bins (int): Bins of equal width.
    RETURNS (List[Dict[str, Any]]): For each bin, from unsure to sure, "from" and "to", the
        number of answers "n", their mean "confidence", and the share "right" of those that
        are; the latter two None for an empty bin. From "from" on, up to below "to"; answers
        of probability 1 are in the last bin.
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
    """The expected calibration error: how far confidence and precision are apart.

        sum_bins n_bin / n |mean confidence - share of right answers|

    probs (Floats1d): The probability of each answer, at least one. Shape: (E,)
    right (Array1d): True for those that are right. Shape: (E,)
    n_bins (int): Bins of equal width.
    RETURNS (float): The error, between 0 and 1.

    Naeini et al., 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning".
    """
    too_sure = numpy.bincount(_bins(probs, n_bins), weights=probs - right, minlength=n_bins)
    return float(numpy.abs(too_sure).sum() / len(probs))


def _bins(probs: Floats1d, n_bins: int) -> Ints1d:
    return numpy.minimum((numpy.asarray(probs) * n_bins).astype("int64"), n_bins - 1)
