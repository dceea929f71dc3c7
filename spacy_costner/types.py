"""The types and shapes that chain, losses, models and the component exchange.

The sequences of a batch follow each other without padding. In shapes, B is the number of sequences,
N the number of tokens in all of them, and K the number of tags. A sequence has T tokens.

A path y has one tag for each token of a sequence. Transitions are indexed [from, to]. The score of
a path is

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
    """The scores of a batch of chains. A gradient with respect to them has the same type.

    emissions (Floats2d): The score of each tag at each token. Shape: (N, K)
    transitions (Floats2d): The score of each tag after each tag, [from, to]. Shape: (K, K)
    start (Floats1d): The score of each tag at the first token of a sequence. Shape: (K,)
    end (Floats1d): The score of each tag at the last token of a sequence. Shape: (K,)
    lengths (Ints1d): The number of tokens of each sequence. It is always a NumPy array.
        Shape: (B,)
    """

    emissions: Floats2d
    transitions: Floats2d
    start: Floats1d
    end: Floats1d
    lengths: Ints1d


class Constraints(NamedTuple):
    """Masks that are True for allowed tags and transitions. None instead of a mask allows all.

    emissions (Array2d): The tags that are allowed at each token. Shape: (N, K)
    transitions (Array2d): The tags that are allowed after each tag, [from, to]. Shape: (K, K)
    start (Array1d): The tags that are allowed at the first token of a sequence. Shape: (K,)
    end (Array1d): The tags that are allowed at the last token of a sequence. Shape: (K,)
    """

    emissions: Array2d | None = None
    transitions: Array2d | None = None
    start: Array1d | None = None
    end: Array1d | None = None


class Gold(NamedTuple):
    """The annotation of a batch, as what it says about the gold paths. At least one legal path of
    each sequence agrees with it: `Targets.leave_out_impossible` leaves out other sequences.

    tags (Ints1d): The gold tag of each token, -1 where annotation is missing. If the chain has
        several tags for O, any one that may be right. Shape: (N,)
    allowed (Array2d | None): For each token, True at all tags that agree with the annotation. None
        if no annotation is missing, as `tags` is then enough. Shape: (N, K)
    costs (Floats2d | None): The cost of predicting each tag at each token, times the weight of the
        token. It is 0 for the gold tag. None if the loss has no cost. Shape: (N, K)
    token_weights (Floats1d | None): The weight of each token. None: 1. Shape: (N,)
    weights (Floats1d | None): The weight of each sequence. None: 1. Shape: (B,)
    opening (Array1d | None): True for the tags that begin an entity, for losses that count
        entities. Shape: (K,)
    continuing (Array1d | None): True for the tags that continue the entity of the token before, for
        the same losses. Shape: (K,)
    tied_to (Ints1d | None): If the chain has copies of tags, for incorrect spans: for each tag the
        tag of the model with the same scores. None: there are no copies. Shape: (K,)
    features (Ints2d | None): The features of each token, for losses that use them. Each feature has
        the value 1; -1 is no feature. None: each token has one feature, which no other token has.
        Shape: (N, S)
    collapsed_of (Ints1d | None): If the chain has several tags for O, or copies of tags: for each
        tag the corresponding tag of the annotation. None: each tag corresponds to itself.
        Shape: (K,)
    """

    tags: Ints1d
    allowed: Array2d | None = None
    costs: Floats2d | None = None
    token_weights: Floats1d | None = None
    weights: Floats1d | None = None
    opening: Array1d | None = None
    continuing: Array1d | None = None
    tied_to: Ints1d | None = None
    features: Ints2d | None = None
    collapsed_of: Ints1d | None = None

    @property
    def paths(self) -> Ints1d | Array2d:
        """The right paths: the gold tag of each token or, if annotation is missing, the mask
        `allowed`."""
        if self.allowed is None:
            return self.tags
        return self.allowed

    @property
    def token_tags(self) -> Ints1d | Array2d:
        """The right tags of each token, independently of the tags of other tokens: one tag for each
        token, (N,), or a mask, (N, K).

        If the chain has several tags for O, all of them are right where gold is O. In `paths`, only
        some of them may be right: for example, the chain has a tag for the last O before an entity
        of a label.
        """
        if self.allowed is not None or self.collapsed_of is None:
            return self.paths  # `allowed` has all right tags
        annotated_tags = self.collapsed_of[self.tags]  # the tags of the annotation, (N,)
        return annotated_tags[:, None] == self.collapsed_of


class LossResult(NamedTuple):
    """A loss and its gradient.

    value (float): The objective, summed over the sequences of the batch.
    gradient (Potentials): The derivative of `value` with respect to the potentials.
    """

    value: float
    gradient: Potentials


ScoreWithVjp = tuple[Floats1d, Callable[[Floats1d], Potentials]]
"""A score for each sequence, in float64, (B,), and its vector-Jacobian product (vjp): a callback
that turns the derivative with respect to these scores, (B,), into the gradient with respect to the
potentials."""


class TagSet(Protocol):
    """The part of a tag set that costs use: see `tags.Tags`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, without repetition."""

    @property
    def names(self) -> tuple[str, ...]:
        """The tags as people write them: O, B-PER, and so on. There are K."""

    @property
    def label_of(self) -> Ints1d:
        """For each tag the index of its label, -1 for O. Shape: (K,)"""

    def __len__(self) -> int: ...


class EntityTags(NamedTuple):
    """Which tags and transitions make an entity.

    label_of (Ints1d): For each tag the index of its label, -1 for O. Shape: (K,)
    opening (Array1d): True for the tags that begin an entity. Shape: (K,)
    closing (Array1d): True for the tags that an entity may end with. Shape: (K,)
    inside (Array2d): True for the transitions within an entity, [from, to]. Any other transition
        after an entity ends it. Shape: (K, K)
    """

    label_of: Ints1d
    opening: Array1d
    closing: Array1d
    inside: Array2d


CostTable: TypeAlias = Floats2d
"""The cost of each mistake, [gold tag, predicted tag]. Costs are never negative, and 0 on the
diagonal. Shape: (K, K)"""

Cost = Callable[[TagSet], CostTable]
"""Makes the cost table of a tag set."""


class Progress(NamedTuple):
    """The progress of training since the component was initialized. It has only integers, as shares
    of an epoch might not add up to a whole epoch.

    steps (int): The number of updates.
    epochs (int): The number of finished passes over the training examples.
    n_seen (int): The number of examples in the current pass so far.
    n_examples (int): The number of all examples of the current pass.
    """

    steps: int = 0
    epochs: int = 0
    n_seen: int = 0
    n_examples: int = 1

    @property
    def passes(self) -> float:
        """The number of passes over the training examples, including the finished share of the
        current pass."""
        return (self.epochs * self.n_examples + self.n_seen) / self.n_examples

    def after_update(self, n: int, n_examples: int) -> "Progress":
        """Return the progress after one more update.

        n (int): The number of examples of the update.
        n_examples (int): The number of all training examples, at least one.
        RETURNS (Progress): The new progress.
        """
        # If the number of all examples has changed, keep the finished share of the pass.
        n_seen_before = self.n_seen * n_examples // self.n_examples
        # Examples beyond the end of the pass are the first ones of the next pass.
        n_passes, n_seen = divmod(n_seen_before + n, n_examples)
        return Progress(self.steps + 1, self.epochs + n_passes, n_seen, n_examples)


def nothing_to_forget() -> None:
    """Do nothing: the `forget` of losses without state. (A lambda can't be pickled.)"""


@dataclass(frozen=True)
class Loss:
    """A training loss, with its settings.

    compute (Callable): Computes the value of the loss and its gradient from potentials and gold.
    cost (Cost | None): The cost that `compute` expects in `Gold.costs`. None: it uses no cost.
    weighs_tokens (bool): Whether `compute` uses `Gold.token_weights`. Losses with a cost don't need
        it, as the weights are a part of the cost.
    uses_features (bool): Whether `compute` uses `Gold.features`.
    is_ratio (bool): Whether the value is one ratio over the batch. Otherwise it is a sum over
        sequences.
    is_smooth (bool): Whether the loss is differentiable. Training with L-BFGS, on all docs at once,
        needs a smooth loss.
    has_probabilities (bool): Whether probabilities can be computed from the scores after
        training.
    shifts_probabilities (bool): Whether a cost is added to the scores in training. Then
        probabilities are shifted against expensive mistakes.
    needs_start (bool): Whether training should start from a model that was trained with the
        likelihood.
    forget (Callable): Called when training starts again. It resets losses that keep state.
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
        """Return the loss to minimise at this point of training. It is always this loss. (A
        `LossSchedule` has several losses.)"""
        return self

    @property
    def stages(self) -> "tuple[Loss, ...]":
        """All losses that training minimises, one after another."""
        return (self,)


def zero_scores(lengths: Ints1d, n_tags: int, dtype: str) -> Potentials:
    """Make potentials that are all 0, for example to sum gradients."""

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
    """Apply a function that keeps shapes to each of the four arrays of scores."""
    return Potentials(
        emissions=function(potentials.emissions),
        transitions=function(potentials.transitions),
        start=function(potentials.start),
        end=function(potentials.end),
        lengths=potentials.lengths,
    )


def add_to(total: Potentials, gradient: Potentials) -> Potentials:
    """Add a gradient in place to the sum of gradients of the same batch. Returns the sum."""
    # All fields but the last, which is `lengths`, are arrays of scores.
    for sums, terms in zip(total[:-1], gradient[:-1]):
        sums += terms
    return total
