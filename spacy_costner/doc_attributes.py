"""The attributes of the tokens of docs as arrays."""

from collections.abc import Sequence
from typing import Any

import numpy
from spacy.tokens import Doc
from thinc.types import Array2d, Ints1d


def read_attributes(docs: Sequence[Doc], attributes: list[Any]) -> Array2d:
    """Read attributes of the tokens of a batch of docs.

    docs (Sequence[Doc]): The docs.
    attributes (list[int]): Ids of attributes, as `spacy.attrs` has them.
    RETURNS (Array2d): A row for each attribute, contiguous. Shape: (A, N)
    """
    # The attributes of each doc. Shape: (T, A) For a single attribute spaCy makes an array of one
    # dimension.
    tables = [doc.to_array(attributes).reshape(-1, len(attributes)) for doc in docs]
    if len(tables) == 1:
        # Not copied: the time of a single text counts.
        table = tables[0]
    else:
        # Without docs there is nothing to concatenate, so there is always a table without rows.
        no_tokens = numpy.zeros((0, len(attributes)), dtype="uint64")
        table = numpy.concatenate([no_tokens, *tables])
    return numpy.ascontiguousarray(table.T)


def doc_lengths(docs: Sequence[Doc]) -> Ints1d:
    """The number of tokens of each doc. Shape: (B,)"""
    return numpy.asarray([len(doc) for doc in docs], dtype="int32")
