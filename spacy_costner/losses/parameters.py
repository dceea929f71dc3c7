"""Checks of the numbers that a config gives to a loss."""

import math


def at_least(least: float, loss: str, name: str, value: float) -> float:
    """Check a number that has a lower bound.

    least (float): The least that it may be.
    loss (str): The loss, as the config names it.
    name (str): The parameter, as the config names it.
    value (float): What the config says.
    RETURNS (float): The value.
    RAISES (ValueError): If it is less or not finite.
    """
    if not (math.isfinite(value) and value >= least):
        raise ValueError(
            f"spacy_costner.{loss}: {name}: expected a number of at least {least}, was: {value!r}"
        )
    return value
