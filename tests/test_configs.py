"""Every config that we ship loads, is complete where it speaks of us, and trains."""

from pathlib import Path
from typing import Dict

import pytest
import spacy
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

from spacy_costner.cli.compare import put_onto

from .support.config import declared
from .support.experiment import make_corpus
from .support.slow import slow_but
from .support.transformers import register_transformers

register_transformers()

CONFIGS = Path(__file__).parent.parent / "configs"
COMPLETE = sorted(CONFIGS.glob("*.cfg"))
SHORT = sorted(CONFIGS.glob("*/*.cfg"))


def name(path: Path) -> str:
    return str(path.relative_to(CONFIGS).with_suffix(""))


STEPS = {"training": {"max_steps": 7, "eval_frequency": 7, "gpu_allocator": None}}
"""Enough to come to the second loss of a schedule."""


GENIA = "configs/papers/hierarchical_cost.cfg"
TREE = {"components": {"ner": {"loss": {"cost": {"tree": {"place": {"city": {}, "country": {}}}}}}}}
"""In the place of that of GENIA."""


@pytest.fixture
def paths(tmp_path: Path) -> Dict[str, str]:
    """A tiny corpus on disk, as overrides of a config."""
    make_corpus(tmp_path / "corpus.spacy")
    return dict.fromkeys(("paths.train", "paths.dev"), str(tmp_path / "corpus.spacy"))


def fill(config: Config) -> Config:
    """What `spacy init fill-config` makes of a config."""
    return load_model_from_config(config, auto_fill=True).config


@pytest.mark.parametrize("path", COMPLETE, ids=name)
def test_components_are_complete(path: Path) -> None:
    """Those of this package and Tok2Vecs."""
    config = load_config(path)
    filled, components = fill(config)["components"], config["components"]
    for others in (filled, components):
        others.pop("transformer", None)
    assert filled == components


@pytest.mark.parametrize("path", SHORT, ids=name)
def test_short_configs_are_base_config_but_for_what_they_say(path: Path) -> None:
    base, short = load_config(CONFIGS / "base.cfg"), load_config(path)
    assert fill(short) == fill(put_onto(base, short))
    names = ["components", "corpora", "initialize", "nlp", "paths", "system", "training"]
    assert sorted(short) == names


def test_every_loss_has_a_short_config() -> None:
    shown = "".join(path.read_text(encoding="utf8") for path in SHORT)
    assert [loss for loss in declared("thinc_losses") if loss not in shown] == []


def test_base_config_is_complete() -> None:
    config = load_config(CONFIGS / "base.cfg")
    assert fill(config) == config


def test_baseline_differs_in_the_component_only() -> None:
    ours, baseline = (fill(load_config(CONFIGS / name)) for name in ("cnn.cfg", "baseline_ner.cfg"))
    assert ours["components"].pop("ner") != baseline["components"].pop("ner")
    assert ours == baseline


@pytest.mark.parametrize("path", [*COMPLETE, *slow_but(SHORT)], ids=name)
def test_trains(path: Path, paths: Dict[str, str], tmp_path: Path) -> None:
    config = put_onto(load_config(path, overrides=paths), STEPS)
    if path.match(GENIA):
        config = put_onto(config, TREE)
    train(init_nlp(config), tmp_path)
    trained = spacy.load(tmp_path / "model-last")
    assert sorted(trained.pipe_labels["ner"]) == ["city", "country"]
