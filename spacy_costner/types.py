"""The types and array shapes shared by the chain, the losses, the models and the component.

The sequences of a batch are concatenated without padding. In shapes, B is the number of sequences,
N the total number of tokens and K the number of tags. A sequence has T tokens.

A path y assigns one tag to each token of a sequence. Transitions are indexed [from, to]. The score
of a path is

    s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, FloatsXd, Ints1d, Ints2d

FORBIDDEN = -numpy.inf
"""The score of a forbidden tag or transition. Its gradient is always exactly 0."""


class Potentials(NamedTuple):
    """The scores of a batch of chains. The gradient with respect to them has the same type.

    emissions (Floats2d): The score of each tag at each token. Shape: (N, K)
    transitions (Floats2d): The score of each transition, [from, to]. Shape: (K, K)
    start (Floats1d): The score of each tag at the first token of a sequence. Shape: (K,)
    end (Floats1d): The score of each tag at the last token of a sequence. Shape: (K,)
    lengths (Ints1d): The number of tokens in each sequence. Always a NumPy array. Shape: (B,)
    """

    emissions: Floats2d
    transitions: Floats2d
    start: Floats1d
    end: Floats1d
    lengths: Ints1d


class Constraints(NamedTuple):
    """Masks that are True for allowed tags and transitions. None means that everything is allowed.

    emissions (Array2d): The tags allowed at each token. Shape: (N, K)
    transitions (Array2d): The allowed transitions, [from, to]. Shape: (K, K)
    start (Array1d): The tags allowed at the first token of a sequence. Shape: (K,)
    end (Array1d): The tags allowed at the last token of a sequence. Shape: (K,)
    """

    emissions: Array2d | None = None
    transitions: Array2d | None = None
    start: Array1d | None = None
    end: Array1d | None = None


class Gold(NamedTuple):
    """The gold annotation of a batch. Each sequence has at least one legal path that is consistent
    with it. Use `Targets.leave_out_impossible` to remove other sequences.

    tags (Ints1d): The gold tag of each token, or -1 if the annotation is missing. If the chain has
        several tags for O, this is any of the tags that may be correct. Shape: (N,)
    allowed (Array2d | None): True for the tags that are consistent with the annotation of each
        token. None if no annotation is missing, since `tags` is then sufficient. Shape: (N, K)
    costs (Floats2d | None): The cost of predicting each tag at each token, multiplied by the weight
        of the token. 0 for the gold tag. None if the loss doesn't use costs. Shape: (N, K)
    token_weights (Floats1d | None): The weight of each token. If None, all weights are 1.
        Shape: (N,)
    weights (Floats1d | None): The weight of each sequence. If None, all weights are 1. Shape: (B,)
    opening (Array1d | None): True for the tags that begin an entity. Used by losses that count
        entities. Shape: (K,)
    continuing (Array1d | None): True for the tags that continue the entity of the previous token.
        Used by losses that count entities. Shape: (K,)
    tied_to (Ints1d | None): The model's tag that each tag shares its scores with, if the chain
        contains copies of tags (for incorrect spans). None if there are no copies. Shape: (K,)
    features (Ints2d | None): The features of each token, for losses that use them. Each feature has
        the value 1, and -1 is padding. If None, each token has a single, unique feature.
        Shape: (N, S)
    collapsed_of (Ints1d | None): The annotation tag that corresponds to each tag, if the chain has
        several tags for O or copies of tags. If None, each tag corresponds to itself. Shape: (K,)
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
        """The correct paths: the gold tag of each token or, if annotation is missing, the mask
        `allowed`."""
        if self.allowed is None:
            return self.tags
        return self.allowed

    @property
    def token_tags(self) -> Ints1d | Array2d:
        """The correct tags of each token, regardless of the other tokens: one tag per token, (N,),
        or a mask, (N, K).

        If the chain has several tags for O, all of them are correct for a token whose gold tag is
        O. `paths` may allow only some of them, e.g. if the last O before an entity is a separate
        tag.
        """
        if self.allowed is not None or self.collapsed_of is None:
            return self.paths  # `allowed` includes all correct tags
        annotated_tags = self.collapsed_of[self.tags]  # (N,)
        return annotated_tags[:, None] == self.collapsed_of


class LossResult(NamedTuple):
    """A loss and its gradient.

    value (float): The value of the objective, summed over the sequences of the batch.
    gradient (Potentials): The derivative of `value` with respect to the potentials.
    """

    value: float
    gradient: Potentials


ScoreWithVjp = tuple[Floats1d, Callable[[Floats1d], Potentials]]
"""A float64 score per sequence, (B,), and its vector-Jacobian product (vjp): a callback that
converts the derivative with respect to the scores, (B,), to the gradient with respect to the
potentials."""


class TagSet(Protocol):
    """The part of a tag set that cost functions use. See `tags.Tags`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The unique labels."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the K tags, e.g. O or B-PER."""

    @property
    def label_of(self) -> Ints1d:
        """The label index of each tag, or -1 for O. Shape: (K,)"""

    def __len__(self) -> int: ...


class EntityTags(NamedTuple):
    """The tags and transitions that form an entity.

    label_of (Ints1d): The label index of each tag, or -1 for O. Shape: (K,)
    opening (Array1d): True for the tags that begin an entity. Shape: (K,)
    closing (Array1d): True for the tags that may end an entity. Shape: (K,)
    inside (Array2d): True for the transitions within an entity, [from, to]. All other transitions
        from a tag of an entity end the entity. Shape: (K, K)
    """

    label_of: Ints1d
    opening: Array1d
    closing: Array1d
    inside: Array2d


CostTable: TypeAlias = Floats2d
"""The cost of each mistake, [gold tag, predicted tag]. Costs are nonnegative and 0 on the diagonal.
Shape: (K, K)"""

Cost = Callable[[TagSet], CostTable]
"""A function that creates the cost table for a tag set."""


class Progress(NamedTuple):
    """The training progress since the component was initialized. All fields are integers, because
    fractions of an epoch may not add up to exactly one epoch.

    steps (int): The number of updates.
    epochs (int): The number of completed passes over the training examples.
    n_seen (int): The number of examples seen in the current pass.
    n_examples (int): The total number of examples in the current pass.
    """

    steps: int = 0
    epochs: int = 0
    n_seen: int = 0
    n_examples: int = 1

    @property
    def passes(self) -> float:
        """The number of passes over the training examples, including the completed fraction of the
        current pass."""
        return (self.epochs * self.n_examples + self.n_seen) / self.n_examples

    def after_update(self, n: int, n_examples: int) -> "Progress":
        """Return the progress after another update.

        n (int): The number of examples in the update.
        n_examples (int): The total number of training examples, at least 1.
        RETURNS (Progress): The new progress.
        """
        # If the total number of examples has changed, keep the completed fraction of the pass.
        n_seen_before = self.n_seen * n_examples // self.n_examples
        # Examples beyond the end of the pass count towards the next pass.
        n_passes, n_seen = divmod(n_seen_before + n, n_examples)
        return Progress(self.steps + 1, self.epochs + n_passes, n_seen, n_examples)


def nothing_to_forget() -> None:
    """Do nothing. The default `forget` of stateless losses (a lambda can't be pickled)."""


@dataclass(frozen=True)
class Loss:
    """A training loss and its properties.

    compute (Callable): Computes the loss and its gradient from the potentials and the gold
        annotation.
    cost (Cost | None): The cost that `compute` expects in `Gold.costs`, or None if it doesn't use
        costs.
    weighs_tokens (bool): Whether `compute` uses `Gold.token_weights`. Losses with a cost don't need
        them, because the costs already include the weights.
    uses_features (bool): Whether `compute` uses `Gold.features`.
    is_ratio (bool): Whether the value is a single ratio for the batch instead of a sum over
        sequences.
    is_smooth (bool): Whether the loss is differentiable. L-BFGS training, which uses all docs at
        once, requires a smooth loss.
    has_probabilities (bool): Whether probabilities can be computed from the scores after training.
    shifts_probabilities (bool): Whether a cost is added to the scores during training. If so, the
        probabilities are biased against expensive mistakes.
    needs_start (bool): Whether training should start from a model trained with the likelihood.
    forget (Callable): Resets the state of the loss, if any. Called when training restarts.
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
        """Return the loss to minimize at this point of training. A `Loss` always returns itself,
        while a `LossSchedule` consists of several losses."""
        return self

    @property
    def stages(self) -> "tuple[Loss, ...]":
        """All losses that training minimizes, in order."""
        return (self,)


def zero_scores(lengths: Ints1d, n_tags: int, dtype: str) -> Potentials:
    """Create potentials filled with zeros, e.g. to accumulate gradients."""

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
    """Apply a shape-preserving function to each of the four score arrays."""
    return Potentials(
        emissions=function(potentials.emissions),
        transitions=function(potentials.transitions),
        start=function(potentials.start),
        end=function(potentials.end),
        lengths=potentials.lengths,
    )


def add_to(total: Potentials, gradient: Potentials) -> Potentials:
    """Add a gradient in place to the sum of gradients of the same batch and return the sum."""
    # All fields except the last one, `lengths`, are score arrays.
    for sums, terms in zip(total[:-1], gradient[:-1]):
        sums += terms
    return total
