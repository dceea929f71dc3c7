"""Raw text, however much there is: lines of files one after another, folders with files of any
kind, and standard input."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from spacy.language import Language
from spacy.tokens import Doc

from .files import BOM, HEAD, CorpusError, FilePlace, corpus_files, is_dataset
from .texts import is_text, read_texts

STANDARD_INPUT = Path("-")

MAX_LENGTH = 50_000
"""Characters of a line that are tokenized at once. spaCy refuses texts of more than a million."""

N_LINES = 10_000
"""Lines that are tokenized before the memory of their words, and of how the tokenizer divides them,
is given back. In between these are looked up, which is fast."""

ResultT = TypeVar("ResultT")


class RawFiles(NamedTuple):
    """The files of raw text.

    paths (list[Path]): Those that can be read; the folder of a dataset is one.
    skipped (list[Path]): Others of folders, but for hidden ones.
    """

    paths: list[Path]
    skipped: list[Path]


def find_raw_files(paths: Iterable[Path]) -> RawFiles:
    """List the files of raw text. What can't be text is skipped in folders, and is an error when it
    is read if it is given by its name.

    RAISES (CorpusError): If there is nothing under a path, or no text in a folder.
    """
    files = RawFiles([], [])
    for path in paths:
        if path == STANDARD_INPUT or not path.is_dir() or is_dataset(path):
            files.paths.append(path)
            continue
        readable: list[Path] = []
        for file in corpus_files(path):
            if file.is_dir() or file.suffix == ".spacy" or can_be_text(file):
                readable.append(file)
        if not readable:
            raise CorpusError(f"{path}: expected a folder with files of text, got none in it")
        files.paths.extend(readable)
        files.skipped.extend(find_skipped(path, readable))
    return files


def find_skipped(folder: Path, readable: Iterable[Path]) -> list[Path]:
    """The files of a folder that aren't read, but for hidden ones, and those in datasets."""
    read_paths = {*readable}
    skipped: list[Path] = []
    for path in sorted(folder.rglob("*")):
        names = path.relative_to(folder).parts
        is_hidden = any(name.startswith(".") for name in names)
        is_read = not read_paths.isdisjoint([path, *path.parents])
        if path.is_file() and not is_hidden and not is_read:
            skipped.append(path)
    return skipped


def can_be_text(path: Path) -> bool:
    """Whether the first bytes of a file are UTF-8, and not all white space."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    text = head.removeprefix(BOM).decode("utf8", "replace")
    if len(head) == HEAD:
        text = text[:-1]  # the last character may be cut
    return bool(text.strip()) and "\0" not in text and "\ufffd" not in text


def map_docs(function: Callable[[Doc], ResultT], nlp: Language, path: Path) -> Iterator[ResultT]:
    """Yield what a function makes of each doc of a file of raw text. No doc outlives the call of
    the function, so that memory doesn't grow with the text.

    function (Callable[[Doc], ResultT]): The function.
    nlp (Language): The pipeline. Its tokenizer is used for texts without tokens.
    path (Path): A file, a dataset, or - for text on standard input. Each line of text is a doc, and
        so is each part of a long line.
    RAISES (CorpusError): If it can't be read; the message names file and line.
    """
    if path == STANDARD_INPUT:
        yield from _map_lines(function, nlp, sys.stdin.buffer, Path("standard input"))
    elif not path.is_dir() and path.is_file() and is_text(path):
        with path.open("rb") as file:
            yield from _map_lines(function, nlp, file, path)
    else:
        yield from map(function, read_texts(nlp, path))


def _map_lines(
    function: Callable[[Doc], ResultT], nlp: Language, file: BinaryIO, path: Path
) -> Iterator[ResultT]:
    """Yield what a function makes of the doc of each line of an open file. `path` is that of the
    file, for errors. Docs can't be used after the function has returned."""
    texts = _read_lines(file, path)
    while batch := list(islice(texts, N_LINES)):
        # The strings and lexemes of new words are given back after the block.
        with nlp.memory_zone():
            results = [function(nlp.make_doc(text)) for text in batch]
        yield from results


def _read_lines(file: BinaryIO, path: Path) -> Iterator[str]:
    """Yield the lines that aren't empty, the parts of long ones.

    RAISES (CorpusError): If a line isn't UTF-8, or has a null character.
    """
    for number, line in enumerate(file, start=1):
        place = FilePlace(path, number)
        if number == 1:
            line = line.removeprefix(BOM)
        try:
            text = line.decode("utf8")
        except UnicodeDecodeError as error:
            message = f"expected text in UTF-8, got the byte 0x{line[error.start]:02x}"
            raise place.refuse(message) from None
        if "\0" in text:
            raise place.refuse("expected text in UTF-8, got a null character")
        # "\r" alone ended lines on the old Macintosh: there the whole file is one line here.
        for part in text.split("\r"):
            if part.strip():
                yield from cut_line(part.strip())


def cut_line(line: str) -> Iterator[str]:
    """Cut a long line at blanks, or anywhere if there are none, into parts of at most `MAX_LENGTH`
    characters."""
    start = 0
    while len(line) - start > MAX_LENGTH:
        end = line.rfind(" ", start + 1, start + MAX_LENGTH)
        if end < 0:
            end = start + MAX_LENGTH
        yield line[start:end]
        start = end
    yield line[start:]
