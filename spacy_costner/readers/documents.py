"""What is known of a doc beside its text: metadata in `doc.user_data`; and the id of the document
that a sentence is from, by which sentences are joined to one doc.

A record is the object of JSON, or the row of a dataset, that a doc is made of.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from spacy.tokens import Doc

from .files import SURROGATE, FilePlace

MAX_LENGTH = 100
"""The most characters of a value that docs can be grouped by."""


def extension_key(name: str) -> Any:
    """The key in `doc.user_data` under which spaCy keeps the value of the extension attribute
    `doc._.<name>`, whether or not it is registered."""
    return "._.", name, None, None


def with_metadata(doc: Doc, record: Mapping[Any, Any], id_key: str | None = None) -> Doc:
    """Copy to `doc.user_data` what a record says of a doc, such as its language or its id: the
    short values of the record and of its "meta". Returns the doc.

    doc (Doc): The doc.
    record (Mapping[Any, Any]): A line of JSON, or the `user_data` of another doc.
    id_key (str | None): The key of the id of the document, which becomes an extension attribute.
    """
    # The record comes after its "meta", so its values replace those of "meta".
    for metadata in (record.get("meta"), record):
        if not isinstance(metadata, Mapping):
            continue
        if id_key and isinstance(metadata.get(id_key), (str, int)):
            doc.user_data[extension_key(id_key)] = metadata[id_key]
        doc.user_data |= short_values(metadata)
    return doc


def short_values(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """The values that docs can be grouped by, such as a language or a source: integers, truth
    values and short texts. What can't be saved with a doc is left out."""
    short: dict[str, Any] = {}
    for key, value in metadata.items():
        is_text_key = isinstance(key, str) and can_be_saved(key)
        if is_text_key and can_be_saved(value) and len(str(value)) <= MAX_LENGTH:
            short[key] = value
    return short


def can_be_saved(value: Any) -> bool:
    """Whether msgpack and JSON can have a value: text that can be UTF-8, a truth value, or an
    integer of 64 bits."""
    if isinstance(value, str):
        return not SURROGATE.search(value)
    return isinstance(value, int) and -(2**63) <= value < 2**64


def join_documents(docs: Iterable[Doc], id_key: str, place: FilePlace) -> Iterator[Doc]:
    """Make a document of the docs that follow each other with the same id. Each of them is a
    sentence, if its sentences are not known. Docs without an id stay as they are.

    docs (Iterable[Doc]): The docs.
    id_key (str): The name of the extension attribute that has the id of the document.
    place (FilePlace): The beginning of the file, for errors.
    YIELDS (Doc): The documents.
    RAISES (CorpusError): If no doc has an id, or those of a document don't follow each other.
    """
    joined_ids: set[Any] = set()

    def id_of(doc: Doc) -> Any:
        return doc.user_data.get(extension_key(id_key))

    for doc_id, group in groupby(docs, id_of):
        if doc_id is None:
            yield from group
            continue
        if doc_id in joined_ids:
            expected = "the sentences of a document one after another"
            raise place.refuse(f"doc_id: expected {expected}, got {id_key} {doc_id!r} again")
        joined_ids.add(doc_id)
        document = join(list(group))
        document.user_data[extension_key(id_key)] = doc_id
        yield document
    if not joined_ids:
        raise place.refuse(f"doc_id: expected texts with {id_key!r}, got none")


def join(docs: list[Doc]) -> Doc:
    """Join docs, at least one, to one doc. It has the short values of `user_data` that are the same
    for all. Each doc begins a sentence of it, and is a single sentence if its own are not known."""
    with warnings.catch_warnings():
        # spaCy warns of each extension attribute that it leaves out.
        warnings.filterwarnings("ignore", message=r"\[W101\]")
        joined = Doc.from_docs(docs, exclude=["user_data"])  # type: ignore[call-arg]
    assert joined is not None  # it is None only if there are no docs

    for key, value in short_values(docs[0].user_data).items():
        if all(doc.user_data.get(key) == value for doc in docs):
            joined.user_data[key] = value
    joined.has_unknown_spaces = all(doc.has_unknown_spaces for doc in docs)

    first_token = 0  # of `doc` in the joined doc
    for doc in docs:
        tokens = joined[first_token : first_token + len(doc)]
        if not doc.has_annotation("SENT_START"):
            for token in tokens:
                token.is_sent_start = False
        if len(tokens):
            tokens[0].is_sent_start = True
        first_token += len(doc)
    return joined
