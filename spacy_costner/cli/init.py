"""Write a commented config for `spacy train`, as `spacy init config` does. The template is
templates/init.cfg.jinja; this module chooses its values."""

import json
import math
import re
import shlex
import textwrap
from collections import Counter
from functools import partial
from importlib.metadata import entry_points
from inspect import getdoc, signature
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Mapping, Optional, Sequence, Set, Tuple

import spacy
import typer
from spacy.cli.init_config import RECOMMENDATIONS
from spacy.pipeline import Sentencizer
from spacy.training.batchers import minibatch_by_padded_size, minibatch_by_words
from spacy.util import get_lang_class, registry
from thinc.api import Config
from typer import Argument, Option

import spacy_costner

from ..costs.cost_matrix import make_matrix
from ..costs.label_tree import make_tree
from ..costs.tables import HAMMING
from ..readers import ReadOptions, read_docs
from ..settings import check_settings
from ..tags import OUTSIDE, Tags
from ..training.lbfgs import MANY_LABELS
from ..types import Loss
from .options import arguments_of
from .output import errors_shown, get_template, save_text
from .preparation import FEW
from .tune import parse_aim

Model = Literal["linear", "cnn", "hybrid", "transformer"]
Decoding = Literal["viterbi", "threshold", "min-cost"]
CostOption = Annotated[
    Optional[float],
    Option(help="Cost of this kind of mistake", show_default="1, or 0 on other costs"),
]

RECOMMENDED = {"Mixed": {"k": 3.0}, "Perceptron": {"alpha": 1.0}, "ZScore": {"multiplier": 20.0}}
"""Settings of losses where they are not the defaults."""

SHARED_COST = "${components.ner.scorer.cost}"

MISSES = {
    "@misc": "spacy_costner.PrecisionRecallCost.v1",
    **{"miss": 2.0, "false_alarm": 1.0, "wrong_label": 1.0, "wrong_boundary": 1.0},
}
"""The cost in training on few sentences, where models miss too much."""

MOST_LOST = 0.01
"""The share of the spans of a label that may overlap with those of others in its component."""

LATER_EPOCHS = 2
"""Passes over the training data for each loss of a schedule but the first."""


@errors_shown()
def init_cli(
    ctx: typer.Context,
    output_path: Annotated[
        Path, Argument(help="Config file to write, or - for the terminal", allow_dash=True)
    ],
    model: Annotated[Model, Option("--model", "-m", help="Model")] = "linear",
    lang: Annotated[str, Option("--lang", "-l", help="Code of the language")] = "en",
    train_path: Annotated[
        Optional[Path],
        Option("--train", help="Training corpus, to choose sizes; any format", exists=True),
    ] = None,
    dev_path: Annotated[
        Optional[Path], Option("--dev", help="Development corpus; any format", exists=True)
    ] = None,
    aim: Annotated[
        Optional[str],
        Option(
            "--aim",
            "-a",
            help="f (best F), cost (lowest cost), guarantee (a promised miss rate), precision=0.9 "
            "(best recall with at least this precision) or recall=0.9",
            show_default="cost if you say what mistakes cost, otherwise f",
        ),
    ] = None,
    miss: CostOption = None,
    false_alarm: CostOption = None,
    wrong_label: CostOption = None,
    wrong_boundary: CostOption = None,
    tree_path: Annotated[
        Optional[Path],
        Option("--tree", help="Label tree, a JSON or YAML file: near labels cost less"),
    ] = None,
    tree_by_prefix: Annotated[
        Optional[str],
        Option(help="Write the tree: labels below their part before this separator, such as _"),
    ] = None,
    cost: Annotated[
        Optional[str],
        Option("--cost", help="hamming, zero-one or a CSV file: the cost of each pair of labels"),
    ] = None,
    loss: Annotated[
        Optional[str],
        Option(help="Loss, or several, separated by commas", show_default="by model, aim and size"),
    ] = None,
    decoding: Annotated[
        Optional[Decoding],
        Option(help="How entities are chosen", show_default="by loss and aim"),
    ] = None,
    inner_nodes: Annotated[
        bool, Option("--inner-nodes", help="Also predict inner nodes of the tree")
    ] = False,
    spans_key: Annotated[
        Optional[str],
        Option(
            "--spans-key",
            help="Entities may overlap: the key of doc.spans",
            show_default="sc with --groups",
        ),
    ] = None,
    groups_path: Annotated[
        Optional[Path],
        Option(
            "--groups",
            help="JSON file, {component: [labels]}: labels of different components may overlap",
            show_default="by the labels that overlap in --train",
            exists=True,
        ),
    ] = None,
    transformer: Annotated[
        Optional[str],
        Option(help="Name or folder of the transformer", show_default="as `spacy init config`"),
    ] = None,
    force: Annotated[bool, Option("--force", "-F", help="Overwrite the output file")] = False,
) -> None:
    """
    Write a config for `spacy train`: for your model, language and corpus, for what mistakes
    cost and for your aim. With --train, batches and evaluations fit the size of the corpus. The
    config begins with the commands to run next. Several costs are added.
    """
    on_terminal = output_path == Path("-")
    output_path = Path("config.cfg") if on_terminal else output_path
    if tree_by_prefix is not None:
        tree_path = tree_path or output_path.with_name("tree.json")
    for path in (None if on_terminal else output_path, tree_by_prefix and tree_path):
        if path and Path(path).exists() and not force:
            raise ValueError(f"{path}: expected a new file, got one that exists: use --force")
    text = init(**arguments_of(init, locals()), command=command_line(ctx))
    if on_terminal:
        typer.echo(text, nl=False)
        return
    save_text(output_path, text)
    head, _, _ = text.partition("\n\n")
    typer.echo(f"{textwrap.dedent(head.replace('#', ' '))}\n\nWritten to {output_path}")


def command_line(ctx: typer.Context) -> str:
    """The command as it was given."""
    words: List[str] = []
    for param in ctx.command.params:
        name = param.name or ""
        source, value = ctx.get_parameter_source(name), ctx.params[name]
        if source is not None and source.name == "COMMANDLINE" and value is not None:
            options = [] if param.param_type_name == "argument" else [param.opts[0]]
            words += options if value is True else [*options, str(value)]
    return f"python -m spacy costner {ctx.command.name} {shlex.join([*words, *ctx.args])}"


def init(
    output_path: Path = Path("config.cfg"),
    *,
    model: Model = "linear",
    lang: str = "en",
    train_path: Optional[Path] = None,
    dev_path: Optional[Path] = None,
    aim: Optional[str] = None,
    miss: Optional[float] = None,
    false_alarm: Optional[float] = None,
    wrong_label: Optional[float] = None,
    wrong_boundary: Optional[float] = None,
    tree_path: Optional[Path] = None,
    tree_by_prefix: Optional[str] = None,
    cost: Optional[str] = None,
    loss: Optional[str] = None,
    decoding: Optional[Decoding] = None,
    inner_nodes: bool = False,
    spans_key: Optional[str] = None,
    groups_path: Optional[Path] = None,
    transformer: Optional[str] = None,
    command: str = "python -m spacy costner init",
) -> str:
    """Make a config. docs/init.md says what is chosen where an argument is None. See `init_cli` for
    the other arguments. Costs are by token.

    output_path (Path): Where it will be, for the commands at its head. It is not written.
    tree_by_prefix (Optional[str]): A separator in labels: the file of tree_path is written.
    command (str): The command that makes it, for its head.
    RETURNS (str): The config.
    RAISES (ValueError): If there is no such loss, cost or aim, if arguments don't go together, or
        if a file can't be read or lacks a label of the corpus.
    RAISES (ImportError): If spaCy has no such language.
    """
    get_lang_class(lang)
    spans_key = spans_key or ("sc" if groups_path else None)
    if transformer is not None and model != "transformer":
        raise ValueError(f"--transformer: expected --model transformer, got --model {model}")
    if aim not in (None, "cost", "guarantee"):
        try:
            parse_aim(aim)
        except ValueError as error:
            expected = "f, cost, guarantee, precision=0.9 or recall=0.9"
            raise ValueError(f"--aim: expected {expected}, got {aim!r}") from error
    corpus: Dict[str, Any] = {"lengths": [], "sentences": math.inf, "forms": 5000, "labels": []}
    if train_path is not None:
        corpus = read_corpus(train_path, lang, spans_key)
    groups = choose_groups(corpus, groups_path) if spans_key is not None else {}
    components = [*groups] or ["ner"]
    few = corpus["sentences"] < FEW

    # What mistakes cost: a part for each option that is given.
    kinds = ("miss", "false_alarm", "wrong_label", "wrong_boundary")
    numbers = (miss, false_alarm, wrong_label, wrong_boundary)
    mistakes = {kind: value for kind, value in zip(kinds, numbers) if value is not None}
    matrix_path = Path(cost) if cost is not None and Path(cost).is_file() else None
    costs: Dict[str, Dict[str, Any]] = {}
    if tree_path is not None:
        costs["tree"] = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": "${paths.tree}"}
    if matrix_path is not None:
        costs["matrix"] = {"@misc": "spacy_costner.MatrixCost.v1", "matrix": "${paths.costs}"}
    elif cost is not None:
        costs["tags"] = {"@misc": f"spacy_costner.{find_name('Cost', cost, 'a CSV file')}Cost.v1"}
    if mistakes:
        other = 0.0 if costs else 1.0
        weights = {kind: mistakes.get(kind, other) for kind in kinds}
        costs["mistakes"] = {"@misc": "spacy_costner.PrecisionRecallCost.v1", **weights}
    aim = aim or ("cost" if costs or decoding == "min-cost" else "f")
    shared: Optional[Dict[str, Any]] = None
    if len(costs) > 1:
        shared = {"@misc": "spacy_costner.SumCost.v1", "costs": costs}
    elif costs or aim == "cost":
        shared = next(iter(costs.values()), HAMMING)

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
        tree = group_labels(corpus["labels"], tree_by_prefix)
        save_text(tree_path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")

    # The score per unit of cost: 1, or 0.5 with a tree, but no mistake has a score above 5.
    multiplier = 1.0 if tree_path is None else 0.5
    if shared is not None:
        files = {"tree": str(tree_path), "costs": str(matrix_path)}
        block = Config({"paths": files, "cost": shared}).interpolate()["cost"]
        labels = corpus["labels"] or read_labels(tree_path, matrix_path)
        largest = registry.resolve({"cost": block})["cost"](Tags(labels)).max()
        multiplier = multiplier if largest * multiplier <= 5 else float(f"{5 / largest:.2g}")

    sizes, n_later = choose_sizes(model, corpus), len(losses) - 1
    lossy = {name for name, own in groups.items() if count_lost(own, corpus.get("overlaps", {}))}
    if sizes["max_epochs"]:
        first = max(1, sizes["max_epochs"] - LATER_EPOCHS * n_later)
    else:
        first = max(5, math.ceil(500 / sizes["eval_frequency"]))
    ends = [float(first + LATER_EPOCHS * i) for i in range(n_later)]
    threshold, miss_weight = 0.5, mistakes.get("miss", 1.0)
    if aim == "cost" and (both := miss_weight + mistakes.get("false_alarm", 1.0)):
        threshold = round(1 - miss_weight / both, 4)  # see docs/decoding.md
    known = RECOMMENDATIONS.get(lang, RECOMMENDATIONS["__default__"])["transformer"]["efficiency"]
    filters = {"value": as_text, "notes": read_notes, "quote": lambda x: shlex.quote(str(x))}
    own_cost = SHARED_COST if shared else MISSES if loss is None else None
    loss_block = make_loss(losses, own_cost, multiplier=multiplier, epochs=ends)
    # The template sees the variables of this function.
    text = get_template("init.cfg.jinja", filters).render(
        locals(), **sizes, version=spacy_costner.__version__
    )
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    check_settings(Config().from_str(text, interpolate=False), output_path)
    return text


def choose_losses(model: str, aim: str, costs: Mapping[str, Any], *, few: bool) -> List[str]:
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


def parse_losses(text: str) -> List[str]:
    """The names of losses, separated by commas. One that needs a start gets Sequential first."""
    losses = [find_name("Loss", name) for name in text.split(",")]
    return ["Sequential", *losses] if build_loss(losses[0]).needs_start else losses


def find_name(kind: str, given: str, *others: str) -> str:
    """The name of a registered "Loss" or "Cost". softmax_margin, SoftmaxMargin and
    spacy_costner.SoftmaxMargin.v1 are the same."""
    group, pattern = {
        "Loss": ("thinc_losses", r"spacy_costner\.(?!Schedule)(\w+)\.v1"),
        "Cost": ("spacy_misc", r"spacy_costner\.((?!Hierarchical|Matrix|Sum)\w+)Cost\.v1"),
    }[kind]
    found = (re.fullmatch(pattern, point.name) for point in entry_points(group=group))
    names = {match[1].lower(): match[1] for match in found if match}
    short = re.sub(r"^spacy_costner\.|\.v1$|[ _-]", "", given.strip()).lower()
    name = names.get(short) or names.get(short.removesuffix("cost"))
    if name is None:
        choices = ", ".join([*names.values(), *others])
        hint = ": separate losses by commas for a schedule" if short == "schedule" else ""
        raise ValueError(f"--{kind.lower()}: expected any of {choices}, got {given!r}{hint}")
    return name


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
) -> Dict[str, Any]:
    """The block of a loss, or of a schedule of losses that end after these epochs, with its
    recommended settings. The cost is a block or a variable, the Hamming cost by default; the
    multiplier is a factor of the recommended score per unit of cost."""
    blocks = []
    for loss in losses:
        name = f"spacy_costner.{loss}.v1"
        parameters = signature(registry.losses.get(name)).parameters
        defaults = {key: p.default for key, p in parameters.items()}
        given = {key: value for key, value in defaults.items() if value is not None}
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


def read_notes(block: Mapping[str, Any]) -> Dict[str, List[str]]:
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


def as_text(value: Any) -> str:
    """A value as a config has it: JSON, or a variable."""
    is_variable = isinstance(value, str) and value.startswith("${")
    return value if is_variable else json.dumps(value, ensure_ascii=False, default=str)


def read_corpus(path: Path, lang: str, spans_key: Optional[str] = None) -> Dict[str, Any]:
    """Measure a training corpus. Where docs have no sentence starts, as texts without tokens,
    sentences end with punctuation. "overlaps" has the number of overlapping pairs of spans, by
    their labels."""
    lengths, labels, sentences, sentencizer = [], [], 0, Sentencizer()
    forms: Set[int] = set()
    overlaps: Dict[Tuple[str, str], int] = Counter()
    for doc in read_docs(spacy.blank(lang), path, ReadOptions(spans_key=spans_key)):
        lengths.append(len(doc))
        split = doc if doc.has_annotation("SENT_START") else sentencizer(doc)
        sentences += sum(1 for _ in split.sents)
        forms.update(token.norm for token in doc)
        spans = sorted({*doc.spans.get(spans_key, ())} if spans_key else doc.ents)
        labels += [span.label_ for span in spans]
        for i, one in enumerate(spans):
            for other in spans[i + 1 :]:
                if other.start >= one.end:
                    break
                overlaps.update({(one.label_, other.label_), (other.label_, one.label_)})
    if not labels:
        where = "" if spans_key is None else f" in doc.spans[{spans_key!r}]"
        raise ValueError(
            f"{path}: expected docs with entities{where}, got none in {len(lengths)} docs"
        )
    counts = {"sentences": sentences, "forms": len(forms), "entities": len(labels)}
    found = {"lengths": lengths, "labels": sorted({*labels}), **counts}
    return {**found, "counts": Counter(labels), "overlaps": overlaps}


def choose_groups(corpus: Mapping[str, Any], path: Optional[Path]) -> Dict[str, List[str]]:
    """The labels of each component, from a file. Without one, each label, the most frequent first,
    joins the group with which the fewest of its spans overlap or, if these are more than
    `MOST_LOST`, opens another."""
    counts, overlaps = corpus.get("counts"), corpus.get("overlaps", {})
    if path is None:
        if counts is None:
            raise ValueError("--spans-key: expected --groups or --train, to find groups of labels")
        found: List[List[str]] = []
        for label, n in counts.most_common():
            best = min(found, key=lambda own: count_lost(own, overlaps, label), default=None)
            if best is not None and count_lost(best, overlaps, label) <= MOST_LOST * n:
                best.append(label)
            else:
                found.append([label])
        names = [f"ner_{i + 1}" for i in range(len(found))] if len(found) > 1 else ["ner"]
        return {name: sorted(own) for name, own in zip(names, found)}
    groups: Any = json.loads(path.read_text(encoding="utf8"))
    if (
        not isinstance(groups, dict)
        or not groups
        or not all(
            re.fullmatch(r"\w+", name) and isinstance(own, list) and own
            for name, own in groups.items()
        )
    ):
        raise ValueError(f"{path}: expected {{component: [labels]}}, got {groups!r}")
    every = [label for own in groups.values() for label in own]
    if twice := [label for label, n in Counter(every).items() if n > 1]:
        raise ValueError(f"{path}: expected each label in one component, got {twice} in several")
    if missing := [label for label in corpus["labels"] if label not in every]:
        raise ValueError(f"{path}: expected all labels of the corpus, got none of {missing}")
    return groups


def count_lost(group: Sequence[str], overlaps: Mapping[Any, int], label: str = "") -> int:
    """The number of pairs of spans of a group, or of a label and the group, that overlap."""
    return sum(
        overlaps.get((one, other), 0) for one in ([label] if label else group) for other in group
    )


def group_labels(labels: Sequence[str], separator: str) -> Dict[str, Dict[str, Any]]:
    """A label tree: below each prefix, the labels that begin with it."""
    if not any(separator in label for label in labels) or not separator:
        raise ValueError(
            f"--tree-by-prefix: expected a separator in labels, got {separator!r} for "
            f"{', '.join(labels)}"
        )
    tree: Dict[str, Dict[str, Any]] = {}
    for label in labels:
        prefix = label.partition(separator)[0] or label
        below = tree.setdefault(prefix, {})
        if prefix != label:
            below[label] = {}
    return tree


def read_labels(tree_path: Optional[Path], matrix_path: Optional[Path]) -> List[str]:
    """The labels in the files of costs."""
    if matrix_path is not None:
        rows = make_matrix(matrix_path, "spacy_costner.MatrixCost: matrix").rows
        return [label for label in rows if label != OUTSIDE]
    if tree_path is not None:
        return [*make_tree(tree_path, "spacy_costner.HierarchicalCost: tree").lineages]
    return ["label"]


def choose_sizes(model: str, corpus: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings of the template that fit the size of a corpus, or a large one if it is unknown:
    100 batches or more in an epoch, and at least one evaluation."""
    lengths = corpus["lengths"]
    part = sum(lengths) // 100 if lengths else 1000
    if model == "transformer":
        size = 2000
        batcher = partial(minibatch_by_padded_size, buffer=256, discard_oversize=True)
    else:
        size = max(1, min(500, part)) if model == "linear" else max(100, min(1000, part))
        batcher = partial(minibatch_by_words, tolerance=0.2)
    epoch = 2000 if model == "linear" else 200
    if lengths:
        batches = batcher([range(length) for length in lengths], size=size)
        epoch = max(1, int(sum(1 for _ in batches) * 0.9))  # it may have fewer if docs are shuffled
    is_linear = model == "linear"
    patience, least_steps = (1000, 3000) if model == "hybrid" else (1600, 20000)
    return {
        "batch_size": size,
        "rows": min(5000, max(1000, corpus["forms"])),
        "many_labels": len(corpus["labels"]) > MANY_LABELS,  # see docs/linear.md
        "long_docs": bool(lengths) and corpus["sentences"] >= 3 * len(lengths),
        "patience": 0 if is_linear else max(patience, 2 * epoch),
        "max_epochs": 8 if is_linear else 0,
        "max_steps": 0 if is_linear else max(least_steps, 5 * epoch),
        "eval_frequency": max(1, epoch // 2) if is_linear else min(200, epoch),
    }
