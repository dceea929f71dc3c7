"""Evaluate a pipeline on a test corpus: scores, curves, mistakes, and what they cost.

`report` computes the content of the page; `cli/report.py` writes the page. `scores` has the counts
and curves, `mistakes` and `excerpts` the mistakes in their sentences, `mistake_costs` the confusion
matrix.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.training import Example

from ...metrics import ScoreIntervals
from ...metrics.shift import find_shift, in_random_order
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import Confidence
from ...pipeline.scorers import compare_tags, cost_scores, entity_pairs, select_annotated
from ..calibration.observed_rates import ObservedMissRate, observe
from ..calibration.tuning import TUNABLE, OperatingPoint
from ..components import get_component
from ..evaluation.predictions import DevPredictions, predict, predict_dev
from ..evaluation.recurrence import units_of_docs
from ..evaluation.valid_data import find_faults
from .explanation import TransitionWeights, transition_weights
from .mistake_costs import Confusion, confusion_matrix, find_cost
from .mistakes import Mistake, TotalsOfKind, count_kinds, find_sides, rank_mistakes, show_mistake
from .scores import (
    ThresholdCounts,
    count_entities,
    find_annotated_labels,
    find_curves,
    find_intervals,
    find_setting,
)

MAX_HEAT_MAP_LABELS = 15
"""The maximum number of labels with a row in a heat map. Other labels are summed in one row."""

MISS_COSTS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""The costs of a miss, in false alarms, that readers of the page can choose."""

UNPREDICTABLE = (
    "annotated entities can't be predicted: they begin in one sentence or line and end in another "
    "(see sentence_boundaries)"
)
"""The text after the number of these entities on the page."""

CONFIDENCE = Confidence(spans_key="report")
"""The key of `doc.spans` for the probabilities of predicted entities in the docs of the report."""


class Report(NamedTuple):
    """The evaluation of a pipeline on a corpus.

    pipeline, version (str): The name and the version of the pipeline.
    facts (dict[str, str]): The facts about corpus and component at the top of the page.
    docs, tokens (int): The number of annotated docs, and of annotated tokens.
    total (PRFScore): True positives, false positives and false negatives of all entities.
    intervals (ScoreIntervals | None): The intervals of the scores over docs. None if there are
        fewer than `MIN_DOCS`.
    labels (dict[str, PRFScore]): The counts by label, or inner node of the label tree.
    levels (dict[str, PRFScore]): The counts by level of the label tree.
    scores (dict[str, Any]): The scores that need costs or probabilities: see
        `scorers.cost_scores`.
    curves (dict[str, list[OperatingPoint]]): Precision and recall at each threshold and at each
        bias.
    thresholds (list[ThresholdCounts]): The numbers of entities at each threshold.
    parameter (str | None): The parameter of the decoding that `tune` can change, "threshold" or
        "bias". None if the decoding has neither.
    setting (OperatingPoint): The value of this parameter now, with precision and recall. The value
        is NaN if there is no parameter.
    guarantee (list[ObservedMissRate]): Guaranteed and observed miss rates: see `observe`.
    promised (float | None): The miss rate that the pipeline guarantees. None: it guarantees none.
    shift (str): The verdict whether the docs are like the calibration docs. Empty without
        calibration docs.
    cost (str): The registered name of the cost. Empty if the config has none: each wrong tag
        costs 1.
    confusion (Confusion): The confusion matrix of labels by cost.
    kinds (dict[str, TotalsOfKind]): The totals of the mistakes of each of `REPORTED_KINDS`.
    mistakes (list[Mistake]): The costliest mistakes. If costs are equal, the most confident come
        first.
    transitions (TransitionWeights): The transitions of the chain.
    notes (list[str]): Reasons why the scores may be misleading.
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
    curves: dict[str, list[OperatingPoint]]
    thresholds: list[ThresholdCounts]
    setting: OperatingPoint
    parameter: str | None
    guarantee: list[ObservedMissRate]
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
    examples (Iterable[Example]): Annotated test docs: neither training docs, nor docs used to tune
        or calibrate.
    name (str): Name of the component.
    n_mistakes (int): Number of mistakes to show, costliest first.
    source (str): The path of the pipeline, shown on the page.
    corpus (str): The path of the docs, shown on the page.
    RETURNS (Report): The content of the page.
    RAISES (ValueError): If the component is missing, no entity is annotated, or a label has no cost
        or is not in the label tree.
    """
    ner = get_component(nlp, name)
    examples = list(examples)
    block = nlp.config.interpolate()["components"][name]  # of the config
    cost, tree, cost_name = find_cost(block)
    inner_nodes: Iterable[str] = ()
    if tree is not None:
        inner_nodes = tree.lineages  # the keys: all nodes of the tree, labels among them
    notes = find_faults(
        nlp,
        ner,
        examples,
        corpus or "the corpus",
        inner_nodes=inner_nodes,
        must_share=False,  # the report has a fact for it
    )
    dev = predict_dev(nlp, ner, examples)
    # This warns if the docs have other sentences or tokens than the docs that the component was
    # tuned or calibrated on.
    ner.compare_reading([eg.predicted for eg in dev.examples])
    # Before `predict` writes to the docs: see `DevPredictions.entropies`
    shift = shift_text(ner, dev)
    curves, thresholds = find_curves(dev)

    # Scores. `predict` writes the entities to the docs, decoded with the settings of the component.
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

    # Facts
    n_docs = len(pairs_of_docs)
    n_tokens = int((tag_pairs.gold >= 0).sum())  # The tag is -1 where a token isn't annotated.
    n_entities = counts.total.tp + counts.total.fn
    facts = {
        "pipeline": source,
        "corpus": f"{corpus}: {n_docs:,} docs, {n_tokens:,} tokens, {n_entities:,} entities",
        "component": name,
        **settings_facts(ner, block, cost_name),
        **optional_facts(ner, dev, find_annotated_labels(pairs_of_docs)),
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


def settings_facts(ner: CostSensitiveNER, block: dict[str, Any], cost_name: str) -> dict[str, str]:
    """Collect the settings of a component, by name. `block` is its block of the config."""
    return {
        "model": block["model"]["@architectures"],
        "loss": block["loss"]["@losses"],
        "decoding": decoding_fact(block["decoding"]["@misc"], ner.cfg["decoding"]),
        "temperature": temperature_fact(ner.cfg["temperature"]),
        "cost": cost_name or "each wrong tag costs 1",
    }


def optional_facts(
    ner: CostSensitiveNER, dev: DevPredictions, annotated_labels: Collection[str]
) -> dict[str, str]:
    """Collect the facts that only apply to some reports, by name: entities that can't be predicted,
    a guaranteed miss rate, no label in common. `annotated_labels` are the labels in the annotation
    of the docs."""
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
            f"no label in common: the annotated labels are {', '.join(sorted(annotated_labels))}, "
            f"the predicted ones are {', '.join(ner.labels)}"
        )
    return facts


def shift_text(ner: CostSensitiveNER, dev: DevPredictions) -> str:
    """The verdict whether docs are like the calibration docs. Empty if the component has no
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


def decoding_fact(name: str, decoding: dict[str, Any]) -> str:
    """The registered name of a decoding, with its threshold or bias, and the values of labels."""
    words = [name]
    for parameter in TUNABLE:
        if parameter in decoding:
            words.append(f"{parameter} {decoding[parameter]:g}")
    for label, value in decoding.get("labels", {}).items():
        words.append(f"{label} {value:g}")
    return ", ".join(words)


def temperature_fact(temperature: dict[str, Any]) -> str:
    """The temperature of a component as text."""
    overall = f"{temperature['overall']:.3f}"
    if temperature["labels"]:
        return f"{overall}, and one for each label"
    return overall
