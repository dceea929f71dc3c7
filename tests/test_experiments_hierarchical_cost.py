"""The experiments with the cost of a tree, and the folds of their corpus."""

import numpy
import pytest
import spacy
from spacy.tokens import Doc

from experiments import corpora
from experiments.corpora import TREE, TREE_COST, as_examples, deal, divide, take_out
from experiments.hierarchical_cost import (
    METHODS,
    SPLITS,
    best_setting,
    cells,
    draw,
    stage,
    table_of_differences,
    table_of_levels,
)
from experiments.scores import COST, F, System, compare, system
from experiments.training import run_stages, train_and_count
from spacy_costner.costs.label_tree import make_tree
from spacy_costner.costs.tables import make_hierarchical_cost
from spacy_costner.tags import Tags

GOLD = "genia_gold_tokens"


def test_tree():
    levels = make_tree(TREE, "tree")
    leaves = [name for name in levels.lineages if name not in above(TREE)]
    assert (len(leaves), levels.depth) == (36, 6)
    assert make_hierarchical_cost(tree=TREE)(Tags(leaves, "IOB2")).max() == 11


def above(nodes):
    inner = [name for name, below in nodes.items() if below]
    return {*inner, *(name for below in nodes.values() for name in above(below))}


def test_folds_by_group():
    groups = [i // 3 for i in range(100)]
    folds = deal(groups, 4)
    assert sorted(i for fold in folds for i in fold) == list(range(100))
    assert len({groups[i] for i in folds[0]} & {groups[i] for i in folds[1]}) == 0
    assert max(map(len, folds)) - min(map(len, folds)) <= 3
    assert deal(groups, 4) == folds != deal(groups, 4, seed=1)


def test_rest_of_a_fold():
    rest, fold = take_out(range(10), 5, 2)
    assert sorted(rest + fold) == list(range(10))
    assert fold == deal(range(10), 5)[2]


@pytest.fixture
def corpus(monkeypatch):
    vocab = spacy.blank("xx").vocab
    lines = ["a HIV is", "a cells is", "HIV HIV", "is a"] * 20
    labels = {"HIV": "B-virus", "cells": "B-cell_type"}
    docs = [
        Doc(vocab, words=line.split(), ents=[labels.get(word, "O") for word in line.split()])
        for line in lines
    ]
    abstracts = [str(i // 2) for i in range(len(docs))]
    monkeypatch.setattr(corpora, "read_genia", lambda tokenization: (docs, abstracts))
    return docs, abstracts


@pytest.mark.parametrize("by_abstract", [False, True])
def test_held_out_data_is_training_data(corpus, by_abstract):
    docs, abstracts = corpus
    train, test = divide(GOLD, by_abstract, None, fold=0).values()
    learn, held = divide(GOLD, by_abstract, None, fold=0, held_out=True).values()
    assert {id(doc) for doc in [*train, *test]} == {id(doc) for doc in docs}
    assert {id(doc) for doc in [*learn, *held]} == {id(doc) for doc in train}
    assert 3 * len(held) == len(learn)
    if by_abstract:
        of = {id(doc): abstract for doc, abstract in zip(docs, abstracts)}
        for one, other in ((train, test), (learn, held)):
            assert not {of[id(doc)] for doc in one} & {of[id(doc)] for doc in other}
    assert [*map(len, divide(GOLD, False, 20, fold=1).values())] == [18, 2]


@pytest.mark.parametrize("method", METHODS)
def test_methods_learn(corpus, method):
    some = stage(METHODS[method], METHODS[method]["grid"][0], range(1, 9))
    data = {"tokenization": GOLD, "by_abstract": False, "limit": None, "fold": 0}
    looks = train_and_count(data, [some], cost=TREE_COST)
    assert [look["epochs"] for look in looks] == [*range(1, 9)]
    last = system(method, looks[-1:])
    assert (last.on("test", COST)[0], last.on("test", F)[0]) == (0, 100)
    assert looks[-1]["levels"] == [100] * 6


def test_steps_of_one(corpus):
    method = {**METHODS["none"], "optimizer": METHODS["pa"]["optimizer"], "batch_size": 1}
    examples = as_examples(divide(GOLD, False, None, fold=0)["train"][:1])
    (rows,) = run_stages(examples, [stage(method, 0, [1])], None, lambda ner, **facts: None)
    used = rows[rows != 0]
    assert len(used) and abs(used) == pytest.approx(abs(used).round(), abs=1e-4)


def with_cost(cost, **settings):
    """A system with this average cost of a token on dev and test, for each fold."""
    rows = [numpy.asarray([[1, 1, 0, 10 * one, 10, 0, 1]] * 30) for one in cost]
    return System("", numpy.stack([one.sum(axis=0) for one in rows]), rows, settings)


def test_chosen():
    costs = {1.0: [3.0, 2.0, 2.5], 2.0: [2.0, 1.5, 1.5], 4.0: [4.0, 3.0, 1.9]}
    tuned = [
        with_cost([cost], value=value, epochs=i + 1)
        for value, some in costs.items()
        for i, cost in enumerate(some)
    ]
    assert best_setting(tuned) == best_setting(tuned[::-1]) == {"value": 2.0, "epochs": 2}


@pytest.fixture
def outcomes():
    costs = {"none": (3.0, 4.0, 5.0), "zero_one": (2.5, 3.6, 4.4), "tree": (2.0, 3.1, 4.2)}
    levels = {"value": 0.2, "epochs": 2, "levels": [[cost] * 6 for cost in (1, 3)]}
    found = {method: with_cost(some, **levels) for method, some in costs.items()}
    return dict.fromkeys(SPLITS, found)


def test_tables(outcomes):
    shown = cells(outcomes["paper"]["tree"])
    assert shown == {"cost": "3.100 ± 1.100 | 0.2 | 2", "f": "66.7 ± 0.0"}
    assert cells(with_cost([2.0, 3.1], value=0.0, epochs=2))["cost"] == "2.550 ± 0.778 | 0 | 2"
    assert "| perceptron, tree cost | 2.0 | 2.0 |" in table_of_levels(outcomes)


def test_comparison(outcomes):
    one, other = (outcomes["paper"][name].joined() for name in ("tree", "none"))
    (((cost,), (f,)),) = [compare([one], other, [COST, F])]
    # 90 tokens that cost 9.3 together for each ten, and 90 that cost 12.
    assert cost.value == pytest.approx(-0.9)
    assert cost.low < cost.value < cost.high
    assert cost.p == pytest.approx(2 / 10_001)
    assert f.p == 1
    assert table_of_differences(outcomes).count("| perceptron, no cost | -0.900 (p = ") == 2


def test_figure():
    pytest.importorskip("matplotlib")
    tuned = {
        method: [
            with_cost([cost], value=value, epochs=1)
            for value in METHODS[method]["grid"]
            for cost in (5.0, 4.0 + value)
        ]
        for method in ("none", "zero_one", "tree")
    }
    (axes,) = draw(tuned).axes
    tree, zero_one, without = axes.lines
    assert list(tree.get_xdata()) == list(METHODS["tree"]["grid"])
    assert list(zero_one.get_ydata()) == [5.0] * len(METHODS["zero_one"]["grid"])
    assert list(without.get_ydata()) == [4.0, 4.0]
