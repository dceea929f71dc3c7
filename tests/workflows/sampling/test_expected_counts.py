"""Tests of what a model expects of docs, compared with what the pipeline predicts."""

from pathlib import Path
from typing import Any

import numpy
import pytest

from spacy_costner.workflows.sampling.expected_counts import concatenate_counts, expect_counts

from ...support.pipelines import TEXTS, load, pipeline, predict_node_above_labels, train


def test_counts_of_docs_equal_sums_over_their_predicted_entities() -> None:
    """Docs are predicted in batches. The counts are the number of predicted entities, the sum of
    their probabilities, and the sum of the probabilities of all possible entities."""
    nlp = pipeline(confidence={"@misc": "spacy_costner.Confidence.v1"})
    train(nlp)
    nlp.batch_size = 2
    ner = nlp.get_pipe("ner")
    texts = TEXTS[:3]

    docs = []
    parts = []
    for docs_of_batch, counts_of_batch in expect_counts(nlp, "ner", map(nlp.make_doc, texts)):
        docs += docs_of_batch
        parts.append(counts_of_batch)
    counts = concatenate_counts(parts)

    assert len(parts) == 2  # batches of two docs and of one
    assert counts.n_tokens.tolist() == [len(nlp.make_doc(text)) for text in texts]
    for i, expected_doc in enumerate(nlp.pipe(texts)):
        assert [str(ent) for ent in docs[i].ents] == [str(ent) for ent in expected_doc.ents]
        assert expected_doc.ents
        # Entities below one percent aren't found.
        entities, probs = ner.posterior([nlp.make_doc(texts[i])]).likely_entities(0.01)
        for j, label in enumerate(ner.labels):
            ents = [ent for ent in expected_doc.ents if ent.label_ == label]
            assert counts.predicted[i, j] == len(ents)
            confidence = sum(ent._.confidence for ent in ents)
            assert counts.correct[i, j] == pytest.approx(confidence, abs=1e-5)
            n_expected = probs[entities.label == j].sum()
            assert counts.annotated[i, j] == pytest.approx(n_expected, abs=0.1)
        confidences = [ent._.confidence for ent in expected_doc.ents]
        false_alarms = sum(1 - confidence for confidence in confidences)
        misses = probs.sum() - sum(confidences)
        assert counts.mistakes()[i] == pytest.approx(false_alarms + misses, abs=0.1)


def test_entities_of_a_component_before_are_certain() -> None:
    """Entities that the given docs have are ignored, and the given docs keep them."""
    nlp = pipeline()
    train(nlp)
    ruler: Any = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "LOC", "pattern": "Paris"}])
    doc = nlp.make_doc("I like Paris")
    doc.set_ents([doc.char_span(2, 6, "PERSON")], default="outside")

    ((_, counts),) = expect_counts(nlp, "ner", [doc])

    label = nlp.get_pipe("ner").labels.index("LOC")
    assert counts.predicted[0, label] == counts.correct[0, label] == 1
    assert counts.annotated[0, label] == pytest.approx(1.0, abs=1e-3)
    assert counts.predicted[0].sum() == 1
    assert counts.mistakes()[0] == pytest.approx(0.0, abs=0.1)
    assert [ent.text for ent in doc.ents] == ["like"]


def test_entities_with_other_labels_are_counted_in_all_batches(unsure: Path) -> None:
    """Labels that the component doesn't know are certain if an earlier component predicts them, and
    wrong if they are inner nodes, which are expected to be annotated with another label. The two
    batches have different other labels."""
    nlp = load(unsure)
    predict_node_above_labels(nlp, "name")
    ruler: Any = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "DATE", "pattern": "May"}])
    labels = nlp.get_pipe("ner").labels
    nlp.batch_size = 1
    words = ["Khan", "London", "Sox", "lost", "is", "the"]
    texts = ["in May", " ".join(numpy.random.default_rng(0).choice(words, 200))]

    parts = []
    for (doc,), counts in expect_counts(nlp, "ner", map(nlp.make_doc, texts)):
        assert counts.labels == (*labels, *{ent.label_ for ent in doc.ents}.difference(labels))
        parts.append(counts)
    counts = concatenate_counts(parts)

    assert counts.labels == (*labels, "DATE", "name")
    date = counts.labels.index("DATE")
    assert counts.predicted[:, date].tolist() == [1, 0]
    assert counts.correct[:, date].tolist() == counts.annotated[:, date].tolist() == [1, 0]
    node = counts.labels.index("name")
    assert counts.predicted[1, node] > 0
    assert counts.correct[1, node] == counts.annotated[1, node] == 0
    # Each node is a false alarm, and the entity that the component expects there is missed.
    n_wrong = counts.predicted[1].sum() - counts.correct[1].sum()
    n_missed = counts.annotated[1].sum() - counts.correct[1].sum()
    assert counts.mistakes()[1] == pytest.approx(n_wrong + n_missed)
    assert n_wrong > counts.predicted[1, node]
    assert counts.sum_annotated(["DATE"]) == 1
