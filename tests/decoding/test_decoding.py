"""Answers and probabilities, against enumeration of all paths."""

import json
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner import chain
from spacy_costner.costs.label_tree import make_tree
from spacy_costner.costs.tables import make_hierarchical_cost, make_precision_recall_cost
from spacy_costner.decoding import (
    LEAST_PROB,
    Decoding,
    Posterior,
    Temperature,
    make_min_cost,
    make_threshold,
    make_viterbi,
)
from spacy_costner.decoding.min_cost import find_inner_nodes
from spacy_costner.decoding.posterior import best_sums
from spacy_costner.tags import Tags
from spacy_costner.types import Potentials

from .. import oracle
from ..support.batches import random_potentials
from ..support.posteriors import (
    answer,
    collapsed_paths,
    columns,
    entities_of,
    posterior,
    probs_of_entities,
    rows,
    sure,
)
from ..support.strategies import seeds


def check_entity_probs(posterior: Posterior, defined_by: Posterior) -> None:
    """Check that the probability of each entity is the sum of the probabilities of its paths, in
    the enumeration of another posterior."""
    expected = probs_of_entities(defined_by)
    probs = posterior.entity_probs(columns(list(expected)))
    numpy.testing.assert_allclose(probs, list(expected.values()), atol=1e-9)


# Probabilities


@given(posterior())
def test_the_probability_of_an_entity_is_that_of_its_paths(posterior: Posterior) -> None:
    check_entity_probs(posterior, defined_by=posterior)


@given(posterior())
def test_the_probability_of_an_entity_of_any_label_is_the_sum_over_labels(
    posterior: Posterior,
) -> None:
    """The argument `covers` says which labels each label of an entity stands for. Here there is a
    single one, 0, which stands for all labels."""
    prob_of_extent: dict[tuple[int, int], float] = {}
    for (begin, end, _), p in probs_of_entities(posterior).items():
        prob_of_extent[begin, end] = prob_of_extent.get((begin, end), 0.0) + p
    entities = columns([(begin, end, 0) for begin, end in prob_of_extent])
    covers = numpy.ones((1, len(posterior.tags.labels)), dtype=bool)

    probs = posterior.entity_probs(entities, covers)

    numpy.testing.assert_allclose(probs, list(prob_of_extent.values()), atol=1e-9)


def prob_of_no_entity(posterior: Posterior, begin: int, end: int) -> float:
    """By definition: the product over sequences of the probability of the paths that have only O,
    tag 0, from begin to end."""
    prob = 1.0
    for b, tokens in enumerate(oracle.spans(posterior.scores)):
        legal = collapsed_paths(posterior, b)
        stretch = slice(max(begin - tokens.start, 0), max(end - tokens.start, 0))
        prob_of_sequence = 0.0
        for p, path in zip(oracle.probabilities(legal), legal):
            if not any(path.tags[stretch]):
                prob_of_sequence += p
        prob *= prob_of_sequence
    return prob


def all_stretches(posterior: Posterior) -> list[tuple[int, int]]:
    """The first token and the end of all stretches of tokens, over borders of sequences, too."""
    n_tokens = len(posterior.scores.emissions)
    return [(begin, end) for begin in range(n_tokens) for end in range(begin + 1, n_tokens + 1)]


@given(posterior())
def test_outside_probs_are_those_of_paths_without_an_entity_in_the_stretch(
    posterior: Posterior,
) -> None:
    """A stretch may have tokens of two sequences."""
    stretches = all_stretches(posterior)
    begin, end = numpy.asarray(stretches, dtype="int64").reshape(-1, 2).T

    probs = posterior.outside_probs(begin, end)

    expected = [prob_of_no_entity(posterior, *stretch) for stretch in stretches]
    numpy.testing.assert_allclose(probs, expected, atol=1e-9)


@given(posterior())
def test_no_entity_crosses_a_border_of_sequences(posterior: Posterior) -> None:
    """Asked for together with entities of one sequence, it has the probability 0: with the label 0,
    and with an answer that stands for any label."""
    entities = [(*stretch, 0) for stretch in all_stretches(posterior)]
    first_tokens = [tokens.start for tokens in oracle.spans(posterior.scores)]
    all_labels = numpy.ones((1, len(posterior.tags.labels)), dtype=bool)

    crosses = posterior.crosses_border(columns(entities))
    probs = posterior.entity_probs(columns(entities))
    probs_of_any_label = posterior.entity_probs(columns(entities), all_labels)

    expected = probs_of_entities(posterior)
    for entity, prob, crosses_border in zip(entities, probs, crosses):
        begin, end, _ = entity
        assert crosses_border == any(begin < first < end for first in first_tokens)
        if crosses_border:
            assert prob == 0 and entity not in expected
        elif entity in expected:
            assert prob == pytest.approx(expected[entity], abs=1e-9)
    assert not probs_of_any_label[crosses].any()


@given(posterior(), st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.6]))
def test_likely_entities_are_all_above_the_floor_the_most_probable_first(
    posterior: Posterior, floor: float
) -> None:
    """They are ordered by their tokens. A floor below LEAST_PROB is raised to it."""
    entities, probs = posterior.likely_entities(floor)

    expected = probs_of_entities(posterior)
    likely = dict(zip(rows(entities), probs.tolist()))
    floor = max(floor, LEAST_PROB)
    rounding = 1e-9
    assert {entity for entity, p in expected.items() if p > floor + rounding} <= set(likely)
    for entity, p in likely.items():
        assert p == pytest.approx(expected[entity], abs=rounding) and p >= floor
    assert list(likely) == sorted(likely, key=lambda entity: (entity[:2], -likely[entity]))


def test_white_space_of_the_next_doc_is_not_part_of_an_entity() -> None:
    """The first doc ends with whitespace and the second begins with it; no entity begins there."""
    tags = Tags(["a", "b"], "IOB2")
    is_space = numpy.asarray([False, True, True, False])
    possible = ~(is_space[:, None] & tags.opening)
    constraints = tags.constraints._replace(emissions=possible)
    scores = chain.constrain(random_potentials([2, 2], len(tags)), constraints)

    posterior = Posterior(scores, tags, is_space=is_space)

    check_entity_probs(posterior, defined_by=posterior)


def test_entities_of_flat_scores_are_few_enough_to_list() -> None:
    """With all scores 0 any of 3 * 3000 * 3001 / 2, 13 million entities is possible. The
    probabilities of those that begin at a token add up to less than 1: at most 1 / LEAST_PROB of
    them are likely. They are found in all of the doc, not at its beginning alone."""
    tags = Tags(["a", "b", "c"])
    scores = random_potentials([3000], len(tags), 0.0, "float32")
    posterior = Posterior(chain.constrain(scores, tags.constraints), tags)

    entities, probs = posterior.likely_entities(0.0)

    assert 3000 < len(probs) < 3000 / LEAST_PROB
    assert numpy.bincount(entities.begin, probs).max() < 1
    assert (entities.begin > 100).any()


@given(seeds, st.integers(1, 4), st.integers(1, 5))
def test_best_sums_are_the_k_largest_of_one_value_from_each_column(
    rng: Any, k: int, n_columns: int
) -> None:
    """Columns are the log probabilities of the k best paths of a sequence, the largest first."""
    values = -numpy.sort(-rng.normal(size=(k, n_columns)), axis=0)
    if k > 1:
        values[-1, 0] = -numpy.inf  # a sequence with fewer paths

    chosen_rows, sums = best_sums(values)

    all_sums = [
        values[row_of_column, range(n_columns)].sum()
        for row_of_column in product(range(k), repeat=n_columns)
    ]
    numpy.testing.assert_allclose(sums, sorted(all_sums, reverse=True)[:k])
    chosen_values = values[chosen_rows, numpy.arange(n_columns)]
    numpy.testing.assert_allclose(chosen_values.sum(axis=1), sums)
    assert len({tuple(row) for row in chosen_rows.tolist()}) == k  # all differ


# Viterbi and threshold


@given(posterior(spaces=False), st.sampled_from([0.0, -2.0, 2.0, 20.0]))
def test_viterbi_predicts_the_path_that_is_best_with_the_bias_of_each_tag(
    posterior: Posterior, bias: float
) -> None:
    """The bias of a tag is added to its score at each token. The label a has a bias of its own, and
    O has none. The best of all paths is found by enumeration."""
    scores = posterior.scores
    tags = posterior.tags
    bias_of_label = {"a": bias + 1}
    decoding = make_viterbi(bias=bias, labels=bias_of_label)

    predicted, _, _ = decoding.decode(posterior, decoding.settings)

    bias_of_tag = []
    for label in tags.label_of:
        is_outside = label < 0
        bias_of_tag.append(0.0 if is_outside else bias_of_label.get(tags.labels[label], bias))

    def biased_score(path: oracle.Path) -> float:
        return path.score + sum(bias_of_tag[tag] for tag in path.tags)

    for b, tokens in enumerate(oracle.spans(scores)):
        best_path = max(oracle.paths(scores, b), key=biased_score)
        predicted_of_sequence = set()
        for begin, end, label in rows(predicted):
            if tokens.start <= begin < tokens.stop:
                predicted_of_sequence.add((begin, end, label))
        assert predicted_of_sequence == entities_of(posterior, b, best_path.tags)


@given(posterior(), st.sampled_from([0.0, 0.05, 0.2, 0.5, 0.8, 1.0]))
def test_threshold_predicts_the_entities_that_gain_most(
    posterior: Posterior, threshold: float
) -> None:
    """An entity gains its probability less the threshold of its label. Of all sets of entities of a
    path, none gains more than the answer. Less probable ones than LEAST_PROB don't count."""
    tags = posterior.tags
    threshold_of_label = {"a": threshold / 2}
    decoding = make_threshold(threshold=threshold, labels=threshold_of_label)

    entities = rows(decoding.decode(posterior, decoding.settings)[0])

    gain_of_entity = {}
    for entity, p in probs_of_entities(posterior).items():
        if p >= LEAST_PROB:
            label = tags.labels[entity[2]]
            gain_of_entity[entity] = p - threshold_of_label.get(label, threshold)

    def gain(some_entities: Any) -> float:
        return sum(gain_of_entity.get(entity, -1.0) for entity in some_entities)

    most = 0.0
    for b in range(len(posterior.scores.lengths)):
        paths = oracle.paths(posterior.scores, b)
        most += max([0.0, *(gain(entities_of(posterior, b, path.tags)) for path in paths)])
    assert gain(entities) == pytest.approx(most, abs=1e-9)
    assert all(entity[1] <= following[0] for entity, following in pairwise(entities))


@pytest.mark.parametrize("label", ["a", "b", "c"])
def test_an_entity_as_probable_as_its_threshold_is_predicted(label: str) -> None:
    """With the next larger number as threshold it isn't. There are three tokens, each an entity."""
    posterior = sure({"a": 0.5, "O": 0.5}, {"b": 0.75, "O": 0.25}, {"c": 0.25, "O": 0.75})
    _, probs = posterior.likely_entities(0.0)
    assert probs.tolist() == pytest.approx([0.5, 0.75, 0.25])
    p = probs.tolist()["abc".index(label)]

    def answered_labels(threshold: float) -> list[str]:
        decoding = make_threshold(threshold=1.0, labels={label: threshold})
        return [name for _, _, name in answer(decoding, posterior)]

    assert answered_labels(p) == [label]
    assert answered_labels(float(numpy.nextafter(p, 1))) == []


# Minimum expected cost

COST = make_precision_recall_cost(miss=3.0, wrong_boundary=0.5)
TREE_OF_LABELS = {"y": {"x": {"a": {}, "b": {}, "c": {}}, "d": {}}}
"""The labels a, b, c are below the inner node x; that and the label d are below y."""


def test_a_node_above_labels_is_predicted_where_it_costs_less() -> None:
    """a, b and c are 2 edges from each other, 1 from x and 3 from d. x is 2 from d. O costs 4
    against all. The keys are the answers to tokens with these probabilities."""
    decoding = make_min_cost(cost=make_hierarchical_cost(tree=TREE_OF_LABELS), tree=TREE_OF_LABELS)
    probs_by_answer = {
        # x costs 0.99 * 1 + 0.01 * 4, a costs 0.66 * 2 + 0.01 * 4.
        "x": {"a": 0.33, "b": 0.33, "c": 0.33, "O": 0.01},
        # O costs 0.5 * 4, x costs 0.5 * 1 + 0.5 * 4.
        "O": {"a": 0.2, "b": 0.2, "c": 0.1, "O": 0.5},
        # a costs 0.4 * 2, x costs 1.
        "a": {"a": 0.6, "b": 0.2, "c": 0.2},
        # b costs a little less than 0.5 * 2, x costs 1.
        "b": {"a": 0.5, "b": 0.5 + 1e-4},
        "d": {"d": 1.0},
    }
    posterior = sure(*probs_by_answer.values())

    expected = [(i, i + 1, name) for i, name in enumerate(probs_by_answer) if name != "O"]
    assert answer(decoding, posterior) == expected
    entities, labels, covers = decoding.decode(posterior, decoding.settings)
    assert labels == ("a", "b", "c", "d", "y", "x")
    # x stands for a, b and c.
    assert posterior.entity_probs(entities, covers)[0] == pytest.approx(0.99)


def test_inner_nodes_are_those_with_several_labels_below() -> None:
    """z has the same labels below as y, and "e" one: they say nothing that others don't."""
    tree = make_tree({"z": {"y": {"x": {"a": {}, "b": {}}, "c": {"d": {}}}}, "e": {"f": {}}}, "t")

    assert find_inner_nodes(tree, ["a", "b", "c", "d", "f"]) == {
        "y": ["a", "b", "c", "d"],
        "x": ["a", "b"],
    }
    assert find_inner_nodes(tree, ["a", "f"]) == {}


def test_a_label_that_is_not_in_the_tree_is_named() -> None:
    tree = make_tree({"e": {"f": {}}}, "t")

    message = "t: expected a node for every label, got none for 'nowhere'"
    with pytest.raises(ValueError, match=message):
        find_inner_nodes(tree, ["f", "nowhere"])


def min_cost_of_file(file: Path, saved: Any = None) -> Decoding:
    """MinCostDecoding with the tree in a file, and the choices of a saved pipeline, if given."""
    decoding = make_min_cost(cost=make_hierarchical_cost(tree=str(file)), tree=str(file))
    if saved is not None:
        assert decoding.restore is not None
        decoding.restore(saved)
    return decoding


@pytest.fixture
def saved_choices(tmp_path: Path) -> dict[str, Any]:
    """What a pipeline saves of MinCostDecoding, whose file tree.json is deleted then."""
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(TREE_OF_LABELS))
    decoding = min_cost_of_file(file)
    assert decoding.tables is not None
    saved = json.loads(json.dumps(decoding.tables(POSTERIOR_OF_X.tags)))
    file.unlink()
    return saved


POSTERIOR_OF_X = sure({"a": 0.34, "b": 0.33, "c": 0.33})


def test_saved_choices_stand_in_where_the_file_of_the_tree_is_gone(
    saved_choices: dict[str, Any], tmp_path: Path
) -> None:
    decoding = min_cost_of_file(tmp_path / "tree.json", saved_choices)

    entities, labels, covers = decoding.decode(POSTERIOR_OF_X, {})

    with_tree = make_min_cost(cost=make_hierarchical_cost(tree=TREE_OF_LABELS), tree=TREE_OF_LABELS)
    expected = with_tree.decode(POSTERIOR_OF_X, with_tree.settings)
    assert decoding.settings == {}
    assert labels == expected.labels
    assert rows(entities) == rows(expected.entities)
    numpy.testing.assert_array_equal(covers, expected.covers)


@pytest.mark.parametrize(
    "change",
    [None, {"chain": ["a"]}, {"of": "another cost"}],
    ids=["no choices", "of other tags", "of another cost"],
)
def test_saved_choices_of_something_else_do_not_stand_in(
    saved_choices: dict[str, Any], tmp_path: Path, change: dict[str, Any] | None
) -> None:
    """The error names the file that is missing."""
    saved = {} if change is None else {**saved_choices, **change}
    decoding = min_cost_of_file(tmp_path / "tree.json", saved)

    message = r"tree: .*tree\.json: expected a JSON or YAML file of nodes, but could not read it"
    with pytest.raises(ValueError, match=message):
        decoding.decode(POSTERIOR_OF_X, {})


def test_saved_choices_of_another_file_do_not_stand_in(
    saved_choices: dict[str, Any], tmp_path: Path
) -> None:
    decoding = min_cost_of_file(tmp_path / "other.json", saved_choices)

    with pytest.raises(ValueError, match=r"tree: .*other\.json: expected a JSON or YAML file"):
        decoding.decode(POSTERIOR_OF_X, {})


def test_saved_choices_of_another_shape_are_refused(
    saved_choices: dict[str, Any], tmp_path: Path
) -> None:
    damaged = {**saved_choices, "covers": [[True]]}

    with pytest.raises(ValueError, match="saved choices: expected finite arrays"):
        min_cost_of_file(tmp_path / "tree.json", damaged).decode(POSTERIOR_OF_X, {})


# Settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_viterbi(bias=float("nan")), "ViterbiDecoding: bias: expected a finite"),
        (lambda: make_viterbi(labels={"a": "x"}), r"labels\.a: expected a finite number, got 'x'"),
        (lambda: make_threshold(threshold=1.5), "ThresholdDecoding: threshold: .* from 0 to 1"),
        (lambda: make_threshold(labels={"a": -1}), r"labels\.a: expected a finite number from 0"),
        (
            lambda: make_min_cost(cost=COST, tree={"a": {"a": {}}}),
            "MinCostDecoding: tree: expected a tree, got 'a' under itself",
        ),
    ],
)
def test_bad_settings_are_named(make: Callable[[], Decoding], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("make", [make_viterbi, make_threshold])
def test_a_label_in_the_settings_that_the_model_does_not_have_is_named(
    make: Callable[..., Decoding],
) -> None:
    """The model has the labels a to d: see `sure`."""
    decoding = make(labels={"z": 1.0})

    with pytest.raises(ValueError, match=r"decoding: labels: expected one of .*'a'.*got 'z'"):
        decoding.decode(sure({"a": 1.0}), decoding.settings)


# Temperature


@st.composite
def calibrated_posterior(draw: Any) -> tuple[Posterior, Posterior]:
    """A posterior with temperatures, and one whose scores are divided by them before: emissions by
    the temperature of their label, the others, O among them, by the overall one."""
    uncalibrated = draw(posterior())
    scores, tags = uncalibrated.scores, uncalibrated.tags
    overall = draw(st.sampled_from([0.5, 2.0]))
    of_label: dict[str, float] = draw(st.sampled_from([{}, {"a": 3.0}]))
    divisors = []
    for label in tags.label_of:
        divisors.append(overall if label < 0 else of_label.get(tags.labels[label], overall))
    divided = Potentials(
        scores.emissions / numpy.asarray(divisors),
        *(array / overall for array in scores[1:4]),
        lengths=scores.lengths,
    )

    is_space = uncalibrated.is_space
    with_temperature = Posterior(
        scores, tags, temperature=Temperature(overall, of_label), is_space=is_space
    )
    return with_temperature, Posterior(divided, tags, is_space=is_space)


def probs_of_paths(posterior: Posterior, b: int) -> dict[oracle.Tags, float]:
    """The probability of each legal path of sequence b, over `tags.collapsed`."""
    paths = collapsed_paths(posterior, b)
    probs = dict(zip((path.tags for path in paths), oracle.probabilities(paths), strict=True))
    assert len(probs) == len(paths)
    return probs


@given(calibrated_posterior())
def test_best_paths_with_a_temperature_are_those_of_divided_scores(
    posteriors: tuple[Posterior, Posterior],
) -> None:
    with_temperature, divided = posteriors

    paths, log_probs = with_temperature.best_paths(3)

    for b, tokens in enumerate(oracle.spans(divided.scores)):
        probs = probs_of_paths(divided, b)
        best_three = [*sorted(probs.values(), reverse=True), 0.0, 0.0][:3]
        numpy.testing.assert_allclose(numpy.exp(log_probs[:, b]), best_three, atol=1e-9)
        for path, p in list(zip(paths[:, tokens].tolist(), best_three))[: len(probs)]:
            assert probs[tuple(path)] == pytest.approx(p, abs=1e-9)


def test_rounding_makes_no_path_more_probable_than_1() -> None:
    """With scores in the thousands the score of a path and log Z are nearly equal. Of
    these 40 differences 27 are rounded to more than 0."""
    tags = Tags(["a", "b"], "IOB2")
    scores = random_potentials(40 * [50], len(tags), scale=3000)
    posterior = Posterior(chain.constrain(scores, tags.constraints), tags)

    _, log_probs = posterior.best_paths(1)

    assert (log_probs <= 0).all()


@given(calibrated_posterior())
def test_marginals_with_a_temperature_are_those_of_divided_scores(
    posteriors: tuple[Posterior, Posterior],
) -> None:
    with_temperature, divided = posteriors

    marginals = with_temperature.marginals

    for b, tokens in enumerate(oracle.spans(divided.scores)):
        expected = numpy.zeros((tokens.stop - tokens.start, len(divided.tags.collapsed)))
        for path, p in probs_of_paths(divided, b).items():
            expected[range(len(path)), path] += p
        numpy.testing.assert_allclose(marginals[tokens], expected, atol=1e-9)


@given(calibrated_posterior())
def test_entity_probs_with_a_temperature_are_those_of_divided_scores(
    posteriors: tuple[Posterior, Posterior],
) -> None:
    with_temperature, divided = posteriors

    check_entity_probs(with_temperature, defined_by=divided)
