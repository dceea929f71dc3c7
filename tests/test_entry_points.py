"""Every name of our config language is found and builds what it promises: losses, costs and
decodings in `test_registered.py`."""

from importlib.metadata import distribution

import pytest
from thinc.api import Model

from spacy_costner.training.targets import Weights

from .support.config import declared, resolve


def test_installed_names_are_those_of_setup_cfg() -> None:
    points = distribution("spacy-costner").entry_points
    installed = {(point.group, point.name, point.value) for point in points}
    names = "architectures augmenters callbacks cli factories loggers misc readers scorers"
    groups = ["thinc_losses", *(f"spacy_{name}" for name in names.split())]
    expected = {(group, *item) for group in groups for item in declared(group).items()}
    assert installed == expected, "setup.cfg changed since `make install`"


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
