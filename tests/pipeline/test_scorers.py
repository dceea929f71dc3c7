"""The scorer, on cases counted by hand, and inside of spaCy's training and evaluation."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.cli.evaluate import evaluate
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.training import Example
from thinc.api import fix_random_seed

from spacy_costner.costs.tables import (
    make_hamming_cost,
    make_hierarchical_cost,
    make_zero_one_cost,
)
from spacy_costner.pipeline.scorers import (
    compare_tags,
    count_docs,
    make_confidence_scorer,
    make_cost_scorer,
)

from ..support.pipelines import examples, misaligned_examples, pipeline, train
from ..support.vocabs import blank_vocab

TREE = {"place": {"city": {}, "country": {}}, "sports-team": {}}
LABELS = ["city", "country", "sports-team"]
HIERARCHICAL = make_hierarchical_cost(tree=TREE)
VOCAB = blank_vocab()


def example_of_tags(predicted: str, gold: str) -> Example:
    """An example with a token for each tag; "-" in gold is a token without annotation."""
    words = [f"w{i}" for i in range(len(gold.split()))]
    gold_tags = [None if tag == "-" else tag for tag in gold.split()]
    return Example(
        Doc(VOCAB, words=words, ents=predicted.split()),
        Doc(VOCAB, words=words, ents=gold_tags),  # type: ignore[arg-type]
    )


EXAMPLES = [
    example_of_tags(predicted="B-city O B-country I-country", gold="B-city O B-country I-country"),
    example_of_tags(predicted="B-country O O", gold="B-city O B-sports-team"),
    example_of_tags(predicted="B-city I-city O", gold="B-city O O"),
]


def score(
    examples: list[Example], confidence: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """Score with the hierarchical cost of TREE, in the scheme BILUO."""
    scorer = make_cost_scorer(**{"cost": HIERARCHICAL, "tree": TREE, **settings})
    return scorer(examples, labels=LABELS, scheme="BILUO", confidence=confidence)


def test_a_pickled_scorer_gives_the_same_scores() -> None:
    scorer = make_cost_scorer(cost=HIERARCHICAL, tree=TREE)
    scores = scorer(EXAMPLES, labels=LABELS, scheme="BILUO")
    assert pickle.loads(pickle.dumps(scorer))(EXAMPLES, labels=LABELS, scheme="BILUO") == scores


def test_precision_recall_and_f_are_those_of_spacy() -> None:
    scores = score(EXAMPLES)
    expected = get_ner_prf(EXAMPLES)
    assert {name: scores[name] for name in expected} == expected


def test_the_cost_is_the_mean_over_tokens() -> None:
    """Of ten tokens one has its label's sibling (2 edges), one is missed and one is a false alarm
    (4 each, 3 edges being the farthest)."""
    assert score(EXAMPLES)["ents_cost"] == pytest.approx((2 + 4 + 4) / 10)


@pytest.mark.parametrize("scheme, n_wrong", [("BILUO", 4), ("IOB2", 3)])
def test_tag_accuracy_is_the_share_of_right_tags_in_a_scheme(scheme: str, n_wrong: int) -> None:
    """Wrong are the three that cost something and, in BILUO, a U-city that is predicted B-city."""
    scorer = make_cost_scorer(cost=HIERARCHICAL, tree=TREE)
    scores = scorer(EXAMPLES, labels=LABELS, scheme=scheme)
    assert scores["ents_tag_acc"] == pytest.approx((10 - n_wrong) / 10)


def test_sentence_accuracy_is_the_share_of_docs_without_mistakes() -> None:
    """The first of three."""
    assert score(EXAMPLES)["ents_sent_acc"] == pytest.approx(1 / 3)


def test_f_of_a_level_counts_labels_below_the_same_node_as_right() -> None:
    """F = 2 tp / (2 tp + fp + fn) with tp 2, fp 2, fn 3. On the top level country for city is
    right, as both are a place."""
    scores = score(EXAMPLES)
    assert scores["ents_f"] == pytest.approx(2 * 2 / (2 * 2 + 2 + 3))
    assert scores["ents_f_level_2"] == pytest.approx(scores["ents_f"])
    # Each of tp, fp and fn changes by that one.
    assert scores["ents_f_level_1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))


def test_confusions_are_counted_in_tokens() -> None:
    """They are grouped by the gold label, and then by the predicted one."""
    assert score(EXAMPLES)["ents_confusion"] == {
        "city": {"city": 2, "country": 1},
        "country": {"country": 2},
        "sports-team": {"O": 1},
        "O": {"city": 1, "O": 3},
    }


SURE = {"spans_key": "sure"}


def examples_with_confidences() -> list[Example]:
    """EXAMPLES, and before them one with confidences: of an entity that is right (0.9), of one
    that is not (0.7), and of one in a token without annotation (0.1)."""
    example = example_of_tags(predicted="B-city O B-city B-city", gold="B-city O O -")
    predicted = example.predicted
    attrs = {"scores": [0.9, 0.7, 0.1]}
    predicted.spans["sure"] = SpanGroup(predicted, attrs=attrs, spans=predicted.ents)
    return [example, *EXAMPLES]


def test_the_calibration_error_is_counted_by_hand() -> None:
    batch = examples_with_confidences()

    scores = make_confidence_scorer()(batch, confidence=SURE, labels=LABELS)

    # The mean of 1 - 0.9 and 0.7 - 0: nothing is known of the third, and the other docs have no
    # confidences.
    assert scores["ents_ece"] == pytest.approx((0.1 + 0.7) / 2)
    rows = [row for row in scores["ents_reliability"] if row["n"]]
    assert [(row["n"], row["confidence"], row["right"]) for row in rows] == [
        (1, pytest.approx(0.7), 0.0),
        (1, pytest.approx(0.9), 1.0),
    ]
    assert scores["ents_f"] == get_ner_prf(batch)["ents_f"]


def test_the_cost_scorer_has_the_calibration_error_of_a_component_with_confidence() -> None:
    batch = examples_with_confidences()
    expected = make_confidence_scorer()(batch, confidence=SURE, labels=LABELS)["ents_ece"]

    with_confidence = score(batch, confidence=SURE)

    assert with_confidence["ents_ece"] == expected and "ents_cost" in with_confidence
    assert "ents_ece" not in score(batch)


def test_without_confidences_of_its_labels_there_is_no_calibration_error() -> None:
    scorer = make_confidence_scorer()
    batch = examples_with_confidences()
    assert scorer(batch, confidence=SURE, labels=["country"])["ents_ece"] is None
    assert scorer(batch)["ents_ece"] is None


PARTIAL = example_of_tags(predicted="B-city B-city O", gold="- O O")
UNANNOTATED = example_of_tags(predicted="B-city", gold="-")
EMPTY = Example(Doc(VOCAB), Doc(VOCAB))


def test_counts_of_docs_add_up_to_scores() -> None:
    """Docs without annotation are left out: the counts are of the three of EXAMPLES and PARTIAL."""
    examples = [UNANNOTATED, *EXAMPLES, EMPTY, PARTIAL]

    counts = count_docs(examples, HIERARCHICAL, labels=LABELS)

    scores = score(examples)
    assert counts.tp.tolist() == [2, 0, 0, 0]
    assert counts.fp.tolist() == [0, 1, 1, 1]
    assert counts.fn.tolist() == [0, 2, 1, 0]
    assert counts.cost.tolist() == [0, 2 + 4, 4, 4]
    assert counts.tokens.tolist() == [4, 3, 3, 2]
    assert counts.cost.sum() / counts.tokens.sum() == pytest.approx(scores["ents_cost"])
    assert scores["ents_f"] == pytest.approx(2 * 2 / (2 * 2 + 3 + 3))
    assert scores["ents_sent_acc"] == pytest.approx(1 / 4)


def test_tokens_without_annotation_do_not_count() -> None:
    scores = score([PARTIAL, UNANNOTATED, EMPTY])
    # Of the two annotated tokens one is a false alarm, which costs 4.
    assert scores["ents_cost"] == pytest.approx(4 / 2)
    assert scores["ents_sent_acc"] == 0.0
    assert scores["ents_confusion"] == {"O": {"city": 1, "O": 1}}
    only_annotated_token_is_right = example_of_tags(predicted="B-city O", gold="- O")
    assert score([only_annotated_token_is_right])["ents_sent_acc"] == 1.0


def test_docs_without_entities_have_no_f_but_a_cost() -> None:
    scores = score([example_of_tags(predicted="O O", gold="O O")])
    assert scores["ents_f_level_1"] is None and scores["ents_f"] is None
    assert (scores["ents_cost"], scores["ents_tag_acc"], scores["ents_sent_acc"]) == (0, 1, 1)


@pytest.mark.parametrize(
    "examples", [[], [UNANNOTATED], [EMPTY]], ids=["no docs", "no annotation", "no tokens"]
)
def test_all_scores_are_none_where_nothing_is_annotated(examples: list[Example]) -> None:
    scores = score(examples)
    assert set(scores) == {
        "ents_p",
        "ents_r",
        "ents_f",
        "ents_f_level_1",
        "ents_f_level_2",
        "ents_per_type",
        "ents_cost",
        "ents_tag_acc",
        "ents_sent_acc",
        "ents_confusion",
    }
    assert set(scores.values()) == {None}


def test_predicted_tokens_are_aligned_with_those_of_gold() -> None:
    """None of the tokens of "New York beats FijiInc" is the same in both docs."""
    predicted = Doc(
        VOCAB,
        words=["New", "York", "beats", "Fiji", "Inc"],
        spaces=[True, True, True, False, False],
        ents=["B-city", "I-city", "O", "B-country", "O"],
    )
    gold = Doc(
        VOCAB,
        words=["New York", "be", "ats", "FijiInc"],
        spaces=[True, False, True, False],
        ents=["B-city", "O", "O", "B-country"],
    )
    scores = score([Example(predicted, gold)])
    assert scores["ents_confusion"]["city"] == {"city": 2}  # the predicted tokens New and York
    assert scores["ents_f"] == scores["ents_f_level_2"] == 1.0
    assert scores["ents_sent_acc"] == 1.0


@pytest.mark.parametrize("label, cost", [("LOC", 0), ("PERSON", 1), (None, 1)])
def test_misaligned_entities_cost_what_all_of_their_tokens_cost(
    label: str | None, cost: int
) -> None:
    """Berlin is only a part of the predicted token "Berlin2024x", which is the fifth of six. London
    is correct."""
    batch = misaligned_examples(spacy.blank("xx"), 5)
    for eg in batch:
        predicted = [Span(eg.predicted, 2, 3, "LOC")]
        if label is not None:
            predicted.append(Span(eg.predicted, 4, 5, label))
        eg.predicted.set_ents(predicted)
    settings: Any = {"labels": ["LOC", "PERSON"], "scheme": "BILUO"}

    scores = make_cost_scorer(cost=make_hamming_cost())(batch, **settings)
    counts = count_docs(batch, make_hamming_cost(), **settings)

    assert scores["ents_cost"] == pytest.approx(cost / 6)
    assert scores["ents_tag_acc"] == pytest.approx(1 - cost / 6)
    assert sum(scores["ents_confusion"]["LOC"].values()) == 10
    assert scores["ents_sent_acc"] == 0  # in F, Berlin is missed even if the token is predicted
    assert counts.cost.tolist() == [cost] * 5
    assert counts.tokens.tolist() == [6] * 5
    assert counts.fn.tolist() == [1] * 5


def example_of_misaligned_entities(*tags: str | None) -> Example:
    """The reference has the tokens New, York, -a, b, c, x and y with these tags. In the predicted
    doc, "York-a" and "xy" are one token."""
    reference = Doc(
        VOCAB,
        words=["New", "York", "-a", "b", "c", "x", "y"],
        spaces=[True, False, True, True, True, False, False],
        ents=list(tags),  # type: ignore[arg-type]
    )
    return Example(Doc(VOCAB, words=["New", "York-a", "b", "c", "xy"]), reference)


def test_a_token_of_two_misaligned_entities_belongs_to_the_first() -> None:
    """The token "York-a" is in New York and in "-a b", and "xy" in "x" and "y". "c" is aligned."""
    first = example_of_tags(predicted="O", gold="B-country")
    tags = ["B-city", "I-city", "B-country", "I-country", "B-city", "B-city", "B-country"]

    pairs = compare_tags([first, example_of_misaligned_entities(*tags)], labels=LABELS)

    names = [pairs.tags.names[tag] for tag in pairs.gold]
    assert names == ["U-country", "B-city", "L-city", "U-country", "U-city", "U-city"]
    assert pairs.misaligned.as_tuples() == [(1, 3, 0), (3, 4, 1), (5, 6, 0)]


def test_a_misaligned_entity_counts_although_a_part_of_its_token_is_not_annotated() -> None:
    """The first doc has no annotation but of "x". In the second, the token "xy" has none at
    "y"."""
    without = [None] * 5
    only_x = example_of_misaligned_entities(*without, "B-city", None)
    only_outside = example_of_misaligned_entities(*without, "O", None)

    counts = count_docs([only_x, only_outside], HIERARCHICAL, labels=LABELS)

    assert counts.cost.tolist() == [4, 0]
    assert counts.tokens.tolist() == [1, 0]


def test_of_two_predicted_entities_in_one_gold_token_one_is_right() -> None:
    """tp 1, fp 1, fn 0"""
    predicted = Doc(VOCAB, words=["New", "York"], ents=["B-city", "B-city"])
    gold = Doc(VOCAB, words=["New York"], ents=["B-city"])
    scores = score([Example(predicted, gold)])
    assert scores["ents_f"] == scores["ents_f_level_2"] == pytest.approx(2 / 3)
    assert scores["ents_sent_acc"] == 0.0


def test_gold_of_a_label_that_the_component_lacks_counts_as_missed() -> None:
    batch = [example_of_tags(predicted="O B-city", gold="B-country O")]
    scores = make_cost_scorer(cost=make_zero_one_cost())(batch, labels=["city"])
    assert scores["ents_cost"] == 1.0  # each of the two tokens has a wrong tag, which costs 1
    assert scores["ents_confusion"] == {"country": {"O": 1}, "O": {"city": 1}}


def test_a_label_of_gold_that_the_tree_of_the_cost_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"HierarchicalCost: tree: .* none for 'planet'"):
        score([example_of_tags(predicted="O", gold="B-planet")])


@pytest.mark.parametrize(
    "tree, message",
    [({"country": {}}, ".* none for 'city'"), ("no.json", r"no\.json")],
    ids=["without a label", "no such file"],
)
def test_a_tree_of_the_scorer_that_does_not_fit_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"cost_scorer: tree: {message}"):
        score(EXAMPLES, tree=tree)


TOP = {"top": {"LOC": {}, "PERSON": {}}, "sports-team": {}}
COST = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TOP}
SCORER = {"@scorers": "spacy_costner.cost_scorer.v1", "tree": TOP, "cost": COST}


@pytest.fixture(scope="module")
def trained() -> Language:
    """A pipeline that has learned TRAIN, with a scorer and confidences."""
    fix_random_seed(0)
    confidence = {"@misc": "spacy_costner.Confidence.v1"}
    nlp = pipeline(scorer=SCORER, scheme="IOB2", confidence=confidence)
    train(nlp)
    return nlp


def test_a_component_is_evaluated_by_the_scorer_of_its_config(trained: Language) -> None:
    scores = trained.evaluate(examples(trained))
    names = ("ents_f", "ents_tag_acc", "ents_sent_acc", "ents_f_level_1", "ents_f_level_2")
    assert {scores[name] for name in names} == {1.0}
    assert scores["ents_cost"] == 0.0 < scores["ents_ece"] < 1
    assert sum(row["n"] for row in scores["ents_reliability"]) > 0
    json.dumps(scores)


def test_the_ner_of_spacy_can_have_the_scorer() -> None:
    nlp = spacy.blank("xx")
    nlp.add_pipe("ner", config={"scorer": SCORER})
    nlp.initialize(lambda: examples(nlp))
    assert nlp.evaluate(examples(nlp))["ents_cost"] >= 0


@pytest.fixture
def corpus(trained: Language, tmp_path: Path) -> Path:
    """The docs of TRAIN, which have 16 tokens, a doc without annotation, and one of 3 tokens with a
    mistake."""
    docs = [eg.reference for eg in examples(trained)]
    unannotated = trained.make_doc("London")
    mistaken = trained.make_doc("I like London")
    mistaken.set_ents([Span(mistaken, 2, 3, "sports-team")])
    path = tmp_path / "corpus.spacy"
    DocBin(docs=[*docs, unannotated, mistaken]).to_disk(path)
    return path


def test_spacy_evaluate_writes_all_scores(trained: Language, corpus: Path, capsys: Any) -> None:
    model = corpus.parent / "model"
    output = corpus.parent / "scores.json"
    trained.to_disk(model)

    evaluate(str(model), corpus, output, silent=False)

    assert "NER F" in capsys.readouterr().out
    scores = json.loads(output.read_text())
    # In the tree LOC is 3 edges from sports-team: up to top, to the root, and down.
    assert scores["ents_cost"] == pytest.approx(3 / 19)
    assert scores["ents_confusion"]["sports-team"] == {"LOC": 1, "sports-team": 2}
    assert 0 < scores["ents_f_level_1"] <= 1
