"""Label memory: against counting by hand; and no token learns from its own label."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import pytest
import spacy
import srsly
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import Optimizer

from spacy_costner.features import Features, Template
from spacy_costner.ml import linear_part
from spacy_costner.training.lbfgs import minimise_by_lbfgs

from .support.config import REQUIRED, declared
from .support.fitting import read_batches, total_loss, train
from .support.linear import HYBRID, SPARSE, found_names
from .support.pipelines import pipeline

VOCAB = spacy.blank("xx").vocab
WORDS = ["Rome", "rome", "Ana", "in", "12", ",", "May"]
LABELS = ["LOC", "PER", "x-y"]
BORDERS = [0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1]
UNITS: list[int | str] = ["doc", 1, 2, 3, "_.article"]
MISSING = None

Labels = list[str | None]
"""The label of each token: "O" outside of entities, None where annotation is missing."""

Corpus = list[tuple[list[str], Labels, int]]
"""Docs with their words, labels and articles."""


@pytest.fixture(autouse=True)
def article() -> Iterator[None]:
    Doc.set_extension("article", default=0)
    yield
    Doc.remove_extension("article")


def annotated(words: list[str], labels: Labels, article: int = 0) -> Doc:
    """A doc in which each token of a label is an entity."""
    doc = Doc(VOCAB, words=words)
    spans = {name: [] for name in (*LABELS, "O", MISSING)}
    for i, label in enumerate(labels):
        spans[label].append(Span(doc, i, i + 1, label=label if label in LABELS else ""))
    entities = [span for label in LABELS for span in spans[label]]
    doc.set_ents(entities, outside=spans["O"], missing=spans[MISSING])
    doc._.article = article
    return doc


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """Short docs are often the same."""
    label = st.sampled_from([*LABELS, "O", "O", MISSING])
    docs = []
    for _ in range(draw(st.integers(0, 6))):
        words = draw(st.lists(st.sampled_from(WORDS), max_size=6))
        labels = draw(st.lists(label, min_size=len(words), max_size=len(words)))
        docs.append((words, labels, draw(st.integers(0, 2))))
    return docs


def letters(words: list[str]) -> str:
    return "".join(character for word in words for character in word.lower() if word != ",")


def slow_units(corpus: Corpus, unit: int | str, least: int) -> list[object]:
    if unit == "_.article":
        return [article for _, _, article in corpus]
    if unit == "doc":
        return [letters(words) for words, _, _ in corpus]
    size = max(1, min(int(unit), len(corpus) // least))
    return [i // size for i in range(len(corpus))]


def slow_names(word: str, counted: Corpus) -> list[str]:
    """The features of a token of this word, from the docs that count."""
    pairs = [pair for words, labels, _ in counted for pair in zip(words, labels)]
    seen = Counter(label for other, label in pairs if label and other.lower() == word.lower())
    n_times, names = sum(seen.values()), []
    order = [label for label in ("O", *LABELS) if any(label == found for _, found in pairs)]
    for label in order:
        share = seen[label] / max(n_times, 1)
        which = max(i for i, low in enumerate(BORDERS[:-1]) if low <= share)
        place = f"{BORDERS[which]:g}-{BORDERS[which + 1]:g}"
        if which:
            names.append(f"memory:LOWER={label}:{place}")
        if n_times and label == max(order, key=seen.__getitem__):
            often = "1" if n_times == 1 else "2-3" if n_times < 4 else "4+"
            names.append(f"memory:LOWER=best:{label}:{place}:{often}")
    return sorted(names)


def memory_of(corpus: Corpus, unit: int | str) -> Features:
    features = Features(Template(windows={}, memory_unit=unit, memory={"LOWER": 0}))
    features.build_vocab([annotated(*doc) for doc in corpus])
    return features


@given(corpora(), corpora(), st.sampled_from(UNITS), st.sampled_from([0, 1, 16]), st.integers(1, 3))
def test_features_are_those_of_the_slow_version(
    corpus: Corpus, new: Corpus, unit: int | str, often: int, least: int
) -> None:
    """However many docs are read together, and however often a text is there."""
    collecting, counts = "spacy_costner.features.collecting", "spacy_costner.features.label_counts"
    with patch(f"{collecting}.N_DOCS", often + 1), patch(f"{counts}.LEAST_UNITS", least):
        features, units = memory_of(corpus, unit), slow_units(corpus, unit, least)
    docs = [Doc(VOCAB, words=words) for words, _, _ in corpus + new]
    in_training, in_prediction = [], []
    for words, _, _ in corpus + new:
        own = {u for u, (others, _, _) in zip(units, corpus) if letters(others) == letters(words)}
        elsewhere = [doc for u, doc in zip(units, corpus) if u not in own]
        in_training += [slow_names(word, elsewhere) for word in words]
        in_prediction += [slow_names(word, corpus) for word in words]
    assert found_names(features, docs) == in_prediction
    with patch("spacy_costner.features.memory.OFTEN", often):
        assert found_names(features, docs, is_train=True) == in_training


ONCE = [
    ("Ana saw Rome", [(0, 3, "PER"), (8, 12, "LOC")]),
    ("Ben left Oslo", [(0, 3, "PER"), (9, 13, "LOC")]),
    ("Clara loves Bonn", [(0, 5, "PER"), (12, 16, "LOC")]),
]
"""Each word is in one doc only, so that memory knows none of them elsewhere."""

MEMORY = {**SPARSE["features"], "memory": {"LOWER": 1, "SHAPE": 0}, "elsewhere": {"LOWER": 2}}


def remembering(base: dict[str, Any] = SPARSE, **settings: Any) -> Language:
    features = {**MEMORY, **settings.pop("features", {})}
    return pipeline(model={**base, "features": features}, **settings)


def examples(nlp: Language, texts: list[tuple[str, Any]] = ONCE) -> list[Example]:
    return [Example.from_dict(nlp.make_doc(text), {"entities": ents}) for text, ents in texts]


def remembered(**settings: Any) -> tuple[Language, list[Example], Features, Any]:
    """A pipeline, `ONCE`, and the features and weights."""
    nlp = remembering(**settings)
    batch = examples(nlp)
    nlp.initialize(lambda: batch)
    return (nlp, batch, *linear_part(nlp.get_pipe("ner").model))


def of_memory(features: Features) -> list[bool]:
    """Whether a feature is one of the memory of words."""
    found = [name.startswith("memory:LOWER") for name in features.names()]
    assert any(found)
    return found


@pytest.mark.parametrize("base", [SPARSE, HYBRID], ids=["sparse", "hybrid"])
@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_no_update_learns_from_own_labels(name: str, base: dict[str, Any]) -> None:
    """From random weights, as some losses can't start from nothing."""
    loss = {"@losses": name, **REQUIRED.get(name, {})}
    nlp, batch, features, weights = remembered(base=base, loss=loss)
    weights.rows[:] = numpy.random.default_rng(0).normal(size=weights.rows.shape) / 10
    before = weights.emissions.copy()
    for _ in range(5):
        nlp.update(batch, sgd=Optimizer(0.01), losses={})
    is_same = (weights.emissions == before).all(axis=1)
    assert is_same[of_memory(features)].all() and not is_same.all()
    known = found_names(features, [eg.predicted for eg in batch])
    assert all(any("memory:LOWER" in name for name in names) for names in known)


def fit_online(nlp: Language, batch: list[Example]) -> None:
    ner = nlp.get_pipe("ner")
    train(ner, read_batches(ner, [batch]), Optimizer(0.01), max_epochs=5)


def fit_lbfgs(nlp: Language, batch: list[Example]) -> None:
    total = total_loss(nlp.get_pipe("ner"), batch, c2=0.1)
    total.write_weights(minimise_by_lbfgs(total, total.read_weights(), max_iter=20).vector)


def rehearse(nlp: Language, batch: list[Example]) -> None:
    optimizer = nlp.resume_training()
    features, weights = linear_part(nlp.get_pipe("ner").model)
    names = features.names()
    weights.emissions[[name == "LOWER=ana" for name in names]] = 1.0  # and not as it was
    nlp.rehearse(batch, sgd=optimizer, losses={})


@pytest.mark.parametrize("fit", [fit_online, fit_lbfgs, rehearse])
def test_no_way_of_training_learns_from_own_labels(fit: Callable) -> None:
    nlp, batch, features, weights = remembered()
    fit(nlp, batch)
    assert weights.emissions.any() and not weights.emissions[of_memory(features)].any()


def test_memory_is_learned_from_other_docs() -> None:
    """What words were elsewhere decides about words that have no weights of their own."""
    features = {"windows": {"SHAPE": 0}, "memory": {"LOWER": 0}, "elsewhere": None}
    nlp = remembering(features=features)
    there = [("Ana saw Rome", [(0, 3, "PER"), (8, 12, "LOC")])]
    back = [("Rome saw Ana", [(0, 4, "LOC"), (9, 12, "PER")])]
    batch = examples(nlp, there + back)
    counted = examples(nlp, [("Dora met", [(0, 4, "PER")]), ("met Lima", [(4, 8, "LOC")])])
    nlp.initialize(lambda: batch + counted)
    for _ in range(30):
        nlp.update(batch, sgd=Optimizer(0.01), losses={})
    found = [(ent.text, ent.label_) for ent in nlp("Lima and Dora").ents]
    assert found == [("Lima", "LOC"), ("Dora", "PER")]


def test_missing_annotation_and_incorrect_spans_are_not_counted() -> None:
    nlp = remembering(incorrect_spans_key="wrong")
    eg = examples(nlp, [("Ana saw Rome and Oslo", [(0, 3, "PER")])])[0]
    gold = eg.reference
    gold.set_ents([gold.char_span(0, 3, "PER")], outside=[gold[1:2]], default="missing")
    gold.spans["wrong"] = [Span(gold, 2, 3, "LOC"), Span(gold, 4, 5)]
    nlp.initialize(lambda: [eg])
    features = linear_part(nlp.get_pipe("ner").model)[0]
    names = found_names(features, [nlp.make_doc("Rome Oslo and Ana saw")])
    found = [{n for n in token if n.startswith("memory:LOWER=")} for token in names]
    assert found[:3] == [set()] * 3
    assert found[3] == {"memory:LOWER=PER:0.98-1", "memory:LOWER=best:PER:0.98-1:1"}
    assert found[4] == {"memory:LOWER=O:0.98-1", "memory:LOWER=best:O:0.98-1:1"}


@pytest.mark.parametrize("words", [
    ["ana", "saw", "rome"], ["Ana", "saw", "Rome", "!"], ["ANA", "\n", "saw", "Rome"],
    ["A", "na", "saw", "Ro", "me"], ["Ana", "\u201csaw\u201d", "Rome"],
])  # fmt: skip
def test_a_doc_is_known_by_its_letters(words: list[str]) -> None:
    """As augmenters and tokenizers change docs, so that they stay in their unit."""
    features = memory_of([(["Ana", "saw", "Rome"], ["PER", "O", "LOC"], 0)], "doc")
    assert not any(found_names(features, [Doc(VOCAB, words=words)], is_train=True))
    assert any(found_names(features, [Doc(VOCAB, words=words)]))


def test_memory_survives(tmp_path: Path) -> None:
    """Also that docs were counted: more training does not learn from their labels."""
    nlp = remembering(features={"memory_unit": 2})
    batch = [*examples(nlp), *examples(nlp, [("Rome and Ana", [(0, 4, "PER")])])]
    optimizer = nlp.initialize(lambda: batch)
    for _ in range(3):
        nlp.update(batch, sgd=optimizer, losses={})
    docs = [eg.predicted for eg in batch]
    old = linear_part(nlp.get_pipe("ner").model)[0]
    nlp.to_disk(tmp_path)
    again = spacy.load(tmp_path)
    ner = again.get_pipe("ner")
    features, weights = linear_part(ner.model)
    for is_train in (False, True):
        found = found_names(features, docs, is_train=is_train)
        assert found == found_names(old, docs, is_train=is_train)
    ner.add_label("GPE")
    before = weights.emissions.copy()
    more = examples(again, ONCE[1:2])  # in a unit with what no other unit has
    for _ in range(3):
        again.update(more, sgd=again.resume_training(), losses={})
    assert (weights.emissions == before)[of_memory(features)].all()
    assert not (weights.emissions == before).all()


def test_losses_that_use_features_get_those_of_training() -> None:
    """As the weights that an update changes are those of training: MIRA measures its step so."""
    nlp, batch, features, _ = remembered()
    model, docs = nlp.get_pipe("ner").model, [eg.predicted for eg in batch]
    found = model.attrs["find_features"](model, docs, is_train=True).rows
    numpy.testing.assert_array_equal(found, features.find(docs, is_train=True).rows)
    assert (found != features.find(docs).rows).any()


def test_damaged_memory_is_refused() -> None:
    corpus = [(["Ana", "saw"], ["PER", "O"], 0), (["Ana", "in"], ["LOC", "O"], 0)]
    features = memory_of(corpus, "doc")
    saved = srsly.msgpack_loads(features.to_bytes())
    memory = saved["memory"]
    counts = memory["counts"]["LOWER"]
    for damage in (
        {"labels": ["O"]}, {"labels": []}, {"units": b""}, {"text_ids": memory["text_ids"][8:]},
        {"text_ids": memory["text_ids"][8:] + memory["text_ids"][:8]}, {"counts": {}},
        *({"counts": {"LOWER": {**counts, name: b""}}} for name in counts),
        {"counts": {"LOWER": {**counts, "starts": counts["n_times"]}}},
        {"counts": {"LOWER": {**counts, "keys": counts["keys"][8:]}}},
    ):  # fmt: skip
        data = srsly.msgpack_dumps({**saved, "memory": {**memory, **damage}})
        with pytest.raises(ValueError, match="features of a linear CRF: expected what was saved"):
            Features(features.template).from_bytes(data)
    with pytest.raises(ValueError, match="expected those of the config"):
        Features(Template(windows={})).from_bytes(features.to_bytes())
