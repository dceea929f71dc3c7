"""Hypothesis strategies, named after the shapes of what they draw.

Hypothesis chooses shapes, scales, and how much is forbidden; the numbers come from a seed
that it chooses too, because arrays that it builds itself are mostly all the same number.

To make a strategy takes longer than to draw from it. So strategies are made here, once, and what
depends on a shape is a function of a random generator.
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
scales = st.sampled_from(SCALES)
shares = st.sampled_from(SHARES_ALLOWED)
optional_shares = st.none() | shares
constrained_shares = st.tuples(*[optional_shares] * 4)
"""How much each of the four constraints allows. None: there is no such constraint."""

# Hypothesis shrinks to the first of these numbers. Those that are there twice are drawn more often.
segment_counts = st.sampled_from([3, 2, 1, 0])
small_tag_counts = st.sampled_from([3, 2, 1])
tag_counts = st.sampled_from([3, 2, 4, 1, 3, 4])
tag_sets = st.sampled_from(TAG_SETS)
triples_of_truth_values = st.tuples(*[st.booleans()] * 3)


def scores(shape: Any) -> st.SearchStrategy:
    """Float64 arrays of scores between -1 and 1."""
    return seeds.map(lambda rng: rng.uniform(-1, 1, size=shape))


def random_truths(rng: numpy.random.Generator, shape: Any, share: float) -> numpy.ndarray:
    """An array of truth values of which a share is true."""
    return rng.uniform(size=shape) < share


def random_lengths(rng: numpy.random.Generator, n_tags: int, longest: int = 5) -> numpy.ndarray:
    """The lengths of up to three sequences, empty ones too, of at most `MOST_PATHS` paths each."""
    while n_tags**longest > MOST_PATHS:
        longest -= 1
    n_sequences = rng.choice(4, p=[0.05, 0.25, 0.3, 0.4])
    return rng.integers(longest + 1, size=n_sequences).astype("int32")


def random_scores(
    rng: numpy.random.Generator, lengths: numpy.ndarray, n_tags: int, scale: float
) -> Potentials:
    """A float64 batch without forbidden steps."""
    shapes = ((int(lengths.sum()), n_tags), (n_tags, n_tags), n_tags, n_tags)
    arrays = [rng.uniform(-1, 1, size=shape) * scale for shape in shapes]
    return Potentials(*arrays, lengths=lengths)


@st.composite
def constraints_NK(draw: Any, n_tokens: int, n_tags: int) -> Constraints:  # noqa: N802
    """Constraints of any kind, or none."""
    rng = draw(seeds)
    shapes = ((n_tokens, n_tags), (n_tags, n_tags), n_tags, n_tags)
    arrays: list[numpy.ndarray | None] = []
    for shape, share in zip(shapes, draw(constrained_shares)):
        arrays.append(None if share is None else random_truths(rng, shape, share))
    return Constraints(*arrays)


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
    n_tags = min(most_tags, draw(tag_counts))
    rng = draw(seeds)
    lengths = random_lengths(rng, n_tags, longest)
    potentials = random_scores(rng, lengths, n_tags, draw(scales))
    if constrained:
        constraints = constraints_NK(len(potentials.emissions), n_tags)
        potentials = mask(potentials, draw(constraints))
    return potentials


def tags_N(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """One tag a token, legal or not."""
    n_tokens, n_tags = potentials.emissions.shape
    return seeds.map(lambda rng: rng.integers(n_tags, size=n_tokens))


@st.composite
def allowed_NK(draw: Any, potentials: Potentials) -> numpy.ndarray:  # noqa: N802
    """Sets of tags, some of them empty."""
    return random_truths(draw(seeds), potentials.emissions.shape, draw(shares))


@st.composite
def values_NK(draw: Any, potentials: Potentials) -> Potentials:  # noqa: N802
    """A value of each step, minus infinity at some."""
    rng = draw(seeds)
    arrays = []
    for array in potentials[:4]:
        is_finite = random_truths(rng, array.shape, draw(shares))
        arrays.append(numpy.where(is_finite, rng.uniform(-1, 1, size=array.shape), -numpy.inf))
    return Potentials(*arrays, lengths=potentials.lengths)


@st.composite
def segments_S(draw: Any, potentials: Potentials) -> Segments:  # noqa: N802
    """Up to three segments, which may overlap."""
    rng = draw(seeds)
    n_tags = len(potentials.transitions)
    n_segments = draw(segment_counts)
    # The sequence of each segment: at most two are of the same one.
    sequences = numpy.repeat(numpy.flatnonzero(potentials.lengths), 2)
    sequences = rng.permutation(sequences)[:n_segments]
    end_of_sequence = numpy.cumsum(potentials.lengths)[sequences]
    begin = rng.integers(end_of_sequence - potentials.lengths[sequences], end_of_sequence)
    end = rng.integers(begin, end_of_sequence) + 1
    tags = rng.integers(n_tags, size=int((end - begin).sum()))
    share = draw(optional_shares)
    after = None if share is None else random_truths(rng, (len(begin), n_tags), share)
    return Segments(begin, end, tags, after)


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
    token_weights = rng.uniform(0, 2, size=n_tokens)
    features = rng.integers(-1, 4, size=(n_tokens, 3))
    has_weights, has_token_weights, has_features = draw(triples_of_truth_values)
    # A column, for the costs of each token. Shape: (N, 1)
    cost_weights = token_weights[:, None] if has_token_weights else numpy.ones((n_tokens, 1))

    complete = Gold(
        tags=path,
        costs=table[path] * cost_weights,
        token_weights=token_weights if has_token_weights else None,
        weights=weights if has_weights else None,
        opening=opening,
        continuing=continuing,
        features=features if has_features else None,
    )
    allowed = random_sets(rng, path, continuing, draw(shares))
    partial = complete._replace(
        tags=numpy.where(allowed.sum(axis=1) == 1, path, -1),
        allowed=allowed,
        costs=least_cost(table, allowed) * cost_weights,
    )
    return complete, partial


def least_cost(table: CostTable, allowed: numpy.ndarray) -> numpy.ndarray:
    """What each answer costs where any tag of a set is right. Shape: (N, K)"""
    return numpy.where(allowed[:, :, None], table, numpy.inf).min(axis=1)


def random_sets(
    rng: numpy.random.Generator, path: numpy.ndarray, continuing: numpy.ndarray, share: float
) -> numpy.ndarray:
    """The sets of tags still possible: one tag, all of them, or a share of them, two at least. The
    tokens of an entity have sets of one kind: a whole entity is annotated, or nothing of it.
    Shape: (N, K)"""
    n_tags = len(continuing)
    entity_of_token = numpy.cumsum(~continuing[path])
    # 0: one tag, 1: all, 2: some
    kind_of_entity = rng.choice(3, size=(len(path) + 1, 1), p=[0.6, 0.25, 0.15])
    kinds = kind_of_entity[entity_of_token]
    random_tags = random_truths(rng, (len(path), n_tags), share)
    random_tags |= one_hot((path + 1) % n_tags, n_tags)
    return one_hot(path, n_tags) | (kinds == 1) | ((kinds == 2) & random_tags)


@st.composite
def any_tags_NK(draw: Any) -> Problem:  # noqa: N802
    """Up to three tags (outside, opening, continuing) of which any step may be forbidden."""
    n_tags = draw(small_tag_counts)
    rng = draw(seeds)
    potentials = random_scores(rng, random_lengths(rng, n_tags), n_tags, draw(scales))
    path = rng.integers(n_tags, size=len(potentials.emissions))
    constraints = draw(constraints_NK(len(path), n_tags))
    _allow(path, constraints, potentials.lengths)
    table = rng.uniform(0, 2, size=(n_tags, n_tags)) * (1 - numpy.eye(n_tags))
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
    tags = draw(tag_sets)
    rng = draw(seeds)
    lengths = rng.integers(4, size=rng.choice([1, 2], p=[0.4, 0.6])).astype("int32")
    path = tags.encode(random_entities(rng, lengths, len(tags.labels)), int(lengths.sum()))
    constraints = tags.constraints._replace(
        emissions=random_truths(rng, (len(path), len(tags)), draw(shares))
        | one_hot(path, len(tags))
    )
    return Problem(
        mask(random_scores(rng, lengths, len(tags), draw(scales)), constraints),
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
