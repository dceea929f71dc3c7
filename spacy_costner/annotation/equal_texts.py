"""Which docs have equal texts, and how docs are divided so that equal texts stay together.

Two texts are equal if they have the same letters and digits in lower case. They may have different
tokens. So a text stays equal if an augmenter changes its capitals, punctuation or whitespace.
"""

import re
from collections.abc import Iterable

import numpy
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Ints1d

NOT_IN_TEXT_ID = re.compile(r"[\W_]+")
"""Matches characters that are neither letters nor digits."""

NO_TEXT = get_string_id("")
"""The hash of a text without letters and digits: see `text_id`."""


def letters_and_digits(text: str) -> str:
    """The letters and digits of a text, in lower case."""
    return NOT_IN_TEXT_ID.sub("", text.lower())


def text_id(doc: Doc) -> int:
    """Hash the text of a doc. Docs with equal texts have the same hash."""
    return get_string_id(letters_and_digits(doc.text))


def number_texts(docs: Iterable[Doc]) -> Ints1d:
    """Number the texts of docs from 0, in the order in which they first occur. Docs with equal
    texts have the same number. Shape: (docs,)"""
    number_of_text: dict[int, int] = {}
    numbers = [number_of_text.setdefault(text_id(doc), len(number_of_text)) for doc in docs]
    return numpy.asarray(numbers, dtype="int64")


def assign_folds(text_of_doc: Ints1d, n_folds: int, seed: int | None = None) -> Ints1d:
    """Assign docs to folds. Docs with equal texts are in the same fold. The folds differ by at most
    one in the number of their distinct texts.

    text_of_doc (Ints1d): The index of the text of each doc: see `number_texts`. Shape: (docs,)
    n_folds (int): The number of folds.
    seed (int | None): The random seed to assign texts to folds. None: neighbouring texts are in the
        same fold.
    RETURNS (Ints1d): The index of the fold of each doc. Shape: (docs,)
    RAISES (ValueError): If there are fewer folds than 2, or fewer different texts than folds.
    """
    if n_folds < 2:
        raise ValueError(f"folds: expected at least 2, got {n_folds}")
    n_texts = len(numpy.unique(text_of_doc))
    if n_texts < n_folds:
        raise ValueError(
            "folds: expected at most the number of different texts, got "
            f"{n_folds} folds of {n_texts} texts"
        )
    # For example, 5 texts are in 2 folds like this: 0 0 0 1 1.
    fold_of_text = numpy.arange(n_texts) * n_folds // n_texts
    if seed is not None:
        fold_of_text = numpy.random.default_rng(seed).permutation(fold_of_text)
    return fold_of_text[text_of_doc]
