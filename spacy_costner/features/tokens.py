"""The tokens of a batch as arrays: what columns read before they look their values up.

A key is the hash of a value, 0 for none; a word key is the hash of a word. A batch has B docs with
N tokens, one doc after another.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy
from spacy.attrs import IDS, ORTH
from spacy.lexeme import Lexeme
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc, Token
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d, Ints2d

from ..doc_attributes import doc_lengths, read_attributes
from ..ragged import sequence_ids

EXTENSION = "_."
"""How the name of an extension attribute begins in the config."""

NOT_IN_TEXT_ID = re.compile(r"[\W_]+")
"""All characters but letters and digits: see `text_id`."""

KEY_FACTOR = numpy.uint64(0x9E3779B97F4A7C15)
"""Multiplies a hash before another is added to it, so that their order matters. It is odd, so that
different hashes stay different."""

HashOf = Callable[[str], int]
"""Hashes a string as spaCy does."""

ReadDocs = Callable[[Sequence[Doc], HashOf], Array1d]
"""Takes the docs of a batch to the hash of the value of each token, 0 for none: see `Column.read`.
Shape: (N,)"""

SharedT = TypeVar("SharedT")


class Tokens(NamedTuple):
    """What columns read of the tokens of a batch, as hashes. Nothing of it is looked up yet.

    orth (Array1d): The hash of the word. Shape: (N,)
    word_keys (Array1d): The same for tokens whose words have the same features: a hash of the word
        and of what is read of its lexeme. Shape: (N,)
    keys (dict[str, Array1d]): The hash of the value of each token, 0 for none, by attribute,
        extension attribute, or column that reads docs by itself. Shapes: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    vocabs (Sequence[Vocab]): The vocab of each of the B docs.
    text_ids (Array1d | None): In training the hash of each doc: see `text_id`. Shape: (B,)
    """

    orth: Array1d
    word_keys: Array1d
    keys: dict[str, Array1d]
    lengths: Ints1d
    vocabs: Sequence[Vocab]
    text_ids: Array1d | None = None

    def lexemes(self, tokens: Ints1d) -> list[Lexeme]:
        """The lexemes of some tokens, by their indices in the batch. Each is that of the vocab of
        its doc: vocabs may differ in what they know of a word. Shape: (M,)"""
        docs = sequence_ids(self.lengths)[tokens]
        words = self.orth[tokens]
        lexemes = []
        for doc, word in zip(docs.tolist(), words.tolist()):
            vocab = self.vocabs[doc]
            lexemes.append(vocab[word])
        return lexemes


def string_of(key: int, stores: Iterable[StringStore]) -> str:
    """The string of a hash, from the first of some string stores that has it."""
    store: Any
    for store in stores:
        if key in store:
            return store[key]
    raise KeyError(key)


def join_tokens(batches: Sequence[Tokens]) -> Tokens:
    """Join batches, at least one, for columns that need all training tokens at once. They have to
    be read for the same columns. The result has no text ids."""
    vocabs: list[Vocab] = []
    for batch in batches:
        vocabs.extend(batch.vocabs)
    keys: dict[str, Array1d] = {}
    for name in batches[0].keys:
        keys[name] = numpy.concatenate([batch.keys[name] for batch in batches])
    return Tokens(
        orth=numpy.concatenate([batch.orth for batch in batches]),
        word_keys=numpy.concatenate([batch.word_keys for batch in batches]),
        keys=keys,
        lengths=numpy.concatenate([batch.lengths for batch in batches]),
        vocabs=vocabs,
    )


class TokenReader:
    """Reads what columns need of the tokens of docs. Threads can share it.

    attributes (Sequence[str]): Attributes and extension attributes of tokens.
    lexeme_attributes (Sequence[str]): What features of words depend on besides the word itself.
    doc_readers (Mapping[str, ReadDocs]): Functions that read docs, by the names of their columns.
    """

    def __init__(
        self,
        attributes: Sequence[str],
        lexeme_attributes: Sequence[str],
        doc_readers: Mapping[str, ReadDocs],
    ) -> None:
        self.spacy_attributes: list[str] = []
        self.extensions: list[str] = []
        for name in attributes:
            if name.startswith(EXTENSION):
                self.extensions.append(name)
            else:
                self.spacy_attributes.append(name)
        self.lexeme_attributes = lexeme_attributes
        self.doc_readers = doc_readers
        # Its only entry is "vocab": the vocab of the first doc that was read.
        self._first_vocab: dict[str, Vocab] = {}

    def read(
        self,
        docs: Sequence[Doc],
        *,
        in_training: bool = False,
        strings: StringStore | None = None,
    ) -> Tokens:
        """Read the tokens of docs. `in_training` also reads the text ids, by which label memory
        knows the docs again. `strings` stores the values that docs don't have as hashes, such as
        those of extension attributes, for the names of features."""
        hash_of: HashOf = get_string_id
        if strings is not None:
            hash_of = strings.add
        # All attributes of spaCy are read at once, with a single call for each doc.
        attribute_ids = [ORTH, *(IDS[name] for name in self.spacy_attributes)]
        orth, *attribute_keys = read_attributes(docs, attribute_ids)
        keys = dict(zip(self.spacy_attributes, attribute_keys))
        for name in self.extensions:
            keys[name] = read_extension(docs, name, hash_of)
        for name, read_docs in self.doc_readers.items():
            keys[name] = read_docs(docs, hash_of)

        text_ids = None
        if in_training:
            text_ids = numpy.asarray([text_id(doc) for doc in docs], dtype="uint64")
        vocabs = [doc.vocab for doc in docs]
        word_keys = self._read_word_keys(docs, orth)
        return Tokens(orth, word_keys, keys, doc_lengths(docs), vocabs, text_ids)

    def _read_word_keys(self, docs: Sequence[Doc], orth: Array1d) -> Array1d:
        """Hash words, so that words of equal hashes have the same features: see `Tokens`.
        Shape: (N,)

        The word itself isn't enough, as vocabs differ in what they know of it: a bare vocab has
        neither its lower case nor its shape. So the attributes of its lexeme are hashed, too. Only
        if all docs are of the vocab that was read first, as nearly always, the word is enough."""
        if not docs or not self.lexeme_attributes:
            return orth
        # `setdefault` is atomic, so that threads agree on the first vocab.
        first_vocab = self._first_vocab.setdefault("vocab", docs[0].vocab)
        if all(doc.vocab is first_vocab for doc in docs):
            return orth
        word_keys = orth
        attribute_ids = [IDS[name] for name in self.lexeme_attributes]
        for attribute in read_attributes(docs, attribute_ids):
            word_keys = word_keys * KEY_FACTOR + attribute  # modulo 2^64
        return word_keys


class TokenBatch:
    """The tokens of a batch with the ids of their values, which columns fill in one after another.
    A column can read those of columns before it.

    tokens (Tokens): The tokens.
    marks (Ints2d): 1 for tokens whose word begins with a capital and, in the second column, for
        those whose word has a digit; otherwise 0. Shape: (N, 2)
    value_ids (Ints2d): The ids of the values of tokens, -1 for none. Shape: (N, C)
    places (Mapping[str, slice]): Where among the C ids of a token those of a column stand, by the
        name of the column.
    """

    def __init__(
        self,
        tokens: Tokens,
        marks: Ints2d,
        value_ids: Ints2d,
        places: Mapping[str, slice],
    ) -> None:
        self.tokens = tokens
        self.marks = marks
        self.value_ids = value_ids
        self.places = places
        self._shared: dict[Any, Any] = {}

    @property
    def is_capitalised(self) -> Array1d:
        """True for the tokens whose word is capitalised. Shape: (N,)"""
        return self.marks[:, 0] > 0

    @property
    def has_digit(self) -> Array1d:
        """True for the tokens whose word has a digit. Shape: (N,)"""
        return self.marks[:, 1] > 0

    def value_ids_of(self, name: str) -> Ints1d:
        """The ids of the values of a column that has one for each token, -1 for none. It has to
        stand before the column that asks. Shape: (N,)"""
        return self.value_ids[:, self.places[name].start]

    def share(self, key: Any, compute: Callable[[], SharedT]) -> SharedT:
        """Compute once what several columns need: the first that asks with this key computes it,
        the others get the same object."""
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]


def read_extension(docs: Sequence[Doc], attribute: str, hash_of: HashOf) -> Array1d:
    """Read an extension attribute, such as "_.source", as the hash of its text; 0 where it is None,
    False, 0 or empty. Shape: (N,)"""
    name = attribute.removeprefix(EXTENSION)
    if not Token.has_extension(name):
        expected = "to be set with Token.set_extension before the pipeline runs, it is not"
        raise ValueError(f"spacy_costner.Features: expected {attribute} {expected}")
    keys = []
    for doc in docs:
        for token in doc:
            value = token._.get(name)
            if value in (None, False, ""):
                keys.append(0)
            else:
                keys.append(hash_of(str(value)))
    return numpy.asarray(keys, dtype="uint64")


def text_id(doc: Doc) -> int:
    """Hash the letters and digits of a doc, in lower case, to know a training doc again.
    Tokenization does not change the hash, nor do white space, punctuation and capitals, which
    augmenters change."""
    return get_string_id(NOT_IN_TEXT_ID.sub("", doc.text.lower()))
