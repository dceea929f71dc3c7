"""What a model expects of each doc: how many entities it has, and how many predictions are right.

All numbers are exact: they are sums of probabilities of the posterior.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d, Floats2d, Ints1d

from ..pipeline.annotations import Confidence, prob_of
from ..readers import as_spacy_applies
from .predictions import get_component, predict, run_before


class ExpectedCounts(NamedTuple):
    """What a model expects of D docs, by label.

    n_tokens (Ints1d): The number of tokens. Shape: (D,)
    predicted (Floats2d): The number of predicted entities. Shape: (D, labels)
    correct (Floats2d): The expected number of them that are annotated: the sum of their
        probabilities. Shape: (D, labels)
    annotated (Floats2d): The expected number of annotated entities. Shape: (D, labels)
    """

    n_tokens: Ints1d
    predicted: Floats2d
    correct: Floats2d
    annotated: Floats2d

    def mistakes(self) -> Floats1d:
        """The expected number of mistakes in each doc: of predicted entities that are not annotated
        (false alarms), and of annotated ones that are not predicted (misses). Shape: (D,)"""
        false_alarms = self.predicted - self.correct
        misses = self.annotated - self.correct
        # Rounding may make those of a sure doc negative.
        return numpy.maximum(false_alarms + misses, 0.0).sum(axis=1)

    def of_doc(self, i: int) -> "ExpectedCounts":
        """What is expected of the doc with this index. Shapes: (1,), (1, labels)"""
        return ExpectedCounts(*(column[i : i + 1] for column in self))

    def total(self) -> "ExpectedCounts":
        """The sums over all docs, as if these were one doc. Shapes: (1,), (1, labels)"""
        return ExpectedCounts(*(column.sum(axis=0, keepdims=True) for column in self))


def expect_counts(
    nlp: Language, name: str, docs: Iterable[Doc]
) -> Iterator[tuple[Sequence[Doc], ExpectedCounts]]:
    """Predict copies of docs in batches, and compute what the component expects of them. Entities
    that a component before it sets have a probability of 1.

    nlp (Language): The pipeline. What is before the component annotates the docs.
    name (str): The name of the component.
    docs (Iterable[Doc]): The docs, whose annotation is ignored. Those without tokens are left out.
    YIELDS (tuple[Sequence[Doc], ExpectedCounts]): The copies of each batch with their
        predicted entities, and what is expected of them.
    """
    ner = get_component(nlp, name)
    label_numbers = {label: i for i, label in enumerate(ner.labels)}
    # The docs of others stay as they are, and entities that they have don't count as preset.
    copies = (as_spacy_applies(doc) for doc in docs if len(doc))
    for batch in minibatch(copies, nlp.batch_size):
        docs_of_batch = run_before(nlp, name, batch)
        posterior = ner.posterior(docs_of_batch, preset=True)
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
                predicted[i, label] += 1
                correct[i, label] += 1.0 if prob is None else prob
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
    """Concatenate what is expected of the docs of several batches, at least one."""
    return ExpectedCounts(*(numpy.concatenate(columns) for columns in zip(*parts)))
