"""`python -m spacy costner fit`."""

from pathlib import Path
from typing import Annotated, Any, Dict, Mapping, Optional

import typer
from spacy.cli._util import import_code, show_validation_error
from spacy.util import load_config
from typer import Argument, Option

from ..commands.fit import Improved, improve, parse_aim, write_fit_config
from ..settings import check_overrides
from ..training import NO_DEV, Fitted, describe_fit, fit, fit_online
from .init import check_lang, command_line
from .options import CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result

CONFIG, NO_CONFIG, ONLINE, BATCH = (
    "a config",
    "no config",
    "--online or no config",
    "a config and no --online",
)

GOES_WITH = {
    "online": CONFIG,
    "model": NO_CONFIG,
    "lang": NO_CONFIG,
    "n_seeds": ONLINE,
    "cache": ONLINE,
    "c2": BATCH,
    "max_iter": BATCH,
    "tolerance": BATCH,
    "n_sampled": BATCH,
}
"""What options need. The others go with all."""

STOPPED = """
Stopped by Ctrl-C: this is the model so far, neither calibrated nor tuned. The same command starts
again. To go on from this model, name it in initialize.after_init: spacy_costner.start_from.v1."""


def fit_cli(
    ctx: typer.Context,
    config_path: Annotated[
        Optional[Path],
        Argument(help="Config of a linear model", show_default="written to the output folder"),
    ] = None,
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for the pipeline, model-last")
    ] = ...,  # type: ignore[assignment]
    model: Annotated[
        str, Option("--model", "-m", help="Without a config: model of `costner init`")
    ] = "linear",
    lang: Annotated[
        str, Option("--lang", "-l", help="Without a config: code of the language")
    ] = "en",
    train_path: Annotated[
        Optional[Path], Option("--train", help="Training corpus, as --paths.train", exists=True)
    ] = None,
    dev_path: Annotated[
        Optional[Path], Option("--dev", help="Development corpus, as --paths.dev", exists=True)
    ] = None,
    calibrated: Annotated[
        bool, Option("--calibrate", help="Calibrate on --dev, or without it on held-out folds")
    ] = False,
    aim: Annotated[
        Optional[str],
        Option("--tune", help="Tune there: f, precision=0.9 or recall=0.9, as `costner tune`"),
    ] = None,
    online: Annotated[
        bool,
        Option("--online", help="With a config: train with its optimizer instead of L-BFGS"),
    ] = False,
    n_seeds: Annotated[
        int,
        Option("--seeds", help="Online: train so many times, and average weights", min=1),
    ] = 1,
    cache: Annotated[
        Optional[Path],
        Option("--cache", help="Online: folder for features, in place of memory", file_okay=False),
    ] = None,
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
    print_json: JsonOption = False,
    code_path: CodeOption = None,
) -> None:
    """
    Train a linear model, and calibrate and tune it. Without a config, writes the one that
    `costner init` writes for the corpora, and trains online.

    With a config (spacy_costner.SparseCRF.v1), trains to the optimum of its loss with L-BFGS. For
    spacy_costner.ZScore.v1 without a cost, solves for the optimum with conjugate gradient. With
    --online, trains as `spacy train` does, but faster: until max_epochs or max_steps, and only
    the final model is evaluated. Override settings as in `spacy train`, e.g. --nlp.lang es.
    Press Ctrl-C to stop and save the best model so far.
    """
    if config_path is not None and str(config_path).startswith("-"):  # a setting, without a config
        ctx.args.insert(0, str(config_path))
        ctx.params["config_path"] = config_path = None
    overrides = read_overrides(ctx)
    paths = {"paths.train": train_path, "paths.dev": dev_path}
    overrides.update({name: str(path) for name, path in paths.items() if path is not None})
    import_code(code_path)
    is_online = online or config_path is None
    options = {"c2": c2, "max_iter": max_iter, "tolerance": tolerance, "n_sampled": n_sampled}
    given: Dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    with errors_shown():
        check_together(ctx, has_config=config_path is not None, is_online=is_online)
        tuned = None if aim is None else parse_aim(aim)
        improved = calibrated or tuned is not None
        if config_path is None:
            if dev_path is None and not improved:
                raise ValueError(f"fit: --dev: {NO_DEV}")
            check_lang(lang)
            command = command_line(ctx)
            config_path = write_fit_config(
                output_path, model, lang, train_path, dev_path, aim=tuned, command=command
            )
            typer.echo(f"Written to {config_path}", err=print_json)
        with show_validation_error(config_path, hint_fill=False):
            check_overrides(load_config(config_path, interpolate=False), overrides)
            config = load_config(config_path, overrides=overrides, interpolate=False)
            if is_online:
                needs_dev = not improved or cache is not None
                given.update(n_seeds=n_seeds, needs_dev=needs_dev, cache=cache)
                fitted = fit_online(config, output_path, **given)
            else:
                fitted = fit(config, output_path, **given, on_memory=show_memory)
        better = Improved()
        if improved and not fitted.is_interrupted:
            better = improve(fitted, calibrated=calibrated, aim=tuned, n_seeds=n_seeds)
    text = "\n".join([describe_fit(fitted), *better.lines()])
    text += STOPPED if fitted.is_interrupted else ""
    print_result(summary(fitted, better), text, print_json, fitted.path)


def show_memory(n_bytes: int) -> None:
    """Print what training on all examples needs."""
    typer.echo(f"Training needs up to {n_bytes / 1e9:.2f} GB of memory, besides the docs", err=True)


def check_together(ctx: typer.Context, *, has_config: bool, is_online: bool) -> None:
    """Check that the options that are given go together: see `GOES_WITH`.

    RAISES (ValueError): If they don't.
    """
    holds = {
        CONFIG: has_config,
        NO_CONFIG: not has_config,
        ONLINE: is_online,
        BATCH: not is_online,
    }
    for param in ctx.command.params:
        name = param.name or ""
        source = ctx.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and name in GOES_WITH and not holds[GOES_WITH[name]]:
            raise ValueError(f"fit: {param.opts[0]}: expected {GOES_WITH[name]} with it")


def summary(fitted: Fitted, better: Improved) -> Mapping[str, Any]:
    """The result for --json."""
    return {
        "path": fitted.path,
        "training": fitted.outcome.describe(),
        "weights": fitted.n_weights,
        "scores": fitted.scores,
        **better._asdict(),
    }
