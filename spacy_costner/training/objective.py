"""The training objective: from examples to targets, and from targets and scores to the loss."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy
from spacy.strings import StringStore
from spacy.training import Example
from thinc.types import Ints2d
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
from ..types import CostTable, Gold, Loss, LossResult, Potentials, Progress, add_to
from .incorrect_spans import collapse
from .soft_targets import divergence, find_impossible, read_soft_targets, taught_lengths
from .targets import Targets, Weights, allowed_tags, read_incorrect_spans

NEGATED = "!"
"""The prefix of spaCy 2 for the label of a span that is not an entity. spaCy 3 refuses it."""


@dataclass(eq=False)
class Objective:
    """The training objective of a component: a loss over examples.

        targets = objective.targets(examples, tags)
        loss, n_annotated = objective.evaluate(targets, scores, progress)

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
        self,
        examples: Sequence[Example],
        tags: Tags,
        features: Ints2d | None = None,
        *,
        whole: bool = False,
    ) -> Targets:
        """Make the targets of a batch, to be used with any scores of the same docs. Sequences whose
        gold is impossible are left out with a warning. An entity across a border joins two
        sequences. Docs with soft targets have the sequences of their teacher; they are left out
        with a warning if it has no path with their preset entities.

        features (Ints2d | None): As in `Gold`, if the loss uses them. Shape: (N, S)
        whole (bool): Whether docs are not cut.
        RAISES (ValueError): If docs have soft targets of other labels, or the loss is a ratio.
        """
        examples = [self.annotation.as_entities(eg, tags.labels) for eg in examples]
        docs = [eg.predicted for eg in examples]
        tokens = self.annotation.read_presets(docs)
        constraints = possible_paths(tokens, tags, self.strings)
        reference = read_reference(examples, tokens)
        entities = self._gold_entities(examples, reference, tags)
        path = tags.gold_path(entities, reference.is_annotated)
        taught = [taught_lengths(eg) for eg in examples]
        borders = find_borders(docs, False if whole else self.annotation.sentence_boundaries)
        borders &= (tokens.iob != INSIDE) & (reference.iob != INSIDE)
        for i, of_teacher in enumerate(taught):
            if of_teacher is not None:
                borders[tokens.of_doc(i)] = False
                borders[tokens.of_doc(i).start + numpy.cumsum(of_teacher)[:-1]] = True
        lengths, doc_of = cut(tokens.lengths, borders)
        weights = self.weights.of_examples(examples)
        untaught = find_impossible(examples, tags, constraints, lengths, doc_of)
        if untaught.any() and constraints.emissions is not None:
            weights = numpy.where(untaught, 0.0, 1.0 if weights is None else weights)
            is_left_out = numpy.repeat(untaught[doc_of], lengths)
            path[is_left_out] = -1
            # Without their presets, as losses need a path of all sequences.
            possible = constraints.emissions | is_left_out[:, None]
            constraints = constraints._replace(emissions=possible)
            for i in numpy.flatnonzero(untaught).tolist():
                self._warn_of_left_out(
                    examples[i], "no path of its teacher has its preset entities"
                )
        split = tags.split_outside(path, lengths)
        gold = Gold(
            tags=split,
            allowed=allowed_tags(path, tags, lengths),
            token_weights=self.weights.of_tokens(entities, tags, examples),
            weights=None if weights is None else weights[doc_of],
            opening=tags.opening,
            continuing=tags.continuing,
            features=features,
            collapsed_of=tags.collapsed_of if tags.is_split else None,
        )
        soft = read_soft_targets(examples, tags, constraints, lengths, doc_of, weights)
        if soft is not None and any(stage.is_ratio for stage in self.loss.stages):
            raise ValueError(
                f"{self.name}: loss: expected one that is a sum over docs, as there are soft "
                "targets, got a ratio over the batch"
            )
        targets = Targets(tags, gold, constraints, lengths, doc_of, soft)
        incorrect_spans_key = self.annotation.incorrect_spans_key
        if incorrect_spans_key is not None:
            spans = read_incorrect_spans(examples, incorrect_spans_key, tags, tokens)
            targets = targets.exclude(spans) if spans else targets
        targets, left_out = targets.leave_out_impossible()
        for i in doc_of[left_out].tolist():
            if taught[i] is None:  # the gold of docs with soft targets counts nowhere
                reason = "its entities contradict preset ones or are among the incorrect spans"
                self._warn_of_left_out(examples[i], reason)
        return targets

    def _warn_of_left_out(self, example: Example, reason: str) -> None:
        """Warn of a doc that is left out of training."""
        warnings.warn(
            f"{self.name}: left out of training, as {reason}: {first_words(example.reference)}",
            stacklevel=3,
        )

    def turns(
        self, examples: Sequence[Example], tags: Tags, features: Ints2d | None = None
    ) -> list[Targets]:
        """The targets of a batch in epochs that take turns, so that a model learns both: of whole
        docs and, if they have borders, of their sequences."""
        turns = [self.targets(examples, tags, features, whole=True)]
        if self.annotation.find_borders([eg.predicted for eg in examples]).any():
            turns.append(self.targets(examples, tags, features))
        return turns

    def evaluate(
        self, targets: Targets, scores: Potentials, progress: Progress
    ) -> tuple[LossResult, int]:
        """The loss of a batch with its gradient with respect to the model's scores; and the number
        of annotated tokens or, if the loss is one ratio, 1."""
        loss = self.loss.stage_at(progress)
        table = self.cost_table(loss, targets.tags.collapsed)
        of_docs, scores = scores.lengths, scores._replace(lengths=targets.lengths)
        potentials, gold = targets.to_loss_inputs(scores, table)
        if targets.soft is not None:  # the loss is that of the others
            taught = get_array_module(gold.tags).asarray(targets.soft.weights != 0)
            gold = gold._replace(weights=(1.0 if gold.weights is None else gold.weights) * ~taught)
        value, gradient = loss.compute(potentials, gold)
        if targets.gold.tied_to is not None:
            gradient = collapse(gradient, targets.gold.tied_to, len(targets.tags))
        if targets.soft is not None:
            from_teacher = divergence(scores, targets.soft)
            value += from_teacher.value
            gradient = add_to(from_teacher.gradient, gradient)
        gradient = gradient._replace(lengths=of_docs)
        n_annotated = int((targets.gold.tags >= 0).sum())
        return LossResult(value, gradient), 1 if loss.is_ratio else max(n_annotated, 1)

    def prepare(self, tags: Tags) -> list[list[list[float]] | None]:
        """Check that costs and weights fit the labels, before training begins: otherwise there is a
        ValueError. Returns the cost table of each stage of the loss, to be saved with the model."""
        if unknown := sorted(set(self.weights.labels) - {*tags.labels, OUTSIDE}):
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
        """The gold entities, without white space at their ends."""
        entities = reference.entities(tags, self.strings)
        is_unknown = entities.label < 0
        for eg in examples if is_unknown.any() else ():
            for ent in eg.reference.ents:
                if ent.label_.startswith(NEGATED):
                    raise ValueError(
                        f"{self.name}: entities: expected spans that are no entities in doc.spans, "
                        f"under the incorrect_spans_key of the config, got {ent.label_!r} in "
                        f"{first_words(eg.reference)}"
                    )
        trimmed = entities.trim(reference.is_space)
        begins, ends = (numpy.isin(all_, kept) for all_, kept in zip(entities[:2], trimmed[:2]))
        for message, which in {
            "white space at an end of an entity is taken off it": ~(begins & ends),
            f"entities of other labels than {tags.labels} count as O": is_unknown,
        }.items():
            if which.any() and message not in self._warned:
                self._warned.add(message)
                doc = sequence_ids(reference.lengths)[entities.begin[which][0]]
                words = first_words(examples[doc].reference)
                warnings.warn(f"{self.name}: {message}, as in: {words}", stacklevel=2)
        return trimmed


def check_finite(scores: Potentials, name: str) -> None:
    """Raise a ValueError if a score of the component `name` is not finite, before its model is
    updated."""
    for part, array in zip(scores._fields, scores[:4]):
        if not numpy.isfinite(total := float(array.sum())):
            raise ValueError(
                f"{name}: {part}: expected finite scores, got {total}. The model was "
                "not updated; try a lower learning rate or gradient clipping"
            )
