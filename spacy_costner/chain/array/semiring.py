"""The sum-product and the max-product semiring, so that both share code.

A semiring has the messages of both directions and the total of a group of scores: log-sum-exp
or the maximum. The shares are the derivatives of the total: exp(score - total), or 1 for one
best score and 0 for the others.
"""

from typing import Callable, NamedTuple, Tuple

from thinc.types import Floats1d, Floats2d, Ints1d
from thinc.util import get_array_module

from ...types import Potentials
from .log_domain import logarithm, zero_if_infinite
from .max_product import (
    best_predecessors,
    best_successors,
    max_product_messages,
)
from .messages import MessagesOfSide, predecessors, successors, sum_product_messages
from .packing import Packing, sum_by_group

Choice = Callable[[Floats2d, Ints1d, int], Tuple[Floats1d, Floats2d]]
"""Takes scores, shape (R, K), the group of each row, shape (R,), and the number G of groups.
Returns the totals of the groups, shape (G,), and the shares, shape (R, K). A group whose scores
are all minus infinity has the total minus infinity and the shares 0."""


class Semiring(NamedTuple):
    """Messages and totals.

    both (Callable): The messages of both directions.
    predecessors (Callable): The forward messages.
    successors (Callable): The backward messages.
    choose (Choice): The totals of groups of scores, and the shares.
    """

    both: Callable[[Potentials, Packing], Tuple[MessagesOfSide, MessagesOfSide]]
    predecessors: Callable[[Potentials, Packing], MessagesOfSide]
    successors: Callable[[Potentials, Packing], MessagesOfSide]
    choose: Choice


def choose_all(scores: Floats2d, groups: Ints1d, n_groups: int) -> Tuple[Floats1d, Floats2d]:
    """The log-sum of each group. As `Choice`."""
    xp = get_array_module(scores)
    largest = zero_if_infinite(scores.max(axis=1))
    shares = xp.exp(scores - largest[:, None])
    of_rows = logarithm(shares.sum(axis=1)) + largest
    largest_of_all = zero_if_infinite(_maximum(of_rows, groups, n_groups))
    sums = sum_by_group(xp.exp(of_rows - largest_of_all[groups]), groups, n_groups)
    totals = logarithm(sums) + largest_of_all
    shares *= xp.exp(xp.minimum(largest - zero_if_infinite(totals)[groups], 0))[:, None]
    return totals, shares


def choose_best(scores: Floats2d, groups: Ints1d, n_groups: int) -> Tuple[Floats1d, Floats2d]:
    """The best score of each group. As `Choice`."""
    xp = get_array_module(scores)
    best = scores.argmax(axis=1)
    of_rows = scores[xp.arange(len(scores)), best]
    totals = _maximum(of_rows, groups, n_groups)
    ties = xp.nonzero((of_rows == totals[groups]) & xp.isfinite(of_rows))[0]
    chosen = xp.full(n_groups, -1)
    chosen[groups[ties]] = ties
    chosen = chosen[chosen >= 0]
    shares = xp.zeros_like(scores)
    shares[chosen, best[chosen]] = 1
    return totals, shares


def _maximum(rows: Floats1d, groups: Ints1d, n_groups: int) -> Floats1d:
    xp = get_array_module(rows)
    largest = xp.full(n_groups, -xp.inf)
    xp.maximum.at(largest, groups, rows)
    return largest


SUM = Semiring(sum_product_messages, predecessors, successors, choose_all)
MAX = Semiring(max_product_messages, best_predecessors, best_successors, choose_best)
