"""What `fit` does before and after training: write a config, calibrate and tune."""

from pathlib import Path
from typing import Annotated, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import typer
from spacy.cli._util import import_code, show_validation_error
from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example
from spacy.util import load_config
from typer import Argument, Option

from ..metrics import as_json
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..saving import save_file, save_folder
from ..settings import check_overrides
from .calibrate import Calibration, calibrate_on
from .cross_fit import hold_out
from .fitting import (
    NO_DEV,
    Fitted,
    Preparation,
    describe_fit,
    describe_scores,
    fit,
    fit_online,
    has_dev,
)
from .init import Corpora, check_lang, command_line, look, make_plan, write_config
from .options import CodeOption, read_overrides
from .output import JsonOption, errors_shown, print_result
from .predictions import DevPredictions, predict, predict_dev, record_scores
from .tune import Tuning, check_parameter, parse_aim, tune_on

N_FOLDS = 4
HELD_OUT = f"{N_FOLDS} held-out folds of the training corpus"


class Improved(NamedTuple):
    """What was done after training.

    calibration (Optional[Calibration]): The result of `calibrate`.
    tuning (Optional[Tuning]): The result of `tune`.
    held_out (Optional[Mapping[str, Any]]): Without a development corpus: the scores before, on
        held-out folds.
    """

    calibration: Optional[Calibration] = None
    tuning: Optional[Tuning] = None
    held_out: Optional[Mapping[str, Any]] = None

    def lines(self) -> List[str]:
        """What it came to, before -> after."""
        lines = [] if self.held_out is None else [f"{HELD_OUT}: {describe_scores(self.held_out)}"]
        for result in (self.calibration, self.tuning):
            lines += [] if result is None else [result.describe()]
        return lines


def write_fit_config(
    output_path: Path,
    model: str,
    lang: str,
    train_path: Optional[Path],
    dev_path: Optional[Path],
    *,
    aim: Optional[Dict[str, Any]] = None,
    command: str = "",
) -> Path:
    """Write the config that `init` writes for corpora to an output folder.

    output_path (Path): The folder. If it has another config already, that is kept.
    model (str): One of `init`'s models, of which `fit` trains the linear one.
    lang (str): The language.
    train_path (Optional[Path]), dev_path (Optional[Path]): The corpora; the first is needed.
    aim (Optional[Dict[str, Any]]): What the model will be tuned for.
    command (str): The command that makes it, for its head.
    RETURNS (Path): The config.
    RAISES (ValueError): If the corpus is missing, `fit` can't train the model, or there is another
        config.
    """
    if model != "linear":
        raise ValueError(
            f"fit: --model: expected linear, the only one that fit trains, got {model}: use "
            "`costner init` and `spacy train`"
        )
    if train_path is None:
        raise ValueError("fit: --train: expected a corpus if there is no config, got none")
    size = look(train_path, lang)
    plan = make_plan(sentences=size.sentences, **(aim or {}))
    path = output_path / "config.cfg"
    text = write_config(
        plan, lang, Corpora(train_path, dev_path, size), command=command, path=str(path)
    )
    if path.exists() and path.read_text(encoding="utf8") != text:
        raise ValueError(
            f"{path}: expected the config of this command, got another: give it as the config, "
            "remove it, or choose another --output"
        )
    output_path.mkdir(parents=True, exist_ok=True)
    save_file(path, lambda new: new.write_text(text, encoding="utf8"))
    return path


def improve(
    fitted: Fitted, *, calibrated: bool, aim: Optional[Dict[str, Any]], n_seeds: int = 1
) -> Improved:
    """Calibrate and tune a fitted pipeline on its development corpus, or if it has none on
    held-out folds of the training corpus, and save it again.

    fitted (Fitted): The pipeline.
    calibrated (bool): Whether to calibrate it.
    aim (Optional[Dict[str, Any]]): What to tune it for. None: it isn't tuned.
    n_seeds (int): Number of trainings of the models of folds.
    RETURNS (Improved): The results.
    RAISES (ValueError): If there is no entity in the development docs, no value with the required
        score, or the decoding has nothing to tune.
    """
    ready, dev, is_held_out = fitted.ready, fitted.dev, not has_dev(fitted.ready.nlp)
    nlp, ner, name = ready.nlp, ready.ner, ready.ner.name
    calibration, tuning = None, None
    try:
        parameter = "" if aim is None else check_parameter(nlp, name)
        devs = held_out(ready, n_seeds) if is_held_out else [predict_dev(nlp, name, dev)]
        before = score(nlp, ner, devs) if is_held_out else None
        if calibrated:
            calibration = calibrate_on(devs, nlp, name)
            devs = [each.at(calibration.temperature) for each in devs]
        if aim is not None:
            tuning = tune_on(devs, nlp, name, parameter, **aim)
    except ValueError as error:
        kept = f"{fitted.path} is trained, but neither calibrated nor tuned"
        raise ValueError(f"{error}\n{kept}") from error
    if is_held_out:
        n_docs = sum(len(each.examples) for each in devs)
        record_scores(nlp, score(nlp, ner, devs), HELD_OUT, n_docs)
    else:
        source = nlp.config.interpolate().get("paths", {}).get("dev")
        record_scores(nlp, nlp.evaluate(dev), str(source or "development docs"), len(dev))
    save_folder(fitted.path, nlp.to_disk)
    return Improved(calibration, tuning, before)


def held_out(ready: Preparation, n_seeds: int) -> List[DevPredictions]:
    """The predictions for folds of a training corpus, by models that were trained on the others."""
    examples = [eg for eg in ready.examples if len(eg.predicted)]
    settings: Dict[str, Any] = {"n_folds": N_FOLDS, "n_seeds": n_seeds}
    with progress(desc="held-out folds", unit="fold", total=N_FOLDS) as bar:
        folds = hold_out(
            ready.nlp.config, examples, ready.ner.labels, **settings, on_fold=bar.update
        )
    return [fold.dev for fold in folds]


def score(nlp: Language, ner: CostSensitiveNER, devs: Sequence[DevPredictions]) -> Dict[str, Any]:
    """Score what a component predicts by posteriors that others have computed."""
    examples: List[Example] = []
    for dev in devs:
        copies = [Example(eg.predicted.copy(), eg.reference) for eg in dev.examples]
        predict(ner, [eg.predicted for eg in copies], dev.posterior, ner.confidence)
        examples += copies
    scores: Dict[str, Any] = as_json(Scorer(nlp).score(examples))
    return scores


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
