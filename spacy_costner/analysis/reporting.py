"""Evaluate a pipeline on a test corpus, and write an HTML page of what it finds."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
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
from ..pipeline.scorers import TagPairs, compare_tags, cost_scores, count_by_label, entity_pairs
from ..tags import OUTSIDE, Entities
from ..types import Cost
from .explanation import TransitionWeights, transition_weights
from .fitness import find_faults
from .guarantees import observe
from .predictions import DevPredictions, get_component, predict, predict_dev
from .tuning import PARAMETERS, Point, decode_at_all, score

LABEL, BOUNDARY, BOTH = "wrong label", "wrong boundary", "label and boundary"

MISSING, SPURIOUS = "missing entity", "spurious entity"

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

Entity = tuple[int, int, str]
"""First token of the doc, the one after the last, label."""

Sides = Sequence[dict[Entity, float | None]]
"""The annotated and the predicted entities of a doc, and their probabilities, None if not known."""

Mark = tuple[int, int, str, str, float | None]
"""An entity in a text: its characters, from and to; its label; its state, which is "correct",
"error" (part of the mistake) or "other" (part of another one); its probability, None if not known.
"""


class Mistake(NamedTuple):
    """Overlapping annotated and predicted entities that are not the same, and the text around."""

    doc: int  # the number of the doc in the corpus, 0 for the first that isn't empty
    kind: str  # one of `KINDS`
    cost: float
    text: str
    annotated: list[Mark]
    predicted: list[Mark]


Confusion = tuple[list[str], Floats2d]
"""The labels with mistakes, then O; and the cost of their mistakes, [gold, predicted], summed over
tokens. The diagonal has the cost of wrong boundaries. Shape: (labels, labels)"""


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
    guarantee: list[tuple[float, float, float]]  # see `observe`; empty if none is promised
    promised: float | None  # the miss rate that the pipeline promises
    shift: str  # the test whether the docs are like the calibration docs; empty if there is none
    cost: str  # its registered name; empty if the config has none: each wrong tag costs 1
    confusion: Confusion
    kinds: dict[str, tuple[int, float]]  # number and cost of the mistakes of each kind
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
    source (str), corpus (str): The paths of the pipeline and of the docs, shown on the page.
    name (str): Name of the component.
    n_mistakes (int): Number of mistakes to show, costliest first.
    RETURNS (Report): The results: see `page`.
    RAISES (ValueError): If there is no such component, no annotated entity, or a label that
        has no cost or is not in the label tree.
    """
    ner, examples = get_component(nlp, name), list(examples)
    block, decoding = nlp.config.interpolate()["components"][name], ner.cfg["decoding"]
    cost, tree, cost_name = find_cost(block)
    inner_nodes = () if tree is None else tree.lineages
    corpus_name = corpus or "the corpus"
    notes = find_faults(nlp, ner, examples, corpus_name, inner_nodes=inner_nodes, must_share=False)
    dev, shift = predict_dev(nlp, ner, examples), ""
    ner.compare_reading([eg.predicted for eg in dev.examples])
    if (calibration := ner.calibration_scores) is not None:
        entropies = [entropy for entropy in dev.entropies().tolist() if not math.isnan(entropy)]
        shift = find_shift(calibration.pool(), in_random_order(entropies)).found
    decoded = {one: [*decode_at_all([dev], one)] for one in PARAMETERS}
    thresholds = []
    for threshold, (found,) in decoded["threshold"]:
        tp = int(dev.is_correct(found).sum())
        thresholds.append((threshold, tp, len(found.begin) - tp, len(dev.gold.begin) - tp))

    predicted = predict(ner, [eg.predicted for eg in dev.examples], dev.posterior, CONFIDENCE)
    settings = {"labels": ner.labels, "scheme": ner.cfg["scheme"]}
    scores = cost_scores(cost, tree, dev.examples, **settings, confidence=asdict(CONFIDENCE))
    entities = entity_pairs(dev.examples)
    annotated = sorted({label for gold, _ in entities for _, _, label in gold})
    labels, levels = count_by_label(entities), {}
    total = sum(labels.values(), PRFScore())
    if tree is not None:
        inner = {*labels}.difference(annotated, ner.labels)  # answers for any label below
        for level in range(1, tree.depth + 1):
            nodes = count_by_label(entities, partial(tree.ancestor, level=level))
            levels[f"level {level}"] = sum(nodes.values(), PRFScore())
            labels |= {node: nodes[node] for node in inner if len(tree.lineage(node)) == level}
        labels = {label: labels[label] for label in tree.lineages if label in labels}
    pairs = compare_tags(dev.examples, **settings)
    table, n_tokens = cost(pairs.tags), int((pairs.gold >= 0).sum())
    kinds, mistakes = find_mistakes(dev, pairs, table, predicted, n_mistakes)

    parameter = next((one for one in PARAMETERS if one in decoding), None)
    value = decoding[parameter] if parameter else math.nan
    values = [f"{parameter} {value:g}"] if parameter else []
    values += [f"{label} {one:g}" for label, one in decoding.get("labels", {}).items()]
    temperature = ner.cfg["temperature"]
    promised = None if ner.guarantee is None else ner.guarantee.miss
    by_label = ", and one for each label" if temperature["labels"] else ""
    n_entities = total.tp + total.fn
    facts = {
        "pipeline": source,
        "corpus": f"{corpus}: {len(entities):,} docs, {n_tokens:,} tokens, {n_entities:,} entities",
        "component": name,
        "model": block["model"]["@architectures"],
        "loss": block["loss"]["@losses"],
        "decoding": ", ".join([block["decoding"]["@misc"], *values]),
        "temperature": f"{temperature['overall']:.3f}{by_label}",
        "cost": cost_name or "each wrong tag costs 1",
    }
    if n_over := int(dev.posterior.crosses_border(dev.gold).sum()):
        facts["over borders"] = f"{n_over:,} {UNPREDICTABLE}"
    if promised is not None:
        facts["guaranteed miss rate"] = f"{promised:g}"
    if not {*annotated} & {*ner.labels}:
        sides = ", ".join(annotated), ", ".join(ner.labels)
        facts["labels"] = "no label in common: annotated are {}, predicted are {}".format(*sides)
    return Report(
        pipeline=f"{nlp.meta['lang']}_{nlp.meta['name']}",
        version=nlp.meta["version"],
        facts=facts,
        docs=len(entities),
        tokens=n_tokens,
        total=total,
        labels=labels,
        levels=levels,
        scores=scores,
        curves={one: [score(x, [dev], ents) for x, ents in decoded[one]] for one in decoded},
        thresholds=thresholds,
        setting=Point(value, total.precision if total.tp + total.fp else 1.0, total.recall),
        parameter=parameter,
        guarantee=observe(nlp, name, examples),
        promised=promised,
        shift=shift,
        cost=cost_name,
        confusion=confusion_matrix(pairs, table, list(labels)),
        kinds=kinds,
        mistakes=mistakes,
        transitions=transition_weights(ner.chain_tags, dev.posterior.scores),
        notes=notes,
    )


def find_cost(component: dict[str, Any]) -> tuple[Cost, Tree | None, str]:
    """The cost, the label tree and the registered name of the cost in the config of a component:
    of the scorer, the loss or the decoding, whichever comes first. Without a cost, the Hamming
    cost and ""."""

    def first(block: Any, key: str) -> Any:
        if not isinstance(block, dict):
            return None
        return block.get(key) or next(filter(None, (first(x, key) for x in block.values())), None)

    parts = {part: component.get(part) for part in ("scorer", "loss", "decoding")}
    cost, tree = first(parts, "cost"), first(parts, "tree")
    made = hamming_cost if cost is None else registry.resolve({"cost": cost})["cost"]
    return made, tree and make_tree(tree, "tree"), cost["@misc"] if cost else ""


def confusion_matrix(pairs: TagPairs, table: Floats2d, order: Sequence[str]) -> Confusion:
    """Sum the cost of each pair of labels, for the labels with mistakes, in the order of all labels
    that is given. Shape of the cost table: (K, K)"""
    cost = pairs.over_labels(table.astype("float64"))
    n_wrong = pairs.over_labels(1 - numpy.eye(len(pairs.tags)))
    mistaken, names = (n_wrong + n_wrong.T).any(axis=1), [*pairs.tags.labels, OUTSIDE]
    rows = [*(i for i in map(names.index, order) if mistaken[i]), len(names) - 1]
    return [names[i] for i in rows], cost[numpy.ix_(rows, rows)]


def find_mistakes(
    dev: DevPredictions, pairs: TagPairs, table: Floats2d, predicted: Prediction, n_shown: int
) -> tuple[dict[str, tuple[int, float]], list[Mistake]]:
    """Find the mistakes: number and cost of each kind, and the costliest ones. Shape of the cost
    table: (K, K)"""
    tags, posterior = pairs.tags, dev.posterior
    gold = tags.decode(numpy.maximum(pairs.gold, 0), pairs.lengths)
    answer = tags.decode(pairs.predicted, pairs.lengths)
    n_unknown = numpy.concatenate([[0], numpy.cumsum(pairs.gold < 0)])
    answer = answer.select(n_unknown[answer.begin] == n_unknown[answer.end])
    in_model = gold.select(gold.label < len(posterior.tags.labels))
    probs = dict(zip(named(in_model, tags.labels), posterior.entity_probs(in_model).tolist()))
    if predicted.probs is not None:
        probs.update(zip(named(predicted.entities, predicted.labels), predicted.probs.tolist()))

    starts = numpy.cumsum([0, *pairs.lengths]).tolist()
    by_doc: list[Sides] = [({}, {}) for _ in starts[1:]]
    for side, entities in enumerate((gold, answer)):
        for begin, end, label in named(entities, tags.labels):
            i = bisect_right(starts, begin) - 1
            entity = (begin - starts[i], end - starts[i], label)
            by_doc[i][side][entity] = probs.get((begin, end, label))

    mistakes = []
    for i, costs in enumerate(numpy.split(pairs.look_up(table), starts[1:-1])):
        for own in segments(*by_doc[i]):
            if own[0] != own[1]:
                cost = float(costs[slice(*extent_of(own))].sum(dtype="float64"))
                p_gold, p_answer = ([by_doc[i][j][e] or 0.0 for e in own[j]] for j in (0, 1))
                confidence = max(p_answer) if p_answer else 1 - max(p_gold)
                mistakes.append((cost, confidence, kind_of(*own), i, own))
    mistakes.sort(key=lambda mistake: (-mistake[0], -mistake[1]))
    by_kind = {kind: [cost for cost, _, one, _, _ in mistakes if one == kind] for kind in KINDS}
    return {kind: (len(costs), sum(costs)) for kind, costs in by_kind.items()}, [
        Mistake(i, kind, cost, *excerpt(dev.examples[i].predicted, by_doc[i], own))
        for cost, _, kind, i, own in mistakes[:n_shown]
    ]


def named(entities: Entities, labels: Sequence[str]) -> list[Entity]:
    """Entities with the names of their labels."""
    columns = (column.tolist() for column in entities)
    return [(begin, end, labels[label]) for begin, end, label in zip(*columns)]


def segments(
    gold: Iterable[Entity], predicted: Iterable[Entity]
) -> list[tuple[list[Entity], list[Entity]]]:
    """Group the entities of a doc that overlap, also through others, in order: (gold, predicted)"""
    groups: list[tuple[list[Entity], list[Entity]]] = []
    stop = 0
    for entity, side in sorted([*((one, 0) for one in gold), *((one, 1) for one in predicted)]):
        if not groups or entity[0] >= stop:
            groups.append(([], []))
        groups[-1][side].append(entity)
        stop = max(stop, entity[1])
    return groups


def kind_of(gold: Sequence[Entity], predicted: Sequence[Entity]) -> str:
    """The kind of a mistake: one of `KINDS`."""
    if not (gold and predicted):
        return SPURIOUS if predicted else MISSING
    if [entity[:2] for entity in gold] == [entity[:2] for entity in predicted]:
        return LABEL
    return BOUNDARY if len({label for _, _, label in [*gold, *predicted]}) == 1 else BOTH


def extent_of(sides: Iterable[Iterable[Entity]]) -> tuple[int, int]:
    """The first token of some entities, and the one after the last."""
    begins, ends, _ = zip(*(entity for side in sides for entity in side))
    return min(begins), max(ends)


def excerpt(
    doc: Doc, sides: Sides, own: Sequence[Sequence[Entity]]
) -> tuple[str, list[Mark], list[Mark]]:
    """The text around a mistake, and the entities of each side in it. Own are those that are part
    of the mistake."""
    begin, end = window(doc, *extent_of(own))
    before = "… " if begin > 0 and not doc[begin].is_sent_start else ""
    after = " …" if end < len(doc) and not doc[end].is_sent_start else ""
    first = doc[begin].idx - len(before)
    marks: tuple[list[Mark], list[Mark]] = ([], [])
    for side, part, marked in zip(sides, own, marks):
        for entity, prob in side.items():
            if entity[0] < end and begin < entity[1]:
                is_correct = all(entity in one for one in sides)
                state = "correct" if is_correct else "error" if entity in part else "other"
                ent = doc[max(entity[0], begin) : min(entity[1], end)]
                extent = ent.start_char - first, ent.end_char - first
                marked.append((*extent, entity[2], state, prob))
    return (before + doc[begin:end].text + after, *marks)


def window(doc: Doc, begin: int, end: int) -> tuple[int, int]:
    """The sentences around some tokens or, if these are too long, some tokens on each side: the
    first token and the one after the last."""
    first, last = 0, len(doc)
    if doc.has_annotation("SENT_START"):
        first, last = doc[begin].sent.start, doc[end - 1].sent.end
    more = max(MAX_TOKENS - (end - begin), 10) // 2 if last - first > MAX_TOKENS else last - first
    return max(begin - more, first), min(end + more, last)
