"""Save the results of trainings in a file, with a JSON line for each, so that a benchmark can
continue where it stopped.

A line contains the fields of two named tuples: the setting of a training, and its result.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

AnySetting = TypeVar("AnySetting")
AnyResult = TypeVar("AnyResult")


def read_results(
    path: Path, setting_type: Callable[..., AnySetting], result_type: Callable[..., AnyResult]
) -> dict[AnySetting, AnyResult]:
    """Read the existing results as named tuples of the given types. Returns an empty dict if the
    file doesn't exist."""
    results: dict[AnySetting, AnyResult] = {}
    # Named tuples have a type hint for each field.
    if path.exists():
        for line in path.read_text(encoding="utf8").splitlines():
            fields = json.loads(line)
            setting = setting_type(*(fields[name] for name in get_type_hints(setting_type)))
            results[setting] = result_type(*(fields[name] for name in get_type_hints(result_type)))
    return results


def add_result(path: Path, setting: Any, result: Any) -> None:
    """Add the result of a training to the file. Both are named tuples."""
    with path.open("a", encoding="utf8") as file:
        file.write(json.dumps({**setting._asdict(), **result._asdict()}) + "\n")
