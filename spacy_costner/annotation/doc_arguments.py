"""Validate arguments that should be a sequence of docs."""

from collections.abc import Iterable

from spacy.tokens import Doc


def refuse_doc(docs: Iterable[Doc]) -> None:
    """Check that `docs` is not a single doc. Iterating over a single doc would yield tokens.

    RAISES (ValueError): If `docs` is a single doc.
    """
    if isinstance(docs, Doc):
        raise ValueError("docs: expected several docs, as [doc], got a Doc")


def list_docs(docs: Iterable[Doc]) -> list[Doc]:
    """Convert an iterable of docs to a list.

    RAISES (ValueError): If `docs` is a single doc.
    """
    refuse_doc(docs)
    return list(docs)
