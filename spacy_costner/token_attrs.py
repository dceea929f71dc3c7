"""Token attributes of docs as arrays: their words, their annotation, and the paths that it allows.

Docs are read once per batch. Nothing here loops over tokens in Python, except where the tokens of
the reference and of the predicted doc differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, IS_SPACE, ORTH, SENT_START
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from .doc_attributes import doc_lengths, read_attributes
from .ent_iob import BEGIN, INSIDE, MISSING, OUTSIDE
from .ragged import sequence_ids
from .tags import Entities, Tags, runs
from .types import Constraints


@dataclass(eq=False)
class TokenAttrs:
    """Token attributes of a batch of docs.

    orth (Ints1d): Hash of the word. Shape: (N,)
    iob (Ints1d): spaCy's ENT_IOB: see `ent_iob`. Shape: (N,)
    label (Ints1d): Hash of the entity label, 0 for none. Shape: (N,)
    is_space (Array1d): True for white space. Shape: (N,)
    begins_sentence (Array1d): True for tokens that are known to begin a sentence. Shape: (N,)
    lengths (Ints1d): Number of tokens of each doc. Shape: (B,)
    has_annotation (bool): Whether the entity annotation of a token is not missing.
    has_space (bool): Whether there is white space.
    """

    orth: Ints1d
    iob: Ints1d
    label: Ints1d
    is_space: Array1d
    begins_sentence: Array1d
    lengths: Ints1d
    has_annotation: bool = field(init=False)
    has_space: bool = field(init=False)

    def __post_init__(self) -> None:
        # In most docs that are predicted nothing is annotated: this spares looking again.
        self.has_annotation = bool(self.iob.any())
        self.has_space = bool(self.is_space.any())

    @property
    def is_annotated(self) -> Array1d:
        """True for tokens whose entity annotation is not missing. Shape: (N,)"""
        return self.iob != MISSING

    def without_annotation(self) -> "TokenAttrs":
        """The same tokens with their entity annotation missing."""
        if not self.has_annotation:
            return self
        return replace(self, iob=numpy.full_like(self.iob, MISSING))

    def of_doc(self, i: int) -> slice:
        """The positions of a doc's tokens."""
        end = int(self.lengths[: i + 1].sum())
        return slice(end - int(self.lengths[i]), end)

    def entities(self, tags: Tags, strings: StringStore) -> Entities:
        """The annotated entities. Label -1 is a label that the tag set doesn't have."""
        opening = (self.iob == BEGIN) & (self.label != 0)
        begin, end = runs(opening, self.iob == INSIDE, self.lengths)
        index_of_hash = {strings.as_int(label): i for i, label in enumerate(tags.labels)}
        hashes = self.label[begin].tolist()
        labels = [index_of_hash.get(label_hash, -1) for label_hash in hashes]
        return Entities(begin, end, numpy.asarray(labels, dtype="int32"))


def read_docs(docs: Sequence[Doc]) -> TokenAttrs:
    """Read the tokens of a batch of docs.

    docs (Sequence[Doc]): The docs.
    RETURNS (TokenAttrs): Their tokens, with all annotation of entities.
    """
    attributes = [ORTH, ENT_IOB, ENT_TYPE, IS_SPACE, SENT_START]
    orth, iob, label, is_space, sentence_start = read_attributes(docs, attributes)
    return TokenAttrs(
        orth,
        iob.astype("int32"),
        label,
        is_space == 1,
        sentence_start == 1,
        doc_lengths(docs),
    )


def read_presets(docs: Sequence[Doc]) -> TokenAttrs:
    """Read docs that are to be predicted, with their preset annotation; it is missing where nothing
    is preset. Setting `doc.ents`, as an entity ruler does, makes all other tokens O. So O is only
    preset in docs that also have missing tokens.

    docs (Sequence[Doc]): The docs.
    RETURNS (TokenAttrs): Their tokens, with their preset annotation only.
    """
    tokens = read_docs(docs)
    if not tokens.has_annotation:
        return tokens
    doc_of_token = sequence_ids(tokens.lengths)
    is_missing = tokens.iob == MISSING
    n_missing = numpy.bincount(doc_of_token, is_missing, len(tokens.lengths))
    is_complete = (n_missing == 0)[doc_of_token]
    is_outside_by_default = (tokens.iob == OUTSIDE) & is_complete
    return replace(tokens, iob=numpy.where(is_outside_by_default, MISSING, tokens.iob))


def read_reference(examples: Sequence[Example], predicted: TokenAttrs) -> TokenAttrs:
    """Read gold annotation, aligned to the tokens of the predicted docs. It is missing for tokens
    that can't be aligned, or whose entity can't.

    examples (Sequence[Example]): The examples.
    predicted (TokenAttrs): The tokens of their predicted docs.
    RETURNS (TokenAttrs): The same tokens, with the gold annotation.
    """
    reference = read_docs([eg.reference for eg in examples])
    has_same_lengths = numpy.array_equal(reference.lengths, predicted.lengths)
    if has_same_lengths and numpy.array_equal(reference.orth, predicted.orth):
        return replace(predicted, iob=reference.iob, label=reference.label)
    # Most docs of such a batch have the same tokens as their reference, and need no alignment.
    iob = numpy.zeros_like(predicted.iob)
    label = numpy.zeros_like(predicted.label)
    for i, eg in enumerate(examples):
        in_predicted = predicted.of_doc(i)
        in_reference = reference.of_doc(i)
        if numpy.array_equal(predicted.orth[in_predicted], reference.orth[in_reference]):
            iob[in_predicted] = reference.iob[in_reference]
            label[in_predicted] = reference.label[in_reference]
        else:
            _align_annotation(eg, iob[in_predicted], label[in_predicted])
    return replace(predicted, iob=iob, label=label)


def _align_annotation(example: Example, iob: Ints1d, label: Ints1d) -> None:
    """Write the gold annotation of an example in place, for the T tokens of its predicted doc. What
    can't be aligned stays as it is. Shapes: (T,)"""
    is_outside = [value == OUTSIDE for value in example.get_aligned("ENT_IOB")]
    iob[is_outside] = OUTSIDE
    for span in example.get_aligned_spans_y2x(example.reference.ents):
        iob[span.start] = BEGIN
        iob[span.start + 1 : span.end] = INSIDE
        label[span.start : span.end] = span.label


def possible_paths(
    tokens: TokenAttrs, tags: Tags, strings: StringStore, *, untrained: Sequence[str] = ()
) -> Constraints:
    """The paths that the tag scheme and the docs allow, in training and in prediction. Preset
    annotation rules out all other tags. White space can't begin or end an entity. The path with
    only the preset entities is always possible.

    tokens (TokenAttrs): The tokens, with their preset annotation.
    tags (Tags): The tags of the chain.
    strings (StringStore): The strings of the labels.
    untrained (Sequence[str]): Labels that only preset entities may have.
    RETURNS (Constraints): The possible tags and transitions.
    """
    is_preset = tokens.is_annotated
    if not (tokens.has_annotation or untrained or tokens.has_space):
        return tags.constraints
    possible = numpy.ones((len(tokens.iob), len(tags)), dtype=bool)
    possible[tokens.is_space] &= ~tags.at_border
    if untrained:
        untrained_labels = [tags.labels.index(label) for label in untrained]
        possible &= ~numpy.isin(tags.label_of, untrained_labels)
    if tokens.has_annotation:
        entities = tokens.entities(tags, strings)
        path = tags.gold_path(entities, is_preset)
        # All tags that count as the preset one: O may be split.
        preset_tags = tags.collapsed_of[path[is_preset]]
        possible[is_preset] = preset_tags[:, None] == tags.collapsed_of
        # A preset entity ends where its annotation does.
        is_after = ~is_preset & tags.follows_entity(path, tokens.lengths)
        possible[is_after] &= ~tags.continuing
    return tags.constraints._replace(emissions=possible)


def first_words(doc: Doc, n_words: int = 8) -> str:
    """The first words of a doc, to identify it in messages.

    doc (Doc): The doc.
    n_words (int): The number of words.
    RETURNS (str): The words in quotes, with an ellipsis if the doc has more.
    """
    text = doc[:n_words].text
    if len(doc) > n_words:
        text += " …"
    return repr(text)
