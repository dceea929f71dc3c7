"""Count the entities in docs, and compute the scores for all thresholds and biases."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy
from spacy.scorer import PRFScore
from thinc.types import Ints1d

from ...costs.label_tree import Tree
from ...metrics import ScoreIntervals, bootstrap_intervals
from ...pipeline.scorers import EntityPairs, compare_entities, count_by_label
from ...tags import Entities
from ..calibration.tuning import TUNABLE, OperatingPoint, decode_with_each_value, find_point
from ..evaluation.predictions import DevPredictions

MIN_DOCS = 30
"""The minimum number of docs required to compute confidence intervals."""


class ScoreCounts(NamedTuple):
    """True positives, false positives and false negatives of entities.

    total (PRFScore): The counts of all entities.
    labels (dict[str, PRFScore]): The counts by label. The counts of an inner node of the label tree
        are the counts of all labels below it.
    levels (dict[str, PRFScore]): The counts by level of the label tree, from the top: "level 1",
        "level 2", and so on.
    """

    total: PRFScore
    labels: dict[str, PRFScore]
    levels: dict[str, PRFScore]


class ThresholdCounts(NamedTuple):
    """The entity counts if all entities with a probability above a threshold are predicted. The
    page's script relies on the order of the fields.

    threshold (float): The threshold.
    n_correct (int): The number of correct entities.
    n_spurious (int): The number of false positives.
    n_missing (int): The number of missed entities.
    """

    threshold: float
    n_correct: int
    n_spurious: int
    n_missing: int


def find_intervals(pairs_of_docs: EntityPairs, unit_of_doc: Ints1d) -> ScoreIntervals | None:
    """Compute confidence intervals of the scores by bootstrapping over docs.

    pairs_of_docs (EntityPairs): The annotated and predicted entities of each doc.
    unit_of_doc (Ints1d): The resampling unit of each doc. Copies of a doc share a unit: see
        `units_of_docs`. Shape: (docs,)
    RETURNS (ScoreIntervals | None): The intervals, or None if there are fewer units than
        `MIN_DOCS`.
    """
    n_units = len(set(unit_of_doc.tolist()))
    if n_units < MIN_DOCS:
        return None
    counts_of_units = numpy.zeros((n_units, 3))  # correct, wrong and missed entities
    for (gold, predicted), unit in zip(pairs_of_docs, unit_of_doc):
        counts = compare_entities(gold, predicted)
        counts_of_units[unit] += (counts.tp, counts.fp, counts.fn)
    return bootstrap_intervals(counts_of_units)


def find_curves(
    dev: DevPredictions,
) -> tuple[dict[str, list[OperatingPoint]], list[ThresholdCounts]]:
    """Score the predictions of a model for each threshold and each bias that `tune` would try.

    dev (DevPredictions): The predictions.
    RETURNS (tuple[dict[str, list[OperatingPoint]], list[ThresholdCounts]]): Precision and recall
        for each value, keyed by "threshold" and "bias", and the entity counts for each threshold.
    RAISES (ValueError): If there are no annotated entities to score. See `DevPredictions`.
    """
    curves: dict[str, list[OperatingPoint]] = {}
    thresholds: list[ThresholdCounts] = []
    for parameter in TUNABLE:
        points: list[OperatingPoint] = []
        # Each value that `tune` tries, and the predicted entities for this value
        for value, decoded in decode_with_each_value([dev], parameter):
            points.append(find_point(value, [dev], decoded))
            if parameter == "threshold":
                # `decoded` contains the entities for each set of predictions. `dev` is the only
                # set.
                (entities,) = decoded
                thresholds.append(count_at_threshold(value, dev, entities))
        curves[parameter] = points
    return curves, thresholds


def count_at_threshold(
    threshold: float, dev: DevPredictions, entities: Entities
) -> ThresholdCounts:
    """Count the correct, spurious and missing entities if `entities` are predicted at a
    threshold."""
    counts = count_in_predictions(dev, entities)
    return ThresholdCounts(threshold, counts.tp, counts.fp, counts.fn)


def count_in_predictions(dev: DevPredictions, entities: Entities) -> PRFScore:
    """Count the correct, spurious and missing entities if `entities` are predicted. They must count
    in `dev`.

    dev (DevPredictions): The docs with their annotated entities.
    entities (Entities): The predicted entities.
    RETURNS (PRFScore): The counts.
    """
    n_correct = int(dev.is_correct(entities).sum())
    n_predicted = len(entities.begin)
    return PRFScore(tp=n_correct, fp=n_predicted - n_correct, fn=dev.n_annotated - n_correct)


def find_annotated_labels(pairs_of_docs: EntityPairs) -> set[str]:
    """Collect the labels of the annotated entities.

    pairs_of_docs (EntityPairs): The annotated and predicted entities of each doc.
    RETURNS (set[str]): The labels.
    """
    annotated_labels: set[str] = set()
    for gold, _ in pairs_of_docs:
        for _, _, label in gold:
            annotated_labels.add(label)
    return annotated_labels


def count_entities(
    pairs_of_docs: EntityPairs, labels: Iterable[str], tree: Tree | None
) -> ScoreCounts:
    """Count the correct, spurious and missing entities in docs: in total, by label, and by level of
    the label tree.

    pairs_of_docs (EntityPairs): The gold and predicted entities of each doc.
    labels (Iterable[str]): The labels of the component.
    tree (Tree | None): The label tree of the config, if any.
    RETURNS (ScoreCounts): The counts.
    RAISES (ValueError): If a label isn't in the tree.
    """
    by_label = count_by_label(pairs_of_docs)
    total = sum(by_label.values(), PRFScore())
    if tree is None:
        return ScoreCounts(total, by_label, levels={})
    # Inner nodes of the tree are only predicted, never annotated. A predicted node is correct for
    # an entity with any label below it, so use the counts for its level.
    inner_nodes = by_label.keys() - find_annotated_labels(pairs_of_docs) - set(labels)
    levels: dict[str, PRFScore] = {}
    for level in range(1, tree.depth + 1):
        # Replace each label with its ancestor on this level.
        by_ancestor = count_by_label(pairs_of_docs, partial(tree.ancestor, level=level))
        levels[f"level {level}"] = sum(by_ancestor.values(), PRFScore())
        for node in inner_nodes:
            # The lineage of a node is the path from the root to the node.
            if len(tree.lineage(node)) == level:
                by_label[node] = by_ancestor[node]
    in_order_of_tree: dict[str, PRFScore] = {}
    for label in tree.lineages:
        if label in by_label:
            in_order_of_tree[label] = by_label[label]
    return ScoreCounts(total, in_order_of_tree, levels)


def find_setting(decoding: dict[str, Any], counts: PRFScore) -> tuple[str | None, OperatingPoint]:
    """Return the parameter of a decoding that can be changed by `tune`, and the current operating
    point of the component.

    decoding (dict[str, Any]): The settings of the decoding.
    counts (PRFScore): The entity counts with this decoding, as on the curves: see
        `count_in_predictions`.
    RETURNS (tuple[str | None, OperatingPoint]): The parameter, and its value with precision and
        recall. If the decoding has no such parameter, the parameter is None and the value is NaN.
    """
    precision = 1.0  # 1 if nothing is predicted, as in the curves
    if counts.tp + counts.fp > 0:
        precision = counts.precision
    for parameter in TUNABLE:
        if parameter in decoding:
            return parameter, OperatingPoint(decoding[parameter], precision, counts.recall)
    return None, OperatingPoint(math.nan, precision, counts.recall)
