"""Find the borders at which docs are cut into sequences.

The linear chain has a path for each sequence, such as a sentence. A *border* is a token that begins
a sequence, other than the first token of a doc. The features of a token may still come from its
whole doc.

In shapes, D is the number of docs of a batch, B the number of sequences in them, N the number of
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
"""Where a new sequence begins. False: only at the beginning of a doc. True: at each sentence and
each line. "sentences": at each sentence."""


def find_borders(docs: Sequence[Doc], boundaries: Boundaries) -> Array1d:
    """Find the borders of docs: the tokens that begin a sentence or, depending on `boundaries`, a
    line. The first token of a doc isn't a border.

    docs (Sequence[Doc]): The docs, with or without sentence starts.
    boundaries (Boundaries): What begins a sequence: see `borders_of_tokens`.
    RETURNS (Array1d): True for the borders. Shape: (N,)
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
    """Find the borders of docs from attributes that were read before: see `find_borders`.

    docs (Sequence[Doc]): The docs with the N tokens.
    boundaries (Boundaries): What begins a sequence: a sentence ("sentences"), a sentence or a line
        (True), or only a doc (False).
    begins_sentence (Array1d): True for tokens that begin a sentence. Shape: (N,)
    is_space (Array1d): True for whitespace tokens. Shape: (N,)
    orth (Array1d): The hash of each token's word. Shape: (N,)
    RETURNS (Array1d): True for the borders. Shape: (N,)
    """
    if not boundaries:
        return numpy.zeros_like(begins_sentence)
    is_border = begins_sentence.copy()
    space_tokens = is_space.nonzero()[0]
    if boundaries is True and len(space_tokens):
        # A line begins after a whitespace token that has a line break.
        has_break = _have_break(docs, orth[space_tokens])
        line_starts = space_tokens[has_break] + 1
        is_in_batch = line_starts < len(orth)  # False after the last token
        is_border[line_starts[is_in_batch]] = True

    first_token = 0
    for doc in docs:
        # A slice is needed, as the index doesn't exist if the last docs are empty. After any other
        # empty doc, the next doc begins at the same token.
        is_border[first_token : first_token + 1] = False
        first_token += len(doc)
    return is_border


def _have_break(docs: Sequence[Doc], orths: Array1d) -> Array1d:
    """True for the words with a line break, given by their hashes. The string stores of the docs
    have the words. Shapes: (W,) to (W,)"""
    # All docs usually share one string store.
    stores = list(dict.fromkeys(doc.vocab.strings for doc in docs))
    # Each of U distinct words is looked up once. Shapes: (U,), (W,)
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
    """Cut docs into sequences at their borders. A doc without tokens is one sequence.

    lengths (Ints1d): The number of tokens of each doc. Shape: (D,)
    borders (Array1d): True for the borders: see `find_borders`. Shape: (N,)
    RETURNS (tuple[Ints1d, Ints1d]): The number of tokens of each sequence, and the index of its
        doc. Shapes: (B,)
    """
    if not borders.any():
        return lengths, numpy.arange(len(lengths))
    border_tokens = numpy.flatnonzero(borders)
    doc_of_border = sequence_ids(lengths)[border_tokens]
    n_sequences_of_doc = 1 + numpy.bincount(doc_of_border, minlength=len(lengths))  # (D,)

    # A sequence begins with each doc and at each border, and ends where the next one begins.
    doc_begins = numpy.cumsum(lengths) - lengths
    begins = numpy.sort(numpy.append(doc_begins, border_tokens))
    ends = numpy.append(begins[1:], len(borders))
    return (ends - begins).astype("int32"), sequence_ids(n_sequences_of_doc)
