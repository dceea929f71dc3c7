"""The training objective: from examples to targets, and from targets and scores to the loss."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy
from spacy.strings import StringStore
from spacy.training import Example
from thinc.types import Array1d, Floats1d, Ints1d, Ints2d
from thinc.util import get_array_module

from ..annotation import Annotation
from ..borders import cut, find_borders
from ..ent_iob import INSIDE
from ..losses import LossSchedule
from ..ragged import sequence_ids
from ..tags import OUTSIDE, Entities, Tags
from ..token_attrs import (
    TokenAttrs,
    first_words,
    possible_paths,
    read_reference,
)
from ..types import (
    Constraints,
    CostTable,
    Gold,
    Loss,
    LossResult,
    Potentials,
    Progress,
    add_to,
)
from .incorrect_spans import collapse
from .segmentations import Segmentations, cuts_docs
from .soft_targets import divergence, find_impossible, read_soft_targets, taught_lengths
from .targets import Targets, Weights, allowed_tags, read_incorrect_spans

NEGATED = "!"
"""The prefix of spaCy 2 for the label of a span that is not an entity. spaCy 3 refuses it."""


@dataclass(frozen=True, eq=False)
class AnnotatedBatch:
    """The annotation of a batch, however its docs are cut into sequences.

    examples (list[Example]): The examples, with the spans to learn as entities.
    tokens (TokenAttrs): The tokens of the predicted docs, with their preset annotation.
    is_in_one_entity (Array1d): True for tokens in the same entity as the token before, preset or
        gold. Shape: (N,)
    constraints (Constraints): The possible paths.
    path (Ints1d): The gold tag of each token, as `Tags.gold_path` has it. Shape: (N,)
    token_weights (Floats1d | None): The weight of each token; None: 1. Shape: (N,)
    example_weights (Floats1d | None): The weight of each example; None: 1. Shape: (D,)
    taught_lengths (list[Ints1d | None]): The lengths of the sequences that the teacher of each doc
        has; None for a doc without soft targets.
    """

    examples: list[Example]
    tokens: TokenAttrs
    is_in_one_entity: Array1d
    constraints: Constraints
    path: Ints1d
    token_weights: Floats1d | None
    example_weights: Floats1d | None
    taught_lengths: list[Ints1d | None]

    def adjust_borders(self, borders: Array1d) -> Array1d:
        """Remove the borders within entities. Docs with soft targets have those of their teacher.
        Shape: (N,)"""
        borders = borders & ~self.is_in_one_entity
        for i, lengths in enumerate(self.taught_lengths):
            if lengths is not None:
                tokens = self.tokens.of_doc(i)
                borders[tokens] = False
                borders[tokens.start + numpy.cumsum(lengths)[:-1]] = True
        return borders

    def leave_out(self, is_left_out: Array1d) -> "AnnotatedBatch":
        """The batch with some examples, (D,), as if they were not annotated, and of weight 0."""
        weights = 1.0 if self.example_weights is None else self.example_weights
        tokens = numpy.repeat(is_left_out, self.tokens.lengths)
        possible = self.constraints.emissions
        if possible is not None:
            # Without their presets, as losses need a path of all sequences.
            possible = possible | tokens[:, None]
        return replace(
            self,
            example_weights=numpy.where(is_left_out, 0.0, weights),
            path=numpy.where(tokens, -1, self.path),
            constraints=self.constraints._replace(emissions=possible),
        )


@dataclass(eq=False)
class Objective:
    """The training objective of a component: a loss over examples.

        targets = objective.targets(examples, tags).in_epoch(epoch)
        result, n_annotated = objective.evaluate(targets, scores, progress)

    Targets depend on the examples only, so they can be reused when the scores change.

    The settings are those of the component `name`, whose labels are in `strings`.

    RAISES (ValueError): If tokens have weights and the loss doesn't use them.
    """

    name: str
    strings: StringStore
    loss: Loss | LossSchedule
    weights: Weights = field(default_factory=Weights)
    annotation: Annotation = field(default_factory=Annotation)

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Weights):
            raise ValueError(
                f"{self.name}: weights: expected a block of spacy_costner.Weights.v1, got "
                f"{self.weights!r}"
            )
        useful = any(stage.weighs_tokens or stage.cost is not None for stage in self.loss.stages)
        if self.weights.weighs_tokens and not useful:
            raise ValueError(
                f"{self.name}: weights: expected none of labels, boundaries or tokens, as the loss "
                "has no use for them; losses that have are those with a cost, Pointwise and Mixed"
            )
        self._tables: dict[tuple[int, tuple[str, ...]], CostTable] = {}
        self._warned: set[str] = set()

    def targets(
        self, examples: Sequence[Example], tags: Tags, features: Ints2d | None = None
    ) -> Segmentations[Targets]:
        """Make the targets of a batch for all epochs, to be used with any scores of the same docs.
        Sequences whose gold is impossible are left out with a warning. An entity across a border
        joins two sequences. Docs with soft targets have the sequences of their teacher; they are
        left out with a warning if it has no path with their preset entities.

        examples (Sequence[Example]): The batch.
        tags (Tags): The tags of the chain.
        features (Ints2d | None): As in `Gold`, if the loss uses them. Shape: (N, S)
        RETURNS (Segmentations[Targets]): The targets of whole docs and, if some have borders, of
            their sequences.
        RAISES (ValueError): If docs have soft targets of other labels, or the loss is a ratio.
        """
        batch = self._read(examples, tags)
        docs = [eg.predicted for eg in examples]
        by_doc = self._segment(batch, tags, features, find_borders(docs, False))
        borders = find_borders(docs, self.annotation.sentence_boundaries)
        if not borders.any():
            return Segmentations(by_doc)
        return Segmentations(by_doc, self._segment(batch, tags, features, borders))

    def targets_in_epoch(
        self,
        examples: Sequence[Example],
        tags: Tags,
        epoch: int,
        features: Ints2d | None = None,
    ) -> Targets:
        """Make the targets of a batch for one epoch: those of `targets`, without the work for other
        epochs.

        epoch (int): The number of epochs before it.
        """
        boundaries = self.annotation.sentence_boundaries if cuts_docs(epoch) else False
        borders = find_borders([eg.predicted for eg in examples], boundaries)
        return self._segment(self._read(examples, tags), tags, features, borders)

    def _read(self, examples: Sequence[Example], tags: Tags) -> AnnotatedBatch:
        """Read the annotation of a batch."""
        examples = [self.annotation.as_entities(eg, tags.labels) for eg in examples]
        tokens = self.annotation.read_presets([eg.predicted for eg in examples])
        constraints = possible_paths(tokens, tags, self.strings)
        reference = read_reference(examples, tokens)
        entities = self._gold_entities(examples, reference, tags)
        return AnnotatedBatch(
            examples=examples,
            tokens=tokens,
            is_in_one_entity=(tokens.iob == INSIDE) | (reference.iob == INSIDE),
            constraints=constraints,
            path=tags.gold_path(entities, reference.is_annotated),
            token_weights=self.weights.of_tokens(entities, tags, examples),
            example_weights=self.weights.of_examples(examples),
            taught_lengths=[taught_lengths(eg) for eg in examples],
        )

    def _segment(
        self, batch: AnnotatedBatch, tags: Tags, features: Ints2d | None, borders: Array1d
    ) -> Targets:
        """The targets of a batch whose docs are cut at borders, (N,), as far as possible: entities
        and the soft targets of a doc are not cut."""
        lengths, doc_of = cut(batch.tokens.lengths, batch.adjust_borders(borders))
        is_untaught = find_impossible(batch.examples, tags, batch.constraints, lengths, doc_of)
        if is_untaught.any():
            batch = batch.leave_out(is_untaught)
            for i in numpy.flatnonzero(is_untaught).tolist():
                reason = "no path of its teacher has its preset entities"
                self._warn_of_left_out(batch.examples[i], reason)
        # All sequences of a doc have its weight.
        weights = batch.example_weights
        gold = Gold(
            tags=tags.split_outside(batch.path, lengths),
            allowed=allowed_tags(batch.path, tags, lengths),
            token_weights=batch.token_weights,
            weights=None if weights is None else weights[doc_of],
            opening=tags.opening,
            continuing=tags.continuing,
            features=features,
            collapsed_of=tags.collapsed_of if tags.is_split else None,
        )
        soft = read_soft_targets(batch.examples, tags, batch.constraints, lengths, doc_of, weights)
        if soft is not None and any(stage.is_ratio for stage in self.loss.stages):
            raise ValueError(
                f"{self.name}: loss: expected one that is a sum over docs, as there are soft "
                "targets, got a ratio over the batch"
            )
        targets = Targets(tags, gold, batch.constraints, lengths, doc_of, soft)
        if self.annotation.incorrect_spans_key is not None:
            key = self.annotation.incorrect_spans_key
            spans = read_incorrect_spans(batch.examples, key, tags, batch.tokens)
            if spans:
                targets = targets.exclude(spans)
        targets, is_left_out = targets.leave_out_impossible()
        for i in doc_of[is_left_out].tolist():
            # The gold of docs with soft targets counts nowhere.
            if batch.taught_lengths[i] is None:
                reason = "its entities contradict preset ones or are among the incorrect spans"
                self._warn_of_left_out(batch.examples[i], reason)
        return targets

    def _warn_of_left_out(self, example: Example, reason: str) -> None:
        """Warn of a doc that is left out of training."""
        warnings.warn(
            f"{self.name}: left out of training, as {reason}: {first_words(example.reference)}",
            stacklevel=4,
        )

    def evaluate(
        self, targets: Targets, scores: Potentials, progress: Progress
    ) -> tuple[LossResult, int]:
        """Compute the loss of a batch and its gradient with respect to the model's scores.

        targets (Targets): The targets of the batch.
        scores (Potentials): The model's scores of its docs.
        progress (Progress): How far training has come: the loss may depend on it.
        RETURNS (tuple[LossResult, int]): The loss with its gradient; and the number of annotated
            tokens or, if the loss is one ratio, 1.
        """
        loss = self.loss.stage_at(progress)
        table = self.cost_table(loss, targets.tags.collapsed)
        doc_lengths = scores.lengths
        scores = scores._replace(lengths=targets.lengths)
        potentials, gold = targets.to_loss_inputs(scores, table)
        if targets.soft is not None:
            # A doc with soft targets counts by its divergence alone.
            xp = get_array_module(gold.tags)
            is_taught = xp.asarray(targets.soft.weights != 0)
            weights = 1.0 if gold.weights is None else gold.weights
            gold = gold._replace(weights=xp.where(is_taught, 0.0, weights))
        value, gradient = loss.compute(potentials, gold)
        if targets.gold.tied_to is not None:
            # Back to the tags of the model: the loss saw copies of them.
            gradient = collapse(gradient, targets.gold.tied_to, len(targets.tags))
        if targets.soft is not None:
            from_teacher = divergence(scores, targets.soft)
            value += from_teacher.value
            gradient = add_to(from_teacher.gradient, gradient)
        result = LossResult(value, gradient._replace(lengths=doc_lengths))
        if loss.is_ratio:
            return result, 1
        n_annotated = int((targets.gold.tags >= 0).sum())
        return result, max(n_annotated, 1)

    def prepare(self, tags: Tags) -> list[list[list[float]] | None]:
        """Check that costs and weights fit the labels, before training begins.

        tags (Tags): The tags of annotation.
        RETURNS (list[list[list[float]] | None]): The cost table of each stage of the loss, to be
            saved with the model; None for a stage without a cost. Shapes: (K, K)
        RAISES (ValueError): If a cost or a weight is of a label that the tags don't have.
        """
        unknown = sorted(set(self.weights.labels) - {*tags.labels, OUTSIDE})
        if unknown:
            raise ValueError(
                f"{self.name}: weights: labels: expected some of {(*tags.labels, OUTSIDE)}, "
                f"got {unknown}"
            )
        tables = [self.cost_table(stage, tags) for stage in self.loss.stages]
        return [None if table is None else table.tolist() for table in tables]

    def restore(self, tables: Sequence[list[list[float]] | None], tags: Tags) -> None:
        """Restore the cost tables that `prepare` returned, where a cost can't be computed any more,
        for example because its file is missing."""
        for stage, table in zip(self.loss.stages, tables):
            if table is not None:
                try:
                    self.cost_table(stage, tags)
                except ValueError:
                    self._tables[id(stage), tags.names] = numpy.asarray(table, dtype="float32")

    def cost_table(self, loss: Loss, tags: Tags) -> CostTable | None:
        """The cost table of a loss, if it has a cost. It is computed once for each tag set."""
        if loss.cost is None:
            return None
        key = (id(loss), tags.names)
        if key not in self._tables:
            self._tables[key] = loss.cost(tags)
        return self._tables[key]

    def forget(self) -> None:
        """Begin training anew: losses that keep state lose it."""
        for stage in self.loss.stages:
            stage.forget()

    def _gold_entities(
        self, examples: Sequence[Example], reference: TokenAttrs, tags: Tags
    ) -> Entities:
        """The gold entities, without white space at their ends. Warns, once, if there is some, and
        of entities of other labels."""
        entities = reference.entities(tags, self.strings)
        is_unknown = entities.label < 0
        if is_unknown.any():
            self._refuse_negated_labels(examples)
        trimmed = entities.trim(reference.is_space)
        begins_with_word = numpy.isin(entities.begin, trimmed.begin)
        ends_with_word = numpy.isin(entities.end, trimmed.end)
        is_trimmed = ~(begins_with_word & ends_with_word)
        for message, is_concerned in (
            ("white space at an end of an entity is taken off it", is_trimmed),
            (f"entities of other labels than {tags.labels} count as O", is_unknown),
        ):
            if is_concerned.any() and message not in self._warned:
                self._warned.add(message)
                first_token = entities.begin[is_concerned][0]
                doc = sequence_ids(reference.lengths)[first_token]
                words = first_words(examples[doc].reference)
                warnings.warn(f"{self.name}: {message}, as in: {words}", stacklevel=2)
        return trimmed

    def _refuse_negated_labels(self, examples: Sequence[Example]) -> None:
        """RAISES (ValueError): If an entity is marked as none, as spaCy 2 had it."""
        for eg in examples:
            for ent in eg.reference.ents:
                if ent.label_.startswith(NEGATED):
                    raise ValueError(
                        f"{self.name}: entities: expected spans that are no entities in doc.spans, "
                        f"under the incorrect_spans_key of the config, got {ent.label_!r} in "
                        f"{first_words(eg.reference)}"
                    )


def check_finite(scores: Potentials, name: str) -> None:
    """Raise a ValueError if a score of the component `name` is not finite, before its model is
    updated."""
    for part, array in zip(scores._fields, scores[:4]):
        total = float(array.sum())
        if not numpy.isfinite(total):
            raise ValueError(
                f"{name}: {part}: expected finite scores, got {total}. The model was "
                "not updated; try a lower learning rate or gradient clipping"
            )
