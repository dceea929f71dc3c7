"""`python -m spacy costner fit`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Dict, Optional

import typer
from spacy.cli._util import import_code, show_validation_error
from spacy.util import load_config
from tqdm import tqdm
from typer import Argument, Option

from ..settings import check_overrides
from ..training import Step, describe_fit, fit, fit_online
from .options import CodeOption, errors_shown, read_overrides


def fit_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config of a linear model", exists=True)],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for the pipeline, model-last")
    ],
    online: Annotated[
        bool, Option("--online", help="Train with the optimizer of the config instead of L-BFGS")
    ] = False,
    n_seeds: Annotated[
        int,
        Option("--seeds", help="With --online: train so many times, and average weights", min=1),
    ] = 1,
    c2: Annotated[
        Optional[float],
        Option("--c2", help="Coefficient of L2 regularization, as in CRFsuite", show_default="0.1"),
    ] = None,
    max_iter: Annotated[
        Optional[int],
        Option("--max-iter", help="Maximum number of iterations", min=1, show_default="unlimited"),
    ] = None,
    tolerance: Annotated[
        Optional[float],
        Option(
            "--tolerance",
            help="Stop when ten iterations improve the objective by less than this share",
            show_default="0.00001",
        ),
    ] = None,
    n_sampled: Annotated[
        Optional[int],
        Option("--sampled", help="For ZScore: paths to sample per doc", show_default="all"),
    ] = None,
    code_path: CodeOption = None,
) -> None:
    """
    Train a linear model (spacy_costner.SparseCRF.v1) to the optimum of its loss with L-BFGS.
    For spacy_costner.ZScore.v1 without a cost, solve for the optimum with conjugate gradient.
    With --online, train as `spacy train` does, but faster: until max_epochs or max_steps,
    and only the final model is evaluated. Override settings as in `spacy train`, e.g.
    --paths.train ./train.spacy. Press Ctrl-C to stop and save the best model so far.
    """
    overrides = read_overrides(ctx)
    import_code(code_path)
    options = {"c2": c2, "max_iter": max_iter, "tolerance": tolerance, "n_sampled": n_sampled}
    given: Dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        if online and given:
            raise ValueError(f"fit: expected no more options with --online, got {given}")
        if n_seeds > 1 and not online:
            raise ValueError(f"fit: seeds: expected 1 without --online, got {n_seeds}")
        check_overrides(load_config(config_path, interpolate=False), overrides)
        config = load_config(config_path, overrides=overrides, interpolate=False)
        with tqdm(desc="fit", unit="epoch" if online else "it", total=max_iter) as bar:
            on_step = partial(show_step, bar)
            if online:
                fitted = fit_online(config, output_path, n_seeds=n_seeds, on_epoch=on_step)
            else:
                fitted = fit(config, output_path, **given, on_step=on_step)
    typer.echo(describe_fit(fitted))


def show_step(bar: tqdm, step: Step) -> None:
    """Update the progress bar."""
    slope = {} if step.slope is None else {"slope": f"{step.slope:.2g}"}
    bar.set_postfix(objective=f"{step.value:.6g}", **slope, refresh=False)
    bar.update()
