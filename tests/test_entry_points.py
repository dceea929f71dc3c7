"""Every name of our config language is found and builds what it promises."""

from importlib.metadata import distribution

import numpy
import pytest
from thinc.api import Model

from spacy_costner.losses import LossSchedule
from spacy_costner.tags import Tags
from spacy_costner.training.targets import Weights
from spacy_costner.types import Loss

from .support.config import declared, resolve


def test_installed_names_are_those_of_setup_cfg() -> None:
    points = distribution("spacy-costner").entry_points
    installed = {(point.group, point.name, point.value) for point in points}
    names = "architectures augmenters callbacks cli factories loggers misc readers scorers"
    groups = ["thinc_losses", *(f"spacy_{name}" for name in names.split())]
    expected = {(group, *item) for group in groups for item in declared(group).items()}
    assert installed == expected, "setup.cfg changed since `make install`"


@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_losses_build_from_config(name: str) -> None:
    assert isinstance(resolve("losses", name), (Loss, LossSchedule))


@pytest.mark.parametrize("name", [x for x in declared("spacy_misc") if x.endswith("Cost.v1")])
@pytest.mark.parametrize("labels", [[], ["city"], ["city", "sports-team"]])
def test_costs_make_cost_tables(name: str, labels: list[str]) -> None:
    for scheme in ("BILUO", "IOB2"):
        tags = Tags(labels, scheme)
        table = resolve("misc", name)(tags)
        assert table.shape == (len(tags), len(tags))
        assert (table >= 0).all() and numpy.isfinite(table).all() and (table.diagonal() == 0).all()
        assert (table[0, 1:] > 0).all() and (table[1:, 0] > 0).all()


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
