"""Probabilities of entities by the walk of the compiled chain, against enumeration of all paths."""

import tracemalloc
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner import chain
from spacy_costner.chain import native
from spacy_costner.tags import Tags
from spacy_costner.types import EntityTags, Potentials

from . import oracle
from .support.batches import in_precision, random_potentials
from .support.strategies import potentials_NK, seeds

Entity = tuple[int, int, int]
MARGIN = {"float32": 1e-4, "float64": 1e-9}


@st.composite
def entity_tags_K(draw: Any, n_tags: int) -> EntityTags:  # noqa: N802
    """Any tags of up to two labels, not only those of a scheme."""
    rng = draw(seeds)
    label_of = rng.integers(-1, min(n_tags, 2), size=n_tags)
    opening, closing = rng.uniform(size=(2, n_tags)) < 0.6
    same_label = (label_of[:, None] == label_of) & (label_of >= 0)
    return EntityTags(
        label_of, opening, closing, same_label & (rng.uniform(size=same_label.shape) < 0.6)
    )


def entities_of(path: oracle.Tags, tags: EntityTags) -> list[Entity]:
    """The entities of a path of one sequence, read off tag by tag."""
    found = []
    for begin, tag in enumerate(path):
        if not tags.opening[tag] or tags.label_of[tag] < 0:
            continue
        end = begin + 1
        while end < len(path) and tags.inside[path[end - 1], path[end]]:
            end += 1
        if tags.closing[path[end - 1]]:
            found.append((begin, end, int(tags.label_of[tag])))
    return found


def define(potentials: Potentials, tags: EntityTags, is_space: Any) -> dict[Entity, float]:
    """The probability of every span with every label. An entity counts at its end, and without
    each stretch of white space at its end."""
    probs = {}
    for b, tokens in enumerate(oracle.spans(potentials)):
        for begin in range(tokens.start, tokens.stop):
            for end in range(begin + 1, tokens.stop + 1):
                probs.update({(begin, end, label): 0.0 for label in (0, 1)})
        legal = oracle.paths(potentials, b)
        for p, path in zip(oracle.probabilities(legal), legal):
            for first, last, label in entities_of(path.tags, tags):
                begin, end = tokens.start + first, tokens.start + last
                probs[begin, end, label] += p
                while end - 1 > begin and is_space[end - 1]:
                    end -= 1
                    probs[begin, end, label] += p
    return probs


def check(potentials: Potentials, tags: EntityTags, is_space: Any, floor: float) -> None:
    exact = in_precision(potentials, "float64")
    expected, margin = define(exact, tags, is_space), MARGIN[str(potentials.emissions.dtype)]
    messages = chain.forward_backward(potentials)
    columns = tuple(numpy.asarray([*expected], dtype="int64").reshape(-1, 3).T)
    probs = messages.entity_probs(columns, tags, is_space)
    numpy.testing.assert_allclose(probs, [*expected.values()], atol=margin)
    of_entity = dict(zip(expected, probs.tolist()))
    *found, of_found = (array.tolist() for array in messages.likely_entities(floor, tags, is_space))
    likely = dict(zip(zip(*found), of_found))
    words = {e: p for e, p in of_entity.items() if not is_space[e[1] - 1]}
    # The same sums in the same order: equal to the last digit, so that ties are decided alike.
    assert likely == {entity: p for entity, p in words.items() if p >= floor}
    assert list(likely) == sorted(likely, key=lambda entity: (*entity[:2], -likely[entity]))


@given(potentials_NK(), st.data(), st.sampled_from([1e-6, 0.02, 0.1, 0.5, 1.0]))
def test_entities_of_any_tags(potentials: Potentials, data: st.DataObject, floor: float) -> None:
    tags = data.draw(entity_tags_K(potentials.emissions.shape[1]))
    is_space = data.draw(seeds).uniform(size=len(potentials.emissions)) < 0.3
    check(potentials, tags, is_space, floor)
    check(in_precision(potentials, "float32"), tags, is_space, floor)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tags", [Tags(["a"]), Tags(["a", "b"], "IOB2", "before")])
@pytest.mark.parametrize("instruction_set", native.instruction_sets())
def test_sequences_that_underflow(
    instruction_set: str, tags: Tags, dtype: str, scale: float
) -> None:
    """Some sequences of the batch need wider numbers; one has no legal path."""
    potentials = random_potentials([3, 2, 0, 4, 1], len(tags), dtype=dtype)
    potentials.emissions[:3] *= scale
    potentials.emissions[5:9, 1] -= numpy.float32(scale)
    potentials.emissions[9] = -numpy.inf
    native.use_instruction_set(instruction_set)
    try:
        constrained = chain.constrain(potentials, tags.constraints)
        check(constrained, tags.entity_tags, numpy.zeros(10, dtype=bool), 0.01)
    finally:
        native.use_instruction_set(native.instruction_sets()[0])


def test_threads_and_what_no_path_has() -> None:
    tags = Tags(["a", "b", "c"])
    potentials = random_potentials([40, 0, 3, 90, 17] * 4, len(tags), dtype="float32")
    potentials = chain.constrain(potentials, tags.constraints)
    expected = chain.likely_entities(potentials, 0.001, tags.entity_tags)
    chain.set_threads(3)
    try:
        found = chain.likely_entities(potentials, 0.001, tags.entity_tags)
    finally:
        chain.set_threads(1)
    for array, wanted in zip(found, expected):
        numpy.testing.assert_array_equal(array, wanted)
    begin, end, label = ([39, 39, 39], [40, 41, 40], [0, 0, 7])  # across a border; without tags
    probs = chain.entity_probs(
        potentials, (*map(numpy.asarray, (begin, end, label)),), tags.entity_tags
    )
    assert probs[0] > 0 and probs[1:].tolist() == [0, 0]


@pytest.mark.parametrize("scheme", ["IOB2", "BILUO"])
def test_memory_is_that_of_the_answer(scheme: str) -> None:
    """Entities of many tokens: their lengths, added up, are far more than their number."""
    tags = Tags(["a"], scheme)
    potentials = random_potentials([20_000], len(tags), 0.0, "float32")
    potentials.emissions[:, tags.having(["I"])] = 6.0
    potentials = chain.constrain(potentials, tags.constraints)
    messages = chain.forward_backward(potentials)
    messages.marginals()
    tracemalloc.start()
    try:
        begin, end, label, probs = messages.likely_entities(0.001, tags.entity_tags)
        given_probs = messages.entity_probs((begin, end, label), tags.entity_tags)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert given_probs.tolist() == probs.tolist()
    n_tokens = int((end - begin).sum())
    assert n_tokens > 150 * len(begin) and n_tokens <= 20_000 / 0.001
    assert peak < 100 * len(begin) + 1e5


def test_what_is_refused() -> None:
    tags = Tags(["a"])
    messages = chain.forward_backward(random_potentials([3], len(tags)))
    for floor in (0.0, -1.0, 1.5, numpy.nan, "much"):
        with pytest.raises(ValueError, match=r"^floor: expected a probability above 0, got"):
            messages.likely_entities(floor, tags.entity_tags)
    column = numpy.asarray([0])
    for begin, end in ((0, 0), (-1, 1), (2, 4)):
        with pytest.raises(ValueError, match=r"^entities: expected begin < end within 3 tokens"):
            messages.entity_probs((column + begin, column + end, column), tags.entity_tags)
    spoiled = tags.entity_tags._replace(label_of=numpy.full(len(tags), 9))
    with pytest.raises(ValueError, match=r"^entity_tags\.label_of: expected labels below 5, got 9"):
        messages.likely_entities(0.1, spoiled)
    for kind in (native.ForwardBackward, native.MaxMessages):
        with pytest.raises(ValueError, match=r"^query: expected a name of .*, got nothing"):
            kind(random_potentials([3], 2)).query("nothing")
