"""Sentences to documents, by the id of the document that each is from."""

import warnings
from itertools import groupby
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set

from spacy.tokens import Doc

from .files import Place


def set_id(doc: Doc, name: str, value: Any) -> None:
    """Set an extension attribute of a doc, whether or not it is registered."""
    user_data: Dict[Any, Any] = doc.user_data
    user_data["._.", name, None, None] = value


def id_of(doc: Doc, name: str) -> Any:
    """An extension attribute of a doc, or None."""
    user_data: Dict[Any, Any] = doc.user_data
    return user_data.get(("._.", name, None, None))


def with_id(doc: Doc, values: Mapping[str, Any], name: Optional[str]) -> Doc:
    """Set the id of a doc, if a key is given: the value of this key in a line of JSON or in the
    "meta" of the line."""
    for keys in (values.get("meta"), values):
        if name and isinstance(keys, Mapping) and isinstance(keys.get(name), (str, int)):
            set_id(doc, name, keys[name])
    return doc


def join_documents(docs: Iterable[Doc], name: str, source: Place) -> Iterator[Doc]:
    """Join docs that follow each other with the same id, the extension attribute of this name.
    Each of them is a sentence, if sentences are not known. Docs without an id are not joined.

    RAISES (CorpusError): If no doc has an id, or those of a document don't follow each other.
    """
    seen: Set[Any] = set()
    for key, group in groupby(docs, lambda doc: id_of(doc, name)):
        if key is None:
            yield from group
            continue
        if key in seen:
            raise source.refuse(
                f"doc_id: expected the sentences of a document one after another, got {name} "
                f"{key!r} again"
            )
        seen.add(key)
        joined = join(list(group))
        set_id(joined, name, key)
        yield joined
    if not seen:
        raise source.refuse(f"doc_id: expected texts with {name!r}, got none")


def join(docs: List[Doc]) -> Doc:
    """Join docs, at least one, without their extension attributes. Each begins a sentence, and has
    no others if its sentences are not known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\[W101\]")
        joined = Doc.from_docs(docs)
    assert joined is not None
    joined.has_unknown_spaces = all(doc.has_unknown_spaces for doc in docs)
    begin = 0
    for doc in docs:
        for i in range(begin, begin + len(doc)):
            if i == begin or not doc.has_annotation("SENT_START"):
                joined[i].is_sent_start = i == begin
        begin += len(doc)
    return joined
