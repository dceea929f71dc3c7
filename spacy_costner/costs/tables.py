"""What a mistake costs: tables over tags, [gold, predicted], 0 on the diagonal.

Each factory returns a `Cost`: a function that makes the table of a tag set. They are
built before the labels are known and are called when they are. A file that a config names
is read then, too: a pipeline loads without it.

All but one are tables over labels, with O last, where the tags of O (label -1) find it. The
diagonal of such a table says what the right label with a wrong prefix costs: a wrong boundary.
"""

from functools import partial
from typing import Any, Dict, Mapping, NamedTuple, Sequence, Tuple

import numpy
from confection import SimpleFrozenDict
from thinc.types import Floats2d

from ..tags import OUTSIDE
from ..types import Cost, CostTable, TagSet
from ..validation import check_cost, check_names
from .cost_matrix import Matrix, MatrixSource, make_matrix
from .label_tree import Tree, TreeSource, make_tree

NOTHING: Dict[str, Any] = SimpleFrozenDict()
"""A block of the config that may be left out."""


def make_hamming_cost() -> Cost:
    """Build the Hamming cost: see `hamming_cost`."""
    return hamming_cost


def hamming_cost(tags: TagSet) -> CostTable:
    """Every wrong tag costs 1.

        cost[i, j] = 1 if i != j else 0

    tags (TagSet): The tag set.
    RETURNS (CostTable): Shape: (K, K)
    """
    return 1.0 - numpy.eye(len(tags), dtype="float32")


def make_zero_one_cost() -> Cost:
    """Build the 0/1 cost: see `zero_one_cost`."""
    return zero_one_cost


def zero_one_cost(tags: TagSet) -> CostTable:
    """Every wrong label costs 1; a wrong boundary is free.

        cost[i, j] = 1 if label(i) != label(j) else 0

    tags (TagSet): The tag set.
    RETURNS (CostTable): Shape: (K, K)

    Higashiyama et al., eq 12; O is a label of its own.
    """
    return _over_tags(1.0 - numpy.eye(len(tags.labels) + 1), tags)


def make_hierarchical_cost(*, tree: TreeSource) -> Cost:
    """Build the hierarchical cost: see `hierarchical_cost`.

    tree (TreeSource): The tree of labels: a block of the config, which travels with the
        pipeline, or the path of a JSON or YAML file, which doesn't.
    RAISES (ValueError): If a block is not a tree.
    """
    tree_ = make_tree(tree, "spacy_costner.HierarchicalCost: tree")
    return partial(hierarchical_cost, tree=tree_)


def hierarchical_cost(tags: TagSet, *, tree: Tree) -> CostTable:
    """A wrong label costs its distance to gold in the tree; a miss and a false alarm cost
    one more than the longest distance; a wrong boundary is free.

        cost[i, j] = d(label(i), label(j))             between entities
        cost[i, j] = M = max_{e, e'} d(e, e') + 1      between an entity and O

    tags (TagSet): The tag set.
    tree (Tree): The tree; d is the number of edges between two nodes.
    RETURNS (CostTable): Shape: (K, K)
    RAISES (ValueError): If a label is not in the tree, or its file can't be read.

    Higashiyama et al., eq 9 and 10.
    """
    distances = tree.distances(tags.labels)
    farthest = distances.max(initial=0) + 1
    table = numpy.pad(distances, (0, 1), constant_values=farthest)
    table[-1, -1] = 0
    return _over_tags(table, tags)


class Weights(NamedTuple):
    """What each kind of mistake costs.

    false_alarm (float): Gold is O, the answer an entity; by the label of the answer.
    miss (float): Gold is an entity, the answer O; by the label of gold.
    wrong_label (float): Both are entities, of two labels; by the label of gold.
    wrong_boundary (float): The right label with another prefix.
    """

    false_alarm: float
    miss: float
    wrong_label: float
    wrong_boundary: float


def make_precision_recall_cost(
    *,
    false_alarm: float = 1.0,
    miss: float = 1.0,
    wrong_label: float = 1.0,
    wrong_boundary: float = 1.0,
    labels: Dict[str, Dict[str, float]] = NOTHING,
) -> Cost:
    """Build the cost that trades precision for recall: see `precision_recall_cost`.

        [components.ner.loss.cost]
        @misc = "spacy_costner.PrecisionRecallCost.v1"
        miss = 2.0

        [components.ner.loss.cost.labels]

        [components.ner.loss.cost.labels.drug]
        miss = 5.0

    false_alarm (float): Weight of an entity where gold is O.
    miss (float): Weight of O where gold is an entity.
    wrong_label (float): Weight of an entity of another label.
    wrong_boundary (float): Weight of the right label with another prefix.
    labels (Dict[str, Dict[str, float]]): The same names, for a label to which other
        weights apply.
    RAISES (ValueError): If a weight has another name than these, is negative or not finite.
    """
    where = "spacy_costner.PrecisionRecallCost"
    overall = _check_weights(Weights(false_alarm, miss, wrong_label, wrong_boundary), where)
    check_names(labels, f"{where}: labels")
    per_label = {}
    for label, own in labels.items():
        unknown = sorted(set(own) - set(Weights._fields))
        if unknown:
            expected = ", ".join(Weights._fields)
            raise ValueError(
                f"{where}: labels.{label}: expected any of {expected}, got {unknown[0]!r}"
            )
        per_label[label] = _check_weights(overall._replace(**own), f"{where}: labels.{label}")
    return partial(precision_recall_cost, overall=overall, per_label=per_label)


def _check_weights(weights: Weights, where: str) -> Weights:
    for name, weight in weights._asdict().items():
        check_cost(weight, f"{where}: {name}")
    return weights


def precision_recall_cost(
    tags: TagSet, *, overall: Weights, per_label: Mapping[str, Weights]
) -> CostTable:
    """Mistakes cost what their kind does, for the label concerned.

        cost[O, x] = false_alarm(x)       cost[x, x'] = wrong_label(x)
        cost[x, O] = miss(x)              cost[B-x, I-x] = wrong_boundary(x)

    tags (TagSet): The tag set.
    overall (Weights): What mistakes cost.
    per_label (Mapping[str, Weights]): What they cost for some labels.
    RETURNS (CostTable): Shape: (K, K)
    RAISES (ValueError): If there are weights of a label that the tag set doesn't have.
    """
    unknown = sorted(set(per_label) - set(tags.labels))
    if unknown:
        raise ValueError(
            f"spacy_costner.PrecisionRecallCost: labels: expected any of {tags.labels}, "
            f"got {unknown[0]!r}"
        )
    rows = [per_label.get(label, overall) for label in tags.labels]
    weights = Weights(*numpy.asarray(rows, dtype="float64").reshape(-1, len(Weights._fields)).T)
    n_labels = len(tags.labels)
    table = numpy.zeros((n_labels + 1, n_labels + 1))
    table[:-1] = numpy.asarray(weights.wrong_label)[:, None]
    table[-1, :-1] = weights.false_alarm
    table[:-1, -1] = weights.miss
    numpy.fill_diagonal(table[:-1, :-1], weights.wrong_boundary)
    return _over_tags(table, tags)


def make_matrix_cost(*, matrix: MatrixSource, wrong_boundary: float = 0.0) -> Cost:
    """Build the cost that the user writes down: see `matrix_cost`.

    matrix (MatrixSource): What it costs to answer one label for another. Either a block of
        the config, `matrix.<gold>.<predicted>`, which travels with the pipeline; or the
        path of a CSV file, which doesn't: its first row names the predicted labels, the
        first cell of each further row the gold one. O is "O". The diagonal is 0 and may be
        left out.
    wrong_boundary (float): Cost of the right label with another prefix.
    RAISES (ValueError): If a cost is negative or not finite, or not 0 on the diagonal.
    """
    where = "spacy_costner.MatrixCost"
    boundary = check_cost(wrong_boundary, f"{where}: wrong_boundary")
    matrix_ = make_matrix(matrix, f"{where}: matrix")
    return partial(matrix_cost, matrix=matrix_, wrong_boundary=boundary)


def matrix_cost(tags: TagSet, *, matrix: Matrix, wrong_boundary: float) -> CostTable:
    """Mistakes cost what the user says.

        cost[i, j] = matrix[label(i)][label(j)]        labels differ
        cost[B-x, I-x] = wrong_boundary

    tags (TagSet): The tag set.
    matrix (Matrix): Costs over labels and O.
    wrong_boundary (float): Cost of the right label with another prefix.
    RETURNS (CostTable): Shape: (K, K)
    RAISES (ValueError): If a label is not in the matrix, or its file can't be read or holds
        no costs.
    """
    labels = [*tags.labels, OUTSIDE]
    table = numpy.asarray(
        [[matrix.cost(gold, predicted) for predicted in labels] for gold in labels]
    )
    numpy.fill_diagonal(table, wrong_boundary)
    return _over_tags(table, tags)


def make_sum_cost(*, costs: Dict[str, Any], weights: Dict[str, float] = NOTHING) -> Cost:
    """Build a sum of costs: see `weighted_sum`.

        [components.ner.loss.cost]
        @misc = "spacy_costner.SumCost.v1"
        weights = {"tree": 0.5}

        [components.ner.loss.cost.costs]

        [components.ner.loss.cost.costs.tree]
        @misc = "spacy_costner.HierarchicalCost.v1"
        tree = "assets/tree.json"

        [components.ner.loss.cost.costs.boundaries]
        @misc = "spacy_costner.HammingCost.v1"

    costs (Dict[str, Cost]): The costs, under names of your choice: a block for each. (The
        signature says Any, as confection takes no blocks for the values of a Dict[str, Cost].)
    weights (Dict[str, float]): What each is multiplied by, 0 or more; 1 if left out.
    RAISES (ValueError): If there is no cost or a value is none, if there is a weight for no
        cost, or if one is negative or not finite.
    """
    where = "spacy_costner.SumCost"
    if not costs:
        raise ValueError(f"{where}: costs: expected at least one cost, found none")
    for name, cost in costs.items():
        if not callable(cost):
            raise ValueError(f"{where}: costs.{name}: expected a cost, got {cost!r}")
    for name, weight in weights.items():
        if name not in costs:
            raise ValueError(f"{where}: weights: expected any of {list(costs)}, got {name!r}")
        check_cost(weight, f"{where}: weights.{name}")
    terms = tuple((weights.get(name, 1.0), cost) for name, cost in costs.items())
    return partial(weighted_sum, terms=terms)


def weighted_sum(tags: TagSet, *, terms: Sequence[Tuple[float, Cost]]) -> CostTable:
    """Mistakes cost the sum of what they cost under several costs.

        cost[i, j] = sum_n w_n cost_n[i, j]

    tags (TagSet): The tag set.
    terms (Sequence[Tuple[float, Cost]]): Weights and costs, at least one.
    RETURNS (CostTable): Shape: (K, K)
    """
    return sum(numpy.float32(weight) * cost(tags) for weight, cost in terms)


def _over_tags(table: Floats2d, tags: TagSet) -> CostTable:
    """Write a table over labels out over tags.

    table (Floats2d): Costs over labels and, last, O; its diagonal is what a wrong boundary
        costs. Shape: (labels + 1, labels + 1)
    tags (TagSet): The tag set.
    RETURNS (CostTable): Shape: (K, K)
    """
    costs = table[numpy.ix_(tags.label_of, tags.label_of)].astype("float32")
    numpy.fill_diagonal(costs, 0)
    return costs
