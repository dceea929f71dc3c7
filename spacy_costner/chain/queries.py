"""Queries on linear chains. A query computes a quantity for the paths of a batch, e.g. the log
partition function or the probability of entities. The recursions are implemented in C++, see cpp/.

All queries are computed from the messages of the forward and backward recursions. `ForwardBackward`
and `MaxMessages` compute the messages of a batch once and provide a method for each query. For a
single query, call the function of the same name with the potentials, e.g. `log_partition`. Values
and scores are float64, and gradients have the dtype of the potentials. A ValueError is raised for
arrays with unexpected shapes or types and for invalid tags.

In shapes, B is the number of sequences, N the total number of tokens, K the number of tags, S the
number of segments and E the number of entities. In formulas, s(y) is the score of the path y.
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
"""Values of any shape and their vector-Jacobian product (vjp): a callback that converts the
derivative with respect to the values to the gradient with respect to the potentials."""

VjpWithDerivative = tuple[Callable[[Any], Potentials], Any]
"""The callback returned by a query, and the derivative with respect to the values of the query."""


class Segments(NamedTuple):
    """Parts of paths: spans of tokens with given tags. Each span is within a single sequence. All
    arrays are NumPy arrays.

    begin (Ints1d): The index of the first token of each segment. Shape: (S,)
    end (Ints1d): The index after the last token of each segment. Shape: (S,)
    tags (Ints1d): The tags of all segments, concatenated. Shape: (tokens of all segments,)
    after (Array2d | None): True for the tags allowed at the token after each segment, if the
        sequence has such a token. If None, all tags are allowed. Shape: (S, K)
    """

    begin: Ints1d
    end: Ints1d
    tags: Ints1d
    after: Array2d | None = None


Spans: TypeAlias = tuple[Ints1d, Ints1d, Ints1d]
"""Labeled spans of tokens: the index of the first token, the index after the last token and the
label index of each span. Shapes: (E,)"""


class BestPath(NamedTuple):
    """The highest-scoring path of each sequence, or the k best paths in descending order of score.

    tags (Array): The tag of each token. Shape: (N,) or (k, N)
    scores (Array): The score of each sequence's path. If it is minus infinity, there is no
        such path and the tags are meaningless. Shape: (B,) or (k, B)
    """

    tags: Any
    scores: Any


class ForwardBackward:
    """The distribution p(y) = exp(s(y)) / Z over the paths of each sequence of a batch.

    Most queries return values and a callback that converts the derivative with respect to the
    values to the gradient with respect to the potentials. Unless stated otherwise, there is one
    value per sequence.

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
        """Compute the log partition function over all paths with at least one tag that is not
        allowed. The value is minus infinity for sequences without such a path.

            log sum_{y: y_t not in allowed_t for some t} exp(s(y))

        The sum is computed directly. Computing it as log(Z - Z'), where Z' is the sum over all
        other paths, would suffer from cancellation if these paths account for most of Z.

        allowed (Allowed): A mask of the allowed tags of each token, (N, K), or the only allowed tag
            of each token, (N,).
        """
        return self._messages.log_partition_excluding(allowed)

    def marginals(self) -> Floats2d:
        """Compute the marginals, p(y_t = k), in the dtype of the potentials and without a gradient.
        They are 0 for sequences without a possible path. Shape: (N, K)"""
        return self._messages.marginals()

    def log_marginals(self, allowed: Allowed) -> ValuesWithVjp:
        """Compute the log-probability that the tag of a token is one of the allowed tags. There is
        one value per token. It is minus infinity if no possible path has an allowed tag at the
        token. Shape: (N,)

            log p(y_t in allowed_t)

        allowed (Allowed): A mask of the allowed tags of each token, (N, K), or the only allowed tag
            of each token, (N,).
        """
        return self._messages.log_marginals(allowed)

    def path_log_prob(self, tags: Ints1d) -> ScoreWithVjp:
        """Compute the log-probability of one path per sequence. The gradient is the number of times
        the path uses each potential minus the expected number of times. For a forbidden path, the
        value is minus infinity and the gradient is 0.

            log p(y) = s(y) - log Z

        tags (Ints1d): The tags of the paths. Shape: (N,)
        """
        return self._messages.path_log_prob(tags)

    def segment_log_probs(self, segments: Segments) -> ValuesWithVjp:
        """Compute the log-probability that a path contains each segment, followed by an allowed
        tag. It is minus infinity if there is no such path. Shape: (S,)

            log p(y_begin = tag_begin, ..., y_{end-1} = tag_{end-1}, y_end in after)
        """
        return self._messages.segment_log_probs(segments)

    def entity_probs(
        self, entities: Spans, entity_tags: EntityTags, is_space: Array1d | None = None
    ) -> Floats1d:
        """Compute the probability that a path contains each entity, with exactly these tokens and
        this label x. The probability is 0 for a span that crosses sequences and for a label without
        tags. Trailing whitespace is ignored: a path still contains the entity if the entity's tags
        continue into the whitespace after it. There is no gradient.

            p(y_begin opens x, y_{t-1}, y_t inside x for begin < t < end, y_{end-1} closes x,
              y_{end-1}, y_end not inside x)

        entities (Spans): The entities. They may overlap.
        entity_tags (EntityTags): The tags and transitions that form an entity.
        is_space (Array1d | None): True for whitespace tokens. If None, there are no whitespace
            tokens. Shape: (N,)
        RETURNS (Floats1d): The probabilities. Shape: (E,)
        """
        return self._messages.entity_probs(entities, entity_tags, is_space)

    def likely_entities(
        self, floor: float, entity_tags: EntityTags, is_space: Array1d | None = None
    ) -> tuple[Ints1d, Ints1d, Ints1d, Floats1d]:
        """Find all entities with at least the given probability. Entities never end with
        whitespace.

        Entities that share a token are mutually exclusive, so their probabilities add up to at most
        1. The resulting entities therefore have at most N / floor tokens in total. This also bounds
        the number of search steps. Only the result is stored in memory.

        floor (float): The minimum probability, above 0.
        entity_tags (EntityTags): The tags and transitions that form an entity.
        is_space (Array1d | None): True for whitespace tokens. If None, there are no whitespace
            tokens. Shape: (N,)
        RETURNS (tuple[Ints1d, Ints1d, Ints1d, Floats1d]): The start, end, label and probability of
            each entity, sorted by start, by end and by descending probability. Shapes: (E,)
        RAISES (ValueError): If `floor` is not a probability above 0.
        """
        if not (_is_number(floor) and 0 < floor <= 1):
            raise ValueError(f"floor: expected a probability above 0, got {floor!r}")
        return self._messages.likely_entities(floor, entity_tags, is_space)

    def expectation(self, values: Potentials) -> ScoreWithVjp:
        """Compute the expected value of a path, where the value v(y) is a sum over the tags and
        transitions of the path. It is 0 for sequences without a possible path.

            E_p[v(y)],  v(y) = sum of the values of the tags and transitions of y

        The gradient is the covariance of v(y) and the counts of tags and transitions.

        values (Potentials): The value of each tag at each token, and of each transition, start and
            end. Minus infinity is treated as 0.

        Li & Eisner (2009), First- and Second-Order Expectation Semirings.
        """
        return self._messages.expectation(values)

    def entropy(self) -> ScoreWithVjp:
        """Compute the entropy of the distribution over paths, in nats. It is 0 for sequences
        without a possible path. The gradient is the negative covariance of the path score and the
        counts of tags and transitions.

            -E_p[log p(y)]
        """
        return self._messages.entropy()

    def sample_paths(self, n: int, rng: Generator) -> Ints2d:
        """Sample paths for each sequence from the distribution, using forward filtering and
        backward sampling. The tags are meaningless for sequences without a possible path.

        n (int): The number of paths, at least 1.
        rng (Generator): The random number generator.
        RETURNS (Ints2d): The tags of the paths. Shape: (n, N)
        RAISES (ValueError): If `n` is not an integer of at least 1.
        """
        _check_count("n", n)
        # One random number per token and path.
        return self._messages.sample_paths(rng.random((n, self._messages.n_tokens)))

    def backprop(self, *vjps: VjpWithDerivative) -> Potentials:
        """Compute the sum of the gradients of several queries on these messages, in a single pass
        over the batch.

        *vjps (VjpWithDerivative): The callback of each query and the derivative with respect to its
            values. At least one is required.
        RETURNS (Potentials): The gradient with respect to the potentials.
        RAISES (ValueError): If no callback is given or a callback belongs to other messages.
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
        """Compute the score of the best path with each tag at each token. It is minus infinity if
        there is no such path. Shape: (N, K)

            max_{y: y_t = k} s(y)
        """
        return self._messages.max_marginals()

    def segment_max_scores(self, segments: Segments) -> ValuesWithVjp:
        """Compute, for each segment, the score of the best path that contains it (first row) and of
        the best path that doesn't (second row). A score is minus infinity if there is no such path.
        The gradient is the number of times the path uses each potential. Shape: (2, S)"""
        return self._messages.segment_max_scores(segments)

    def best_of_tied(self, log_probs: Floats2d, tolerance: float) -> Ints1d:
        """Find the path with the highest sum of marginal log-probabilities among all paths that are
        nearly tied with the best path, i.e. paths whose tags all have a regret within a tolerance.

            gamma_t[i] = max_j transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j]
            regret_t[i, j] = gamma_t[i] - (transitions[i, j] + emissions[t+1, j] + gamma_{t+1}[j])
            argmax_y sum_t log p(y_t)    where regret_t[y_t, y_{t+1}] <= tolerance for all t

        gamma_t[i] is the score of the best continuation after tag i at token t. regret_t[i, j] is
        the loss in score if the next tag is j instead. The score of a path is the score of the best
        path minus the sum of the path's regrets. In a sequence of T tokens, the score of the result
        is therefore at most T times the tolerance below the best score.

        log_probs (Floats2d): log p(y_t) of each tag at each token. Shape: (N, K)
        tolerance (float): The maximum regret of a tag.
        RETURNS (Ints1d): The tags of the path. Shape: (N,)
        RAISES (ValueError): If `tolerance` is not a number of at least 0.
        """
        if not (_is_number(tolerance) and tolerance >= 0):
            raise ValueError(f"tolerance: expected a number of at least 0, got {tolerance!r}")
        return self._messages.best_of_tied(log_probs, tolerance)


@on_host
def forward_backward(potentials: Potentials) -> ForwardBackward:
    """Compute the forward and backward messages once for use in several queries."""
    return ForwardBackward(potentials)


@on_host
def max_messages(potentials: Potentials) -> MaxMessages:
    """Compute the max-product messages in both directions once for use in several queries."""
    return MaxMessages(potentials)


def _make_function(
    messages: Callable[[Potentials], MessagesT],
    method: Callable[Concatenate[MessagesT, Arguments], ResultT],
) -> Callable[Concatenate[Potentials, Arguments], ResultT]:
    """Create a function of potentials from a query method of messages, for callers that need only
    one query."""

    @wraps(method)
    def function(
        potentials: Potentials, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> ResultT:
        # Look up the method by name: for GPU arrays, the messages are an `OnHost`, whose methods
        # also copy their results.
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
    """Compute the score of one path per sequence. The gradient is the number of times the path uses
    each potential. For a forbidden path, the score is minus infinity and the gradient is 0.

        s(y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_T]

    potentials (Potentials): The scores of the batch.
    tags (Ints1d): The tags of the paths. Shape: (N,)
    """
    return native.path_score(potentials, tags)


@on_host
def best_path(potentials: Potentials) -> BestPath:
    """Find the highest-scoring path of each sequence (Viterbi). Ties are broken arbitrarily.

    argmax_y s(y)
    """
    return BestPath(*native.best_path(potentials))


def any_path(constraints: Constraints, lengths: Ints1d) -> BestPath:
    """Find an arbitrary allowed path for each sequence.

    constraints (Constraints): The constraints, including a mask for emissions.
    lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
    RETURNS (BestPath): One path per sequence. Its score is 0, or minus infinity if no path is
        allowed.
    """
    assert constraints.emissions is not None
    n_tags = constraints.emissions.shape[1]
    # All allowed paths have the score 0, so any of them may be returned as the best path.
    scores = constrain(zero_scores(lengths, n_tags, "float32"), constraints)
    return best_path(scores)


@on_host
def best_path_excluding(potentials: Potentials, allowed: Allowed) -> BestPath:
    """Find the best path with at least one tag that is not allowed, for each sequence. The score is
    minus infinity for sequences without such a path.

        argmax_{y: y_t not in allowed_t for some t} s(y)
    """
    return BestPath(*native.best_path_excluding(potentials, allowed))


@on_host
def k_best(potentials: Potentials, k: int) -> BestPath:
    """Find the k highest-scoring distinct paths of each sequence.

    RAISES (ValueError): If `k` is not an integer of at least 1.
    """
    _check_count("k", k)
    return BestPath(*native.k_best(potentials, k))


def _is_number(argument: Any) -> bool:
    """Check whether an argument is a real Python or NumPy number."""
    return isinstance(argument, (int, float, numpy.number))


def _check_count(name: str, count: Any) -> None:
    """Check that an argument is a positive integer.

    RAISES (ValueError): If it isn't.
    """
    is_integer = isinstance(count, (int, numpy.integer)) and not isinstance(count, bool)
    if not is_integer or count < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {count!r}")


def set_threads(n_threads: int) -> None:
    """Set the number of threads used to process the sequences of a batch. Defaults to 1. Small
    batches use fewer threads.

    RAISES (ValueError): If the number is below 1.
    """
    if n_threads < 1:
        raise ValueError(f"expected at least 1 thread, got {n_threads}")
    native.set_threads(n_threads)
