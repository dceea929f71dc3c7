"""Training of the linear model, by L-BFGS and online: objective, optimum, steps, pipelines."""

import json
import random
import shutil
from collections.abc import Iterator
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Corpus, Example
from spacy.util import load_config
from thinc.api import Adam, Config

from spacy_costner.chain import constrain, log_partition
from spacy_costner.features import Features
from spacy_costner.ml import linear_part
from spacy_costner.pipeline.promises import Thresholds
from spacy_costner.readers import Context, KeptDocs, ReadOptions
from spacy_costner.readers.corpus import read_file
from spacy_costner.sparse import sum_rows
from spacy_costner.training import online
from spacy_costner.training.lbfgs import (
    AT_ONCE,
    MOST_ITERATIONS,
    TOLERANCE,
    TotalLoss,
    descent_direction,
    has_settled,
    minimise_by_lbfgs,
    spread_over_split,
    train_at_once,
)
from spacy_costner.training.online import TrainingResult
from spacy_costner.types import Gold, Potentials, Progress
from spacy_costner.workflows.config.trainable import can_be_fitted, components_to_fit
from spacy_costner.workflows.corpora import FEW_SENTENCES, are_few
from spacy_costner.workflows.fitting import linear_training as preparation
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.fitting.folds import hold_out
from spacy_costner.workflows.fitting.linear_training import (
    annotate_predicted,
    load_linear,
    prepare,
    train_linear,
)
from spacy_costner.workflows.forecasting.forecasting import forecast

from .. import oracle_losses
from ..support.commands import run
from ..support.config import FEATURES, HAMMING, TOK2VEC
from ..support.experiment import Experiment
from ..support.fitting import (
    SPARSE,
    SPARSE_CONFIG,
    TEXTS,
    initialized,
    loss_block,
    read_batches,
    sparse_config,
    total_loss,
    train,
)
from ..support.pipelines import promise_of

KEEP_ALL: dict[str, Any] = {"components": {"ner": {"model": {"keep_all": True}}}}
"""Weights after training stay as they are."""

CONFIGS = Path(__file__).parents[2] / "configs"


def make_total(c2: float = 0.1, **settings: Any) -> TotalLoss:
    """The objective of training a pipeline with these settings at once, on TEXTS."""
    nlp, examples = initialized(**settings)
    return total_loss(nlp.get_pipe("ner"), examples, c2)


def enumerated(total: TotalLoss, rows: numpy.ndarray, c2: float) -> float:
    """The objective of `Sequential` from all paths, at all weights, in float64. Shape of rows:
    (features, then tags for transitions, start and end; tags)"""
    _, examples = initialized()
    features = total.features.find([eg.predicted for eg in examples])
    gold: list[int] = []
    for _, tags in TEXTS:
        gold += [total.tags.names.index(name) for name in tags.split()]
    emissions = numpy.asarray([rows[slots[slots >= 0]].sum(axis=0) for slots in features.rows])
    # Below the rows of features: transitions, start, end.
    chain_rows = rows[total.weights.n_features :]
    scores = Potentials(
        emissions, chain_rows[:-2], chain_rows[-2], chain_rows[-1], features.lengths
    )
    legal = constrain(scores, total.tags.constraints)
    path = total.tags.split_outside(numpy.asarray(gold), features.lengths)
    batch = oracle_losses.sequences(legal, Gold(path))
    return oracle_losses.sequential(batch) + c2 * float((rows**2).sum())


outsides = pytest.mark.parametrize("outside", ["single", "before"])


@outsides
def test_the_objective_is_that_of_all_paths_and_all_weights(outside: str) -> None:
    """Features that tokens always have together are merged: some are, here."""
    total = make_total(c2=0.3, outside=outside)
    assert len(total.merged.roots) < total.weights.n_features
    vector = numpy.random.default_rng(0).normal(size=total.read_weights().shape)

    value, _ = total(vector)

    total.write_weights(vector)
    assert_allclose(total.read_weights(), vector, atol=1e-6)
    rows = total.weights.rows.astype("float64")
    assert value == pytest.approx(enumerated(total, rows, c2=0.3), rel=1e-5)


SMOOTH = {"Sequential": {}, "SoftmaxMargin": {"cost": HAMMING}, "MCEF": {}, "ZScore": {}}


@outsides
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_central_differences(name: str, outside: str) -> None:
    total = make_total(loss=loss_block(name, **SMOOTH[name]), outside=outside)
    rng = numpy.random.default_rng(1)
    vector = rng.normal(size=total.read_weights().shape)
    _, gradient = total(vector)
    for _ in range(8):
        step = 1e-2 * rng.normal(size=vector.shape)
        value_before, _ = total(vector - step)
        value_after, _ = total(vector + step)
        expected = 2 * float(gradient @ step)
        assert value_after - value_before == pytest.approx(expected, rel=2e-3, abs=2e-4)


def test_several_batches_have_the_loss_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three docs are two batches of at most two. A loss that is a ratio has only one batch."""
    in_one_batch = make_total()
    monkeypatch.setattr("spacy_costner.training.lbfgs.GRADIENT_BATCH_SIZE", 2)
    in_two_batches = make_total()
    assert (len(in_one_batch.batches), len(in_two_batches.batches)) == (1, 2)
    vector = numpy.random.default_rng(3).normal(size=in_one_batch.read_weights().shape)
    value, gradient = in_two_batches(vector)
    expected, expected_gradient = in_one_batch(vector)
    assert_allclose(value, expected, rtol=1e-6)
    assert_allclose(gradient, expected_gradient, atol=1e-5)
    assert len(make_total(loss=loss_block("ZScore")).batches) == 1


def bowl(vector: numpy.ndarray) -> tuple[float, numpy.ndarray]:
    """A function whose minimum, 1, is at a vector of ones, and its gradient. It is much steeper
    along some axes than along others."""
    scale = numpy.arange(1, len(vector) + 1) ** 3
    distance = vector - 1
    return 1 + float((scale * distance**2).sum()), 2 * scale * distance


def test_minimise_ends_at_the_minimum() -> None:
    minimum = minimise_by_lbfgs(bowl, numpy.zeros(30))
    assert minimum.reason == "converged"
    assert minimum.value == pytest.approx(1, abs=1e-3)


def test_minimise_ends_after_the_most_iterations() -> None:
    minimum = minimise_by_lbfgs(bowl, numpy.zeros(30), max_iter=3)
    assert (minimum.n_iterations, minimum.reason) == (3, "reached max_iter")
    value, _ = bowl(minimum.vector)
    assert minimum.value == pytest.approx(value)
    assert minimum.value > 1.001


def test_minimise_stays_at_a_minimum() -> None:
    minimum = minimise_by_lbfgs(bowl, numpy.ones(30))
    assert minimum.n_iterations == 0 and minimum.value == 1


@pytest.mark.parametrize(
    ("gradient", "direction"), [([3.0, -4.0], [-0.6, 0.8]), ([0.3, -0.4], [-0.3, 0.4])]
)
def test_the_first_direction_is_shortened_to_length_1(
    gradient: list[float], direction: list[float]
) -> None:
    """It points against the gradient, and is as long, but at most 1."""
    assert descent_direction(numpy.asarray(gradient), steps=[]).tolist() == direction


def test_minimisation_has_settled_when_ten_iterations_bring_nothing() -> None:
    """The ten of CRFsuite. The first value is the one at the start."""
    assert not has_settled([1.0] * 10, tolerance=0.1)
    assert has_settled([1.0] * 11, tolerance=0.1)
    assert not has_settled([1.2] + [1.0] * 10, tolerance=0.1)
    assert has_settled([1.2] + [1.0] * 11, tolerance=0.1)
    assert has_settled([1.2] + [1.0] * 10, tolerance=0.3)


@pytest.mark.parametrize("last_call", [1, 8])
def test_an_interrupted_minimisation_returns_the_best_vector_so_far(last_call: int) -> None:
    """At the first call there is nothing better than the start yet."""
    calls = count(1)

    def interrupted(vector: numpy.ndarray) -> tuple[float, numpy.ndarray]:
        if next(calls) == last_call:
            raise KeyboardInterrupt
        return bowl(vector)

    start = numpy.zeros(30)
    minimum = minimise_by_lbfgs(interrupted, start)
    assert minimum.reason == "interrupted"
    value_of_start, _ = bowl(start)
    value, _ = bowl(minimum.vector)
    if last_call == 1:
        assert minimum.n_iterations <= 2
        assert not minimum.vector.any() and value == value_of_start
    else:
        assert minimum.n_iterations > 2
        assert minimum.vector.any() and value < value_of_start
        assert minimum.value == pytest.approx(value)


def test_weights_that_do_not_fit_in_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Training needs 16 bytes for each weight. If memory and swap together are a kilobyte too
    small, it is refused before any weight is made."""
    nlp, _ = initialized()
    _, weights = linear_part(nlp.get_pipe("ner").model)
    n_kilobytes_needed = ceil(16 * weights.rows.size / 1024)
    meminfo = tmp_path / "meminfo"  # in place of /proc/meminfo of Linux
    monkeypatch.setattr("spacy_costner.training.lbfgs.MEMINFO", meminfo)

    # Memory and swap together are just enough.
    meminfo.write_text(f"MemAvailable: {n_kilobytes_needed - 1} kB\nSwapFree: 1 kB\n")
    initialized()

    meminfo.write_text(f"MemAvailable: {n_kilobytes_needed - 1} kB\nSwapFree: 0 kB\n")
    message = rf"got 1 labels, that is 3 tags, and {weights.n_features} features, .* need 0\.0 GB"
    with pytest.raises(ValueError, match=f"ner: labels: expected weights .*{message}"):
        initialized()


def entities_of(nlp: Language, words: str) -> list[tuple[str, str]]:
    """Text and label of the entities that a pipeline predicts in words with spaces between them."""
    doc = nlp(Doc(nlp.vocab, words=words.split()))
    return [(ent.text, ent.label_) for ent in doc.ents]


@pytest.mark.parametrize("loss", ["Sequential", "Perceptron"])
def test_the_command_makes_an_ordinary_pipeline(
    loss: str, experiment: Experiment, tmp_path: Path
) -> None:
    """A smooth loss, Sequential, is minimised at once. A loss with kinks, Perceptron, is trained by
    updates for the 20 epochs of `ONLINE`; then the averages are scored and saved."""
    ner = {**SPARSE_CONFIG["components"]["ner"], "loss": loss_block(loss)}
    config_path = tmp_path / "sparse.cfg"
    sparse_config(experiment, components={"ner": ner}, **ONLINE).to_disk(config_path)

    result = run("fit", config_path, "--output", tmp_path / "fitted", "--nlp.batch_size", 7)

    assert result.exit_code == 0, result.output
    assert "dev: F 100.00" in result.output
    how_it_was_trained = {"Sequential": AT_ONCE, "Perceptron": "trained: 20 epochs"}[loss]
    assert how_it_was_trained in result.output
    nlp = spacy.load(tmp_path / "fitted" / "model-best")
    assert nlp.meta["performance"]["ents_f"] == 1.0
    assert nlp.config["nlp"]["batch_size"] == 7
    expected = [("Paris", "city"), ("France", "country")]
    assert entities_of(nlp, "Rain in Paris , France .") == expected
    assert nlp.config["components"]["ner"]["model"]["@architectures"] == SPARSE["@architectures"]


def test_an_interruption_of_scoring_leaves_the_pipeline(
    monkeypatch: pytest.MonkeyPatch, experiment: Experiment
) -> None:
    interrupted = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr(Language, "evaluate", interrupted)
        fitted = fit(sparse_config(experiment), experiment.output_path)
    assert fitted.scores == {} and "dev: not scored" in fitted.as_text()
    nlp = spacy.load(fitted.path)
    assert entities_of(nlp, "Rain in Paris") == [("Paris", "city")]


@pytest.mark.slow
def test_fit_starts_from_a_trained_model(experiment: Experiment) -> None:
    """By updates, also of few docs: the minimum would not depend on the start."""
    first = fit(sparse_config(experiment, **KEEP_ALL), experiment.output_path / "first")
    start = {"@callbacks": "spacy_costner.start_from.v1", "path": str(first.path)}
    training = {"max_epochs": 0, "max_steps": 1, "optimizer": {"@optimizers": "Adam.v1"}}
    changes = {"initialize": {"after_init": start}, "training": training, **KEEP_ALL}
    config = sparse_config(experiment, **changes)

    second = fit(config, experiment.output_path / "second")

    assert first.outcomes["ner"].reason == AT_ONCE
    assert second.outcomes["ner"].n_steps == 1
    _, weights_before = linear_part(first.ners[0].model)
    _, weights_after = linear_part(second.ners[0].model)
    assert_allclose(weights_after.rows, weights_before.rows, atol=0.2)
    assert (weights_after.rows != weights_before.rows).any()


RULE = {"label": "code", "pattern": "X99"}


@pytest.fixture
def base(experiment: Experiment, tmp_path: Path) -> Path:
    """A pipeline that `fit` has trained, with a ruler before our component, saved."""
    fitted = fit(sparse_config(experiment), experiment.output_path / "first")
    fitted.nlp.add_pipe("entity_ruler", before="ner").add_patterns([RULE])
    fitted.nlp.to_disk(tmp_path / "base")
    return tmp_path / "base"


def sourced_config(base: Path, corpus: Path, **training: Any) -> Config:
    """The config of a pipeline with all components of another one, and another corpus."""
    source = {"source": str(base)}
    return Config(
        {
            "paths": {"train": str(corpus), "dev": str(corpus)},
            "nlp": {"lang": "xx", "pipeline": ["entity_ruler", "ner"]},
            "components": {"entity_ruler": {**source}, "ner": {**source}},
            "corpora": {
                "train": {"@readers": "spacy.Corpus.v1", "path": "${paths.train}"},
                "dev": {"@readers": "spacy.Corpus.v1", "path": "${paths.dev}"},
            },
            "training": {"max_epochs": 15, "seed": 0, **training},
        }
    )


@pytest.fixture
def other_corpus(base: Path, tmp_path: Path) -> Path:
    """Docs with entities of a new label only."""
    vocab = spacy.load(base).vocab
    docs: list[Doc] = []
    for i in range(8):
        words = ["Kim", "helps", "Ana", str(i)]
        docs.append(Doc(vocab, words=words, ents=["B-person", "O", "B-person", "O"]))
    DocBin(docs=docs).to_disk(tmp_path / "other.spacy")
    return tmp_path / "other.spacy"


@pytest.mark.parametrize("has_cache", [False, True])
def test_fit_resumes_training_of_sourced_components(
    has_cache: bool, base: Path, other_corpus: Path, tmp_path: Path
) -> None:
    """As `spacy train` does: our component still knows what it has learned, and has the new label,
    too, and the ruler has its patterns."""
    cache = tmp_path / "cache" if has_cache else None
    old = spacy.load(base)

    fitted = fit(sourced_config(base, other_corpus), tmp_path / "out", cache=cache)

    nlp = spacy.load(fitted.path)
    ner = nlp.get_pipe("ner")
    assert fitted.outcomes["ner"].n_epochs == 15
    assert nlp.get_pipe("entity_ruler").patterns == [RULE]
    assert entities_of(nlp, "Rain in Paris X99")[-2:] == [("Paris", "city"), ("X99", "code")]
    assert entities_of(nlp, "Kim helps Ana 1") == [("Kim", "person"), ("Ana", "person")]
    assert ner.labels == (*old.get_pipe("ner").labels, "person") and ner.cfg["untrained"] == []
    known = {*old.get_pipe("ner").trained_on.tolist()}
    assert known < {*ner.trained_on.tolist()}


def test_sourced_components_that_are_frozen_stay(
    base: Path, other_corpus: Path, experiment: Experiment, tmp_path: Path
) -> None:
    """The ruler, which isn't trained, isn't initialized, either. Our component is a new one."""
    config = sourced_config(base, other_corpus, frozen_components=["entity_ruler"])
    config["components"]["ner"] = sparse_config(experiment)["components"]["ner"]

    nlp = fit(config, tmp_path / "out").nlp

    assert nlp.get_pipe("entity_ruler").patterns == [RULE]
    assert nlp.get_pipe("ner").labels == ("person",)


def test_a_guarantee_is_dropped_if_training_is_resumed(
    base: Path, other_corpus: Path, tmp_path: Path
) -> None:
    nlp = spacy.load(base)
    nlp.get_pipe("ner").set_guarantee(promise_of({"": Thresholds(0.25, {})}, miss=0.1))
    nlp.to_disk(base)
    with pytest.warns(UserWarning, match="guarantee is dropped.*after training"):
        fitted = fit(sourced_config(base, other_corpus), tmp_path / "out")
    assert fitted.ners[0].guarantee is None


def test_folds_of_a_sourced_component_are_refused(
    base: Path, other_corpus: Path, tmp_path: Path
) -> None:
    """The model to start from may have been trained on the docs that would be held out. With a
    development corpus, it is calibrated on these docs."""
    config = sourced_config(base, other_corpus)
    fit(config, tmp_path / "out", calibrate=True)

    config["paths"]["dev"] = None
    with pytest.raises(
        ValueError, match=r"fit: components\.ner.source: expected null without a dev"
    ):
        fit(config, tmp_path / "second", calibrate=True)
    examples = [*Corpus(other_corpus)(spacy.load(base))]
    with pytest.raises(ValueError, match=r"components\.ner.source: expected no source"):
        hold_out(config, examples, ["person"], n_folds=2)
    with pytest.raises(ValueError, match=r"forecast: components\.ner.source: expected no source"):
        forecast(config)


def test_models_of_folds_have_sourced_components(
    base: Path, experiment: Experiment, tmp_path: Path
) -> None:
    """The ruler of each fold has its patterns. It annotates the docs of the fold."""
    vocab = spacy.load(base).vocab
    docs: list[Doc] = []
    for i in range(12):
        words = ["Kim", "has", "X99", str(i)]
        docs.append(Doc(vocab, words=words, ents=["B-person", "O", "B-code", "O"]))
    DocBin(docs=docs).to_disk(tmp_path / "train.spacy")
    config = sourced_config(base, tmp_path / "train.spacy", annotating_components=["entity_ruler"])
    config["components"]["ner"] = sparse_config(experiment)["components"]["ner"]
    config["paths"]["dev"] = None
    seen: list[list[Example]] = []

    with pytest.MonkeyPatch.context() as patch:

        def recorded(nlp: Language, examples: list[Example], names: Any) -> list[Example]:
            annotated = annotate_predicted(nlp, examples, names)
            seen.append(annotated)
            return annotated

        patch.setattr(preparation, "annotate_predicted", recorded)
        fit(config, tmp_path / "out", calibrate=True)

    assert len(seen) == 1 + 4  # the model, and those of the folds
    for annotated in seen:
        assert all("X99" in [ent.text for ent in eg.predicted.ents] for eg in annotated)


def sentences(n_sentences: int, is_split: bool) -> list[Doc]:
    """Docs of ten sentences each, the last one of fewer, with or without sentence starts."""
    vocab = spacy.blank("xx").vocab
    docs = []
    for i in range(0, n_sentences, 10):
        words = ["Ana", f"left{i}", "."] * min(10, n_sentences - i)
        starts = [word == "Ana" for word in words] if is_split else None
        docs.append(Doc(vocab, words=words, sent_starts=starts))
    return docs


@pytest.mark.parametrize("is_split", [True, False])
def test_sentences_are_few_below_a_number(is_split: bool) -> None:
    """Docs without sentence starts have none after they were counted."""
    docs = sentences(FEW_SENTENCES - 1, is_split)
    assert are_few([])
    assert are_few(docs)
    assert not are_few(sentences(FEW_SENTENCES, is_split))
    assert all(doc.has_annotation("SENT_START") is is_split for doc in docs)


SCHEDULE = {
    "steps": [2],
    "*": {"one": loss_block("Sequential"), "two": loss_block("SoftmaxMargin", cost=HAMMING)},
}


@pytest.mark.filterwarnings("ignore:.*the last loss is never used")  # as nothing is trained
@pytest.mark.parametrize(
    "loss, n_sentences, n_weights, is_at_once",
    [
        (loss_block("Sequential"), 29, 10**6, True),
        (loss_block("Sequential"), 30, 10**6, False),
        (loss_block("Sequential"), 29, 10, False),
        (loss_block("SoftmaxMargin", cost=HAMMING), 29, 10**6, True),
        (loss_block("Pointwise"), 29, 10**6, True),
        (loss_block("MaxMargin", cost=HAMMING), 29, 10**6, False),
        (loss_block("Perceptron"), 29, 10**6, False),
        (loss_block("Risk", cost=HAMMING), 29, 10**6, False),
        (loss_block("MCE", psi="inf"), 29, 10**6, False),
        (loss_block("Schedule", **SCHEDULE), 29, 10**6, False),
    ],
)
def test_few_docs_with_few_weights_and_a_smooth_loss_are_trained_at_once(
    loss: Any, n_sentences: int, n_weights: int, is_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docs are few below 30 sentences, and every model here has more than 10 weights. MaxMargin and
    Perceptron have kinks. Risk, MCE and the schedule aren't trained at once either. The folds that
    are held out are trained as all docs are, though they have fewer."""
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", 30)
    monkeypatch.setattr(preparation, "MAX_WEIGHTS", n_weights)
    reasons: list[str] = []  # why each training ended: it says how it was done
    for name in ("train", "train_at_once"):
        train_in_preparation = getattr(preparation, name)

        def recorded(*args: Any, train: Any = train_in_preparation, **settings: Any) -> Any:
            reasons.append(train(*args, **settings).reason)
            return TrainingResult(0.0, 1, 1, reasons[-1], Progress())

        monkeypatch.setattr(preparation, name, recorded)
    config = load_config(CONFIGS / "sparse.cfg", overrides={"nlp.lang": "xx"})
    config["components"]["ner"].update(loss=loss, model={**SPARSE, "nO": None})
    config["training"].update(max_epochs=1)
    config["training"]["batcher"]["size"] = 10**6
    docs = sentences(n_sentences, True)
    for doc in docs:
        doc.set_ents([Span(doc, 0, 1, "X")])
    examples = [Example(doc.copy(), doc) for doc in docs]
    linear = load_linear(config.copy())

    train_linear(linear, prepare(linear, lambda nlp: examples))
    hold_out(config, examples, ["X"], n_folds=2)

    # All docs, and two folds
    assert reasons == [AT_ONCE if is_at_once else "trained"] * 3


@outsides
def test_training_at_once_ends_near_a_minimum(outside: str) -> None:
    """If the chain has several tags for O, it ends at the mean of two minima: that of these tags,
    and that of a single O."""
    nlp, examples = initialized(outside=outside)
    ner = nlp.get_pipe("ner")
    tags = ner.chain_tags
    _, weights = linear_part(ner.model)

    trained = train_at_once(ner.model, ner.objective, tags, examples)

    rows_of_minima = []
    # One set of tags if O is single: then they are their own collapsed tags.
    for tags_of_loss in dict.fromkeys([tags, tags.collapsed]):
        total = TotalLoss(ner.model, ner.objective, tags_of_loss, examples, c2=0.1)
        start = numpy.zeros(total.shape).reshape(-1)
        minimum = minimise_by_lbfgs(total, start, tolerance=1e-9)
        _, gradient = total(minimum.vector)
        assert numpy.abs(gradient).max() < 0.01
        rows_of_minima.append(total.to_rows(minimum.vector))
    if tags.is_split:
        rows_of_minima[1] = spread_over_split(rows_of_minima[1], tags)

    assert_allclose(weights.rows, numpy.mean(rows_of_minima, axis=0), atol=0.05)
    assert trained.reason == AT_ONCE and trained.n_steps > 10
    assert ner.progress.steps == 0


def test_training_at_once_takes_the_given_number_of_iterations() -> None:
    """From weights of 0 an iteration takes one evaluation here, and the start takes one."""
    nlp, examples = initialized(outside="single")
    ner = nlp.get_pipe("ner")

    trained = train_at_once(ner.model, ner.objective, ner.chain_tags, examples, max_iterations=3)

    assert trained.n_steps == 4


def test_weights_spread_over_a_split_outside_give_the_same_partition_function() -> None:
    nlp, examples = initialized(outside="before")
    ner = nlp.get_pipe("ner")
    tags = ner.chain_tags
    features, _ = linear_part(ner.model)
    batch = features.find([eg.predicted for eg in examples])
    n_tags = len(tags.collapsed)
    # Rows of features, of transitions from each tag, and of start and end.
    shape = (len(features) + n_tags + 2, n_tags)
    rows = numpy.random.default_rng(0).normal(size=shape).astype("float32")

    def log_partition_of(rows: numpy.ndarray, tags: Any) -> numpy.ndarray:
        *transitions, start, end = rows[len(features) :]
        emissions = sum_rows(batch.rows, numpy.ascontiguousarray(rows))
        scores = Potentials(emissions, numpy.asarray(transitions), start, end, batch.lengths)
        log_z, _ = log_partition(constrain(scores, tags.constraints))
        return log_z

    log_z_of_split = log_partition_of(spread_over_split(rows, tags), tags)

    assert_allclose(log_z_of_split, log_partition_of(rows, tags.collapsed), rtol=1e-5)


@pytest.mark.parametrize("is_first", [True, False], ids=["first training", "second training"])
def test_training_at_once_keeps_its_weights_when_it_is_interrupted(
    is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains with O split, then with a single O. After four evaluations of the first training
    the weights are those so far; if the second is interrupted, they are those of the first."""
    nlp, examples = initialized(outside="before")
    ner = nlp.get_pipe("ner")
    evaluate = TotalLoss.__call__
    n_evaluations = count(1)

    def interrupted(total: TotalLoss, vector: numpy.ndarray) -> Any:
        if total.tags.is_split == is_first and next(n_evaluations) == 5:
            raise KeyboardInterrupt
        return evaluate(total, vector)

    with monkeypatch.context() as patch:
        patch.setattr(TotalLoss, "__call__", interrupted)
        trained = train_at_once(ner.model, ner.objective, ner.chain_tags, examples)

    assert trained.reason == "interrupted"
    total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.1)
    start = numpy.zeros(total.shape).reshape(-1)
    minimum = minimise_by_lbfgs(total, start, max_iter=MOST_ITERATIONS, tolerance=TOLERANCE)
    rows = linear_part(ner.model)[1].rows
    assert rows.any()
    is_at_minimum_of_first = numpy.allclose(rows, total.to_rows(minimum.vector), atol=1e-5)
    assert is_at_minimum_of_first is not is_first


def test_fit_refuses_a_hybrid_model() -> None:
    hybrid = {**SPARSE, "@architectures": "spacy_costner.HybridCRF.v1", "tok2vec": TOK2VEC}
    message = "ner.model: expected spacy_costner.SparseCRF.v1, got spacy_costner.HybridCRF.v1"
    with pytest.raises(ValueError, match=message):
        components_to_fit(initialized(model=hybrid)[0], [])


def test_fit_refuses_other_components_that_are_not_frozen() -> None:
    nlp, _ = initialized()
    nlp.add_pipe("tagger", first=True)
    with pytest.raises(ValueError, match=r"training.frozen_components, got \['tagger', 'ner'\]"):
        components_to_fit(nlp, [])
    assert components_to_fit(nlp, ["tagger"]) == [nlp.get_pipe("ner")]


def test_annotating_components_annotate_the_docs_that_features_are_of() -> None:
    """In this test a ruler sets the tags of "Rome", which is in the texts three times."""
    model = {**SPARSE, "features": {**FEATURES, "windows": {"TAG": 0}}}
    nlp, examples = initialized(model=model)
    ruler = nlp.add_pipe("attribute_ruler", name="ruler", first=True)
    ruler.add([[{"ORTH": "Rome"}]], {"TAG": "CITY"})

    def tagged_words() -> list[str]:
        words: list[str] = []
        for eg in examples:
            words += [token.text for token in eg.predicted if token.tag_ == "CITY"]
        return words

    annotate_predicted(nlp, examples, [])
    assert tagged_words() == []
    annotate_predicted(nlp, examples, ["ruler"])
    assert tagged_words() == ["Rome", "Rome", "Rome"]


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("max_epochs", [0, -1])
def test_online_training_that_would_not_end_is_refused(
    max_epochs: int, experiment: Experiment
) -> None:
    training = {"max_epochs": max_epochs, "max_steps": 0, "batcher": ONE_BY_ONE}
    config = sparse_config(experiment, training=training)
    with pytest.raises(ValueError, match="training: expected max_epochs or max_steps"):
        fit(config, experiment.output_path)


@pytest.mark.usefixtures("online")
def test_online_training_of_less_than_an_epoch_is_saved(experiment: Experiment) -> None:
    training = {"max_epochs": 0, "max_steps": 1, "batcher": ONE_BY_ONE}
    config = sparse_config(experiment, training=training)

    fitted = fit(config, experiment.output_path)

    trained = fitted.outcomes["ner"]
    assert (trained.n_epochs, trained.n_steps) == (0, 1)
    loss = spacy.load(fitted.path).meta["performance"]["ner_loss"]
    assert loss > 0
    assert loss == pytest.approx(trained.value)


ONE_BY_ONE = {"@batchers": "spacy.batch_by_sequence.v1", "size": 1, "get_length": None}
MIRA = loss_block("MIRA", cost=HAMMING, aggressiveness=100.0)
ONLINE = {"training": {"max_epochs": 20, "max_steps": 0}}


def test_online_training_takes_the_steps_of_update() -> None:
    """Of three epochs of two batches, in the same random order: the same weights, averages and
    progress."""
    settings = {"model": {**SPARSE, "L1": 0.001}, "loss": MIRA}
    nlp, examples = initialized(**settings)
    batches = [examples[:2], examples[2:]]
    optimizer = Adam(use_averages=True)
    ner = nlp.get_pipe("ner")
    random.seed(0)
    trained = train(ner, read_batches(ner, batches), optimizer, max_epochs=3)

    updated_nlp, _ = initialized(**settings)
    update_optimizer = Adam(use_averages=True)
    random.seed(0)
    for _ in range(3):
        random.shuffle(batches)
        for batch in batches:
            updated_nlp.update(batch, sgd=update_optimizer, losses={})

    updated_ner = updated_nlp.get_pipe("ner")
    weights = linear_part(ner.model)[1]
    expected = linear_part(updated_ner.model)[1]
    assert weights.rows.any()
    assert_allclose(weights.rows, expected.rows, atol=1e-6)
    with (
        nlp.use_params(optimizer.averages),
        updated_nlp.use_params(update_optimizer.averages),
    ):
        assert_allclose(weights.rows, expected.rows, atol=1e-6)
    assert ner.progress == updated_ner.progress
    assert (trained.n_epochs, trained.n_steps, trained.reason) == (3, 6, "trained")


@pytest.fixture
def ner_and_batches() -> tuple[Any, Any]:
    """A component, and three batches of an example each."""
    nlp, examples = initialized()
    ner = nlp.get_pipe("ner")
    return ner, read_batches(ner, [[eg] for eg in examples])


def test_online_training_ends_after_the_most_steps(ner_and_batches: tuple[Any, Any]) -> None:
    """Which are two epochs of three, and a step."""
    ner, batches = ner_and_batches
    epochs: list[Any] = []
    trained = train(ner, batches, Adam(), max_epochs=9, max_steps=7, on_epoch=epochs.append)
    assert (trained.n_epochs, trained.n_steps, trained.reason) == (2, 7, "reached max_steps")
    assert [epoch.n_epochs for epoch in epochs] == [1, 2]
    assert trained.value == epochs[-1].value


def test_online_training_ends_when_it_is_interrupted(ner_and_batches: tuple[Any, Any]) -> None:
    ner, batches = ner_and_batches
    interrupt = Mock(side_effect=KeyboardInterrupt)
    trained = train(ner, batches, Adam(), max_epochs=9, on_epoch=interrupt)
    assert (trained.n_epochs, trained.reason) == (1, "interrupted")


def test_online_training_on_no_batches_ends_at_once(ner_and_batches: tuple[Any, Any]) -> None:
    ner, _ = ner_and_batches
    assert train(ner, [], Adam(), max_epochs=0, max_steps=5).n_steps == 0


@pytest.mark.parametrize("n_few", [0, FEW_SENTENCES], ids=["trained by updates", "trained at once"])
def test_fit_reads_each_corpus_once(
    monkeypatch: pytest.MonkeyPatch, experiment: Experiment, n_few: int
) -> None:
    """The training corpus for initialization and training, the development corpus for its check
    and for the scores. Here it is a copy at another path. Corpora of fewer than `FEW_SENTENCES`
    sentences are trained at once, by L-BFGS."""
    dev_path = experiment.test_path.with_name("dev.spacy")
    shutil.copy(experiment.test_path, dev_path)
    paths: list[Path] = []
    read = Corpus.__call__

    def recorded_read(corpus: Corpus, nlp: Language) -> Any:
        paths.append(corpus.path)
        return read(corpus, nlp)

    monkeypatch.setattr(Corpus, "__call__", recorded_read)
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", n_few)

    fitted = fit(
        sparse_config(experiment, paths={"dev": str(dev_path)}, **ONLINE), experiment.output_path
    )

    assert paths == [experiment.test_path, dev_path]
    assert fitted.outcomes["ner"].reason == ("trained" if n_few == 0 else AT_ONCE)


def save_texts(path: Path, n_texts: int) -> Path:
    """Save texts with spans, some of which begin within a token of the tokenizer."""
    with path.open("w", encoding="utf8") as file:
        for number in range(n_texts):
            text = f"Kim {number} met anti-Bo in Oslo."
            starts_and_labels = [(text.index("Bo"), 2, "PER"), (text.index("Oslo"), 4, "LOC")]
            spans = []
            for start, length, label in starts_and_labels:
                spans.append({"start": start, "end": start + length, "label": label})
            file.write(json.dumps({"text": text, "spans": spans}) + "\n")
    return path


@pytest.mark.parametrize(
    ("settings", "n_readings", "n_docs"),
    [
        ({}, 1, 12),
        ({"reading": ReadOptions(sentences=False)}, 1, 12),
        ({"overrides": {"nlp.batch_size": 9}}, 2, 12),
        ({"overrides": {"corpora.train.limit": 10}}, 2, 10),
        ({"overrides": {"corpora.train.text_key": "text"}}, 2, 12),
    ],
    ids=["no settings", "reading", "nlp", "limit", "options of the reader"],
)
def test_fit_takes_the_docs_that_init_has_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    n_readings: int,
    n_docs: int,
) -> None:
    """They are read again if a setting may change what is read."""
    train_path = save_texts(tmp_path / "train.jsonl", 12)
    dev_path = save_texts(tmp_path / "dev.jsonl", 4)
    read_paths: list[Path] = []

    def read_and_record(path: Path, context: Context) -> Iterator[Doc]:
        read_paths.append(path)
        return read_file(path, context)

    monkeypatch.setattr("spacy_costner.readers.corpus.read_file", read_and_record)
    fitted = fit(
        None, tmp_path / "out", lang="xx", train_path=train_path, dev_path=dev_path, **settings
    )

    assert read_paths.count(train_path) == n_readings
    assert read_paths.count(dev_path) == 1
    assert fitted.corpora["train"].docs == n_docs
    assert fitted.corpora["train"].entities == 2 * n_docs


def test_docs_that_were_read_once_give_the_weights_of_docs_that_were_read_twice(
    tmp_path: Path,
) -> None:
    """The default of a setting of [nlp], given as an override, lets the docs be read twice."""
    train_path = save_texts(tmp_path / "train.jsonl", 12)
    weights_of_fits = []
    for name, overrides in (("once", {}), ("twice", {"nlp.batch_size": 1000})):
        fitted = fit(None, tmp_path / name, lang="xx", train_path=train_path, overrides=overrides)
        weights_of_fits.append((tmp_path / name / "model-best" / "ner" / "model").read_bytes())
        assert fitted.corpora["train"].docs == 12
    assert weights_of_fits[0] == weights_of_fits[1]


def test_kept_docs_are_taken_once_and_by_the_same_reader(tmp_path: Path) -> None:
    nlp = spacy.blank("xx")
    path = save_texts(tmp_path / "train.jsonl", 3)
    options = ReadOptions(sentences=False)
    others = {
        "vocab": (spacy.blank("xx"), path, options),
        "path": (nlp, tmp_path / "other.jsonl", options),
        "options": (nlp, path, ReadOptions()),
    }
    for other in others.values():
        kept = KeptDocs()
        kept.read(nlp, path, options)
        assert kept.take(*other) is None
        assert kept.take(nlp, path, options) is None  # they are no longer kept
    kept = KeptDocs()
    docs = kept.read(nlp, path, options)
    assert kept.take(nlp, path, options) is docs
    assert kept.take(nlp, path, options) is None

    not_kept = KeptDocs(in_memory=False)
    assert len([*not_kept.read(nlp, path, options)]) == 3
    assert not_kept.info.n_docs == 3
    assert not_kept.take(nlp, path, options) is None


@pytest.mark.usefixtures("online")
def test_a_fit_of_three_seeds_has_the_mean_of_their_weights(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of_seeds: list[numpy.ndarray] = []

    def recorded_train(weights: Any, *args: Any, **settings: Any) -> Any:
        trained = online.train(weights, *args, **settings)
        rows_of_seeds.append(weights.rows.copy())
        return trained

    monkeypatch.setattr("spacy_costner.workflows.fitting.linear_training.train", recorded_train)
    training = {"max_epochs": 2, "batcher": ONE_BY_ONE, "optimizer": {"@optimizers": "Adam.v1"}}
    config = sparse_config(experiment, training=training, **KEEP_ALL)

    path = fit(config, experiment.output_path, n_seeds=3).path

    _, weights = linear_part(spacy.load(path).get_pipe("ner").model)
    assert len(rows_of_seeds) == 3
    assert not numpy.allclose(rows_of_seeds[0], rows_of_seeds[1], atol=1e-3)
    assert_allclose(weights.rows, numpy.mean(rows_of_seeds, axis=0), atol=1e-3)


@pytest.mark.slow
def test_can_be_fitted_says_whether_load_linear_would_take_a_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`load_linear` builds the pipeline; `can_be_fitted` neither builds it nor sets a seed."""
    configs = {}
    for path in CONFIGS.glob("*.cfg"):
        configs[path.stem] = load_config(path, overrides={"nlp.lang": "xx"})
    sparse = configs["sparse"]
    configs["endless"] = sparse.merge({"training": {"max_epochs": 0, "max_steps": 0}})
    configs["unknown"] = sparse.merge({"training": {"epochs": 1}})
    for name, factory in (("tagged", "tagger"), ("split", "sentencizer")):
        pipeline = {"pipeline": [factory, "ner"]}
        components = {factory: {"factory": factory}}
        configs[name] = sparse.merge({"nlp": pipeline, "components": components})
    configs["frozen"] = configs["tagged"].merge({"training": {"frozen_components": ["tagger"]}})
    initialized()[0].to_disk(tmp_path / "model")
    configs["sourced"] = sparse.copy()
    configs["sourced"]["components"]["ner"] = {"source": str(tmp_path / "model")}

    expected: dict[str, bool] = {}
    for name, config in configs.items():
        if "transformer" in config["components"]:  # building it needs its package
            expected[name] = False
            continue
        try:
            load_linear(config.copy())
            expected[name] = True
        except ValueError:
            expected[name] = False
    # Otherwise the comparison would say nothing: both answers occur.
    assert all(expected[name] for name in ("sparse", "split", "frozen", "sourced"))
    assert not any(expected[name] for name in ("endless", "unknown", "tagged", "cnn"))

    random.seed(5)
    state = random.getstate()
    monkeypatch.setattr(preparation, "load_model_from_config", None)
    monkeypatch.setattr(preparation, "fix_random_seed", None)
    assert {name: can_be_fitted(config) for name, config in configs.items()} == expected
    assert random.getstate() == state


def test_an_update_looks_features_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the scores and for MIRA, a loss that uses them. `get_loss` alone looks them up itself:
    its loss is the same."""
    nlp, examples = initialized(loss=loss_block("MIRA", cost=HAMMING))
    ner = nlp.get_pipe("ner")
    scores = ner.model.predict([eg.predicted for eg in examples])
    expected, _ = ner.get_loss(examples, scores)
    find = Mock(side_effect=Features.find, autospec=True)
    monkeypatch.setattr(Features, "find", lambda *args, **settings: find(*args, **settings))
    assert ner.update(examples, sgd=Adam())["ner"] == pytest.approx(expected)
    assert find.call_count == 1
