"""Tests of `tune`: the scores with each threshold or bias, which one is chosen, and where it is
written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.training import Example

from spacy_costner.workflows.calibration import tuning as tuning_module
from spacy_costner.workflows.calibration.tuning import (
    TUNABLE,
    OperatingPoint,
    choose_by_folds,
    choose_point,
    tune,
    use_decoding,
)
from spacy_costner.workflows.config.aims import parse_aim

from ...support.pipelines import TEXTS, ents, examples, load, misaligned_examples

POINTS = [
    OperatingPoint(0.1, precision=0.5, recall=0.9),
    OperatingPoint(0.3, precision=0.7, recall=0.7),
    OperatingPoint(0.5, precision=0.8, recall=0.7),
    OperatingPoint(0.9, precision=0.9, recall=0.2),
    OperatingPoint(0.99, precision=1.0, recall=0.0),  # nothing is predicted
]


@pytest.mark.parametrize(
    ("aim", "best_value"),
    [
        ({}, 0.5),  # the highest F1
        ({"beta": 3.0}, 0.1),  # recall counts more
        ({"beta": 0.1}, 0.9),  # precision counts more
        ({"precision": 0.7}, 0.5),  # 0.3, 0.5 and 0.9 reach it; of equal recall, the more precise
        ({"precision": 0.85}, 0.9),
        ({"recall": 0.7}, 0.5),
        ({"recall": 0.8}, 0.1),
        ({"precision": 0.0}, 0.1),  # all reach it: the highest recall
        ({"recall": 0.0}, 0.9),  # all reach it: the highest precision of any prediction
    ],
)
def test_the_point_that_is_best_for_the_aim_is_chosen(aim: Any, best_value: float) -> None:
    """If a precision is required, it is the point of `POINTS` with the best recall among those that
    have it, and the other way round."""
    assert choose_point(POINTS, **aim).value == best_value


def test_f_scores_by_hand() -> None:
    """F1 is 2 P R / (P + R), and F2 is 5 P R / (4 P + R). Both are 0 if P or R is 0."""
    point = OperatingPoint(0.1, precision=0.5, recall=0.9)
    assert point.f_score() == pytest.approx(2 * 0.5 * 0.9 / (0.5 + 0.9))
    assert point.f_score(beta=2) == pytest.approx(5 * 0.5 * 0.9 / (4 * 0.5 + 0.9))
    assert OperatingPoint(1.0, precision=1.0, recall=0.0).f_score() == 0.0
    assert OperatingPoint(1.0, precision=0.0, recall=0.0).f_score() == 0.0


def test_aims_are_read_from_options() -> None:
    assert parse_aim("f") == {}
    assert parse_aim("recall=0.8") == {"recall": 0.8}
    assert parse_aim("precision=0.9") == {"precision": 0.9}


@pytest.mark.parametrize("text", ["fast", "recall=2", "recall", "f=0.9", "precision=x"])
def test_what_is_no_aim_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`tune`: expected f, precision=0.9 or .*, got '" + text):
        parse_aim(text)


@pytest.mark.parametrize(
    ("aim", "message"),
    [
        ({"precision": 0.95}, r"precision: expected at most 0\.9000"),
        (
            {"recall": 1.0},
            r"recall: expected at most 0\.9000, the highest value on these docs, got 1",
        ),
        (
            {"precision": 0.5, "recall": 0.5},
            "`precision`, `recall`: expected only one of them, got both",
        ),
    ],
)
def test_aims_that_no_point_can_reach_are_refused(aim: Any, message: str) -> None:
    """The highest precision of `POINTS` with predictions is 0.9, and so is the highest recall."""
    with pytest.raises(ValueError, match=message):
        choose_point(POINTS, **aim)


@pytest.mark.parametrize("aim", [{"precision": 0.9}, {"recall": 0.0}])
def test_aims_are_refused_if_nothing_is_ever_predicted(aim: Any) -> None:
    (score,) = aim
    message = f"{score}: expected a value of the parameter with predicted entities, got none"
    with pytest.raises(ValueError, match=message):
        choose_point(POINTS[-1:], **aim)


def test_the_highest_score_in_the_error_can_be_required() -> None:
    """It is rounded down: 2/3 isn't 0.6667."""
    points = [OperatingPoint(0.5, precision=2 / 3, recall=0.5)]
    with pytest.raises(ValueError, match=r"expected at most 0\.6666, .*, got 0\.6667"):
        choose_point(points, precision=0.6667)
    assert choose_point(points, precision=0.6666) == points[0]


def test_folds_without_entities_outside_do_not_choose() -> None:
    """All entities are in the first of the five folds, so all values are equal for the other docs.
    In the folds that have these entities outside, the first value is the best one."""
    values = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    counts = numpy.zeros((11, 10, 3), dtype="int64")  # correct, predicted and annotated entities
    counts[0, :2] = [4, 4, 4]
    counts[1:, :2] = [1, 1, 4]
    fold_of_doc = numpy.repeat(numpy.arange(5), 2)

    index, held_out = choose_by_folds(values, counts, fold_of_doc)

    assert index == 0
    assert held_out.value == 0.0


def test_a_precision_is_not_reached_by_predicting_nothing(unsure: Path) -> None:
    """Half of the docs have no entities, but entities are predicted in them, so half of the
    predicted entities are wrong. With the lowest bias, nothing is predicted."""
    nlp = load(unsure)
    dev: list[Example] = []
    for eg in examples(nlp):
        dev += [eg, Example.from_dict(nlp.make_doc(f"{eg.text} ."), {"entities": []})]
    decoding = dict(nlp.get_pipe("ner").cfg["decoding"])

    with pytest.raises(ValueError, match=r"precision: expected at most 0\.5000, .*, got 0\.9"):
        tune(nlp, dev, parameter="bias", precision=0.9)

    assert nlp.get_pipe("ner").cfg["decoding"] == decoding


def test_unknown_parameters_and_docs_without_entities_are_refused(unsure: Path) -> None:
    nlp = load(unsure)
    with pytest.raises(ValueError, match=r"expected threshold or bias, .* got 'volume'"):
        tune(nlp, examples(nlp), parameter="volume")
    without_entities = Example.from_dict(nlp.make_doc("a b"), {"entities": []})
    with pytest.raises(ValueError, match="with entities, got none"):
        tune(nlp, [without_entities])


SCORES_OF_TRAINING = {"ents_f": 0.001, "ents_per_type": {}, "ner_loss": 7.0}
"""In the meta of a pipeline before it is tuned."""


@pytest.mark.parametrize("parameter", TUNABLE)
def test_tune_puts_the_new_scores_in_the_meta(unsure: Path, parameter: str) -> None:
    """They replace the scores of training. The loss stays. With an aim other than F, here a recall
    of 0.01, the previous decoding isn't kept, regardless of its F."""
    nlp = load(unsure)
    nlp.meta["performance"] = {**SCORES_OF_TRAINING}
    dev = iter(examples(nlp))

    tuning = tune(nlp, dev, parameter=parameter, recall=0.01, source="dev.spacy")

    performance = nlp.meta["performance"]
    scores = nlp.evaluate(examples(nlp))
    assert performance["ents_f"] == pytest.approx(tuning.chosen.f_score())
    assert performance["ents_per_type"] == scores["ents_per_type"]
    assert performance["measured_on"] == {"source": "dev.spacy", "docs": len(TEXTS)}
    assert performance["ner_loss"] == 7.0


@pytest.mark.parametrize("parameter", TUNABLE)
def test_the_chosen_value_is_saved(unsure: Path, tmp_path: Path, parameter: str) -> None:
    """It is saved in the component and in the config, so that a pipeline that is trained anew has
    it, too."""
    nlp = load(unsure)
    tuning = tune(nlp, examples(nlp), parameter=parameter, recall=0.01)
    entities = [ents(nlp(text)) for text in TEXTS]

    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    of_the_config = spacy.blank("xx").from_config(nlp.config)

    assert nlp.get_pipe("ner").cfg["decoding"][parameter] == tuning.chosen.value
    for copy in (loaded, of_the_config):
        decoding = copy.config["components"]["ner"]["decoding"]
        assert decoding["@misc"] == TUNABLE[parameter].decoding
        assert decoding[parameter] == tuning.chosen.value
        assert copy.get_pipe("ner").cfg["decoding"][parameter] == tuning.chosen.value
    assert [ents(loaded(text)) for text in TEXTS] == entities
    assert any(entities)


@pytest.mark.parametrize("parameter", TUNABLE)
def test_points_are_what_the_pipeline_scores(unsure: Path, parameter: str) -> None:
    """The value of a point is set, and the pipeline is evaluated: for every eleventh point, and for
    the chosen one."""
    nlp = load(unsure)
    tuning = tune(nlp, examples(nlp), parameter=parameter, recall=0.01)

    assert [point.value for point in tuning.points] == TUNABLE[parameter].values.round(4).tolist()
    assert len({point.recall for point in tuning.points}) > 1
    decoding = nlp.get_pipe("ner").cfg["decoding"]
    for point in [*tuning.points[::11], tuning.chosen]:
        decoding[parameter] = point.value
        scores = nlp.evaluate(examples(nlp))
        assert point.recall == pytest.approx(scores["ents_r"])
        assert point.f_score() == pytest.approx(scores["ents_f"])


@pytest.mark.parametrize("parameter", [None, "threshold"])
def test_a_better_decoding_is_kept_unless_the_parameter_is_named(
    unsure: Path, parameter: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tune` usually chooses the threshold with the best F. Here it chooses the highest one, whose
    F is below the F of the previous decoding, the most probable path. It is set only if the user
    has named the threshold as the parameter to tune."""

    def choose_highest(points: Sequence[OperatingPoint], *aim: float | None) -> OperatingPoint:
        return points[-1]

    monkeypatch.setattr(tuning_module, "choose_point", choose_highest)
    nlp = load(unsure)
    decoding_before = nlp.get_pipe_config("ner")["decoding"]
    f_before = nlp.evaluate(examples(nlp))["ents_f"]

    tuning = tune(nlp, examples(nlp), parameter=parameter)

    is_named = parameter == "threshold"
    decoding_after = nlp.get_pipe_config("ner")["decoding"]
    f_after = nlp.evaluate(examples(nlp))["ents_f"]
    assert tuning.before.f_score() > tuning.chosen.f_score()
    assert tuning.is_set is is_named
    assert (decoding_after != decoding_before) is is_named
    assert (f_after != f_before) is is_named
    assert ("The threshold wasn't set" not in tuning.as_text()) is is_named


def test_a_decoding_without_the_parameter_is_not_replaced_unasked(unsure: Path) -> None:
    """Decoding by the lowest expected cost has neither a threshold nor a bias. It is only replaced
    if the user names the parameter."""
    min_cost = {
        "@misc": "spacy_costner.MinCostDecoding.v1",
        "cost": {"@misc": "spacy_costner.HammingCost.v1"},
    }
    nlp = load(unsure)
    use_decoding(nlp, nlp.get_pipe("ner"), min_cost)

    with pytest.raises(ValueError, match=r"to replace .*MinCostDecoding.v1 in .*, got None"):
        tune(nlp, examples(nlp))
    assert nlp.config["components"]["ner"]["decoding"] == min_cost

    tuning = tune(nlp, examples(nlp), parameter="bias")
    assert tuning.parameter == "bias"
    assert nlp.config["components"]["ner"]["decoding"]["@misc"] == TUNABLE["bias"].decoding


MISALIGNED = "4 of 8 entities don't begin and end with tokens of the pipeline"


@pytest.mark.parametrize("parameter", TUNABLE)
def test_misaligned_entities_are_missed_as_in_spacy(unsure: Path, parameter: str) -> None:
    """A predicted entity with the token of a misaligned entity is wrong."""
    nlp = load(unsure)
    batch = misaligned_examples(nlp, 4)
    with pytest.raises(ValueError, match=rf"at most 0\.5000, the highest .* {MISALIGNED}"):
        tune(nlp, batch, parameter=parameter, recall=0.9)

    tuning = tune(nlp, batch, parameter=parameter, recall=0.01)

    assert tuning.notes[0].startswith(MISALIGNED)
    decoding = nlp.get_pipe("ner").cfg["decoding"]
    n_wrong = 0
    for point in [*tuning.points[::11], tuning.chosen]:
        decoding[parameter] = point.value
        scores = nlp.evaluate(misaligned_examples(nlp, 4))
        assert point.recall == pytest.approx(scores["ents_r"])
        assert point.f_score() == pytest.approx(scores["ents_f"])
        n_wrong += point.precision < 1
    assert n_wrong > 0


def test_docs_with_only_misaligned_entities_are_refused(unsure: Path) -> None:
    nlp = load(unsure)
    only_misaligned = misaligned_examples(nlp, 1)
    berlin = only_misaligned[0].reference.ents[1:]
    only_misaligned[0].reference.set_ents([*berlin])

    with pytest.raises(ValueError, match=r"with entities, got none\. 1 of 1 entities don't begin"):
        tune(nlp, only_misaligned)
