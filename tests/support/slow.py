"""What `make test` leaves to `make test-slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *fast: Any) -> list[Any]:
    """Parameters of a test, all marked `slow` but a few that stand for them."""
    return [
        value if value in fast else pytest.param(value, marks=pytest.mark.slow) for value in values
    ]
