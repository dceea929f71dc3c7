"""Higashiyama et al.: the perceptrons and passive-aggressive with the cost of a tree, on ten folds
of GENIA. Methods are tuned on a part of the first fold's training data."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy

from spacy_costner.commands.plots import ACCENT, MUTED, SECOND, drawing, save
from spacy_costner.metrics import markdown_table

from .genia import N_FOLDS, SEED, TREE
from .runner import ROOT, Figures, Runner, listed, spec
from .scores import COST, F, System, best_on_dev, compare
from .tagger import Block, features_of, linear_block, loss_block
from .training import Stage
from .tuning import Trial, test, tune

FIGURE = ROOT / "docs" / "figures" / "hierarchical_cost.svg"
FEATURES = features_of("hierarchical_cost")
PAPER_FEATURES: Block = {
    "@misc": FEATURES["@misc"],
    "windows": {kind: size for kind, size in FEATURES["windows"].items() if kind != "SHAPE"},
    "affixes": FEATURES["affixes"],
    "min_count": {kind: FEATURES["min_count"][kind] for kind in ("prefix", "suffix")},
}
"""Without what stands in for features of pairs of tags."""

SPEC = spec("hierarchical_cost")
ADAGRAD, STEPS_OF_ONE = SPEC["optimizers"]["adagrad"], SPEC["optimizers"]["steps_of_one"]
FEATURES_BY_NAME = {"ours": FEATURES, "paper": PAPER_FEATURES}
TREE_COST: Block = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
COSTS = {"tree": TREE_COST, "zero_one": {"@misc": "spacy_costner.ZeroOneCost.v1"}}
PERCEPTRONS = ("none", "zero_one", "tree")
AVERAGE_COST, F_SCORE = COST._replace(digits=3), F._replace(digits=1)


class Method(NamedTuple):
    """A way of training.

    title (str): What it is called.
    loss (str), cost (Optional[str]): The loss, and its cost if it has one.
    tuned (Optional[str]): The setting of the loss that is tuned.
    grid (Sequence[float]): The values that are tried.
    optimizer (Block): The settings of AdaGrad.
    batch_size (int): Sentences in a step.
    features (str): What is seen of tokens: "ours", or those of the "paper" only.
    """

    title: str
    loss: str
    cost: Optional[str] = None
    tuned: Optional[str] = None
    grid: Sequence[float] = (0.0,)
    optimizer: Block = ADAGRAD
    batch_size: int = 16
    features: str = "ours"

    def stage(self, value: float, epochs: Sequence[int]) -> Stage:
        """The training with a value of what is tuned: see `training.fit_online`."""
        more: Dict[str, Any] = {"cost": COSTS[self.cost]} if self.cost else {}
        more |= {self.tuned: value} if self.tuned else {}
        return {
            "fit": "online",
            "loss": loss_block(self.loss, **more),
            "model": linear_block(FEATURES_BY_NAME[self.features], **self.optimizer),
            "settings": {"epochs": epochs, "batch_size": self.batch_size},
        }


class Split(NamedTuple):
    """How the corpus is divided.

    title (str): What it is called.
    tokenization (str): PLAIN or GOLD.
    by_abstract (bool): Whether the sentences of an abstract stay together.
    methods (Sequence[str]): The methods that are tested.
    epochs (int): The most epochs.
    grids (Mapping[str, Sequence[float]]): The values that are tried, where not all are.
    """

    title: str
    tokenization: str
    by_abstract: bool
    methods: Sequence[str]
    epochs: int
    grids: Mapping[str, Sequence[float]] = {}


class Size(NamedTuple):
    """How much of it all is run.

    limit (Optional[int]): The most sentences.
    epochs (int), values (int), folds (int): The most epochs, values that are tried, and folds
        that are tested.
    """

    limit: Optional[int]
    epochs: int
    values: int
    folds: int


METHODS = {name: Method(**method) for name, method in SPEC["methods"].items()}
SPLITS = {name: Split(**split) for name, split in SPEC["splits"].items()}

Tuned = Dict[str, List[System]]


def run_split(run: Runner, name: str, size: Size) -> Tuple[Tuned, Dict[str, System]]:
    """Tune the methods on a split, and test them.

    run (Runner): Runs the trainings.
    name (str), size (Size): The split, and how much of it.
    RETURNS (Tuple[Tuned, Dict[str, System]]): All that was tried, and what was chosen, by method.
    """
    split = SPLITS[name]
    data = {
        "tokenization": split.tokenization,
        "by_abstract": split.by_abstract,
        "limit": size.limit,
    }
    epochs = [*range(1, min(split.epochs, size.epochs) + 1)]
    held_out = {**data, "fold": 0, "held_out": True}
    trials = [
        Trial(
            method,
            f"{name}-{value}",
            held_out,
            METHODS[method].stage(value, epochs),
            {"value": value},
        )
        for method in split.methods
        for value in split.grids.get(method, METHODS[method].grid)[: size.values]
    ]
    tuned = tune(run, trials, cost=TREE_COST)
    chosen = {method: best_setting(tuned[method]) for method in split.methods}
    folds = [
        Trial(
            method,
            f"{name}-fold-{fold}",
            {**data, "fold": fold},
            METHODS[method].stage(best["value"], [best["epochs"]]),
            best,
        )
        for fold in range(size.folds)
        for method, best in chosen.items()
    ]
    return tuned, test(run, folds, cost=TREE_COST)


def best_setting(tuned: Sequence[System]) -> Dict[str, Any]:
    """The value and the number of epochs with the least cost; of several the smallest."""
    in_order = sorted(tuned, key=lambda one: (one.settings["value"], one.settings["epochs"]))
    return dict(best_on_dev(in_order, COST).settings)


Outcomes = Mapping[str, Mapping[str, System]]
"""By split and method."""


def cells(one: System) -> Figures:
    """The average cost with the value and epochs that were chosen, and F."""
    value, epochs = f"{one.settings['value']:g}", one.settings["epochs"]
    return {"cost": f"{one.spread(AVERAGE_COST)} | {value} | {epochs}", "f": one.spread(F_SCORE)}


def table_of_levels(outcomes: Outcomes) -> str:
    """F where categories are replaced by those above them at a level of the tree, 1 on top."""
    rows = []
    for name, found in outcomes.items():
        for method in PERCEPTRONS:
            levels = numpy.mean(found[method].settings["levels"], axis=0)
            numbers = [f"{level:.1f}" for level in levels]
            rows.append([SPLITS[name].title, METHODS[method].title, *numbers])
    return markdown_table(["split", "", *range(1, len(levels) + 1)], rows)


def table_of_differences(outcomes: Outcomes) -> str:
    """How far the tree cost is from the others, and whether that may be chance."""
    rows: List[List[object]] = []
    scores = (AVERAGE_COST, F_SCORE)
    for name, found in outcomes.items():
        for method in ("zero_one", "none"):
            gaps = compare([found["tree"].joined()], found[method].joined(), scores)
            differences = [
                f"{gap.value:+.{score.digits}f} (p = {gap.p:.2g})"
                for score, (gap,) in zip(scores, gaps)
            ]
            rows.append([SPLITS[name].title, METHODS[method].title, *differences])
    return markdown_table(["split", "tree cost against", *(score.name for score in scores)], rows)


def least(tuned: Sequence[System]) -> Dict[float, float]:
    """The cost at the best number of epochs, of each value."""
    values = sorted({one.settings["value"] for one in tuned})
    return {
        value: min(one.on("dev", COST)[0] for one in tuned if one.settings["value"] == value)
        for value in values
    }


def draw(tuned: Mapping[str, Sequence[System]]) -> Any:
    """Draw the average cost against alpha, as in figure 2, on a log scale.

    tuned (Mapping[str, Sequence[System]]): What was tried of the perceptrons without a cost and
        with either.
    RETURNS (Figure): A line for each cost, and one for alpha = 0.
    """
    with drawing() as figure_class:
        figure = figure_class(figsize=(4.8, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for method, colour in (("tree", ACCENT), ("zero_one", SECOND)):
            costs, title = least(tuned[method]), METHODS[method].title
            axes.plot([*costs], [*costs.values()], color=colour, marker=".", label=title)
        (without,) = least(tuned["none"]).values()
        axes.axhline(without, color=MUTED, linestyle="--", label=METHODS["none"].title)
        axes.set(xscale="log", xlabel="alpha", ylabel="average cost of held-out data")
        values = sorted({value for line in axes.lines[:2] for value in line.get_xdata()})
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        figure.legend(loc="outside upper left", frameon=False, fontsize=8)
        return figure


def experiment(run: Runner, quick: bool) -> Figures:
    """Tables 1, 2 and 3, and figure 2."""
    size = Size(**SPEC["quick" if quick else "full"])
    found = {name: run_split(run, name, size) for name in SPLITS}
    outcomes = {name: systems for name, (_, systems) in found.items()}
    if not quick:
        FIGURE.parent.mkdir(exist_ok=True)
        save(draw(found["paper"][0]), FIGURE)
    return {
        "limit": "" if size.limit is None else f", the first {size.limit:,} sentences",
        "n_folds": N_FOLDS,
        "seed": SEED,
        "tested": size.folds,
        "affixes": listed(PAPER_FEATURES["affixes"]),
        "affix_count": PAPER_FEATURES["min_count"]["prefix"],
        "learn_rate": ADAGRAD["learn_rate"],
        "batch_size": METHODS["tree"].batch_size,
        "batch_size_of_pa": METHODS["pa"].batch_size,
        "epochs": {name: min(split.epochs, size.epochs) for name, split in SPLITS.items()},
        **{
            split: {n: cells(one) for n, one in systems.items()}
            for split, systems in outcomes.items()
        },
        "differences": table_of_differences(outcomes),
        "levels": table_of_levels(outcomes),
        "figure": FIGURE.name,
    }
