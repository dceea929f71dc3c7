"""Two passes: labels that a first pass predicts for a word's other occurrences in its doc."""

import random
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Optimizer

from spacy_costner.features.document import WIDTH, find_labels_elsewhere, number_occurrences
from spacy_costner.features.shares import BORDERS, share_names
from spacy_costner.ml import find_features, first_pass_of, linear_part

from .support.linear import HYBRID, SPARSE
from .support.pipelines import pipeline

FEATURES = {"@misc": "spacy_costner.Features.v1", "document": {"LOWER": 1}}
NAMES = ["Alba", "Berta", "Cora", "Dora", "Emma", "Frida", "Greta", "Hanna"]


def with_first_pass(kind: dict[str, Any]) -> dict[str, Any]:
    """A model of a kind, with features of a first pass."""
    return {**kind, "features": FEATURES}


def examples(nlp: Language, n_docs: int = 24, seed: int = 0) -> list[Example]:
    """Docs that say once of a name what it is, and use it again where nothing shows it."""
    rng = random.Random(seed)
    found = []
    for _ in range(n_docs):
        words, ents = [], []
        for name in rng.sample(NAMES, 2):
            label = rng.choice(["PERSON", "CITY"])
            shows = ["Mrs"] if label == "PERSON" else ["in"]
            for clue in rng.sample([shows, ["and"]], 2):
                words += [*clue, name, *["so", "it", "was", "."]]
                ents += ["O", f"B-{label}", *"OOOO"]
        doc = Doc(nlp.vocab, words=words)
        found.append(Example(doc, Doc(nlp.vocab, words=words, ents=ents)))
    return found


def trained(kind: dict[str, Any], n_steps: int = 30) -> Language:
    nlp = pipeline(model=kind)
    batch = examples(nlp)
    nlp.initialize(lambda: batch)
    optimizer = Optimizer(0.01)
    for _ in range(n_steps):
        nlp.update([Example(eg.predicted.copy(), eg.reference) for eg in batch], sgd=optimizer)
    return nlp


def f_score(nlp: Language) -> float:
    return float(nlp.evaluate(examples(nlp, 40, 7))["ents_f"])


@st.composite
def occurrences(draw: Any) -> Any:
    lengths = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    n = sum(lengths)
    keys = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    takes_part = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return (
        numpy.asarray(keys, dtype="uint64"),
        numpy.asarray(takes_part, dtype=bool),
        numpy.asarray(lengths, dtype="int32"),
    )


@given(occurrences(), st.integers(1, 4), st.integers(0, 1000))
def test_features_say_the_mean_probabilities_of_other_occurrences_of_a_word(
    problem: Any, n_labels: int, seed: int
):
    keys, takes_part, lengths = problem
    doc = numpy.repeat(numpy.arange(len(lengths)), lengths)
    probs = numpy.random.default_rng(seed).dirichlet(numpy.ones(n_labels), len(keys))
    found = find_labels_elsewhere(probs, number_occurrences(keys, takes_part, lengths))
    names = share_names([str(label) for label in range(n_labels)])
    assert found.shape == (len(keys), WIDTH)
    for t in range(len(keys)):
        others = [
            probs[u]
            for u in range(len(keys))
            if u != t and takes_part[u] and takes_part[t] and (doc[u], keys[u]) == (doc[t], keys[t])
        ]
        expected = set()
        if others:
            mean, edges = numpy.mean(others, axis=0), [0, *BORDERS, 1]
            bins = [sum(share >= border for border in BORDERS) for share in mean]
            ranges = [f"{edges[i]:g}-{edges[i + 1]:g}" for i in bins]
            n_times = "1" if len(others) == 1 else "2-3" if len(others) < 4 else "4+"
            best = int(mean.argmax())
            expected = {f"{label}:{ranges[label]}" for label, i in enumerate(bins) if i}
            expected.add(f"best:{best}:{ranges[best]}:{n_times}")
        assert {names[i] for i in found[t] if i >= 0} == expected


@pytest.mark.parametrize("kind", [SPARSE, HYBRID], ids=["sparse", "hybrid"])
def test_a_first_pass_helps_where_another_occurrence_of_a_word_shows_its_label(
    kind: dict[str, Any],
) -> None:
    """A name after "Mrs" or "in" has the label of the one after "and", of which nothing else says
    what it is."""
    assert f_score(trained(with_first_pass(kind))) > 0.95 > 0.85 > f_score(trained(kind))


def test_the_first_pass_of_a_training_doc_was_not_trained_on_it() -> None:
    """With labels drawn by lot, a model that has seen a doc knows them. The labels that the second
    pass is trained with don't. Half the docs have a copy at the other end of the corpus."""
    nlp = pipeline(model=with_first_pass(SPARSE))
    words = [f"Name{i}" for i in range(120)]
    rng, batch = random.Random(0), []
    for i in range(0, 120, 3):
        of_doc = [word for word in words[i : i + 3] for _ in range(2)]
        ents = [f"B-{rng.choice('XY')}" for _ in of_doc]
        ents[1::2] = ents[::2]
        doc = Doc(nlp.vocab, words=of_doc)
        batch.append(Example(doc, Doc(nlp.vocab, words=of_doc, ents=ents)))
    batch += [Example(eg.predicted.copy(), eg.reference) for eg in batch[:20]]
    nlp.initialize(lambda: batch)
    ner = nlp.get_pipe("ner")
    first_pass = first_pass_of(ner.model)
    assert first_pass is not None
    features, _ = linear_part(ner.model)

    def share_of_right_tokens(examples: list[Example], is_train: bool) -> float:
        labels = [1 + "XY".index(t.ent_type_) for eg in examples for t in eg.reference]
        docs = [eg.predicted for eg in examples]
        probs = first_pass.predict(features.find(docs, is_train=is_train), docs)
        numpy.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-5)
        return float((probs.argmax(axis=1) == labels).mean())

    with_copy, without_copy = batch[:20], batch[20:40]
    for part in (with_copy, without_copy):
        assert share_of_right_tokens(part, is_train=False) > 0.9
        assert 0.3 < share_of_right_tokens(part, is_train=True) < 0.7


def test_features_of_a_doc_are_the_same_alone_and_in_a_batch() -> None:
    """Other docs of the batch have the same names, with other labels."""
    nlp = trained(with_first_pass(SPARSE), n_steps=1)
    ner = nlp.get_pipe("ner")
    docs = [eg.predicted for eg in examples(nlp, 6, 3)]
    together = find_features(ner.model, docs).rows
    alone = numpy.concatenate([find_features(ner.model, [doc]).rows for doc in docs])
    numpy.testing.assert_array_equal(together, alone)


def test_the_first_pass_is_asked_only_where_a_word_occurs_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nlp = trained(with_first_pass(SPARSE), n_steps=1)
    first_pass = first_pass_of(nlp.get_pipe("ner").model)
    assert first_pass is not None
    asked: list[str] = []
    predict = first_pass.predict

    def counted(batch: Any, docs: Any = ()) -> Any:
        asked.extend(doc.text for doc in docs)
        return predict(batch, docs)

    monkeypatch.setattr(first_pass, "predict", counted)
    nlp("and Name1 or name2")
    nlp("and Name1 or Name1")
    assert asked == ["and Name1 or Name1"]
