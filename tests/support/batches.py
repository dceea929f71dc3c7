"""Batches for examples, and what can be done to them."""

import numpy

from spacy_costner import chain
from spacy_costner.types import Potentials

from .. import oracle


def random_potentials(
    lengths: list[int], n_tags: int, scale: float = 1.0, dtype: str = "float64", seed: int = 0
) -> Potentials:
    """Scores between -scale and scale, of sequences of these lengths."""
    rng = numpy.random.default_rng(seed)
    shapes = ((sum(lengths), n_tags), (n_tags, n_tags), n_tags, n_tags)
    arrays = [rng.uniform(-scale, scale, size=shape).astype(dtype) for shape in shapes]
    return Potentials(*arrays, lengths=numpy.asarray(lengths, dtype="int32"))


def forbid_all(potentials: Potentials, b: int) -> Potentials:
    """Leave sequence b without a legal path."""
    allowed = numpy.ones(potentials.emissions.shape, dtype=bool)
    allowed[oracle.spans(potentials)[b].start] = False
    return chain.restrict(potentials, allowed)


def single(potentials: Potentials, b: int) -> Potentials:
    """A batch of sequence b alone."""
    return potentials._replace(
        emissions=potentials.emissions[oracle.spans(potentials)[b]],
        lengths=potentials.lengths[b : b + 1],
    )


def in_precision(potentials: Potentials, dtype: str) -> Potentials:
    """The same scores as float32 or float64."""
    arrays = [array.astype(dtype) for array in potentials[:4]]
    return Potentials(*arrays, lengths=potentials.lengths)
