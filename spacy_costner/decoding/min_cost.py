"""Minimum-expected-cost decoding, with inner nodes of the label tree.

If there is a tree, a node above several labels can be predicted instead of them, such as "person"
above "doctor" and "patient". A node has tags, as a label has: B-person, I-person and so on.

In shapes, N is the number of tokens, K of tags of the chain, and A of all tags that can be
predicted: first the K tags of the chain, then the tags of nodes.
"""

import json
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d

from .. import chain
from ..costs.label_tree import Tree, TreeSource, make_tree
from ..tags import Tags
from ..types import Cost, CostTable, Potentials
from ..validation import resolved_as_json
from .decoders import DecodedSpans, Decoding, DecodingSettings
from .posterior import Posterior

TIE_TOLERANCE = 1e-6
"""Expected costs of a token that differ by at most this share of the largest cost are equal."""

LEAST_PROB_IN_TIE = 1e-30
"""The least probability of a tag when ties are broken, so that its logarithm is finite."""


def make_min_cost(*, cost: Cost, tree: TreeSource | None = None) -> Decoding:
    """Build decoding by minimum expected cost: see `MinCost`.

        [components.ner.decoding]
        @misc = "spacy_costner.MinCostDecoding.v1"
        tree = "assets/tree.json"

        [components.ner.decoding.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    cost (Cost): What each mistake costs.
    tree (TreeSource | None): A label tree. Its inner nodes can be predicted, too: see
        `find_inner_nodes`. A node has a lower expected cost than the labels below it where the
        model can't tell these apart. The cost has to know the nodes. None: only labels are
        predicted.
    RAISES (ValueError): If a block of the config is not a tree. A file is checked when it is read.
    """
    label_tree: Tree | None = None
    if tree is not None:
        label_tree = make_tree(tree, where="spacy_costner.MinCostDecoding: tree")
    min_cost = MinCost(cost, label_tree)
    # `choices` raises an error if the cost or the tree doesn't fit the labels.
    return Decoding(
        decode=min_cost, check=min_cost.choices, tables=min_cost.save, restore=min_cost.restore
    )


class Choices(NamedTuple):
    """The labels that can be predicted: the labels of the chain, and nodes above them.

    labels (tuple[str, ...]): The labels of the chain, then the nodes.
    covers (Array2d): For each label or node, True at the labels of the chain that it covers. A
        label covers itself. Shape: (labels and nodes, labels of the chain)
    costs (CostTable): What each mistake costs, [gold tag, predicted tag]. Shape: (K, A)
    """

    labels: tuple[str, ...]
    covers: Array2d
    costs: CostTable


class MinCost:
    """Predicts the path a with the lowest expected cost among the paths that the tag scheme allows,
    exactly.

        argmin_a sum_t sum_k p(y_t = k) cost[k, a_t]

    If several paths are equally good, it predicts one with as few nodes instead of labels as
    possible and, of these, the one with the largest sum_t log p(y_t = a_t). Two tags of a token are
    equally good if their expected costs, with the best tags after each, differ by at most 1e-6 of
    the largest cost.

    cost (Cost): What each mistake costs.
    tree (Tree | None): The label tree, whose inner nodes can be predicted.
    """

    def __init__(self, cost: Cost, tree: Tree | None) -> None:
        self.cost = cost
        self.tree = tree
        self._choices: dict[tuple[str, ...], Choices] = {}
        self._saved: dict[str, Any] = {}

    def __call__(self, posterior: Posterior, settings: DecodingSettings) -> DecodedSpans:
        """Decode a batch. There are no settings."""
        choices = self.choices(posterior.tags.collapsed)
        tags = Tags(choices.labels, posterior.tags.scheme.name)
        path, scores = self._choose_path(posterior)
        entities = tags.decode(path, scores.lengths)
        # A predicted node covers the labels below it.
        return DecodedSpans(entities, labels=choices.labels, covers=choices.covers)

    def expected_costs(self, posterior: Posterior) -> Floats1d:
        """Compute the expected cost of the tag a_t that is predicted for each token. Shape: (N,)

        sum_k p(y_t = k) cost[k, a_t]
        """
        path, scores = self._choose_path(posterior)
        # The score of a tag is minus its expected cost. Shape of `emissions`: (N, A)
        return -scores.emissions[numpy.arange(len(path)), path]

    def _choose_path(self, posterior: Posterior) -> tuple[Ints1d, Potentials]:
        """Choose the path with the lowest expected cost. Returns the predicted tags; and the scores
        of all A tags, which are minus their expected costs, s(a) = - sum_t E_p[cost[y_t, a_t]], or
        minus infinity where a tag isn't allowed. Shapes: (N,), (N, A)"""
        chain_tags = posterior.tags.collapsed
        choices = self.choices(chain_tags)
        tags = Tags(choices.labels, chain_tags.scheme.name)
        masks = node_masks(choices, tags, chain_tags)
        lengths = posterior.potentials.lengths

        # In float64, as costs are summed over whole paths and then compared to a millionth.
        marginals = posterior.marginals.astype("float64")  # (N, K)
        expected_costs = marginals @ choices.costs  # (N, A)
        unconstrained = Potentials(
            emissions=-expected_costs,
            transitions=numpy.zeros((len(tags), len(tags))),
            start=numpy.zeros(len(tags)),
            end=numpy.zeros(len(tags)),
            lengths=lengths,
        )
        # The tag of a node is possible where a tag that it stands for is possible.
        is_possible = posterior.tags.collapse(numpy.isfinite(posterior.potentials.emissions))
        is_allowed = add_node_columns(is_possible, masks, numpy.any)
        scores = chain.constrain(unconstrained, tags.constraints._replace(emissions=is_allowed))

        tolerance = TIE_TOLERANCE * float(choices.costs.max(initial=0.0))
        log_probs = tie_log_probs(marginals, masks, lengths)
        return chain.best_of_tied(scores, log_probs, tolerance), scores

    def save(self, tags: Tags) -> dict[str, Any]:
        """Turn the choices for the tags of a chain into JSON, to be saved with the pipeline. "of"
        and "chain" say which cost, tree and labels they were made of: see `_read_choices`."""
        choices = self.choices(tags)
        return {
            "of": self._origin,
            "chain": list(tags.labels),
            "answers": list(choices.labels),
            "covers": choices.covers.tolist(),
            "table": choices.costs.tolist(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take the choices that `save` returned. They are used if the cost or the tree can't be
        built because a file is missing."""
        self._saved = saved

    @property
    def _origin(self) -> str:
        """The cost and the tree as the config has them, as a text."""
        return json.dumps(resolved_as_json((self.cost, self.tree)))

    def choices(self, tags: Tags, settings: DecodingSettings | None = None) -> Choices:
        """Return the choices for the tags of a chain. They are made once for each tag set.

        tags (Tags): The tags, with a single O.
        settings (DecodingSettings | None): Not used, as this decoding has no settings. It is there
            because `Decoding.check` is called with them.
        RETURNS (Choices): The choices.
        RAISES (ValueError): If a label has no cost or is not in the tree.
        """
        if tags.names in self._choices:
            return self._choices[tags.names]
        try:
            choices = self._make_choices(tags)
        except ValueError:
            # The file of the cost or of the tree may be gone. The saved choices are as good if they
            # were made of the same cost, tree and labels.
            saved = self._saved
            is_of_this_config = saved.get("of") == self._origin
            has_these_labels = saved.get("chain") == list(tags.labels)
            if not is_of_this_config or not has_these_labels:
                raise
            choices = _read_choices(saved, tags)
        self._choices[tags.names] = choices
        return choices

    def _make_choices(self, tags: Tags) -> Choices:
        """Make the choices from the cost and the tree."""
        labels_below_node: dict[str, list[str]] = {}
        if self.tree is not None:
            labels_below_node = find_inner_nodes(self.tree, tags.labels)
        labels_and_nodes = (*tags.labels, *labels_below_node)
        # A label covers itself.
        covers = numpy.eye(len(labels_and_nodes), len(tags.labels), dtype=bool)
        for node, labels_below in labels_below_node.items():
            for label in labels_below:
                covers[labels_and_nodes.index(node), tags.labels.index(label)] = True
        # Gold never has a node: take the rows of the tags of the chain, which come first.
        costs = self.cost(Tags(labels_and_nodes, tags.scheme.name))[: len(tags)]
        return Choices(labels_and_nodes, covers, costs.astype("float64"))


def node_masks(choices: Choices, tags: Tags, chain_tags: Tags) -> list[Array1d]:
    """Find the tags of the chain that each tag of a node stands for. They have the same prefix, and
    a label below the node: B-person stands for B-doctor and B-patient.

    choices (Choices): What can be predicted.
    tags (Tags): All tags that can be predicted, with the tags of nodes at the end.
    chain_tags (Tags): The tags of the chain.
    RETURNS (list[Array1d]): For each tag of a node, True at the tags of the chain that it stands
        for. Shapes: (K,)
    """
    masks: list[Array1d] = []
    for tag in range(len(chain_tags), len(tags)):
        has_prefix = chain_tags.having([tags.prefix_of[tag]])
        node = tags.label_of[tag]
        is_label_below = choices.covers[node]  # (labels of the chain,)
        # O, whose label is -1, takes the last label here. But O doesn't have the prefix.
        masks.append(has_prefix & is_label_below[chain_tags.label_of])
    return masks


def tie_log_probs(marginals: Floats2d, masks: Sequence[Array1d], lengths: Ints1d) -> Floats2d:
    """Compute the scores that decide between tied paths: the path with the highest sum of these
    scores wins. They are the log-probabilities of tags. The numbers of nodes are lowered so far
    that a single node costs more than all labels of the longest sequence can. So a path with fewer
    nodes wins. For the masks see `node_masks`. Shapes: (N, K), (B,) to (N, A)"""
    # The probability of a tag of a node is the sum over the tags that it stands for.
    probs = add_node_columns(marginals, masks, numpy.sum)
    log_probs = numpy.log(numpy.maximum(probs, LEAST_PROB_IN_TIE))
    # No number of a tag of the chain is below `lowest`, so no path of them is below `lowest` times
    # its length. The tags of nodes are in the columns after the tags of the chain.
    lowest = numpy.log(LEAST_PROB_IN_TIE)
    longest_length = int(lengths.max(initial=0))
    n_chain_tags = marginals.shape[1]
    log_probs[:, n_chain_tags:] += lowest * (longest_length + 1)
    return log_probs


def add_node_columns(
    table: Array2d, masks: Sequence[Array1d], reduce: Callable[..., Array1d]
) -> Array2d:
    """Add columns for the tags of nodes to a table with a column for each tag of the chain.
    `reduce`, such as `numpy.sum`, merges the columns that a tag of a node stands for: see
    `node_masks`. Shapes: (N, K) to (N, A)"""
    node_columns = [reduce(table[:, mask], axis=1) for mask in masks]
    return numpy.column_stack([table, *node_columns])


def _read_choices(saved: dict[str, Any], tags: Tags) -> Choices:
    """Read the `Choices` that `MinCost.save` returned. Their keys are older than the names of the
    fields: "answers" has the labels, "table" the costs.

    RAISES (ValueError): If the choices don't fit these tags.
    """
    labels_and_nodes = tuple(saved["answers"])
    covers = numpy.asarray(saved["covers"], dtype=bool)
    costs = numpy.asarray(saved["table"], dtype="float64")
    covers_shape = (len(labels_and_nodes), len(tags.labels))
    # Costs have a row for each tag of the chain, and a column for each tag that can be predicted.
    predictable_tags = Tags(labels_and_nodes, tags.scheme.name)
    costs_shape = (len(tags), len(predictable_tags))
    fits_tags = covers.shape == covers_shape and costs.shape == costs_shape
    if not (fits_tags and numpy.isfinite(costs).all()):
        raise ValueError(
            "spacy_costner.MinCostDecoding: saved choices: expected finite arrays of "
            f"{(covers_shape, costs_shape)}, got {covers.shape}, {costs.shape}"
        )
    return Choices(labels_and_nodes, covers, costs)


def find_inner_nodes(tree: Tree, labels: Sequence[str]) -> dict[str, list[str]]:
    """Find the nodes that can be predicted instead of a label: each node that is the lowest common
    ancestor of two labels, and not a label itself. (Other nodes above labels are not needed: they
    have the same labels below them as one of these nodes, or only one label.) Returns the labels
    below each node, in the order of the nodes in the tree.

    RAISES (ValueError): If the file of the tree can't be read, or a label is not in the tree.
    """
    # The lineage of a label is the list of nodes from the top of the tree down to it.
    lineages = {label: tree.lineage(label) for label in labels}
    common_ancestors: set[str] = set()
    for lineage, other_lineage in combinations(lineages.values(), 2):
        shared_nodes = [node for node, other in zip(lineage, other_lineage) if node == other]
        if shared_nodes:
            lowest_common_ancestor = shared_nodes[-1]
            common_ancestors.add(lowest_common_ancestor)

    labels_below: dict[str, list[str]] = {}
    for node in tree.lineages:
        if node in common_ancestors and node not in lineages:
            labels_below[node] = [label for label in labels if node in lineages[label]]
    return labels_below
