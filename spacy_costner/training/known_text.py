"""Recognise text that a component was trained on, however it is divided into docs.

A text is known by its sentences of at least `LONG` tokens. Shorter ones, such as datelines and
headings, are often equal by chance. Of each sentence 32 bits are kept, so that one of a million new
sentences in a model of a thousand, or one of 4,000 in a model of a million, is taken for known.
"""

import base64
from collections.abc import Iterable, Iterator

import numpy
from spacy.pipeline import Sentencizer
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d

from ..features.ids import pack_hashes, unpack_hashes
from ..features.tokens import NOT_IN_TEXT_ID

LONG = 8
"""The tokens of the shortest sentence that counts."""

END_OF_SENTENCE = frozenset(Sentencizer.default_punct_chars)
LOWEST_32_BITS = 0xFFFFFFFF

PACKED = "packed:"
"""What hashes begin with that are compressed. Up to 0.3.0 they were not."""


def sentence_ids(doc: Doc) -> list[int]:
    """Hash the long sentences of a doc, to know them again in other docs. Only letters and digits
    in lower case count.

    doc (Doc): The doc.
    RETURNS (list[int]): A hash of 32 bits for each sentence of at least `LONG` tokens.
    """
    ids = []
    for words in _sentences(doc):
        if len(words) < LONG:
            continue
        text = "".join(words).lower()
        letters_and_digits = NOT_IN_TEXT_ID.sub("", text)
        ids.append(get_string_id(letters_and_digits) & LOWEST_32_BITS)
    return ids


def _sentences(doc: Doc) -> Iterator[list[str]]:
    """Yield the words of each sentence, without white space. A sentence ends at punctuation, at a
    new line, and where the annotation says so. A sentence has to have the same words in an article
    and in a doc of its own: so even an annotated sentence is cut at punctuation."""
    words: list[str] = []
    for token in doc:
        if token.is_sent_start and words:
            yield words
            words = []
        if not token.is_space:
            words.append(token.text)
        is_new_line = token.is_space and "\n" in token.text
        if words and (is_new_line or token.text in END_OF_SENTENCE):
            yield words
            words = []
    if words:
        yield words


def pack_ids(ids: Iterable[int]) -> str:
    """Write hashes of 32 bits as text, for JSON: base64 of their bytes, compressed, in ascending
    order and each once. `unpack_ids` reads it."""
    ascending = numpy.asarray(sorted({*ids}), dtype="uint32")
    if not len(ascending):
        return ""
    return PACKED + base64.b64encode(pack_hashes(ascending)).decode("ascii")


def unpack_ids(packed: str) -> Array1d:
    """Read the hashes from a text that `pack_ids` wrote. Raises an error if it is damaged."""
    packed_bytes = base64.b64decode(packed.removeprefix(PACKED), validate=True)
    if packed.startswith(PACKED):
        return unpack_hashes(packed_bytes)
    return numpy.frombuffer(packed_bytes, dtype="<u4")  # up to 0.3.0
