"""Tests of `fit` without a development corpus: it calibrates and tunes on folds of the training
docs that are held out."""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.util import load_config

from spacy_costner.annotation.settings import Annotation
from spacy_costner.annotation.spans import entities_as_spans
from spacy_costner.workflows.calibration.temperature import calibrate_on
from spacy_costner.workflows.calibration.tuning import tune_on
from spacy_costner.workflows.evaluation.predictions import predict_dev
from spacy_costner.workflows.fitting.fitted import HELD_OUT_FOLDS, N_HELD_OUT_FOLDS
from spacy_costner.workflows.fitting.folds import find_folds

from ...support.commands import run
from ...support.pipelines import examples, load
from ...support.vocabs import blank_vocab

SPARSE = Path(__file__).parents[3] / "configs" / "sparse.cfg"
SHORT = ["--nlp.lang", "xx", "--training.max_epochs", 4]
CALIBRATE = ["--calibrate"]
TUNE = ["--tune", "recall=0.3"]  # only half of the guesses are right: more may be out of reach
BOTH = [*CALIBRATE, "--tune", "f"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 docs. Each has a name that no other doc has, with a random label. A model that was trained
    on a doc predicts its label; another one can only guess, and is right for half of the docs."""
    vocab = blank_vocab()
    docs = []
    for i in range(80):
        label = random.Random(i).choice(["B-PER", "B-ORG"])
        words = ["From", f"q{i}x{i * i}", "they", "came", "."]
        docs.append(Doc(vocab, words=words, ents=["O", label, "O", "O", "O"]))
    docs.append(Doc(vocab))
    path = tmp_path_factory.mktemp("corpus") / "train.spacy"
    DocBin(docs=docs).to_disk(path)
    return path


class Fitted(NamedTuple):
    """What `fit` has printed as JSON, and the pipeline that it has saved."""

    printed: dict[str, Any]
    nlp: Language

    @property
    def performance(self) -> dict[str, Any]:
        """The scores in the meta of the pipeline."""
        return self.nlp.meta["performance"]

    @property
    def cfg(self) -> dict[str, Any]:
        """The settings of the component."""
        ner: Any = self.nlp.get_pipe("ner")
        return ner.cfg


@pytest.fixture(scope="module")
def fit_with(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Fitted]:
    """A function that fits a pipeline with some options, and keeps it for all tests."""

    @cache
    def fit(*options: str) -> Fitted:
        """Run `fit` on the corpus."""
        output = tmp_path_factory.mktemp("fitted")
        result = run("fit", *SHORT, "--train", corpus, "--output", output, *options, "--json")
        assert result.exit_code == 0, result.output
        printed = json.loads(result.stdout)
        return Fitted(printed, spacy.load(printed["path"]))

    return fit


@pytest.fixture(params=[CALIBRATE, BOTH, TUNE], ids=" ".join)
def fitted(request: pytest.FixtureRequest, fit_with: Callable[..., Fitted]) -> Fitted:
    """A pipeline that is calibrated, tuned, or both."""
    return fit_with(*request.param)


@pytest.mark.slow
def test_scores_are_of_docs_that_were_held_out(fitted: Fitted) -> None:
    """A model that hasn't seen a doc can only guess which of two labels it has, so that F is about
    0.5 before tuning. The empty doc doesn't count. The corpus has 81 docs with it."""
    assert fitted.performance["measured_on"] == {"source": HELD_OUT_FOLDS, "docs": 80}
    assert 0.2 < fitted.printed["held_out"]["ents_f"] < 0.7
    assert 0 < fitted.performance["ents_f"] < 0.7


def test_the_final_model_is_trained_on_all_docs(fitted: Fitted, corpus: Path) -> None:
    """So the model knows nearly all of the 80 labels. One that guesses would know about 40."""
    n_right = 0
    for doc in DocBin().from_disk(corpus).get_docs(fitted.nlp.vocab):
        if len(doc):
            predicted = fitted.nlp(doc.text)
            n_right += predicted.ents[0].label_ == doc.ents[0].label_
    assert n_right > 70


@pytest.mark.parametrize("fitted", [CALIBRATE, BOTH], indirect=True, ids=" ".join)
def test_the_temperature_is_that_of_held_out_docs(fitted: Fitted) -> None:
    """It is above 1, as half of what the models are sure of is wrong."""
    temperature = fitted.printed["calibration"]["temperature"]["overall"]
    assert temperature > 1
    assert fitted.cfg["temperature"]["overall"] == pytest.approx(temperature)


@pytest.mark.parametrize("fitted", [BOTH, TUNE], indirect=True, ids=" ".join)
def test_the_threshold_is_chosen_by_scores_of_held_out_docs(fitted: Fitted) -> None:
    """With `--tune f` the decoding before may have a higher F, and then it stays, as its scores do.
    A threshold for a recall is always set."""
    tuning = fitted.printed["tuning"]
    before = tuning["before"]
    assert before["recall"] == pytest.approx(fitted.printed["held_out"]["ents_r"])
    point_in_use = before
    threshold = None
    if tuning["is_set"]:
        point_in_use = tuning["chosen"]
        threshold = tuning["chosen"]["value"]
    assert point_in_use["recall"] == pytest.approx(fitted.performance["ents_r"])
    assert point_in_use["precision"] == pytest.approx(fitted.performance["ents_p"])
    assert fitted.cfg["decoding"].get("threshold") == threshold


@pytest.mark.slow
def test_a_calibrated_pipeline_is_tuned_with_its_temperature(corpus: Path, tmp_path: Path) -> None:
    """With its calibrated probabilities, `tune` finds the same threshold for the saved pipeline."""
    vocab = blank_vocab()
    docs = []
    for i in range(40):
        label = random.Random(i).choice(["B-PER", "B-PER", "B-ORG", "O"])
        words = ["From", f"z{i}y{i * i}", "they", "came", "."]
        docs.append(Doc(vocab, words=words, ents=["O", label, "O", "O", "O"]))
    dev = tmp_path / "dev.spacy"
    DocBin(docs=docs).to_disk(dev)

    options = ["--train", corpus, "--dev", dev, "--output", tmp_path / "out", *SHORT]
    fitted = run("fit", *options, *BOTH, "--json")
    assert fitted.exit_code == 0, fitted.output
    printed = json.loads(fitted.stdout)
    assert abs(printed["calibration"]["temperature"]["overall"] - 1) > 0.2
    tuned = run("tune", printed["path"], dev, "--output", tmp_path / "tuned", "--json")
    assert tuned.exit_code == 0, tuned.output

    expected = json.loads(tuned.stdout)["chosen"]["value"]
    assert printed["tuning"]["chosen"]["value"] == pytest.approx(expected)


@pytest.mark.parametrize("fitted", [TUNE], indirect=True, ids=" ".join)
def test_a_pipeline_that_is_only_tuned_is_not_calibrated(fitted: Fitted) -> None:
    assert fitted.printed["calibration"] is None


@pytest.mark.parametrize("fitted", [CALIBRATE], indirect=True, ids=" ".join)
def test_a_pipeline_that_is_only_calibrated_is_not_tuned(fitted: Fitted) -> None:
    assert fitted.printed["tuning"] is None


@pytest.mark.slow
def test_models_of_two_passes_are_held_out_too(corpus: Path, tmp_path: Path) -> None:
    config = SPARSE.with_name("sparse_document.cfg")
    options = ["--paths.train", corpus, "--output", tmp_path, *SHORT]
    result = run("fit", config, *options, "--calibrate")
    assert result.exit_code == 0, result.output
    assert f"\n{HELD_OUT_FOLDS}: F " in result.output
    assert "dev:" not in result.output


@pytest.mark.slow
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
    """Check that `fit` refuses these arguments with a message, and writes nothing."""
    result = run("fit", *arguments, "--calibrate", "--output", output)
    assert result.exit_code == 1
    assert message in result.output
    assert not output.exists()


def test_a_cache_needs_a_development_corpus(corpus: Path, tmp_path: Path) -> None:
    arguments = [SPARSE, "--cache", tmp_path / "cache", "--paths.train", corpus]
    message = "fit: paths.dev: expected a development corpus with --cache"
    assert_not_fitted(tmp_path / "out", message, *arguments)


def test_a_model_to_start_from_needs_a_development_corpus(corpus: Path, tmp_path: Path) -> None:
    """Otherwise the model may have been trained on the docs that would be held out."""
    config = load_config(SPARSE)
    config["initialize"]["after_init"] = {"@callbacks": "spacy_costner.start_from.v1", "path": "x"}
    config.to_disk(tmp_path / "config.cfg")
    arguments = [tmp_path / "config.cfg", "--paths.train", corpus]
    assert_not_fitted(tmp_path / "out", "initialize.after_init: expected null", *arguments)


def test_a_model_of_too_few_docs_for_folds_is_trained_but_not_calibrated(tmp_path: Path) -> None:
    doc = Doc(blank_vocab(), words=["Oslo", "waits"], ents=["B-LOC", "O"])
    DocBin(docs=[doc] * (N_HELD_OUT_FOLDS - 1)).to_disk(tmp_path / "train.spacy")
    options = ["--train", tmp_path / "train.spacy", "--output", tmp_path / "out", *SHORT]
    result = run("fit", *options, "--calibrate")
    assert result.exit_code == 1
    assert "folds: expected at most the number of different texts" in result.output
    assert "is trained, but neither calibrated nor tuned" in result.output


def test_docs_predicted_in_parts_are_calibrated_and_tuned_as_at_once(unsure: Path) -> None:
    """Held-out docs are predicted in parts, one for each fold. If the models of all folds were the
    same, temperatures, calibration error and scores would be the same as for all docs at once."""
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


@pytest.mark.parametrize("n_unannotated", [0, 2, 20])
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("spans_key", [None, "sc"])
def test_each_fold_has_its_share_of_annotated_docs(
    n_unannotated: int, seed: int | None, spans_key: str | None
) -> None:
    """The other docs come last in the corpus. Of two docs with the same text, only one is
    annotated: both are in the same fold. With a `spans_key`, no doc has annotated entities."""
    vocab = blank_vocab()
    docs = [Doc(vocab, words=["Text", str(i)], ents=["O", "O"]) for i in range(10)]
    docs += [Doc(vocab, words=["Raw", str(i)]) for i in range(n_unannotated)]
    docs.append(Doc(vocab, words=["Text", "9"]))
    if spans_key is not None:
        for doc in docs[:10]:
            entities_as_spans(doc, spans_key)
            doc.set_ents([], default="missing")

    folds = find_folds(docs, 5, seed, Annotation(spans_key=spans_key)).tolist()

    assert sorted(folds[:10]) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(set(folds[10:-1])) == min(n_unannotated, 5)
    assert folds[-1] == folds[9]
    if seed is None:
        assert folds[:10] == sorted(folds[:10])


@pytest.mark.slow
@pytest.mark.parametrize("spans_key", [None, "sc"])
def test_docs_without_annotation_may_come_last(tmp_path: Path, spans_key: str | None) -> None:
    """They are as many as two of the five folds."""
    vocab = blank_vocab()
    docs: list[Doc] = []
    for i in range(30):
        label = random.Random(i).choice(["B-PER", "B-ORG"])
        docs.append(Doc(vocab, words=["From", f"q{i}x{i * i}", "came"], ents=["O", label, "O"]))
    path = tmp_path / "train.spacy"
    arguments: list[Any] = ["--train", path]
    if spans_key is not None:
        arguments = [SPARSE, "--paths.train", path, "--components.ner.spans_key", spans_key]
        for doc in docs:
            entities_as_spans(doc, spans_key)
            doc.set_ents([], default="missing")
    docs += [Doc(vocab, words=["From", f"r{i}x{i * i}", "came"]) for i in range(20)]
    DocBin(docs=docs).to_disk(path)

    result = run("fit", *arguments, *SHORT, "--output", tmp_path / "fitted", *CALIBRATE)

    assert result.exit_code == 0, result.output
