"""Read CSV files with a token and its tag per row, or with a text and its spans per row.

    Sentence #,Word,POS,Tag                 text,id,label
    Sentence: 1,Kim,NNP,B-PER               Kim left,7,"[{""start"": 0, ""end"": 3, …}]"
    ,left,VBD,O

The first form has a header with the names of the columns. Without a header, columns are inferred as
in column files: see `layout`. The second form is Label Studio's CSV export, with JSON in a column
for each control that labels texts.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.tokens import Doc

from .context import Context, ReadOptions
from .files import CorpusError, FilePlace, read_head, read_text, shown
from .layout import TAG_NAMES, TOKEN_NAMES, Table, check_inferred, find_columns, is_tag
from .sentences import TaggedTokens, make_docs
from .task_docs import tasks_to_docs
from .tasks import AnnotatedTask, task_from_json

CSV_SUFFIX = ".csv"
DELIMITERS = (",", ";")
SENTENCE_NAME = re.compile(r"(sent|sentence)[ _]*(#|id|no|number|idx|index)?")
TEXT_NAME = "text"
LINE_END = re.compile(r"[\r\n]")
ONE_SENTENCE = "tables have no column for sentences and no empty rows: each is read as one sentence"


class Row(NamedTuple):
    """A row of a table.

    place (FilePlace): The location of the last line of the row.
    fields (list[str]): The fields.
    """

    place: FilePlace
    fields: list[str]


class TableColumns(NamedTuple):
    """The columns of a table of tokens and tags. Indices start at 0.

    token (int): The token column.
    tag (int): The tag column.
    sentence (int | None): The column whose value changes with each sentence, if any.
    """

    token: int
    tag: int
    sentence: int | None


def is_csv(path: Path) -> bool:
    """Check whether a file is a CSV table, based on its suffix and first line."""
    if path.suffix != CSV_SUFFIX:
        return False
    first_line = read_head(path).strip().partition("\n")[0]
    return any(delimiter in first_line for delimiter in DELIMITERS)


def read_csv(path: Path, context: Context) -> Iterator[Doc]:
    """Read the docs of a CSV table.

    path (Path): The .csv file.
    context (Context): The pipeline and the options. `token_column` and `tag_column` are the numbers
        or names of the columns.
    RETURNS (Iterator[Doc]): The docs, with their entities.
    RAISES (CorpusError): If the token or tag column is ambiguous, if the first row may be a header
        or a token, or if a row can't be read.
    """
    # Offsets of spans count line ends as they are in the text.
    text = read_text(path, keep_line_ends=True)
    first_line = LINE_END.split(text.strip(), maxsplit=1)[0]
    delimiter = max(DELIMITERS, key=first_line.count)
    rows = list(_read_rows(path, text, delimiter))
    rows_with_fields = [row for row in rows if any(row.fields)]
    if len(rows_with_fields) < 2:
        raise FilePlace(path, 1).refuse("expected a header and rows below it, got none")
    header, *others = rows_with_fields
    names = [name.strip().lower() for name in header.fields]
    span_columns = _find_spans(others)
    if span_columns:
        context.info.add_file("CSV of texts and spans")
        return tasks_to_docs(_read_texts(others, header, names, span_columns), context)
    if _is_header(header, others, context.options):
        rows = rows[rows.index(header) + 1 :]
        columns = _find_named_columns(names, header.place, context.options)
    else:
        columns = _infer_columns(rows, context)
    return _read_tokens(rows, columns, context)


def _is_header(first_row: Row, others: Sequence[Row], options: ReadOptions) -> bool:
    """Check whether the first row of a table of tokens and tags contains the names of the columns.
    A row that ends with a tag belongs to a token. Raises an error if the row may be either."""
    names = {name.strip().lower() for name in first_row.fields}
    for option in (options.token_column, options.tag_column):
        if isinstance(option, str) and option.lower() in names:
            return True
    last_field = first_row.fields[-1].strip()
    is_used_below = any(last_field == row.fields[-1].strip() for row in others)
    if is_tag(last_field) or is_used_below:
        return False
    if not names.isdisjoint(TOKEN_NAMES):
        return True
    raise _refuse_names(first_row.fields, first_row.place)


def _refuse_names(names: Sequence[str], place: FilePlace) -> CorpusError:
    """Create the error for a header that doesn't determine the columns."""
    expected = f"expected one of {sorted(TOKEN_NAMES)} and one of {sorted(TAG_NAMES)}"
    options = "or the columns in the options `token_column` and `tag_column`"
    return place.refuse(f"{expected}, {options}, got {[*names]}")


def _read_rows(path: Path, text: str, delimiter: str) -> Iterator[Row]:
    """Read the rows of a table. Raises an error if a non-empty row has a different number of fields
    than the first one, or if a quote isn't closed."""
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    n_fields = 0
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise FilePlace(path, reader.line_num).refuse(f"expected CSV: {error}") from None
        if fields is None:
            return
        place = FilePlace(path, reader.line_num)
        n_fields = n_fields or len(fields)
        if fields and len(fields) != n_fields:
            raise place.refuse(f"expected {n_fields} fields, got {len(fields)}: {shown(fields)}")
        yield Row(place, fields)


def _find_spans(rows: Sequence[Row]) -> list[int]:
    """Find the columns with JSON lists of spans: one for each control in Label Studio that labels
    texts."""
    columns: set[int] = set()
    for row in rows:
        for column, field in enumerate(row.fields):
            if _as_spans(field) is not None:
                columns.add(column)
    return sorted(columns)


def _as_spans(field: str) -> list[Any] | None:
    """Read a field that contains a non-empty JSON list of spans. Returns None for other fields."""
    value: Any = None
    if field.startswith("[") and field.endswith("]"):
        with suppress(ValueError, RecursionError):
            value = json.loads(field)
    if isinstance(value, list) and value and all(map(_is_span, value)):
        return value
    return None


def _is_span(value: Any) -> bool:
    """Check whether a JSON value looks like a span. `task_from_json` validates it."""
    if isinstance(value, list):
        return len(value) == 3
    return isinstance(value, dict) and "start" in value


def _read_texts(
    rows: Sequence[Row], header: Row, names: Sequence[str], span_columns: Sequence[int]
) -> Iterator[AnnotatedTask]:
    """Read texts and spans. Rows with the same "id" are annotations of the same text. If all fields
    for spans are empty, there is no annotation, because Label Studio leaves them empty for
    unannotated texts, too."""
    if TEXT_NAME not in names:
        raise header.place.refuse(f"expected a column {TEXT_NAME!r}, got {header.fields}")
    text_column = names.index(TEXT_NAME)
    for place, fields in rows:
        record: dict[str, Any] = dict(zip(names, fields))
        text_key = None
        if re.fullmatch(r"\d{1,18}", record.get("id", "")):
            text_key = int(record["id"])
        # Values that describe an annotation, such as its date, aren't metadata of the text.
        record = {key: value for key, value in record.items() if key == "id"}
        record["text"] = fields[text_column]
        for column in span_columns:
            field = fields[column]
            if not field:
                continue
            spans = _as_spans(field)
            if spans is None and field != "[]":
                raise place.refuse(f"{names[column]}: expected spans, got {shown(field)}")
            record["spans"] = record.get("spans", []) + (spans or [])
        yield AnnotatedTask(place, text_key, task_from_json(record, place))


def _find_columns(
    names: Sequence[str], option: int | str | None, known_names: frozenset[str]
) -> list[int]:
    """Return the indices of the columns that match an option. The option is a column's name, or its
    number, counted from 1 on the left or from -1 on the right. If it is None, all columns with
    known names match."""
    if isinstance(option, int):
        index = option - 1 if option > 0 else option + len(names)
        return [index] if 0 <= index < len(names) else []
    wanted_names = known_names if option is None else {option.lower()}
    return [i for i, name in enumerate(names) if name in wanted_names]


def _find_named_columns(
    names: Sequence[str], place: FilePlace, options: ReadOptions
) -> TableColumns:
    """Find the columns by their names in the header, whose location is `place`."""
    token_columns = _find_columns(names, options.token_column, TOKEN_NAMES)
    tag_columns = _find_columns(names, options.tag_column, TAG_NAMES)
    if len(token_columns) != 1 or len(tag_columns) != 1 or token_columns == tag_columns:
        raise _refuse_names(names, place)
    sentence_columns = [i for i, name in enumerate(names) if SENTENCE_NAME.fullmatch(name)]
    sentence_column = sentence_columns[0] if sentence_columns else None
    return TableColumns(token_columns[0], tag_columns[0], sentence_column)


def _infer_columns(rows: Sequence[Row], context: Context) -> TableColumns:
    """Infer the columns of a table without a header as in column files. A description of the
    columns is added to `context.info`."""
    rows_with_fields: list[Row] = []
    sent_start: list[bool] = []
    begins = True  # whether the next row begins a sentence
    for row in rows:
        if any(row.fields):
            rows_with_fields.append(row)
            sent_start.append(begins)
        begins = not any(row.fields)
    first_row = rows_with_fields[0]
    fields = [field.strip() for row in rows_with_fields for field in row.fields]
    n_columns = len(first_row.fields)
    table = Table(fields, n_columns, [], numpy.asarray(sent_start), False, first_row.place)
    columns = find_columns(table, context.options)
    if columns.inferred is not None:
        check_inferred([columns.inferred])
    context.info.columns[columns.text] += 1
    return TableColumns(columns.token, columns.tag, sentence=None)


def _read_tokens(rows: Sequence[Row], columns: TableColumns, context: Context) -> Iterator[Doc]:
    """Read tokens and tags. A new sentence begins after an empty row, and at each new non-empty
    value in the sentence column. Raises an error if a field contains a line break: in a file
    without quoted fields, all rows between two quotes are read as one field."""
    words: list[str] = []
    tags: list[str] = []
    places: list[FilePlace] = []
    sent_start: list[bool] = []
    sentence = ""
    begins = True  # whether the next token begins a sentence
    for place, fields in rows:
        if not any(fields):
            begins = True
            continue
        for field in fields:
            if LINE_END.search(field):
                expected = 'expected fields without line breaks, and a quote written as """"'
                raise place.refuse(f"{expected}, got {shown(field)}")
        if columns.sentence is not None and fields[columns.sentence] not in ("", sentence):
            sentence = fields[columns.sentence]
            begins = True
        word = fields[columns.token]
        if not word.strip():
            raise place.refuse(f"expected a token, got {shown(fields)}")
        words.append(word)
        tags.append(fields[columns.tag].strip())
        places.append(place)
        sent_start.append(begins)
        begins = False
    if columns.sentence is None and sum(sent_start) == 1:
        context.info.add_problem(ONE_SENTENCE, places[0])

    place_of: Callable[[int], FilePlace] = places.__getitem__
    n_docstarts = numpy.zeros(len(words), dtype="int64")  # there are no -DOCSTART- lines in CSV
    tokens = TaggedTokens(words, tags, numpy.asarray(sent_start), n_docstarts)
    return make_docs(tokens, place_of, "CSV of tokens and tags", context, context.options.n_sents)
