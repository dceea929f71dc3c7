"""Write the output files of `annotate` in JSONL, Parquet or .spacy format."""

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
    """Serialize an answer to a line of JSON."""
    return JSON.encode(to_record(answer, span_lists, with_text)) + "\n"


def write_jsonl(path: Path, lines: Iterable[str], *_: Any) -> None:
    """Write answers to a JSONL file. The other arguments of `OutputForm.write` are ignored."""
    # UTF-8 can't encode lone surrogates. Write them as escapes such as \ud83d, which are valid in
    # JSON.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        file.writelines(lines)


def write_parquet(
    path: Path, records: Iterable[Record], span_lists: SpanLists, with_text: bool
) -> None:
    """Write answers to a Parquet file. IDs are stored as 64-bit integers if possible, and as
    strings otherwise. Each list of spans is stored in a separate column."""
    parquet = require_pyarrow()
    import pyarrow

    rows = list(records)
    text = pyarrow.string()
    number = pyarrow.int64()
    # Compare the type to exclude booleans. Larger integers don't fit into signed 64 bits. Integers
    # that are too low were already rejected when the rows were read.
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
    """One msgpack packer per thread, because packers aren't thread-safe."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(use_bin_type=True)


PACKERS = Packers()


def to_packed_doc(answer: AnnotatedRow, *_: Any) -> tuple[Doc, bytes]:
    """Return the doc of an answer and its packed `user_data`, which includes the "id". If the
    answer is an error, the doc is empty and the user data also includes the "error". The other
    arguments of `OutputForm.encode` are ignored."""
    row, doc_or_error = answer
    if isinstance(doc_or_error, Exception):
        doc = Doc(Vocab())
        doc.user_data["error"] = describe_error(doc_or_error)
    else:
        doc = doc_or_error
        realign(doc)  # DocBin can't read spans with tokens that were merged or split
        doc.user_data.pop("error", None)  # the input may contain this key
    doc.user_data["id"] = row.id
    # DocBin only serializes categories and span groups when the part is complete, so an error would
    # affect all docs of the part. Pack them once here, so that only this doc fails.
    pack = PACKERS.packer.pack  # the packer of this thread
    pack([doc.cats, [(group.name, group.attrs) for group in doc.spans.values()]])
    # Pack the user data in DocBin's format, but reuse the packer. DocBin creates a packer for each
    # doc, which takes three quarters of the time.
    return doc, pack(doc.user_data)


def write_docbin(path: Path, packed_docs: Iterable[tuple[Doc, bytes]], *_: Any) -> None:
    """Write docs with their packed user data to a .spacy file. The other arguments of
    `OutputForm.write` are ignored."""
    # Set `store_user_data` just before saving. Otherwise, DocBin would pack the user data again
    # when a doc is added.
    doc_bin = DocBin(store_user_data=False)
    for doc, user_data in packed_docs:
        doc_bin.add(doc)
        doc_bin.user_data.append(user_data)
    doc_bin.store_user_data = True
    doc_bin.to_disk(path)


JSON = json.JSONEncoder(ensure_ascii=False)
"""The encoder for all records. `json.dumps` would create an encoder for each record."""


class OutputForm(NamedTuple):
    """An output format.

    encode (Callable[[AnnotatedRow, SpanLists, bool], Any]): Encodes an answer. See `to_record` for
        the arguments. If it raises an error, the error is written instead of the doc.
    write (Callable[..., None]): Writes encoded answers to a file. It is called with the path, the
        encoded answers, and the second and third arguments of `encode`.
    """

    encode: Callable[[AnnotatedRow, SpanLists, bool], Any]
    write: Callable[..., None]


OUTPUT_FORMS = {
    "jsonl": OutputForm(to_line, write_jsonl),
    "parquet": OutputForm(to_record, write_parquet),
    "spacy": OutputForm(to_packed_doc, write_docbin),
}
