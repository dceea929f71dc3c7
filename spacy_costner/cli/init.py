"""`python -m spacy costner init`."""

import shlex
from pathlib import Path
from typing import Annotated, List, Mapping, Optional

import typer
from spacy.util import get_lang_class
from typer import Argument, Option

from ..commands.init import (
    FEW,
    Corpora,
    Costs,
    Plan,
    Size,
    describe_size,
    look,
    make_plan,
    next_commands,
    parse_cost,
    size_of_sentences,
    write_config,
)
from ..saving import save_file
from .output import errors_shown

TERMINAL = Path("-")


@errors_shown()
def init_cli(
    ctx: typer.Context,
    output_path: Annotated[
        Path, Argument(help="Config file to write, or - for the terminal", allow_dash=True)
    ],
    model: Annotated[
        str, Option("--model", "-m", help="Model: linear, cnn, hybrid or transformer")
    ] = "linear",
    lang: Annotated[str, Option("--lang", "-l", help="Code of the language")] = "en",
    train_path: Annotated[
        Optional[Path],
        Option(
            "--train", help="Training corpus, to choose sizes: see `costner convert`", exists=True
        ),
    ] = None,
    dev_path: Annotated[
        Optional[Path],
        Option("--dev", help="Development corpus: see `costner convert`", exists=True),
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
            help="f (best F), cost (lowest cost) or guarantee (a promised miss rate)",
            show_default="cost if you say what mistakes cost, otherwise f",
        ),
    ] = None,
    precision: Annotated[
        Optional[float], Option("--precision", help="Aim: best recall with at least this precision")
    ] = None,
    recall: Annotated[
        Optional[float], Option("--recall", help="Aim: best precision with at least this recall")
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
        Optional[str],
        Option(
            "--decoding",
            help="viterbi, threshold or min-cost",
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
    if output_path != TERMINAL and output_path.exists() and not force:
        raise ValueError(f"{output_path}: expected a new file, got one that exists: use --force")
    if transformer is not None and model != "transformer":
        raise ValueError(f"--transformer: expected --model transformer, got --model {model}")
    check_lang(lang)
    mistakes = {
        "miss": miss,
        "false_alarm": false_alarm,
        "wrong_label": wrong_label,
        "wrong_boundary": wrong_boundary,
    }
    size = get_size(train_path, sentences, lang)
    plan = make_plan(
        model=model,
        losses=loss,
        decoding=decoding,
        aim=aim,
        precision=precision,
        recall=recall,
        costs=get_costs(tree_path, cost, mistakes),
        inner_nodes=inner_nodes,
        sentences=None if size is None else size.sentences,
    )
    corpora = Corpora(train_path, dev_path, size)
    path = "config.cfg" if output_path == TERMINAL else str(output_path)
    text = write_config(
        plan, lang, corpora, command=command_line(ctx), path=path, transformer=transformer
    )
    if output_path == TERMINAL:
        typer.echo(text, nl=False)
        return
    save_file(output_path, lambda new: new.write_text(text, encoding="utf8"))
    show(plan, corpora, path)


def get_size(train_path: Optional[Path], sentences: Optional[int], lang: str) -> Optional[Size]:
    """The size of the training corpus, if it is known.

    RAISES (ValueError): If it is given and counted.
    """
    if train_path is None:
        return None if sentences is None else size_of_sentences(sentences)
    if sentences is not None:
        raise ValueError("--sentences: expected no --train, which is counted, got both")
    return look(train_path, lang)


def get_costs(
    tree_path: Optional[Path], cost: Optional[str], mistakes: Mapping[str, Optional[float]]
) -> Costs:
    """What mistakes cost, by the options that are given."""
    costs = Costs() if cost is None else parse_cost(cost)
    given = {kind: number for kind, number in mistakes.items() if number is not None}
    return costs._replace(tree=tree_path, mistakes=given)


def show(plan: Plan, corpora: Corpora, path: str) -> None:
    """Print what was found and what to do next."""
    size = corpora.size
    if corpora.train is not None and size is not None:
        typer.echo(f"{corpora.train}: {describe_size(size)}")
    if size is not None and size.sentences < FEW and plan.model == "linear":
        typer.echo(f"With fewer than {FEW:,} sentences also try --model hybrid.")
    typer.echo(f"Written to {path}. Next:\n")
    for command in next_commands(plan, corpora, path):
        typer.echo(f"    {command}")


def check_lang(lang: str) -> None:
    """Check the code of a language.

    RAISES (ValueError): If spaCy has no such language.
    """
    try:
        get_lang_class(lang)
    except ImportError as error:
        raise ValueError(f"--lang: expected a language of spaCy, got {lang!r}") from error


def command_line(ctx: typer.Context) -> str:
    """The command as it was given."""
    words: List[str] = []
    for param in ctx.command.params:
        name = param.name or ""
        source, value = ctx.get_parameter_source(name), ctx.params[name]
        if source is None or source.name != "COMMANDLINE" or value is None:
            continue
        options = [] if param.param_type_name == "argument" else [param.opts[0]]
        words += options if value is True else [*options, str(value)]
    return f"python -m spacy costner {ctx.command.name} {shlex.join([*words, *ctx.args])}"
