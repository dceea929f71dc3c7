"""Read raw text from files, from folders that may contain other files, and from standard input.

The text may not fit in memory, so docs are created one at a time, passed to a function, and never
stored.
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
"""The maximum number of characters per doc. (spaCy's limit is a million.)"""

MAX_STRINGS = 1_000_000
"""The maximum number of strings in the vocab of a pipeline before the pipeline is re-created.
Together with the tokenizer's cache, they use about 200 MB."""

MAX_CACHED = 1_000_000
"""The maximum number of whitespace-separated strings that the tokenizer caches. spaCy's default of
10,000 is too small for large texts, because most strings that don't fit in the cache would be
tokenized repeatedly."""

ResultT = TypeVar("ResultT")


class RawFiles(NamedTuple):
    """The files with raw text under the paths that a user has specified.

    paths (list[Path]): The files to read. The folder of a dataset counts as a single file.
    skipped (list[Path]): The unread files in folders, except hidden files.
    """

    paths: list[Path]
    skipped: list[Path]


def find_raw_files(paths: Iterable[Path]) -> RawFiles:
    """List the files with raw text. In folders, files that can't be text or that describe the
    corpus are skipped. Paths that aren't folders are listed without being checked. If one doesn't
    exist or isn't text, an error is raised when it is read. A file is listed once, even if several
    paths lead to it, e.g. itself and its folder, because its words would otherwise count twice.

    paths (Iterable[Path]): Files, folders, datasets, or - for standard input.
    RETURNS (RawFiles): The files to read, and the skipped files.
    RAISES (CorpusError): If a folder contains no text.
    """
    # The paths of the files, keyed by their identity. If a file has several paths, the first one is
    # kept.
    path_of_file: dict[Path, Path] = {}
    skipped_of_file: dict[Path, Path] = {}
    for path in paths:
        if path == STANDARD_INPUT or not path.is_dir() or is_dataset(path):
            path_of_file.setdefault(identify(path), path)
            continue
        readable: list[Path] = []
        for file in corpus_files(path):
            # Datasets (which are folders), .spacy files and brat's annotation files are read as
            # corpora, so their first bytes aren't checked.
            is_corpus = file.is_dir() or file.suffix in (".spacy", BRAT_ANNOTATION)
            if is_corpus or can_be_text(file):
                readable.append(file)
        if not readable:
            raise CorpusError(f"{path}: expected a folder with text files, found none")
        for file in readable:
            path_of_file.setdefault(identify(file), file)
        for file in find_skipped(path, readable):
            skipped_of_file.setdefault(identify(file), file)
    # A file that is skipped in its folder is read if it is also specified itself.
    skipped = [path for file, path in skipped_of_file.items() if file not in path_of_file]
    return RawFiles([*path_of_file.values()], skipped)


def identify(path: Path) -> Path:
    """Return a path that is the same for all paths of a file: absolute and without links. A text of
    brat is identified by its annotation file, because both files contain the same text."""
    file = path.resolve()
    if is_text_of_brat(file):
        return file.with_suffix(BRAT_ANNOTATION)
    return file


def find_skipped(folder: Path, readable: Iterable[Path]) -> list[Path]:
    """List the files in a folder and its subfolders that aren't read. `readable` contains the files
    and datasets that are read. Hidden files are omitted."""
    read_paths = {*readable}
    skipped: list[Path] = []
    for path in sorted(folder.rglob("*")):
        names = path.relative_to(folder).parts
        is_hidden = any(name.startswith(".") for name in names)
        # Check the file itself and its parent folders, one of which may be a dataset that is read.
        is_read = not read_paths.isdisjoint([path, *path.parents])
        if is_text_of_brat(path):  # it is read together with its annotation
            is_read = path.with_suffix(BRAT_ANNOTATION) in read_paths
        if path.is_file() and not is_hidden and not is_read:
            skipped.append(path)
    return skipped


def can_be_text(path: Path) -> bool:
    """Check whether the first bytes of a file are UTF-8 text and contain more than whitespace."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    text = head.removeprefix(BOM).decode("utf8", "replace")
    if len(head) == HEAD:
        text = text[:-1]  # the last character may be incomplete
    replacement = "\ufffd"  # inserted by `decode` for bytes that aren't valid UTF-8
    return bool(text.strip()) and "\0" not in text and replacement not in text


class BoundedPipeline:
    """A pipeline that is re-created when its vocab contains too many strings, to limit memory
    usage. Until then, the vocab and the tokenizer cache the words of the text, which makes them
    fast. (spaCy's `memory_zone` isn't used because the tokenizer doesn't cache words there, so it
    takes three times as long.)

    make_pipeline (Callable[[], Language]): Creates the pipeline.
    """

    def __init__(self, make_pipeline: Callable[[], Language]) -> None:
        self._make_pipeline = make_pipeline
        self._nlp = self._make_nlp()

    @property
    def nlp(self) -> Language:
        """The current pipeline. Get it again for each text, because it may have been replaced."""
        if len(self._nlp.vocab.strings) > MAX_STRINGS:
            self._nlp = self._make_nlp()
        return self._nlp

    def _make_nlp(self) -> Language:
        """Create the pipeline. If its tokenizer has a cache, the size of the cache is increased."""
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
    """Apply a function to each doc of a file with raw text. To limit memory usage, the function
    should not store the doc.

    function (Callable[[Doc], ResultT]): The function that is called with each doc.
    pipeline (BoundedPipeline): The pipeline, which provides the tokenizer for texts without tokens.
    path (Path): A file, a dataset, or - for standard input. Each line of a text becomes a doc. Long
        lines are split into several docs: see `cut_line`.
    options (ReadOptions): Options for reading a corpus.
    YIELDS (ResultT): The result of the function for each doc.
    RAISES (CorpusError): If the file can't be read. The message contains the file and, if
        available, the line.
    RAISES (ImportError): If the path is a dataset, and `datasets` isn't installed.
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
    """Yield the non-empty lines of an open file, without leading and trailing whitespace. A long
    line is split into several parts. Raises an error if a line isn't UTF-8 or contains a null
    character. `path` is the name of the file in error messages."""
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
        # Classic Mac OS ended lines with "\r". Up to here, a file with such line endings is a
        # single line.
        for part in text.split("\r"):
            if part.strip():
                yield from cut_line(part.strip())


def cut_line(line: str) -> Iterator[str]:
    """Split a long line into parts of at most `MAX_LENGTH` characters, at spaces if possible."""
    start = 0
    while len(line) - start > MAX_LENGTH:
        # Split before the last space that fits. The search excludes the leading space of this part.
        end = line.rfind(" ", start + 1, start + MAX_LENGTH)
        if end < 0:
            end = start + MAX_LENGTH  # there is no space to split at
        yield line[start:end]
        start = end
    yield line[start:]
