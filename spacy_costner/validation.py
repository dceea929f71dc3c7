"""Validation of config values (numbers, names, costs and loss parameters), and checks for optional
packages.

Losses are computed in float32, so parameters must not exceed the largest float32 value. Numbers in
a config can be strings, so checks of numbers return the value as a number. Invalid values raise a
ValueError.
"""

import configparser
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy
from thinc.api import Config, ConfigValidationError

ChoiceT = TypeVar("ChoiceT")

LARGEST_FLOAT32 = float(numpy.finfo("float32").max)

AT_MOST_FLOAT32 = f"at most {LARGEST_FLOAT32:.2g}, the largest number of float32"
"""The expected value in error messages for numbers that are too large."""


def require(module: str, extra: str, missing: str) -> Any:
    """Import a module of an optional package.

    module (str): The name of the module.
    extra (str): The extra of spacy-costner that installs the package.
    missing (str): The beginning of the error message, which is followed by the install command.
    RETURNS (Any): The imported module.
    RAISES (ImportError): If the package isn't installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{missing}: pip install 'spacy-costner[{extra}]'") from error


def as_number(value: Any) -> float:
    """Convert a config value to a number. The value may be a string, because `psi = inf` and
    `psi = nan` are read as strings. Return NaN for other values, which every check rejects."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def check_cost(cost: float, where: str) -> float:
    """Check that a cost (or a weight or penalty) is nonnegative, finite and not too large for
    float32.

    cost (float): The cost, possibly as a string.
    where (str): The name of the cost in error messages.
    RETURNS (float): The cost as a number.
    RAISES (ValueError): If the cost is invalid.
    """
    if not 0 <= as_number(cost) < math.inf:
        raise ValueError(f"{where}: expected a finite number of at least 0, got {cost!r}")
    if as_number(cost) > LARGEST_FLOAT32:
        raise ValueError(f"{where}: expected {AT_MOST_FLOAT32}, got {cost!r}")
    return as_number(cost)


# The following functions check a loss parameter and return its value. `loss` and `name` are the
# names of the loss and the parameter in error messages. Invalid values raise a ValueError.


def at_least(least: float, loss: str, name: str, value: float | None) -> float:
    """Check that a loss parameter is finite and at least `least`."""
    if not least <= as_number(value) < math.inf:
        raise ValueError(_message(loss, name, f"a number of at least {least}", value))
    return _check_float32(loss, name, value)


def above(least: float, loss: str, name: str, value: float) -> float:
    """Check that a loss parameter is finite and above `least`."""
    if not least < as_number(value) < math.inf:
        raise ValueError(_message(loss, name, f"a number above {least}", value))
    return _check_float32(loss, name, value)


def finite(loss: str, name: str, value: float) -> float:
    """Check that a loss parameter is finite."""
    if not math.isfinite(as_number(value)):
        raise ValueError(_message(loss, name, "a finite number", value))
    return _check_float32(loss, name, value)


def within(least: float, most: float, loss: str, name: str, value: float) -> float:
    """Check that a loss parameter is between `least` and `most`, inclusive."""
    if not least <= as_number(value) <= most:
        raise ValueError(_message(loss, name, f"a number from {least} to {most}", value))
    return as_number(value)


def one_of(choices: Collection[ChoiceT], loss: str, name: str, value: ChoiceT) -> ChoiceT:
    """Check that a loss parameter is one of `choices`."""
    if value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise ValueError(_message(loss, name, expected, value))
    return value


def _check_float32(loss: str, name: str, value: Any) -> float:
    """Check that a finite loss parameter is not too large for float32, and return it as a
    number."""
    if abs(as_number(value)) > LARGEST_FLOAT32:
        raise ValueError(_message(loss, name, AT_MOST_FLOAT32, value))
    return as_number(value)


def _message(loss: str, name: str, expected: str, value: object) -> str:
    """Return the error message for an invalid loss parameter."""
    return f"spacy_costner.{loss}: {name}: expected {expected}, got {value!r}"


def check_config_names(block: Mapping[str, Any], where: str) -> None:
    """Check that a config with this block is unchanged when it is written as text and read again.
    For example, a section with a dot in its name would be read as two sections. A pipeline with
    such a config could be trained and saved, but not loaded.

    block (Mapping[str, Any]): The settings and sections of the block, by name.
    where (str): The beginning of the error message.
    RAISES (ValueError): If a name would be read differently.
    """
    for name, setting in block.items():
        is_section = isinstance(setting, Mapping)
        if not _survives(name, is_section):
            raise ValueError(
                f"{where}: expected names that a spaCy config can write and read again, got "
                f"{name!r}"
            )
        if is_section:
            check_config_names(setting, where)


@cache
def _survives(name: str, is_section: bool) -> bool:
    """Check whether a config that contains a setting or section with this name is unchanged when it
    is written and read again."""
    content: Any = 0
    if is_section:
        content = {}
    config = Config({"block": {name: content}})
    # As of Python 3.14, configparser refuses to write a name that would be read differently.
    with suppress(ConfigValidationError, configparser.Error):
        return Config().from_str(config.to_str()) == config
    return False


def without_repetition(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Create a dictionary from pairs of names and values, and check that names are unique. (`dict`
    would silently keep the last value.) Can be used as the `object_pairs_hook` of `json.loads`.

    RAISES (ValueError): If a name is repeated.
    """
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = [name for name in names if names.count(name) > 1]
        raise ValueError(f"expected each name once, got {repeated[0]!r} twice")
    return mapping


def resolved_as_json(value: Any) -> Any:
    """Convert a resolved config block to JSON. It may contain numbers, names, and the results of
    registered functions, e.g. partial functions, label trees and cost matrices. The result is the
    same in every process, so it can be saved and compared later."""
    if isinstance(value, partial):
        return resolved_as_json([value.func, value.args, value.keywords])
    if isinstance(value, Mapping):
        return {str(name): resolved_as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolved_as_json(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "source"):
        # Use the config value of a tree or a matrix.
        return resolved_as_json(value.source)
    # Use only the name of a function or class. `repr` would include the memory address, which
    # differs between processes.
    return getattr(value, "__qualname__", type(value).__qualname__)
