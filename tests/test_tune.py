"""Thresholds and biases: their scores, which one is chosen, where it is written."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.training import Example

from spacy_costner.analysis.tuning import (
    TUNABLE,
    Point,
    choose_point,
    parse_aim,
    tune,
    use_decoding,
)

from .support.pipelines import TEXTS, ents, examples, load

POINTS = [
    Point(0.1, precision=0.5, recall=0.9),
    Point(0.3, precision=0.7, recall=0.7),
    Point(0.5, precision=0.8, recall=0.7),
    Point(0.9, precision=0.9, recall=0.2),
]


@pytest.mark.parametrize(
    ("aim", "value"),
    [
        ({}, 0.5),
        ({"beta": 3.0}, 0.1),
        ({"beta": 0.1}, 0.9),
        ({"precision": 0.7}, 0.5),
        ({"precision": 0.85}, 0.9),
        ({"recall": 0.7}, 0.5),
        ({"recall": 0.8}, 0.1),
        ({"precision": 0.0}, 0.1),
    ],
)
def test_the_best_setting(aim: Any, value: float) -> None:
    assert choose_point(POINTS, **aim).value == value


def test_f_scores_and_aims_by_hand() -> None:
    assert POINTS[0].f_score() == pytest.approx(2 * 0.5 * 0.9 / 1.4)
    assert POINTS[0].f_score(beta=2) == pytest.approx(5 * 0.5 * 0.9 / (4 * 0.5 + 0.9))
    assert Point(1.0, 1.0, 0.0).f_score() == 0.0 == Point(1.0, 0.0, 0.0).f_score()
    assert [*map(parse_aim, ("f", "recall=0.8"))] == [{}, {"recall": 0.8}]
    assert parse_aim("precision=0.9") == {"precision": 0.9}
    for text in ("fast", "recall=2", "recall", "f=0.9", "precision=x"):
        with pytest.raises(ValueError, match="expected f, precision=0"):
            parse_aim(text)


def test_what_cannot_be_tuned_is_said(unsure: Path) -> None:
    for aim, message in (
        ({"precision": 0.95}, r"precision: expected 0\.9000 or less"),
        ({"recall": 1.0}, r"recall: expected 0\.9000 or less, the highest value found, got 1"),
        ({"precision": 0.5, "recall": 0.5}, "got both"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_point(POINTS, **aim)
    nlp = load(unsure)
    with pytest.raises(ValueError, match=r"expected threshold or bias, .* got 'volume'"):
        tune(nlp, examples(nlp), parameter="volume")
    with pytest.raises(ValueError, match="with entities, got none"):
        tune(nlp, [Example.from_dict(nlp.make_doc("a b"), {"entities": []})])


@pytest.mark.parametrize("parameter", TUNABLE)
def test_points_are_what_the_pipeline_scores(unsure: Path, tmp_path: Path, parameter: str) -> None:
    """The chosen value is saved, in the config, too, and the scores are in the meta."""
    nlp = load(unsure)
    nlp.meta["performance"] = {"ents_f": 0.001, "ents_per_type": {}, "ner_loss": 7.0}
    block, values = TUNABLE[parameter]
    batch = iter(examples(nlp))
    tuning = tune(nlp, batch, parameter=parameter, recall=0.01, source="dev.spacy")
    performance, scores = nlp.meta["performance"], nlp.evaluate(examples(nlp))
    assert performance["ents_f"] == pytest.approx(tuning.chosen.f_score())
    assert performance["ents_per_type"] == scores["ents_per_type"]
    assert performance["measured_on"] == {"source": "dev.spacy", "docs": len(TEXTS)}
    assert performance["ner_loss"] == 7.0
    assert [point.value for point in tuning.points] == values.round(4).tolist()
    assert len({point.recall for point in tuning.points}) > 1
    expected = [ents(nlp(text)) for text in TEXTS]
    nlp.to_disk(tmp_path)
    for copy in (spacy.load(tmp_path), spacy.blank("xx").from_config(nlp.config)):
        decoding = copy.config["components"]["ner"]["decoding"]
        assert decoding["@misc"] == block and decoding[parameter] == tuning.chosen.value
        assert copy.get_pipe("ner").cfg["decoding"][parameter] == tuning.chosen.value
    assert [ents(spacy.load(tmp_path)(text)) for text in TEXTS] == expected
    ner = nlp.get_pipe("ner")
    assert ner.cfg["decoding"][parameter] == tuning.chosen.value
    for point in [*tuning.points[::11], tuning.chosen]:
        ner.cfg["decoding"][parameter] = point.value
        scores = nlp.evaluate(examples(nlp))
        assert point.recall == pytest.approx(scores["ents_r"])
        assert point.f_score() == pytest.approx(scores["ents_f"])


def test_a_decoding_without_the_parameter_is_not_replaced_unasked(unsure: Path) -> None:
    min_cost = {
        "@misc": "spacy_costner.MinCostDecoding.v1",
        "cost": {"@misc": "spacy_costner.HammingCost.v1"},
    }
    nlp = load(unsure)
    use_decoding(nlp, nlp.get_pipe("ner"), min_cost)
    with pytest.raises(ValueError, match=r"to replace .*MinCostDecoding.v1 in .*, got None"):
        tune(nlp, examples(nlp))
    assert nlp.config["components"]["ner"]["decoding"] == min_cost
    assert tune(nlp, examples(nlp), parameter="bias").parameter == "bias"
    assert nlp.config["components"]["ner"]["decoding"]["@misc"] == TUNABLE["bias"].decoding
