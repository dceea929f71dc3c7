"""What a config may say of a loss: bad parameters are named, schedules are kept to."""

import math
from fractions import Fraction
from inspect import signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spacy.util import registry
from thinc.api import Config

from spacy_costner.analysis.initial_config import build_loss
from spacy_costner.costs.tables import hamming_cost
from spacy_costner.losses.fscore import make_mce_f
from spacy_costner.losses.likelihood import make_mixed, make_pointwise, make_sequential
from spacy_costner.losses.margin import make_softmax_margin
from spacy_costner.losses.mce import make_mce
from spacy_costner.losses.perceptron import make_perceptron
from spacy_costner.losses.schedule import make_schedule
from spacy_costner.losses.zscore import make_zscore
from spacy_costner.types import Progress

from .support.config import REQUIRED, declared, resolve

COST = {"cost": hamming_cost}
LIKELIHOODS = "Sequential Pointwise Mixed SoftmaxMargin Risk JensenRiskBound MCE MCEF"
ALL = [*LIKELIHOODS.split(), "MaxMargin", "Perceptron", "MIRA", "ZScore"]
AT_LEAST_0, ABOVE_0 = (-0.1, math.inf), (0.0, -0.1, math.inf)
BAD: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("Mixed", "lam", (-0.1, 1.1, math.inf, math.nan, None), {"k": None}),
    ("Mixed", "lam", (0.5,), {}),
    ("Mixed", "k", AT_LEAST_0, {}),
    ("Mixed", "multiplier", AT_LEAST_0, COST),
    ("SoftmaxMargin", "multiplier", AT_LEAST_0, COST),
    ("MaxMargin", "multiplier", AT_LEAST_0, COST),
    ("JensenRiskBound", "multiplier", AT_LEAST_0, COST),
    ("MIRA", "multiplier", AT_LEAST_0, COST),
    ("MIRA", "aggressiveness", ABOVE_0, COST),
    ("Perceptron", "alpha", (0.0, *AT_LEAST_0), COST),
    ("Perceptron", "alpha", AT_LEAST_0, {}),
    ("MCE", "smoothing", ("step", ""), {}),
    ("MCE", "slope", ABOVE_0, {}),
    ("MCE", "offset", (math.inf,), {}),
    ("MCE", "psi", (0.0, -1.0), {}),
    ("MCEF", "gamma", ABOVE_0, {}),
    ("MCEF", "psi", (0.0, 2.0), {}),
    ("MCEF", "slope", (2.0, *ABOVE_0), {}),
    ("MCEF", "slope", ABOVE_0, {"psi": math.inf}),
    ("MCEF", "offset", (0.5, math.inf), {}),
    ("MCEF", "offset", (math.inf,), {"psi": math.inf}),
    ("MCEF", "decay", (-0.1, 1.1, math.inf), {}),
    ("ZScore", "multiplier", ABOVE_0, COST),
]
EVERY_NUMBER = [
    (name.split(".")[1], field, (math.nan, -math.inf, 1e39), COST if "cost" in parameters else {})
    for name in declared("thinc_losses")
    for parameters in [signature(registry.losses.get(name)).parameters]
    for field in parameters
    if parameters[field].annotation in (float, float | None)
]


@pytest.mark.parametrize(
    "loss, field, value, others",
    [
        (loss, field, value, others)
        for loss, field, values, others in [*BAD, *EVERY_NUMBER]
        for value in values
    ],
)
def test_a_bad_parameter_is_named(
    loss: str, field: str, value: Any, others: dict[str, Any]
) -> None:
    name = f"spacy_costner.{loss}.v1"
    settings = {**REQUIRED.get(name, {}), **others, field: value}
    with pytest.raises(ValueError, match=rf"spacy_costner\.{loss}: .*{field}.*expected.*got "):
        registry.losses.get(name)(**settings)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "many"])
def test_numbers_that_are_text_to_a_config(value: str) -> None:
    with pytest.raises(ValueError, match=r"multiplier"):
        resolve("losses", "spacy_costner.SoftmaxMargin.v1", multiplier=value)


@pytest.mark.parametrize("loss", ["MCE", "MCEF"])
def test_a_config_can_say_infinite(loss: str) -> None:
    text = f'[block]\n@losses = "spacy_costner.{loss}.v1"\npsi = inf\n'
    config = Config().from_str(Config().from_str(text).to_str())
    compute = registry.resolve(config)["block"].compute
    assert getattr(compute, "compute", compute).keywords["psi"] == math.inf


def test_the_ends_of_what_is_allowed() -> None:
    for settings in ({"lam": 0.0}, {"lam": 1.0}, {"k": 0.0}):
        make_mixed(**settings)
    make_softmax_margin(cost=hamming_cost, multiplier=0.0)
    make_mce(psi=math.inf)
    make_mce_f(psi=math.inf, slope=3.0, offset=-1.0, decay=0.0)
    make_mce_f(decay=1.0)


@pytest.mark.parametrize(
    "field, names",
    [
        ("weighs_tokens", "Pointwise Mixed"),
        ("is_ratio", "MCEF ZScore"),
        ("has_probabilities", LIKELIHOODS),
        ("shifts_probabilities", "Mixed SoftmaxMargin JensenRiskBound"),
        ("needs_start", "Risk JensenRiskBound MCE MCEF ZScore"),
    ],
)
def test_a_loss_says_what_it_needs_and_does(field: str, names: str) -> None:
    for name in ALL:
        assert bool(getattr(build_loss(name), field)) is (name in names.split()), name


def test_settings_decide_what_a_loss_needs_and_does() -> None:
    without_cost = (make_sequential, make_mce, make_zscore, make_perceptron)
    assert [make().cost for make in without_cost] == [None] * 4
    assert make_perceptron(alpha=0.5).cost is make_zscore(cost=hamming_cost).cost is hamming_cost
    assert make_mixed(lam=0.5).weighs_tokens and not make_mixed(k=1.0).shifts_probabilities


@pytest.mark.parametrize("name", ["SoftmaxMargin", "MaxMargin", "Risk", "JensenRiskBound", "MIRA"])
@pytest.mark.parametrize("block", [{}, {"cost": None}])
def test_the_hamming_cost_is_the_default(name: str, block: dict[str, Any]) -> None:
    assert resolve("losses", f"spacy_costner.{name}.v1", **block).cost is hamming_cost


# Schedules

FIRST, SECOND, THIRD = make_sequential(), make_pointwise(), make_mce()


@pytest.mark.parametrize("unit, ends", [("steps", (10, 30)), ("epochs", (0.5, 2.0))])
def test_stages(unit: str, ends: tuple[float, float]) -> None:
    schedule = make_schedule(FIRST, SECOND, THIRD, **{unit: ends})
    reached = (0, ends[0] - 0.01, ends[0], ends[1] - 0.01, ends[1], 99)
    found = []
    for n in reached:
        seen = Progress(epochs=0, n_seen=round(100 * n), n_examples=100)
        found.append(schedule.stage_at(seen if unit == "epochs" else Progress(int(n), 50)))
    assert found == [FIRST, FIRST, SECOND, SECOND, THIRD, THIRD]
    assert schedule.stages == (FIRST, SECOND, THIRD)
    assert FIRST.stage_at(Progress(steps=50)) is FIRST and FIRST.stages == (FIRST,)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 4))
def test_an_epoch_ends_with_its_last_batch(sizes: list[int], n_epochs: int) -> None:
    progress = Progress()
    for epoch in range(n_epochs):
        for i, size in enumerate(sizes):
            passes = epoch + Fraction(sum(sizes[:i]), sum(sizes))
            assert progress.epochs == epoch and progress.passes == float(passes)
            progress = progress.after_update(size, sum(sizes))
    assert progress == Progress(n_epochs * len(sizes), n_epochs, 0, sum(sizes))
    assert progress.after_update(3, 10) == Progress(progress.steps + 1, n_epochs, 3, 10)
    assert Progress(0, 1, 5, 10).after_update(7, 20) == Progress(1, 1, 17, 20)


NUMBER, GROWING, LOSSES = "two losses .* steps or epochs", "growing numbers", ".*losses"
BAD_ENDS = [(0, 5), (-1, 5), (5, 5), (7, 5), (math.nan, 5), (5, math.nan), (5, math.inf)]


@pytest.mark.parametrize(
    "losses, settings, expected",
    [
        ([], {"steps": []}, NUMBER),
        ([FIRST], {"steps": []}, NUMBER),
        ([FIRST], {"steps": [10]}, NUMBER),
        ([FIRST, SECOND], {}, NUMBER),
        ([FIRST, SECOND], {"steps": [10], "epochs": [1.0]}, NUMBER),
        ([FIRST, SECOND], {"steps": [10, 20]}, NUMBER),
        ([FIRST, SECOND, THIRD], {"epochs": [1.0]}, NUMBER),
        *(([FIRST, SECOND, THIRD], {"steps": ends}, GROWING) for ends in BAD_ENDS),
        *(([FIRST, SECOND, THIRD], {"epochs": ends}, GROWING) for ends in BAD_ENDS),
        ([FIRST, hamming_cost], {"steps": [10]}, LOSSES),
        ([FIRST, make_schedule(FIRST, SECOND, steps=[1])], {"steps": [10]}, LOSSES),
        ([FIRST, None], {"steps": [10]}, LOSSES),
    ],
)
def test_schedules_that_are_refused(losses: Any, settings: dict[str, Any], expected: str) -> None:
    where = f"{next(iter(settings))}: " if expected is GROWING else ""
    with pytest.raises(ValueError, match=rf"Schedule: {where}expected {expected}.*got "):
        make_schedule(*losses, **settings)


def test_a_schedule_keeps_the_order_of_the_config() -> None:
    stages = {
        "zeta": {"@losses": "spacy_costner.Mixed.v1", "k": 1.0},
        "alpha": {"@losses": "spacy_costner.MCEF.v1"},
    }
    schedule = resolve("losses", "spacy_costner.Schedule.v1", **{"*": stages})
    assert [stage.is_ratio for stage in schedule.stages] == [False, True]
