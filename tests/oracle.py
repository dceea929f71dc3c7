"""What everything means, by enumeration of all K^T paths: slow, obvious, in float64.

Each quantity is written from its definition over `paths`, for one sequence at a time. No other
module enumerates, and nothing here calls the package. `oracle_losses` has the losses.

The argument b is the number of a sequence in its batch. A step of a path is a tag at a token, a
transition, the first tag (start) or the last tag (end). f(y) counts the steps of the path y, and
s(y) is the sum of their scores. In shapes, B is the number of sequences, N of tokens of a batch, T
of tokens of a sequence, and K of tags.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy

from spacy_costner.types import Potentials

Tags = tuple[int, ...]


class Path(NamedTuple):
    """A legal path of one sequence and its score."""

    tags: Tags
    score: float


# Paths


def spans(potentials: Potentials) -> list[slice]:
    """Return the tokens of each sequence, counted over the batch."""
    ends = numpy.cumsum(potentials.lengths).tolist()
    return [slice(end - n, end) for end, n in zip(ends, potentials.lengths.tolist())]


def scorer(potentials: Potentials, b: int) -> Callable[[Sequence[int]], float]:
    """Make the function that scores the paths y of sequence b:

    s(y) = start[y_1] + sum emissions[t, y_t] + sum transitions[y_{t-1}, y_t] + end[y_T]
    """
    emissions = potentials.emissions[spans(potentials)[b]].tolist()
    transitions, start, end = (array.tolist() for array in potentials[1:4])

    def score(tags: Sequence[int]) -> float:
        if len(tags) == 0:
            return 0.0
        scores_of_steps = [start[tags[0]], end[tags[-1]]]
        scores_of_steps += [row[tag] for row, tag in zip(emissions, tags)]
        scores_of_steps += [transitions[i][j] for i, j in pairwise(tags)]
        return math.fsum(scores_of_steps)

    return score


def score(potentials: Potentials, b: int, tags: Sequence[int]) -> float:
    """Compute s(y) of one path of sequence b."""
    return scorer(potentials, b)(tags)


def paths(potentials: Potentials, b: int, allowed: numpy.ndarray | None = None) -> list[Path]:
    """List the legal paths of sequence b. With `allowed`, a mask of shape (N, K), only the paths
    whose tags are all allowed."""
    n_tags = len(potentials.start)
    first_token = spans(potentials)[b].start
    score = scorer(potentials, b)
    all_paths = [Path(y, score(y)) for y in product(range(n_tags), repeat=_t(potentials, b))]
    legal = [path for path in all_paths if path.score > -math.inf]
    if allowed is None:
        return legal

    def is_allowed(path: Path) -> bool:
        return all(allowed[first_token + t, tag] for t, tag in enumerate(path.tags))

    return [path for path in legal if is_allowed(path)]


def features(potentials: Potentials, b: int, tags: Sequence[int]) -> Potentials:
    """Compute f(y): how often a path of sequence b takes each step. It is the gradient of s(y)."""
    counts = zeros(potentials)
    add_features(counts, b, tags, 1.0)
    return counts


def add_features(counts: Potentials, b: int, tags: Sequence[int], weight: float) -> None:
    """Add weight f(y) of a path of sequence b to counts, in place."""
    if len(tags):
        first = spans(counts)[b].start
        for t, tag in enumerate(tags):
            counts.emissions[first + t, tag] += weight
        for i, j in pairwise(tags):
            counts.transitions[i, j] += weight
        counts.start[tags[0]] += weight
        counts.end[tags[-1]] += weight


# Sums over paths


def log_sum_exp(scores: Sequence[float]) -> float:
    """Compute log sum exp(scores) without overflow. It is minus infinity if there are no scores."""
    largest = max(scores, default=-math.inf)
    if math.isinf(largest):
        return largest
    return largest + math.log(math.fsum(math.exp(score - largest) for score in scores))


def probabilities(some_paths: Sequence[Path]) -> list[float]:
    """Compute p(y) of each of some paths, as if there were no other paths."""
    log_z = log_sum_exp([path.score for path in some_paths])
    return [math.exp(path.score - log_z) for path in some_paths]


# Values with their gradients


class Value(NamedTuple):
    """A number, and its gradient with respect to the potentials, as `vector` makes it."""

    value: float
    gradient: numpy.ndarray


def anything(tags: Tags) -> bool:
    """A condition that every path meets."""
    return True


def log_sum(potentials: Potentials, b: int, which: Callable[[Tags], bool] = anything) -> Value:
    """Compute log sum exp(s(y)) over the legal paths that meet the condition `which`. Its gradient
    is E[f(y) | which]."""
    chosen = [path for path in paths(potentials, b) if which(path.tags)]
    gradient = zeros(potentials)
    for p, path in zip(probabilities(chosen), chosen):
        add_features(gradient, b, path.tags, p)
    return Value(log_sum_exp([path.score for path in chosen]), vector(gradient))


def log_probability(potentials: Potentials, b: int, which: Callable[[Tags], bool]) -> Value:
    """Compute the log-probability that a path meets the condition `which`. If that is minus
    infinity, the gradient is 0."""
    log_z_of_chosen = log_sum(potentials, b, which)
    log_z = log_sum(potentials, b)
    if log_z_of_chosen.value == -math.inf:
        return log_z_of_chosen
    return Value(
        log_z_of_chosen.value - log_z.value,
        log_z_of_chosen.gradient - log_z.gradient,
    )


def mean(potentials: Potentials, b: int, value: Callable[[Tags], float]) -> Value:
    """Compute the mean E_p[v(y)] of a value v of paths. Its gradient is
    Cov(f, v) = E[f v] - E[f] E[v]."""
    legal = paths(potentials, b)
    probs = probabilities(legal)
    values = [value(path.tags) for path in legal]
    expected = math.fsum(p * v for p, v in zip(probs, values))
    covariance = zeros(potentials)
    for path, p, v in zip(legal, probs, values):
        add_features(covariance, b, path.tags, p * (v - expected))
    return Value(expected, vector(covariance))


def entropy(potentials: Potentials, b: int) -> Value:
    """Compute the entropy -E_p[log p(y)] = log Z - E_p[s(y)]. Its gradient is -Cov(f, s)."""
    surprisals = [-p * math.log(p) for p in probabilities(paths(potentials, b)) if p > 0]
    covariance = mean(potentials, b, scorer(potentials, b)).gradient
    return Value(math.fsum(surprisals), -covariance)


def log_partition(potentials: Potentials, allowed: numpy.ndarray | None = None) -> numpy.ndarray:
    """Compute log Z of each sequence. With `allowed`, only the paths whose tags are all allowed
    count: see `paths`. Shape: (B,)"""
    log_z = []
    for b in _b(potentials):
        log_z.append(log_sum_exp([path.score for path in paths(potentials, b, allowed)]))
    return numpy.asarray(log_z)


def expected_features(potentials: Potentials, b: int) -> Potentials:
    """Compute E_p[f(y)], the expected counts of steps. They are the gradient of log Z."""
    return from_vector(log_sum(potentials, b).gradient, potentials)


def k_best(potentials: Potentials, b: int, which: Callable[[Tags], bool] = anything) -> list[Path]:
    """List the legal paths that meet the condition `which`, the best one first."""
    chosen = [path for path in paths(potentials, b) if which(path.tags)]
    return sorted(chosen, key=lambda path: -path.score)


# Segments


def has_segment(
    potentials: Potentials, segments: Any, s: int
) -> tuple[int, Callable[[Tags], bool]]:
    """Return the sequence that segment number s is in, and the condition that a path of that
    sequence has the segment."""
    # `segments.tags` has the tags of all segments, one segment after another.
    n_tokens = segments.end - segments.begin
    first = int(n_tokens[:s].sum())
    tags = tuple(segments.tags[first : first + int(n_tokens[s])].tolist())

    # The tokens of a segment are counted over the batch, those of a path in its sequence.
    token = int(segments.begin[s])
    tokens_of_sequence = spans(potentials)
    b = next(b for b in _b(potentials) if token < tokens_of_sequence[b].stop)
    begin = token - tokens_of_sequence[b].start
    end = begin + len(tags)

    def has(y: Tags) -> bool:
        if y[begin:end] != tags:
            return False
        # The tag that follows has to be in `after`, if there are both.
        if segments.after is None or end == len(y):
            return True
        return bool(segments.after[s, y[end]])

    return b, has


# Vectors


def zeros(potentials: Potentials) -> Potentials:
    """Make a gradient of zeros, in float64."""
    arrays = [numpy.zeros(array.shape) for array in potentials[:4]]
    return Potentials(*arrays, lengths=potentials.lengths)


def vector(gradient: Potentials) -> numpy.ndarray:
    """Put all numbers of a gradient into one array: emissions, transitions, start, end."""
    return numpy.concatenate([array.ravel() for array in gradient[:4]]).astype("float64")


def from_vector(flat: numpy.ndarray, like: Potentials) -> Potentials:
    """Undo `vector`. The arrays of the result have the shapes of those of `like`."""
    ends = numpy.cumsum([array.size for array in like[:3]])
    arrays = []
    for numbers, array in zip(numpy.split(flat, ends), like[:4]):
        arrays.append(numbers.reshape(array.shape))
    return Potentials(*arrays, lengths=like.lengths)


def _b(potentials: Potentials) -> range:
    """The numbers of the sequences."""
    return range(len(potentials.lengths))


def _t(potentials: Potentials, b: int) -> int:
    """How many tokens a sequence has."""
    return int(potentials.lengths[b])
