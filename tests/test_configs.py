"""Every config that we ship loads, is complete where it speaks of us, and trains."""

from pathlib import Path
from typing import Dict

import pytest
import spacy
from spacy.tokens import Doc, DocBin
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

CONFIGS = Path(__file__).parent.parent / "configs"
CORPUS = [
    ("Rain in Paris , France .", ["O", "O", "B-city", "O", "B-country", "O"]),
    ("Republic of Georgia", ["B-country", "I-country", "I-country"]),
    ("Nothing happened .", ["O", "O", "O"]),
    ("Paris", ["B-city"]),
]


@pytest.fixture(params=sorted(CONFIGS.glob("*.cfg")), ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def paths(tmp_path: Path) -> Dict[str, str]:
    """A tiny corpus on disk, as overrides of a config."""
    vocab = spacy.blank("en").vocab
    docs = [Doc(vocab, words=text.split(), ents=tags) for text, tags in CORPUS]
    DocBin(docs=docs).to_disk(tmp_path / "corpus.spacy")
    return dict.fromkeys(("paths.train", "paths.dev"), str(tmp_path / "corpus.spacy"))


def fill(config: Config) -> Config:
    """What `spacy init fill-config` makes of a config."""
    return load_model_from_config(config, auto_fill=True).config


def test_components_are_complete(path: Path) -> None:
    config = load_config(path)
    assert fill(config)["components"] == config["components"]


def test_base_config_is_complete() -> None:
    config = load_config(CONFIGS / "base.cfg")
    assert fill(config) == config


def test_baseline_differs_in_the_component_only() -> None:
    ours, baseline = (fill(load_config(CONFIGS / name)) for name in ("cnn.cfg", "baseline_ner.cfg"))
    assert ours["components"].pop("ner") != baseline["components"].pop("ner")
    assert ours == baseline


def test_trains_two_steps(path: Path, paths: Dict[str, str], tmp_path: Path) -> None:
    steps = {"training.max_steps": 2, "training.eval_frequency": 1}
    nlp = init_nlp(load_config(path, overrides={**paths, **steps}))
    train(nlp, tmp_path)
    trained = spacy.load(tmp_path / "model-last")
    assert sorted(trained.pipe_labels["ner"]) == ["city", "country"]
