"""Read the tokens of a batch of docs as arrays, from which columns find their values.

A batch has B docs with N tokens, one doc after another. A *key* is the hash of a value, 0 for no
value. A *word key* is the hash of a word or, if docs have several vocabs, of the word and its
attributes.
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
"""The beginning of the name of an extension attribute in the config."""

KEY_FACTOR = numpy.uint64(0x9E3779B97F4A7C15)
"""A hash is multiplied by this number before another hash is added to it, so that the result
depends on their order. The number is odd, so that different hashes stay different modulo 2^64."""

HashOf = Callable[[str], int]
"""Hashes a string as spaCy does."""

ReadDocs = Callable[[Sequence[Doc], HashOf], Array1d]
"""Reads the value of each token of docs as a hash, 0 for none: see `Column.read`. Shape: (N,)"""

SharedT = TypeVar("SharedT")


class Tokens(NamedTuple):
    """The tokens of a batch, with the hashes of all values that columns need.

    orth (Array1d): The hash of each token's word. Shape: (N,)
    word_keys (Array1d): The key of each token's word. If two tokens have the same key, all features
        of their words are the same: see `TokenReader`. Shape: (N,)
    keys (dict[str, Array1d]): The hashes of the values of tokens, 0 for none, keyed by the name of
        an attribute, of an extension attribute, or of a column that reads docs by itself. Shapes:
        (N,)
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    vocabs (Sequence[Vocab]): The vocab of each doc. Length: B
    text_ids (Array1d | None): In training, the hash of the text of each doc: see `text_id`.
        Shape: (B,)
    """

    orth: Array1d
    word_keys: Array1d
    keys: dict[str, Array1d]
    lengths: Ints1d
    vocabs: Sequence[Vocab]
    text_ids: Array1d | None = None

    def lexemes(self, tokens: Ints1d) -> list[Lexeme]:
        """The lexemes of some tokens. A lexeme is taken from the vocab of the token's own doc, as
        vocabs may have different attributes for a word.

        tokens (Ints1d): The indices of the tokens in the batch. Shape: (M,)
        RETURNS (list[Lexeme]): The lexeme of each of these tokens.
        """
        doc_indices = sequence_ids(self.lengths)[tokens]
        word_hashes = self.orth[tokens]
        lexemes = []
        for doc_index, word_hash in zip(doc_indices.tolist(), word_hashes.tolist()):
            vocab = self.vocabs[doc_index]
            lexemes.append(vocab[word_hash])
        return lexemes


def string_of(key: int, stores: Iterable[StringStore]) -> str:
    """Look up the string of a hash in the first of several string stores that has it.

    RAISES (KeyError): If none has it.
    """
    store: Any
    for store in stores:
        if key in store:
            return store[key]
    raise KeyError(key)


def join_tokens(batches: Sequence[Tokens]) -> Tokens:
    """Join batches, at least one, to one batch of all their tokens. They have to be read by the
    same reader. The joined batch has no text ids."""
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
    """Reads everything in docs that a set of columns needs. Threads can share it.

    attributes (Sequence[str]): The attributes and extension attributes of tokens that are read.
    lexeme_attributes (Sequence[str]): The attributes of lexemes on which features of words depend,
        in addition to the word itself.
    doc_readers (Mapping[str, ReadDocs]): The functions of columns that read docs by themselves, by
        the names of the columns.
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
        # For `_read_word_keys`: the vocab of the first doc that was read, with the key "vocab". A
        # dictionary has `setdefault`, which is atomic, so that threads agree on the vocab.
        self._first_vocab: dict[str, Vocab] = {}

    def read(
        self,
        docs: Sequence[Doc],
        *,
        in_training: bool = False,
        strings: StringStore | None = None,
    ) -> Tokens:
        """Read the tokens of docs.

        docs (Sequence[Doc]): The docs, with all attributes that are read.
        in_training (bool): Whether to hash the texts of docs, by which label memory recognises docs
            that it has counted.
        strings (StringStore | None): Values that the vocab of docs may not have, such as values of
            extension attributes, are added to it. They are needed for the names of features.
        RETURNS (Tokens): The tokens.
        RAISES (ValueError): If an extension attribute isn't set.
        """
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
        return Tokens(
            orth=orth,
            word_keys=self._read_word_keys(docs, orth),
            keys=keys,
            lengths=doc_lengths(docs),
            vocabs=[doc.vocab for doc in docs],
            text_ids=text_ids,
        )

    def _read_word_keys(self, docs: Sequence[Doc], orth: Array1d) -> Array1d:
        """Hash words, so that two words with the same hash have the same features.

        In different vocabs the same word may have different features: in a bare vocab, for example,
        a lexeme has no lower case. So the attributes of the lexeme are hashed together with the
        word. Nearly always all docs are of one vocab, the first that was read. Then the hash of the
        word is enough. Shapes: (N,) to (N,)
        """
        if not docs or not self.lexeme_attributes:
            return orth
        first_vocab = self._first_vocab.setdefault("vocab", docs[0].vocab)
        if all(doc.vocab is first_vocab for doc in docs):
            return orth
        word_keys = orth
        attribute_ids = [IDS[name] for name in self.lexeme_attributes]
        for attribute in read_attributes(docs, attribute_ids):
            word_keys = word_keys * KEY_FACTOR + attribute  # modulo 2^64, as numbers are uint64
        return word_keys


class TokenBatch:
    """The tokens of a batch with the ids of their values. The columns write the ids one after
    another, and a column can read the ids of the columns before it.

    tokens (Tokens): The tokens of all docs of the batch.
    marks (Ints2d): In the first column, 1 for tokens whose word begins with a capital; in the
        second, 1 for tokens whose word has a digit. Otherwise 0. Shape: (N, 2)
    value_ids (Ints2d): The ids of the values of tokens in all columns, -1 for none. Shape: (N, C)
    places (Mapping[str, slice]): The places of the ids of a column among the C ids of a token, by
        the name of the column.
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
        """The ids of the values of another column, -1 for none. The other column has a single value
        for each token, and comes before the column that calls this. Shape: (N,)"""
        return self.value_ids[:, self.places[name].start]

    def share(self, key: Any, compute: Callable[[], SharedT]) -> SharedT:
        """Return a result that several columns need, and that is computed only once.

        key (Any): Names the result.
        compute (Callable[[], SharedT]): Computes it. Only the first column with this key calls it.
        RETURNS (SharedT): The result, the same object for all columns.
        """
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]


def read_extension(docs: Sequence[Doc], attribute: str, hash_of: HashOf) -> Array1d:
    """Read an extension attribute of tokens, such as "_.source". Returns the hash of the text of
    each token's value, or 0 if the value is None, False, 0 or "". Shape: (N,)

    RAISES (ValueError): If there is no such extension.
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
