"""Forbidden spans: the larger chain has just the paths without them."""

from typing import List

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner import chain
from spacy_costner.tags import SCHEMES, Tags
from spacy_costner.training.incorrect_spans import IncorrectSpan, augment_tags, collapse, expand
from spacy_costner.types import Potentials
from tests import oracle

from .support.posteriors import entities

LENGTHS = (3, 0, 2)
BEGINS = (0, 3, 3)


@st.composite
def spans(draw: st.DrawFn) -> List[IncorrectSpan]:
    """Forbidden spans, overlapping ones too."""
    drawn = draw(st.lists(st.tuples(*[st.integers(0, 2)] * 3, st.integers(0, 1)), min_size=1))
    found: List[IncorrectSpan] = []
    for sequence, begin, length, label in drawn:
        end = begin + length + 1
        if end <= LENGTHS[sequence]:
            at = BEGINS[sequence]
            found.append((sequence, at + begin, at + end, label))
    return found or [(0, 0, 1, 0)]


@pytest.mark.parametrize("outside", ["single", "before"])
@pytest.mark.parametrize("scheme", SCHEMES)
@given(spans=spans(), seed=st.integers(0, 100))
def test_only_the_forbidden_paths_are_gone(
    scheme: str, outside: str, spans: List[IncorrectSpan], seed: int
) -> None:
    tags = Tags(["x", "y"], scheme, outside)
    rng = numpy.random.default_rng(seed)
    shapes = ((sum(LENGTHS), len(tags)), (len(tags), len(tags)), len(tags), len(tags))
    lengths = numpy.asarray(LENGTHS, dtype="int32")
    potentials = Potentials(*(rng.normal(size=shape) for shape in shapes), lengths)
    tied_to, constraints, allowed = augment_tags(tags, spans, len(potentials.emissions))
    wide = chain.constrain(expand(potentials, tied_to), constraints)
    legal = chain.constrain(potentials, tags.constraints)
    numpy.testing.assert_allclose(chain.log_partition(wide)[0], chain.log_partition(legal)[0])
    wide = chain.restrict(wide, allowed)
    log_z, backprop = chain.log_partition(wide)
    gradient = collapse(backprop(numpy.ones(len(lengths))), tied_to, len(tags))

    expected = oracle.vector(oracle.zeros(potentials))
    for b, begin in enumerate(BEGINS):
        bad = {(s - begin, e - begin, label) for sequence, s, e, label in spans if sequence == b}
        kept = [path for path in oracle.paths(legal, b) if not bad & set(entities(tags, path.tags))]
        assert log_z[b] == pytest.approx(oracle.log_sum_exp([path.score for path in kept]))
        for p, path in zip(oracle.probabilities(kept), kept):
            expected = expected + p * oracle.vector(oracle.features(potentials, b, path.tags))
    numpy.testing.assert_allclose(oracle.vector(gradient), expected, atol=1e-9)
