"""From texts to a pipeline with a guarantee, and the app of `serve`. `make test-lowest` runs this
with the lowest versions that setup.cfg allows."""

import os
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import spacy
from lowest_versions import lowest_versions
from spacy.tokens import Doc, DocBin, Span

from spacy_costner.serve.app import make_app

from ..support.annotation import LABELS, make_session, make_texts
from ..support.commands import run

IN_LOWEST_ENVIRONMENT = "LOWEST_VERSIONS" in os.environ
"""`make test-lowest` sets it."""


def write_corpus(path: Path, texts: Iterable[str]) -> None:
    """Write texts of `make_texts` with their person, the second word, and town, the fourth word."""
    person, town = LABELS
    docs: list[Doc] = []
    for doc in spacy.blank("xx").pipe(texts):
        doc.set_ents([Span(doc, 1, 2, person), Span(doc, 3, 4, town)])
        docs.append(doc)
    DocBin(docs=docs).to_disk(path)


def run_successfully(*arguments: Any) -> None:
    """Run a command, which has to succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.skipif(not IN_LOWEST_ENVIRONMENT, reason="`make test-lowest` installs them")
def test_the_lowest_versions_are_installed() -> None:
    for name, lowest in lowest_versions(["serve"]).items():
        assert f"{version(name)}.".startswith(f"{lowest}."), name


def test_bounds_are_read_from_setup_cfg(tmp_path: Path) -> None:
    path = tmp_path / "setup.cfg"
    path.write_text(
        "[options]\ninstall_requires =\n    a-b>=1.2,<4\n    c\n"
        "[options.extras_require]\nx =\n    d[e]>=0.3\ny =\n    f>=5\n"
    )
    assert lowest_versions(["x"], path) == {"a-b": "1.2", "d": "0.3"}


def test_a_pipeline_is_trained_saved_loaded_and_makes_a_promise(tmp_path: Path) -> None:
    train, other = tmp_path / "train.spacy", tmp_path / "other.spacy"
    output = tmp_path / "training"
    model = output / "model-best"
    text, *texts = make_texts(41)
    write_corpus(train, texts[:20])
    write_corpus(other, texts[20:])

    run_successfully("fit", "--lang", "xx", "--train", train, "--calibrate", "--output", output)
    nlp = spacy.load(model)
    first = [(ent.text, ent.label_, ent._.confidence) for ent in nlp(text).ents]
    assert first and all(prob > 0.5 for *_, prob in first)

    nlp.to_disk(tmp_path / "again")  # its config has all settings, with their defaults
    again = spacy.load(tmp_path / "again")
    assert [(ent.text, ent.label_, ent._.confidence) for ent in again(text).ents] == first

    guaranteed = tmp_path / "guaranteed"
    run_successfully("guarantee", model, other, "--miss", 0.1, "--output", guaranteed)
    doc = spacy.load(guaranteed)(text)
    assert [span.text for span in doc.spans["confidence_guaranteed"]]


def test_the_app_of_serve_answers(tmp_path: Path) -> None:
    client_of = pytest.importorskip("starlette.testclient").TestClient
    with client_of(make_app(make_session(tmp_path)), base_url="http://127.0.0.1:8765") as client:
        first = client.get("/next").json()["text"]
        answer = {"key": first["key"], "version": 0, "spans": []}
        assert client.post("/answer", json=answer).json()["status"]["annotated"] == 1
