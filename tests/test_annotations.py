"""Answers and confidences as spaCy's users meet them: in docs, configs and saved pipelines."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from spacy.tokens.underscore import Underscore

from spacy_costner.decoding import LEAST
from spacy_costner.pipeline.annotations import confidence_of, make_confidence, warn_once
from spacy_costner.pipeline.promises import Thresholds
from spacy_costner.tags import Entities

from .support.pipelines import TEXTS, ents, examples, load, pipeline, promise_of

CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.05}
THRESHOLD = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.5}
TREE = {"name": {"LOC": {}, "PERSON": {}, "sports-team": {}}}
HIERARCHICAL = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
MIN_COST = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": HIERARCHICAL, "tree": TREE}
TEXT = "Khan likes the Red Sox of London and Berlin.\nWho is Shaka?"


def remove_extension() -> None:
    if Span.has_extension("confidence"):
        Span.remove_extension("confidence")


@pytest.fixture(autouse=True)
def extensions() -> Iterator[None]:
    """Each test finds spans without the extension attribute, and leaves them so."""
    remove_extension()
    yield
    remove_extension()


def scores(doc: Doc, key: str = "confidence") -> list[float]:
    return doc.spans[key].attrs["scores"].tolist()


# Confidence


def test_confidence_is_off_unless_asked_for(unsure: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Underscore, "span_extensions", {})
    doc = load(unsure)(TEXT)
    assert not doc.spans and doc.ents
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match=r"\[components.NAME.confidence\]") as warned:
        assert [ent._.confidence for ent in doc.ents * 3] == [None] * len(doc.ents) * 3
    assert len(warned) == 1


def test_another_extension_of_that_name_stays(unsure: Path) -> None:
    Span.set_extension("confidence", default="theirs")
    doc = load(unsure)(TEXT)
    assert {ent._.confidence for ent in doc.ents} == {"theirs"}


def test_confidence_in_docs(unsure: Path) -> None:
    nlp = load(unsure, confidence=CONFIDENCE)
    ner = nlp.get_pipe("ner")
    docs = list(nlp.pipe([*TEXTS, TEXT, TEXT]))
    posterior = ner.posterior(docs)
    n_before = 0
    for doc in docs:
        assert [*doc.spans["confidence"]] == [*doc.ents]
        assert scores(doc) == [ent._.confidence for ent in doc.ents]
        for group in doc.spans.values():
            for span, score in zip(group, group.attrs["scores"]):
                assert span._.confidence == confidence_of(span) == score
                label = ner.labels.index(span.label_)
                place = (span.start + n_before, span.end + n_before, label)
                entity = Entities(*numpy.asarray([place]).T)
                assert posterior.entity_probs(entity)[0] == pytest.approx(score, abs=1e-5)
        second = doc.spans["confidence_alternatives"]
        predicted = {(ent.start, ent.end, ent.label) for ent in doc.ents}
        assert not predicted & {(span.start, span.end, span.label) for span in second}
        assert all(score >= 0.05 for score in scores(doc, "confidence_alternatives"))
        n_before += len(doc)
    assert any(doc.ents for doc in docs)
    assert any(len(doc.spans["confidence_alternatives"]) for doc in docs)
    assert doc[0:1]._.confidence is None or doc[0:1] in [*doc.spans["confidence"], *second]


def test_confidence_survives(unsure: Path) -> None:
    nlp = load(unsure, confidence=CONFIDENCE)
    expected = [scores(doc) for doc in nlp.pipe([TEXT, "", TEXTS[1]])]
    assert expected[1] == []
    copy = pickle.loads(pickle.dumps(nlp))
    others = [*copy.pipe([TEXT, "", TEXTS[1]], n_process=2)]
    box = DocBin(docs=others)
    stored = list(DocBin().from_bytes(box.to_bytes()).get_docs(nlp.vocab))
    for docs in (others, stored):
        for doc, probs in zip(docs, expected):
            assert scores(doc) == pytest.approx(probs, abs=1e-6)
            assert [ent._.confidence for ent in doc.spans["confidence"]] == scores(doc)


@pytest.mark.parametrize("label", ["CITY", "LOC"])
def test_annotation_from_before_has_no_confidence(unsure: Path, label: str) -> None:
    nlp = load(unsure, confidence=CONFIDENCE)
    doc, ner = nlp.make_doc(TEXT), nlp.get_pipe("ner")
    doc.set_ents([Span(doc, 0, 2, label=label)], default="missing")
    ner.set_guarantee(promise_of({"": Thresholds(0.0, {})}, miss=0.1))
    ner(doc)
    assert doc.ents[0].label_ == label
    assert [*doc.spans["confidence"]] == [*doc.ents][1:]
    assert len(doc.spans["confidence_guaranteed"]) > len(doc.ents)
    assert all(span.start >= 2 for group in doc.spans.values() for span in group)


def test_reading_the_guarantee_changes_nothing(unsure: Path) -> None:
    ner = load(unsure, confidence=CONFIDENCE).get_pipe("ner")
    ner.set_guarantee(promise_of({}, miss=0.1))
    bias = ner.cfg["decoding"]["bias"]
    ner.cfg["decoding"]["bias"] = 1.0
    assert ner.guarantee is None and ner.meta["guarantee"]["ner"]
    ner.cfg["decoding"]["bias"] = bias
    assert ner.guarantee.miss == 0.1
    temperature = ner.cfg["temperature"]["overall"]
    ner.cfg["temperature"]["overall"] = 2.0
    with pytest.warns(UserWarning, match="after another setting of temperature"):
        ner.check_guarantee()
    ner.cfg["temperature"]["overall"] = temperature
    assert ner.guarantee is None and not ner.meta["guarantee"]


def test_an_extension_of_that_name_is_not_overwritten(unsure: Path) -> None:
    Span.set_extension("confidence", default=None)
    message = r"extension: expected a name that no other .*'confidence'"
    with pytest.raises(ValueError, match=message):
        load(unsure, confidence=CONFIDENCE)
    nlp = load(unsure, confidence={**CONFIDENCE, "extension": "ner_confidence"})
    doc = nlp(TEXT)
    assert [ent._.ner_confidence for ent in doc.ents] == scores(doc)
    Span.remove_extension("ner_confidence")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spans_key": ""}, "spans_key: expected a name"),
        ({"extension": ""}, "extension: expected a name"),
        ({"alternatives": 1.5}, f"alternatives: expected null or a probability from {LEAST}"),
        ({"alternatives": 0.0}, "alternatives: expected"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_confidence(**settings)


def test_k_best_of_a_doc_whose_probabilities_underflow(unsure: Path) -> None:
    nlp = load(unsure)
    doc, ner = Doc(nlp.vocab, ["vnbxq"] * 2_400), nlp.get_pipe("ner")
    ner.cfg["temperature"] = {"overall": 100.0, "labels": {}}
    found = ner.k_best([doc], k=3)[0]
    log_probs = [each.log_probability for each in found]
    assert len(found) == 3 and log_probs == sorted(log_probs, reverse=True)
    assert -10_000 < log_probs[0] < -1_000 and not any(each.prob for each in found)
    with pytest.raises(ValueError, match=r"docs: expected several docs, as \[doc\], got a Doc"):
        ner.k_best(doc)


# Decoding


def test_decoding_is_set_on_a_trained_pipeline(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure, decoding=THRESHOLD)
    ner = nlp.get_pipe("ner")
    n_found = []
    for threshold in (0.02, 0.3, 1.0):
        ner.cfg["decoding"]["threshold"] = threshold
        n_found.append(len(nlp(TEXT).ents))
    assert n_found[0] >= n_found[1] and n_found[0] > n_found[2] == 0
    ner.cfg["decoding"]["labels"]["LOC"] = 0.02
    expected = ents(nlp(TEXT))
    assert expected and {label for _, _, label in expected} == {"LOC"}
    nlp.to_disk(tmp_path)
    assert ents(spacy.load(tmp_path)(TEXT)) == expected
    assert ents(load(tmp_path, decoding={**THRESHOLD, "threshold": 1.0})(TEXT)) == []
    again = pickle.loads(pickle.dumps(nlp))
    assert ents(again(TEXT)) == expected


def test_the_config_is_heard_where_it_says_something_new(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure, decoding=THRESHOLD, confidence=CONFIDENCE)
    nlp.get_pipe("ner").cfg["decoding"]["threshold"] = 0.02
    nlp.get_pipe("ner").cfg["confidence"]["spans_key"] = "sure"
    nlp.to_disk(tmp_path)
    same = load(tmp_path, confidence=None).get_pipe("ner")
    assert same.cfg["decoding"]["threshold"] == 0.02 and same.confidence is None
    other = load(tmp_path, decoding={**THRESHOLD, "threshold": 0.9}).get_pipe("ner")
    assert other.cfg["decoding"]["threshold"] == 0.9 and other.confidence.spans_key == "sure"
    other = load(tmp_path, decoding={"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 1.0})
    assert other.get_pipe("ner").cfg["decoding"] == {"bias": 1.0, "labels": {}}


def test_a_node_of_the_tree_is_answered(unsure: Path, tmp_path: Path) -> None:
    nlp = load(unsure, decoding=MIN_COST, confidence=CONFIDENCE)
    ner = nlp.get_pipe("ner")
    output = ner.model.get_ref("emissions")
    units = [ner.tags.names.index(f"U-{label}") for label in ner.labels]
    output.get_param("W")[units] = 0
    output.get_param("b")[units] = 50
    nlp.to_disk(tmp_path)
    for pipe in (nlp, spacy.load(tmp_path)):
        doc = pipe("London")
        assert [ent.label_ for ent in doc.ents] == ["name"]
        assert doc.ents[0]._.confidence == pytest.approx(1, abs=1e-3)
        assert pipe.get_pipe("ner").labels == ("LOC", "PERSON", "sports-team")


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({**THRESHOLD, "labels": {"GPE": 0.2}}, r"decoding: labels: .*got 'GPE'"),
        ({**MIN_COST, "tree": {"place": {"LOC": {}}}}, "MinCostDecoding: tree: .*'PERSON'"),
    ],
)
def test_settings_that_don_t_fit_are_named_before_training(
    decoding: dict[str, Any], message: str
) -> None:
    nlp = pipeline(decoding=decoding)
    with pytest.raises(ValueError, match=message):
        nlp.initialize(lambda: examples(nlp))


def test_training_anew_forgets_the_temperature(unsure: Path) -> None:
    nlp = load(unsure)
    nlp.get_pipe("ner").cfg["temperature"]["overall"] = 3.0
    nlp.initialize(lambda: examples(nlp))
    assert nlp.get_pipe("ner").cfg["temperature"]["overall"] == 1.0
