"""Training that starts from a trained pipeline."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language

from .support.pipelines import (
    SMALL,
    SOFTMAX_MARGIN,
    TEXTS,
    ents,
    examples,
    listening,
    pipeline,
    train,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nlp = pipeline()
    train(nlp)
    path = tmp_path_factory.mktemp("trained") / "model"
    nlp.to_disk(path)
    return path


def start(nlp: Language, path: Path, **settings: Any) -> Language:
    """Initialize a pipeline as its config says."""
    block: dict[str, Any] = {"@callbacks": "spacy_costner.start_from.v1", "path": str(path)}
    nlp.config["initialize"]["after_init"] = {**block, **settings}
    nlp.initialize(lambda: examples(nlp))
    return nlp


@pytest.mark.parametrize("settings", [{}, {"components": ["ner"]}])
def test_it_answers_as_the_trained_one(trained: Path, settings: dict[str, Any]) -> None:
    nlp, expected = start(pipeline(loss=SOFTMAX_MARGIN), trained, **settings), spacy.load(trained)
    for text in TEXTS:
        assert ents(nlp(text)) == ents(expected(text))
    assert nlp.config["components"]["ner"]["loss"] == SOFTMAX_MARGIN
    assert nlp.get_pipe("ner").cfg["progress"]["steps"] == 0


def test_listeners_start_with_what_they_listen_to(tmp_path: Path) -> None:
    expected = listening()
    train(expected, steps=20)
    expected.to_disk(tmp_path / "model")
    nlp = start(listening(), tmp_path / "model")
    for text in TEXTS:
        assert ents(nlp(text)) == ents(expected(text))


def test_only_what_both_have_starts_there(trained: Path) -> None:
    nlp = pipeline()
    nlp.add_pipe("sentencizer", first=True)
    nlp.add_pipe("tok2vec", last=True)
    assert ents(start(nlp, trained)(TEXTS[0])) == ents(spacy.load(trained)(TEXTS[0]))


def test_what_does_not_fit_is_named(trained: Path) -> None:
    with pytest.raises(ValueError, match=r"start_from: .*: tagger: expected a component with"):
        start(pipeline(), trained, components=["tagger"])
    nlp = pipeline()
    nlp.get_pipe("ner").add_label("other")
    with pytest.raises(ValueError, match=r"start_from: .*: ner: expected labels .*'other'"):
        start(nlp, trained)
    tok2vec = {**SMALL["model"]["tok2vec"], "width": 8}
    for settings, message in (
        ({"scheme": "IOB2"}, "expected scheme 'IOB2', got 'BILUO'"),
        ({"outside": "before"}, "expected outside 'before', got 'single'"),
        ({"model": {**SMALL["model"], "tok2vec": tok2vec}}, "expected a model as in the config"),
    ):
        with pytest.raises(ValueError, match=f"start_from: .*: ner: {message}"):
            start(pipeline(**settings), trained)
