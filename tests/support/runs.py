"""What runs run."""

from typing import Any, Dict


def square(x: int) -> Dict[str, Any]:
    if x < 0:
        raise ValueError("below 0")
    return {"x": x, "square": x * x}
