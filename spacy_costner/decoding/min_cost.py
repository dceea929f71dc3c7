"""Minimum-expected-cost decoding, optionally with inner nodes of a label tree.

With a tree, a node above several labels can be predicted instead of a label, e.g. "person" above
"doctor" and "patient". Like labels, nodes have tags: B-person, I-person, and so on.

In shapes, N is the number of tokens, K the number of chain tags, and A the number of tags that can
be predicted: the K chain tags, followed by the tags of nodes.
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
"""The maximum difference between tied expected costs of a token, relative to the largest cost."""

LEAST_PROB_IN_TIE = 1e-30
"""The minimum probability of a tag when breaking ties, so that its logarithm is finite."""


def make_min_cost(*, cost: Cost, tree: TreeSource | None = None) -> Decoding:
    """Create a minimum-expected-cost decoding. See `MinCost`.

        [components.ner.decoding]
        @misc = "spacy_costner.MinCostDecoding.v1"
        tree = "assets/tree.json"

        [components.ner.decoding.cost]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

    cost (Cost): The cost of each mistake.
    tree (TreeSource | None): A label tree whose inner nodes can also be predicted. See
        `find_inner_nodes`. If the model can't distinguish the labels below a node, the node has a
        lower expected cost than the labels. The cost has to be defined for the nodes. If None, only
        labels are predicted.
    RAISES (ValueError): If a config block is not a tree. Files are checked when they are read.
    """
    label_tree: Tree | None = None
    if tree is not None:
        label_tree = make_tree(tree, where="spacy_costner.MinCostDecoding: tree")
    min_cost = MinCost(cost, label_tree)
    # `choices` raises an error if the labels are not compatible with the cost or the tree.
    return Decoding(
        decode=min_cost, check=min_cost.choices, tables=min_cost.save, restore=min_cost.restore
    )


class Choices(NamedTuple):
    """The labels that can be predicted: the labels of the chain, and nodes above them.

    labels (tuple[str, ...]): The labels of the chain, followed by the nodes.
    covers (Array2d): True for the chain labels covered by each label or node. A label covers
        itself. Shape: (labels and nodes, labels of the chain)
    costs (CostTable): The cost of each mistake, [gold tag, predicted tag]. Shape: (K, A)
    """

    labels: tuple[str, ...]
    covers: Array2d
    costs: CostTable


class MinCost:
    """Exact decoding of the path a with the lowest expected cost among all paths that the tagging
    scheme allows.

        argmin_a sum_t sum_k p(y_t = k) cost[k, a_t]

    Ties are broken in favor of paths with fewer nodes, then of paths with a higher
    sum_t log p(y_t = a_t).
    Two tags of a token are tied if their expected costs, including the best continuations, differ
    by at most 1e-6 of the largest cost.

    cost (Cost): The cost of each mistake.
    tree (Tree | None): The label tree whose inner nodes can be predicted.
    """

    def __init__(self, cost: Cost, tree: Tree | None) -> None:
        self.cost = cost
        self.tree = tree
        self._choices: dict[tuple[str, ...], Choices] = {}
        self._saved: dict[str, Any] = {}

    def __call__(self, posterior: Posterior, settings: DecodingSettings) -> DecodedSpans:
        """Decode a batch. `settings` is not used."""
        choices = self.choices(posterior.tags.collapsed)
        tags = Tags(choices.labels, posterior.tags.scheme.name)
        path, scores = self._choose_path(posterior)
        entities = tags.decode(path, scores.lengths)
        # A predicted node covers the labels below it.
        return DecodedSpans(entities, labels=choices.labels, covers=choices.covers)

    def expected_costs(self, posterior: Posterior) -> Floats1d:
        """Compute the expected cost of the predicted tag a_t of each token. Shape: (N,)

        sum_k p(y_t = k) cost[k, a_t]
        """
        path, scores = self._choose_path(posterior)
        # The score of a tag is its negative expected cost. Shape of `emissions`: (N, A)
        return -scores.emissions[numpy.arange(len(path)), path]

    def _choose_path(self, posterior: Posterior) -> tuple[Ints1d, Potentials]:
        """Find the path with the lowest expected cost. Return the predicted tags and the scores of
        all A tags, i.e. their negative expected costs, s(a) = - sum_t E_p[cost[y_t, a_t]], or minus
        infinity for tags that are not allowed. Shapes: (N,), (N, A)"""
        chain_tags = posterior.tags.collapsed
        choices = self.choices(chain_tags)
        tags = Tags(choices.labels, chain_tags.scheme.name)
        masks = node_masks(choices, tags, chain_tags)
        lengths = posterior.potentials.lengths

        # Use float64, because costs are summed over entire paths and compared with a relative
        # tolerance of 1e-6.
        marginals = posterior.marginals.astype("float64")  # (N, K)
        expected_costs = marginals @ choices.costs  # (N, A)
        unconstrained = Potentials(
            emissions=-expected_costs,
            transitions=numpy.zeros((len(tags), len(tags))),
            start=numpy.zeros(len(tags)),
            end=numpy.zeros(len(tags)),
            lengths=lengths,
        )
        # The tag of a node is possible if any tag it represents is possible.
        is_possible = posterior.tags.collapse(numpy.isfinite(posterior.potentials.emissions))
        is_allowed = add_node_columns(is_possible, masks, numpy.any)
        scores = chain.constrain(unconstrained, tags.constraints._replace(emissions=is_allowed))

        tolerance = TIE_TOLERANCE * float(choices.costs.max(initial=0.0))
        log_probs = tie_log_probs(marginals, masks, lengths)
        return chain.best_of_tied(scores, log_probs, tolerance), scores

    def save(self, tags: Tags) -> dict[str, Any]:
        """Convert the choices for the chain tags to JSON, to save them with the pipeline. "of" and
        "chain" identify the cost, the tree and the labels. See `_read_choices`."""
        choices = self.choices(tags)
        return {
            "of": self._origin,
            "chain": list(tags.labels),
            "answers": list(choices.labels),
            "covers": choices.covers.tolist(),
            "table": choices.costs.tolist(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the choices returned by `save`. They are used if the cost or tree file is
        missing."""
        self._saved = saved

    @property
    def _origin(self) -> str:
        """The config of the cost and the tree as a string."""
        return json.dumps(resolved_as_json((self.cost, self.tree)))

    def choices(self, tags: Tags, settings: DecodingSettings | None = None) -> Choices:
        """Return the choices for the chain tags. They are cached for each tag set.

        tags (Tags): The tags, with a single O.
        settings (DecodingSettings | None): Not used. Required by the signature of `Decoding.check`.
        RETURNS (Choices): The choices.
        RAISES (ValueError): If a label has no cost or is not in the tree.
        """
        if tags.names in self._choices:
            return self._choices[tags.names]
        try:
            choices = self._make_choices(tags)
        except ValueError:
            # The file that defines the cost or the tree may be missing. Use the saved choices if
            # they were created from the same cost, tree and labels.
            saved = self._saved
            is_of_this_config = saved.get("of") == self._origin
            has_these_labels = saved.get("chain") == list(tags.labels)
            if not is_of_this_config or not has_these_labels:
                raise
            choices = _read_choices(saved, tags)
        self._choices[tags.names] = choices
        return choices

    def _make_choices(self, tags: Tags) -> Choices:
        """Create the choices from the cost and the tree."""
        labels_below_node: dict[str, list[str]] = {}
        if self.tree is not None:
            labels_below_node = find_inner_nodes(self.tree, tags.labels)
        labels_and_nodes = (*tags.labels, *labels_below_node)
        # A label covers itself.
        covers = numpy.eye(len(labels_and_nodes), len(tags.labels), dtype=bool)
        for node, labels_below in labels_below_node.items():
            for label in labels_below:
                covers[labels_and_nodes.index(node), tags.labels.index(label)] = True
        # Nodes are never gold, so only use the rows of the chain tags, which come first.
        costs = self.cost(Tags(labels_and_nodes, tags.scheme.name))[: len(tags)]
        return Choices(labels_and_nodes, covers, costs.astype("float64"))


def node_masks(choices: Choices, tags: Tags, chain_tags: Tags) -> list[Array1d]:
    """Find the chain tags that each node tag represents. They have the same prefix and a label
    below the node, e.g. B-person represents B-doctor and B-patient.

    choices (Choices): The labels and nodes that can be predicted.
    tags (Tags): All tags that can be predicted, with the node tags last.
    chain_tags (Tags): The chain tags.
    RETURNS (list[Array1d]): A mask of the chain tags for each node tag. Shapes: (K,)
    """
    masks: list[Array1d] = []
    for tag in range(len(chain_tags), len(tags)):
        has_prefix = chain_tags.having([tags.prefix_of[tag]])
        node = tags.label_of[tag]
        is_label_below = choices.covers[node]  # (labels of the chain,)
        # For O, the label index -1 selects the last label, but O doesn't have the prefix.
        masks.append(has_prefix & is_label_below[chain_tags.label_of])
    return masks


def tie_log_probs(marginals: Floats2d, masks: Sequence[Array1d], lengths: Ints1d) -> Floats2d:
    """Compute the scores for breaking ties, where the path with the highest total score wins. The
    scores are the log-probabilities of tags. Node tags get a penalty that outweighs all chain tags
    of the longest sequence, so the path with the fewest nodes wins. See `node_masks` for the masks.
    Shapes: (N, K), (B,) to (N, A)"""
    # The probability of a node tag is the sum over the tags it represents.
    probs = add_node_columns(marginals, masks, numpy.sum)
    log_probs = numpy.log(numpy.maximum(probs, LEAST_PROB_IN_TIE))
    # Chain tags have a score of at least `lowest`, so a path of chain tags has a score of at least
    # `lowest` times its length. The columns of the node tags follow the columns of the chain tags.
    lowest = numpy.log(LEAST_PROB_IN_TIE)
    longest_length = int(lengths.max(initial=0))
    n_chain_tags = marginals.shape[1]
    log_probs[:, n_chain_tags:] += lowest * (longest_length + 1)
    return log_probs


def add_node_columns(
    table: Array2d, masks: Sequence[Array1d], reduce: Callable[..., Array1d]
) -> Array2d:
    """Append columns for the node tags to a table with one column per chain tag. `reduce`, e.g.
    `numpy.sum`, combines the columns of the tags that a node tag represents. See `node_masks`.
    Shapes: (N, K) to (N, A)"""
    node_columns = [reduce(table[:, mask], axis=1) for mask in masks]
    return numpy.column_stack([table, *node_columns])


def _read_choices(saved: dict[str, Any], tags: Tags) -> Choices:
    """Read the `Choices` returned by `MinCost.save`. For compatibility with saved pipelines, some
    keys differ from the field names: "answers" contains the labels and "table" the costs.

    RAISES (ValueError): If the choices are not compatible with the tags.
    """
    labels_and_nodes = tuple(saved["answers"])
    covers = numpy.asarray(saved["covers"], dtype=bool)
    costs = numpy.asarray(saved["table"], dtype="float64")
    covers_shape = (len(labels_and_nodes), len(tags.labels))
    # The costs have one row per chain tag and one column per tag that can be predicted.
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
    """Find the inner nodes that can be predicted instead of a label: all nodes that are the lowest
    common ancestor of two labels and are not labels themselves. (Any other node above labels is
    above the same labels as one of these nodes, or above a single label.) Return the labels below
    each node, in the order of the nodes in the tree.

    RAISES (ValueError): If the tree can't be read or a label is not in the tree.
    """
    # The lineage of a label consists of the nodes from the top of the tree to the label.
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
