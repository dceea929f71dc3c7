"""Find the tokens that begin a sentence in docs whose tokens may differ."""

from typing import cast

import numpy
from spacy.attrs import IDX, ORTH, SENT_START, SPACY
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d

WITHOUT_SENTENCES = "spacy_costner.without_sentences"
"""A key in `doc.user_data` of predicted docs. Training doesn't cut such a doc at the sentence
starts of its annotation. The reader sets the key if its setting `sentences` is false."""


def sentence_starts(example: Example) -> Array1d:
    """Find the tokens of the predicted doc of an example that begin a sentence, other than the
    first token. If its sentence starts are unknown, the sentence starts of the reference count.

    example (Example): An example, whose docs may have sentence starts.
    RETURNS (Array1d): True for these tokens. Shape: (T,)
    """
    doc = example.predicted
    reference = example.reference
    # `Doc.has_annotation` isn't used, as it loops over tokens in Python.
    is_start = doc.to_array(SENT_START) == 1
    is_known = bool(doc.to_array(SENT_START)[1:].any())
    if not is_known and reference.to_array(SENT_START)[1:].any() and have_same_text(reference, doc):
        is_start = starts_at_same_characters(reference, doc)
    is_start[:1] = False
    return is_start


def have_same_text(doc: Doc, other: Doc) -> bool:
    """Whether two docs have the same text."""
    if numpy.array_equal(doc.to_array([ORTH, SPACY]), other.to_array([ORTH, SPACY])):
        return True
    return doc.text == other.text


def starts_at_same_characters(doc: Doc, other: Doc) -> Array1d:
    """True for the tokens of `other` that begin at a character where a sentence of `doc` begins.
    Both docs have the same text. Shape: (T,)"""
    sent_start, first_chars = doc.to_array([SENT_START, IDX]).T
    is_start = sent_start == 1
    first_chars_of_other = other.to_array(IDX)
    if numpy.array_equal(first_chars, first_chars_of_other):
        return cast(Array1d, is_start)  # most docs have the same tokens
    return cast(Array1d, numpy.isin(first_chars_of_other, first_chars[is_start]))
