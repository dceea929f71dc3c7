"""The manifest of an output folder: which parts earlier runs have annotated.

As soon as the output file of a part is complete, the part gets an entry in the manifest. An entry
has a *key*, the fingerprint of the model, the settings and the input. A later run keeps the parts
whose keys would be the same now.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...metrics.shift import EntityCounts
from .inputs import PlannedPart

MANIFEST = "manifest.jsonl"
"""The name of the manifest, in the output folder."""

OUTPUT = re.compile(r"(.+)-\d{5,}\.(jsonl|parquet|spacy)", re.DOTALL)
"""The name of an output file: the name of its input, and the number of the part."""

N_COUNTS = 3
"""The number of values per label in `EntityCounts`: see there."""


class PartMeasures(NamedTuple):
    """The measures of a component on the docs of a part, for the test for a shift."""

    scores: list[float]  # the score of each doc that has tokens to predict
    counts: EntityCounts  # three numbers of entities for each label, summed over the docs


class ManifestEntry(NamedTuple):
    """A line of the manifest: a part that is done, and what its output has."""

    file: str  # the output file, relative to the folder
    key: str  # the fingerprint of the part, the model and the settings
    bytes: int  # the size of the output file
    docs: int  # the number of docs, also of those with an error
    failed: int  # the number of docs with an error
    tokens: int  # the number of tokens of the other docs
    shift: dict[str, PartMeasures]  # by component
    warnings: list[str]
    first_error: str  # the id and the error of the first doc that failed; empty if none did

    def to_line(self) -> str:
        """The entry as a JSON line."""
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
"""The types that the fields of an entry must have in JSON. "warnings" and "first_error" may be
missing: 0.3.0 wrote none."""


def read_manifest(folder: Path) -> dict[str, ManifestEntry]:
    """Read the entries of the manifest of an output folder, by output file. Damaged lines are left
    out. If a file has several entries, the last one counts."""
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
    """Read a line of the manifest. Returns None if it is damaged, or if its file doesn't have the
    name of an output file."""
    try:
        json_entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(json_entry, dict):
        return None
    for name, json_type in ENTRY_TYPES.items():
        if type(json_entry.get(name)) is not json_type:  # a boolean is an int for `isinstance`
            return None
    if not OUTPUT.fullmatch(json_entry["file"]):
        return None
    messages = json_entry.get("warnings", [])  # 0.3.0 wrote none
    first_error = json_entry.get("first_error", "")  # the same
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
    """Whether a JSON value has the fields of `PartMeasures`: the scores of docs, and the counts,
    which are lists of `N_COUNTS` numbers by label."""
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
    """Whether a JSON value is a list, and each of its items is of one of these types."""
    return isinstance(value, list) and all(type(item) in types for item in value)


def find_finished(
    folder: Path, entries: Mapping[str, ManifestEntry], planned: Mapping[str, PlannedPart]
) -> dict[str, ManifestEntry]:
    """Find the planned parts that don't have to be done again. An earlier run has done them with
    the same input, model and settings, and the output file is still there and has the same size.

    folder (Path): The output folder.
    entries (Mapping[str, ManifestEntry]): The entries of earlier runs, by output file.
    planned (Mapping[str, PlannedPart]): The parts of this run, by output file.
    RETURNS (dict[str, ManifestEntry]): The entries of these parts, by output file.
    """
    finished_entries: dict[str, ManifestEntry] = {}
    for file, planned_part in planned.items():
        entry = entries.get(file)
        path = folder / file
        # Another key means another input, model or setting.
        if entry is None or entry.key != planned_part.key or not path.is_file():
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
    """Remove output files and entries of parts that no longer exist: their input has become
    shorter, parts are larger now, or the output has another form.

    folder (Path): The output folder.
    entries (dict[str, ManifestEntry]): The entries by output file. Entries of removed files
        are removed.
    sources (Collection[str]): The names of the inputs of this run. The output of other inputs
        stays.
    planned (Collection[str]): The output files of all parts that the inputs have now.
    """
    for file in list(entries):
        # For example, the third part of a.jsonl is "a.jsonl-00002.spacy".
        source, _, _ = file.rpartition("-")
        # Somebody may have written any path into the manifest. But a file whose name begins with
        # the name of an input is in the folder, so it may be removed.
        if source in sources and file not in planned:
            (folder / file).unlink(missing_ok=True)
            del entries[file]
