"""Compare losses and settings, and print a table of the results.

The decorator `command` adds the options of `compare`. `run` is `compare` with these options set."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer
from typer import Argument, BadParameter, Option

from ..readers import ReadOptions
from ..workflows.fitting.comparison import compare
from ..workflows.fitting.variant_scores import UNTRAINED, ComparedLoss, Finished
from ..workflows.ray_executor import ray_cluster
from ..workflows.runs import Ended, Failed
from .command_line import command, reads_corpora
from .options import FILE_TOKENS_HELP, AddressOption, read_overrides
from .output import JsonOption, errors_shown, print_result, ray_messages_to_stderr
from .tables import markdown_table, mean_and_deviation


@command(
    compare,
    options={
        "n_samples": Option("--samples", min=1),
        "file_tokens": Option(help=FILE_TOKENS_HELP.format(docs="test docs")),
        "jobs": Option("--jobs", "-j", min=1),
        "use_gpu": Option("--gpu-id", "-g"),
        "code_path": Option("--code", "-c"),
    },
    without=("reading", "seeds", "overrides", "sweep", "make_executor", "on_end"),
)
@reads_corpora
def compare_cli(
    run: partial[list[ComparedLoss]],  # `compare` with its options set by `command`
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Base config", exists=True)],
    test_path: Annotated[
        Path, Option("--test", "-t", help="Test corpus: see `costner convert`", exists=True)
    ],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for pipelines and results")
    ],
    losses: Annotated[
        str,
        Option("--losses", "-l", help="Comma-separated names of losses, or paths to their configs"),
    ] = "",
    sweeps: Annotated[
        list[str],
        Option(
            "--sweep",
            help="Values to try, as section.setting=1,2. Repeatable: tries all combinations",
        ),
    ] = [],  # noqa: B006
    seeds: Annotated[str, Option("--seeds", "-s", help="Comma-separated random seeds")] = "0",
    *,
    reading: ReadOptions,
    address: AddressOption = None,
    print_json: JsonOption = False,
) -> None:
    """
    Train a config with several losses, or with several values of any settings, and compare the
    scores. All variants use the same data, training budget and seeds. Specify a loss by name, as in
    `costner init`, or as a config: its [components] and [training] settings override the base
    config. Override settings of all variants as in `spacy train`, e.g. --paths.train ./train.spacy.
    Finished models are kept in the output folder and not trained again.

    The last two columns show p-values of the differences in F and cost from the first row (paired
    bootstrap over docs, two-sided).
    """

    def print_variant(name: str, ended: Ended) -> None:
        """Print the outcome of a variant. With --json, it is printed to stderr, because stdout must
        only contain the result."""
        typer.echo(variant_text(name, ended), err=print_json)

    how_to_continue = "Finished models are kept: run the same command again to continue."
    with errors_shown(how_to_continue), ray_messages_to_stderr(address):
        names = [name.strip() for name in losses.split(",")]
        given_names = [name for name in names if name]  # empty without --losses
        rows = run(
            config_path,
            given_names,
            test_path,
            output_path,
            seeds=read_seeds(seeds),
            reading=reading,
            overrides=read_overrides(ctx),
            sweep=read_sweeps(sweeps),
            make_executor=ray_cluster(address, run.keywords["use_gpu"]),
            on_end=print_variant,
        )
    text = f"\n{comparison_text(rows)}\n"
    print_result({"losses": rows}, text, print_json, output_path / "comparison.json")


def read_seeds(text: str) -> list[int]:
    """Parse the value of the option --seeds, which contains comma-separated integers."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        message = f"--seeds: expected whole numbers, separated by commas, got {text!r}"
        raise ValueError(message) from None


def read_sweeps(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse the values of all --sweep options. Return the values of each setting. Raise an error if
    an option is invalid or a setting is repeated."""
    values_of_settings: dict[str, list[Any]] = {}
    for text in texts:
        setting, values = read_sweep(text)
        if setting in values_of_settings:
            raise BadParameter(f"--sweep: expected each setting once, got {setting} twice")
        values_of_settings[setting] = values
    return values_of_settings


def read_sweep(text: str) -> tuple[str, list[Any]]:
    """Parse the value of a --sweep option, such as training.dropout=0.1,0.2. Return the setting and
    its values. The values are parsed as JSON if possible, and as strings otherwise."""
    setting, equals, values = text.partition("=")
    setting = setting.strip()
    values = values.strip()
    if not (equals and values and "." in setting):
        raise BadParameter(f"--sweep: expected section.setting=value,value, got {text!r}")
    try:
        return setting, srsly.json_loads(f"[{values}]")
    except ValueError:
        return setting, [value.strip() for value in values.split(",")]


def variant_text(name: str, ended: Ended) -> str:
    """Format the line to print after a variant has been trained: its name, such as "Sequential,
    seed 0", its F-score and the time in seconds."""
    if isinstance(ended, Failed):
        return f"{name}: failed"
    finished: Finished = ended.value
    result = UNTRAINED
    if finished.is_trained:
        result = f"F {100 * finished.f_score():.2f}"
    return f"{name}: {result}, {finished.seconds:.0f} s"


def comparison_text(rows: Sequence[ComparedLoss]) -> str:
    """Format the compared losses as a Markdown table. All scores except the cost are in percent. If
    there are several seeds, the scores are shown with their standard deviation. Notes below the
    table list losses without scores and reasons why scores may be misleading."""
    header = ["loss", "F", "P", "R", "cost", "sentences", "seconds", "p of F", "p of cost"]
    table: list[list[str]] = []
    notes: list[str] = []
    for row in rows:
        # The columns from "F" to "sentences", in the same order as `by_seed`. Losses without scores
        # are shown with dashes.
        scores = ["-", "-", "-", "-", "-"]
        if row.by_seed:
            scores = [score_text(name, by_seed) for name, by_seed in row.by_seed.items()]
        p_of_f = "-"
        p_of_cost = "-"
        if row.differences:
            p_of_f = f"{row.differences['ents_f'].p:.4f}"
            p_of_cost = f"{row.differences['ents_cost'].p:.4f}"
        table.append([row.loss, *scores, f"{row.seconds:.0f}", p_of_f, p_of_cost])
        if row.untrained:
            seeds = ", ".join(str(seed) for seed in row.untrained)
            notes.append(
                f"{row.loss}: {UNTRAINED}, with seed {seeds}: no scores, and no significance of "
                "differences from it"
            )
    # Remove duplicate notes, because all losses use the same test corpus and usually the same
    # training corpus.
    for note in dict.fromkeys(note for row in rows for note in row.notes):
        notes.append(f"note: {note}")
    return "\n".join([markdown_table(header, table, align=True), *notes])


def score_text(name: str, by_seed: Sequence[float]) -> str:
    """Format the mean and standard deviation of a score over seeds, in percent. The cost isn't
    converted to percent, and is shown with four decimal places."""
    if name == "ents_cost":
        return mean_and_deviation(by_seed, digits=4)
    return mean_and_deviation([100 * score for score in by_seed])
