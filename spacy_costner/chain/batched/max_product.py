"""The best path: Viterbi's recursion.

delta_t[j] = max_i (delta_{t-1}[i] + transitions[i, j]) + emissions[t, j]
"""

from typing import Any, NamedTuple

from thinc.types import Floats1d, Floats2d, Ints1d
from thinc.util import get_array_module

from ...types import Potentials
from .packing import Packing, fold_ends, pack, unpack
from .paths import path_score


class BestPath(NamedTuple):
    """The path of the highest score.

    tags (Ints1d): The tag of each token. Shape: (N,)
    scores (Floats1d): The score of each sequence, minus infinity if it has no legal
        path. Shape: (B,)
    """

    tags: Ints1d
    scores: Floats1d


def best_path(potentials: Potentials) -> BestPath:
    """Find the path of the highest score.

        argmax_y s(y)

    potentials (Potentials): The scores of a batch.
    RETURNS (BestPath): Its tags and its score. Of several best paths it is one.
    """
    xp = get_array_module(potentials.emissions)
    packing = pack(potentials.lengths, xp)
    delta, came_from = _forward(fold_ends(potentials, packing), potentials.transitions, packing)
    tags = unpack(_trace_back(delta, came_from, packing), packing)
    return BestPath(tags, path_score(potentials, tags)[0])


def _forward(emissions: Floats2d, transitions: Floats2d, packing: Packing) -> Any:
    """Each row of delta is lowered by its largest, so that long sequences lose nothing."""
    xp = get_array_module(emissions)
    delta = emissions.copy()
    came_from = xp.zeros(emissions.shape, dtype="int32")
    for t in range(1, packing.n_steps):
        rows, before = packing.step(t)
        largest = delta[before].max(axis=1, keepdims=True)
        lowered = delta[before] - xp.where(xp.isfinite(largest), largest, 0)
        arrivals = lowered[:, :, None] + transitions
        came_from[rows] = arrivals.argmax(axis=1)
        delta[rows] += arrivals.max(axis=1)
    return delta, came_from


def _trace_back(delta: Floats2d, came_from: Floats2d, packing: Packing) -> Ints1d:
    xp = get_array_module(delta)
    tags = delta.argmax(axis=1)
    for t in range(packing.n_steps - 1, 0, -1):
        rows, before = packing.step(t)
        sources = came_from[rows]
        tags[before] = sources[xp.arange(len(sources)), tags[rows]]
    return tags
