"""Read the token attributes of a batch of docs as arrays."""

from collections.abc import Sequence
from typing import Any

import numpy
from spacy.tokens import Doc
from thinc.types import Array2d, Ints1d


def read_attributes(docs: Sequence[Doc], attributes: list[Any]) -> Array2d:
    """Read token attributes of a batch of docs.

    docs (Sequence[Doc]): The docs, with N tokens in total.
    attributes (list[Any]): The IDs of the A attributes, as in `spacy.attrs`.
    RETURNS (Array2d): The attribute values, with a row for each attribute. Shape: (A, N)
    """
    # The array of a doc has the shape (T, A). `to_array` returns the shape (T,) for a single
    # attribute, which is reshaped.
    tables = [doc.to_array(attributes).reshape(-1, len(attributes)) for doc in docs]
    if len(tables) == 1:
        # Avoid copying in the most common case.
        table = tables[0]
    else:
        # `concatenate` requires at least one array, even if there are no docs.
        no_tokens = numpy.zeros((0, len(attributes)), dtype="uint64")
        table = numpy.concatenate([no_tokens, *tables])
    # Store the values of each attribute contiguously, for faster access.
    return numpy.ascontiguousarray(table.T)


def doc_lengths(docs: Sequence[Doc]) -> Ints1d:
    """Return the number of tokens of each doc. Shape: (B,)"""
    return numpy.asarray([len(doc) for doc in docs], dtype="int32")
