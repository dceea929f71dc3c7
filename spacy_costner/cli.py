"""`python -m spacy costner …`: read arguments, call, print.

spaCy imports this module for its entry point in the group `spacy_cli`, and does no more
with that.
"""

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List, Optional, Tuple

import typer
from spacy.cli._util import (
    app,
    import_code,
    parse_config_overrides,
    setup_gpu,
    show_validation_error,
)
from spacy.language import Language
from spacy.training import Corpus, Example
from spacy.util import load_config, load_model
from tqdm import tqdm
from typer import Argument, Option

from .commands.calibrate import calibrate
from .commands.check import check
from .commands.compare import compare, describe, table
from .commands.explain import as_text, draw_transitions, explain, write_json
from .commands.plots import require_matplotlib, save
from .commands.report import gather, page
from .commands.trials import Outcome
from .commands.tune import Aim, draw, tune
from .saving import check_file, check_folder, save_file, save_folder
from .settings import check_overrides
from .training import Step, describe_fit, fit, fit_online

costner = typer.Typer(
    name="costner", help="Train for what mistakes cost (spacy-costner).", no_args_is_help=True
)
app.add_typer(costner)

ModelArg = Annotated[str, Argument(help="Trained pipeline: a package or a folder")]
DevArg = Annotated[Path, Argument(help="DevPredictions docs: .spacy file or folder", exists=True)]
OutputOption = Annotated[Path, Option("--output", "-o", help="Folder to save the pipeline in")]
NameOption = Annotated[str, Option("--name", help="Name of the component")]
GpuOption = Annotated[int, Option("--gpu-id", "-g", help="GPU ID or -1 for CPU")]
CodeOption = Annotated[
    Optional[Path],
    Option("--code", "-c", help="Python file with registered functions to be imported"),
]


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
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
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
    with errors_shown():
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
    typer.echo(f"\n{table(rows)}\n\nWritten to {output_path / 'comparison.json'}")


@costner.command("fit", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def fit_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config of a linear model", exists=True)],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Folder to save the pipeline in, as model-last")
    ],
    online: Annotated[
        bool, Option("--online", help="By the steps of `spacy train`, on examples read once")
    ] = False,
    c2: Annotated[
        Optional[float],
        Option("--c2", help="Weight of the sum of the squared weights, as CRFsuite's: 0.1"),
    ] = None,
    max_iter: Annotated[
        Optional[int], Option("--max-iter", help="The most iterations", min=1)
    ] = None,
    tolerance: Annotated[
        Optional[float],
        Option(
            "--tolerance",
            help="End when ten iterations gain less than this share of the objective: 0.00001",
        ),
    ] = None,
    n_sampled: Annotated[
        Optional[int],
        Option("--sampled", help="For ZScore: draw so many paths of each doc, in place of all"),
    ] = None,
    code_path: CodeOption = None,
) -> None:
    """
    Train a linear model (spacy_costner.SparseCRF.v1) to the optimum of its loss: by
    L-BFGS over all examples at once, not by online steps as `spacy train` does with the
    same config. The optimum of spacy_costner.ZScore.v1 without a cost is the solution of
    linear equations, which conjugate gradient finds. With --online: by the steps of `spacy
    train`, in a fraction of the time, until max_epochs or max_steps of the config. Settings
    are given as for `spacy train`, e.g. --paths.train. Ctrl-C ends it, and the best model so
    far is saved.
    """
    overrides = parse_config_overrides(ctx.args)
    import_code(code_path)
    options = {"c2": c2, "max_iter": max_iter, "tolerance": tolerance, "n_sampled": n_sampled}
    given: Dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        if online and given:
            raise ValueError(f"fit: expected no more options with --online, got {given}")
        check_overrides(load_config(config_path, interpolate=False), overrides)
        config = load_config(config_path, overrides=overrides, interpolate=False)
        unit = "epoch" if online else "it"
        with tqdm(desc="fit", unit=unit, total=max_iter) as bar:
            on_step = partial(show_step, bar)
            if online:
                fitted = fit_online(config, output_path, on_epoch=on_step)
            else:
                fitted = fit(config, output_path, **given, on_step=on_step)
    typer.echo(describe_fit(fitted))


def show_step(bar: tqdm, step: Step) -> None:
    """Move a progress bar."""
    slope = {} if step.slope is None else {"slope": f"{step.slope:.2g}"}
    bar.set_postfix(objective=f"{step.value:.6g}", **slope, refresh=False)
    bar.update()


def show(outcome: Outcome) -> None:
    """Print what came of a trial."""
    typer.echo(describe(outcome))


@costner.command("calibrate")
def calibrate_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    per_label: Annotated[
        bool, Option("--per-label", help="Give each label a temperature of its own")
    ] = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Make confidences mean what they say: of the entities of confidence 0.7, 70 % are to be
    right. Fits a temperature to development docs, which should be other docs than those
    the pipeline was trained on, and saves the pipeline with it. Answers of the best path
    stay the same.
    """
    with errors_shown():
        check_folder(output_path)
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        result = calibrate(nlp, examples, name=name, per_label=per_label)
        save_folder(output_path, nlp.to_disk)
    typer.echo(f"temperature: {result.temperature.overall:.3f}")
    for label, temperature in result.temperature.labels.items():
        typer.echo(f"  {label}: {temperature:.3f}")
    typer.echo(f"\n{'confidence':<12}{'entities':>9}{'mean':>8}{'right':>8}")
    for row in result.reliability:
        if row["n"]:
            between = f"{row['from']:.1f} to {row['to']:.1f}"
            typer.echo(f"{between:<12}{row['n']:>9}{row['confidence']:>8.3f}{row['right']:>8.3f}")
    typer.echo(
        f"\nexpected calibration error: {result.error:.4f}, was {result.error_before:.4f}\n"
        f"Saved to {output_path}"
    )


@costner.command("tune")
def tune_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    dial: Annotated[
        str, Option("--dial", "-d", help="What to turn: threshold or bias")
    ] = "threshold",
    beta: Annotated[
        float, Option("--beta", "-b", help="Best F-beta: recall counts so many times as much")
    ] = 1.0,
    precision: Annotated[
        Optional[float], Option("--precision", help="Best recall with at least this precision")
    ] = None,
    recall: Annotated[
        Optional[float], Option("--recall", help="Best precision with at least this recall")
    ] = None,
    plot_path: Annotated[
        Optional[Path], Option("--plot", help="Picture of the curve (needs matplotlib)")
    ] = None,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Set the dial between precision and recall on development docs, without training. Tries
    all settings on one pass of the model, takes the best one for F-beta or for a floor of
    precision or recall, and saves the pipeline with it.
    """
    with errors_shown():
        check_folder(output_path)
        check_file(plot_path, [model, dev_path])
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        aim = Aim(beta, precision, recall)
        tuning = tune(nlp, examples, name=name, dial=dial, aim=aim)
        save_folder(output_path, nlp.to_disk)
        typer.echo(f"{dial:>9}{'P':>8}{'R':>8}{'F':>8}")
        for point in tuning.points:
            mark = "  <- chosen" if point == tuning.chosen else ""
            scores = f"{point.precision:>8.4f}{point.recall:>8.4f}{point.f_score():>8.4f}"
            typer.echo(f"{point.value:>9g}{scores}{mark}")
        typer.echo(f"\nSaved to {output_path}")
        if plot_path is not None:
            draw(tuning, plot_path)
            typer.echo(f"Drawn to {plot_path}")


@costner.command(
    "check", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def check_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to train with", exists=True)],
    name: Annotated[Optional[str], Option("--name", help="Name of the component")] = None,
    n_places: Annotated[int, Option("--places", "-n", help="Docs to show of each finding")] = 3,
    code_path: CodeOption = None,
) -> None:
    """
    Look at corpora and config before training: how much there is of each label, what can't
    be learned as it stands, and whether costs, trees and weights fit the labels. Settings are
    given as for `spacy train`, e.g. --paths.train. The exit code is 1 if there are errors.
    """
    overrides = parse_config_overrides(ctx.args)
    with errors_shown():
        import_code(code_path)
        found = check(config_path, overrides=overrides, name=name)
    width = max([len("label"), *(len(count.label) for count in found.counts)])
    typer.echo(f"{found.component}\n\n{'label':<{width}}{'train':>10}{'dev':>10}")
    for row in found.counts:
        typer.echo(f"{row.label:<{width}}{row.train:>10}{row.dev:>10}")
    for what, numbers in (("docs", found.docs), ("tokens", found.tokens)):
        typer.echo(f"{what:<{width}}{numbers['train']:>10}{numbers['dev']:>10}")
    for finding in found.findings:
        number = f" ({len(finding.places)})" if finding.places else ""
        typer.echo(f"\n{finding.severity}: {finding.corpus}: {finding.message}{number}")
        for place in finding.places[:n_places]:
            typer.echo(f"    doc {place.doc}: {place.words} {place.text}".rstrip())
    if found.has_errors:
        raise typer.Exit(1)


@costner.command("explain")
def explain_cli(
    model: ModelArg,
    text: Annotated[
        Optional[str], Option("--text", "-t", help="Text to answer and explain")
    ] = None,
    name: NameOption = "ner",
    n_features: Annotated[
        int, Option("--features", "-n", help="Features to show of each tag and token", min=1)
    ] = 10,
    json_path: Annotated[Optional[Path], Option("--json", help="JSON file to write to")] = None,
    picture_path: Annotated[
        Optional[Path], Option("--picture", help="Picture of the transitions (needs matplotlib)")
    ] = None,
    code_path: CodeOption = None,
) -> None:
    """
    Show what a linear model has learned: the strongest features for and against each tag, the
    weights of transitions and, of a text, the features and weights behind the tag of each token.
    """
    with errors_shown():
        for path in (json_path, picture_path):
            check_file(path, [model])
        import_code(code_path)
        found = explain(load_model(model), name=name, text=text, n_features=n_features)
        typer.echo(as_text(found))
        if json_path is not None:
            write_json(found, json_path)
            typer.echo(f"Written to {json_path}")
        if picture_path is not None:
            title = "Weights of transitions"
            save(draw_transitions(found.transitions, title=title), picture_path)
            typer.echo(f"Drawn to {picture_path}")


@costner.command("report")
def report_cli(
    model: ModelArg,
    test_path: Annotated[
        Path, Argument(help="Docs to report on: .spacy file or folder", exists=True)
    ],
    output_path: Annotated[Path, Option("--output", "-o", help="HTML file to write to")],
    name: NameOption = "ner",
    n_mistakes: Annotated[
        int, Option("--mistakes", "-n", help="The costliest mistakes to show", min=0)
    ] = 20,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Write a page to look at of a pipeline on a test corpus: scores by label and by level of the
    tree, precision and recall, confidence, confusion by cost, the costliest mistakes in their
    sentences, and the transitions. One HTML file that needs nothing else.
    """
    with errors_shown():
        check_file(output_path, [model, test_path])
        require_matplotlib()
        nlp, examples = load(model, test_path, use_gpu, code_path)
        found = gather(
            nlp, examples, name=name, source=model, corpus=str(test_path), n_mistakes=n_mistakes
        )
        save_file(output_path, partial(Path.write_text, data=page(found), encoding="utf8"))
    typer.echo(f"Written to {output_path}")


def load(
    model: str, dev_path: Path, use_gpu: int, code_path: Optional[Path]
) -> Tuple[Language, List[Example]]:
    """Load a pipeline and docs to run it on."""
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    nlp = load_model(model)
    return nlp, list(Corpus(dev_path)(nlp))


@contextmanager
def errors_shown() -> Iterator[None]:
    """Print what went wrong as a message, and exit with code 1."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
