"""What `make test` leaves to `make test-slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *fast: Any) -> list[Any]:
    """Parameters of a test, all marked `slow` but a few that stand for them."""
    parameters = []
    for value in values:
        marks = [] if value in fast else [pytest.mark.slow]
        parameters.append(pytest.param(value, marks=marks))
    return parameters
