"""Divide large files into parts, and read the texts of each part.

A file is divided into *parts*, which are ranges of its lines or rows, and each part is read and
annotated alone. So an interrupted run can continue with the remaining parts. A *row* is one text of
a part. Files that can be divided:

.txt               a text on each line; its id is the number of the line, from 1. Or the file is one
                   text, whose id is the name of the file
.jsonl, .ndjson    an object on each line, with the text, an id and, if it has them, tokens
.spacy             docs; the id is their number, from 0
.parquet           a column of texts and one of ids; without ids the number of the row, from 0
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc

from ..validation import require
from .context import DEFAULTS, Context, CorpusInfo
from .docbin import read_docbin
from .documents import with_metadata
from .files import BOM, SURROGATE, CorpusError, FilePlace, digest, encodable, shown
from .inputs import as_spacy_applies, as_spacy_evaluates
from .task_docs import task_to_doc
from .tasks import task_from_json

LINE_SUFFIXES = (".txt", ".jsonl", ".ndjson")
"""Suffixes of files that can be divided at any line."""

SHORT_TYPES = ("bool", "int32", "int64", "string")
"""The types of columns in Parquet that are read as metadata of docs, for groups of docs."""

MakeInput = Callable[[Doc], Doc]
"""Takes a doc of a file, and makes the doc that the pipeline gets: a function of `inputs`."""


class FilePart(NamedTuple):
    """A part of a file: a range of its lines or rows, which is read and annotated alone.

    path (Path): The file.
    start (int): The first byte of the part; in Parquet, the first row group.
    stop (int): The byte or row group after the last. 0: the part is the whole file.
    first (int): The number of its first line in the file, from 1, or of its first row, from 0.
    digest (str): A digest of its lines and of `first` or, if the file isn't divided by lines, of
        the whole file. `read_rows` checks it only for files of lines.
    n_bytes (int): The size of its lines or, if the file isn't divided by lines, of the whole file.
    """

    path: Path
    start: int
    stop: int
    first: int
    digest: str
    n_bytes: int


class TextRow(NamedTuple):
    """A text of a part. Its doc is made only when `make_doc` is called, so that one row that can't
    be read doesn't stop the others.

    id (Any): The id, or the number of the line or row.
    text (str | None): The text. None: the row has a value that isn't text.
    make_doc (Callable[[], Doc]): Makes a doc without annotation. If the row can't be read, it
        raises a ValueError.
    """

    id: Any
    text: str | None
    make_doc: Callable[[], Doc]


class RowReader(NamedTuple):
    """The settings for reading the rows of a part.

    nlp (Language): The pipeline, for its tokenizer.
    text_key (str): The key or column of the text.
    id_key (str): The key or column of the id.
    make_input (MakeInput): Takes a doc of the file, and makes the doc that the pipeline gets.
    """

    nlp: Language
    text_key: str
    id_key: str
    make_input: MakeInput


def divide(path: Path, n_rows: int, *, whole_files: bool = False) -> Iterator[FilePart]:
    """Divide a file into parts of a number of lines or rows. A .spacy file is one part, and Parquet
    row groups are not divided.

    path (Path): The file to divide.
    n_rows (int): The number of lines of a part. A part of a Parquet file has at least as many rows.
        The last part of a file may have fewer.
    whole_files (bool): Whether a .txt file is one text, and not a text on each line.
    YIELDS (FilePart): The parts, in order.
    RAISES (CorpusError): If a file with this suffix can't be divided.
    RAISES (ImportError): If it is a Parquet file, and pyarrow isn't installed.
    """
    if whole_files and path.suffix == ".txt":
        content = path.read_bytes()
        if content.removeprefix(BOM).strip():
            # With the number 0, the digest of the file differs from the digest of its lines.
            yield FilePart(path, 0, 0, first=0, digest=digest(content, 0), n_bytes=len(content))
    elif path.suffix in LINE_SUFFIXES:
        yield from _divide_lines(path, n_rows)
    elif path.suffix == ".spacy":
        # The file is read as a whole, so the range is not used.
        yield FilePart(path, 0, 0, first=0, digest=digest(path), n_bytes=path.stat().st_size)
    elif path.suffix == ".parquet":
        yield from _divide_parquet(path, n_rows)
    else:
        expected = ", ".join([*LINE_SUFFIXES, ".spacy", ".parquet"])
        raise CorpusError(f"{path}: expected one of {expected}, got {path.suffix!r}")


def _divide_lines(path: Path, n_rows: int) -> Iterator[FilePart]:
    """Divide a file into parts of `n_rows` lines. The last part may have fewer."""
    start = 0  # in bytes
    number = 1  # of the first line of the part
    with path.open("rb") as file:
        while lines := list(islice(file, n_rows)):
            content = b"".join(lines)
            stop = start + len(content)
            # The line number is part of the digest. So the digest changes, too, if a line is added
            # to the file before this part: the ids of its texts have changed.
            yield FilePart(path, start, stop, number, digest(content, number), n_bytes=len(content))
            start = stop
            number += len(lines)


def _divide_parquet(path: Path, n_rows: int) -> Iterator[FilePart]:
    """Divide a file into parts of whole row groups, each with at least `n_rows` rows. The last part
    may have fewer."""
    digest_of_file = digest(path)
    n_bytes = path.stat().st_size
    try:
        metadata = require_pyarrow().read_metadata(path)
    except (ValueError, OSError):
        # `read_rows` raises the error when it reads this part, so other files can still be read.
        yield FilePart(path, 0, 0, first=0, digest=digest_of_file, n_bytes=n_bytes)
        return

    start = 0  # in row groups
    first_row = 0
    n_rows_of_part = 0
    for i in range(metadata.num_row_groups):
        n_rows_of_part += metadata.row_group(i).num_rows
        stop = i + 1
        if n_rows_of_part >= n_rows or stop == metadata.num_row_groups:
            digest_of_part = digest(digest_of_file, start, stop)
            yield FilePart(path, start, stop, first_row, digest_of_part, n_bytes)
            start = stop
            first_row += n_rows_of_part
            n_rows_of_part = 0


def read_rows(
    nlp: Language,
    part: FilePart,
    text: str = "text",
    id_name: str = "id",
    *,
    file_tokens: bool = True,
) -> Iterator[TextRow]:
    """Read the rows of a part, without empty lines. A row that can't be read is yielded, too: its
    `make_doc` raises the error.

    nlp (Language): The pipeline. Its tokenizer is used for texts without tokens.
    part (FilePart): The part of a file.
    text (str): The key of the text in JSONL, or its column in Parquet.
    id_name (str): The key or the column of the id.
    file_tokens (bool): Whether docs have the tokens and sentence starts of the file, if it has
        them, as in `spacy apply`. Otherwise they are made of its text, as in `spacy evaluate`: see
        `inputs`.
    YIELDS (TextRow): The rows, in order.
    RAISES (CorpusError): If the file can't be read, or its lines have changed since it was divided.
    RAISES (ImportError): If it is a Parquet file, and pyarrow isn't installed.
    """
    make_input: MakeInput = as_spacy_applies
    if not file_tokens:
        make_input = partial(as_spacy_evaluates, nlp)
    reader = RowReader(nlp, text, id_name, make_input)

    if part.path.suffix == ".spacy":
        context = Context(nlp, options=DEFAULTS, info=CorpusInfo())
        for i, doc in enumerate(read_docbin(part.path, context)):
            yield TextRow(i, doc.text, partial(make_input, doc))
    elif part.path.suffix == ".parquet":
        records = _read_row_groups(part, text, id_name)
        for number, record in enumerate(records, start=part.first):
            yield _record_to_row(record, FilePlace(part.path, number, "row"), reader)
    elif part.path.suffix == ".txt" and part.stop == 0:  # the whole file is a text
        yield _file_to_row(_read_bytes(part), part.path, reader)
    else:
        lines = _read_bytes(part).split(b"\n")
        for number, line in enumerate(lines, start=part.first):
            if number == 1:  # the first of the file
                line = line.removeprefix(BOM)
            if line.strip():
                yield _line_to_row(line, FilePlace(part.path, number), reader)


def _read_bytes(part: FilePart) -> bytes:
    """Read the bytes of a part of a file of lines. If they have changed since the file was divided,
    the part is refused, as lines could be lost or read twice."""
    with part.path.open("rb") as file:
        file.seek(part.start)
        content = file.read(part.stop - part.start) if part.stop else file.read()
    if digest(content, part.first) != part.digest:
        expected = "expected the file that the run started with"
        raise CorpusError(f"{part.path}: {expected}, got a different one")
    return content


def _file_to_row(content: bytes, path: Path, reader: RowReader) -> TextRow:
    """Make a row from a whole .txt file. Its id is the name of the file."""
    row_id = encodable(path.name)
    content = content.removeprefix(BOM)
    try:
        text = content.decode("utf8")
    except UnicodeDecodeError as error:
        message = f"expected UTF-8: {error}"
        refused_row = _refused(FilePlace(path, 1), content.decode("utf8", "replace"), message)
        return refused_row._replace(id=row_id)
    return TextRow(row_id, text, partial(make_doc, reader.nlp, text))


def _line_to_row(line: bytes, place: FilePlace, reader: RowReader) -> TextRow:
    """Make a row from a line. In a .txt file the line is the text, in other files it is JSON."""
    try:
        text = line.decode("utf8").removesuffix("\r")
    except UnicodeDecodeError as error:
        return _refused(place, line.decode("utf8", "replace"), f"expected UTF-8: {error}")
    if place.path.suffix == ".txt":
        return TextRow(place.number, text, partial(make_doc, reader.nlp, text))
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _refused(place, text, f"expected JSON, got {shown(text)}: {error}")
    if not isinstance(record, dict):
        expected = f"expected an object with {reader.text_key!r}"
        return _refused(place, text, f"{expected}, got {shown(record)}")
    return _record_to_row(record, place, reader)


def _record_to_row(record: Mapping[str, Any], place: FilePlace, reader: RowReader) -> TextRow:
    """Make a `TextRow` from a JSON object or a Parquet row. Its line or row number is the id if the
    record has none. The record is refused if its id isn't text or a number of 64 bits: not all
    formats of output can have other ids."""
    row_id = record.get(reader.id_key, place.number)
    text = record.get(reader.text_key)
    # Any comparison with NaN is false, so NaN is refused, too.
    is_number = isinstance(row_id, (int, float)) and -(2**63) <= row_id < 2**64
    # Text with a lone surrogate can't be written as UTF-8.
    is_utf8 = isinstance(row_id, str) and not SURROGATE.search(row_id)
    if not is_number and not is_utf8:
        expected = "expected text or a number of 64 bits"
        return _refused(place, text, f"{reader.id_key}: {expected}, got {shown(row_id)}")

    metadata = {}
    for key, value in record.items():
        if key not in (reader.text_key, reader.id_key):
            metadata[key] = value

    def make_doc_of_record() -> Doc:
        """Make the doc, with the tokens of the record or, without these, of the tokenizer."""
        tokens = None
        if place.unit == "line":  # JSON. In Parquet, a column "tokens" is metadata.
            tokens = record.get("tokens")
        if tokens is None or not isinstance(text, str):
            # `make_doc` raises the error of a text that is no string.
            return with_metadata(make_doc(reader.nlp, text), metadata)
        task = task_from_json({"text": text, "tokens": tokens}, place)
        context = Context(reader.nlp, options=DEFAULTS, info=CorpusInfo())
        doc_with_tokens = task_to_doc(task, place, context)
        return with_metadata(reader.make_input(doc_with_tokens), metadata)

    return _text_row(row_id, text, make_doc_of_record)


def _text_row(row_id: Any, text: Any, make_doc_of_row: Callable[[], Doc]) -> TextRow:
    """Make a `TextRow`. Its text is None if the row has something other than a string there."""
    if not isinstance(text, str):
        return TextRow(row_id, text=None, make_doc=make_doc_of_row)
    return TextRow(row_id, text, make_doc_of_row)


def require_pyarrow() -> Any:
    """Import pyarrow's module for Parquet.

    RAISES (ImportError): If it isn't installed.
    """
    return require("pyarrow.parquet", extra="parquet", missing="Parquet requires pyarrow")


def make_doc(nlp: Language, text: Any) -> Doc:
    """Tokenize the text of a row.

    RAISES (ValueError): If it isn't text, or spaCy can't make a doc from it.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected a text, got {shown(text)}")
    return nlp.make_doc(text)


def _refused(place: FilePlace, text: Any, message: str) -> TextRow:
    """Make a row that can't be read. The error with this message isn't raised here, but by
    `TextRow.make_doc`, so that the other rows are read. `text` is the text of the row or, if this
    is unknown, the value that the row has."""

    def refuse() -> Doc:
        raise place.refuse(message)

    return _text_row(place.number, text, refuse)


def _read_row_groups(part: FilePart, text_key: str, id_key: str) -> list[dict[str, Any]]:
    """Read the rows of a part of a Parquet file. Only some columns are read: the text, the id, and
    columns of `SHORT_TYPES`, whose values become metadata of docs. Returns the values of each row
    by the name of the column. A file without the column of the text is refused."""
    try:
        file = require_pyarrow().ParquetFile(part.path)
        type_of_column = {field.name: str(field.type) for field in file.schema_arrow}
        columns = []
        for name, column_type in type_of_column.items():
            if name in (text_key, id_key) or column_type in SHORT_TYPES:
                columns.append(name)
        row_groups = list(range(part.start, part.stop))
        table = file.read_row_groups(row_groups, columns=columns)
        records: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OSError) as error:
        raise CorpusError(f"{part.path}: expected a Parquet file: {error}") from None
    if text_key not in type_of_column:
        raise CorpusError(f"{part.path}: expected the column {text_key!r}, got {[*type_of_column]}")
    return records
