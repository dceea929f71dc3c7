"""The linear equations whose solution has the best Z-score of a linear model."""

from typing import Iterator, List, Optional, Protocol, Sequence, Tuple

import numpy
from spacy.training import Example
from thinc.types import Array2d, Floats1d

from .. import chain
from ..losses.composition import annotated, sequence_weights, uniform_over_legal, zero_forbidden
from ..losses.zscore import mean_right, scaled
from ..pipeline.component import CostSensitiveNER
from ..types import Potentials, add_to
from .examples import AllExamples, Batch
from .sampled import SampledPaths, draw


class Paths(Protocol):
    """A uniform distribution over paths of each sequence of a batch."""

    def average(self, weights: Floats1d) -> Potentials:
        """The mean counts of tags and transitions, times the weights, summed over sequences."""

    def covariance(self, values: Potentials, weights: Floats1d) -> Potentials:
        """The covariances of these counts with the value of a path, times the weights, summed."""


class AllPaths:
    """All legal paths."""

    def __init__(self, potentials: Potentials) -> None:
        """Run forward-backward.

        potentials (Potentials): Minus infinity where a tag or transition is not legal, else 0.
        """
        self._posterior = chain.forward_backward(potentials)

    def average(self, weights: Floats1d) -> Potentials:
        return self._posterior.log_partition()[1](weights)

    def covariance(self, values: Potentials, weights: Floats1d) -> Potentials:
        return self._posterior.expectation(values)[1](weights)


class ZScoreEquations(AllExamples):
    """The linear equations whose solution has the best Z-score.

        (C* + 2 c2 I) theta = b*

    b* is the sum over the sequences of gold's feature counts minus their mean over all legal
    paths. C* is the sum of the covariances of these counts. Partial annotation, weights and
    sequences without annotation are treated as in `losses.zscore`. Without a penalty the scale of
    theta doesn't matter. C* is never formed: its product with a vector is the gradient of the
    expected score of a path, at scores of 0.

    Ricci, De Bie & Cristianini, sections 3 to 5; the penalty is ours.
    """

    def __init__(
        self,
        ner: CostSensitiveNER,
        examples: Sequence[Example],
        *,
        c2: float,
        n_sampled: Optional[int] = None,
        seed: int = 0,
    ) -> None:
        """Read the examples.

        ner (CostSensitiveNER): An initialized component with a linear model.
        examples (Sequence[Example]): All examples.
        c2 (float): Weight of the penalty.
        n_sampled (Optional[int]): How many paths to draw once for each sequence, in place of all
            legal paths (section 6). None: all legal paths.
        seed (int): The seed of the draws.
        """
        super().__init__(ner, examples)
        self.c2 = c2
        self.n_sampled = n_sampled
        self._rng = numpy.random.default_rng(seed)
        self._weights: List[Floats1d] = []
        self._samples: List[Array2d] = []
        self.right = self.sum_gradients(self._differences())

    def __call__(self, vector: Floats1d) -> Floats1d:
        """The product of the matrix and a vector. Shape: (D,) to (D,)"""
        return self.sum_gradients(self._covariances(vector)) + 2 * self.c2 * vector

    def _differences(self) -> Iterator[Tuple[Batch, Potentials]]:
        """b* as a gradient of each batch. Paths are drawn here."""
        start = numpy.zeros(self.shape).reshape(-1)
        for batch, scores in self.score(start):
            potentials, gold = batch.targets.to_loss_inputs(scores)
            legal = uniform_over_legal(potentials)
            weights = sequence_weights(gold, annotated(gold, legal)) * annotated(gold, legal)
            if self.n_sampled is not None:
                self._samples.append(draw(legal, self.n_sampled, self._rng))
            self._weights.append(weights)
            average = self._paths(len(self._weights) - 1, legal).average(weights)
            ahead = add_to(scaled(-1.0, average), mean_right(legal, gold, weights))
            yield batch, batch.targets.collapse(ahead)

    def _covariances(self, vector: Floats1d) -> Iterator[Tuple[Batch, Potentials]]:
        """C* times a vector, as a gradient of each batch."""
        for i, (batch, scores) in enumerate(self.score(vector)):
            potentials = batch.targets.constrain(scores)
            paths = self._paths(i, uniform_over_legal(potentials))
            gradient = paths.covariance(zero_forbidden(potentials), self._weights[i])
            yield batch, batch.targets.collapse(gradient)

    def _paths(self, i: int, legal: Potentials) -> Paths:
        """The paths of a batch."""
        if self.n_sampled is None:
            return AllPaths(legal)
        return SampledPaths(self._samples[i], legal.lengths, len(legal.start))
