"""The experiments with the cost of a tree, and the corpus of theirs: experiments/genia.py."""

import io
import tarfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest
import spacy
from spacy.tokens import Doc

from experiments.corpora import ASSETS, as_examples
from experiments.genia import (
    ARCHIVE,
    GOLD,
    JOINED_TOKEN,
    PLAIN,
    PLAIN_TOKEN,
    TREE,
    Entity,
    Sentence,
    convert,
    encode,
    genia,
    read_terms,
    tag_gold,
    tag_plain,
    tokenize,
)
from experiments.hierarchical_cost import study
from experiments.hierarchical_cost.methods import METHODS, PROTOCOLS, STEPS_OF_ONE
from experiments.hierarchical_cost.page import compare, draw, table_1, table_2, table_3
from experiments.hierarchical_cost.study import (
    COST,
    LEVELS,
    Outcome,
    Tuning,
    cross_validate,
    deal,
    divide,
    fit,
    rate,
    score,
    take_out,
)
from spacy_costner.layers import linear_part
from spacy_costner.tags import Tags

ARTICLE = """
<article><articleinfo><bibliomisc>{abstract}</bibliomisc></articleinfo>
<title><sentence>{title}</sentence></title>
<abstract><sentence>{text}</sentence><sentence> </sentence></abstract></article>
"""


def terms(text):
    return read_terms(ElementTree.fromstring(f"<sentence>{text}</sentence>"))


def words(text, pattern, borders=()):
    return [text[begin:end] for begin, end in tokenize(text, pattern, borders)]


def test_outermost_terms():
    text, entities = terms(
        'The <cons sem="G#other_name"><cons sem="G#DNA_N/A">IL-2 gene</cons> expression</cons>, '
        '<cons sem="G#virus">HIV</cons>.'
    )
    assert text == "The IL-2 gene expression, HIV."
    assert entities == [Entity(4, 24, "other_name"), Entity(26, 29, "virus")]


def test_coordination_of_one_category():
    text, entities = terms(
        '<cons sem="(AND G#cell_type G#cell_type)"><cons>CD4</cons> and <cons>CD8</cons> cells'
        "</cons>"
    )
    assert entities == [Entity(0, len(text), "cell_type")]


def test_coordination_of_two_categories():
    text, entities = terms(
        '<cons sem="(OR G#virus G#atom)">a <cons sem="G#virus">b</cons> <cons>c</cons></cons> d'
    )
    assert (text, entities) == ("a b c d", [Entity(2, 3, "virus")])


@pytest.mark.parametrize(
    "text, plain, joined",
    [
        ("NF-kappa B", ["NF", "-", "kappa", "B"], ["NF-kappa", "B"]),
        ("5'-end of 0.5", ["5", "'", "-", "end", "of", "0.5"], ["5", "'", "-", "end", "of", "0.5"]),
        ("1,000 (CD4+)", ["1,000", "(", "CD4", "+", ")"], ["1,000", "(", "CD4", "+", ")"]),
        (
            "a,b 1.2x c.",
            ["a", ",", "b", "1", ".", "2x", "c", "."],
            ["a", ",", "b", "1.2x", "c", "."],
        ),
    ],
)
def test_tokens(text, plain, joined):
    assert words(text, PLAIN_TOKEN) == plain
    assert words(text, JOINED_TOKEN) == joined


def test_tokens_are_cut_at_borders():
    assert words("CD28-mediated one", JOINED_TOKEN, [0, 4, 13]) == ["CD28", "-mediated", "one"]


def test_tags_of_entities_that_end_within_tokens():
    tokens = [(0, 4), (4, 5), (6, 10)]
    assert encode(tokens, [Entity(0, 5, "a"), Entity(6, 8, "b"), Entity(8, 10, "c")]) == [
        "B-a",
        "I-a",
        "B-b",
    ]
    assert encode(tokens, [Entity(5, 6, "a")]) == ["O", "O", "O"]


def test_two_tokenizations_of_a_sentence():
    sentence = Sentence("1", "title", "CD28-mediated", [Entity(0, 4, "virus")])
    assert tag_plain(sentence) == (["CD28", "-", "mediated"], ["B-virus", "O", "O"])
    assert tag_gold(sentence) == (["CD28", "-mediated"], ["B-virus", "O"])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    hiv = '<cons sem="G#virus">HIV-1</cons>'
    articles = [
        ARTICLE.format(abstract="1", title="A", text=f"{hiv} is"),
        ARTICLE.format(abstract="2", title="B", text="C-1."),
        ARTICLE.format(abstract="1", title="A", text="again"),
    ]
    data = f"<set>{''.join(articles)}</set>".encode()
    path = tmp_path / "genia.tgz"
    with tarfile.open(path, "w:gz") as files:
        member = tarfile.TarInfo("folder/corpus.xml")
        member.size = len(data)
        files.addfile(member, io.BytesIO(data))
    return path


def test_convert(archive, tmp_path):
    counts = convert(archive, tmp_path / "corpus")
    assert counts[PLAIN] == Counter(sentences=4, tokens=10, entities=1, marked=1)
    assert counts[GOLD] == Counter(sentences=4, tokens=6, entities=1, marked=1)
    docs, abstracts = genia(PLAIN, spacy.blank("xx").vocab, tmp_path / "corpus")
    assert [doc.text.strip() for doc in docs] == ["A", "HIV - 1 is", "B", "C - 1 ."]
    assert [(ent.text, ent.label_) for ent in docs[1].ents] == [("HIV - 1", "virus")]
    assert abstracts == ["1", "1", "2", "2"]


def test_no_corpus(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"experiments\.genia"):
        genia(PLAIN, spacy.blank("xx").vocab, tmp_path)


@pytest.mark.skipif(not ARCHIVE.exists(), reason="GENIA is not in assets/genia")
def test_published_corpus(tmp_path):
    counts = convert(ARCHIVE, tmp_path)
    assert counts[PLAIN] == Counter(sentences=18535, tokens=557979, entities=76555, marked=76557)
    assert counts[GOLD] == Counter(sentences=18535, tokens=499241, entities=76557, marked=76557)
    for name in (PLAIN, GOLD):
        other = ASSETS / "genia" / f"{name}.iob2"
        if other.exists():
            assert (tmp_path / other.name).read_bytes() == other.read_bytes()


def test_tree():
    leaves = [name for name in LEVELS.lineages if name not in above(TREE)]
    assert (len(leaves), LEVELS.depth) == (36, 6)
    assert COST(Tags(leaves, "IOB2")).max() == 11


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
    examples = as_examples(docs)
    abstracts = [str(i // 2) for i in range(len(docs))]
    monkeypatch.setattr(study, "read", lambda tokenization: (examples, abstracts))
    return examples, abstracts


@pytest.mark.parametrize("by_abstract", [False, True])
def test_held_out_data_is_training_data(corpus, by_abstract):
    examples, abstracts = corpus
    train, test = divide(GOLD, by_abstract, None, fold=0)
    learn, held = divide(GOLD, by_abstract, None, fold=0, held_out=True)
    assert {id(eg) for eg in [*train, *test]} == {id(eg) for eg in examples}
    assert {id(eg) for eg in [*learn, *held]} == {id(eg) for eg in train}
    assert 3 * len(held) == len(learn)
    if by_abstract:
        of = {id(eg): abstract for eg, abstract in zip(examples, abstracts)}
        for one, other in ((train, test), (learn, held)):
            assert not {of[id(eg)] for eg in one} & {of[id(eg)] for eg in other}


def test_limit(corpus):
    train, test = divide(GOLD, False, 20, fold=1)
    assert (len(train), len(test)) == (18, 2)


@pytest.mark.parametrize("method", METHODS)
def test_methods_learn(corpus, method):
    train, test = divide(GOLD, False, None, fold=0)
    scores = []
    settings = METHODS[method].training(METHODS[method].grid[0], epochs=8)
    linear = fit(train, **settings, on_epoch=lambda linear: scores.append(score(linear, test)[0]))
    assert len(scores) == 8
    assert scores[-1] == score(linear, test)[0]
    assert (scores[-1]["cost"], scores[-1]["f"]) == (0, 100)
    assert scores[-1]["levels"] == [100] * 6


def test_steps_of_one(corpus):
    train, _ = divide(GOLD, False, None, fold=0)
    settings = {**METHODS["none"].training(0, epochs=1), "batch_size": 1}
    settings["model"] = STEPS_OF_ONE
    linear = fit(train[:1], **settings)
    _, weights = linear_part(linear.ner.model)
    used = weights.rows[weights.rows != 0]
    assert len(used) and abs(used) == pytest.approx(abs(used).round(), abs=1e-4)


def test_chosen():
    tuning = Tuning((1.0, 2.0, 4.0), [[3.0, 2.0, 2.5], [2.0, 1.5, 1.5], [4.0, 3.0, 1.9]])
    assert tuning.chosen == (2.0, 2)


@pytest.fixture
def outcomes():
    costs = {"none": (3.0, 4.0, 5.0), "zero_one": (2.5, 3.6, 4.4), "tree": (2.0, 3.1, 4.2)}
    costs["pa"] = costs["paper_features"] = costs["tree"][:2]
    folds = {
        method: [
            {"cost": cost, "f": 100 - cost, "levels": [cost] * 6, "counts": [[1, 1, 0, cost, 10]]}
            for cost in some
        ]
        for method, some in costs.items()
    }
    tunings = {
        method: Tuning(METHODS[method].grid, [[5.0, 4.0 + i] for i in METHODS[method].grid])
        for method in METHODS
    }
    return dict.fromkeys(PROTOCOLS, Outcome(tunings, folds))


def test_tables(outcomes):
    first = table_1(outcomes).splitlines()
    assert len(first) == 5
    assert "| perceptron, tree cost | 0.88 | 9 | 10 | 3.100 ± 1.100 | 0.2 | 2 |" in first[-1]
    assert "| 2.550 ± 0.778 |" in table_2(outcomes["paper"])
    assert "| perceptron, no cost | 69.8 | 96.0 ± 1.0 | 96.0 ± 1.0 |" in table_3(outcomes)


def test_comparison(outcomes):
    found = outcomes["paper"].difference("tree", "none", "cost")
    # 30 tokens that cost 9.3 together, and 30 that cost 12.
    assert found.value == pytest.approx(-0.09)
    assert found.low < found.value < found.high
    assert found.p == pytest.approx(2 / 10_001)
    assert outcomes["paper"].difference("tree", "none", "f").p == 1
    assert compare(outcomes).count("| perceptron, no cost | -0.090 (p = ") == 2


def test_counts_of_sentences_add_up(corpus):
    settings = METHODS["none"].training(0, epochs=1)
    found = cross_validate({"tokenization": GOLD, "by_abstract": False, "limit": 20}, settings, 0)
    sums = numpy.asarray(found["counts"]).sum(axis=0, keepdims=True)
    assert len(found["counts"]) == 2
    assert rate(sums, "cost") == pytest.approx(found["cost"])
    assert rate(sums, "f") == pytest.approx(found["f"])


def test_figure(outcomes):
    pytest.importorskip("matplotlib")
    (axes,) = draw(outcomes["paper"].tunings).axes
    tree, zero_one, without = axes.lines
    assert list(tree.get_xdata()) == list(METHODS["tree"].grid)
    assert list(zero_one.get_ydata()) == [5.0] * len(METHODS["zero_one"].grid)
    assert list(without.get_ydata()) == [4.0, 4.0]
