"""The files of a corpus: which they are, their text, and errors that name file and line."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, List, NamedTuple

BOM = b"\xef\xbb\xbf"
ABOUT = ("README", "LICENSE", "LICENCE", "CHANGELOG", "CITATION", "MD5SUMS", "SHA256SUMS")
"""Files whose names begin so are about a corpus and not part of it."""

ABOUT_SUFFIXES = frozenset([".cfg", ".css", ".html", ".log", ".md", ".pdf", ".py", ".rst", ".toml"])
DATASET_INFO = ("dataset_info.json", "dataset_infos.json")
DATASET_MARKS = ("state.json", "dataset_dict.json")
"""What the library `datasets` writes into the folders that it saves."""

HEAD = 4096
"""Bytes of a file that say what it is."""

SHOWN = 60
"""Characters of a line that an error message shows."""


class CorpusError(ValueError):
    """A file that can't be read as what it seems to be."""


class Place(NamedTuple):
    """A place in a corpus, as messages name it.

    path (Path): The file, or the folder of a dataset.
    number (int): The line or row, from 1.
    unit (str): "line" or "row".
    """

    path: Path
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"

    def refuse(self, message: str) -> CorpusError:
        """Make the error for a problem here: "expected X, got Y"."""
        return CorpusError(f"{self}: {message}")


def shown(value: Any) -> str:
    """A value as an error message shows it: not more than a line of it."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def read_text(path: Path) -> str:
    """Read a text file. Line ends become "\\n", and a byte order mark is left out.

    path (Path): The file, in UTF-8.
    RETURNS (str): Its text.
    RAISES (CorpusError): If it isn't UTF-8, has null characters or is empty.
    """
    data = path.read_bytes().removeprefix(BOM)
    try:
        text = data.decode("utf8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise Place(path, line).refuse(
            f"expected text in UTF-8, got the byte 0x{byte:02x}"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise Place(path, line).refuse("expected text in UTF-8, got a null character")
    if not text.strip():
        raise Place(path, 1).refuse("expected annotated text, got an empty file")
    text = text.replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")


def read_head(path: Path) -> str:
    """The beginning of a text file, as far as it is UTF-8."""
    with path.open("rb") as file:
        return file.read(HEAD).removeprefix(BOM).decode("utf8", "ignore")


def is_dataset(path: Path) -> bool:
    """Whether a folder was saved by the library `datasets`."""
    return any((path / name).is_file() for name in DATASET_MARKS)


def corpus_files(path: Path) -> List[Path]:
    """The files of a corpus, in alphabetical order.

    If a folder has .spacy files, only these are read, as spaCy does. Otherwise every file is read
    but hidden files and those about the corpus, such as README.md. A Hugging Face dataset in it is
    one of its "files".

    path (Path): A file or a folder.
    RETURNS (List[Path]): The files.
    RAISES (CorpusError): If there is none.
    """
    if not path.exists():
        raise CorpusError(f"{path}: expected a file or folder, got nothing there")
    if not path.is_dir() or is_dataset(path):
        return [path]
    files = sorted(_walk(path))
    binary = [file for file in files if file.suffix == ".spacy"]
    if not files:
        raise CorpusError(f"{path}: expected a folder with annotated files, got none in it")
    return binary or files


def _walk(folder: Path) -> List[Path]:
    found: List[Path] = []
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            found += [path] if is_dataset(path) else _walk(path)
        elif not is_about(path):
            found.append(path)
    return found


def is_about(path: Path) -> bool:
    """Whether a file of a folder is about its corpus."""
    is_named_so = path.stem.upper().startswith(ABOUT) or path.name in DATASET_INFO
    return is_named_so or path.suffix in ABOUT_SUFFIXES


def digest(*parts: Any) -> str:
    """Compute the digest of values and files.

    *parts (Any): Values that are valid JSON; bytes; and files or folders, as a `Path`, for their
        content. Hidden and .pyc files of a folder don't count.
    RETURNS (str): The digest.
    """
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
                total.update(f"{'/'.join(names)} {file.stat().st_size} ".encode())
                with file.open("rb") as opened:
                    while data := opened.read(1 << 20):
                        total.update(data)
    return total.hexdigest()
