"""Every name of our config language is found and builds what it names: losses, costs and
decodings in `project/test_registered.py`."""

import re
from importlib import import_module
from importlib.metadata import distribution
from inspect import signature

import pytest
from thinc.api import Model

from spacy_costner.training.targets import Weights

from ..support.config import SETUP, declared, resolve

KINDS = "architectures augmenters callbacks factories loggers misc readers scorers"
CONFIG_GROUPS = ["thinc_losses", *(f"spacy_{kind}" for kind in KINDS.split())]
"""The groups of the names that a config can use."""


def test_installed_names_are_those_of_setup_cfg() -> None:
    points = distribution("spacy-costner").entry_points
    installed = {(point.group, point.name, point.value) for point in points}
    groups = [*CONFIG_GROUPS, "spacy_cli"]
    expected = {(group, *item) for group in groups for item in declared(group).items()}
    assert installed == expected, "setup.cfg changed since `make install`"


def test_site_describes_every_group() -> None:
    """Its page of the config has all but commands, which have a page of their own."""
    script = SETUP.with_name("scripts") / "docs_site.py"
    lines = script.read_text(encoding="utf8")
    described = set(re.findall(r'^    "((?:spacy|thinc)_\w+)": ', lines, flags=re.MULTILINE))
    installed = {point.group for point in distribution("spacy-costner").entry_points}
    assert described == installed - {"spacy_cli"}


@pytest.mark.parametrize("group", CONFIG_GROUPS)
def test_settings_have_types_that_pydantic_1_can_check(group: str) -> None:
    """spaCy before 3.8.13 checks configs with it. It refuses a setting whose type is None, and then
    no pipeline with it can be loaded."""
    untyped = []
    for name, place in declared(group).items():
        module, function = place.split(":")
        parameters = signature(getattr(import_module(module), function)).parameters.values()
        untyped += [f"{name}: {p.name}" for p in parameters if p.annotation in (None, p.empty)]
    assert untyped == []


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
