"""The cost of mistakes in a config: the cost block and the label tree."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from spacy.util import registry
from thinc.api import Config

from ...costs.cost_matrix import make_matrix
from ...costs.label_tree import make_tree
from ...costs.tables import HAMMING
from ...files.saving import save_text
from ...tags import OUTSIDE, Tags
from ...types import CostTable
from .blocks import Block, find_name
from .init_options import MISTAKES, InitOptions

HIGH_COST_OF_MISSES = {
    "@misc": "spacy_costner.PrecisionRecallCost.v1",
    "miss": 2.0,
    "false_alarm": 1.0,
    "wrong_label": 1.0,
    "wrong_boundary": 1.0,
}
"""The cost used for training on few sentences, where models would otherwise miss too many
entities."""


@dataclass(frozen=True)
class GivenCosts:
    """The costs set by the options. If there are several costs, they are added up.

    blocks (Mapping[str, Block]): The block of each given cost, keyed by the kind of option: "tree",
        "matrix", "tags" or "mistakes".
    files (Mapping[str, str]): The cost files, keyed by their names in the [paths] block of the
        config: "tree" and "costs".
    mistakes (Mapping[str, float]): The given costs, keyed by kind of mistake: see `MISTAKES`.
    """

    blocks: Mapping[str, Block]
    files: Mapping[str, str]
    mistakes: Mapping[str, float]

    def block(self, aim: str) -> Block | None:
        """Create the cost block of the config. Returns None if no cost is given and the aim doesn't
        need one.

        aim (str): The aim: see `InitOptions`.
        """
        if len(self.blocks) > 1:
            return {"@misc": "spacy_costner.SumCost.v1", "costs": dict(self.blocks)}
        if len(self.blocks) == 1:
            (block,) = self.blocks.values()
            return block
        if aim == "cost":
            return HAMMING  # every wrong tag costs 1
        return None


def choose_costs(options: InitOptions) -> GivenCosts:
    """Create a block for each cost set by the options.

    RAISES (ValueError): If there is no cost with the given name.
    """
    blocks: dict[str, Block] = {}
    files: dict[str, str] = {}
    if options.tree_path is not None:
        files["tree"] = str(options.tree_path)
        blocks["tree"] = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": "${paths.tree}"}
    cost = options.cost
    if cost is not None and Path(cost).is_file():
        files["costs"] = str(Path(cost))
        blocks["matrix"] = {"@misc": "spacy_costner.MatrixCost.v1", "matrix": "${paths.costs}"}
    elif cost is not None:
        name = find_name("Cost", cost, other_choices=["a CSV file"])
        blocks["tags"] = {"@misc": f"spacy_costner.{name}Cost.v1"}
    mistake_costs = options.mistake_costs
    if mistake_costs:
        # A kind of mistake without a given cost costs 1, or 0 if the block is added to another
        # cost.
        default_cost = 0.0 if blocks else 1.0
        block: Block = {"@misc": "spacy_costner.PrecisionRecallCost.v1"}
        for mistake in MISTAKES:
            block[mistake] = mistake_costs.get(mistake, default_cost)
        blocks["mistakes"] = block
    return GivenCosts(blocks, files, mistake_costs)


def find_cost_files(cost: Mapping[str, Any]) -> dict[str, Any]:
    """Find the files of a cost in a config, or of the parts of a sum of costs.

    cost (Mapping[str, Any]): The block of the cost, with interpolated variables.
    RETURNS (dict[str, Any]): The cost files: see `GivenCosts`. If a tree or a matrix is defined in
        the config instead of a file, its block.
    """
    if cost["@misc"] == "spacy_costner.HierarchicalCost.v1":
        return {"tree": cost["tree"]}
    if cost["@misc"] == "spacy_costner.MatrixCost.v1":
        return {"costs": cost["matrix"]}
    files: dict[str, Any] = {}
    if cost["@misc"] == "spacy_costner.SumCost.v1":
        for part in cost["costs"].values():
            files |= find_cost_files(part)
    return files


def write_tree(path: Path, labels: Sequence[str], separator: str) -> None:
    """Write a label tree with two levels to a JSON file. The parent of a label is its prefix before
    the separator: with "_", LOC_city and LOC_river are children of LOC. Labels that don't contain
    the separator, or that begin with it, are placed on the first level.

    path (Path): The new JSON file.
    labels (Sequence[str]): The labels of the corpus.
    separator (str): The separator between the prefix and the rest of a label.
    RAISES (ValueError): If no label contains the separator.
    """
    if not separator or not any(separator in label for label in labels):
        raise ValueError(
            f"`tree_by_prefix`: expected a separator that occurs in the labels, got {separator!r} "
            f"for {', '.join(labels)}"
        )
    tree: dict[str, Any] = {}
    for label in labels:
        prefix, _, _ = label.partition(separator)
        if not prefix:  # the label begins with the separator
            prefix = label
        children = tree.setdefault(prefix, {})
        if label != prefix:
            children[label] = {}
    save_text(path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")


def find_highest_cost(
    cost: Block, files: Mapping[str, str], label_counts: Mapping[str, int]
) -> float:
    """Compute the highest possible cost of a mistake at a single token. For the arguments and
    errors, see `make_cost_table`."""
    _, cost_table = make_cost_table(cost, files, label_counts)
    return float(cost_table.max())


def find_label_costs(
    cost: Block, files: Mapping[str, str], label_counts: Mapping[str, int]
) -> dict[str, tuple[float, float]]:
    """Find the costs of a miss and of a false alarm of each label, per token, keyed by the label.
    For the arguments and errors, see `make_cost_table`."""
    tags, cost_table = make_cost_table(cost, files, label_counts)
    outside = 0  # the index of O
    costs_of_label: dict[str, tuple[float, float]] = {}
    for i, label in enumerate(tags.labels):
        # All tags of a label cost the same.
        tag = int(numpy.argmax(tags.label_of == i))
        cost_of_miss = float(cost_table[tag, outside])
        cost_of_false_alarm = float(cost_table[outside, tag])
        costs_of_label[label] = (cost_of_miss, cost_of_false_alarm)
    return costs_of_label


def make_cost_table(
    cost: Block, files: Mapping[str, str], label_counts: Mapping[str, int]
) -> tuple[Tags, CostTable]:
    """Create the tags of the labels and their cost table.

    cost (Block): The block of the cost.
    files (Mapping[str, str]): The cost files: see `GivenCosts`.
    label_counts (Mapping[str, int]): The number of spans of each label in the corpus. If empty, the
        labels are read from the cost files.
    RETURNS (tuple[Tags, CostTable]): The tags and the table.
    RAISES (ValueError): If a file can't be read or doesn't include all labels.
    """
    labels = list(label_counts)
    if not labels and "costs" in files:
        matrix = make_matrix(files["costs"], "spacy_costner.MatrixCost: matrix")
        labels = list(matrix.rows)
    elif not labels and "tree" in files:
        tree = make_tree(files["tree"], "spacy_costner.HierarchicalCost: tree")
        labels = list(tree.lineages)
    # A matrix also has a row for "O", which isn't a label.
    labels = [label for label in labels if label != OUTSIDE]
    if not labels:
        labels = ["label"]  # without files, costs don't depend on labels
    # The block refers to its files with variables such as ${paths.tree}.
    config = Config({"paths": dict(files), "cost": cost}).interpolate()
    resolved = registry.resolve({"cost": config["cost"]})
    make_table = resolved["cost"]  # function that creates the cost table of a tag set
    tags = Tags(labels)
    return tags, make_table(tags)
