"""The training objective: creates targets from examples, and computes the loss from targets and
scores.

Targets are the inputs of a loss, apart from the model's scores: see `targets`. A loss may have
several stages, each using a different loss: see `LossSchedule`. Soft targets are a teacher's
probabilities of paths: see `soft_targets`.

A doc may have borders, such as sentence starts, where its chain can be cut. In every other
epoch, docs are cut at their borders: see `segmentations`.

In shapes, B is the number of sequences that docs are cut into, N the number of tokens, S the number
of features per token, and K the number of tags.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy
from spacy.strings import StringStore
from spacy.training import Example
from thinc.types import Floats1d, Floats2d, Ints1d, Ints2d
from thinc.util import get_array_module

from .. import chain
from ..annotation.settings import Annotation
from ..losses import LossSchedule
from ..tags import OUTSIDE, Tags
from ..types import (
    CostTable,
    Gold,
    Loss,
    LossResult,
    Potentials,
    Progress,
    add_to,
)
from .incorrect_spans import copy_scores, sum_over_copies
from .segmentations import Segmentations, cuts_docs
from .soft_targets import divergence
from .targets import AnnotatedBatch, Targets, Weights, make_targets, read_annotation


@dataclass(eq=False)
class Objective:
    """The training objective of a component: a loss over examples.

        targets = objective.targets(examples, tags).in_epoch(epoch)
        result, n_annotated = objective.evaluate(targets, scores, progress)

    Targets depend only on the examples, so they can be reused when the scores change.

    name (str): The name of the component, for error messages.
    strings (StringStore): The string store of the vocab. It includes the component's labels.
    loss (Loss | LossSchedule): The loss, or a schedule of losses.
    weights (Weights): The weights of tokens and examples.
    annotation (Annotation): The settings for reading the annotation from docs.
    labels_are_given (bool): Whether the user chose the labels: see `read_annotation`.
    RAISES (ValueError): If `weights` isn't a `Weights` object, or if tokens have weights but no
        stage of the loss uses them.
    """

    name: str
    strings: StringStore
    loss: Loss | LossSchedule
    weights: Weights = field(default_factory=Weights)
    annotation: Annotation = field(default_factory=Annotation)
    labels_are_given: bool = True

    def __post_init__(self) -> None:
        """Check that the weights are valid and that the loss uses them. See the class for the
        errors."""
        if not isinstance(self.weights, Weights):
            raise ValueError(
                f"{self.name}: weights: expected a block of spacy_costner.Weights.v1, got "
                f"{self.weights!r}"
            )
        # Costs are multiplied by token weights, so losses with a cost use them, too.
        are_used = any(stage.weighs_tokens or stage.cost is not None for stage in self.loss.stages)
        if self.weights.weighs_tokens and not are_used:
            raise ValueError(
                f"{self.name}: weights: expected none of labels, boundaries or tokens, as the loss "
                "doesn't use them: choose a loss with a cost, Pointwise or Mixed"
            )
        # Cost tables, keyed by loss ID and tag names.
        self._tables: dict[tuple[int, tuple[str, ...]], CostTable] = {}
        # Warnings about the annotation that have already been issued. They are not repeated.
        self._warned: set[str] = set()

    def targets(
        self, examples: Sequence[Example], tags: Tags, features: Ints2d | None = None
    ) -> Segmentations[Targets]:
        """Create the targets of a batch for all epochs: see `make_targets`.

        examples (Sequence[Example]): The batch.
        tags (Tags): The tags of the chain.
        features (Ints2d | None): The features of the tokens, if the loss uses them: see
            `Gold.features`. Shape: (N, S)
        RETURNS (Segmentations[Targets]): The targets of whole docs and, if any doc has borders, the
            targets of docs cut at their borders.
        RAISES (ValueError): If the annotation is invalid (see `read_annotation`), if soft targets
            include unknown labels, or if there are soft targets and the loss is a ratio over the
            batch.
        """
        batch = self._read_annotation(examples, tags)
        is_border = self.annotation.find_training_borders(examples)
        no_border = numpy.zeros_like(is_border)
        by_doc = make_targets(batch, no_border, features)
        self._refuse_ratio(by_doc)
        if not is_border.any():
            return Segmentations(by_doc)
        return Segmentations(by_doc, make_targets(batch, is_border, features))

    def targets_in_epoch(
        self,
        examples: Sequence[Example],
        tags: Tags,
        epoch: int,
        features: Ints2d | None = None,
    ) -> Targets:
        """Create the targets of a batch for a single epoch. This is equivalent to
        `targets(...).in_epoch(epoch)`, but computes only one segmentation.

        examples (Sequence[Example]): The batch.
        tags (Tags): The tags of the chain.
        epoch (int): The index of the epoch, starting at 0.
        features (Ints2d | None): See `targets`. Shape: (N, S)
        RETURNS (Targets): The targets.
        RAISES (ValueError): See `targets`.
        """
        batch = self._read_annotation(examples, tags)
        if cuts_docs(epoch):
            is_border = self.annotation.find_training_borders(examples)
        else:
            is_border = numpy.zeros(batch.lengths.sum(), dtype=bool)
        targets = make_targets(batch, is_border, features)
        self._refuse_ratio(targets)
        return targets

    def _read_annotation(self, examples: Sequence[Example], tags: Tags) -> AnnotatedBatch:
        """Read the annotation of a batch using the component's settings: see `read_annotation`."""
        return read_annotation(
            examples,
            tags,
            self.strings,
            self.annotation,
            self.weights,
            warned=self._warned,
            labels_are_given=self.labels_are_given,
        )

    def _refuse_ratio(self, targets: Targets) -> None:
        """Raise an error if there are soft targets and the loss is a ratio over the batch. The loss
        of soft targets is a sum over docs, which can't be added to a ratio.

        RAISES (ValueError): If there are soft targets and any stage of the loss is a ratio.
        """
        if targets.soft is not None and any(stage.is_ratio for stage in self.loss.stages):
            raise ValueError(
                f"{self.name}: loss: expected one that is a sum over docs, as there are soft "
                "targets, got a ratio over the batch"
            )

    def evaluate(
        self, targets: Targets, scores: Potentials, progress: Progress
    ) -> tuple[LossResult, int]:
        """Compute the loss of a batch and its gradient with respect to the model's scores.

        targets (Targets): The targets of the batch.
        scores (Potentials): The model's scores for the docs of the batch.
        progress (Progress): The training progress, which determines the stage of the loss.
        RETURNS (tuple[LossResult, int]): The loss with its gradient, and the divisor for computing
            the mean loss: the number of annotated tokens (at least 1), or 1 if the loss is a ratio.
        """
        loss = self.loss.stage_at(progress)
        # Costs are defined for the tags of the annotation, which include a single O.
        table = self.cost_table(loss, targets.tags.collapsed)
        # The model scored whole docs, but the loss is computed over the sequences they are cut
        # into.
        sequence_scores = scores._replace(lengths=targets.lengths)
        potentials, gold = to_loss_inputs(targets, sequence_scores, table)
        value, gradient = loss.compute(potentials, gold)

        if targets.gold.tied_to is not None:
            # With incorrect spans, the loss was computed over copies of tags: sum their gradients.
            gradient = sum_over_copies(gradient, targets.gold.tied_to, len(targets.tags))
        if targets.soft is not None:
            from_teacher = divergence(sequence_scores, targets.soft)
            value += from_teacher.value
            gradient = add_to(from_teacher.gradient, gradient)
        result = LossResult(value, gradient._replace(lengths=scores.lengths))

        if loss.is_ratio:
            return result, 1
        n_annotated = int((targets.gold.tags >= 0).sum())  # -1: missing annotation
        return result, max(n_annotated, 1)

    def check_costs(self, tags: Tags) -> list[list[list[float]] | None]:
        """Check that costs and weights match the labels. Called before training and when a label is
        added.

        tags (Tags): The tags of the annotation. They include a single O, even if the chain splits
            it: see `Tags.collapsed`.
        RETURNS (list[list[list[float]] | None]): The cost table of each loss stage, to be saved
            with the model. None for a stage without a cost. Shapes: (K, K)
        RAISES (ValueError): If a weight is set for an unknown label, or if a cost doesn't match the
            labels or can't be read.
        """
        unknown = sorted(set(self.weights.labels) - {*tags.labels, OUTSIDE})
        if unknown:
            raise ValueError(
                f"{self.name}: weights: labels: expected a subset of {(*tags.labels, OUTSIDE)}, "
                f"got {unknown}"
            )
        tables: list[list[list[float]] | None] = []
        for stage in self.loss.stages:
            table = self.cost_table(stage, tags)
            tables.append(None if table is None else table.tolist())
        return tables

    def restore(self, tables: Sequence[list[list[float]] | None], tags: Tags) -> None:
        """Restore the saved table of each cost that can no longer be computed, for example because
        the file that defines it is missing.

        tables (Sequence[list[list[float]] | None]): The tables that `check_costs` returned.
        tags (Tags): The tags of the annotation. They include a single O, even if the chain splits
            it: see `Tags.collapsed`.
        """
        for stage, table in zip(self.loss.stages, tables):
            if table is None:
                continue
            try:
                self.cost_table(stage, tags)
            except ValueError:
                self._tables[id(stage), tags.names] = numpy.asarray(table, dtype="float32")

    def cost_table(self, loss: Loss, tags: Tags) -> CostTable | None:
        """Return the cost table of a loss for a tag set, or None if the loss has no cost. Tables
        are cached, because computing a cost may involve reading a file. Shape: (K, K)

        RAISES (ValueError): If the cost can't be computed, for example because it is defined for an
            unknown label.
        """
        if loss.cost is None:
            return None
        key = (id(loss), tags.names)
        if key not in self._tables:
            self._tables[key] = loss.cost(tags)
        return self._tables[key]

    def forget(self) -> None:
        """Reset losses that keep counts of earlier batches. Called when training restarts."""
        for stage in self.loss.stages:
            stage.forget()


def check_finite(scores: Potentials, name: str) -> None:
    """Check that all scores are finite. Call this before updating the model, because an update with
    other scores would corrupt the weights.

    scores (Potentials): The model's scores.
    name (str): The name of the component, for the error message.
    RAISES (ValueError): If a score is not finite.
    """
    # The first four fields: emissions, transitions, start and end.
    for field_name, array in zip(scores._fields, scores[:4]):
        # The sum is finite only if all scores are. Calling `isfinite` would allocate another array.
        total = float(array.sum())
        if not numpy.isfinite(total):
            raise ValueError(
                f"{name}: {field_name}: expected finite scores, got {total}. The model was "
                "not updated; try a lower learning rate or gradient clipping"
            )


def to_loss_inputs(
    targets: Targets, scores: Potentials, table: CostTable | None = None
) -> tuple[Potentials, Gold]:
    """Create the inputs of a loss: the potentials, with minus infinity for impossible paths, and
    gold, with costs if the loss has any. Both are on the same device as the scores. `table`
    contains the cost of each mistake, for the tags of the annotation, with a single O."""
    gold = targets.gold
    if table is not None:
        if gold.collapsed_of is not None:
            # The chain has several tags for O, or copies of tags. The cost of a tag is the cost of
            # the corresponding tag of the annotation. Shape: (K, K)
            table = table[numpy.ix_(gold.collapsed_of, gold.collapsed_of)]
        gold = gold._replace(costs=costs_given_gold(gold.tags, table, gold.token_weights))

    if targets.soft is not None:
        # The model learns only the soft targets of a doc if it has any: its gold gets the weight 0.
        # Weights are per sequence. Shapes: (B,)
        is_soft = targets.soft.weights != 0
        weights = gold.weights
        if weights is None:
            weights = numpy.ones(len(is_soft))
        gold = gold._replace(weights=numpy.where(is_soft, 0.0, weights))

    # Copy the gold arrays to the device of the scores. Some fields may be None.
    asarray = get_array_module(scores.emissions).asarray
    gold = Gold._make(None if array is None else asarray(array) for array in gold)

    # With incorrect spans, the chain has copies of tags with the same scores as the originals.
    if targets.gold.tied_to is not None:
        scores = copy_scores(scores, targets.gold.tied_to)
    return chain.constrain(scores, targets.constraints), gold


def costs_given_gold(path: Ints1d, table: CostTable, weights: Floats1d | None) -> Floats2d:
    """Compute the cost of predicting each tag at each token. `path` contains the gold tags, or -1
    for tokens without annotation, where all costs are 0. If `weights` is None, each token has the
    weight 1. Shapes: (N,), (K, K), (N,) to (N, K)"""
    costs = table[path]  # -1 selects the last row, which is replaced with 0 below
    if weights is not None:
        costs = costs * weights[:, None]
    costs[path < 0] = 0
    return costs
