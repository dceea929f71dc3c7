"""Logarithms of numbers that may be 0, in float64."""

from typing import Any, TypeVar

import numpy
from thinc.types import Floats1d, Floats2d, Floats3d
from thinc.util import get_array_module

FloatsT = TypeVar("FloatsT", Floats1d, Floats2d, Floats3d)


def log_sum_exp(scores: Any, axis: int) -> Any:
    """log sum exp along an axis; minus infinity if all scores are."""
    xp = get_array_module(scores)
    largest = zero_if_infinite(scores.max(axis=axis, keepdims=True))
    return logarithm(xp.exp(scores - largest).sum(axis=axis)) + largest.squeeze(axis)


def logarithm(numbers: FloatsT) -> FloatsT:
    """The logarithm in float64, minus infinity of 0."""
    with numpy.errstate(divide="ignore"):
        return get_array_module(numbers).log(numbers.astype("float64"))


def zero_if_infinite(scores: FloatsT) -> FloatsT:
    """0 in place of minus infinity, so that it can be subtracted from itself."""
    xp = get_array_module(scores)
    return xp.where(xp.isfinite(scores), scores, xp.zeros_like(scores))
