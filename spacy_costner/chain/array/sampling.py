"""Paths drawn at random."""

from numpy.random import Generator
from thinc.types import Ints2d
from thinc.util import get_array_module

from ...types import Potentials
from ..validation import check_count
from .messages import predecessors
from .packing import pack, unpack


def sample_paths(potentials: Potentials, n: int, rng: Generator) -> Ints2d:
    """Draw paths from the distribution p(y) = exp(s(y)) / Z.

    Forward filtering, backward sampling: the last tag from alpha_T, then each tag from
    what may stand before the one drawn already,

        y_{t-1} ~ alpha_{t-1}[i] exp(transitions[i, y_t])

    where the largest of scores with Gumbel noise is a draw from their exponentials.

    potentials (Potentials): The scores of a batch.
    n (int): How many paths to draw of each sequence, at least 1.
    rng (Generator): Where chance comes from.
    RETURNS (Ints2d): The tags of each draw; they mean nothing for a sequence without a
        legal path. Shape: (n, N)
    RAISES (ValueError): If n is less than 1.
    """
    check_count("n", n)
    xp = get_array_module(potentials.emissions)
    packing = pack(potentials)
    alpha = predecessors(potentials, packing).filtered
    tags = xp.zeros((len(alpha), n), dtype="int64")
    for t in range(packing.n_steps - 1, -1, -1):
        rows = packing.rows(t)
        scores = xp.repeat(alpha[rows][:, None, :], n, axis=1)
        if t + 1 < packing.n_steps:
            after, continues = packing.step(t + 1)
            scores[: continues.stop - continues.start] += potentials.transitions.T[tags[after]]
        tags[rows] = (scores + xp.asarray(rng.gumbel(size=scores.shape))).argmax(axis=2)
    return unpack(tags, packing).T
