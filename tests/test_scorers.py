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

from spacy_costner.costs.tables import make_hierarchical_cost, make_zero_one_cost
from spacy_costner.pipeline.scorers import count_docs, make_confidence_scorer, make_cost_scorer

from .support.pipelines import examples, pipeline, train

TREE = {"place": {"city": {}, "country": {}}, "sports-team": {}}
LABELS = ["city", "country", "sports-team"]
HIERARCHICAL = make_hierarchical_cost(tree=TREE)
VOCAB = spacy.blank("xx").vocab


def example(predicted: list[str], gold: list[str]) -> Example:
    """An example of as many tokens as tags; "-" is missing."""
    words = [f"w{i}" for i in range(len(gold))]
    missing = [None if tag == "-" else tag for tag in gold]
    return Example(
        Doc(VOCAB, words=words, ents=predicted),
        Doc(VOCAB, words=words, ents=missing),  # type: ignore[arg-type]
    )


EXAMPLES = [
    example(["B-city", "O", "B-country", "I-country"], ["B-city", "O", "B-country", "I-country"]),
    example(["B-country", "O", "O"], ["B-city", "O", "B-sports-team"]),
    example(["B-city", "I-city", "O"], ["B-city", "O", "O"]),
]


def score(
    examples: list[Example], confidence: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    scorer = make_cost_scorer(**{"cost": HIERARCHICAL, "tree": TREE, **settings})
    return scorer(examples, labels=LABELS, scheme="BILUO", confidence=confidence)


def test_scores_counted_by_hand() -> None:
    scorer = make_cost_scorer(cost=HIERARCHICAL, tree=TREE)
    scores = scorer(EXAMPLES, labels=LABELS, scheme="BILUO")
    assert pickle.loads(pickle.dumps(scorer))(EXAMPLES, labels=LABELS, scheme="BILUO") == scores
    assert {key: scores[key] for key in get_ner_prf([])} == get_ner_prf(EXAMPLES)
    # Of ten tokens one has its label's sibling (2 edges), one is missed and one is a false
    # alarm (4 each, 3 edges being the farthest).
    assert scores["ents_cost"] == pytest.approx((2 + 4 + 4) / 10)
    # The three, and a U-city that is predicted B-city. In IOB2 that is right.
    assert scores["ents_tag_acc"] == pytest.approx(6 / 10)
    assert scorer(EXAMPLES, labels=LABELS, scheme="IOB2")["ents_tag_acc"] == pytest.approx(7 / 10)
    assert scores["ents_sent_acc"] == pytest.approx(1 / 3)
    # tp 2, fp 2, fn 3; on top city for country is right.
    assert scores["ents_f"] == pytest.approx(2 * 2 / (2 * 2 + 2 + 3))
    assert scores["ents_f_level_2"] == pytest.approx(scores["ents_f"])
    assert scores["ents_f_level_1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert scores["ents_confusion"] == {
        "city": {"city": 2, "country": 1},
        "country": {"country": 2},
        "sports-team": {"O": 1},
        "O": {"city": 1, "O": 3},
    }


def test_confidence_counted_by_hand() -> None:
    words = ["a", "b", "c", "d"]
    predicted = Doc(VOCAB, words=words, ents=["B-city", "O", "B-city", "B-city"])
    gold = Doc(VOCAB, words=words, ents=["B-city", "O", "O", None])  # type: ignore[list-item]
    attrs = {"scores": [0.9, 0.7, 0.1]}
    predicted.spans["sure"] = SpanGroup(predicted, attrs=attrs, spans=predicted.ents)
    batch = [Example(predicted, gold), *EXAMPLES]
    scorer = make_confidence_scorer()
    scores = scorer(batch, confidence={"spans_key": "sure"}, labels=LABELS)
    # The third is in a token that is not annotated; the other docs have no confidence.
    assert scores["ents_ece"] == pytest.approx((0.1 + 0.7) / 2)
    rows = [row for row in scores["ents_reliability"] if row["n"]]
    assert [(row["n"], row["confidence"], row["right"]) for row in rows] == [
        (1, pytest.approx(0.7), 0.0),
        (1, pytest.approx(0.9), 1.0),
    ]
    assert scores["ents_f"] == get_ner_prf(batch)["ents_f"]
    with_cost = score(batch, confidence={"spans_key": "sure"})
    assert with_cost["ents_ece"] == scores["ents_ece"] and "ents_cost" in with_cost
    without = scorer(batch, confidence={"spans_key": "sure"}, labels=["country"])
    assert without["ents_ece"] is None
    assert scorer(batch)["ents_ece"] is None and "ents_ece" not in score(batch)


PARTIAL = example(["B-city", "B-city", "O"], ["-", "O", "O"])
UNANNOTATED = example(["B-city"], ["-"])
EMPTY = Example(Doc(VOCAB), Doc(VOCAB))


def test_docs_are_counted_as_they_are_scored() -> None:
    some = [UNANNOTATED, *EXAMPLES, EMPTY, PARTIAL]
    counts, scores = count_docs(some, HIERARCHICAL, labels=LABELS), score(some)
    assert counts.tp.tolist() == [2, 0, 0, 0]
    assert counts.fp.tolist() == [0, 1, 1, 1]
    assert counts.fn.tolist() == [0, 2, 1, 0]
    assert counts.cost.tolist() == [0, 2 + 4, 4, 4]
    assert counts.tokens.tolist() == [4, 3, 3, 2]
    assert counts.cost.sum() / counts.tokens.sum() == pytest.approx(scores["ents_cost"])
    assert scores["ents_f"] == pytest.approx(2 * 2 / (2 * 2 + 3 + 3))
    assert scores["ents_sent_acc"] == pytest.approx(1 / 4)


def test_what_is_missing_does_not_count() -> None:
    """Docs without entities have no F, but a cost."""
    scores = score([PARTIAL, UNANNOTATED, EMPTY])
    assert scores["ents_cost"] == pytest.approx(4 / 2)
    assert scores["ents_sent_acc"] == 0.0
    assert scores["ents_confusion"] == {"O": {"city": 1, "O": 1}}
    assert score([example(["B-city", "O"], ["-", "O"])])["ents_sent_acc"] == 1.0
    scores = score([example(["O", "O"], ["O", "O"])])
    assert scores["ents_f_level_1"] is None and scores["ents_f"] is None
    assert (scores["ents_cost"], scores["ents_tag_acc"], scores["ents_sent_acc"]) == (0, 1, 1)


@pytest.mark.parametrize("examples", [[], [UNANNOTATED], [EMPTY]])
def test_nothing_to_score_is_none(examples: list[Example]) -> None:
    scores = score(examples)
    assert set(scores) == {
        *("ents_p", "ents_r", "ents_f", "ents_per_type", "ents_cost", "ents_tag_acc"),
        *("ents_confusion", "ents_sent_acc", "ents_f_level_1", "ents_f_level_2"),
    }
    assert set(scores.values()) == {None}


def test_other_tokens_are_aligned() -> None:
    words, spaces = ["New", "York", "beats", "Fiji", "Inc"], [True, True, True, False, False]
    ents = ["B-city", "I-city", "O", "B-country", "O"]
    predicted = Doc(VOCAB, words=words, spaces=spaces, ents=ents)
    words, spaces = ["New York", "be", "ats", "FijiInc"], [True, False, True, False]
    gold = Doc(VOCAB, words=words, spaces=spaces, ents=["B-city", "O", "O", "B-country"])
    scores = score([Example(predicted, gold)])
    assert scores["ents_confusion"]["city"] == {"city": 2}
    assert scores["ents_f"] == scores["ents_f_level_2"] == 1.0
    assert scores["ents_sent_acc"] == 1.0


def test_entities_that_answer_one_token_twice_are_right_once() -> None:
    predicted = Doc(VOCAB, words=["New", "York"], ents=["B-city", "B-city"])
    gold = Doc(VOCAB, words=["New York"], ents=["B-city"])
    scores = score([Example(predicted, gold)])
    assert scores["ents_f"] == scores["ents_f_level_2"] == pytest.approx(2 / 3)
    assert scores["ents_sent_acc"] == 0.0


def test_labels_of_the_docs_alone_are_wrong_answers() -> None:
    other = [example(["O", "B-city"], ["B-country", "O"])]
    scores = make_cost_scorer(cost=make_zero_one_cost())(other, labels=["city"])
    assert scores["ents_cost"] == 1.0
    assert scores["ents_confusion"] == {"country": {"O": 1}, "O": {"city": 1}}
    with pytest.raises(ValueError, match=r"HierarchicalCost: tree: .* none for 'planet'"):
        score([example(["O"], ["B-planet"])])
    for tree, message in (({"country": {}}, ".* none for 'city'"), ("no.json", r"no\.json")):
        with pytest.raises(ValueError, match=f"cost_scorer: tree: {message}"):
            score(EXAMPLES, tree=tree)


TOP = {"top": {"LOC": {}, "PERSON": {}}, "sports-team": {}}
COST = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TOP}
SCORER = {"@scorers": "spacy_costner.cost_scorer.v1", "tree": TOP, "cost": COST}


@pytest.fixture(scope="module")
def trained() -> Language:
    fix_random_seed(0)
    confidence = {"@misc": "spacy_costner.Confidence.v1"}
    nlp = pipeline(scorer=SCORER, scheme="IOB2", confidence=confidence)
    train(nlp)
    return nlp


def test_a_trained_component_scores_itself(trained: Language) -> None:
    scores = trained.evaluate(examples(trained))
    names = ("ents_f", "ents_tag_acc", "ents_sent_acc", "ents_f_level_1", "ents_f_level_2")
    assert {scores[name] for name in names} == {1.0}
    assert scores["ents_cost"] == 0.0 < scores["ents_ece"] < 1
    assert sum(row["n"] for row in scores["ents_reliability"]) > 0
    json.dumps(scores)


def test_spacys_own_ner_can_be_scored() -> None:
    nlp = spacy.blank("xx")
    nlp.add_pipe("ner", config={"scorer": SCORER})
    nlp.initialize(lambda: examples(nlp))
    assert nlp.evaluate(examples(nlp))["ents_cost"] >= 0


@pytest.fixture
def corpus(trained: Language, tmp_path: Path) -> Path:
    docs = [eg.reference for eg in examples(trained)]
    unannotated = trained.make_doc("London")
    other = trained.make_doc("I like London")
    other.set_ents([Span(other, 2, 3, "sports-team")])
    path = tmp_path / "corpus.spacy"
    DocBin(docs=[*docs, unannotated, other]).to_disk(path)
    return path


def test_spacy_evaluate_writes_all_scores(trained: Language, corpus: Path, capsys: Any) -> None:
    model, output = corpus.parent / "model", corpus.parent / "scores.json"
    trained.to_disk(model)
    evaluate(str(model), corpus, output, silent=False)
    assert "NER F" in capsys.readouterr().out
    scores = json.loads(output.read_text())
    assert scores["ents_cost"] == pytest.approx(3 / 19)
    assert scores["ents_confusion"]["sports-team"] == {"LOC": 1, "sports-team": 2}
    assert 0 < scores["ents_f_level_1"] <= 1
