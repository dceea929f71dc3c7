"""Minimum-expected-cost decoding, with inner nodes of the label tree.

With a tree, a node above several labels can be predicted, such as "person" above "doctor" and
"patient". A node has tags like a label. K is the number of tags of the chain, A that of all tags
that can be predicted: first those of the chain, then those of nodes.
"""

import json
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy
from thinc.types import Array1d, Array2d, Floats1d, Ints1d

from .. import chain
from ..costs.label_tree import Tree, TreeSource, make_tree
from ..tags import Tags
from ..types import Cost, CostTable, Potentials
from ..validation import resolved_as_json
from .decoders import DecodedSpans, Decoding, Settings
from .posterior import Posterior

TIE = 1e-6
"""Tolerance of equal expected costs per token, as a share of the largest cost."""

LEAST_LIKELY = 1e-30
"""The least probability of a tag in a tie, so that its logarithm is finite."""


def make_min_cost(*, cost: Cost, tree: TreeSource | None = None) -> Decoding:
    """Build decoding by expected cost: see `MinCost`.

        [components.ner.decoding]
        @misc = "spacy_costner.MinCostDecoding.v1"
        tree = "assets/tree.json"

        [components.ner.decoding.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    cost (Cost): What each mistake costs.
    tree (TreeSource | None): A label tree: then an inner node is predicted where its expected
        cost is lower than that of each label below it. The cost has to have these nodes too.
    RAISES (ValueError): If a tree in the config is not a tree.
    """
    label_tree: Tree | None = None
    if tree is not None:
        label_tree = make_tree(tree, "spacy_costner.MinCostDecoding: tree")
    min_cost = MinCost(cost, label_tree)
    return Decoding(min_cost, min_cost.choices, tables=min_cost.save, restore=min_cost.restore)


class Choices(NamedTuple):
    """What can be predicted.

    labels (tuple[str, ...]): The L labels of the chain, then nodes above them: A in all.
    covers (Array2d): True for the labels of the chain that each covers. Shape: (A, L)
    costs (CostTable): The costs, [gold tag, predicted tag].
    """

    labels: tuple[str, ...]
    covers: Array2d
    costs: CostTable


class MinCost:
    """Predicts the legal tags with the lowest expected cost, exactly.

        argmin_a sum_t sum_k p(y_t = k) cost[k, a_t]

    In a tie it predicts as few nodes in place of labels as possible, and then the most probable
    tags. Paths tie if, token after token, the expected cost of each tag with the best tags after it
    is above that of the best tag there by at most 1e-6 of the largest cost.

    cost (Cost): What each mistake costs.
    tree (Tree | None): The label tree, whose inner nodes can be predicted.
    """

    def __init__(self, cost: Cost, tree: Tree | None) -> None:
        self.cost = cost
        self.tree = tree
        self._choices: dict[tuple[str, ...], Choices] = {}
        self._saved: dict[str, Any] = {}

    def __call__(self, posterior: Posterior, settings: Settings) -> DecodedSpans:
        """Decode a batch."""
        choices = self.choices(posterior.tags.collapsed)
        tags = Tags(choices.labels, posterior.tags.scheme.name)
        path, scores = self._decide(posterior)
        entities = tags.decode(path, scores.lengths)
        return DecodedSpans(entities, choices.labels, choices.covers)

    def expected_costs(self, posterior: Posterior) -> Floats1d:
        """The expected cost of the tag that is predicted for each token. Shape: (N,)

        sum_k p(y_t = k) cost[k, a_t]
        """
        path, scores = self._decide(posterior)
        return -scores.emissions[numpy.arange(len(path)), path]

    def _decide(self, posterior: Posterior) -> tuple[Ints1d, Potentials]:
        """The predicted tags, (N,), and the scores of all A tags, of which they are the best path:

        s(a) = - sum_t E_p[cost[y_t, a_t]]
        """
        chain_tags = posterior.tags.collapsed
        choices = self.choices(chain_tags)
        tags = Tags(choices.labels, chain_tags.scheme.name)
        masks = node_masks(choices, tags, chain_tags)
        lengths = posterior.potentials.lengths

        marginals = posterior.marginals.astype("float64")  # (N, K)
        expected_costs = marginals @ choices.costs  # (N, A)
        unconstrained = Potentials(
            emissions=-expected_costs,
            transitions=numpy.zeros((len(tags), len(tags))),
            start=numpy.zeros(len(tags)),
            end=numpy.zeros(len(tags)),
            lengths=lengths,
        )
        # A node is possible where one of the labels below it is.
        is_possible = posterior.tags.collapse(numpy.isfinite(posterior.potentials.emissions))
        allowed = with_nodes(is_possible, masks, numpy.any)
        scores = chain.constrain(unconstrained, tags.constraints._replace(emissions=allowed))

        # Among tied paths the most probable wins. A node is made less probable than all labels of
        # a sequence together, so it wins no tie.
        probs = with_nodes(marginals, masks, numpy.sum)
        log_probs = numpy.log(numpy.maximum(probs, LEAST_LIKELY))
        longest = int(lengths.max(initial=0))
        log_probs[:, len(chain_tags) :] += numpy.log(LEAST_LIKELY) * (longest + 1)
        tolerance = TIE * float(choices.costs.max(initial=0.0))
        return chain.best_of_tied(scores, log_probs, tolerance), scores

    def save(self, tags: Tags) -> dict[str, Any]:
        """The choices, to be saved with the pipeline, with the cost and the tree that they are made
        of."""
        choices = self.choices(tags)
        return {
            "of": self._origin,
            "chain": list(tags.labels),
            "answers": list(choices.labels),
            "covers": choices.covers.tolist(),
            "table": choices.costs.tolist(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what `save` returned. It is used if the cost or the tree can't be built because a
        file is missing."""
        self._saved = saved

    @property
    def _origin(self) -> str:
        """The cost and the tree as the config has them."""
        return json.dumps(resolved_as_json((self.cost, self.tree)))

    def choices(self, tags: Tags, settings: Settings | None = None) -> Choices:
        """The choices for the tags of a chain, computed once for each tag set.

        tags (Tags): The tags.
        settings (Settings | None): Not used: this decoding has none. `Decoding.check` gives them.
        RETURNS (Choices): The choices.
        RAISES (ValueError): If a label has no cost or is not in the tree.
        """
        if tags.names in self._choices:
            return self._choices[tags.names]
        try:
            choices = self._make_choices(tags)
        except ValueError:
            # The file of the cost or of the tree may be gone: what was saved is as good, if it was
            # made of the same cost, tree and labels.
            saved = self._saved
            is_of_this_config = saved.get("of", self._origin) == self._origin
            has_these_labels = saved.get("chain") == list(tags.labels)
            if not is_of_this_config or not has_these_labels:
                raise
            choices = _read(saved, tags)
        self._choices[tags.names] = choices
        return choices

    def _make_choices(self, tags: Tags) -> Choices:
        """The choices, from the cost and the tree."""
        labels_below_node: dict[str, list[str]] = {}
        if self.tree is not None:
            labels_below_node = inner_nodes(self.tree, tags.labels)
        labels = (*tags.labels, *labels_below_node)
        covers = numpy.eye(len(labels), len(tags.labels), dtype=bool)  # a label covers itself
        for node, labels_below in labels_below_node.items():
            for label in labels_below:
                covers[labels.index(node), tags.labels.index(label)] = True
        # Gold has the tags of the chain only, which come first.
        costs = self.cost(Tags(labels, tags.scheme.name))[: len(tags)]
        return Choices(labels, covers, costs.astype("float64"))


def node_masks(choices: Choices, tags: Tags, chain_tags: Tags) -> list[Array1d]:
    """Which tags of the chain each tag of a node stands for: those with its prefix and a label
    below the node. `tags` are all that can be predicted, those of nodes the last of them.
    Shapes: (K,)"""
    masks: list[Array1d] = []
    for tag in range(len(chain_tags), len(tags)):
        has_prefix = chain_tags.having([tags.prefix_of[tag]])
        is_below = choices.covers[tags.label_of[tag]]  # of each label of the chain
        masks.append(has_prefix & is_below[chain_tags.label_of])
    return masks


def with_nodes(table: Array2d, masks: Sequence[Array1d], join: Callable[..., Array1d]) -> Array2d:
    """Add a column for each tag of a node to a table of the tags of the chain: the columns that it
    stands for, joined. Shape: (N, K) to (N, A)"""
    node_columns = [join(table[:, mask], axis=1) for mask in masks]
    return numpy.column_stack([table, *node_columns])


def _read(saved: dict[str, Any], tags: Tags) -> Choices:
    """What `MinCost.save` returned, checked to be of these tags of the chain."""
    labels = tuple(saved["answers"])
    covers = numpy.asarray(saved["covers"], dtype=bool)
    costs = numpy.asarray(saved["table"], dtype="float64")
    covers_shape = (len(labels), len(tags.labels))
    costs_shape = (len(tags), len(Tags(labels, tags.scheme.name)))
    has_shapes = covers.shape == covers_shape and costs.shape == costs_shape
    if not (has_shapes and numpy.isfinite(costs).all()):
        raise ValueError(
            "spacy_costner.MinCostDecoding: saved choices: expected finite arrays of "
            f"{(covers_shape, costs_shape)}, got {covers.shape}, {costs.shape}"
        )
    return Choices(labels, covers, costs)


def inner_nodes(tree: Tree, labels: Sequence[str]) -> dict[str, list[str]]:
    """The nodes that can be predicted in place of a label: those that are the lowest common
    ancestor of two labels, and not labels themselves. Any other node above labels has the same ones
    below it as one of these nodes or as a label, which is nearer to them.

    tree (Tree): The label tree.
    labels (Sequence[str]): The labels of the chain.
    RETURNS (dict[str, list[str]]): The labels below each node, in the tree's order.
    """
    # The way from the top of the tree to each label
    lineages = {label: tree.lineage(label) for label in labels}
    common_ancestors: set[str] = set()
    for lineage, other_lineage in combinations(lineages.values(), 2):
        shared = [node for node, other in zip(lineage, other_lineage) if node == other]
        if shared:
            common_ancestors.add(shared[-1])  # the lowest

    labels_below: dict[str, list[str]] = {}
    for node in tree.lineages:
        if node in common_ancestors and node not in lineages:
            labels_below[node] = [label for label in labels if node in lineages[label]]
    return labels_below
