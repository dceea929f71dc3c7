"""Compute the expected counts of each doc under the posterior of a model: the number of entities,
and the number of correct predictions.

All counts are exact sums of probabilities. There is no sampling.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d, Floats2d, Ints1d

from ...pipeline.confidence import Confidence, prob_of
from ...readers import as_spacy_applies
from ..components import find_components, get_component, run_before
from ..evaluation.predictions import predict


class ExpectedCounts(NamedTuple):
    """The expected counts of D docs. Entities of earlier components are counted, too.

    labels (tuple[str, ...]): The labels of the component, followed by other labels of predicted
        entities: labels of earlier components, and inner nodes of a label tree.
    n_tokens (Ints1d): The number of tokens. Shape: (D,)
    predicted (Floats2d): The number of predicted entities by label. Shape: (D, labels)
    correct (Floats2d): The expected number of correct predictions by label, i.e. the sum of their
        probabilities. 0 for inner nodes, with which no entity is annotated. Shape: (D, labels)
    annotated (Floats2d): The expected number of entities by label if the doc were annotated.
        Shape: (D, labels)
    """

    labels: tuple[str, ...]
    n_tokens: Ints1d
    predicted: Floats2d
    correct: Floats2d
    annotated: Floats2d

    def mistakes(self) -> Floats1d:
        """Compute the expected number of mistakes in each doc: false positives, which are predicted
        but not annotated, and false negatives, which are annotated but not predicted.
        Shape: (D,)"""
        false_alarms = self.predicted - self.correct
        misses = self.annotated - self.correct
        # If the model is certain, rounding errors may result in slightly negative values.
        return numpy.maximum(false_alarms + misses, 0.0).sum(axis=1)

    def of_doc(self, i: int) -> "ExpectedCounts":
        """Return the counts of the doc with index `i`. Shapes: (1,), (1, labels)"""
        return self._map(lambda column: column[i : i + 1])

    def total(self) -> "ExpectedCounts":
        """Sum over all docs, as if they were a single doc. Shapes: (1,), (1, labels)"""
        return self._map(lambda column: column.sum(axis=0, keepdims=True))

    def zeros(self) -> "ExpectedCounts":
        """Return counts of 0, with the same labels and shapes."""
        return self._map(numpy.zeros_like)

    def with_labels(self, labels: Sequence[str]) -> "ExpectedCounts":
        """Return the counts of the given labels, in this order. They must include the labels of the
        counts. The counts of all other labels are 0."""
        columns = [labels.index(label) for label in self.labels]

        def widen(table: Floats2d) -> Floats2d:
            widened = numpy.zeros((len(table), len(labels)))
            widened[:, columns] = table
            return widened

        return ExpectedCounts(
            labels=tuple(labels),
            n_tokens=self.n_tokens,
            predicted=widen(self.predicted),
            correct=widen(self.correct),
            annotated=widen(self.annotated),
        )

    def sum_annotated(self, labels: Collection[str]) -> float:
        """Sum the expected number of entities with the given labels over all docs."""
        has_label = [label in labels for label in self.labels]
        return float(self.annotated[:, has_label].sum())

    def _map(self, function: Callable[[Any], Any]) -> "ExpectedCounts":
        """Apply a function to each array."""
        labels, *columns = self
        return ExpectedCounts(labels, *map(function, columns))


def expect_counts(
    nlp: Language, name: str, docs: Iterable[Doc]
) -> Iterator[tuple[Sequence[Doc], ExpectedCounts]]:
    """Make predictions for copies of docs in batches, and compute the expected counts. Preset
    entities, i.e. entities set by an earlier component, have a probability of 1, unless this
    component has written their probabilities. Later components aren't run.

    nlp (Language): The pipeline. Earlier components annotate the docs first.
    name (str): The name of the component.
    docs (Iterable[Doc]): The docs. Existing annotation is ignored, and empty docs are skipped.
    YIELDS (tuple[Sequence[Doc], ExpectedCounts]): The copies of each batch with predicted entities,
        and their expected counts.
    RAISES (ValueError): If the component is missing.
    """
    ner = get_component(nlp, name)
    # The labels that entities with a probability can have, except for inner nodes.
    learned_labels = {label for pipe in find_components(nlp).values() for label in pipe.labels}
    # The copies have no annotation, because existing entities would be treated as preset.
    copies = (as_spacy_applies(doc) for doc in docs if len(doc))
    for batch in minibatch(copies, nlp.batch_size):
        docs_of_batch = run_before(nlp, name, batch)
        posterior = ner.posterior(docs_of_batch, preset=True)
        # Passing `Confidence` writes the probabilities of predicted entities, which are read by
        # `prob_of`.
        predict(ner, docs_of_batch, posterior, Confidence())
        other_labels = find_other_labels(docs_of_batch, ner.labels)
        labels = (*ner.labels, *other_labels)
        predicted, correct = count_predicted(docs_of_batch, labels, learned_labels)
        # The expected number of entities is the sum of each token's probability of starting an
        # entity. Shapes: (N, K) @ (K, labels of the component) = (N, labels of the component)
        opening_probs = posterior.chain_marginals @ posterior.tags.opens_label
        # Entities with other labels are only expected where they are predicted.
        annotated = correct.copy()
        annotated[:, : len(ner.labels)] = posterior.sum_by_doc(opening_probs)
        yield (
            docs_of_batch,
            ExpectedCounts(
                labels=labels,
                n_tokens=posterior.doc_lengths,
                predicted=predicted,
                correct=correct,
                annotated=annotated,
            ),
        )


def concatenate_counts(parts: Iterable[ExpectedCounts]) -> ExpectedCounts:
    """Concatenate the expected counts of several groups of docs.

    parts (Iterable[ExpectedCounts]): The counts of each group, with the same labels of the
        component. Other labels may differ. Must not be empty.
    RETURNS (ExpectedCounts): The counts of all docs, with the labels of all groups.
    """
    parts = list(parts)
    labels = list(dict.fromkeys(label for part in parts for label in part.labels))
    _, *columns = zip(*(part.with_labels(labels) for part in parts))
    return ExpectedCounts(tuple(labels), *map(numpy.concatenate, columns))


def find_other_labels(docs: Iterable[Doc], labels: Collection[str]) -> list[str]:
    """Find the labels of the entities of docs that are not among the given labels. Returns them
    sorted by name."""
    return sorted({ent.label_ for doc in docs for ent in doc.ents}.difference(labels))


def count_predicted(
    docs: Sequence[Doc], labels: Sequence[str], learned_labels: Collection[str]
) -> tuple[Floats2d, Floats2d]:
    """Count the predicted entities of each doc by label, and sum the probabilities that they are
    correct. `labels` contains all labels of the entities. `learned_labels` contains those labels
    that a `cost_sensitive_ner` has learned: its inner nodes are never correct. Shapes: (docs,
    labels)"""
    label_numbers = {label: i for i, label in enumerate(labels)}
    shape = (len(docs), len(labels))
    predicted = numpy.zeros(shape)
    correct = numpy.zeros(shape)
    for i, doc in enumerate(docs):
        for ent in doc.ents:
            label = label_numbers[ent.label_]
            prob = prob_of(ent)
            if prob is None:  # a preset entity, which is certain
                prob = 1.0
            elif ent.label_ not in learned_labels:
                # An inner node of a label tree. Its probability covers all labels below it, but no
                # entity is annotated with the node.
                prob = 0.0
            predicted[i, label] += 1
            correct[i, label] += prob
    return predicted, correct
