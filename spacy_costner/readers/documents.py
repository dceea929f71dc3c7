"""Store metadata in `doc.user_data`, and join or split the sentences of a document.

In many corpora, each sentence is a separate doc with the ID of its document. `join_documents` joins
docs with the same ID. `split_into_sentences` splits docs that are too long for training. A *record*
is the JSON object or dataset row that a doc is created from.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy
from spacy.attrs import SENT_START
from spacy.tokens import Doc, Span
from thinc.types import Array1d

from ..annotation.spans import annotate_spans, is_missing, missing_key, missing_spans
from ..annotation.user_data import SOFT_TARGETS_KEY, is_extension, values_of_part
from .context import Context
from .files import SURROGATE, FilePlace, shown

MAX_VALUE_LENGTH = 100
"""The maximum length, in characters, of metadata values that docs can be grouped by."""


def extension_key(name: str) -> Any:
    """Return the key under which spaCy stores the value of the extension attribute `doc._.<name>`
    in `doc.user_data`. The attribute doesn't have to be registered."""
    return "._.", name, None, None


def with_metadata(doc: Doc, record: Mapping[Any, Any], id_key: str | None = None) -> Doc:
    """Copy the metadata of a record, such as its language or source, to `doc.user_data`. Only short
    values in the record and its "meta" object are copied: see `short_values`.

    doc (Doc): The doc, which is modified in place.
    record (Mapping[Any, Any]): A JSON line, or the `user_data` of another doc.
    id_key (str | None): The key of the document's ID. The ID is also written to the extension
        attribute with this name.
    RETURNS (Doc): The same doc.
    """
    # If a key is in both, the record's value overrides the value in "meta".
    for metadata in (record.get("meta"), record):
        if isinstance(metadata, Mapping):
            doc.user_data |= short_values(metadata)
    doc_id = document_id(record, id_key)
    if id_key and doc_id is not None:
        # spaCy stores the value of an extension attribute under this key.
        doc.user_data[extension_key(id_key)] = doc_id
    return doc


def document_id(record: Mapping[Any, Any], id_key: str | None) -> str | int | None:
    """Return the document's ID, which is in a record or its "meta" object, or None if it is missing
    or `id_key` is None."""
    for metadata in (record, record.get("meta")):
        if id_key and isinstance(metadata, Mapping):
            doc_id = metadata.get(id_key)
            if isinstance(doc_id, (str, int)):
                return doc_id
    return None


def short_values(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """Select the metadata that docs can be grouped by, such as their language or source: integers,
    booleans and short strings. Values that can't be saved with a doc are omitted."""
    short: dict[str, Any] = {}
    for key, value in metadata.items():
        is_text_key = isinstance(key, str) and can_be_saved(key)
        if is_text_key and can_be_saved(value) and len(str(value)) <= MAX_VALUE_LENGTH:
            short[key] = value
    return short


def metadata_of(doc: Doc) -> dict[Any, Any]:
    """Select the metadata in `doc.user_data`: short values (see `short_values`), under a string or
    the key of an extension attribute of the doc. Other data, such as soft targets, is left out."""
    user_data: dict[Any, Any] = doc.user_data  # keys may be tuples
    metadata: dict[Any, Any] = short_values(user_data)
    for key, value in user_data.items():
        if not is_extension(key):
            continue
        _, name, start, _ = key
        if start is None and short_values({name: value}):
            metadata[key] = value
    return metadata


def can_be_saved(value: Any) -> bool:
    """Check whether a value can be saved as msgpack and JSON: a string that can be encoded in
    UTF-8, a boolean, or a 64-bit integer."""
    if isinstance(value, str):
        return not SURROGATE.search(value)
    return isinstance(value, int) and -(2**63) <= value < 2**64


def join_documents(
    docs: Iterable[Doc], id_key: str, place: FilePlace, context: Context
) -> Iterator[Doc]:
    """Join consecutive docs with the same document ID. Docs without an ID are yielded unchanged.

    docs (Iterable[Doc]): The docs of a file, in order.
    id_key (str): The name of the extension attribute with the document's ID.
    place (FilePlace): The beginning of the file, for error messages.
    context (Context): The context that was used to read the docs.
    YIELDS (Doc): One doc per document, and the docs without an ID.
    RAISES (CorpusError): If no doc has an ID, or the docs of a document aren't consecutive.
    """
    joined_ids: set[Any] = set()

    def id_of(doc: Doc) -> Any:
        doc_id = doc.user_data.get(extension_key(id_key))
        if doc_id is None and isinstance(doc.user_data.get(id_key), (str, int)):
            doc_id = doc.user_data[id_key]  # metadata that `convert` has written to a .spacy file
        return doc_id

    for doc_id, group in groupby(docs, id_of):
        if doc_id is None:
            yield from group
            continue
        if doc_id in joined_ids:
            expected = "consecutive sentences of a document"
            raise place.refuse(f"doc_id: expected {expected}, got {id_key} {doc_id!r} again")
        joined_ids.add(doc_id)
        docs_of_document = list(group)
        document = join(docs_of_document, context.options.spans_key)
        if context.places is not None:
            context.places[document] = context.places.get(docs_of_document[0], place)
        document.user_data[extension_key(id_key)] = doc_id
        yield document
    if not joined_ids:
        raise place.refuse(f"doc_id: expected texts with {id_key!r}, got none")


def join(docs: list[Doc], spans_key: str | None = None) -> Doc:
    """Join one or more docs into a new doc.

    Each of the docs begins a new sentence. If the sentence boundaries of a doc are unknown, it
    becomes a single sentence. If only some of the docs have `spans_key`, the tokens of the others
    are missing annotation under this key. A metadata value in `user_data` is copied if it is short
    (see `short_values`) and the same in all docs.
    """
    # `from_docs` would issue a warning for each value in `user_data`.
    joined = Doc.from_docs(docs, exclude=["user_data"])  # type: ignore[call-arg]
    assert joined is not None  # `from_docs` only returns None if there are no docs

    for key, value in short_values(docs[0].user_data).items():
        if all(doc.user_data.get(key) == value for doc in docs):
            joined.user_data[key] = value
    joined.has_unknown_spaces = any(doc.has_unknown_spaces for doc in docs)
    if spans_key is not None and spans_key in joined.spans:
        missing = numpy.concatenate([is_missing(doc, spans_key) for doc in docs])
        joined.spans[missing_key(spans_key)] = missing_spans(joined, missing)

    # Set all sentence starts at once, because spaCy doesn't allow setting those of single tokens if
    # the docs are parsed.
    sent_starts = joined.to_array(SENT_START).view("int64")  # may be -1
    first_token = 0  # the index in the joined doc at which `doc` begins
    for doc in docs:
        if not doc.has_annotation("SENT_START"):
            sent_starts[first_token : first_token + len(doc)] = -1  # no start
        if len(doc):
            sent_starts[first_token] = 1
        first_token += len(doc)
    joined.from_array([SENT_START], sent_starts.view("uint64"))
    return joined


def split_into_sentences(doc: Doc) -> Iterator[Doc]:
    """Split an annotated doc into one doc per sentence. In contrast to `Span.as_doc`, this keeps
    span groups (without their `attrs`), `user_data` and `has_unknown_spaces`. The tokens of
    entities and spans that cross sentences are missing annotation.

    doc (Doc): The doc, with sentence starts.
    YIELDS (Doc): The sentences.
    RAISES (ValueError): If the doc has soft targets, which describe the paths of the whole doc.
    """
    if SOFT_TARGETS_KEY in doc.user_data:
        expected = "expected docs without soft targets, which can't be split into sentences"
        raise ValueError(f"max_length, gold_preproc: {expected}, got {shown(doc.text)}")
    # Spans that mark missing annotation are clipped to the sentences. All others are kept whole.
    missing_keys = {missing_key(key) for key in doc.spans}
    groups = {key: list(group) for key, group in doc.spans.items() if key not in missing_keys}
    is_missing_token = {key: is_missing(doc, key) for key in groups}
    for sent in doc.sents:
        sent_doc = sent.as_doc()
        sent_doc.has_unknown_spaces = doc.has_unknown_spaces
        sent_doc.user_data = values_of_part(doc.user_data, sent.start_char, sent.end_char)
        for key, spans in groups.items():
            is_missing_here = is_missing_token[key][sent.start : sent.end].copy()
            _copy_spans(sent, sent_doc, key, spans, is_missing_here)
        yield sent_doc


def _copy_spans(
    sent: Span, sent_doc: Doc, key: str, spans: Iterable[Span], is_missing_token: Array1d
) -> None:
    """Copy the spans of a sentence to the doc that was created from it. `is_missing_token` is True
    for tokens of the sentence that are missing annotation under the key. It is modified in place.
    Shape: (T,)"""
    spans_of_sentence: list[Span] = []
    for span in spans:
        start = span.start - sent.start
        end = span.end - sent.start
        if start >= 0 and end <= len(sent):
            ids = {"kb_id": span.kb_id, "span_id": span.id}
            spans_of_sentence.append(Span(sent_doc, start, end, label=span.label, **ids))
        elif end > 0 and start < len(sent):  # the span crosses a border of the sentence
            is_missing_token[max(start, 0) : end] = True
    annotate_spans(sent_doc, key, spans_of_sentence, missing_spans(sent_doc, is_missing_token))
