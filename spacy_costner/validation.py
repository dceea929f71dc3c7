"""Check values of a config: numbers, names, costs and parameters of losses. Also check that
optional packages are installed.

Losses are computed in float32, so a parameter must not be above the largest number of float32. A
config may have a number as a string, so checks of numbers return the value as a number. A wrong
value is a ValueError.
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
"""The expected value in the message for a number that is too large."""


def require(module: str, extra: str, missing: str) -> Any:
    """Import a module of an optional package.

    module (str): The name of the module.
    extra (str): The extra of this package that installs it.
    missing (str): The beginning of the message if it isn't installed. The message ends with the
        command that installs it.
    RETURNS (Any): The imported module.
    RAISES (ImportError): If it isn't installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{missing}: pip install 'spacy-costner[{extra}]'") from error


def as_number(value: Any) -> float:
    """Convert a value of a config to a number. It may be a string: `psi = inf` and `psi = nan` are
    read as strings. If it isn't a number, the result is NaN, which every check refuses."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def check_cost(cost: float, where: str) -> float:
    """Check that a cost (or a weight, or a penalty) is at least 0, finite, and not too large for
    float32.

    cost (float): The cost, possibly as a string.
    where (str): The name of the cost, for the error.
    RETURNS (float): The cost as a number.
    RAISES (ValueError): If it is another value.
    """
    if not 0 <= as_number(cost) < math.inf:
        raise ValueError(f"{where}: expected a finite number of at least 0, got {cost!r}")
    if as_number(cost) > LARGEST_FLOAT32:
        raise ValueError(f"{where}: expected {AT_MOST_FLOAT32}, got {cost!r}")
    return as_number(cost)


# Each of the following functions checks a parameter of a loss, and returns its value. `loss` and
# `name` are the names of the loss and of the parameter, for the message of the ValueError.


def at_least(least: float, loss: str, name: str, value: float | None) -> float:
    """Check that a parameter of a loss is finite and at least `least`."""
    if not least <= as_number(value) < math.inf:
        raise ValueError(_message(loss, name, f"a number of at least {least}", value))
    return _check_float32(loss, name, value)


def above(least: float, loss: str, name: str, value: float) -> float:
    """Check that a parameter of a loss is finite and above `least`."""
    if not least < as_number(value) < math.inf:
        raise ValueError(_message(loss, name, f"a number above {least}", value))
    return _check_float32(loss, name, value)


def finite(loss: str, name: str, value: float) -> float:
    """Check that a parameter of a loss is finite."""
    if not math.isfinite(as_number(value)):
        raise ValueError(_message(loss, name, "a finite number", value))
    return _check_float32(loss, name, value)


def within(least: float, most: float, loss: str, name: str, value: float) -> float:
    """Check that a parameter of a loss is between `least` and `most`, inclusive."""
    if not least <= as_number(value) <= most:
        raise ValueError(_message(loss, name, f"a number from {least} to {most}", value))
    return as_number(value)


def one_of(choices: Collection[ChoiceT], loss: str, name: str, value: ChoiceT) -> ChoiceT:
    """Check that a parameter of a loss is one of `choices`."""
    if value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise ValueError(_message(loss, name, expected, value))
    return value


def _check_float32(loss: str, name: str, value: Any) -> float:
    """Check that the finite value of a parameter is not too large for float32, and return it as a
    number."""
    if abs(as_number(value)) > LARGEST_FLOAT32:
        raise ValueError(_message(loss, name, AT_MOST_FLOAT32, value))
    return as_number(value)


def _message(loss: str, name: str, expected: str, value: object) -> str:
    """The error message for a wrong value of a parameter of a loss."""
    return f"spacy_costner.{loss}: {name}: expected {expected}, got {value!r}"


def check_config_names(block: Mapping[str, Any], where: str) -> None:
    """Check that a config with this block can be written as text and read again. For example, a
    section with a dot in its name would be read as two sections. A pipeline with such a config
    could be trained and saved, but not loaded.

    block (Mapping[str, Any]): The settings and sections of the block, by name.
    where (str): The beginning of the error message.
    RAISES (ValueError): If a name would be read as something else.
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
    """Whether a config with a setting or a section of this name stays the same when it is written
    and read."""
    content: Any = 0
    if is_section:
        content = {}
    config = Config({"block": {name: content}})
    # Since 3.14, Python refuses to write a name that it would read as something else.
    with suppress(ConfigValidationError, configparser.Error):
        return Config().from_str(config.to_str()) == config
    return False


def without_repetition(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary from names and values, and check that no name is repeated. `dict` itself
    would silently keep the last value of such a name. This function can be the `object_pairs_hook`
    of `json.loads`, for example.

    RAISES (ValueError): If a name is repeated.
    """
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = [name for name in names if names.count(name) > 1]
        raise ValueError(f"expected each name once, got {repeated[0]!r} twice")
    return mapping


def resolved_as_json(value: Any) -> Any:
    """Convert a resolved block of the config to JSON: numbers, names, and the results of registered
    functions, such as partial functions, label trees and cost matrices. The same block becomes the
    same JSON in every process, so it can be saved and compared later."""
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
        # A tree or a matrix keeps what the config says.
        return resolved_as_json(value.source)
    # Only the name of a function or class. `repr` would have an address in memory, which differs
    # between processes.
    return getattr(value, "__qualname__", type(value).__qualname__)
