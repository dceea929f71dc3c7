"""Max-product messages: the Viterbi recursion, forwards and backwards.

delta_t[j]     = max_i (delta_{t-1}[i] + transitions[i, j]) + emissions[t, j]
gamma_{t-1}[i] = max_j (transitions[i, j] + emissions[t, j] + gamma_t[j])

In float64, so that the scores of long sequences keep their precision.
"""

from typing import NamedTuple

from thinc.types import Floats1d, Floats2d, Ints1d, Ints2d
from thinc.util import get_array_module

from ...types import Potentials
from .packing import Packing, add_up, fold_ends, pack, unpack
from .paths import path_score


class BestPath(NamedTuple):
    """The path of the highest score.

    tags (Ints1d): The tag of each token. Shape: (N,)
    scores (Floats1d): The score of each sequence, minus infinity if it has no legal
        path. Shape: (B,)
    """

    tags: Ints1d
    scores: Floats1d


class MaxProductMessages(NamedTuple):
    """As `messages.MessagesOfSide`, where each tag has only one adjacent tag: the best.

    packing (Packing): The order of the rows.
    leftwards (bool): Whether the adjacent token is the one before.
    filtered (Floats2d): Messages with the emission of the row. Shape: (N, K)
    predicted (Floats2d): Messages without it. Shape: (N, K)
    tags (Ints2d): The best adjacent tag of each tag. Shape: (N, K)
    """

    packing: Packing
    leftwards: bool
    filtered: Floats2d
    predicted: Floats2d
    tags: Ints2d

    def propagate(self, sources: Floats2d) -> Floats2d:
        xp = get_array_module(sources)
        mass = sources.astype("float64")
        for rows, adjacent in self.packing.walk(self.leftwards):
            moved, tags = mass[rows], self.tags[rows]
            place = xp.arange(len(tags))[:, None] * tags.shape[1] + tags
            mass[adjacent] += add_up(place, moved, moved.shape)
        return mass

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        xp = get_array_module(mass)
        rows, _ = self.packing.transition_rows(self.leftwards)
        n_tags = mass.shape[1]
        place = self.tags[rows] * n_tags + xp.arange(n_tags)
        total = add_up(place, mass[rows], (n_tags, n_tags))
        return total if self.leftwards else total.T


def max_product_messages(
    potentials: Potentials, packing: Packing, leftwards: bool
) -> MaxProductMessages:
    """The forward messages (leftwards), with the best tag before each tag, or the backward
    messages, with the best tag after."""
    filtered = fold_ends(potentials, packing)
    xp = get_array_module(filtered)
    from_tag = potentials.transitions.T if leftwards else potentials.transitions
    transitions = xp.ascontiguousarray(from_tag, dtype="float64")
    predicted, tags = xp.zeros_like(filtered), xp.zeros(filtered.shape, dtype="int64")
    for adjacent, rows in packing.walk(not leftwards):
        arrivals = filtered[adjacent][:, None, :] + transitions
        tags[rows] = arrivals.argmax(axis=2)
        predicted[rows] = xp.take_along_axis(arrivals, tags[rows][:, :, None], axis=2)[:, :, 0]
        filtered[rows] += predicted[rows]
    return MaxProductMessages(packing, leftwards, filtered, predicted, tags)


def best_path(potentials: Potentials) -> BestPath:
    """Find the path of the highest score.

        argmax_y s(y)

    potentials (Potentials): The scores of a batch.
    RETURNS (BestPath): Its tags and its score. If several are best, one of them.
    """
    packing = pack(potentials)
    tags = unpack(_trace_back(max_product_messages(potentials, packing, True)), packing)
    return BestPath(tags, path_score(potentials, tags)[0])


def max_marginals(potentials: Potentials) -> Floats2d:
    """The score of the best path through each tag.

        max_{y: y_t = k} s(y)

    potentials (Potentials): The scores of a batch.
    RETURNS (Floats2d): The scores, in float64; minus infinity where no legal path has
        the tag. Shape: (N, K)
    """
    packing = pack(potentials)
    before, after = (max_product_messages(potentials, packing, side) for side in (True, False))
    return unpack(before.filtered + after.predicted, packing)


def _trace_back(before: MaxProductMessages) -> Ints1d:
    xp = get_array_module(before.filtered)
    path = before.filtered.argmax(axis=1)
    for rows, adjacent in before.packing.walk(leftwards=True):
        path[adjacent] = before.tags[rows][xp.arange(len(path[rows])), path[rows]]
    return path
