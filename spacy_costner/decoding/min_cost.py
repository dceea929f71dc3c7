"""Minimum-expected-cost decoding, with inner nodes of the label tree."""

import json
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy
from thinc.types import Array2d, Floats1d, Ints1d

from .. import chain
from ..costs.label_tree import Tree, TreeSource, make_tree
from ..tags import Tags
from ..types import Cost, CostTable, Potentials
from ..validation import describe
from .decoders import DecodedSpans, Decoding, Settings
from .posterior import Posterior

TIE = 1e-6
"""Tolerance of equal expected costs per token, as a share of the largest cost."""

LEAST_LIKELY = 1e-30


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
    where = "spacy_costner.MinCostDecoding: tree"
    min_cost = MinCost(cost, None if tree is None else make_tree(tree, where))
    return Decoding(min_cost, min_cost.choices, tables=min_cost.save, restore=min_cost.restore)


Choices = tuple[tuple[str, ...], Array2d, CostTable]
"""What can be predicted: the labels of the chain, then nodes above them; the labels of the chain
that each covers, shape (labels, labels of the chain); and the costs, [gold tag, predicted tag]."""


class MinCost:
    """Predicts the legal tags with the lowest expected cost, exactly.

        argmin_a sum_t sum_k p(y_t = k) cost[k, a_t]

    In a tie it predicts as few nodes in place of labels as possible, and then the most probable
    tags. A tie is: each tag in turn, token after token, has an expected cost at most 1e-6 of the
    largest cost above that of the best tag there, each with the best tags after it.
    """

    def __init__(self, cost: Cost, tree: Tree | None) -> None:
        self.cost = cost
        self.tree = tree
        self._choices: dict[tuple[str, ...], Choices] = {}
        self._saved: dict[str, Any] = {}

    def __call__(self, posterior: Posterior, settings: Settings) -> DecodedSpans:
        """Decode a batch."""
        labels, covers, _ = self.choices(posterior.tags.collapsed)
        path, scores = self._decide(posterior)
        answers = Tags(labels, posterior.tags.scheme.name)
        return DecodedSpans(answers.decode(path, scores.lengths), labels, covers)

    def expected_costs(self, posterior: Posterior) -> Floats1d:
        """The expected cost of the tag that is predicted for each token. Shape: (N,)

        sum_k p(y_t = k) cost[k, a_t]
        """
        path, scores = self._decide(posterior)
        return -scores.emissions[numpy.arange(len(path)), path]

    def _decide(self, posterior: Posterior) -> tuple[Ints1d, Potentials]:
        """The predicted tags, (N,), and the scores over them whose best path they are.

        s(a) = - sum_t E_p[cost[y_t, a_t]]
        """
        tags = posterior.tags.collapsed
        labels, covers, table = self.choices(tags)
        answers = Tags(labels, tags.scheme.name)
        n_tags, lengths = len(answers), posterior.potentials.lengths
        # Tags of the chain come first. A node's tag covers those with its prefix and a label below.
        nodes = zip(answers.prefix_of[len(tags) :], answers.label_of[len(tags) :])
        below = [tags.having([prefix]) & covers[label][tags.label_of] for prefix, label in nodes]

        def with_nodes(values: Array2d, join: Callable[..., Array2d]) -> Array2d:
            return numpy.column_stack([values, *(join(values[:, i], axis=1) for i in below)])

        marginals = posterior.marginals.astype("float64")
        possible = posterior.tags.collapse(numpy.isfinite(posterior.potentials.emissions))
        none = numpy.zeros((n_tags, n_tags))
        free = Potentials(-(marginals @ table), none, none[0], none[0], lengths)
        mask = with_nodes(possible, numpy.any)
        scores = chain.constrain(free, answers.constraints._replace(emissions=mask))
        # A node is less probable than all labels of a sequence together, so it wins no tie.
        likely = numpy.log(numpy.maximum(with_nodes(marginals, numpy.sum), LEAST_LIKELY))
        likely[:, len(tags) :] += numpy.log(LEAST_LIKELY) * (int(lengths.max(initial=0)) + 1)
        return chain.best_of_tied(scores, likely, TIE * float(table.max(initial=0.0))), scores

    def save(self, tags: Tags) -> dict[str, Any]:
        """The choices, to be saved with the pipeline, with the cost and the tree that they are made
        of."""
        labels, covers, table = self.choices(tags)
        arrays = {"covers": covers.tolist(), "table": table.tolist()}
        return {"of": self._origin, "chain": list(tags.labels), "answers": list(labels), **arrays}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what `save` returned. It is used if the cost or the tree can't be built because a
        file is missing."""
        self._saved = saved

    @property
    def _origin(self) -> str:
        """The cost and the tree as the config has them."""
        return json.dumps(describe((self.cost, self.tree)))

    def choices(self, tags: Tags, settings: Settings | None = None) -> Choices:
        """The choices for the tags of a chain, computed once per tag set; it has no settings.

        RAISES (ValueError): If a label has no cost or is not in the tree.
        """
        if tags.names in self._choices:
            return self._choices[tags.names]
        try:
            nodes = {} if self.tree is None else inner_nodes(self.tree, tags.labels)
            labels = (*tags.labels, *nodes)
            covers = numpy.eye(len(labels), len(tags.labels), dtype=bool)
            for row, below in zip(covers[len(tags.labels) :], nodes.values()):
                row[[tags.labels.index(label) for label in below]] = True
            table = self.cost(Tags(labels, tags.scheme.name))[: len(tags)]
            made = labels, covers, table.astype("float64")
        except ValueError:
            saved = self._saved
            of_another = saved.get("of", self._origin) != self._origin
            if of_another or saved.get("chain") != list(tags.labels):
                raise
            made = _read(saved, tags)
        self._choices[tags.names] = made
        return made


def _read(saved: dict[str, Any], tags: Tags) -> Choices:
    """What `MinCost.save` returned, checked."""
    labels = tuple(saved["answers"])
    covers = numpy.asarray(saved["covers"], dtype=bool)
    table = numpy.asarray(saved["table"], dtype="float64")
    shapes = (len(labels), len(tags.labels)), (len(tags), len(Tags(labels, tags.scheme.name)))
    if (covers.shape, table.shape) != shapes or not numpy.isfinite(table).all():
        expected = f"finite arrays of {shapes}, got {covers.shape}, {table.shape}"
        raise ValueError(f"spacy_costner.MinCostDecoding: saved choices: expected {expected}")
    return labels, covers, table


def inner_nodes(tree: Tree, labels: Sequence[str]) -> dict[str, list[str]]:
    """The nodes that are the lowest common ancestor of two labels, and not labels themselves, each
    with the labels below it, in the tree's order. Any other node is farther from all labels below
    it than one of these."""
    lineages = {label: tree.lineage(label) for label in labels}
    nearest = {
        [a for a, b in zip(one, other) if a == b][-1]
        for one, other in combinations(lineages.values(), 2)
        if one[0] == other[0]
    }
    inner = [node for node in tree.lineages if node in nearest and node not in lineages]
    return {node: [label for label in labels if node in lineages[label]] for node in inner}
