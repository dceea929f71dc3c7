"""Every config that we ship loads, is complete where it speaks of us, trains, and is installed."""

import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
import spacy
from spacy.lang.en import English
from spacy.lang.es import Spanish
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config, load_model_from_config, registry
from thinc.api import Config

from spacy_costner.sparse import AdaGrad
from spacy_costner.workflows.config.unknown_settings import check_settings
from spacy_costner.workflows.fitting.variants import change_config

from ..support.experiment import make_corpus
from ..support.slow import slow_but
from ..support.tokenizers import without_special_cases
from ..support.transformers import register_transformers

register_transformers()

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
COMPLETE = sorted(CONFIGS.glob("*.cfg"))
PAPERS = sorted(CONFIGS.glob("papers/*.cfg"))
TREE = {"components": {"ner": {"loss": {"cost": {"tree": {"place": {"city": {}, "country": {}}}}}}}}
"""In the place of the tree of GENIA."""


@pytest.fixture(autouse=True)
def languages_without_special_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The languages of the configs. No test here is about tokens."""
    for language in (English, Spanish):
        monkeypatch.setattr(language, "Defaults", without_special_cases(language))


def name(path: Path) -> str:
    """The path of a config within configs, without its suffix, as the id of a test."""
    return str(path.relative_to(CONFIGS).with_suffix(""))


def fill(config: Config) -> Config:
    """What `spacy init fill-config` makes of a config, without the setting that is only there to
    read pipelines of 0.3.0."""
    filled = load_model_from_config(config, auto_fill=True).config
    for component in filled["components"].values():
        confidence = component.get("confidence")
        if confidence is not None:
            assert confidence.pop("second_choice") is None
    return filled


@pytest.mark.parametrize("path", COMPLETE, ids=name)
def test_components_of_a_config_have_every_setting(path: Path) -> None:
    """`fill-config` would add none; but for a transformer, which is of another package."""
    config = load_config(path)
    components = config["components"]
    filled_components = fill(config)["components"]
    components.pop("transformer", None)
    filled_components.pop("transformer", None)
    assert filled_components == components


@pytest.mark.parametrize("path", PAPERS, ids=name)
def test_a_config_of_a_paper_is_base_cfg_but_for_the_settings_it_has(path: Path) -> None:
    """base.cfg has every setting. The config of a paper has these sections and no others."""
    base = load_config(CONFIGS / "base.cfg")
    assert fill(base) == base
    short = load_config(path)
    assert fill(short) == fill(change_config(base, short))
    assert " ".join(sorted(short)) == "components corpora initialize nlp paths system training"


def test_the_baseline_differs_from_cnn_cfg_in_its_ner_alone() -> None:
    cnn = fill(load_config(CONFIGS / "cnn.cfg"))
    baseline = fill(load_config(CONFIGS / "baseline_ner.cfg"))
    assert cnn["components"].pop("ner") != baseline["components"].pop("ner")
    assert cnn == baseline


def test_sparse_document_cfg_differs_from_sparse_cfg_in_the_feature_document_alone() -> None:
    sparse = load_config(CONFIGS / "sparse.cfg")
    features = sparse["components"]["ner"]["model"]["features"]
    assert features["document"] is None
    features["document"] = {"LOWER": 1}
    assert sparse == load_config(CONFIGS / "sparse_document.cfg")


@pytest.mark.parametrize("config", ["sparse", "sparse_document", "hybrid"])
def test_a_config_has_the_default_settings_of_adagrad(config: str) -> None:
    model = load_config(CONFIGS / f"{config}.cfg")["components"]["ner"]["model"]
    default = signature(registry.architectures.get(model["@architectures"])).parameters
    names = [*AdaGrad._fields, "dropout", "average_power", "first_pass_epochs", "keep_all"]
    assert {name: default[name].default for name in names} == {name: model[name] for name in names}


@pytest.mark.parametrize("path", [*COMPLETE, *slow_but(PAPERS)], ids=name)
def test_a_config_trains_the_labels_of_a_corpus(path: Path, tmp_path: Path) -> None:
    make_corpus(tmp_path / "corpus.spacy")
    paths = dict.fromkeys(("paths.train", "paths.dev"), str(tmp_path / "corpus.spacy"))
    check_settings(load_config(path, interpolate=False))
    # Enough steps to come to the second loss of a schedule.
    steps = {"max_steps": 7, "eval_frequency": 7, "gpu_allocator": None}
    config = change_config(load_config(path, overrides=paths), {"training": steps})
    if path.stem == "hierarchical_cost":
        config = change_config(config, TREE)
    train(init_nlp(config), tmp_path)
    trained = spacy.load(tmp_path / "model-last")
    assert sorted(trained.pipe_labels["ner"]) == ["city", "country"]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="outside of the clone")
def test_configs_and_templates_are_installed(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    package = ROOT / "spacy_costner"
    folders = ["pages/templates", "workflows/config/templates"]
    for source, target in [(CONFIGS, "configs"), *((package / name, name) for name in folders)]:
        installed = tmp_path / "spacy_costner" / target
        expected = {path.relative_to(source) for path in source.rglob("*.*")}
        assert {path.relative_to(installed) for path in installed.rglob("*.*")} == expected
