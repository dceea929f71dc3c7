"""Format numbers for the report."""

import math
from collections import Counter
from dataclasses import asdict
from datetime import date
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy
import typer
from spacy import displacy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import registry
from thinc.types import Floats1d, Floats2d
from typer import Argument, Option

from ..costs.label_tree import Tree, make_tree
from ..costs.tables import hamming_cost
from ..pipeline.annotations import Confidence, Prediction
from ..pipeline.scorers import (
    TagPairs,
    compare_tags,
    cost_scores,
    count_at_level,
    count_by_label,
    entity_pairs,
)
from ..saving import check_file, save_file
from ..tags import OUTSIDE, Entities
from ..types import Cost
from .explain import TagProfile, TransitionWeights, draw_transitions, explain, transition_weights
from .guarantee import Observed, observe
from .options import CodeOption, GpuOption, ModelArg, NameOption, load
from .output import errors_shown
from .plots import (
    as_svg,
    heat_map,
    precision_recall,
    promised_and_observed,
    reliability_diagram,
    require_matplotlib,
)
from .predictions import DevPredictions, get_component, predict, predict_dev
from .tune import PARAMETERS, Point, sweep


def number(value: Optional[float], digits: int = 0) -> str:
    """Format a number with a thousands separator, None and NaN as a dash.

    value (Optional[float]): The number.
    digits (int): Digits after the point.
    """
    return "\N{EN DASH}" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(share: Optional[float], digits: int = 2) -> str:
    """Format a share in percent, without the sign.

    share (Optional[float]): The share.
    digits (int): Digits after the point.
    """
    return number(None if share is None else 100 * share, digits)


def probability(prob: float) -> str:
    """Format a probability in percent, with the sign."""
    if 0 < prob < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= prob < 1 else f"{percent(prob, 0)} %"


def cost(value: float) -> str:
    """Format a cost: with two digits unless it is a whole number."""
    return number(value, 0 if float(value).is_integer() else 2)


MISS, FALSE_ALARM = "missed", "false alarm"
WRONG_LABEL, WRONG_BOUNDARY, OTHER = "wrong label", "wrong boundary", "label and boundary"
KINDS = (MISS, FALSE_ALARM, WRONG_LABEL, WRONG_BOUNDARY, OTHER)

MOST_TOKENS = 60
"""Longer sentences are shortened."""

Entity = Tuple[int, int, str]
"""Begin and end in tokens of all docs, and the label."""


class Mark(NamedTuple):
    """An entity in the text of a mistake.

    start (int): Its first character.
    end (int): The one after its last.
    label (str): Its label.
    state (str): "right"; "wrong", if it is part of the mistake; "other", of another one.
    prob (Optional[float]): Its probability, if known.
    """

    start: int
    end: int
    label: str
    state: str
    prob: Optional[float] = None


class Mistake(NamedTuple):
    """A mistake in its sentence.

    doc (int): The number of the doc in the corpus, 0 for the first that isn't empty.
    kind (str): One of `KINDS`.
    cost (float): What it costs.
    text (str): The sentence or, of a long one, the part around the mistake.
    gold (List[Mark]): The annotated entities.
    predicted (List[Mark]): The predicted entities.
    """

    doc: int
    kind: str
    cost: float
    text: str
    gold: List[Mark]
    predicted: List[Mark]


class Mistakes(NamedTuple):
    """All mistakes.

    counts (Dict[str, int]): The number of each kind.
    costs (Dict[str, float]): The cost of each kind.
    shown (List[Mistake]): The costliest. Those of the same cost are sorted by the model's
        confidence in its mistake.
    """

    counts: Dict[str, int]
    costs: Dict[str, float]
    shown: List[Mistake]


class Stretch(NamedTuple):
    """A stretch of tokens with overlapping gold and predicted entities.

    begin (int): The first token.
    end (int): The one after the last.
    gold (List[Entity]): The gold entities.
    predicted (List[Entity]): The predicted entities.
    """

    begin: int
    end: int
    gold: List[Entity]
    predicted: List[Entity]

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        if not self.predicted:
            return MISS
        if not self.gold:
            return FALSE_ALARM
        if [entity[:2] for entity in self.gold] == [entity[:2] for entity in self.predicted]:
            return WRONG_LABEL
        labels = {entity[2] for entity in [*self.gold, *self.predicted]}
        return WRONG_BOUNDARY if len(labels) == 1 else OTHER


def find_mistakes(
    dev: DevPredictions, pairs: TagPairs, table: Floats2d, found: Prediction, n_shown: int
) -> Mistakes:
    """Find the mistakes.

    dev (DevPredictions): The docs, with predicted entities, and their posterior.
    pairs (TagPairs): The gold and predicted tags.
    table (Floats2d): The cost table. Shape: (K, K)
    found (Prediction): The predicted entities.
    n_shown (int): Number of mistakes to show.
    RETURNS (Mistakes): The mistakes.
    """
    gold, predicted = entities_of(pairs)
    wrong = [stretch for stretch in stretches(gold, predicted) if stretch.gold != stretch.predicted]
    costs = cost_of(wrong, pairs.look_up(table))
    probs = gold_probs(dev, [entity for stretch in wrong for entity in stretch.gold])
    if found.probs is not None:
        probs.update(zip(_named(found.entities, found.labels), found.probs.tolist()))
    sure = [mistake_confidence(stretch, probs) for stretch in wrong]
    order = sorted(range(len(wrong)), key=lambda i: (-costs[i], -sure[i], wrong[i].begin))
    in_text = Texts([eg.predicted for eg in dev.examples], gold, predicted, probs)
    kinds = [stretch.kind for stretch in wrong]
    return Mistakes(
        counts={kind: Counter(kinds)[kind] for kind in KINDS},
        costs={kind: float(costs[[k == kind for k in kinds]].sum()) for kind in KINDS},
        shown=[in_text.show(wrong[i], float(costs[i])) for i in order[:n_shown]],
    )


def entities_of(pairs: TagPairs) -> Tuple[List[Entity], List[Entity]]:
    """The gold and predicted entities, the latter without those in unannotated tokens."""
    unknown = pairs.gold < 0
    gold = pairs.tags.decode(numpy.where(unknown, 0, pairs.gold), pairs.lengths)
    predicted = pairs.tags.decode(pairs.predicted, pairs.lengths)
    labels = pairs.tags.labels
    return list(_named(gold, labels)), [
        entity for entity in _named(predicted, labels) if not unknown[entity[0] : entity[1]].any()
    ]


def _named(entities: Entities, labels: Sequence[str]) -> Iterable[Entity]:
    columns = (column.tolist() for column in entities)
    return ((begin, end, labels[label]) for begin, end, label in zip(*columns))


def stretches(gold: Sequence[Entity], predicted: Sequence[Entity]) -> List[Stretch]:
    """Group overlapping entities.

    gold (Sequence[Entity]): Gold entities, in order and without overlap.
    predicted (Sequence[Entity]): Predicted entities, likewise.
    RETURNS (List[Stretch]): The stretches, in order.
    """
    found: List[Stretch] = []
    both = [(*entity, False) for entity in gold] + [(*entity, True) for entity in predicted]
    for begin, end, label, is_predicted in sorted(both):
        if not found or begin >= found[-1].end:
            found.append(Stretch(begin, end, [], []))
        found[-1] = found[-1]._replace(end=max(end, found[-1].end))
        (found[-1].predicted if is_predicted else found[-1].gold).append((begin, end, label))
    return found


def cost_of(wrong: Sequence[Stretch], costs: Floats1d) -> Floats1d:
    """The cost of each stretch: the sum over its tokens.

    wrong (Sequence[Stretch]): The stretches.
    costs (Floats1d): The cost of each token. Shape: (N,)
    RETURNS (Floats1d): Shape: (stretches,)
    """
    total = numpy.concatenate([[0], numpy.cumsum(costs, dtype="float64")])
    return total[[s.end for s in wrong]] - total[[s.begin for s in wrong]]


def gold_probs(dev: DevPredictions, entities: Sequence[Entity]) -> Dict[Entity, float]:
    """The probabilities of entities whose labels the model has."""
    index = {label: i for i, label in enumerate(dev.posterior.tags.labels)}
    ours = [(begin, end, label) for begin, end, label in entities if label in index]
    columns = [(begin, end, index[label]) for begin, end, label in ours]
    arrays = numpy.asarray(columns, dtype="int64").reshape(-1, 3).T
    return dict(zip(ours, dev.posterior.entity_probs(Entities(*arrays)).tolist()))


def mistake_confidence(stretch: Stretch, probs: Dict[Entity, float]) -> float:
    """The model's confidence in its mistake: the probability of the predicted entity or, if there
    is none, that of no gold entity."""
    if stretch.predicted:
        return max(probs.get(entity, 0.0) for entity in stretch.predicted)
    return 1 - max(probs.get(entity, 0.0) for entity in stretch.gold)


class Texts:
    """Renders stretches in their text."""

    def __init__(
        self,
        docs: Sequence[Doc],
        gold: Sequence[Entity],
        predicted: Sequence[Entity],
        probs: Dict[Entity, float],
    ) -> None:
        self.docs = docs
        self.gold = gold
        self.predicted = predicted
        self.probs = probs
        lengths = [len(doc) for doc in docs]
        self.starts = numpy.cumsum([0, *lengths])[:-1]
        self.right = set(gold) & set(predicted)

    def show(self, stretch: Stretch, cost: float) -> Mistake:
        i = int(numpy.searchsorted(self.starts, stretch.begin, side="right")) - 1
        doc, start = self.docs[i], int(self.starts[i])
        begin, end = window(doc, stretch.begin - start, stretch.end - start)
        before = "… " if begin > 0 and not doc[begin].is_sent_start else ""
        after = " …" if end < len(doc) and not doc[end].is_sent_start else ""
        text = before + doc[begin:end].text + after

        def marks(entities: Sequence[Entity], own: Sequence[Entity]) -> List[Mark]:
            return [
                Mark(
                    doc[max(b - start, begin)].idx - doc[begin].idx + len(before),
                    _end_of(doc, min(e - start, end)) - doc[begin].idx + len(before),
                    label,
                    self._state((b, e, label), own),
                    self.probs.get((b, e, label)),
                )
                for b, e, label in _within(entities, start + begin, start + end)
            ]

        return Mistake(
            doc=i,
            kind=stretch.kind,
            cost=cost,
            text=text,
            gold=marks(self.gold, stretch.gold),
            predicted=marks(self.predicted, stretch.predicted),
        )

    def _state(self, entity: Entity, own: Sequence[Entity]) -> str:
        return "right" if entity in self.right else "wrong" if entity in own else "other"


def _end_of(doc: Doc, end: int) -> int:
    return doc[end - 1].idx + len(doc[end - 1])


def _within(entities: Sequence[Entity], begin: int, end: int) -> Sequence[Entity]:
    """The entities with tokens in a stretch."""
    first = numpy.searchsorted([entity[1] for entity in entities], begin, side="right")
    last = numpy.searchsorted([entity[0] for entity in entities], end)
    return entities[int(first) : int(last)]


def window(doc: Doc, begin: int, end: int) -> Tuple[int, int]:
    """The sentences around some tokens or, if these are too long, some tokens on each side.

    RETURNS (Tuple[int, int]): The first token and the one after the last.
    """
    first, last = 0, len(doc)
    if doc.has_annotation("SENT_START"):
        first, last = doc[begin].sent.start, doc[end - 1].sent.end
    if last - first <= MOST_TOKENS:
        return first, last
    more = max(MOST_TOKENS - (end - begin), 10) // 2
    return max(begin - more, first), min(end + more, last)


CONFIDENCE = Confidence(spans_key="report")


class Pricing(NamedTuple):
    """The cost of mistakes.

    cost (Cost): The cost.
    tree (Optional[Tree]): The label tree, if there is one.
    name (str): The registered name of the cost. Empty if the config has none: each wrong tag
        costs 1.
    """

    cost: Cost
    tree: Optional[Tree]
    name: str


class About(NamedTuple):
    """The pipeline and the corpus of a report.

    pipeline (str): The name of the pipeline.
    version (str): Its version.
    source (str): The path or package it was loaded from.
    corpus (str): The name of the corpus.
    component (str): The name of the component.
    day (date): The date of the report.
    settings (Dict[str, str]): The settings of the component, as text.
    docs (int): Number of annotated docs.
    tokens (int): Number of annotated tokens.
    """

    pipeline: str
    version: str
    source: str
    corpus: str
    component: str
    day: date
    settings: Dict[str, str]
    docs: int
    tokens: int


class Confusion(NamedTuple):
    """The confusion matrix.

    labels (List[str]): The labels with mistakes, then O.
    cost (Floats2d): The cost of each pair, [gold, predicted], summed over tokens. The diagonal is
        the cost of wrong boundaries. Shape: (labels, labels)
    """

    labels: List[str]
    cost: Floats2d


class Findings(NamedTuple):
    """The results.

    about (About): The pipeline and the corpus.
    total (PRFScore): Counts of entities: correct, wrong and missed.
    scores (Dict[str, Any]): The scores of `scorers.cost_scores`.
    labels (Dict[str, PRFScore]): Counts by label.
    levels (List[PRFScore]): Counts by level of the label tree, from the top; empty without one.
    curves (Dict[str, List[Point]]): Precision and recall at each threshold and at each bias.
    setting (Point): Precision and recall of the pipeline. Its value is its threshold or bias, NaN
        if its decoding has neither.
    parameter (Optional[str]): "threshold" or "bias", as the decoding has it.
    pricing (Pricing): The cost of mistakes.
    confusion (Confusion): The confusion matrix.
    mistakes (Mistakes): The mistakes.
    transitions (TransitionWeights): The transition weights.
    features (List[TagProfile]): The strongest features of each tag; empty if the model has no
        sparse features.
    guarantee (List[Observed]): Promised and observed miss rates; empty if none is promised.
    """

    about: About
    total: PRFScore
    scores: Dict[str, Any]
    labels: Dict[str, PRFScore]
    levels: List[PRFScore]
    curves: Dict[str, List[Point]]
    setting: Point
    parameter: Optional[str]
    pricing: Pricing
    confusion: Confusion
    mistakes: Mistakes
    transitions: TransitionWeights
    features: List[TagProfile]
    guarantee: List[Observed]


def gather(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    source: str = "",
    corpus: str = "",
    n_mistakes: int = 20,
) -> Findings:
    """Evaluate a pipeline on a corpus.

    nlp (Language): The trained pipeline. It is not modified.
    examples (Iterable[Example]): The docs. They should be neither training docs nor docs used to
        tune or calibrate.
    name (str): The name of the component.
    source (str): The path or package of the pipeline, shown on the page.
    corpus (str): The path of the docs, shown on the page.
    n_mistakes (int): Number of mistakes to show.
    RETURNS (Findings): The results.
    RAISES (ValueError): If there is no such component, no annotated entity, or a label that
        has no cost or is not in the label tree.
    """
    ner, given = get_component(nlp, name), list(examples)
    dev = predict_dev(nlp, name, given)
    curves = {parameter: sweep([dev], parameter) for parameter in PARAMETERS}
    found = predict(ner, [eg.predicted for eg in dev.examples], dev.posterior, CONFIDENCE)
    examples = dev.examples
    pricing = find_pricing(nlp.config.interpolate()["components"][name])
    settings = {"labels": ner.labels, "scheme": ner.cfg["scheme"]}
    scores = cost_scores(
        pricing.cost, pricing.tree, examples, **settings, confidence=asdict(CONFIDENCE)
    )
    entities = entity_pairs(examples)
    labels = count_by_label(entities)
    total = sum(labels.values(), PRFScore())
    order = in_order(labels, pricing.tree)
    pairs = compare_tags(examples, **settings)
    table = pricing.cost(pairs.tags)
    parameter = next((one for one in PARAMETERS if one in ner.cfg["decoding"]), None)
    tree = pricing.tree
    return Findings(
        about=describe(nlp, name, pricing, pairs)._replace(source=source, corpus=corpus),
        total=total,
        scores=scores,
        labels={label: labels[label] for label in order},
        levels=[count_at_level(entities, tree, 1 + i) for i in range(tree.depth)] if tree else [],
        curves=curves,
        setting=Point(
            ner.cfg["decoding"].get(parameter, numpy.nan),
            total.precision if total.tp + total.fp else 1.0,
            total.recall,
        ),
        parameter=parameter,
        pricing=pricing,
        confusion=confuse(pairs, table, order),
        mistakes=find_mistakes(dev, pairs, table, found, n_mistakes),
        transitions=transition_weights(ner.chain_tags, dev.posterior.scores),
        features=profiles(nlp, name),
        guarantee=observe(nlp, name, given),
    )


def find_pricing(component: Mapping[str, Any]) -> Pricing:
    """Find the cost and the label tree in the config: of the scorer, the loss or the decoding,
    whichever comes first.

    component (Mapping[str, Any]): The config block of the component.
    RETURNS (Pricing): The cost, the Hamming cost if there is none, and the label tree.
    """
    blocks = [component.get(part) for part in ("scorer", "loss", "decoding")]
    cost = _first(blocks, "cost")
    tree = _first(blocks, "tree")
    return Pricing(
        cost=hamming_cost if cost is None else registry.resolve({"cost": cost})["cost"],
        tree=None if tree is None else make_tree(tree, "report: tree"),
        name="" if cost is None else cost["@misc"],
    )


def _first(blocks: Iterable[Any], key: str) -> Any:
    """The first value of a key in nested blocks, or None."""
    for block in blocks:
        if isinstance(block, Mapping):
            found = block.get(key)
            found = _first(block.values(), key) if found is None else found
            if found is not None:
                return found
    return None


def in_order(labels: Iterable[str], tree: Optional[Tree]) -> List[str]:
    """Sort labels in the order of the label tree, or alphabetically without one."""
    nodes = [] if tree is None else list(tree.lineages)
    return sorted(labels, key=lambda label: nodes.index(label) if nodes else 0)


def confuse(pairs: TagPairs, table: Floats2d, order: Sequence[str]) -> Confusion:
    """Compute the confusion matrix.

    pairs (TagPairs): The gold and predicted tags.
    table (Floats2d): The cost table. Shape: (K, K)
    order (Sequence[str]): All labels, in the order to use.
    RETURNS (Confusion): The confusion matrix.
    """
    cost = pairs.over_labels(table.astype("float64"))
    n_wrong = pairs.over_labels(1 - numpy.eye(len(pairs.tags)))
    mistaken = (n_wrong + n_wrong.T).any(axis=1)
    indices = [pairs.tags.labels.index(label) for label in order]
    rows = [i for i in indices if mistaken[i]]
    names = [pairs.tags.labels[i] for i in rows]
    rows.append(len(pairs.tags.labels))
    return Confusion([*names, OUTSIDE], cost[numpy.ix_(rows, rows)])


def profiles(nlp: Language, name: str, n_features: int = 6) -> List[TagProfile]:
    """The strongest features of each tag; empty if the model has no sparse features."""
    try:
        return explain(nlp, name=name, n_features=n_features).tags
    except ValueError:
        return []


def describe(nlp: Language, name: str, pricing: Pricing, pairs: TagPairs) -> About:
    """Describe the pipeline and the corpus."""
    block, cfg = nlp.config.interpolate()["components"][name], get_component(nlp, name).cfg
    known = pairs.gold >= 0
    doc = numpy.repeat(numpy.arange(len(pairs.lengths)), pairs.lengths)
    temperature = f"{cfg['temperature']['overall']:.3f}"
    if cfg["temperature"]["labels"]:
        temperature += ", and one for each label"
    promise = get_component(nlp, name).guarantee or {"miss": None}
    guarantee = {} if promise["miss"] is None else {"guaranteed miss rate": f"{promise['miss']:g}"}
    return About(
        pipeline=f"{nlp.meta['lang']}_{nlp.meta['name']}",
        version=nlp.meta["version"],
        source="",
        corpus="",
        component=name,
        day=date.today(),
        settings={
            "model": block["model"]["@architectures"],
            "loss": block["loss"]["@losses"],
            "decoding": decoding_in_words(block["decoding"]["@misc"], cfg["decoding"]),
            "temperature": temperature,
            "cost": pricing.name or "each wrong tag costs 1",
            **guarantee,
        },
        docs=len(numpy.unique(doc[known])),
        tokens=int(known.sum()),
    )


def decoding_in_words(block: str, settings: Mapping[str, Any]) -> str:
    """The decoding with its threshold or bias, if it has one."""
    values = [f"{name} {settings[name]:g}" for name in PARAMETERS if name in settings]
    values += [f"{label} {value:g}" for label, value in settings.get("labels", {}).items()]
    return ", ".join([block, *values])


MOST = 15
"""Labels with rows of their own in a figure, if there are more."""


FOLDED = (
    f" The {MOST} labels with the costliest mistakes have rows and columns of their own; those of "
    "the others are summed, with the mistakes among them on the diagonal."
)


class Plot(NamedTuple):
    """A plot on the page.

    name (str): Its name, the prefix of its ids.
    figure (Figure): The figure.
    caption (str): The caption, in HTML.
    may_scroll (bool): Whether to scroll it, rather than scale it down, on narrow screens.
    """

    name: str
    figure: Any
    caption: str
    may_scroll: bool = False

    @property
    def svg(self) -> str:
        """The <svg> element."""
        return as_svg(self.figure, self.name)


def curve(findings: Findings) -> Plot:
    """Precision against recall, and the point of the pipeline."""
    value, precision, recall = findings.setting
    setting = f"{findings.parameter} {value:g}" if findings.parameter else "minimum cost"
    scores = f"P {percent(precision)}, R {percent(recall)}"
    figure = precision_recall(
        findings.curves, (precision, recall), chosen_name=f"current setting: {scores}"
    )
    caption = (
        f"Precision against recall, in percent. The large point is the pipeline with its current "
        f"setting ({escape(setting)}). The curves show other values of the threshold and of the "
        "bias on these docs, some with their value. Grey lines are lines of equal F. Values with a "
        "much lower F are left out."
    )
    return Plot("precision-recall", figure, caption)


def reliability_plot(findings: Findings) -> Optional[Plot]:
    """Confidence against precision; None if nothing was predicted."""
    rows = findings.scores["ents_reliability"]
    if rows is None:
        return None
    caption = (
        "Precision of predicted entities by confidence, and the number of entities in each bin. On "
        "the dashed line, confidences are calibrated; below it, the model is overconfident. "
        "Vertical lines are 95 % confidence intervals (Wilson). Expected calibration error: "
        f"{number(findings.scores['ents_ece'], 4)}, at temperature "
        f"{escape(findings.about.settings['temperature'])}."
    )
    return Plot("reliability", reliability_diagram(rows), caption)


def guarantee_plot(findings: Findings) -> Optional[Plot]:
    """Promised and observed miss rates; None if nothing is promised."""
    if not findings.guarantee:
        return None
    chosen = float(findings.about.settings["guaranteed miss rate"])
    caption = (
        "Miss rate of guaranteed sets on these docs, against the rate that was promised on the "
        "calibration docs, and the size of the sets. Below the dashed line, less is missed than "
        "promised; a promise of the mean may be exceeded by chance. The large point is the "
        "pipeline's own promise."
    )
    return Plot("guarantee", promised_and_observed(findings.guarantee, chosen), caption)


def confusion_plot(findings: Findings) -> Optional[Plot]:
    """The confusion matrix; None if there are no mistakes."""
    labels, cost = fold(findings.confusion)
    if not findings.mistakes.shown and not cost.any():
        return None
    priced = bool(findings.pricing.name)
    unit = "cost" if priced else "tokens with a wrong tag"
    figure = heat_map(
        cost,
        labels,
        labels,
        ylabel="annotated",
        xlabel="predicted",
        unit=unit,
        number="{:,.0f}" if cost.max() >= 10 or not priced else "{:.2g}",
    )
    how = (
        f"Cost of mistakes (<code>{escape(findings.pricing.name)}</code>), summed over all tokens, "
        "by annotated label (rows) and predicted label (columns)."
        if priced
        else "Tokens with a wrong tag, by annotated label (rows) and predicted label (columns)."
    )
    caption = (
        f"{how} O stands for no entity: its column has the missed entities, its row the false "
        "alarms. The diagonal has the wrong boundaries. Colours are on a square root scale. Labels "
        "without mistakes are left out."
        f"{'' if labels == findings.confusion.labels else FOLDED}"
    )
    return Plot("confusion", figure, caption, may_scroll=True)


def fold(confusion: Confusion) -> Confusion:
    """Sum all but the labels of the costliest mistakes as one, if there are many.

    confusion (Confusion): The confusion matrix.
    RETURNS (Confusion): One with at most 17 rows: 15 labels, the others, O. Its sum is the same.
    """
    labels, cost = confusion
    n_others = len(labels) - 1 - MOST
    if n_others < 2:
        return confusion
    by_label = cost.sum(axis=0) + cost.sum(axis=1) - cost.diagonal()
    kept = sorted(numpy.argsort(-by_label[:-1], kind="stable")[:MOST])
    target = numpy.full(len(labels), MOST)
    target[[*kept, -1]] = [*range(MOST), MOST + 1]
    summed = numpy.eye(MOST + 2)[target]
    names = [*(labels[i] for i in kept), f"{n_others} others", OUTSIDE]
    return Confusion(names, summed.T @ cost @ summed)


def transitions_plot(findings: Findings) -> Plot:
    """The transition weights; if there are many labels, those of the most frequent."""
    caption = (
        "Weight of the transition from each tag (rows) to each tag (columns), in nats. Blue: above "
        "0, the model favours the transition. Red: below 0. Grey: forbidden by the tag scheme."
    )
    table = findings.transitions
    labels = [name.partition("-")[2] for name in table.origins]
    if len({*labels} - {""}) > MOST + 1:
        counts = findings.labels
        order = sorted(counts, key=lambda label: -counts[label].tp - counts[label].fn)
        shown = [i for i, label in enumerate(labels) if label in ["", *order[:MOST]]]
        table = TransitionWeights(
            [table.origins[i] for i in shown],
            [table.targets[i] for i in shown],
            [[table.weights[i][j] for j in shown] for i in shown],
        )
        caption += f" Tags of the {MOST} most frequent labels; <code>explain</code> shows all."
    return Plot("transitions", draw_transitions(table), caption, may_scroll=True)


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

ENTITY = '<mark class="{state}">{text}<span class="label">{label}</span></mark>'


def page(findings: Findings) -> str:
    """Render a report.

    findings (Findings): The results.
    RETURNS (str): The HTML.
    RAISES (ImportError): If matplotlib is not installed.
    """
    sections = [
        ("scores", "Scores", _scores(findings)),
        ("curve", "Precision and recall", _curve(findings)),
        ("confidence", "Confidence", _confidence(findings)),
        ("confusion", "Confusion matrix", _confusion(findings)),
        ("mistakes", "Costliest mistakes", _mistakes(findings)),
        ("model", "Transition weights", _model(findings)),
    ]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    parts = [
        _header(findings),
        f"<nav>{links}</nav>",
        "<main>",
        *(
            f'<section id="{name}">\n<h2>{title}</h2>\n{content}\n</section>'
            for name, title, content in sections
        ),
        "</main>",
        "<footer>Written by <code>python -m spacy costner report</code>.</footer>",
    ]
    title = f"{findings.about.pipeline} {findings.about.version}: report"
    return fill(title, "\n".join(parts))


def fill(title: str, body: str) -> str:
    """Make a page of its title, as text, and its body, in HTML."""
    style = files(__package__).joinpath("page.css").read_text(encoding="utf8")
    return PAGE.format(title=escape(title), style=style, body=body)


def _header(findings: Findings) -> str:
    about, total, scores = findings.about, findings.total, findings.scores
    tiles = [
        ("F", percent(total.fscore), "%", "of entities"),
        ("Precision", percent(total.precision), "%", f"of {number(total.tp + total.fp)} predicted"),
        ("Recall", percent(total.recall), "%", f"of {number(total.tp + total.fn)} annotated"),
        ("Cost", number(scores["ents_cost"], 4), "", "per token"),
        ("Calibration error", number(scores["ents_ece"], 4), "", "0 is best"),
        (
            "Docs without mistakes",
            percent(scores["ents_sent_acc"]),
            "%",
            f"of {number(about.docs)}",
        ),
    ]
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{unit and f' {unit}'}</small></dd>"
        f"<dd>{note}</dd></div>"
        for name, value, unit, note in tiles
    )
    facts = {
        "pipeline": about.source,
        "corpus": f"{about.corpus}: {number(about.docs)} docs, {number(about.tokens)} tokens, "
        f"{number(total.tp + total.fn)} entities",
        "component": about.component,
        **about.settings,
    }
    rows = "".join(f"<dt>{name}</dt><dd>{escape(fact)}</dd>" for name, fact in facts.items())
    day = f'<time datetime="{about.day.isoformat()}">{about.day.isoformat()}</time>'
    return (
        f"<header>\n<p>Named entity recognition: evaluation &middot; {day}</p>\n"
        f"<h1>{escape(about.pipeline)} <small>{escape(about.version)}</small></h1>\n"
        f'<dl class="tiles">{cells}</dl>\n<dl class="facts">{rows}</dl>\n</header>'
    )


def _scores(findings: Findings) -> str:
    parts = [
        "<p>An entity is correct if its boundaries and its label are those of the annotation.</p>",
        _counts("label", list(findings.labels.items()), findings.total),
    ]
    if findings.levels:
        levels = [(f"level {i}", counts) for i, counts in enumerate(findings.levels, 1)]
        parts += [
            "<p>Scores with each label replaced by its ancestor at a level of the label tree, 1 "
            "at the top. Confusing two labels with the same ancestor is not a mistake.</p>",
            _counts("tree", levels),
        ]
    return "\n".join(parts)


def _counts(
    what: str, rows: Sequence[Tuple[str, PRFScore]], total: Optional[PRFScore] = None
) -> str:
    head = [what, "F %", "precision %", "recall %", "annotated", "predicted", "correct"]
    lines = [_count_cells(name, counts) for name, counts in rows]
    foot = None if total is None else _count_cells("all", total)
    return table(head, lines, foot, bar=1)


def _count_cells(name: str, counts: PRFScore) -> List[str]:
    n_gold, n_predicted = counts.tp + counts.fn, counts.tp + counts.fp
    return [
        escape(name),
        percent(counts.fscore),
        percent(counts.precision if n_predicted else None),
        percent(counts.recall if n_gold else None),
        *map(number, (n_gold, n_predicted, counts.tp)),
    ]


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    foot: Optional[Sequence[str]] = None,
    *,
    bar: Optional[int] = None,
) -> str:
    """Render a table of numbers with names in the first column.

    head (Sequence[str]): The header.
    rows (Sequence[Sequence[str]]): The cells, in HTML.
    foot (Optional[Sequence[str]]): The footer.
    bar (Optional[int]): A column of percentages to draw bars behind.
    """

    def line(cells: Sequence[str]) -> str:
        others = "".join(
            f'<td class="bar" style="--share: {cell}%">{cell}</td>'
            if i == bar
            else f"<td>{cell}</td>"
            for i, cell in enumerate(cells[1:], 1)
        )
        return f'<tr><th scope="row">{cells[0]}</th>{others}</tr>'

    heads = "".join(f'<th scope="col">{name}</th>' for name in head)
    below = "" if foot is None else f"<tfoot>{line(foot)}</tfoot>"
    body = "\n".join(map(line, rows))
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{body}</tbody>{below}</table></div>"
    )


def _plot(plot: Plot) -> str:
    scroll = ' class="scroll" tabindex="0"' if plot.may_scroll else ""
    return (
        f'<figure id="{plot.name}-plot">\n<div{scroll} role="img" aria-labelledby='
        f'"{plot.name}-caption">{plot.svg}</div>\n'
        f'<figcaption id="{plot.name}-caption">{plot.caption}</figcaption>\n</figure>'
    )


def _curve(findings: Findings) -> str:
    return (
        "<p>To choose another threshold or bias, without retraining: "
        "<code>python -m spacy costner tune</code>, on development docs.</p>\n"
        + _plot(curve(findings))
    )


def _confidence(findings: Findings) -> str:
    reliability = reliability_plot(findings)
    if reliability is None:
        return "<p>No entity was predicted.</p>"
    return (
        "<p>About 70 % of the entities with confidence 0.7 should be correct. If they are not: "
        "<code>python -m spacy costner calibrate</code>, on development docs.</p>\n"
        + "\n".join(_plot(plot) for plot in (reliability, guarantee_plot(findings)) if plot)
    )


def _confusion(findings: Findings) -> str:
    confusion = confusion_plot(findings)
    return "<p>All tags are correct.</p>" if confusion is None else _plot(confusion)


def _mistakes(findings: Findings) -> str:
    mistakes = findings.mistakes
    if not mistakes.shown:
        return "<p>No mistakes to show.</p>"
    n, total = sum(mistakes.counts.values()), sum(mistakes.costs.values())
    rows = [
        [kind, number(mistakes.counts[kind]), cost(mistakes.costs[kind])]
        for kind in mistakes.counts
    ]
    unit = "cost" if findings.pricing.name else "wrong tags"
    totals = table(["kind", "number", unit], rows, ["all", number(n), cost(total)])
    items = "\n".join(_mistake(mistake, unit) for mistake in mistakes.shown)
    return (
        f"{totals}\n<p>Sorted by cost, then by the model's confidence. The annotation is "
        "above the prediction, each with the model's probability. "
        '<mark class="wrong">part of the mistake</mark> <mark class="right">correct</mark> '
        '<mark class="other">part of another mistake</mark></p>\n'
        f'<ol class="mistakes">\n{items}\n</ol>'
    )


def _mistake(mistake: Mistake, unit: str) -> str:
    lines = "".join(
        f"<dt>{name}</dt><dd>{render(mistake.text, marks)}</dd>"
        for name, marks in (("annotated", mistake.gold), ("predicted", mistake.predicted))
    )
    return (
        f"<li><p><b>{mistake.kind}</b> &middot; {unit}: {cost(mistake.cost)} &middot; "
        f"doc {mistake.doc}</p><dl>{lines}</dl></li>"
    )


def render(text: str, marks: Sequence[Mark]) -> str:
    """Render a text with its entities, by displaCy."""
    ents = [
        {
            "start": mark.start,
            "end": mark.end,
            "label": _label(mark),
            "params": {"state": mark.state},
        }
        for mark in marks
    ]
    return displacy.render(
        {"text": text, "ents": ents, "title": None},
        style="ent",
        manual=True,
        jupyter=False,
        options={"template": ENTITY},
    )


def _label(mark: Mark) -> str:
    prob = "" if mark.prob is None else f" <i>{escape(probability(mark.prob))}</i>"
    return escape(mark.label) + prob


def _model(findings: Findings) -> str:
    parts = [_plot(transitions_plot(findings))]
    if findings.features:
        rows = [
            [
                escape(tag.tag),
                *(
                    " ".join(
                        f"<span><code>{escape(one.feature)}</code> {one.weight:+.2f}</span>"
                        for one in some
                    )
                    for some in (tag.in_favour, tag.against)
                ),
            ]
            for tag in findings.features
        ]
        strongest = table(["tag", "for", "against"], rows)
        parts.append(
            '<details class="features"><summary>The strongest features for and against each tag'
            f"</summary>\n{strongest}\n</details>"
        )
    return "\n".join(parts)


def report_cli(
    model: ModelArg,
    test_path: Annotated[Path, Argument(help="Test corpus: see `costner convert`", exists=True)],
    output_path: Annotated[Path, Option("--output", "-o", help="Output HTML file")],
    name: NameOption = "ner",
    n_mistakes: Annotated[
        int, Option("--mistakes", "-n", help="Number of mistakes to show, costliest first", min=0)
    ] = 20,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Write an HTML report of a pipeline on a test corpus: scores by label and by level of the
    label tree, the precision-recall curve, calibration, the confusion matrix by cost, the
    costliest mistakes in their sentences, and the transition weights. The file is
    self-contained.
    """
    with errors_shown():
        check_file(output_path, [model, test_path])
        require_matplotlib()
        nlp, examples = load(model, test_path, use_gpu, code_path)
        found = gather(
            nlp, examples, name=name, source=model, corpus=str(test_path), n_mistakes=n_mistakes
        )
        save_file(output_path, partial(Path.write_text, data=page(found), encoding="utf8"))
    typer.echo(f"Written to {output_path}")
