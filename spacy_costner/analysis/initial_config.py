"""Write a commented config for `spacy train`, as `spacy init config` does. The template is
templates/init.cfg.jinja; this module chooses its values."""

import json
import math
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from inspect import getdoc, signature
from itertools import product
from pathlib import Path
from typing import Any, Literal

import spacy
from spacy.cli.init_config import RECOMMENDATIONS
from spacy.util import get_lang_class, registry
from thinc.api import Config

import spacy_costner

from ..costs.cost_matrix import make_matrix
from ..costs.label_tree import make_tree
from ..costs.tables import HAMMING
from ..readers import ReadOptions, read_docs
from ..rendering import get_template
from ..saving import save_text
from ..settings import check_settings
from ..tags import OUTSIDE, Tags
from ..training.lbfgs import MANY_LABELS
from ..types import Loss
from .preparation import FEW, count_sentences
from .tuning import parse_aim

RECOMMENDED = {"Mixed": {"k": 3.0}, "Perceptron": {"alpha": 1.0}, "ZScore": {"multiplier": 20.0}}
"""Settings of losses where they are not the defaults."""

MISSES = {
    "@misc": "spacy_costner.PrecisionRecallCost.v1",
    **{"miss": 2.0, "false_alarm": 1.0, "wrong_label": 1.0, "wrong_boundary": 1.0},
}
"""The cost in training on few sentences, where models miss too much."""

MOST_LOST = 0.01
"""The share of the spans of a label that may overlap with those of others in its component."""

LATER_EPOCHS = 2
"""Passes over the training data for each loss of a schedule but the first."""


def init(
    output_path: Path = Path("config.cfg"),
    *,
    model: Literal["linear", "cnn", "hybrid", "transformer"] = "linear",
    lang: str = "en",
    train_path: Path | None = None,
    dev_path: Path | None = None,
    aim: str | None = None,
    miss: float | None = None,
    false_alarm: float | None = None,
    wrong_label: float | None = None,
    wrong_boundary: float | None = None,
    tree_path: Path | None = None,
    tree_by_prefix: str | None = None,
    cost: str | None = None,
    loss: str | None = None,
    decoding: Literal["viterbi", "threshold", "min-cost"] | None = None,
    inner_nodes: bool = False,
    spans_key: str | None = None,
    groups_path: Path | None = None,
    transformer: str | None = None,
    command: str = "python -m spacy costner init",
) -> str:
    """Make a config. docs/init.md says what is chosen where an argument is None. Costs are by
    token. With a separator of labels, `tree_by_prefix`, the file of `tree_path` is written.

    output_path (Path): Where it will be, for the commands at its head. It is not written.
    command (str): The command that makes it, for its head.
    model (Literal["linear", "cnn", "hybrid", "transformer"]): Model.
    lang (str): Code of the language.
    train_path (Path | None): Training corpus, to choose sizes; any format.
    dev_path (Path | None): Development corpus; any format.
    aim (str | None): f (best F), cost (lowest cost), guarantee (a promised miss rate),
        precision=0.9 (best recall with at least this precision) or recall=0.9.
    miss (float | None): Cost of a missed entity, for each token.
    false_alarm (float | None): Cost of a false alarm, for each token.
    wrong_label (float | None): Cost of a wrong label, for each token.
    wrong_boundary (float | None): Cost of a wrong boundary, where the label is right, for each
        token.
    tree_path (Path | None): Label tree, a JSON or YAML file: near labels cost less.
    tree_by_prefix (str | None): Write the tree: labels below their part before this separator, such
        as _.
    cost (str | None): hamming, zero-one or a CSV file: the cost of each pair of labels.
    loss (str | None): Loss, or several, separated by commas.
    decoding (Literal["viterbi", "threshold", "min-cost"] | None): How entities are chosen.
    inner_nodes (bool): Also predict inner nodes of the tree.
    spans_key (str | None): Entities may overlap: the key of doc.spans.
    groups_path (Path | None): JSON file, {component: [labels]}: labels of different components may
        overlap.
    transformer (str | None): Name or folder of the transformer.
    RETURNS (str): The config.
    RAISES (ValueError): If there is no such loss, cost or aim, if arguments don't go together, or
        if a file can't be read or lacks a label of the corpus.
    RAISES (ImportError): If spaCy has no such language.
    """
    get_lang_class(lang)
    if transformer is not None and model != "transformer":
        raise ValueError(f"--transformer: expected --model transformer, got --model {model}")
    if aim is not None:
        parse_aim(aim, "cost", "guarantee", option="--aim")
    spans_key = spans_key or ("sc" if groups_path else None)
    corpus = read_corpus(train_path, lang, spans_key)
    groups = choose_groups(corpus, groups_path) if spans_key is not None else {}
    components = [*groups] or ["ner"]
    few = corpus["sentences"] < FEW

    # What mistakes cost: a part for each option that is given.
    given = {"miss": miss, "false_alarm": false_alarm}
    given |= {"wrong_label": wrong_label, "wrong_boundary": wrong_boundary}
    mistakes = {kind: value for kind, value in given.items() if value is not None}
    matrix_path = Path(cost) if cost is not None and Path(cost).is_file() else None
    paths = {"tree": tree_path, "costs": matrix_path}
    files = {name: str(path) for name, path in paths.items() if path is not None}
    costs: dict[str, dict[str, Any]] = {}
    if tree_path is not None:
        costs["tree"] = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": "${paths.tree}"}
    if matrix_path is not None:
        costs["matrix"] = {"@misc": "spacy_costner.MatrixCost.v1", "matrix": "${paths.costs}"}
    elif cost is not None:
        costs["tags"] = {"@misc": f"spacy_costner.{find_name('Cost', cost, 'a CSV file')}Cost.v1"}
    if mistakes:
        weights = {kind: mistakes.get(kind, 0.0 if costs else 1.0) for kind in given}
        costs["mistakes"] = {"@misc": "spacy_costner.PrecisionRecallCost.v1", **weights}
    aim = aim or ("cost" if costs or decoding == "min-cost" else "f")
    shared: Any = next(iter(costs.values()), HAMMING if aim == "cost" else None)
    if len(costs) > 1:
        shared = {"@misc": "spacy_costner.SumCost.v1", "costs": costs}
    if spans_key is not None and shared is not None:
        raise ValueError("--spans-key: expected no costs with it, as their scores are of doc.ents")

    chosen = choose_losses(model, aim, costs, few=few)
    losses = chosen if loss is None else parse_losses(loss)
    last = build_loss(losses[-1])
    has_probabilities = last.has_probabilities
    # The best path of a linear model that learned a cost is better than the least expected cost of
    # its shifted probabilities: see docs/init.md.
    learned_cost = model == "linear" and last.shifts_probabilities and not inner_nodes
    by_cost = aim == "cost" and has_probabilities and not learned_cost
    decoding = decoding or ("min-cost" if by_cost else "viterbi")
    if decoding == "min-cost" and aim != "cost":
        raise ValueError(
            "--decoding: expected min-cost with --aim cost only: `costner tune` would replace it, "
            "and `costner guarantee` chooses a set of spans"
        )
    if not has_probabilities and (decoding != "viterbi" or aim == "guarantee"):
        with_it = "--aim guarantee" if aim == "guarantee" else f"--decoding {decoding}"
        raise ValueError(
            f"--loss: expected a loss such as Sequential with {with_it}, got {losses[-1]}: its "
            "scores are not probabilities"
        )
    uses_cost = tree_path is not None or any(build_loss(name).cost for name in losses)
    if costs and aim != "cost" and not uses_cost:
        raise ValueError(
            f"--loss: expected a loss that takes a cost, or --aim cost, got {', '.join(losses)}: "
            "nothing would use what you say mistakes cost"
        )
    if inner_nodes and (decoding != "min-cost" or tree_path is None):
        raise ValueError("--inner-nodes: expected --tree and --decoding min-cost with it")

    if tree_by_prefix is not None:
        if train_path is None or tree_path is None:
            raise ValueError("--tree-by-prefix: expected --train, whose labels are in the tree")
        labels, tree = sorted(corpus["counts"]), dict[str, Any]()
        if not tree_by_prefix or not any(tree_by_prefix in label for label in labels):
            raise ValueError(
                f"--tree-by-prefix: expected a separator in labels, got {tree_by_prefix!r} for "
                f"{', '.join(labels)}"
            )
        for label in labels:
            prefix = label.partition(tree_by_prefix)[0] or label
            tree.setdefault(prefix, {}).update({label: {}} if label != prefix else {})
        save_text(tree_path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")

    sizes = choose_sizes(model, corpus)
    n_later = len(losses) - 1
    first = max(5, math.ceil(500 / sizes["eval_frequency"]))
    if sizes["max_epochs"]:
        first = max(1, sizes["max_epochs"] - LATER_EPOCHS * n_later)
    epochs = [float(first + LATER_EPOCHS * i) for i in range(n_later)]
    # The score per unit of cost: 1, or 0.5 with a tree, but no mistake has a score above 5.
    multiplier = 1.0 if tree_path is None else 0.5
    if shared is not None and multiplier * (largest := find_largest(shared, files, corpus)) > 5:
        multiplier = float(f"{5 / largest:.2g}")
    own_cost = "${components.ner.scorer.cost}" if shared else MISSES if loss is None else None
    loss_block = make_loss(losses, own_cost, multiplier=multiplier, epochs=epochs)
    threshold, both = 0.5, mistakes.get("miss", 1.0) + mistakes.get("false_alarm", 1.0)
    if aim == "cost" and both:
        threshold = round(1 - mistakes.get("miss", 1.0) / both, 4)  # see docs/decoding.md
    modes: dict[str, tuple[str, dict[str, Any]]] = {
        "viterbi": ("Viterbi", {"bias": 0.0, "labels": {}}),
        "threshold": ("Threshold", {"threshold": threshold, "labels": {}}),
        "min-cost": ("MinCost", {"cost": own_cost}),
    }
    kind, settings = modes[decoding]
    decoding_block = {"@misc": f"spacy_costner.{kind}Decoding.v1", **settings}
    if inner_nodes:
        decoding_block["tree"] = "${paths.tree}"
    lossy = [name for name, own in groups.items() if {*product(own, own)} & {*corpus["overlaps"]}]
    known = RECOMMENDATIONS.get(lang, RECOMMENDATIONS["__default__"])["transformer"]["efficiency"]
    # The template sees the variables of this function.
    template = get_template("init.cfg.jinja", as_text, read_notes, shlex.quote)
    text = template.render(locals(), **sizes, version=spacy_costner.__version__)
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    check_settings(Config().from_str(text, interpolate=False), output_path)
    return text


def read_corpus(path: Path | None, lang: str, spans_key: str | None = None) -> dict[str, Any]:
    """Measure a training corpus; without one, it is large. "counts" are the numbers of spans by
    label, "overlaps" the numbers of pairs of them that overlap, by their labels."""
    lengths: list[int] = []
    counts: Counter[str] = Counter()
    overlaps: Counter[tuple[str, str]] = Counter()
    corpus = {"lengths": lengths, "counts": counts, "overlaps": overlaps}
    if path is None:
        return {**corpus, "sentences": math.inf, "forms": 5000}
    sentences, forms = 0, set[int]()
    keys = set[str]()  # of groups of spans, which `doc.ents` leaves out
    for doc in read_docs(spacy.blank(lang), path, ReadOptions(spans_key=spans_key)):
        lengths.append(len(doc))
        keys.update(key for key, spans in doc.spans.items() if len(spans))
        sentences += count_sentences(doc)
        forms.update(token.norm for token in doc)
        spans = sorted({*doc.spans.get(spans_key, ())} if spans_key else doc.ents)
        for i, one in enumerate(spans):
            counts[one.label_] += 1
            for other in spans[i + 1 :]:
                if other.start >= one.end:
                    break
                overlaps.update({(one.label_, other.label_), (other.label_, one.label_)})
    if not counts:
        where = "" if spans_key is None else f" in doc.spans[{spans_key!r}]"
        advice = ""
        if spans_key is None:
            key = min(keys, default="sc")
            advice = (
                ". If entities overlap, write a config with `costner init --spans-key "
                f"{key}`, and train with it"
            )
        raise ValueError(
            f"{path}: expected docs with entities{where}, got none in {len(lengths)} docs{advice}"
        )
    return {**corpus, "sentences": sentences, "forms": len(forms)}


def choose_groups(corpus: Mapping[str, Any], path: Path | None) -> dict[str, list[str]]:
    """The labels of each component, from a file. Without one, each label, the most frequent first,
    joins the group with which the fewest of its spans overlap or, if these are more than
    `MOST_LOST`, opens another."""
    counts, overlaps = corpus["counts"], corpus["overlaps"]
    if path is None:
        if not counts:
            raise ValueError("--spans-key: expected --groups or --train, to find groups of labels")
        found: list[list[str]] = []
        for label, n in counts.most_common():
            lost = [sum(overlaps[label, other] for other in own) for own in found]
            if min(lost, default=math.inf) <= MOST_LOST * n:
                found[lost.index(min(lost))].append(label)
            else:
                found.append([label])
        names = [f"ner_{i + 1}" for i in range(len(found))] if len(found) > 1 else ["ner"]
        return {name: sorted(own) for name, own in zip(names, found)}
    try:
        groups: Any = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        message = f"{path}: --groups: expected JSON, {{component: [labels]}}, got {error}"
        raise ValueError(message) from None
    items = groups.items() if isinstance(groups, dict) else ()
    if not items or not all(
        re.fullmatch(r"\w+", name) and own and isinstance(own, list) for name, own in items
    ):
        raise ValueError(f"{path}: expected {{component: [labels]}}, got {groups!r}")
    every = [label for own in groups.values() for label in own]
    if twice := [label for label, n in Counter(every).items() if n > 1]:
        raise ValueError(f"{path}: expected each label in one component, got {twice} in several")
    if missing := sorted({*counts} - {*every}):
        raise ValueError(f"{path}: expected all labels of the corpus, got none of {missing}")
    return groups


def choose_losses(model: str, aim: str, costs: Mapping[str, Any], *, few: bool) -> list[str]:
    """The losses that docs/which-loss.md recommends, by what options say costs: "tree", "matrix",
    "tags", "mistakes"."""
    if aim == "guarantee":
        return ["Sequential"]
    if "tree" in costs and aim != "cost":
        return ["SoftmaxMargin", "MCEF"] if model == "linear" else ["Sequential"]
    if "tree" in costs and model != "linear":
        return ["SoftmaxMargin", "Risk"]
    if costs or aim == "cost" or (model == "linear" and few):
        return ["SoftmaxMargin"]
    return ["Sequential"]


def parse_losses(text: str, option: str = "--loss") -> list[str]:
    """The names of losses, separated by commas. One that needs a start gets Sequential first. An
    error names the option."""
    losses = [find_name("Loss", name, option=option) for name in text.split(",")]
    return ["Sequential", *losses] if build_loss(losses[0]).needs_start else losses


def find_name(kind: str, given: str, *others: str, option: str | None = None) -> str:
    """The name of a registered "Loss" or "Cost". softmax_margin, SoftmaxMargin and
    spacy_costner.SoftmaxMargin.v1 are the same."""
    group, pattern = {
        "Loss": ("thinc_losses", r"spacy_costner\.(?!Schedule)(\w+)\.v1"),
        "Cost": ("spacy_misc", r"spacy_costner\.((?!Hierarchical|Matrix|Sum)\w+)Cost\.v1"),
    }[kind]
    found = (re.fullmatch(pattern, point.name) for point in entry_points(group=group))
    names = {match[1].lower(): match[1] for match in found if match}
    short = re.sub(r"^spacy_costner\.|(cost)?(\.v1)?$|[ _-]", "", given.strip().lower())
    if short not in names:
        choices = ", ".join([*names.values(), *others])
        hint = ": separate losses by commas for a schedule" if short == "schedule" else ""
        option = option or f"--{kind.lower()}"
        raise ValueError(f"{option}: expected any of {choices}, got {given!r}{hint}")
    return names[short]


def build_loss(name: str) -> Loss:
    """A loss, with the Hamming cost if it takes one."""
    built: Loss = registry.resolve({"loss": make_loss([name], HAMMING)})["loss"]
    return built


def make_loss(
    losses: Sequence[str],
    cost: Any = None,
    *,
    multiplier: float = 1.0,
    epochs: Sequence[float] = (5.0,),
) -> dict[str, Any]:
    """The block of a loss, or of a schedule of losses that end after these epochs, with its
    recommended settings. The cost is a block or a variable, the Hamming cost by default; the
    multiplier is a factor of the recommended score per unit of cost."""
    blocks = []
    for loss in losses:
        name = f"spacy_costner.{loss}.v1"
        parameters = signature(registry.losses.get(name)).parameters
        given = {key: p.default for key, p in parameters.items() if p.default is not None}
        block = {"@losses": name, **given, **RECOMMENDED.get(loss, {})}
        for score in {"multiplier", "alpha"} & {*block}:
            block[score] = float(f"{block[score] * multiplier:.2g}")
        if "cost" in parameters and (cost is not None or loss != "Mixed"):  # whose cost is optional
            block["cost"] = cost or HAMMING
        blocks.append(block)
    if len(blocks) == 1:
        return blocks[0]
    names = [f"loss_{i + 1}" for i in range(len(blocks))] if len(blocks) > 2 else ["first", "then"]
    stages = dict(zip(names, blocks))
    return {"@losses": "spacy_costner.Schedule.v1", "epochs": [*epochs], "*": stages}


def find_largest(
    cost: Mapping[str, Any], files: dict[str, str], corpus: Mapping[str, Any]
) -> float:
    """The cost of the worst mistake with the labels of the corpus, or of the files of costs."""
    labels = corpus["counts"]
    if not labels and "costs" in files:
        labels = make_matrix(files["costs"], "spacy_costner.MatrixCost: matrix").rows
    elif not labels and "tree" in files:
        labels = make_tree(files["tree"], "spacy_costner.HierarchicalCost: tree").lineages
    block = Config({"paths": files, "cost": cost}).interpolate()["cost"]
    tags = Tags([label for label in labels if label != OUTSIDE] or ["label"])
    return float(registry.resolve({"cost": block})["cost"](tags).max())


def choose_sizes(model: str, corpus: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the template that fit the size of a corpus, or a large one if it is unknown:
    100 batches or more in an epoch, and at least one evaluation."""
    lengths, is_linear = corpus["lengths"], model == "linear"
    part = sum(lengths) // 100 if lengths else 1000
    size = max(1, min(500, part)) if is_linear else max(100, min(1000, part))
    batcher: dict[str, Any] = {"@batchers": "spacy.batch_by_words.v1", "tolerance": 0.2}
    batcher |= {"discard_oversize": False, "size": size}
    if model == "transformer":
        batcher = {"@batchers": "spacy.batch_by_padded.v1", "size": 2000, "buffer": 256}
        batcher |= {"discard_oversize": True}
    epoch = 2000 if is_linear else 200
    if lengths:
        batch = registry.resolve({"batcher": batcher})["batcher"]
        n_batches = sum(1 for _ in batch([range(length) for length in lengths]))
        epoch = max(1, int(n_batches * 0.9))  # it may have fewer if docs are shuffled
    if model in ("cnn", "hybrid"):
        growing = {"@schedules": "compounding.v1", "start": 100, "stop": size, "compound": 1.001}
        batcher["size"] = growing
    patience, least_steps = (1000, 3000) if model == "hybrid" else (1600, 20000)
    return {
        "batcher": batcher,
        "rows": min(5000, max(1000, corpus["forms"])),
        "many_labels": len(corpus["counts"]) > MANY_LABELS,  # see docs/linear.md
        "long_docs": bool(lengths) and corpus["sentences"] >= 3 * len(lengths),
        "patience": 0 if is_linear else max(patience, 2 * epoch),
        "max_epochs": 8 if is_linear else 0,
        "max_steps": 0 if is_linear else max(least_steps, 5 * epoch),
        "eval_frequency": max(1, epoch // 2) if is_linear else min(200, epoch),
    }


def as_text(value: Any) -> str:
    """A value as a config has it: JSON, or a variable."""
    is_variable = isinstance(value, str) and value.startswith("${")
    return value if is_variable else json.dumps(value, ensure_ascii=False, default=str)


def read_notes(block: Mapping[str, Any]) -> dict[str, list[str]]:
    """Comments for a block of a loss, from docstrings: by setting, and with the name "" for all."""
    if "@losses" not in block:
        return {}
    factory = registry.losses.get(block["@losses"])
    found = re.findall(r"^(\w+) \(.*?\): (.*(?:\n +.*)*)", getdoc(factory) or "", re.MULTILINE)
    notes = {name: text for name, text in found if name != "cost"}
    if "*" not in block:
        cost = {"cost": HAMMING} if "cost" in block else {}
        compute = registry.resolve({"loss": {**block, **cost}})["loss"].compute
        for inner in ("compute", "func"):
            compute = getattr(compute, inner, compute)
        notes[""] = (getdoc(compute) or "").split("\n\n")[0]
    return {name: textwrap.wrap(" ".join(text.split()), 98) for name, text in notes.items()}
