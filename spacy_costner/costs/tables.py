"""Cost functions, which create tables with the cost of each mistake, [gold tag, predicted tag]. The
diagonal is 0.

A factory, e.g. `make_matrix_cost`, is called when the config is loaded. It returns a `Cost`, a
function that creates the cost table for a tag set. It is called once the labels are known. Files
referenced in the config are only read at this point, so a pipeline can be loaded without them.

All costs except Hamming and sums first create a table over labels, with O last, and then expand it
to tags. The diagonal of a label table contains the cost of a wrong boundary, i.e. the correct label
with a wrong prefix. In shapes, K is the number of tags.
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
"""The config block for the default cost."""

EMPTY_BLOCK: dict[str, Any] = SimpleFrozenDict()
"""The default for optional config blocks. It is frozen to prevent accidental changes."""


def make_hamming_cost() -> Cost:
    """Create the Hamming cost. See `hamming_cost`."""
    return hamming_cost


def hamming_cost(tags: TagSet) -> CostTable:
    """Compute the Hamming cost, where each wrong tag costs 1.

    cost[i, j] = 1 if i != j else 0
    """
    return 1.0 - numpy.eye(len(tags), dtype="float32")


def make_zero_one_cost() -> Cost:
    """Create the 0/1 cost. See `zero_one_cost`."""
    return zero_one_cost


def zero_one_cost(tags: TagSet) -> CostTable:
    """Compute the 0/1 cost, where each wrong label, including O, costs 1. A wrong boundary costs 0.

        cost[i, j] = 1 if label(i) != label(j) else 0

    Higashiyama et al., eq 12.
    """
    n_labels_and_o = len(tags.labels) + 1
    return _expand_to_tags(1.0 - numpy.eye(n_labels_and_o), tags)


def make_hierarchical_cost(*, tree: TreeSource) -> Cost:
    """Create the hierarchical cost. See `hierarchical_cost`.

    tree (TreeSource): The label tree: a config block, which is saved with the pipeline, or the path
        to a JSON or YAML file, which is not.
    RAISES (ValueError): If the block is not a tree. See `make_tree`.
    """
    where = "spacy_costner.HierarchicalCost: tree"
    return partial(hierarchical_cost, tree=make_tree(tree, where))


def hierarchical_cost(tags: TagSet, *, tree: Tree) -> CostTable:
    """Compute the hierarchical cost. The cost of a wrong label is its distance from the gold label
    in the label tree. The cost of a miss or a false alarm is the maximum distance plus 1. A wrong
    boundary costs 0.

        cost[i, j] = d(label(i), label(j))             between entities
        cost[i, j] = M = max_{e, e'} d(e, e') + 1      between an entity and O

    d is the number of edges between two nodes.

    RAISES (ValueError): If a label is not in the tree or the file can't be read.

    Higashiyama et al., eq 9 and 10.
    """
    distances = tree.distances(tags.labels)
    cost_with_o = distances.max(initial=0) + 1
    # Append a row and a column for O.
    table = numpy.pad(distances, (0, 1), constant_values=cost_with_o)
    table[-1, -1] = 0
    return _expand_to_tags(table, tags)


MISTAKE_KINDS = ("false_alarm", "miss", "wrong_label", "wrong_boundary")
"""The kinds of mistakes for which `PrecisionRecallCost` defines a cost."""


def make_precision_recall_cost(
    *,
    false_alarm: float = 1.0,
    miss: float = 1.0,
    wrong_label: float = 1.0,
    wrong_boundary: float = 1.0,
    labels: dict[str, dict[str, float]] = EMPTY_BLOCK,
) -> Cost:
    """Create a cost that trades off precision and recall. See `precision_recall_cost`. Example
    config that makes missed drugs more expensive than other misses:

        [components.ner.loss.cost]
        @misc = "spacy_costner.PrecisionRecallCost.v1"
        miss = 2.0

        [components.ner.loss.cost.labels]

        [components.ner.loss.cost.labels.drug]
        miss = 5.0

    false_alarm (float): The cost of predicting an entity for gold O.
    miss (float): The cost of predicting O for a gold entity.
    wrong_label (float): The cost of predicting an entity with a wrong label.
    wrong_boundary (float): The cost of predicting the correct label with a wrong prefix.
    labels (dict[str, dict[str, float]]): The same settings for individual labels. False alarms use
        the cost of the predicted label, all other mistakes the cost of the gold label.
    RAISES (ValueError): If a setting is unknown, negative, not finite or too large for float32, or
        if a label is not a valid name in a config.
    """
    where = "spacy_costner.PrecisionRecallCost"
    overall = dict(zip(MISTAKE_KINDS, (false_alarm, miss, wrong_label, wrong_boundary)))
    _check_kinds(overall, f"{where}:")
    check_config_names(labels, f"{where}: labels")
    per_label: dict[str, tuple[float, ...]] = {}
    for label, costs in labels.items():
        _check_kinds(costs, f"{where}: labels.{label}:")
        # Use the overall cost for kinds that are not set for the label. The order of the kinds is
        # the same as in `MISTAKE_KINDS`.
        costs_of_label = {**overall, **costs}
        per_label[label] = tuple(costs_of_label.values())
    return partial(precision_recall_cost, overall=tuple(overall.values()), per_label=per_label)


def _check_kinds(costs: Mapping[str, float], where: str) -> None:
    """Check the cost of each kind of mistake, keyed by kind. Error messages start with `where`.

    RAISES (ValueError): If a kind is not in `MISTAKE_KINDS` or a cost is invalid. See `check_cost`.
    """
    for kind, cost in costs.items():
        if kind not in MISTAKE_KINDS:
            raise ValueError(f"{where} expected one of {', '.join(MISTAKE_KINDS)}, got {kind!r}")
        check_cost(cost, f"{where} {kind}")


def precision_recall_cost(
    tags: TagSet, *, overall: Sequence[float], per_label: Mapping[str, Sequence[float]]
) -> CostTable:
    """Compute a cost for each kind of mistake, which may depend on the label x. The costs are in
    the order of `MISTAKE_KINDS`: `overall` for all labels, `per_label` for individual labels.

        cost[O, x] = false_alarm(x)       cost[x, x'] = wrong_label(x)
        cost[x, O] = miss(x)              cost[B-x, I-x] = wrong_boundary(x)

    RAISES (ValueError): If a label in `per_label` is not in the tag set.
    """
    unknown_labels = sorted(set(per_label) - set(tags.labels))
    if unknown_labels:
        where = "spacy_costner.PrecisionRecallCost: labels"
        raise ValueError(f"{where}: expected one of {tags.labels}, got {unknown_labels[0]!r}")
    n_labels = len(tags.labels)
    costs_by_label = [per_label.get(label, overall) for label in tags.labels]
    # Use `reshape` so that the table has columns even if there are no labels.
    costs_by_kind = numpy.reshape(costs_by_label, (n_labels, len(MISTAKE_KINDS))).T
    # The costs of all labels for each kind. Shapes: (labels,)
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
    """Create a cost from a user-defined matrix. See `matrix_cost`.

    matrix (MatrixSource): The cost matrix: a config block, `matrix.<gold>.<predicted>`, which is
        saved with the pipeline, or the path to a CSV file, which is not. The first row of the file
        contains the predicted labels, and the first cell of each other row the gold label. O is
        written as "O". The diagonal is 0 and can be omitted.
    wrong_boundary (float): The cost of predicting the correct label with a wrong prefix.
    RAISES (ValueError): If a cost is negative, not finite or too large for float32, or if the block
        contains a nonzero cost on the diagonal or a label that is not a valid name in a config.
    """
    where = "spacy_costner.MatrixCost"
    wrong_boundary = check_cost(wrong_boundary, f"{where}: wrong_boundary")
    checked_matrix = make_matrix(matrix, f"{where}: matrix")
    return partial(matrix_cost, matrix=checked_matrix, wrong_boundary=wrong_boundary)


def matrix_cost(tags: TagSet, *, matrix: Matrix, wrong_boundary: float) -> CostTable:
    """Compute the costs from a user-defined matrix. The correct label with a wrong prefix is a
    wrong boundary. See `make_matrix_cost` for the arguments.

        cost[i, j] = matrix[label(i)][label(j)]        labels differ
        cost[B-x, I-x] = wrong_boundary

    RAISES (ValueError): If a cost is missing from the matrix, or if its file can't be read or
        contains an invalid cost.
    """
    labels = [*tags.labels, OUTSIDE]
    rows = []
    for gold in labels:
        rows.append([matrix.cost(gold, predicted) for predicted in labels])
    table = numpy.asarray(rows)
    # The diagonal is for correct labels with a wrong prefix. `_expand_to_tags` sets the cost of
    # correct tags to 0.
    numpy.fill_diagonal(table, wrong_boundary)
    return _expand_to_tags(table, tags)


def make_sum_cost(*, costs: dict[str, Any], weights: dict[str, float] = EMPTY_BLOCK) -> Cost:
    """Create a weighted sum of costs. See `weighted_sum`. Example config:

        [components.ner.loss.cost]
        @misc = "spacy_costner.SumCost.v1"
        weights = {"tree": 0.5}

        [components.ner.loss.cost.costs]

        [components.ner.loss.cost.costs.tree]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

        [components.ner.loss.cost.costs.boundaries]
        @misc = "spacy_costner.HammingCost.v1"

    costs (dict[str, Cost]): The costs, as blocks with arbitrary names. (The type is Any because
        confection doesn't accept blocks as the values of a dict[str, Cost].)
    weights (dict[str, float]): The nonnegative weights of the costs by name. The default is 1.
    RAISES (ValueError): If there are no costs, a value is not a cost, a weight is negative, not
        finite or too large for float32, or a weight refers to an unknown cost.
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
    """Compute the weighted sum of several costs. `terms` contains (weight, cost) pairs.

        cost[i, j] = sum_n w_n cost_n[i, j]

    RAISES (ValueError): If a sum is too large for float32, or if a cost function raises one.
    """
    # Sums that are too large become infinity. The check below reports them, so suppress NumPy's
    # warning.
    with numpy.errstate(over="ignore"):
        table = sum(numpy.float32(weight) * cost(tags) for weight, cost in terms)
    largest_sum = float(table.max(initial=0))
    check_cost(largest_sum, "spacy_costner.SumCost: weights: largest sum")
    return table


def _expand_to_tags(table: Floats2d, tags: TagSet) -> CostTable:
    """Expand a table over labels, with O last, to a table over tags. The cost for two tags is the
    cost for their labels. Different tags of the same label, e.g. B-x and I-x, get the cost on the
    diagonal, i.e. the cost of a wrong boundary. Shape: (labels + 1, labels + 1) to (K, K)"""
    # The label index of O is -1, which selects the last row and column.
    costs = table[numpy.ix_(tags.label_of, tags.label_of)].astype("float32")
    numpy.fill_diagonal(costs, 0)
    return costs
