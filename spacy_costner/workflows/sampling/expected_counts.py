"""Compute what a model expects of each doc: how many entities it has, and how many of the predicted
ones are right.

All numbers are exact: they are sums of probabilities of the posterior, and nothing is sampled.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d, Floats2d, Ints1d

from ...pipeline.annotations import Confidence, prob_of
from ...readers import as_spacy_applies
from ..components import get_component, run_before
from ..evaluation.predictions import predict


class ExpectedCounts(NamedTuple):
    """What a model expects of each of D docs.

    n_tokens (Ints1d): The number of tokens. Shape: (D,)
    predicted (Floats2d): The number of predicted entities by label. Shape: (D, labels)
    correct (Floats2d): How many of the predicted entities are expected to be right: the sum of
        their probabilities. Shape: (D, labels)
    annotated (Floats2d): The expected number of entities by label, if the doc were annotated.
        Shape: (D, labels)
    """

    n_tokens: Ints1d
    predicted: Floats2d
    correct: Floats2d
    annotated: Floats2d

    def mistakes(self) -> Floats1d:
        """The expected number of mistakes in each doc: of false alarms, which are predicted but
        not annotated, and of misses, which are annotated but not predicted. Shape: (D,)"""
        false_alarms = self.predicted - self.correct
        misses = self.annotated - self.correct
        # Where the model is certain, rounding may give a number slightly below 0.
        return numpy.maximum(false_alarms + misses, 0.0).sum(axis=1)

    def of_doc(self, i: int) -> "ExpectedCounts":
        """What is expected of the doc with the index `i`. Shapes: (1,), (1, labels)"""
        return ExpectedCounts(*(column[i : i + 1] for column in self))

    def total(self) -> "ExpectedCounts":
        """The sums over all docs, as if these were one doc. Shapes: (1,), (1, labels)"""
        return ExpectedCounts(*(column.sum(axis=0, keepdims=True) for column in self))


def expect_counts(
    nlp: Language, name: str, docs: Iterable[Doc]
) -> Iterator[tuple[Sequence[Doc], ExpectedCounts]]:
    """Predict copies of docs in batches, and compute what the component expects of them. An entity
    that an earlier component has set has the probability 1.

    nlp (Language): The pipeline. The components before this one annotate the docs first.
    name (str): The name of the component.
    docs (Iterable[Doc]): The docs, whose annotation is ignored. Those without tokens are left out.
    YIELDS (tuple[Sequence[Doc], ExpectedCounts]): For each batch the copies with their predicted
        entities, and what is expected of them.
    RAISES (ValueError): If there is no such component.
    """
    ner = get_component(nlp, name)
    label_numbers = {label: i for i, label in enumerate(ner.labels)}
    # Copies have no annotation: neither are the given docs changed, nor do their entities count as
    # preset.
    copies = (as_spacy_applies(doc) for doc in docs if len(doc))
    for batch in minibatch(copies, nlp.batch_size):
        docs_of_batch = run_before(nlp, name, batch)
        posterior = ner.posterior(docs_of_batch, preset=True)
        # `Confidence` has the probabilities of predicted entities written, which `prob_of` reads.
        predict(ner, docs_of_batch, posterior, Confidence())
        shape = (len(docs_of_batch), len(ner.labels))
        predicted = numpy.zeros(shape)
        correct = numpy.zeros(shape)
        for i, doc in enumerate(docs_of_batch):
            for ent in doc.ents:
                label = label_numbers.get(ent.label_)
                if label is None:  # a preset entity of another label
                    continue
                prob = prob_of(ent)
                if prob is None:  # a preset entity, which is certain
                    prob = 1.0
                predicted[i, label] += 1
                correct[i, label] += prob
        # The expected number of entities is the sum of the probabilities that a token opens one.
        # Shapes: (N, K) @ (K, labels) = (N, labels)
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
    """Join what is expected of the docs of several parts, of which there is at least one."""
    return ExpectedCounts(*(numpy.concatenate(columns) for columns in zip(*parts)))
