"""`python -m spacy costner …`: read arguments, call, print.

spaCy imports this module for its entry point in the group `spacy_cli`, and does no more
with that.
"""

from pathlib import Path
from typing import Annotated, Optional

import typer
from spacy.cli._util import app, import_code, parse_config_overrides, show_validation_error
from spacy.util import load_config
from tqdm import tqdm
from typer import Argument, Option

from .compare import compare, describe, table
from .fit import Step, describe_fit, fit
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


@costner.command("fit", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def fit_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config of a linear model", exists=True)],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Folder to save the pipeline in, as model-last")
    ],
    c2: Annotated[
        float, Option("--c2", help="Weight of the sum of the squared weights, as CRFsuite's")
    ] = 0.1,
    max_iter: Annotated[
        Optional[int], Option("--max-iter", help="The most iterations of L-BFGS", min=1)
    ] = None,
    tolerance: Annotated[
        float,
        Option(
            "--tolerance", help="End when ten iterations gain less than this share of the objective"
        ),
    ] = 1e-5,
    code_path: Annotated[
        Optional[Path],
        Option("--code", "-c", help="Python file with registered functions to be imported"),
    ] = None,
) -> None:
    """
    Train a linear model (spacy_costner.SparseCRF.v1) to the optimum of its loss: by
    L-BFGS over all examples at once, not by online steps as `spacy train` does with the
    same config. Settings are given as for that, e.g. --paths.train. Ctrl-C ends it, and
    the best model so far is saved.
    """
    overrides = parse_config_overrides(ctx.args)
    import_code(code_path)
    try:
        with show_validation_error(config_path, hint_fill=False):
            config = load_config(config_path, overrides=overrides, interpolate=False)
            with tqdm(desc="L-BFGS", unit="it", total=max_iter) as bar:
                fitted = fit(
                    config,
                    output_path,
                    c2=c2,
                    max_iter=max_iter,
                    tolerance=tolerance,
                    on_step=lambda step: show_step(bar, step),
                )
    except (ImportError, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    typer.echo(describe_fit(fitted))


def show_step(bar: tqdm, step: Step) -> None:
    """Move a progress bar."""
    bar.set_postfix(objective=f"{step.value:.6g}", slope=f"{step.slope:.2g}", refresh=False)
    bar.update()


def show(outcome: Outcome) -> None:
    """Print what came of a trial."""
    typer.echo(describe(outcome))
