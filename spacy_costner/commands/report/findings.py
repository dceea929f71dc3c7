"""What there is to say of a trained pipeline on a corpus, as data: nothing is drawn here."""

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
from ...pipeline.annotations import Confidence, ScoredSpans, annotate, score_spans
from ...pipeline.component import CostSensitiveNER
from ...pipeline.scorers import (
    TagPairs,
    compare_tags,
    cost_scores,
    count_at_level,
    count_by_label,
    entity_pairs,
)
from ...pipeline.token_attrs import read_presets
from ...tags import OUTSIDE
from ...types import Cost
from ..dev_predictions import DevPredictions, get_component, predict_dev
from ..explain import Steps, TagProfile, explain, steps
from ..tune import DIALS, Point, sweep
from .mistakes import Mistakes, find_mistakes

CONFIDENCE = Confidence(spans_key="report")


class Pricing(NamedTuple):
    """What mistakes cost.

    cost (Cost): The cost.
    tree (Optional[Tree]): The tree of labels, if there is one.
    name (str): What the cost is called in the config; empty if there is none there, and each
        wrong tag costs 1.
    """

    cost: Cost
    tree: Optional[Tree]
    name: str


class About(NamedTuple):
    """What a report is about.

    pipeline (str): The name of the pipeline.
    version (str): Its version.
    source (str): Where it was loaded from.
    corpus (str): The name of the corpus.
    component (str): The name of the component.
    day (date): The day of the report.
    settings (Dict[str, str]): How the component is set, in words.
    docs (int): Docs that are annotated.
    tokens (int): Their tokens, those that are annotated.
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
    """What was taken for what, [gold, predicted].

    labels (List[str]): The labels that are ever mistaken, and O, which comes last.
    cost (Floats2d): What that cost, over all tokens; of the right label it is the cost of
        wrong boundaries. Shape: (labels, labels)
    """

    labels: List[str]
    cost: Floats2d


class Findings(NamedTuple):
    """What there is to say.

    about (About): What it is about.
    total (PRFScore): The entities that are right, wrong and missed.
    scores (Dict[str, Any]): What `scorers.cost_scores` has to say.
    labels (Dict[str, PRFScore]): Entities by label.
    levels (List[PRFScore]): Entities by level of the tree, from the top; none without one.
    curves (Dict[str, List[Point]]): What other settings of each dial are good for.
    setting (Point): What the present setting is good for; its value is that of the dial, NaN
        if the decoding has none.
    dial (Optional[str]): The dial of the decoding.
    pricing (Pricing): What mistakes cost.
    confusion (Confusion): What was taken for what.
    mistakes (Mistakes): The mistakes.
    steps (Steps): The weights of transitions.
    features (List[TagProfile]): What speaks for and against tags; none if the model has no
        sparse features.
    """

    about: About
    total: PRFScore
    scores: Dict[str, Any]
    labels: Dict[str, PRFScore]
    levels: List[PRFScore]
    curves: Dict[str, List[Point]]
    setting: Point
    dial: Optional[str]
    pricing: Pricing
    confusion: Confusion
    mistakes: Mistakes
    steps: Steps
    features: List[TagProfile]


def gather(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    source: str = "",
    corpus: str = "",
    n_mistakes: int = 20,
) -> Findings:
    """Run a pipeline once over a corpus, and find what there is to say.

    nlp (Language): The trained pipeline. It stays as it is.
    examples (Iterable[Example]): The docs. They should be none that it was trained or tuned on.
    name (str): The name of the component.
    source (str): Where the pipeline was loaded from, to be written on the page.
    corpus (str): Where the docs are from, likewise.
    n_mistakes (int): How many mistakes to show.
    RETURNS (Findings): What there is to say.
    RAISES (ValueError): If there is no such component, no annotated entity, or a label that
        has no cost or is not in the tree.
    """
    ner = get_component(nlp, name)
    development = predict_dev(nlp, name, examples)
    curves = {dial: sweep(development, dial) for dial in DIALS}
    rated = answer(ner, development)
    examples = development.examples
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
    dial = next((dial for dial in DIALS if dial in ner.cfg["decoding"]), None)
    tree = pricing.tree
    return Findings(
        about=describe(nlp, name, pricing, pairs)._replace(source=source, corpus=corpus),
        total=total,
        scores=scores,
        labels={label: labels[label] for label in order},
        levels=[count_at_level(entities, tree, 1 + i) for i in range(tree.depth)] if tree else [],
        curves=curves,
        setting=Point(
            ner.cfg["decoding"].get(dial, numpy.nan),
            total.precision if total.tp + total.fp else 1.0,
            total.recall,
        ),
        dial=dial,
        pricing=pricing,
        confusion=confuse(pairs, table, order),
        mistakes=find_mistakes(development, pairs, table, rated, n_mistakes),
        steps=steps(ner.tags, development.posterior.scores),
        features=profiles(nlp, name),
    )


def answer(ner: CostSensitiveNER, development: DevPredictions) -> ScoredSpans:
    """Decode docs, from what is believed of them already, and write the answers to them.

    ner (CostSensitiveNER): The component.
    development (DevPredictions): The docs. They get entities and, in a group, their confidence.
    RETURNS (ScoredSpans): The answers.
    """
    docs, posterior = [eg.predicted for eg in development.examples], development.posterior
    prediction = score_spans(ner.decode(posterior), posterior, read_presets(docs), CONFIDENCE)
    annotate(docs, prediction, ner.vocab.strings, CONFIDENCE)
    return prediction.predicted


def find_pricing(component: Mapping[str, Any]) -> Pricing:
    """What mistakes cost: as the scorer says, otherwise the loss, otherwise decoding.

    component (Mapping[str, Any]): The block of the component in the config.
    RETURNS (Pricing): The cost; that of Hamming if none is found. And the tree.
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
    """The first value of a key, in blocks or the blocks in them; None if there is none."""
    for block in blocks:
        if isinstance(block, Mapping):
            found = block.get(key)
            found = _first(block.values(), key) if found is None else found
            if found is not None:
                return found
    return None


def in_order(labels: Iterable[str], tree: Optional[Tree]) -> List[str]:
    """Labels in the order of the tree, so that neighbours stand together; or in theirs."""
    nodes = [] if tree is None else list(tree.lineages)
    return sorted(labels, key=lambda label: nodes.index(label) if nodes else 0)


def confuse(pairs: TagPairs, table: Floats2d, order: Sequence[str]) -> Confusion:
    """What was taken for what.

    pairs (TagPairs): The tags of gold and of the answer.
    table (Floats2d): What each mistake costs. Shape: (K, K)
    order (Sequence[str]): The labels of both, in the order that they are to have.
    RETURNS (Confusion): The cost. Labels that are never mistaken are left out.
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
    """What speaks for and against each tag; nothing if the model has no sparse features."""
    try:
        return explain(nlp, name=name, n_features=n_features).tags
    except ValueError:
        return []


def describe(nlp: Language, name: str, pricing: Pricing, pairs: TagPairs) -> About:
    """Say what a report is about."""
    block, cfg = nlp.config.interpolate()["components"][name], get_component(nlp, name).cfg
    known = pairs.gold >= 0
    doc = numpy.repeat(numpy.arange(len(pairs.lengths)), pairs.lengths)
    temperature = f"{cfg['temperature']['overall']:.3f}"
    if cfg["temperature"]["labels"]:
        temperature += ", labels have their own"
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
        },
        docs=len(numpy.unique(doc[known])),
        tokens=int(known.sum()),
    )


def decoding_in_words(block: str, settings: Mapping[str, Any]) -> str:
    """The decoding and its dial, if it has one."""
    values = [f"{dial} {settings[dial]:g}" for dial in DIALS if dial in settings]
    values += [f"{label} {value:g}" for label, value in settings.get("labels", {}).items()]
    return ", ".join([block, *values])
