"""Tests that settings which nothing reads are refused, and that the error suggests the nearest
name."""

from pathlib import Path
from typing import Any

import pytest
from spacy.util import load_config, registry
from thinc.api import Config

from spacy_costner.workflows.config.unknown_settings import check_overrides, check_settings
from spacy_costner.workflows.fitting.variants import make_variants

from ...support.commands import run
from ...support.experiment import Experiment

ROOT = Path(__file__).parents[3]
SPARSE = ROOT / "configs" / "sparse.cfg"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("training.max_epoch", r"\[training\], got 'max_epoch': did you mean 'max_epochs'"),
        ("training.batcher.sise", "mean 'size'"),
        ("training.optimizer.learn_rat", "mean 'learn_rate'"),
        ("nlp.batchsize", "mean 'batch_size'"),
        ("initialize.after_int", "mean 'after_init'"),
        ("components.ner.schem", r"\[components\.ner\], got 'schem': did you mean 'scheme'"),
        ("components.ner.model.features.window", "mean 'windows'"),
        ("components.ner.decoding.biass", "mean 'bias'"),
        ("components.ner.loss.zzz", r"loss\], got 'zzz': known: none"),
        ("corpora.train.limits", "mean 'limit'"),
    ],
)
def test_a_setting_that_nothing_reads_is_refused_with_the_nearest_one(
    path: str, message: str
) -> None:
    """spaCy ignores such a setting, or its error doesn't say which one may be meant."""
    config = load_config(SPARSE, overrides={path: 1}, interpolate=False)
    with pytest.raises(ValueError, match=rf"^x\.cfg: {path}: expected a setting of .*{message}"):
        check_settings(config, "x.cfg")


def test_a_setting_of_pretraining_that_nothing_reads_is_refused() -> None:
    config = load_config(SPARSE, interpolate=False)
    config["pretraining"] = {"max_epoch": 1}
    with pytest.raises(ValueError, match=r"^pretraining\.max_epoch: .* mean 'max_epochs'\?"):
        check_settings(config)


def test_settings_to_initialize_a_component_that_is_not_there_are_refused() -> None:
    config = load_config(SPARSE, interpolate=False)
    config["initialize"]["components"] = {"nre": {"labels": ["a"]}}
    with pytest.raises(ValueError, match=r"initialize\.components\.nre: .* mean 'ner'\?"):
        check_settings(config)


def test_settings_of_functions_that_take_any_or_are_unknown_are_not_refused() -> None:
    """An unknown function may be in code that the user imports later. If it isn't, spaCy says
    so."""
    blocks: dict[str, Any] = {
        "any": {"@misc": "tests.any_settings", "zzz": 1, "*": {"more": {"@misc": "unknown.v1"}}},
        "other": {"factory": "tests_any_factory", "zzz": 1},
        "sourced": {"source": "en_core_web_sm", "component": "ner"},
        "two": {"@misc": "unknown.v1", "@layers": "unknown.v1"},
    }
    registry.misc("tests.any_settings", func=lambda **settings: settings)
    check_settings({"components": blocks})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("paths.trian", r"\[paths\], got 'trian': did you mean 'train'"),
        ("system.sed", r"\[system\], got 'sed': did you mean 'seed'"),
        ("components.nre.scheme", r"\[components\], .* mean 'ner'"),
        ("trainig.seed", "expected a setting of the config, .* mean 'training'"),
    ],
)
def test_an_override_of_a_setting_that_nothing_reads_is_refused(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_overrides(load_config(SPARSE, interpolate=False), {path: 1})


@pytest.mark.parametrize(
    "path",
    [
        "paths.a",  # in the config
        "paths.b",  # a setting of the config refers to it
        "paths.train",  # spaCy's default config has it, and those below
        "corpora.d",
        "training.seed",
        "system.seed",
    ],
)
def test_an_override_of_a_setting_that_is_read_is_not_refused(path: str) -> None:
    text = '[paths]\na = "x"\n\n[corpora]\nb = ${paths.b}\n'
    config = Config().from_str(text, interpolate=False)
    check_overrides(config, {path: None})


def test_compare_names_the_loss_whose_file_has_an_unread_setting(experiment: Experiment) -> None:
    _, risk = experiment.loss_paths
    risk.write_text(risk.read_text().replace("dropout", "drop_out"))
    with pytest.raises(ValueError, match=r"^risk: training\.drop_out: .* mean 'dropout'\?"):
        make_variants(*experiment, seeds=[0])


def test_compare_names_the_config_that_has_an_unread_setting(experiment: Experiment) -> None:
    text = experiment.config_path.read_text()
    experiment.config_path.write_text(text.replace("max_steps", "max_step"))
    with pytest.raises(ValueError, match=r"base\.cfg: training\.max_step: .* mean 'max_steps'\?"):
        make_variants(*experiment, seeds=[0])


@pytest.mark.parametrize("command", ["fit", "check", "compare"])
@pytest.mark.parametrize("option", ["training.max_epoch", "paths.trian"])
def test_commands_refuse_overrides_that_nothing_reads_and_write_nothing(
    experiment: Experiment, command: str, option: str
) -> None:
    output = ["--output", experiment.output_path]
    losses = ["--losses", experiment.loss_paths[0], "--test", experiment.test_path]
    options = {"fit": output, "check": [], "compare": [*output, *losses]}

    result = run(command, experiment.config_path, f"--{option}", "2", *options[command])

    assert result.exit_code == 1 and f"{option}: expected a setting" in result.output
    assert not experiment.output_path.exists()
