"""Compare losses and settings, and print a table."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer
from typer import Argument, BadParameter, Option

from ..analysis.comparison import UNTRAINED, ComparedLoss, Finished, compare, read_seeds
from ..analysis.runs import Ended, Failed, ray_cluster
from .command_line import command
from .options import AddressOption, read_overrides
from .output import JsonOption, errors_shown, print_result, stdout_for
from .tables import markdown_table, mean_and_deviation


@command(
    compare,
    options={
        "n_samples": Option("--samples", min=1),
        "jobs": Option("--jobs", "-j", min=1),
        "use_gpu": Option("--gpu-id", "-g"),
        "code_path": Option("--code", "-c"),
    },
    without=("seeds", "overrides", "sweep", "make_executor", "on_end"),
)
def compare_cli(
    run: partial[list[ComparedLoss]],
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
        Option("--losses", "-l", help="Comma-separated names of losses, or paths of their configs"),
    ] = "",
    sweeps: Annotated[
        list[str],
        Option("--sweep", help="Values to try, as section.setting=1,2; repeat for combinations"),
    ] = [],  # noqa: B006
    seeds: Annotated[str, Option("--seeds", "-s", help="Comma-separated random seeds")] = "0",
    *,
    address: AddressOption = None,
    print_json: JsonOption = False,
) -> None:
    """
    Train a config with several losses, or several values of any settings, and compare their
    scores. All get the same data, training budget and seeds. A loss is given by its name, as in
    `costner init`, or as a config: its [components] and [training] settings replace those of the
    base config. Override settings of all variants as in `spacy train`, e.g. --paths.train
    ./train.spacy. Finished trainings are kept in the output folder and not repeated.

    The last two columns are p-values of the differences in F and in cost from the first
    row (paired bootstrap over docs, two-sided).
    """
    go_on = "Finished trainings are kept: run the same command again to continue."
    with errors_shown(go_on), stdout_for(address):
        rows = run(
            config_path,
            [loss.strip() for loss in losses.split(",") if loss.strip()],
            test_path,
            output_path,
            seeds=read_seeds(seeds),
            overrides=read_overrides(ctx),
            sweep=dict(read_sweep(text) for text in sweeps),
            make_executor=ray_cluster(address, run.keywords["use_gpu"]),
            on_end=lambda name, ended: typer.echo(describe(name, ended), err=print_json),
        )
    print_result(
        {"losses": rows}, f"\n{table(rows)}\n", print_json, output_path / "comparison.json"
    )


def read_sweep(text: str) -> tuple[str, list[Any]]:
    """Read the values of a setting: JSON, separated by commas, or else text."""
    setting, equals, values = (part.strip() for part in text.partition("="))
    if not (equals and values and "." in setting):
        raise BadParameter(f"--sweep: expected section.setting=value,value, got {text!r}")
    try:
        return setting, srsly.json_loads(f"[{values}]")
    except ValueError:
        return setting, [value.strip() for value in values.split(",")]


def describe(name: str, ended: Ended) -> str:
    """Describe the result of a variant in a line."""
    if isinstance(ended, Failed):
        return f"{name}: failed"
    finished: Finished = ended.value
    result = UNTRAINED
    if finished.is_trained:
        result = f"F {100 * finished.f_score():.2f}"
    return f"{name}: {result}, {finished.seconds:.0f} s"


def table(rows: Sequence[ComparedLoss]) -> str:
    """Write rows as a table, in Markdown. All scores except the cost are in percent, followed by
    their standard deviation if there are several seeds. Below it, what is not in it, and why."""
    head = ["loss", "F", "P", "R", "cost", "sentences", "seconds", "p of F", "p of cost"]
    lines: list[list[str]] = []
    notes: list[str] = []
    for row in rows:
        scores = ["-"] * 5
        if row.by_seed:
            scores = [format_scores(name, values) for name, values in row.by_seed.items()]
        p_values = ["-"] * 2
        if row.differences:
            p_values = [f"{row.differences[name].p:.4f}" for name in ("ents_f", "ents_cost")]
        if row.untrained:
            notes.append(
                f"{row.loss}: {UNTRAINED}, with seed {', '.join(map(str, row.untrained))}: no "
                "scores, and no significance of differences from it"
            )
        lines.append([row.loss, *scores, f"{row.seconds:.0f}", *p_values])
    return "\n".join([markdown_table(head, lines, align=True), *notes])


def format_scores(name: str, values: Sequence[float]) -> str:
    """The mean of a score over seeds, and its deviation: in percent, but for the cost."""
    if name == "ents_cost":
        return mean_and_deviation(values, 4)
    return mean_and_deviation([100 * value for value in values])
