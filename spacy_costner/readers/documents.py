"""The metadata of docs, in `doc.user_data`, and documents whose sentences are separate docs.

Many corpora have a doc for each sentence, with the id of the document that it is from. By this id
`join_documents` makes one doc of each document. A *record* is the JSON object, or the row of a
dataset, that a doc is made of.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from spacy.tokens import Doc

from .context import Context
from .files import SURROGATE, FilePlace

MAX_VALUE_LENGTH = 100
"""The maximum number of characters of a value that docs can be grouped by."""


def extension_key(name: str) -> Any:
    """The key in `doc.user_data` under which spaCy keeps the value of the extension attribute
    `doc._.<name>`, whether or not it is registered."""
    return "._.", name, None, None


def with_metadata(doc: Doc, record: Mapping[Any, Any], id_key: str | None = None) -> Doc:
    """Copy the metadata of a record, such as its language or its source, to `doc.user_data`. These
    are the short values of the record and of its "meta": see `short_values`.

    doc (Doc): The doc, which is changed.
    record (Mapping[Any, Any]): A JSON line, or the `user_data` of another doc.
    id_key (str | None): The key of the id of the document. The id is also written to the extension
        attribute of that name.
    RETURNS (Doc): The same doc.
    """
    # If both have a key, the record replaces the value of "meta".
    for metadata in (record.get("meta"), record):
        if not isinstance(metadata, Mapping):
            continue
        if id_key and isinstance(metadata.get(id_key), (str, int)):
            # spaCy keeps the value of an extension attribute under this key.
            doc.user_data[extension_key(id_key)] = metadata[id_key]
        doc.user_data |= short_values(metadata)
    return doc


def short_values(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """The values among metadata that docs can be grouped by, such as a language or a source:
    integers, truth values and short texts. Values that can't be saved with a doc are left out."""
    short: dict[str, Any] = {}
    for key, value in metadata.items():
        is_text_key = isinstance(key, str) and can_be_saved(key)
        if is_text_key and can_be_saved(value) and len(str(value)) <= MAX_VALUE_LENGTH:
            short[key] = value
    return short


def can_be_saved(value: Any) -> bool:
    """Whether a value can be saved in msgpack and in JSON: it is text that can be encoded in UTF-8,
    a truth value, or an integer of 64 bits."""
    if isinstance(value, str):
        return not SURROGATE.search(value)
    return isinstance(value, int) and -(2**63) <= value < 2**64


def join_documents(
    docs: Iterable[Doc], id_key: str, place: FilePlace, context: Context
) -> Iterator[Doc]:
    """Join docs that follow each other and have the same id of a document to one doc. Docs without
    an id stay as they are.

    docs (Iterable[Doc]): The docs of a file, in their order.
    id_key (str): The name of the extension attribute that has the id of the document.
    place (FilePlace): The beginning of the file, for errors.
    context (Context): The context with which the docs were read.
    YIELDS (Doc): A doc for each document, and the docs without an id.
    RAISES (CorpusError): If no doc has an id, or the docs of a document don't follow each other.
    """
    joined_ids: set[Any] = set()

    def id_of(doc: Doc) -> Any:
        return doc.user_data.get(extension_key(id_key))

    for doc_id, group in groupby(docs, id_of):
        if doc_id is None:
            yield from group
            continue
        if doc_id in joined_ids:
            expected = "consecutive sentences of a document"
            raise place.refuse(f"doc_id: expected {expected}, got {id_key} {doc_id!r} again")
        joined_ids.add(doc_id)
        docs_of_document = list(group)
        document = join(docs_of_document)
        if context.places is not None:
            context.places[document] = context.places.get(docs_of_document[0], place)
        document.user_data[extension_key(id_key)] = doc_id
        yield document
    if not joined_ids:
        raise place.refuse(f"doc_id: expected texts with {id_key!r}, got none")


def join(docs: list[Doc]) -> Doc:
    """Join docs, at least one, to one doc.

    A sentence of the joined doc begins where each doc begins. A doc whose sentences are unknown
    becomes one sentence. The joined doc has the values of `user_data` that all docs have in common,
    if they are short: see `short_values`.
    """
    # `from_docs` would warn of each value in `user_data`.
    joined = Doc.from_docs(docs, exclude=["user_data"])  # type: ignore[call-arg]
    assert joined is not None  # it is None only without docs

    for key, value in short_values(docs[0].user_data).items():
        if all(doc.user_data.get(key) == value for doc in docs):
            joined.user_data[key] = value
    joined.has_unknown_spaces = any(doc.has_unknown_spaces for doc in docs)

    first_token = 0  # the token of the joined doc at which `doc` begins
    for doc in docs:
        tokens = joined[first_token : first_token + len(doc)]
        if not doc.has_annotation("SENT_START"):
            for token in tokens:
                token.is_sent_start = False
        if len(tokens):
            tokens[0].is_sent_start = True
        first_token += len(doc)
    return joined
