"""Read the tokens of a batch of docs into arrays, from which columns compute their values.

A batch consists of B docs with N tokens in total, in order. A *key* is the hash of a value, or 0
for no value. A *word key* is the hash of a word or, if the docs have several vocabs, of the word
and its lexeme attributes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy
from spacy.attrs import IDS, ORTH
from spacy.lexeme import Lexeme
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc, Token
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d, Ints2d

from ..annotation.doc_attributes import doc_lengths, read_attributes
from ..annotation.equal_texts import text_id
from ..ragged import sequence_ids

EXTENSION = "_."
"""The prefix of extension attributes in the config."""

KEY_FACTOR = numpy.uint64(0x9E3779B97F4A7C15)
"""The factor by which a hash is multiplied before another hash is added to it, so that the order of
the hashes matters. It's odd, so that different hashes remain different modulo 2^64."""

HashOf = Callable[[str], int]
"""Function that hashes a string in the same way as spaCy."""

ReadDocs = Callable[[Sequence[Doc], HashOf], Array1d]
"""Function that reads the value of each token in docs as a hash, or 0 for no value: see
`Column.read`. Shape: (N,)"""

SharedT = TypeVar("SharedT")


class Tokens(NamedTuple):
    """The tokens of a batch and the hashes of all values that the columns require.

    orth (Array1d): The hash of each token's word. Shape: (N,)
    word_keys (Array1d): The key of each token's word. Tokens with the same key have the same word
        features: see `TokenReader`. Shape: (N,)
    keys (dict[str, Array1d]): The hashes of the tokens' values, or 0 for no value, keyed by the
        name of an attribute, an extension attribute, or a column that reads docs directly.
        Shapes: (N,)
    lengths (Ints1d): The number of tokens in each doc. Shape: (B,)
    vocabs (Sequence[Vocab]): The vocab of each doc. Length: B
    text_ids (Array1d | None): In training, the hash of each doc's text: see `text_id`. Shape: (B,)
    """

    orth: Array1d
    word_keys: Array1d
    keys: dict[str, Array1d]
    lengths: Ints1d
    vocabs: Sequence[Vocab]
    text_ids: Array1d | None = None

    def lexemes(self, tokens: Ints1d) -> list[Lexeme]:
        """Return the lexemes of a selection of tokens. They're looked up in the vocab of each
        token's doc, because vocabs can have different attributes for the same word.

        tokens (Ints1d): The indices of the tokens in the batch. Shape: (M,)
        RETURNS (list[Lexeme]): The lexeme of each selected token.
        """
        doc_indices = sequence_ids(self.lengths)[tokens]
        word_hashes = self.orth[tokens]
        lexemes = []
        for doc_index, word_hash in zip(doc_indices.tolist(), word_hashes.tolist()):
            vocab = self.vocabs[doc_index]
            lexemes.append(vocab[word_hash])
        return lexemes


def string_of(key: int, stores: Iterable[StringStore]) -> str:
    """Look up the string for a hash in the first string store that contains it.

    RAISES (KeyError): If no string store contains it.
    """
    store: Any
    for store in stores:
        if key in store:
            return store[key]
    raise KeyError(key)


def join_tokens(batches: Sequence[Tokens]) -> Tokens:
    """Concatenate one or more batches that were read by the same reader. The resulting batch has no
    text ids."""
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
    """Reads everything that a set of columns requires from docs. Can be shared between threads.

    attributes (Sequence[str]): The token attributes and extension attributes to read.
    lexeme_attributes (Sequence[str]): The lexeme attributes that word features depend on, in
        addition to the word itself.
    doc_readers (Mapping[str, ReadDocs]): The functions of columns that read docs directly, keyed by
        column name.
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
        # The vocab of the first doc, stored under the key "vocab" for `_read_word_keys`. This is a
        # dictionary because `setdefault` is atomic, so all threads use the same vocab.
        self._first_vocab: dict[str, Vocab] = {}

    def read(
        self,
        docs: Sequence[Doc],
        *,
        in_training: bool = False,
        strings: StringStore | None = None,
    ) -> Tokens:
        """Read the tokens in docs.

        docs (Sequence[Doc]): The docs, with all required attributes set.
        in_training (bool): Whether to hash the docs' texts, which label memory uses to recognise
            docs that it has counted.
        strings (StringStore | None): If provided, strings that may not be in the docs' vocabs, such
            as values of extension attributes, are added to this string store. They're required for
            feature names.
        RETURNS (Tokens): The tokens and the hashes of their values.
        RAISES (ValueError): If an extension attribute isn't registered.
        """
        hash_of: HashOf = get_string_id
        if strings is not None:
            hash_of = strings.add
        # Read all of spaCy's attributes in a single call per doc.
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
        return Tokens(
            orth=orth,
            word_keys=self._read_word_keys(docs, orth),
            keys=keys,
            lengths=doc_lengths(docs),
            vocabs=[doc.vocab for doc in docs],
            text_ids=text_ids,
        )

    def _read_word_keys(self, docs: Sequence[Doc], orth: Array1d) -> Array1d:
        """Hash words, so that words with the same hash have the same features. Shapes: (N,) to (N,)

        The same word can have different features in different vocabs. For example, lexemes in a
        blank vocab have no lowercase form. The hash therefore includes the lexeme attributes. In
        most cases, all docs share the vocab of the first doc that was read, and the hash of the
        word is sufficient.
        """
        if not docs or not self.lexeme_attributes:
            return orth
        first_vocab = self._first_vocab.setdefault("vocab", docs[0].vocab)
        if all(doc.vocab is first_vocab for doc in docs):
            return orth
        word_keys = orth
        attribute_ids = [IDS[name] for name in self.lexeme_attributes]
        for attribute in read_attributes(docs, attribute_ids):
            word_keys = word_keys * KEY_FACTOR + attribute  # modulo 2^64 (uint64)
        return word_keys


class TokenBatch:
    """The tokens of a batch and the ids of their values. Columns write their ids in order, and each
    column can read the ids of the columns before it.

    tokens (Tokens): The tokens of all docs in the batch.
    marks (Ints2d): The first column is 1 if the word starts with a capital letter, the second if it
        contains a digit. Otherwise, they are 0. Shape: (N, 2)
    value_ids (Ints2d): The ids of the tokens' values in all columns, -1 for no value. Shape: (N, C)
    places (Mapping[str, slice]): The positions of each column's ids among the C ids of a token,
        keyed by column name.
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
        """Whether each token's word is capitalised. Shape: (N,)"""
        return self.marks[:, 0] > 0

    @property
    def has_digit(self) -> Array1d:
        """Whether each token's word contains a digit. Shape: (N,)"""
        return self.marks[:, 1] > 0

    def value_ids_of(self, name: str) -> Ints1d:
        """Return the value ids of another column, -1 for no value. The column must have a single
        value per token and come before the calling column. Shape: (N,)"""
        return self.value_ids[:, self.places[name].start]

    def share(self, key: Any, compute: Callable[[], SharedT]) -> SharedT:
        """Return a result that is shared between columns and only computed once.

        key (Any): The key of the result.
        compute (Callable[[], SharedT]): Function that computes the result. Only called for the
            first column that uses this key.
        RETURNS (SharedT): The result. All columns get the same object.
        """
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]


def read_extension(docs: Sequence[Doc], attribute: str, hash_of: HashOf) -> Array1d:
    """Read an extension attribute of tokens, such as "_.source". Returns the hash of each token's
    value as a string, or 0 if the value is None, False, 0 or "". Shape: (N,)

    RAISES (ValueError): If the extension attribute isn't registered.
    """
    name = attribute.removeprefix(EXTENSION)
    if not Token.has_extension(name):
        expected = "an extension attribute, registered with Token.set_extension"
        raise ValueError(f"spacy_costner.Features: expected {expected}, got {attribute!r}")
    keys = []
    for doc in docs:
        for token in doc:
            value = token._.get(name)
            if value in (None, False, ""):  # 0 equals False
                keys.append(0)
            else:
                keys.append(hash_of(str(value)))
    return numpy.asarray(keys, dtype="uint64")
