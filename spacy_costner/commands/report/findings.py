"""Evaluate a trained pipeline on a corpus: the data of a report, before it is rendered."""

from dataclasses import asdict
from datetime import date
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import numpy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.training import Example
from spacy.util import registry
from thinc.types import Floats2d

from ...costs.label_tree import Tree, make_tree
from ...costs.tables import hamming_cost
from ...pipeline.annotations import Confidence
from ...pipeline.scorers import (
    TagPairs,
    compare_tags,
    cost_scores,
    count_at_level,
    count_by_label,
    entity_pairs,
)
from ...tags import OUTSIDE
from ...types import Cost
from ..dev_predictions import get_component, predict, predict_dev
from ..explain import TagProfile, TransitionWeights, explain, transition_weights
from ..guarantee import Observed, observe
from ..tune import PARAMETERS, Point, sweep
from .mistakes import Mistakes, find_mistakes

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
    found = predict(ner, dev, CONFIDENCE)
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
