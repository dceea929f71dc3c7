"""Borders: where the chain of a doc is cut into sequences. Features see the whole doc.

D is the number of docs of a batch, B that of sequences, N that of tokens in all of them.
"""

from collections.abc import Sequence
from typing import Literal

import numpy
from spacy.attrs import IS_SPACE, ORTH, SENT_START
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d

from .doc_attributes import read_attributes
from .ragged import sequence_ids

Boundaries = bool | Literal["sentences"]
"""False: a doc is one sequence. True: each sentence and line is one. "sentences": each sentence."""


def find_borders(docs: Sequence[Doc], boundaries: Boundaries) -> Array1d:
    """Find the tokens at which docs are cut into sequences: those that start a sentence and, if
    lines count, those after white space with a line break. The first token of a doc doesn't count.

    docs (Sequence[Doc]): The docs.
    boundaries (Boundaries): Whether they are cut at sentences and lines, at sentences, or nowhere.
    RETURNS (Array1d): True for these tokens. Shape: (N,)
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
    """Find the borders of docs whose attributes were read already: see `find_borders`.

    begins_sentence (Array1d): Whether each token begins a sentence. Shape: (N,)
    is_space (Array1d): Whether it is white space. Shape: (N,)
    orth (Array1d): The hash of its word. Shape: (N,)
    """
    if not boundaries:
        return numpy.zeros_like(begins_sentence)
    is_border = begins_sentence.copy()
    space_tokens = is_space.nonzero()[0]
    if boundaries is True and len(space_tokens):
        after_break = space_tokens[_have_break(docs, orth[space_tokens])] + 1
        # The last token of the batch has none after it.
        after_break = after_break[after_break < len(orth)]
        is_border[after_break] = True

    first_token = 0
    for doc in docs:
        # A doc without tokens changes nothing, as the next one begins there, too.
        is_border[first_token : first_token + 1] = False
        first_token += len(doc)
    return is_border


def _have_break(docs: Sequence[Doc], orths: Array1d) -> Array1d:
    """Whether words of docs have a line break.

    orths (Array1d): The hashes of the words. Shape: (W,)
    RETURNS (Array1d): True for those with one. Shape: (W,)
    """
    # The stores of strings of the docs, each once: most often all docs share one.
    stores = list(dict.fromkeys(doc.vocab.strings for doc in docs))
    # Each distinct word is looked up once, in the first store that has it. Shapes: (U,), (W,)
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
    """Cut docs into the sequences between their borders. A doc without tokens is one sequence.

    lengths (Ints1d): Tokens of each doc. Shape: (D,)
    borders (Array1d): True for the tokens that begin a sequence, but for the first of each doc: see
        `find_borders`. Shape: (N,)
    RETURNS (tuple[Ints1d, Ints1d]): The lengths of the sequences, and the doc of each.
        Shapes: (B,)
    """
    if not borders.any():
        return lengths, numpy.arange(len(lengths))
    border_tokens = numpy.flatnonzero(borders)
    doc_of_border = sequence_ids(lengths)[border_tokens]
    n_sequences = 1 + numpy.bincount(doc_of_border, minlength=len(lengths))  # of each doc

    # A sequence begins with each doc and at each border, and ends where the next one begins.
    doc_begins = numpy.cumsum(lengths) - lengths
    begins = numpy.sort(numpy.append(doc_begins, border_tokens))
    ends = numpy.append(begins[1:], len(borders))
    return (ends - begins).astype("int32"), sequence_ids(n_sequences)
