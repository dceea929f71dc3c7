"""Find the input files of `annotate` and divide them into parts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...readers import CorpusError
from ...readers.file_parts import FilePart, divide
from ...readers.files import digest, is_about_corpus


class PlannedPart(NamedTuple):
    """A part to annotate."""

    part: FilePart
    key: str  # the fingerprint of the part, the model and the settings


def plan_parts(
    sources: Mapping[str, Path],
    n_rows: int,
    form: str,
    settings: Sequence[Any],
    *,
    whole_files: bool,
) -> dict[str, PlannedPart]:
    """Divide all inputs into parts.

    sources (Mapping[str, Path]): The input files, keyed by their names in the output.
    n_rows (int): Number of lines or rows per part. See `divide`.
    form (str): The output format, which is also the suffix of the output files.
    settings (Sequence[Any]): JSON-serializable settings that affect the output.
    whole_files (bool): Whether to read each .txt file as one doc. See `divide`.
    RETURNS (dict[str, PlannedPart]): The parts, keyed by output file name.
    RAISES (CorpusError): If the format of an input isn't supported.
    """
    planned: dict[str, PlannedPart] = {}
    for source, path in sources.items():
        for number, part in enumerate(divide(path, n_rows, whole_files=whole_files)):
            file = f"{source}-{number:05}.{form}"
            key = digest(settings, part.digest)
            planned[file] = PlannedPart(part, key)
    return planned


def find_sources(inputs: Sequence[Path], folder: Path | None = None) -> dict[str, Path]:
    """Find the input files and assign each file a name, which is the prefix of its output file
    names.

    inputs (Sequence[Path]): Files or directories of files. In a directory, hidden files are
        ignored, as are files about the corpus such as a README (see `is_about_corpus`).
    folder (Path | None): The output directory. It must not be inside an input directory.
    RETURNS (dict[str, Path]): The paths of the input files, keyed by name. The name of a file in a
        directory is its path relative to the directory.
    RAISES (ValueError): If an input doesn't exist, the output directory is inside an input
        directory, or two files have the same name.
    """
    sources: dict[str, Path] = {}
    for input_path in inputs:
        if not input_path.exists():
            raise CorpusError(f"{input_path}: expected a file or folder, found neither")
        if not input_path.is_dir():
            add_source(sources, input_path.name, input_path)
            continue
        if folder is not None and folder.resolve().is_relative_to(input_path.resolve()):
            raise ValueError(f"{folder}: expected an output outside of the input {input_path}")
        for path in sorted(input_path.rglob("*")):
            names = path.relative_to(input_path).parts
            is_hidden = any(name.startswith(".") for name in names)
            if path.is_file() and not is_hidden and not is_about_corpus(path):
                add_source(sources, "/".join(names), path)
    return sources


def add_source(sources: dict[str, Path], name: str, path: Path) -> None:
    """Add an input file to `sources`. Raise a CorpusError if another file has the same name,
    because their output files would collide."""
    earlier_path = sources.setdefault(name, path)
    if earlier_path != path:
        raise CorpusError(f"expected files with different names, got {earlier_path} and {path}")
