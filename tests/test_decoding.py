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
    LEAST,
    Decoding,
    Posterior,
    Temperature,
    make_min_cost,
    make_threshold,
    make_viterbi,
)
from spacy_costner.decoding.min_cost import inner_nodes
from spacy_costner.decoding.posterior import best_sums
from spacy_costner.tags import Tags
from spacy_costner.types import Potentials

from . import oracle
from .support.batches import random_potentials
from .support.posteriors import (
    answer,
    collapsed_paths,
    columns,
    entities_of,
    posterior,
    probs_of_entities,
    rows,
    sure,
)
from .support.strategies import seeds


def check_entity_probs(posterior: Posterior, by: Posterior | None = None) -> dict[Any, float]:
    """The probabilities of all entities are those of the definition, which are returned."""
    expected = probs_of_entities(by or posterior)
    found = posterior.entity_probs(columns(list(expected)))
    numpy.testing.assert_allclose(found, list(expected.values()), atol=1e-9)
    return expected


@given(posterior())
def test_entity_probabilities(posterior: Posterior) -> None:
    expected = check_entity_probs(posterior)
    extents = sorted({(begin, end, 0) for begin, end, _ in expected})
    covers = numpy.ones((1, len(posterior.tags.labels)), dtype=bool)  # one label for all
    of_extent = [sum(p for e, p in expected.items() if e[:2] == extent[:2]) for extent in extents]
    found = posterior.entity_probs(columns(extents), covers)
    numpy.testing.assert_allclose(found, of_extent, atol=1e-9)


@given(posterior())
def test_probabilities_of_no_entity(posterior: Posterior) -> None:
    bounds = oracle.spans(posterior.scores)
    stretches = [
        (b, begin, end)
        for b, bound in enumerate(bounds)
        for begin in range(bound.start, bound.stop)
        for end in range(begin + 1, bound.stop + 1)
    ]
    expected = []
    for b, begin, end in stretches:
        legal, first = collapsed_paths(posterior, b), bounds[b].start
        inside = [any(path.tags[begin - first : end - first]) for path in legal]
        expected.append(sum(p for p, e in zip(oracle.probabilities(legal), inside) if not e))
    begin, end = numpy.asarray([s[1:] for s in stretches], dtype="int64").reshape(-1, 2).T
    numpy.testing.assert_allclose(posterior.outside_probs(begin, end), expected, atol=1e-9)


@given(posterior())
def test_probabilities_over_a_border(posterior: Posterior) -> None:
    """No entity has tokens of two sequences. None in such a stretch is none in either sequence."""
    starts = [bound.start for bound in oracle.spans(posterior.scores)]
    n_tokens = len(posterior.scores.emissions)
    stretches, expected = [], []
    for begin in range(n_tokens):
        for end in range(begin + 1, n_tokens + 1):
            stretches.append((begin, end))
            prob = 1.0
            for b, start in enumerate(starts):
                legal = collapsed_paths(posterior, b)
                free = slice(max(begin - start, 0), max(end - start, 0))
                probs = zip(oracle.probabilities(legal), legal)
                prob *= sum(p for p, path in probs if not any(path.tags[free]))
            expected.append(prob)
    begins, ends = numpy.asarray(stretches, dtype="int64").reshape(-1, 2).T
    numpy.testing.assert_allclose(posterior.outside_probs(begins, ends), expected, atol=1e-9)

    # Entities of sequences and over borders, mixed
    possible = probs_of_entities(posterior)
    everywhere = [(*stretch, 0) for stretch in stretches]
    found = posterior.entity_probs(columns(everywhere))
    for entity, prob, crosses in zip(
        everywhere, found, posterior.crosses_border(columns(everywhere))
    ):
        first, last = entity[0], entity[1] - 1
        assert crosses == any(first < start <= last for start in starts)
        if crosses:
            assert prob == 0 and entity not in possible
        elif entity in possible:
            assert prob == pytest.approx(possible[entity], abs=1e-9)
    covers = numpy.ones((1, len(posterior.tags.labels)), dtype=bool)
    of_any = posterior.entity_probs(columns(everywhere), covers)
    assert not of_any[posterior.crosses_border(columns(everywhere))].any()


@given(posterior(), st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.6]))
def test_likely_entities_are_all_there_are(posterior: Posterior, floor: float) -> None:
    expected = probs_of_entities(posterior)
    entities, probs = posterior.likely_entities(floor)
    found = dict(zip(rows(entities), probs.tolist()))
    floor, rounding = max(floor, LEAST), 1e-9
    assert {entity for entity, p in expected.items() if p > floor + rounding} <= set(found)
    for entity, p in found.items():
        assert p == pytest.approx(expected[entity], abs=1e-9) and p >= floor
    assert list(found) == sorted(found, key=lambda entity: (entity[:2], -found[entity]))


def test_white_space_of_the_next_doc_is_not_part_of_an_entity() -> None:
    tags, is_space = Tags(["a", "b"], "IOB2"), numpy.asarray([False, True, True, False])
    scores = random_potentials([2, 2], len(tags))
    possible = ~(is_space[:, None] & tags.opening)
    constraints = tags.constraints._replace(emissions=possible)
    check_entity_probs(Posterior(chain.constrain(scores, constraints), tags, is_space=is_space))


def test_flat_scores_don_t_take_forever() -> None:
    tags = Tags(["a", "b", "c"])
    scores = chain.constrain(random_potentials([3000], 13, 0.0, "float32"), tags.constraints)
    entities, probs = Posterior(scores, tags).likely_entities(0.0)
    assert 3000 < len(probs) < 3000 / LEAST
    assert numpy.bincount(entities.begin, probs).max() < 1 and (entities.begin > 100).any()


@given(seeds, st.integers(1, 4), st.integers(1, 5))
def test_the_best_sums_of_one_value_from_each_column(rng: Any, k: int, n: int) -> None:
    values = -numpy.sort(-rng.normal(size=(k, n)), axis=0)
    if k > 1:
        values[-1, 0] = -numpy.inf  # a sequence with fewer paths
    chosen, sums = best_sums(values)
    ways = product(range(k), repeat=n)
    expected = sorted((values[way, range(n)].sum() for way in ways), reverse=True)[:k]
    numpy.testing.assert_allclose(sums, expected)
    numpy.testing.assert_allclose(values[chosen, numpy.arange(n)].sum(axis=1), sums)
    assert len({tuple(way) for way in chosen.tolist()}) == k


@given(posterior(spaces=False), st.sampled_from([0.0, -2.0, 2.0, 20.0]))
def test_viterbi_with_a_bias(posterior: Posterior, bias: float) -> None:
    scores, tags = posterior.scores, posterior.tags
    of_label = {"a": bias + 1}
    decoding = make_viterbi(bias=bias, labels=of_label)
    entities = rows(decoding.decode(posterior, decoding.settings)[0])
    added = [0.0 if x < 0 else of_label.get(tags.labels[x], bias) for x in tags.label_of]
    for b in range(len(scores.lengths)):
        ranked = sorted(
            oracle.paths(scores, b),
            key=lambda path: -path.score - sum(added[tag] for tag in path.tags),
        )
        here = oracle.spans(scores)[b]
        mine = {e for e in entities if here.start <= e[0] < here.stop}
        assert mine == entities_of(posterior, b, ranked[0].tags)


@given(posterior(), st.sampled_from([0.0, 0.05, 0.2, 0.5, 0.8, 1.0]))
def test_threshold_gains_most(posterior: Posterior, threshold: float) -> None:
    tags = posterior.tags
    decoding = make_threshold(threshold=threshold, labels={"a": threshold / 2})
    gains = {
        entity: p - decoding.settings["labels"].get(tags.labels[entity[2]], threshold)
        for entity, p in probs_of_entities(posterior).items()
        if p >= LEAST
    }
    found = rows(decoding.decode(posterior, decoding.settings)[0])
    best = 0.0
    for b in range(len(posterior.scores.lengths)):
        sets = {
            frozenset(entities_of(posterior, b, p.tags)) for p in oracle.paths(posterior.scores, b)
        }
        best += max(sum(gains.get(e, -1.0) for e in some) for some in {*sets, frozenset()})
    assert sum(gains.get(e, -1.0) for e in found) == pytest.approx(best, abs=1e-9)
    assert all(one[1] <= other[0] for one, other in pairwise(found))


def test_what_is_as_probable_as_the_threshold_is_answered() -> None:
    posterior = sure({"a": 0.5, "O": 0.5}, {"b": 0.75, "O": 0.25}, {"c": 0.25, "O": 0.75})
    probs = posterior.likely_entities(0.0)[1]
    assert probs.tolist() == pytest.approx([0.5, 0.75, 0.25])
    for label, p in zip("abc", probs.tolist()):
        for threshold, predicted in ((p, True), (numpy.nextafter(p, 1), False)):
            decoding = make_threshold(threshold=1.0, labels={label: float(threshold)})
            assert [name for _, _, name in answer(decoding, posterior)] == [label] * predicted


COST = make_precision_recall_cost(miss=3.0, wrong_boundary=0.5)


def test_a_node_above_is_answered_where_it_costs_less() -> None:
    """a, b, c are 2 apart, 1 from x and 3 or 2 from d; O costs 4 against all."""
    tree = {"y": {"x": {"a": {}, "b": {}, "c": {}}, "d": {}}}
    decoding = make_min_cost(cost=make_hierarchical_cost(tree=tree), tree=tree)
    third = {"a": 0.33, "b": 0.33, "c": 0.33}
    cases = {
        "x": {**third, "O": 0.01},
        "O": {"a": 0.2, "b": 0.2, "c": 0.1, "O": 0.5},
        "a": {"a": 0.6, "b": 0.2, "c": 0.2},
        "b": {"a": 0.5, "b": 0.5 + 1e-4},
        "d": {"d": 1.0},
    }
    posterior = sure(*cases.values())
    expected = [(i, i + 1, label) for i, label in enumerate(cases) if label != "O"]
    assert answer(decoding, posterior) == expected
    entities, labels, covers = decoding.decode(posterior, decoding.settings)
    assert labels == ("a", "b", "c", "d", "y", "x")
    assert posterior.entity_probs(entities, covers)[0] == pytest.approx(0.99)


def test_nodes_that_can_be_answered() -> None:
    tree = make_tree({"z": {"y": {"x": {"a": {}, "b": {}}, "c": {"d": {}}}}, "e": {"f": {}}}, "t")
    found = inner_nodes(tree, ["a", "b", "c", "d", "f"])
    assert found == {"y": ["a", "b", "c", "d"], "x": ["a", "b"]}
    assert inner_nodes(tree, ["a", "f"]) == {}
    with pytest.raises(ValueError, match="'nowhere'"):
        inner_nodes(tree, ["a", "nowhere"])


def test_choices_stand_in_where_a_file_is_gone(tmp_path: Path) -> None:
    tree = {"y": {"x": {"a": {}, "b": {}, "c": {}}, "d": {}}}
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(tree))

    def decoding() -> Decoding:
        return make_min_cost(cost=make_hierarchical_cost(tree=str(file)), tree=str(file))

    def restored(saved: Any) -> Decoding:
        again = decoding()
        assert again.restore is not None
        again.restore(saved)
        return again

    posterior, first = sure({"a": 0.34, "b": 0.33, "c": 0.33}), decoding()
    assert first.tables is not None
    expected = first.decode(posterior, first.settings)
    saved = json.loads(json.dumps(first.tables(posterior.tags)))
    file.unlink()
    found = restored(saved).decode(posterior, {})
    assert first.settings == {}
    assert found.labels == expected.labels and rows(found.entities) == rows(expected.entities)
    numpy.testing.assert_array_equal(found.covers, expected.covers)
    for missing in ({}, {**saved, "chain": ["a"]}, {**saved, "of": "another cost"}):
        with pytest.raises(ValueError, match=r"tree\.json"):
            restored(missing).decode(posterior, {})
    with pytest.raises(ValueError, match="saved choices: expected finite arrays"):
        restored({**saved, "covers": [[True]]}).decode(posterior, {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_viterbi(bias=float("nan")), "ViterbiDecoding: bias: expected a finite"),
        (lambda: make_viterbi(labels={"a": "x"}), r"ViterbiDecoding: labels\.a: expected"),
        (lambda: make_threshold(threshold=1.5), "ThresholdDecoding: threshold: .* from 0 to 1"),
        (lambda: make_threshold(labels={"a": -1}), r"labels\.a: expected a finite number from 0"),
        (lambda: make_min_cost(cost=COST, tree={"a": {"a": {}}}), "MinCostDecoding: tree"),
    ],
)
def test_bad_settings_are_named(make: Callable[[], Decoding], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_an_unknown_label_is_named() -> None:
    for decoding in (make_viterbi(labels={"z": 1.0}), make_threshold(labels={"z": 1.0})):
        with pytest.raises(ValueError, match=r"decoding: labels: expected any of .*'a'.*got 'z'"):
            decoding.decode(sure({"a": 1.0}), decoding.settings)


@given(posterior(), st.sampled_from([0.5, 2.0]), st.sampled_from([{}, {"a": 3.0}]))
def test_beliefs_are_those_of_the_calibrated_scores(
    posterior: Posterior, overall: float, labels: dict[str, float]
) -> None:
    temperature = Temperature(overall, labels)
    calibrated = Posterior(
        posterior.scores, posterior.tags, temperature=temperature, is_space=posterior.is_space
    )
    tags = posterior.tags
    divisor = [labels.get(tags.labels[x], overall) if x >= 0 else overall for x in tags.label_of]
    by_hand = Potentials(
        posterior.scores.emissions / numpy.asarray(divisor),
        *(array / overall for array in posterior.scores[1:4]),
        lengths=posterior.scores.lengths,
    )
    paths, path_probs = calibrated.best_paths(3)
    path_probs = numpy.exp(path_probs)
    for b, here in enumerate(oracle.spans(by_hand)):
        ranked = collapsed_paths(Posterior(by_hand, tags), b)
        probs = dict(zip((path.tags for path in ranked), oracle.probabilities(ranked)))
        assert len(probs) == len(ranked)
        best = [*sorted(probs.values(), reverse=True)[:3], 0.0, 0.0][:3]
        numpy.testing.assert_allclose(path_probs[:, b], best, atol=1e-9)
        of_paths = [probs[tuple(path)] for path in paths[: len(ranked), here].tolist()]
        numpy.testing.assert_allclose(of_paths, path_probs[: len(ranked), b], atol=1e-9)
        marginals = numpy.zeros((here.stop - here.start, len(tags.collapsed)))
        for path, p in probs.items():
            marginals[range(len(path)), path] += p
        numpy.testing.assert_allclose(calibrated.marginals[here], marginals, atol=1e-9)
    check_entity_probs(calibrated, Posterior(by_hand, tags, is_space=posterior.is_space))
