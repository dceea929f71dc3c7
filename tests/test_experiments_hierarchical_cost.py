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

from experiments import genia
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
    deal,
    divide,
    encode,
    read_genia,
    read_terms,
    tag,
    take_out,
    tokenize,
)
from experiments.hierarchical_cost import (
    METHODS,
    SPLITS,
    STEPS_OF_ONE,
    TREE_COST,
    best_setting,
    cells,
    draw,
    table_of_differences,
    table_of_levels,
)
from experiments.scores import COST, F, System, compare, system
from experiments.training import run_stages, train_and_count
from spacy_costner.costs.label_tree import make_tree
from spacy_costner.costs.tables import make_hierarchical_cost
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
    assert tag(sentence, PLAIN) == (["CD28", "-", "mediated"], ["B-virus", "O", "O"])
    assert tag(sentence, GOLD) == (["CD28", "-mediated"], ["B-virus", "O"])


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
    docs, abstracts = read_genia(PLAIN, tmp_path / "corpus")
    assert [doc.text.strip() for doc in docs] == ["A", "HIV - 1 is", "B", "C - 1 ."]
    assert [(ent.text, ent.label_) for ent in docs[1].ents] == [("HIV - 1", "virus")]
    assert abstracts == ["1", "1", "2", "2"]


def test_no_corpus(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"experiments\.genia"):
        read_genia(PLAIN, tmp_path)


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
    monkeypatch.setattr(genia, "read_genia", lambda tokenization: (docs, abstracts))
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
    stage = METHODS[method].stage(METHODS[method].grid[0], range(1, 9))
    data = {"tokenization": GOLD, "by_abstract": False, "limit": None, "fold": 0}
    looks = train_and_count(data, [stage], cost=TREE_COST)
    assert [look["epochs"] for look in looks] == [*range(1, 9)]
    last = system(method, looks[-1:])
    assert (last.on("test", COST)[0], last.on("test", F)[0]) == (0, 100)
    assert looks[-1]["levels"] == [100] * 6


def test_steps_of_one(corpus):
    method = METHODS["none"]._replace(optimizer=STEPS_OF_ONE, batch_size=1)
    examples = as_examples(divide(GOLD, False, None, fold=0)["train"][:1])
    (rows, *_) = run_stages(examples, [method.stage(0, [1])], None, lambda tagger, **facts: None)
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
            for value in METHODS[method].grid
            for cost in (5.0, 4.0 + value)
        ]
        for method in ("none", "zero_one", "tree")
    }
    (axes,) = draw(tuned).axes
    tree, zero_one, without = axes.lines
    assert list(tree.get_xdata()) == list(METHODS["tree"].grid)
    assert list(zero_one.get_ydata()) == [5.0] * len(METHODS["zero_one"].grid)
    assert list(without.get_ydata()) == [4.0, 4.0]
