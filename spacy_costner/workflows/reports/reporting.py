"""Evaluate a pipeline on a test corpus: compute scores, curves, mistakes, and their costs.

`report` computes the content of the page, which is written by `cli/report.py`. Counts and curves
are computed in `scores`, mistakes and their contexts in `mistakes` and `excerpts`, and the
confusion matrix in `mistake_costs`.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc, Span
from spacy.training import Example

from ...metrics import ScoreIntervals
from ...metrics.shift import find_shift, in_random_order
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import Confidence
from ...pipeline.scorers import compare_tags, cost_scores, entity_pairs, select_annotated
from ..calibration.observed_rates import ObservedMissRate, observe
from ..calibration.tuning import TUNABLE, OperatingPoint
from ..components import get_component
from ..evaluation.predictions import DevPredictions, note_misaligned, predict, predict_dev
from ..evaluation.recurrence import units_of_docs
from ..evaluation.valid_data import find_faults
from .explanation import TransitionWeights, transition_weights
from .mistake_costs import Confusion, confusion_matrix, find_cost
from .mistakes import Mistake, TotalsOfKind, count_kinds, find_sides, rank_mistakes, show_mistake
from .scores import (
    ThresholdCounts,
    count_entities,
    count_in_predictions,
    find_annotated_labels,
    find_curves,
    find_intervals,
    find_setting,
)

MAX_HEAT_MAP_LABELS = 15
"""The maximum number of labels with a separate row in a heat map. Other labels are combined in one
row."""

MISS_COSTS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""The costs of a miss, relative to a false alarm, that can be selected on the page."""

UNPREDICTABLE = (
    "annotated entities can't be predicted: they begin in one sentence or line and end in another "
    "(see sentence_boundaries)"
)
"""The text that follows the number of such entities on the page."""

CONFIDENCE = Confidence(spans_key="report")
"""Writes the probabilities of predicted entities to `doc.spans["report"]` of the report's docs."""


class Report(NamedTuple):
    """The evaluation of a pipeline on a corpus.

    pipeline, version (str): The name and version of the pipeline.
    facts (dict[str, str]): The facts about the corpus and the component, shown at the top of the
        page.
    docs, tokens (int): The number of annotated docs and tokens.
    total (PRFScore): True positives, false positives and false negatives of all entities.
    intervals (ScoreIntervals | None): The confidence intervals of the scores, bootstrapped over
        docs. None if there are fewer than `MIN_DOCS` docs.
    labels (dict[str, PRFScore]): The counts by label or inner node of the label tree.
    levels (dict[str, PRFScore]): The counts by level of the label tree.
    scores (dict[str, Any]): The scores that require costs or probabilities: see
        `scorers.cost_scores`.
    curves (dict[str, list[OperatingPoint]]): Precision and recall for each threshold and each bias.
    thresholds (list[ThresholdCounts]): The entity counts for each threshold.
    parameter (str | None): The parameter of the decoding that can be changed by `tune`, "threshold"
        or "bias". None if the decoding has neither.
    setting (OperatingPoint): The current value of this parameter, with precision and recall. The
        value is NaN if there is no parameter.
    setting_counts (PRFScore): The entity counts with the current setting. As in `curves` and
        `thresholds`, and unlike in `total`, entities with preset tokens don't count.
    has_presets (bool): Whether earlier components have set the annotation of any token.
    guarantee (list[ObservedMissRate]): Guaranteed and observed miss rates: see `observe`.
    promised (float | None): The miss rate guaranteed by the pipeline, or None if there is no
        guarantee.
    shift (str): The verdict on whether the docs are similar to the calibration docs. Empty if there
        are no calibration docs.
    cost (str): The registered name of the cost. Empty if the config doesn't define one, in which
        case each wrong tag costs 1.
    confusion (Confusion): The confusion matrix of labels by cost.
    kinds (dict[str, TotalsOfKind]): The totals for each kind of mistake in `REPORTED_KINDS`.
    mistakes (list[Mistake]): The mistakes with the highest cost. If costs are equal, mistakes with
        a higher confidence come first.
    transitions (TransitionWeights): The transition weights of the chain.
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
    setting_counts: PRFScore
    has_presets: bool
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
    examples (Iterable[Example]): Annotated test docs that were not used for training, tuning or
        calibration.
    name (str): Name of the component.
    n_mistakes (int): Number of mistakes to show, costliest first.
    source (str): The path of the pipeline to show on the page.
    corpus (str): The path of the docs to show on the page.
    RETURNS (Report): The content of the page.
    RAISES (ValueError): If the component is missing, if no entities are annotated, or if a label
        has no cost or isn't in the label tree.
    """
    ner = get_component(nlp, name)
    examples = list(examples)
    block = nlp.config.interpolate()["components"][name]  # the config block of the component
    cost, tree, cost_name = find_cost(block)
    inner_nodes: Iterable[str] = ()
    if tree is not None:
        inner_nodes = tree.lineages  # the keys are all nodes, including labels
    notes = find_faults(
        nlp,
        ner,
        examples,
        corpus or "the corpus",
        inner_nodes=inner_nodes,
        must_share=False,  # reported as a fact: see `optional_facts`
    )
    dev = predict_dev(nlp, ner, examples)
    notes += note_misaligned([dev])
    # Warn if the docs used for tuning or calibration were split into tokens or sentences
    # differently.
    ner.compare_reading([eg.predicted for eg in dev.examples])
    # These must run before `predict` writes to the docs, because all entities would be presets.
    shift = shift_text(ner, dev)
    presets = ner.annotation.read_presets([eg.predicted for eg in dev.examples])
    has_presets = presets.has_annotation
    curves, thresholds = find_curves(dev)

    # Scores. `predict` sets the entities of the docs, using the decoding of the component.
    prediction = predict(ner, [eg.predicted for eg in dev.examples], dev.posterior, CONFIDENCE)
    settings = {"labels": ner.labels, "scheme": ner.cfg["scheme"]}
    getter = partial(get_annotated, ner)
    scores = cost_scores(
        cost, tree, dev.examples, **settings, confidence=asdict(CONFIDENCE), getter=getter
    )
    pairs_of_docs = entity_pairs(dev.examples, getter)
    counts = count_entities(pairs_of_docs, ner.labels, tree)

    # Mistakes
    tag_pairs = compare_tags(dev.examples, **settings)
    cost_table = cost(tag_pairs.tags)
    sides_of_docs = find_sides(dev, tag_pairs, prediction)
    ranked = rank_mistakes(sides_of_docs, tag_pairs, cost_table)
    mistakes = [show_mistake(mistake, dev, sides_of_docs) for mistake in ranked[:n_mistakes]]

    # `entity_pairs` uses the same docs in the same order.
    annotated = select_annotated(dev.examples)
    unit_of_doc = units_of_docs([eg.reference for eg in annotated])

    # Facts
    n_docs = len(pairs_of_docs)
    n_tokens = int((tag_pairs.gold >= 0).sum())  # -1 if a token isn't annotated
    n_entities = counts.total.tp + counts.total.fn
    facts = {
        "pipeline": source,
        "corpus": f"{corpus}: {n_docs:,} docs, {n_tokens:,} tokens, {n_entities:,} entities",
        "component": name,
        **settings_facts(ner, block, cost_name),
        **optional_facts(ner, dev, find_annotated_labels(pairs_of_docs)),
    }

    promise = ner.guarantee
    setting_counts = count_in_predictions(dev, dev.select_counted(prediction.entities))
    parameter_of_decoding, setting = find_setting(ner.cfg["decoding"], setting_counts)
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
        setting_counts=setting_counts,
        has_presets=has_presets,
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


def get_annotated(ner: CostSensitiveNER, doc: Doc) -> list[Span]:
    """Return the annotated entities of a reference doc in `DevPredictions.examples`, including
    spans that the component drops in training because they overlap with longer ones."""
    return [*doc.ents, *ner.annotation.dropped_spans(doc, ner.own_labels)]


def settings_facts(ner: CostSensitiveNER, block: dict[str, Any], cost_name: str) -> dict[str, str]:
    """Collect the settings of a component, keyed by name. `block` is the component's config
    block."""
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
    """Collect the facts that only apply to some reports, keyed by name: entities that can't be
    predicted, a guaranteed miss rate, or no labels in common. `annotated_labels` are the labels of
    the annotated entities."""
    facts: dict[str, str] = {}
    # If docs are split into sentences or lines, each of them is predicted separately, so an entity
    # that crosses a boundary can't be predicted.
    n_across_boundaries = int(dev.posterior.crosses_border(dev.gold).sum())
    if n_across_boundaries:
        facts["across boundaries"] = f"{n_across_boundaries:,} {UNPREDICTABLE}"
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
    """Return the verdict on whether docs are similar to the calibration docs, or an empty string if
    the component has no calibration docs."""
    calibration = ner.calibration_scores
    if calibration is None:
        return ""
    entropies = dev.entropies()
    # A doc has no score if all its tokens were already annotated before the component ran.
    entropies = entropies[~numpy.isnan(entropies)]
    # The test requires a random order, but the docs in a file may be sorted.
    scores = in_random_order(entropies.tolist())
    return find_shift(calibration.pool(), scores).verdict


def decoding_fact(name: str, decoding: dict[str, Any]) -> str:
    """Format the registered name of a decoding, its threshold or bias, and its values for
    individual labels."""
    words = [name]
    for parameter in TUNABLE:
        if parameter in decoding:
            words.append(f"{parameter} {decoding[parameter]:g}")
    for label, value in decoding.get("labels", {}).items():
        words.append(f"{label} {value:g}")
    return ", ".join(words)


def temperature_fact(temperature: dict[str, Any]) -> str:
    """Format the temperature of a component."""
    overall = f"{temperature['overall']:.3f}"
    if temperature["labels"]:
        return f"{overall}, and one for each label"
    return overall
