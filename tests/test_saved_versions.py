"""Pipelines of the version before are loaded, and predict the same."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import load_model_from_config
from thinc.api import Config

SAVED = json.loads(Path(__file__).with_name("saved_by_0_3_0.json").read_text("utf8"))
"""Two pipelines as 0.3.0 saved them, and what it predicted after it had loaded them: "linear" has
two passes, label memory, clusters, a temperature, a promise and the scores of calibration docs;
"cnn" has a Tok2Vec. Both have the complete block of the confidence in their config."""


def load_saved(kind: str) -> Language:
    """One of the two pipelines."""
    nlp = load_model_from_config(Config().from_str(SAVED[kind]["config"]))
    nlp.get_pipe("ner").from_bytes(b64decode(SAVED[kind]["component"]))
    return nlp


def spans_of(doc: Doc) -> dict[str, list[Any]]:
    """The spans of each group of a doc, and their probabilities."""
    spans: dict[str, list[Any]] = {}
    for key, group in doc.spans.items():
        places = [(span.start, span.end, span.label_) for span in group]
        spans[key] = [places, group.attrs["scores"]]
    return spans


@pytest.mark.parametrize("kind", SAVED)
def test_pipelines_of_0_3_0_predict_the_same(kind: str) -> None:
    nlp = load_saved(kind)
    for text, expected in zip(SAVED[kind]["texts"], SAVED[kind]["expected"]):
        doc = nlp(text)
        assert doc.ents and doc.spans.keys() == expected.keys()
        for key, (places, probs) in spans_of(doc).items():
            assert places == [tuple(place) for *place, _ in expected[key]]
            assert probs == pytest.approx([prob for *_, prob in expected[key]], abs=1e-6)


def test_what_calibration_docs_said_to_0_3_0_is_kept() -> None:
    ner = load_saved("linear").get_pipe("ner")
    assert ner.guarantee.miss == 0.2 and ner.guarantee.docs == 79  # and one without entities
    assert ner.calibration_scores.source == "calibration docs"
    assert ner.cfg["temperature"]["overall"] != 1
    assert ner.reading is not None
