"""Split docs into the sequences of a linear chain.

A sequence can be a whole doc or a part of it, such as a sentence. A *border* is the first token of
a sequence, except at the start of a doc. The features of a token may still depend on the whole doc.

In shapes, D is the number of docs in a batch, B the number of sequences, and N the number of
tokens.
"""

from collections.abc import Sequence
from typing import Literal

import numpy
from spacy.attrs import IS_SPACE, ORTH, SENT_START
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d

from ..ragged import sequence_ids
from .doc_attributes import read_attributes

Boundaries = bool | Literal["sentences"]
"""Where a new sequence starts. False: only at the start of a doc. True: at sentence starts and line
starts. "sentences": at sentence starts."""


def find_borders(docs: Sequence[Doc], boundaries: Boundaries) -> Array1d:
    """Find the borders of docs: the tokens that start a sentence or, depending on `boundaries`, a
    line. The first token of a doc is not a border.

    docs (Sequence[Doc]): The docs, with or without sentence starts.
    boundaries (Boundaries): Where a sequence starts.
    RETURNS (Array1d): A mask of the borders. Shape: (N,)
    """
    sentence_start, is_space, orth = read_attributes(docs, [SENT_START, IS_SPACE, ORTH])
    return borders_of_tokens(docs, boundaries, sentence_start == 1, is_space == 1, orth)


def borders_of_tokens(
    docs: Sequence[Doc],
    boundaries: Boundaries,
    begins_sentence: Array1d,
    is_space: Array1d,
    orth: Array1d,
) -> Array1d:
    """Find the borders of docs using existing arrays of token attributes: see `find_borders`.

    docs (Sequence[Doc]): The docs, with N tokens in total.
    boundaries (Boundaries): Where a sequence starts.
    begins_sentence (Array1d): True for tokens that start a sentence. Shape: (N,)
    is_space (Array1d): True for whitespace tokens. Shape: (N,)
    orth (Array1d): The hash of each token's text. Shape: (N,)
    RETURNS (Array1d): A mask of the borders. Shape: (N,)
    """
    if not boundaries:
        return numpy.zeros_like(begins_sentence)
    is_border = begins_sentence.copy()
    space_tokens = is_space.nonzero()[0]
    if boundaries is True and len(space_tokens):
        # A line starts after a whitespace token with a line break.
        has_break = _have_break(docs, orth[space_tokens])
        line_starts = space_tokens[has_break] + 1
        is_in_batch = line_starts < len(orth)  # there may be no token after the last line break
        is_border[line_starts[is_in_batch]] = True

    first_token = 0
    for doc in docs:
        # Use a slice because the index is out of range for empty docs at the end of the batch. For
        # other empty docs, it is the index of the first token of the next doc.
        is_border[first_token : first_token + 1] = False
        first_token += len(doc)
    return is_border


def _have_break(docs: Sequence[Doc], orths: Array1d) -> Array1d:
    """Check which words contain a line break. The words are passed as hashes, which are looked up
    in the string stores of the docs. Shapes: (W,) to (W,)"""
    # Usually, all docs share the same string store.
    stores = list(dict.fromkeys(doc.vocab.strings for doc in docs))
    # Look up each of the U distinct words only once. Shapes: (U,), (W,)
    distinct_orths, index_of_word = numpy.unique(orths, return_inverse=True)
    has_break = numpy.zeros(len(distinct_orths), dtype=bool)
    for i, orth in enumerate(distinct_orths.tolist()):
        for strings in stores:
            if orth in strings:
                text = strings[orth]
                has_break[i] = "\n" in text or "\r" in text
                break
    return has_break[index_of_word]


def cut(lengths: Ints1d, borders: Array1d) -> tuple[Ints1d, Ints1d]:
    """Split docs into sequences at their borders. An empty doc results in a single, empty sequence.

    lengths (Ints1d): The number of tokens of each doc. Shape: (D,)
    borders (Array1d): A mask of the borders: see `find_borders`. Shape: (N,)
    RETURNS (tuple[Ints1d, Ints1d]): The number of tokens and the doc index of each sequence.
        Shapes: (B,)
    """
    if not borders.any():
        return lengths, numpy.arange(len(lengths))
    border_tokens = numpy.flatnonzero(borders)
    doc_of_border = sequence_ids(lengths)[border_tokens]
    n_sequences_of_doc = 1 + numpy.bincount(doc_of_border, minlength=len(lengths))  # (D,)

    # A sequence starts with each doc and at each border. It ends where the next sequence starts.
    doc_begins = numpy.cumsum(lengths) - lengths
    begins = numpy.sort(numpy.append(doc_begins, border_tokens))
    ends = numpy.append(begins[1:], len(borders))
    return (ends - begins).astype("int32"), sequence_ids(n_sequences_of_doc)
