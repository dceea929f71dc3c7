"""Queries of linear chains. A query is a question about the paths of a batch, such as the log
partition function or the probability of some entities. The recursions are in C++: see cpp/.

Messages are what the forward and backward recursions compute for each token and tag. Queries are
answered from them. `ForwardBackward` and `MaxMessages` compute the messages of a batch once and
have a method for each query. If you need only one query, call the function of the same name with
potentials, such as `log_partition`. Values and scores are in float64, gradients in the type of the
potentials. If arrays don't have the shapes and types that are described, or have tags that don't
exist, a ValueError is raised.

In shapes, B is the number of sequences, N of the tokens in all of them, K of tags, S of segments
and E of entities. In formulas, s(y) is the score of the path y.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy
from numpy.random import Generator
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d, Ints2d

from ..types import Constraints, EntityTags, Potentials, ScoreWithVjp, zero_scores
from . import native  # type: ignore[attr-defined]
from .constraints import Allowed, constrain
from .host import on_host

MessagesT = TypeVar("MessagesT")
ResultT = TypeVar("ResultT")
Arguments = ParamSpec("Arguments")

ValuesWithVjp = tuple[Any, Callable[[Any], Potentials]]
"""Values of any shape, and their vector-Jacobian product (vjp): the callback that takes the
derivative with respect to the values to the gradient with respect to the potentials."""

VjpWithDerivative = tuple[Callable[[Any], Potentials], Any]
"""The callback that a query returned, and the derivative with respect to its values."""


class Segments(NamedTuple):
    """Parts of paths: spans of tokens with given tags. Each span is within one sequence. The arrays
    are NumPy arrays.

    begin (Ints1d): The first token of each segment. Shape: (S,)
    end (Ints1d): The token after the last one of each segment. Shape: (S,)
    tags (Ints1d): The tags of the tokens of the first segment, then the tags of the second one, and
        so on. Shape: (tokens of all segments,)
    after (Array2d | None): For each segment, True for the tags that the next token may have, if the
        sequence has one. None: it may have any tag. Shape: (S, K)
    """

    begin: Ints1d
    end: Ints1d
    tags: Ints1d
    after: Array2d | None = None


Spans: TypeAlias = tuple[Ints1d, Ints1d, Ints1d]
"""Spans of tokens with a label: the first token of each, the token after its last one, and the
index of its label. Shapes: (E,)"""


class BestPath(NamedTuple):
    """The path with the highest score in each sequence, or the k best paths, the best one first.

    tags (Array): The tag of each token. Shape: (N,) or (k, N)
    scores (Array): The score of the path in each sequence, minus infinity if there is no such path.
        The tags then have no meaning. Shape: (B,) or (k, B)
    """

    tags: Any
    scores: Any


class ForwardBackward:
    """The distribution p(y) = exp(s(y)) / Z over the paths of each sequence of a batch.

    Most queries return values, and the callback that takes the derivative with respect to the
    values to the gradient with respect to the potentials. There is one value for each sequence, if
    the docstring doesn't say otherwise.

    potentials (Potentials): The scores of the batch.
    """

    def __init__(self, potentials: Potentials) -> None:
        self._messages = native.ForwardBackward(potentials)

    def log_partition(self) -> ScoreWithVjp:
        """Compute the log partition function. Its gradient is the expected number of times that a
        path uses each potential.

            log Z = log sum_y exp(s(y))
        """
        return self._messages.log_partition()

    def log_partition_excluding(self, allowed: Allowed) -> ScoreWithVjp:
        """Compute the log partition function over the paths that have at least one tag that is not
        allowed. It is minus infinity in a sequence that has no such path.

            log sum_{y: y_t not in allowed_t for some t} exp(s(y))

        The sum is computed directly. log(Z - Z'), with Z' the sum over the other paths, would lose
        all digits where these have nearly all the probability.

        allowed (Allowed): The allowed tags: a mask, True for the allowed tags of each token, or the
            only allowed tag of each token. Shape: (N, K) or (N,)
        """
        return self._messages.log_partition_excluding(allowed)

    def marginals(self) -> Floats2d:
        """Compute the marginals, p(y_t = k), in the type of the potentials. They have no gradient.
        In a sequence without a possible path they are 0. Shape: (N, K)"""
        return self._messages.marginals()

    def log_marginals(self, allowed: Allowed) -> ValuesWithVjp:
        """Compute, for each token, the log of the probability that its tag is one of the tags
        allowed there: one number for each token, not for each tag. It is minus infinity where no
        possible path has such a tag. Shape: (N,)

            log p(y_t in allowed_t)

        allowed (Allowed): The allowed tags: a mask, True for the allowed tags of each token, or the
            only allowed tag of each token. Shape: (N, K) or (N,)
        """
        return self._messages.log_marginals(allowed)

    def path_log_prob(self, tags: Ints1d) -> ScoreWithVjp:
        """Compute the log-probability of one path of each sequence. It is minus infinity for a
        forbidden path. Its gradient is the number of times that the path uses each potential, minus
        the expected number; for a forbidden path it is 0.

            log p(y) = s(y) - log Z

        tags (Ints1d): The tags of the paths. Shape: (N,)
        """
        return self._messages.path_log_prob(tags)

    def segment_log_probs(self, segments: Segments) -> ValuesWithVjp:
        """Compute the log-probability of each segment: that a path has its tags, and an allowed tag
        after it. It is minus infinity if no possible path has them. Shape: (S,)

            log p(y_begin = tag_begin, ..., y_{end-1} = tag_{end-1}, y_end in after)
        """
        return self._messages.segment_log_probs(segments)

    def entity_probs(
        self, entities: Spans, entity_tags: EntityTags, is_space: Array1d | None = None
    ) -> Floats1d:
        """Compute the probability of each entity: that a path has an entity with exactly these
        tokens and this label x. It has no gradient. It is 0 if the tokens are of two sequences, or
        if no tag has the label. If a path continues with the tags of an entity into the whitespace
        after it, it still has the same entity.

            p(y_begin opens x, y_{t-1}, y_t inside x for begin < t < end, y_{end-1} closes x,
              y_{end-1}, y_end not inside x)

        entities (Spans): The entities. They may overlap.
        entity_tags (EntityTags): Which tags and transitions make an entity.
        is_space (Array1d | None): True for whitespace tokens. None: no token is whitespace. Shape:
            (N,)
        RETURNS (Floats1d): The probabilities. Shape: (E,)
        """
        return self._messages.entity_probs(entities, entity_tags, is_space)

    def likely_entities(
        self, floor: float, entity_tags: EntityTags, is_space: Array1d | None = None
    ) -> tuple[Ints1d, Ints1d, Ints1d, Floats1d]:
        """Find all entities that have at least a certain probability. No entity ends with
        whitespace.

        Entities that contain the same token exclude each other, so the sum of their probabilities
        is at most 1. So the entities of the result have at most N / floor tokens together. The
        search takes at most this number of steps, and no memory but for the result.

        floor (float): The least probability, above 0.
        entity_tags (EntityTags): Which tags and transitions make an entity.
        is_space (Array1d | None): True for whitespace tokens. None: no token is whitespace. Shape:
            (N,)
        RETURNS (tuple[Ints1d, Ints1d, Ints1d, Floats1d]): Begin, end, label and probability of each
            entity. They are ordered by begin, then by end, then by probability, the highest first.
            Shapes: (E,)
        RAISES (ValueError): If `floor` is not a probability above 0.
        """
        if not (_is_number(floor) and 0 < floor <= 1):
            raise ValueError(f"floor: expected a probability above 0, got {floor!r}")
        return self._messages.likely_entities(floor, entity_tags, is_space)

    def expectation(self, values: Potentials) -> ScoreWithVjp:
        """Compute the expectation of the value v of a path, which is a sum over its tags and
        transitions. It is 0 for a sequence without a possible path.

            E_p[v(y)],  v(y) = sum of the values of the tags and transitions of y

        Its gradient is the covariance of v(y) and the counts of tags and transitions.

        values (Potentials): The value of each tag at each token, and of each transition, start and
            end. Minus infinity counts as 0.

        Li & Eisner (2009), First- and Second-Order Expectation Semirings.
        """
        return self._messages.expectation(values)

    def entropy(self) -> ScoreWithVjp:
        """Compute the entropy of the distribution of paths, in nats. It is 0 for a sequence without
        a possible path. Its gradient is minus the covariance of the score of a path and the counts
        of its tags and transitions.

            -E_p[log p(y)]
        """
        return self._messages.entropy()

    def sample_paths(self, n: int, rng: Generator) -> Ints2d:
        """Sample paths of each sequence from the distribution, by forward filtering and backward
        sampling. In a sequence without a possible path, the tags have no meaning.

        n (int): The number of paths, at least 1.
        rng (Generator): The generator of random numbers.
        RETURNS (Ints2d): The tags of the paths. Shape: (n, N)
        RAISES (ValueError): If `n` is not an integer of at least 1.
        """
        _check_count("n", n)
        # One random number for each token of each path.
        return self._messages.sample_paths(rng.random((n, self._messages.n_tokens)))

    def backprop(self, *vjps: VjpWithDerivative) -> Potentials:
        """Compute the summed gradient of several queries on these messages. It takes one pass over
        the batch, not one for each query.

        *vjps (VjpWithDerivative): The callback of each query, and the derivative with respect to
            its values. There is at least one.
        RETURNS (Potentials): The gradient with respect to the potentials.
        RAISES (ValueError): If no callback is given, or if a callback is from a query of other
            messages.
        """
        if not vjps:
            raise ValueError("vjps: expected at least one callback with its derivative, got none")
        return self._messages.backprop(*vjps)


class MaxMessages:
    """The best paths of each sequence of a batch.

    potentials (Potentials): The scores of the batch.
    """

    def __init__(self, potentials: Potentials) -> None:
        self._messages = native.MaxMessages(potentials)

    def max_marginals(self) -> Floats2d:
        """Compute, for each tag at each token, the score of the best path that has it. It is minus
        infinity if no possible path has it. Shape: (N, K)

            max_{y: y_t = k} s(y)
        """
        return self._messages.max_marginals()

    def segment_max_scores(self, segments: Segments) -> ValuesWithVjp:
        """Compute, for each segment, the score of the best path with it (first row), and the score
        of the best path without it (second row). A score is minus infinity if there is no such
        path. Its gradient is the number of times that the path uses each potential.
        Shape: (2, S)"""
        return self._messages.segment_max_scores(segments)

    def best_of_tied(self, log_probs: Floats2d, tolerance: float) -> Ints1d:
        """Find the most probable path among the paths whose scores are about as good as the score
        of the best path. "About as good" is meant for each tag: its regret is at most a tolerance.

            gamma_t[i] = max_j transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j]
            regret_t[i, j] = gamma_t[i] - (transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j])
            argmax_y sum_t log p(y_t)    where regret_t[y_t, y_{t+1}] <= tolerance for all t

        gamma_t[i] is the score of the best continuation after tag i at token t. regret_t[i, j] says
        how much worse the continuation gets if tag j comes next. The score of a path is the score
        of the best path minus the sum of its regrets. So in a sequence of T tokens, the score of
        the result is at most T times the tolerance below the score of the best path.

        log_probs (Floats2d): log p(y_t) of each tag at each token. Shape: (N, K)
        tolerance (float): The highest regret that counts as about as good.
        RETURNS (Ints1d): The tags of the path. Shape: (N,)
        RAISES (ValueError): If `tolerance` is not a number of at least 0.
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


def _make_function(
    messages: Callable[[Potentials], MessagesT],
    method: Callable[Concatenate[MessagesT, Arguments], ResultT],
) -> Callable[Concatenate[Potentials, Arguments], ResultT]:
    """Make a function of potentials from a query, which is a method of messages. It is for callers
    who need only one query."""

    @wraps(method)
    def function(
        potentials: Potentials, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> ResultT:
        # Look the method up by its name: for arrays on a GPU the messages are an `OnHost`, whose
        # methods also copy their results.
        query = getattr(messages(potentials), method.__name__)
        return query(*args, **kwargs)

    return function


entity_probs = _make_function(forward_backward, ForwardBackward.entity_probs)
entropy = _make_function(forward_backward, ForwardBackward.entropy)
expectation = _make_function(forward_backward, ForwardBackward.expectation)
likely_entities = _make_function(forward_backward, ForwardBackward.likely_entities)
log_marginals = _make_function(forward_backward, ForwardBackward.log_marginals)
log_partition = _make_function(forward_backward, ForwardBackward.log_partition)
log_partition_excluding = _make_function(forward_backward, ForwardBackward.log_partition_excluding)
marginals = _make_function(forward_backward, ForwardBackward.marginals)
path_log_prob = _make_function(forward_backward, ForwardBackward.path_log_prob)
sample_paths = _make_function(forward_backward, ForwardBackward.sample_paths)
segment_log_probs = _make_function(forward_backward, ForwardBackward.segment_log_probs)

best_of_tied = _make_function(max_messages, MaxMessages.best_of_tied)
max_marginals = _make_function(max_messages, MaxMessages.max_marginals)
segment_max_scores = _make_function(max_messages, MaxMessages.segment_max_scores)


@on_host
def path_score(potentials: Potentials, tags: Ints1d) -> ScoreWithVjp:
    """Compute the score of one path of each sequence. It is minus infinity for a forbidden path.
    Its gradient is the number of times that the path uses each potential; for a forbidden path it
    is 0.

        s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]

    potentials (Potentials): The scores of the batch.
    tags (Ints1d): The tags of the paths. Shape: (N,)
    """
    return native.path_score(potentials, tags)


@on_host
def best_path(potentials: Potentials) -> BestPath:
    """Find the path with the highest score in each sequence (Viterbi). If several paths have the
    highest score, it is one of them.

        argmax_y s(y)
    """
    return BestPath(*native.best_path(potentials))


def any_path(constraints: Constraints, lengths: Ints1d) -> BestPath:
    """Find a path that constraints allow, in each sequence.

    constraints (Constraints): The constraints. They have to have a mask of emissions.
    lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
    RETURNS (BestPath): A path of each sequence, with the score 0, or minus infinity if there is no
        such path.
    """
    assert constraints.emissions is not None
    n_tags = constraints.emissions.shape[1]
    # All allowed paths have the score 0, so any of them may be the best path.
    scores = constrain(zero_scores(lengths, n_tags, "float32"), constraints)
    return best_path(scores)


@on_host
def best_path_excluding(potentials: Potentials, allowed: Allowed) -> BestPath:
    """Find the best path with at least one tag that is not allowed, in each sequence. The score is
    minus infinity in a sequence that has no such path.

        argmax_{y: y_t not in allowed_t for some t} s(y)
    """
    return BestPath(*native.best_path_excluding(potentials, allowed))


@on_host
def k_best(potentials: Potentials, k: int) -> BestPath:
    """Find the k different paths with the highest scores, in each sequence.

    RAISES (ValueError): If `k` is not an integer of at least 1.
    """
    _check_count("k", k)
    return BestPath(*native.k_best(potentials, k))


def _is_number(argument: Any) -> bool:
    """Whether an argument is a real Python or NumPy number."""
    return isinstance(argument, (int, float, numpy.number))


def _check_count(name: str, count: Any) -> None:
    """Check that the argument `name`, a number of paths, is a whole number above 0.

    RAISES (ValueError): If it isn't.
    """
    is_integer = isinstance(count, (int, numpy.integer)) and not isinstance(count, bool)
    if not is_integer or count < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {count!r}")


def set_threads(n_threads: int) -> None:
    """Set the number of threads over which the sequences of a batch are distributed. The default is
    one thread. A small batch uses fewer.

    RAISES (ValueError): If the number is below 1.
    """
    if n_threads < 1:
        raise ValueError(f"expected at least 1 thread, got {n_threads}")
    native.set_threads(n_threads)
