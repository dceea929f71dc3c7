"""The tokens of a batch of docs as arrays, including their annotation, and the possible paths of
tags.

A *preset* entity is an entity that is set on a doc before the component runs. A *path* assigns a
tag to each token. For performance, tokens are not processed in Python loops, except to align
differently tokenized docs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, IS_SPACE, ORTH, SENT_START
from spacy.strings import StringStore
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.types import Array1d, Ints1d

from ..tags import NO_ENTITIES, Entities, Tags, runs
from ..types import Constraints
from .doc_attributes import doc_lengths, read_attributes
from .iob import BEGIN, INSIDE, MISSING, OUTSIDE


@dataclass(eq=False)
class TokenAttrs:
    """The N tokens of a batch of B docs.

    orth (Ints1d): The hash of each token's text. Shape: (N,)
    iob (Ints1d): spaCy's ENT_IOB of each token: see `annotation.iob`. Shape: (N,)
    label (Ints1d): The hash of each token's entity label, or 0. Shape: (N,)
    is_space (Array1d): True for whitespace tokens. Shape: (N,)
    begins_sentence (Array1d): True for tokens that start a sentence. Shape: (N,)
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
        # These are only computed once. During prediction, docs usually have no annotation, and
        # several steps can be skipped.
        self.has_annotation = bool(self.iob.any())
        self.has_space = bool(self.is_space.any())

    @property
    def is_annotated(self) -> Array1d:
        """A mask of the tokens with entity annotation. Shape: (N,)"""
        return self.iob != MISSING

    def without_annotation(self) -> "TokenAttrs":
        """Return the tokens without entity annotation."""
        if not self.has_annotation:
            return self
        return replace(self, iob=numpy.full_like(self.iob, MISSING))

    def of_doc(self, i: int) -> slice:
        """Return the slice of the arrays that contains the tokens of doc i."""
        end = int(self.lengths[: i + 1].sum())
        return slice(end - int(self.lengths[i]), end)

    def entities(self, tags: Tags, strings: StringStore) -> Entities:
        """Find the annotated entities.

        tags (Tags): The tag set. Labels are returned as indices into `tags.labels`.
        strings (StringStore): A string store for computing the hashes of labels.
        RETURNS (Entities): The entities. The label is -1 for labels that are not in the tag set.
        """
        # BEGIN without a label marks a blocked token, which can't be part of an entity.
        is_first = (self.iob == BEGIN) & (self.label != 0)
        is_later = self.iob == INSIDE
        begin, end = runs(is_first, is_later, self.lengths)

        # All tokens of an entity have the same label, so read it from the first token.
        hashed = Entities(begin, end, self.label[begin])
        return with_label_indices(hashed, tags, strings)


class AlignedReference(NamedTuple):
    """The gold annotation of examples, aligned with the N tokens of the predicted docs.

    tokens (TokenAttrs): The tokens of the predicted docs with the gold annotation. The annotation
        of a token is missing if the token or its entity can't be aligned.
    is_annotated (Array1d): Whether each token is annotated in the reference, even if its annotation
        can't be aligned. Shape: (N,)
    misaligned (Entities): The entities that don't begin and end with a token of the predicted doc.
        Each of them includes all tokens with which it shares characters, so they may overlap. The
        labels are hashes: see `with_label_indices`.
    """

    tokens: TokenAttrs
    is_annotated: Array1d
    misaligned: Entities


def with_label_indices(hashed: Entities, tags: Tags, strings: StringStore) -> Entities:
    """Convert the labels of entities from hashes to indices.

    hashed (Entities): The entities, whose labels are hashes.
    tags (Tags): The tag set. Labels are returned as indices into `tags.labels`.
    strings (StringStore): A string store for computing the hashes of labels.
    RETURNS (Entities): The entities. The label is -1 for labels that are not in the tag set.
    """
    label_hashes = [strings.as_int(label) for label in tags.labels]
    index_of_hash = {label_hash: i for i, label_hash in enumerate(label_hashes)}
    indices = [index_of_hash.get(entity_hash, -1) for entity_hash in hashed.label.tolist()]
    return hashed._replace(label=numpy.asarray(indices, dtype="int32"))


def read_token_attrs(docs: Sequence[Doc]) -> TokenAttrs:
    """Read the tokens of a batch of docs.

    docs (Sequence[Doc]): The docs, with or without annotation.
    RETURNS (TokenAttrs): The tokens with their entity annotation.
    """
    attributes = [ORTH, ENT_IOB, ENT_TYPE, IS_SPACE, SENT_START]
    orth, iob, label, is_space, sentence_start = read_attributes(docs, attributes)
    return TokenAttrs(
        orth=orth,
        iob=iob.astype("int32"),
        label=label,
        is_space=is_space == 1,
        begins_sentence=sentence_start == 1,  # -1: no sentence start, 0: unknown
        lengths=doc_lengths(docs),
    )


def read_presets(docs: Sequence[Doc]) -> TokenAttrs:
    """Read the tokens of docs and their preset annotation before prediction.

    Tokens annotated as O are only treated as preset if the doc also contains tokens with missing
    annotation. Otherwise, the O annotation is probably a side effect of setting `doc.ents`, for
    example by an entity ruler.

    docs (Sequence[Doc]): The docs, which may have preset entities.
    RETURNS (TokenAttrs): The tokens with their preset annotation.
    """
    tokens = read_token_attrs(docs)
    if not tokens.has_annotation:
        return tokens
    iob = tokens.iob.copy()
    ends_of_docs = tokens.lengths.cumsum()
    for iob_of_doc in numpy.split(iob, ends_of_docs[:-1]):
        has_missing = (iob_of_doc == MISSING).any()
        if not has_missing:
            iob_of_doc[iob_of_doc == OUTSIDE] = MISSING  # a view, so this modifies `iob`
    return replace(tokens, iob=iob)


def read_reference(examples: Sequence[Example], predicted: TokenAttrs) -> TokenAttrs:
    """Read the gold annotation of examples and align it with the tokens of the predicted docs. The
    annotation of a token is missing if the token or its entity can't be aligned.

    examples (Sequence[Example]): The examples, with annotated references.
    predicted (TokenAttrs): The tokens of the predicted docs.
    RETURNS (TokenAttrs): The same tokens with the gold annotation.
    """
    return align_reference(examples, predicted).tokens


def align_reference(examples: Sequence[Example], predicted: TokenAttrs) -> AlignedReference:
    """Read the gold annotation of examples, align it with the tokens of the predicted docs, and
    find the annotation that can't be aligned.

    examples (Sequence[Example]): The examples, with annotated references.
    predicted (TokenAttrs): The tokens of the predicted docs.
    RETURNS (AlignedReference): The tokens with the gold annotation, and the entities that can't be
        aligned.
    """
    reference = read_token_attrs([eg.reference for eg in examples])
    has_same_lengths = numpy.array_equal(reference.lengths, predicted.lengths)
    if has_same_lengths and numpy.array_equal(reference.orth, predicted.orth):
        tokens = replace(predicted, iob=reference.iob, label=reference.label)
        return AlignedReference(tokens, tokens.is_annotated, NO_ENTITIES)

    # Only align predicted docs that are tokenized differently from their references.
    iob = numpy.full_like(predicted.iob, MISSING)
    label = numpy.zeros_like(predicted.label)
    is_annotated = numpy.zeros(len(iob), dtype=bool)
    misaligned: list[tuple[int, int, int]] = []  # start, end and label hash
    for i, eg in enumerate(examples):
        in_predicted = predicted.of_doc(i)
        in_reference = reference.of_doc(i)
        if numpy.array_equal(predicted.orth[in_predicted], reference.orth[in_reference]):
            iob[in_predicted] = reference.iob[in_reference]
            label[in_predicted] = reference.label[in_reference]
        else:
            # The slices are views, so this modifies `iob` and `label`.
            misaligned_in_doc = _align_annotation(eg, iob[in_predicted], label[in_predicted])
            for begin, end, label_hash in misaligned_in_doc:
                first_token = in_predicted.start
                misaligned.append((first_token + begin, first_token + end, label_hash))
            is_annotated[in_predicted] = _has_annotation(eg, reference.iob[in_reference])
    tokens = replace(predicted, iob=iob, label=label)
    return AlignedReference(
        tokens,
        is_annotated=is_annotated | tokens.is_annotated,
        misaligned=_hashed_entities(misaligned),
    )


def align_spans(
    examples: Sequence[Example], spans_of_docs: Iterable[Iterable[Span]]
) -> tuple[Entities, Entities]:
    """Align annotated spans, which may overlap, with the tokens of the predicted docs.

    examples (Sequence[Example]): The examples.
    spans_of_docs (Iterable[Iterable[Span]]): The spans of each reference doc.
    RETURNS (tuple[Entities, Entities]): The spans that begin and end with tokens of the predicted
        doc, and the misaligned spans: see `AlignedReference`. The labels of both are hashes.
    """
    aligned: list[tuple[int, int, int]] = []
    misaligned: list[tuple[int, int, int]] = []
    first_token = 0  # the first token of the doc in the batch
    for eg, spans in zip(examples, spans_of_docs):
        for span in spans:
            place = _find_touched_tokens(eg, span)
            if place is None:
                continue
            begin, end = place
            is_aligned = len(eg.get_aligned_spans_y2x([span], allow_overlap=True)) > 0
            entities = aligned if is_aligned else misaligned
            entities.append((first_token + begin, first_token + end, span.label))
        first_token += len(eg.predicted)
    return _hashed_entities(aligned), _hashed_entities(misaligned)


def _hashed_entities(rows: Sequence[tuple[int, int, int]]) -> Entities:
    """Convert rows of start, end and label hash to entities."""
    # Hashes only fit into unsigned integers. Shape: (E, 3)
    columns = numpy.asarray(rows, dtype="uint64").reshape(-1, 3).T
    return Entities(columns[0].astype("int64"), columns[1].astype("int64"), columns[2])


def _find_touched_tokens(example: Example, span: Span) -> tuple[int, int] | None:
    """Find the tokens of the predicted doc with which a span of the reference shares characters.
    Returns the first token and the token after the last, or None if there are no such tokens.
    Whitespace may have none."""
    tokens = example.alignment.y2x[span.start : span.end].tolist()
    if not tokens:
        return None
    return tokens[0], tokens[-1] + 1


def _align_annotation(example: Example, iob: Ints1d, label: Ints1d) -> list[tuple[int, int, int]]:
    """Align the gold annotation of an example with the tokens of its predicted doc. Writes the
    ENT_IOB and the label hashes of aligned tokens to the given arrays. Returns the first token, the
    token after the last and the label hash of each entity that can't be aligned. Shapes: (T,)"""
    # The ENT_IOB of the reference token aligned with each token, or None. Only O is used here,
    # because BEGIN would be repeated for all parts of a split token. Below, entities are aligned as
    # a whole.
    aligned_iob = example.get_aligned("ENT_IOB")
    is_outside = [token_iob == OUTSIDE for token_iob in aligned_iob]
    iob[is_outside] = OUTSIDE
    aligned_places: set[tuple[int, int]] = set()
    for ent in example.get_aligned_spans_y2x(example.reference.ents):
        iob[ent.start] = BEGIN
        iob[ent.start + 1 : ent.end] = INSIDE
        label[ent.start : ent.end] = ent.label
        aligned_places.add((ent.start, ent.end))

    misaligned: list[tuple[int, int, int]] = []
    for ent in example.reference.ents:
        place = _find_touched_tokens(example, ent)
        if place is not None and place not in aligned_places:
            misaligned.append((*place, ent.label))
    return misaligned


def _has_annotation(example: Example, reference_iob: Ints1d) -> Array1d:
    """Check for each token of a predicted doc whether all reference tokens with which it shares
    characters are annotated. `reference_iob` is the ENT_IOB of all reference tokens. Shape: (T,)"""
    x2y = example.alignment.x2y
    # The predicted token of each pair of a predicted and a reference token
    tokens = numpy.repeat(numpy.arange(len(x2y.lengths)), x2y.lengths)
    is_missing = reference_iob[x2y.data] == MISSING
    n_missing = numpy.bincount(tokens, weights=is_missing, minlength=len(x2y.lengths))
    return (x2y.lengths > 0) & (n_missing == 0)


def possible_paths(
    tokens: TokenAttrs, tags: Tags, strings: StringStore, *, untrained: Sequence[str] = ()
) -> Constraints:
    """Determine the possible paths of docs, for training and prediction:

    - The transitions are valid in the tag scheme.
    - The tags of preset tokens match the preset annotation.
    - Entities don't start with whitespace and, in BILUO, don't end with whitespace. (In IOB2, the
      last tag of an entity isn't marked, so trailing whitespace is stripped later: see
      `Entities.trim`.)
    - Untrained labels are not predicted.

    The last two conditions don't apply to preset entities, so that their paths are always possible.

    tokens (TokenAttrs): The tokens with their preset annotation.
    tags (Tags): The tags of the chain.
    strings (StringStore): A string store for computing the hashes of labels.
    untrained (Sequence[str]): The labels that the model hasn't been trained on yet.
    RETURNS (Constraints): The possible tags and transitions.
    """
    if not (tokens.has_annotation or untrained or tokens.has_space):
        return tags.constraints  # all tags are possible at every token
    is_possible = numpy.ones((len(tokens.iob), len(tags)), dtype=bool)  # (N, K)
    is_possible[tokens.is_space] &= ~tags.at_border  # tags of the first or last token of an entity
    if untrained:
        untrained_labels = [tags.labels.index(label) for label in untrained]
        is_possible &= ~numpy.isin(tags.label_of, untrained_labels)

    if tokens.has_annotation:
        is_preset = tokens.is_annotated
        entities = tokens.entities(tags, strings)
        path = tags.gold_path(entities, is_preset)
        # For preset tokens, ignore the conditions on whitespace and untrained labels. Only require
        # tags that match the preset annotation.
        is_possible[is_preset] = True
        is_possible &= tags.agreeing(path, tokens.lengths)
    return tags.constraints._replace(emissions=is_possible)


def first_words(doc: Doc, n_words: int = 8) -> str:
    """Return the first words of a doc, to identify it in messages.

    doc (Doc): The doc.
    n_words (int): The maximum number of words.
    RETURNS (str): The quoted words, with an ellipsis if the doc has more words.
    """
    text = doc[:n_words].text
    if len(doc) > n_words:
        text += " …"
    return repr(text)
