"""Borders: where the chain of a doc is cut into sequences. Features see the whole doc."""

from collections.abc import Sequence
from typing import Literal, cast

import numpy
from spacy.attrs import IDX, IS_SPACE, ORTH, SENT_START
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from .ragged import first_tokens, sequence_ids

Boundaries = bool | Literal["sentences"]
"""False: a doc is one sequence. True: each sentence and line is one. "sentences": each sentence."""


def find_borders(docs: Sequence[Doc], boundaries: Boundaries) -> Array1d:
    """True for the tokens that begin a sequence, but for the first of each doc: sentence starts
    and, after white space with a line break, the next token. Shape: (N,)"""
    n_tokens = sum(map(len, docs))
    if not boundaries or n_tokens == 0:
        return numpy.zeros(n_tokens, dtype=bool)
    # A row for each token. Shape: (N, 3)
    tables = [doc.to_array([SENT_START, IS_SPACE, ORTH]) for doc in docs]
    table = numpy.concatenate(tables) if len(tables) > 1 else tables[0]
    sentence_start, is_space, orth = table.T
    begins = sentence_start == 1
    space = is_space.nonzero()[0]
    if boundaries is True and len(space):
        after_break = space[_have_break(docs, orth[space])] + 1
        begins[after_break[after_break < n_tokens]] = True
    if len(docs) == 1:  # no arrays for a single text, whose time counts
        begins[0] = False
    else:
        lengths = numpy.asarray([len(doc) for doc in docs], dtype="int32")
        begins[first_tokens(lengths)] = False
    return begins


def sentence_starts(example: Example) -> Array1d:
    """True for the tokens of the predicted doc that begin a sentence, but for the first token. If
    its sentences are not known, they are those of the reference, at the same characters. Shape:
    (T,)"""
    doc = example.predicted
    reference = example.reference
    # 1: a token begins a sentence; -1: it doesn't; 0: it is not known.
    if doc.has_annotation("SENT_START"):
        is_start = doc.to_array(SENT_START) == 1
    elif reference.has_annotation("SENT_START") and reference.text == doc.text:
        starts, first_chars = reference.to_array([SENT_START, IDX]).T
        is_start = numpy.isin(doc.to_array(IDX), first_chars[starts == 1])
    else:
        return numpy.zeros(len(doc), dtype=bool)
    is_start[:1] = False
    return cast(Array1d, is_start)


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
    border_tokens = numpy.flatnonzero(borders)
    if not len(border_tokens):
        return lengths, numpy.arange(len(lengths))
    n_sequences = 1 + numpy.bincount(sequence_ids(lengths)[border_tokens], minlength=len(lengths))
    # A sequence begins with each doc and at each border, and ends where the next one begins.
    doc_begins = numpy.cumsum(lengths) - lengths
    begins = numpy.sort(numpy.append(doc_begins, border_tokens))
    ends = numpy.append(begins[1:], len(borders))
    return (ends - begins).astype("int32"), sequence_ids(n_sequences)
