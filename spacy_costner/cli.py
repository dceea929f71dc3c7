"""`python -m spacy costner …`: read arguments, call, print.

spaCy imports this module for its entry point in the group `spacy_cli`, and does no more
with that.
"""

from pathlib import Path
from typing import Annotated, Optional

import typer
from spacy.cli._util import app, parse_config_overrides
from typer import Argument, Option

from .compare import compare, describe, table
from .trials import Outcome

costner = typer.Typer(
    name="costner", help="Train for what mistakes cost (spacy-costner).", no_args_is_help=True
)
app.add_typer(costner)


@costner.command(
    "compare", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def compare_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to start from", exists=True)],
    losses: Annotated[
        str, Option("--losses", "-l", help="Comma-separated paths of configs, one for each loss")
    ],
    test_path: Annotated[
        Path, Option("--test", "-t", help="Corpus to score on: .spacy file or folder", exists=True)
    ],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Folder to keep trainings and results in")
    ],
    seeds: Annotated[
        str, Option("--seeds", "-s", help="Comma-separated seeds to train each loss with")
    ] = "0",
    n_samples: Annotated[
        int, Option("--samples", help="Samples of docs that the test of significance draws")
    ] = 10_000,
    jobs: Annotated[int, Option("--jobs", "-j", help="Trainings that go side by side")] = 1,
    use_gpu: Annotated[int, Option("--gpu-id", "-g", help="GPU ID or -1 for CPU")] = -1,
    code_path: Annotated[
        Optional[Path],
        Option("--code", "-c", help="Python file with registered functions to be imported"),
    ] = None,
) -> None:
    """
    Train one config with several losses, on the same data, with the same budget and
    seeds, and print how well each answers. A loss is given as a config of its own:
    its blocks of components and training take the place of those of the first config.
    Settings that hold for all are given as for `spacy train`, e.g. --paths.train.
    Trainings that came to their end are kept in the output folder and not done again.

    The last columns say how likely F and cost differ from those of the first loss by
    chance (paired bootstrap over docs, two-sided).
    """
    overrides = parse_config_overrides(ctx.args)
    try:
        rows = compare(
            config_path,
            [Path(path.strip()) for path in losses.split(",")],
            test_path,
            output_path,
            seeds=[int(seed) for seed in seeds.split(",")],
            overrides=overrides,
            n_samples=n_samples,
            jobs=jobs,
            use_gpu=use_gpu,
            code_path=code_path,
            on_outcome=show,
        )
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    typer.echo(f"\n{table(rows)}\n\nWritten to {output_path / 'comparison.json'}")


def show(outcome: Outcome) -> None:
    """Print what came of a trial."""
    typer.echo(describe(outcome))
