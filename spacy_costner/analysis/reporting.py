"""Evaluate a pipeline on a test corpus: scores, curves, mistakes, and what they cost."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import registry
from thinc.types import Floats2d

from ..costs.label_tree import Tree, make_tree
from ..costs.tables import hamming_cost
from ..metrics.shift import find_shift, in_random_order
from ..pipeline.annotations import Confidence, Prediction
from ..pipeline.component import CostSensitiveNER
from ..pipeline.scorers import (
    Entity,
    EntityPairs,
    TagPairs,
    compare_tags,
    cost_scores,
    count_by_label,
    entity_pairs,
)
from ..tags import OUTSIDE, Entities
from ..types import Cost
from .explanation import TransitionWeights, transition_weights
from .fitness import find_faults
from .guarantees import Observed, observe
from .predictions import DevPredictions, get_component, predict, predict_dev
from .tuning import TUNABLE, Point, decode_at_all, find_point

LABEL = "wrong label"
BOUNDARY = "wrong boundary"
BOTH = "label and boundary"
MISSING = "missing entity"
SPURIOUS = "spurious entity"

KINDS = (MISSING, SPURIOUS, LABEL, BOUNDARY, BOTH)

MAX_TOKENS = 60
"""Longer sentences are shortened."""

MAX_LABELS = 15
"""Labels with rows of their own in a heat map, if there are more."""

MISS_COSTS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""What a miss may cost on the page, in false alarms."""

UNPREDICTABLE = (
    "annotated entities can't be predicted: they begin in one sentence or line and end in another "
    "(see sentence_boundaries)"
)

CONFIDENCE = Confidence(spans_key="report")


class Sides(NamedTuple):
    """The annotated and the predicted entities of a doc, and their probabilities, None if they
    aren't known."""

    annotated: dict[Entity, float | None]
    predicted: dict[Entity, float | None]


class Mark(NamedTuple):
    """An entity in a text."""

    start: int  # its characters
    end: int
    label: str
    state: str  # "correct", "error" (part of the mistake) or "other" (part of another one)
    prob: float | None  # None if it isn't known


class Mistake(NamedTuple):
    """Overlapping annotated and predicted entities that are not the same, and the text around."""

    doc: int  # the number of the doc in the corpus, 0 for the first that isn't empty
    kind: str  # one of `KINDS`
    cost: float
    text: str
    annotated: list[Mark]
    predicted: list[Mark]


class KindOfMistake(NamedTuple):
    """The mistakes of a kind."""

    number: int
    cost: float  # in all


class Confusion(NamedTuple):
    """The labels with mistakes, then O; and the cost of their mistakes, [gold, predicted], summed
    over tokens. The diagonal has the cost of wrong boundaries. Shape: (labels, labels)"""

    labels: list[str]
    cost: Floats2d


class EntityCounts(NamedTuple):
    """True positives, false positives and false negatives of entities."""

    total: PRFScore
    labels: dict[str, PRFScore]  # inner nodes of the tree: also of the labels below
    levels: dict[str, PRFScore]  # by level of the label tree, "level 1" at the top


class Report(NamedTuple):
    """The evaluation of a pipeline on a corpus."""

    pipeline: str
    version: str
    facts: dict[str, str]  # the corpus and the settings of the component, as text
    docs: int  # annotated ones
    tokens: int  # annotated ones
    total: PRFScore  # tp, fp and fn of entities
    labels: dict[str, PRFScore]  # inner nodes of the tree: also of the labels below
    levels: dict[str, PRFScore]  # by level of the label tree, "level 1" at the top
    scores: dict[str, Any]  # see `scorers.cost_scores`
    curves: dict[str, list[Point]]  # precision and recall at each threshold and at each bias
    thresholds: list[tuple[float, int, int, int]]  # each with tp, fp and fn of entities
    setting: Point  # those of the pipeline; NaN in place of a threshold or bias: it has neither
    parameter: str | None  # "threshold" or "bias", as the decoding has it
    guarantee: list[Observed]  # see `observe`; empty if none is promised
    promised: float | None  # the miss rate that the pipeline promises
    shift: str  # the test whether the docs are like the calibration docs; empty if there is none
    cost: str  # its registered name; empty if the config has none: each wrong tag costs 1
    confusion: Confusion
    kinds: dict[str, KindOfMistake]
    mistakes: list[Mistake]  # the costliest; of the same cost, the most confident first
    transitions: TransitionWeights
    notes: list[str]  # what may make the scores misleading


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
    notes = find_faults(
        nlp,
        ner,
        examples,
        corpus or "the corpus",
        inner_nodes=() if tree is None else tree.lineages,
        must_share=False,
    )
    dev = predict_dev(nlp, ner, examples)
    ner.compare_reading([eg.predicted for eg in dev.examples])
    shift = shift_text(ner, dev)
    decoded = {parameter: list(decode_at_all([dev], parameter)) for parameter in TUNABLE}
    thresholds = []
    for threshold, (entities,) in decoded["threshold"]:
        n_correct = int(dev.is_correct(entities).sum())
        n_spurious = len(entities.begin) - n_correct
        n_missing = len(dev.gold.begin) - n_correct
        thresholds.append((threshold, n_correct, n_spurious, n_missing))
    curves: dict[str, list[Point]] = {}
    for parameter, decoded_at_values in decoded.items():
        curves[parameter] = [
            find_point(value, [dev], entities) for value, entities in decoded_at_values
        ]

    # From here on the docs have the entities that the component predicts with its own settings.
    prediction = predict(ner, [eg.predicted for eg in dev.examples], dev.posterior, CONFIDENCE)
    settings = {"labels": ner.labels, "scheme": ner.cfg["scheme"]}
    scores = cost_scores(cost, tree, dev.examples, **settings, confidence=asdict(CONFIDENCE))
    pairs_of_docs = entity_pairs(dev.examples)
    counts = count_entities(pairs_of_docs, ner.labels, tree)
    tag_pairs = compare_tags(dev.examples, **settings)
    cost_table = cost(tag_pairs.tags)
    kinds, mistakes = find_mistakes(dev, tag_pairs, cost_table, prediction, n_mistakes)
    n_tokens = int((tag_pairs.gold >= 0).sum())

    parameter_of_decoding, setting = find_setting(ner.cfg["decoding"], counts.total)
    promise = ner.guarantee
    promised = None if promise is None else promise.miss
    n_entities = counts.total.tp + counts.total.fn
    size = f"{len(pairs_of_docs):,} docs, {n_tokens:,} tokens, {n_entities:,} entities"
    facts = {
        "pipeline": source,
        "corpus": f"{corpus}: {size}",
        "component": name,
        "model": component["model"]["@architectures"],
        "loss": component["loss"]["@losses"],
        "decoding": decoding_text(component["decoding"]["@misc"], ner.cfg["decoding"]),
        "temperature": temperature_text(ner.cfg["temperature"]),
        "cost": cost_name or "each wrong tag costs 1",
    }
    n_over_borders = int(dev.posterior.crosses_border(dev.gold).sum())
    if n_over_borders:
        facts["over borders"] = f"{n_over_borders:,} {UNPREDICTABLE}"
    if promised is not None:
        facts["guaranteed miss rate"] = f"{promised:g}"
    annotated = find_annotated_labels(pairs_of_docs)
    if annotated.isdisjoint(ner.labels):
        facts["labels"] = (
            f"no label in common: annotated are {', '.join(sorted(annotated))}, "
            f"predicted are {', '.join(ner.labels)}"
        )
    return Report(
        pipeline=f"{nlp.meta['lang']}_{nlp.meta['name']}",
        version=nlp.meta["version"],
        facts=facts,
        docs=len(pairs_of_docs),
        tokens=n_tokens,
        total=counts.total,
        labels=counts.labels,
        levels=counts.levels,
        scores=scores,
        curves=curves,
        thresholds=thresholds,
        setting=setting,
        parameter=parameter_of_decoding,
        guarantee=observe(nlp, name, examples),
        promised=promised,
        shift=shift,
        cost=cost_name,
        confusion=confusion_matrix(tag_pairs, cost_table, list(counts.labels)),
        kinds=kinds,
        mistakes=mistakes,
        transitions=transition_weights(ner.chain_tags, dev.posterior.scores),
        notes=notes,
    )


def find_cost(component: dict[str, Any]) -> tuple[Cost, Tree | None, str]:
    """The cost, the label tree and the registered name of the cost in the config of a component:
    of the scorer, the loss or the decoding, whichever comes first. Without a cost, the Hamming
    cost and ""."""
    blocks = [component.get("scorer"), component.get("loss"), component.get("decoding")]
    cost_block = find_first(blocks, "cost")
    tree_source = find_first(blocks, "tree")
    tree = None if tree_source is None else make_tree(tree_source, "tree")
    if cost_block is None:
        return hamming_cost, tree, ""
    return registry.resolve({"cost": cost_block})["cost"], tree, cost_block["@misc"]


def find_first(blocks: Iterable[Any], key: str) -> Any:
    """The first value of a key in blocks of a config or in blocks within them; None if there is
    none, or if it is empty."""
    for block in blocks:
        if not isinstance(block, dict):
            continue
        value = block.get(key) or find_first(block.values(), key)
        if value is not None:
            return value
    return None


def shift_text(ner: CostSensitiveNER, dev: DevPredictions) -> str:
    """The test whether docs are like the calibration docs, in words; empty if there are none."""
    calibration = ner.calibration_scores
    if calibration is None:
        return ""
    entropies = dev.entropies()
    entropies = entropies[~numpy.isnan(entropies)]  # docs whose tokens are all preset
    # The test takes docs to be in random order. A file may be sorted.
    scores = in_random_order(entropies.tolist())
    return find_shift(calibration.pool(), scores).verdict


def find_annotated_labels(pairs_of_docs: EntityPairs) -> set[str]:
    """The labels of annotated entities."""
    annotated: set[str] = set()
    for gold, _ in pairs_of_docs:
        annotated.update(label for _, _, label in gold)
    return annotated


def count_entities(
    pairs_of_docs: EntityPairs, labels: Iterable[str], tree: Tree | None
) -> EntityCounts:
    """Count the entities of annotated docs, in all, by label and by level of the label tree."""
    by_label = count_by_label(pairs_of_docs)
    total = sum(by_label.values(), PRFScore())
    if tree is None:
        return EntityCounts(total, by_label, {})
    # A predicted inner node, which nothing is annotated with, is right for any label below it.
    inner_nodes = by_label.keys() - find_annotated_labels(pairs_of_docs) - set(labels)
    levels: dict[str, PRFScore] = {}
    for level in range(1, tree.depth + 1):
        nodes = count_by_label(pairs_of_docs, partial(tree.ancestor, level=level))
        levels[f"level {level}"] = sum(nodes.values(), PRFScore())
        for node in inner_nodes:
            if len(tree.lineage(node)) == level:
                by_label[node] = nodes[node]
    in_order_of_tree = {label: by_label[label] for label in tree.lineages if label in by_label}
    return EntityCounts(total, in_order_of_tree, levels)


def find_setting(decoding: dict[str, Any], total: PRFScore) -> tuple[str | None, Point]:
    """The parameter that a decoding has, None if `tune` knows none of it, and the scores at its
    value, which is NaN without one."""
    has_predicted = total.tp + total.fp > 0
    precision = total.precision if has_predicted else 1.0
    for parameter in TUNABLE:
        if parameter in decoding:
            return parameter, Point(decoding[parameter], precision, total.recall)
    return None, Point(math.nan, precision, total.recall)


def decoding_text(name: str, decoding: dict[str, Any]) -> str:
    """The registered name of a decoding, with its threshold or bias and those of labels."""
    words = [name]
    for parameter in TUNABLE:
        if parameter in decoding:
            words.append(f"{parameter} {decoding[parameter]:g}")
    for label, value in decoding.get("labels", {}).items():
        words.append(f"{label} {value:g}")
    return ", ".join(words)


def temperature_text(temperature: dict[str, Any]) -> str:
    """The temperature of a component."""
    overall = f"{temperature['overall']:.3f}"
    if temperature["labels"]:
        return f"{overall}, and one for each label"
    return overall


def confusion_matrix(pairs: TagPairs, cost_table: Floats2d, order: Sequence[str]) -> Confusion:
    """Sum the cost of each pair of labels, for the labels with mistakes, in the order of all labels
    that is given. Shape of the cost table: (K, K)"""
    labels = [*pairs.tags.labels, OUTSIDE]
    cost = pairs.over_labels(cost_table.astype("float64"))
    n_wrong = pairs.over_labels(1 - numpy.eye(len(pairs.tags)))
    has_mistakes = (n_wrong + n_wrong.T).any(axis=1)
    rows = []
    for label in order:
        row = labels.index(label)
        if has_mistakes[row]:
            rows.append(row)
    rows.append(len(labels) - 1)
    return Confusion([labels[row] for row in rows], cost[numpy.ix_(rows, rows)])


class RankedMistake(NamedTuple):
    """Entities of a mistake in the doc of a number, and what the mistakes are ordered by."""

    cost: float
    confidence: float  # that of the model
    kind: str
    doc: int
    annotated: list[Entity]
    predicted: list[Entity]


def find_mistakes(
    dev: DevPredictions,
    pairs: TagPairs,
    cost_table: Floats2d,
    prediction: Prediction,
    n_shown: int,
) -> tuple[dict[str, KindOfMistake], list[Mistake]]:
    """Find the mistakes: number and cost of each kind, and the costliest ones. Shape of the cost
    table: (K, K)"""
    sides_of_docs = find_sides(dev, pairs, prediction)
    starts = numpy.cumsum([0, *pairs.lengths])
    costs_of_docs = numpy.split(pairs.look_up(cost_table), starts[1:-1])
    ranked: list[RankedMistake] = []
    for doc, (sides, costs) in enumerate(zip(sides_of_docs, costs_of_docs)):
        for annotated, predicted in segments(*sides):
            if annotated == predicted:
                continue
            begin, end = extent_of((annotated, predicted))
            if predicted:
                confidence = max(sides.predicted[entity] or 0.0 for entity in predicted)
            else:
                confidence = 1 - max(sides.annotated[entity] or 0.0 for entity in annotated)
            ranked.append(
                RankedMistake(
                    cost=float(costs[begin:end].sum(dtype="float64")),
                    confidence=confidence,
                    kind=kind_of(annotated, predicted),
                    doc=doc,
                    annotated=annotated,
                    predicted=predicted,
                )
            )
    ranked.sort(key=lambda mistake: (-mistake.cost, -mistake.confidence))

    kinds: dict[str, KindOfMistake] = {}
    for kind in KINDS:
        costs_of_kind = [mistake.cost for mistake in ranked if mistake.kind == kind]
        kinds[kind] = KindOfMistake(len(costs_of_kind), sum(costs_of_kind))
    shown = []
    for mistake in ranked[:n_shown]:
        text_and_marks = excerpt(
            dev.examples[mistake.doc].predicted,
            sides_of_docs[mistake.doc],
            (mistake.annotated, mistake.predicted),
        )
        shown.append(Mistake(mistake.doc, mistake.kind, mistake.cost, *text_and_marks))
    return kinds, shown


def find_sides(dev: DevPredictions, pairs: TagPairs, prediction: Prediction) -> list[Sides]:
    """The annotated and the predicted entities of each doc, with their probabilities. Predicted
    ones with tokens that aren't annotated are left out."""
    tags = pairs.tags
    posterior = dev.posterior
    gold = tags.decode(numpy.maximum(pairs.gold, 0), pairs.lengths)
    predicted = tags.decode(pairs.predicted, pairs.lengths)
    # Tokens without annotation before each token, (N + 1,): as many at both ends of an entity, if
    # it has none.
    n_unknown = numpy.concatenate([[0], numpy.cumsum(pairs.gold < 0)])
    predicted = predicted.select(n_unknown[predicted.begin] == n_unknown[predicted.end])

    in_model = gold.select(gold.label < len(posterior.tags.labels))
    probs = dict(zip(named(in_model, tags.labels), posterior.entity_probs(in_model).tolist()))
    if prediction.probs is not None:
        predicted_entities = named(prediction.entities, prediction.labels)
        probs.update(zip(predicted_entities, prediction.probs.tolist()))

    starts = numpy.cumsum([0, *pairs.lengths]).tolist()
    sides_of_docs = [Sides({}, {}) for _ in pairs.lengths]
    for side, entities in (("annotated", gold), ("predicted", predicted)):
        for begin, end, label in named(entities, tags.labels):
            doc = bisect_right(starts, begin) - 1
            entity = (begin - starts[doc], end - starts[doc], label)
            getattr(sides_of_docs[doc], side)[entity] = probs.get((begin, end, label))
    return sides_of_docs


def named(entities: Entities, labels: Sequence[str]) -> list[Entity]:
    """Entities with the names of their labels."""
    columns = (column.tolist() for column in entities)
    return [(begin, end, labels[label]) for begin, end, label in zip(*columns)]


def segments(
    gold: Iterable[Entity], predicted: Iterable[Entity]
) -> list[tuple[list[Entity], list[Entity]]]:
    """Group the entities of a doc that overlap, also through others, in order: (gold, predicted)"""
    entities_and_sides = [(entity, 0) for entity in gold]
    entities_and_sides += [(entity, 1) for entity in predicted]
    groups: list[tuple[list[Entity], list[Entity]]] = []
    end_of_group = 0
    for entity, side in sorted(entities_and_sides):
        begin, end, _ = entity
        if not groups or begin >= end_of_group:
            groups.append(([], []))
        groups[-1][side].append(entity)
        end_of_group = max(end_of_group, end)
    return groups


def kind_of(gold: Sequence[Entity], predicted: Sequence[Entity]) -> str:
    """The kind of a mistake: one of `KINDS`."""
    if not predicted:
        return MISSING
    if not gold:
        return SPURIOUS
    if [entity[:2] for entity in gold] == [entity[:2] for entity in predicted]:
        return LABEL
    labels = {label for _, _, label in [*gold, *predicted]}
    return BOUNDARY if len(labels) == 1 else BOTH


def extent_of(sides: Iterable[Iterable[Entity]]) -> tuple[int, int]:
    """The first token of some entities, and the one after the last."""
    begins, ends, _ = zip(*chain.from_iterable(sides))
    return min(begins), max(ends)


def excerpt(
    doc: Doc,
    sides: Sequence[Mapping[Entity, float | None]],
    mistake: Sequence[Sequence[Entity]],
) -> tuple[str, list[Mark], list[Mark]]:
    """The text around a mistake, and the entities of each side in it: annotated and predicted.

    sides (Sequence[Mapping[Entity, float | None]]): All entities of each side, and their
        probabilities.
    mistake (Sequence[Sequence[Entity]]): Those of each side that are part of the mistake.
    """
    begin, end = window(doc, *extent_of(mistake))
    before = "… " if begin > 0 and not doc[begin].is_sent_start else ""
    after = " …" if end < len(doc) and not doc[end].is_sent_start else ""
    first_char = doc[begin].idx - len(before)
    annotated, predicted = sides
    marks_of_sides: tuple[list[Mark], list[Mark]] = ([], [])
    for entities, part_of_mistake, marks in zip(sides, mistake, marks_of_sides):
        for entity, prob in entities.items():
            entity_begin, entity_end, label = entity
            if entity_end <= begin or end <= entity_begin:
                continue
            state = "other"
            if entity in annotated and entity in predicted:
                state = "correct"
            elif entity in part_of_mistake:
                state = "error"
            visible = doc[max(entity_begin, begin) : min(entity_end, end)]
            start_char = visible.start_char - first_char
            end_char = visible.end_char - first_char
            marks.append(Mark(start_char, end_char, label, state, prob))
    return (before + doc[begin:end].text + after, *marks_of_sides)


def window(doc: Doc, begin: int, end: int) -> tuple[int, int]:
    """The sentences around some tokens or, if these are too long, some tokens on each side: the
    first token and the one after the last."""
    first = 0
    last = len(doc)
    if doc.has_annotation("SENT_START"):
        first = doc[begin].sent.start
        last = doc[end - 1].sent.end
    if last - first <= MAX_TOKENS:
        return first, last
    n_on_each_side = max(MAX_TOKENS - (end - begin), 10) // 2
    return max(begin - n_on_each_side, first), min(end + n_on_each_side, last)
