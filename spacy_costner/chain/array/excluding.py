"""The sum over all paths outside a set of paths, and the best of them.

A path leaves the set, given as the tags allowed at each token, at the first token whose tag is
not allowed. Before that token all its tags are allowed, after it they are unconstrained. So,
with predicted' the forward messages of the set (without emissions) and beta the backward
messages of all paths,

    log sum_{y not in set} exp(s(y))
        = log sum_t sum_{j not allowed_t} predicted'_t[j] exp(emissions[t, j]) beta_t[j]

Each path counts once. Nothing is subtracted: log(Z - Z') would lose all digits when the set
has nearly all the probability.
"""

from typing import Tuple

from thinc.types import Floats1d, Floats2d
from thinc.util import get_array_module

from ...types import Potentials, ScoreWithVjp
from ..constraints import Allowed, restrict, to_mask
from ..validation import check_allowed, check_derivatives
from .max_product import BestPath
from .messages import MAX, SUM, BothMessages, Semiring
from .packing import fold_ends, pack


def log_partition_excluding(potentials: Potentials, allowed: Allowed) -> ScoreWithVjp:
    """The log partition function of the paths outside a set.

        log sum_{y: y_t not in allowed_t for some t} exp(s(y))

    potentials (Potentials): The scores of a batch.
    allowed (Allowed): The set: the paths whose tags are all allowed.
    RETURNS (ScoreWithVjp): The log-sums, minus infinity where all legal paths are in the set, and
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
    """Find the best path outside a set.

        argmax_{y: y_t not in allowed_t for some t} s(y)

    potentials (Potentials): The scores of a batch.
    allowed (Allowed): The set: the paths whose tags are all allowed.
    RETURNS (BestPath): Its tags, and its score, minus infinity where all legal paths are
        in the set.
    """
    messages, totals, shares = _leave(potentials, allowed, MAX)
    gradient = messages.propagate(shares, shares, shares)
    return BestPath(gradient.emissions.argmax(axis=1), totals)


def _leave(
    potentials: Potentials, allowed: Allowed, semiring: Semiring
) -> Tuple[BothMessages, Floats1d, Floats2d]:
    """The forward messages of the set and the backward messages of all paths; the totals, shape
    (B,); and the share of the paths that leave the set with each tag, shape (N, K)."""
    packing = pack(potentials)
    xp = get_array_module(potentials.emissions)
    check_allowed(allowed, potentials)
    allowed = to_mask(xp.asarray(allowed), len(potentials.start))
    before = semiring.messages(restrict(potentials, allowed), packing, True)
    after = semiring.messages(potentials, packing, False)
    scores = before.predicted + fold_ends(potentials, packing) + after.predicted
    scores = xp.where(allowed[packing.tokens], -xp.inf, scores)
    totals, shares = semiring.choose(scores, packing.sequence, packing.n_sequences)
    return BothMessages(potentials, packing, before, after), totals, shares
