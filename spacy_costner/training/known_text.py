"""Recognise text that a component was trained on, also if it is divided into other docs now.

The component keeps a hash of 32 bits of each long sentence that it was trained on. Short sentences,
such as datelines and headings, are left out: they are often the same by chance. A new sentence has
the hash of another one by chance, too, but seldom: if a thousand sentences are kept, 1 of 4 million
new sentences; if a million are kept, 1 of 4,000.
"""

import base64
from collections.abc import Iterable, Iterator

import numpy
from spacy.attrs import SENT_START
from spacy.pipeline import Sentencizer
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d

from ..features.ids import pack_hashes, unpack_hashes
from ..features.tokens import NOT_IN_TEXT_ID

LONG = 8
"""The least number of tokens of a long sentence."""

END_OF_SENTENCE = frozenset(Sentencizer.default_punct_chars)
"""The punctuation that ends a sentence."""

LOWEST_32_BITS = 0xFFFFFFFF

PACKED = "packed:"
"""The beginning of a text with compressed hashes. Versions up to 0.3.0 didn't compress them."""


def sentence_ids(doc: Doc) -> list[int]:
    """Compute hashes of the long sentences of a doc, so that they can be found in other docs. Two
    sentences have the same hash if they have the same letters and digits, in lower case.

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
    """Yield the words of each sentence, without white space. A sentence ends at punctuation such as
    a full stop, at a new line, and where the doc has a sentence start. An annotated sentence is cut
    at its punctuation, too: the same text without annotation has to give the same sentences."""
    begins_sentence = doc.to_array(SENT_START) == 1  # (T,)
    texts = [token.text for token in doc]
    words: list[str] = []
    for text, is_first in zip(texts, begins_sentence.tolist()):
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
    packed_bytes = base64.b64decode(packed.removeprefix(PACKED), validate=True)
    if packed.startswith(PACKED):
        return unpack_hashes(packed_bytes)
    return numpy.frombuffer(packed_bytes, dtype="<u4")  # up to 0.3.0 it wasn't compressed
