"""What mistakes cost: the cost that the config of a component has, and its sums by label."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy
from spacy.util import registry
from thinc.types import Floats2d

from ...costs.label_tree import Tree, make_tree
from ...costs.tables import hamming_cost
from ...pipeline.scorers import TagPairs
from ...tags import OUTSIDE
from ...types import Cost


class Confusion(NamedTuple):
    """What it costs that one label is predicted in place of another, summed over tokens.

    labels (list[str]): The labels that have mistakes, then O.
    cost (Floats2d): The cost of each pair of labels, [gold, predicted]. The diagonal has the cost
        of wrong boundaries. Shape: (labels, labels)
    """

    labels: list[str]
    cost: Floats2d


class ConfigCost(NamedTuple):
    """What the config of a component says about the cost of mistakes."""

    cost: Cost  # the Hamming cost, if the config has no cost
    tree: Tree | None  # the label tree, if the config has one
    name: str  # the registered name of the cost; "" if the config has none


def find_cost(component: dict[str, Any]) -> ConfigCost:
    """Make the cost and the label tree that the config of a component has: in its scorer or, if not
    there, in its loss or else in its decoding.

    RAISES (ValueError): If a block of the config isn't a tree, or the cost can't be made.
    """
    blocks = [component.get("scorer"), component.get("loss"), component.get("decoding")]
    tree = None
    tree_source = find_first(blocks, "tree")
    if tree_source is not None:
        tree = make_tree(tree_source, "tree")
    cost_block = find_first(blocks, "cost")
    if cost_block is None:
        # Without a cost, each wrong tag costs 1. That cost isn't in the config, and has no name.
        return ConfigCost(hamming_cost, tree, "")
    resolved = registry.resolve({"cost": cost_block})
    return ConfigCost(resolved["cost"], tree, cost_block["@misc"])


def find_first(blocks: Iterable[Any], key: str) -> Any:
    """Find the first value of a key in blocks of a config, or in blocks within them. Returns None
    if no block has the key. Empty values don't count."""
    for block in blocks:
        if not isinstance(block, dict):  # the value of a setting, or None for a missing block
            continue
        if block.get(key):
            return block[key]
        value_within = find_first(block.values(), key)
        if value_within is not None:
            return value_within
    return None


def confusion_matrix(pairs: TagPairs, cost_table: Floats2d, order: Sequence[str]) -> Confusion:
    """Sum the cost of tokens by their gold and predicted labels. Labels without mistakes are left
    out.

    pairs (TagPairs): The gold and predicted tags of tokens.
    cost_table (Floats2d): The cost of each pair of tags. Shape: (K, K)
    order (Sequence[str]): All labels, in the order that the rows are to have.
    """
    labels = [*pairs.tags.labels, OUTSIDE]
    # Costs and numbers of wrong tokens, [gold, predicted], in float64, as they are summed over all
    # tokens. Shape: (labels, labels)
    cost = pairs.over_labels(cost_table.astype("float64"))
    is_wrong = 1 - numpy.eye(len(pairs.tags))  # 1 for each pair of different tags; shape: (K, K)
    n_wrong = pairs.over_labels(is_wrong)
    # How many wrong tokens have a label as their predicted or gold one
    n_wrong_with_label = n_wrong.sum(axis=0) + n_wrong.sum(axis=1)
    kept_indices: list[int] = []
    for label in order:
        index = labels.index(label)
        if n_wrong_with_label[index]:
            kept_indices.append(index)
    kept_indices.append(labels.index(OUTSIDE))
    kept_labels = [labels[index] for index in kept_indices]
    return Confusion(kept_labels, cost[numpy.ix_(kept_indices, kept_indices)])
