"""Read raw text, from files, from folders that have other files, too, and from standard input.

There may be more text than fits in memory. So docs are made one after another, a function reads
each of them, and no doc is kept.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from spacy.language import Language
from spacy.tokens import Doc

from .context import DEFAULTS, ReadOptions
from .files import (
    BOM,
    BRAT_ANNOTATION,
    HEAD,
    CorpusError,
    FilePlace,
    corpus_files,
    is_dataset,
    is_text_of_brat,
)
from .texts import is_text, read_texts

STANDARD_INPUT = Path("-")

STANDARD_INPUT_NAME = Path("standard input")
"""The name of standard input in error messages."""

MAX_LENGTH = 50_000
"""The maximum number of characters that become one doc. spaCy refuses texts of more than a
million."""

MAX_STRINGS = 1_000_000
"""The number of strings that the vocab of a pipeline may have before it is made again. With the
tokenizer they take about 200 MB."""

MAX_CACHED = 1_000_000
"""The number of strings between blanks whose tokens the tokenizer may cache. spaCy's default of
10,000 is too low for large texts: the tokenizer would split most of their other strings again each
time."""

ResultT = TypeVar("ResultT")


class RawFiles(NamedTuple):
    """The files of raw text under the paths that a user has given.

    paths (list[Path]): The files to read. The folder of a dataset counts as one file.
    skipped (list[Path]): The files of folders that aren't read. Hidden files are not listed.
    """

    paths: list[Path]
    skipped: list[Path]


def find_raw_files(paths: Iterable[Path]) -> RawFiles:
    """List the files of raw text. In a folder, files that can't be text, or are about the corpus,
    are skipped. Any other path is listed as it is: if it can't be text, or nothing is there,
    reading it raises an error.

    paths (Iterable[Path]): Files, folders, datasets, or - for standard input.
    RETURNS (RawFiles): The files to read, and the skipped files.
    RAISES (CorpusError): If a folder has no text.
    """
    files = RawFiles(paths=[], skipped=[])
    for path in paths:
        if path == STANDARD_INPUT or not path.is_dir() or is_dataset(path):
            files.paths.append(path)
            continue
        readable: list[Path] = []
        for file in corpus_files(path):
            # These are read as a corpus, and their first bytes don't matter. A folder in this list
            # is a dataset, a .spacy file isn't text, and a file of brat's annotation may be empty.
            is_corpus = file.is_dir() or file.suffix in (".spacy", BRAT_ANNOTATION)
            if is_corpus or can_be_text(file):
                readable.append(file)
        if not readable:
            raise CorpusError(f"{path}: expected a folder with text files, found none")
        files.paths.extend(readable)
        files.skipped.extend(find_skipped(path, readable))
    return files


def find_skipped(folder: Path, readable: Iterable[Path]) -> list[Path]:
    """List the files of a folder, and of the folders within it, that aren't `readable`: the files
    and datasets that are read. Hidden files are not listed."""
    read_paths = {*readable}
    skipped: list[Path] = []
    for path in sorted(folder.rglob("*")):
        names = path.relative_to(folder).parts
        is_hidden = any(name.startswith(".") for name in names)
        # The file itself is read, or it is in the folder of a dataset that is.
        is_read = not read_paths.isdisjoint([path, *path.parents])
        if is_text_of_brat(path):  # it is read together with its annotation
            is_read = path.with_suffix(BRAT_ANNOTATION) in read_paths
        if path.is_file() and not is_hidden and not is_read:
            skipped.append(path)
    return skipped


def can_be_text(path: Path) -> bool:
    """Whether the first bytes of a file are UTF-8 text, and not only whitespace."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    text = head.removeprefix(BOM).decode("utf8", "replace")
    if len(head) == HEAD:
        text = text[:-1]  # the last character may be cut in two
    replacement = "\ufffd"  # `decode` writes it instead of bytes that aren't UTF-8
    return bool(text.strip()) and "\0" not in text and replacement not in text


class BoundedPipeline:
    """A pipeline that is made again when its vocab has many strings, so that memory doesn't grow
    with the text. Until then, the vocab and the tokenizer cache the words that they have seen,
    which makes them fast. (In spaCy's `memory_zone` the tokenizer doesn't cache words, and takes
    three times as long.)

    make_pipeline (Callable[[], Language]): Makes the pipeline.
    """

    def __init__(self, make_pipeline: Callable[[], Language]) -> None:
        self._make_pipeline = make_pipeline
        self._nlp = self._make_nlp()

    @property
    def nlp(self) -> Language:
        """The pipeline. Read this property again for each text: it may be a new pipeline."""
        if len(self._nlp.vocab.strings) > MAX_STRINGS:
            self._nlp = self._make_nlp()
        return self._nlp

    def _make_nlp(self) -> Language:
        """Make the pipeline, with a large cache if its tokenizer has one."""
        nlp = self._make_pipeline()
        if hasattr(nlp.tokenizer, "max_cache_size"):
            nlp.tokenizer.max_cache_size = MAX_CACHED
        return nlp


def map_docs(
    function: Callable[[Doc], ResultT],
    pipeline: BoundedPipeline,
    path: Path,
    options: ReadOptions = DEFAULTS,
) -> Iterator[ResultT]:
    """Call a function with each doc of a file of raw text, and yield what it returns. The function
    should not keep the doc, so that memory doesn't grow with the text.

    function (Callable[[Doc], ResultT]): Called with each doc.
    pipeline (BoundedPipeline): The pipeline. Its tokenizer is used for texts without tokens.
    path (Path): A file, a dataset, or - for standard input. Each line of a text becomes a doc, and
        a long line several: see `cut_line`.
    options (ReadOptions): How to read a corpus, where there are several ways.
    YIELDS (ResultT): What the function returns for each doc.
    RAISES (CorpusError): If the file can't be read; the message names it and, if there are lines,
        the line.
    RAISES (ImportError): If it is a dataset, and `datasets` isn't installed.
    """
    if path == STANDARD_INPUT:
        texts = _read_lines(sys.stdin.buffer, STANDARD_INPUT_NAME)
        yield from (function(pipeline.nlp.make_doc(text)) for text in texts)
    elif path.is_file() and is_text(path):  # neither a dataset nor a pipe
        with path.open("rb") as file:
            texts = _read_lines(file, path)
            yield from (function(pipeline.nlp.make_doc(text)) for text in texts)
    else:
        yield from map(function, read_texts(pipeline.nlp, path, options))


def _read_lines(file: BinaryIO, path: Path) -> Iterator[str]:
    """Yield the lines of an open file, without whitespace at their ends, if anything is left. A
    long line is yielded in several parts. A line that isn't UTF-8, or has a null character, is
    refused: `path` is the name of the file in errors."""
    for number, line in enumerate(file, start=1):
        place = FilePlace(path, number)
        if number == 1:
            line = line.removeprefix(BOM)
        try:
            text = line.decode("utf8")
        except UnicodeDecodeError as error:
            message = f"expected UTF-8 text, got the byte 0x{line[error.start]:02x}"
            raise place.refuse(message) from None
        if "\0" in text:
            raise place.refuse("expected UTF-8 text, got a null character")
        # On the old Macintosh lines ended with "\r": such a file is a single line so far.
        for part in text.split("\r"):
            if part.strip():
                yield from cut_line(part.strip())


def cut_line(line: str) -> Iterator[str]:
    """Cut a long line into parts of at most `MAX_LENGTH` characters. It is cut at blanks, if there
    are any."""
    start = 0
    while len(line) - start > MAX_LENGTH:
        # Cut at the last blank that fits. The next part begins with it, so it doesn't count there.
        end = line.rfind(" ", start + 1, start + MAX_LENGTH)
        if end < 0:
            end = start + MAX_LENGTH  # without a blank
        yield line[start:end]
        start = end
    yield line[start:]
