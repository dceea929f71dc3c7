"""Token attributes of docs as arrays: their words, their annotation, and the paths that it allows.

Docs are read once per batch. Nothing here loops over tokens in Python, except where the tokens of
the reference and of the predicted doc differ.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, IS_SPACE, ORTH
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from ..ragged import sequence_ids
from ..tags import Entities, Tags, runs
from ..types import Constraints

MISSING, INSIDE, OUTSIDE, BEGIN = range(4)
"""The values of spaCy's ENT_IOB. BEGIN without a type is a blocked token."""


class TokenAttrs(NamedTuple):
    """Token attributes of a batch of docs.

    orth (Ints1d): Hash of the word. Shape: (N,)
    iob (Ints1d): ENT_IOB, as above. Shape: (N,)
    label (Ints1d): Hash of the entity label, 0 for none. Shape: (N,)
    is_space (Array1d): True for white space. Shape: (N,)
    lengths (Ints1d): Number of tokens of each doc. Shape: (B,)
    """

    orth: Ints1d
    iob: Ints1d
    label: Ints1d
    is_space: Array1d
    lengths: Ints1d

    @property
    def is_annotated(self) -> Array1d:
        """True for tokens whose entity annotation is not missing. Shape: (N,)"""
        return self.iob != MISSING

    def without_annotation(self) -> "TokenAttrs":
        """The same tokens with their entity annotation missing."""
        return self._replace(iob=numpy.full_like(self.iob, MISSING))

    def of_doc(self, i: int) -> slice:
        """The positions of a doc's tokens."""
        end = int(self.lengths[: i + 1].sum())
        return slice(end - int(self.lengths[i]), end)

    def entities(self, tags: Tags, strings: StringStore) -> Entities:
        """The annotated entities. Label -1 is a label that the tag set doesn't have."""
        opening = (self.iob == BEGIN) & (self.label != 0)
        begin, end = runs(opening, self.iob == INSIDE, self.lengths)
        known = {strings.as_int(label): i for i, label in enumerate(tags.labels)}
        label = [known.get(int(hash_), -1) for hash_ in self.label[begin]]
        return Entities(begin, end, numpy.asarray(label, dtype="int32"))


def read_docs(docs: Sequence[Doc]) -> TokenAttrs:
    """Read the tokens of a batch of docs."""
    attrs = [ORTH, ENT_IOB, ENT_TYPE, IS_SPACE]
    if len(docs) == 1:
        table = docs[0].to_array(attrs)
    else:
        none = numpy.zeros((0, len(attrs)), dtype="uint64")
        table = numpy.concatenate([none, *(doc.to_array(attrs) for doc in docs)])
    orth, iob, label, is_space = table.T
    lengths = numpy.asarray([len(doc) for doc in docs], dtype="int32")
    return TokenAttrs(orth, iob.astype("int32"), label, is_space == 1, lengths)


def read_presets(docs: Sequence[Doc]) -> TokenAttrs:
    """Read docs that are to be predicted, with their preset annotation; it is missing where nothing
    is preset. Setting `doc.ents`, as an entity ruler does, makes all other tokens O. So O is only
    preset in docs that also have missing tokens."""
    tokens = read_docs(docs)
    if not tokens.iob.any():
        return tokens
    of_doc = sequence_ids(tokens.lengths)
    n_missing = numpy.bincount(of_doc, tokens.iob == MISSING, len(tokens.lengths))
    by_default = (tokens.iob == OUTSIDE) & (n_missing == 0)[of_doc]
    return tokens._replace(iob=numpy.where(by_default, MISSING, tokens.iob))


def read_reference(examples: Sequence[Example], predicted: TokenAttrs) -> TokenAttrs:
    """Read gold annotation, aligned to the tokens of the predicted docs. It is missing for tokens
    that can't be aligned, or whose entity can't."""
    reference = read_docs([eg.reference for eg in examples])
    if numpy.array_equal(reference.orth, predicted.orth) and numpy.array_equal(
        reference.lengths, predicted.lengths
    ):
        return predicted._replace(iob=reference.iob, label=reference.label)
    iob, label = numpy.zeros_like(predicted.iob), numpy.zeros_like(predicted.label)
    for i, eg in enumerate(examples):
        here, there = predicted.of_doc(i), reference.of_doc(i)
        if numpy.array_equal(predicted.orth[here], reference.orth[there]):
            iob[here], label[here] = reference.iob[there], reference.label[there]
            continue
        outside = [value == OUTSIDE for value in eg.get_aligned("ENT_IOB")]
        iob[here][outside] = OUTSIDE
        for span in eg.get_aligned_spans_y2x(eg.reference.ents):
            inside = slice(span.start, span.end)
            iob[here][inside], label[here][inside] = INSIDE, span.label
            iob[here][span.start] = BEGIN
    return predicted._replace(iob=iob, label=label)


def possible_paths(
    tokens: TokenAttrs, tags: Tags, strings: StringStore, *, untrained: Sequence[str] = ()
) -> Constraints:
    """The paths that the tag scheme and the docs allow, in training and in prediction. Preset
    annotation rules out all other tags. White space can't begin or end an entity. Only preset
    entities may have `untrained` labels. The path with only the preset entities is always possible.
    """
    preset = tokens.is_annotated
    has_preset = preset.any()
    if not (has_preset or untrained or tokens.is_space.any()):
        return tags.constraints
    possible = numpy.ones((len(tokens.iob), len(tags)), dtype=bool)
    possible[tokens.is_space] &= ~tags.at_border
    if untrained:
        possible &= ~numpy.isin(tags.label_of, [tags.labels.index(label) for label in untrained])
    if not has_preset:
        return tags.constraints._replace(emissions=possible)
    entities = tokens.entities(tags, strings)
    path = tags.gold_path(entities, preset)
    possible[preset] = tags.collapsed_of[path[preset]][:, None] == tags.collapsed_of
    possible[~preset & tags.follows_entity(path, tokens.lengths)] &= ~tags.continuing
    return tags.constraints._replace(emissions=possible)


def first_words(doc: Doc, n_words: int = 8) -> str:
    """The first words of a doc, to identify it in messages."""
    text = doc[:n_words].text
    return repr(text + " …" if len(doc) > n_words else text)
