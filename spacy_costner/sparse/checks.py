"""Checks of arguments, for compiled and array code."""

import numpy
from thinc.types import ArrayXd


def wrong(name: str, expected: object, got: object) -> ValueError:
    """The error of an argument.

    name (str): What of which argument.
    expected, got (object): What it should be, and is.
    RETURNS (ValueError): To be raised.
    """
    return ValueError(f"{name}: expected {expected}, got {got}")


def same(name: str, got: int, expected: int) -> None:
    """Check a size.

    RAISES (ValueError): If it is another.
    """
    if got != expected:
        raise wrong(name, expected, got)


def not_negative(name: str, numbers: ArrayXd) -> None:
    """Check indices or lengths.

    RAISES (ValueError): If one is below 0.
    """
    if (numbers < 0).any():
        raise wrong(name, "at least 0", numbers[numbers < 0][0])


def below(name: str, indices: ArrayXd, n: int) -> None:
    """Check indices, which may be negative.

    RAISES (ValueError): If one is n or more.
    """
    if numpy.max(indices, initial=-1) >= n:
        raise wrong(name, f"less than {n}", int(numpy.max(indices)))
