"""What holds for every kind of feature. A new kind in `KINDS` is tested, too."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import srsly
from spacy.tokens import Doc, Span, Token
from spacy.vocab import Vocab
from thinc.types import Ints2d

from spacy_costner.features import FeatureBatch, Features, Template
from spacy_costner.features.template import KINDS

from .support.linear import VOCAB

TEXTS = ["in New York 12 and Rome", "ROME IN YORK", "", "Rome", "York and Rome , York in 12 ."]
OTHER_KINDS: dict[str, dict[str, Any]] = {
    "attribute": {"windows": {"POS": 1}},
    "extension": {"windows": {"_.length": 0}},
    "pairs": {"windows": {"LOWER": 0}, "bigrams": {"LOWER": 1}},
    "memory": {"windows": {}, "memory": {"LOWER": 1}},
    "elsewhere": {"windows": {"LOWER": 0}, "elsewhere": {"LOWER": 2}},
    "document": {"windows": {}, "document": {"LOWER": 1}},
}
"""The kinds that other settings than `windows` name, and those that have no row in `KINDS`."""


@pytest.fixture(autouse=True)
def length() -> Iterator[None]:
    Token.set_extension("length", getter=lambda token: len(token))
    yield
    Token.remove_extension("length")


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    """With static vectors."""
    vocab = Vocab(strings=VOCAB.strings, lex_attr_getters=VOCAB.lex_attr_getters)
    for i, word in enumerate(["New", "York", "Rome", "and"]):
        vocab.set_vector(word, numpy.eye(4, dtype="float32")[i])
    return vocab


@pytest.fixture(scope="module")
def docs(vocab: Vocab) -> list[Doc]:
    """Some with entities."""
    docs = []
    for text in TEXTS:
        words = text.split()
        doc = Doc(vocab, words=words, pos=["PROPN" if word.istitle() else "X" for word in words])
        cities = [token.i for token in doc if token.text == "Rome"]
        doc.set_ents([Span(doc, i, i + 1, "CITY") for i in cities])
        docs.append(doc)
    return docs


@pytest.fixture(params=[*KINDS, *OTHER_KINDS])
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
        "static_vectors": {"include_static_vectors": True},
    }
    kind = request.param
    settings = OTHER_KINDS.get(kind) or {"windows": {kind: 1}, **files.get(kind, {})}
    features = Features(Template(**settings))
    features.build_vocab(docs)
    phrases.unlink()
    clusters.unlink()
    return features


def find(features: Features, docs: list[Doc], *, is_train: bool = False) -> FeatureBatch:
    """The features of docs, and where they wait for a first pass those of its labels."""
    batch = features.find(docs, is_train=is_train)
    if not features.template.document:
        return batch
    probabilities = numpy.full((len(batch.rows), 2), (0.2, 0.8), dtype="float32")
    return features.add_labels(batch, probabilities, ["CITY"])


def slots(batch: FeatureBatch) -> Ints2d:
    """What each token has: features, by their rows, then static vectors, by their ids."""
    if batch.vector_ids is None:
        return batch.rows
    return numpy.concatenate([batch.rows, batch.vector_ids], axis=1)


def test_a_kind_has_features(features: Features, docs: list[Doc]) -> None:
    batch = find(features, docs)
    found = slots(batch)
    assert found.shape[0] == sum(map(len, docs)) and found.dtype == "int32"
    assert (found >= 0).any() and batch.rows.max(initial=-1) < len(features)
    names = features.names()
    assert len(names) == len(set(names)) == len(features)


def test_docs_are_read_and_left_as_they_are(features: Features, docs: list[Doc]) -> None:
    before = [doc.to_bytes() for doc in docs]
    found = slots(find(features, docs))
    assert [doc.to_bytes() for doc in docs] == before
    numpy.testing.assert_array_equal(slots(find(features, docs)), found)


@pytest.mark.parametrize("is_train", [False, True])
def test_docs_of_a_batch_are_apart(features: Features, docs: list[Doc], is_train: bool) -> None:
    together = slots(find(features, docs, is_train=is_train))
    alone = [slots(find(features, [doc], is_train=is_train)) for doc in docs]
    numpy.testing.assert_array_equal(together, numpy.concatenate(alone))
    nothing = slots(find(features, [], is_train=is_train))
    assert nothing.shape == (0, together.shape[1])


def test_values_gathered_later_have_the_same_rows(features: Features, docs: list[Doc]) -> None:
    batch = find(features, docs)
    assert batch.value_ids is not None
    gathered = features.gather(batch.value_ids, batch.lengths, batch.vectors)
    numpy.testing.assert_array_equal(slots(gathered), slots(batch))


def test_features_by_word_are_the_others(features: Features, docs: list[Doc]) -> None:
    """Each slot is either one of words or is in the rows."""
    batch = features.find(docs, by_word=True)
    assert batch.word_cache is not None
    word_slots = [len(slots.offsets) for slots in batch.word_cache.slots_by_offset.values()]
    assert sum(word_slots) + batch.rows.shape[1] == features.find(docs).rows.shape[1]


def test_a_saved_kind_finds_the_same(features: Features, docs: list[Doc]) -> None:
    saved = features.to_bytes()
    loaded = Features(features.template).from_bytes(saved)
    for again in (loaded, pickle.loads(pickle.dumps(features)), features.copy()):
        assert again.to_bytes() == saved and again.names() == features.names()
        for is_train in (False, True):
            expected = slots(find(features, docs, is_train=is_train))
            found = slots(find(again, docs, is_train=is_train))
            numpy.testing.assert_array_equal(found, expected)


def test_a_kind_without_training_docs_has_nothing(features: Features, docs: list[Doc]) -> None:
    """But that label memory and two passes know O."""
    if features.template.gazetteers or features.template.clusters:
        pytest.skip("the files are read in training only, and are gone")
    nothing = Features(features.template)
    nothing.build_vocab([])
    assert (slots(nothing.find(docs)) == -1).all()
    loaded = Features(features.template).from_bytes(nothing.to_bytes())
    assert len(loaded) == len(nothing) < max(len(features), 1)


def test_missing_parts_are_refused(features: Features) -> None:
    """Each part that has something of this kind."""
    saved = srsly.msgpack_loads(features.to_bytes())
    parts = [part for part in saved if saved[part] and part != "columns"]
    assert parts
    for part in parts:
        damaged = srsly.msgpack_dumps({**saved, part: {}})
        with pytest.raises(ValueError, match="features of a linear CRF: expected what was saved"):
            Features(features.template).from_bytes(damaged)
