"""Queries of linear chains. The recursions are in cpp/.

Messages are what the forward and backward recursions compute for each token and tag. A query is
answered from them. `ForwardBackward` and `MaxMessages` compute the messages of a batch once for
several queries; the function of a query, such as `log_partition`, is for a single query. Values and
scores are in float64, gradients in the type of the potentials.

A batch has B sequences of N tokens in all, which are concatenated, and K tags. s(y) is the score of
the path y.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy
from numpy.random import Generator
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d, Ints2d

from ..types import Constraints, EntityTags, Potentials, ScoreWithVjp, no_scores
from . import native  # type: ignore[attr-defined]
from .constraints import Allowed, constrain
from .host import on_host

MessagesT = TypeVar("MessagesT")
ResultT = TypeVar("ResultT")
Arguments = ParamSpec("Arguments")

ValuesWithVjp = tuple[Any, Callable[[Any], Potentials]]
"""Values of any shape, and the callback from the derivative with respect to them to that with
respect to the potentials."""

VjpWithDerivative = tuple[Callable[[Any], Potentials], Any]
"""The callback that a query returned, and the derivative with respect to its values."""


class Segments(NamedTuple):
    """Parts of paths: spans of tokens with given tags, each within one sequence. NumPy arrays.

    begin (Ints1d): The first token of each segment. Shape: (S,)
    end (Ints1d): The token after its last one. Shape: (S,)
    tags (Ints1d): The tags of the tokens of the first segment, then of the second, and so on; in
        all as many as the segments have tokens.
    after (Array2d | None): True for the tags allowed at the token after the segment, if the
        sequence has one; None: all. Shape: (S, K)
    """

    begin: Ints1d
    end: Ints1d
    tags: Ints1d
    after: Array2d | None = None


Spans: TypeAlias = tuple[Ints1d, Ints1d, Ints1d]
"""Spans of tokens with a label: begin, end, label. Shapes: (E,)"""


class BestPath(NamedTuple):
    """The path of the highest score, or the k best paths, in descending order.

    tags (Array): The tag of each token. Shape: (N,) or (k, N)
    scores (Array): The score of each sequence, minus infinity if there is no such path.
        Shape: (B,) or (k, B)
    """

    tags: Any
    scores: Any


class ForwardBackward:
    """The distribution p(y) = exp(s(y)) / Z over the paths of each sequence of a batch.

    Queries return their values, one for each sequence if nothing else is said, and the callback to
    their gradient: from the derivative with respect to the values to that with respect to the
    potentials.
    """

    def __init__(self, potentials: Potentials) -> None:
        self._messages = native.ForwardBackward(potentials)

    def log_partition(self) -> ScoreWithVjp:
        """The log partition function. Its gradient is the expected number of times that a path
        uses each potential.

            log Z = log sum_y exp(s(y))
        """
        return self._messages.log_partition()

    def log_partition_excluding(self, allowed: Allowed) -> ScoreWithVjp:
        """The log partition function of the paths that are not in a set. In the set are the paths
        whose tags are all allowed. It is minus infinity where all legal paths are in the set.

        Nothing is subtracted: log(Z - Z') would lose all digits where the set has nearly all the
        probability.

            log sum_{y: y_t not in allowed_t for some t} exp(s(y))
        """
        return self._messages.log_partition_excluding(allowed)

    def marginals(self) -> Floats2d:
        """The marginals, p(y_t = k), in the type of the potentials. Shape: (N, K)"""
        return self._messages.marginals()

    def log_marginals(self, allowed: Allowed) -> ValuesWithVjp:
        """The log-probability that the tag of a token is in a set, for each token, minus
        infinity where no legal path has such a tag. Shape: (N,)

            log p(y_t in allowed_t)
        """
        return self._messages.log_marginals(allowed)

    def path_log_prob(self, tags: Ints1d) -> ScoreWithVjp:
        """The log-probability of one path of each sequence, minus infinity for a forbidden path.
        Its gradient is the counts of the path minus the expected counts, 0 for a forbidden path.
        Shape of the tags: (N,)

            log p(y) = s(y) - log Z
        """
        return self._messages.path_log_prob(tags)

    def segment_log_probs(self, segments: Segments) -> ValuesWithVjp:
        """The log-probability of each segment, minus infinity where no legal path has it. Shape:
        (S,)

            log p(y_begin = tag_begin, ..., y_{end-1} = tag_{end-1}, y_end in after)
        """
        return self._messages.segment_log_probs(segments)

    def entity_probs(
        self, entities: Spans, entity_tags: EntityTags, is_space: Array1d | None = None
    ) -> Floats1d:
        """The probability of each entity: that a path has an entity with exactly these tokens and
        this label. It is 0 for one that crosses sequences, or whose label has no tags. An entity
        that a path continues into white space counts as that before it. Shape: (E,)

            p(y_begin opens x, y_{t-1}, y_t inside x for begin < t < end, y_{end-1} closes x,
              y_{end-1}, y_end not inside x)

        entities (Spans): Begin, end and label of each, (E,); they may overlap.
        entity_tags (EntityTags): What makes an entity of tags.
        is_space (Array1d | None): True for white space. Shape: (N,)
        """
        return self._messages.entity_probs(entities, entity_tags, is_space)

    def likely_entities(
        self, floor: float, entity_tags: EntityTags, is_space: Array1d | None = None
    ) -> tuple[Ints1d, Ints1d, Ints1d, Floats1d]:
        """Find all entities that have at least a certain probability. None ends in white space.

        It takes at most N / floor steps. Entities that contain the same token exclude each other,
        so their probabilities sum to 1 at most. So all entities of the result have at most
        N / floor tokens together. No other memory is needed.

        floor (float): The least probability, above 0.
        entity_tags (EntityTags): What makes an entity of tags.
        is_space (Array1d | None): True for white space. Shape: (N,)
        RETURNS (tuple[Ints1d, Ints1d, Ints1d, Floats1d]): Begin, end, label and probability of each
            entity, ordered by begin, end and descending probability. Shapes: (E,)
        RAISES (ValueError): If `floor` is no probability above 0.
        """
        if not (_is_number(floor) and 0 < floor <= 1):
            raise ValueError(f"floor: expected a probability above 0, got {floor!r}")
        return self._messages.likely_entities(floor, entity_tags, is_space)

    def expectation(self, values: Potentials) -> ScoreWithVjp:
        """The expectation of values that add up over the tags and transitions of a path, 0 for a
        sequence without a legal path. A value of minus infinity counts as 0.

            E_p[v(y)],  v(y) = sum of the values of the tags and transitions of y

        Its gradient is a covariance: Li & Eisner (2009), First- and Second-Order Expectation
        Semirings.
        """
        return self._messages.expectation(values)

    def entropy(self) -> ScoreWithVjp:
        """The entropy of the distribution of paths in nats, 0 for a sequence without a legal
        path. Its gradient is minus the covariance of the counts of a path and its score.

            -E_p[log p(y)]
        """
        return self._messages.entropy()

    def sample_paths(self, n: int, rng: Generator) -> Ints2d:
        """Sample n paths of each sequence, at least 1: forward filtering, backward sampling.
        Those of a sequence without a legal path are arbitrary. Shape: (n, N)"""
        _check_count("n", n)
        return self._messages.sample_paths(rng.random((n, self._messages.n_tokens)))

    def backprop(self, *vjps: VjpWithDerivative) -> Potentials:
        """Compute the sum of the gradients of several queries at once.

        *vjps (VjpWithDerivative): The callback of each query, and the derivative with respect to
            its values.
        RETURNS (Potentials): The gradient with respect to the potentials.
        """
        return self._messages.backprop(*vjps)


class MaxMessages:
    """The best paths of each sequence of a batch."""

    def __init__(self, potentials: Potentials) -> None:
        self._messages = native.MaxMessages(potentials)

    def max_marginals(self) -> Floats2d:
        """The score of the best path through each tag, minus infinity if none is legal. Shape:
        (N, K)

            max_{y: y_t = k} s(y)
        """
        return self._messages.max_marginals()

    def segment_max_scores(self, segments: Segments) -> ValuesWithVjp:
        """The score of the best path with each segment (first row), and of the best path without it
        (second row); minus infinity where there is no such path. Their gradient is the number of
        times that the best path uses each potential. Shape: (2, S)"""
        return self._messages.segment_max_scores(segments)

    def best_of_tied(self, log_probs: Floats2d, tolerance: float) -> Ints1d:
        """The most probable of the best paths, of those whose scores differ only by a tolerance.

            gamma_t[i] = max_j transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j]
            regret_t[i, j] = gamma_t[i] - (transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j])
            argmax_y sum_t log p(y_t)    where regret_t[y_t, y_{t+1}] <= tolerance for all t

        gamma_t[i] is the score of the best continuation after tag i at token t. The score of a path
        is the best score minus the sum of its regrets. So the score of the result is at most T
        times the tolerance below that of the best path.

        log_probs (Floats2d): log p(y_t) of each tag at each token. Shape: (N, K)
        tolerance (float): The most that a transition may be worse than the best one.
        RETURNS (Ints1d): The tags of the path. Shape: (N,)
        """
        if not (_is_number(tolerance) and tolerance >= 0):
            raise ValueError(f"tolerance: expected a number of at least 0, got {tolerance!r}")
        return self._messages.best_of_tied(log_probs, tolerance)


@on_host
def forward_backward(potentials: Potentials) -> ForwardBackward:
    """Compute the forward and backward messages once, for several queries."""
    return ForwardBackward(potentials)


@on_host
def max_messages(potentials: Potentials) -> MaxMessages:
    """Compute the max-product messages of both directions once, for several queries."""
    return MaxMessages(potentials)


def _function(
    messages: Callable[[Potentials], MessagesT],
    method: Callable[Concatenate[MessagesT, Arguments], ResultT],
) -> Callable[Concatenate[Potentials, Arguments], ResultT]:
    """Make a function of potentials from a query of messages, for those who need a single query.

    messages (Callable): Computes the messages of potentials.
    method (Callable): The query, a method of the messages.
    """

    @wraps(method)
    def function(
        potentials: Potentials, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> ResultT:
        # The method is looked up by its name: for arrays on a GPU the messages are an `OnHost`,
        # whose methods copy their results.
        query = getattr(messages(potentials), method.__name__)
        return query(*args, **kwargs)

    return function


entity_probs = _function(forward_backward, ForwardBackward.entity_probs)
entropy = _function(forward_backward, ForwardBackward.entropy)
expectation = _function(forward_backward, ForwardBackward.expectation)
likely_entities = _function(forward_backward, ForwardBackward.likely_entities)
log_marginals = _function(forward_backward, ForwardBackward.log_marginals)
log_partition = _function(forward_backward, ForwardBackward.log_partition)
log_partition_excluding = _function(forward_backward, ForwardBackward.log_partition_excluding)
marginals = _function(forward_backward, ForwardBackward.marginals)
path_log_prob = _function(forward_backward, ForwardBackward.path_log_prob)
sample_paths = _function(forward_backward, ForwardBackward.sample_paths)
segment_log_probs = _function(forward_backward, ForwardBackward.segment_log_probs)

best_of_tied = _function(max_messages, MaxMessages.best_of_tied)
max_marginals = _function(max_messages, MaxMessages.max_marginals)
segment_max_scores = _function(max_messages, MaxMessages.segment_max_scores)


@on_host
def path_score(potentials: Potentials, tags: Ints1d) -> ScoreWithVjp:
    """The score of one path of each sequence, minus infinity for a forbidden path. Its gradient is
    the number of times that the path uses each potential, 0 for a forbidden path. Shape of the
    tags: (N,)

        s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]
    """
    return native.path_score(potentials, tags)


@on_host
def best_path(potentials: Potentials) -> BestPath:
    """Find the path of the highest score (Viterbi). If several are best, it is one of them.

    argmax_y s(y)
    """
    return BestPath(*native.best_path(potentials))


def any_path(constraints: Constraints, lengths: Ints1d) -> BestPath:
    """Find a path that the constraints allow.

    constraints (Constraints): The constraints, with a mask of the tags of each token.
    lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
    RETURNS (BestPath): A path of each sequence, with the score 0, or minus infinity if there is no
        such path.
    """
    assert constraints.emissions is not None
    n_tags = constraints.emissions.shape[1]
    return best_path(constrain(no_scores(lengths, n_tags, "float32"), constraints))


@on_host
def best_path_excluding(potentials: Potentials, allowed: Allowed) -> BestPath:
    """Find the best path that is not in a set. In the set are the paths whose tags are all allowed.
    The score is minus infinity where all legal paths are in the set.

        argmax_{y: y_t not in allowed_t for some t} s(y)
    """
    return BestPath(*native.best_path_excluding(potentials, allowed))


@on_host
def k_best(potentials: Potentials, k: int) -> BestPath:
    """Find the k paths of the highest scores, all different. k is at least 1."""
    _check_count("k", k)
    return BestPath(*native.k_best(potentials, k))


def _is_number(argument: Any) -> bool:
    """Whether an argument is a real number, of Python or NumPy."""
    return isinstance(argument, (int, float, numpy.number))


def _check_count(name: str, count: Any) -> None:
    """Check that a number of paths is a whole number above 0. An error names the argument."""
    is_integer = isinstance(count, (int, numpy.integer)) and not isinstance(count, bool)
    if not is_integer or count < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {count!r}")


def set_threads(n_threads: int) -> None:
    """Distribute the sequences of each batch over at most so many threads; the default is one. A
    small batch uses fewer."""
    if n_threads < 1:
        raise ValueError(f"expected at least 1 thread, got {n_threads}")
    native.set_threads(n_threads)
