"""What holds for every kind of feature. A new kind in `FEATURE_KINDS` is tested, too."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import srsly
from spacy.strings import StringStore
from spacy.tokens import Doc, Span, Token
from spacy.vocab import Vocab
from thinc.types import Ints2d

from spacy_costner.features import FeatureBatch, Features, Template
from spacy_costner.features.template import FEATURE_KINDS

from ..support.linear import VOCAB

TEXTS = ["in New York 12 and Rome", "ROME IN YORK", "", "Rome", "York and Rome , York in 12 ."]
OTHER_KINDS: dict[str, dict[str, Any]] = {
    "attribute": {"windows": {"POS": 1}},
    "extension": {"windows": {"_.length": 0}},
    "pairs": {"windows": {"LOWER": 0}, "bigrams": {"LOWER": 1}},
    "memory": {"windows": {}, "memory": {"LOWER": 1}},
    "elsewhere": {"windows": {"LOWER": 0}, "elsewhere": {"LOWER": 2}},
    "document": {"windows": {}, "document": {"LOWER": 1}},
}
"""The kinds that other settings than `windows` name, and kinds without a row in `FEATURE_KINDS`."""


@pytest.fixture(autouse=True)
def length() -> Iterator[None]:
    """The extension attribute `token._.length`, in characters."""
    Token.set_extension("length", getter=lambda token: len(token))
    yield
    Token.remove_extension("length")


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    """A vocab with static vectors of four words."""
    return vocab_with_vectors(VOCAB.strings)


def vocab_with_vectors(strings: StringStore) -> Vocab:
    """A vocab with the static vectors of four words, and other strings."""
    vocab = Vocab(strings=strings, lex_attr_getters=VOCAB.lex_attr_getters)
    for i, word in enumerate(["New", "York", "Rome", "and"]):
        vocab.set_vector(word, numpy.eye(4, dtype="float32")[i])
    return vocab


@pytest.fixture(scope="module")
def docs(vocab: Vocab) -> list[Doc]:
    """The docs of `TEXTS`, in which "Rome" is an entity."""
    return docs_of(vocab, TEXTS)


def docs_of(vocab: Vocab, texts: list[str]) -> list[Doc]:
    """Docs of texts, in which "Rome" is an entity."""
    docs = []
    for text in texts:
        words = text.split()
        doc = Doc(vocab, words=words, pos=["PROPN" if word.istitle() else "X" for word in words])
        cities = [token.i for token in doc if token.text == "Rome"]
        doc.set_ents([Span(doc, i, i + 1, "CITY") for i in cities])
        docs.append(doc)
    return docs


@pytest.fixture(params=[*FEATURE_KINDS, *OTHER_KINDS])
def features(request: pytest.FixtureRequest, docs: list[Doc], tmp_path: Path) -> Features:
    """Features of a single kind, with values of the docs."""
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("new york\nrome\n", encoding="utf8")
    clusters = tmp_path / "clusters.json"
    clusters.write_text(json.dumps({"rome": 1, "York": 1, "and": 2}), encoding="utf8")
    files: dict[str, dict[str, Any]] = {
        "gazetteer": {"gazetteers": {"cities": str(phrases)}},
        "clusters": {"clusters": [str(clusters)]},
        "vectors": {"vectors": [2]},
        "static_vectors": {"include_static_vectors": True, "windows": {"static_vectors": 1}},
    }

    kind = request.param
    if kind in OTHER_KINDS:
        settings = OTHER_KINDS[kind]
    else:
        settings = {"windows": {kind: 1}, **files.get(kind, {})}
    features = Features(Template(**settings))
    features.build_vocab(docs)
    phrases.unlink()
    clusters.unlink()
    return features


def find(features: Features, docs: list[Doc], *, is_train: bool = False) -> FeatureBatch:
    """The features of docs. For kinds that wait for a first pass, it predicts "CITY" with 0.8
    everywhere."""
    batch = features.find(docs, is_train=is_train)
    if not features.template.document:
        return batch
    probabilities = numpy.full((len(batch.rows), 2), (0.2, 0.8), dtype="float32")
    return features.add_labels(batch, probabilities, ["CITY"])


def features_and_vectors(batch: FeatureBatch) -> Ints2d:
    """What each token has: features, by their rows, then static vectors, by their ids. Shape:
    (N, S + O)"""
    if batch.vector_ids is None:
        return batch.rows
    return numpy.concatenate([batch.rows, batch.vector_ids], axis=1)


def test_a_kind_finds_features_for_each_token(features: Features, docs: list[Doc]) -> None:
    batch = find(features, docs)

    numbers = features_and_vectors(batch)
    n_tokens = sum(len(doc) for doc in docs)
    assert numbers.shape[0] == n_tokens
    assert numbers.dtype == "int32"
    assert (numbers >= 0).any()
    assert batch.rows.max(initial=-1) < len(features)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.9])
def test_without_the_values_that_have_no_weights_the_others_are_found_as_before(
    share: float, seed: int, features: Features, docs: list[Doc]
) -> None:
    """A share of the features has weights. What is left is saved and loaded, too."""
    has_weights = numpy.random.default_rng(seed).random(len(features)) < share

    slim, old_rows = features.select(has_weights)

    assert has_weights.sum() <= len(slim) <= len(features)
    assert slim.n_vector_rows == features.n_vector_rows
    names = numpy.asarray(features.names(), dtype=object)
    assert slim.names() == names[old_rows].tolist()
    loaded = Features(features.template).from_bytes(slim.to_bytes())
    for slim_features in (slim, loaded):
        for doc in docs:
            batch = find(features, [doc])
            slim_batch = find(slim_features, [doc])
            names_of_slim = names_with_weights(
                slim_batch.rows, names[old_rows], has_weights[old_rows]
            )
            assert names_of_slim == names_with_weights(batch.rows, names, has_weights)
            numpy.testing.assert_array_equal(slim_batch.vector_ids, batch.vector_ids)


def names_with_weights(
    rows: numpy.ndarray, names: numpy.ndarray, has_weights: numpy.ndarray
) -> list[list[str]]:
    """The names of the features of each token that have weights, in alphabetical order."""
    names_of_tokens = []
    for rows_of_token in rows:
        rows_with_weights = [row for row in rows_of_token if row >= 0 and has_weights[row]]
        names_of_tokens.append(sorted(names[rows_with_weights].tolist()))
    return names_of_tokens


def test_each_feature_has_a_name_of_its_own(features: Features) -> None:
    names = features.names()
    assert len(names) == len(set(names)) == len(features)


def test_finding_features_does_not_change_docs(features: Features, docs: list[Doc]) -> None:
    docs_before = [doc.to_bytes() for doc in docs]

    first = features_and_vectors(find(features, docs))
    second = features_and_vectors(find(features, docs))

    assert [doc.to_bytes() for doc in docs] == docs_before
    numpy.testing.assert_array_equal(second, first)


@pytest.mark.parametrize("is_train", [False, True])
def test_a_batch_finds_what_its_docs_find_alone(
    features: Features, docs: list[Doc], is_train: bool
) -> None:
    together = features_and_vectors(find(features, docs, is_train=is_train))
    alone = [features_and_vectors(find(features, [doc], is_train=is_train)) for doc in docs]
    numpy.testing.assert_array_equal(together, numpy.concatenate(alone))
    nothing = features_and_vectors(find(features, [], is_train=is_train))
    assert nothing.shape == (0, together.shape[1])


def test_values_gathered_later_have_the_same_rows(features: Features, docs: list[Doc]) -> None:
    batch = find(features, docs)
    assert batch.value_ids is not None
    numpy.testing.assert_array_equal(features.gather(batch.value_ids, batch.lengths), batch.rows)
    if batch.vector_ids is not None:
        later = features.add_vectors(batch, batch.value_ids, batch.lengths)
        numpy.testing.assert_array_equal(later.vector_ids, batch.vector_ids)


def test_slots_are_of_words_or_in_the_rows(features: Features, docs: list[Doc]) -> None:
    """Each slot either depends on words, and is in the cache, or is in the rows."""
    batch = features.find(docs, by_word=True)
    assert batch.word_cache is not None
    n_word_slots = 0
    for slots in batch.word_cache.slots.by_offset.values():
        n_word_slots += len(slots.offsets)
    n_slots = features.find(docs).rows.shape[1]
    assert n_word_slots + batch.rows.shape[1] == n_slots


def test_a_saved_kind_finds_the_same(features: Features, docs: list[Doc]) -> None:
    saved = features.to_bytes()
    loaded = Features(features.template).from_bytes(saved)
    for same_features in (loaded, pickle.loads(pickle.dumps(features)), features.copy()):
        assert same_features.to_bytes() == saved
        assert same_features.names() == features.names()
        for is_train in (False, True):
            batch = find(features, docs, is_train=is_train)
            same_batch = find(same_features, docs, is_train=is_train)
            numpy.testing.assert_array_equal(
                features_and_vectors(same_batch), features_and_vectors(batch)
            )


@pytest.mark.parametrize("other_words", ["Zoe waits", "Zoe learns a phrase"])
def test_a_kind_finds_the_same_in_memory_zones_and_after_them(
    other_words: str, features: Features, docs: list[Doc]
) -> None:
    """At the end of a zone, the strings and lexemes that were new in it are removed. One of them
    may also be the name of something that is cached."""
    loaded = Features(features.template).from_bytes(features.to_bytes())
    vocab = vocab_with_vectors(StringStore())
    found: list[Ints2d] = []
    with vocab.memory_zone():
        find(loaded, docs_of(vocab, [other_words]))
        found.append(features_and_vectors(find(loaded, docs_of(vocab, TEXTS))))
    assert "Zoe" not in vocab.strings
    with vocab.memory_zone():
        found.append(features_and_vectors(find(loaded, docs_of(vocab, TEXTS))))
    found.append(features_and_vectors(find(loaded, docs_of(vocab, TEXTS))))

    expected = features_and_vectors(find(features, docs))
    for rows_and_vectors in found:
        numpy.testing.assert_array_equal(rows_and_vectors, expected)


def test_without_training_docs_no_token_has_features(features: Features, docs: list[Doc]) -> None:
    """Label memory and two passes still have some features, of O, as they know this label."""
    if features.template.gazetteers or features.template.clusters:
        pytest.skip("the files are read in training only, and are gone")
    untrained = Features(features.template)
    untrained.build_vocab([])
    assert (features_and_vectors(untrained.find(docs)) == -1).all()
    n_rows = len(features) + features.n_vector_rows
    assert len(untrained) + untrained.n_vector_rows < n_rows
    loaded = Features(features.template).from_bytes(untrained.to_bytes())
    assert len(loaded) == len(untrained)


def test_saved_features_that_lack_a_part_are_refused(features: Features) -> None:
    saved = srsly.msgpack_loads(features.to_bytes())
    # Those in which this kind has saved something.
    parts = [part for part in saved if saved[part] and part != "columns"]
    assert parts
    for part in parts:
        damaged = srsly.msgpack_dumps({**saved, part: {}})
        with pytest.raises(ValueError, match="features of a linear CRF: expected saved features"):
            Features(features.template).from_bytes(damaged)
