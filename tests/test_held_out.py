"""`fit` without a development corpus: it calibrates and tunes on folds that it holds out."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc, DocBin
from spacy.util import load_config

from spacy_costner.analysis.calibration import calibrate_on
from spacy_costner.analysis.fitting import HELD_OUT, N_FOLDS
from spacy_costner.analysis.predictions import predict_dev
from spacy_costner.analysis.tuning import tune_on

from .support.commands import run
from .support.pipelines import examples, load

SPARSE = Path(__file__).parent.parent / "configs" / "sparse.cfg"
SHORT = ["--training.max_epochs", 4]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 docs, each with a name of its own and a label drawn by lot: a model predicts it if it was
    trained on the doc, and else in half of the docs."""
    vocab = spacy.blank("xx").vocab
    docs = []
    for i in range(80):
        label = random.Random(i).choice(["B-PER", "B-ORG"])
        words = ["From", f"q{i}x{i * i}", "they", "came", "."]
        docs.append(Doc(vocab, words=words, ents=["O", label, "O", "O", "O"]))
    docs.append(Doc(vocab))
    path = tmp_path_factory.mktemp("corpus") / "train.spacy"
    DocBin(docs=docs).to_disk(path)
    return path


@pytest.mark.parametrize("aims", [["--calibrate"], ["--calibrate", "--tune", "f"], ["--tune", "f"]])
def test_scores_are_of_docs_that_were_held_out(corpus: Path, tmp_path: Path, aims: Any) -> None:
    result = run("fit", *SHORT, "--train", corpus, "--output", tmp_path, *aims, "--json")
    assert result.exit_code == 0, result.output
    fitted = json.loads(result.stdout)
    nlp = spacy.load(fitted["path"])
    performance = nlp.meta["performance"]
    cfg = nlp.get_pipe("ner").cfg
    assert performance["measured_on"] == {"source": HELD_OUT, "docs": 80}
    n_right = 0
    for doc in DocBin().from_disk(corpus).get_docs(nlp.vocab):
        if len(doc):
            predicted = nlp(doc.text)
            n_right += predicted.ents[0].label_ == doc.ents[0].label_
    assert n_right > 70, "the final model is trained on all docs"
    assert 0.2 < fitted["held_out"]["ents_f"] < 0.7
    assert 0 < performance["ents_f"] < 0.7
    assert (fitted["calibration"] is not None) == ("--calibrate" in aims)
    if fitted["calibration"]:
        temperature = fitted["calibration"]["temperature"]["overall"]
        assert cfg["temperature"]["overall"] == pytest.approx(temperature)
        assert temperature > 1, "half of what the models are sure of is wrong"
    if fitted["tuning"]:
        before = fitted["tuning"]["before"]
        chosen = fitted["tuning"]["chosen"]
        assert before["recall"] == pytest.approx(fitted["held_out"]["ents_r"])
        assert chosen["recall"] == pytest.approx(performance["ents_r"])
        assert chosen["precision"] == pytest.approx(performance["ents_p"])
        assert cfg["decoding"]["threshold"] == chosen["value"]


def test_models_of_two_passes_are_held_out_too(corpus: Path, tmp_path: Path) -> None:
    config = SPARSE.with_name("sparse_document.cfg")
    options = ["--paths.train", corpus, "--output", tmp_path, *SHORT]
    result = run("fit", config, *options, "--calibrate")
    assert result.exit_code == 0, result.output
    assert f"\n{HELD_OUT}: F " in result.output
    assert "dev:" not in result.output


@pytest.mark.parametrize("has_config", [False, True])
def test_nothing_is_evaluated_without_a_development_corpus(
    corpus: Path, tmp_path: Path, has_config: bool
) -> None:
    arguments: list[Any] = ["--train", corpus]
    if has_config:
        arguments = [SPARSE, "--paths.train", corpus]
    result = run("fit", *arguments, "--output", tmp_path, *SHORT)
    assert result.exit_code == 0, result.output
    assert "\nnot evaluated: there is no development corpus" in result.output
    assert "dev:" not in result.output
    assert spacy.load(tmp_path / "model-best").meta["performance"]["ents_f"] is None


def assert_not_fitted(output: Path, message: str, *arguments: Any) -> None:
    result = run("fit", *arguments, "--calibrate", "--output", output)
    assert result.exit_code == 1 and message in result.output
    assert not output.exists()


def test_a_cache_needs_a_development_corpus(corpus: Path, tmp_path: Path) -> None:
    arguments = [SPARSE, "--cache", tmp_path / "cache", "--paths.train", corpus]
    message = "fit: paths.dev: expected a development corpus with --cache"
    assert_not_fitted(tmp_path / "out", message, *arguments)


def test_a_model_to_start_from_needs_a_development_corpus(corpus: Path, tmp_path: Path) -> None:
    """It may have seen the docs that are held out."""
    config = load_config(SPARSE)
    config["initialize"]["after_init"] = {"@callbacks": "spacy_costner.start_from.v1", "path": "x"}
    config.to_disk(tmp_path / "config.cfg")
    arguments = [tmp_path / "config.cfg", "--paths.train", corpus]
    assert_not_fitted(tmp_path / "out", "initialize.after_init: expected null", *arguments)


def test_a_model_of_too_few_docs_for_folds_is_trained_but_not_calibrated(tmp_path: Path) -> None:
    doc = Doc(spacy.blank("xx").vocab, words=["Oslo", "waits"], ents=["B-LOC", "O"])
    DocBin(docs=[doc] * (N_FOLDS - 1)).to_disk(tmp_path / "train.spacy")
    options = ["--train", tmp_path / "train.spacy", "--output", tmp_path / "out", *SHORT]
    result = run("fit", *options, "--calibrate")
    assert result.exit_code == 1 and "folds: expected at most as many as docs" in result.output
    assert "is trained, but neither calibrated nor tuned" in result.output


def test_docs_predicted_in_parts_are_calibrated_and_tuned_as_at_once(unsure: Path) -> None:
    """Held-out docs are predicted in parts. If their models were one, temperatures, calibration
    error and scores would be those of all docs at once."""
    nlp = load(unsure)
    batch = examples(nlp)
    ner = nlp.get_pipe("ner")
    at_once = [predict_dev(nlp, ner, batch)]
    in_parts = [predict_dev(nlp, ner, batch[:2]), predict_dev(nlp, ner, batch[2:])]

    expected = calibrate_on(at_once, nlp, ner, "docs", per_label=True)
    calibration = calibrate_on(in_parts, nlp, ner, "docs", per_label=True)
    assert calibration.error == pytest.approx(expected.error, abs=1e-6)
    assert calibration.temperature.labels == pytest.approx(expected.temperature.labels, rel=1e-3)

    # The chosen value is not compared: it is the mean of what folds of docs choose, and other
    # parts have other folds.
    for parameter in ("threshold", "bias"):
        tuned_at_once = tune_on(at_once, nlp, ner, parameter)
        tuned_in_parts = tune_on(in_parts, nlp, ner, parameter)
        assert tuned_in_parts.points == tuned_at_once.points
