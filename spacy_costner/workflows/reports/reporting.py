"""Evaluate a pipeline on a test corpus: scores, curves, mistakes, and what they cost.

A mistake has two sides: annotated entities, and predicted entities that overlap them and are not
the same. One side may be empty. In this file an entity is (begin, end, label): its first token, the
one after its last, its label. `report` computes what the page shows; `cli/report.py` writes the
page.

`DevPredictions`, called `dev`, are docs with their annotated entities, and with the posterior of
the model for them, from which probabilities and predicted entities come.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import registry
from thinc.types import Floats2d, Ints1d

from ...costs.label_tree import Tree, make_tree
from ...costs.tables import hamming_cost
from ...metrics import ScoreIntervals, bootstrap_intervals
from ...metrics.shift import find_shift, in_random_order
from ...pipeline.annotations import Confidence, Prediction
from ...pipeline.component import CostSensitiveNER
from ...pipeline.scorers import (
    Entity,
    EntityPairs,
    TagPairs,
    compare_entities,
    compare_tags,
    cost_scores,
    count_by_label,
    entity_pairs,
    select_annotated,
)
from ...tags import OUTSIDE, Entities
from ...types import Cost
from ..calibration.observed_rates import Observed, observe
from ..calibration.tuning import TUNABLE, Point, decode_at_all, find_point
from ..components import get_component
from ..evaluation.predictions import DevPredictions, predict, predict_dev
from ..evaluation.recurrence import units_of_docs
from ..evaluation.valid_data import find_faults
from .explanation import TransitionWeights, transition_weights

LABEL = "wrong label"
BOUNDARY = "wrong boundary"
BOTH = "label and boundary"
MISSING = "missing entity"
SPURIOUS = "spurious entity"

KINDS = (MISSING, SPURIOUS, LABEL, BOUNDARY, BOTH)
"""The kinds of mistakes: see `kind_of`."""

MAX_TOKENS = 60
"""Around a mistake its sentence is shown, or a part of it if it has more tokens."""

MIN_TOKENS_AROUND = 10
"""So many tokens are shown around a mistake, even if the mistake alone has `MAX_TOKENS`."""

MAX_LABELS = 15
"""If there are more labels, only so many have a row of their own in a heat map."""

MISS_COSTS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""How many false alarms a miss may cost, as readers of the page can choose."""

MIN_DOCS = 30
"""Scores have intervals if there are at least so many docs."""

UNPREDICTABLE = (
    "annotated entities can't be predicted: they begin in one sentence or line and end in another "
    "(see sentence_boundaries)"
)
"""Follows the number of these entities on the page."""

CONFIDENCE = Confidence(spans_key="report")
"""Where the probabilities of predicted entities are written in the docs of the report."""


class Sides(NamedTuple):
    """The annotated and the predicted entities of a doc. The values are their probabilities, or
    None if these aren't known."""

    annotated: dict[Entity, float | None]
    predicted: dict[Entity, float | None]


class Mark(NamedTuple):
    """An entity that is marked in a text."""

    start: int  # the first character of the entity in the text
    end: int  # the character after its last one
    label: str
    state: str  # "correct", "error" (part of the shown mistake) or "other" (part of another one)
    prob: float | None  # the probability of the entity; None if it isn't known


class Mistake(NamedTuple):
    """A mistake as the page shows it."""

    doc: int  # the index of the doc in the corpus; docs without tokens don't count
    kind: str  # one of `KINDS`
    cost: float
    text: str  # the text around the mistake
    annotated: list[Mark]  # all annotated entities in the text
    predicted: list[Mark]  # all predicted entities in the text


class TotalsOfKind(NamedTuple):
    """How many mistakes are of a kind, and what they cost together."""

    n_mistakes: int
    cost: float


class Confusion(NamedTuple):
    """What it costs that one label is predicted in place of another, summed over tokens.

    labels (list[str]): The labels that have mistakes, then O.
    cost (Floats2d): The cost of each pair of labels, [gold, predicted]. The diagonal has the cost
        of wrong boundaries. Shape: (labels, labels)
    """

    labels: list[str]
    cost: Floats2d


class EntityCounts(NamedTuple):
    """True positives, false positives and false negatives of entities.

    total (PRFScore): Those of all entities.
    labels (dict[str, PRFScore]): Those of each label. For an inner node of the label tree, the
        entities of the labels below it count.
    levels (dict[str, PRFScore]): Those of each level of the label tree, "level 1" at the top.
    """

    total: PRFScore
    labels: dict[str, PRFScore]
    levels: dict[str, PRFScore]


class ThresholdCounts(NamedTuple):
    """The numbers of entities if those with a probability above a threshold are predicted. The
    script of the page relies on the order of these fields."""

    threshold: float
    n_correct: int
    n_spurious: int
    n_missing: int


class Report(NamedTuple):
    """The evaluation of a pipeline on a corpus.

    pipeline, version (str): The name and the version of the pipeline.
    facts (dict[str, str]): What the head of the page says of the corpus and the component.
    docs, tokens (int): The number of docs that have annotation, and of annotated tokens.
    total (PRFScore): True positives, false positives and false negatives of all entities.
    labels (dict[str, PRFScore]): Those of each label, or inner node of the label tree.
    levels (dict[str, PRFScore]): Those of each level of the label tree.
    intervals (ScoreIntervals | None): The intervals of the scores over docs. None if there are
        fewer than `MIN_DOCS`.
    scores (dict[str, Any]): The scores that need costs or probabilities: see
        `scorers.cost_scores`.
    curves (dict[str, list[Point]]): Precision and recall at each threshold and at each bias.
    thresholds (list[ThresholdCounts]): The numbers of entities at each threshold.
    parameter (str | None): The parameter of the decoding that `tune` can change: "threshold" or
        "bias". None: the decoding has neither.
    setting (Point): The value of this parameter now, with precision and recall. The value is NaN
        if there is no parameter.
    guarantee (list[Observed]): Promised and observed miss rates: see `observe`.
    promised (float | None): The miss rate that the pipeline promises. None: it promises none.
    shift (str): Whether the docs are like the calibration docs. Empty if there are none.
    cost (str): The registered name of the cost. Empty if the config has none; then each wrong tag
        costs 1.
    confusion (Confusion): What the confusion of labels costs.
    kinds (dict[str, TotalsOfKind]): The totals of the mistakes of each of `KINDS`.
    mistakes (list[Mistake]): The costliest mistakes. Of the same cost, those come first of which
        the model is most confident.
    transitions (TransitionWeights): The transitions of the chain.
    notes (list[str]): What may make the scores misleading.
    """

    pipeline: str
    version: str
    facts: dict[str, str]
    docs: int
    tokens: int
    total: PRFScore
    intervals: ScoreIntervals | None
    labels: dict[str, PRFScore]
    levels: dict[str, PRFScore]
    scores: dict[str, Any]
    curves: dict[str, list[Point]]
    thresholds: list[ThresholdCounts]
    setting: Point
    parameter: str | None
    guarantee: list[Observed]
    promised: float | None
    shift: str
    cost: str
    confusion: Confusion
    kinds: dict[str, TotalsOfKind]
    mistakes: list[Mistake]
    transitions: TransitionWeights
    notes: list[str]


def report(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    n_mistakes: int = 20,
    source: str = "",
    corpus: str = "",
) -> Report:
    """Evaluate a pipeline on a corpus.

    nlp (Language): The trained pipeline. It is not modified.
    examples (Iterable[Example]): The docs. They should be neither training docs nor docs used to
        tune or calibrate.
    name (str): Name of the component.
    n_mistakes (int): Number of mistakes to show, costliest first.
    source (str): The path of the pipeline, shown on the page.
    corpus (str): The path of the docs, shown on the page.
    RETURNS (Report): The results, of which the command makes a page.
    RAISES (ValueError): If there is no such component, no annotated entity, or a label that
        has no cost or is not in the label tree.
    """
    ner = get_component(nlp, name)
    examples = list(examples)
    component = nlp.config.interpolate()["components"][name]
    cost, tree, cost_name = find_cost(component)
    inner_nodes: Iterable[str] = ()
    if tree is not None:
        inner_nodes = tree.lineages  # the keys: all nodes of the tree, labels among them
    notes = find_faults(
        nlp,
        ner,
        examples,
        corpus or "the corpus",
        inner_nodes=inner_nodes,
        must_share=False,  # without a common label there is a report, too, which says so
    )
    dev = predict_dev(nlp, ner, examples)
    # It warns if sentences or tokens are others than in the docs that the component was tuned or
    # calibrated on.
    ner.compare_reading([eg.predicted for eg in dev.examples])
    # Before `predict` writes to the docs: see `DevPredictions.entropies`
    shift = shift_text(ner, dev)
    curves, thresholds = find_curves(dev)

    # Scores. `predict` writes the entities to the docs, as the component predicts them with its own
    # settings.
    prediction = predict(ner, [eg.predicted for eg in dev.examples], dev.posterior, CONFIDENCE)
    settings = {"labels": ner.labels, "scheme": ner.cfg["scheme"]}
    scores = cost_scores(cost, tree, dev.examples, **settings, confidence=asdict(CONFIDENCE))
    pairs_of_docs = entity_pairs(dev.examples)
    counts = count_entities(pairs_of_docs, ner.labels, tree)

    # Mistakes
    tag_pairs = compare_tags(dev.examples, **settings)
    cost_table = cost(tag_pairs.tags)
    sides_of_docs = find_sides(dev, tag_pairs, prediction)
    ranked = rank_mistakes(sides_of_docs, tag_pairs, cost_table)
    mistakes = [show_mistake(mistake, dev, sides_of_docs) for mistake in ranked[:n_mistakes]]

    # `entity_pairs` has these docs, in this order.
    annotated = select_annotated(dev.examples)
    unit_of_doc = units_of_docs([eg.reference for eg in annotated])
    n_docs = len(pairs_of_docs)
    n_tokens = int((tag_pairs.gold >= 0).sum())  # The tag is -1 where a token isn't annotated.
    n_entities = counts.total.tp + counts.total.fn
    facts = {
        "pipeline": source,
        "corpus": f"{corpus}: {n_docs:,} docs, {n_tokens:,} tokens, {n_entities:,} entities",
        "component": name,
        "model": component["model"]["@architectures"],
        "loss": component["loss"]["@losses"],
        "decoding": decoding_text(component["decoding"]["@misc"], ner.cfg["decoding"]),
        "temperature": temperature_text(ner.cfg["temperature"]),
        "cost": cost_name or "each wrong tag costs 1",
        **rare_facts(ner, dev, find_annotated_labels(pairs_of_docs)),
    }
    promise = ner.guarantee
    parameter_of_decoding, setting = find_setting(ner.cfg["decoding"], counts.total)
    return Report(
        pipeline=f"{nlp.meta['lang']}_{nlp.meta['name']}",
        version=nlp.meta["version"],
        facts=facts,
        docs=n_docs,
        tokens=n_tokens,
        total=counts.total,
        intervals=find_intervals(pairs_of_docs, unit_of_doc),
        labels=counts.labels,
        levels=counts.levels,
        scores=scores,
        curves=curves,
        thresholds=thresholds,
        setting=setting,
        parameter=parameter_of_decoding,
        guarantee=observe(nlp, name, examples),
        promised=None if promise is None else promise.miss,
        shift=shift,
        cost=cost_name,
        confusion=confusion_matrix(tag_pairs, cost_table, list(counts.labels)),
        kinds=count_kinds(ranked),
        mistakes=mistakes,
        transitions=transition_weights(ner.chain_tags, dev.posterior.scores),
        notes=notes,
    )


def find_intervals(pairs_of_docs: EntityPairs, unit_of_doc: Ints1d) -> ScoreIntervals | None:
    """The confidence intervals of the scores, by the bootstrap over docs: how much they would
    differ on other docs like these. None if there are too few docs to say that.

    pairs_of_docs (EntityPairs): The annotated and the predicted entities of each doc.
    unit_of_doc (Ints1d): The unit of each doc, as copies count as one doc: see `units_of_docs`.
        Shape: (docs,)
    """
    n_units = len(set(unit_of_doc.tolist()))
    if n_units < MIN_DOCS:
        return None
    counts_of_units = numpy.zeros((n_units, 3))  # correct, wrong and missed entities
    for (gold, predicted), unit in zip(pairs_of_docs, unit_of_doc):
        counts = compare_entities(gold, predicted)
        counts_of_units[unit] += (counts.tp, counts.fp, counts.fn)
    return bootstrap_intervals(counts_of_units)


def find_curves(dev: DevPredictions) -> tuple[dict[str, list[Point]], list[ThresholdCounts]]:
    """Score the predictions of a model with each threshold and each bias that `tune` would try.

    RETURNS (tuple[dict[str, list[Point]], list[ThresholdCounts]]): Precision and recall at each
        value, by "threshold" and "bias"; and the numbers of entities at each threshold.
    RAISES (ValueError): If no annotated entity counts in scores: see `DevPredictions`.
    """
    curves: dict[str, list[Point]] = {}
    thresholds: list[ThresholdCounts] = []
    for parameter in TUNABLE:
        points: list[Point] = []
        # Each value that `tune` tries, and the entities that are predicted with it
        for value, decoded in decode_at_all([dev], parameter):
            points.append(find_point(value, [dev], decoded))
            if parameter == "threshold":
                # `decoded` has the entities of each set of predictions. Here there is one: dev.
                (entities,) = decoded
                thresholds.append(count_at_threshold(value, dev, entities))
        curves[parameter] = points
    return curves, thresholds


def count_at_threshold(
    threshold: float, dev: DevPredictions, entities: Entities
) -> ThresholdCounts:
    """Count the correct, spurious and missing entities, if `entities` are those that are predicted
    at a threshold."""
    n_correct = int(dev.is_correct(entities).sum())
    n_spurious = len(entities.begin) - n_correct
    n_missing = len(dev.gold.begin) - n_correct
    return ThresholdCounts(threshold, n_correct, n_spurious, n_missing)


def rare_facts(
    ner: CostSensitiveNER, dev: DevPredictions, annotated_labels: Collection[str]
) -> dict[str, str]:
    """Collect the facts that only some reports have: that some entities can't be predicted, that a
    miss rate is promised, and that annotation and component have no label in common.

    ner (CostSensitiveNER): The component.
    dev (DevPredictions): The docs.
    annotated_labels (Collection[str]): The labels that their annotation has.
    RETURNS (dict[str, str]): The text of each fact by its name.
    """
    facts: dict[str, str] = {}
    # If docs are cut at sentences or lines, each piece is predicted by itself. So an entity with
    # tokens of two pieces can't be predicted.
    n_over_borders = int(dev.posterior.crosses_border(dev.gold).sum())
    if n_over_borders:
        facts["over borders"] = f"{n_over_borders:,} {UNPREDICTABLE}"
    promise = ner.guarantee
    if promise is not None and promise.miss is not None:
        facts["guaranteed miss rate"] = f"{promise.miss:g}"
    if not set(annotated_labels) & set(ner.labels):
        facts["labels"] = (
            f"no label in common: annotated are {', '.join(sorted(annotated_labels))}, "
            f"predicted are {', '.join(ner.labels)}"
        )
    return facts


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


def shift_text(ner: CostSensitiveNER, dev: DevPredictions) -> str:
    """Say whether docs are like the calibration docs. The text is empty if the component has no
    calibration docs."""
    calibration = ner.calibration_scores
    if calibration is None:
        return ""
    entropies = dev.entropies()
    # A doc has no score if all its tokens were annotated before the component ran.
    entropies = entropies[~numpy.isnan(entropies)]
    # The test assumes docs in random order, but a file may be sorted.
    scores = in_random_order(entropies.tolist())
    return find_shift(calibration.pool(), scores).verdict


def find_annotated_labels(pairs_of_docs: EntityPairs) -> set[str]:
    """The labels of annotated entities."""
    annotated_labels: set[str] = set()
    for gold, _ in pairs_of_docs:
        for _, _, label in gold:
            annotated_labels.add(label)
    return annotated_labels


def count_entities(
    pairs_of_docs: EntityPairs, labels: Iterable[str], tree: Tree | None
) -> EntityCounts:
    """Count the correct, spurious and missing entities of docs: all of them, and those by label and
    by level of the label tree.

    pairs_of_docs (EntityPairs): The gold and the predicted entities of each doc.
    labels (Iterable[str]): The labels of the component.
    tree (Tree | None): The label tree, if there is one.
    RAISES (ValueError): If the tree can't be read, or lacks a label.
    """
    by_label = count_by_label(pairs_of_docs)
    total = sum(by_label.values(), PRFScore())
    if tree is None:
        return EntityCounts(total, by_label, levels={})
    # An inner node of the tree is only predicted, never annotated. It is right for an entity with
    # any label below it, so its counts are those on its level of the tree.
    inner_nodes = by_label.keys() - find_annotated_labels(pairs_of_docs) - set(labels)
    levels: dict[str, PRFScore] = {}
    for level in range(1, tree.depth + 1):
        # On a level, each label counts as its ancestor there.
        by_ancestor = count_by_label(pairs_of_docs, partial(tree.ancestor, level=level))
        levels[f"level {level}"] = sum(by_ancestor.values(), PRFScore())
        for node in inner_nodes:
            # The lineage of a node is the path from the top of the tree to it.
            if len(tree.lineage(node)) == level:
                by_label[node] = by_ancestor[node]
    in_order_of_tree: dict[str, PRFScore] = {}
    for label in tree.lineages:
        if label in by_label:
            in_order_of_tree[label] = by_label[label]
    return EntityCounts(total, in_order_of_tree, levels)


def find_setting(decoding: dict[str, Any], total: PRFScore) -> tuple[str | None, Point]:
    """Find the parameter of a decoding that `tune` can change, and the present scores of the
    component as a point of its curve.

    decoding (dict[str, Any]): The settings of the decoding.
    total (PRFScore): The counts of the entities of the component.
    RETURNS (tuple[str | None, Point]): The parameter, and its value with precision and recall. If
        there is no such parameter, it is None and the value is NaN.
    """
    precision = 1.0  # As in the curves, it is 1 if nothing is predicted.
    if total.tp + total.fp > 0:
        precision = total.precision
    for parameter in TUNABLE:
        if parameter in decoding:
            return parameter, Point(decoding[parameter], precision, total.recall)
    return None, Point(math.nan, precision, total.recall)


def decoding_text(name: str, decoding: dict[str, Any]) -> str:
    """The registered name of a decoding, with its threshold or bias, and those of single labels."""
    words = [name]
    for parameter in TUNABLE:
        if parameter in decoding:
            words.append(f"{parameter} {decoding[parameter]:g}")
    for label, value in decoding.get("labels", {}).items():
        words.append(f"{label} {value:g}")
    return ", ".join(words)


def temperature_text(temperature: dict[str, Any]) -> str:
    """The temperature of a component as text."""
    overall = f"{temperature['overall']:.3f}"
    if temperature["labels"]:
        return f"{overall}, and one for each label"
    return overall


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


class RankedMistake(NamedTuple):
    """A mistake with its two sides. Mistakes are ordered by their cost and their confidence."""

    cost: float
    confidence: float  # how sure the model is: see `confidence_in`
    kind: str  # one of `KINDS`
    doc: int  # the index of the doc: see `Mistake`
    annotated: list[Entity]  # the annotated entities that are part of the mistake
    predicted: list[Entity]  # the predicted ones


def rank_mistakes(
    sides_of_docs: Sequence[Sides], pairs: TagPairs, cost_table: Floats2d
) -> list[RankedMistake]:
    """Find the mistakes in docs, and sort them. The costliest come first; of the same cost, those
    of which the model is most confident.

    sides_of_docs (Sequence[Sides]): The annotated and the predicted entities of each doc.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    cost_table (Floats2d): The cost of each pair of tags. Shape: (K, K)
    """
    # The tokens of all docs stand one after another. `split` divides their costs where each doc
    # begins, except the first.
    token_costs = pairs.look_up(cost_table)
    first_tokens = numpy.cumsum(pairs.lengths)[:-1]
    costs_of_docs = numpy.split(token_costs, first_tokens)
    ranked: list[RankedMistake] = []
    for doc_index, (sides, costs) in enumerate(zip(sides_of_docs, costs_of_docs)):
        for annotated, predicted in group_overlapping(*sides):
            if annotated == predicted:
                continue
            begin, end = extent_of((annotated, predicted))
            mistake = RankedMistake(
                cost=float(costs[begin:end].sum(dtype="float64")),
                confidence=confidence_in(annotated, predicted, sides),
                kind=kind_of(annotated, predicted),
                doc=doc_index,
                annotated=annotated,
                predicted=predicted,
            )
            ranked.append(mistake)
    ranked.sort(key=lambda mistake: (-mistake.cost, -mistake.confidence))
    return ranked


def confidence_in(annotated: Iterable[Entity], predicted: Sequence[Entity], sides: Sides) -> float:
    """Compute how sure the model is of a mistake. That is the highest probability of its predicted
    entities or, if it has none, one minus the highest probability of its annotated ones. An unknown
    probability counts as 0.

    annotated (Iterable[Entity]), predicted (Sequence[Entity]): The entities of the mistake.
    sides (Sides): All entities of the doc, with their probabilities.
    """
    highest_prob = 0.0
    if predicted:
        for entity in predicted:
            highest_prob = max(highest_prob, sides.predicted[entity] or 0.0)
        return highest_prob
    for entity in annotated:
        highest_prob = max(highest_prob, sides.annotated[entity] or 0.0)
    return 1 - highest_prob


def show_mistake(
    mistake: RankedMistake, dev: DevPredictions, sides_of_docs: Sequence[Sides]
) -> Mistake:
    """Add the text around a mistake, and all entities in this text. (`mistake` has only those that
    are part of the mistake.)"""
    doc = dev.examples[mistake.doc].predicted
    sides = sides_of_docs[mistake.doc]  # the annotated and the predicted entities of the doc
    text, annotated, predicted = excerpt(doc, sides, (mistake.annotated, mistake.predicted))
    return Mistake(mistake.doc, mistake.kind, mistake.cost, text, annotated, predicted)


def count_kinds(mistakes: Iterable[RankedMistake]) -> dict[str, TotalsOfKind]:
    """Count the mistakes of each kind, and add up their costs."""
    totals = dict.fromkeys(KINDS, TotalsOfKind(n_mistakes=0, cost=0.0))
    for mistake in mistakes:
        n_mistakes, cost = totals[mistake.kind]
        totals[mistake.kind] = TotalsOfKind(n_mistakes + 1, cost + mistake.cost)
    return totals


def find_sides(dev: DevPredictions, pairs: TagPairs, prediction: Prediction) -> list[Sides]:
    """Find the annotated and the predicted entities of each doc, with their probabilities. A
    predicted entity is left out if one of its tokens isn't annotated.

    dev (DevPredictions): The docs with their posterior.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    prediction (Prediction): What the component predicts.
    """
    tags = pairs.tags
    posterior = dev.posterior
    is_unannotated = pairs.gold < 0
    gold_tags = numpy.maximum(pairs.gold, 0)  # Tokens without annotation get the tag 0, which is O.
    gold = tags.decode(gold_tags, pairs.lengths)
    predicted = tags.decode(pairs.predicted, pairs.lengths)
    # The number of unannotated tokens before each token, and at the end the number of all of them.
    # Shape: (N + 1,). An entity has no unannotated token if this number is the same at its begin
    # and at its end.
    n_unannotated_before = numpy.concatenate([[0], numpy.cumsum(is_unannotated)])
    is_annotated = n_unannotated_before[predicted.begin] == n_unannotated_before[predicted.end]
    predicted = predicted.select(is_annotated)

    # The labels of `tags` are those of the model, followed by other labels of the docs. Entities
    # with other labels have no probability. The tokens of entities are counted over all docs.
    gold_of_model = gold.select(gold.label < len(posterior.tags.labels))
    gold_probs = posterior.entity_probs(gold_of_model).tolist()
    probs = dict(zip(list_entities(gold_of_model, tags.labels), gold_probs))
    # The probabilities of predicted entities come from the prediction, as only it knows which
    # labels an inner node of a label tree covers. Gold entities that aren't predicted keep theirs.
    if prediction.probs is not None:
        predicted_entities = list_entities(prediction.entities, prediction.labels)
        probs.update(zip(predicted_entities, prediction.probs.tolist()))

    annotated_sides = split_by_doc(list_entities(gold, tags.labels), probs, pairs.lengths)
    predicted_sides = split_by_doc(list_entities(predicted, tags.labels), probs, pairs.lengths)
    return [Sides(*sides) for sides in zip(annotated_sides, predicted_sides)]


def split_by_doc(
    entities: Iterable[Entity], probs: Mapping[Entity, float], doc_lengths: Ints1d
) -> list[dict[Entity, float | None]]:
    """Divide entities by the doc that they are in.

    entities (Iterable[Entity]): The entities. Their tokens are counted over all docs.
    probs (Mapping[Entity, float]): The probabilities that are known.
    doc_lengths (Ints1d): Number of tokens of each doc. Shape: (B,)
    RETURNS (list[dict[Entity, float | None]]): The entities of each doc with their probabilities,
        or None where these aren't known. Tokens are counted from the first one of the doc.
    """
    # The first token of each doc, and at the end the number of all tokens. Shape: (B + 1,)
    first_tokens = numpy.cumsum([0, *doc_lengths]).tolist()
    probs_of_docs: list[dict[Entity, float | None]] = [{} for _ in doc_lengths]
    for entity in entities:
        begin, end, label = entity
        # The doc of an entity is the last one that starts at its first token or before.
        doc_index = bisect_right(first_tokens, begin) - 1
        first_token = first_tokens[doc_index]
        entity_in_doc = (begin - first_token, end - first_token, label)
        probs_of_docs[doc_index][entity_in_doc] = probs.get(entity)
    return probs_of_docs


def list_entities(entities: Entities, labels: Sequence[str]) -> list[Entity]:
    """List entities with the names of their labels. `labels` has the names, and the arrays of
    `entities` have indices of them."""
    entities_with_names: list[Entity] = []
    columns = entities.begin.tolist(), entities.end.tolist(), entities.label.tolist()
    for begin, end, label in zip(*columns):
        entities_with_names.append((begin, end, labels[label]))
    return entities_with_names


def group_overlapping(
    gold: Iterable[Entity], predicted: Iterable[Entity]
) -> list[tuple[list[Entity], list[Entity]]]:
    """Divide the gold and predicted entities of a doc into groups, so that entities of different
    groups don't overlap. Two entities are in the same group if they overlap, or if a chain of
    overlapping entities connects them.

    RETURNS (list[tuple[list[Entity], list[Entity]]]): The gold and the predicted entities of each
        group. Groups and their entities are in the order of the doc.
    """
    gold_side = 0
    predicted_side = 1
    entities_and_sides = [(entity, gold_side) for entity in gold]
    entities_and_sides += [(entity, predicted_side) for entity in predicted]
    groups: list[tuple[list[Entity], list[Entity]]] = []
    end_of_group = 0
    for entity, side in sorted(entities_and_sides):
        begin, end, _ = entity
        if not groups or begin >= end_of_group:
            groups.append(([], []))  # the gold side and the predicted side
        last_group = groups[-1]
        last_group[side].append(entity)
        end_of_group = max(end_of_group, end)
    return groups


def kind_of(gold: Sequence[Entity], predicted: Sequence[Entity]) -> str:
    """The kind of a mistake with these annotated and predicted entities: one of `KINDS`."""
    if not predicted:
        return MISSING
    if not gold:
        return SPURIOUS
    gold_extents = [(begin, end) for begin, end, _ in gold]
    predicted_extents = [(begin, end) for begin, end, _ in predicted]
    if gold_extents == predicted_extents:
        return LABEL
    labels = {label for _, _, label in [*gold, *predicted]}
    if len(labels) == 1:
        return BOUNDARY
    return BOTH


def extent_of(sides: Iterable[Iterable[Entity]]) -> tuple[int, int]:
    """The extent of some entities together: the first token of any of them, and the one after the
    last.

    sides (Iterable[Iterable[Entity]]): Lists of entities, such as annotated and predicted ones.
    """
    begins, ends, _ = zip(*chain.from_iterable(sides))
    return min(begins), max(ends)


class Excerpt(NamedTuple):
    """The text around a mistake, with all entities in it, not only those of the mistake."""

    text: str
    annotated: list[Mark]
    predicted: list[Mark]


def excerpt(
    doc: Doc,
    sides: Sequence[Mapping[Entity, float | None]],
    mistake: Sequence[Sequence[Entity]],
) -> Excerpt:
    """Cut out the text around a mistake, and mark the annotated and the predicted entities in it.

    doc (Doc): The doc.
    sides (Sequence[Mapping[Entity, float | None]]): All annotated and all predicted entities of
        the doc, with their probabilities.
    mistake (Sequence[Sequence[Entity]]): The annotated and the predicted entities of the mistake.
    """
    mistake_begin, mistake_end = extent_of(mistake)
    begin, end = window(doc, mistake_begin, mistake_end)
    shown = doc[begin:end]
    # There is an ellipsis where the text doesn't begin or end with a sentence.
    mark_before = "… " if begin > 0 and not doc[begin].is_sent_start else ""
    mark_after = " …" if end < len(doc) and not doc[end].is_sent_start else ""
    annotated, predicted = sides
    annotated_mistake, predicted_mistake = mistake
    n_before = len(mark_before)
    return Excerpt(
        text=mark_before + shown.text + mark_after,
        annotated=mark_entities(shown, annotated, predicted, annotated_mistake, n_before=n_before),
        predicted=mark_entities(shown, predicted, annotated, predicted_mistake, n_before=n_before),
    )


def mark_entities(
    shown: Span,
    entities: Mapping[Entity, float | None],
    other_side: Container[Entity],
    mistaken: Container[Entity],
    *,
    n_before: int,
) -> list[Mark]:
    """Mark the entities of one side, annotated or predicted, in the part of a doc that is shown.

    shown (Span): That part of the doc.
    entities (Mapping[Entity, float | None]): The entities of this side, with their probabilities.
    other_side (Container[Entity]): The entities of the other side. Correct ones are on both.
    mistaken (Container[Entity]): The entities of this side that are part of the mistake.
    n_before (int): How many characters the text has before the part of the doc.
    """
    marks: list[Mark] = []
    for entity, prob in entities.items():
        begin, end, label = entity
        if end <= shown.start or shown.end <= begin:
            continue
        state = "other"  # part of another mistake in the same text
        if entity in other_side:
            state = "correct"
        elif entity in mistaken:
            state = "error"
        visible = shown.doc[max(begin, shown.start) : min(end, shown.end)]
        start_char = n_before + visible.start_char - shown.start_char
        end_char = n_before + visible.end_char - shown.start_char
        marks.append(Mark(start_char, end_char, label, state, prob))
    return marks


def window(doc: Doc, begin: int, end: int) -> tuple[int, int]:
    """Choose which part of a doc is shown around some tokens. It is their sentences (in a doc
    without sentences, the doc) or, if these are too long, some tokens on each side.

    begin, end (int): The first of the tokens, and the one after the last.
    RETURNS (tuple[int, int]): The first token that is shown, and the one after the last.
    """
    sentences_begin = 0
    sentences_end = len(doc)
    if doc.has_annotation("SENT_START"):
        sentences_begin = doc[begin].sent.start
        sentences_end = doc[end - 1].sent.end
    if sentences_end - sentences_begin <= MAX_TOKENS:
        return sentences_begin, sentences_end
    n_around = max(MAX_TOKENS - (end - begin), MIN_TOKENS_AROUND)
    n_on_each_side = n_around // 2
    return max(begin - n_on_each_side, sentences_begin), min(end + n_on_each_side, sentences_end)
