"""What a model expects of each doc: how many entities it has, and how many predictions are right.

All numbers are exact, from the posterior. How sure the model is of them is the standard deviation
of the number of entities.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.types import Floats1d, Floats2d, Ints1d

from ..decoding import Posterior
from ..pipeline.annotations import Confidence, prob_of
from ..readers import as_spacy_applies
from ..types import Potentials
from .predictions import get_component, predict, run_before


class ExpectedCounts(NamedTuple):
    """What a model expects of D docs, by label.

    n_tokens (Ints1d): The number of tokens. Shape: (D,)
    predicted (Floats2d): The number of predicted entities. Shape: (D, labels)
    correct (Floats2d): The expected number of them that are annotated: the sum of their
        probabilities. Shape: (D, labels)
    annotated (Floats2d): The expected number of annotated entities. Shape: (D, labels)
    deviation (Floats1d): The standard deviation of the number of annotated entities of any label.
        Shape: (D,)
    """

    n_tokens: Ints1d
    predicted: Floats2d
    correct: Floats2d
    annotated: Floats2d
    deviation: Floats1d

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
                deviation=numpy.sqrt(variance_of_count(posterior)),
            ),
        )


def concatenate_counts(parts: Iterable[ExpectedCounts]) -> ExpectedCounts:
    """Concatenate what is expected of the docs of several batches, at least one."""
    return ExpectedCounts(*(numpy.concatenate(columns) for columns in zip(*parts)))


def variance_of_count(posterior: Posterior) -> Floats1d:
    """The variance of the number of entities of each doc. Shape: (D,)

        n(y) = sum_t [y_t opens an entity],   Var n = sum_{t, k opens} d E[n] / d emissions[t, k]

    The gradient of an expectation is a covariance: that of n and of the use of a tag. Li & Eisner,
    2009, "First- and Second-Order Expectation Semirings".
    """
    potentials = posterior.potentials
    opens = posterior.tags.opening.astype(potentials.emissions.dtype)
    n_openings = Potentials(
        emissions=numpy.tile(opens, (len(potentials.emissions), 1)),
        transitions=numpy.zeros_like(potentials.transitions),
        start=numpy.zeros_like(potentials.start),
        end=numpy.zeros_like(potentials.end),
        lengths=potentials.lengths,
    )
    expected, backprop = posterior.forward_backward.expectation(n_openings)
    covariances = backprop(numpy.ones_like(expected)).emissions @ opens
    variances = posterior.sum_by_doc(covariances[:, None])[:, 0]
    # Rounding may make the variance of a sure doc negative.
    return numpy.maximum(variances, 0.0)
