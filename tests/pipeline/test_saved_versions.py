"""Pipelines of the previous version are loaded, and predict the same. An error about a pipeline of
another version names both versions."""

import json
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config

from spacy_costner import __version__
from spacy_costner.pipeline import serialization
from spacy_costner.pipeline.serialization import sign

from ..support.pipelines import pipeline, train

SAVED = json.loads(Path(__file__).with_name("saved_by_0_3_0.json").read_text("utf8"))
"""Two pipelines as 0.3.0 saved them, and what it predicted after it had loaded them: "linear" has
two passes, label memory, clusters, a temperature, a guarantee and the scores of calibration docs;
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


@pytest.mark.parametrize("kind", SAVED)
def test_training_of_a_pipeline_of_0_3_0_adds_labels_with_a_warning(kind: str) -> None:
    """It isn't known whether the user chose its labels."""
    nlp = load_saved(kind)
    nlp.get_pipe("ner").calibration.set_promise(None)  # it would be dropped with a warning, too
    labels = nlp.get_pipe("ner").labels
    gold = {"entities": [(0, 4, "SHOP")]}
    eg = Example.from_dict(nlp.make_doc("Acme sells shoes"), gold)

    with pytest.warns(
        UserWarning, match=r"'SHOP' is added, .*\[initialize.components.ner\] labels"
    ):
        nlp.update([eg], sgd=nlp.resume_training())

    assert nlp.get_pipe("ner").labels == (*labels, "SHOP")


# Which version saved a pipeline


@pytest.fixture(scope="module")
def saved() -> bytes:
    """A trained component, as `to_bytes` saves it."""
    nlp = pipeline()
    train(nlp, steps=1)
    return nlp.get_pipe("ner").to_bytes(exclude=["vocab"])


def load_changed(saved: bytes, without: Iterable[str] = (), **values: Any) -> None:
    """Load a component as if it had been saved with other values in its cfg, or without some of its
    keys. Its digest is right."""
    parts = srsly.msgpack_loads(saved)
    cfg = {**srsly.json_loads(parts["cfg"]), **values}
    for name in ("digest", *without):
        del cfg[name]
    parts["cfg"] = srsly.json_dumps(sign(cfg, parts["model"]))
    pipeline().get_pipe("ner").from_bytes(srsly.msgpack_dumps(parts))


def test_the_version_is_saved_with_the_component(saved: bytes) -> None:
    cfg = srsly.json_loads(srsly.msgpack_loads(saved)["cfg"])
    assert cfg["version"] == __version__
    assert cfg["format"] == serialization.FORMAT
    load_changed(saved)


@pytest.mark.parametrize("version", ["0.5.1", "0.3.0"])
def test_another_version_of_the_same_format_is_read(version: str, saved: bytes) -> None:
    load_changed(saved, version=version)


def test_a_later_format_is_refused_by_the_name_of_its_version(saved: bytes) -> None:
    later = serialization.FORMAT + 1
    message = (
        rf"ner: cfg: .*format: expected at most {serialization.FORMAT}, got {later} \(saved by "
        rf"spacy-costner 0.5.1, this is {__version__}: install 0.5.1 to read it, or train again\)$"
    )
    with pytest.raises(ValueError, match=message):
        load_changed(saved, version="0.5.1", format=later)


def test_without_a_version_it_was_0_3_0_or_before(saved: bytes) -> None:
    """Before 0.3.0, a progress had other keys."""
    message = (
        r"progress: expected a mapping with .*\(saved by spacy-costner 0.3.0 or before, this is "
        rf"{__version__}: train again\)$"
    )
    with pytest.raises(ValueError, match=message):
        load_changed(saved, ["version", "format"], progress={"steps": 8, "epochs": 1.5})


def test_an_error_about_a_model_names_the_versions_too(saved: bytes) -> None:
    parts = srsly.msgpack_loads(saved)
    parts["model"] += b" "
    parts["cfg"] = parts["cfg"].replace(__version__, "0.5.1")
    with pytest.raises(ValueError, match=r"ner: model: expected .* by spacy-costner 0.5.1, this"):
        pipeline().get_pipe("ner").from_bytes(srsly.msgpack_dumps(parts))


def test_an_error_about_a_pipeline_of_this_version_names_none(saved: bytes) -> None:
    with pytest.raises(ValueError, match="progress: expected a mapping") as error:
        load_changed(saved, progress={"steps": 8, "epochs": 1.5})
    assert "saved by" not in str(error.value)
