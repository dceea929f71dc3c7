"""Split large files into parts, and read the texts of each part.

A *part* is a range of lines or rows that is read and annotated separately, so that an interrupted
run can continue with the remaining parts. A *row* is a text in a part. Supported files:

.txt               one text per line, whose ID is the line number, starting at 1. Alternatively, the
                   whole file is one text, whose ID is the file name
.jsonl, .ndjson    one object per line, with a text, an ID and, optionally, tokens
.spacy             docs, whose IDs are numbers, starting at 0
.parquet           columns of texts and, optionally, IDs. The default is the row number, starting
                   at 0
"""

import json
import re
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
"""Suffixes of files that can be split after any line."""

INTEGER_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

SHORT_TYPES = frozenset([*INTEGER_TYPES, "bool", "string", "large_string", "string_view"])
"""The types of Parquet columns that are read as metadata, which docs can be grouped by."""

DICTIONARY = re.compile(r"dictionary<values=(\w+), .*")
"""Matches the type of a Parquet column with categories, such as those of pandas."""

MakeInput = Callable[[Doc], Doc]
"""Converts a doc of a file to the doc that is passed to the pipeline: see `inputs`."""


class FilePart(NamedTuple):
    """A part of a file: a range of lines or rows that is read and annotated separately.

    path (Path): The file.
    start (int): The first byte of the part or, in Parquet, the first row group.
    stop (int): The byte or row group after the last. If 0, the part is the whole file.
    first (int): The number of the first line (1-based) or of the first row (0-based).
    digest (str): A digest of the lines and of `first`. If the file isn't split by lines, a digest
        of the whole file. `read_rows` only checks digests of lines.
    n_bytes (int): The size of the lines. If the file isn't split by lines, the size of the file.
    """

    path: Path
    start: int
    stop: int
    first: int
    digest: str
    n_bytes: int


class TextRow(NamedTuple):
    """A text in a part. Its doc isn't created until `make_doc` is called, so that a row that can't
    be read doesn't affect other rows.

    id (Any): The ID, or the number of the line or row.
    text (str | None): The text, or None if the value isn't a string.
    make_doc (Callable[[], Doc]): Creates a doc without annotation. Raises a ValueError if the row
        can't be read.
    """

    id: Any
    text: str | None
    make_doc: Callable[[], Doc]


class RowReader(NamedTuple):
    """Settings for reading the rows of a part.

    nlp (Language): The pipeline, which provides the tokenizer.
    text_key (str): The key or column of the text.
    id_key (str): The key or column of the ID.
    make_input (MakeInput): Converts a doc of the file to the doc that is passed to the pipeline.
    """

    nlp: Language
    text_key: str
    id_key: str
    make_input: MakeInput


def divide(path: Path, n_rows: int, *, whole_files: bool = False) -> Iterator[FilePart]:
    """Split a file into parts of a given number of lines or rows. A .spacy file becomes a single
    part, and Parquet row groups aren't split.

    path (Path): The file to split.
    n_rows (int): The number of lines per part, or the minimum number of rows per part of a Parquet
        file. The last part may be smaller.
    whole_files (bool): Whether a .txt file is a single text. Otherwise, each line is a text.
    YIELDS (FilePart): The parts, in order.
    RAISES (CorpusError): If files with this suffix aren't supported.
    RAISES (ImportError): If the file is a Parquet file, and pyarrow isn't installed.
    """
    if whole_files and path.suffix == ".txt":
        content = path.read_bytes()
        if content.removeprefix(BOM).strip():
            # The number 0 makes the digest of the file different from the digest of its lines.
            yield FilePart(path, 0, 0, first=0, digest=digest(content, 0), n_bytes=len(content))
    elif path.suffix in LINE_SUFFIXES:
        yield from _divide_lines(path, n_rows)
    elif path.suffix == ".spacy":
        # The whole file is read at once, so the range isn't used.
        yield FilePart(path, 0, 0, first=0, digest=digest(path), n_bytes=path.stat().st_size)
    elif path.suffix == ".parquet":
        yield from _divide_parquet(path, n_rows)
    else:
        expected = ", ".join([*LINE_SUFFIXES, ".spacy", ".parquet"])
        raise CorpusError(f"{path}: expected one of {expected}, got {path.suffix!r}")


def _divide_lines(path: Path, n_rows: int) -> Iterator[FilePart]:
    """Split a file into parts of `n_rows` lines. The last part may be smaller."""
    start = 0  # in bytes
    number = 1  # the number of the part's first line
    with path.open("rb") as file:
        while lines := list(islice(file, n_rows)):
            content = b"".join(lines)
            stop = start + len(content)
            # The digest includes the line number, so that it also changes if a line is inserted
            # before the part, because this changes the IDs of its texts.
            yield FilePart(path, start, stop, number, digest(content, number), n_bytes=len(content))
            start = stop
            number += len(lines)


def _divide_parquet(path: Path, n_rows: int) -> Iterator[FilePart]:
    """Split a file into parts that consist of complete row groups and have at least `n_rows` rows.
    The last part may be smaller."""
    digest_of_file = digest(path)
    n_bytes = path.stat().st_size
    try:
        metadata = require_pyarrow().read_metadata(path)
    except (ValueError, OSError):
        # `read_rows` raises the error when it reads this part, so that other files are still read.
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
    """Read the rows of a part. Empty lines are skipped. A row that can't be read is also yielded,
    and its `make_doc` raises the error.

    nlp (Language): The pipeline, which provides the tokenizer for texts without tokens.
    part (FilePart): The part of a file.
    text (str): The key of the text in JSONL, or its column in Parquet.
    id_name (str): The key or column of the ID.
    file_tokens (bool): Whether to use the tokens and sentence starts of the file, if available, as
        in `spacy apply`. Otherwise, docs are created from the text, as in `spacy evaluate`: see
        `inputs`.
    YIELDS (TextRow): The rows, in order.
    RAISES (CorpusError): If the file can't be read, or its lines have changed since it was split.
    RAISES (ImportError): If the file is a Parquet file, and pyarrow isn't installed.
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
            if number == 1:  # the first line of the file
                line = line.removeprefix(BOM)
            if line.strip():
                yield _line_to_row(line, FilePlace(part.path, number), reader)


def _read_bytes(part: FilePart) -> bytes:
    """Read the bytes of a part. Raises an error if they have changed since the file was split,
    because lines could otherwise be lost or read twice."""
    with part.path.open("rb") as file:
        file.seek(part.start)
        content = file.read(part.stop - part.start) if part.stop else file.read()
    if digest(content, part.first) != part.digest:
        expected = "expected the file that the run started with"
        raise CorpusError(f"{part.path}: {expected}, got a different one")
    return content


def _file_to_row(content: bytes, path: Path, reader: RowReader) -> TextRow:
    """Create a row from a whole .txt file. Its ID is the file name."""
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
    """Create a row from a line, which is a text in .txt files and JSON in other files."""
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
    """Create a row from a JSON object or a Parquet row. If the record has no ID, the line or row
    number is used. A record can't be read if its ID isn't a string or a 64-bit number, because not
    all output formats support other IDs."""
    row_id = record.get(reader.id_key, place.number)
    text = record.get(reader.text_key)
    # Comparisons with NaN are always False, so NaN is also rejected.
    is_number = isinstance(row_id, (int, float)) and -(2**63) <= row_id < 2**64
    # A string with a lone surrogate can't be encoded in UTF-8.
    is_utf8 = isinstance(row_id, str) and not SURROGATE.search(row_id)
    if not is_number and not is_utf8:
        expected = "expected text or a number of 64 bits"
        return _refused(place, text, f"{reader.id_key}: {expected}, got {shown(row_id)}")

    metadata = {}
    for key, value in record.items():
        if key not in (reader.text_key, reader.id_key):
            metadata[key] = value

    def make_doc_of_record() -> Doc:
        """Create the doc with the tokens of the record or, if it has none, with the tokenizer."""
        tokens = None
        if place.unit == "line":  # JSON. In Parquet, a column "tokens" contains metadata.
            tokens = record.get("tokens")
        if tokens is None or not isinstance(text, str):
            # `make_doc` raises an error if the text isn't a string.
            return with_metadata(make_doc(reader.nlp, text), metadata)
        task = task_from_json({"text": text, "tokens": tokens}, place)
        context = Context(reader.nlp, options=DEFAULTS, info=CorpusInfo())
        doc_with_tokens = task_to_doc(task, place, context)
        return with_metadata(reader.make_input(doc_with_tokens), metadata)

    return _text_row(row_id, text, make_doc_of_record)


def _text_row(row_id: Any, text: Any, make_doc_of_row: Callable[[], Doc]) -> TextRow:
    """Create a row. Its text is None if `text` isn't a string."""
    if not isinstance(text, str):
        return TextRow(row_id, text=None, make_doc=make_doc_of_row)
    return TextRow(row_id, text, make_doc_of_row)


def require_pyarrow() -> Any:
    """Import pyarrow's Parquet module.

    RAISES (ImportError): If pyarrow isn't installed.
    """
    return require("pyarrow.parquet", extra="parquet", missing="Parquet requires pyarrow")


def make_doc(nlp: Language, text: Any) -> Doc:
    """Tokenize the text of a row.

    RAISES (ValueError): If the text isn't a string, or spaCy can't create a doc from it.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected a text, got {shown(text)}")
    return nlp.make_doc(text)


def _refused(place: FilePlace, text: Any, message: str) -> TextRow:
    """Create a row that can't be read. `TextRow.make_doc` raises an error with this message, so
    that other rows can still be read. `text` is the text of the row or, if it isn't known, the
    row's value."""

    def refuse() -> Doc:
        raise place.refuse(message)

    return _text_row(place.number, text, refuse)


def _read_row_groups(part: FilePart, text_key: str, id_key: str) -> list[dict[str, Any]]:
    """Read the rows of a part of a Parquet file. Only the text column, the ID column, and metadata
    columns (see `SHORT_TYPES`) are read. Returns one dictionary per row, keyed by column name.
    Raises an error if there is no text column."""
    try:
        file = require_pyarrow().ParquetFile(part.path)
        type_of_column = {field.name: _name_of_type(field.type) for field in file.schema_arrow}
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


def _name_of_type(column_type: Any) -> str:
    """Return the name of the type of the values in a Parquet column, such as "int32"."""
    name = str(column_type)
    categories = DICTIONARY.fullmatch(name)
    return name if categories is None else categories[1]
