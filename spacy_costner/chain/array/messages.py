"""Messages of the sum-product and of the max-product semiring, by the same functions.

A semiring has the messages of one direction, and the total of a group of scores: log-sum-exp or
the maximum. The shares are the derivatives of the total: exp(score - total), or 1 for one best
score and 0 for the others.
"""

from typing import Callable, NamedTuple, Protocol, Tuple

from thinc.types import Floats1d, Floats2d, Ints1d
from thinc.util import get_array_module

from ...types import Potentials
from .log_domain import logarithm, zero_if_infinite
from .max_product import max_product_messages
from .packing import Packing, sum_by_group, unfold_ends
from .sum_product import sum_product_messages


class MessagesOfSide(Protocol):
    """The messages of one direction: forward messages, which give the distribution of the
    previous tag given a tag (leftwards), or backward messages, for the next tag. Rows are
    packed."""

    @property
    def filtered(self) -> Floats2d:
        """Logarithm of the message with the emission of its token. Shape: (N, K)"""

    @property
    def predicted(self) -> Floats2d:
        """Logarithm of the message without it. Shape: (N, K)"""

    def propagate(self, sources: Floats2d) -> Floats2d:
        """Propagate mass to the adjacent tags, and on to the end of the chain.

            mass_{t-1}[i] = sources_{t-1}[i] + sum_j p(y_{t-1} = i | y_t = j) mass_t[j]

        sources (Floats2d): Mass put on each tag. Shape: (N, K)
        RETURNS (Floats2d): Mass of each tag after propagation. Shape: (N, K)
        """

    def expected_transitions(self, mass: Floats2d) -> Floats2d:
        """The mass on each transition, added up over the tokens.

            sum_t p(y_{t-1} = i | y_t = j) mass_t[j]

        mass (Floats2d): Mass on each tag, propagated; with the marginals, the result is the
            expected number of transitions. Shape: (N, K)
        RETURNS (Floats2d): [from, to]. Shape: (K, K)
        """


class BothMessages(NamedTuple):
    """A batch, and its messages of both directions.

    potentials (Potentials): The batch that gradients refer to.
    packing (Packing): The order of the rows.
    before (MessagesOfSide): The forward messages.
    after (MessagesOfSide): The backward messages.
    """

    potentials: Potentials
    packing: Packing
    before: MessagesOfSide
    after: MessagesOfSide

    def propagate(self, to_left: Floats2d, to_right: Floats2d, surplus: Floats2d) -> Potentials:
        """Propagate mass in both directions, and add it up for each potential.

        to_left (Floats2d): Mass to propagate to the tags before. Shape: (N, K)
        to_right (Floats2d): Mass to propagate to the tags after. Shape: (N, K)
        surplus (Floats2d): Mass that is in both and counts once. Shape: (N, K)
        RETURNS (Potentials): The mass of each tag and each transition: a gradient.
        """
        left, right = self.before.propagate(to_left), self.after.propagate(to_right)
        d_transitions = self.before.expected_transitions(left)
        d_transitions += self.after.expected_transitions(right)
        return unfold_ends(left + right - surplus, d_transitions, self.packing, self.potentials)


class Semiring(NamedTuple):
    """Messages and totals.

    messages (Callable): Takes potentials, their packing, and whether the messages are forward
        messages (leftwards).
    choose (Callable): Takes scores, shape (R, K), the group of each row, shape (R,), and the
        number G of groups. Returns the totals of the groups, shape (G,), and the shares, shape
        (R, K). A group whose scores are all minus infinity has the total minus infinity and the
        shares 0.
    """

    messages: Callable[[Potentials, Packing, bool], MessagesOfSide]
    choose: Callable[[Floats2d, Ints1d, int], Tuple[Floats1d, Floats2d]]

    def both(self, potentials: Potentials, packing: Packing) -> BothMessages:
        """The messages of both directions."""
        sides = (self.messages(potentials, packing, leftwards) for leftwards in (True, False))
        return BothMessages(potentials, packing, *sides)


def _sum(scores: Floats2d, groups: Ints1d, n_groups: int) -> Tuple[Floats1d, Floats2d]:
    xp = get_array_module(scores)
    largest = zero_if_infinite(_maximum(scores.max(axis=1), groups, n_groups))
    of_rows = xp.exp(scores - largest[groups, None]).sum(axis=1)
    totals = logarithm(sum_by_group(of_rows, groups, n_groups)) + largest
    return totals, xp.exp(scores - zero_if_infinite(totals)[groups, None])


def _best(scores: Floats2d, groups: Ints1d, n_groups: int) -> Tuple[Floats1d, Floats2d]:
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


SUM = Semiring(sum_product_messages, _sum)
MAX = Semiring(max_product_messages, _best)
