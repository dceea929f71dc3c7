"""The cost of mistakes: look up the cost in a component's config, and compute the confusion matrix
by cost."""

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
    """The confusion matrix of labels, with costs summed over tokens.

    labels (list[str]): The labels with mistakes, followed by O.
    cost (Floats2d): The cost of each pair of labels, indexed as [gold, predicted]. The diagonal
        contains the cost of wrong boundaries. Shape: (labels, labels)
    """

    labels: list[str]
    cost: Floats2d


class ConfigCost(NamedTuple):
    """The cost of mistakes defined in a component's config.

    cost (Cost): The cost, or the Hamming cost if the config doesn't define one.
    tree (Tree | None): The label tree, if the config defines one.
    name (str): The registered name of the cost. Empty if the config doesn't define one.
    """

    cost: Cost
    tree: Tree | None
    name: str


def find_cost(component: dict[str, Any]) -> ConfigCost:
    """Create the cost and the label tree defined in a component's config. They are looked up in the
    component's scorer, loss and decoding, in this order.

    component (dict[str, Any]): The interpolated config block of the component.
    RETURNS (ConfigCost): The cost and the tree.
    RAISES (ValueError): If the label tree is invalid, or the cost can't be created.
    """
    blocks = [component.get("scorer"), component.get("loss"), component.get("decoding")]
    tree = None
    tree_source = find_first(blocks, "tree")
    if tree_source is not None:
        tree = make_tree(tree_source, "tree")
    cost_block = find_first(blocks, "cost")
    if cost_block is None:
        # The default is a cost of 1 for each wrong tag.
        return ConfigCost(hamming_cost, tree, "")
    resolved = registry.resolve({"cost": cost_block})
    return ConfigCost(resolved["cost"], tree, cost_block["@misc"])


def find_first(blocks: Iterable[Any], key: str) -> Any:
    """Return the first non-empty value of a key in config blocks or their nested blocks, or None if
    there isn't any."""
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
    """Sum the cost of tokens by gold and predicted label. Labels without mistakes are omitted.

    pairs (TagPairs): The gold and predicted tags of tokens.
    cost_table (Floats2d): The cost of each pair of tags. Shape: (K, K)
    order (Sequence[str]): All labels, in the order of the rows.
    RETURNS (Confusion): The confusion matrix.
    """
    labels = [*pairs.tags.labels, OUTSIDE]
    # The cost and number of wrong tokens, indexed as [gold, predicted]. Use float64, because they
    # are summed over all tokens. Shape: (labels, labels)
    cost = pairs.over_labels(cost_table.astype("float64"))
    is_wrong = 1 - numpy.eye(len(pairs.tags))  # 1 for pairs of different tags; shape: (K, K)
    n_wrong = pairs.over_labels(is_wrong)
    # The number of wrong tokens with each label as gold or predicted label. Shape: (labels,)
    n_wrong_with_label = n_wrong.sum(axis=0) + n_wrong.sum(axis=1)
    kept_indices: list[int] = []
    for label in order:
        index = labels.index(label)
        if n_wrong_with_label[index]:
            kept_indices.append(index)
    kept_indices.append(labels.index(OUTSIDE))
    kept_labels = [labels[index] for index in kept_indices]
    return Confusion(kept_labels, cost[numpy.ix_(kept_indices, kept_indices)])
