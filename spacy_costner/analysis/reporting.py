"""Evaluate a pipeline on a test corpus: scores, curves, mistakes, and what they cost.

A mistake is a group of overlapping entities, annotated and predicted ones, that are not the same:
its two sides. Entities are (begin, end, label): their first token, the one after the last, and the
label. `report` computes what the page shows; `cli/report.py` writes the page.
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

from ..costs.label_tree import Tree, make_tree
from ..costs.tables import hamming_cost
from ..metrics import ScoreIntervals, bootstrap_intervals
from ..metrics.shift import find_shift, in_random_order
from ..pipeline.annotations import Confidence, Prediction
from ..pipeline.component import CostSensitiveNER
from ..pipeline.scorers import (
    Entity,
    EntityPairs,
    TagPairs,
    compare_entities,
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

MIN_DOCS = 30
"""The least number of docs for the intervals of scores."""

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

    start: int  # its first character
    end: int  # the one after its last
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


class ThresholdCounts(NamedTuple):
    """The numbers of entities if those above a threshold are predicted. The script of the page
    takes them by their order here."""

    threshold: float
    n_correct: int
    n_spurious: int
    n_missing: int


class Report(NamedTuple):
    """The evaluation of a pipeline on a corpus."""

    pipeline: str
    version: str
    facts: dict[str, str]  # the corpus and the settings of the component, as text
    docs: int  # annotated ones
    tokens: int  # annotated ones
    total: PRFScore  # tp, fp and fn of entities
    intervals: ScoreIntervals | None  # over docs; None if there are fewer than MIN_DOCS
    labels: dict[str, PRFScore]  # inner nodes of the tree: also of the labels below
    levels: dict[str, PRFScore]  # by level of the label tree, "level 1" at the top
    scores: dict[str, Any]  # see `scorers.cost_scores`
    curves: dict[str, list[Point]]  # precision and recall at each threshold and at each bias
    thresholds: list[ThresholdCounts]
    setting: Point  # of the pipeline as it is; its value is NaN if it has no `parameter`
    parameter: str | None  # what its decoding has, "threshold" or "bias"; None: neither
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
    curves, thresholds = find_curves(dev)

    # Scores. From here on the docs have the entities that the component predicts with its own
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
    mistakes: list[Mistake] = []
    for mistake in ranked[:n_mistakes]:
        doc = dev.examples[mistake.doc].predicted
        sides = sides_of_docs[mistake.doc]
        text_and_marks = excerpt(doc, sides, (mistake.annotated, mistake.predicted))
        mistakes.append(Mistake(mistake.doc, mistake.kind, mistake.cost, *text_and_marks))

    # The head of the page
    n_docs = len(pairs_of_docs)
    n_tokens = int((tag_pairs.gold >= 0).sum())  # -1: not annotated
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
        intervals=find_intervals(pairs_of_docs),
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


def find_intervals(pairs_of_docs: EntityPairs) -> ScoreIntervals | None:
    """The confidence intervals of the scores over docs like these. None for a few docs, which don't
    show how much docs differ."""
    if len(pairs_of_docs) < MIN_DOCS:
        return None
    rows: list[tuple[int, int, int]] = []
    for gold, predicted in pairs_of_docs:
        counts = compare_entities(gold, predicted)
        rows.append((counts.tp, counts.fp, counts.fn))
    return bootstrap_intervals(numpy.asarray(rows, dtype="float64"))


def find_curves(dev: DevPredictions) -> tuple[dict[str, list[Point]], list[ThresholdCounts]]:
    """Score the predictions at all values of the parameters that `tune` knows.

    RETURNS (tuple[dict[str, list[Point]], list[ThresholdCounts]]): Precision and recall at each
        value, by parameter; and the numbers of entities at each threshold.
    """
    curves: dict[str, list[Point]] = {}
    thresholds: list[ThresholdCounts] = []
    for parameter in TUNABLE:
        points: list[Point] = []
        for value, decoded in decode_at_all([dev], parameter):
            points.append(find_point(value, [dev], decoded))
            if parameter == "threshold":
                entities = decoded[0]  # of the only model
                thresholds.append(count_at_threshold(value, dev, entities))
        curves[parameter] = points
    return curves, thresholds


def count_at_threshold(
    threshold: float, dev: DevPredictions, entities: Entities
) -> ThresholdCounts:
    """Count the correct, spurious and missing entities, if these are predicted at a threshold."""
    n_correct = int(dev.is_correct(entities).sum())
    n_spurious = len(entities.begin) - n_correct
    n_missing = len(dev.gold.begin) - n_correct
    return ThresholdCounts(threshold, n_correct, n_spurious, n_missing)


def rare_facts(
    ner: CostSensitiveNER, dev: DevPredictions, annotated_labels: Collection[str]
) -> dict[str, str]:
    """The facts that most reports don't have: that entities can't be predicted, that a miss rate is
    promised, and that nothing is annotated with a label of the component."""
    facts: dict[str, str] = {}
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

    cost: Cost  # the Hamming cost, if it says nothing
    tree: Tree | None  # the label tree
    name: str  # the registered name of the cost; "" if it says nothing


def find_cost(component: dict[str, Any]) -> ConfigCost:
    """Make the cost and the label tree in the config of a component: those of the scorer, the loss
    or the decoding, whichever comes first."""
    blocks = [component.get("scorer"), component.get("loss"), component.get("decoding")]
    tree = None
    tree_source = find_first(blocks, "tree")
    if tree_source is not None:
        tree = make_tree(tree_source, "tree")
    cost_block = find_first(blocks, "cost")
    if cost_block is None:
        return ConfigCost(hamming_cost, tree, "")
    cost = registry.resolve({"cost": cost_block})["cost"]
    return ConfigCost(cost, tree, cost_block["@misc"])


def find_first(blocks: Iterable[Any], key: str) -> Any:
    """The first value of a key in blocks of a config, or in blocks within them. None if there is
    none. Empty values don't count."""
    for block in blocks:
        if not isinstance(block, dict):  # the value of a setting, or a block that isn't there
            continue
        if block.get(key):
            return block[key]
        value_within = find_first(block.values(), key)
        if value_within is not None:
            return value_within
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
    annotated_labels: set[str] = set()
    for gold, _ in pairs_of_docs:
        for _, _, label in gold:
            annotated_labels.add(label)
    return annotated_labels


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
        # Each label counts as its ancestor on this level.
        by_ancestor = count_by_label(pairs_of_docs, partial(tree.ancestor, level=level))
        levels[f"level {level}"] = sum(by_ancestor.values(), PRFScore())
        for node in inner_nodes:
            if len(tree.lineage(node)) == level:
                by_label[node] = by_ancestor[node]
    in_order_of_tree: dict[str, PRFScore] = {}
    for label in tree.lineages:
        if label in by_label:
            in_order_of_tree[label] = by_label[label]
    return EntityCounts(total, in_order_of_tree, levels)


def find_setting(decoding: dict[str, Any], total: PRFScore) -> tuple[str | None, Point]:
    """The parameter of a decoding that `tune` can change, None if it has none, and the scores of
    the component at its value, which is NaN without one.

    decoding (dict[str, Any]): The settings of the decoding.
    total (PRFScore): The counts of the component's entities.
    """
    precision = 1.0  # if nothing is predicted
    if total.tp + total.fp > 0:
        precision = total.precision
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
    """Sum the cost of each pair of labels, for the labels with mistakes.

    pairs (TagPairs): The gold and predicted tags.
    cost_table (Floats2d): The cost of each pair of tags. Shape: (K, K)
    order (Sequence[str]): All labels, in the order of the rows.
    """
    labels = [*pairs.tags.labels, OUTSIDE]
    # Sums over tokens, by gold and predicted label. Shape: (labels, labels)
    cost = pairs.over_labels(cost_table.astype("float64"))
    is_wrong = 1 - numpy.eye(len(pairs.tags))  # 1 for each pair of different tags; shape: (K, K)
    n_wrong = pairs.over_labels(is_wrong)
    # The wrong tokens of each label, gold or predicted
    n_mistakes = n_wrong.sum(axis=0) + n_wrong.sum(axis=1)
    rows: list[int] = []  # the indices of the labels with mistakes
    for label in order:
        row = labels.index(label)
        if n_mistakes[row]:
            rows.append(row)
    rows.append(labels.index(OUTSIDE))
    return Confusion([labels[row] for row in rows], cost[numpy.ix_(rows, rows)])


class RankedMistake(NamedTuple):
    """A mistake, and what mistakes are ordered by: its cost, and the confidence of the model."""

    cost: float
    confidence: float  # see `confidence_in`
    kind: str  # one of `KINDS`
    doc: int  # the number of the doc: see `Mistake`
    annotated: list[Entity]
    predicted: list[Entity]


def rank_mistakes(
    sides_of_docs: Sequence[Sides], pairs: TagPairs, cost_table: Floats2d
) -> list[RankedMistake]:
    """Find the mistakes in docs: the costliest first and, of the same cost, those of which the
    model is most confident.

    sides_of_docs (Sequence[Sides]): The annotated and the predicted entities of each doc.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    cost_table (Floats2d): The cost of each pair of tags. Shape: (K, K)
    """
    # The tokens of all docs are concatenated, and divided where each doc but the first begins.
    first_tokens = numpy.cumsum(pairs.lengths)[:-1]
    costs_of_docs = numpy.split(pairs.look_up(cost_table), first_tokens)  # of their tokens
    ranked: list[RankedMistake] = []
    for doc, (sides, costs) in enumerate(zip(sides_of_docs, costs_of_docs)):
        for annotated, predicted in group_overlapping(*sides):
            if annotated == predicted:
                continue
            begin, end = extent_of((annotated, predicted))
            mistake = RankedMistake(
                cost=float(costs[begin:end].sum(dtype="float64")),
                confidence=confidence_in(annotated, predicted, sides),
                kind=kind_of(annotated, predicted),
                doc=doc,
                annotated=annotated,
                predicted=predicted,
            )
            ranked.append(mistake)
    ranked.sort(key=lambda mistake: (-mistake.cost, -mistake.confidence))
    return ranked


def confidence_in(annotated: Iterable[Entity], predicted: Sequence[Entity], sides: Sides) -> float:
    """How sure the model is of a mistake: the highest probability of what it predicts or, where it
    predicts nothing, one minus that of what is annotated. One that isn't known counts as 0."""
    highest = 0.0
    if predicted:
        for entity in predicted:
            highest = max(highest, sides.predicted[entity] or 0.0)
        return highest
    for entity in annotated:
        highest = max(highest, sides.annotated[entity] or 0.0)
    return 1 - highest


def count_kinds(mistakes: Iterable[RankedMistake]) -> dict[str, KindOfMistake]:
    """The number of mistakes of each kind, and their cost."""
    kinds = dict.fromkeys(KINDS, KindOfMistake(0, 0.0))
    for mistake in mistakes:
        number, cost = kinds[mistake.kind]
        kinds[mistake.kind] = KindOfMistake(number + 1, cost + mistake.cost)
    return kinds


def find_sides(dev: DevPredictions, pairs: TagPairs, prediction: Prediction) -> list[Sides]:
    """Find the annotated and the predicted entities of each doc, with their probabilities. A
    predicted one with a token that isn't annotated is left out.

    dev (DevPredictions): The docs, and the probabilities of entities.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    prediction (Prediction): What the component predicts.
    """
    tags = pairs.tags
    posterior = dev.posterior
    is_unannotated = pairs.gold < 0
    gold_tags = numpy.maximum(pairs.gold, 0)  # tag 0, O, for tokens that aren't annotated
    gold = tags.decode(gold_tags, pairs.lengths)
    predicted = tags.decode(pairs.predicted, pairs.lengths)
    # The number of unannotated tokens before each token, and of all. Shape: (N + 1,) An entity
    # without such tokens has as many before its first token as before the one after its last.
    n_before = numpy.concatenate([[0], numpy.cumsum(is_unannotated)])
    predicted = predicted.select(n_before[predicted.begin] == n_before[predicted.end])

    # Annotated entities with labels that the model doesn't have, which come last in the tags, have
    # no probability.
    predictable = gold.select(gold.label < len(posterior.tags.labels))
    predictable_probs = posterior.entity_probs(predictable).tolist()
    probs = dict(zip(named(predictable, tags.labels), predictable_probs))
    if prediction.probs is not None:
        predicted_entities = named(prediction.entities, prediction.labels)
        probs.update(zip(predicted_entities, prediction.probs.tolist()))

    annotated_of_docs = split_by_doc(named(gold, tags.labels), probs, pairs.lengths)
    predicted_of_docs = split_by_doc(named(predicted, tags.labels), probs, pairs.lengths)
    return [Sides(*sides) for sides in zip(annotated_of_docs, predicted_of_docs)]


def split_by_doc(
    entities: Iterable[Entity], probs: Mapping[Entity, float], doc_lengths: Ints1d
) -> list[dict[Entity, float | None]]:
    """Divide the entities of all docs by doc.

    entities (Iterable[Entity]): The entities. Their tokens are numbered over all docs.
    probs (Mapping[Entity, float]): The probabilities of those where they are known.
    doc_lengths (Ints1d): Number of tokens of each doc. Shape: (B,)
    RETURNS (list[dict[Entity, float | None]]): The entities of each doc with their probabilities;
        None where it isn't known. Tokens are numbered from the first of the doc.
    """
    first_tokens = numpy.cumsum([0, *doc_lengths]).tolist()  # of each doc
    probs_of_docs: list[dict[Entity, float | None]] = [{} for _ in doc_lengths]
    for entity in entities:
        begin, end, label = entity
        doc = bisect_right(first_tokens, begin) - 1  # the last one that starts there or before
        first_token = first_tokens[doc]
        entity_in_doc = (begin - first_token, end - first_token, label)
        probs_of_docs[doc][entity_in_doc] = probs.get(entity)
    return probs_of_docs


def named(entities: Entities, labels: Sequence[str]) -> list[Entity]:
    """Entities with the names of their labels, which they have as indices."""
    entities_with_names: list[Entity] = []
    columns = entities.begin.tolist(), entities.end.tolist(), entities.label.tolist()
    for begin, end, label in zip(*columns):
        entities_with_names.append((begin, end, labels[label]))
    return entities_with_names


def group_overlapping(
    gold: Iterable[Entity], predicted: Iterable[Entity]
) -> list[tuple[list[Entity], list[Entity]]]:
    """Divide the entities of a doc into groups that don't overlap with each other. Two entities
    are in the same group if they overlap, or if a chain of overlapping entities connects them.

    RETURNS (list[tuple[list[Entity], list[Entity]]]): The gold and the predicted entities of each
        group. Groups and their entities are in the order of the doc.
    """
    gold_side = 0
    predicted_side = 1
    sided_entities = [(entity, gold_side) for entity in gold]
    sided_entities += [(entity, predicted_side) for entity in predicted]
    groups: list[tuple[list[Entity], list[Entity]]] = []
    end_of_group = 0
    for entity, side in sorted(sided_entities):
        begin, end, _ = entity
        if not groups or begin >= end_of_group:
            groups.append(([], []))
        groups[-1][side].append(entity)
        end_of_group = max(end_of_group, end)
    return groups


def kind_of(gold: Sequence[Entity], predicted: Sequence[Entity]) -> str:
    """The kind of a mistake, by the entities that are annotated and those that are predicted: one
    of `KINDS`."""
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
    """The tokens from the first to the last of some entities: the first, and the one after the
    last. The entities are in several lists, such as annotated and predicted ones."""
    begins, ends, _ = zip(*chain.from_iterable(sides))
    return min(begins), max(ends)


class Excerpt(NamedTuple):
    """The text around a mistake, and all entities in the text: also correct ones, and those of
    other mistakes."""

    text: str
    annotated: list[Mark]
    predicted: list[Mark]


def excerpt(
    doc: Doc,
    sides: Sequence[Mapping[Entity, float | None]],
    mistake: Sequence[Sequence[Entity]],
) -> Excerpt:
    """Cut out the text around a mistake, and mark the entities of each side in it.

    sides (Sequence[Mapping[Entity, float | None]]): The annotated entities of the doc and the
        predicted ones, with their probabilities.
    mistake (Sequence[Sequence[Entity]]): Those of each side that are part of the mistake.
    """
    begin, end = window(doc, *extent_of(mistake))
    shown = doc[begin:end]
    # An ellipsis where the text doesn't begin or end with a sentence.
    before = "… " if begin > 0 and not doc[begin].is_sent_start else ""
    after = " …" if end < len(doc) and not doc[end].is_sent_start else ""
    annotated, predicted = sides
    annotated_mistake, predicted_mistake = mistake
    n_before = len(before)
    return Excerpt(
        before + shown.text + after,
        mark_entities(shown, annotated, predicted, annotated_mistake, n_before=n_before),
        mark_entities(shown, predicted, annotated, predicted_mistake, n_before=n_before),
    )


def mark_entities(
    shown: Span,
    entities: Mapping[Entity, float | None],
    other_side: Container[Entity],
    mistaken: Container[Entity],
    *,
    n_before: int,
) -> list[Mark]:
    """Mark the entities of one side in the part of a doc that is shown.

    entities (Mapping[Entity, float | None]): The entities of the doc, and their probabilities.
    other_side (Container[Entity]): Those of the other side: the correct ones are on both.
    mistaken (Container[Entity]): The entities that are part of the mistake.
    n_before (int): The number of characters before that part.
    """
    marks: list[Mark] = []
    for entity, prob in entities.items():
        begin, end, label = entity
        if end <= shown.start or shown.end <= begin:
            continue
        state = "other"
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
    """Choose what is shown around some tokens of a doc: the sentences that they are in or, if these
    are too long, some tokens on each side.

    begin, end (int): The tokens: the first, and the one after the last.
    RETURNS (tuple[int, int]): What is shown, in the same way.
    """
    first = 0
    last = len(doc)
    if doc.has_annotation("SENT_START"):
        first = doc[begin].sent.start
        last = doc[end - 1].sent.end
    if last - first <= MAX_TOKENS:
        return first, last
    n_on_each_side = max(MAX_TOKENS - (end - begin), 10) // 2  # at least five
    return max(begin - n_on_each_side, first), min(end + n_on_each_side, last)
