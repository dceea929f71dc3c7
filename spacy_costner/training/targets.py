"""Training targets: which paths are possible, which are right, and how much they count.

`read_annotation` reads the docs of a batch, once. `make_targets` cuts them into sequences, once for
each segmentation, and makes what a loss needs besides the scores of the model. A preset token is
one whose entity the predicted doc has before the component runs. D is the number of docs, B that of
sequences.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy
from spacy.strings import StringStore
from spacy.tokens import Doc, Token
from spacy.training import Example
from thinc.types import Array1d, Floats1d, Ints1d, Ints2d

from .. import chain
from ..annotation import Annotation
from ..borders import cut
from ..ent_iob import INSIDE
from ..ragged import sequence_ids
from ..tags import OUTSIDE, Entities, Tags
from ..token_attrs import first_words, possible_paths, read_reference
from ..types import Constraints, Gold
from ..validation import check_cost
from .incorrect_spans import exclude, read_incorrect_spans
from .soft_targets import SoftTargets, cut_as_taught, read_soft_targets

NEGATED = "!"
"""The prefix of spaCy 2 for the label of a span that is not an entity. spaCy 3 refuses it."""

WEIGHT = "spacy_costner.weight"
"""The key in `doc.user_data` of the weight of a training doc, as `costner distill` writes it."""


class Targets(NamedTuple):
    """All that a loss needs of a batch, besides the scores of the model.

    tags (Tags): The tags of the chain.
    gold (Gold): The gold paths, without a cost, as NumPy arrays.
    constraints (Constraints): The possible paths. With incorrect spans these and gold are over more
        tags: see `Gold.tied_to`.
    lengths (Ints1d), doc_of (Ints1d): Number of tokens, and doc, of each sequence. Shapes: (B,)
    soft (SoftTargets | None): The targets of docs that a teacher has annotated.
    """

    tags: Tags
    gold: Gold
    constraints: Constraints
    lengths: Ints1d
    doc_of: Ints1d
    soft: SoftTargets | None = None

    def without_soft(self) -> "Targets":
        """The targets of a model that learns from gold alone, also in docs with soft targets."""
        return self._replace(soft=None)

    def leave_out_impossible(self) -> "tuple[Targets, Array1d]":
        """Leave out the sequences of which no possible path agrees with gold, as if they were not
        annotated: losses have no value there.

        RETURNS (tuple[Targets, Array1d]): The targets; and True for the sequences that are left
            out. Shape: (B,)
        """
        gold = self.gold
        possible = self.constraints.emissions
        if possible is None and self.soft is None:
            # Gold keeps to the tag scheme, and nothing else makes it impossible. (With soft targets
            # an entity may be across a border of the teacher's sequences.)
            return self, numpy.zeros(len(self.lengths), dtype=bool)

        # The tags that agree with gold, and of these the possible ones. Shapes: (N, K), or (N, K')
        # with incorrect spans, for which there are more tags than those of the chain.
        if possible is None:
            allowed = chain.to_mask(gold.token_tags, len(self.tags))
            agreeing = allowed
        else:
            allowed = chain.to_mask(gold.token_tags, possible.shape[1])
            agreeing = possible & allowed
        path = chain.any_path(self.constraints._replace(emissions=agreeing), self.lengths)
        is_left_out = numpy.isneginf(path.scores)

        in_left_out = numpy.repeat(is_left_out, self.lengths)
        is_annotated = (gold.tags >= 0) & ~in_left_out
        # The tags of a path that is possible: a preset may say which O precedes an entity.
        gold = gold._replace(tags=numpy.where(is_annotated, path.tags, -1))
        if is_left_out.any():
            gold = gold._replace(allowed=allowed | in_left_out[:, None])
        return self._replace(gold=gold), is_left_out


class Weights:
    """How much tokens and examples count in training, as the config has it.

    labels (Mapping[str, float] | None): Weight of the tokens of a gold entity, by label; "O" is
        for tokens outside of entities. 1 for labels that are not named.
    boundary (float): Factor for the first and the last token of a gold entity.
    token (str | None): Extension attribute of the reference's tokens with a factor.
    example (str | None): Extension attribute of the reference doc with its weight.
    RAISES (ValueError): If a weight is negative or not finite.
    """

    def __init__(
        self,
        *,
        labels: Mapping[str, float] | None = None,
        boundary: float = 1.0,
        token: str | None = None,
        example: str | None = None,
    ) -> None:
        where = "spacy_costner.Weights"
        self.labels: dict[str, float] = {}
        for label, weight in (labels or {}).items():
            self.labels[label] = check_cost(weight, f"{where}: labels.{label}")
        self.boundary = check_cost(boundary, f"{where}: boundary")
        self.token = token
        self.example = example

    @property
    def weighs_tokens(self) -> bool:
        """Whether tokens have other weights than 1."""
        return bool(self.labels) or self.boundary != 1 or self.token is not None

    def of_tokens(
        self, path: Ints1d, entities: Entities, tags: Tags, examples: Sequence[Example]
    ) -> Floats1d | None:
        """The weight of each token of the predicted docs: that of its label, times the factors.

        path (Ints1d): The gold tag of each token; -1, where annotation is missing, weighs as O.
            Shape: (N,)
        entities (Entities): The gold entities, of any label.
        tags (Tags): The tags of the path.
        examples (Sequence[Example]): The examples, for the factors of their tokens.
        RETURNS (Floats1d | None): The weights; None if all are 1. Shape: (N,)
        """
        if not self.weighs_tokens:
            return None
        weight_of_label = [self.labels.get(name, 1.0) for name in (*tags.labels, OUTSIDE)]
        # A missing tag, -1, becomes tag 0, O. The label of O is -1: its weight is the last one.
        label_of_token = tags.label_of[numpy.maximum(path, 0)]
        weights = numpy.asarray(weight_of_label, dtype="float32")[label_of_token]
        # The only token of an entity is its first and its last one, and has the factor once.
        boundary_tokens = numpy.concatenate([entities.begin, entities.end - 1])
        weights[numpy.unique(boundary_tokens)] *= self.boundary
        if self.token is not None:
            weights *= self._factors_of_tokens(self.token, examples)
        return weights

    def _factors_of_tokens(self, name: str, examples: Sequence[Example]) -> Floats1d:
        """The factor of each token of the predicted docs: the extension attribute of the token of
        the reference that it aligns with; 1 if it aligns with none or several. Shape: (N,)"""
        check_extension(Token, "token", name)
        factors: list[float] = []
        for eg in examples:
            factors_of_reference = [token._.get(name) for token in eg.reference]
            to_reference = eg.alignment.x2y
            for i, n_aligned in enumerate(to_reference.lengths):
                factor = 1.0
                if n_aligned == 1:
                    aligned_token = to_reference[i][0]
                    factor = factors_of_reference[aligned_token]
                factors.append(factor)
        return numpy.asarray(factors, dtype="float32")

    def of_examples(self, examples: Sequence[Example]) -> Floats1d | None:
        """The weight of each example: its extension attribute times what `doc.user_data` has under
        `WEIGHT`; None if all are 1. Shape: (D,)"""
        docs = [eg.reference for eg in examples]
        has_weights = any(WEIGHT in doc.user_data for doc in docs)
        if self.example is None and not has_weights:
            return None
        weights = numpy.asarray([doc.user_data.get(WEIGHT, 1.0) for doc in docs], dtype="float64")
        if self.example is not None:
            check_extension(Doc, "example", self.example)
            weights *= [doc._.get(self.example) for doc in docs]
        return weights


def check_extension(owner: type[Doc] | type[Token], setting: str, name: str) -> None:
    """RAISES (ValueError): If an extension attribute that `Weights` names is not registered for the
    docs or tokens that own it."""
    if not owner.has_extension(name):
        raise ValueError(
            f"spacy_costner.Weights: {setting}: expected the name of an extension attribute of "
            f"{owner.__name__}, to be registered with {owner.__name__}.set_extension before "
            f"training, got {name!r}"
        )


@dataclass(frozen=True, eq=False)
class AnnotatedBatch:
    """What the docs of a batch say of their paths, however they are cut into sequences.

    tags (Tags): The tags of the chain.
    annotation (Annotation): Where the annotation stands in docs.
    examples (list[Example]): The examples, with the spans to learn as entities.
    lengths (Ints1d): The number of tokens of each predicted doc. Shape: (D,)
    is_in_one_entity (Array1d): True for tokens in the same entity as the token before, preset or
        gold. Shape: (N,)
    constraints (Constraints): The possible paths.
    path (Ints1d): The gold tag of each token, as `Tags.gold_path` has it. Shape: (N,)
    token_weights (Floats1d | None): The weight of each token; None: 1. Shape: (N,)
    example_weights (Floats1d | None): The weight of each example; None: 1. Shape: (D,)
    """

    tags: Tags
    annotation: Annotation
    examples: list[Example]
    lengths: Ints1d
    is_in_one_entity: Array1d
    constraints: Constraints
    path: Ints1d
    token_weights: Floats1d | None
    example_weights: Floats1d | None

    def leave_out(self, is_left_out: Array1d) -> "AnnotatedBatch":
        """The batch with some examples as if they had neither annotation nor presets, and of weight
        0. `is_left_out` is True for these. Shape: (D,)"""
        weights = self.example_weights
        if weights is None:
            weights = numpy.ones(len(is_left_out))
        in_left_out = numpy.repeat(is_left_out, self.lengths)
        possible = self.constraints.emissions
        if possible is not None:
            # Losses need a possible path of all sequences, also of those of weight 0.
            possible = possible | in_left_out[:, None]
        return replace(
            self,
            example_weights=numpy.where(is_left_out, 0.0, weights),
            path=numpy.where(in_left_out, -1, self.path),
            constraints=self.constraints._replace(emissions=possible),
        )


def read_annotation(
    examples: Sequence[Example],
    tags: Tags,
    strings: StringStore,
    annotation: Annotation,
    weights: Weights,
    warned: set[str],
) -> AnnotatedBatch:
    """Read what the docs of a batch say of the paths of the chain. White space at the ends of gold
    entities is taken off.

    examples (Sequence[Example]): The batch, as it comes from the corpus.
    tags (Tags): The tags of the chain.
    strings (StringStore): The strings of the labels.
    annotation (Annotation): Where the annotation stands in the docs.
    weights (Weights): How much tokens and examples count.
    warned (set[str]): The warnings that were given before, which are not repeated. It is added to.
    RETURNS (AnnotatedBatch): The annotation.
    RAISES (ValueError): If the label of an entity says that it is none, as in spaCy 2.
    """
    examples = [annotation.as_entities(eg, tags.labels) for eg in examples]
    presets = annotation.read_presets([eg.predicted for eg in examples])
    reference = read_reference(examples, presets)
    constraints = possible_paths(presets, tags, strings)

    annotated_entities = reference.entities(tags, strings)
    entities = annotated_entities.trim(reference.is_space)
    path = tags.gold_path(entities, reference.is_annotated)
    batch = AnnotatedBatch(
        tags=tags,
        annotation=annotation,
        examples=examples,
        lengths=presets.lengths,
        is_in_one_entity=(presets.iob == INSIDE) | (reference.iob == INSIDE),
        constraints=constraints,
        path=path,
        token_weights=weights.of_tokens(path, entities, tags, examples),
        example_weights=weights.of_examples(examples),
    )
    _warn_of_entities(batch, annotated_entities, entities, warned)
    return batch


def _warn_of_entities(
    batch: AnnotatedBatch, annotated: Entities, trimmed: Entities, warned: set[str]
) -> None:
    """Warn, once, of gold entities that are not learned as they are annotated: white space at their
    ends is taken off, or they are O, as their label isn't one of the chain's. Labels with which
    spaCy 2 marked spans that are no entities are refused.

    batch (AnnotatedBatch): The batch.
    annotated (Entities), trimmed (Entities): Its gold entities, with and without white space.
    warned (set[str]): The warnings so far: see `read_annotation`.
    """
    component = batch.annotation.component
    is_unknown = annotated.label < 0
    if is_unknown.any():
        _refuse_negated_labels(batch.examples, component)
    begins_with_word = numpy.isin(annotated.begin, trimmed.begin)
    ends_with_word = numpy.isin(annotated.end, trimmed.end)
    is_trimmed = ~(begins_with_word & ends_with_word)
    for message, is_concerned in (
        ("white space at an end of an entity is taken off it", is_trimmed),
        (f"entities of other labels than {batch.tags.labels} count as O", is_unknown),
    ):
        if is_concerned.any() and message not in warned:
            warned.add(message)
            first_token = annotated.begin[is_concerned][0]
            doc = sequence_ids(batch.lengths)[first_token]
            words = first_words(batch.examples[doc].reference)
            warnings.warn(f"{component}: {message}, as in: {words}", stacklevel=2)


def _refuse_negated_labels(examples: Sequence[Example], component: str) -> None:
    """RAISES (ValueError): If the label of an entity says that it is none, as in spaCy 2."""
    for eg in examples:
        for ent in eg.reference.ents:
            if ent.label_.startswith(NEGATED):
                raise ValueError(
                    f"{component}: entities: expected spans that are no entities in doc.spans, "
                    f"under the incorrect_spans_key of the config, got {ent.label_!r} in "
                    f"{first_words(eg.reference)}"
                )


def make_targets(
    batch: AnnotatedBatch, is_border: Array1d, features: Ints2d | None = None
) -> Targets:
    """Cut the docs of a batch into sequences, and make their targets. An entity across a border
    joins two sequences, and docs with soft targets have those of their teacher. Docs whose
    annotation contradicts itself are left out, with a warning.

    batch (AnnotatedBatch): The annotation of the docs.
    is_border (Array1d): True for the tokens that begin a sequence, but for the first of each doc.
        Shape: (N,)
    features (Ints2d | None): As in `Gold`, if the loss uses them. Shape: (N, S)
    RETURNS (Targets): The targets.
    RAISES (ValueError): If a teacher has a label that the tags don't have.
    """
    tags = batch.tags
    lengths, doc_of = cut(batch.lengths, is_border & ~batch.is_in_one_entity)
    lengths, doc_of = cut_as_taught(batch.examples, lengths, doc_of)
    soft, is_untaught = read_soft_targets(
        batch.examples, tags, batch.constraints, lengths, doc_of, batch.example_weights
    )

    reason_of_doc: dict[int, str] = {}  # why docs are left out
    if is_untaught.any():
        batch = batch.leave_out(is_untaught)
        for i in numpy.flatnonzero(is_untaught).tolist():
            reason_of_doc[i] = "no path of its teacher has its preset entities"

    gold = _make_gold(batch, lengths, doc_of, features)
    constraints = batch.constraints
    spans_key = batch.annotation.incorrect_spans_key
    if spans_key is not None:
        spans = read_incorrect_spans(batch.examples, spans_key, tags, batch.lengths)
        if spans:
            gold, constraints = exclude(spans, gold, constraints, tags)

    targets = Targets(tags, gold, constraints, lengths, doc_of, soft)
    targets, is_left_out = targets.leave_out_impossible()
    if soft is not None:
        # The gold of docs with soft targets counts nowhere.
        is_left_out = is_left_out & (soft.weights == 0)
    for i in doc_of[is_left_out].tolist():
        reason = "its entities contradict preset ones or are among the incorrect spans"
        reason_of_doc.setdefault(i, reason)

    for i, reason in reason_of_doc.items():
        words = first_words(batch.examples[i].reference)
        name = batch.annotation.component
        warnings.warn(f"{name}: left out of training, as {reason}: {words}", stacklevel=4)
    return targets


def _make_gold(
    batch: AnnotatedBatch, lengths: Ints1d, doc_of: Ints1d, features: Ints2d | None
) -> Gold:
    """Make the gold of the sequences that docs are cut into, from their annotation, without a cost.

    batch (AnnotatedBatch): The annotation.
    lengths (Ints1d), doc_of (Ints1d): The length and the doc of each sequence. Shapes: (B,)
    features (Ints2d | None): As in `Gold`. Shape: (N, S)
    """
    tags = batch.tags
    allowed = None  # where gold is complete, its tags say it all
    if (batch.path < 0).any():
        allowed = tags.agreeing(batch.path, lengths)
    weights = None
    if batch.example_weights is not None:
        # All sequences of a doc have its weight.
        weights = batch.example_weights[doc_of]
    return Gold(
        tags=tags.split_outside(batch.path, lengths),
        allowed=allowed,
        token_weights=batch.token_weights,
        weights=weights,
        opening=tags.opening,
        continuing=tags.continuing,
        features=features,
        collapsed_of=tags.collapsed_of if tags.is_split else None,
    )
