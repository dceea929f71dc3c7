"""Linear models are saved small, and predict what they predicted when they were evaluated."""

import base64
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from thinc.api import Model, Optimizer

from spacy_costner.chain import marginals
from spacy_costner.features.ids import pack, pack_hashes, unpack, unpack_hashes
from spacy_costner.ml import SparseWeights, first_pass_of, linear_part
from spacy_costner.ml.pruning import (
    DROPPED_SHARE,
    N_BITS,
    NOISE_SHARE,
    pack_rows,
    prune_and_quantize,
    unpack_rows,
)
from spacy_costner.pipeline.serialization import load_model, save_model
from spacy_costner.training.known_text import PACKED, unpack_ids
from spacy_costner.workflows import fit

from ..support.linear import HYBRID, SPARSE
from ..support.pipelines import pipeline

N_TAGS = 3
FEATURES = {
    "@misc": "spacy_costner.Features.v1",
    "bigrams": {"LOWER": 1},
    "memory": {"LOWER": 1},
    "elsewhere": {"LOWER": 2},
    "document": {"LOWER": 1},
}
"""Features of which some are made of others, and some of labels."""
FEATURES_AND_VECTORS = {**FEATURES, "include_static_vectors": True}
RATES = {"learn_rate": 0.1, "eps": 1.0}
"""As in our configs: weights of rare features stay small."""
WORDS = ["Ana", "Rome", "Lee", "saw", "in", "and", "left", "Oslo", "Bo", "12"]
LABEL_OF_WORD = {"Ana": "PER", "Lee": "PER", "Bo": "PER", "Rome": "LOC", "Oslo": "LOC"}


def examples(nlp: Language, n_docs: int = 40, seed: int = 0) -> list[Example]:
    """Docs of random words, of which names are entities, and of a word that is in no other doc."""
    rng = numpy.random.default_rng(seed)
    batch = []
    for _ in range(n_docs):
        words = [*rng.choice(WORDS, size=9).tolist(), f"word{len(batch)}of{seed}"]
        tags = [f"B-{LABEL_OF_WORD[word]}" if word in LABEL_OF_WORD else "O" for word in words]
        reference = Doc(nlp.vocab, words=words, ents=tags)
        batch.append(Example(Doc(nlp.vocab, words=words), reference))
    return batch


def set_vectors(nlp: Language) -> None:
    """Give each of `WORDS` a random vector."""
    rng = numpy.random.default_rng(0)
    for word in WORDS:
        nlp.vocab.set_vector(word, rng.normal(size=5).astype("float32"))


def trained(
    kind: dict[str, Any] = SPARSE, features: dict[str, Any] = FEATURES, **settings: Any
) -> tuple[Language, Optimizer]:
    """A pipeline after some updates, and the optimizer, which has the averages."""
    nlp = pipeline(model={**kind, "features": features, **RATES, **settings})
    set_vectors(nlp)
    batch = examples(nlp)
    nlp.initialize(lambda: batch)
    optimizer = Optimizer(0.01, use_averages=True)
    for _ in range(12):
        copies = [Example(eg.predicted.copy(), eg.reference) for eg in batch]
        nlp.update(copies, sgd=optimizer, losses={})
    return nlp, optimizer


KINDS = {"sparse": SPARSE, "hybrid": HYBRID}


@cache
def trained_before(
    kind: str = "sparse", *, has_vectors: bool = False
) -> tuple[Language, Optimizer]:
    """The same for tests that change neither of them, trained once."""
    return trained(KINDS[kind], FEATURES_AND_VECTORS if has_vectors else FEATURES)


def scores_of(nlp: Language) -> list[float]:
    """The emissions and transitions of docs, of words that are known and others."""
    model = nlp.get_pipe("ner").model
    docs = [eg.predicted for eg in examples(nlp, 20, seed=1)]
    docs.append(Doc(nlp.vocab, words=["nobody", "saw", "Bo", "and", "BO", "Bo"]))
    scores = model.predict(docs)
    return [*scores.emissions.reshape(-1).tolist(), *scores.transitions.reshape(-1).tolist()]


def n_values(nlp: Language) -> int:
    """The number of features of the linear model."""
    features, _ = linear_part(nlp.get_pipe("ner").model)
    return len(features)


def main_weights(model: Model) -> SparseWeights:
    """The weights of the linear model, or of the linear part of a hybrid."""
    _, weights = linear_part(model)
    return weights


def first_pass(model: Model) -> SparseWeights:
    """The weights whose labels the second pass sees."""
    shim = first_pass_of(model)
    assert shim is not None
    return shim.weights


# Weights


weights = arrays.arrays(
    "float32",
    st.tuples(st.integers(N_TAGS + 2, 40), st.just(N_TAGS)),
    elements=st.floats(-8, 8, width=32),
)


def unpacked(saved: dict[str, Any], n_rows: int) -> numpy.ndarray:
    """The weights that were saved. Shape: (V, N_TAGS)"""
    rows = numpy.zeros((n_rows, N_TAGS), dtype="float32")
    unpack_rows(saved, rows)
    return rows


@given(weights)
def test_rows_that_are_dropped_have_a_small_share_of_the_squares(rows: numpy.ndarray) -> None:
    n_features = len(rows) - N_TAGS - 2

    before = rows[:n_features].astype("float64")
    after = prune_and_quantize(rows, n_features)[:n_features].astype("float64")

    largest = numpy.abs(before).max(axis=1, initial=0)
    largest_after = numpy.abs(after).max(axis=1, initial=0)
    half_step = numpy.sqrt(12 * NOISE_SHARE * numpy.square(before).max(initial=0)) / 2
    # Rounding alone takes no row away whose largest weight is above half a step.
    is_dropped = (largest_after == 0) & (largest > half_step)
    assert numpy.square(before[is_dropped]).sum() <= DROPPED_SHARE * numpy.square(before).sum()
    is_kept = largest_after > 0
    assert (numpy.abs(after - before)[is_kept] <= half_step + 1e-6).all()


def test_the_rows_with_the_smallest_largest_weights_are_dropped() -> None:
    """The squares of the features add up to 1 + 1 + 1 + 16 + 81 = 100. By DROPPED_SHARE at most 4
    of these are dropped: the first three rows have 3. The last rows are the chain's."""
    feature_rows = [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 0, 4], [9, 0, 0], [0, 0, 0]]
    chain_rows = [[0.001, 0, 0]] * (N_TAGS + 2)
    rows = numpy.asarray(feature_rows + chain_rows, dtype="float32")
    slim = prune_and_quantize(rows, 6)
    assert slim[:6].any(axis=1).tolist() == [False, False, False, True, True, False]
    numpy.testing.assert_allclose(slim[6:], rows[6:], rtol=1e-4)
    assert rows[0, 0] == 1  # the argument stays as it is


def test_weights_of_0_stay_0() -> None:
    rows = numpy.zeros((9, N_TAGS), dtype="float32")
    assert not prune_and_quantize(rows, 4).any()
    assert prune_and_quantize(rows[4:], 0).shape == (N_TAGS + 2, N_TAGS)


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf])
def test_weights_that_are_not_finite_are_kept_for_saving_to_refuse(value: float) -> None:
    rows = numpy.ones((9, N_TAGS), dtype="float32")
    rows[2, 1] = value
    numpy.testing.assert_array_equal(prune_and_quantize(rows, 4), rows)


@given(weights)
@example(numpy.full((N_TAGS + 3, N_TAGS), 1e-45, dtype="float32"))  # no float is smaller
def test_slim_weights_are_saved_exactly(rows: numpy.ndarray) -> None:
    n_features = len(rows) - N_TAGS - 2
    slim = prune_and_quantize(rows, n_features)
    for part in (slim[:n_features], slim[n_features:]):
        numpy.testing.assert_array_equal(unpacked(pack_rows(part), len(part)), part)


@given(weights)
def test_other_weights_are_saved_in_16_bits(rows: numpy.ndarray) -> None:
    again = unpacked(pack_rows(rows), len(rows))
    largest = numpy.abs(rows).max(initial=0)
    numpy.testing.assert_allclose(again, rows, rtol=0, atol=largest / 2**N_BITS)


def test_equal_rows_are_saved_once() -> None:
    """1,000 rows, of which 10 are different. Each has 50 weights of two bytes; beside them are the
    numbers of the rows."""
    different = numpy.random.default_rng(0).normal(size=(10, 50)).astype("float32")
    n_bytes = len(srsly.msgpack_dumps(pack_rows(numpy.tile(different, (100, 1)))))
    assert 10 * 50 < n_bytes < 3 * 10 * 50


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"exponent": None}, "expected finite weights, got an exponent of None"),
        ({"exponent": True}, "expected finite weights, got an exponent of True"),
        ({"exponent": 500}, "expected finite weights, got an exponent of 500"),
        (
            {"used": pack(numpy.asarray([0, 2, 1]))},
            "expected ascending row indices, from 0 to 8",
        ),
        (
            {"used": pack(numpy.asarray([0, 1, 9]))},
            "expected ascending row indices, from 0 to 8",
        ),
        ({"used": pack(numpy.asarray([0, 1]))}, "expected at most 8 bytes"),
        ({"row_ids": pack(numpy.asarray([0, 1, 3]))}, "expected one of 3 rows for each of 3"),
        ({"numbers": b"x"}, "incomplete or truncated"),
    ],
)
def test_damaged_rows_are_refused(damage: dict[str, Any], message: str) -> None:
    """Of nine rows, three have weights other than 0, and no two of these are equal."""
    rows = numpy.zeros((9, N_TAGS), dtype="float32")
    rows[[1, 4, 6]] = numpy.eye(N_TAGS) * 4097 / 4096
    saved = pack_rows(rows)
    with pytest.raises((ValueError, zlib.error), match=message):
        unpacked({**saved, **damage}, 9)


# Numbers


numbers = arrays.arrays("int32", st.integers(0, 30), elements=st.integers(-(2**31), 2**31 - 1))


@given(numbers)
def test_numbers_survive_packing(values: numpy.ndarray) -> None:
    numpy.testing.assert_array_equal(unpack(pack(values)), values)
    hashes = values.view("uint32")
    numpy.testing.assert_array_equal(unpack_hashes(pack_hashes(hashes)), hashes)


def make_bomb() -> bytes:
    """The compressed form of 256 MB, in 260 kB: a compressed MB, again and again."""
    compressor = zlib.compressobj()
    header = compressor.compress(b"") + compressor.flush(zlib.Z_FULL_FLUSH)
    megabyte = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return header + 256 * megabyte


BOMB = make_bomb()

HOSTILE: dict[str, Callable[[], Any]] = {
    "numbers": lambda: unpack(b"n" + BOMB),
    "differences": lambda: unpack(b"d" + BOMB),
    "hashes": lambda: unpack_hashes(b"d" + BOMB),
    "raw text": lambda: unpack_ids(PACKED + base64.b64encode(b"d" + BOMB).decode("ascii")),
    "rows": lambda: unpacked({**pack_rows(numpy.ones((9, N_TAGS))), "used": b"d" + BOMB}, 9),
    "row ids": lambda: unpacked({**pack_rows(numpy.ones((9, N_TAGS))), "row_ids": b"n" + BOMB}, 9),
    "weights": lambda: unpacked({**pack_rows(numpy.ones((9, N_TAGS))), "numbers": BOMB}, 9),
}


@pytest.mark.parametrize("load", HOSTILE.values(), ids=HOSTILE.keys())
def test_more_numbers_than_expected_are_refused_before_they_fill_the_memory(
    load: Callable[[], Any],
) -> None:
    """Not a quarter of the 256 MB is taken."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"expected at most [\d,]+ bytes when decompressed"):
            load()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 26


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: unpack(zlib.compress(bytes(40))), "expected packed numbers, which begin with"),
        (lambda: unpack(b""), "expected packed numbers, .* got b''"),
        (lambda: unpack_ids("AAAA"), "expected hashes that begin with 'packed:', got 'AAAA'"),
    ],
)
def test_what_was_not_packed_is_refused(load: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load()


def test_weights_of_more_features_than_there_are_are_refused() -> None:
    """Before there is memory for them."""
    nlp = spacy.blank("xx")
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": SPARSE})
    nlp.initialize(lambda: examples(nlp, 3))
    ner = nlp.get_pipe("ner")
    saved = srsly.msgpack_loads(ner.model.to_bytes())
    weights = srsly.msgpack_loads(saved["shims"][0][1])
    n_features = weights["n_features"]
    weights["n_features"] = 10**9
    saved["shims"][0] = [saved["shims"][0][0], srsly.msgpack_dumps(weights)]

    message = f"expected weights for {n_features} features, got 1000000000"
    with pytest.raises(ValueError, match=message):
        load_model(ner.model, srsly.msgpack_dumps(saved), n_tags=None)


def test_small_numbers_take_few_bytes() -> None:
    rng = numpy.random.default_rng(0)
    small = rng.integers(4, size=10_000)
    assert len(pack(small)) < 10_000 * 3 / 8  # 2 bits each, and what zlib adds
    ascending = numpy.cumsum(rng.integers(1, 4, size=10_000))
    assert len(pack(ascending)) < 10_000 * 3 / 8


# Pipelines


@pytest.mark.parametrize("has_vectors", [False, True], ids=["features", "vectors"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_evaluated_is_saved(kind: str, has_vectors: bool, tmp_path: Path) -> None:
    """As in `spacy train`, a model is evaluated with the averages of its weights, and saved with
    them. The saved model has fewer features, but its scores are equal to the last bit."""
    nlp, optimizer = trained_before(kind, has_vectors=has_vectors)
    with nlp.use_params(optimizer.averages):
        evaluated_scores = scores_of(nlp)
        nlp.to_disk(tmp_path)

    loaded = spacy.load(tmp_path)

    assert scores_of(loaded) == evaluated_scores
    assert n_values(loaded) < n_values(nlp)


def test_weights_of_vectors_are_rounded_only(tmp_path: Path) -> None:
    """Both passes have them. The features before them are left out in part."""
    nlp, optimizer = trained_before(has_vectors=True)
    with nlp.use_params(optimizer.averages):
        nlp.to_disk(tmp_path)
    loaded_model = spacy.load(tmp_path).get_pipe("ner").model

    model = nlp.get_pipe("ner").model
    for weights, loaded_weights, rows in [
        (main_weights(model), main_weights(loaded_model), main_weights(model).averaged(optimizer)),
        (first_pass(model), first_pass(loaded_model), first_pass(model).rows),
    ]:
        assert loaded_weights.n_features < weights.n_features
        # A vector has 5 dimensions, and each dimension has a row.
        assert loaded_weights.n_vector_rows == weights.n_vector_rows == 5
        expected = rows[weights.n_features :]
        rounding = numpy.abs(expected).max() / 2**N_BITS
        below_features = loaded_weights.rows[loaded_weights.n_features :]
        numpy.testing.assert_allclose(below_features, expected, rtol=0, atol=rounding)
        assert loaded_weights.vector_weights.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_slim_model_with_vectors_predicts_as_the_whole_one(kind: str, tmp_path: Path) -> None:
    """For words that have a vector and occur often, probabilities differ little."""
    nlp, optimizer = trained_before(kind, has_vectors=True)
    model = nlp.get_pipe("ner").model
    whole_model = model.copy()
    main_weights(whole_model).restart(main_weights(model).averaged(optimizer))
    with nlp.use_params(optimizer.averages):
        nlp.to_disk(tmp_path)
    loaded_model = spacy.load(tmp_path).get_pipe("ner").model

    docs = [Doc(nlp.vocab, words=WORDS), Doc(nlp.vocab, words=WORDS[::-1])]
    expected = marginals(whole_model.predict(docs))
    numpy.testing.assert_allclose(marginals(loaded_model.predict(docs)), expected, atol=0.05)
    assert (expected.max(axis=1) > 0.6).all()


@pytest.mark.slow
def test_saving_does_not_change_what_training_goes_on_with(tmp_path: Path) -> None:
    """There are two equal pipelines. One of them is saved between two updates."""
    rows_of_both = []
    averages_of_both = []
    for is_saved in (True, False):
        nlp, optimizer = trained()
        if is_saved:
            with nlp.use_params(optimizer.averages):
                nlp.to_disk(tmp_path)
        nlp.update(examples(nlp, seed=2), sgd=optimizer, losses={})
        weights = main_weights(nlp.get_pipe("ner").model)
        rows_of_both.append(weights.rows.copy())
        averages_of_both.append(weights.averaged(optimizer))
    numpy.testing.assert_array_equal(*rows_of_both)
    numpy.testing.assert_array_equal(*averages_of_both)


def test_without_averages_nothing_is_dropped(tmp_path: Path) -> None:
    """Weights in memory are then those that are saved, but for their last bits."""
    nlp, _ = trained_before()
    nlp.to_disk(tmp_path)
    numpy.testing.assert_allclose(scores_of(spacy.load(tmp_path)), scores_of(nlp), atol=2e-3)


@pytest.mark.slow
def test_with_keep_all_all_is_kept(tmp_path: Path) -> None:
    nlp, optimizer = trained(keep_all=True)
    weights = main_weights(nlp.get_pipe("ner").model)
    with nlp.use_params(optimizer.averages):
        numpy.testing.assert_array_equal(weights.rows, weights.averaged(optimizer))
        nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)

    assert n_values(loaded) == n_values(nlp)
    loaded_weights = main_weights(loaded.get_pipe("ner").model)
    expected = weights.averaged(optimizer)
    atol = numpy.abs(expected).max() / 2**N_BITS
    numpy.testing.assert_allclose(loaded_weights.rows, expected, rtol=0, atol=atol)


def test_before_training_all_is_kept(tmp_path: Path) -> None:
    """Only the first pass is trained at initialization."""
    nlp = pipeline(model={**SPARSE, "features": FEATURES, **RATES})
    batch = examples(nlp)
    nlp.initialize(lambda: batch)
    has_weights = first_pass(nlp.get_pipe("ner").model).emissions.any(axis=1)
    assert has_weights.any() and not has_weights.all()
    nlp.to_disk(tmp_path)
    assert n_values(spacy.load(tmp_path)) == n_values(nlp)


def test_values_that_only_the_first_pass_uses_are_kept(tmp_path: Path) -> None:
    """The second pass has weights for the labels of other occurrences only, which are the last
    features."""
    nlp, _ = trained()
    features, weights = linear_part(nlp.get_pipe("ner").model)
    is_of_labels = [name.startswith("document") for name in features.names()]
    weights.emissions[~numpy.asarray(is_of_labels)] = 0
    assert weights.emissions.any()

    nlp.to_disk(tmp_path)

    loaded = spacy.load(tmp_path)
    numpy.testing.assert_allclose(scores_of(loaded), scores_of(nlp), atol=2e-3)


def test_a_slim_model_that_was_loaded_is_saved_again_byte_for_byte(tmp_path: Path) -> None:
    nlp, optimizer = trained_before()
    with nlp.use_params(optimizer.averages):  # averages are made slim
        nlp.to_disk(tmp_path)
    model = spacy.load(tmp_path).get_pipe("ner").model
    assert save_model(model) == (tmp_path / "ner" / "model").read_bytes()


def test_a_slim_model_goes_on_learning(tmp_path: Path) -> None:
    """It even learns a new label for a word that it knew."""
    nlp, optimizer = trained_before()
    with nlp.use_params(optimizer.averages):
        nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)

    loaded.get_pipe("ner").add_label("NUM")
    words = ["12", "and", "Ana"]
    reference = Doc(loaded.vocab, words=words, ents=["B-NUM", "O", "B-PER"])
    resumed = loaded.resume_training()
    for _ in range(40):
        loaded.update([Example(Doc(loaded.vocab, words=words), reference)], sgd=resumed, losses={})

    doc = loaded(Doc(loaded.vocab, words=words))
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("12", "NUM"), ("Ana", "PER")]


@pytest.mark.slow
@pytest.mark.parametrize("has_few", [True, False], ids=["at once", "by updates"])
def test_fit_saves_what_it_has_evaluated(
    has_few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_few:
        monkeypatch.setattr("spacy_costner.workflows.corpora.FEW_SENTENCES", 1)
    for part, seed in {"train": 0, "dev": 1}.items():
        docs = [eg.reference for eg in examples(spacy.blank("xx"), 30, seed)]
        DocBin(docs=docs).to_disk(tmp_path / f"{part}.spacy")
    fitted = fit(
        None,
        tmp_path / "output",
        lang="xx",
        train_path=tmp_path / "train.spacy",
        dev_path=tmp_path / "dev.spacy",
    )
    loaded = spacy.load(fitted.path)
    assert scores_of(loaded) == scores_of(fitted.nlp)
    assert n_values(loaded) < n_values(fitted.nlp)
