"""The values of tokens, before they are looked up in the vocabulary."""

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy
from spacy.attrs import IDS, ORTH
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc, Token
from thinc.types import Array1d, Ints1d

from .gazetteer import Gazetteer
from .template import EXTENSION, GAZETTEER, Column


class Tokens(NamedTuple):
    """The tokens of a batch.

    orth (Array1d): Hash of the word. Shape: (N,)
    keys (Dict[str, Array1d]): The hash of the value of each token in each column that is not
        a matter of the word alone; 0 for no value. Shapes: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    """

    orth: Array1d
    keys: Dict[str, Array1d]
    lengths: Ints1d


def read_tokens(
    docs: Sequence[Doc],
    columns: Sequence[Column],
    gazetteers: Mapping[str, Gazetteer],
    strings: Optional[StringStore] = None,
) -> Tokens:
    """Read the tokens of a batch.

    docs (Sequence[Doc]): The docs.
    columns (Sequence[Column]): The columns that are not a matter of the word alone.
    gazetteers (Mapping[str, Gazetteer]): The gazetteers, by the names of their columns.
    strings (Optional[StringStore]): Where to keep the values of extension attributes.
    RETURNS (Tokens): The tokens.
    """
    ours = [column.name for column in columns if column.kind in IDS]
    attributes = [ORTH, *(IDS[name] for name in ours)]
    arrays = [doc.to_array(attributes).reshape(len(doc), len(attributes)) for doc in docs]
    table = numpy.concatenate([numpy.zeros((0, len(attributes)), dtype="uint64"), *arrays])
    keys = dict(zip(ours, numpy.ascontiguousarray(table.T[1:])))
    for column in columns:
        if column.kind == GAZETTEER:
            keys[column.name] = gazetteers[column.name].find(docs)
        elif column.kind.startswith(EXTENSION):
            keys[column.name] = _extension(docs, column.kind.removeprefix(EXTENSION), strings)
    lengths = numpy.asarray([len(doc) for doc in docs], dtype="int32")
    return Tokens(numpy.ascontiguousarray(table[:, 0]), keys, lengths)


def _extension(docs: Sequence[Doc], name: str, strings: Optional[StringStore]) -> Array1d:
    if not Token.has_extension(name):
        raise ValueError(
            f"spacy_costner.Features: windows: expected {EXTENSION}{name} to be set with "
            "Token.set_extension before the pipeline runs, it is not"
        )
    key: Callable[[str], int] = get_string_id if strings is None else strings.add
    values: List[object] = [token._.get(name) for doc in docs for token in doc]
    missing = (None, False, "")
    return numpy.asarray(
        [0 if value in missing else key(str(value)) for value in values], dtype="uint64"
    )
