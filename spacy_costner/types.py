"""The types and shapes that chain, losses, models and the component exchange.

The B sequences of a batch stand one after another, without padding. N is the number of tokens in
all of them, T the number of tokens of one, K the number of tags.
Transitions are indexed [from, to]. The score of a path y is

    s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, FloatsXd, Ints1d, Ints2d

FORBIDDEN = -numpy.inf
"""The score of a forbidden tag or transition. Every gradient there is exactly 0."""


class Potentials(NamedTuple):
    """The scores of a batch of chains; also the form of a gradient with respect to them.

    emissions (Floats2d): Score of each tag at each token. Shape: (N, K)
    transitions (Floats2d): Score of each tag after each, [from, to]. Shape: (K, K)
    start (Floats1d): Score of each tag at the first token. Shape: (K,)
    end (Floats1d): Score of each tag at the last token. Shape: (K,)
    lengths (Ints1d): Tokens of each sequence; always a NumPy array. Shape: (B,)
    """

    emissions: Floats2d
    transitions: Floats2d
    start: Floats1d
    end: Floats1d
    lengths: Ints1d


class Constraints(NamedTuple):
    """Masks of allowed tags and transitions; None allows all.

    emissions (Array2d): Tags allowed at each token. Shape: (N, K)
    transitions (Array2d): Tags allowed after each tag, [from, to]. Shape: (K, K)
    start (Array1d): Tags allowed at the first token. Shape: (K,)
    end (Array1d): Tags allowed at the last token. Shape: (K,)
    """

    emissions: Array2d | None = None
    transitions: Array2d | None = None
    start: Array1d | None = None
    end: Array1d | None = None


class Gold(NamedTuple):
    """The targets of a batch: what is known of the gold paths. In each sequence some legal path
    agrees with it: `Targets.leave_out_impossible` leaves out the others.

    tags (Ints1d): The gold tag of each token, -1 where the annotation leaves several
        tags possible. Where these differ only in how O is split, one of them. Shape: (N,)
    allowed (Array2d | None): True where the annotation leaves a tag possible; None
        if `tags` says it all. Shape: (N, K)
    cost (Floats2d | None): The cost of predicting each tag at each token, including the
        weight of the token; 0 on gold. None for losses without a cost. Shape: (N, K)
    token_weights (Floats1d | None): Weight of each token; None: 1. Shape: (N,)
    weights (Floats1d | None): Weight of each sequence; None: 1. Shape: (B,)
    opening (Array1d | None): Which tags begin an entity. Shape: (K,)
    continuing (Array1d | None): Which tags go on with the entity of the token before.
        Shape: (K,)
    tied_to (Ints1d | None): The tag of the model that each tag has its scores from, if the
        chain has more tags than the model. None: itself. Shape: (K,)
    features (Ints2d | None): The features of each token, each of the value 1; -1 stands
        for none. None: each token has one, which no other has. Shape: (N, S)
    collapsed_of (Ints1d | None): The tag that each tag counts as, if the chain has several
        tags for one of the annotation. None: itself. Shape: (K,)
    """

    tags: Ints1d
    allowed: Array2d | None = None
    cost: Floats2d | None = None
    token_weights: Floats1d | None = None
    weights: Floats1d | None = None
    opening: Array1d | None = None
    continuing: Array1d | None = None
    tied_to: Ints1d | None = None
    features: Ints2d | None = None
    collapsed_of: Ints1d | None = None

    @property
    def paths(self) -> Ints1d | Array2d:
        """The right paths: one tag for each token, or the tags that are allowed."""
        if self.allowed is None:
            return self.tags
        return self.allowed

    @property
    def token_tags(self) -> Ints1d | Array2d:
        """The right tags of each token, whatever the other tokens are: unlike `paths`, these are
        all tags that count as the gold tag."""
        if self.allowed is not None or self.collapsed_of is None:
            return self.paths
        # A mask, (N, K): does tag k count as the same tag of the annotation as the gold tag?
        counts_as = self.collapsed_of[self.tags]
        return counts_as[:, None] == self.collapsed_of


class LossResult(NamedTuple):
    """A loss and its gradient.

    value (float): The objective, summed over the sequences of the batch.
    gradient (Potentials): Derivative of `value` with respect to the potentials.
    """

    value: float
    gradient: Potentials


ScoreWithVjp = tuple[Floats1d, Callable[[Floats1d], Potentials]]
"""One score per sequence, in float64, shape (B,); and its vector-Jacobian product: the callback
from the derivative with respect to those scores, shape (B,), to that with respect to the
potentials."""


class TagSet(Protocol):
    """The part of a tag set that costs use (see `tags.Tags`)."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, without repetition."""

    @property
    def names(self) -> tuple[str, ...]:
        """The tags as people write them: O, B-PER, and so on. Length: K"""

    @property
    def label_of(self) -> Ints1d:
        """The label of each tag, as an index; -1 for O. Shape: (K,)"""

    def __len__(self) -> int: ...


class EntityTags(NamedTuple):
    """What makes an entity of tags.

    label_of (Ints1d): The label of each tag, as an index; -1 for O. Shape: (K,)
    opening (Array1d): True for the tags that begin an entity. Shape: (K,)
    closing (Array1d): True for the tags that an entity may end with. Shape: (K,)
    inside (Array2d): True for the transitions inside an entity, [from, to]. After any other one
        the entity is over. Shape: (K, K)
    """

    label_of: Ints1d
    opening: Array1d
    closing: Array1d
    inside: Array2d


CostTable: TypeAlias = Floats2d
"""What each mistake costs, [gold tag, predicted tag]: never negative, 0 on the diagonal.
Shape: (K, K)"""

Cost = Callable[[TagSet], CostTable]
"""Makes the cost table of a tag set."""


class Progress(NamedTuple):
    """How far training has come since the component was initialized. All are integers, as shares
    of epochs don't add up to whole ones.

    steps (int): The number of updates.
    epochs (int): The number of finished passes over the training examples.
    n_seen (int): The number of examples that the current pass has seen.
    n_examples (int): The number of examples of the current pass.
    """

    steps: int = 0
    epochs: int = 0
    n_seen: int = 0
    n_examples: int = 1

    @property
    def passes(self) -> float:
        """The number of passes over the training examples, with the share of the current one."""
        return (self.epochs * self.n_examples + self.n_seen) / self.n_examples

    def after_update(self, n: int, n_examples: int) -> "Progress":
        """The progress after an update with n of the training examples, of which there are
        `n_examples`, at least one."""
        # If their number has changed, the share of the pass that is over stays as it was.
        n_seen_before = self.n_seen * n_examples // self.n_examples
        # What is more than a pass is the beginning of the next.
        n_passes, n_seen = divmod(n_seen_before + n, n_examples)
        return Progress(self.steps + 1, self.epochs + n_passes, n_seen, n_examples)


def nothing_to_forget() -> None:
    """Do nothing: `forget` of losses without state. (A lambda can't be pickled.)"""


@dataclass(frozen=True)
class Loss:
    """A training loss as the config names it.

    compute (Callable): Takes potentials and gold to value and gradient.
    cost (Cost | None): The cost that `compute` expects in `Gold.cost`, if any.
    weighs_tokens (bool): Whether `compute` uses token weights. Losses with a cost always do: the
        weights are part of the cost.
    uses_features (bool): Whether `compute` uses the features of tokens.
    is_ratio (bool): Whether its value is one ratio over the batch, not a sum that grows
        with it.
    is_smooth (bool): Whether it is a function of potentials and gold without kinks or jumps,
        as batch methods of optimisation need it.
    has_probabilities (bool): Whether scores are log probabilities after training.
    shifts_probabilities (bool): Whether it is of scores that a cost is added to: after training,
        probabilities are shifted against expensive mistakes.
    needs_start (bool): Whether it needs a likelihood model to start from.
    forget (Callable): Called when training starts anew, for losses that keep state.
    """

    compute: Callable[[Potentials, Gold], LossResult]
    cost: Cost | None = None
    weighs_tokens: bool = False
    uses_features: bool = False
    is_ratio: bool = False
    is_smooth: bool = True
    has_probabilities: bool = True
    shifts_probabilities: bool = False
    needs_start: bool = False
    forget: Callable[[], None] = nothing_to_forget

    def stage_at(self, progress: Progress) -> "Loss":
        """The loss to minimise at this point of training."""
        return self

    @property
    def stages(self) -> "tuple[Loss, ...]":
        """All losses that training minimises, in order."""
        return (self,)


def no_scores(lengths: Ints1d, n_tags: int, dtype: str) -> Potentials:
    """Make potentials that are all 0, such as the sum of no gradients."""

    def zeros(*shape: int) -> Any:
        return numpy.zeros(shape, dtype=dtype)

    return Potentials(
        emissions=zeros(int(lengths.sum()), n_tags),
        transitions=zeros(n_tags, n_tags),
        start=zeros(n_tags),
        end=zeros(n_tags),
        lengths=lengths,
    )


def map_scores(function: Callable[[FloatsXd], FloatsXd], potentials: Potentials) -> Potentials:
    """Apply a function, which keeps shapes, to each of the four arrays of scores."""
    return Potentials(
        emissions=function(potentials.emissions),
        transitions=function(potentials.transitions),
        start=function(potentials.start),
        end=function(potentials.end),
        lengths=potentials.lengths,
    )


def add_to(total: Potentials, gradient: Potentials) -> Potentials:
    """Add a gradient in place to the sum of others of the same batch, and return the sum."""
    # All fields but the last are arrays of scores: that is `lengths`.
    for sums, terms in zip(total[:-1], gradient[:-1]):
        sums += terms
    return total
