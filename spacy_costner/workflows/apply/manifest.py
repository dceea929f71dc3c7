"""The manifest of an output directory, which records the parts that have been annotated.

When the output file of a part is complete, an entry is added to the manifest. Each entry contains a
*key*, the fingerprint of the model, the settings and the input. A later run keeps a part if its key
hasn't changed.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...metrics.shift import EntityCounts
from ...readers.files import MANIFEST
from .inputs import PlannedPart

OUTPUT = re.compile(r"(.+)-\d{5,}\.(jsonl|parquet|spacy)", re.DOTALL)
"""The pattern of output file names: the name of the input file and the number of the part."""

N_COUNTS = 3
"""The number of values per label in `EntityCounts`."""


class PartMeasures(NamedTuple):
    """A component's measures of the docs in a part, for the shift test."""

    scores: list[float]  # the score of each doc with tokens to predict
    counts: EntityCounts  # three entity counts per label, summed over the docs


class ManifestEntry(NamedTuple):
    """An entry of the manifest, which describes an annotated part and its output."""

    file: str  # the output file, relative to the output directory
    key: str  # the fingerprint of the part, the model and the settings
    bytes: int  # the size of the output file
    docs: int  # the number of docs, including failed docs
    failed: int  # the number of docs that failed
    tokens: int  # the number of tokens, excluding failed docs
    shift: dict[str, PartMeasures]  # by component name
    warnings: list[str]
    first_error: str  # the ID and error of the first doc that failed, or an empty string

    def to_line(self) -> str:
        """Serialize the entry to a line of JSON."""
        shift = {name: measures._asdict() for name, measures in self.shift.items()}
        return json.dumps({**self._asdict(), "shift": shift}) + "\n"


ENTRY_TYPES = {
    "file": str,
    "key": str,
    "bytes": int,
    "docs": int,
    "failed": int,
    "tokens": int,
    "shift": dict,
}
"""The JSON types of the required fields of an entry. "warnings" and "first_error" are optional,
because version 0.3.0 didn't write them."""


def read_manifest(folder: Path) -> dict[str, ManifestEntry]:
    """Read the manifest of an output directory. Return its entries, keyed by output file name.
    Damaged lines are skipped. If a file has several entries, the last one is used."""
    path = folder / MANIFEST
    entries: dict[str, ManifestEntry] = {}
    if not path.is_file():
        return entries
    for line in path.read_bytes().split(b"\n"):
        entry = parse_entry(line)
        if entry is not None:
            entries[entry.file] = entry
    return entries


def parse_entry(line: bytes) -> ManifestEntry | None:
    """Parse a line of the manifest. Return None if the line is damaged or its file name isn't a
    valid output file name."""
    try:
        json_entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(json_entry, dict):
        return None
    for name, json_type in ENTRY_TYPES.items():
        if type(json_entry.get(name)) is not json_type:  # `isinstance` accepts bool as int
            return None
    if not OUTPUT.fullmatch(json_entry["file"]):
        return None
    messages = json_entry.get("warnings", [])  # not written by 0.3.0
    first_error = json_entry.get("first_error", "")  # not written by 0.3.0
    if not is_list_of(messages, str) or not isinstance(first_error, str):
        return None
    shift: dict[str, PartMeasures] = {}
    for component, measures in json_entry["shift"].items():
        if not are_measures(measures):
            return None
        shift[component] = PartMeasures(measures["scores"], measures["counts"])
    fields = {name: json_entry[name] for name in ENTRY_TYPES}
    return ManifestEntry(
        **{**fields, "shift": shift, "warnings": messages, "first_error": first_error}
    )


def are_measures(value: Any) -> bool:
    """Check whether a JSON value contains valid `PartMeasures`: a list of scores, and a list of
    `N_COUNTS` numbers per label."""
    if not isinstance(value, dict) or not is_list_of(value.get("scores"), int, float):
        return False
    counts = value.get("counts")
    if not isinstance(counts, dict):
        return False
    for numbers in counts.values():
        if not is_list_of(numbers, int, float) or len(numbers) != N_COUNTS:
            return False
    return True


def is_list_of(value: Any, *types: type) -> bool:
    """Check whether a JSON value is a list that contains only items of the given types."""
    return isinstance(value, list) and all(type(item) in types for item in value)


def find_finished(
    folder: Path,
    entries: Mapping[str, ManifestEntry],
    planned: Mapping[str, PlannedPart],
    *,
    with_failed_docs: bool,
) -> dict[str, ManifestEntry]:
    """Find the planned parts that don't need to be annotated again. A part is finished if an
    earlier run used the same input, model and settings, and if its output file still exists and has
    the expected size.

    folder (Path): The output directory.
    entries (Mapping[str, ManifestEntry]): The entries of earlier runs, by output file name.
    planned (Mapping[str, PlannedPart]): The parts of this run, by output file name.
    with_failed_docs (bool): Whether parts with failed docs can be finished.
    RETURNS (dict[str, ManifestEntry]): The entries of the finished parts, by output file name.
    """
    finished_entries: dict[str, ManifestEntry] = {}
    for file, planned_part in planned.items():
        entry = entries.get(file)
        path = folder / file
        # The key differs if the input, the model or a setting has changed.
        if entry is None or entry.key != planned_part.key or not path.is_file():
            continue
        if entry.failed and not with_failed_docs:
            continue
        if path.stat().st_size == entry.bytes:
            finished_entries[file] = entry
    return finished_entries


def remove_vanished_parts(
    folder: Path,
    entries: dict[str, ManifestEntry],
    sources: Collection[str],
    planned: Collection[str],
) -> None:
    """Remove the output files and entries of parts that no longer exist, because the input is
    shorter, the parts are larger, or the output format has changed.

    folder (Path): The output directory.
    entries (dict[str, ManifestEntry]): The entries by output file name. The entries of removed
        files are deleted in place.
    sources (Collection[str]): The names of the inputs of this run. Output for other inputs is kept.
    planned (Collection[str]): The output file names of all parts of this run.
    """
    for file in list(entries):
        # For example, the output file of the third part of a.jsonl is "a.jsonl-00002.spacy".
        source, _, _ = file.rpartition("-")
        # A manifest from an untrusted source may contain any path. If the path starts with the name
        # of an input, the file is inside the output directory and can be removed safely.
        if source in sources and file not in planned:
            (folder / file).unlink(missing_ok=True)
            del entries[file]
