"""Read attributes of the tokens of docs as arrays, for a whole batch of docs."""

from collections.abc import Sequence
from typing import Any

import numpy
from spacy.tokens import Doc
from thinc.types import Array2d, Ints1d


def read_attributes(docs: Sequence[Doc], attributes: list[Any]) -> Array2d:
    """Read attributes of the tokens of a batch of docs.

    docs (Sequence[Doc]): The docs, with N tokens in total.
    attributes (list[Any]): The ids of attributes, as in `spacy.attrs`.
    RETURNS (Array2d): The values of the N tokens, with a row for each of A attributes.
        Shape: (A, N)
    """
    # A table for each doc with T tokens, (T, A). For a single attribute `to_array` makes an array
    # of one dimension, (T,), which is reshaped.
    tables = [doc.to_array(attributes).reshape(-1, len(attributes)) for doc in docs]
    if len(tables) == 1:
        # This is the most frequent case, and copying takes time.
        table = tables[0]
    else:
        # `concatenate` needs at least one table, even if there are no docs.
        no_tokens = numpy.zeros((0, len(attributes)), dtype="uint64")
        table = numpy.concatenate([no_tokens, *tables])
    # In a contiguous array, the values of an attribute follow each other, which is faster to read.
    return numpy.ascontiguousarray(table.T)


def doc_lengths(docs: Sequence[Doc]) -> Ints1d:
    """The number of tokens of each doc. Shape: (B,)"""
    return numpy.asarray([len(doc) for doc in docs], dtype="int32")
