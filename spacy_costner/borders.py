"""Borders: where the chain of a doc is cut into sequences. Features see the whole doc."""

from collections.abc import Sequence
from typing import Literal

import numpy
from spacy.attrs import IS_SPACE, ORTH, SENT_START
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d

from .ragged import first_tokens, sequence_ids

Boundaries = bool | Literal["sentences"]
"""False: a doc is one sequence. True: each sentence and line is one. "sentences": each sentence."""


def find_borders(docs: Sequence[Doc], boundaries: Boundaries) -> Array1d:
    """True for the tokens that begin a sequence, but for the first of each doc: sentence starts
    and, after white space with a line break, the next token. Shape: (N,)"""
    if not boundaries or not any(map(len, docs)):
        return numpy.zeros(sum(map(len, docs)), dtype=bool)
    attrs = [SENT_START, IS_SPACE, ORTH]
    tables = [doc.to_array(attrs) for doc in docs]
    table = numpy.concatenate(tables) if len(tables) > 1 else tables[0]
    starts, is_space, orth = table.T
    begins = starts == 1
    space = is_space.nonzero()[0]
    if boundaries is True and len(space):
        stores = [*dict.fromkeys(doc.vocab.strings for doc in docs)]
        words, which = numpy.unique(orth[space], return_inverse=True)
        texts = [next(strings[x] for strings in stores if x in strings) for x in words.tolist()]
        has_break = numpy.asarray([not {*"\n\r"}.isdisjoint(text) for text in texts])
        after = space[has_break[which]] + 1
        begins[after[after < len(begins)]] = True
    first = first_tokens(numpy.asarray([*map(len, docs)], "int32")) if len(docs) > 1 else 0
    begins[first] = False
    return begins


def cut(lengths: Ints1d, borders: Array1d) -> tuple[Ints1d, Ints1d]:
    """Cut docs of some lengths, (D,), at borders, (N,), which are not first tokens. Returns the
    lengths of the sequences and the doc of each, (B,). A doc without tokens is one sequence."""
    places = numpy.flatnonzero(borders)
    if not len(places):
        return lengths, numpy.arange(len(lengths))
    begins = numpy.sort(numpy.append(numpy.cumsum(lengths) - lengths, places))
    n_sequences = 1 + numpy.bincount(sequence_ids(lengths)[places], minlength=len(lengths))
    ends = numpy.append(begins[1:], len(borders))[: len(begins)]
    return (ends - begins).astype("int32"), sequence_ids(n_sequences)
