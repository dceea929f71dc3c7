"""The experiments with the cost of a tree, and the folds of their corpus."""

import pytest
import spacy
from spacy.tokens import Doc

from experiments import corpora, hierarchical_cost
from experiments.corpora import deal, divide
from experiments.hierarchical_cost import METHODS, SPLITS
from experiments.runner import Runner

GOLD = "genia_gold_tokens"


def test_folds_by_group():
    groups = [i // 3 for i in range(100)]
    folds = deal(groups, 4)
    assert sorted(i for fold in folds for i in fold) == list(range(100))
    assert len({groups[i] for i in folds[0]} & {groups[i] for i in folds[1]}) == 0
    assert max(map(len, folds)) - min(map(len, folds)) <= 3
    assert deal(groups, 4) == folds != deal(groups, 4, seed=1)


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


def test_the_experiment(corpus, tmp_path):
    """What is tuned is tested with the value and the epochs that were best."""
    pytest.importorskip("matplotlib")
    size = {"limit": None, "epochs": 3, "values": 1, "folds": 2}
    figures = hierarchical_cost.experiment(Runner(tmp_path), size)
    for split, found in SPLITS.items():
        assert list(figures[split]) == list(found["methods"])
        value = found["grids"].get("tree", METHODS["tree"]["grid"])[0]
        assert figures[split]["tree"]["cost"] == f"0.000 ± 0.000 | {value:g} | 1"
        assert f"| {found['title']} | perceptron, tree cost{' | 100.0' * 6} |" in figures["levels"]
    assert figures["differences"].count("| perceptron, no cost |") == len(SPLITS)
    assert (tmp_path / figures["figure"]).exists()
