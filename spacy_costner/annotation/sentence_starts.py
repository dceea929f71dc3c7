"""Get the sentence starts of examples. The predicted doc and the reference of an example may be
tokenized differently."""

from typing import cast

import numpy
from spacy.attrs import IDX, ORTH, SENT_START, SPACY
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d

WITHOUT_SENTENCES = "spacy_costner.without_sentences"
"""The key in `doc.user_data` that marks predicted docs that must not be split at the sentence
starts of their references in training. It is set by the corpus reader with `sentences = false`."""


def sentence_starts(example: Example) -> Array1d:
    """Find the sentence starts of an example's predicted doc, excluding the first token. If they
    are unknown and both docs have the same text, the sentence starts of the reference are used.

    example (Example): The example.
    RETURNS (Array1d): A mask of the sentence starts. Shape: (T,)
    """
    doc = example.predicted
    reference = example.reference
    # Avoid `Doc.has_annotation`, which loops over tokens in Python.
    is_start = doc.to_array(SENT_START) == 1
    is_known = bool(doc.to_array(SENT_START)[1:].any())
    if not is_known and reference.to_array(SENT_START)[1:].any() and have_same_text(reference, doc):
        is_start = starts_at_same_characters(reference, doc)
    is_start[:1] = False
    return is_start


def have_same_text(doc: Doc, other: Doc) -> bool:
    """Check whether two docs have the same text."""
    if numpy.array_equal(doc.to_array([ORTH, SPACY]), other.to_array([ORTH, SPACY])):
        return True
    return doc.text == other.text


def starts_at_same_characters(doc: Doc, other: Doc) -> Array1d:
    """Return a mask of the tokens in `other` that start at the same character as a sentence in
    `doc`. The docs must have the same text. Shape: (T,)"""
    sent_start, first_chars = doc.to_array([SENT_START, IDX]).T
    is_start = sent_start == 1
    first_chars_of_other = other.to_array(IDX)
    if numpy.array_equal(first_chars, first_chars_of_other):
        return cast(Array1d, is_start)  # most docs have the same tokens
    return cast(Array1d, numpy.isin(first_chars_of_other, first_chars[is_start]))
