"""Recognise text that a component was trained on, also if it is divided into other docs now.

A *passage* is a long sentence, or the whole text of a doc that has no long sentence. The component
keeps a hash of 32 bits of each passage that it was trained on. A new passage has the hash of
another one by chance, but seldom: if a thousand passages are kept, 1 of 4 million new ones; if a
million are kept, 1 of 4,000.

In some corpora passages recur by chance: datelines, headings, articles that are printed twice.
`Recurring` counts how many do in the training corpus, so that it is known how many passages of
other docs from the same source are expected there.
"""

import base64
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import SENT_START
from spacy.pipeline import Sentencizer
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d

from ..annotation.equal_texts import letters_and_digits
from ..features.ids import pack_hashes, unpack_hashes

LONG = 8
"""The minimum number of tokens of a long sentence."""

END_OF_SENTENCE = frozenset(Sentencizer.default_punct_chars)
"""The punctuation that ends a sentence."""

LOWEST_32_BITS = 0xFFFFFFFF

PACKED = "packed:"
"""The beginning of a text with hashes."""


def sentence_ids(doc: Doc) -> list[int]:
    """Compute hashes of the long sentences of a doc, so that they can be found in other docs. Equal
    texts (see `equal_texts`) have the same hash. Sentences without letters and digits have none.

    doc (Doc): A tokenized doc.
    RETURNS (list[int]): A hash of 32 bits for each sentence of at least `LONG` tokens.
    """
    return sentence_ids_of_texts([token.text for token in doc], sentence_starts(doc))


def sentence_ids_of_texts(texts: Sequence[str], is_start: Sequence[bool]) -> list[int]:
    """Compute the hashes of `sentence_ids` where the texts of the tokens are known already.

    texts (Sequence[str]): The texts of the tokens of a doc.
    is_start (Sequence[bool]): Whether a sentence is annotated to start at each token: see
        `sentence_starts`.
    RETURNS (list[int]): A hash of 32 bits for each sentence of at least `LONG` tokens.
    """
    ids: list[int] = []
    for words in _sentences(texts, is_start):
        if len(words) < LONG:
            continue
        text = letters_and_digits("".join(words))
        if text:
            ids.append(_hash(text))
    return ids


def sentence_starts(doc: Doc) -> list[bool]:
    """Whether a sentence is annotated to start at each token of a doc."""
    return (doc.to_array(SENT_START) == 1).tolist()


def passage_ids(doc: Doc) -> list[int]:
    """Compute hashes of the passages of a doc: a hash of each long sentence or, if there are none,
    a hash of the whole text. A doc without letters and digits has none.

    doc (Doc): A tokenized doc.
    RETURNS (list[int]): A hash of 32 bits for each passage.
    """
    ids = sentence_ids(doc)
    if ids:
        return ids
    text = letters_and_digits(doc.text)
    return [_hash(text)] if text else []


def _hash(text: str) -> int:
    """The lowest 32 bits of spaCy's hash of a text."""
    return get_string_id(text) & LOWEST_32_BITS


class Recurring(NamedTuple):
    """The number of passages of a corpus that recur in it.

    n_recurring (int): The number of passages that are in the corpus elsewhere, too.
    n_passages (int): The number of all passages.
    """

    n_recurring: int
    n_passages: int

    @classmethod
    def from_counts(cls, times: Collection[int]) -> "Recurring":
        """Count the passages that recur. A corpus that is copied as a whole, or for the most part,
        counts once: the numbers are divided by their median, and rounded up.

        times (Collection[int]): How often each distinct passage is in the corpus.
        """
        if not times:
            return cls(0, 0)
        times_of_passage = numpy.asarray(sorted(times))
        median = times_of_passage[(len(times) - 1) // 2]
        without_copies = -(-times_of_passage // median)
        n_recurring = without_copies[without_copies > 1].sum()
        return cls(int(n_recurring), int(without_copies.sum()))


def _sentences(texts: Sequence[str], is_start: Sequence[bool]) -> Iterator[list[str]]:
    """Yield the words of each sentence, without whitespace. A sentence ends at punctuation such as
    a full stop, at a new line, and where the doc has a sentence start. An annotated sentence is cut
    at its punctuation, too: the same text without annotation has to give the same sentences."""
    words: list[str] = []
    for text, is_first in zip(texts, is_start):
        if is_first and words:
            yield words
            words = []
        is_space = text.isspace()
        if not is_space:
            words.append(text)
        is_new_line = is_space and "\n" in text
        if words and (is_new_line or text in END_OF_SENTENCE):
            yield words
            words = []
    if words:
        yield words


def pack_ids(ids: Iterable[int]) -> str:
    """Write hashes of 32 bits as text, for JSON. They are sorted, without repetition, compressed,
    and written in base64. `unpack_ids` reads the text."""
    ascending = numpy.asarray(sorted({*ids}), dtype="uint32")
    if not len(ascending):
        return ""
    compressed = pack_hashes(ascending)
    return PACKED + base64.b64encode(compressed).decode("ascii")


def unpack_ids(packed: str) -> Array1d:
    """Read the hashes from a text that `pack_ids` wrote. A damaged text raises an error of any
    kind."""
    if not packed:
        return numpy.zeros(0, dtype="uint32")
    if not packed.startswith(PACKED):
        raise ValueError(f"expected hashes that begin with {PACKED!r}, got {packed[:20]!r}")
    return unpack_hashes(base64.b64decode(packed.removeprefix(PACKED), validate=True))
