"""The sections of a config that depend on a plan: cost, loss, decoding, scores."""

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from spacy.util import registry
from thinc.api import Config

from ...costs.cost_matrix import make_matrix
from ...costs.label_tree import make_tree
from ...tags import OUTSIDE, Tags
from .goes_together import LOSSES, NO_START, Costs, Plan, takes_cost
from .sections import Section, below, find, make_section, read, rename, render
from .sizes import value

LOSS, COST, DECODING, SCORER, CONFIDENCE = (
    f"components.ner.{name}" for name in ("loss", "scorer.cost", "decoding", "scorer", "confidence")
)
SHARED = f"${{{COST}}}"
"""The cost, as other sections refer to it."""

MARGIN = 5.0
"""Largest score in training for a cost: that of a miss in configs/costs/recall.cfg."""

MULTIPLIERS = ("multiplier", "alpha")
"""What losses call the score per unit of cost."""

REFERENCE = "# README.md lists all costs."


def cost_sections(costs: Costs) -> List[Section]:
    """The sections of a cost; of the Hamming cost if none is given.

    costs (Costs): What mistakes cost.
    RETURNS (List[Section]): The sections, a sum if there are several costs.
    """
    parts: Dict[str, Dict[str, Any]] = {}
    if costs.tree is not None:
        parts["tree"] = {"function": _misc("HierarchicalCost"), "tree": "${paths.tree}"}
    if costs.matrix is not None:
        parts["matrix"] = {"function": _misc("MatrixCost"), "matrix": "${paths.costs}"}
    if costs.plain is not None or not costs:
        parts["tags"] = {
            "function": _misc("ZeroOneCost" if costs.plain == "zero-one" else "HammingCost")
        }
    if costs.mistakes:
        other = 0.0 if parts else 1.0
        kinds = ("miss", "false_alarm", "wrong_label", "wrong_boundary")
        weights = {kind: costs.mistakes.get(kind, other) for kind in kinds}
        parts["mistakes"] = {"function": _misc("PrecisionRecallCost"), **weights}
    comment = "What each mistake costs, per token. Training, decoding and scores refer to it."
    if len(parts) == 1:
        return [make_section(COST, comment, **settings) for settings in parts.values()]
    return [
        make_section(COST, f"{comment}\nThe sum of the costs below.", function=_misc("SumCost")),
        make_section(f"{COST}.costs"),
        *(make_section(f"{COST}.costs.{name}", **settings) for name, settings in parts.items()),
    ]


def _misc(name: str) -> str:
    return f"@misc = spacy_costner.{name}.v1"


def cost_paths(costs: Costs) -> Dict[str, Path]:
    """The files of costs, by their names in [paths]."""
    files = {"tree": costs.tree, "costs": costs.matrix}
    return {name: path for name, path in files.items() if path is not None}


def largest_cost(costs: Costs, labels: Sequence[str]) -> float:
    """The cost of the most expensive mistake. Reads and checks the files.

    costs (Costs): What mistakes cost.
    labels (Sequence[str]): The labels of the corpus; none if unknown.
    RETURNS (float): The highest cost of a token.
    RAISES (ValueError): If a number is not a cost, a file can't be read, or a label is missing in
        it.
    """
    paths = {name: str(path) for name, path in cost_paths(costs).items()}
    parents = [make_section(name) for name in ("components", "components.ner", SCORER)]
    text = render([], [make_section("paths", **paths), *parents, *cost_sections(costs)])
    block = Config().from_str(text)["components"]["ner"]["scorer"]["cost"]
    cost = registry.resolve({"cost": block})["cost"]
    return float(cost(Tags(labels or _labels_of(costs))).max())


def _labels_of(costs: Costs) -> List[str]:
    """The labels that the files speak of."""
    if costs.matrix is not None:
        rows = make_matrix(costs.matrix, "spacy_costner.MatrixCost: matrix").rows
        return [label for label in rows if label != OUTSIDE]
    if costs.tree is not None:
        return list(make_tree(costs.tree, "spacy_costner.HierarchicalCost: tree").lineages)
    return ["label"]


def score_per_cost(largest: float, has_tree: bool) -> float:
    """The multiplier of losses: 1, or 0.5 with a tree, less if mistakes are very expensive."""
    most = 0.5 if has_tree else 1.0
    return most if largest * most <= MARGIN else float(f"{MARGIN / largest:.2g}")


def loss_sections(plan: Plan, scale: float, ends: Sequence[float]) -> List[Section]:
    """The sections of a loss, from its config in configs/losses.

    plan (Plan): The plan.
    scale (float): See `score_per_cost`.
    ends (Sequence[float]): In a schedule, the epochs after which all losses but the last end.
    RETURNS (List[Section]): The sections. Losses with a cost refer to that of the scorer.
    """
    templates = [_template(loss) for loss in plan.losses]
    sections = templates[0] if len(templates) == 1 else _in_turn(plan.losses, templates)
    if find(sections, f"{LOSS}.*") is not None:
        sections = [sections[0].with_value("epochs", list(ends)), *sections[1:]]
    for stage in [each for each in sections if any("@losses" in line for line in each.body)]:
        sections = _with_cost(sections, stage, plan, scale)
    return sections


def is_schedule(losses: Sequence[str]) -> bool:
    """Whether losses become a schedule: several, or one that needs a likelihood model."""
    return len(losses) > 1 or losses[0] in NO_START


def _template(loss: str) -> List[Section]:
    """The sections of a loss, with the first paragraph of its config as a comment."""
    head, sections = read(f"losses/{LOSSES[loss]}")
    first, *others = below(sections, LOSS)
    return [first._replace(comment=tuple(head[0].splitlines())), *others]


def _in_turn(losses: Sequence[str], templates: Sequence[List[Section]]) -> List[Section]:
    """The sections of a schedule of losses."""
    n_losses = len(losses)
    names = ["first", "then"] if n_losses == 2 else [f"loss_{i + 1}" for i in range(n_losses)]
    schedule, star = read("losses/risk")[1], f"{LOSS}.*"
    head = next(each for each in schedule if each.name == LOSS)
    sections = [head._replace(comment=(f"What training minimises: {', then '.join(losses)}.",))]
    sections.append(make_section(star))
    for name, template in zip(names, templates):
        own = f"{star}.then" if find(template, f"{star}.then") is not None else LOSS
        first, *others = rename(template, own, f"{star}.{name}")
        comment = first.comment or template[0].comment
        sections += [first._replace(comment=comment), *others]
    return sections


def _with_cost(
    sections: Sequence[Section], stage: Section, plan: Plan, scale: float
) -> List[Section]:
    """Let a loss refer to the shared cost, if there is one."""
    registered = value([stage], f"{stage.name}.@losses")
    loss = registered.removeprefix("spacy_costner.").removesuffix(".v1")
    own = f"{stage.name}.cost"
    if loss == "Schedule" or not takes_cost(loss):
        return list(sections)
    if not plan.has_cost:
        return [
            each._replace(body=tuple(line for line in each.body if line != REFERENCE))
            for each in sections
        ]
    changed = stage.with_value("cost", SHARED)
    if loss == "Mixed":
        changed = changed.with_value("multiplier", 1.0)
    for name in MULTIPLIERS:
        if any(line.startswith(f"{name} =") for line in changed.body):
            most = value([changed], f"{stage.name}.{name}")
            changed = changed.with_value(name, float(f"{most * scale:.2g}"))
    kept = [each for each in sections if each not in below(sections, own)]
    return [changed if each == stage else each for each in kept]


def decoding_sections(plan: Plan, template: Sequence[Section]) -> List[Section]:
    """The sections of a decoding.

    plan (Plan): The plan.
    template (Sequence[Section]): The config of the model, which has ViterbiDecoding.
    RETURNS (List[Section]): The sections.
    """
    comment = "How entities are chosen from scores. It can be changed without retraining."
    if plan.decoding == "min-cost":
        comment += "\nHere: the tags with the lowest expected cost."
        tree: Dict[str, Any] = {"tree": "${paths.tree}"} if plan.inner_nodes else {}
        return [
            make_section(DECODING, comment, function=_misc("MinCostDecoding"), **tree, cost=SHARED)
        ]
    if plan.is_tuned:
        comment += "\n`costner tune` replaces it by the best threshold or bias."
    if plan.decoding == "threshold":
        comment += "\nHere: the entities whose probability is at least the threshold."
        section = make_section(
            DECODING, comment, function=_misc("ThresholdDecoding"), threshold=_threshold(plan)
        )
        return [section, make_section(f"{DECODING}.labels")]
    first, *others = below(template, DECODING)
    comment += "\nHere: the best path."
    return [first._replace(comment=tuple(comment.splitlines())), *others]


def _threshold(plan: Plan) -> float:
    """The threshold of the lowest expected cost: see docs/decoding.md."""
    miss = plan.costs.mistakes.get("miss", 1.0)
    false_alarm = plan.costs.mistakes.get("false_alarm", 1.0)
    if plan.aim != "cost" or not miss + false_alarm:
        return 0.5
    return round(false_alarm / (miss + false_alarm), 4)


def scorer_sections(plan: Plan) -> List[Section]:
    """The scorer with its cost, and the scores that select the best model."""
    has_tree = plan.costs.tree is not None
    tree: Dict[str, Any] = {"tree": "${paths.tree}"} if has_tree else {}
    levels = "\nWith the tree: F on each of its levels." if has_tree else ""
    comment = f"Scores: precision, recall, F, and ents_cost, the average cost per token.{levels}"
    return [
        make_section(
            SCORER,
            comment,
            function="@scorers = spacy_costner.cost_scorer.v1",
            **tree,
        ),
        *cost_sections(plan.costs),
    ]


def confidence_section() -> Section:
    """The probabilities of entities, and where `costner guarantee` writes its set."""
    comment = (
        'The exact probability of each entity is in doc.spans["confidence"].\nThe set that misses '
        'at most a promised share of entities will be in doc.spans["confidence_guaranteed"]:\n'
        "`costner guarantee` chooses it on docs that neither training nor `calibrate` has seen."
    )
    settings = {"spans_key": "confidence", "extension": "confidence"}
    return make_section(CONFIDENCE, comment, function=_misc("Confidence"), **settings)


def score_weights(plan: Plan) -> Section:
    """The scores that select the best model."""
    by_cost = plan.aim == "cost"
    comment = "The best model is the one with the " + ("lowest cost." if by_cost else "highest F.")
    weights: Dict[str, Any] = {"ents_cost": -1.0 if by_cost else 0.0}
    weights.update(ents_f=0.0 if by_cost else 1.0, ents_p=0.0, ents_r=0.0, ents_per_type=None)
    if plan.costs.tree is not None:
        weights["ents_f_level_1"] = 0.0
    comment += " Scores in the training table are times 100."
    return make_section("training.score_weights", comment, **weights)


def describe(plan: Plan) -> List[Tuple[str, str]]:
    """A plan in words, by part."""
    costs = [f"{name} {path}" for name, path in cost_paths(plan.costs).items()]
    costs += [plan.costs.plain] if plan.costs.plain is not None else []
    costs += [f"{kind} {cost:g}" for kind, cost in plan.costs.mistakes.items()]
    aims = {
        "f": "the best F",
        "precision": f"the best recall at a precision of at least {plan.required}",
        "recall": f"the best precision at a recall of at least {plan.required}",
        "cost": "the lowest cost",
        "guarantee": "a guaranteed miss rate",
    }
    words = [
        ("model", plan.model),
        ("loss", ", then ".join(plan.losses)),
        ("cost", " + ".join(costs) or "1 for every wrong tag"),
        ("decoding", plan.decoding),
        ("aim", aims[plan.aim]),
    ]
    is_used = plan.has_cost or any(map(takes_cost, plan.losses))
    return [each for each in words if is_used or each[0] != "cost"]
