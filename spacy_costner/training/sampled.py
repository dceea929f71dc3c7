"""Means and covariances of the features of sampled paths, in place of all paths."""

import numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d

from .. import chain
from ..types import Potentials


def draw(potentials: Potentials, n: int, rng: numpy.random.Generator) -> Array2d:
    """Draw paths of each sequence, in few bits.

    potentials (Potentials): The scores of a batch.
    n (int): How many paths of each sequence.
    rng (Generator): The random generator.
    RETURNS (Array2d): Their tags. Shape: (n, N)
    """
    tags = chain.sample_paths(potentials, n, rng)
    return tags.astype(numpy.min_scalar_type(len(potentials.start)))


class SampledPaths:
    """Paths of each sequence of a batch, all with the same probability. n of each."""

    def __init__(self, tags: Array2d, lengths: Ints1d, n_tags: int) -> None:
        """Find the tags and transitions of the paths.

        tags (Array2d): Their tags. Shape: (n, N)
        lengths (Ints1d): Tokens of each sequence. Shape: (B,)
        n_tags (int): K.
        """
        self.n_tags, self.lengths = n_tags, lengths
        self.tags = tags.astype("int64")
        ends = numpy.cumsum(lengths)
        self.first, self.last = (ends - lengths)[lengths > 0], ends[lengths > 0] - 1
        self.later = numpy.ones(tags.shape[1], dtype=bool)
        self.later[self.first] = False
        self.at = self.tags + n_tags * numpy.arange(tags.shape[1])
        self.pairs = (n_tags * self.tags[:, :-1] + self.tags[:, 1:])[:, self.later[1:]]

    def average(self, weights: Floats1d) -> Potentials:
        """The mean features of the paths, weighted and summed.

        weights (Floats1d): Of the sequences. Shape: (B,)
        """
        n = len(self.tags)
        return self._count(numpy.broadcast_to(weights / n, (n, len(self.lengths))))

    def covariance(self, values: Potentials, weights: Floats1d) -> Potentials:
        """The covariance of the features with the value of a path, weighted and summed.

        values (Potentials): The value of each step; all of them finite.
        weights (Floats1d): Of the sequences. Shape: (B,)
        """
        of_path = self._add(values)
        return self._count((of_path - of_path.mean(axis=0)) * (weights / len(self.tags)))

    def _add(self, values: Potentials) -> Floats2d:
        """The value of each path, in float64. Shape: (n, B)"""
        steps = values.emissions.ravel()[self.at].astype("float64")
        steps[:, self.later] += values.transitions.ravel()[self.pairs]
        steps[:, self.first] += values.start[self.tags[:, self.first]]
        steps[:, self.last] += values.end[self.tags[:, self.last]]
        sums = numpy.pad(numpy.cumsum(steps, axis=1), ((0, 0), (1, 0)))
        ends = numpy.cumsum(self.lengths)
        return sums[:, ends] - sums[:, ends - self.lengths]

    def _count(self, of_path: Floats2d) -> Potentials:
        """How often the paths take each step, each counting as much as is said. Shape of what
        is said: (n, B)"""
        k, of_token = self.n_tags, numpy.repeat(of_path, self.lengths, axis=1)

        def count(steps: Array2d, columns: Array1d, size: int) -> Floats1d:
            return numpy.bincount(steps.ravel(), of_token[:, columns].ravel(), minlength=size)

        return Potentials(
            emissions=count(self.at, slice(None), k * self.tags.shape[1]).reshape(-1, k),
            transitions=count(self.pairs, self.later, k * k).reshape(k, k),
            start=count(self.tags[:, self.first], self.first, k),
            end=count(self.tags[:, self.last], self.last, k),
            lengths=self.lengths,
        )
