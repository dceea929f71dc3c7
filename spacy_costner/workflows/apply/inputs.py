"""The input files of `annotate`, and the parts that they are divided into."""

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
    n_rows (int): Lines or rows of a part: see `divide`.
    form (str): The suffix of output files.
    settings (Sequence[Any]): What the output depends on in addition to its part, as JSON.
    whole_files (bool): Whether a .txt file is one doc: see `divide`.
    RETURNS (dict[str, PlannedPart]): The parts, keyed by the names of their output files.
    RAISES (CorpusError): If an input is of a format that can't be divided.
    """
    planned: dict[str, PlannedPart] = {}
    for source, path in sources.items():
        for number, part in enumerate(divide(path, n_rows, whole_files=whole_files)):
            file = f"{source}-{number:05}.{form}"
            key = digest(settings, part.digest)
            planned[file] = PlannedPart(part, key)
    return planned


def find_sources(inputs: Sequence[Path], folder: Path | None = None) -> dict[str, Path]:
    """List the input files by the names that their output files begin with.

    inputs (Sequence[Path]): Files, or folders of files. In a folder, hidden files don't count, nor
        do files about the corpus, such as a readme: see `is_about_corpus`.
    folder (Path | None): The output folder, which must not be in an input folder.
    RETURNS (dict[str, Path]): The path of each input file by its name. The name of a file in a
        folder is its path relative to that folder.
    RAISES (ValueError): If an input isn't there, the output folder is in an input folder, or two
        files have the same name.
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
    """Add an input file to the files by name. It is an error if another file has this name, as
    both would have the same output."""
    earlier_path = sources.setdefault(name, path)
    if earlier_path != path:
        raise CorpusError(f"expected files with different names, got {earlier_path} and {path}")
