"""The k best paths.

The k best paths that end in a tag extend the k best that end in each tag before:

    delta_t[., j] = the k largest of delta_{t-1}[r, i] + transitions[i, j], + emissions[t, j]

found by merging the K descending lists delta_{t-1}[., i] (Huang & Chiang, 2005, "Better
k-best Parsing", algorithm 2).
"""

from typing import NamedTuple, Tuple

from thinc.types import Floats2d, Floats3d, Ints2d, Ints3d
from thinc.util import get_array_module

from ...types import Potentials
from ..validation import check_count
from .packing import Packing, fold_ends, pack, unpack


class BestPaths(NamedTuple):
    """The paths of the highest scores.

    tags (Ints2d): The tag of each token, in the best path of each sequence, the second
        best, and so on. Shape: (k, N)
    scores (Floats2d): Their scores, descending; minus infinity where there is no further
        legal path. Shape: (k, B)
    """

    tags: Ints2d
    scores: Floats2d


Merged = Tuple[Floats3d, Ints3d, Ints3d]
"""The k best paths that end in each tag of some rows, the best first: their scores, the previous
tag, and the rank of the path that ends in the previous tag. Shapes: (R, k, K)"""


def k_best(potentials: Potentials, k: int) -> BestPaths:
    """Find the k paths of the highest scores, all different.

    potentials (Potentials): The scores of a batch.
    k (int): How many, at least 1.
    RETURNS (BestPaths): Their tags and scores.
    RAISES (ValueError): If k is less than 1.
    """
    check_count("k", k)
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    best = _forward(potentials, packing, k)
    ends = packing.ends
    n_tags = len(potentials.transitions)
    at_end = best[0][ends].reshape(len(ends), k * n_tags)
    order = xp.argsort(-at_end, axis=1)[:, :k]
    scores = xp.full((k, packing.n_sequences), -xp.inf)
    scores[0] = 0
    scores[:, packing.sequence[ends]] = xp.take_along_axis(at_end, order, axis=1).T
    tags = xp.zeros((len(packing.tokens), k), dtype="int64")
    ranks = tags.copy()
    tags[ends], ranks[ends] = order % n_tags, order // n_tags
    _trace_back(tags, ranks, best, packing)
    return BestPaths(unpack(tags, packing).T, scores)


def _forward(potentials: Potentials, packing: Packing, k: int) -> Merged:
    emissions = fold_ends(potentials, packing)
    xp = get_array_module(emissions)
    transitions = potentials.transitions.astype("float64")
    shape = (len(emissions), k, emissions.shape[1])
    scores, tags, ranks = (
        xp.full(shape, -xp.inf),
        xp.zeros(shape, "int64"),
        xp.zeros(shape, "int64"),
    )
    scores[:, 0] = emissions
    for before, rows in packing.walk(leftwards=False):
        scores[rows], tags[rows], ranks[rows] = _merge(scores[before], transitions, k)
        scores[rows] += emissions[rows][:, None, :]
    return scores, tags, ranks


def _merge(delta: Floats3d, transitions: Floats2d, k: int) -> Merged:
    """Merge the lists of all previous tags: take the best head k times, and advance its list.

    delta (Floats3d): The k best scores of each previous tag. Shape: (R, k, K)
    """
    xp = get_array_module(delta)
    n_rows, _, n_tags = delta.shape
    row, to_tag = xp.arange(n_rows)[:, None], xp.arange(n_tags)
    delta = xp.concatenate([delta, xp.full((n_rows, 1, n_tags), -xp.inf)], axis=1)
    heads = delta[:, 0][:, None, :] + transitions.T
    ranks_of_heads = xp.zeros(heads.shape, dtype="int64")
    merged = []
    for _ in range(k):
        tags = heads.argmax(axis=2)
        scores, ranks = heads[row, to_tag, tags], ranks_of_heads[row, to_tag, tags]
        merged.append((scores, tags, ranks))
        ranks_of_heads[row, to_tag, tags] = xp.minimum(ranks + 1, k - 1)
        heads[row, to_tag, tags] = delta[row, ranks + 1, tags] + transitions[tags, to_tag]
    scores, tags, ranks = (xp.stack(each, axis=1) for each in zip(*merged))
    return scores, tags, ranks


def _trace_back(tags: Ints2d, ranks: Ints2d, best: Merged, packing: Packing) -> None:
    """Fill in the tags of the paths, from the last tokens backwards. Shape: (N, k)"""
    xp = get_array_module(tags)
    for rows, before in packing.walk(leftwards=True):
        row = xp.arange(rows.start, rows.stop)[:, None]
        at = (row, ranks[rows], tags[rows])
        tags[before], ranks[before] = best[1][at], best[2][at]
