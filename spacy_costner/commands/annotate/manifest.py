"""`manifest.jsonl`: a line for each finished file of an output folder.

    {"file", "source", "key", "bytes", "docs", "failed", "tokens"}

The last line of a file counts. "source" is the input, "key" the fingerprint of what it is made of.
"""

import json
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterator

from ...saving import save_file

Entry = Dict[str, Any]

NAME = "manifest.jsonl"


def read_manifest(folder: Path) -> Dict[str, Entry]:
    """The entries of a folder, by the name of the file. A line that was cut off doesn't count."""
    path, found = folder / NAME, {}
    for line in path.read_text(encoding="utf8").split("\n") if path.exists() else ():
        with suppress(ValueError):
            entry = json.loads(line)
            found[entry["file"]] = entry
    return found


def has_manifest(folder: Path) -> bool:
    """Whether a folder is one that is being written to."""
    return (folder / NAME).is_file()


def is_done(folder: Path, known: Dict[str, Entry], file: str, key: str) -> bool:
    """Whether a file is there as it was finished, with this key."""
    entry, path = known.get(file), folder / file
    same = entry is not None and entry["key"] == key and path.is_file()
    return same and entry is not None and path.stat().st_size == entry["bytes"]


def remove_others(
    folder: Path, known: Dict[str, Entry], files: Collection[str], sources: Collection[str]
) -> None:
    """Remove other files of these inputs than the given ones, such as those of lines that are
    gone; and write the manifest without them."""
    for file in [*known]:
        if known[file]["source"] in sources and file not in files:
            (folder / file).unlink(missing_ok=True)
            del known[file]
    lines = [json.dumps(entry) + "\n" for entry in known.values()]
    save_file(folder / NAME, lambda path: path.write_text("".join(lines), encoding="utf8"))


@contextmanager
def adding(folder: Path) -> Iterator[Callable[[Entry], None]]:
    """Add entries to a manifest.

    YIELDS (Callable[[Entry], None]): Adds one. It is there if the process is killed afterwards.
    """
    with (folder / NAME).open("a", encoding="utf8") as file:

        def add(entry: Entry) -> None:
            file.write(json.dumps(entry) + "\n")
            file.flush()

        yield add
