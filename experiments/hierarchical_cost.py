"""Higashiyama et al.: the perceptrons and the passive-aggressive algorithm with a tree cost, on ten
folds of GENIA. Methods are tuned on part of the first fold's training data."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy

from spacy_costner.cli.plots import ACCENT, MUTED, SECOND, drawing
from spacy_costner.cli.tables import markdown_table

from .corpora import COSTS, N_FOLDS, SEED
from .runner import Figures, Runner, spec
from .scores import COST, F, System, Trial, best_on_dev, compare, test, tune
from .training import Stage, features_of, filled, linear_block

SPEC = spec("hierarchical_cost")
METHODS = {name: {**SPEC["defaults"], **method} for name, method in SPEC["methods"].items()}
SPLITS = {name: {"grids": {}, **split} for name, split in SPEC["splits"].items()}
PERCEPTRONS = ("none", "zero_one", "tree")
AVERAGE_COST = COST._replace(digits=3)
F_SCORE = F._replace(digits=1)

OURS = features_of("hierarchical_cost")
FEATURES = {
    "ours": OURS,
    "paper": {
        **{key: OURS[key] for key in ("@misc", "affixes")},
        "windows": {kind: size for kind, size in OURS["windows"].items() if kind != "SHAPE"},
        "min_count": {kind: OURS["min_count"][kind] for kind in ("prefix", "suffix")},
    },
}
"""Ours include pairs of neighbouring words and shapes. They replace the paper's features for pairs
of tags, which the library doesn't have."""

Tuned = dict[str, list[System]]
"""The systems of all tried settings, by method."""


def stage(method: Mapping[str, Any], value: float, epochs: Sequence[int]) -> Stage:
    """Make the stage that trains with a value of the tuned setting: see `training.fit_online`."""
    return {
        "fit": "online",
        "loss": filled(method["loss"], **COSTS, value=value),
        "model": linear_block(FEATURES[method["features"]], **method["optimizer"]),
        "settings": {"epochs": epochs, "batch_size": method["batch_size"]},
    }


def run_split(run: Runner, name: str, size: Mapping[str, Any]) -> tuple[Tuned, dict[str, System]]:
    """Tune the methods on a split, and test them. Returns the systems that were tried, and the
    system of each method with the chosen setting. For splits and sizes, see
    hierarchical_cost.cfg."""
    split = SPLITS[name]
    data = {
        "tokenization": split["tokenization"],
        "by_abstract": split["by_abstract"],
        "limit": size["limit"],
    }
    # Methods are tuned on part of the first fold's training data.
    held_out = {**data, "fold": 0, "held_out": True}
    trials: list[Trial] = []
    for method in split["methods"]:
        epochs = list(range(1, most_epochs(name, method, size) + 1))
        grid = split["grids"].get(method, METHODS[method]["grid"])
        for value in grid[: size["values"]]:
            stages = [stage(METHODS[method], value, epochs)]
            trials.append(Trial(method, f"{name}-{value}", held_out, stages, {"value": value}))
    tuned = tune(run, trials, cost=COSTS["tree"])

    chosen = {method: best_setting(tuned[method]) for method in split["methods"]}
    tests: list[Trial] = []
    for fold, method in product(range(size["folds"]), chosen):
        settings = chosen[method]
        stages = [stage(METHODS[method], settings["value"], [settings["epochs"]])]
        key = f"{name}-fold-{fold}"
        tests.append(Trial(method, key, {**data, "fold": fold}, stages, settings))
    return tuned, test(run, tests, cost=COSTS["tree"])


def most_epochs(split: str, method: str, size: Mapping[str, Any]) -> int:
    """Get the largest number of epochs to try for a method: the method's setting, by default the
    split's, but at most the number in `size`."""
    epochs = METHODS[method].get("epochs", SPLITS[split]["epochs"])
    return min(epochs, size["epochs"])


def best_setting(tuned: Sequence[System]) -> dict[str, Any]:
    """Get the value and the number of epochs with the lowest cost. If several are equally good, get
    the smallest."""

    def value_and_epochs(system: System) -> tuple[float, int]:
        return system.settings["value"], system.settings["epochs"]

    # If several are equally good, `best_on_dev` chooses the first.
    smallest_first = sorted(tuned, key=value_and_epochs)
    return dict(best_on_dev(smallest_first, COST).settings)


Outcomes = Mapping[str, Mapping[str, System]]
"""By split and method."""


def cells(system: System) -> Figures:
    """Format the average cost, with the chosen value and number of epochs."""
    settings = system.settings
    cost = system.spread(AVERAGE_COST)
    return {"cost": f"{cost} | {settings['value']:g} | {settings['epochs']}"}


def table_of_levels(outcomes: Outcomes) -> str:
    """Make the table of F at each level of the tree, with categories replaced by their ancestors at
    this level. The root is level 1."""
    rows = []
    for name, systems in outcomes.items():
        for method in PERCEPTRONS:
            # The mean over folds of F at each level.
            f_of_levels = numpy.mean(systems[method].settings["levels"], axis=0)
            cells = [f"{f:.1f}" for f in f_of_levels]
            rows.append([SPLITS[name]["title"], METHODS[method]["title"], *cells])
    n_levels = len(f_of_levels)
    return markdown_table(["split", "", *range(1, n_levels + 1)], rows)


def table_of_differences(outcomes: Outcomes) -> str:
    """Make the table of differences between the tree cost and the other costs, with p-values."""
    rows: list[list[object]] = []
    scores = (AVERAGE_COST, F_SCORE)
    for name, systems in outcomes.items():
        by_tree_cost = systems["tree"].with_folds_joined()
        for method in ("zero_one", "none"):
            baseline = systems[method].with_folds_joined()
            cells: list[str] = []
            for score, (difference,) in zip(scores, compare([by_tree_cost], baseline, scores)):
                cells.append(f"{difference.value:+.{score.digits}f} (p = {difference.p:.2g})")
            rows.append([SPLITS[name]["title"], METHODS[method]["title"], *cells])
    return markdown_table(["split", "tree cost against", *(score.name for score in scores)], rows)


def least_costs(tuned: Sequence[System]) -> dict[float, float]:
    """Get the cost of each value at its best number of epochs, in ascending order of values."""
    least_cost: dict[float, float] = {}
    for system in sorted(tuned, key=lambda system: system.settings["value"]):
        value = system.settings["value"]
        (cost,) = system.on("dev", COST)
        least_cost[value] = min(cost, least_cost.get(value, cost))
    return least_cost


def draw(tuned: Mapping[str, Sequence[System]]) -> Any:
    """Plot the average cost against alpha, as in figure 2, on a log scale: a line for each cost
    that the perceptron was tuned with, and one for alpha = 0."""
    with drawing() as figure_class:
        figure = figure_class(figsize=(4.8, 3.6), layout="constrained")
        axes = figure.add_subplot()
        alphas: set[float] = set()
        for method, colour in (("tree", ACCENT), ("zero_one", SECOND)):
            costs = least_costs(tuned[method])
            alphas.update(costs)
            label = METHODS[method]["title"]
            axes.plot([*costs], [*costs.values()], color=colour, marker=".", label=label)
        (cost_without,) = least_costs(tuned["none"]).values()
        axes.axhline(cost_without, color=MUTED, linestyle="--", label=METHODS["none"]["title"])
        axes.set(xscale="log", xlabel="alpha", ylabel="average cost of held-out data")
        ticks = sorted(alphas)
        axes.set_xticks(ticks, [f"{alpha:g}" for alpha in ticks])
        axes.minorticks_off()
        figure.legend(loc="outside upper left", frameon=False, fontsize=8)
        return figure


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make tables 1, 2 and 3, and figure 2."""
    tuned: dict[str, Tuned] = {}
    outcomes: dict[str, dict[str, System]] = {}
    for name in SPLITS:
        tuned[name], outcomes[name] = run_split(run, name, size)

    limit = ""
    if size["limit"]:
        limit = f", the first {size['limit']:,} sentences"
    epochs = {name: most_epochs(name, "tree", size) for name in SPLITS}
    epochs["pa"] = most_epochs("paper", "pa", size)
    cells_of_splits: dict[str, Figures] = {}
    for name in SPLITS:
        cells_of_splits[name] = {key: cells(system) for key, system in outcomes[name].items()}
    return {
        "limit": limit,
        "n_folds": N_FOLDS,
        "seed": SEED,
        "features": FEATURES["paper"],
        "methods": METHODS,
        "epochs": epochs,
        **cells_of_splits,
        "differences": table_of_differences(outcomes),
        "levels": table_of_levels(outcomes),
        "figure": run.picture("hierarchical_cost", draw(tuned["paper"])),
    }
