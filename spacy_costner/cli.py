"""The commands of `python -m spacy costner`.

spaCy imports this module through its entry point in the group `spacy_cli`.
"""

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List, Optional, Tuple

import srsly
import typer
from click import NoSuchOption
from spacy.cli._util import (
    app,
    import_code,
    parse_config_overrides,
    setup_gpu,
    show_validation_error,
)
from spacy.language import Language
from spacy.training import Example
from spacy.util import load_config, load_model
from tqdm import tqdm
from typer import Argument, Option

from .cli_init import init_cli
from .commands.calibrate import calibrate
from .commands.check import check
from .commands.compare import compare, describe
from .commands.comparison import table
from .commands.convert import convert, describe_conversion
from .commands.deprecated import old_option
from .commands.explain import as_text, draw_transitions, explain
from .commands.plots import require_matplotlib, save
from .commands.report import gather, page
from .commands.tune import Aim, draw, tune
from .metrics import text_table
from .readers import ReadOptions, make_reader
from .saving import check_file, check_folder, save_file, save_folder
from .settings import check_overrides
from .training import Step, describe_fit, fit, fit_online

costner = typer.Typer(
    name="costner",
    help="Cost-sensitive named entity recognition.",
    no_args_is_help=True,
)
app.add_typer(costner)

OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Of commands that take settings of the config, such as --paths.train."""

ModelArg = Annotated[str, Argument(help="Trained pipeline: a package or a folder")]
DevArg = Annotated[Path, Argument(help="Development corpus: see `costner convert`", exists=True)]
OutputOption = Annotated[Path, Option("--output", "-o", help="Output folder for the pipeline")]
NameOption = Annotated[str, Option("--name", help="Name of the component")]
GpuOption = Annotated[int, Option("--gpu-id", "-g", help="GPU ID or -1 for CPU")]
CodeOption = Annotated[
    Optional[Path],
    Option("--code", "-c", help="Python file with registered functions to be imported"),
]


@costner.command("compare", context_settings=OVERRIDES)
def compare_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Base config", exists=True)],
    losses: Annotated[
        str, Option("--losses", "-l", help="Comma-separated paths of configs, one per loss")
    ],
    test_path: Annotated[
        Path, Option("--test", "-t", help="Test corpus: see `costner convert`", exists=True)
    ],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for pipelines and results")
    ],
    seeds: Annotated[str, Option("--seeds", "-s", help="Comma-separated random seeds")] = "0",
    n_samples: Annotated[int, Option("--samples", help="Number of bootstrap samples")] = 10_000,
    jobs: Annotated[int, Option("--jobs", "-j", help="Number of parallel trainings")] = 1,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Train a config with several losses and compare their scores. All losses get the same
    data, training budget and seeds. Each loss is given as a config: its [components] and
    [training] settings replace those of the base config. Override settings of all variants
    as in `spacy train`, e.g. --paths.train ./train.spacy. Finished trainings are kept in the
    output folder and not repeated.

    The last two columns are p-values of the differences in F and in cost from the first
    loss (paired bootstrap over docs, two-sided).
    """
    with errors_shown():
        rows = compare(
            config_path,
            [Path(path.strip()) for path in losses.split(",")],
            test_path,
            output_path,
            seeds=[int(seed) for seed in seeds.split(",")],
            overrides=read_overrides(ctx),
            n_samples=n_samples,
            jobs=jobs,
            use_gpu=use_gpu,
            code_path=code_path,
            on_end=lambda name, ended: typer.echo(describe(name, ended)),
            on_objection=partial(typer.echo, err=True),
        )
    typer.echo(f"\n{table(rows)}\n\nWritten to {output_path / 'comparison.json'}")


@costner.command("fit", context_settings=OVERRIDES)
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


@costner.command("calibrate")
def calibrate_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    per_label: Annotated[
        bool, Option("--per-label", help="Fit a temperature for each label")
    ] = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Calibrate confidences, so that about 70 % of the entities with confidence 0.7 are correct.
    Fits a temperature on development docs, which should not be training docs. Predictions of
    Viterbi decoding don't change.
    """
    with errors_shown():
        check_folder(output_path)
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        result = calibrate(nlp, examples, name=name, per_label=per_label, source=str(dev_path))
        save_folder(output_path, nlp.to_disk)
    typer.echo(f"temperature: {result.temperature.overall:.3f}")
    for label, temperature in result.temperature.labels.items():
        typer.echo(f"  {label}: {temperature:.3f}")
    rows = [
        [
            f"{row['from']:.1f} to {row['to']:.1f}",
            row["n"],
            f"{row['confidence']:.3f}",
            f"{row['right']:.3f}",
        ]
        for row in result.reliability
        if row["n"]
    ]
    typer.echo("\n" + text_table([["confidence", "entities", "mean", "precision"], *rows]))
    typer.echo(
        f"\nexpected calibration error: {result.error:.4f}, before: {result.error_before:.4f}\n"
        f"Saved to {output_path}"
    )


@costner.command("tune")
def tune_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    parameter: Annotated[
        Optional[str],
        Option("--parameter", "-p", help="Threshold or bias to tune", show_default="threshold"),
    ] = None,
    beta: Annotated[
        float, Option("--beta", "-b", help="Beta of F-beta: weight of recall over precision")
    ] = 1.0,
    precision: Annotated[
        Optional[float],
        Option("--precision", help="Required precision: maximise recall instead of F-beta"),
    ] = None,
    recall: Annotated[
        Optional[float],
        Option("--recall", help="Required recall: maximise precision instead of F-beta"),
    ] = None,
    plot_path: Annotated[
        Optional[Path], Option("--plot", help="Output file for a plot (requires matplotlib)")
    ] = None,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
    old_parameter: Annotated[Optional[str], old_option("--dial", "-d", new="--parameter")] = None,
) -> None:
    """
    Choose the decision threshold, or the bias, that gives the best F-beta on development docs,
    or the best recall at a required precision. No retraining: the model runs once, and all
    values are tried on its output.
    """
    parameter = old_parameter or parameter
    with errors_shown():
        check_folder(output_path)
        check_file(plot_path, [model, dev_path])
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        aim = Aim(beta, precision, recall)
        tuning = tune(nlp, examples, name=name, parameter=parameter, aim=aim, source=str(dev_path))
        save_folder(output_path, nlp.to_disk)
        rows = [
            [
                f"{point.value:g}",
                *(f"{score:.4f}" for score in (point.precision, point.recall, point.f_score())),
                "<- chosen" if point == tuning.chosen else "",
            ]
            for point in tuning.points
        ]
        typer.echo(text_table([[tuning.parameter, "P", "R", "F", ""], *rows]))
        typer.echo(f"\nSaved to {output_path}")
        if plot_path is not None:
            draw(tuning, plot_path)
            typer.echo(f"Plot saved to {plot_path}")


@costner.command("check", context_settings=OVERRIDES)
def check_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Config to train with", exists=True)],
    name: Annotated[Optional[str], Option("--name", help="Name of the component")] = None,
    n_places: Annotated[int, Option("--places", "-n", help="Docs to show per finding")] = 3,
    code_path: CodeOption = None,
) -> None:
    """
    Check your data and config before training: entities per label, annotation that can't be
    learned, and whether costs, label trees and weights fit the labels. Override settings as in
    `spacy train`, e.g. --paths.train ./train.spacy. The exit code is 1 if there are errors.
    """
    overrides = read_overrides(ctx)
    with errors_shown():
        import_code(code_path)
        found = check(config_path, overrides=overrides, name=name)
    totals = (("docs", found.docs), ("tokens", found.tokens))
    rows = [
        ["label", "train", "dev"],
        *found.counts,
        *([what, numbers["train"], numbers["dev"]] for what, numbers in totals),
    ]
    typer.echo(f"{found.component}\n\n{text_table(rows)}")
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
        Optional[str], Option("--text", "-t", help="Text to predict and explain")
    ] = None,
    name: NameOption = "ner",
    n_features: Annotated[
        int, Option("--features", "-n", help="Number of features to show per tag and token", min=1)
    ] = 10,
    json_path: Annotated[Optional[Path], Option("--json", help="Output JSON file")] = None,
    plot_path: Annotated[
        Optional[Path],
        Option("--plot", help="Output file for a plot of transition weights (requires matplotlib)"),
    ] = None,
    code_path: CodeOption = None,
    picture_path: Annotated[Optional[Path], old_option("--picture", new="--plot")] = None,
) -> None:
    """
    Show the weights of a linear model: the strongest features for and against each tag, the
    transition weights and, for a text, the features behind the tag of each token.
    """
    plot_path = picture_path or plot_path
    with errors_shown():
        for path in (json_path, plot_path):
            check_file(path, [model])
        import_code(code_path)
        found = explain(load_model(model), name=name, text=text, n_features=n_features)
        typer.echo(as_text(found))
        if json_path is not None:
            srsly.write_json(json_path, found.to_dict())
            typer.echo(f"Written to {json_path}")
        if plot_path is not None:
            save(draw_transitions(found.transitions, title="Transition weights"), plot_path)
            typer.echo(f"Plot saved to {plot_path}")


@costner.command("report")
def report_cli(
    model: ModelArg,
    test_path: Annotated[Path, Argument(help="Test corpus: see `costner convert`", exists=True)],
    output_path: Annotated[Path, Option("--output", "-o", help="Output HTML file")],
    name: NameOption = "ner",
    n_mistakes: Annotated[
        int, Option("--mistakes", "-n", help="Number of mistakes to show, costliest first", min=0)
    ] = 20,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Write an HTML report of a pipeline on a test corpus: scores by label and by level of the
    label tree, the precision-recall curve, calibration, the confusion matrix by cost, the
    costliest mistakes in their sentences, and the transition weights. The file is
    self-contained.
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


def read_overrides(ctx: typer.Context) -> Dict[str, Any]:
    """Read the settings that a command line overrides, such as --paths.train."""
    try:
        return parse_config_overrides(ctx.args)
    except NoSuchOption as error:  # typer may have a click of its own
        ctx.fail(error.format_message())


@costner.command("convert")
def convert_cli(
    input_path: Annotated[Path, Argument(help="Annotated corpus: a file or folder", exists=True)],
    output_path: Annotated[
        Path, Argument(help="Output file: .spacy, .jsonl or, for columns, .conll, .iob or .tsv")
    ],
    n_sents: Annotated[
        Optional[int],
        Option("--n-sents", "-n", help="Sentences per doc, 0 for all of a file", min=0),
    ] = None,
    column: Annotated[
        Optional[int],
        Option("--column", help="Column of the tags, from 2 or from -1", show_default="the last"),
    ] = None,
    tag_names: Annotated[
        Optional[str], Option("--tag-names", help="Comma-separated names of tags that are numbers")
    ] = None,
    incorrect_spans_key: Annotated[
        Optional[str], Option("--incorrect-spans-key", help="Span group for rejected spans")
    ] = None,
    lang: Annotated[
        str, Option("--lang", "-l", help="Language of the tokenizer for texts without tokens")
    ] = "xx",
) -> None:
    """
    Convert an annotated corpus, and show what it contains. The format is found from the content:
    .spacy; CoNLL columns in any tag scheme; JSONL of Prodigy, doccano and Hugging Face; Label
    Studio's JSON export; a Hugging Face dataset on disk; a folder of these. All commands, and
    configs with the reader spacy_costner.read.v1, read these formats without conversion, too.
    """
    names = None if tag_names is None else [name.strip() for name in tag_names.split(",")]
    options = ReadOptions(n_sents, column, names, incorrect_spans_key)
    with errors_shown():
        found = convert(input_path, output_path, options=options, lang=lang)
    typer.echo(f"{describe_conversion(found)}\nWritten to {output_path}")


def load(
    model: str, dev_path: Path, use_gpu: int, code_path: Optional[Path]
) -> Tuple[Language, List[Example]]:
    """Load a pipeline and docs."""
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    nlp = load_model(model)
    return nlp, list(make_reader(dev_path)(nlp))


@contextmanager
def errors_shown() -> Iterator[None]:
    """Print errors without a traceback and exit with code 1."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


costner.command("init")(errors_shown()(init_cli))
