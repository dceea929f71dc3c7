"""Detect docs with equal texts, and split docs into folds without separating equal texts.

Texts are considered equal if they consist of the same letters and digits, ignoring case and
tokenization. Augmentation of case, punctuation or whitespace therefore results in equal texts.
"""

import re
from collections.abc import Iterable

import numpy
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Ints1d

NOT_IN_TEXT_ID = re.compile(r"[\W_]+")
"""Matches sequences of characters other than letters and digits."""

AUGMENTED = "spacy_costner.augmented"
"""The key in `doc.user_data` that marks docs that an augmenter added to the original doc."""

NO_TEXT = get_string_id("")
"""The hash of a text without letters or digits: see `text_id`."""


def letters_and_digits(text: str) -> str:
    """Return the letters and digits of a text in lower case."""
    return NOT_IN_TEXT_ID.sub("", text.lower())


def text_id(doc: Doc) -> int:
    """Compute a hash of a doc's text. Docs with equal texts have the same hash."""
    return get_string_id(letters_and_digits(doc.text))


def number_texts(docs: Iterable[Doc]) -> Ints1d:
    """Assign a number to the text of each doc, counting from 0 in order of first occurrence. Docs
    with equal texts have the same number. Shape: (docs,)"""
    number_of_text: dict[int, int] = {}
    numbers = [number_of_text.setdefault(text_id(doc), len(number_of_text)) for doc in docs]
    return numpy.asarray(numbers, dtype="int64")


def assign_folds(text_of_doc: Ints1d, n_folds: int, seed: int | None = None) -> Ints1d:
    """Assign docs to folds. Docs with equal texts are assigned to the same fold. The numbers of
    distinct texts per fold differ by at most one.

    text_of_doc (Ints1d): The index of the text of each doc: see `number_texts`. Shape: (docs,)
    n_folds (int): The number of folds.
    seed (int | None): The random seed for assigning texts to folds. If None, each fold consists of
        consecutive texts.
    RETURNS (Ints1d): The fold index of each doc. Shape: (docs,)
    RAISES (ValueError): If there are fewer than 2 folds, or fewer distinct texts than folds.
    """
    if n_folds < 2:
        raise ValueError(f"folds: expected at least 2, got {n_folds}")
    n_texts = len(numpy.unique(text_of_doc))
    if n_texts < n_folds:
        raise ValueError(
            "folds: expected at most the number of different texts, got "
            f"{n_folds} folds of {n_texts} texts"
        )
    # For example, the folds of 5 texts are 0 0 0 1 1 if there are 2 folds.
    fold_of_text = numpy.arange(n_texts) * n_folds // n_texts
    if seed is not None:
        fold_of_text = numpy.random.default_rng(seed).permutation(fold_of_text)
    return fold_of_text[text_of_doc]
