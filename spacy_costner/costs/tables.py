"""Costs: tables that say what each mistake costs, [gold tag, predicted tag], with 0 on the
diagonal.

A factory, such as `make_matrix_cost`, is called when the config is loaded. It returns a `Cost`: a
function that makes the cost table of a tag set, and is called when the labels are known. Only then
are files read that the config names, so that a pipeline loads without them.

All costs but Hamming and sums make a table over labels first, in which O comes last, and expand it
to tags. The diagonal of such a table has the cost of a wrong boundary: the correct label with a
wrong prefix. In shapes, K is the number of tags.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy
from confection import SimpleFrozenDict
from thinc.types import Floats2d

from ..tags import OUTSIDE
from ..types import Cost, CostTable, TagSet
from ..validation import check_config_names, check_cost
from .cost_matrix import Matrix, MatrixSource, make_matrix
from .label_tree import Tree, TreeSource, make_tree

HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}
"""The block of the default cost."""

EMPTY_BLOCK: dict[str, Any] = SimpleFrozenDict()
"""The default of an optional block of the config. It is frozen, so that it can't be changed by
mistake."""


def make_hamming_cost() -> Cost:
    """Build the Hamming cost: see `hamming_cost`."""
    return hamming_cost


def hamming_cost(tags: TagSet) -> CostTable:
    """Each wrong tag costs 1.

    cost[i, j] = 1 if i != j else 0
    """
    return 1.0 - numpy.eye(len(tags), dtype="float32")


def make_zero_one_cost() -> Cost:
    """Build the 0/1 cost: see `zero_one_cost`."""
    return zero_one_cost


def zero_one_cost(tags: TagSet) -> CostTable:
    """Each wrong label costs 1, where O counts as a label. A wrong boundary costs 0.

        cost[i, j] = 1 if label(i) != label(j) else 0

    Higashiyama et al., eq 12.
    """
    n_labels_and_o = len(tags.labels) + 1
    return _expand_to_tags(1.0 - numpy.eye(n_labels_and_o), tags)


def make_hierarchical_cost(*, tree: TreeSource) -> Cost:
    """Build the hierarchical cost: see `hierarchical_cost`.

    tree (TreeSource): The label tree: a block of the config, which is saved with the pipeline, or
        the path of a JSON or YAML file, which is not.
    RAISES (ValueError): If the block is not a tree: see `make_tree`.
    """
    where = "spacy_costner.HierarchicalCost: tree"
    return partial(hierarchical_cost, tree=make_tree(tree, where))


def hierarchical_cost(tags: TagSet, *, tree: Tree) -> CostTable:
    """A wrong label costs its distance from the gold label in the label tree. A miss and a false
    alarm cost one more than the largest distance. A wrong boundary costs 0.

        cost[i, j] = d(label(i), label(j))             between entities
        cost[i, j] = M = max_{e, e'} d(e, e') + 1      between an entity and O

    d is the number of edges between two nodes.

    RAISES (ValueError): If a label is not in the label tree, or its file can't be read.

    Higashiyama et al., eq 9 and 10.
    """
    distances = tree.distances(tags.labels)
    cost_with_o = distances.max(initial=0) + 1
    # Append a row and a column for O.
    table = numpy.pad(distances, (0, 1), constant_values=cost_with_o)
    table[-1, -1] = 0
    return _expand_to_tags(table, tags)


MISTAKE_KINDS = ("false_alarm", "miss", "wrong_label", "wrong_boundary")
"""The kinds of mistakes that a `PrecisionRecallCost` has a cost for."""


def make_precision_recall_cost(
    *,
    false_alarm: float = 1.0,
    miss: float = 1.0,
    wrong_label: float = 1.0,
    wrong_boundary: float = 1.0,
    labels: dict[str, dict[str, float]] = EMPTY_BLOCK,
) -> Cost:
    """Build the cost that trades precision against recall: see `precision_recall_cost`. In a
    config, where a missed drug costs more than other misses:

        [components.ner.loss.cost]
        @misc = "spacy_costner.PrecisionRecallCost.v1"
        miss = 2.0

        [components.ner.loss.cost.labels]

        [components.ner.loss.cost.labels.drug]
        miss = 5.0

    false_alarm (float): The cost of an entity where gold is O.
    miss (float): The cost of O where gold is an entity.
    wrong_label (float): The cost of an entity with a label other than gold.
    wrong_boundary (float): The cost of the correct label with another prefix.
    labels (dict[str, dict[str, float]]): The same settings for single labels. A false alarm has the
        cost of the predicted label, other mistakes have the cost of the gold label.
    RAISES (ValueError): If a setting is unknown, negative, not finite or too large for float32, or
        a config can't have a label as a name.
    """
    where = "spacy_costner.PrecisionRecallCost"
    overall = dict(zip(MISTAKE_KINDS, (false_alarm, miss, wrong_label, wrong_boundary)))
    _check_kinds(overall, f"{where}:")
    check_config_names(labels, f"{where}: labels")
    per_label: dict[str, tuple[float, ...]] = {}
    for label, costs in labels.items():
        _check_kinds(costs, f"{where}: labels.{label}:")
        # If a label has no cost of a kind, the overall cost counts. Kinds are in the order of
        # `MISTAKE_KINDS`.
        costs_of_label = {**overall, **costs}
        per_label[label] = tuple(costs_of_label.values())
    return partial(precision_recall_cost, overall=tuple(overall.values()), per_label=per_label)


def _check_kinds(costs: Mapping[str, float], where: str) -> None:
    """Check the cost of each kind of mistake, keyed by the kind. `where` is the beginning of error
    messages.

    RAISES (ValueError): If a name is not in `MISTAKE_KINDS`, or a cost is wrong: see `check_cost`.
    """
    for kind, cost in costs.items():
        if kind not in MISTAKE_KINDS:
            raise ValueError(f"{where} expected one of {', '.join(MISTAKE_KINDS)}, got {kind!r}")
        check_cost(cost, f"{where} {kind}")


def precision_recall_cost(
    tags: TagSet, *, overall: Sequence[float], per_label: Mapping[str, Sequence[float]]
) -> CostTable:
    """Each kind of mistake has its cost, which may depend on the label x. The costs of the kinds
    are in the order of `MISTAKE_KINDS`: `overall` for all labels, `per_label` for single labels.

        cost[O, x] = false_alarm(x)       cost[x, x'] = wrong_label(x)
        cost[x, O] = miss(x)              cost[B-x, I-x] = wrong_boundary(x)

    RAISES (ValueError): If there are costs of a label that the tag set doesn't have.
    """
    unknown_labels = sorted(set(per_label) - set(tags.labels))
    if unknown_labels:
        where = "spacy_costner.PrecisionRecallCost: labels"
        raise ValueError(f"{where}: expected one of {tags.labels}, got {unknown_labels[0]!r}")
    n_labels = len(tags.labels)
    costs_by_label = [per_label.get(label, overall) for label in tags.labels]
    # `reshape` makes a table with columns even if the tag set has no labels.
    costs_by_kind = numpy.reshape(costs_by_label, (n_labels, len(MISTAKE_KINDS))).T
    # For each kind the costs of all labels. Shapes: (labels,)
    false_alarm, miss, wrong_label, wrong_boundary = costs_by_kind
    # [gold, predicted], with the labels first and O last.
    outside = n_labels  # the row and the column of O
    table = numpy.zeros((n_labels + 1, n_labels + 1))
    table[:outside, :outside] = wrong_label[:, None]
    table[outside, :outside] = false_alarm
    table[:outside, outside] = miss
    numpy.fill_diagonal(table[:outside, :outside], wrong_boundary)
    return _expand_to_tags(table, tags)


def make_matrix_cost(*, matrix: MatrixSource, wrong_boundary: float = 0.0) -> Cost:
    """Build the cost of a matrix that the user gives: see `matrix_cost`.

    matrix (MatrixSource): The cost matrix: a block of the config, `matrix.<gold>.<predicted>`,
        which is saved with the pipeline, or the path of a CSV file, which is not. The first row
        of the file has the predicted labels, the first cell of each other row the gold label. O
        is "O". The diagonal is 0 and can be omitted.
    wrong_boundary (float): The cost of the correct label with another prefix.
    RAISES (ValueError): If a cost is negative, not finite or too large for float32, or a block has
        a cost other than 0 on the diagonal, or a label that a config can't have as a name.
    """
    where = "spacy_costner.MatrixCost"
    wrong_boundary = check_cost(wrong_boundary, f"{where}: wrong_boundary")
    checked_matrix = make_matrix(matrix, f"{where}: matrix")
    return partial(matrix_cost, matrix=checked_matrix, wrong_boundary=wrong_boundary)


def matrix_cost(tags: TagSet, *, matrix: Matrix, wrong_boundary: float) -> CostTable:
    """Each mistake costs what a matrix of the user says. A correct label with a wrong prefix is a
    wrong boundary. See `make_matrix_cost` for the arguments.

        cost[i, j] = matrix[label(i)][label(j)]        labels differ
        cost[B-x, I-x] = wrong_boundary

    RAISES (ValueError): If the matrix doesn't have the cost of two labels, or its file can't be
        read or has a wrong cost.
    """
    labels = [*tags.labels, OUTSIDE]
    rows = []
    for gold in labels:
        rows.append([matrix.cost(gold, predicted) for predicted in labels])
    table = numpy.asarray(rows)
    # The diagonal has correct labels with another prefix. `_expand_to_tags` sets correct tags to 0.
    numpy.fill_diagonal(table, wrong_boundary)
    return _expand_to_tags(table, tags)


def make_sum_cost(*, costs: dict[str, Any], weights: dict[str, float] = EMPTY_BLOCK) -> Cost:
    """Build a sum of costs: see `weighted_sum`. In a config:

        [components.ner.loss.cost]
        @misc = "spacy_costner.SumCost.v1"
        weights = {"tree": 0.5}

        [components.ner.loss.cost.costs]

        [components.ner.loss.cost.costs.tree]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

        [components.ner.loss.cost.costs.boundaries]
        @misc = "spacy_costner.HammingCost.v1"

    costs (dict[str, Cost]): The costs, a block for each, under names of your choice. (The type is
        Any, as confection accepts no blocks as values of a dict[str, Cost].)
    weights (dict[str, float]): The weights of costs by name, 0 or more. A cost without one has the
        weight 1.
    RAISES (ValueError): If there is no cost, if a value is not a cost, if a weight is negative, not
        finite or too large for float32, or if it has the name of no cost.
    """
    where = "spacy_costner.SumCost"
    if not costs:
        raise ValueError(f"{where}: costs: expected at least one cost, got none")
    for name, cost in costs.items():
        if not callable(cost):
            raise ValueError(f"{where}: costs.{name}: expected a cost, got {cost!r}")
    for name, weight in weights.items():
        if name not in costs:
            raise ValueError(f"{where}: weights: expected one of {list(costs)}, got {name!r}")
        check_cost(weight, f"{where}: weights.{name}")
    weights_and_costs = [(weights.get(name, 1.0), cost) for name, cost in costs.items()]
    return partial(weighted_sum, terms=tuple(weights_and_costs))


def weighted_sum(tags: TagSet, *, terms: Sequence[tuple[float, Cost]]) -> CostTable:
    """Each mistake costs the weighted sum of several costs. `terms` has the weight of each cost,
    and the cost.

        cost[i, j] = sum_n w_n cost_n[i, j]

    RAISES (ValueError): If float32 can't hold a sum, or as one of the costs does.
    """
    # A sum that is too large becomes infinity. The check below reports it, so NumPy need not warn.
    with numpy.errstate(over="ignore"):
        table = sum(numpy.float32(weight) * cost(tags) for weight, cost in terms)
    largest_sum = float(table.max(initial=0))
    check_cost(largest_sum, "spacy_costner.SumCost: weights: largest sum")
    return table


def _expand_to_tags(table: Floats2d, tags: TagSet) -> CostTable:
    """Expand a table over labels and O, which comes last, to a table over tags. Two tags have the
    cost of their labels. Two tags of the same label, such as B-x and I-x, thus have the cost on the
    diagonal, the cost of a wrong boundary. Shape: (labels + 1, labels + 1) to (K, K)"""
    # The label of O is -1, which as an index is the last row and column.
    costs = table[numpy.ix_(tags.label_of, tags.label_of)].astype("float32")
    numpy.fill_diagonal(costs, 0)
    return costs
