"""The targets of all examples, and the weights of a linear model as one vector."""

from typing import Iterable, Iterator, NamedTuple, Sequence, Tuple

import numpy
from spacy.training import Example
from thinc.types import Floats1d, Floats2d, Ints2d

from .. import sparse
from ..ml import find_features, linear_part
from ..pipeline.component import CostSensitiveNER
from ..types import Potentials
from .targets import Targets

BATCH_SIZE = 256
"""Number of docs that are scored together, to bound the memory of the chain's messages."""


class Batch(NamedTuple):
    """Docs that are scored together.

    rows (Ints2d): The features of each token, merged. Shape: (N, S)
    targets (Targets): Their targets.
    """

    rows: Ints2d
    targets: Targets


class AllExamples:
    """The targets of all examples, and the weights of a linear model as a vector of D numbers.

    Docs are read once. Features that always occur together share a part of the vector: see
    `sparse.Merged`. A vector is in float64, the scores are in float32.
    """

    def __init__(
        self, ner: CostSensitiveNER, examples: Sequence[Example], *, batch_size: int = 0
    ) -> None:
        """Read the examples.

        ner (CostSensitiveNER): An initialized component with a linear model.
        examples (Sequence[Example]): All examples.
        batch_size (int): How many are scored together; 0 for the default.
        """
        self.ner = ner
        self.features, self.weights = linear_part(ner.model)
        rows = find_features(ner.model, [eg.predicted for eg in examples], is_train=True).rows
        self.merged = sparse.merge_equal(rows, self.weights.n_features)
        self.batches = list(self._read(examples, batch_size or BATCH_SIZE))
        self.shape = (len(self.merged.roots) + self.weights.n_tags + 2, self.weights.n_tags)

    def _read(self, examples: Sequence[Example], size: int) -> Iterable[Batch]:
        start = 0
        for i in range(0, len(examples), size):
            targets = self.ner.targets(examples[i : i + size])
            end = start + int(targets.lengths.sum())
            yield Batch(self.merged.rows[start:end], targets)
            start = end

    def score(self, vector: Floats1d) -> Iterator[Tuple[Batch, Potentials]]:
        """Compute the scores of each batch with the weights of a vector.

        vector (Floats1d): Shape: (D,)
        """
        n_groups = len(self.merged.roots)
        weights = vector.reshape(self.shape).astype("float32")
        weights[:n_groups] *= self.merged.roots[:, None]
        for batch in self.batches:
            scores = Potentials(
                emissions=sparse.sum_rows(batch.rows, weights),
                transitions=weights[n_groups:-2],
                start=weights[-2],
                end=weights[-1],
                lengths=batch.targets.lengths,
            )
            yield batch, scores

    def sum_gradients(self, gradients: Iterable[Tuple[Batch, Potentials]]) -> Floats1d:
        """Sum gradients with respect to scores into one with respect to the vector.

        gradients (Iterable[Tuple[Batch, Potentials]]): That of each batch.
        RETURNS (Floats1d): Shape: (D,)
        """
        n_groups, sums = len(self.merged.roots), numpy.zeros(self.shape)
        for batch, gradient in gradients:
            sparse.add_rows(batch.rows, _float32(gradient.emissions), sums)
            sums[n_groups:-2] += gradient.transitions
            sums[-2] += gradient.start
            sums[-1] += gradient.end
        sums[:n_groups] *= self.merged.roots[:, None]
        return sums.reshape(-1)

    def read_weights(self) -> Floats1d:
        """The vector that is closest to the weights of the model. Shape: (D,)"""
        n_features, rows = self.weights.n_features, self.weights.rows.astype("float64")
        groups = self.merged.merge(rows[:n_features])
        return numpy.concatenate([groups, rows[n_features:]]).reshape(-1)

    def write_weights(self, vector: Floats1d) -> None:
        """Set the weights of the model from a vector. Shape: (D,)"""
        n_groups, vectors = len(self.merged.roots), vector.reshape(self.shape)
        features = self.merged.spread(vectors[:n_groups])
        self.weights.rows[:] = numpy.concatenate([features, vectors[n_groups:]])


def _float32(scores: Floats2d) -> Floats2d:
    return numpy.ascontiguousarray(scores, dtype="float32")
