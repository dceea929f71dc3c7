"""Files of texts as parts, and the rows of a part.

.txt               a text on each line; its id is the number of the line, from 1
.jsonl, .ndjson    an object on each line, with the text, an id and, if it has them, tokens
.spacy             docs; the id is their number, from 0
.parquet           a column of texts and one of ids; without ids the number of the row, from 0
"""

import json
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from spacy.language import Language
from spacy.tokens import Doc

from ...readers import DEFAULTS, CorpusError, Found, Task, task_to_doc
from ...readers.corpus import read_docbin
from ...readers.files import BOM, Place, is_about, shown
from ...readers.found import Context
from ...readers.jsonl import task_from_json
from ...readers.sentences import copy_tokens
from ...validation import require


class Columns(NamedTuple):
    """Names of keys of JSONL and of columns of Parquet.

    text (str): Of the text.
    id (str): Of the id.
    """

    text: str = "text"
    id: str = "id"


class Part(NamedTuple):
    """A part of an input file.

    path (str): The file.
    name (str): Its name in the output.
    number (int): The number of the part, from 0.
    start, stop (int): Bytes of lines; row groups of Parquet; 0 and 0 for a whole file.
    first (int): The number of its first line or row.
    digest (str): Of its content.
    """

    path: str
    name: str
    number: int
    start: int
    stop: int
    first: int
    digest: str


class Row(NamedTuple):
    """A text to be annotated.

    id (Any): Its id.
    text (Any): The text, if it is one.
    tokens (Union[Task, Doc, None]): What has its tokens. None: the tokenizer finds them.
    error (Optional[str]): Why it can't be read.
    """

    id: Any
    text: Any
    tokens: Union[Task, Doc, None] = None
    error: Optional[str] = None


def require_pyarrow() -> Any:
    """Import pyarrow's module for Parquet.

    RAISES (ImportError): If it isn't installed.
    """
    return require("pyarrow.parquet", "parquet", "Parquet requires pyarrow")


def plan(inputs: Sequence[Path], n_rows: int) -> Iterator[Part]:
    """Divide input files into parts.

    inputs (Sequence[Path]): Files and folders.
    n_rows (int): Lines or rows of a part. A .spacy file is one part, and row groups of Parquet
        are not divided.
    YIELDS (Part): The parts.
    RAISES (CorpusError): If a file isn't there or has another suffix, if two have the same name,
        or if a Parquet file can't be read.
    """
    seen: Dict[str, Path] = {}
    for path, name in _named(inputs):
        if path.suffix not in DIVIDE:
            raise CorpusError(f"{path}: expected one of {', '.join(DIVIDE)}, got {path.suffix!r}")
        if seen.setdefault(name, path) != path:
            raise CorpusError(f"expected files of different names, got {seen[name]} and {path}")
        for number, (start, stop, first, digest) in enumerate(DIVIDE[path.suffix](path, n_rows)):
            yield Part(str(path), name, number, start, stop, first, digest)


def _named(inputs: Sequence[Path]) -> Iterator[Tuple[Path, str]]:
    """The files, and their names in the output: within a folder its relative path."""
    for given in dict.fromkeys(inputs):
        if not given.exists():
            raise CorpusError(f"{given}: expected a file or folder, got nothing there")
        if not given.is_dir():
            yield given, given.name
            continue
        for path in sorted(given.rglob("*")):
            names = path.relative_to(given).parts
            hidden = any(name.startswith(".") for name in names)
            if path.is_file() and not hidden and not is_about(path):
                yield path, "/".join(names)


Divided = Iterator[Tuple[int, int, int, str]]


def _divide_lines(path: Path, n_rows: int) -> Divided:
    with path.open("rb") as file:
        start, first = 0, 1
        while lines := list(islice(file, n_rows)):
            data = b"".join(lines)
            yield start, start + len(data), first, _digest_of_lines(data, first)
            start, first = start + len(data), first + len(lines)


def _digest_of_lines(data: bytes, first: int) -> str:
    return sha256(data + b"%d" % first).hexdigest()


def _no_division(path: Path, n_rows: int) -> Divided:
    yield 0, 0, 0, digest_of(path)


def _divide_parquet(path: Path, n_rows: int) -> Divided:
    try:
        meta = require_pyarrow().read_metadata(path)
    except (ValueError, OSError) as error:
        # Its task fails then, and the others don't.
        yield 0, 0, 0, digest_of(path) + str(error)
        return
    digest, start, first, n = digest_of(path), 0, 0, 0
    for i in range(meta.num_row_groups):
        n += meta.row_group(i).num_rows
        if n >= n_rows or i + 1 == meta.num_row_groups:
            yield start, i + 1, first, f"{digest} {start} {i + 1}"
            start, first, n = i + 1, first + n, 0


DIVIDE: Dict[str, Callable[[Path, int], Divided]] = {
    ".txt": _divide_lines,
    ".jsonl": _divide_lines,
    ".ndjson": _divide_lines,
    ".spacy": _no_division,
    ".parquet": _divide_parquet,
}


def digest_of(path: Path) -> str:
    """The digest of a file, or of the files of a folder and their names."""
    digest = sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            digest.update(str(file.relative_to(path)).encode("utf8"))
            with file.open("rb") as opened:
                while data := opened.read(1 << 20):
                    digest.update(data)
    return digest.hexdigest()


def read_rows(nlp: Language, part: Part, columns: Columns) -> Iterator[Row]:
    """Read the rows of a part. A line that can't be read is a row with its error.

    nlp (Language): The pipeline.
    part (Part): The part.
    columns (Columns): Keys or columns.
    RETURNS (Iterator[Row]): The rows, without empty lines.
    RAISES (CorpusError): If the file can't be read.
    """
    path = Path(part.path)
    if path.suffix == ".spacy":
        return _docs(nlp, path)
    if path.suffix == ".parquet":
        return _table_rows(part, columns)
    return _lines(part, columns)


def _lines(part: Part, columns: Columns) -> Iterator[Row]:
    path = Path(part.path)
    with path.open("rb") as file:
        file.seek(part.start)
        data = file.read(part.stop - part.start)
    if _digest_of_lines(data, part.first) != part.digest:
        raise CorpusError(f"{path}: expected the file that the command began with, got another")
    for i, line in enumerate(data.split(b"\n")):
        number = part.first + i
        line = line.removeprefix(BOM) if number == 1 else line
        if line.strip():
            try:
                text = line.decode("utf8").removesuffix("\r")
                is_text = path.suffix == ".txt"
                yield Row(number, text) if is_text else _record(text, Place(path, number), columns)
            except ValueError as error:
                yield Row(number, line.decode("utf8", "replace"), error=described(error))


def _record(line: str, place: Place, columns: Columns) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise place.refuse(f"expected JSON, got {shown(line)}: {error}") from None
    if not isinstance(value, dict):
        raise place.refuse(f"expected an object with {columns.text!r}, got {shown(value)}")
    row = _row(value, place, columns)
    if row.error or not isinstance(row.text, str) or value.get("tokens") is None:
        return row
    try:
        given = {"text": row.text, "tokens": value["tokens"]}
        return row._replace(tokens=task_from_json(given, place))
    except CorpusError as error:
        return row._replace(error=described(error))


def _row(value: Dict[str, Any], place: Place, columns: Columns) -> Row:
    row = Row(value.get(columns.id, place.number), value.get(columns.text))
    if not isinstance(row.id, (dict, list)) and row.id is not None:
        return row
    message = f"{place}: {columns.id}: expected text or a number, got {shown(row.id)}"
    return row._replace(id=place.number, error=message)


def _docs(nlp: Language, path: Path) -> Iterator[Row]:
    for i, doc in enumerate(read_docbin(path, Context(nlp, DEFAULTS, Found()))):
        yield Row(i, doc.text, doc)


def _table_rows(part: Part, columns: Columns) -> Iterator[Row]:
    try:
        file = require_pyarrow().ParquetFile(part.path)
        names = file.schema_arrow.names
        there = [name for name in columns if name in names]
        groups = list(range(part.start, part.stop))
        values: List[Dict[str, Any]] = file.read_row_groups(groups, columns=there).to_pylist()
    except (ValueError, OSError) as error:
        raise CorpusError(f"{part.path}: expected a Parquet file: {error}") from None
    if columns.text not in names:
        raise CorpusError(f"{part.path}: expected the column {columns.text!r}, got {names}")
    for i, value in enumerate(values):
        yield _row(value, Place(Path(part.path), part.first + i, "row"), columns)


def make_doc(nlp: Language, row: Row) -> Doc:
    """Make the doc of a row, without annotation.

    RAISES (ValueError): If it can't be made.
    """
    if row.error is not None:
        raise ValueError(row.error)
    if isinstance(row.tokens, Doc):
        return copy_tokens(row.tokens)
    if isinstance(row.tokens, Task):
        context = Context(nlp, DEFAULTS, Found())
        return copy_tokens(task_to_doc(row.tokens, Place(Path(), 0), context))
    if not isinstance(row.text, str):
        raise ValueError(f"expected a text, got {shown(row.text)}")
    return nlp.make_doc(row.text)


def described(error: BaseException) -> str:
    """An error in a line: our own messages as they are, others with the name of their class."""
    own = type(error) in (ValueError, CorpusError)
    return str(error) if own else f"{type(error).__name__}: {error}"
