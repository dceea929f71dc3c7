"""Static vectors as inputs of the linear model: scores, gradients, training, files, errors."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import fix_random_seed
from spacy.vectors import Mode, Vectors
from spacy.vocab import Vocab
from thinc.api import Adam, Model, Optimizer

from spacy_costner.features import FeatureBatch, Features, Template
from spacy_costner.features.static_vectors import STANDARD_DEVIATION
from spacy_costner.losses import sequential
from spacy_costner.ml import (
    SparseWeights,
    build_sparse_crf,
    find_features,
    first_pass_of,
    linear_part,
)
from spacy_costner.ml.vector_inputs import number_distinct
from spacy_costner.ml.weights import VECTOR_DROPOUT, VECTOR_RATE
from spacy_costner.training import lbfgs
from spacy_costner.training.lbfgs import TotalLoss, train_at_once
from spacy_costner.types import Gold, Progress

from ..support.fitting import examples_of, read_batches, read_pieces, train
from ..support.gradients import central_difference
from ..support.linear import HYBRID, SPARSE
from ..support.threads import in_threads
from ..support.vocabs import blank_vocab

DIM = 3
WORDS = {"a": [1, 0, 2], "b": [0, 3, 1], "rome": [-1, 0, 0], "Rome": [2, 2, -2]}
"""The vectors of some words. Only "Rome" has another as it is written than in lower case."""

TEXTS = ("a b a c", "", "Rome A", "ROME b", "c")
GOLD = Gold(numpy.asarray([0, 2, 1, 1, 0, 2, 1, 0, 1], dtype="int32"))
"""A tag of each of the nine words of `TEXTS`."""

FEATURES = {"@misc": "spacy_costner.Features.v1", "include_static_vectors": True}


def vocab_with(vectors: dict[str, Any]) -> Vocab:
    """A vocab whose words have these vectors."""
    vocab = blank_vocab()
    for word, vector in vectors.items():
        vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    return vocab


def vector_of(word: str) -> list[int]:
    """The vector of a word, by definition: that of its text, or of its text in lower case, or
    zeros."""
    return WORDS.get(word, WORDS.get(word.lower(), [0] * DIM))


def docs_of(vocab: Vocab) -> list[Doc]:
    """A doc of each of TEXTS, the second without words."""
    return [Doc(vocab, words=text.split()) for text in TEXTS]


def features_of(vocab: Vocab, **windows: int) -> Features:
    """Features with static vectors, built on TEXTS."""
    template = Template(windows={"ORTH": 1, **windows}, include_static_vectors=True)
    features = Features(template)
    features.build_vocab(docs_of(vocab))
    return features


def crf(vocab: Vocab, *, window: int = 1, n_tags: int = 3, **settings: Any) -> Model:
    """A model of random weights."""
    windows = {"ORTH": 1, "LOWER": 2, "static_vectors": window}
    template = Template(windows=windows, include_static_vectors=True)
    model = build_sparse_crf(template, **settings, nO=n_tags)
    model.initialize(X=docs_of(vocab))
    _, weights = linear_part(model)
    weights.rows[:] = numpy.random.default_rng(0).normal(size=weights.rows.shape)
    return model


@pytest.fixture()
def vocab() -> Vocab:
    """The vocab of WORDS."""
    return vocab_with(WORDS)


# Inputs


def read_vectors(batch: FeatureBatch) -> numpy.ndarray:
    """The vector of each token, of features without a window. Shape: (n_tokens, DIM)"""
    assert batch.vectors is not None and batch.vector_ids is not None
    return batch.vectors.read(batch.vector_ids[:, 0])


def scale_of(batch: FeatureBatch) -> float:
    """The number by which all vectors are multiplied."""
    assert batch.vectors is not None
    return batch.vectors.scale


def test_a_word_has_its_vector_as_written_or_in_lower_case(vocab: Vocab) -> None:
    """A word without a vector has zeros."""
    features = features_of(vocab, static_vectors=0)
    words = ["a", "A", "Rome", "rome", "ROME", "c"]

    batch = features.find([Doc(vocab, words=words)])

    names = ["a", "a", "Rome", "rome", "rome"]
    expected = numpy.asarray([*(WORDS[name] for name in names), [0] * DIM])
    assert_allclose(read_vectors(batch), scale_of(batch) * expected, rtol=1e-6)


def test_vectors_are_scaled_to_a_standard_deviation(vocab: Vocab) -> None:
    """The standard deviation is that of all numbers of the four vectors. Each vector is that of a
    word of TEXTS."""
    batch = features_of(vocab).find(docs_of(vocab))
    numbers = scale_of(batch) * numpy.asarray(list(WORDS.values()))
    assert numbers.std() == pytest.approx(STANDARD_DEVIATION)


def test_windows_end_where_docs_end(vocab: Vocab) -> None:
    """The number of the vector before each token, of its own, and of that after it; -1 is none."""
    features = features_of(vocab, static_vectors=1)

    batch = features.find(docs_of(vocab))

    row_of = {word: vocab.vectors.key2row[vocab.strings[word]] for word in WORDS}
    a, b, upper, lower = (row_of[word] for word in ("a", "b", "Rome", "rome"))
    assert batch.vector_ids is not None
    assert batch.vector_ids.tolist() == [
        [-1, a, b], [a, b, a], [b, a, -1], [a, -1, -1],  # a b a c
        [-1, upper, a], [upper, a, -1],  # Rome A
        [-1, lower, b], [lower, b, -1],  # ROME b
        [-1, -1, -1],  # c
    ]  # fmt: skip


@pytest.mark.parametrize("window", [0, 1, 3])
def test_scores_gain_the_products_of_the_window(vocab: Vocab, window: int) -> None:
    """Emissions are those without vectors and, for each offset o, x_{t+o} W_o."""
    model = crf(vocab, window=window)
    features, weights = linear_part(model)
    docs = docs_of(vocab)
    batch = find_features(model, docs)
    n_offsets = 2 * window + 1
    assert features.n_vector_rows == weights.n_vector_rows == n_offsets * DIM

    emissions = weights.potentials(batch).emissions

    without_vectors = weights.potentials(batch._replace(vector_ids=None)).emissions
    weights_of_offset = weights.vector_weights.reshape(n_offsets, DIM, 3)
    products = numpy.zeros_like(emissions)
    token = 0
    for doc in docs:
        for i in range(len(doc)):
            for neighbour in range(max(0, i - window), min(len(doc), i + window + 1)):
                vector = scale_of(batch) * numpy.asarray(vector_of(doc[neighbour].text))
                products[token] += vector @ weights_of_offset[neighbour - i + window]
            token += 1
    assert abs(products).max() > 0.1
    assert_allclose(emissions, without_vectors + products, rtol=1e-5, atol=1e-5)


def test_scores_of_vectors_are_told_by_offset(vocab: Vocab) -> None:
    """Shape: (n_tokens, offsets, tags)"""
    model = crf(vocab)
    _, weights = linear_part(model)
    batch = find_features(model, docs_of(vocab))

    scores_of_offsets = weights.score_vectors(batch)

    emissions = weights.potentials(batch).emissions
    without_vectors = weights.potentials(batch._replace(vector_ids=None)).emissions
    assert_allclose(scores_of_offsets.sum(axis=1), emissions - without_vectors, atol=1e-5)
    assert not scores_of_offsets[-1].any()  # of the doc "c", which has no vector


def test_without_vectors_there_are_no_scores_of_offsets(vocab: Vocab) -> None:
    model = crf(vocab)
    _, weights = linear_part(model)
    batch = find_features(model, docs_of(vocab))._replace(vector_ids=None)
    assert weights.score_vectors(batch).shape == (len(GOLD.tags), 0, 3)


def test_words_with_a_vector_are_counted(vocab: Vocab) -> None:
    """Each time that they are there: all words of the texts but twice "c"."""
    coverage = features_of(vocab).vector_coverage
    assert coverage is not None
    assert coverage.as_text() == "7 of 9 words (78%) have a static vector"


def test_counts_of_words_with_a_vector_are_not_saved(vocab: Vocab) -> None:
    features = features_of(vocab)
    loaded = Features(features.template).from_bytes(features.to_bytes())
    assert loaded.vector_coverage is None


@pytest.mark.parametrize("most_bytes", [1 << 27, 300, 0])
@pytest.mark.parametrize("window", [0, 1, 3])
def test_predictions_are_the_scores_of_training(
    vocab: Vocab, window: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors are part of the sums of words, whether there is room for these or not."""
    monkeypatch.setattr("spacy_costner.ml.word_sums.MOST_BYTES", most_bytes)
    model = crf(vocab, window=window)
    _, weights = linear_part(model)
    many_new_words = " ".join(f"b w{i} rome" for i in range(50))
    batches = [docs_of(vocab)]
    for text in ("a c b", "Rome", "A A x a", many_new_words):
        batches.append([Doc(vocab, words=text.split())])

    def check_predictions() -> None:
        for docs in batches + batches[::-1]:
            expected = weights.potentials(find_features(model, docs)).emissions
            assert_allclose(model.predict(docs).emissions, expected, atol=1e-5)

    check_predictions()
    # An update, with its scores as gradient, makes it forget the sums of words.
    docs = docs_of(vocab)
    potentials, backprop = weights.begin_update(find_features(model, docs))
    backprop(potentials)
    weights.finish_update(Optimizer(0.1))
    check_predictions()


def test_sums_of_words_are_the_same_in_any_order() -> None:
    """Bit for bit, whichever words come with a word when its sum is computed. BLAS computes a
    product of many numbers in another order for a single row."""
    words = ["a", "b", *(f"w{i}" for i in range(30))]
    rng = numpy.random.default_rng(0)
    vocab = vocab_with({word: rng.normal(size=100) for word in words})
    sums_together = crf(vocab)
    sums_one_by_one = crf(vocab)
    docs = [Doc(vocab, words=words)]

    for word in reversed(words):
        sums_one_by_one.predict([Doc(vocab, words=[word])])

    expected = sums_together.predict(docs).emissions
    assert_array_equal(sums_one_by_one.predict(docs).emissions, expected)


@given(st.lists(st.integers(0, 20), max_size=30))
def test_different_ids_are_numbered(ids: list[int]) -> None:
    """`number_of_id` says of each id where it is among the distinct ones."""
    distinct_ids, number_of_id = number_distinct(numpy.asarray(ids, dtype="int32"), 21)
    assert sorted(distinct_ids.tolist()) == sorted(set(ids))
    assert distinct_ids[number_of_id].tolist() == ids


# Gradients


@pytest.fixture()
def all_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """No vector is left out of updates."""
    monkeypatch.setattr("spacy_costner.ml.weights.VECTOR_DROPOUT", 0.0)


@pytest.mark.parametrize("window", [0, 1])
@pytest.mark.usefixtures("all_vectors")
def test_gradients_of_weights_of_vectors_are_central_differences(vocab: Vocab, window: int) -> None:
    """All weights are compared, also those of features. Two batches count together."""
    model = crf(vocab, window=window)
    _, weights = linear_part(model)
    docs = docs_of(vocab)

    def value() -> float:
        weights.rows[:] = weights.table.weights  # makes it forget the sums of words
        return 2 * sequential(model.predict(docs), GOLD).value

    for _ in range(2):
        potentials, backprop = model.begin_update(docs)
        backprop(sequential(potentials, GOLD).gradient)
    rows, gradient_of_rows = weights.gradient()

    assert len(set(rows.tolist())) == len(rows)
    gradient = numpy.zeros_like(weights.rows)
    gradient[rows] = gradient_of_rows
    for index in numpy.ndindex(gradient.shape):
        expected = central_difference(value, weights.rows, index)
        assert gradient[index] == pytest.approx(expected, abs=4e-3), index
    assert gradient[is_row_of_vectors(weights)].all(axis=1).any()


def is_row_of_vectors(weights: SparseWeights) -> numpy.ndarray:
    """Whether a row of weights is of vectors: these come after those of features. Shape: (V,)"""
    numbers = numpy.arange(len(weights.rows)) - weights.n_features
    return (numbers >= 0) & (numbers < weights.n_vector_rows)


@pytest.mark.slow
@pytest.mark.usefixtures("all_vectors")
def test_dropout_leaves_the_mean_of_scores_as_it_is(vocab: Vocab) -> None:
    """Dropout leaves out 0.3 of the features of tokens. The scores of those that are left are
    multiplied by 1 / (1 - 0.3)."""
    model = crf(vocab)
    _, weights = linear_part(model)
    batch = find_features(model, docs_of(vocab))

    numpy.random.seed(0)
    samples = [weights.begin_update(batch, dropout=0.3)[0].emissions for _ in range(4000)]

    expected = weights.potentials(batch).emissions
    assert_allclose(numpy.mean(samples, axis=0), expected, atol=0.25)


def test_updates_leave_out_a_share_of_the_vectors(vocab: Vocab) -> None:
    """An update leaves out each vector with the probability `VECTOR_DROPOUT`. So on average over
    many updates, the scores of vectors are smaller by this share. Those of features stay as they
    are."""
    model = crf(vocab)
    _, weights = linear_part(model)
    batch = find_features(model, docs_of(vocab))
    without_vectors = weights.potentials(batch._replace(vector_ids=None)).emissions
    scores_of_vectors = weights.potentials(batch).emissions - without_vectors

    numpy.random.seed(0)
    samples = [weights.begin_update(batch)[0].emissions for _ in range(4000)]

    expected = without_vectors + (1 - VECTOR_DROPOUT) * scores_of_vectors
    assert_allclose(numpy.mean(samples, axis=0), expected, atol=0.1)


@pytest.mark.usefixtures("all_vectors")
def test_weights_of_vectors_have_a_learning_rate_of_their_own(vocab: Vocab) -> None:
    """The first step of AdaGrad is as large as the rate, whatever the gradient."""
    model = crf(vocab, learn_rate=0.2, eps=1e-8)
    _, weights = linear_part(model)
    before = weights.rows.copy()

    potentials, backprop = model.begin_update(docs_of(vocab))
    backprop(sequential(potentials, GOLD).gradient)
    rows_with_gradient, _ = weights.gradient()
    weights.finish_update(Optimizer(0.0))

    change = abs(weights.rows - before)
    is_of_vector = is_row_of_vectors(weights)
    assert change[is_of_vector].max() == pytest.approx(0.2 * VECTOR_RATE, rel=1e-3)
    assert change[~is_of_vector].max() == pytest.approx(0.2, rel=1e-3)
    assert not numpy.delete(change, rows_with_gradient, axis=0).any()


def initialized(**settings: Any) -> tuple[Language, list[Example]]:
    """A pipeline with vectors of some of its words, and its training docs."""
    nlp = spacy.blank("xx")
    vectors = {"Ana": [1, 2, 0], "rome": [0, 1, 1], "saw": [-1, 0, -2]}
    for word, vector in vectors.items():
        nlp.vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    model = {**SPARSE, "features": {**FEATURES, "windows": {"ORTH": 0, "static_vectors": 1}}}
    config = {"model": model, "scheme": "IOB2", **settings}
    nlp.add_pipe("cost_sensitive_ner", name="ner", config=config)
    examples = examples_of(nlp)
    nlp.initialize(lambda: examples)
    return nlp, examples


@pytest.mark.parametrize("outside", ["single", "before"])
def test_gradients_of_the_total_loss_are_central_differences(outside: str) -> None:
    """They are checked in some directions. Weights of vectors have a penalty of their own."""
    nlp, examples = initialized(outside=outside)
    ner = nlp.get_pipe("ner")
    total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.1, c2_of_vectors=0.4)
    rng = numpy.random.default_rng(1)
    point = rng.normal(size=total.read_weights().shape)
    n_rows, n_tags = total.shape
    assert point.shape == (n_rows * n_tags,)

    _, gradient = total(point)

    for _ in range(8):
        step = 1e-2 * rng.normal(size=point.shape)
        above, _ = total(point + step)
        below, _ = total(point - step)
        assert above - below == pytest.approx(2 * float(gradient @ step), rel=2e-3, abs=2e-4)


def test_the_total_loss_is_that_of_the_model() -> None:
    """The squares of the weights are added to it. Those of vectors have a penalty of their own."""
    nlp, examples = initialized()
    ner = nlp.get_pipe("ner")
    _, weights = linear_part(ner.model)
    total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.1, c2_of_vectors=0.4)
    point = numpy.random.default_rng(0).normal(size=total.read_weights().shape)

    value, _ = total(point)

    total.write_weights(point)
    assert_allclose(total.read_weights(), point, atol=1e-6)
    squares = numpy.square(weights.rows.astype("float64"))
    is_of_vector = is_row_of_vectors(weights)
    penalty = 0.1 * squares[~is_of_vector].sum() + 0.4 * squares[is_of_vector].sum()
    docs = [eg.predicted for eg in examples]
    (targets,) = ner.objective.targets(examples, ner.chain_tags).to_list()
    result, _ = ner.objective.evaluate(targets, ner.model.predict(docs), ner.progress)
    assert value == pytest.approx(result.value + penalty, rel=1e-5)


# Training

NAMES = [f"Name{i}" for i in range(60)]
PLACES = [f"Place{i}" for i in range(60)]


def name_vectors() -> dict[str, Any]:
    """Vectors that tell names from places, and from other words."""
    rng = numpy.random.default_rng(0)
    vectors: dict[str, Any] = {"and": [0, 0, 1]}
    for name, place in zip(NAMES, PLACES):
        vectors[name] = [1, 0, 0] + rng.normal(size=3) / 10
        vectors[place] = [0, 1, 0] + rng.normal(size=3) / 10
    return vectors


def name_examples(nlp: Language, first: int, end: int) -> list[Example]:
    """Docs of words that no other range of numbers has. Only vectors tell what they are."""
    texts: list[tuple[str, str]] = []
    for i in range(first, end):
        texts.append((f"{NAMES[i]} and {PLACES[i]}", "B-PER O B-LOC"))
        texts.append((f"{PLACES[i]} and {NAMES[i]}", "B-LOC O B-PER"))
    return examples_of(nlp, texts)


def pipeline(model: dict[str, Any], **features: Any) -> Language:
    """A pipeline with the vectors of all names and places, and these features."""
    nlp = spacy.blank("xx")
    for word, vector in name_vectors().items():
        nlp.vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    settings = {"windows": {"LOWER": 1}, **features}
    block = {**model, "features": {**FEATURES, **settings}}
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": block, "scheme": "IOB2"})
    return nlp


def updated(nlp: Language, n_steps: int = 30) -> Language:
    """Train a pipeline on the first 30 names and places."""
    fix_random_seed(0)
    batch = name_examples(nlp, 0, 30)
    optimizer = nlp.initialize(lambda: batch)
    for _ in range(n_steps):
        nlp.update(batch, sgd=optimizer)
    return nlp


def f_of_new_words(nlp: Language) -> float:
    """F on the other 30 names and places."""
    return nlp.evaluate(name_examples(nlp, 30, 60))["ents_f"]


COMBINATIONS: dict[str, dict[str, Any]] = {
    "alone": {},
    "clusters": {"vectors": [3]},
    "memory": {"memory": {"LOWER": 1}, "memory_unit": 2},
    "two passes": {"document": {"LOWER": 1}, "memory": {"LOWER": 1}, "memory_unit": 2},
}


@pytest.mark.parametrize("name", COMBINATIONS)
@pytest.mark.parametrize("model", [SPARSE, HYBRID], ids=["sparse", "hybrid"])
def test_new_words_are_known_by_their_vectors(model: dict[str, Any], name: str) -> None:
    """Training docs and new docs have no name or place in common. If there are two passes, the
    first one also learns from vectors."""
    nlp = updated(pipeline(model, **COMBINATIONS[name]))

    least_f = 0.95
    if model is HYBRID:
        least_f = 0.85  # its Tok2Vec doesn't know new words, and disturbs
    assert f_of_new_words(nlp) > least_f
    first_pass = first_pass_of(nlp.get_pipe("ner").model)
    assert (first_pass is not None) is (name == "two passes")
    if first_pass is not None:
        assert first_pass.weights.vector_weights.any()


def test_without_vectors_new_words_are_not_known() -> None:
    """Then names and places look alike to the model: a name may come before "and" or after it, and
    so may a place."""
    nlp = updated(pipeline(SPARSE, include_static_vectors=False))
    assert f_of_new_words(nlp) < 0.7


@pytest.mark.slow
def test_the_linear_part_of_a_hybrid_is_trained_with_vectors() -> None:
    """Docs are scored by weights that have not seen them, vectors included. These are trained on
    what four folds leave: `N_LINEAR_FOLDS` is 4."""
    nlp = pipeline({**HYBRID, "linear_epochs": 10})
    batch = name_examples(nlp, 0, 30)
    nlp.initialize(lambda: batch)
    model = nlp.get_pipe("ner").model
    _, weights = linear_part(model)
    n_emission_rows = weights.n_features + weights.n_vector_rows
    assert [len(rows) for rows in weights.emissions_of_folds] == [n_emission_rows] * 4
    docs = [eg.predicted for eg in batch]
    features = find_features(model, docs, is_train=True)
    held_out = weights.score_held_out(features).emissions
    without_vectors = weights.score_held_out(features._replace(vector_ids=None)).emissions
    assert not numpy.allclose(held_out, without_vectors, atol=0.1)
    assert f_of_new_words(nlp) > 0.95


@pytest.mark.parametrize("outside", ["single", "before"])
def test_training_at_once_learns_weights_of_vectors(outside: str) -> None:
    nlp = pipeline(SPARSE)
    batch = name_examples(nlp, 0, 30)
    nlp.initialize(lambda: batch)
    ner = nlp.get_pipe("ner")
    train_at_once(ner.model, ner.objective, ner.chain_tags, batch)
    assert f_of_new_words(nlp) > 0.95


def test_a_larger_penalty_makes_weights_of_vectors_smaller() -> None:
    """The weights of features become larger, as they take the place of those of vectors."""
    nlp, examples = initialized()
    ner = nlp.get_pipe("ner")
    _, weights = linear_part(ner.model)

    size_of_vectors = {}
    size_of_features = {}
    for c2_of_vectors in (0.1, 10.0):
        training_data = (ner.model, ner.objective, ner.chain_tags, examples)
        total = TotalLoss(*training_data, c2=0.1, c2_of_vectors=c2_of_vectors)
        start = numpy.zeros(total.read_weights().shape)
        total.write_weights(lbfgs.minimise_by_lbfgs(total, start).vector)
        size_of_vectors[c2_of_vectors] = abs(weights.vector_weights).sum()
        size_of_features[c2_of_vectors] = abs(weights.emissions).sum()

    assert size_of_vectors[10.0] < 0.2 * size_of_vectors[0.1]
    assert size_of_features[10.0] > size_of_features[0.1]


def test_online_steps_are_those_of_update() -> None:
    nlp, examples = initialized()
    ner = nlp.get_pipe("ner")
    _, weights = linear_part(ner.model)
    start = weights.rows.copy()
    optimizer = Adam(0.1)
    numpy.random.seed(0)
    nlp.update(examples, sgd=optimizer)
    rows_after_update = weights.rows.copy()
    weights.restart(start)
    ner.cfg["progress"] = Progress()._asdict()

    batches = read_batches(ner, [examples])
    numpy.random.seed(0)
    train(ner, batches, optimizer, max_epochs=1)

    assert_array_equal(weights.rows, rows_after_update)


@pytest.mark.parametrize("has_cache", [False, True])
def test_windows_of_pieces_see_the_words_beyond(has_cache: bool, tmp_path: Path) -> None:
    """Docs are cut into pieces of a word, in memory or in files. Each word has the vectors that it
    has in the whole doc."""
    nlp, examples = initialized()
    ner = nlp.get_pipe("ner")
    _, weights = linear_part(ner.model)
    weights.rows[:] = numpy.random.default_rng(0).normal(size=weights.rows.shape)

    pieces = read_pieces(ner, examples, 1, cache=tmp_path if has_cache else None)

    assert len(pieces) > len(examples)
    batch, _ = pieces[0].store.read(numpy.arange(len(pieces)))
    of_whole_docs = find_features(ner.model, [eg.predicted for eg in examples], is_train=True)
    assert_array_equal(batch.vector_ids, of_whole_docs.vector_ids)
    expected = weights.potentials(of_whole_docs).emissions
    assert_array_equal(weights.potentials(batch).emissions, expected)


def test_threads_predict_the_same(vocab: Vocab) -> None:
    """The words are new to all threads, and some are the same in several threads, which compute
    their sums at the same time."""
    for i in range(200):
        vocab.set_vector(f"w{i}", numpy.random.default_rng(i).normal(size=DIM).astype("float32"))
    model = crf(vocab)
    docs = [Doc(vocab, words=[f"w{i}", f"W{i}", f"other{i}"]) for i in range(200)]
    expected = model.copy().predict(docs).emissions

    def predict(_: int) -> numpy.ndarray:
        return numpy.concatenate([model.predict([doc]).emissions for doc in docs])

    for emissions in in_threads(predict):
        assert_array_equal(emissions, expected)


# Vectors that are computed


def floret_vocab(n_rows: int = 50) -> Vocab:
    """A vocab whose vectors are sums of random rows, by the hashes of parts of words."""
    vocab = blank_vocab()
    rows = numpy.random.default_rng(0).normal(size=(n_rows, DIM)).astype("float32")
    vocab.vectors = Vectors(
        strings=vocab.strings, data=rows, mode=Mode.floret, minn=2, maxn=3, hash_count=2
    )
    return vocab


def test_floret_has_a_vector_for_every_word() -> None:
    vocab = floret_vocab()
    features = features_of(vocab, static_vectors=0)
    words = ["a", "newword", "A", "a"]

    batch = features.find([Doc(vocab, words=words)])

    expected = vocab.vectors.get_batch(words) * scale_of(batch)
    assert_allclose(read_vectors(batch), expected, rtol=1e-6)


@pytest.mark.parametrize("settings", [{"include_static_vectors": True}, {"vectors": [2]}])
def test_vectors_are_of_the_pipeline_if_docs_have_another_vocab(
    settings: dict[str, Any], vocab: Vocab
) -> None:
    """Such as references that were read before the pipeline was created."""
    windows = {"ORTH": 1, "vectors": 1, "static_vectors": 1}
    expected = Features(Template(windows=windows, **settings))
    expected.build_vocab(docs_of(vocab))
    features = Features(Template(windows=windows, **settings))
    features.build_vocab(docs_of(blank_vocab()), vocab)
    assert features.to_bytes() == expected.to_bytes()
    assert features.names() == expected.names()


def test_floret_vectors_are_computed_for_words_of_docs_with_another_vocab() -> None:
    """The vocab with the vectors doesn't contain these words."""
    template = Template(windows={"ORTH": 1}, include_static_vectors=True)
    expected = Features(template)
    expected.build_vocab(docs_of(floret_vocab()))
    features = Features(template)
    features.build_vocab(docs_of(blank_vocab()), floret_vocab())
    assert features.to_bytes() == expected.to_bytes()


def test_predictions_with_floret_are_the_scores_of_training() -> None:
    vocab = floret_vocab()
    model = crf(vocab)
    docs = docs_of(vocab)
    _, weights = linear_part(model)
    expected = weights.potentials(find_features(model, docs)).emissions
    assert_allclose(model.predict(docs).emissions, expected, atol=1e-5)


def test_vectors_of_training_stay_when_words_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Features are kept for all docs, while the cache of words begins anew, also for predictions
    between them."""
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_CACHED_WORDS", 3)
    vocab = floret_vocab()
    features = features_of(vocab, static_vectors=0)
    texts = ["a b c d e", "f g h i", "k l m n", "a e i m"]
    batches = []
    for text in texts:
        batches.append(features.find([Doc(vocab, words=text.split())], is_train=True))
        # The first prediction fills the cache, and the second begins another.
        features.find([Doc(vocab, words=f"{text} x y z w".split())])
        features.find([Doc(vocab, words=["v"])])

    for text, batch in zip(texts, batches):
        assert batch.vectors is batches[-1].vectors
        expected = vocab.vectors.get_batch(text.split()) * scale_of(batch)
        assert_allclose(read_vectors(batch), expected, rtol=1e-6)


def test_vectors_of_predictions_are_dropped_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When there are more than 10 words, all are dropped before new ones are added. A doc adds 5
    words, so there are never more than 15."""
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_CACHED_WORDS", 10)
    vocab = floret_vocab()
    features = features_of(vocab, static_vectors=0)
    for i in range(30):
        batch = features.find([Doc(vocab, words=[f"{i}w{j}" for j in range(5)])])
    assert batch.vectors is not None
    assert len(batch.vectors._id_of_key) <= 15  # type: ignore[attr-defined]


# Saved models


def test_a_saved_pipeline_with_vectors_predicts_the_same(tmp_path: Path) -> None:
    """It is saved on disk, as bytes and pickled, and used in other processes."""
    nlp = updated(pipeline(SPARSE, **COMBINATIONS["two passes"]))
    texts = [eg.reference.text for eg in name_examples(nlp, 25, 40)]

    def entities(nlp: Language, **options: Any) -> list[Any]:
        return [doc.to_json()["ents"] for doc in nlp.pipe(texts, **options)]

    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    from_bytes = pipeline(SPARSE, **COMBINATIONS["two passes"]).from_bytes(nlp.to_bytes())
    unpickled = pickle.loads(pickle.dumps(nlp))

    expected = entities(nlp)
    assert any(expected)
    for copied in (loaded, from_bytes, unpickled):
        assert entities(copied) == expected
    assert entities(loaded, n_process=2, batch_size=4) == expected


def test_an_added_label_changes_no_score() -> None:
    """Scores of the tags that were there stay, and training goes on."""
    nlp = updated(pipeline(SPARSE))
    ner = nlp.get_pipe("ner")
    docs = [eg.predicted for eg in name_examples(nlp, 25, 40)]
    before = ner.model.predict(docs)
    n_tags = len(before.start)

    ner.add_label("DATE")

    after = ner.model.predict(docs)
    assert_allclose(after.emissions[:, :n_tags], before.emissions, atol=1e-5)
    assert_allclose(after.transitions[:n_tags, :n_tags], before.transitions, atol=1e-5)
    optimizer = nlp.resume_training()
    nlp.update(name_examples(nlp, 0, 30), sgd=optimizer)
    assert f_of_new_words(nlp) > 0.95


def test_a_component_can_be_sourced_into_a_pipeline_with_the_same_vectors() -> None:
    nlp = updated(pipeline(SPARSE))
    other = spacy.blank("xx")
    other.vocab.vectors = nlp.vocab.vectors

    other.add_pipe("ner", source=nlp)

    assert f_of_new_words(other) == f_of_new_words(nlp)


def test_a_component_that_is_sourced_into_a_pipeline_without_vectors_refuses_docs() -> None:
    """spaCy warns of it."""
    nlp = updated(pipeline(SPARSE), n_steps=1)
    without_vectors = spacy.blank("xx")
    with pytest.warns(UserWarning, match=r"\[W113\] .* source vectors are not identical"):
        without_vectors.add_pipe("ner", source=nlp)
    with pytest.raises(ValueError, match="as in training, got none"):
        without_vectors("Name1 and Place1")


@pytest.mark.parametrize(
    "damage", [{"dim": -1}, {"dim": "3"}, {"scale": 0.0}, {"scale": "x"}, {"digest": 1}]
)
def test_damaged_settings_are_refused(vocab: Vocab, damage: dict[str, Any]) -> None:
    features = features_of(vocab)
    saved = srsly.msgpack_loads(features.to_bytes())
    saved["static_vectors"]["static_vectors"].update(damage)
    with pytest.raises(ValueError, match="features of a linear CRF: expected saved features"):
        Features(features.template).from_bytes(srsly.msgpack_dumps(saved))


# What is refused

EQUAL_VECTORS = {"a": [1, 1, 1], "b": [1, 1, 1]}


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({}, "expected static word vectors in the pipeline, .* found none"),
        ({"a": [1, numpy.nan, 0]}, "expected finite vectors, got NaN or infinity"),
        ({"zzz": [1, 2, numpy.inf]}, "expected finite vectors, got NaN or infinity"),
        # The different words of TEXTS: a, b, c, A, Rome and ROME.
        ({"zzz": [1, 2, 3]}, ".* got none for their 6 words"),
        (EQUAL_VECTORS, "expected vectors that differ between words .* got the same one for all"),
    ],
)
def test_vectors_that_say_nothing_are_refused(vectors: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"include_static_vectors: {message}"):
        features_of(vocab_with(vectors))


def test_vectors_of_another_length_are_refused(vocab: Vocab) -> None:
    features = features_of(vocab)
    shorter = vocab_with({"a": [1, 2]})
    with pytest.raises(ValueError, match=r"expected vectors of 3 numbers .* got 2"):
        features.find([Doc(shorter, words=["a"])])
    with pytest.raises(ValueError, match=r"expected vectors of 3 numbers .* got none"):
        features.find([Doc(vocab_with({}), words=["a"])])


def test_the_vocab_may_change_between_batches_but_not_within_one(vocab: Vocab) -> None:
    features = features_of(vocab, static_vectors=0)
    other = vocab_with(WORDS)
    for _ in range(2):
        for docs_vocab, word in ((vocab, "b"), (other, "a"), (vocab, "a")):
            batch = features.find([Doc(docs_vocab, words=[word])])
            vector = docs_vocab.get_vector(word) * scale_of(batch)
            assert_allclose(read_vectors(batch), [vector])
    with pytest.raises(ValueError, match="vocabs have the same vectors"):
        features.find([Doc(vocab, words=["a"]), Doc(other, words=["a"])])


def negate(vectors: Vectors) -> Vectors:
    return Vectors(data=-vectors.data, keys=vectors.key2row, strings=vectors.strings)


def swap_keys(vectors: Vectors) -> Vectors:
    """The same table, in which two words have changed their rows."""
    first, second, *others = vectors.key2row
    keys = [second, first, *others]
    return Vectors(data=vectors.data.copy(), keys=keys, strings=vectors.strings)


def add_word(vectors: Vectors) -> Vectors:
    """The same table, in which one more word has a row that another has, too."""
    vectors = Vectors(data=vectors.data.copy(), keys=vectors.key2row, strings=vectors.strings)
    vectors.add("another", row=0)
    return vectors


@pytest.mark.parametrize("change", [negate, swap_keys, add_word])
def test_other_vectors_of_the_same_length_are_refused(
    vocab: Vocab, change: Callable[[Vectors], Vectors]
) -> None:
    """In memory, and after the features were saved and loaded. The vectors of training are not,
    with another object of them."""
    features = features_of(vocab)
    loaded = Features(features.template).from_bytes(features.to_bytes())
    expected = [features.find([doc]).rows.tolist() for doc in docs_of(vocab)]
    vocab.vectors = change(vocab.vectors)
    for found in (features, loaded):
        with pytest.raises(
            ValueError, match=r"the vectors of training .* different ones of the same"
        ):
            found.find(docs_of(vocab))
    vocab.vectors = vocab_with(WORDS).vectors
    for found in (features, loaded):
        assert [found.find([doc]).rows.tolist() for doc in docs_of(vocab)] == expected


@pytest.mark.parametrize("setting", ["hash_seed", "minn", "bow"])
def test_floret_with_other_rows_of_words_is_refused(setting: str) -> None:
    table = numpy.random.default_rng(0).normal(size=(20, DIM)).astype("float32")
    settings: dict[str, Any] = {"minn": 2, "maxn": 3, "hash_count": 2, "hash_seed": 1, "bow": "<"}
    vocab = blank_vocab()
    vocab.vectors = Vectors(mode="floret", data=table, strings=vocab.strings, **settings)
    features = features_of(vocab)
    settings[setting] = {"hash_seed": 2, "minn": 3, "bow": "^"}[setting]
    vocab.vectors = Vectors(mode="floret", data=table, strings=vocab.strings, **settings)
    with pytest.raises(ValueError, match=r"the vectors of training .* different ones of the same"):
        features.find(docs_of(vocab))


def test_models_without_a_digest_of_vectors_take_any_of_the_same_length(vocab: Vocab) -> None:
    """0.3.0 saved none."""
    features = features_of(vocab, static_vectors=0)
    saved = srsly.msgpack_loads(features.to_bytes())
    del saved["static_vectors"]["static_vectors"]["digest"]
    loaded = Features(features.template).from_bytes(srsly.msgpack_dumps(saved))
    batch = loaded.find([Doc(vocab_with({"a": [4, 4, 4]}), words=["a"])])
    assert_allclose(read_vectors(batch), [[4 * scale_of(batch)] * 3])
    with pytest.raises(ValueError, match="vectors of 3 numbers"):
        loaded.find([Doc(vocab_with({"a": [4, 4]}), words=["a"])])


def test_without_training_docs_the_model_has_no_weights_for_vectors(vocab: Vocab) -> None:
    """The training docs say how many numbers a vector has. `nlp.initialize` without examples gives
    none, so `find` doesn't look vectors up, though the words of the docs have some."""
    features = Features(Template(windows={}, include_static_vectors=True))
    features.build_vocab([])
    assert features.n_vector_rows == 0
    assert features.find(docs_of(vocab)).vector_ids is None
