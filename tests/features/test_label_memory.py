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
from spacy.vocab import Vocab
from thinc.api import Optimizer

from spacy_costner.features import Features, Template
from spacy_costner.features.ids import pack_hashes, unpack_hashes
from spacy_costner.ml import linear_part
from spacy_costner.training.lbfgs import minimise_by_lbfgs

from ..support.config import REQUIRED, declared
from ..support.fitting import read_batches, total_loss, train
from ..support.linear import HYBRID, SPARSE, found_names
from ..support.pipelines import pipeline
from ..support.vocabs import blank_vocab

VOCAB = blank_vocab()
WORDS = ["Rome", "rome", "Ana", "in", "12", ",", "May"]
LABELS = ["LOC", "PER", "x-y"]
BORDERS = [0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1]
"""Of the bins of the share of a label. A share in the first is no feature."""

UNITS: list[int | str] = ["doc", 1, 2, 3, "_.article"]
MISSING = None

Labels = list[str | None]
"""The label of each token: "O" outside of entities, None where annotation is missing."""

Corpus = list[tuple[list[str], Labels, int]]
"""Docs with their words, labels and articles."""


@pytest.fixture(autouse=True)
def article() -> Iterator[None]:
    """An extension attribute of docs: the number of the article that the doc is from."""
    Doc.set_extension("article", default=0)
    yield
    Doc.remove_extension("article")


def annotated(words: list[str], labels: Labels, article: int = 0) -> Doc:
    """A doc in which each token that has a label is an entity."""
    doc = Doc(VOCAB, words=words)
    entities = []
    outside = []
    missing = []
    for i, label in enumerate(labels):
        if label in LABELS:
            entities.append(Span(doc, i, i + 1, label=label))
        elif label == "O":
            outside.append(doc[i : i + 1])
        else:
            missing.append(doc[i : i + 1])
    doc.set_ents(entities, outside=outside, missing=missing)
    doc._.article = article
    return doc


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """Draw a corpus of short docs, some of which mostly have the same text."""
    label = st.sampled_from([*LABELS, "O", "O", MISSING])
    docs = []
    for _ in range(draw(st.integers(0, 6))):
        words = draw(st.lists(st.sampled_from(WORDS), max_size=6))
        labels = draw(st.lists(label, min_size=len(words), max_size=len(words)))
        docs.append((words, labels, draw(st.integers(0, 2))))
    return docs


def letters(words: list[str]) -> str:
    """The letters and digits in lower case by which a doc is known. Here only the comma is none of
    them."""
    return "".join(word.lower() for word in words if word != ",")


def slow_units(corpus: Corpus, unit: int | str, least_units: int) -> list[object]:
    """The unit of each doc, by definition."""
    if unit == "_.article":
        return [article for _, _, article in corpus]
    if unit == "doc":
        return [letters(words) for words, _, _ in corpus]
    n_docs_of_unit = max(1, min(int(unit), len(corpus) // least_units))
    return [i // n_docs_of_unit for i in range(len(corpus))]


def slow_names(word: str, counted: Corpus) -> list[str]:
    """The names of the features of a token with this word, by definition. `counted` are the docs
    whose labels count."""
    label_counts: Counter[str] = Counter()
    for words, labels, _ in counted:
        for counted_word, label in zip(words, labels):
            if label and counted_word.lower() == word.lower():
                label_counts[label] += 1
    n_times = label_counts.total()
    if n_times == 0:
        return []

    names = []
    # Of labels that are equally frequent, the first in this order.
    best_label = max(("O", *LABELS), key=lambda label: label_counts[label])
    for label in label_counts:
        share = label_counts[label] / n_times
        low = max(border for border in BORDERS[:-1] if border <= share)
        high = BORDERS[BORDERS.index(low) + 1]
        if low > 0:
            names.append(f"memory:LOWER={label}:{low:g}-{high:g}")
        if label == best_label:
            names.append(f"memory:LOWER=best:{label}:{low:g}-{high:g}:{bin_of(n_times)}")
    return sorted(names)


def bin_of(n_times: int) -> str:
    """The bin of the number of times that a word was there."""
    if n_times == 1:
        return "1"
    if n_times < 4:
        return "2-3"
    return "4+"


def memory_of(corpus: Corpus, unit: int | str) -> Features:
    """Features of label memory alone, learned from the corpus."""
    features = Features(Template(windows={}, memory_unit=unit, memory={"LOWER": 0}))
    features.build_vocab([annotated(*doc) for doc in corpus])
    return features


def docs_of_other_units(words: list[str], corpus: Corpus, units: list[object]) -> Corpus:
    """The docs whose labels a doc of these words sees in training: those of all units without a doc
    of this text."""
    units_with_text = set()
    for unit, (counted_words, _, _) in zip(units, corpus):
        if letters(counted_words) == letters(words):
            units_with_text.add(unit)
    return [doc for unit, doc in zip(units, corpus) if unit not in units_with_text]


@pytest.mark.slow
@given(corpora(), corpora(), st.sampled_from(UNITS), st.sampled_from([0, 1, 16]), st.integers(1, 3))
def test_features_are_those_of_the_slow_version(
    corpus: Corpus, new: Corpus, unit: int | str, often: int, least_units: int
) -> None:
    """However many docs are read together, and however often a text is there."""
    with (
        patch("spacy_costner.features.collecting.N_DOCS", often + 1),
        patch("spacy_costner.features.label_counts.LEAST_UNITS", least_units),
    ):
        features = memory_of(corpus, unit)
    units = slow_units(corpus, unit, least_units)
    docs = [Doc(VOCAB, words=words) for words, _, _ in corpus + new]
    in_training = []
    in_prediction = []
    for words, _, _ in corpus + new:
        visible_docs = docs_of_other_units(words, corpus, units)
        in_training += [slow_names(word, visible_docs) for word in words]
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


def remembering(
    base: dict[str, Any] = SPARSE, features: dict[str, Any] | None = None, **settings: Any
) -> Language:
    """A pipeline with label memory and these other settings of features and of the component."""
    model = {**base, "features": {**MEMORY, **(features or {})}}
    return pipeline(model=model, **settings)


def examples(nlp: Language, texts: list[tuple[str, Any]] = ONCE) -> list[Example]:
    """Examples of texts, each with the places of its entities."""
    return [Example.from_dict(nlp.make_doc(text), {"entities": ents}) for text, ents in texts]


def remembered(**settings: Any) -> tuple[Language, list[Example], Features, Any]:
    """A pipeline that was initialized with `ONCE`, its examples, and its features and weights."""
    nlp = remembering(**settings)
    batch = examples(nlp)
    nlp.initialize(lambda: batch)
    features, weights = linear_part(nlp.get_pipe("ner").model)
    return nlp, batch, features, weights


def are_memory_features(features: Features) -> list[bool]:
    """Whether each feature is one of label memory."""
    is_of_memory = [name.startswith("memory:LOWER") for name in features.names()]
    assert any(is_of_memory)
    return is_of_memory


@pytest.mark.parametrize("base", [SPARSE, HYBRID], ids=["sparse", "hybrid"])
@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_no_update_learns_from_own_labels(name: str, base: dict[str, Any]) -> None:
    """The words of `ONCE` are in no other doc, so the weights of memory must not change, though
    others do. Weights are random at first, as some losses can't start from zeros."""
    loss = {"@losses": name, **REQUIRED.get(name, {})}
    nlp, batch, features, weights = remembered(base=base, loss=loss)
    weights.rows[:] = numpy.random.default_rng(0).normal(size=weights.rows.shape) / 10
    before = weights.emissions.copy()

    for _ in range(5):
        nlp.update(batch, sgd=Optimizer(0.01), losses={})

    is_same = (weights.emissions == before).all(axis=1)
    assert is_same[are_memory_features(features)].all()
    assert not is_same.all()
    # In prediction, each of these tokens has features of memory.
    for names in found_names(features, [eg.predicted for eg in batch]):
        assert any("memory:LOWER" in name for name in names)


def train_online(nlp: Language, batch: list[Example]) -> None:
    """Train a pipeline as `fit` does with many docs."""
    ner = nlp.get_pipe("ner")
    train(ner, read_batches(ner, [batch]), Optimizer(0.01), max_epochs=5)


def train_by_lbfgs(nlp: Language, batch: list[Example]) -> None:
    """Train a pipeline as `fit` does with few docs."""
    total = total_loss(nlp.get_pipe("ner"), batch, c2=0.1)
    minimum = minimise_by_lbfgs(total, total.read_weights(), max_iter=20)
    total.write_weights(minimum.vector)


def rehearse(nlp: Language, batch: list[Example]) -> None:
    """Train a pipeline as `nlp.rehearse` does, to keep what its model has learned."""
    optimizer = nlp.resume_training()
    features, weights = linear_part(nlp.get_pipe("ner").model)
    names = features.names()
    # Other weights than those it rehearses: otherwise there is nothing to learn.
    weights.emissions[names.index("LOWER=ana")] = 1.0
    nlp.rehearse(batch, sgd=optimizer, losses={})


@pytest.mark.parametrize("train_on", [train_online, train_by_lbfgs, rehearse])
def test_no_way_of_training_learns_from_own_labels(
    train_on: Callable[[Language, list[Example]], None],
) -> None:
    nlp, batch, features, weights = remembered()
    train_on(nlp, batch)
    assert weights.emissions.any()
    assert not weights.emissions[are_memory_features(features)].any()


def test_memory_is_learned_from_other_docs() -> None:
    """The labels that a word had in other docs decide, as words have no weights of their own here.
    "Lima" and "Dora" are only counted; the weights are learned from "Ana" and "Rome"."""
    features = {"windows": {"SHAPE": 0}, "memory": {"LOWER": 0}, "elsewhere": None}
    nlp = remembering(features=features)
    ana_first = ("Ana saw Rome", [(0, 3, "PER"), (8, 12, "LOC")])
    rome_first = ("Rome saw Ana", [(0, 4, "LOC"), (9, 12, "PER")])
    batch = examples(nlp, [ana_first, rome_first])
    counted = examples(nlp, [("Dora met", [(0, 4, "PER")]), ("met Lima", [(4, 8, "LOC")])])
    nlp.initialize(lambda: batch + counted)

    for _ in range(30):
        nlp.update(batch, sgd=Optimizer(0.01), losses={})

    entities = [(ent.text, ent.label_) for ent in nlp("Lima and Dora").ents]
    assert entities == [("Lima", "LOC"), ("Dora", "PER")]


def test_missing_annotation_and_incorrect_spans_are_not_counted() -> None:
    """In "Ana saw Rome and Oslo", "Ana" is annotated as a person and "saw" as outside. Of the other
    tokens it is only known that "Rome" is no place and "Oslo" is no entity.
    Each counted word has its label in its one occurrence: a share of 1, in the bin 0.98-1."""
    nlp = remembering(incorrect_spans_key="wrong")
    eg = examples(nlp, [("Ana saw Rome and Oslo", [])])[0]
    gold = eg.reference
    gold.set_ents([Span(gold, 0, 1, "PER")], outside=[gold[1:2]], default="missing")
    gold.spans["wrong"] = [Span(gold, 2, 3, "LOC"), Span(gold, 4, 5)]
    nlp.initialize(lambda: [eg])
    features, _ = linear_part(nlp.get_pipe("ner").model)
    memory_names = []
    for names in found_names(features, [nlp.make_doc("Rome Oslo and Ana saw")]):
        memory_names.append({name for name in names if name.startswith("memory:LOWER=")})
    rome, oslo, conjunction, ana, saw = memory_names
    assert rome == oslo == conjunction == set()
    assert ana == {"memory:LOWER=PER:0.98-1", "memory:LOWER=best:PER:0.98-1:1"}
    assert saw == {"memory:LOWER=O:0.98-1", "memory:LOWER=best:O:0.98-1:1"}


@pytest.mark.parametrize("words", [
    ["ana", "saw", "rome"], ["Ana", "saw", "Rome", "!"], ["ANA", "\n", "saw", "Rome"],
    ["A", "na", "saw", "Ro", "me"], ["Ana", "\u201csaw\u201d", "Rome"],
])  # fmt: skip
def test_a_doc_is_known_by_its_letters(words: list[str]) -> None:
    """A training doc that an augmenter or a tokenizer has changed still doesn't see its labels."""
    features = memory_of([(["Ana", "saw", "Rome"], ["PER", "O", "LOC"], 0)], "doc")
    assert not any(found_names(features, [Doc(VOCAB, words=words)], is_train=True))
    assert any(found_names(features, [Doc(VOCAB, words=words)]))


def trained_on_units_of_two_docs() -> tuple[Language, list[Example]]:
    """A pipeline that is saved with all it remembers, and the docs that it was trained on: `ONCE`
    and one with words of these."""
    nlp = remembering({**SPARSE, "keep_all": True}, features={"memory_unit": 2})
    batch = [*examples(nlp), *examples(nlp, [("Rome and Ana", [(0, 4, "PER")])])]
    # Four docs would be too few for units of two if there had to be more than two units.
    with patch("spacy_costner.features.label_counts.LEAST_UNITS", 2):
        optimizer = nlp.initialize(lambda: batch)
    for _ in range(3):
        nlp.update(batch, sgd=optimizer, losses={})
    return nlp, batch


def test_saved_memory_finds_the_same(tmp_path: Path) -> None:
    nlp, batch = trained_on_units_of_two_docs()
    docs = [eg.predicted for eg in batch]
    features, _ = linear_part(nlp.get_pipe("ner").model)
    nlp.to_disk(tmp_path)
    loaded_features, _ = linear_part(spacy.load(tmp_path).get_pipe("ner").model)
    for is_train in (False, True):
        expected = found_names(features, docs, is_train=is_train)
        assert found_names(loaded_features, docs, is_train=is_train) == expected


def test_more_training_of_a_saved_model_learns_nothing_from_own_labels(tmp_path: Path) -> None:
    """The loaded model still knows which docs were counted, also after a label is added. The words
    of "Ben left Oslo", `ONCE[1]`, are in no other doc: all labels of them are its own, so no weight
    of memory may change."""
    nlp, _ = trained_on_units_of_two_docs()
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    ner = loaded.get_pipe("ner")
    features, weights = linear_part(ner.model)
    ner.add_label("GPE")
    before = weights.emissions.copy()

    batch = examples(loaded, ONCE[1:2])
    for _ in range(3):
        loaded.update(batch, sgd=loaded.resume_training(), losses={})

    is_same = weights.emissions == before
    assert is_same[are_memory_features(features)].all()
    assert not is_same.all()


def test_losses_that_use_features_get_those_of_training() -> None:
    """An update changes the weights of the features in training. So MIRA, which measures how far an
    update moves the scores, needs the same."""
    nlp, batch, features, _ = remembered()
    model = nlp.get_pipe("ner").model
    docs = [eg.predicted for eg in batch]
    rows = model.attrs["find_features"](model, docs, is_train=True).rows
    numpy.testing.assert_array_equal(rows, features.find(docs, is_train=True).rows)
    assert (rows != features.find(docs).rows).any()


def damaged_memories(memory: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A saved memory with parts that are missing, too short, out of order, or that don't fit each
    other."""
    text_ids = memory["text_ids"]  # of 8 bytes each
    counts = memory["counts"]["LOWER"]
    short_keys = unpack_hashes(counts["short_keys"])
    damages: list[dict[str, Any]] = [
        {"labels": ["O"]},
        {"labels": []},
        {"units": b""},
        {"text_ids": text_ids[8:]},
        {"text_ids": text_ids[8:] + text_ids[:8]},
        {"counts": {}},
    ]
    damages_of_counts: list[dict[str, Any]] = [{name: b""} for name in counts]
    damages_of_counts.append({"starts": counts["n_times"]})
    damages_of_counts.append({"short_keys": pack_hashes(short_keys[1:])})
    for damage in damages_of_counts:
        damages.append({"counts": {"LOWER": {**counts, **damage}}})
    for damage in damages:
        yield {**memory, **damage}


def test_recounted_memory_finds_the_same_words_whatever_their_vocab() -> None:
    """Recounted features share the cache of words. A bare vocab knows no lower case, so the same
    word has other features there, also if the features found it in another vocab before."""
    template = Template(windows={"LOWER": 0}, memory={"ORTH": 0})
    docs = [annotated(["Rome", "May"], ["LOC", "O"]), annotated(["Ana"], ["PER"])]
    bare_docs = [Doc(Vocab(), words=["Rome", "May"])]
    features = Features(template)
    features.build_vocab(docs)
    features.find(docs)

    recounted = features.recount(docs)

    for found_docs in (bare_docs, docs):
        expected = Features(template).from_bytes(features.to_bytes()).find(found_docs).rows
        assert recounted.find(found_docs).rows.tolist() == expected.tolist()
        if found_docs is bare_docs:
            assert (expected[:, 0] == -1).all(), "a bare vocab knows no lower case"


def test_damaged_memory_is_refused() -> None:
    corpus = [(["Ana", "saw"], ["PER", "O"], 0), (["Ana", "in"], ["LOC", "O"], 0)]
    features = memory_of(corpus, "doc")
    saved = srsly.msgpack_loads(features.to_bytes())
    for memory in damaged_memories(saved["memory"]):
        damaged = srsly.msgpack_dumps({**saved, "memory": memory})
        with pytest.raises(ValueError, match="features of a linear CRF: expected saved features"):
            Features(features.template).from_bytes(damaged)


def test_a_template_without_memory_does_not_load_it() -> None:
    features = memory_of([(["Ana", "saw"], ["PER", "O"], 0)], "doc")
    with pytest.raises(ValueError, match="expected the columns of the config"):
        Features(Template(windows={})).from_bytes(features.to_bytes())
