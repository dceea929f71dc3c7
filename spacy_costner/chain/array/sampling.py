"""Sampling of paths."""

from numpy.random import Generator
from thinc.types import Ints2d
from thinc.util import get_array_module

from ...types import Potentials
from ..validation import check_count
from .packing import pack, unpack
from .sum_product import sum_product_messages


def sample_paths(potentials: Potentials, n: int, rng: Generator) -> Ints2d:
    """Sample paths from the distribution p(y) = exp(s(y)) / Z.

    Forward filtering, backward sampling: the last tag is drawn from alpha_T, then each tag
    given the next one,

        y_{t-1} ~ alpha_{t-1}[i] exp(transitions[i, y_t])

    by the Gumbel-max trick.

    potentials (Potentials): The scores of a batch.
    n (int): Number of paths to sample for each sequence, at least 1.
    rng (Generator): The random number generator.
    RETURNS (Ints2d): The tags of each sample; arbitrary for a sequence without a legal
        path. Shape: (n, N)
    RAISES (ValueError): If n is less than 1.
    """
    check_count("n", n)
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    alpha = sum_product_messages(potentials, packing, leftwards=True).filtered
    tags = xp.zeros((len(alpha), n), dtype="int64")
    for t in range(packing.n_steps - 1, -1, -1):
        rows = packing.rows(t)
        scores = xp.repeat(alpha[rows][:, None, :], n, axis=1)
        if t + 1 < packing.n_steps:
            after, continues = packing.step(t + 1)
            scores[: continues.stop - continues.start] += potentials.transitions.T[tags[after]]
        tags[rows] = (scores + xp.asarray(rng.gumbel(size=scores.shape))).argmax(axis=2)
    return unpack(tags, packing).T
