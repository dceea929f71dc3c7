"""Training targets: which paths are possible, which are correct, and how they are weighted.

First, `read_annotation` reads the docs of a batch. Then `make_targets` cuts the docs into sequences
and creates the targets: the inputs of a loss, apart from the model's scores. It is called once for
each segmentation of the docs (see `segmentations`).

Preset entities are entities that were set on the predicted doc before the component runs. The
component keeps them, so paths without them are impossible.

In shapes, D is the number of docs, B the number of sequences, N the number of tokens, and K the
number of tags.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy
from spacy.strings import StringStore
from spacy.tokens import Doc, Token
from spacy.training import Example
from thinc.types import Array1d, Floats1d, Ints1d, Ints2d

from .. import chain
from ..annotation.borders import cut
from ..annotation.iob import INSIDE
from ..annotation.settings import Annotation
from ..annotation.tokens import first_words, possible_paths, read_reference
from ..ragged import sequence_ids
from ..tags import OUTSIDE, Entities, Tags
from ..types import Constraints, Gold
from ..validation import check_cost
from .incorrect_spans import exclude_spans, read_incorrect_spans
from .soft_targets import SoftTargets, cut_as_teacher, read_soft_targets

NEGATED = "!"
"""The label prefix that marks spans as non-entities in spaCy 2. spaCy 3 rejects it."""

WEIGHT = "spacy_costner.weight"
"""The key in `doc.user_data` for the weight of a training doc, as written by `distill`."""


class Targets(NamedTuple):
    """The inputs of a loss for a batch, other than the model's scores.

    tags (Tags): The tags of the chain.
    gold (Gold): The gold paths, as NumPy arrays. The field `costs` is not set.
    constraints (Constraints): The possible paths. If there are incorrect spans, the chain has
        additional tags here and in `gold`: see `Gold.tied_to`.
    lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
    doc_of_sequence (Ints1d): The index of each sequence's doc in the batch. Shape: (B,)
    soft (SoftTargets | None): The soft targets, if any doc has them.
    """

    tags: Tags
    gold: Gold
    constraints: Constraints
    lengths: Ints1d
    doc_of_sequence: Ints1d
    soft: SoftTargets | None = None

    def leave_out_impossible(self) -> "tuple[Targets, Array1d]":
        """Exclude sequences in which no possible path agrees with gold, because their loss would be
        infinite. They become sequences without annotation.

        RETURNS (tuple[Targets, Array1d]): The new targets, and a mask that is True for excluded
            sequences. Shape: (B,)
        """
        gold = self.gold
        is_possible = self.constraints.emissions
        if is_possible is None and self.soft is None:
            # Gold follows the tag scheme, and no preset entity contradicts it. This isn't
            # guaranteed for docs with soft targets, because their teacher may cut them within an
            # entity.
            return self, numpy.zeros(len(self.lengths), dtype=bool)

        # `is_allowed` is True for tags that agree with gold. `is_right` is True for allowed tags
        # that are also possible. With incorrect spans, the chain has additional tags, so K is the
        # number of columns of `is_possible`. Shapes: (N, K)
        if is_possible is None:
            is_allowed = chain.to_mask(gold.token_tags, len(self.tags))
            is_right = is_allowed
        else:
            is_allowed = chain.to_mask(gold.token_tags, is_possible.shape[1])
            is_right = is_possible & is_allowed
        path = chain.any_path(self.constraints._replace(emissions=is_right), self.lengths)
        # The score is minus infinity if there is no such path.
        is_left_out = numpy.isneginf(path.scores)

        in_left_out = numpy.repeat(is_left_out, self.lengths)
        is_annotated = (gold.tags >= 0) & ~in_left_out
        # Use the gold tags of a possible path. If there are several tags for O, a preset entity may
        # determine which of them is correct.
        gold = gold._replace(tags=numpy.where(is_annotated, path.tags, -1))
        if is_left_out.any():
            gold = gold._replace(allowed=is_allowed | in_left_out[:, None])
        return self._replace(gold=gold), is_left_out


class Weights:
    """The weights of tokens and examples in training, as set in the config. All weights and factors
    must be finite and at least 0.

    labels (Mapping[str, float] | None): The weights of tokens in gold entities, by label. Use "O"
        for tokens outside entities. Other labels have the weight 1.
    boundary (float): A factor for the first and last token of each gold entity.
    token (str | None): The name of a token extension attribute with an additional factor. It is
        read from the reference doc.
    example (str | None): The name of a doc extension attribute with the weight of the example. It
        is read from the reference doc.
    RAISES (ValueError): If the weight of a label, or `boundary`, is negative or not finite. The
        values of extension attributes are checked when they are read.
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
        """Whether any token may have a weight other than 1."""
        return bool(self.labels) or self.boundary != 1 or self.token is not None

    def of_tokens(
        self, path: Ints1d, entities: Entities, tags: Tags, examples: Sequence[Example]
    ) -> Floats1d | None:
        """Compute the weight of each token in the predicted docs: the weight of its label,
        multiplied by the factors. `path` contains the gold tag of each token, or -1 if the
        annotation is missing. Returns None if all weights are 1. Shapes: (N,) to (N,)

        RAISES (ValueError): If the extension attribute `token` is not registered, or its value is
            not a valid weight.
        """
        if not self.weighs_tokens:
            return None
        weight_of_label = [self.labels.get(name, 1.0) for name in (*tags.labels, OUTSIDE)]
        # Treat tokens without annotation (-1) as tag 0, which is O. The label of O is -1, which
        # selects the last weight.
        label_of_token = tags.label_of[numpy.maximum(path, 0)]
        weights = numpy.asarray(weight_of_label, dtype="float32")[label_of_token]
        # Use `unique` to apply the factor only once to entities with a single token.
        boundary_tokens = numpy.concatenate([entities.begin, entities.end - 1])
        weights[numpy.unique(boundary_tokens)] *= self.boundary
        if self.token is not None:
            weights *= self._factors_of_tokens(self.token, examples)
        return weights

    def _factors_of_tokens(self, name: str, examples: Sequence[Example]) -> Floats1d:
        """Read the factor of each token in the predicted docs from the extension attribute `name`
        of the aligned reference token. The factor is 1 if the token is aligned with no token or
        with several tokens. Shape: (N,)

        RAISES (ValueError): If the attribute is not registered, or its value is not a valid weight.
        """
        check_extension(Token, "token", name)
        where = f"spacy_costner.Weights: token: token._.{name}"
        factors: list[float] = []
        for eg in examples:
            factors_of_reference = [check_cost(token._.get(name), where) for token in eg.reference]
            to_reference = eg.alignment.x2y
            for i, n_aligned in enumerate(to_reference.lengths):
                factor = 1.0
                if n_aligned == 1:
                    aligned_token = to_reference[i][0]
                    factor = factors_of_reference[aligned_token]
                factors.append(factor)
        return numpy.asarray(factors, dtype="float32")

    def of_examples(self, examples: Sequence[Example]) -> Floats1d | None:
        """Compute the weight of each example: the value of its extension attribute, multiplied by
        the weight that `distill` stored in `doc.user_data` under `WEIGHT`. Returns None if all
        weights are 1. Shape: (D,)

        RAISES (ValueError): If the extension attribute `example` is not registered, or its value is
            not a valid weight.
        """
        docs = [eg.reference for eg in examples]
        has_weights = any(WEIGHT in doc.user_data for doc in docs)
        if self.example is None and not has_weights:
            return None
        weights = numpy.asarray([doc.user_data.get(WEIGHT, 1.0) for doc in docs], dtype="float64")
        if self.example is not None:
            check_extension(Doc, "example", self.example)
            where = f"spacy_costner.Weights: example: doc._.{self.example}"
            weights *= [check_cost(doc._.get(self.example), where) for doc in docs]
        return weights


def check_extension(owner: type[Doc] | type[Token], setting: str, name: str) -> None:
    """Check that an extension attribute is registered for docs or tokens. `setting` is the setting
    of `Weights` that contains its name.

    RAISES (ValueError): If the attribute isn't registered.
    """
    if not owner.has_extension(name):
        raise ValueError(
            f"spacy_costner.Weights: {setting}: expected the name of an extension attribute of "
            f"{owner.__name__}, registered with {owner.__name__}.set_extension before training, "
            f"got {name!r}"
        )


@dataclass(frozen=True, eq=False)
class AnnotatedBatch:
    """The annotation of a batch of docs, before the docs are cut into sequences.

    tags (Tags): The tags of the chain.
    annotation (Annotation): The settings for reading the annotation from docs.
    examples (list[Example]): The examples. The gold entities are always in `doc.ents`, even if the
        component is trained on a key of `doc.spans`.
    lengths (Ints1d): The number of tokens in each predicted doc. Shape: (D,)
    continues_entity (Array1d): True for tokens that belong to the same preset or gold entity as the
        previous token. Shape: (N,)
    constraints (Constraints): The possible paths.
    path (Ints1d): The gold tag of each token, or -1 if the annotation is missing, as returned by
        `Tags.gold_path`. Shape: (N,)
    token_weights (Floats1d | None): The weight of each token. If None, it is 1. Shape: (N,)
    example_weights (Floats1d | None): The weight of each example. If None, it is 1. Shape: (D,)
    """

    tags: Tags
    annotation: Annotation
    examples: list[Example]
    lengths: Ints1d
    continues_entity: Array1d
    constraints: Constraints
    path: Ints1d
    token_weights: Floats1d | None
    example_weights: Floats1d | None

    def leave_out(self, is_left_out: Array1d) -> "AnnotatedBatch":
        """Exclude examples from training: set their weight to 0, and remove their annotation and
        preset entities. `is_left_out` is True for the examples to exclude. Shape: (D,)"""
        weights = self.example_weights
        if weights is None:
            weights = numpy.ones(len(is_left_out))
        in_left_out = numpy.repeat(is_left_out, self.lengths)
        is_possible = self.constraints.emissions
        if is_possible is not None:
            # Allow all tags, because losses need a possible path even if the weight is 0.
            is_possible = is_possible | in_left_out[:, None]
        return replace(
            self,
            example_weights=numpy.where(is_left_out, 0.0, weights),
            path=numpy.where(in_left_out, -1, self.path),
            constraints=self.constraints._replace(emissions=is_possible),
        )


def read_annotation(
    examples: Sequence[Example],
    tags: Tags,
    strings: StringStore,
    annotation: Annotation,
    weights: Weights,
    warned: set[str],
    *,
    labels_are_given: bool = True,
) -> AnnotatedBatch:
    """Read the annotation of a batch of docs: preset entities, gold entities and weights.
    Whitespace at the ends of gold entities is removed, with a warning. Entities with unknown labels
    count as O if the user chose the labels. Otherwise, they count as missing annotation. A warning
    is issued in both cases.

    examples (Sequence[Example]): The batch, as read from the corpus.
    tags (Tags): The tags of the chain.
    strings (StringStore): The string store that contains the labels.
    annotation (Annotation): The settings for reading the annotation from docs.
    weights (Weights): The weights of tokens and examples.
    warned (set[str]): Previous warnings, which are not repeated. New warnings are added to the set.
    labels_are_given (bool): Whether the user chose the labels. Otherwise, they were inferred from
        the examples that `initialize` received, which are only the first examples of a streamed
        corpus.
    RETURNS (AnnotatedBatch): The annotation.
    RAISES (ValueError): If spans with `own_labels` overlap (see `Annotation.as_entities`), if an
        extension attribute of the weights is not registered or its value is not a valid weight, or
        if a label begins with "!", which marks spans as non-entities in spaCy 2.
    """
    labels = tags.labels if labels_are_given else None
    examples = [annotation.as_entities(eg, labels) for eg in examples]
    presets = annotation.read_presets([eg.predicted for eg in examples])
    reference = read_reference(examples, presets)
    constraints = possible_paths(presets, tags, strings)

    annotated_entities = reference.entities(tags, strings)
    entities = annotated_entities.trim(reference.is_space)
    is_annotated = reference.is_annotated
    if not labels_are_given:
        has_other_label = annotated_entities.select(annotated_entities.label < 0)
        is_annotated = is_annotated & ~_is_inside(has_other_label, len(is_annotated))
    path = tags.gold_path(entities, is_annotated)
    batch = AnnotatedBatch(
        tags=tags,
        annotation=annotation,
        examples=examples,
        lengths=presets.lengths,
        continues_entity=(presets.iob == INSIDE) | (reference.iob == INSIDE),
        constraints=constraints,
        path=path,
        token_weights=weights.of_tokens(path, entities, tags, examples),
        example_weights=weights.of_examples(examples),
    )
    _warn_of_entities(batch, annotated_entities, entities, warned, labels_are_given)
    return batch


def _is_inside(entities: Entities, n_tokens: int) -> Array1d:
    """Return a mask that is True for the tokens of entities. Shape: (N,)"""
    # 1 at the first token of each entity and -1 after its last token. The cumulative sum is above 0
    # inside entities. Shape: (N + 1,)
    changes = numpy.zeros(n_tokens + 1, dtype="int64")
    numpy.add.at(changes, entities.begin, 1)
    numpy.add.at(changes, entities.end, -1)
    return cast(Array1d, numpy.cumsum(changes[:-1]) > 0)


def _warn_of_entities(
    batch: AnnotatedBatch,
    annotated: Entities,
    trimmed: Entities,
    warned: set[str],
    labels_are_given: bool,
) -> None:
    """Warn about gold entities that are not learned as annotated, either because whitespace at
    their ends is removed or because the chain doesn't include their labels. Warnings are not
    repeated. `trimmed` contains the entities of `annotated` without whitespace. It doesn't include
    entities that consist only of whitespace.

    RAISES (ValueError): If a label begins with "!": see `read_annotation`.
    """
    component = batch.annotation.component
    is_unknown = annotated.label < 0
    if is_unknown.any():
        _refuse_negated_labels(batch.examples, component)
    begins_with_word = numpy.isin(annotated.begin, trimmed.begin)
    ends_with_word = numpy.isin(annotated.end, trimmed.end)
    is_trimmed = ~(begins_with_word & ends_with_word)
    other_labels = f"entities with labels other than {batch.tags.labels}"
    if labels_are_given:
        unknown_message = f"{other_labels} count as O"
    else:
        unknown_message = (
            f"{other_labels} are missing annotation, as the examples of `initialize` don't have "
            f"them: list all labels under [initialize.components.{component}] labels (see `spacy "
            f"init labels`)"
        )
    for message, is_concerned in (
        ("whitespace at an end of an entity is removed", is_trimmed),
        (unknown_message, is_unknown),
    ):
        if is_concerned.any() and message not in warned:
            warned.add(message)
            first_token = annotated.begin[is_concerned][0]
            doc = sequence_ids(batch.lengths)[first_token]
            words = first_words(batch.examples[doc].reference)
            warnings.warn(f"{component}: {message}, as in: {words}", stacklevel=2)


def _refuse_negated_labels(examples: Sequence[Example], component: str) -> None:
    """Raise an error for labels that mark spans as non-entities in spaCy 2.

    RAISES (ValueError): If a label begins with "!".
    """
    for eg in examples:
        for ent in eg.reference.ents:
            if ent.label_.startswith(NEGATED):
                raise ValueError(
                    f"{component}: entities: expected spans that aren't entities in doc.spans, "
                    f"under the incorrect_spans_key of the config, got {ent.label_!r} in "
                    f"{first_words(eg.reference)}"
                )


def make_targets(
    batch: AnnotatedBatch, is_border: Array1d, features: Ints2d | None = None
) -> Targets:
    """Cut the docs of a batch into sequences at their borders, and create the targets of the
    sequences. Docs are not cut within entities. Docs with soft targets use their teacher's
    sequences. Docs with contradictory annotation are excluded, with a warning.

    batch (AnnotatedBatch): The annotation of the docs.
    is_border (Array1d): True for tokens directly after a border. The first token of a doc doesn't
        need to be marked. Shape: (N,)
    features (Ints2d | None): The features of the tokens, if the loss uses them: see
        `Gold.features`. Shape: (N, S)
    RETURNS (Targets): The targets.
    RAISES (ValueError): If a teacher's label isn't in the tags of the chain.
    """
    tags = batch.tags
    lengths, doc_of_sequence = cut(batch.lengths, is_border & ~batch.continues_entity)
    lengths, doc_of_sequence = cut_as_teacher(batch.examples, lengths, doc_of_sequence)
    soft, lacks_path = read_soft_targets(
        batch.examples, tags, batch.constraints, lengths, doc_of_sequence, batch.example_weights
    )

    # Exclude docs with soft targets if no path of their teacher contains their preset entities.
    reason_of_doc: dict[int, str] = {}  # reasons for excluding docs, by index
    if lacks_path.any():
        batch = batch.leave_out(lacks_path)
        for i in numpy.flatnonzero(lacks_path).tolist():
            reason_of_doc[i] = "no path of its teacher has its preset entities"

    gold = _make_gold(batch, lengths, doc_of_sequence, features)
    constraints = batch.constraints
    spans_key = batch.annotation.incorrect_spans_key
    if spans_key is not None:
        spans = read_incorrect_spans(batch.examples, spans_key, tags, batch.lengths)
        if spans:
            gold, constraints = exclude_spans(spans, gold, constraints, tags)

    targets = Targets(tags, gold, constraints, lengths, doc_of_sequence, soft)
    targets, is_left_out = targets.leave_out_impossible()
    if soft is not None:
        # Don't warn about docs with soft targets: they are trained on, and their gold isn't used.
        is_left_out = is_left_out & (soft.weights == 0)
    for i in doc_of_sequence[is_left_out].tolist():
        reason = "its entities contradict preset ones or are among the incorrect spans"
        reason_of_doc.setdefault(i, reason)

    for i, reason in reason_of_doc.items():
        words = first_words(batch.examples[i].reference)
        name = batch.annotation.component
        warnings.warn(f"{name}: left out of training, because {reason}: {words}", stacklevel=4)
    return targets


def _make_gold(
    batch: AnnotatedBatch, lengths: Ints1d, doc_of_sequence: Ints1d, features: Ints2d | None
) -> Gold:
    """Create the gold of the sequences that docs are cut into. The field `costs` is not set.
    `lengths` and `doc_of_sequence` contain the number of tokens and the doc of each sequence. For
    `features`, see `Gold.features`. Shapes: (B,), (B,), (N, S)"""
    tags = batch.tags
    is_allowed = None  # if no annotation is missing, the tags are sufficient
    if (batch.path < 0).any():
        is_allowed = tags.agreeing(batch.path, lengths)
    weights = None
    if batch.example_weights is not None:
        # Each sequence gets the weight of its doc.
        weights = batch.example_weights[doc_of_sequence]
    return Gold(
        tags=tags.split_outside(batch.path, lengths),
        allowed=is_allowed,
        token_weights=batch.token_weights,
        weights=weights,
        opening=tags.opening,
        continuing=tags.continuing,
        features=features,
        collapsed_of=tags.collapsed_of if tags.is_split else None,
    )
