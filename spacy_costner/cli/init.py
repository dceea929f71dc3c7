"""Write a commented config for `spacy train`, as `spacy init config` does. The template is
templates/init.cfg.jinja; this module chooses its values."""

import json
import math
import re
import shlex
import textwrap
from functools import partial
from importlib.metadata import entry_points
from inspect import getdoc, signature
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Collection,
    Dict,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Set,
    Union,
)

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
from ..readers import read_docs
from ..settings import check_settings
from ..tags import OUTSIDE, Tags
from .options import arguments_of
from .output import errors_shown, get_template, save_text
from .tune import parse_aim

Model = Literal["linear", "cnn", "hybrid", "transformer"]
Decoding = Literal["viterbi", "threshold", "min-cost"]

NO_PROBABILITIES = frozenset(["MaxMargin", "Perceptron", "MIRA", "ZScore"])
"""Losses after which scores are not probabilities: see docs/which-loss.md."""

COST_AUGMENTED = frozenset(["SoftmaxMargin", "JensenRiskBound", "Mixed"])
"""Losses with cost-augmented scores: a cost shifts probabilities. To calibrate them makes
predictions of minimum expected cost worse: see docs/init.md."""

NEED_START = frozenset(["Risk", "JensenRiskBound", "MCE", "MCEF", "ZScore"])
"""Losses that need a likelihood model to start from."""

RECOMMENDED = {"Mixed": {"k": 3.0}, "Perceptron": {"alpha": 1.0}, "ZScore": {"multiplier": 20.0}}
"""Settings of losses where they are not the defaults."""

HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}
SHARED_COST = "${components.ner.scorer.cost}"

FEW = 1000
"""Below this number of sentences the losses for small corpora are the default."""

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
    sentences: Annotated[
        Optional[int],
        Option("--sentences", help="Number of training sentences, without --train", min=1),
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
    miss: Annotated[
        Optional[float],
        Option("--miss", help="Cost of a miss, where other mistakes cost 1", show_default="1"),
    ] = None,
    false_alarm: Annotated[
        Optional[float], Option("--false-alarm", help="Cost of a false alarm", show_default="1")
    ] = None,
    wrong_label: Annotated[
        Optional[float], Option("--wrong-label", help="Cost of a wrong label", show_default="1")
    ] = None,
    wrong_boundary: Annotated[
        Optional[float],
        Option("--wrong-boundary", help="Cost of a wrong boundary", show_default="1"),
    ] = None,
    tree_path: Annotated[
        Optional[Path],
        Option("--tree", help="Label tree, a JSON or YAML file: near labels cost less"),
    ] = None,
    cost: Annotated[
        Optional[str],
        Option("--cost", help="hamming, zero-one or a CSV file: the cost of each pair of labels"),
    ] = None,
    loss: Annotated[
        Optional[str],
        Option(
            "--loss",
            help="Loss, or several, separated by commas, to train with one after another",
            show_default="by model, aim and size",
        ),
    ] = None,
    decoding: Annotated[
        Optional[Decoding],
        Option(
            "--decoding",
            help="How entities are chosen from scores",
            show_default="min-cost for --aim cost, otherwise viterbi",
        ),
    ] = None,
    inner_nodes: Annotated[
        bool, Option("--inner-nodes", help="Also predict inner nodes of the tree")
    ] = False,
    transformer: Annotated[
        Optional[str],
        Option(
            "--transformer",
            help="Name or folder of the transformer",
            show_default="that of `spacy init config`",
        ),
    ] = None,
    force: Annotated[bool, Option("--force", "-F", help="Overwrite the output file")] = False,
) -> None:
    """
    Write a config for `spacy train`: for your model, language and corpus, for what mistakes
    cost and for your aim. With --train, batches and evaluations fit the size of the corpus. The
    config begins with the commands to run next. Several costs are added.
    """
    options = arguments_of(init, locals())
    on_terminal = output_path == Path("-")
    if output_path.exists() and not on_terminal and not force:
        raise ValueError(f"{output_path}: expected a new file, got one that exists: use --force")
    if on_terminal:
        options["output_path"] = Path("config.cfg")
    text = init(**options, command=command_line(ctx))
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
    sentences: Optional[int] = None,
    aim: Optional[str] = None,
    miss: Optional[float] = None,
    false_alarm: Optional[float] = None,
    wrong_label: Optional[float] = None,
    wrong_boundary: Optional[float] = None,
    tree_path: Optional[Path] = None,
    cost: Optional[str] = None,
    loss: Optional[str] = None,
    decoding: Optional[Decoding] = None,
    inner_nodes: bool = False,
    transformer: Optional[str] = None,
    command: str = "python -m spacy costner init",
) -> str:
    """Make a config. docs/init.md says what is chosen where an argument is None. See `init_cli` for
    the other arguments. Costs are by token.

    output_path (Path): Where it will be, for the commands at its head. It is not written.
    command (str): The command that makes it, for its head.
    RETURNS (str): The config.
    RAISES (ValueError): If there is no such loss, cost or aim, if arguments don't go together, or
        if a file can't be read or lacks a label of the corpus.
    RAISES (ImportError): If spaCy has no such language.
    """
    get_lang_class(lang)
    if transformer is not None and model != "transformer":
        raise ValueError(f"--transformer: expected --model transformer, got --model {model}")
    if train_path is not None and sentences is not None:
        raise ValueError("--sentences: expected no --train, which is counted, got both")
    if aim not in (None, "cost", "guarantee"):
        try:
            parse_aim(aim)
        except ValueError as error:
            expected = "f, cost, guarantee, precision=0.9 or recall=0.9"
            raise ValueError(f"--aim: expected {expected}, got {aim!r}") from error
    unknown = {"lengths": [25] * (sentences or 0), "forms": 5000, "labels": [], "entities": 0}
    corpus: Dict[str, Any] = {**unknown, "sentences": sentences}
    if train_path is not None:
        corpus = read_corpus(train_path, lang)
    few = corpus["sentences"] is not None and corpus["sentences"] < FEW

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

    if loss is not None:
        losses = parse_losses(loss)
    else:
        losses = choose_losses(model, aim, decoding, costs, few=few)
    has_probabilities = losses[-1] not in NO_PROBABILITIES
    decoding = decoding or ("min-cost" if aim == "cost" and has_probabilities else "viterbi")
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
    if costs and aim != "cost" and tree_path is None and not any(map(takes_cost, losses)):
        raise ValueError(
            f"--loss: expected a loss that takes a cost, or --aim cost, got {', '.join(losses)}: "
            "nothing would use what you say mistakes cost"
        )
    if inner_nodes and (decoding != "min-cost" or tree_path is None):
        raise ValueError("--inner-nodes: expected --tree and --decoding min-cost with it")

    # The score per unit of cost: 1, or 0.5 with a tree, but no mistake has a score above 5.
    multiplier = 1.0 if tree_path is None else 0.5
    if shared is not None:
        files = {"tree": str(tree_path), "costs": str(matrix_path)}
        block = Config({"paths": files, "cost": shared}).interpolate()["cost"]
        labels = corpus["labels"] or read_labels(tree_path, matrix_path)
        largest = registry.resolve({"cost": block})["cost"](Tags(labels)).max()
        multiplier = multiplier if largest * multiplier <= 5 else float(f"{5 / largest:.2g}")

    sizes, n_later = choose_sizes(model, corpus), len(losses) - 1
    if sizes["max_epochs"]:
        first = max(1, sizes["max_epochs"] - LATER_EPOCHS * n_later)
    else:
        first = max(5, math.ceil(500 / sizes["eval_frequency"]))
    ends = [float(first + LATER_EPOCHS * i) for i in range(n_later)]
    threshold, miss_weight = 0.5, mistakes.get("miss", 1.0)
    if aim == "cost" and (both := miss_weight + mistakes.get("false_alarm", 1.0)):
        threshold = round(1 - miss_weight / both, 4)  # see docs/decoding.md
    is_shifted = decoding == "min-cost" and losses[-1] in COST_AUGMENTED
    known = RECOMMENDATIONS.get(lang, RECOMMENDATIONS["__default__"])["transformer"]["efficiency"]
    filters = {"value": as_text, "notes": read_notes, "quote": lambda x: shlex.quote(str(x))}
    loss_block = make_loss(losses, shared and SHARED_COST, multiplier=multiplier, epochs=ends)
    # The template sees the variables of this function.
    text = get_template("init.cfg.jinja", filters).render(
        locals(), **sizes, version=spacy_costner.__version__
    )
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    check_settings(Config().from_str(text, interpolate=False), output_path)
    return text


def choose_losses(
    model: str, aim: str, decoding: Optional[str], costs: Collection[str], *, few: bool
) -> List[str]:
    """The losses that docs/which-loss.md recommends, by what options say costs: "tree", "matrix",
    "tags", "mistakes"."""
    if aim == "guarantee":
        return ["Sequential"]
    if "tree" in costs and aim == "cost":
        return ["SoftmaxMargin", "Risk"]
    if "tree" in costs:
        return ["SoftmaxMargin", "MCEF"] if model == "linear" else ["Sequential"]
    if costs or aim == "cost":
        by_min_cost = aim == "cost" and decoding in (None, "min-cost")
        is_calibrated = model == "linear" and by_min_cost and [*costs] == ["mistakes"]
        return ["Sequential"] if is_calibrated else ["SoftmaxMargin"]
    return ["SoftmaxMargin", "Risk"] if model == "linear" and few else ["Sequential"]


def parse_losses(text: str) -> List[str]:
    """The names of losses, separated by commas. One that needs a start gets Sequential first."""
    losses = [find_name("Loss", name) for name in text.split(",")]
    return ["Sequential", *losses] if losses[0] in NEED_START else losses


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


def takes_cost(loss: str) -> bool:
    return "cost" in signature(registry.losses.get(f"spacy_costner.{loss}.v1")).parameters


def make_loss(
    losses: Sequence[str],
    cost: Union[str, Mapping[str, Any], None] = None,
    *,
    multiplier: float = 1.0,
    epochs: Sequence[float] = (5.0,),
) -> Dict[str, Any]:
    """The block of a loss, or of a schedule of losses, with its recommended settings.

    cost (Union[str, Mapping[str, Any], None]): The block of their cost, or a variable. None: the
        Hamming cost.
    multiplier (float): The score per unit of cost, as a factor of the recommended one.
    epochs (Sequence[float]): Where all losses but the last end.
    """
    blocks = []
    for loss in losses:
        name = f"spacy_costner.{loss}.v1"
        parameters = signature(registry.losses.get(name)).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default not in (None, p.empty)}
        block = {"@losses": name, **defaults, **RECOMMENDED.get(loss, {})}
        for score in {"multiplier", "alpha"} & {*block}:
            block[score] = float(f"{block[score] * multiplier:.2g}")
        if takes_cost(loss) and (cost is not None or loss != "Mixed"):  # whose cost is optional
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
        settings = {name: value for name, value in block.items() if name != "cost"}
        compute = registry.resolve({"loss": settings})["loss"].compute
        for inner in ("compute", "func"):
            compute = getattr(compute, inner, compute)
        notes[""] = (getdoc(compute) or "").split("\n\n")[0]
    return {name: textwrap.wrap(" ".join(text.split()), 98) for name, text in notes.items()}


def as_text(value: Any) -> str:
    """A value as a config has it: JSON, or a variable."""
    if isinstance(value, str) and value.startswith("${"):
        return value
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def read_corpus(path: Path, lang: str) -> Dict[str, Any]:
    """Measure a training corpus. Where docs have no sentence starts, as texts without tokens,
    sentences end with punctuation."""
    lengths: List[int] = []
    forms: Set[int] = set()
    labels: Set[str] = set()
    sentences = entities = 0
    sentencizer = Sentencizer()
    for doc in read_docs(spacy.blank(lang), path):
        lengths.append(len(doc))
        split = doc if doc.has_annotation("SENT_START") else sentencizer(doc)
        sentences += sum(1 for _ in split.sents)
        forms.update(token.norm for token in doc)
        labels.update(ent.label_ for ent in doc.ents)
        entities += len(doc.ents)
    if not entities:
        raise ValueError(f"{path}: expected docs with entities, got none in {len(lengths)} docs")
    return {
        "lengths": lengths,
        "sentences": sentences,
        "forms": len(forms),
        "labels": sorted(labels),
        "entities": entities,
    }


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
    lengths, n_labels = corpus["lengths"], len(corpus["labels"])
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
    sizes = {
        "batch_size": size,
        "rows": min(5000, max(1000, corpus["forms"])),
        "many_labels": n_labels > 20,  # see docs/linear.md
        "long_docs": bool(n_labels) and corpus["sentences"] >= 3 * len(lengths),
    }
    if model == "linear":
        steps = {"patience": 0, "max_epochs": 8, "max_steps": 0, "eval_frequency": epoch // 2 or 1}
    else:
        steps = {
            "patience": max(1000 if model == "hybrid" else 1600, 2 * epoch),
            "max_epochs": 0,
            "max_steps": max(3000 if model == "hybrid" else 20000, 5 * epoch),
            "eval_frequency": min(200, epoch),
        }
    return {**sizes, **steps}
