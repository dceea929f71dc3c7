"""Recognition of text that a component was trained on, even if it is divided into docs differently.

A *passage* is a long sentence, or the whole text of a doc without long sentences. The component
stores a 32-bit hash of each passage that it was trained on. Hash collisions are rare: if a thousand
passages are stored, 1 in 4 million new passages matches by chance, and if a million passages are
stored, 1 in 4,000.

In some corpora, passages are repeated for other reasons, such as datelines, headings, or articles
that are printed twice. `Recurring` counts them in the training corpus, to estimate how many
passages of other docs from the same source are expected to match.
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
"""The minimum number of tokens in a long sentence."""

END_OF_SENTENCE = frozenset(Sentencizer.default_punct_chars)
"""Punctuation that ends a sentence."""

LOWEST_32_BITS = 0xFFFFFFFF

PACKED = "packed:"
"""The prefix of serialized hashes."""


def sentence_ids(doc: Doc) -> list[int]:
    """Compute hashes of the long sentences in a doc, to find these sentences in other docs. Equal
    texts (see `equal_texts`) have the same hash. Sentences without letters or digits are skipped.

    doc (Doc): A tokenized doc.
    RETURNS (list[int]): A 32-bit hash of each sentence with at least `LONG` tokens.
    """
    return sentence_ids_of_texts([token.text for token in doc], sentence_starts(doc))


def sentence_ids_of_texts(texts: Sequence[str], is_start: Sequence[bool]) -> list[int]:
    """Compute the same hashes as `sentence_ids`, from the texts of a doc's tokens.

    texts (Sequence[str]): The texts of the tokens of a doc.
    is_start (Sequence[bool]): Whether each token is annotated as a sentence start: see
        `sentence_starts`.
    RETURNS (list[int]): A 32-bit hash of each sentence with at least `LONG` tokens.
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
    """Return whether each token of a doc is annotated as a sentence start."""
    return (doc.to_array(SENT_START) == 1).tolist()


def passage_ids(doc: Doc) -> list[int]:
    """Compute hashes of the passages in a doc: one hash per long sentence or, if there are no long
    sentences, one hash of the whole text. Returns no hashes for docs without letters or digits.

    doc (Doc): A tokenized doc.
    RETURNS (list[int]): A 32-bit hash of each passage.
    """
    ids = sentence_ids(doc)
    if ids:
        return ids
    text = letters_and_digits(doc.text)
    return [_hash(text)] if text else []


def _hash(text: str) -> int:
    """Return the lowest 32 bits of spaCy's hash of a text."""
    return get_string_id(text) & LOWEST_32_BITS


class Recurring(NamedTuple):
    """The number of passages that recur within a corpus.

    n_recurring (int): The number of passages that also occur elsewhere in the corpus.
    n_passages (int): The total number of passages.
    """

    n_recurring: int
    n_passages: int

    @classmethod
    def from_counts(cls, times: Collection[int]) -> "Recurring":
        """Count the passages that recur. If all or most of the corpus is duplicated, the duplicates
        are ignored: all counts are divided by their median and rounded up.

        times (Collection[int]): The number of occurrences of each distinct passage.
        """
        if not times:
            return cls(0, 0)
        times_of_passage = numpy.asarray(sorted(times))
        median = times_of_passage[(len(times) - 1) // 2]
        without_copies = -(-times_of_passage // median)
        n_recurring = without_copies[without_copies > 1].sum()
        return cls(int(n_recurring), int(without_copies.sum()))


def _sentences(texts: Sequence[str], is_start: Sequence[bool]) -> Iterator[list[str]]:
    """Yield the words of each sentence, without whitespace tokens. Sentences end at punctuation
    such as full stops, at newlines, and before annotated sentence starts. Annotated sentences are
    also split at punctuation, so that annotation doesn't change the sentences of a text."""
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
    """Convert 32-bit hashes to a string that can be saved as JSON. The hashes are sorted,
    deduplicated, compressed and base64-encoded. Use `unpack_ids` to convert the string back."""
    ascending = numpy.asarray(sorted({*ids}), dtype="uint32")
    if not len(ascending):
        return ""
    compressed = pack_hashes(ascending)
    return PACKED + base64.b64encode(compressed).decode("ascii")


def unpack_ids(packed: str) -> Array1d:
    """Read the hashes from a string created by `pack_ids`. An invalid string may raise any kind
    of error."""
    if not packed:
        return numpy.zeros(0, dtype="uint32")
    if not packed.startswith(PACKED):
        raise ValueError(f"expected hashes that begin with {PACKED!r}, got {packed[:20]!r}")
    return unpack_hashes(base64.b64decode(packed.removeprefix(PACKED), validate=True))
