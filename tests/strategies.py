"""Hypothesis strategies, named after the shapes of what they draw.

Hypothesis chooses shapes, scales, and how much is forbidden; the numbers come from a seed
that it chooses too, because arrays that it builds itself are mostly all the same number.
"""

from typing import Any

import numpy
from hypothesis import strategies as st

from spacy_costner.chain import Segments, constrain
from spacy_costner.types import Constraints, Potentials

SCALES = (0.1, 1.0, 10.0, 100.0)
SHARES_ALLOWED = (0.9, 0.7, 0.5)
MOST_PATHS = 256

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


@st.composite
def potentials_NK(  # noqa: N802
    draw: Any, longest: int = 5, most_tags: int = 4, constrained: bool = True
) -> Potentials:
    """Ragged float64 batches of any scale, most of them with forbidden steps."""
    n_tags = min(most_tags, draw(st.sampled_from([3, 2, 4, 1, 3, 4])))
    lengths = draw(lengths_B(n_tags, longest))
    n_tokens, scale = int(lengths.sum()), draw(st.sampled_from(SCALES))
    shapes = ((n_tokens, n_tags), (n_tags, n_tags), n_tags, n_tags)
    potentials = Potentials(*(draw(scores(shape)) * scale for shape in shapes), lengths=lengths)
    if constrained:
        potentials = constrain(potentials, draw(constraints_NK(n_tokens, n_tags)))
    return potentials


def tags_N(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """One tag a token, legal or not."""
    n_tokens, n_tags = potentials.emissions.shape
    return seeds.map(lambda rng: rng.integers(n_tags, size=n_tokens))


def allowed_NK(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """Sets of tags, some of them empty."""
    return truths(potentials.emissions.shape)


def weights_B(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """One factor a sequence: the derivative of something with respect to its score."""
    return scores(len(potentials.lengths))


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
    rng, n_tags = draw(seeds), len(potentials.transitions)
    ends = numpy.cumsum(potentials.lengths)
    chosen = numpy.repeat(numpy.flatnonzero(potentials.lengths), 2)
    chosen = rng.permutation(chosen)[: draw(st.sampled_from([3, 2, 1, 0]))]
    begin = rng.integers((ends - potentials.lengths)[chosen], ends[chosen])
    end = rng.integers(begin, ends[chosen]) + 1
    tags = rng.integers(n_tags, size=int((end - begin).sum()))
    return Segments(begin, end, tags, draw(st.none() | truths((len(begin), n_tags))))
