"""Hypothesis strategies, named after the shapes of what they draw.

Hypothesis chooses shapes, scales, and how much is forbidden; the numbers come from a seed
that it chooses too, because arrays that it builds itself are mostly all the same number.
"""

from typing import Any, NamedTuple

import numpy
from hypothesis import strategies as st

from spacy_costner.chain import Segments
from spacy_costner.tags import Entities, Tags
from spacy_costner.types import Constraints, Cost, CostTable, Gold, Potentials

SCALES = (0.1, 1.0, 10.0, 100.0)
SHARES_ALLOWED = (0.9, 0.7, 0.5)
MOST_PATHS = 256
TAG_SETS = (Tags(["a"]), Tags(["a", "b"], "IOB2"), Tags(["a", "b"]))

seeds = st.integers(0, 2**32 - 1).map(numpy.random.default_rng)


def scores(shape: Any) -> st.SearchStrategy:
    """Float64 arrays of scores between -1 and 1."""
    return seeds.map(lambda rng: rng.uniform(-1, 1, size=shape))


def truths(shape: Any) -> st.SearchStrategy:
    """Arrays of truth values of which more are true."""
    shares = st.sampled_from(SHARES_ALLOWED)
    return st.tuples(seeds, shares).map(lambda drawn: drawn[0].uniform(size=shape) < drawn[1])


@st.composite
def lengths_B(draw: Any, n_tags: int, longest: int = 5) -> numpy.ndarray:  # noqa: N802
    """Up to three sequences, empty ones too, of at most `MOST_PATHS` paths each."""
    while n_tags**longest > MOST_PATHS:
        longest -= 1
    rng = draw(seeds)
    n_sequences = rng.choice(4, p=[0.05, 0.25, 0.3, 0.4])
    return rng.integers(longest + 1, size=n_sequences).astype("int32")


@st.composite
def constraints_NK(draw: Any, n_tokens: int, n_tags: int) -> Constraints:  # noqa: N802
    """Constraints of any kind, or none."""
    shapes = ((n_tokens, n_tags), (n_tags, n_tags), n_tags, n_tags)
    return Constraints(*(draw(st.none() | truths(shape)) for shape in shapes))


def mask(potentials: Potentials, constraints: Constraints) -> Potentials:
    """The scores, minus infinity where a constraint says no."""
    pairs = zip(potentials[:4], constraints)
    arrays = [
        scores if possible is None else numpy.where(possible, scores, -numpy.inf)
        for scores, possible in pairs
    ]
    return Potentials(*arrays, lengths=potentials.lengths)


@st.composite
def potentials_NK(  # noqa: N802
    draw: Any, longest: int = 5, most_tags: int = 4, constrained: bool = True
) -> Potentials:
    """Ragged float64 batches of any scale, most of them with forbidden steps."""
    n_tags = min(most_tags, draw(st.sampled_from([3, 2, 4, 1, 3, 4])))
    potentials = draw(free_potentials_NK(draw(lengths_B(n_tags, longest)), n_tags))
    if constrained:
        constraints = constraints_NK(len(potentials.emissions), n_tags)
        potentials = mask(potentials, draw(constraints))
    return potentials


@st.composite
def free_potentials_NK(draw: Any, lengths: numpy.ndarray, n_tags: int) -> Potentials:  # noqa: N802
    """Float64 batches of any scale, without forbidden steps."""
    scale = draw(st.sampled_from(SCALES))
    shapes = ((int(lengths.sum()), n_tags), (n_tags, n_tags), n_tags, n_tags)
    return Potentials(*(draw(scores(shape)) * scale for shape in shapes), lengths=lengths)


def tags_N(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """One tag a token, legal or not."""
    n_tokens, n_tags = potentials.emissions.shape
    return seeds.map(lambda rng: rng.integers(n_tags, size=n_tokens))


def allowed_NK(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """Sets of tags, some of them empty."""
    return truths(potentials.emissions.shape)


@st.composite
def values_NK(draw: Any, potentials: Potentials) -> Potentials:  # noqa: N802
    """A value of each step, minus infinity at some."""
    arrays = [
        numpy.where(draw(truths(array.shape)), draw(scores(array.shape)), -numpy.inf)
        for array in potentials[:4]
    ]
    return Potentials(*arrays, lengths=potentials.lengths)


@st.composite
def segments_S(draw: Any, potentials: Potentials) -> Segments:  # noqa: N802
    """Up to three segments, which may overlap."""
    rng = draw(seeds)
    n_tags = len(potentials.transitions)
    n_segments = draw(st.sampled_from([3, 2, 1, 0]))
    # The sequence of each segment: at most two are of the same one.
    sequences = numpy.repeat(numpy.flatnonzero(potentials.lengths), 2)
    sequences = rng.permutation(sequences)[:n_segments]
    end_of_sequence = numpy.cumsum(potentials.lengths)[sequences]
    begin = rng.integers(end_of_sequence - potentials.lengths[sequences], end_of_sequence)
    end = rng.integers(begin, end_of_sequence) + 1
    tags = rng.integers(n_tags, size=int((end - begin).sum()))
    return Segments(begin, end, tags, draw(st.none() | truths((len(begin), n_tags))))


# Batches with gold


class Annotated(NamedTuple):
    """A batch and two golds, both legal: one complete, one with less annotation."""

    potentials: Potentials
    complete: Gold
    partial: Gold


class Problem(NamedTuple):
    """A batch before gold is written down."""

    potentials: Potentials
    path: numpy.ndarray  # a legal one of each sequence. (N,)
    table: CostTable  # what mistakes cost. (K, K)
    opening: numpy.ndarray  # as in `Gold`. (K,)
    continuing: numpy.ndarray


@st.composite
def annotated_NK(draw: Any, cost: Cost | None = None) -> Annotated:  # noqa: N802
    """Ragged batches with gold, weights and costs: of a tag set, or else of any tags."""
    problem = draw(any_tags_NK() if cost is None else tag_set_NK(cost))
    return Annotated(problem.potentials, *draw(golds_N(problem)))


@st.composite
def golds_N(draw: Any, problem: Problem) -> tuple[Gold, Gold]:  # noqa: N802
    """Complete gold of a path, and gold with less annotation."""
    potentials, path, table, opening, continuing = problem
    rng = draw(seeds)
    n_tokens = len(path)
    weights = rng.uniform(0, 2, size=len(potentials.lengths))
    weights[rng.uniform(size=len(weights)) >= 0.8] = 0.0
    weights = draw(st.none() | st.just(weights))

    token_weights = draw(st.none() | st.just(rng.uniform(0, 2, size=n_tokens)))
    # A column, for the costs of each token. Shape: (N, 1)
    cost_weights = numpy.ones((n_tokens, 1)) if token_weights is None else token_weights[:, None]

    complete = Gold(
        tags=path,
        costs=table[path] * cost_weights,
        token_weights=token_weights,
        weights=weights,
        opening=opening,
        continuing=continuing,
        features=draw(st.none() | st.just(rng.integers(-1, 4, size=(n_tokens, 3)))),
    )
    allowed = draw(sets_NK(path, continuing))
    partial = complete._replace(
        tags=numpy.where(allowed.sum(axis=1) == 1, path, -1),
        allowed=allowed,
        costs=least_cost(table, allowed) * cost_weights,
    )
    return complete, partial


def least_cost(table: CostTable, allowed: numpy.ndarray) -> numpy.ndarray:
    """What each answer costs where any tag of a set is right. Shape: (N, K)"""
    return numpy.where(allowed[:, :, None], table, numpy.inf).min(axis=1)


@st.composite
def sets_NK(draw: Any, path: numpy.ndarray, continuing: numpy.ndarray) -> numpy.ndarray:  # noqa: N802
    """The sets of tags still possible: one tag, all of them, or some, two at least. The
    tokens of an entity have sets of one kind: a whole entity is annotated, or nothing of it."""
    n_tags = len(continuing)
    entity_of_token = numpy.cumsum(~continuing[path])
    # 0: one tag, 1: all, 2: some
    kind_of_entity = draw(seeds).choice(3, size=(len(path) + 1, 1), p=[0.6, 0.25, 0.15])
    kinds = kind_of_entity[entity_of_token]
    random_tags = draw(truths((len(path), n_tags))) | one_hot((path + 1) % n_tags, n_tags)
    return one_hot(path, n_tags) | (kinds == 1) | ((kinds == 2) & random_tags)


@st.composite
def any_tags_NK(draw: Any) -> Problem:  # noqa: N802
    """Up to three tags (outside, opening, continuing) of which any step may be forbidden."""
    n_tags = draw(st.sampled_from([3, 2, 1]))
    potentials = draw(free_potentials_NK(draw(lengths_B(n_tags)), n_tags))
    path = draw(tags_N(potentials))
    constraints = draw(constraints_NK(len(path), n_tags))
    _allow(path, constraints, potentials.lengths)
    table = draw(seeds).uniform(0, 2, size=(n_tags, n_tags)) * (1 - numpy.eye(n_tags))
    return Problem(
        mask(potentials, constraints),
        path,
        table,
        opening=numpy.arange(n_tags) == 1,
        continuing=numpy.arange(n_tags) == 2,
    )


@st.composite
def tag_set_NK(draw: Any, cost: Cost) -> Problem:  # noqa: N802
    """Entities under the constraints of a scheme, some tags of some tokens ruled out."""
    tags = draw(st.sampled_from(TAG_SETS))
    rng = draw(seeds)
    lengths = rng.integers(4, size=rng.choice([1, 2], p=[0.4, 0.6])).astype("int32")
    path = tags.encode(random_entities(rng, lengths, len(tags.labels)), int(lengths.sum()))
    constraints = tags.constraints._replace(
        emissions=draw(truths((len(path), len(tags)))) | one_hot(path, len(tags))
    )
    return Problem(
        mask(draw(free_potentials_NK(lengths, len(tags))), constraints),
        path,
        cost(tags).astype("float64"),
        tags.opening,
        tags.continuing,
    )


def random_entities(rng: numpy.random.Generator, lengths: numpy.ndarray, n_labels: int) -> Entities:
    """Entities of any lengths, one after another, with gaps."""
    entities = []
    for end, n in zip(numpy.cumsum(lengths).tolist(), lengths.tolist()):
        begin = end - n
        while begin < end:
            stop = int(rng.integers(begin, end)) + 1
            if rng.uniform() < 0.6:
                entities.append((begin, stop, int(rng.integers(n_labels))))
            begin = stop
    return Entities(*numpy.asarray(entities, dtype="int32").reshape(-1, 3).T)


def one_hot(path: numpy.ndarray, n_tags: int) -> numpy.ndarray:
    """Whether a token has a tag, for each token and tag. Shape: (N, K)"""
    return path[:, None] == numpy.arange(n_tags)


def _allow(path: numpy.ndarray, constraints: Constraints, lengths: numpy.ndarray) -> None:
    """Allow the steps of a path of each sequence."""
    emissions, transitions, start, end = constraints
    for last, n in zip(numpy.cumsum(lengths).tolist(), lengths.tolist()):
        tags = path[last - n : last]
        if emissions is not None:
            emissions[range(last - n, last), tags] = True
        if transitions is not None:
            transitions[tags[:-1], tags[1:]] = True
        if start is not None:
            start[tags[:1]] = True
        if end is not None:
            end[tags[-1:]] = True
