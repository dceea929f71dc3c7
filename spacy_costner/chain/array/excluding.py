"""Paths that leave a set of paths: all of them, and the best.

A path leaves the set, given as the tags allowed at each token, at the first token whose
tag is not allowed. Before that token it stays in the set, after it it is free. So, with
predicted' the messages of the set alone and beta those of all paths,

    log sum_{y not in set} exp(s(y))
        = log sum_t sum_{j not allowed_t} predicted'_t[j] exp(emissions[t, j]) beta_t[j]

where each path counts once and nothing is subtracted: log(Z - Z') cancels when the set has
nearly all the probability.
"""

from typing import Tuple

from thinc.types import Floats1d, Floats2d
from thinc.util import get_array_module

from ...types import Potentials, ScoreWithVjp
from ..constraints import Allowed, restrict, to_mask
from ..validation import check_allowed, check_derivatives
from .max_product import BestPath
from .messages import BothMessages
from .packing import fold_ends, pack
from .semiring import MAX, SUM, Semiring


def log_partition_excluding(potentials: Potentials, allowed: Allowed) -> ScoreWithVjp:
    """The logarithm of the sum over all paths that leave a set at least once.

        log sum_{y: y_t not in allowed_t for some t} exp(s(y))

    potentials (Potentials): The scores of a batch.
    allowed (Allowed): The tags that paths of the set have.
    RETURNS (ScoreWithVjp): The log-sums, minus infinity where no legal path leaves the set, and
        the callback to their gradient. Shape: (B,)
    """
    messages, totals, shares = _leave(potentials, allowed, SUM)

    def backprop(d_totals: Floats1d) -> Potentials:
        check_derivatives(d_totals, totals.shape)
        weights = get_array_module(shares).asarray(d_totals)[messages.packing.sequence]
        mass = shares * weights[:, None]
        return messages.propagate(mass, mass, mass)

    return totals, backprop


def best_path_excluding(potentials: Potentials, allowed: Allowed) -> BestPath:
    """Find the best path among those that leave a set at least once.

        argmax_{y: y_t not in allowed_t for some t} s(y)

    potentials (Potentials): The scores of a batch.
    allowed (Allowed): The tags that paths of the set have.
    RETURNS (BestPath): Its tags, and its score, minus infinity where no legal path leaves
        the set.
    """
    messages, totals, shares = _leave(potentials, allowed, MAX)
    steps = messages.propagate(shares, shares, shares)
    return BestPath(steps.emissions.argmax(axis=1), totals)


def _leave(
    potentials: Potentials, allowed: Allowed, semiring: Semiring
) -> Tuple[BothMessages, Floats1d, Floats2d]:
    """The messages of the set on the left and of all paths on the right; the totals of all
    ways to leave the set, and the share of leaving it at each tag."""
    xp = get_array_module(potentials.emissions)
    packing = pack(potentials)
    check_allowed(allowed, potentials)
    allowed = to_mask(xp.asarray(allowed), len(potentials.start))
    before = semiring.predecessors(restrict(potentials, allowed), packing)
    after = semiring.successors(potentials, packing)
    scores = before.predicted + fold_ends(potentials, packing) + after.predicted
    scores = xp.where(allowed[packing.tokens], -xp.inf, scores)
    totals, shares = semiring.choose(scores, packing.sequence, packing.n_sequences)
    return BothMessages(potentials, packing, before, after), totals, shares
