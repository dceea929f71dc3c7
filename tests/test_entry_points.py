"""Every name of our config language is found and builds what it promises: losses, costs and
decodings in `test_registered.py`."""

import re
from importlib.metadata import distribution

import pytest
from thinc.api import Model

from spacy_costner.training.targets import Weights

from .support.config import SETUP, declared, resolve


def test_installed_names_are_those_of_setup_cfg() -> None:
    points = distribution("spacy-costner").entry_points
    installed = {(point.group, point.name, point.value) for point in points}
    names = "architectures augmenters callbacks cli factories loggers misc readers scorers"
    groups = ["thinc_losses", *(f"spacy_{name}" for name in names.split())]
    expected = {(group, *item) for group in groups for item in declared(group).items()}
    assert installed == expected, "setup.cfg changed since `make install`"


def test_site_describes_every_group() -> None:
    """Its page of the config has all but commands, which have a page of their own."""
    script = SETUP.with_name("scripts") / "docs_site.py"
    lines = script.read_text(encoding="utf8")
    described = set(re.findall(r'^    "((?:spacy|thinc)_\w+)": ', lines, flags=re.MULTILINE))
    installed = {point.group for point in distribution("spacy-costner").entry_points}
    assert described == installed - {"spacy_cli"}


@pytest.mark.parametrize("name", declared("spacy_scorers"))
def test_scorers_build_from_config(name: str) -> None:
    assert resolve("scorers", name)([])["ents_f"] is None


def test_weights_build_from_config() -> None:
    weights = resolve("misc", "spacy_costner.Weights.v1", boundary=2.0)
    assert vars(weights) == vars(Weights(boundary=2.0))


@pytest.mark.parametrize("name", declared("spacy_architectures"))
def test_architectures_build_from_config(name: str) -> None:
    model = resolve("architectures", name)
    assert isinstance(model, Model)
    assert model.attrs["resize_output"]
