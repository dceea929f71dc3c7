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

from .. import oracle
from ..support.batches import in_precision, random_potentials
from ..support.strategies import potentials_NK, seeds

Entity = tuple[int, int, int]
"""First token, end, and number of the label."""

TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


@st.composite
def entity_tags_K(draw: Any, n_tags: int) -> EntityTags:  # noqa: N802
    """Any tags of up to two labels, not only those of a scheme."""
    rng = draw(seeds)
    label_of = rng.integers(-1, min(n_tags, 2), size=n_tags)
    opening, closing = rng.uniform(size=(2, n_tags)) < 0.6
    same_label = (label_of[:, None] == label_of) & (label_of >= 0)
    inside = same_label & (rng.uniform(size=same_label.shape) < 0.6)
    return EntityTags(label_of, opening, closing, inside)


def entities_of(path: oracle.Tags, tags: EntityTags) -> list[Entity]:
    """The entities of a path of one sequence, read off tag by tag."""
    entities = []
    for begin, tag in enumerate(path):
        if not tags.opening[tag] or tags.label_of[tag] < 0:
            continue
        end = begin + 1
        while end < len(path) and tags.inside[path[end - 1], path[end]]:
            end += 1
        if tags.closing[path[end - 1]]:
            entities.append((begin, end, int(tags.label_of[tag])))
    return entities


def probs_by_enumeration(
    potentials: Potentials, tags: EntityTags, is_space: Any
) -> dict[Entity, float]:
    """The probability of every span with every label. An entity counts at its end, and without
    each stretch of whitespace at its end."""
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


def check_entity_probs(potentials: Potentials, tags: EntityTags, is_space: Any) -> None:
    """Check the probabilities of all entities against enumeration."""
    expected = probs_by_enumeration(in_precision(potentials, "float64"), tags, is_space)
    columns = tuple(numpy.asarray([*expected], dtype="int64").reshape(-1, 3).T)

    probs = chain.forward_backward(potentials).entity_probs(columns, tags, is_space)

    tolerance = TOLERANCE[str(potentials.emissions.dtype)]
    numpy.testing.assert_allclose(probs, [*expected.values()], atol=tolerance)


def check_likely_entities(
    potentials: Potentials, tags: EntityTags, is_space: Any, floor: float
) -> None:
    """Check that likely entities are those whose `entity_probs` reach the floor and that don't end
    with whitespace: by their tokens, then the most probable first."""
    all_entities = [*probs_by_enumeration(in_precision(potentials, "float64"), tags, is_space)]
    columns = tuple(numpy.asarray(all_entities, dtype="int64").reshape(-1, 3).T)
    messages = chain.forward_backward(potentials)
    prob_of = dict(zip(all_entities, messages.entity_probs(columns, tags, is_space).tolist()))

    begin, end, label, probs = messages.likely_entities(floor, tags, is_space)

    likely = dict(zip(zip(begin.tolist(), end.tolist(), label.tolist()), probs.tolist()))
    expected = {}
    for entity, p in prob_of.items():
        last_token = entity[1] - 1
        if p >= floor and not is_space[last_token]:
            expected[entity] = p
    # The same sums in the same order: equal to the last digit, so that ties are decided alike.
    assert likely == expected
    assert list(likely) == sorted(likely, key=lambda entity: (*entity[:2], -likely[entity]))


@given(potentials_NK(), st.data(), st.sampled_from([1e-6, 0.02, 0.1, 0.5, 1.0]))
def test_entities_of_any_tags_are_those_of_enumeration(
    potentials: Potentials, data: st.DataObject, floor: float
) -> None:
    tags = data.draw(entity_tags_K(potentials.emissions.shape[1]))
    is_space = data.draw(seeds).uniform(size=len(potentials.emissions)) < 0.3

    for dtype in ("float64", "float32"):
        check_entity_probs(in_precision(potentials, dtype), tags, is_space)
        check_likely_entities(in_precision(potentials, dtype), tags, is_space, floor)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tags", [Tags(["a"]), Tags(["a", "b"], "IOB2", "before")])
@pytest.mark.parametrize("instruction_set", native.instruction_sets())
def test_entities_of_sequences_that_underflow_are_those_of_enumeration(
    instruction_set: str, tags: Tags, dtype: str, scale: float
) -> None:
    """The first and the fourth sequence need wider numbers; the last one has no legal path."""
    potentials = random_potentials([3, 2, 0, 4, 1], len(tags), dtype=dtype)
    first, _, _, fourth, last = oracle.spans(potentials)
    potentials.emissions[first] *= scale
    potentials.emissions[fourth, 1] -= scale
    potentials.emissions[last] = -numpy.inf
    constrained = chain.constrain(potentials, tags.constraints)
    no_space = numpy.zeros(10, dtype=bool)

    native.use_instruction_set(instruction_set)
    try:
        check_entity_probs(constrained, tags.entity_tags, no_space)
        check_likely_entities(constrained, tags.entity_tags, no_space, floor=0.01)
    finally:
        native.use_instruction_set(native.instruction_sets()[0])


def batch_of_three_labels() -> tuple[Potentials, Tags]:
    """Twenty sequences, the first of 40 tokens."""
    tags = Tags(["a", "b", "c"])
    potentials = random_potentials([40, 0, 3, 90, 17] * 4, len(tags), dtype="float32")
    return chain.constrain(potentials, tags.constraints), tags


def test_threads_do_not_change_likely_entities() -> None:
    potentials, tags = batch_of_three_labels()
    of_one_thread = chain.likely_entities(potentials, 0.001, tags.entity_tags)

    chain.set_threads(3)
    try:
        of_three_threads = chain.likely_entities(potentials, 0.001, tags.entity_tags)
    finally:
        chain.set_threads(1)

    for column, expected in zip(of_three_threads, of_one_thread):
        numpy.testing.assert_array_equal(column, expected)


def test_an_entity_that_no_path_has_has_probability_0() -> None:
    """The first is at token 39, the last of its sequence; the second crosses the border after it;
    the third has a label without tags."""
    potentials, tags = batch_of_three_labels()
    begin, end, label = numpy.asarray([(39, 40, 0), (39, 41, 0), (39, 40, 7)]).T

    probs = chain.entity_probs(potentials, (begin, end, label), tags.entity_tags)

    assert probs[0] > 0
    assert probs[1:].tolist() == [0, 0]


@pytest.mark.parametrize("scheme", ["IOB2", "BILUO"])
def test_likely_entities_take_memory_for_their_number_not_their_lengths(scheme: str) -> None:
    """I is so probable that entities are of hundreds of tokens: their lengths, added up, are far
    more than their number. The four columns of an entity, and a copy of them, are less than 100
    bytes."""
    tags = Tags(["a"], scheme)
    potentials = random_potentials([20_000], len(tags), 0.0, "float32")
    potentials.emissions[:, tags.having(["I"])] = 6.0
    potentials = chain.constrain(potentials, tags.constraints)
    messages = chain.forward_backward(potentials)
    messages.marginals()  # so that the memory of messages isn't counted

    tracemalloc.start()
    try:
        begin, end, label, probs = messages.likely_entities(0.001, tags.entity_tags)
        probs_again = messages.entity_probs((begin, end, label), tags.entity_tags)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert probs_again.tolist() == probs.tolist()
    total_length = int((end - begin).sum())
    # The probabilities of the entities that have a token add up to 1 at most. Each is 0.001 or
    # more, so a token is in at most 1 / 0.001 of them.
    assert 150 * len(begin) < total_length <= 20_000 / 0.001
    assert peak < 100 * len(begin) + 1e5


@pytest.mark.parametrize("floor", [0.0, -1.0, 1.5, numpy.nan, "much"])
def test_a_floor_that_is_no_probability_is_refused(floor: Any) -> None:
    tags = Tags(["a"])
    messages = chain.forward_backward(random_potentials([3], len(tags)))

    with pytest.raises(ValueError, match=r"^floor: expected a probability above 0, got"):
        messages.likely_entities(floor, tags.entity_tags)


@pytest.mark.parametrize(
    "begin, end", [(0, 0), (-1, 1), (2, 4)], ids=["empty", "before the batch", "after the batch"]
)
def test_an_entity_outside_of_the_batch_is_refused(begin: int, end: int) -> None:
    tags = Tags(["a"])
    messages = chain.forward_backward(random_potentials([3], len(tags)))
    columns = (numpy.asarray([begin]), numpy.asarray([end]), numpy.asarray([0]))

    with pytest.raises(ValueError, match=r"^entities: expected begin < end within 3 tokens"):
        messages.entity_probs(columns, tags.entity_tags)


def test_a_label_above_the_number_of_tags_is_refused() -> None:
    """BILUO has five tags for one label."""
    tags = Tags(["a"])
    messages = chain.forward_backward(random_potentials([3], len(tags)))
    label_of_9 = tags.entity_tags._replace(label_of=numpy.full(len(tags), 9))

    with pytest.raises(ValueError, match=r"^entity_tags\.label_of: expected labels below 5, got 9"):
        messages.likely_entities(0.1, label_of_9)


@pytest.mark.parametrize("messages", [native.ForwardBackward, native.MaxMessages])
def test_an_unknown_query_is_refused_by_name(messages: type) -> None:
    with pytest.raises(ValueError, match=r"^query: expected a name of .*, got nothing"):
        messages(random_potentials([3], 2)).query("nothing")
