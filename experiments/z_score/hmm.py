"""Hidden Markov models, to draw sequences from."""

from typing import NamedTuple

import numpy
from numpy.random import Generator
from thinc.types import Floats1d, Floats2d, Ints2d

from .chains import Sequences, features_as_matrix


class HMM(NamedTuple):
    """A hidden Markov model whose first state is any, each as probable as the other.

    transitions (Floats2d): The probability of each state after each. Shape: (K, K)
    emissions (Floats2d): That of each symbol in each state. Shape: (K, V)
    """

    transitions: Floats2d
    emissions: Floats2d

    @property
    def weights(self) -> Floats1d:
        """Its logarithms, as weights of `Sequences`. Shape: (D,)"""
        return numpy.concatenate([numpy.log(self.emissions.T), numpy.log(self.transitions)]).ravel()

    def sample(self, n: int, length: int, rng: Generator) -> Sequences:
        """Draw sequences.

        n (int): How many.
        length (int): Their length.
        rng (Generator): Where chance comes from.
        """
        k, v = self.emissions.shape
        states = numpy.empty((n, length), dtype="int32")
        states[:, 0] = rng.integers(k, size=n)
        for t in range(1, length):
            states[:, t] = drawn(self.transitions[states[:, t - 1]], rng)
        symbols = drawn(self.emissions[states.ravel()], rng)
        lengths = numpy.full(n, length, dtype="int32")
        return Sequences(
            features_as_matrix(symbols[:, None], v), states.ravel(), lengths, numpy.ones((k, k))
        )


def drawn(probabilities: Floats2d, rng: Generator) -> Ints2d:
    """One of the columns of each row, drawn by its probabilities. Shape: (R, C) to (R,)"""
    passed = probabilities.cumsum(axis=1) < rng.random((len(probabilities), 1))
    return passed[:, :-1].sum(axis=1)


def random_hmm(
    n_states: int,
    n_symbols: int,
    rng: Generator,
    *,
    transitions: float = 1.0,
    emissions: float = 1.0,
    balanced: bool = False,
) -> HMM:
    """Draw an HMM, the probabilities of each state from a Dirichlet distribution.

    n_states (int): K.
    n_symbols (int): V.
    rng (Generator): Where chance comes from.
    transitions (float), emissions (float): Its concentration: 1 for the uniform distribution;
        the higher, the more even they are, the lower, the fewer are probable.
    balanced (bool): Whether all states have the same probabilities of what comes after, each
        counted from itself; then they are equally frequent.
    """
    after = rng.dirichlet(numpy.full(n_states, transitions), size=n_states)
    if balanced:
        after = numpy.stack([numpy.roll(after[0], i) for i in range(n_states)])
    return HMM(after, rng.dirichlet(numpy.full(n_symbols, emissions), size=n_states))
