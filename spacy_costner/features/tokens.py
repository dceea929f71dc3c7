"""The values of tokens, before they are looked up in the vocabulary."""

import re
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy
from spacy.attrs import IDS, ORTH
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc, Token
from thinc.types import Array1d, Ints1d

from .gazetteer import Gazetteer
from .template import EXTENSION

NOT_IN_TEXT_ID = re.compile(r"[\W_]+")


class Tokens(NamedTuple):
    """The tokens of a batch.

    orth (Array1d): Hash of the word. Shape: (N,)
    keys (Dict[str, Array1d]): The hash of the value of each token, by attribute, extension
        attribute or column of a gazetteer; 0 for no value. Shapes: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    text_ids (Optional[Array1d]): In training the hash of each doc: see `text_id`. Shape: (B,)
    """

    orth: Array1d
    keys: Dict[str, Array1d]
    lengths: Ints1d
    text_ids: Optional[Array1d] = None


def read_tokens(
    docs: Sequence[Doc],
    attributes: Sequence[str],
    gazetteers: Mapping[str, Gazetteer],
    strings: Optional[StringStore] = None,
    *,
    in_training: bool = False,
) -> Tokens:
    """Read the tokens of a batch.

    docs (Sequence[Doc]): The docs.
    attributes (Sequence[str]): What is read besides the words: see `attributes_of`.
    gazetteers (Mapping[str, Gazetteer]): The gazetteers, by the names of their columns.
    strings (Optional[StringStore]): Where to keep the values of extension attributes.
    in_training (bool): Whether the hashes of docs are wanted.
    RETURNS (Tokens): The tokens.
    """
    ours = [name for name in attributes if name in IDS]
    ids = [ORTH, *(IDS[name] for name in ours)]
    arrays = [doc.to_array(ids).reshape(len(doc), len(ids)) for doc in docs]
    table = numpy.concatenate([numpy.zeros((0, len(ids)), dtype="uint64"), *arrays])
    keys = dict(zip(ours, numpy.ascontiguousarray(table.T[1:])))
    for name in attributes:
        if name in gazetteers:
            keys[name] = gazetteers[name].find(docs)
        elif name.startswith(EXTENSION):
            keys[name] = _extension(docs, name.removeprefix(EXTENSION), strings)
    lengths = numpy.asarray([len(doc) for doc in docs], dtype="int32")
    text_ids = None
    if in_training:
        text_ids = numpy.asarray([text_id(doc) for doc in docs], dtype="uint64")
    return Tokens(numpy.ascontiguousarray(table[:, 0]), keys, lengths, text_ids)


def concatenate(parts: Sequence[Tokens]) -> Tokens:
    """The tokens of several batches, at least one, that were read alike."""
    return Tokens(
        orth=numpy.concatenate([part.orth for part in parts]),
        keys={name: numpy.concatenate([p.keys[name] for p in parts]) for name in parts[0].keys},
        lengths=numpy.concatenate([part.lengths for part in parts]),
    )


def _extension(docs: Sequence[Doc], name: str, strings: Optional[StringStore]) -> Array1d:
    if not Token.has_extension(name):
        raise ValueError(
            f"spacy_costner.Features: expected {EXTENSION}{name} to be set with "
            "Token.set_extension before the pipeline runs, it is not"
        )
    key: Callable[[str], int] = get_string_id if strings is None else strings.add
    values: List[object] = [token._.get(name) for doc in docs for token in doc]
    missing = (None, False, "")
    return numpy.asarray(
        [0 if value in missing else key(str(value)) for value in values], dtype="uint64"
    )


def text_id(doc: Doc) -> int:
    """The hash of the letters and digits of a doc, in lower case. Tokenization does not change it,
    nor do white space, punctuation and capitals, as augmenters change them."""
    return get_string_id(NOT_IN_TEXT_ID.sub("", doc.text.lower()))
