"""The output files of `annotate`: JSONL, Parquet or .spacy."""

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab
from srsly import msgpack

from ...annotation.span_groups import realign
from ...readers.file_parts import require_pyarrow
from ...readers.files import encodable
from .records import AnnotatedRow, Record, SpanLists, describe_error, to_record


def to_line(answer: AnnotatedRow, span_lists: SpanLists, with_text: bool) -> str:
    """Encode an answer as a JSON line."""
    return JSON.encode(to_record(answer, span_lists, with_text)) + "\n"


def write_jsonl(path: Path, lines: Iterable[str], *_: Any) -> None:
    """Write answers to a JSONL file. The other arguments of `OutputForm.write` are not needed."""
    # UTF-8 can't encode half of a surrogate pair. Python writes an escape for it, such as \ud83d,
    # which JSON reads in the same way.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        file.writelines(lines)


def write_parquet(
    path: Path, records: Iterable[Record], span_lists: SpanLists, with_text: bool
) -> None:
    """Write answers to a Parquet file. The column of ids has integers of 64 bits if all ids are
    such integers, and strings otherwise. Each list of spans is a column."""
    parquet = require_pyarrow()
    import pyarrow

    rows = list(records)
    text = pyarrow.string()
    number = pyarrow.int64()
    # The type of a boolean is not int. Larger integers don't fit into 64 bits with a sign; those
    # that are too low were refused when the rows were read.
    has_number_ids = all(type(row["id"]) is int and row["id"] < 2**63 for row in rows)
    for row in rows:
        if not has_number_ids:
            row["id"] = str(row["id"])
        if row.get("text") is not None:
            row["text"] = encodable(row["text"])

    span_fields = [
        ("start", number),
        ("end", number),
        ("label", text),
        ("score", pyarrow.float64()),
    ]
    spans = pyarrow.list_(pyarrow.struct(span_fields))
    columns = [("id", number if has_number_ids else text)]
    if with_text:
        columns.append(("text", text))
    for name in ("entities", *span_lists):
        columns.append((name, spans))
    columns.append(("error", text))
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns))
    parquet.write_table(table, path)


class Packers(threading.local):
    """A msgpack packer for each thread, as threads must not share one."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(use_bin_type=True)


PACKERS = Packers()


def to_packed_doc(answer: AnnotatedRow, *_: Any) -> tuple[Doc, bytes]:
    """Make the doc of an answer, and pack its `user_data`: the user data of the input, and
    "id". For an error, the doc is empty, and its user data have "error", too. Only the other
    formats of output need more arguments."""
    row, doc_or_error = answer
    if isinstance(doc_or_error, Exception):
        doc = Doc(Vocab())
        doc.user_data["error"] = describe_error(doc_or_error)
    else:
        doc = doc_or_error
        realign(doc)  # DocBin can't read spans whose tokens were merged or split since.
        doc.user_data.pop("error", None)  # The input may have such a key.
    doc.user_data["id"] = row.id
    # DocBin packs categories and groups of spans only when the part is complete. An error would
    # then stop all docs of the part. They are packed here as a trial, so that only this doc fails.
    pack = PACKERS.packer.pack  # the packer of this thread
    pack([doc.cats, [(group.name, group.attrs) for group in doc.spans.values()]])
    # The user data are packed as DocBin packs them, but by one packer for all docs. DocBin would
    # make a packer for each doc, which takes three quarters of the time.
    return doc, pack(doc.user_data)


def write_docbin(path: Path, packed_docs: Iterable[tuple[Doc, bytes]], *_: Any) -> None:
    """Write docs with their packed user data to a .spacy file. The other arguments of
    `OutputForm.write` are not needed."""
    # `store_user_data` is off while docs are added, so that DocBin doesn't pack the user data
    # again, and on when they are saved.
    doc_bin = DocBin(store_user_data=False)
    for doc, user_data in packed_docs:
        doc_bin.add(doc)
        doc_bin.user_data.append(user_data)
    doc_bin.store_user_data = True
    doc_bin.to_disk(path)


JSON = json.JSONEncoder(ensure_ascii=False)
"""Encodes all records. `json.dumps` would make an encoder for each."""


class OutputForm(NamedTuple):
    """How answers are written in one form of the output.

    encode (Callable[[AnnotatedRow, SpanLists, bool], Any]): Encodes an answer: see `to_record`. If
        it raises an error, the row gets the error instead of its doc.
    write (Callable[..., None]): Writes encoded answers to a file. Its arguments are the path, the
        encoded answers, and then the other arguments of `encode`.
    """

    encode: Callable[[AnnotatedRow, SpanLists, bool], Any]
    write: Callable[..., None]


OUTPUT_FORMS = {
    "jsonl": OutputForm(to_line, write_jsonl),
    "parquet": OutputForm(to_record, write_parquet),
    "spacy": OutputForm(to_packed_doc, write_docbin),
}
