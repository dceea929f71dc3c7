"""Tests of calibration: the derivatives of the loss, the temperature that is found, and what a
calibrated pipeline writes."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import spacy
from hypothesis import given
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_costner import chain
from spacy_costner.decoding import Posterior, Temperature, make_viterbi, temper
from spacy_costner.tags import Tags
from spacy_costner.types import map_scores
from spacy_costner.workflows.apply.batches import annotate_texts
from spacy_costner.workflows.calibration import temperature as module
from spacy_costner.workflows.calibration.temperature import (
    Calibration,
    JudgedEntities,
    calibrate,
    find_loss,
    fit_temperature,
    in_float64,
    make_temperature,
    predict_best,
)
from spacy_costner.workflows.calibration.tuning import tune, use_decoding
from spacy_costner.workflows.evaluation.predictions import (
    DevPredictions,
    evaluate_dev,
    predict_dev,
    turn_on_confidence,
)

from ...support.batches import random_potentials
from ...support.pipelines import (
    LISTENING,
    TEXTS,
    ents,
    examples,
    load,
    misaligned_examples,
    pipeline,
)
from ...support.posteriors import columns, posterior, probs_of_entities, rows
from ...support.strategies import seeds


def total_log_loss(posterior: Posterior, logs: Any, entities: Any, is_correct: Any) -> float:
    """The log loss of all entities, at the temperatures with these logarithms: the overall one,
    then those of the labels."""
    temperature = make_temperature(logs, posterior.tags.labels)
    p = posterior.with_temperature(temperature).entity_probs(entities)
    return -float(numpy.log(numpy.where(is_correct, p, 1 - p)).sum())


@given(posterior(), seeds)
def test_slopes_of_the_loss_are_its_central_differences(
    posterior: Posterior, rng: numpy.random.Generator
) -> None:
    """Tested for entities that are neither almost certain nor almost impossible, where differences
    would be lost by rounding."""
    logs = rng.uniform(-0.5, 0.5, size=len(posterior.tags.labels) + 1)
    tempered = posterior.with_temperature(make_temperature(logs, posterior.tags.labels))
    entities = columns(list(probs_of_entities(posterior)))
    probs = tempered.entity_probs(entities)
    entities = entities.select((probs > 1e-3) & (probs < 1 - 1e-3))
    is_correct = rng.uniform(size=len(entities.begin)) < 0.5

    loss, slopes = find_loss(JudgedEntities(tempered, entities, is_correct))

    assert loss == pytest.approx(total_log_loss(posterior, logs, entities, is_correct))
    for i in range(len(logs)):
        step = numpy.zeros(len(logs))
        step[i] = 1e-5
        above = total_log_loss(posterior, logs + step, entities, is_correct)
        below = total_log_loss(posterior, logs - step, entities, is_correct)
        central_difference = (above - below) / (2 * 1e-5)
        assert slopes[i] == pytest.approx(central_difference, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_temperature_at_which_gold_was_drawn_is_found(scheme: str, temperature: float) -> None:
    """The gold tags of 3,000 sequences of 4 tokens are drawn from the distribution of the model at
    a temperature. The entities are from the best paths."""
    tags = Tags(["a", "b"], scheme)
    potentials = random_potentials([4] * 3000, len(tags), scale=3.0, seed=1)
    posterior = Posterior(chain.constrain(potentials, tags.constraints), tags)
    truth = temper(posterior.scores, tags, Temperature(temperature))
    gold_path = chain.sample_paths(truth, 1, numpy.random.default_rng(2))[0]
    gold = set(rows(tags.decode(gold_path, potentials.lengths)))
    predicted = make_viterbi().decode(posterior, make_viterbi().settings).entities
    is_correct = numpy.asarray([entity in gold for entity in rows(predicted)])
    judged = JudgedEntities(posterior, predicted, is_correct)

    overall = fit_temperature([judged], per_label=False)
    by_label = fit_temperature([judged], per_label=True)

    assert overall.overall == pytest.approx(temperature, rel=0.07)
    assert not overall.labels
    expected = {"a": temperature, "b": temperature}
    assert by_label.labels == pytest.approx(expected, rel=0.2)


def made_up_entities(seed: int, n_labels: int) -> JudgedEntities:
    """About 100 predicted entities of sequences with random scores. For some labels all of them are
    right, for some none is."""
    rng = numpy.random.default_rng(seed)
    tags = Tags([chr(97 + i) for i in range(n_labels)], "BILUO")
    potentials = random_potentials([4] * 60, len(tags), scale=rng.uniform(1, 6), seed=seed)
    potentials = map_scores(lambda array: array.astype("float32"), potentials)
    posterior = Posterior(chain.constrain(potentials, tags.constraints), tags)
    predicted = make_viterbi().decode(posterior, make_viterbi().settings).entities
    share_right = rng.choice([0.0, 0.3, 0.9, 1.0], size=n_labels)
    is_correct = rng.uniform(size=len(predicted.begin)) < share_right[predicted.label]
    return JudgedEntities(posterior, predicted, is_correct)


@pytest.mark.parametrize("n_labels", [1, 3, 8])
@pytest.mark.parametrize("seed", range(6))
def test_the_minimum_is_that_of_scipy(seed: int, n_labels: int) -> None:
    """The derivatives there are 0, except for temperatures at their limits, 1/100 and 100, beyond
    which the loss would be even lower."""
    optimize = pytest.importorskip("scipy.optimize")
    judged = made_up_entities(seed, n_labels)
    exact = in_float64(judged.posterior)

    def loss(logs: Any) -> tuple[float, Any]:
        """The loss at these logarithms of temperatures, for SciPy."""
        temperature = make_temperature(logs, exact.tags.labels)
        tempered = exact.with_temperature(temperature)
        value, slopes = find_loss(judged._replace(posterior=tempered))
        # Temperatures of labels are drawn to the overall one by the squares of their differences.
        apart = logs[1:] - logs[0]
        return value + apart @ apart, slopes + 2 * numpy.append(-apart.sum(), apart)

    fitted = fit_temperature([judged], per_label=True)
    logs = numpy.log([fitted.overall, *fitted.labels.values()])
    value, slopes = loss(logs)
    hottest = numpy.log(100)
    limits = [(-hottest, hottest)] * len(logs)
    options = {"ftol": 1e-9, "gtol": 1e-8, "maxiter": 2000}
    starts = [logs, numpy.zeros(len(logs))]
    losses_of_scipy = []
    for start in starts:
        minimum = optimize.minimize(
            loss, start, jac=True, bounds=limits, method="L-BFGS-B", options=options
        )
        losses_of_scipy.append(minimum.fun)
    assert value <= min(losses_of_scipy) + 1e-3
    at_limit = numpy.abs(logs) >= hottest - 1e-9
    assert (numpy.abs(slopes[~at_limit]) < 1e-4).all()
    assert (slopes[at_limit] * numpy.sign(logs[at_limit]) <= 1e-4).all()


def test_a_minimum_that_is_not_reached_is_warned_of() -> None:
    """A single step of the search is too few."""
    judged = made_up_entities(0, 3)
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.warns(UserWarning, match="temperature: expected a gradient below 0.0001 nat, got"),
    ):
        patch.setattr(module, "MAX_STEPS", 1)
        fit_temperature([judged], per_label=True)


def test_calibration_lowers_the_error_and_keeps_the_best_paths(unsure: Path) -> None:
    """All predictions are right, though the model is not sure of them. So calibration makes it
    surer."""
    nlp = load(unsure)
    entities = [ents(nlp(text)) for text in TEXTS]

    result = calibrate(nlp, examples(nlp))

    assert result.error < result.error_before
    assert result.temperature.overall < 1
    assert sum(row["n"] for row in result.reliability) > 0
    assert [ents(nlp(text)) for text in TEXTS] == entities


def test_a_calibrated_pipeline_is_saved_with_its_temperature(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure)
    result = calibrate(nlp, examples(nlp))
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)

    temperature = {"overall": result.temperature.overall, "labels": {}}
    assert nlp.get_pipe("ner").cfg["temperature"] == temperature
    saved = loaded.get_pipe("ner").cfg["temperature"]["overall"]  # of ten digits
    assert saved == pytest.approx(result.temperature.overall, rel=1e-9)
    docs = [loaded(text) for text in TEXTS if text]
    marginals = loaded.get_pipe("ner").posterior(docs).marginals
    expected = nlp.get_pipe("ner").posterior(docs).marginals
    numpy.testing.assert_allclose(marginals, expected, rtol=1e-4, atol=1e-6)
    again = calibrate(loaded, examples(loaded))
    assert again.error_before == pytest.approx(result.error, abs=1e-6)


def test_calibration_changes_what_a_threshold_predicts_and_the_scores_in_the_meta(
    unsure: Path,
) -> None:
    """The model becomes surer, so more entities reach the threshold of 0.99."""
    nlp = load(unsure)
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.99}
    use_decoding(nlp, nlp.get_pipe("ner"), threshold)
    recall_before = nlp.evaluate(examples(nlp))["ents_r"]
    nlp.meta["performance"] = {"ents_r": recall_before}

    calibrate(nlp, iter(examples(nlp)), source="dev.spacy")

    performance = nlp.meta["performance"]
    assert performance["ents_r"] == nlp.evaluate(examples(nlp))["ents_r"] > recall_before
    assert performance["measured_on"] == {"source": "dev.spacy", "docs": len(TEXTS)}


def test_the_calibration_error_is_stored_in_the_meta_if_it_has_a_weight(unsure: Path) -> None:
    nlp = load(unsure, scorer={"@scorers": "spacy_costner.confidence_scorer.v1"})
    nlp.config["training"]["score_weights"] = {"ents_ece": None, "ents_reliability": None}

    result = calibrate(nlp, examples(nlp))

    performance = nlp.meta["performance"]
    assert performance["ents_ece"] == pytest.approx(result.error, abs=1e-6)
    assert len(performance["ents_reliability"]) == 10


def test_where_the_error_rises_the_log_loss_is_said() -> None:
    """The error falls from 0.02 to 0.01 at first, and then rises to 0.03 in its place. The log loss
    falls from 0.5 to 0.25 in both."""
    better = Calibration(
        Temperature(1.2, {}),
        error_before=0.02,
        error=0.01,
        log_loss_before=0.5,
        log_loss=0.25,
        reliability=[],
    )
    reason = "minimises the log loss: 0.5000 -> 0.2500"
    assert reason not in better.as_text()
    assert reason in better._replace(error=0.03).as_text()


def test_the_log_loss_is_that_of_the_temperature(unsure: Path) -> None:
    """It is the mean over predicted entities. Before the calibration the temperature is 1."""
    nlp = load(unsure)
    dev = predict_dev(nlp, nlp.get_pipe("ner"), examples(nlp))
    posterior, entities, is_correct = predict_best(dev)
    result = calibrate(nlp, examples(nlp))
    assert result.log_loss < result.log_loss_before
    log_losses = {1.0: result.log_loss_before, result.temperature.overall: result.log_loss}
    for temperature, log_loss in log_losses.items():
        total = total_log_loss(posterior, numpy.log([temperature]), entities, is_correct)
        assert log_loss == pytest.approx(total / len(is_correct), rel=1e-4)


def test_a_calibrated_pipeline_writes_confidences(unsure: Path, tmp_path: Path) -> None:
    """They are in docs, and in the output of `annotate`."""
    nlp = load(unsure)
    calibrate(nlp, examples(nlp))
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)

    doc = loaded(TEXTS[1])
    answer = next(annotate_texts(loaded, [0], TEXTS[1:]))

    confidences = [ent._.confidence for ent in doc.ents]
    assert confidences == list(doc.spans["confidence"].attrs["scores"])
    assert all(confidences)
    assert [entity["score"] for entity in answer["entities"]] == pytest.approx(confidences)


def test_two_calibrated_components_write_to_different_keys(unsure: Path) -> None:
    """A component that already writes confidences keeps its key."""
    nlp = load(unsure)
    calibrate(nlp, examples(nlp))
    calibrate(nlp, examples(nlp))

    nlp.add_pipe("ner", "other", source=load(unsure), first=True)
    calibrate(nlp, examples(nlp), name="other")

    assert nlp.get_pipe("ner").confidence.spans_key == "confidence"
    assert nlp.get_pipe("other").confidence.spans_key == "other_confidence"


@pytest.mark.filterwarnings("ignore:other. doc.spans")
def test_the_first_of_two_components_keeps_its_key(unsure: Path) -> None:
    """Both have the default key, to which the first one writes. When the second one is calibrated,
    it gets another key, and a note names it."""
    nlp = load(unsure)
    nlp.add_pipe("ner", "other", source=load(unsure))
    other: Any = nlp.get_pipe("other")

    result = calibrate(nlp, examples(nlp))

    assert nlp(TEXTS[1]).spans["confidence"].attrs["component"] == "ner"
    assert not any("doc.spans" in note for note in result.notes)
    note = (
        "other now writes probabilities to doc.spans['other_confidence'], because ner writes to "
        "'confidence'"
    )
    assert turn_on_confidence(nlp, other) == [note]
    assert nlp(TEXTS[1]).spans["confidence"].attrs["component"] == "ner"
    assert nlp(TEXTS[1]).spans["other_confidence"].attrs["component"] == "other"
    assert turn_on_confidence(nlp, other) == []


def test_a_component_that_is_not_there_is_refused(unsure: Path) -> None:
    nlp = load(unsure)
    with pytest.raises(ValueError, match=r"cost_sensitive_ner, one of \['ner'\], got 'other'"):
        calibrate(nlp, examples(nlp), name="other")


def test_docs_without_annotation_are_refused(unsure: Path) -> None:
    nlp = load(unsure)
    without = [Example(nlp.make_doc("a b"), nlp.make_doc("a b"))]
    with pytest.raises(ValueError, match="with annotated entities, got none"):
        calibrate(nlp, without)


def test_a_model_that_predicts_nothing_is_refused() -> None:
    """The model has a high weight for the first tag, which is O."""
    nlp = pipeline()
    nlp.initialize(lambda: examples(nlp))
    nlp.get_pipe("ner").model.get_ref("emissions").get_param("b")[0] = 100
    with pytest.raises(ValueError, match="ner: expected predicted entities to calibrate"):
        calibrate(nlp, examples(nlp))


# What calibration and tuning look at


# The labels of the pipeline are in alphabetical order.
LOC, PERSON, TEAM = range(3)


class PartlyAnnotated(NamedTuple):
    """Predictions for docs in which some tokens don't count."""

    dev: DevPredictions
    examples: list[Example]
    second: int  # the first token of the second doc
    third: int


@pytest.fixture
def partly_annotated(unsure: Path) -> PartlyAnnotated:
    """Four docs: "Who is Shaka Khan?", where "Who" is preset as a place; "I like London and
    Berlin.", where nothing is annotated from "and" on; "The Red Sox lost."; and an empty doc."""
    nlp = load(unsure)
    batch = examples(nlp)
    preset = batch[0].predicted
    preset.set_ents([Span(preset, 0, 1, label="LOC")], default="missing")
    missing = batch[1].reference
    missing.set_ents(missing.ents[:1], outside=[missing[0:2]], default="missing")
    dev = predict_dev(nlp, nlp.get_pipe("ner"), batch)
    second = len(batch[0].predicted)
    return PartlyAnnotated(dev, batch, second, second + len(batch[1].predicted))


def test_gold_of_dev_docs_are_the_annotated_entities(partly_annotated: PartlyAnnotated) -> None:
    dev, batch, second, third = partly_annotated
    london = (second + 2, second + 3, LOC)
    assert rows(dev.gold) == [(2, 4, PERSON), london, (third + 1, third + 3, TEAM)]
    assert len(dev.posterior.scores.lengths) == 3  # without the empty doc
    # The docs given stay as they were.
    assert not batch[1].predicted.has_annotation("ENT_IOB")


def test_preset_tokens_and_missing_annotation_do_not_count(
    partly_annotated: PartlyAnnotated,
) -> None:
    dev, _, second, third = partly_annotated
    is_counted = dev.is_counted.tolist()
    assert is_counted[:second] == [False] + [True] * (second - 1)
    n_missing = third - second - 3
    assert is_counted[second:third] == [True] * 3 + [False] * n_missing

    # "Who", "Shaka Khan" twice, "London and"
    entities = columns([(0, 1, LOC), (2, 4, PERSON), (2, 4, LOC), (second + 2, second + 4, LOC)])
    assert dev.are_counted(entities).tolist() == [False, True, True, False]
    assert dev.is_correct(entities).tolist() == [False, True, False, False]


def test_misaligned_entities_count(unsure: Path) -> None:
    """Berlin is a part of the fifth token. An entity with this token is wrong."""
    nlp = load(unsure)
    dev = predict_dev(nlp, nlp.get_pipe("ner"), misaligned_examples(nlp, 2))

    assert rows(dev.gold) == [(2, 3, LOC), (8, 9, LOC)]
    assert rows(dev.misaligned) == [(4, 5, LOC), (10, 11, LOC)]
    assert dev.n_annotated == 4
    entities = columns([(2, 3, LOC), (4, 5, LOC)])
    assert dev.are_counted(entities).tolist() == [True, True]
    assert dev.is_correct(entities).tolist() == [True, False]


@pytest.mark.parametrize("which", ["preset", "other label"])
def test_misaligned_entities_do_not_count_if_aligned_ones_would_not(
    unsure: Path, which: str
) -> None:
    nlp = load(unsure)
    ner = nlp.get_pipe("ner")
    batch = misaligned_examples(nlp, 2)
    if which == "preset":
        predicted = batch[0].predicted
        predicted.set_ents([Span(predicted, 4, 5, label="PERSON")], default="missing")
    with pytest.MonkeyPatch.context() as patch:
        if which == "other label":
            patch.setattr(type(ner), "other_labels", [LOC])
        dev = predict_dev(nlp, ner, batch)

    assert rows(dev.misaligned) == ([(10, 11, LOC)] if which == "preset" else [])


def test_predictions_with_tokens_of_misaligned_entities_are_wrong(unsure: Path) -> None:
    """So they count in the calibration error."""
    nlp = load(unsure)
    batch = misaligned_examples(nlp, 5)
    n_predicted = sum(len(doc.ents) for doc in nlp.pipe(eg.predicted.copy() for eg in batch))

    calibration = calibrate(nlp, batch)

    assert sum(row["n"] for row in calibration.reliability) == n_predicted
    assert calibration.notes[0].startswith("5 of 10 entities don't begin and end with tokens")


def test_entities_of_inner_nodes_are_never_correct(partly_annotated: PartlyAnnotated) -> None:
    """The indices 3 and 4 of inner nodes are above those of the three labels of the model. A label
    that only the docs have is -1. Entities are compared by keys: if 4 weren't counted as 3 there,
    (2, 3, 4) would have the key of (2, 4, -1)."""
    dev = partly_annotated.dev._replace(gold=columns([(2, 4, -1), (2, 4, PERSON)]))
    entities = columns([(2, 3, 3), (2, 3, 4), (2, 4, 3), (2, 4, PERSON)])
    assert dev.is_correct(entities).tolist() == [False, False, False, True]


def test_development_docs_go_through_what_comes_before() -> None:
    """The component listens to a shared tok2vec. Its posterior is right only if the tok2vec has run
    on the docs before, and has made their vectors."""
    nlp = spacy.blank("xx")
    nlp.batch_size = 2  # several batches
    nlp.add_pipe("tok2vec", config={"model": {"width": 16, "depth": 1}})
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": LISTENING})
    batch = examples(nlp)
    optimizer = nlp.initialize(lambda: batch)
    for _ in range(5):
        nlp.update(batch, sgd=optimizer)
    development = predict_dev(nlp, nlp.get_pipe("ner"), examples(nlp))
    docs = [doc for doc in nlp.pipe(TEXTS) if len(doc)]
    expected = nlp.get_pipe("ner").posterior(docs).marginals
    numpy.testing.assert_allclose(development.posterior.marginals, expected, atol=1e-5)
    assert expected.std() > 0  # the model has learned something


def assert_same_scores(scores: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check that scores are the same, except the speed, which is unknown if docs were predicted
    before."""
    assert expected.keys() - scores.keys() == {"speed"}
    for name, value in scores.items():
        if isinstance(value, float):
            assert value == pytest.approx(expected[name], abs=1e-6), name
        elif name == "ents_per_type":
            assert value == expected[name]


@pytest.mark.parametrize("command", [calibrate, tune])
def test_the_model_predicts_development_docs_once(unsure: Path, command: Any) -> None:
    """The scores in the meta are computed from the same posterior. Components before and after ours
    run, too."""
    nlp = load(unsure)
    first = nlp.add_pipe("entity_ruler", "first", first=True)
    first.add_patterns([{"label": "LOC", "pattern": "lost"}])
    last = nlp.add_pipe("entity_ruler", "last", config={"overwrite_ents": True})
    last.add_patterns([{"label": "PERSON", "pattern": "Who"}])
    ner = nlp.get_pipe("ner")
    n_docs_of_batches = []
    posterior = ner._posterior

    def count_docs(docs: list[Doc], **settings: Any) -> Any:
        """Count the docs that the model predicts."""
        n_docs_of_batches.append(len(docs))
        return posterior(docs, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ner, "_posterior", count_docs)
        nlp.meta["performance"] = {"ents_f": 0.0, "token_acc": 0.0}
        command(nlp, examples(nlp))
    assert sum(n_docs_of_batches) == len([text for text in TEXTS if text])
    expected = nlp.evaluate(examples(nlp))
    performance = nlp.meta["performance"]
    assert 0 < performance["ents_f"] < 1
    for name in ("ents_f", "token_acc"):
        assert performance[name] == pytest.approx(expected[name], abs=1e-6)


def test_scores_of_the_posterior_are_those_of_evaluate(unsure: Path) -> None:
    nlp = load(unsure)
    use_decoding(
        nlp, nlp.get_pipe("ner"), {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.3}
    )
    calibrate(nlp, examples(nlp))
    ruler = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "LOC", "pattern": "lost"}])
    dev = predict_dev(nlp, nlp.get_pipe("ner"), examples(nlp))
    assert_same_scores(evaluate_dev(nlp, nlp.get_pipe("ner"), dev), nlp.evaluate(examples(nlp)))
