"""Borders: where the chain of a doc is cut into sequences. Features see the whole doc."""

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
    """True for the tokens that begin a sequence, but for the first of each doc: sentence starts
    and, after white space with a line break, the next token. Shape: (N,)"""
    sentence_start, is_space, orth = read_attributes(docs, [SENT_START, IS_SPACE, ORTH])
    return borders_of_tokens(docs, boundaries, sentence_start == 1, is_space == 1, orth)


def borders_of_tokens(
    docs: Sequence[Doc],
    boundaries: Boundaries,
    begins_sentence: Array1d,
    is_space: Array1d,
    orth: Array1d,
) -> Array1d:
    """`find_borders` of docs whose tokens were read: which begin a sentence, which are white space,
    and the hashes of their words. Shapes: (N,)"""
    if not boundaries:
        return numpy.zeros_like(begins_sentence)
    is_border = begins_sentence.copy()
    space = is_space.nonzero()[0]
    if boundaries is True and len(space):
        after_break = space[_have_break(docs, orth[space])] + 1
        is_border[after_break[after_break < len(orth)]] = True
    first_token = 0
    for doc in docs:
        # A doc without tokens changes nothing, as the next one begins there, too.
        is_border[first_token : first_token + 1] = False
        first_token += len(doc)
    return is_border


def _have_break(docs: Sequence[Doc], orths: Array1d) -> Array1d:
    """True for the words of docs, by their keys, that have a line break. Shape: (W,)"""
    # In most batches all docs share one store. A store doesn't have the words of other docs.
    stores = list(dict.fromkeys(doc.vocab.strings for doc in docs))
    keys, key_of_word = numpy.unique(orths, return_inverse=True)
    have_break = []
    for key in keys.tolist():
        text = next(strings[key] for strings in stores if key in strings)
        have_break.append("\n" in text or "\r" in text)
    return numpy.asarray(have_break)[key_of_word]


def cut(lengths: Ints1d, borders: Array1d) -> tuple[Ints1d, Ints1d]:
    """Cut docs into sequences. A doc without tokens is one sequence.

    lengths (Ints1d): Tokens of each doc. Shape: (D,)
    borders (Array1d): True for the tokens that begin a sequence, but for the first of each doc.
        Shape: (N,)
    RETURNS (tuple[Ints1d, Ints1d]): The lengths of the sequences, and the doc of each.
        Shapes: (B,)
    """
    if not borders.any():
        return lengths, numpy.arange(len(lengths))
    border_tokens = numpy.flatnonzero(borders)
    n_sequences = 1 + numpy.bincount(sequence_ids(lengths)[border_tokens], minlength=len(lengths))
    # A sequence begins with each doc and at each border, and ends where the next one begins.
    doc_begins = numpy.cumsum(lengths) - lengths
    begins = numpy.sort(numpy.append(doc_begins, border_tokens))
    ends = numpy.append(begins[1:], len(borders))
    return (ends - begins).astype("int32"), sequence_ids(n_sequences)
