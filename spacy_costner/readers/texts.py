"""Texts without annotation: docs of any corpus; and large files in parts, a row for each text.

Files in parts:

.txt               a text on each line; its id is the number of the line, from 1
.jsonl, .ndjson    an object on each line, with the text, an id and, if it has them, tokens
.spacy             docs; the id is their number, from 0
.parquet           a column of texts and one of ids; without ids the number of the row, from 0
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
from .context import DEFAULTS, Context, CorpusInfo, Predicted
from .corpus import read_docbin, read_file
from .documents import with_data
from .files import (
    BOM,
    SURROGATE,
    CorpusError,
    Place,
    corpus_files,
    digest,
    is_json,
    read_head,
    read_text,
    shown,
)
from .inputs import as_spacy_applies, as_spacy_evaluates
from .task_docs import task_to_doc
from .tasks import task_from_json

CORPORA = (".spacy", ".conll", ".iob", ".tsv")
TAGGED = re.compile(r"-DOCSTART-.*|\S+\s(.*\s)?(O|[A-Z]-\S+)")
"""A line of a corpus in columns."""

LINES = (".txt", ".jsonl", ".ndjson")
SHORT = ("bool", "int32", "int64", "string")
"""The types of columns whose values docs can be grouped by."""

MakeInput = Callable[[Doc], Doc]
"""Makes what the pipeline gets of a doc of the file: a function of `inputs`."""


def read_texts(nlp: Language, path: str | Path) -> Iterator[Doc]:
    """Read docs without annotation but for the starts of sentences.

    nlp (Language): The pipeline. Its tokenizer is used for texts without tokens.
    path (str | Path): A file of text, with a doc on each line, or any corpus: see
        `read_docs`.
    YIELDS (Doc): The docs, without empty ones.
    RAISES (CorpusError): If a file can't be read; the message names file and line.
    """
    for file in corpus_files(Path(path)):
        if not is_text(file):
            predicted = Predicted()
            for doc in read_file(file, Context(nlp, DEFAULTS, CorpusInfo(), predicted)):
                if len(doc):
                    new = predicted.get(doc) or as_spacy_applies(doc)
                    yield with_data(new, doc.user_data)
            continue
        for i, line in enumerate(read_text(file).split("\n")):
            try:
                if line.strip():
                    yield nlp.make_doc(line.strip())
            except ValueError as error:  # The text is too long.
                message = f"expected a text that spaCy can read: {error}"
                raise Place(file, i + 1).refuse(message) from None


def is_text(path: Path) -> bool:
    """Whether a file has only text: neither JSON nor columns of words and tags."""
    if path.is_dir() or path.suffix in CORPORA or is_json(path):
        return False
    lines = [line.strip() for line in read_head(path).splitlines() if line.strip()]
    return sum(bool(TAGGED.fullmatch(line)) for line in lines) * 2 <= len(lines)


class Part(NamedTuple):
    """A range of a file: from `start` to `stop` bytes of lines or row groups of Parquet; both
    are 0 for a whole file. `first` is the number of its first line or row, `digest` that of its
    content."""

    path: Path
    start: int
    stop: int
    first: int
    digest: str


class Row(NamedTuple):
    """A text of a part. `text` is None if it isn't one. `make_doc` makes a doc without annotation,
    or raises the error of the row."""

    id: Any
    text: str | None
    make_doc: Callable[[], Doc]


def divide(path: Path, n_rows: int) -> Iterator[Part]:
    """Divide a file into parts of some lines or rows. A .spacy file is one part, and row groups
    of Parquet are not divided.

    RAISES (CorpusError): If the file has another suffix.
    """
    start, first, n = 0, 0, 0
    if path.suffix in LINES:
        with path.open("rb") as file:
            while lines := list(islice(file, n_rows)):
                data = b"".join(lines)
                stop = start + len(data)
                yield Part(path, start, stop, first + 1, digest(data, first + 1))
                start, first = stop, first + len(lines)
    elif path.suffix == ".spacy":
        yield Part(path, 0, 0, 0, digest(path))
    elif path.suffix == ".parquet":
        content = digest(path)
        try:
            meta = require_pyarrow().read_metadata(path)
        except (ValueError, OSError):  # Reading the part fails, too, and other parts don't.
            yield Part(path, 0, 0, 0, content)
            return
        for i in range(meta.num_row_groups):
            n += meta.row_group(i).num_rows
            if n >= n_rows or i + 1 == meta.num_row_groups:
                yield Part(path, start, i + 1, first, digest(content, start, i + 1))
                start, first, n = i + 1, first + n, 0
    else:
        expected = ", ".join([*LINES, ".spacy", ".parquet"])
        raise CorpusError(f"{path}: expected one of {expected}, got {path.suffix!r}")


def read_rows(
    nlp: Language,
    part: Part,
    text: str = "text",
    id_name: str = "id",
    *,
    file_tokens: bool = True,
) -> Iterator[Row]:
    """Read the rows of a part, without empty lines. What can't be read is a row whose `make_doc`
    raises. `text` and `id_name` are keys of JSONL, or columns of Parquet. Docs have the tokens and
    sentence starts of the file, if it has them, as in `spacy apply`; without `file_tokens` only its
    text, as in `spacy evaluate`: see `inputs`.

    RAISES (CorpusError): If the file can't be read.
    """
    make_input: MakeInput = as_spacy_applies if file_tokens else partial(as_spacy_evaluates, nlp)
    if part.path.suffix == ".spacy":
        for i, doc in enumerate(read_docbin(part.path, Context(nlp, DEFAULTS, CorpusInfo()))):
            yield Row(i, doc.text, partial(make_input, doc))
    elif part.path.suffix == ".parquet":
        for i, value in enumerate(_read_row_groups(part, text, id_name), part.first):
            yield _to_row(nlp, value, Place(part.path, i, "row"), text, id_name, make_input)
    else:
        with part.path.open("rb") as file:
            file.seek(part.start)
            data = file.read(part.stop - part.start)
        if digest(data, part.first) != part.digest:
            expected = "expected the file that the command began with"
            raise CorpusError(f"{part.path}: {expected}, got another")
        for number, line in enumerate(data.split(b"\n"), part.first):
            line = line.removeprefix(BOM) if number == 1 else line
            if line.strip():
                place = Place(part.path, number)
                yield _line_to_row(nlp, line, place, text, id_name, make_input)


def _line_to_row(
    nlp: Language, line: bytes, place: Place, text: str, id_name: str, make_input: MakeInput
) -> Row:
    try:
        content = line.decode("utf8").removesuffix("\r")
    except UnicodeDecodeError as error:
        return _refused(place, line.decode("utf8", "replace"), f"expected UTF-8: {error}")
    if place.path.suffix == ".txt":
        return Row(place.number, content, partial(make_doc, nlp, content))
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        return _refused(place, content, f"expected JSON, got {shown(content)}: {error}")
    if not isinstance(value, dict):
        return _refused(place, content, f"expected an object with {text!r}, got {shown(value)}")
    return _to_row(nlp, value, place, text, id_name, make_input)


def _to_row(
    nlp: Language,
    value: Mapping[str, Any],
    place: Place,
    text: str,
    id_name: str,
    make_input: MakeInput,
) -> Row:
    """A row of an object, if every format of output has room for its id."""
    found, content = value.get(id_name, place.number), value.get(text)
    is_number = isinstance(found, (int, float)) and -(2**63) <= found < 2**64  # NaN isn't.
    if not (is_number or (isinstance(found, str) and not SURROGATE.search(found))):
        message = f"{id_name}: expected text or a number of 64 bits, got {shown(found)}"
        return _refused(place, content, message)
    rest = {key: one for key, one in value.items() if key not in (text, id_name)}
    is_text, tokens = isinstance(content, str), value.get("tokens")

    def make() -> Doc:
        if not is_text or place.unit != "line" or tokens is None:
            return with_data(make_doc(nlp, content), rest)
        task = task_from_json({"text": content, "tokens": tokens}, place)
        doc = task_to_doc(task, place, Context(nlp, DEFAULTS, CorpusInfo()))
        return with_data(make_input(doc), rest)

    return Row(found, content if is_text else None, make)


def require_pyarrow() -> Any:
    """Import pyarrow's module for Parquet."""
    return require("pyarrow.parquet", "parquet", "Parquet requires pyarrow")


def make_doc(nlp: Language, text: Any) -> Doc:
    """Tokenize a text. Raises a ValueError if it isn't one, or spaCy can't make a doc of it."""
    if not isinstance(text, str):
        raise ValueError(f"expected a text, got {shown(text)}")
    return nlp.make_doc(text)


def _refused(place: Place, text: Any, message: str) -> Row:
    def refuse() -> Doc:
        raise place.refuse(message)

    return Row(place.number, text if isinstance(text, str) else None, refuse)


def _read_row_groups(part: Part, *columns: str) -> list[dict[str, Any]]:
    try:
        file = require_pyarrow().ParquetFile(part.path)
        types = {field.name: str(field.type) for field in file.schema_arrow}
        there = [name for name in types if name in columns or types[name] in SHORT]
        table = file.read_row_groups([*range(part.start, part.stop)], columns=there)
        values: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OSError) as error:
        raise CorpusError(f"{part.path}: expected a Parquet file: {error}") from None
    if columns[0] not in types:
        raise CorpusError(f"{part.path}: expected the column {columns[0]!r}, got {[*types]}")
    return values
