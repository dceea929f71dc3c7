"""A hybrid model whose linear part is trained at initialization."""

import io
import random
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam, Optimizer

from spacy_costner.ml import linear_part
from spacy_costner.training.online import TrainingResult, train
from spacy_costner.types import Progress

from ..support.config import FEATURES, resolve
from ..support.linear import HYBRID
from ..support.pipelines import pipeline

TWO_PASSES = {"@misc": "spacy_costner.Features.v1", "document": {"LOWER": 1}}
MODEL = {**HYBRID, "linear_epochs": 4}
CITIES = ["Rome", "Paris", "Oslo", "Lima"]


def corpus(nlp: Language, n_docs: int = 24, seed: int = 0) -> list[Example]:
    """Docs in which the word after "in" is a city, while the same name after "Mrs" is none. Each
    doc also has a word that no other doc has."""
    rng = random.Random(seed)
    examples = []
    for i in range(n_docs):
        words, ents = [f"doc{seed}x{i}"], ["O"]
        for city in rng.sample(CITIES, 3):
            is_city = rng.random() < 0.5
            words += ["in" if is_city else "Mrs", city]
            ents += ["O", "B-CITY" if is_city else "O"]
        reference = Doc(nlp.vocab, words=words, ents=ents)
        examples.append(Example(Doc(nlp.vocab, words=words), reference))
    return examples


def initialized(model: dict[str, Any] = MODEL, **settings: Any) -> Language:
    """A pipeline whose linear part is trained, and whose tok2vec is not."""
    random.seed(0)
    nlp = pipeline(model=model, **settings)
    nlp.initialize(lambda: corpus(nlp))
    return nlp


def predicted_entities(nlp: Language) -> list[list[Any]]:
    """The entities that a pipeline predicts in docs that it was not trained on."""
    docs = nlp.pipe([eg.predicted for eg in corpus(nlp, seed=1)])
    return [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in docs]


def learn(nlp: Language, optimizer: Optimizer, n_steps: int = 5) -> float:
    """Train by updates. RETURNS (float): The loss of the last one."""
    losses: dict[str, float] = {}
    for _ in range(n_steps):
        losses = nlp.update(corpus(nlp), sgd=optimizer)
    return losses["ner"]


any_features = pytest.mark.parametrize(
    "features", [FEATURES, TWO_PASSES], ids=["one_pass", "two_passes"]
)
any_outside = pytest.mark.parametrize("outside", ["single", "before"])


@any_features
@any_outside
def test_initialization_trains_the_linear_part_which_alone_predicts_then(
    features: Any, outside: str
) -> None:
    nlp = initialized({**MODEL, "features": features}, outside=outside)
    ner = nlp.get_pipe("ner")
    docs = [eg.predicted for eg in corpus(nlp, seed=1)]
    linear_model = ner.model.layers[0]

    potentials = ner.model.predict(docs)

    linear_potentials = linear_model.predict(docs)
    assert potentials.emissions.any()
    for field in ("emissions", "transitions", "start", "end"):
        expected = getattr(linear_potentials, field)
        numpy.testing.assert_array_equal(getattr(potentials, field), expected)
    assert nlp.evaluate(corpus(nlp, seed=1))["ents_f"] > 0.9
    assert ner.progress == Progress()


@pytest.mark.slow
@any_features
@any_outside
def test_updates_train_the_tok2vec_and_not_the_linear_part(features: Any, outside: str) -> None:
    nlp = initialized({**MODEL, "features": features}, outside=outside)
    ner = nlp.get_pipe("ner")
    _, weights = linear_part(ner.model)
    before = weights.rows.copy()
    optimizer = Adam(0.01, use_averages=True)

    first_loss = learn(nlp, optimizer, 1)
    last_loss = learn(nlp, optimizer, 20)

    assert last_loss < first_loss
    numpy.testing.assert_array_equal(weights.rows, before)
    with nlp.use_params(optimizer.averages):
        numpy.testing.assert_array_equal(weights.rows, before)
    assert ner.model.get_ref("emissions").get_param("W").any()


def test_a_loaded_hybrid_predicts_the_same_and_learns_without_training_its_linear_part_again(
    tmp_path: Any,
) -> None:
    nlp = initialized()
    learn(nlp, Adam(0.01))
    nlp.to_disk(tmp_path)

    loaded = spacy.load(tmp_path)

    assert any(predicted_entities(nlp))
    assert predicted_entities(loaded) == predicted_entities(nlp)
    _, weights = linear_part(loaded.get_pipe("ner").model)
    before = weights.rows.copy()
    optimizer = loaded.resume_training()
    numpy.testing.assert_array_equal(weights.rows, before)
    learn(loaded, optimizer)
    assert loaded.evaluate(corpus(loaded, seed=1))["ents_f"] > 0.9


def test_the_linear_part_is_trained_by_updates_after_a_label_was_added() -> None:
    """Otherwise only `initialize` trains the linear part. A new label has new tags, for which the
    linear part has no trained weights, so updates train them. Before that, the label changes no
    prediction."""
    nlp = initialized()
    entities_before = predicted_entities(nlp)

    nlp.get_pipe("ner").add_label("PERSON")

    assert predicted_entities(nlp) == entities_before
    _, weights = linear_part(nlp.get_pipe("ner").model)
    rows_before = weights.rows.copy()
    learn(nlp, Adam(0.01), 1)
    assert not numpy.array_equal(weights.rows, rows_before)


def test_the_linear_part_has_the_average_of_its_weights_and_not_the_last_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last_weights: list[numpy.ndarray] = []

    def recorded_train(weights: Any, *args: Any, **settings: Any) -> TrainingResult:
        trained = train(weights, *args, **settings)
        # Slim as those that are kept, which would differ from them in any case.
        last_weights.append(weights.prune_and_quantize(weights.rows.copy()))
        return trained

    monkeypatch.setattr("spacy_costner.training.folds.train", recorded_train)
    nlp = initialized()

    _, weights = linear_part(nlp.get_pipe("ner").model)
    assert weights.rows.any()
    assert not numpy.allclose(weights.rows, last_weights[0], atol=1e-3)


@pytest.mark.slow
def test_training_docs_are_scored_by_a_linear_part_that_was_not_trained_on_them() -> None:
    """Labels are drawn by lot: only weights that were trained on a doc, or on its copy, know them.
    Others are right by chance, for half of the tokens. Half the docs have a copy at the other end
    of the corpus."""
    nlp = pipeline(model={**MODEL, "linear_epochs": 6})
    rng = random.Random(0)
    batch: list[Example] = []
    for i in range(80):
        words = [f"Name{3 * i + j}" for j in range(3)]
        tags = [rng.choice(["O", "B-X"]) for _ in words]
        reference = Doc(nlp.vocab, words=words, ents=tags)
        batch.append(Example(Doc(nlp.vocab, words=words), reference))
    batch += [Example(eg.predicted.copy(), eg.reference) for eg in batch[:40]]
    nlp.initialize(lambda: batch)
    ner = nlp.get_pipe("ner")

    def share_of_right_tokens(examples: list[Example], is_train: bool) -> float:
        scores, _ = ner.model([eg.predicted for eg in examples], is_train)
        is_predicted = scores.emissions.argmax(axis=1) != 0  # tag 0 is O
        is_gold: list[bool] = []
        for eg in examples:
            is_gold += [bool(token.ent_type_) for token in eg.reference]
        return float((is_predicted == is_gold).mean())

    with_copy = batch[:40]
    without_copy = batch[40:80]
    for examples in (with_copy, without_copy):
        assert share_of_right_tokens(examples, is_train=False) > 0.9
        assert 0.3 < share_of_right_tokens(examples, is_train=True) < 0.7


@pytest.mark.parametrize("last_score", [70.0, 80.0, 90.0])
def test_the_logger_says_at_the_end_where_training_was_no_better_than_the_linear_part(
    last_score: float,
) -> None:
    """The first evaluation, 80, is that of the linear part. It is said at the end if no later one
    is above 80."""
    output = io.StringIO()
    make_loggers = resolve("loggers", "spacy_costner.HybridLogger.v1")
    log, finish = make_loggers(initialized(), output, output)

    checkpoints = []
    for step, score in enumerate([80.0, 60.0, last_score]):
        checkpoints.append((score, step))
        evaluation = {
            "epoch": 0,
            "step": step,
            "losses": {"ner": 1.0},
            "other_scores": {"ents_f": score},
            "score": score,
            "checkpoints": checkpoints,
        }
        log(evaluation)
        log(None)  # a step without evaluation
        assert "linear part" not in output.getvalue()
    finish()

    assert ("no better than its linear part" in output.getvalue()) is (last_score <= 80)


def test_a_negative_number_of_epochs_is_refused() -> None:
    with pytest.raises(
        ValueError, match="HybridCRF: linear_epochs: expected a number of at least 0, got -1"
    ):
        pipeline(model={**HYBRID, "linear_epochs": -1})
