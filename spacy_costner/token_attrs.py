"""Token attributes of docs as arrays: their words, their annotation, and the paths that it allows.

Docs are read once per batch. Nothing here loops over tokens in Python, except where the tokens of
the reference and of the predicted doc differ. A preset entity is one that a doc has before the
component runs.
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
        """Where the tokens of doc i stand in the arrays."""
        end = int(self.lengths[: i + 1].sum())
        return slice(end - int(self.lengths[i]), end)

    def entities(self, tags: Tags, strings: StringStore) -> Entities:
        """Find the annotated entities.

        tags (Tags): The tag set, in whose labels those of the entities are indices.
        strings (StringStore): The strings of the docs' vocab, which has the hashes of labels.
        RETURNS (Entities): The entities. One whose label the tag set doesn't have has the label -1.
        """
        # A begin without a label is a blocked token, which no entity may have.
        opening = (self.iob == BEGIN) & (self.label != 0)
        begin, end = runs(opening, self.iob == INSIDE, self.lengths)

        id_of_hash: dict[int, int] = {}
        for i, label in enumerate(tags.labels):
            id_of_hash[strings.as_int(label)] = i
        label_hashes = self.label[begin].tolist()  # of the first token of each entity
        label_ids = [id_of_hash.get(label_hash, -1) for label_hash in label_hashes]
        return Entities(begin, end, numpy.asarray(label_ids, dtype="int32"))


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
    iob = tokens.iob.copy()
    ends_of_docs = tokens.lengths.cumsum()
    for iob_of_doc in numpy.split(iob, ends_of_docs[:-1]):
        has_missing = (iob_of_doc == MISSING).any()
        if not has_missing:
            iob_of_doc[iob_of_doc == OUTSIDE] = MISSING  # in `iob`, of which this is a view
    return replace(tokens, iob=iob)


def read_reference(examples: Sequence[Example], predicted: TokenAttrs) -> TokenAttrs:
    """Read the gold annotation of examples, aligned to the tokens of the predicted docs, which may
    be others than those of the references. It is missing for tokens that can't be aligned, or whose
    entity can't.

    examples (Sequence[Example]): The examples.
    predicted (TokenAttrs): The tokens of their predicted docs.
    RETURNS (TokenAttrs): The same tokens, with the gold annotation.
    """
    reference = read_docs([eg.reference for eg in examples])
    has_same_lengths = numpy.array_equal(reference.lengths, predicted.lengths)
    if has_same_lengths and numpy.array_equal(reference.orth, predicted.orth):
        return replace(predicted, iob=reference.iob, label=reference.label)

    # Some docs have other tokens than their references. Most have the same, and need no alignment.
    iob = numpy.full_like(predicted.iob, MISSING)
    label = numpy.zeros_like(predicted.label)
    for i, eg in enumerate(examples):
        in_predicted = predicted.of_doc(i)
        in_reference = reference.of_doc(i)
        if numpy.array_equal(predicted.orth[in_predicted], reference.orth[in_reference]):
            iob[in_predicted] = reference.iob[in_reference]
            label[in_predicted] = reference.label[in_reference]
        else:
            # The slices are views, which are written to.
            _align_annotation(eg, iob[in_predicted], label[in_predicted])
    return replace(predicted, iob=iob, label=label)


def _align_annotation(example: Example, iob: Ints1d, label: Ints1d) -> None:
    """Write the gold annotation of an example in place, for the T tokens of its predicted doc. What
    can't be aligned stays as it is. Shapes: (T,)"""
    # Of a token that can't be aligned the value is None.
    is_outside = [value == OUTSIDE for value in example.get_aligned("ENT_IOB")]
    iob[is_outside] = OUTSIDE
    for ent in example.get_aligned_spans_y2x(example.reference.ents):
        iob[ent.start] = BEGIN
        iob[ent.start + 1 : ent.end] = INSIDE
        label[ent.start : ent.end] = ent.label


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
    if not (tokens.has_annotation or untrained or tokens.has_space):
        return tags.constraints  # which are the same for all tokens
    possible = numpy.ones((len(tokens.iob), len(tags)), dtype=bool)  # (N, K)
    possible[tokens.is_space] &= ~tags.at_border
    if untrained:
        untrained_labels = [tags.labels.index(label) for label in untrained]
        possible &= ~numpy.isin(tags.label_of, untrained_labels)

    if tokens.has_annotation:
        is_preset = tokens.is_annotated
        entities = tokens.entities(tags, strings)
        path = tags.gold_path(entities, is_preset)
        # A preset entity may begin or end with white space, and have an untrained label.
        possible[is_preset] = True
        possible &= tags.agreeing(path, tokens.lengths)
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
