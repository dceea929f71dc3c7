"""What everything means, by enumeration of all K^T paths: slow, obvious, in float64.

Each quantity is written from its definition over `paths`, one sequence after another. No
other module enumerates, and nothing here calls the package. `oracle_losses` has the losses.
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
    """The tokens of each sequence."""
    ends = numpy.cumsum(potentials.lengths).tolist()
    return [slice(end - n, end) for end, n in zip(ends, potentials.lengths.tolist())]


def scorer(potentials: Potentials, b: int) -> Callable[[Sequence[int]], float]:
    """s(y) = start[y_1] + sum emissions[t, y_t] + sum transitions[y_{t-1}, y_t] + end[y_T]"""
    emissions = potentials.emissions[spans(potentials)[b]].tolist()
    transitions, start, end = (array.tolist() for array in potentials[1:4])

    def score(tags: Sequence[int]) -> float:
        if len(tags) == 0:
            return 0.0
        steps = [start[tags[0]], end[tags[-1]]]
        steps += [row[tag] for row, tag in zip(emissions, tags)]
        steps += [transitions[i][j] for i, j in pairwise(tags)]
        return math.fsum(steps)

    return score


def score(potentials: Potentials, b: int, tags: Sequence[int]) -> float:
    """s(y) of one path of sequence b."""
    return scorer(potentials, b)(tags)


def paths(potentials: Potentials, b: int, allowed: numpy.ndarray | None = None) -> list[Path]:
    """The legal paths of a sequence; with `allowed` (N, K), those through allowed tags only."""
    n_tags = len(potentials.start)
    token = spans(potentials)[b].start
    score = scorer(potentials, b)
    all_paths = [Path(y, score(y)) for y in product(range(n_tags), repeat=_t(potentials, b))]
    legal = [path for path in all_paths if path.score > -math.inf]
    if allowed is None:
        return legal

    def is_allowed(path: Path) -> bool:
        return all(allowed[token + t, tag] for t, tag in enumerate(path.tags))

    return [path for path in legal if is_allowed(path)]


def features(potentials: Potentials, b: int, tags: Sequence[int]) -> Potentials:
    """How often a path takes each step: the gradient of its score."""
    counts = zeros(potentials)
    add_features(counts, b, tags, 1.0)
    return counts


def add_features(counts: Potentials, b: int, tags: Sequence[int], weight: float) -> None:
    """Count each step of a path `weight` times."""
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
    """log sum exp(scores), without overflow; minus infinity if there are no scores."""
    largest = max(scores, default=-math.inf)
    if math.isinf(largest):
        return largest
    return largest + math.log(math.fsum(math.exp(score - largest) for score in scores))


def probabilities(some_paths: Sequence[Path]) -> list[float]:
    """p(y) of each of these paths, if there are no others."""
    log_z = log_sum_exp([path.score for path in some_paths])
    return [math.exp(path.score - log_z) for path in some_paths]


# Values with their gradients


class Value(NamedTuple):
    """A number, and its derivative with respect to the potentials as a `vector`."""

    value: float
    gradient: numpy.ndarray


def anything(tags: Tags) -> bool:
    """The condition that every path meets."""
    return True


def log_sum(potentials: Potentials, b: int, which: Callable[[Tags], bool] = anything) -> Value:
    """log sum exp(s(y)) over the legal paths `which` holds for, and E[f(y) | which]."""
    chosen = [path for path in paths(potentials, b) if which(path.tags)]
    gradient = zeros(potentials)
    for p, path in zip(probabilities(chosen), chosen):
        add_features(gradient, b, path.tags, p)
    return Value(log_sum_exp([path.score for path in chosen]), vector(gradient))


def log_probability(potentials: Potentials, b: int, which: Callable[[Tags], bool]) -> Value:
    """log p(which holds for y); gradient 0 where that is minus infinity."""
    log_z_of_chosen = log_sum(potentials, b, which)
    log_z = log_sum(potentials, b)
    if log_z_of_chosen.value == -math.inf:
        return log_z_of_chosen
    return Value(
        log_z_of_chosen.value - log_z.value,
        log_z_of_chosen.gradient - log_z.gradient,
    )


def mean(potentials: Potentials, b: int, value: Callable[[Tags], float]) -> Value:
    """E_p[v(y)], and its gradient Cov(f, v) = E[f v] - E[f] E[v]."""
    legal = paths(potentials, b)
    probs = probabilities(legal)
    values = [value(path.tags) for path in legal]
    expected = math.fsum(p * v for p, v in zip(probs, values))
    covariance = zeros(potentials)
    for path, p, v in zip(legal, probs, values):
        add_features(covariance, b, path.tags, p * (v - expected))
    return Value(expected, vector(covariance))


def entropy(potentials: Potentials, b: int) -> Value:
    """-E_p[log p(y)] = log Z - E_p[s(y)], and its gradient -Cov(f, s)."""
    surprisals = [-p * math.log(p) for p in probabilities(paths(potentials, b)) if p > 0]
    covariance = mean(potentials, b, scorer(potentials, b)).gradient
    return Value(math.fsum(surprisals), -covariance)


def log_partition(potentials: Potentials, allowed: numpy.ndarray | None = None) -> numpy.ndarray:
    """log Z of each sequence; with `allowed`, of the paths through allowed tags. Shape: (B,)"""
    log_z = []
    for b in _b(potentials):
        log_z.append(log_sum_exp([path.score for path in paths(potentials, b, allowed)]))
    return numpy.asarray(log_z)


def expected_features(potentials: Potentials, b: int) -> Potentials:
    """E_p[f(y)]: the gradient of log Z."""
    return from_vector(log_sum(potentials, b).gradient, potentials)


def k_best(potentials: Potentials, b: int, which: Callable[[Tags], bool] = anything) -> list[Path]:
    """The legal paths `which` holds for, the best one first."""
    chosen = [path for path in paths(potentials, b) if which(path.tags)]
    return sorted(chosen, key=lambda path: -path.score)


# Segments


def has_segment(
    potentials: Potentials, segments: Any, s: int
) -> tuple[int, Callable[[Tags], bool]]:
    """The sequence of segment s, and whether a path of that sequence has the segment."""
    # `segments.tags` has the tags of all segments, one segment after another.
    n_tokens = segments.end - segments.begin
    first = int(n_tokens[:s].sum())
    tags = tuple(segments.tags[first : first + int(n_tokens[s])].tolist())

    # Tokens of a segment are numbered in the batch, and those of a path in its sequence.
    token = int(segments.begin[s])
    tokens_of_sequence = spans(potentials)
    b = next(b for b in _b(potentials) if token < tokens_of_sequence[b].stop)
    begin = token - tokens_of_sequence[b].start
    end = begin + len(tags)

    def has(y: Tags) -> bool:
        if y[begin:end] != tags:
            return False
        if segments.after is None or end == len(y):
            return True
        return bool(segments.after[s, y[end]])

    return b, has


# Vectors


def zeros(potentials: Potentials) -> Potentials:
    """A gradient of zeros, in float64."""
    arrays = [numpy.zeros(array.shape) for array in potentials[:4]]
    return Potentials(*arrays, lengths=potentials.lengths)


def vector(gradient: Potentials) -> numpy.ndarray:
    """Emissions, transitions, start, end, one after another."""
    return numpy.concatenate([array.ravel() for array in gradient[:4]]).astype("float64")


def from_vector(flat: numpy.ndarray, like: Potentials) -> Potentials:
    """Undo `vector`, for potentials of the shapes of `like`."""
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
