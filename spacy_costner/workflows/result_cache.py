"""Cache results in JSON files.

A cache file contains a result and its key, which is the fingerprint of the arguments and of any
files that they refer to. Files with a different key and damaged files are ignored.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from os.path import exists
from pathlib import Path
from typing import Any, TypeVar

from ..files.saving import save_text
from ..readers.files import digest

ValueT = TypeVar("ValueT")


def cached_result(path: Path, key: str, make: Callable[[], ValueT]) -> ValueT:
    """Return a cached value, or compute and cache it. In both cases, the value is converted to JSON
    and back, so tuples become lists, for example. Floats are preserved exactly.

    path (Path): The cache file.
    key (str): The fingerprint of everything that the value depends on.
    make (Callable[[], ValueT]): Computes the value. It must be JSON-serializable and not None.
    RETURNS (ValueT): The value.
    """
    value = read_cache(path, key)
    if value is None:
        text = json.dumps({"key": key, "value": make()})
        save_text(path, text)
        value = json.loads(text)["value"]
    return value


def read_cache(path: Path, key: str) -> Any | None:
    """Read a cached value. Return None if the file is missing or damaged, or if its key differs."""
    with suppress(OSError, ValueError, RecursionError):
        cached = json.loads(path.read_bytes())
        if isinstance(cached, dict) and cached.get("key") == key:
            return cached.get("value")
    return None


def fingerprint(*parts: Any) -> str:
    """Compute a digest of settings and any files and directories that they refer to. The digest
    changes if a setting or the content of a file changes.

    *parts (Any): The settings, which must be JSON-serializable.
    """
    texts = sorted(set(texts_of(parts)))
    # Treat a string as a path if the path exists.
    paths = [Path(text) for text in texts if exists(text)]
    return digest(parts, *paths)


def texts_of(settings: Any) -> Iterator[str]:
    """Yield all strings in settings, including strings in nested mappings and lists."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for setting in settings.values():
            yield from texts_of(setting)
    elif isinstance(settings, (list, tuple)):
        for setting in settings:
            yield from texts_of(setting)
