"""Check arguments that are docs."""

from collections.abc import Iterable

from spacy.tokens import Doc


def refuse_doc(docs: Iterable[Doc]) -> None:
    """Refuse a single doc where several are expected. It can be iterated over, too, but gives
    tokens.

    RAISES (ValueError): If `docs` is a doc.
    """
    if isinstance(docs, Doc):
        raise ValueError("docs: expected several docs, as [doc], got a Doc")


def list_docs(docs: Iterable[Doc]) -> list[Doc]:
    """Make a list of docs.

    RAISES (ValueError): If `docs` is a single doc.
    """
    refuse_doc(docs)
    return list(docs)
