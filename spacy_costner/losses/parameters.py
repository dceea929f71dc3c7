"""Checks of the numbers that a config gives to a loss."""

import math
from typing import Collection, Optional, TypeVar

from ..validation import number

ChoiceT = TypeVar("ChoiceT")


def at_least(least: float, loss: str, name: str, value: Optional[float]) -> float:
    """Check a number that has a lower bound.

    least (float): The least that it may be.
    loss (str): The loss, as the config names it.
    name (str): The parameter, as the config names it.
    value (Optional[float]): What the config says.
    RETURNS (float): The value.
    RAISES (ValueError): If it is less or not finite.
    """
    if not least <= number(value) < math.inf:
        raise ValueError(_message(loss, name, f"a number of at least {least}", value))
    return number(value)


def above(least: float, loss: str, name: str, value: float) -> float:
    """Check a number that has to be more than another; see `at_least`."""
    if not least < number(value) < math.inf:
        raise ValueError(_message(loss, name, f"a number above {least}", value))
    return number(value)


def finite(loss: str, name: str, value: float) -> float:
    """Check a number that may be any; see `at_least`."""
    if not math.isfinite(number(value)):
        raise ValueError(_message(loss, name, "a finite number", value))
    return number(value)


def within(least: float, most: float, loss: str, name: str, value: float) -> float:
    """Check a number that has two bounds; see `at_least`."""
    if not least <= number(value) <= most:
        raise ValueError(_message(loss, name, f"a number from {least} to {most}", value))
    return number(value)


def one_of(choices: Collection[ChoiceT], loss: str, name: str, value: ChoiceT) -> ChoiceT:
    """Check a value that is one of some; see `at_least`."""
    if value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise ValueError(_message(loss, name, expected, value))
    return value


def _message(loss: str, name: str, expected: str, value: object) -> str:
    return f"spacy_costner.{loss}: {name}: expected {expected}, got {value!r}"
