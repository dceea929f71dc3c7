"""Every name of our config language is found and builds what it promises."""

from configparser import ConfigParser
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
from spacy.util import registry
from thinc.api import Model

from spacy_costner.losses import LossSchedule
from spacy_costner.pipeline.targets import Weights
from spacy_costner.tags import Tags
from spacy_costner.types import Loss

SETUP = Path(__file__).parent.parent / "setup.cfg"
FEATURES = {"@misc": "spacy_costner.Features.v1"}
HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}
TOK2VEC = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    "pretrained_vectors": None,
    "width": 8,
    "depth": 1,
    "embed_size": 20,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": False,
}
REQUIRED: Dict[str, Dict[str, Any]] = {
    "spacy_costner.LinearChainCRF.v1": {"tok2vec": TOK2VEC},
    "spacy_costner.SparseCRF.v1": {"features": FEATURES},
    "spacy_costner.HybridCRF.v1": {"features": FEATURES, "tok2vec": TOK2VEC},
    "spacy_costner.Mixed.v1": {"k": 2.0},
    "spacy_costner.SoftmaxMargin.v1": {"cost": HAMMING},
    "spacy_costner.MaxMargin.v1": {"cost": HAMMING},
    "spacy_costner.Risk.v1": {"cost": HAMMING},
    "spacy_costner.JensenRiskBound.v1": {"cost": HAMMING},
    "spacy_costner.MIRA.v1": {"cost": HAMMING},
    "spacy_costner.Schedule.v1": {
        "steps": [10],
        "*": {
            "first": {"@losses": "spacy_costner.Sequential.v1"},
            "then": {"@losses": "spacy_costner.Pointwise.v1"},
        },
    },
    "spacy_costner.HierarchicalCost.v1": {"tree": {"place": {"city": {}}, "sports-team": {}}},
    "spacy_costner.MatrixCost.v1": {
        "matrix": {
            "city": {"sports-team": 2.0, "O": 1.0},
            "sports-team": {"city": 2.0, "O": 1.0},
            "O": {"city": 0.5, "sports-team": 0.5},
        }
    },
    "spacy_costner.SumCost.v1": {"costs": {"hamming": HAMMING}},
    "spacy_costner.cost_scorer.v1": {"cost": HAMMING},
}


def declared(group: str) -> Dict[str, str]:
    parser = ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(SETUP, encoding="utf8")
    lines = parser["options.entry_points"].get(group, "").strip().splitlines()
    return dict(line.split(" = ") for line in lines)


def resolve(group: str, name: str, **settings: Any) -> Any:
    block = {f"@{group}": name, **REQUIRED.get(name, {}), **settings}
    return registry.resolve({"block": block})["block"]


def test_installed_names_are_those_of_setup_cfg() -> None:
    installed = {
        (point.group, point.name, point.value)
        for point in distribution("spacy-costner").entry_points
    }
    groups = (
        "spacy_callbacks",
        "spacy_cli",
        "spacy_factories",
        "spacy_architectures",
        "thinc_losses",
        "spacy_misc",
        "spacy_scorers",
    )
    expected = {(group, *item) for group in groups for item in declared(group).items()}
    assert installed == expected, "setup.cfg changed since `make install`"


@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_losses_build_from_config(name: str) -> None:
    assert isinstance(resolve("losses", name), (Loss, LossSchedule))


@pytest.mark.parametrize(
    "name", [name for name in declared("spacy_misc") if name.endswith("Cost.v1")]
)
@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
def test_costs_make_cost_tables(name: str, scheme: str) -> None:
    tags = Tags(["city", "sports-team"], scheme)
    table = resolve("misc", name)(tags)
    assert table.shape == (len(tags), len(tags))
    assert (table >= 0).all() and numpy.isfinite(table).all() and (table.diagonal() == 0).all()
    assert table.any()


@pytest.mark.parametrize("name", declared("spacy_scorers"))
def test_scorers_build_from_config(name: str) -> None:
    scorer = resolve("scorers", name)
    assert scorer([])["ents_f"] is None


def test_weights_build_from_config() -> None:
    assert resolve("misc", "spacy_costner.Weights.v1", boundary=2.0) == Weights(boundary=2.0)


@pytest.mark.parametrize("name", declared("spacy_architectures"))
def test_architectures_build_from_config(name: str) -> None:
    model = resolve("architectures", name)
    assert isinstance(model, Model)
    assert model.attrs["resize_output"]


@pytest.mark.parametrize("multiplier", [-1.0, float("nan"), float("inf")])
def test_a_bad_multiplier_is_named(multiplier: float) -> None:
    with pytest.raises(ValueError, match=r"SoftmaxMargin.*multiplier.*at least 0"):
        resolve("losses", "spacy_costner.SoftmaxMargin.v1", multiplier=multiplier)
