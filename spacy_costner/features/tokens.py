"""The values of tokens before they are looked up in the vocabulary: attributes, extension
attributes, and places in the phrases of gazetteers."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.attrs import IDS, LOWER, ORTH
from spacy.matcher import PhraseMatcher
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc, Token
from spacy.util import filter_spans
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d

from .template import CASELESS, EXTENSION

BEGIN, INSIDE, LAST, UNIT = PLACES = ("B", "I", "L", "U")

NOT_IN_TEXT_ID = re.compile(r"[\W_]+")


class Gazetteer:
    """A list of phrases. Of phrases that overlap in a doc, the longest is found."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = list(phrases)
        self._made: tuple[Vocab, PhraseMatcher] | None = None

    @classmethod
    def from_file(cls, path: str | Path) -> "Gazetteer":
        """Read a file in UTF-8 with a phrase on each line."""
        try:
            lines = Path(path).read_text(encoding="utf8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            where = "spacy_costner.Features: gazetteers"
            raise ValueError(f"{where}: expected a text file in UTF-8, {path}: {error}") from error
        return cls([line.strip() for line in lines if line.strip()])

    def find(self, docs: Sequence[Doc]) -> Array1d:
        """For each token in a phrase the hash of one of `PLACES`, otherwise 0. Shape: (N,)"""
        places, begin = numpy.zeros(sum(map(len, docs)), dtype="uint64"), 0
        for doc in docs:
            for span in filter_spans(self._matcher_of(doc.vocab)(doc, as_spans=True)):
                first, last = begin + span.start, begin + span.end - 1
                places[first : last + 1] = get_string_id(INSIDE)
                places[first] = get_string_id(BEGIN)
                places[last] = get_string_id(LAST if len(span) > 1 else UNIT)
            begin += len(doc)
        return places

    def _matcher_of(self, vocab: Vocab) -> PhraseMatcher:
        """The matcher for a vocab. Other threads see it when it is whole; two may make it."""
        made = self._made
        if made is None or made[0] is not vocab:
            made = vocab, PhraseMatcher(vocab, attr="LOWER")
            made[1].add("phrase", [Doc(vocab, words=phrase.split()) for phrase in self.phrases])
            self._made = made
        return made[1]


class Tokens(NamedTuple):
    """The tokens of a batch.

    orth (Array1d): Hash of the word. Shape: (N,)
    keys (dict[str, Array1d]): The hash of the value of each token, by attribute, extension
        attribute or column of a gazetteer; 0 for no value. Shapes: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    text_ids (Array1d | None): In training the hash of each doc: see `text_id`. Shape: (B,)
    """

    orth: Array1d
    keys: dict[str, Array1d]
    lengths: Ints1d
    text_ids: Array1d | None = None


def read_tokens(
    docs: Sequence[Doc],
    attributes: Sequence[str],
    gazetteers: Mapping[str, Gazetteer],
    strings: StringStore | None = None,
    *,
    in_training: bool = False,
) -> Tokens:
    """Read what `attributes_of` names of the tokens of a batch. `strings` keeps the values of
    extension attributes."""
    ours, none = [name for name in attributes if name in IDS], numpy.zeros(0, dtype="uint64")
    ids = [ORTH, *(IDS[name] for name in ours)]
    arrays = [doc.to_array(ids).reshape(len(doc), len(ids)) for doc in docs]
    table = numpy.concatenate([none.reshape(0, len(ids)), *arrays])
    keys = dict(zip(ours, numpy.ascontiguousarray(table.T[1:])))
    for name in attributes:
        if name in gazetteers:
            keys[name] = gazetteers[name].find(docs)
        elif name == CASELESS:
            one_case = [doc.text.islower() or doc.text.isupper() for doc in docs]
            words = [doc.to_array(LOWER) * int(is_so) for doc, is_so in zip(docs, one_case)]
            keys[name] = numpy.concatenate([none, *words])
        elif name.startswith(EXTENSION):
            keys[name] = _extension(docs, name.removeprefix(EXTENSION), strings)
    lengths = numpy.asarray([len(doc) for doc in docs], dtype="int32")
    text_ids = numpy.asarray([*map(text_id, docs)], dtype="uint64") if in_training else None
    return Tokens(numpy.ascontiguousarray(table[:, 0]), keys, lengths, text_ids)


def _extension(docs: Sequence[Doc], name: str, strings: StringStore | None) -> Array1d:
    if not Token.has_extension(name):
        expected = "to be set with Token.set_extension before the pipeline runs, it is not"
        raise ValueError(f"spacy_costner.Features: expected {EXTENSION}{name} {expected}")
    key: Callable[[str], int] = get_string_id if strings is None else strings.add
    values: list[object] = [token._.get(name) for doc in docs for token in doc]
    keys = [0 if value in (None, False, "") else key(str(value)) for value in values]
    return numpy.asarray(keys, dtype="uint64")


def text_id(doc: Doc) -> int:
    """The hash of the letters and digits of a doc, in lower case. Tokenization does not change it,
    nor do white space, punctuation and capitals, as augmenters change them."""
    return get_string_id(NOT_IN_TEXT_ID.sub("", doc.text.lower()))
