"""The files of a corpus: which they are, their text, their values of JSON, and their digest.

A `FilePlace` is a line of a file. It makes the errors, which name file and line.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

BOM = b"\xef\xbb\xbf"
ABOUT = ("README", "LICENSE", "LICENCE", "CHANGELOG", "CITATION", "MD5SUMS", "SHA256SUMS")
"""Files whose names begin so are about a corpus and not part of it."""

ABOUT_SUFFIXES = frozenset(
    [".cfg", ".conf", ".css", ".html", ".log", ".md", ".pdf", ".py", ".rst", ".toml"]
)
BRAT_ANNOTATION = ".ann"
"""The suffix of the annotation of a text in brat standoff, which is in the .txt file beside it."""

DATASET_INFO = ("dataset_info.json", "dataset_infos.json")
DATASET_MARKS = ("state.json", "dataset_dict.json")
"""What the library `datasets` writes into the folders that it saves."""

JSONL_SUFFIXES = frozenset([".jsonl", ".ndjson"])
"""Suffixes of files with a JSON value on each line."""

SPACE = re.compile(r"[ \t\n\r]*")
JSON_BEGIN = re.compile(r'\s*(\{\s*"|\[\s*(\[|\{|"))')

HEAD = 4096
"""Bytes at the beginning of a file, by which its format is known."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which UTF-8 can't have. JSON and names of files may have it."""

SHOWN = 60
"""Characters of a line that an error message shows."""

SHOWN_JSON = 40
"""Characters of JSON that an error message shows, from the error on."""

BEFORE_ERROR = 9
"""Characters of a line of JSON that are shown before the error."""

CHUNK = 1 << 20
"""Bytes of a file that are read at once for its digest."""


class CorpusError(ValueError):
    """A file that can't be read."""


class FilePlace(NamedTuple):
    """A line or row of a file, or of the folder of a dataset, from 1."""

    path: Path
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"

    def refuse(self, message: str) -> CorpusError:
        """Make the error for a problem here: "expected X, got Y"."""
        return CorpusError(f"{self}: {message}")


Values = Iterator[tuple[FilePlace, Any]]
"""The values of a file of JSON, each with its place."""


def shown(value: Any) -> str:
    """The first characters of a value as Python writes it, for an error message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def encodable(value: Any) -> str:
    """A value as text that can be written in UTF-8: in place of half of a surrogate pair it has an
    escape, such as "\\ud800"."""
    return str(value).encode("utf8", "backslashreplace").decode("utf8")


def corpus_files(path: Path) -> list[Path]:
    """List the files of a corpus, in alphabetical order.

    If a folder has .spacy files, only these are listed, as spaCy does. Otherwise every file is but
    hidden files and those about the corpus, such as README.md. A Hugging Face dataset in a folder
    is one of its "files". What is no file, such as a pipe, is left out, and links to a folder that
    is read already are not followed.

    RAISES (CorpusError): If there is none.
    """
    if not path.exists():
        raise CorpusError(f"{path}: expected a file or folder, got nothing there")
    if not path.is_dir() or is_dataset(path):
        return [path]
    files = sorted(_walk(path, set()))
    if not files:
        raise CorpusError(f"{path}: expected a folder with files of texts, got none in it")
    docbins = [file for file in files if file.suffix == ".spacy"]
    return docbins or files


def _walk(folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
    """The files of a corpus in a folder and, recursively, in its folders; a dataset is one file.
    `visited` has the device and inode of each folder that was read: a link may lead back to it."""
    status = folder.stat()
    inode = (status.st_dev, status.st_ino)
    if inode in visited:
        return
    visited.add(inode)
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if is_dataset(path):
                yield path
            else:
                yield from _walk(path, visited)
            continue

        # Nobody may ever write to a pipe, so reading it would wait for good. A link to nothing is
        # listed: reading it is an error that the user should see.
        is_pipe_or_device = path.exists() and not path.is_file()
        # The text of brat standoff is read with its annotation, the file beside it.
        if not (is_pipe_or_device or is_about_corpus(path) or is_text_of_brat(path)):
            yield path


def is_text_of_brat(path: Path) -> bool:
    """Whether a file has the text of brat standoff: its annotation is beside it."""
    return path.suffix == ".txt" and path.with_suffix(BRAT_ANNOTATION).is_file()


def is_dataset(path: Path) -> bool:
    """Whether a folder was saved by the library `datasets`."""
    return any((path / name).is_file() for name in DATASET_MARKS)


def is_about_corpus(path: Path) -> bool:
    """Whether a file in the folder of a corpus is about the corpus, and not part of it: a README,
    for example."""
    if path.stem.upper().startswith(ABOUT) or path.name in DATASET_INFO:
        return True
    return path.suffix in ABOUT_SUFFIXES


def read_text(path: Path, *, keep_line_ends: bool = False) -> str:
    """Read a text file. A byte order mark is left out, and line ends become "\\n", unless they are
    to be kept.

    RAISES (CorpusError): If it isn't UTF-8, has null characters or is empty.
    """
    data = path.read_bytes().removeprefix(BOM)
    try:
        text = data.decode("utf8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"expected text in UTF-8, got the byte 0x{data[error.start]:02x}"
        raise FilePlace(path, line).refuse(message) from None

    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FilePlace(path, line).refuse("expected text in UTF-8, got a null character")
    if not text.strip():
        raise FilePlace(path, 1).refuse("expected text, got an empty file")

    if keep_line_ends:
        return text
    text = text.replace("\r\n", "\n")
    if "\n" not in text:  # "\r" alone ended lines on the old Macintosh
        text = text.replace("\r", "\n")
    return text


def read_head(path: Path) -> str:
    """Read the beginning of a text file, as far as it is UTF-8."""
    with path.open("rb") as file:
        return file.read(HEAD).removeprefix(BOM).decode("utf8", "ignore")


def is_json(path: Path) -> bool:
    """Whether a file has JSON: its name says so, or it begins with an object or an array of values.
    A bracket alone may be the first token of a file in columns."""
    if path.suffix == ".json" or path.suffix in JSONL_SUFFIXES:
        return True
    return JSON_BEGIN.match(read_head(path)) is not None


def read_values(path: Path) -> tuple[str, Values]:
    """Read the values of a JSONL file, the items of a JSON array, or values one after another.

    path (Path): The file.
    RETURNS (tuple[str, Values]): "JSONL" or "JSON"; and the values, each with its line.
    RAISES (CorpusError): If something isn't JSON.
    """
    text = read_text(path)
    if path.suffix in JSONL_SUFFIXES or _begins_with_record(text):
        return "JSONL", _read_lines(text, path)
    return "JSON", _read_items(text, path)


def _begins_with_record(text: str) -> bool:
    """Whether the first line is a record, as in JSONL: an object, or the list [text, annotation] of
    spaCy 2. Another list is an array of records, or the beginning of one."""
    first_line = text.strip().partition("\n")[0]
    value: Any = None
    with suppress(ValueError, RecursionError):
        value = json.loads(first_line)
    if isinstance(value, list) and value:
        return isinstance(value[0], str)
    return isinstance(value, dict)


def _read_lines(text: str, path: Path) -> Values:
    """Read the value of each line of JSONL that isn't empty, with its place."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = FilePlace(path, number)
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            column = getattr(error, "colno", 1)
            begin = max(0, column - 1 - BEFORE_ERROR)
            raise _not_json(place, line[begin:], error) from None
        yield place, value


def _read_items(text: str, path: Path) -> Values:
    """Read the items of an array, or values that stand one after another without commas, each with
    its place. (`json.loads` reads an array as a whole, without the lines of its items.)"""
    scanner = JsonScanner(text, path)
    is_array = scanner.skip("[")
    if not is_array:
        while not scanner.is_at_end:
            yield scanner.read_value()
            scanner.skip()  # the white space up to the next value
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
    """A position in a text of JSON, which moves over values and the signs between them. It counts
    lines, for errors."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = path
        self.position = 0  # a character of the text
        self._line = 1  # the line of `_line_position`, up to which lines are counted
        self._line_position = 0
        self._decoder = json.JSONDecoder()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows the position."""
        return self.position == len(self.text)

    @property
    def place(self) -> FilePlace:
        """The line of the last position that `skip` moved to."""
        return FilePlace(self.path, self._line)

    def is_before(self, sign: str) -> bool:
        """Whether a sign, such as "]", follows the position."""
        return self.text.startswith(sign, self.position)

    def upcoming(self) -> str:
        """What follows, for an error message."""
        if self.is_at_end:
            return "the end of the file"
        return shown(self.text[self.position : self.position + SHOWN_JSON])

    def skip(self, sign: str = "") -> bool:
        """Move over white space, and then over a sign such as "," if it follows. Returns whether it
        does."""
        space = SPACE.match(self.text, self.position)
        assert space is not None  # the pattern matches the empty text, too
        self.position = space.end()
        self._line += self.text.count("\n", self._line_position, self.position)
        self._line_position = self.position

        if not self.is_before(sign):
            return False
        self.position += len(sign)
        return True

    def read_value(self) -> tuple[FilePlace, Any]:
        """Parse the value at the position, and move over it. Returns its place, and the value."""
        place = self.place
        try:
            value, self.position = self._decoder.raw_decode(self.text, self.position)
        except (ValueError, RecursionError) as error:
            # JSONDecodeError says where it is. The error for a number of too many digits doesn't.
            begin = getattr(error, "pos", self.position)
            line = getattr(error, "lineno", place.number)
            text = self.text[begin : begin + SHOWN_JSON]
            raise _not_json(FilePlace(self.path, line), text, error) from None
        return place, value


def _not_json(place: FilePlace, text: str, error: Exception) -> CorpusError:
    """Make the error for text that isn't JSON, from the error of Python's decoder. `text` begins at
    the wrong character or shortly before it."""
    message = getattr(error, "msg", type(error).__name__)
    return place.refuse(f"expected JSON, got {shown(text)}: {message}")


def digest(*parts: Any) -> str:
    """Compute a digest that changes if one of several parts does.

    *parts (Any): JSON values, bytes, and files and folders, each as a `Path`, for their content.
        Hidden and .pyc files of a folder don't count.
    RETURNS (str): The SHA-256 of all parts, as hexadecimal digits.
    """
    sha = sha256()
    # The length stands before each content, so that parts can't run together: "a", "bc" isn't
    # "ab", "c".
    for part in parts:
        if isinstance(part, Path):
            for file in _files_to_digest(part):
                name = "/".join(file.relative_to(part).parts)
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
    """The bytes of a file, `CHUNK` at a time, as a file may be larger than the memory."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _files_to_digest(path: Path) -> list[Path]:
    """The files whose content `digest` reads for a path: the file itself or, of a folder, all files
    in it and its folders, but for hidden and compiled ones."""
    if path.is_file():
        return [path]
    files = []
    for file in sorted(path.rglob("*")):
        names_in_folder = file.relative_to(path).parts
        is_hidden = any(name.startswith(".") for name in names_in_folder)
        if file.is_file() and not is_hidden and file.suffix != ".pyc":
            files.append(file)
    return files
