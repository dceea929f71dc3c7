"""Checks of what a config says: numbers, names of labels, costs."""

import math
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence, Tuple

from thinc.api import Config, ConfigValidationError


def number(value: Any) -> float:
    """What a config says, as a number: `psi = inf` and `psi = nan` come as text.

    RETURNS (float): The number; NaN, which no check lets pass, if it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def check_cost(cost: float, where: str) -> float:
    """Check what a mistake costs.

    cost (float): The cost.
    where (str): What messages call it.
    RETURNS (float): The cost.
    RAISES (ValueError): If it is negative or not finite.
    """
    if not 0 <= number(cost) < math.inf:
        raise ValueError(f"{where}: expected a finite number of at least 0, got {cost!r}")
    return number(cost)


def check_names(block: Mapping[str, Any], where: str) -> None:
    """Check that a config with this block can be written and read again.

    A trained pipeline takes its config along as text, and not every label survives that: a
    dot in the name of a section, say, reads as two sections. Such a pipeline would be
    trained and saved, and could not be loaded.

    block (Mapping[str, Any]): The block, with blocks in it.
    where (str): What messages call it.
    RAISES (ValueError): If one of the names doesn't come back as it was.
    """
    for name, value in block.items():
        is_section = isinstance(value, Mapping)
        if not _survives(name, is_section):
            raise ValueError(
                f"{where}: expected names that a spaCy config can write and read again, "
                f"got {name!r}"
            )
        if is_section:
            check_names(value, where)


@cache
def _survives(name: str, is_section: bool) -> bool:
    config = Config({"block": {name: {} if is_section else 0}})
    try:
        return Config().from_str(config.to_str()) == config
    except ConfigValidationError:
        return False


def without_repetition(pairs: Sequence[Tuple[str, Any]]) -> Dict[str, Any]:
    """Make a mapping of names and values.

    pairs (Sequence[Tuple[str, Any]]): The names and values.
    RETURNS (Dict[str, Any]): The mapping.
    RAISES (ValueError): If a name stands there twice.
    """
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"expected each name once, found twice: {twice!r}")
    return mapping


def describe(value: Any) -> Any:
    """Say what a block of the config has made, in the same way in every process.

    value (Any): IdMap, names, and factories' results: partial functions, trees, matrices.
    RETURNS (Any): JSON.
    """
    if isinstance(value, partial):
        return describe([value.func, value.args, value.keywords])
    if isinstance(value, Mapping):
        return {str(name): describe(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    if hasattr(value, "source"):
        return describe(value.source)
    return getattr(value, "__qualname__", type(value).__qualname__)


def warn_of_old_name(old: str, new: str) -> None:
    """Say what an old name is called now."""
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
