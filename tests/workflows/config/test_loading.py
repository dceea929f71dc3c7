"""Paths that are no pipeline or no config are refused with what was expected there."""

import shutil
from pathlib import Path

import pytest

from spacy_costner.workflows.config.loading import find_config_file, load_pipeline

from ...support.commands import run


@pytest.fixture
def training(unsure: Path, tmp_path: Path) -> Path:
    """The output folder of a training, with a pipeline in it."""
    shutil.copytree(unsure, tmp_path / "training" / "model-best")
    return tmp_path / "training"


def test_the_output_folder_of_a_training_names_its_pipeline(training: Path) -> None:
    expected = f"{training}: expected a trained pipeline, a package or a folder, got a folder "
    hint = f"without meta.json: did you mean {training / 'model-best'}?"
    with pytest.raises(ValueError) as error:
        load_pipeline(training)
    assert str(error.value) == expected + hint

    texts = training / "texts.jsonl"
    texts.write_text('{"text": "Kim left.", "spans": [{"start": 0, "end": 3, "label": "person"}]}')
    config = training / "model-best" / "config.cfg"
    for command in (
        ["calibrate", training, texts, "-o", training / "a"],
        ["annotate", training, texts, "-o", training / "a"],
        ["distill", training, config, texts, "-o", training / "a", "--paths.dev", texts],
    ):
        refused = run(*command)
        assert refused.exit_code == 1
        assert expected + hint in refused.output, refused.output
    assert not (training / "a" / "manifest.jsonl").exists()


def test_another_folder_and_a_file_are_refused_without_a_question(training: Path) -> None:
    (training / "model-best" / "meta.json").unlink()
    with pytest.raises(ValueError, match=r"got a folder without meta\.json$"):
        load_pipeline(training)
    with pytest.raises(ValueError, match=r"got a folder without one$"):
        find_config_file(training)
    with pytest.raises(ValueError, match=r"a package or a folder, got a file$"):
        load_pipeline(training / "model-best" / "config.cfg")


def test_the_config_of_a_pipeline_is_in_its_folder(training: Path) -> None:
    config = training / "model-best" / "config.cfg"
    assert find_config_file(training / "model-best") == find_config_file(config) == config
