"""The files of a corpus.

`corpus_files` lists them. `read_text` and `read_values` read their text and their JSON, and
`digest` shows whether they have changed. Errors name the file and the line: a `FilePlace`, from
which each error is made.
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
"""The byte order mark that some programs write at the beginning of UTF-8 text."""

ABOUT = ("README", "LICENSE", "LICENCE", "CHANGELOG", "CITATION", "MD5SUMS", "SHA256SUMS")
"""A file whose name begins with one of these is about a corpus, and not part of it."""

ABOUT_SUFFIXES = PAGES.union([".cfg", ".conf", ".css", ".log", ".md", ".py", ".rst", ".toml"])
"""A file with one of these suffixes is about a corpus, too. Commands may have written pages and
figures next to it."""

BRAT_ANNOTATION = ".ann"
"""The suffix of the annotation of a text in brat standoff, which is in the .txt file next to it."""

DATASET_INFO = ("dataset_info.json", "dataset_infos.json")
"""The names of files in which the library `datasets` describes a dataset."""

DATASET_MARKS = ("state.json", "dataset_dict.json")
"""The names of files that show that the library `datasets` has saved a folder."""

JSONL_SUFFIXES = frozenset([".jsonl", ".ndjson"])
"""Suffixes of files with a JSON value on each line."""

SPACE = re.compile(r"[ \t\n\r]*")
"""Whitespace between JSON values."""

JSON_BEGIN = re.compile(r'\s*(\{\s*"|\[\s*(\[|\{|"))')
"""The beginning of an object, or of an array of arrays, objects or strings."""

HEAD = 4096
"""The number of bytes at the beginning of a file that are read to find its format."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair. UTF-8 can't have it, but JSON and names of files may."""

SHOWN = 60
"""The number of characters of a value that an error message shows."""

SHOWN_JSON = 40
"""The number of characters of JSON that an error message shows, from the error on."""

BEFORE_ERROR = 9
"""The number of characters of a line of JSONL that a message shows before the error."""

CHUNK = 1 << 20
"""The number of bytes of a file that are read at once for its digest."""


class CorpusError(ValueError):
    """A file that can't be read."""


class FilePlace(NamedTuple):
    """A place in a file, for error messages.

    path (Path): The file, or the folder of a dataset.
    number (int): The number of the line, row or doc, counted from 1; in Parquet files from 0.
    unit (str): "line", "row" or "doc".
    """

    path: Path
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"

    def refuse(self, message: str) -> CorpusError:
        """Make an error whose message begins with this place. The caller raises it."""
        return CorpusError(f"{self}: {message}")


Values = Iterator[tuple[FilePlace, Any]]
"""The values of a JSON file, or the rows of a dataset, each with its place."""


def shown(value: Any) -> str:
    """The first characters of a value as Python writes it, for an error message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def encodable(value: Any) -> str:
    """A value as text that can be written in UTF-8. Half of a surrogate pair, which can't, is
    replaced by its escape, such as "\\ud800"."""
    return str(value).encode("utf8", "backslashreplace").decode("utf8")


def corpus_files(path: Path) -> list[Path]:
    """List the files of a corpus, in alphabetical order.

    If a folder has .spacy files, only these are listed, as spaCy does. Otherwise all files are
    listed, except for hidden files and files about the corpus, such as README.md. A text in brat
    standoff is left out, too: it is read together with its annotation. A Hugging Face dataset in
    the folder counts as one file. Pipes and devices are left out, and a link to a folder that was
    listed before is not followed.

    path (Path): A file, a folder, or a Hugging Face dataset.
    RETURNS (list[Path]): The files.
    RAISES (CorpusError): If there are no files.
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
    """Yield the files of a corpus in a folder and in the folders within it. A dataset is one file.
    `visited` holds the device and the inode of each folder that was already listed, because links
    can form a cycle. This folder is added to it."""
    status = folder.stat()
    device_and_inode = (status.st_dev, status.st_ino)
    if device_and_inode in visited:
        return
    visited.add(device_and_inode)
    # In order, so that of several links to a folder always the same one is followed.
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if is_dataset(path):
                yield path
            else:
                yield from _walk(path, visited)
            continue

        # Reading a pipe might block forever. A link to a missing file is listed, so that the user
        # sees an error when it is read.
        is_pipe_or_device = path.exists() and not path.is_file()
        # In brat standoff, a text is read together with its annotation, which is another file.
        if not (is_pipe_or_device or is_about_corpus(path) or is_text_of_brat(path)):
            yield path


def is_text_of_brat(path: Path) -> bool:
    """Whether a file is a text in brat standoff: its annotation is in a file next to it."""
    return path.suffix == ".txt" and path.with_suffix(BRAT_ANNOTATION).is_file()


def is_dataset(path: Path) -> bool:
    """Whether a folder was saved by the library `datasets`."""
    return any((path / name).is_file() for name in DATASET_MARKS)


def is_about_corpus(path: Path) -> bool:
    """Whether a file in the folder of a corpus is about the corpus, and not part of it: a README,
    for example."""
    if path.stem.upper().startswith(ABOUT) or path.name in DATASET_INFO:
        return True
    return path.suffix.lower() in ABOUT_SUFFIXES


def read_text(path: Path, *, keep_line_ends: bool = False, allow_blank: bool = False) -> str:
    """Read a text file, without its byte order mark.

    path (Path): The text file.
    keep_line_ends (bool): Whether line ends stay as they are. Otherwise they become "\\n".
    allow_blank (bool): Whether the file may be empty, or have nothing but whitespace.
    RETURNS (str): The text.
    RAISES (CorpusError): If it isn't UTF-8, has null characters, or is blank and must not be.
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
        # On the old Macintosh lines ended with "\r".
        text = text.replace("\r", "\n")
    return text


def read_head(path: Path) -> str:
    """Read the first `HEAD` bytes of a text file. What isn't UTF-8 is left out."""
    with path.open("rb") as file:
        return file.read(HEAD).removeprefix(BOM).decode("utf8", "ignore")


def is_json(path: Path) -> bool:
    """Whether a file has JSON, by its suffix or its beginning: a bracket and the value after it, as
    a bracket alone may also be the first token of a file in columns."""
    if path.suffix == ".json" or path.suffix in JSONL_SUFFIXES:
        return True
    return JSON_BEGIN.match(read_head(path)) is not None


def read_values(path: Path) -> tuple[str, Values]:
    """Read the values of a JSON file: one on each line of JSONL, the items of an array, or values
    one after another.

    path (Path): The JSON file.
    RETURNS (tuple[str, Values]): The name of the format, "JSONL" or "JSON"; and the values, each
        with its place.
    RAISES (CorpusError): If the file isn't text, or is empty. The iterator raises it for something
        that isn't JSON.
    """
    text = read_text(path)
    # A .json file, too, is JSONL if its first line is a whole record.
    if path.suffix in JSONL_SUFFIXES or _begins_with_record(text):
        return "JSONL", _read_lines(text, path)
    return "JSON", _read_items(text, path)


def _begins_with_record(text: str) -> bool:
    """Whether the first line of a text is a record, as in JSONL: an object, or the list [text,
    annotation] of spaCy 2. If the line is another list, it is an array of records; if it isn't
    JSON, it may be the beginning of one."""
    first_line = text.strip().partition("\n")[0]
    value: Any = None
    with suppress(ValueError, RecursionError):
        value = json.loads(first_line)
    if isinstance(value, list) and value:
        return isinstance(value[0], str)
    return isinstance(value, dict)


def _read_lines(text: str, path: Path) -> Values:
    """Read the value of each line of JSONL that isn't empty, with its place. A line that isn't JSON
    is refused, and so is a first line that begins an array of objects."""
    # spaCy 2 has arrays, too, but these begin with a text.
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
            column = getattr(error, "colno", 1)  # a RecursionError, for example, has none
            begin = max(0, column - 1 - BEFORE_ERROR)
            raise _not_json(place, line[begin:], error) from None
        yield place, value


def _read_items(text: str, path: Path) -> Values:
    """Read the items of an array, or values one after another without commas, each with
    its place. `json.loads` can't be used, as it doesn't say on which lines the items of an array
    are."""
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
    """Reads the values in a JSON text, and the brackets and commas between them, from the beginning
    to the end. It counts lines, for error messages."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = path
        self.position = 0  # the next character to read
        # Lines are counted up to a character of the text, `_line_position`, which is on the line
        # with the number `_line`.
        self._line_position = 0
        self._line = 1
        self._decoder = json.JSONDecoder()

    @property
    def is_at_end(self) -> bool:
        """Whether the text has been read to its end."""
        return self.position == len(self.text)

    @property
    def place(self) -> FilePlace:
        """The line of the next value, bracket or comma. It is up to date after `skip`."""
        return FilePlace(self.path, self._line)

    def is_before(self, character: str) -> bool:
        """Whether a bracket or comma is next."""
        return self.text.startswith(character, self.position)

    def upcoming(self) -> str:
        """The text that is next, for an error message."""
        if self.is_at_end:
            return "the end of the file"
        return shown(self.text[self.position : self.position + SHOWN_JSON])

    def skip(self, character: str = "") -> bool:
        """Read whitespace, and then a bracket or comma if it is next. Returns whether it was."""
        space = SPACE.match(self.text, self.position)
        assert space is not None  # the pattern matches the empty text, too
        self.position = space.end()
        self._line += self.text.count("\n", self._line_position, self.position)
        self._line_position = self.position

        if not self.is_before(character):
            return False
        self.position += len(character)
        return True

    def read_value(self) -> tuple[FilePlace, Any]:
        """Read a value, and return its place and the value. What isn't JSON is refused."""
        place = self.place
        try:
            value, self.position = self._decoder.raw_decode(self.text, self.position)
        except (ValueError, RecursionError) as error:
            # A JSONDecodeError says where the error is. Other errors don't, such as the error for a
            # number with too many digits.
            begin = getattr(error, "pos", self.position)
            line = getattr(error, "lineno", place.number)
            text = self.text[begin : begin + SHOWN_JSON]
            raise _not_json(FilePlace(self.path, line), text, error) from None
        return place, value


def _not_json(place: FilePlace, text: str, error: Exception) -> CorpusError:
    """Make the error for text that isn't JSON. The text begins with the wrong character or shortly
    before it, and `error` is from Python's decoder."""
    message = getattr(error, "msg", type(error).__name__)
    return place.refuse(f"expected JSON, got {shown(text)}: {message}")


def digest(*parts: Any) -> str:
    """Compute a digest of several parts, which changes if one of them does.

    *parts (Any): JSON values, bytes, or paths. A `Path` stands for the content of the file, or for
        the names and contents of all files in the folder, except hidden and .pyc files.
    RETURNS (str): The SHA-256 of all parts, as hexadecimal digits.
    """
    sha = sha256()
    # The length precedes each content. Otherwise "a", "bc" would have the same digest as "ab", "c".
    for part in parts:
        if isinstance(part, Path):
            for file in _files_to_digest(part):
                name = "/".join(file.relative_to(part).parts)  # empty, if `part` is the file
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
    """Read the bytes of a file in chunks, as a file may be larger than the memory."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _files_to_digest(path: Path) -> list[Path]:
    """The files that `digest` reads for a path: the file itself or, for a folder, all files in it
    and in its folders, without hidden and .pyc files."""
    if path.is_file():
        return [path]
    files = []
    for file in sorted(path.rglob("*")):
        names_in_folder = file.relative_to(path).parts
        is_hidden = any(name.startswith(".") for name in names_in_folder)
        if file.is_file() and not is_hidden and file.suffix != ".pyc":
            files.append(file)
    return files
