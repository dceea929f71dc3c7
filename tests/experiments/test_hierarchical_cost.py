"""The experiments with the cost of a tree, and the folds of their corpus."""

import pytest
from spacy.tokens import Doc

from experiments import corpora, hierarchical_cost
from experiments.corpora import deal, divide
from experiments.hierarchical_cost import METHODS, SPEC, SPLITS
from experiments.runner import Runner

from ..support.vocabs import blank_vocab

GOLD = "genia_gold_tokens"


def test_folds_have_each_sentence_once_and_whole_groups():
    """A group is three sentences, but the last, which is one: folds differ by three at most."""
    group_of_sentence = [i // 3 for i in range(100)]

    folds = deal(group_of_sentence, 4)

    assert sorted(i for fold in folds for i in fold) == list(range(100))
    groups_of_first = {group_of_sentence[i] for i in folds[0]}
    groups_of_second = {group_of_sentence[i] for i in folds[1]}
    assert not groups_of_first & groups_of_second
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 3


def test_folds_depend_on_the_seed_only():
    group_of_sentence = [i // 3 for i in range(100)]
    folds = deal(group_of_sentence, 4)
    assert deal(group_of_sentence, 4) == folds
    assert deal(group_of_sentence, 4, seed=1) != folds


@pytest.fixture
def corpus(monkeypatch):
    """Eighty short docs instead of GENIA, with the number of the abstract of each: two docs are an
    abstract."""
    vocab = blank_vocab()
    tag_of_word = {"HIV": "B-virus", "cells": "B-cell_type"}
    docs = []
    for line in ["a HIV is", "a cells is", "HIV HIV", "is a"] * 20:
        words = line.split()
        docs.append(Doc(vocab, words=words, ents=[tag_of_word.get(word, "O") for word in words]))
    abstracts = [str(i // 2) for i in range(len(docs))]
    monkeypatch.setattr(corpora, "read_genia", lambda tokenization: (docs, abstracts))
    return docs, abstracts


def ids(docs):
    """An id of docs that may have the same words."""
    return {id(doc) for doc in docs}


@pytest.mark.parametrize("by_abstract", [False, True])
def test_held_out_data_is_training_data(corpus, by_abstract):
    """A quarter of it; the other three quarters are learned from. Of 80 docs a tenth, 8, are tested
    and 72 are training data: 54 to learn from and 18 held out."""
    docs, _ = corpus
    train, test = divide(GOLD, by_abstract, None, fold=0).values()
    learn, held_out = divide(GOLD, by_abstract, None, fold=0, held_out=True).values()
    assert ids([*train, *test]) == ids(docs)
    assert ids([*learn, *held_out]) == ids(train)
    assert 3 * len(held_out) == len(learn)


def test_an_abstract_is_not_divided(corpus):
    docs, abstracts = corpus
    abstract_of_doc = {id(doc): abstract for doc, abstract in zip(docs, abstracts)}
    for held_out in (False, True):
        parts = divide(GOLD, by_abstract=True, limit=None, fold=0, held_out=held_out)
        train, test = parts.values()
        train_abstracts = {abstract_of_doc[id(doc)] for doc in train}
        test_abstracts = {abstract_of_doc[id(doc)] for doc in test}
        assert not train_abstracts & test_abstracts


def test_a_limited_corpus_is_divided_into_tenths(corpus):
    train, test = divide(GOLD, by_abstract=False, limit=20, fold=1).values()
    assert len(train) == 18
    assert len(test) == 2


def test_pa_makes_the_steps_of_the_paper():
    """After each sentence, of at most C, for up to the 29 epochs of the paper. In other rows the
    splits have the number of epochs."""
    stage = hierarchical_cost.stage(METHODS["pa"], 0.03, [29])
    assert stage["settings"]["batch_size"] == 1
    assert stage["loss"]["aggressiveness"] == 0.03
    assert 0.03 in METHODS["pa"]["grid"]
    assert hierarchical_cost.most_epochs("paper", "pa", SPEC["full"]) >= 29
    assert hierarchical_cost.most_epochs("paper", "tree", SPEC["full"]) == 10
    assert hierarchical_cost.most_epochs("document", "tree", SPEC["full"]) == 6
    assert hierarchical_cost.most_epochs("paper", "pa", {"epochs": 3}) == 3


@pytest.mark.slow
def test_the_experiment_makes_the_figures_of_its_page(corpus, tmp_path):
    """In the corpus each word always has the same tag, so no method makes a mistake. The cost is 0
    in both folds, and F is 100 at each of the six levels of the tree. As all settings are equally
    good, the smallest ones are chosen: the first value of the grid, and one epoch."""
    pytest.importorskip("matplotlib")
    size = {"limit": None, "epochs": 3, "values": 1, "folds": 2}

    figures = hierarchical_cost.experiment(Runner(tmp_path), size)

    f_of_levels = " | ".join(["100.0"] * 6)
    for name, split in SPLITS.items():
        assert list(figures[name]) == list(split["methods"])
        first_value = split["grids"].get("tree", METHODS["tree"]["grid"])[0]
        assert figures[name]["tree"]["cost"] == f"0.000 ± 0.000 | {first_value:g} | 1"
        row_of_levels = f"| {split['title']} | perceptron, tree cost | {f_of_levels} |"
        assert row_of_levels in figures["levels"]
    # Each split has a row that compares the tree cost with no cost.
    assert figures["differences"].count("| perceptron, no cost |") == len(SPLITS)
    assert (tmp_path / figures["figure"]).exists()
