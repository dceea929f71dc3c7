"""The files of a corpus: which they are, their text, the values of JSON, and errors that name file
and line."""

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

ABOUT_SUFFIXES = frozenset([".cfg", ".css", ".html", ".log", ".md", ".pdf", ".py", ".rst", ".toml"])
DATASET_INFO = ("dataset_info.json", "dataset_infos.json")
DATASET_MARKS = ("state.json", "dataset_dict.json")
"""What the library `datasets` writes into the folders that it saves."""

LINES = frozenset([".jsonl", ".ndjson"])
"""Suffixes of files with a JSON value on each line."""

SPACE = re.compile(r"[ \t\n\r]*")
JSON_BEGIN = re.compile(r'\s*(\{\s*"|\[\s*(\[|\{|"))')

HEAD = 4096
"""Bytes of a file that say what it is."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which UTF-8 can't have. JSON and names of files may have it."""

SHOWN = 60
"""Characters of a line that an error message shows."""


class CorpusError(ValueError):
    """A file that can't be read."""


class Place(NamedTuple):
    """A line or row of a file, or of the folder of a dataset, from 1."""

    path: Path
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"

    def refuse(self, message: str) -> CorpusError:
        """Make the error for a problem here: "expected X, got Y"."""
        return CorpusError(f"{self}: {message}")


Values = Iterator[tuple[Place, Any]]
"""The values of a file, each with its place."""


def shown(value: Any) -> str:
    """The start of a value, for an error message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def encodable(value: Any) -> str:
    """As text that can be UTF-8: half of a surrogate pair can't."""
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
    return [file for file in files if file.suffix == ".spacy"] or files


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """The files of a folder. `seen` gets the device and inode of each folder: links may lead back
    to one."""
    status = folder.stat()
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and not is_dataset(path):
            yield from _walk(path, seen)
        elif path.exists() and not path.is_dir() and not path.is_file():
            continue  # Nobody may ever write to a pipe, so reading it would wait for good.
        elif path.is_dir() or not is_about(path):
            yield path


def is_dataset(path: Path) -> bool:
    """Whether a folder was saved by the library `datasets`."""
    return any((path / name).is_file() for name in DATASET_MARKS)


def is_about(path: Path) -> bool:
    """Whether a file of a folder is about its corpus."""
    is_named_so = path.stem.upper().startswith(ABOUT) or path.name in DATASET_INFO
    return is_named_so or path.suffix in ABOUT_SUFFIXES


def read_text(path: Path) -> str:
    """Read a text file. Line ends become "\\n", and a byte order mark is left out.

    RAISES (CorpusError): If it isn't UTF-8, has null characters or is empty.
    """
    data = path.read_bytes().removeprefix(BOM)
    try:
        text = data.decode("utf8")
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        message = f"expected text in UTF-8, got the byte 0x{byte:02x}"
        raise Place(path, line).refuse(message) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise Place(path, line).refuse("expected text in UTF-8, got a null character")
    if not text.strip():
        raise Place(path, 1).refuse("expected text, got an empty file")
    text = text.replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")


def read_head(path: Path) -> str:
    """Read the beginning of a text file, as far as it is UTF-8."""
    with path.open("rb") as file:
        return file.read(HEAD).removeprefix(BOM).decode("utf8", "ignore")


def is_json(path: Path) -> bool:
    """Whether a file has JSON: it begins with a value, and not with a token and its columns."""
    return path.suffix in (".json", *LINES) or JSON_BEGIN.match(read_head(path)) is not None


def read_values(path: Path) -> tuple[str, Values]:
    """Read the values of a JSONL file, the items of a JSON array, or values one after another.
    Returns "JSONL" or "JSON"; and the values, each with its line.

    RAISES (CorpusError): If something isn't JSON.
    """
    text = read_text(path)
    first: Any = None
    with suppress(ValueError, RecursionError):
        first = json.loads(text.strip().partition("\n")[0])
    # A line is a record, and not an array of them or the beginning of one.
    is_pair = isinstance(first, list) and isinstance(next(iter(first), None), str)
    if path.suffix in LINES or isinstance(first, dict) or is_pair:
        return "JSONL", _read_lines(text, path)
    return "JSON", _read_items(text, path)


def _read_lines(text: str, path: Path) -> Values:
    for i, line in enumerate(text.split("\n")):
        if line.strip():
            place = Place(path, i + 1)
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError) as error:
                at = max(0, getattr(error, "colno", 1) - 10)
                raise _not_json(place, line[at:], error) from None


def _read_items(text: str, path: Path) -> Values:
    """The items of an array, or values one after another."""
    decoder, at, counted, line = json.JSONDecoder(), 0, 0, 1

    def skip(sign: str = "") -> bool:
        """Skip white space, whose lines are counted, and a sign. Whether the sign is there."""
        nonlocal at, counted, line
        at += len(SPACE.match(text, at)[0])  # type: ignore[index]
        line, counted = line + text.count("\n", counted, at), at
        is_there = text.startswith(sign, at)
        at += len(sign) * is_there
        return is_there

    in_array = skip("[")
    while not (in_array and skip("]")):
        skip()
        if at == len(text) and not in_array:
            return
        try:
            place, (value, at) = Place(path, line), decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            here, line = getattr(error, "pos", at), getattr(error, "lineno", line)
            raise _not_json(Place(path, line), text[here : here + 40], error) from None
        yield place, value
        if in_array and not skip(",") and text[at : at + 1] != "]":
            got = shown(text[at : at + 40]) if at < len(text) else "the end of the file"
            raise Place(path, line).refuse(f"expected , or ] after an item, got {got}")
    skip()
    if at < len(text):
        got = shown(text[at : at + 40])
        raise Place(path, line).refuse(f"expected the end of the file, got {got}")


def _not_json(place: Place, text: str, error: Exception) -> CorpusError:
    message = getattr(error, "msg", type(error).__name__)
    return place.refuse(f"expected JSON, got {shown(text)}: {message}")


def digest(*parts: Any) -> str:
    """Compute the digest of JSON values, bytes, and the content of files and folders, given as a
    `Path`. Hidden and .pyc files of a folder don't count."""
    total = sha256()
    for part in parts:
        if not isinstance(part, Path):
            data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
            total.update(b"%d " % len(data) + data)
            continue
        for file in [part] if part.is_file() else sorted(part.rglob("*")):
            names = file.relative_to(part).parts
            is_hidden = any(name.startswith(".") for name in names) or file.suffix == ".pyc"
            if file.is_file() and (file == part or not is_hidden):
                total.update(os.fsencode(f"{'/'.join(names)} {file.stat().st_size} "))
                with file.open("rb") as opened:
                    while data := opened.read(1 << 20):
                        total.update(data)
    return total.hexdigest()
