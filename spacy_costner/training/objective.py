"""The training objective: it makes targets from examples, and computes the loss of targets and
scores.

Targets are the inputs of a loss, in addition to the scores of the model: see `targets`. A loss may
have several stages, which are losses that follow each other in training: see `LossSchedule`. Soft
targets are the probabilities that a teacher gives to paths: see `soft_targets`.

A doc may have borders, such as sentence starts, where its chain can be cut. Every other epoch cuts
docs there: see `segmentations`.

In shapes, B is the number of sequences that docs are cut into, N of tokens, S of features that a
token can have, and K of tags.
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

    Targets depend only on the examples, so you can use them again when the scores change.

    name (str): The name of the component, for messages.
    strings (StringStore): The strings of the vocab. The labels of the component are among them.
    loss (Loss | LossSchedule): The loss, or several losses that follow each other.
    weights (Weights): How much tokens and examples count.
    annotation (Annotation): Where docs have their annotation.
    RAISES (ValueError): If `weights` are not `Weights`, or if tokens have weights, and no stage of
        the loss uses them.
    """

    name: str
    strings: StringStore
    loss: Loss | LossSchedule
    weights: Weights = field(default_factory=Weights)
    annotation: Annotation = field(default_factory=Annotation)

    def __post_init__(self) -> None:
        """Check that the weights fit the loss. Errors: see the class."""
        if not isinstance(self.weights, Weights):
            raise ValueError(
                f"{self.name}: weights: expected a block of spacy_costner.Weights.v1, got "
                f"{self.weights!r}"
            )
        # A cost is multiplied by the weight of its token.
        are_used = any(stage.weighs_tokens or stage.cost is not None for stage in self.loss.stages)
        if self.weights.weighs_tokens and not are_used:
            raise ValueError(
                f"{self.name}: weights: expected none of labels, boundaries or tokens, as the loss "
                "doesn't use them: choose a loss with a cost, Pointwise or Mixed"
            )
        # The cost tables of losses, keyed by the id of the loss and the names of the tags.
        self._tables: dict[tuple[int, tuple[str, ...]], CostTable] = {}
        # `CostSensitiveNER.initialize` sets it: see `read_annotation`.
        self.labels_are_given = True
        # The warnings about annotation that were given so far. They are not repeated.
        self._warned: set[str] = set()

    def targets(
        self, examples: Sequence[Example], tags: Tags, features: Ints2d | None = None
    ) -> Segmentations[Targets]:
        """Make the targets of a batch for all epochs: see `make_targets`.

        examples (Sequence[Example]): The batch.
        tags (Tags): The tags of the chain.
        features (Ints2d | None): The features of tokens, if the loss uses them: see
            `Gold.features`. Shape: (N, S)
        RETURNS (Segmentations[Targets]): The targets of whole docs and, if some docs have borders,
            the targets of docs that are cut at their borders.
        RAISES (ValueError): If the annotation can't be learned (see `read_annotation`), or if there
            are soft targets with labels that the tags don't have, or soft targets and a loss that
            is a ratio over the batch.
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
        """Make the targets of a batch for one epoch only. It returns the same as
        `targets(...).in_epoch(epoch)`, and does half the work.

        examples (Sequence[Example]): The batch.
        tags (Tags): The tags of the chain.
        epoch (int): The index of the epoch, from 0.
        features (Ints2d | None): As in `targets`. Shape: (N, S)
        RETURNS (Targets): The targets.
        RAISES (ValueError): As in `targets`.
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
        """Read the annotation of a batch with the settings of the component: see
        `read_annotation`."""
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
        """Refuse soft targets if the loss is a ratio over the batch. The loss of soft targets is a
        sum over docs, which can't be added to a ratio.

        RAISES (ValueError): If there are soft targets and such a loss.
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
        scores (Potentials): The model's scores of the docs of the batch.
        progress (Progress): The progress of training, on which the loss may depend.
        RETURNS (tuple[LossResult, int]): The loss with its gradient; and the divisor for the mean
            loss: the number of annotated tokens, at least 1, or 1 if the loss is a ratio.
        """
        loss = self.loss.stage_at(progress)
        # Costs are for the tags of annotation, which have a single O.
        table = self.cost_table(loss, targets.tags.collapsed)
        # The model has scored whole docs. The loss takes the sequences that they are cut into.
        sequence_scores = scores._replace(lengths=targets.lengths)
        potentials, gold = to_loss_inputs(targets, sequence_scores, table)
        value, gradient = loss.compute(potentials, gold)

        if targets.gold.tied_to is not None:
            # With incorrect spans the loss saw copies of tags: sum the gradients of copies.
            gradient = sum_over_copies(gradient, targets.gold.tied_to, len(targets.tags))
        if targets.soft is not None:
            from_teacher = divergence(sequence_scores, targets.soft)
            value += from_teacher.value
            gradient = add_to(from_teacher.gradient, gradient)
        result = LossResult(value, gradient._replace(lengths=scores.lengths))

        if loss.is_ratio:
            return result, 1
        n_annotated = int((targets.gold.tags >= 0).sum())  # -1 is missing annotation
        return result, max(n_annotated, 1)

    def check_costs(self, tags: Tags) -> list[list[list[float]] | None]:
        """Check that costs and weights fit the labels: before training, and when a label is added.

        tags (Tags): The tags of annotation. They have a single O, even if the chain splits it: see
            `Tags.collapsed`.
        RETURNS (list[list[list[float]] | None]): The cost table of each stage of the loss, to be
            saved with the model; None for a stage without a cost. Shapes: (K, K)
        RAISES (ValueError): If a weight is for a label that the tags don't have, or a cost doesn't
            fit the labels or can't be read.
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
        """Take the cost tables of a saved model where a cost can't be computed any more, for
        example because the file it reads is missing.

        tables (Sequence[list[list[float]] | None]): The tables that `check_costs` returned.
        tags (Tags): The tags of annotation. They have a single O, even if the chain splits it: see
            `Tags.collapsed`.
        """
        for stage, table in zip(self.loss.stages, tables):
            if table is None:
                continue
            try:
                self.cost_table(stage, tags)
            except ValueError:
                self._tables[id(stage), tags.names] = numpy.asarray(table, dtype="float32")

    def cost_table(self, loss: Loss, tags: Tags) -> CostTable | None:
        """Return the cost table of a loss for some tags, (K, K). None if the loss has no cost. A
        table is computed only once, as a cost may read a file.

        RAISES (ValueError): If the cost can't be computed, for example because it is for a label
            that the tags don't have.
        """
        if loss.cost is None:
            return None
        key = (id(loss), tags.names)
        if key not in self._tables:
            self._tables[key] = loss.cost(tags)
        return self._tables[key]

    def forget(self) -> None:
        """Restart training: losses that keep counts of earlier batches forget them."""
        for stage in self.loss.stages:
            stage.forget()


def check_finite(scores: Potentials, name: str) -> None:
    """Check that scores are finite. Call it before the model is updated: an update with other
    scores would spoil the weights.

    scores (Potentials): The scores of the model.
    name (str): The name of the component, for the message.
    RAISES (ValueError): If a score is not finite.
    """
    # The first four fields: emissions, transitions, start and end.
    for field_name, array in zip(scores._fields, scores[:4]):
        # The sum is finite only if all scores are. `isfinite` of the array would make another one.
        total = float(array.sum())
        if not numpy.isfinite(total):
            raise ValueError(
                f"{name}: {field_name}: expected finite scores, got {total}. The model was "
                "not updated; try a lower learning rate or gradient clipping"
            )


def to_loss_inputs(
    targets: Targets, scores: Potentials, table: CostTable | None = None
) -> tuple[Potentials, Gold]:
    """Make the arguments of a loss: the potentials, which are minus infinity where paths are
    impossible; and gold with its cost. Both are on the device of the scores. `table` has the cost
    of each mistake, if the loss has a cost. Its tags are the tags of annotation, with a single
    O."""
    gold = targets.gold
    if table is not None:
        if gold.collapsed_of is not None:
            # The chain has several tags for O, or copies of tags. Each has the cost of its tag of
            # the annotation. Shape: (K, K)
            table = table[numpy.ix_(gold.collapsed_of, gold.collapsed_of)]
        gold = gold._replace(costs=costs_given_gold(gold.tags, table, gold.token_weights))

    if targets.soft is not None:
        # A doc with soft targets is learned from these alone: its gold has the weight 0. There is a
        # weight for each sequence. Shapes: (B,)
        is_soft = targets.soft.weights != 0
        weights = gold.weights
        if weights is None:
            weights = numpy.ones(len(is_soft))
        gold = gold._replace(weights=numpy.where(is_soft, 0.0, weights))

    # Copy the arrays of gold to the device of the scores. Some fields may be None.
    asarray = get_array_module(scores.emissions).asarray
    gold = Gold._make(None if array is None else asarray(array) for array in gold)

    # With incorrect spans the chain has copies of tags, with the scores of their originals.
    if targets.gold.tied_to is not None:
        scores = copy_scores(scores, targets.gold.tied_to)
    return chain.constrain(scores, targets.constraints), gold


def costs_given_gold(path: Ints1d, table: CostTable, weights: Floats1d | None) -> Floats2d:
    """Compute the cost of predicting each tag at each token, given the gold tags in `path`, which
    are -1 where gold is missing. The cost is 0 there. Without `weights` all tokens have the weight
    1. Shapes: (N,), (K, K), (N,) to (N, K)"""
    costs = table[path]  # -1 takes the last row, which is replaced with 0 below
    if weights is not None:
        costs = costs * weights[:, None]
    costs[path < 0] = 0
    return costs
