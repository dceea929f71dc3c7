"""Hypothesis strategies, named after the shapes of what they draw."""

from typing import Any

import numpy
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from spacy_costner.chain import constrain
from spacy_costner.types import Constraints, Potentials

SCALES = (0.1, 1.0, 10.0, 100.0)
MOST_PATHS = 256


@st.composite
def lengths_B(draw: Any, n_tags: int, longest: int = 5) -> numpy.ndarray:  # noqa: N802
    """Up to three sequences, empty ones too, of at most `MOST_PATHS` paths each."""
    while n_tags**longest > MOST_PATHS:
        longest -= 1
    lengths = draw(st.lists(st.integers(0, longest), max_size=3))
    return numpy.asarray(lengths, dtype="int32")


def scores(shape: Any) -> st.SearchStrategy:
    """Float64 arrays of scores between -1 and 1."""
    return arrays("float64", shape, elements=st.floats(-1, 1))


def truths(shape: Any) -> st.SearchStrategy:
    """Arrays of truth values of which most are true."""
    return arrays("int8", shape, elements=st.integers(0, 4)).map(lambda drawn: drawn > 0)


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
    n_tags = draw(st.integers(1, most_tags))
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
    return arrays("int32", n_tokens, elements=st.integers(0, n_tags - 1))


def allowed_NK(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """Sets of tags, some of them empty."""
    return truths(potentials.emissions.shape)


def weights_B(potentials: Potentials) -> st.SearchStrategy:  # noqa: N802
    """One factor a sequence: the derivative of something with respect to its score."""
    return scores(len(potentials.lengths))
