"""What a config may say of a loss: bad parameters are named, schedules are kept to."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from inspect import Parameter, signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spacy.util import registry
from thinc.api import Config

from spacy_costner.costs.tables import hamming_cost
from spacy_costner.losses.fscore import make_mce_f
from spacy_costner.losses.likelihood import make_mixed, make_pointwise, make_sequential
from spacy_costner.losses.margin import make_softmax_margin
from spacy_costner.losses.mce import make_mce
from spacy_costner.losses.perceptron import make_perceptron
from spacy_costner.losses.schedule import make_schedule
from spacy_costner.losses.zscore import make_zscore
from spacy_costner.types import Loss, Progress
from spacy_costner.workflows.config.loss_blocks import build_loss

from ..support.config import REQUIRED, declared, resolve

COST = {"cost": hamming_cost}
LIKELIHOODS = "Sequential Pointwise Mixed SoftmaxMargin Risk JensenRiskBound MCE MCEF"
ALL = [*LIKELIHOODS.split(), "MaxMargin", "Perceptron", "MIRA", "ZScore"]
BELOW_0, NOT_ABOVE_0 = (-0.1, math.inf), (0.0, -0.1, math.inf)

# A loss, a parameter, values that it can't have, and the other settings.
BAD: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("Mixed", "lam", (-0.1, 1.1, math.inf, math.nan, None), {"k": None}),
    ("Mixed", "lam", (0.5,), {}),  # k, whose default is 1, is set, too
    ("Mixed", "k", BELOW_0, {}),
    ("Mixed", "multiplier", BELOW_0, COST),
    ("SoftmaxMargin", "multiplier", BELOW_0, COST),
    ("MaxMargin", "multiplier", BELOW_0, COST),
    ("JensenRiskBound", "multiplier", BELOW_0, COST),
    ("MIRA", "multiplier", BELOW_0, COST),
    ("MIRA", "aggressiveness", NOT_ABOVE_0, COST),
    ("Perceptron", "alpha", (0.0, *BELOW_0), COST),
    ("Perceptron", "alpha", BELOW_0, {}),
    ("MCE", "smoothing", ("step", ""), {}),
    ("MCE", "slope", NOT_ABOVE_0, {}),
    ("MCE", "offset", (math.inf,), {}),
    ("MCE", "psi", (0.0, -1.0), {}),
    ("MCE", "distance", ("cosine",), {}),
    ("MCE", "distance", ("ratio",), {"unit": "token", "psi": math.inf}),
    ("MCE", "smoothing", ("logistic",), {"distance": "ratio"}),
    ("MCE", "unit", ("entity",), {}),
    ("MCE", "psi", (1.0, 2.0), {"unit": "token"}),
    ("MCEF", "gamma", NOT_ABOVE_0, {}),
    ("MCEF", "psi", (0.0, 2.0), {}),
    ("MCEF", "slope", (2.0, *NOT_ABOVE_0), {}),
    ("MCEF", "slope", NOT_ABOVE_0, {"psi": math.inf}),
    ("MCEF", "offset", (0.5, math.inf), {}),
    ("MCEF", "offset", (math.inf,), {"psi": math.inf}),
    ("MCEF", "decay", (-0.1, 1.1, math.inf), {}),
    ("ZScore", "multiplier", NOT_ABOVE_0, COST),
]


def bad_values() -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """The rows of BAD, a value each; then of every number of every loss what no number can be:
    float32 has none of 1e39."""
    for loss, field, values, settings in BAD:
        for value in values:
            yield loss, field, value, settings
    for name in declared("thinc_losses"):
        loss = name.split(".")[1]
        parameters = signature(registry.losses.get(name)).parameters
        settings = COST if "cost" in parameters else {}
        for field, parameter in parameters.items():
            if parameter.annotation in (float, float | None):
                for value in (math.nan, -math.inf, 1e39):
                    yield loss, field, value, settings


@pytest.mark.parametrize("loss, field, value, settings", [*bad_values()])
def test_a_bad_parameter_is_named(
    loss: str, field: str, value: Any, settings: dict[str, Any]
) -> None:
    name = f"spacy_costner.{loss}.v1"
    all_settings = {**REQUIRED.get(name, {}), **settings, field: value}

    with pytest.raises(ValueError, match=rf"spacy_costner\.{loss}: .*{field}.*expected.*got "):
        registry.losses.get(name)(**all_settings)


@pytest.mark.parametrize(
    "value, message",
    [
        ("nan", "multiplier: expected a number of at least 0, got 'nan'"),
        ("inf", "multiplier: expected a number of at least 0, got 'inf'"),
        ("-inf", "multiplier: expected a number of at least 0, got '-inf'"),
        ("-1", "multiplier: expected a number of at least 0, got '-1'"),
        ("many", "multiplier\tat root: 'many' is not <class 'float'>"),  # of Thinc, not ours
    ],
)
def test_texts_that_are_no_allowed_number_are_refused(value: str, message: str) -> None:
    """An override on the command line, such as `--components.ner.loss.multiplier nan`, is text.
    Thinc takes texts that are numbers in place of numbers, and leaves them texts."""
    with pytest.raises(ValueError, match=message):
        resolve("losses", "spacy_costner.SoftmaxMargin.v1", multiplier=value)


@pytest.mark.parametrize("loss", ["MCE", "MCEF"])
def test_a_config_can_say_infinite(loss: str) -> None:
    """It is still infinite when the config has been written and read again."""
    text = f'[block]\n@losses = "spacy_costner.{loss}.v1"\npsi = inf\n'
    config = Config().from_str(Config().from_str(text).to_str())

    compute = registry.resolve(config)["block"].compute

    # `compute` is a partial function, which that of MCEF has inside.
    arguments = getattr(compute, "compute", compute).keywords
    assert arguments["psi"] == math.inf


@pytest.mark.parametrize("name", ALL)
def test_a_loss_function_has_the_defaults_of_its_config(name: str) -> None:
    """They are written down twice: the function can be called without its factory."""
    compute = resolve("losses", f"spacy_costner.{name}.v1").compute
    compute = getattr(compute, "compute", compute)  # that of MCEF has it inside
    if not isinstance(compute, partial):
        return  # it has no parameters
    for parameter in signature(compute.func).parameters.values():
        if parameter.default is not Parameter.empty and parameter.name in compute.keywords:
            assert parameter.default == compute.keywords[parameter.name], parameter.name


def test_parameters_may_be_at_the_ends_of_what_is_allowed() -> None:
    make_mixed(lam=0.0)
    make_mixed(lam=1.0)
    make_mixed(k=0.0)
    make_softmax_margin(cost=hamming_cost, multiplier=0.0)
    make_mce(psi=math.inf)
    make_mce_f(psi=math.inf, slope=3.0, offset=-1.0, decay=0.0)
    make_mce_f(decay=1.0)  # none of these raises an error


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


@pytest.mark.parametrize("make", [make_sequential, make_mce, make_zscore, make_perceptron])
def test_some_losses_have_no_cost_by_default(make: Callable[..., Loss]) -> None:
    assert make().cost is None


def test_settings_decide_what_a_loss_needs_and_does() -> None:
    assert make_zscore(cost=hamming_cost).cost is hamming_cost
    assert make_perceptron(alpha=0.5).cost is hamming_cost  # alpha is the weight of a cost
    assert make_mixed(lam=0.5).weighs_tokens
    assert make_mce(unit="token", psi=math.inf).weighs_tokens
    assert not make_mixed(k=1.0).shifts_probabilities  # only with a multiplier


@pytest.mark.parametrize("name", ["SoftmaxMargin", "MaxMargin", "Risk", "JensenRiskBound", "MIRA"])
@pytest.mark.parametrize("block", [{}, {"cost": None}])
def test_the_hamming_cost_is_the_default(name: str, block: dict[str, Any]) -> None:
    assert resolve("losses", f"spacy_costner.{name}.v1", **block).cost is hamming_cost


# Schedules

FIRST, SECOND, THIRD = make_sequential(), make_pointwise(), make_mce()


@pytest.mark.parametrize(
    "steps, loss",
    [(0, FIRST), (9, FIRST), (10, SECOND), (29, SECOND), (30, THIRD), (99, THIRD)],
)
def test_a_schedule_of_steps_changes_to_the_next_loss_after_so_many(steps: int, loss: Loss) -> None:
    schedule = make_schedule(FIRST, SECOND, THIRD, steps=(10, 30))

    # The epochs don't matter.
    assert schedule.stage_at(Progress(steps, epochs=50)) is loss


@pytest.mark.parametrize(
    "passes, loss",
    [(0, FIRST), (0.49, FIRST), (0.5, SECOND), (1.99, SECOND), (2.0, THIRD), (99, THIRD)],
)
def test_a_schedule_of_epochs_changes_to_the_next_loss_after_so_many(
    passes: float, loss: Loss
) -> None:
    """Parts of an epoch count: the docs seen, of 100."""
    schedule = make_schedule(FIRST, SECOND, THIRD, epochs=(0.5, 2.0))
    progress = Progress(epochs=0, n_seen=round(100 * passes), n_examples=100)

    assert schedule.stage_at(progress) is loss


def test_the_stages_of_a_schedule_are_its_losses() -> None:
    """A loss alone is its only stage."""
    assert make_schedule(FIRST, SECOND, THIRD, steps=(10, 30)).stages == (FIRST, SECOND, THIRD)
    assert FIRST.stages == (FIRST,)
    assert FIRST.stage_at(Progress(steps=50)) is FIRST


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 4))
def test_an_epoch_ends_with_its_last_batch(batch_sizes: list[int], n_epochs: int) -> None:
    """`passes` is the number of finished epochs and the share of the current one, without rounding
    errors."""
    n_examples = sum(batch_sizes)
    progress = Progress()
    for epoch in range(n_epochs):
        for i, size in enumerate(batch_sizes):
            passes = epoch + Fraction(sum(batch_sizes[:i]), n_examples)
            assert progress.epochs == epoch and progress.passes == float(passes)
            progress = progress.after_update(size, n_examples)

    n_steps = n_epochs * len(batch_sizes)
    assert progress == Progress(n_steps, epochs=n_epochs, n_seen=0, n_examples=n_examples)


def test_the_number_of_examples_may_change_between_updates() -> None:
    """At the beginning of an epoch, or within it: 5 of 10 are half an epoch, as 10 of 20 are, and
    with 7 more 17 of 20 are seen."""
    between_epochs = Progress(steps=8, epochs=2, n_seen=0, n_examples=40)
    within_epoch = Progress(steps=0, epochs=1, n_seen=5, n_examples=10)

    after_between = between_epochs.after_update(3, 10)
    after_within = within_epoch.after_update(7, 20)

    assert after_between == Progress(steps=9, epochs=2, n_seen=3, n_examples=10)
    assert after_within == Progress(steps=1, epochs=1, n_seen=17, n_examples=20)


# What an error says was expected: enough losses, and an end for each but the last, in steps or in
# epochs; ends that grow; losses and nothing else.
NUMBER = "at least two losses, .* steps or epochs"
GROWING = "increasing numbers"
LOSSES = ".*losses"
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
def test_a_schedule_that_makes_no_sense_is_refused(
    losses: Any, settings: dict[str, Any], expected: str
) -> None:
    """Where ends don't grow, the error names their setting, "steps" or "epochs"."""
    field = ""
    if expected is GROWING:
        (setting,) = settings
        field = f"{setting}: "

    with pytest.raises(ValueError, match=rf"Schedule: {field}expected {expected}.*got "):
        make_schedule(*losses, **settings)


def test_a_schedule_keeps_the_order_of_the_config() -> None:
    """Losses are not sorted by name. Of the two losses, MCEF is a ratio, and Mixed isn't."""
    stages = {
        "zeta": {"@losses": "spacy_costner.Mixed.v1", "k": 1.0},
        "alpha": {"@losses": "spacy_costner.MCEF.v1"},
    }

    schedule = resolve("losses", "spacy_costner.Schedule.v1", **{"*": stages})

    assert [stage.is_ratio for stage in schedule.stages] == [False, True]
