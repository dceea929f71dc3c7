"""The hidden layer over static vectors: scores, gradients, training, files, errors."""

import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import spacy
import srsly
from numpy.testing import assert_allclose, assert_array_equal
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.batchers import configure_minibatch
from spacy.util import fix_random_seed
from spacy.vocab import Vocab
from thinc.api import Adam, Config, Model, Optimizer

from spacy_costner.annotation.spans import entities_as_spans
from spacy_costner.features import CHARACTER_TYPES, Template
from spacy_costner.features.words import character_type
from spacy_costner.losses import sequential
from spacy_costner.ml import (
    HiddenLayer,
    build_sparse_crf,
    find_features,
    hidden_layer_of,
    linear_part,
)
from spacy_costner.ml.hidden import HiddenWeights
from spacy_costner.training.hidden import train_hidden_layer
from spacy_costner.types import Gold
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.fitting.linear_training import LinearPipeline, train_by_updates
from spacy_costner.workflows.reports.explanation import HIDDEN_LAYER, explain

from ..support.fitting import examples_of
from ..support.linear import SPARSE
from ..support.threads import in_threads
from ..support.vocabs import blank_vocab

DIM = 3
WORDS = {"a": [1, 0, 2], "b": [0, 3, 1], "rome": [-1, 0, 0], "Rome": [2, 2, -2]}
"""The vectors of some words."""

TEXTS = ("a b a c", "", "Rome A", "ROME b", "7")
GOLD = Gold(numpy.asarray([0, 2, 1, 1, 0, 2, 1, 0, 1], dtype="int32"))
"""A tag for each of the 9 tokens of TEXTS."""


@pytest.fixture()
def vocab() -> Vocab:
    vocab = blank_vocab()
    for word, vector in WORDS.items():
        vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    return vocab


@pytest.fixture()
def nothing_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates leave out nothing."""
    monkeypatch.setattr("spacy_costner.ml.weights.VECTOR_DROPOUT", 0.0)
    monkeypatch.setattr("spacy_costner.ml.hidden.HIDDEN_VECTOR_DROPOUT", 0.0)
    monkeypatch.setattr("spacy_costner.ml.hidden.UNIT_DROPOUT", 0.0)


def docs_of(vocab: Vocab) -> list[Doc]:
    return [Doc(vocab, words=text.split()) for text in TEXTS]


def crf(vocab: Vocab, *, hidden_window: int = 1, window: int = 0, width: int = 4) -> Model:
    """A model of random weights for three tags, with a hidden layer of `width` units."""
    windows = {"ORTH": 1, "LOWER": 0, "static_vectors": window}
    template = Template(windows=windows, include_static_vectors=True)
    model = build_sparse_crf(template, hidden=width, hidden_window=hidden_window, nO=3)
    model.initialize(X=docs_of(vocab))
    rng = numpy.random.default_rng(0)
    _, weights = linear_part(model)
    weights.rows[:] = rng.normal(size=weights.rows.shape)
    hidden = layer(model)
    hidden.restart(
        HiddenWeights._make(rng.normal(size=w.shape).astype("float32") for w in hidden.weights)
    )
    return model


def layer(model: Model) -> HiddenLayer:
    hidden = hidden_layer_of(model)
    assert hidden is not None
    return hidden


# Scores


@pytest.mark.parametrize("hidden_window", [0, 1, 3])
def test_emissions_gain_the_scores_of_the_layer(vocab: Vocab, hidden_window: int) -> None:
    """relu(sum over the offsets o of x_{t+o} V_o + b) U, where x is the type and the vector."""
    width = 4
    model = crf(vocab, hidden_window=hidden_window, window=1, width=width)
    features, weights = linear_part(model)
    inner, bias, outer = layer(model).weights
    n_offsets = 2 * hidden_window + 1
    n_types = len(CHARACTER_TYPES)
    assert features.n_hidden_rows == len(inner) == n_offsets * (n_types + DIM)
    of_types = inner[: n_offsets * n_types].reshape(n_offsets, n_types, width)
    of_vectors = inner[n_offsets * n_types :].reshape(n_offsets, DIM, width)
    docs = docs_of(vocab)
    scale = features.lookup.vector_column.scale  # type: ignore[union-attr]
    expected = weights.potentials(find_features(model, docs)).emissions
    token = 0
    for doc in docs:
        for i in range(len(doc)):
            inputs = bias.copy()
            for o in range(-hidden_window, hidden_window + 1):
                if 0 <= i + o < len(doc):
                    word = doc[i + o].text
                    vector = WORDS.get(word, WORDS.get(word.lower(), [0, 0, 0]))
                    type_number = CHARACTER_TYPES.index(character_type(word))
                    inputs += of_types[o + hidden_window][type_number]
                    inputs += scale * numpy.asarray(vector) @ of_vectors[o + hidden_window]
            expected[token] += numpy.maximum(inputs, 0) @ outer
            token += 1
    assert_allclose(model.predict(docs).emissions, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most_bytes", [0, 200, 1 << 27])
def test_predictions_with_kept_sums_of_words_are_the_same(
    vocab: Vocab, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there is room for the products of words or not, before and after updates. The first
    update begins a new cache of words, for which there are no sums yet. The second finds sums of
    the weights before it."""
    monkeypatch.setattr("spacy_costner.ml.word_sums.MOST_BYTES", most_bytes)
    model = crf(vocab)
    _, weights = linear_part(model)
    hidden = layer(model)
    optimizer = Adam(0.1)
    texts = ["a c b", "Rome", "A A x a", " ".join(f"b w{i} rome" for i in range(50))]
    batches = [[Doc(vocab, words=text.split())] for text in texts] + [docs_of(vocab)]
    for _ in range(3):
        for docs in batches + batches[::-1]:
            batch = find_features(model, docs)
            expected = weights.potentials(batch).emissions + hidden.score(batch)
            assert_allclose(model.predict(docs).emissions, expected, atol=1e-4)
        sums = hidden._word_sums
        assert sums is not None and sums.sums.nbytes <= most_bytes
        scores, backprop = model.begin_update(docs_of(vocab))
        backprop(sequential(scores, GOLD).gradient)
        model.finish_update(optimizer)


def test_threads_predict_the_same(vocab: Vocab) -> None:
    """Eight threads predict with the same model at once, so that they compute products of the same
    words. Thread i begins with doc 4 i, and has the docs before it last."""
    model = crf(vocab)
    docs: list[Doc] = []
    for i in range(40):
        for word in "bcd":
            docs.append(Doc(vocab, words=["a", word, "rome", f"w{i}"]))
    expected = crf(vocab).predict(docs).emissions

    def predict_from(i: int) -> Any:
        return model.predict(docs[4 * i :] + docs[: 4 * i]).emissions

    for i, emissions in enumerate(in_threads(predict_from, n_threads=8)):
        # Four docs have 16 tokens.
        in_order_of_docs = numpy.roll(emissions, 16 * i, axis=0)
        assert_allclose(in_order_of_docs, expected, atol=1e-5)


# Training


@pytest.mark.usefixtures("nothing_lost")
@pytest.mark.parametrize("hidden_window", [0, 1])
def test_gradients_of_the_layer_are_central_differences(vocab: Vocab, hidden_window: int) -> None:
    """The gradients of two batches are added. Here they are those of the same docs, so the gradient
    is that of twice the loss."""
    model = crf(vocab, hidden_window=hidden_window)
    hidden = layer(model)
    docs = docs_of(vocab)

    def value() -> float:
        hidden.restart(hidden.weights)  # makes it forget the products of words
        return 2 * sequential(model.predict(docs), GOLD).value

    for _ in range(2):
        scores, backprop = model.begin_update(docs)
        backprop(sequential(scores, GOLD).gradient)
    gradient = hidden.gradient()
    for name, d_array in gradient._asdict().items():
        assert d_array.any(), name
        for index in numpy.ndindex(d_array.shape):
            expected = difference(value, hidden, name, index)
            assert d_array[index] == pytest.approx(expected, abs=2e-2), (name, index)


def difference(value: Any, hidden: HiddenLayer, name: str, index: Any) -> float:
    """The derivative of a value by a weight of the layer. The step is small, as there is a kink
    where a unit begins to be active."""
    moved = {key: array.copy() for key, array in hidden.weights._asdict().items()}
    before = HiddenWeights(**moved)
    values = []
    for step in (1e-3, -1e-3):
        array = getattr(before, name).copy()
        array[index] += step
        hidden.restart(before._replace(**{name: array}))
        values.append(value())
    hidden.restart(before)
    return (values[0] - values[1]) / 2e-3


@pytest.mark.usefixtures("nothing_lost")
def test_an_update_is_a_step_of_the_optimizer(vocab: Vocab) -> None:
    model = crf(vocab)
    hidden = layer(model)
    before = hidden.weights._asdict()
    scores, backprop = model.begin_update(docs_of(vocab))
    backprop(sequential(scores, GOLD).gradient)
    gradient = hidden.gradient()
    expected: list[Any] = []
    for name, array in before.items():
        weights, _ = Adam(0.1)((0, name), array.copy(), getattr(gradient, name).copy())
        expected.append(weights)
    model.finish_update(Adam(0.1))
    for array, expected_array in zip(hidden.weights, expected):
        assert_allclose(array, expected_array, atol=1e-6)
    updated_weights = hidden.weights
    model.finish_update(Adam(0.1))  # nothing is kept
    assert hidden.weights is updated_weights


@pytest.mark.usefixtures("nothing_lost")
def test_updates_leave_out_a_share_of_the_vectors(
    vocab: Vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 4,000 equal tokens keeps its vector or loses it. The share of those that lose it has
    the deviation sqrt(0.3 * 0.7 / 4000), which is 0.007."""
    model = crf(vocab, hidden_window=0)  # a token sees no other word
    hidden = layer(model)
    batch = find_features(model, [Doc(vocab, words=["Rome"] * 4000)])
    assert batch.hidden_ids is not None
    without_vectors = batch._replace(hidden_ids=numpy.full_like(batch.hidden_ids, -1))
    scores_with_vector = hidden.score(batch)
    scores_without_vector = hidden.score(without_vectors)
    numpy.random.seed(0)

    for share in (0.0, 0.3, 1.0):
        monkeypatch.setattr("spacy_costner.ml.hidden.HIDDEN_VECTOR_DROPOUT", share)
        scores, _ = hidden.begin_update(batch)
        is_kept = numpy.isclose(scores, scores_with_vector, atol=1e-5).all(axis=1)
        is_lost = numpy.isclose(scores, scores_without_vector, atol=1e-5).all(axis=1)
        assert (is_kept != is_lost).all()
        assert is_lost.mean() == pytest.approx(share, abs=0.03)


@pytest.mark.usefixtures("nothing_lost")
@pytest.mark.parametrize("share", [0.0, 0.2, 0.75])
def test_units_that_are_not_lost_count_more(
    vocab: Vocab, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer has one unit, which each of 4,000 equal tokens keeps or loses. If it is kept, it is
    divided by the share of kept ones, so that the mean stays the same; and so is its gradient."""
    model = crf(vocab, hidden_window=0, width=1)
    hidden = layer(model)
    hidden.restart(hidden.weights._replace(bias=numpy.asarray([20.0], dtype="float32")))
    batch = find_features(model, [Doc(vocab, words=["Rome"] * 4000)])
    scores_of_unit = hidden.score(batch)
    monkeypatch.setattr("spacy_costner.ml.hidden.UNIT_DROPOUT", share)
    numpy.random.seed(0)

    scores, backprop = hidden.begin_update(batch)
    backprop(numpy.ones_like(scores))

    is_kept = scores.any(axis=1)
    assert is_kept.mean() == pytest.approx(1 - share, abs=0.03)
    assert_allclose(scores[is_kept], scores_of_unit[is_kept] / (1 - share), rtol=1e-5)
    d_bias = is_kept.sum() * hidden.weights.outer.sum() / (1 - share)
    assert_allclose(hidden.gradient().bias, [d_bias], rtol=1e-4)


@pytest.mark.usefixtures("nothing_lost")
def test_averages_are_used_temporarily(vocab: Vocab) -> None:
    model = crf(vocab)
    hidden = layer(model)
    optimizer = Adam(0.1)
    docs = docs_of(vocab)
    for _ in range(3):
        scores, backprop = model.begin_update(docs)
        backprop(sequential(scores, GOLD).gradient)
        model.finish_update(optimizer)
    batch = find_features(model, docs)
    last = hidden.score(batch)
    with model.use_params(optimizer.averages):
        average = hidden.score(batch)
        assert_allclose(hidden.weights.outer, optimizer.averages[hidden.id, "outer"])
    assert_array_equal(hidden.score(batch), last)
    assert not numpy.allclose(average, last)
    hidden.restart(hidden.averaged(optimizer))
    assert_array_equal(hidden.score(batch), average)
    assert_array_equal(hidden.averaged(Adam(0.1)).outer, hidden.weights.outer)  # none are kept


def pairs_of_signs() -> tuple[dict[str, Any], list[tuple[str, str]], list[tuple[str, str]]]:
    """The vectors of words, and texts to learn from and to test with: a word is a name if the
    numbers of its vector have different signs, which no linear model can tell from other words."""
    rng = numpy.random.default_rng(0)
    vectors: dict[str, Any] = {}
    texts: list[tuple[str, str]] = []
    for _ in range(160):
        vector = rng.choice([-1, 1], size=2) * rng.uniform(0.5, 1.5, size=2)
        # Letters say nothing.
        word = "".join(rng.choice([*"abcdefgh"], size=8))
        vectors[word] = vector
        texts.append((f"{word} and", "B-X O" if vector.prod() < 0 else "O O"))
    return vectors, texts[:80], texts[80:]


def pipeline(hidden: int = 16, **settings: Any) -> tuple[Language, list[Example], list[Example]]:
    vectors, train, test = pairs_of_signs()
    nlp = spacy.blank("xx")
    for word, vector in vectors.items():
        nlp.vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    features = {
        "@misc": "spacy_costner.Features.v1",
        "windows": {"LOWER": 0},
        "include_static_vectors": True,
    }
    model = {**SPARSE, "features": features, "hidden": hidden}
    config = {"model": model, "scheme": "IOB2", **settings}
    nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    return nlp, examples_of(nlp, train), examples_of(nlp, test)


class Updated(NamedTuple):
    """A trained pipeline, what it was trained on, and what it is tested on."""

    nlp: Language
    train: list[Example]
    test: list[Example]


def updated(**settings: Any) -> Updated:
    """A pipeline after 80 updates."""
    fix_random_seed(0)
    nlp, train, test = pipeline(**settings)
    optimizer = nlp.initialize(lambda: train, sgd=Adam(0.05))
    for _ in range(80):
        nlp.update(train, sgd=optimizer)
    return Updated(nlp, train, test)


@pytest.fixture(scope="module")
def updated_pipeline() -> Updated:
    """A pipeline after 80 updates. Tests don't change it."""
    return updated()


@pytest.mark.slow
def test_updates_learn_what_is_not_linear(updated_pipeline: Updated) -> None:
    """The texts are those of `pairs_of_signs`. Without hidden units, a model can't tell names from
    other words."""
    nlp, _, test = updated_pipeline
    assert nlp.evaluate(test)["ents_f"] > 0.9
    linear_nlp, _, _ = updated(hidden=0)
    assert linear_nlp.evaluate(test)["ents_f"] < 0.8


@pytest.mark.slow
def test_mira_trains_the_layer() -> None:
    """The steps of MIRA are measured on the features of the linear model, so it is the loss that is
    likeliest to fail."""
    loss = {"@losses": "spacy_costner.MIRA.v1", "aggressiveness": 1.0}
    nlp, _, test = updated(loss=loss)
    assert nlp.evaluate(test)["ents_f"] > 0.85


def test_training_the_layer_alone_leaves_the_weights_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spacy_costner.training.hidden.N_EPOCHS", 300)
    fix_random_seed(0)
    nlp, train, test = pipeline(hidden=64)
    nlp.initialize(lambda: train)
    ner = nlp.get_pipe("ner")
    _, weights = linear_part(ner.model)
    before = weights.rows.copy()
    parts = (ner.model, ner.objective, ner.chain_tags, train)
    optimizer = Adam(0.02)
    trained = train_hidden_layer(*parts, optimizer, ner.progress)
    assert trained.n_epochs == 300
    assert_has_averages(layer(ner.model), optimizer)
    assert_array_equal(weights.rows, before)
    assert nlp.evaluate(test)["ents_f"] > 0.9


def test_the_layer_that_updates_have_trained_has_the_averages() -> None:
    nlp, train, _ = pipeline()
    nlp.initialize(lambda: train)
    ner = nlp.get_pipe("ner")
    optimizer = Adam(0.05)
    training = {
        "optimizer": optimizer,
        "batcher": configure_minibatch(size=40),
        "max_epochs": 2,
        "max_steps": 0,
    }
    linear = LinearPipeline(nlp, ner, training)
    train_by_updates(linear, train, n_seeds=1, on_epoch=lambda trained: None)
    assert_has_averages(layer(ner.model), optimizer)


def assert_has_averages(hidden: HiddenLayer, optimizer: Optimizer) -> None:
    """The weights of the layer are the averages that the optimizer has kept."""
    for name, array in hidden.weights._asdict().items():
        assert_array_equal(array, optimizer.averages[hidden.id, name])


TOGETHER, ALONE = 0, 100_000
"""Values of MOST_WORDS_ALONE. With at most so many words, the layer is trained alone, after the
weights."""

BY_UPDATES, AT_ONCE = 0, 1000
"""Values of FEW_SENTENCES. With fewer sentences, the weights are trained at once."""


@pytest.mark.parametrize(
    ("most_words", "few_sentences", "n_seeds"),
    [
        (TOGETHER, BY_UPDATES, 1),
        (ALONE, BY_UPDATES, 2),
        (TOGETHER, AT_ONCE, 2),
        (ALONE, AT_ONCE, 1),
    ],
    ids=["together by updates", "alone by updates", "together at once", "alone at once"],
)
def test_fit_trains_the_layer(
    most_words: int,
    few_sentences: int,
    n_seeds: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Together with the weights or after them, however these are trained."""
    monkeypatch.setattr("spacy_costner.training.hidden.MOST_WORDS_ALONE", most_words)
    monkeypatch.setattr("spacy_costner.training.hidden.N_EPOCHS", 100)
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", few_sentences)
    config = fit_config(tmp_path)
    fitted = fit(config, tmp_path / "output", n_seeds=n_seeds)
    assert fitted.scores["ents_f"] > 0.9
    loaded = spacy.load(fitted.path)
    _, _, test = pipeline()
    assert loaded.evaluate(test)["ents_f"] == fitted.scores["ents_f"]


WARM_UP = {
    "@schedules": "warmup_linear.v1",
    "initial_rate": 0.05,
    "warmup_steps": 4,
    "total_steps": 10_000,
}
FIRST_STEPS = {
    "@schedules": "constant_then.v1",
    "rate": 0.05,
    "steps": 4,
    "schedule": {"@schedules": "constant.v1", "rate": 0.0},
}
"""Schedules of the learning rate. It is 0 in the first step, and after the first four steps."""

GROWING = {"@schedules": "compounding.v1", "start": 10, "stop": 100, "compound": 1.5}
"""A schedule of the batch size."""


@pytest.mark.parametrize("learn_rate", [WARM_UP, FIRST_STEPS], ids=["warm-up", "first steps"])
@pytest.mark.parametrize("most_words", [TOGETHER, ALONE], ids=["together", "alone"])
def test_fit_uses_schedules(
    learn_rate: dict[str, Any], most_words: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For a layer that is trained alone, and for the second component, schedules begin anew. The
    weights of each component are updated more than four times."""
    monkeypatch.setattr("spacy_costner.training.hidden.MOST_WORDS_ALONE", most_words)
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", BY_UPDATES)
    config = fit_config(tmp_path)
    config["training"]["optimizer"]["learn_rate"] = learn_rate
    config["training"]["batcher"]["size"] = GROWING
    # `fit` only trains several components with the same `spans_key`.
    for path in tmp_path.glob("*.spacy"):
        docs = DocBin().from_disk(path).get_docs(blank_vocab())
        DocBin(docs=[entities_as_spans(doc, "sc") for doc in docs]).to_disk(path)
    config["components"]["ner"]["spans_key"] = "sc"
    config["components"]["second"] = deepcopy(config["components"]["ner"])
    config["nlp"]["pipeline"] = ["ner", "second"]

    fitted = fit(config, tmp_path / "output")

    for name in ("ner", "second"):
        assert fitted.outcomes[name].n_steps > 4
        assert layer(fitted.nlp.get_pipe(name).model).weights.outer.any()
    assert fitted.outcomes["ner"].n_steps == fitted.outcomes["second"].n_steps


@pytest.mark.slow
def test_fit_with_a_cache_trains_the_layer(tmp_path: Path) -> None:
    config = fit_config(tmp_path)
    fitted = fit(config, tmp_path / "output", cache=tmp_path / "cache")
    assert fitted.scores["ents_f"] > 0.9
    with pytest.raises(ValueError, match="`n_seeds`: expected 1 with `cache` and a hidden layer"):
        fit(config, tmp_path / "output", cache=tmp_path / "cache", n_seeds=2)


@pytest.mark.parametrize("most_words", [TOGETHER, ALONE], ids=["together", "alone"])
def test_a_cache_changes_only_weights_of_small_corpora(
    most_words: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a cache, the layer is trained together with the other weights. In memory, it is only if
    the corpus has many words."""
    monkeypatch.setattr("spacy_costner.training.hidden.MOST_WORDS_ALONE", most_words)
    monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", BY_UPDATES)
    config = fit_config(tmp_path)
    outer: list[numpy.ndarray] = []
    for cache in (None, tmp_path / "cache"):
        fitted = fit(config, tmp_path / "output", cache=cache)
        outer.append(layer(fitted.nlp.get_pipe("ner").model).weights.outer)
    assert numpy.array_equal(*outer) is (most_words == TOGETHER)


def fit_config(folder: Path) -> Config:
    """A config with a hidden layer, and corpora and vectors in a folder."""
    nlp, train, test = pipeline()
    spacy.blank("xx", vocab=nlp.vocab).to_disk(folder / "vectors")
    for name, examples in (("train", train), ("dev", test)):
        docs = [eg.reference for eg in examples]
        DocBin(docs=docs).to_disk(folder / f"{name}.spacy")
    text = init(
        lang="xx",
        train_path=folder / "train.spacy",
        dev_path=folder / "dev.spacy",
        vectors=str(folder / "vectors"),
    )
    overrides = {"training.max_epochs": 6, "training.optimizer.learn_rate": 0.05}
    config = Config().from_str(text, overrides=overrides, interpolate=False)
    features = config["components"]["ner"]["model"]["features"]
    features.update(windows={"LOWER": 0}, memory=None, elsewhere=None)
    return config


# Saved models


def test_a_saved_pipeline_with_a_layer_predicts_the_same(
    updated_pipeline: Updated, tmp_path: Path
) -> None:
    """It may be saved to disk or to bytes, or pickled, or predict in two processes."""
    nlp, train, test = updated_pipeline
    texts = [eg.reference.text for eg in test]

    def predict(nlp: Language, **options: Any) -> list[Any]:
        return [doc.to_json()["ents"] for doc in nlp.pipe(texts, **options)]

    expected = predict(nlp)
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    pickled = pickle.loads(pickle.dumps(nlp))
    untrained, _, _ = pipeline()
    from_bytes = untrained.from_bytes(nlp.to_bytes())

    assert any(expected)
    for copied in (loaded, pickled, from_bytes):
        assert predict(copied) == expected
    assert predict(loaded, n_process=2, batch_size=16) == expected
    # The loaded pipeline can be trained on.
    optimizer = loaded.resume_training()
    loaded.update(train, sgd=optimizer)


def test_a_copy_has_weights_of_its_own(vocab: Vocab) -> None:
    model = crf(vocab)
    docs = docs_of(vocab)
    expected = model.predict(docs).emissions
    copied = model.copy()
    scores, backprop = copied.begin_update(docs)
    backprop(sequential(scores, GOLD).gradient)
    copied.finish_update(Adam(0.1))
    assert layer(copied).id != layer(model).id
    assert_array_equal(model.predict(docs).emissions, expected)


def test_an_added_label_changes_no_score(updated_pipeline: Updated) -> None:
    """Scores of the tags that were there stay. The outer weights of the layer, of 16 units, have a
    column for each tag."""
    nlp = pickle.loads(pickle.dumps(updated_pipeline.nlp))
    ner = nlp.get_pipe("ner")
    docs = [nlp.make_doc(eg.reference.text) for eg in updated_pipeline.test]
    before = ner.model.predict(docs)
    n_tags = len(before.start)
    ner.add_label("DATE")
    after = ner.model.predict(docs)
    assert_allclose(after.emissions[:, :n_tags], before.emissions, atol=1e-5)
    assert layer(ner.model).weights.outer.shape == (16, len(after.start))


def test_an_optimizer_trains_a_layer_with_added_labels() -> None:
    """The optimizer has moments and averages of the smaller layer. The label is added by `update`,
    as for a streamed corpus."""
    nlp, train, _ = pipeline()
    optimizer = nlp.initialize(lambda: train, sgd=Adam(0.05))
    nlp.update(train, sgd=optimizer)
    hidden = layer(nlp.get_pipe("ner").model)
    n_tags = hidden.weights.outer.shape[1]
    new = examples_of(nlp, [(train[0].text, "B-DRUG O")])

    for _ in range(2):
        nlp.update([*train, *new], sgd=optimizer)

    assert hidden.weights.outer[:, n_tags:].any()
    with nlp.use_params(optimizer.averages):
        assert hidden.weights.outer[:, n_tags:].any()
        assert_array_equal(hidden.weights.outer, optimizer.averages[hidden.id, "outer"])


def test_an_optimizer_trains_a_layer_that_is_initialized_again() -> None:
    """With the averages of the first training, the new layer would not begin with zeros."""
    nlp, train, _ = pipeline()
    optimizer = nlp.initialize(lambda: train, sgd=Adam(0.05))
    nlp.update(train, sgd=optimizer)

    nlp.initialize(lambda: train, sgd=optimizer)

    hidden = layer(nlp.get_pipe("ner").model)
    with nlp.use_params(optimizer.averages):
        assert not hidden.weights.outer.any()


def saved_weights(**changes: Any) -> bytes:
    """The saved weights of a layer of 4 units, with changes."""
    weights = {"inner": (6, 4), "bias": (4,), "outer": (4, 3)}
    arrays = {name: numpy.ones(shape, dtype="float32") for name, shape in weights.items()}
    return srsly.msgpack_dumps({**arrays, **changes})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x", "damaged data"),
        (saved_weights(inner="x"), "damaged data"),
        (saved_weights(bias=numpy.ones(3, dtype="float32")), "weights of shapes"),
        (saved_weights(outer=numpy.full((4, 3), numpy.nan, dtype="float32")), "finite weights"),
    ],
)
def test_damaged_weights_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"hidden layer: expected .*{message}"):
        HiddenLayer(4).from_bytes(data)


def test_a_layer_of_another_width_is_refused() -> None:
    loaded = HiddenLayer(4).from_bytes(saved_weights())
    assert loaded.weights.inner.shape == (6, 4)
    with pytest.raises(ValueError, match=r"expected weights of shapes \[\(6, 5\)"):
        HiddenLayer(5).from_bytes(saved_weights())


@pytest.mark.parametrize("settings", [{"hidden": 8}, {"hidden_window": 0}, {"hidden_window": 2}])
def test_another_size_at_load_is_refused(
    settings: dict[str, int], updated_pipeline: Updated, tmp_path: Path
) -> None:
    """The layer was trained with 16 units and a window of 1."""
    updated_pipeline.nlp.to_disk(tmp_path)
    config = {"components": {"ner": {"model": settings}}}
    message = r"ner.model: .*hidden layer: expected .*train again for another hidden or hidden_win"
    with pytest.raises(ValueError, match=message):
        spacy.load(tmp_path, config=config)
    spacy.load(tmp_path, config={"components": {"ner": {"model": {"hidden_window": 1}}}})


def test_a_layer_of_another_number_of_tags_is_refused() -> None:
    assert HiddenLayer(4).from_bytes(saved_weights(), n_rows=6, n_tags=3).is_allocated
    with pytest.raises(ValueError, match=r"expected weights of shapes .*\(4, 5\)\], got"):
        HiddenLayer(4).from_bytes(saved_weights(), n_rows=6, n_tags=5)


# Settings


@pytest.mark.parametrize("settings", [{"hidden": -1}, {"hidden": 4, "hidden_window": -1}])
def test_numbers_below_0_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"SparseCRF: hidden.*: expected a number of at least 0"):
        build_sparse_crf(Template(include_static_vectors=True), **settings)


def test_a_layer_without_static_vectors_is_refused() -> None:
    with pytest.raises(
        ValueError, match="hidden: expected 0 unless the features have include_static_vectors"
    ):
        build_sparse_crf(hidden=4)


def test_without_training_docs_there_is_no_layer(vocab: Vocab) -> None:
    model = build_sparse_crf(Template(include_static_vectors=True), hidden=4, nO=3)
    model.initialize(X=[])
    assert hidden_layer_of(model) is None
    assert model.predict(docs_of(vocab)).emissions.shape == (9, 3)  # tokens of TEXTS, tags


def test_parts_of_an_explanation_add_up_to_the_score(updated_pipeline: Updated) -> None:
    """The layer is one of the reasons for a tag."""
    nlp, _, test = updated_pipeline
    ner = nlp.get_pipe("ner")
    text = test[0].reference.text
    (token, _) = explain(nlp, text=text, n_features=1000).tokens
    (of_layer,) = [feature for feature in token.features if feature.feature == HIDDEN_LAYER]
    scores = ner.model.predict([nlp.make_doc(text)])
    tag = ner.chain_tags.names.index(token.tag)
    assert token.score == pytest.approx(scores.emissions[0, tag], abs=1e-4)
    assert token.score == pytest.approx(sum(f.weight for f in token.features), abs=1e-4)
    assert of_layer.weight != 0
