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
    """The label of a name is known to those who have seen the doc, and to no one else."""
    vocab, docs = spacy.blank("xx").vocab, []
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
    found = json.loads(result.stdout)
    nlp = spacy.load(found["path"])
    measured, cfg = nlp.meta["performance"], nlp.get_pipe("ner").cfg
    assert measured["measured_on"] == {"source": HELD_OUT, "docs": 80}
    seen = list(DocBin().from_disk(corpus).get_docs(nlp.vocab))
    right = [nlp(doc.text).ents[0].label_ == doc.ents[0].label_ for doc in seen if len(doc)]
    assert sum(right) > 70, "the final model is trained on all docs"
    assert 0.2 < found["held_out"]["ents_f"] < 0.7 and 0 < measured["ents_f"] < 0.7
    assert (found["calibration"] is not None) == ("--calibrate" in aims)
    if found["calibration"]:
        temperature = found["calibration"]["temperature"]["overall"]
        assert cfg["temperature"]["overall"] == pytest.approx(temperature)
        assert temperature > 1, "half of what the models are sure of is wrong"
    if found["tuning"]:
        before, chosen = (found["tuning"][name] for name in ("before", "chosen"))
        assert before["recall"] == pytest.approx(found["held_out"]["ents_r"])
        assert chosen["recall"] == pytest.approx(measured["ents_r"])
        assert chosen["precision"] == pytest.approx(measured["ents_p"])
        assert cfg["decoding"]["threshold"] == chosen["value"]


def test_two_passes_in_each_fold(corpus: Path, tmp_path: Path) -> None:
    config = SPARSE.with_name("sparse_document.cfg")
    given = [config, "--paths.train", corpus, "--output", tmp_path, *SHORT]
    result = run("fit", *given, "--calibrate")
    assert result.exit_code == 0 and f"\n{HELD_OUT}: F " in result.output, result.output
    assert "dev:" not in result.output


def test_nothing_is_evaluated_without_a_development_corpus(corpus: Path, tmp_path: Path) -> None:
    for name, given in (("own", ["--train", corpus]), ("given", [SPARSE, "--paths.train", corpus])):
        result = run("fit", *given, "--output", tmp_path / name, *SHORT)
        assert result.exit_code == 0, result.output
        assert "\nnot evaluated: there is no development corpus" in result.output
        assert "dev:" not in result.output
        assert spacy.load(tmp_path / name / "model-best").meta["performance"]["ents_f"] is None


def test_what_needs_a_development_corpus(corpus: Path, tmp_path: Path) -> None:
    """A model to start from may have seen the docs that are held out."""
    config, output, given = load_config(SPARSE), tmp_path / "out", ["--paths.train", corpus]
    config["initialize"]["after_init"] = {"@callbacks": "spacy_costner.start_from.v1", "path": "x"}
    config.to_disk(tmp_path / "config.cfg")
    cached = [SPARSE, "--cache", tmp_path / "cache"]
    for first, message in (
        (cached, "fit: paths.dev: expected a development corpus with --cache"),
        ([tmp_path / "config.cfg"], "initialize.after_init: expected null"),
    ):
        result = run("fit", *first, *given, "--calibrate", "--output", output)
        assert result.exit_code == 1 and message in result.output and not output.exists()


def test_too_few_docs(tmp_path: Path) -> None:
    doc = Doc(spacy.blank("xx").vocab, words=["Oslo", "waits"], ents=["B-LOC", "O"])
    DocBin(docs=[doc] * (N_FOLDS - 1)).to_disk(tmp_path / "train.spacy")
    given = ["--train", tmp_path / "train.spacy", "--output", tmp_path / "out", *SHORT]
    result = run("fit", *given, "--calibrate")
    assert result.exit_code == 1 and "folds: expected at most as many as docs" in result.output
    assert "is trained, but neither calibrated nor tuned" in result.output


def test_predictions_in_parts_are_the_predictions(unsure: Path) -> None:
    """Of one model: temperature, calibration error and scores by parts are those of the whole."""
    nlp = load(unsure)
    batch = examples(nlp)
    ner = nlp.get_pipe("ner")
    whole = [predict_dev(nlp, ner, batch)]
    parts = [predict_dev(nlp, ner, batch[:2]), predict_dev(nlp, ner, batch[2:])]
    first, second = (
        calibrate_on(devs, nlp, ner, "docs", per_label=True) for devs in (whole, parts)
    )
    assert second.error == pytest.approx(first.error, abs=1e-6)
    assert second.temperature.labels == pytest.approx(first.temperature.labels, rel=1e-3)
    for parameter in ("threshold", "bias"):
        first, second = (tune_on(devs, nlp, ner, parameter) for devs in (whole, parts))
        assert first.points == second.points
        # The value is the mean of what folds of docs choose, and other parts have other folds.
