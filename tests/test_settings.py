"""Settings that nothing reads are refused, with the nearest that is read."""

from pathlib import Path
from typing import Any

import pytest
from spacy.language import Language
from spacy.util import load_config, registry
from thinc.api import Config

from spacy_costner.analysis.comparison import make_variants
from spacy_costner.settings import check_overrides, check_settings

from .support.commands import run
from .support.experiment import Experiment

ROOT = Path(__file__).parent.parent
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
def test_the_nearest_is_named(path: str, message: str) -> None:
    """What spaCy reads over, or refuses without a word of what is meant."""
    config = load_config(SPARSE, overrides={path: 1}, interpolate=False)
    with pytest.raises(ValueError, match=rf"^x\.cfg: {path}: expected a setting of .*{message}"):
        check_settings(config, "x.cfg")


def test_initialization_of_a_component_that_is_not_there() -> None:
    config = load_config(SPARSE, interpolate=False)
    config["initialize"]["components"] = {"nre": {"labels": ["a"]}}
    with pytest.raises(ValueError, match=r"initialize\.components\.nre: .* mean 'ner'\?"):
        check_settings(config)


def test_a_function_may_take_any_settings() -> None:
    """Or be unknown before the user's code is imported: spaCy says so then."""
    blocks: dict[str, Any] = {
        "any": {"@misc": "tests.any_settings", "zzz": 1, "*": {"more": {"@misc": "unknown.v1"}}},
        "other": {"factory": "tests_any_factory", "zzz": 1},
        "sourced": {"source": "en_core_web_sm", "component": "ner"},
        "two": {"@misc": "unknown.v1", "@layers": "unknown.v1"},
    }
    registry.misc("tests.any_settings", func=lambda **settings: settings)
    check_settings({"components": blocks})


def test_options_that_are_read() -> None:
    """Because they are there, because they are referred to, or because spaCy has them. Others are
    not."""
    for path, message in (
        ("paths.trian", r"\[paths\], got 'trian': did you mean 'train'"),
        ("system.sed", "mean 'seed'"),
        ("components.nre.scheme", r"\[components\], .* mean 'ner'"),
        ("trainig.seed", "expected a setting of the config, .* mean 'training'"),
    ):
        with pytest.raises(ValueError, match=message):
            check_overrides(load_config(SPARSE, interpolate=False), {path: 1})
    text = '[paths]\na = "x"\n\n[corpora]\nb = ${paths.b}\n'
    config = Config().from_str(text, interpolate=False)
    others = ["paths.a", "paths.b", "paths.train", "corpora.d", "training.seed", "system.seed"]
    check_overrides(config, dict.fromkeys(others))
    assert "train" in Language.default_config["paths"]


def test_compare_names_the_file(experiment: Experiment) -> None:
    paths = experiment.loss_paths, experiment.test_path, experiment.output_path
    loss = experiment.loss_paths[1]
    loss.write_text(loss.read_text().replace("dropout", "drop_out"))
    with pytest.raises(ValueError, match=r"^risk: training\.drop_out: .* mean 'dropout'\?"):
        make_variants(experiment.config_path, *paths, seeds=[0])
    text = experiment.config_path.read_text()
    experiment.config_path.write_text(text.replace("max_steps", "max_step"))
    with pytest.raises(ValueError, match=r"base\.cfg: training\.max_step: .* mean 'max_steps'\?"):
        make_variants(experiment.config_path, *paths, seeds=[0])


@pytest.mark.parametrize("command", ["fit", "check", "compare"])
@pytest.mark.parametrize("option", ["training.max_epoch", "paths.trian"])
def test_command_lines_refuse_them(experiment: Experiment, command: str, option: str) -> None:
    given = [experiment.config_path, f"--{option}", "2"]
    output = ["--output", experiment.output_path]
    losses = ["--losses", experiment.loss_paths[0], "--test", experiment.test_path]
    more = {"fit": output, "check": [], "compare": [*output, *losses]}[command]
    result = run(command, *given, *more)
    assert result.exit_code == 1 and f"{option}: expected a setting" in result.output
    assert not experiment.output_path.exists()
