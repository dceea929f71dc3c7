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
from spacy_costner.training.online import Trained, train
from spacy_costner.types import Progress

from .support.config import FEATURES, resolve
from .support.linear import HYBRID
from .support.pipelines import pipeline

TWO_PASSES = {"@misc": "spacy_costner.Features.v1", "document": {"LOWER": 1}}
MODEL = {**HYBRID, "linear_epochs": 4}
CASES = [
    pytest.param(features, outside, id=f"{name}-{outside}")
    for name, features in (("one_pass", FEATURES), ("two_passes", TWO_PASSES))
    for outside in ("single", "before")
]
CITIES = ["Rome", "Paris", "Oslo", "Lima"]


def corpus(nlp: Language, n_docs: int = 24, seed: int = 0) -> list[Example]:
    """What follows "in" is a city, all else is not. Each doc has a word of its own."""
    rng, found = random.Random(seed), []
    for i in range(n_docs):
        words, ents = [f"doc{seed}x{i}"], ["O"]
        for city in rng.sample(CITIES, 3):
            is_city = rng.random() < 0.5
            words += ["in" if is_city else "Mrs", city]
            ents += ["O", "B-CITY" if is_city else "O"]
        docs = (Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=words, ents=ents))
        found.append(Example(*docs))
    return found


def initialized(model: dict[str, Any] = MODEL, **settings: Any) -> Language:
    random.seed(0)
    nlp = pipeline(model=model, **settings)
    nlp.initialize(lambda: corpus(nlp))
    return nlp


def predicted(nlp: Language) -> list[list[Any]]:
    docs = nlp.pipe([eg.predicted for eg in corpus(nlp, seed=1)])
    return [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in docs]


def learn(nlp: Language, optimizer: Optimizer, n_steps: int = 5) -> float:
    losses: dict[str, float] = {}
    for _ in range(n_steps):
        losses = nlp.update(corpus(nlp), sgd=optimizer)
    return losses["ner"]


@pytest.mark.parametrize(("features", "outside"), CASES)
def test_it_begins_as_its_linear_part_which_stays(features: Any, outside: str) -> None:
    """The Tok2Vec learns."""
    nlp = initialized({**MODEL, "features": features}, outside=outside)
    ner, docs = nlp.get_pipe("ner"), [eg.predicted for eg in corpus(nlp, seed=1)]
    whole, linear = ner.model.predict(docs), ner.model.layers[0].predict(docs)
    for field in ("emissions", "transitions", "start", "end"):
        numpy.testing.assert_array_equal(getattr(whole, field), getattr(linear, field))
    assert whole.emissions.any()
    assert nlp.evaluate(corpus(nlp, seed=1))["ents_f"] > 0.9
    assert ner.progress == Progress()
    _, weights = linear_part(ner.model)
    before, optimizer = weights.rows.copy(), Adam(0.01, use_averages=True)
    first = learn(nlp, optimizer, 1)
    assert learn(nlp, optimizer, 20) < first
    numpy.testing.assert_array_equal(weights.rows, before)
    with nlp.use_params(optimizer.averages):
        numpy.testing.assert_array_equal(weights.rows, before)
    assert ner.model.get_ref("emissions").get_param("W").any()


def test_it_survives_and_goes_on_learning(tmp_path: Any) -> None:
    """Loading is no initialization: the linear part is not trained again."""
    nlp = initialized()
    learn(nlp, Adam(0.01))
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert predicted(loaded) == predicted(nlp) != []
    before = linear_part(loaded.get_pipe("ner").model)[1].rows.copy()
    optimizer = loaded.resume_training()
    numpy.testing.assert_array_equal(linear_part(loaded.get_pipe("ner").model)[1].rows, before)
    learn(loaded, optimizer)
    assert loaded.evaluate(corpus(loaded, seed=1))["ents_f"] > 0.9


def test_a_new_label_is_learned() -> None:
    """With more tags, the linear part is trained, too."""
    nlp = initialized()
    before = predicted(nlp)
    nlp.get_pipe("ner").add_label("PERSON")
    assert predicted(nlp) == before
    _, weights = linear_part(nlp.get_pipe("ner").model)
    rows = weights.rows.copy()
    learn(nlp, Adam(0.01), 1)
    assert not numpy.array_equal(weights.rows, rows)


def test_the_linear_part_has_the_mean_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    last: list[numpy.ndarray] = []

    def noted(weights: Any, *args: Any, **settings: Any) -> Trained:
        trained = train(weights, *args, **settings)
        last.append(weights.rows.copy())
        return trained

    monkeypatch.setattr("spacy_costner.training.folds.train", noted)
    rows = linear_part(initialized().get_pipe("ner").model)[1].rows
    assert rows.any() and not numpy.allclose(rows, last[0], atol=1e-3)


def test_docs_are_scored_by_weights_that_have_not_seen_them() -> None:
    """With labels drawn by lot, weights that were trained on a doc know its labels. Half the docs
    have a copy at the other end of the corpus."""
    nlp = pipeline(model={**MODEL, "linear_epochs": 20})
    rng, batch = random.Random(0), []
    for i in range(80):
        words = [f"Name{3 * i + j}" for j in range(3)]
        ents = [rng.choice(["O", "B-X"]) for _ in words]
        batch.append(Example(Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=words, ents=ents)))
    batch += [Example(eg.predicted.copy(), eg.reference) for eg in batch[:40]]
    nlp.initialize(lambda: batch)
    ner = nlp.get_pipe("ner")

    def share_known(some: list[Example], is_train: bool) -> float:
        scores, _ = ner.model([eg.predicted for eg in some], is_train)
        found = scores.emissions.argmax(axis=1) != 0
        gold = [bool(token.ent_type_) for eg in some for token in eg.reference]
        return float((found == gold).mean())

    for some in (batch[:40], batch[40:80]):
        assert share_known(some, is_train=False) > 0.9
        assert 0.3 < share_known(some, is_train=True) < 0.7


@pytest.mark.parametrize("last", [70.0, 80.0, 90.0])
def test_learning_that_adds_nothing_is_told(last: float) -> None:
    """At the end of training: where no evaluation was better than the first."""
    nlp, out = initialized(), io.StringIO()
    log, finish = resolve("loggers", "spacy_costner.HybridLogger.v1")(nlp, out, out)
    checkpoints = []
    for step, score in enumerate([80.0, 60.0, last]):
        checkpoints.append((score, step))
        info = {"epoch": 0, "step": step, "losses": {"ner": 1.0}, "other_scores": {"ents_f": score}}
        log({**info, "score": score, "checkpoints": checkpoints})
        log(None)
        assert "linear part" not in out.getvalue()
    finish()
    assert ("no better than its linear part" in out.getvalue()) is (last <= 80)


def test_a_bad_number_of_epochs_is_named() -> None:
    with pytest.raises(
        ValueError, match="HybridCRF: linear_epochs: expected a number of at least 0, got -1"
    ):
        pipeline(model={**HYBRID, "linear_epochs": -1})
