"""Sentences to documents, by the id of the document that each is from."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, groupby
from typing import Any

from spacy.tokens import Doc

from .files import SURROGATE, Place

MAX_LENGTH = 100
"""The most characters of a value that docs can be grouped by."""


def attribute(name: str) -> Any:
    """The key in `doc.user_data` of an extension attribute, whether or not it is registered."""
    return "._.", name, None, None


def with_data(doc: Doc, values: Mapping[Any, Any], name: str | None = None) -> Doc:
    """Copy the short values of a line of JSON and of its "meta", or of the `user_data` of another
    doc, to `doc.user_data`. Set the id of the doc, if `name` is its key there."""
    for keys in (values.get("meta"), values):
        if isinstance(keys, Mapping):
            if name and isinstance(keys.get(name), (str, int)):
                doc.user_data[attribute(name)] = keys[name]
            doc.user_data |= short_values(keys)
    return doc


def short_values(values: Mapping[Any, Any]) -> dict[str, Any]:
    """The values that docs can be grouped by, such as a language or a source: numbers, truth values
    and short texts. Those that no file can have are left out."""
    short: dict[str, Any] = {}
    for key, value in values.items():
        is_kept = isinstance(key, str) and can_be_saved(key) and can_be_saved(value)
        if is_kept and len(str(value)) <= MAX_LENGTH:
            short[key] = value
    return short


def can_be_saved(value: Any) -> bool:
    """Whether msgpack and JSON can have a value: text that can be UTF-8, or an integer of 64
    bits."""
    if isinstance(value, str):
        return not SURROGATE.search(value)
    return isinstance(value, int) and -(2**63) <= value < 2**64


def join_documents(docs: Iterable[Doc], name: str, source: Place) -> Iterator[Doc]:
    """Join docs that follow each other with the same id, the extension attribute of this name.
    Each of them is a sentence, if sentences are not known. Docs without an id are not joined.

    RAISES (CorpusError): If no doc has an id, or those of a document don't follow each other.
    """
    seen: set[Any] = set()
    for key, group in groupby(docs, lambda doc: doc.user_data.get(attribute(name))):
        if key is None:
            yield from group
            continue
        if key in seen:
            expected = "the sentences of a document one after another"
            raise source.refuse(f"doc_id: expected {expected}, got {name} {key!r} again")
        seen.add(key)
        joined = join(list(group))
        joined.user_data[attribute(name)] = key
        yield joined
    if not seen:
        raise source.refuse(f"doc_id: expected texts with {name!r}, got none")


def join(docs: list[Doc]) -> Doc:
    """Join docs, at least one, with the short values that are the same for all. Each begins a
    sentence, and has no others if its sentences are not known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\[W101\]")
        joined = Doc.from_docs(docs, exclude=["user_data"])  # type: ignore[call-arg]
    assert joined is not None
    values = short_values(docs[0].user_data).items()
    joined.user_data |= {k: v for k, v in values if all(doc.user_data.get(k) == v for doc in docs)}
    joined.has_unknown_spaces = all(doc.has_unknown_spaces for doc in docs)
    for doc, end in zip(docs, accumulate(map(len, docs))):
        begin = end - len(doc)
        for i in range(begin, min(begin + 1, end) if doc.has_annotation("SENT_START") else end):
            joined[i].is_sent_start = i == begin
    return joined
