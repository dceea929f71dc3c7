"""Compute the expected counts of each doc under the posterior of a model: the number of entities,
and the number of correct predictions.

All counts are exact sums of probabilities. There is no sampling.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d, Floats2d, Ints1d

from ...pipeline.confidence import Confidence, prob_of
from ...readers import as_spacy_applies
from ..components import get_component, run_before
from ..evaluation.predictions import predict


class ExpectedCounts(NamedTuple):
    """The expected counts of D docs.

    n_tokens (Ints1d): The number of tokens. Shape: (D,)
    predicted (Floats2d): The number of predicted entities by label. Shape: (D, labels)
    correct (Floats2d): The expected number of correct predictions by label, i.e. the sum of their
        probabilities. Shape: (D, labels)
    annotated (Floats2d): The expected number of entities by label if the doc were annotated.
        Shape: (D, labels)
    """

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
        return ExpectedCounts(*(column[i : i + 1] for column in self))

    def total(self) -> "ExpectedCounts":
        """Sum over all docs, as if they were a single doc. Shapes: (1,), (1, labels)"""
        return ExpectedCounts(*(column.sum(axis=0, keepdims=True) for column in self))


def expect_counts(
    nlp: Language, name: str, docs: Iterable[Doc]
) -> Iterator[tuple[Sequence[Doc], ExpectedCounts]]:
    """Make predictions for copies of docs in batches, and compute the expected counts. Preset
    entities, i.e. entities set by an earlier component, have a probability of 1.

    nlp (Language): The pipeline. Earlier components annotate the docs first.
    name (str): The name of the component.
    docs (Iterable[Doc]): The docs. Existing annotation is ignored, and empty docs are skipped.
    YIELDS (tuple[Sequence[Doc], ExpectedCounts]): The copies of each batch with predicted entities,
        and their expected counts.
    RAISES (ValueError): If the component is missing.
    """
    ner = get_component(nlp, name)
    # The copies have no annotation, because existing entities would be treated as preset.
    copies = (as_spacy_applies(doc) for doc in docs if len(doc))
    for batch in minibatch(copies, nlp.batch_size):
        docs_of_batch = run_before(nlp, name, batch)
        posterior = ner.posterior(docs_of_batch, preset=True)
        # Passing `Confidence` writes the probabilities of predicted entities, which are read by
        # `prob_of`.
        predict(ner, docs_of_batch, posterior, Confidence())
        predicted, correct = count_predicted(docs_of_batch, ner.labels)
        # The expected number of entities is the sum of each token's probability of starting an
        # entity. Shapes: (N, K) @ (K, labels) = (N, labels)
        opening_probs = posterior.chain_marginals @ posterior.tags.opens_label
        yield (
            docs_of_batch,
            ExpectedCounts(
                n_tokens=posterior.doc_lengths,
                predicted=predicted,
                correct=correct,
                annotated=posterior.sum_by_doc(opening_probs),
            ),
        )


def concatenate_counts(parts: Iterable[ExpectedCounts]) -> ExpectedCounts:
    """Concatenate the expected counts of several groups of docs.

    parts (Iterable[ExpectedCounts]): The counts of each group. Must not be empty.
    RETURNS (ExpectedCounts): The counts of all docs.
    """
    return ExpectedCounts(*(numpy.concatenate(columns) for columns in zip(*parts)))


def count_predicted(docs: Sequence[Doc], labels: Sequence[str]) -> tuple[Floats2d, Floats2d]:
    """Count the predicted entities of each doc by label, and sum their probabilities, i.e. the
    expected number of correct predictions. Shapes: (docs, labels)"""
    label_numbers = {label: i for i, label in enumerate(labels)}
    shape = (len(docs), len(labels))
    predicted = numpy.zeros(shape)
    correct = numpy.zeros(shape)
    for i, doc in enumerate(docs):
        for ent in doc.ents:
            label = label_numbers.get(ent.label_)
            if label is None:  # a preset entity with another label
                continue
            prob = prob_of(ent)
            if prob is None:  # a preset entity, which is certain
                prob = 1.0
            predicted[i, label] += 1
            correct[i, label] += prob
    return predicted, correct
