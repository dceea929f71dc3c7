"""Cache results in JSON files.

The file of a result also has a key: the fingerprint of the arguments and of the files that they
name. A file that has another key, or is damaged, is not used.
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
    """Return a cached value, or compute it and cache it. In both cases the value has gone through
    JSON: a tuple has become a list, for example. Floats are exactly the same.

    path (Path): The file of the cache.
    key (str): The fingerprint of what the value depends on.
    make (Callable[[], ValueT]): Computes the value, which must be valid JSON and not None.
    """
    value = read_cache(path, key)
    if value is None:
        text = json.dumps({"key": key, "value": make()})
        save_text(path, text)
        value = json.loads(text)["value"]
    return value


def read_cache(path: Path, key: str) -> Any | None:
    """Read a cached value. Returns None if there is no file, or if the file has another key or is
    damaged."""
    with suppress(OSError, ValueError, RecursionError):
        cached = json.loads(path.read_bytes())
        if isinstance(cached, dict) and cached.get("key") == key:
            return cached.get("value")
    return None


def fingerprint(*parts: Any) -> str:
    """Compute a digest of settings, and of the files and folders that they name. It is another one
    if a setting or the content of a file has changed.

    *parts (Any): The settings, as JSON.
    """
    texts = sorted(set(texts_of(parts)))
    # Any text may be a path. It is one if there is something under it.
    paths = [Path(text) for text in texts if exists(text)]
    return digest(parts, *paths)


def texts_of(settings: Any) -> Iterator[str]:
    """Find all strings in settings, however deep in mappings and lists."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for setting in settings.values():
            yield from texts_of(setting)
    elif isinstance(settings, (list, tuple)):
        for setting in settings:
            yield from texts_of(setting)
