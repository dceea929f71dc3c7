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

from spacy_costner.decoding import LEAST_PROB
from spacy_costner.pipeline.confidence import confidence_of, make_confidence, warn_once
from spacy_costner.pipeline.promises import Thresholds
from spacy_costner.tags import Entities

from ..support.pipelines import TEXTS, ents, examples, load, pipeline, promise_of

CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.05}
THRESHOLD = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 0.5}
TREE = {"name": {"LOC": {}, "PERSON": {}, "sports-team": {}}}
HIERARCHICAL = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
MIN_COST = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": HIERARCHICAL, "tree": TREE}
TEXT = "Khan likes the Red Sox of London and Berlin.\nWho is Shaka?"
"""The pipeline `unsure` finds entities in it, not all of them likely."""


def remove_extension() -> None:
    """Remove the extension attribute, if there is one."""
    if Span.has_extension("confidence"):
        Span.remove_extension("confidence")


@pytest.fixture(autouse=True)
def extensions() -> Iterator[None]:
    """Each test finds spans without the extension attribute, and leaves them so."""
    remove_extension()
    yield
    remove_extension()


def scores(doc: Doc, key: str = "confidence") -> list[float]:
    """The scores of the spans of a group."""
    return doc.spans[key].attrs["scores"].tolist()


# Confidence


def test_confidence_is_on_unless_it_is_turned_off(unsure: Path) -> None:
    """The pipeline was made without the setting."""
    doc = load(unsure)(TEXT)
    assert [ent._.confidence for ent in doc.ents] == scores(doc)
    assert doc.ents and all(0 < prob < 1 for prob in scores(doc))


def test_a_pipeline_that_was_saved_without_confidence_stays_without(
    unsure: Path, tmp_path: Path
) -> None:
    load(unsure, confidence=None).to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    assert nlp.config["components"]["ner"]["confidence"] is None
    assert ents(nlp(TEXT)) == ents(load(unsure)(TEXT))
    assert not nlp(TEXT).spans


def test_without_confidence_a_warning_says_so(
    unsure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Underscore, "span_extensions", {})
    doc = load(unsure, confidence=None)(TEXT)
    assert doc.ents
    assert not doc.spans

    warn_once.cache_clear()
    with pytest.warns(UserWarning, match=r"\[components.NAME.confidence\]") as warned:
        confidences = [ent._.confidence for ent in doc.ents * 3]
    assert set(confidences) == {None}
    assert len(warned) == 1


def test_an_extension_of_that_name_stays_where_confidence_is_off(unsure: Path) -> None:
    Span.set_extension("confidence", default="theirs")
    doc = load(unsure, confidence=None)(TEXT)
    assert {ent._.confidence for ent in doc.ents} == {"theirs"}


def test_confidences_are_probabilities_of_the_posterior(unsure: Path) -> None:
    """This holds for predicted entities and for alternatives."""
    nlp = load(unsure, confidence=CONFIDENCE)
    ner = nlp.get_pipe("ner")
    docs = list(nlp.pipe([*TEXTS, TEXT, TEXT]))
    posterior = ner.posterior(docs)

    n_spans = 0
    n_tokens_before = 0
    for doc in docs:
        for group in doc.spans.values():
            for span, score in zip(group, group.attrs["scores"]):
                assert span._.confidence == confidence_of(span) == score
                begin = span.start + n_tokens_before
                end = span.end + n_tokens_before
                label = ner.labels.index(span.label_)
                entity = Entities(*numpy.asarray([[begin], [end], [label]]))
                assert posterior.entity_probs(entity)[0] == pytest.approx(score, abs=1e-5)
                n_spans += 1
        n_tokens_before += len(doc)
    assert n_spans > 0


def test_entities_are_in_the_group_of_confidences(unsure: Path) -> None:
    nlp = load(unsure, confidence=CONFIDENCE)
    docs = list(nlp.pipe([*TEXTS, TEXT]))

    assert any(doc.ents for doc in docs)
    for doc in docs:
        assert [*doc.spans["confidence"]] == [*doc.ents]
        assert scores(doc) == [ent._.confidence for ent in doc.ents]


def test_alternatives_are_spans_that_are_not_predicted_but_likely_enough(unsure: Path) -> None:
    nlp = load(unsure, confidence={**CONFIDENCE, "alternatives": 0.05})
    docs = list(nlp.pipe([*TEXTS, TEXT]))

    assert any(len(doc.spans["confidence_alternatives"]) for doc in docs)
    for doc in docs:
        alternatives = doc.spans["confidence_alternatives"]
        predicted = {(ent.start, ent.end, ent.label) for ent in doc.ents}
        assert not predicted & {(span.start, span.end, span.label) for span in alternatives}
        assert all(score >= 0.05 for score in scores(doc, "confidence_alternatives"))


def test_a_span_that_was_not_scored_has_no_confidence(unsure: Path) -> None:
    doc = load(unsure, confidence=CONFIDENCE)(TEXT)
    assert doc[0:1]._.confidence is None  # it has no label


@pytest.fixture
def docs_of_processes(unsure: Path) -> list[Doc]:
    """Docs that a pickled pipeline has predicted in two processes."""
    copied = pickle.loads(pickle.dumps(load(unsure, confidence=CONFIDENCE)))
    return [*copied.pipe([TEXT, "", TEXTS[1]], n_process=2)]


@pytest.mark.parametrize("is_stored", [False, True], ids=["processes", "DocBin"])
def test_confidences_are_the_same_from_processes_and_a_docbin(
    is_stored: bool, docs_of_processes: list[Doc], unsure: Path
) -> None:
    nlp = load(unsure, confidence=CONFIDENCE)
    expected = [scores(doc) for doc in nlp.pipe([TEXT, "", TEXTS[1]])]
    assert expected[1] == []  # of the empty text

    docs = docs_of_processes
    if is_stored:
        saved = DocBin(docs=docs).to_bytes()
        docs = list(DocBin().from_bytes(saved).get_docs(nlp.vocab))

    for doc, expected_scores in zip(docs, expected, strict=True):
        assert scores(doc) == pytest.approx(expected_scores, abs=1e-6)
        assert [span._.confidence for span in doc.spans["confidence"]] == scores(doc)


@pytest.mark.parametrize("label", ["CITY", "LOC"])
def test_preset_entities_have_no_confidence(unsure: Path, label: str) -> None:
    """No span of a group has the tokens of a preset entity, whether the component has its label or
    not."""
    nlp = load(unsure, confidence=CONFIDENCE)
    ner = nlp.get_pipe("ner")
    # The threshold 0: all spans are in the guaranteed set.
    ner.set_guarantee(promise_of({"": Thresholds(0.0, {})}, miss=0.1))
    doc = nlp.make_doc(TEXT)
    doc.set_ents([Span(doc, 0, 2, label=label)], default="missing")

    ner(doc)

    assert doc.ents[0].label_ == label
    assert [*doc.spans["confidence"]] == [*doc.ents][1:]
    assert len(doc.spans["confidence_guaranteed"]) > len(doc.ents)
    assert all(span.start >= 2 for group in doc.spans.values() for span in group)


def test_a_guarantee_is_not_lost_while_the_decoding_is_another(unsure: Path) -> None:
    ner = load(unsure, confidence=CONFIDENCE).get_pipe("ner")
    ner.set_guarantee(promise_of({}, miss=0.1))
    bias = ner.cfg["decoding"]["bias"]

    ner.cfg["decoding"]["bias"] = bias + 1.0
    assert ner.guarantee is None
    assert ner.meta["guarantee"]["ner"]
    ner.cfg["decoding"]["bias"] = bias
    assert ner.guarantee.miss == 0.1


def test_check_guarantee_drops_a_guarantee_that_does_not_hold(unsure: Path) -> None:
    """The guarantee doesn't come back when the temperature that it was made for is set again."""
    ner = load(unsure, confidence=CONFIDENCE).get_pipe("ner")
    ner.set_guarantee(promise_of({}, miss=0.1))
    temperature = ner.cfg["temperature"]["overall"]

    ner.cfg["temperature"]["overall"] = 2.0
    with pytest.warns(UserWarning, match="after another setting of temperature"):
        ner.check_guarantee()

    ner.cfg["temperature"]["overall"] = temperature
    assert ner.guarantee is None and not ner.meta["guarantee"]


def test_the_name_of_another_extension_is_refused(unsure: Path) -> None:
    """Another name can be set."""
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
        ({"alternatives": 1.5}, f"alternatives: expected null or a probability from {LEAST_PROB}"),
        ({"alternatives": 0.0}, f"alternatives: expected null or a probability from {LEAST_PROB}"),
        ({"second_choice": 0.2}, "second_choice: expected null, as .* got 0.2: delete the line"),
    ],
)
def test_bad_settings_of_confidence_are_refused_by_name(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_confidence(**settings)


def test_the_block_of_a_pipeline_that_0_3_0_saved_is_read(unsure: Path) -> None:
    """spaCy has filled it in with all settings that 0.3.0 had."""
    nlp = load(unsure, confidence={**CONFIDENCE, "extension": "confidence", "second_choice": None})
    assert vars(nlp.get_pipe("ner").confidence) == vars(make_confidence(alternatives=0.05))


def test_k_best_ranks_analyses_whose_probabilities_underflow(unsure: Path) -> None:
    """The probabilities are 0 in float64, as exp(-746) is, but their logarithms are finite. The
    temperature makes all paths of 2,400 tokens about equally likely, so even the best one is far
    less likely than exp(-1000)."""
    nlp = load(unsure)
    ner = nlp.get_pipe("ner")
    ner.cfg["temperature"] = {"overall": 100.0, "labels": {}}
    doc = Doc(nlp.vocab, ["vnbxq"] * 2_400)

    (analyses,) = ner.k_best([doc], k=3)

    log_probs = [analysis.log_probability for analysis in analyses]
    assert len(analyses) == 3 and log_probs == sorted(log_probs, reverse=True)
    assert -10_000 < log_probs[0] < -1_000
    assert not any(analysis.prob for analysis in analyses)


def test_k_best_refuses_a_single_doc(unsure: Path) -> None:
    nlp = load(unsure)
    with pytest.raises(ValueError, match=r"docs: expected several docs, as \[doc\], got a Doc"):
        nlp.get_pipe("ner").k_best(nlp.make_doc(TEXT))


# Decoding


def test_a_higher_threshold_predicts_fewer_entities(unsure: Path) -> None:
    nlp = load(unsure, decoding=THRESHOLD)
    n_entities = []
    for threshold in (0.02, 0.3, 1.0):
        nlp.get_pipe("ner").cfg["decoding"]["threshold"] = threshold
        n_entities.append(len(nlp(TEXT).ents))

    at_2_percent, at_30_percent, at_100_percent = n_entities
    assert at_2_percent > at_30_percent > at_100_percent == 0


def test_a_threshold_of_a_label_is_saved_with_the_pipeline(unsure: Path, tmp_path: Path) -> None:
    """The threshold is replaced if the config has another decoding."""
    nlp = load(unsure, decoding={**THRESHOLD, "threshold": 1.0})
    nlp.get_pipe("ner").cfg["decoding"]["labels"]["LOC"] = 0.02
    expected = ents(nlp(TEXT))
    assert {label for _, _, label in expected} == {"LOC"}

    nlp.to_disk(tmp_path)

    assert ents(spacy.load(tmp_path)(TEXT)) == expected
    assert ents(pickle.loads(pickle.dumps(nlp))(TEXT)) == expected
    # No entity is surer than this.
    assert ents(load(tmp_path, decoding={**THRESHOLD, "threshold": 0.9999})(TEXT)) == []


@pytest.mark.parametrize("settings", [{"spans_ky": "sure"}, "sure", {"spans_key": ""}])
def test_a_confidence_that_was_edited_wrongly_is_refused(unsure: Path, settings: Any) -> None:
    nlp = load(unsure, confidence=CONFIDENCE)
    nlp.get_pipe("ner").cfg["confidence"] = settings
    with pytest.raises(ValueError, match=r"onfidence: .*expected"):
        nlp(TEXT)


def test_a_misspelt_setting_of_the_decoding_is_refused(unsure: Path) -> None:
    nlp = load(unsure, decoding=THRESHOLD)
    nlp.get_pipe("ner").cfg["decoding"]["treshold"] = 0.3
    with pytest.raises(ValueError, match=r"decoding: expected a mapping with .*'threshold'\]"):
        nlp(TEXT)


@pytest.fixture
def tuned(unsure: Path, tmp_path: Path) -> Path:
    """The folder of a pipeline whose cfg has other settings than its config: the threshold 0.02 and
    the key "sure"."""
    nlp = load(unsure, decoding=THRESHOLD, confidence=CONFIDENCE)
    nlp.get_pipe("ner").cfg["decoding"]["threshold"] = 0.02
    nlp.get_pipe("ner").cfg["confidence"]["spans_key"] = "sure"
    nlp.to_disk(tmp_path)
    return tmp_path


def test_another_confidence_of_the_config_leaves_the_tuned_decoding(tuned: Path) -> None:
    ner = load(tuned, confidence=None).get_pipe("ner")
    assert ner.confidence is None
    assert ner.cfg["decoding"]["threshold"] == 0.02


def test_another_threshold_of_the_config_replaces_the_tuned_one(tuned: Path) -> None:
    ner = load(tuned, decoding={**THRESHOLD, "threshold": 0.9}).get_pipe("ner")
    assert ner.cfg["decoding"]["threshold"] == 0.9
    assert ner.confidence.spans_key == "sure"


def test_another_decoding_of_the_config_replaces_the_tuned_one(tuned: Path) -> None:
    viterbi = {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 1.0}
    ner = load(tuned, decoding=viterbi).get_pipe("ner")
    assert ner.cfg["decoding"] == {"bias": 1.0, "labels": {}}


def test_a_node_of_the_tree_is_predicted_where_its_labels_are_equally_likely(
    unsure: Path, tmp_path: Path
) -> None:
    """The confidence of the node is the sum of the confidences of its labels. The node is no label
    of the component."""
    nlp = load(unsure, decoding=MIN_COST, confidence=CONFIDENCE)
    ner = nlp.get_pipe("ner")
    output = ner.model.get_ref("emissions")
    # Each word is an entity, of each label with the same score.
    single_token_tags = [ner.tags.names.index(f"U-{label}") for label in ner.labels]
    output.get_param("W")[single_token_tags] = 0
    output.get_param("b")[single_token_tags] = 50
    nlp.to_disk(tmp_path)

    for pipeline_of_tree in (nlp, spacy.load(tmp_path)):
        doc = pipeline_of_tree("London")
        assert [ent.label_ for ent in doc.ents] == ["name"]
        assert doc.ents[0]._.confidence == pytest.approx(1, abs=1e-3)
        assert pipeline_of_tree.get_pipe("ner").labels == ("LOC", "PERSON", "sports-team")
        assert pipeline_of_tree.get_pipe("ner").inner_nodes == ("name",)
    without_tree = load(unsure, decoding={**MIN_COST, "tree": None})
    assert without_tree.get_pipe("ner").inner_nodes == ()
    assert load(unsure).get_pipe("ner").inner_nodes == ()


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({**THRESHOLD, "labels": {"GPE": 0.2}}, r"decoding: labels: .*got 'GPE'"),
        ({**MIN_COST, "tree": {"place": {"LOC": {}}}}, "MinCostDecoding: tree: .*'PERSON'"),
    ],
    ids=["threshold of no label", "tree without a label"],
)
def test_a_decoding_that_does_not_fit_the_labels_is_refused_before_training(
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
