"""List and read the files of a corpus.

`corpus_files` lists the files. `read_text` reads text, `read_values` reads JSON, and `digest`
computes a hash that changes if a file changes. Error messages begin with the file and the line: see
`FilePlace`.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ..files.saving import PAGES

BOM = b"\xef\xbb\xbf"
"""The byte order mark that some programs write at the beginning of UTF-8 files."""

ABOUT = re.compile(
    r"(README|LICEN[CS]E|CHANGELOG|CITATION|MD5SUMS|SHA256SUMS)([._-].*)?", re.IGNORECASE
)
"""Matches the names of files that describe a corpus, such as LICENSE or README_es.txt, if they have
one of `TEXT_SUFFIXES`."""

TEXT_SUFFIXES = frozenset(["", ".asc", ".bib", ".cff", ".txt"])
"""Suffixes of files that may describe a corpus. Files with other suffixes, such as .json, contain
data, whatever their names."""

ABOUT_SUFFIXES = PAGES.union([".cfg", ".conf", ".css", ".log", ".md", ".py", ".rst", ".toml"])
"""Suffixes of files that contain no data. They include the suffixes of pages and figures, which our
commands may write to the folder of a corpus."""

BRAT_ANNOTATION = ".ann"
"""The suffix of annotation files in brat standoff. The text is in the .txt file next to it."""

DATASET_INFO = ("dataset_info.json", "dataset_infos.json")
"""Files in which the `datasets` library describes a dataset."""

DATASET_MARKS = ("state.json", "dataset_dict.json")
"""Files that identify a folder saved by the `datasets` library."""

MANIFEST = "manifest.jsonl"
"""The name of the file in which `annotate` lists the files of its output folder."""

MANIFEST_BEGIN = re.compile(r'\{"file": "[^\n]+?", "key": "\w+", "bytes": \d+, "docs": ')
"""Matches the beginning of such a file."""

JSONL_SUFFIXES = frozenset([".jsonl", ".ndjson"])
"""Suffixes of files with one JSON value per line."""

SPACE = re.compile(r"[ \t\n\r]*")
"""Matches the whitespace between JSON values."""

JSON_BEGIN = re.compile(r'\s*(\{\s*"|\[\s*(\[|\{|"))')
"""Matches the beginning of an object, or of an array of arrays, objects or strings."""

HEAD = 4096
"""The number of bytes at the beginning of a file that are read to detect its format."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Matches a lone surrogate. JSON and file names may contain one, but it can't be encoded in
UTF-8."""

SHOWN = 60
"""The maximum length of a value in an error message."""

SHOWN_JSON = 40
"""The number of characters of invalid JSON that an error message shows."""

BEFORE_ERROR = 9
"""The number of characters that an error message shows before the invalid character in JSONL."""

CHUNK = 1 << 20
"""The number of bytes that `digest` reads at a time."""


class CorpusError(ValueError):
    """Raised if a file or a corpus can't be read."""


class FilePlace(NamedTuple):
    """A location in a file, for error messages.

    path (Path): The file, or the folder of a dataset.
    number (int): The number of the line, row or doc. Starts at 1, except for rows of Parquet files,
        which start at 0.
    unit (str): "line", "row" or "doc".
    """

    path: Path
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"

    def refuse(self, message: str) -> CorpusError:
        """Create an error whose message begins with this location. The caller raises it."""
        return CorpusError(f"{self}: {message}")


Values = Iterator[tuple[FilePlace, Any]]
"""The values of a JSON file or the rows of a dataset, with their locations."""


def shown(value: Any) -> str:
    """Return the representation of a value, truncated for an error message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def encodable(value: Any) -> str:
    """Convert a value to a string that can be encoded in UTF-8. Lone surrogates are replaced with
    escape sequences, such as "\\ud800"."""
    return str(value).encode("utf8", "backslashreplace").decode("utf8")


def corpus_files(path: Path) -> list[Path]:
    """List the files of a corpus in alphabetical order.

    If a folder contains .spacy files, only these are listed, as in spaCy. Otherwise, all files are
    listed, except hidden files, pipes, devices, and files about the corpus, such as README.md. The
    text files of brat standoff are also omitted, because each is read together with its annotation.
    A Hugging Face dataset counts as a single file. A link to a folder that has already been listed
    isn't followed.

    path (Path): A file, a folder, or a Hugging Face dataset.
    RETURNS (list[Path]): The files.
    RAISES (CorpusError): If the path doesn't exist or the folder contains no files to read.
    """
    if not path.exists():
        raise CorpusError(f"{path}: expected a file or folder, found neither")
    if not path.is_dir() or is_dataset(path):
        return [path]
    files = sorted(_walk(path, set()))
    if not files:
        raise CorpusError(f"{path}: expected a folder with text files, found none")
    docbins = [file for file in files if file.suffix == ".spacy"]
    return docbins or files


def _walk(folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the files of a corpus in a folder and its subfolders. A dataset counts as a single
    file. `visited` contains the device and inode of each folder that has already been listed,
    because links can form a cycle. `folder` is added to it."""
    status = folder.stat()
    device_and_inode = (status.st_dev, status.st_ino)
    if device_and_inode in visited:
        return
    visited.add(device_and_inode)
    # Sort the paths to always follow the same link if several point to one folder.
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if is_dataset(path):
                yield path
            else:
                yield from _walk(path, visited)
            continue

        # Reading from a pipe might block forever. Broken links are listed, so that the user gets an
        # error when they are read.
        is_pipe_or_device = path.exists() and not path.is_file()
        # In brat standoff, the annotation file is listed and its text is read along with it.
        if not (is_pipe_or_device or is_about_corpus(path) or is_text_of_brat(path)):
            yield path


def is_text_of_brat(path: Path) -> bool:
    """Check whether a file is a brat standoff text: a .txt file with an .ann file next to it."""
    return path.suffix == ".txt" and path.with_suffix(BRAT_ANNOTATION).is_file()


def is_dataset(path: Path) -> bool:
    """Check whether a folder was saved by the `datasets` library."""
    return any((path / name).is_file() for name in DATASET_MARKS)


def is_about_corpus(path: Path) -> bool:
    """Check whether a file, such as a README, describes the corpus rather than containing data."""
    if path.name in DATASET_INFO:
        return True
    if path.name == MANIFEST and path.is_file():
        return MANIFEST_BEGIN.match(read_head(path)) is not None
    suffix = path.suffix.lower()
    is_about = suffix in TEXT_SUFFIXES and ABOUT.fullmatch(path.name) is not None
    return is_about or suffix in ABOUT_SUFFIXES


def read_text(path: Path, *, keep_line_ends: bool = False, allow_blank: bool = False) -> str:
    """Read a text file and remove its byte order mark.

    path (Path): The text file.
    keep_line_ends (bool): Whether to keep line endings as they are. Otherwise, they are converted
        to "\\n".
    allow_blank (bool): Whether the file may be empty or contain only whitespace.
    RETURNS (str): The text.
    RAISES (CorpusError): If the file isn't UTF-8, contains null characters, or is blank and
        `allow_blank` is False.
    """
    data = path.read_bytes().removeprefix(BOM)
    try:
        text = data.decode("utf8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"expected UTF-8 text, got the byte 0x{data[error.start]:02x}"
        raise FilePlace(path, line).refuse(message) from None

    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FilePlace(path, line).refuse("expected UTF-8 text, got a null character")
    if not (text.strip() or allow_blank):
        raise FilePlace(path, 1).refuse("expected text, got an empty file")

    if keep_line_ends:
        return text
    text = text.replace("\r\n", "\n")
    if "\n" not in text:
        # Classic Mac OS ended lines with "\r".
        text = text.replace("\r", "\n")
    return text


def read_head(path: Path) -> str:
    """Read the first `HEAD` bytes of a text file. Bytes that aren't valid UTF-8 are ignored."""
    with path.open("rb") as file:
        return file.read(HEAD).removeprefix(BOM).decode("utf8", "ignore")


def is_json(path: Path) -> bool:
    """Check whether a file contains JSON, based on its suffix or its first characters. An opening
    bracket isn't enough, because it may also be the first token of a column file."""
    if path.suffix == ".json" or path.suffix in JSONL_SUFFIXES:
        return True
    return JSON_BEGIN.match(read_head(path)) is not None


def read_values(path: Path) -> tuple[str, Values]:
    """Read the values of a JSON file: the lines of JSONL, the items of an array, or a sequence of
    concatenated values.

    path (Path): The JSON file.
    RETURNS (tuple[str, Values]): The name of the format, "JSONL" or "JSON", and the values with
        their locations. The iterator raises a `CorpusError` if it reaches invalid JSON.
    RAISES (CorpusError): If the file isn't text or is empty.
    """
    text = read_text(path)
    # A .json file is also read as JSONL if its first line is a complete record.
    if path.suffix in JSONL_SUFFIXES or _begins_with_record(text):
        return "JSONL", _read_lines(text, path)
    return "JSON", _read_items(text, path)


def _begins_with_record(text: str) -> bool:
    """Check whether the first line of a text is a record, as in JSONL: an object, or a list [text,
    annotation] as in spaCy 2. Any other list is an array of records. A line that isn't valid JSON
    is the beginning of a value that continues on the next line."""
    first_line = text.strip().partition("\n")[0]
    value: Any = None
    with suppress(ValueError, RecursionError):
        value = json.loads(first_line)
    if isinstance(value, list) and value:
        return isinstance(value[0], str)
    return isinstance(value, dict)


def _read_lines(text: str, path: Path) -> Values:
    """Read the JSON value of each non-empty line, with its location. Raises an error if a line
    isn't valid JSON, or if the first line begins an array of objects."""
    # spaCy 2 records are arrays, too, but their first item is a text.
    if re.match(r"\s*\[\s*\{", text):
        name = path.with_suffix(".json").name
        expected = "expected a JSON value on each line, got an array of them"
        raise FilePlace(path, 1).refuse(f"{expected}: name the file {name}")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = FilePlace(path, number)
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            column = getattr(error, "colno", 1)  # a RecursionError, for example, has no column
            begin = max(0, column - 1 - BEFORE_ERROR)
            raise _not_json(place, line[begin:], error) from None
        yield place, value


def _read_items(text: str, path: Path) -> Values:
    """Read the items of an array, or values that follow each other without commas, with their
    locations. `json.loads` can't be used because it doesn't return the line number of each item."""
    scanner = JsonScanner(text, path)
    is_array = scanner.skip("[")
    if not is_array:
        while not scanner.is_at_end:
            yield scanner.read_value()
            scanner.skip()  # the whitespace up to the next value
        return

    while not scanner.skip("]"):
        yield scanner.read_value()
        if not scanner.skip(",") and not scanner.is_before("]"):
            message = f"expected , or ] after an item, got {scanner.upcoming()}"
            raise scanner.place.refuse(message)
    scanner.skip()
    if not scanner.is_at_end:
        raise scanner.place.refuse(f"expected the end of the file, got {scanner.upcoming()}")


class JsonScanner:
    """A scanner for the JSON values of a text, and for the brackets and commas between them. It
    keeps track of the line number, for error messages."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = path
        self.position = 0  # the index of the next character
        # `_line` is the line number of the character at `_line_position`. Newlines before that
        # character have already been counted.
        self._line_position = 0
        self._line = 1
        self._decoder = json.JSONDecoder()

    @property
    def is_at_end(self) -> bool:
        """Whether the scanner has reached the end of the text."""
        return self.position == len(self.text)

    @property
    def place(self) -> FilePlace:
        """The line of the next value, bracket or comma. Only up to date after a call to `skip`."""
        return FilePlace(self.path, self._line)

    def is_before(self, character: str) -> bool:
        """Check whether the next character is this bracket or comma."""
        return self.text.startswith(character, self.position)

    def upcoming(self) -> str:
        """Return the next characters, for an error message."""
        if self.is_at_end:
            return "the end of the file"
        return shown(self.text[self.position : self.position + SHOWN_JSON])

    def skip(self, character: str = "") -> bool:
        """Skip whitespace, and then a bracket or comma. Returns True if the character was there."""
        space = SPACE.match(self.text, self.position)
        assert space is not None  # the pattern also matches an empty string
        self.position = space.end()
        self._line += self.text.count("\n", self._line_position, self.position)
        self._line_position = self.position

        if not self.is_before(character):
            return False
        self.position += len(character)
        return True

    def read_value(self) -> tuple[FilePlace, Any]:
        """Read a value and return it with its location. Raises an error for invalid JSON."""
        place = self.place
        try:
            value, self.position = self._decoder.raw_decode(self.text, self.position)
        except (ValueError, RecursionError) as error:
            # A JSONDecodeError provides the position of the error. Other errors, such as the one
            # for a number with too many digits, don't.
            begin = getattr(error, "pos", self.position)
            line = getattr(error, "lineno", place.number)
            text = self.text[begin : begin + SHOWN_JSON]
            raise _not_json(FilePlace(self.path, line), text, error) from None
        return place, value


def _not_json(place: FilePlace, text: str, error: Exception) -> CorpusError:
    """Create the error for invalid JSON. `text` begins at or shortly before the invalid character,
    and `error` was raised by Python's decoder."""
    message = getattr(error, "msg", type(error).__name__)
    return place.refuse(f"expected JSON, got {shown(text)}: {message}")


def digest(*parts: Any) -> str:
    """Compute a digest that changes if any of the parts changes.

    *parts (Any): JSON values, bytes or paths. If a part is a file path, the contents of the file
        are hashed. For a folder, the names and contents of all files are hashed, except hidden
        files and .pyc files.
    RETURNS (str): The SHA-256 digest as hexadecimal digits.
    """
    sha = sha256()
    # The length is hashed before the content. Otherwise, "a", "bc" would have the same digest as
    # "ab", "c".
    for part in parts:
        if isinstance(part, Path):
            for file in _files_to_digest(part):
                name = "/".join(file.relative_to(part).parts)  # empty if `part` is the file
                sha.update(os.fsencode(f"{name} {file.stat().st_size} "))
                for chunk in _read_chunks(file):
                    sha.update(chunk)
            continue
        content = part
        if not isinstance(part, bytes):
            content = json.dumps(part, sort_keys=True).encode()
        sha.update(b"%d " % len(content))
        sha.update(content)
    return sha.hexdigest()


def _read_chunks(path: Path) -> Iterator[bytes]:
    """Read the bytes of a file in chunks, because it may be too large for memory."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _files_to_digest(path: Path) -> list[Path]:
    """List the files that `digest` reads for a path: the file itself, or all files of a folder and
    its subfolders, except hidden files and .pyc files."""
    if path.is_file():
        return [path]
    files = []
    for file in sorted(path.rglob("*")):
        names_in_folder = file.relative_to(path).parts
        is_hidden = any(name.startswith(".") for name in names_in_folder)
        if file.is_file() and not is_hidden and file.suffix != ".pyc":
            files.append(file)
    return files
