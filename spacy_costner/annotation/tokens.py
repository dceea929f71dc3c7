"""The tokens of a batch of docs as arrays: their words, their annotation, and the paths that it
allows.

A *preset* entity is one that a doc has before the component runs. A *path* gives each token a tag.
Nothing here loops over tokens in Python, except if the predicted doc of an example has other tokens
than its reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, IS_SPACE, ORTH, SENT_START
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from ..tags import Entities, Tags, runs
from ..types import Constraints
from .doc_attributes import doc_lengths, read_attributes
from .iob import BEGIN, INSIDE, MISSING, OUTSIDE


@dataclass(eq=False)
class TokenAttrs:
    """The N tokens of a batch of B docs.

    orth (Ints1d): The hash of each token's word. Shape: (N,)
    iob (Ints1d): spaCy's ENT_IOB of each token: see `ent_iob`. Shape: (N,)
    label (Ints1d): The hash of the label of each token's entity, 0 for none. Shape: (N,)
    is_space (Array1d): True for whitespace tokens. Shape: (N,)
    begins_sentence (Array1d): True for tokens that are known to begin a sentence. Shape: (N,)
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    has_annotation (bool): Whether any token has entity annotation.
    has_space (bool): Whether any token is whitespace.
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
        # In prediction, docs usually have no annotation, and several steps can be skipped. So this
        # is computed once.
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
        """The slice of the arrays with the tokens of doc i."""
        end = int(self.lengths[: i + 1].sum())
        return slice(end - int(self.lengths[i]), end)

    def entities(self, tags: Tags, strings: StringStore) -> Entities:
        """Find the annotated entities.

        tags (Tags): The tag set. The label of an entity is its index in `tags.labels`.
        strings (StringStore): A string store, for the hashes of labels.
        RETURNS (Entities): The entities. If the tag set doesn't have the label of an entity, the
            label is -1.
        """
        # BEGIN without a label marks a blocked token, which is in no entity.
        is_first = (self.iob == BEGIN) & (self.label != 0)
        is_later = self.iob == INSIDE
        begin, end = runs(is_first, is_later, self.lengths)

        # All tokens of an entity have the hash of its label. Take it from the first token.
        entity_hashes = self.label[begin].tolist()
        label_hashes = [strings.as_int(label) for label in tags.labels]
        index_of_hash = {label_hash: i for i, label_hash in enumerate(label_hashes)}
        label_indices = [index_of_hash.get(entity_hash, -1) for entity_hash in entity_hashes]
        return Entities(begin, end, numpy.asarray(label_indices, dtype="int32"))


def read_token_attrs(docs: Sequence[Doc]) -> TokenAttrs:
    """Read the tokens of a batch of docs.

    docs (Sequence[Doc]): Docs, with or without annotation.
    RETURNS (TokenAttrs): Their tokens, with all annotation of entities.
    """
    attributes = [ORTH, ENT_IOB, ENT_TYPE, IS_SPACE, SENT_START]
    orth, iob, label, is_space, sentence_start = read_attributes(docs, attributes)
    return TokenAttrs(
        orth=orth,
        iob=iob.astype("int32"),
        label=label,
        is_space=is_space == 1,
        begins_sentence=sentence_start == 1,  # other values: no, or unknown
        lengths=doc_lengths(docs),
    )


def read_presets(docs: Sequence[Doc]) -> TokenAttrs:
    """Read docs before prediction, with their preset annotation. All other annotation is missing.

    A token with the annotation O is preset only if its doc also has tokens whose annotation is
    missing. Otherwise an entity ruler, for example, has set `doc.ents`, which makes all other
    tokens O.

    docs (Sequence[Doc]): The docs, which may have entities.
    RETURNS (TokenAttrs): Their tokens, with their preset annotation.
    """
    tokens = read_token_attrs(docs)
    if not tokens.has_annotation:
        return tokens
    iob = tokens.iob.copy()
    ends_of_docs = tokens.lengths.cumsum()
    for iob_of_doc in numpy.split(iob, ends_of_docs[:-1]):
        has_missing = (iob_of_doc == MISSING).any()
        if not has_missing:
            iob_of_doc[iob_of_doc == OUTSIDE] = MISSING  # it is a view of `iob`, which changes, too
    return replace(tokens, iob=iob)


def read_reference(examples: Sequence[Example], predicted: TokenAttrs) -> TokenAttrs:
    """Read the gold annotation of examples for the tokens of their predicted docs. A predicted doc
    may be tokenized differently from its reference: then tokens are aligned by their characters.
    The annotation of a token is missing if the token, or its entity, can't be aligned.

    examples (Sequence[Example]): The examples, with annotated references.
    predicted (TokenAttrs): The tokens of their predicted docs.
    RETURNS (TokenAttrs): The same tokens, with the gold annotation.
    """
    reference = read_token_attrs([eg.reference for eg in examples])
    has_same_lengths = numpy.array_equal(reference.lengths, predicted.lengths)
    if has_same_lengths and numpy.array_equal(reference.orth, predicted.orth):
        return replace(predicted, iob=reference.iob, label=reference.label)

    # Some predicted docs are tokenized differently from their references. Only these are aligned.
    iob = numpy.full_like(predicted.iob, MISSING)
    label = numpy.zeros_like(predicted.label)
    for i, eg in enumerate(examples):
        in_predicted = predicted.of_doc(i)
        in_reference = reference.of_doc(i)
        if numpy.array_equal(predicted.orth[in_predicted], reference.orth[in_reference]):
            iob[in_predicted] = reference.iob[in_reference]
            label[in_predicted] = reference.label[in_reference]
        else:
            # The slices are views, so `iob` and `label` change.
            _align_annotation(eg, iob[in_predicted], label[in_predicted])
    return replace(predicted, iob=iob, label=label)


def _align_annotation(example: Example, iob: Ints1d, label: Ints1d) -> None:
    """Align the gold annotation of an example with the tokens of its predicted doc, and write it to
    the arrays of these tokens: their ENT_IOB and the hashes of their labels. Where it can't be
    aligned, the arrays don't change. Shapes: (T,)"""
    # The ENT_IOB of the reference for each token of the predicted doc: None if it can't be aligned.
    # Only O is used here. If the first token of an entity is split, all its parts have BEGIN, so
    # entities are aligned as a whole below.
    aligned_iob = example.get_aligned("ENT_IOB")
    is_outside = [token_iob == OUTSIDE for token_iob in aligned_iob]
    iob[is_outside] = OUTSIDE
    for ent in example.get_aligned_spans_y2x(example.reference.ents):
        iob[ent.start] = BEGIN
        iob[ent.start + 1 : ent.end] = INSIDE
        label[ent.start : ent.end] = ent.label


def possible_paths(
    tokens: TokenAttrs, tags: Tags, strings: StringStore, *, untrained: Sequence[str] = ()
) -> Constraints:
    """Find the paths that are possible for docs, in training and in prediction:

    - The tags follow each other as the scheme allows.
    - A token with preset annotation has a tag that agrees with it.
    - An entity doesn't begin with whitespace and, in BILUO, doesn't end with it. (In IOB2, I-x may
      be its last tag or not. Whitespace at the end is removed later: see `Entities.trim`.)
    - An entity has no untrained label.

    The last two don't apply to preset entities, so that their path is always possible.

    tokens (TokenAttrs): The tokens, with their preset annotation.
    tags (Tags): The tags of the chain.
    strings (StringStore): A string store, for the hashes of labels.
    untrained (Sequence[str]): The labels that the model has not learned yet.
    RETURNS (Constraints): The possible tags and transitions.
    """
    if not (tokens.has_annotation or untrained or tokens.has_space):
        return tags.constraints  # all tags are possible at every token
    is_possible = numpy.ones((len(tokens.iob), len(tags)), dtype=bool)  # (N, K)
    is_possible[tokens.is_space] &= ~tags.at_border  # only a first or last token has these
    if untrained:
        untrained_labels = [tags.labels.index(label) for label in untrained]
        is_possible &= ~numpy.isin(tags.label_of, untrained_labels)

    if tokens.has_annotation:
        is_preset = tokens.is_annotated
        entities = tokens.entities(tags, strings)
        path = tags.gold_path(entities, is_preset)
        # For preset tokens, ignore whitespace and untrained labels: allow all tags, and then only
        # the tags that agree with the preset annotation.
        is_possible[is_preset] = True
        is_possible &= tags.agreeing(path, tokens.lengths)
    return tags.constraints._replace(emissions=is_possible)


def first_words(doc: Doc, n_words: int = 8) -> str:
    """The first words of a doc, which identify it in messages.

    doc (Doc): A doc with any tokens.
    n_words (int): The maximum number of words.
    RETURNS (str): The words in quotes, with an ellipsis if the doc has more words.
    """
    text = doc[:n_words].text
    if len(doc) > n_words:
        text += " …"
    return repr(text)
