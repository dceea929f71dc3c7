"""Training that starts from a trained pipeline."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language

from ..support.pipelines import (
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
    """A saved pipeline that has learned TRAIN."""
    nlp = pipeline()
    train(nlp)
    path = tmp_path_factory.mktemp("trained") / "model"
    nlp.to_disk(path)
    return path


def start_from(path: Path, nlp: Language, **settings: Any) -> Language:
    """Initialize a pipeline whose config says that it starts from a trained one."""
    block: dict[str, Any] = {"@callbacks": "spacy_costner.start_from.v1", "path": str(path)}
    nlp.config["initialize"]["after_init"] = {**block, **settings}
    nlp.initialize(lambda: examples(nlp))
    return nlp


@pytest.mark.parametrize("settings", [{}, {"components": ["ner"]}])
def test_a_pipeline_starts_with_the_predictions_of_the_trained_one(
    trained: Path, settings: dict[str, Any]
) -> None:
    """It has a loss of its own, and begins at step 0."""
    nlp = start_from(trained, pipeline(loss=SOFTMAX_MARGIN), **settings)

    predicted = [ents(nlp(text)) for text in TEXTS]
    expected = spacy.load(trained)
    assert predicted == [ents(expected(text)) for text in TEXTS]
    assert any(predicted)
    assert nlp.config["components"]["ner"]["loss"] == SOFTMAX_MARGIN
    assert nlp.get_pipe("ner").cfg["progress"]["steps"] == 0


def test_a_listener_starts_with_the_tok2vec_that_it_listens_to(tmp_path: Path) -> None:
    expected = listening()
    train(expected, steps=20)
    expected.to_disk(tmp_path / "model")

    nlp = start_from(tmp_path / "model", listening())

    predicted = [ents(nlp(text)) for text in TEXTS]
    assert predicted == [ents(expected(text)) for text in TEXTS]
    assert any(predicted)


def test_components_that_the_trained_pipeline_lacks_start_anew(trained: Path) -> None:
    """This holds if no components are named. The component that it has starts from it."""
    nlp = pipeline()
    nlp.add_pipe("sentencizer", first=True)
    nlp.add_pipe("tok2vec", last=True)

    start_from(trained, nlp)

    predicted = ents(nlp(TEXTS[0]))
    assert predicted == ents(spacy.load(trained)(TEXTS[0])) != []


def test_a_named_component_that_is_not_there_is_refused(trained: Path) -> None:
    with pytest.raises(ValueError, match=r"start_from: .*: tagger: expected a component with"):
        start_from(trained, pipeline(), components=["tagger"])


def test_a_pipeline_with_other_labels_is_refused(trained: Path) -> None:
    nlp = pipeline()
    nlp.get_pipe("ner").add_label("other")
    with pytest.raises(ValueError, match=r"start_from: .*: ner: expected labels .*'other'"):
        start_from(trained, nlp)


OTHER_WIDTH = {**SMALL["model"], "tok2vec": {**SMALL["model"]["tok2vec"], "width": 8}}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"scheme": "IOB2"}, "expected scheme 'IOB2', got 'BILUO'"),
        ({"outside": "before"}, "expected outside 'before', got 'single'"),
        ({"model": OTHER_WIDTH}, "expected the model that the config describes"),
    ],
    ids=["scheme", "outside", "model"],
)
def test_a_pipeline_with_other_settings_is_refused(
    settings: dict[str, Any], message: str, trained: Path
) -> None:
    with pytest.raises(ValueError, match=f"start_from: .*: ner: {message}"):
        start_from(trained, pipeline(**settings))
