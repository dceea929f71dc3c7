"""`fit`: train a linear model, calibrate it and tune it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from math import isfinite
from pathlib import Path
from typing import IO, Any, NamedTuple

from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import create_before_to_disk_callback, train, update_meta
from spacy.util import dot_to_object
from thinc.api import Config

from ..ml import first_pass_of, linear_part
from ..pipeline.component import CostSensitiveNER
from ..pipeline.reading import find_reading
from ..progress import progress
from ..readers import copy_tokens, examples_to_measure
from ..saving import as_json, check_folder, save_folder, save_text
from ..training.online import INTERRUPTED, Trained
from .calibration import Calibration, calibrate_on
from .fitness import find_faults
from .initial_config import init
from .loading import read_config
from .predictions import DevPredictions, predict, predict_dev, record_scores
from .preparation import (
    START,
    components_to_fit,
    find_corpora,
    hold_out,
    load_linear,
    prepare,
    train_linear,
)
from .tuning import Tuning, check_parameter, parse_aim, tune_on

DIR_MODEL = "model-best"

N_FOLDS = 4

HELD_OUT = f"{N_FOLDS} held-out folds of the training corpus"

DEV_SCORES = {"f": "F", "p": "precision", "r": "recall"}

STOPPED = """
Stopped by Ctrl-C: this is the model so far, neither calibrated nor tuned. The same command starts
again. To go on from this model, name it in initialize.after_init: spacy_costner.start_from.v1."""


class Fitted(NamedTuple):
    """A pipeline that was trained and saved."""

    path: Path
    outcomes: dict[str, Trained]  # by component: several if they share a `spans_key`
    scores: dict[str, Any]  # on the development corpus, before calibration and tuning
    nlp: Language
    ners: list[CostSensitiveNER]
    has_dev: bool  # whether there is a development corpus
    calibration: Calibration | None = None
    tuning: Tuning | None = None
    held_out: dict[str, Any] | None = None  # scores before, without a development corpus
    notes: Sequence[str] = ()  # what may make scores on the development corpus misleading

    @property
    def is_interrupted(self) -> bool:
        """Whether training or evaluation was interrupted."""
        return not self.scores or any(o.reason == INTERRUPTED for o in self.outcomes.values())

    def result(self) -> dict[str, Any]:
        """What is printed as JSON. "training" is how it ended, on a line for each component."""
        ends = {name: outcome.describe() for name, outcome in self.outcomes.items()}
        lines = [f"{name}: {end}" if len(self.ners) > 1 else end for name, end in ends.items()]
        return {
            "path": self.path,
            "training": "\n".join(lines),
            "weights": sum(linear_part(ner.model)[1].rows.size for ner in self.ners),
            "scores": self.scores,
            "calibration": self.calibration,
            "tuning": self.tuning,
            "held_out": self.held_out,
            "notes": self.notes,
        }

    def describe(self) -> str:
        """Lines of text."""
        result = self.result()
        has_two = any(first_pass_of(ner.model) for ner in self.ners)
        passes = ", two passes (features.document)" if has_two else ""
        lines = [result["training"], f"{result['weights']:,} weights{passes}"]
        name, scores = ("dev", self.scores) if self.has_dev else (HELD_OUT, self.held_out)
        if scores is None:
            lines.append("not evaluated: there is no development corpus")
        else:
            spans_key = self.ners[0].annotation.spans_key
            prefix = "ents" if spans_key is None else f"spans_{spans_key}"
            found = {word: scores.get(f"{prefix}_{key}") for key, word in DEV_SCORES.items()}
            parts = [f"{word} {100 * x:.2f}" for word, x in found.items() if x is not None]
            lines.append(f"{name}: {', '.join(parts) or 'not scored'}")
        lines += [each.describe() for each in (self.calibration, self.tuning) if each is not None]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines) + (STOPPED if self.is_interrupted else "")


def fit(
    config: Config | Path | None,
    output_path: Path,
    *,
    lang: str | None = None,
    train_path: Path | None = None,
    dev_path: Path | None = None,
    calibrate: bool = False,
    tune: str | None = None,
    n_seeds: int = 1,
    file_tokens: bool = False,
    cache: Path | None = None,
    overrides: Mapping[str, Any] = {},
    command: str = "python -m spacy costner fit",
) -> Fitted:
    """Train a linear model: see `train_linear`. Calibrate and tune it if asked, and save the
    pipeline. The model is evaluated only at the end.

    config (Config | Path | None): A config for `spacy train`. None: the one that `init` writes
        for the corpora, to the output folder.
    file_tokens (bool): Whether the development docs have the tokens and sentence starts of their
        file. Otherwise they are read as `spacy evaluate` does.
    cache (Path | None): The folder has features and targets. Docs are read twice and not kept,
        and the pipeline is saved after each epoch.
    overrides (Mapping[str, Any]): Other settings, such as {"training.max_epochs": 3}.
    command (str): The command, for the head of the config that is written.
    lang (str | None): Without a config: code of the language.
    train_path (Path | None): Training corpus, as --paths.train.
    dev_path (Path | None): Development corpus, as --paths.dev.
    calibrate (bool): Calibrate on --dev, or without it on held-out folds.
    tune (str | None): Tune there: f, precision=0.9 (as `costner tune --precision 0.9`) or
        recall=0.9.
    n_seeds (int): Train so many times, and average weights.
    RETURNS (Fitted): The saved pipeline and the results.
    RAISES (ValueError): If the config's component can't be trained, or not so.
    """
    improves = calibrate or tune is not None
    if lang is not None and config is not None:
        raise ValueError("fit: --lang: expected no config with it")
    aim = {} if tune is None else parse_aim(tune)
    if config is None:
        given: Any = {"train_path": train_path, "dev_path": dev_path, "aim": tune}
        config = write_config(output_path, lang=lang or "en", command=command, **given)
    paths = {"paths.train": train_path, "paths.dev": dev_path}
    overrides = {**overrides, **{name: str(path) for name, path in paths.items() if path}}
    if isinstance(config, Path):
        config = read_config(config, overrides)

    path = output_path / DIR_MODEL
    check_folder(path)
    linear = load_linear(config)
    nlp, ner, training = linear
    ners = components_to_fit(nlp, training["frozen_components"])
    if len(ners) > 1 and (improves or cache is not None):
        raise ValueError(
            "fit: --calibrate, --tune, --cache: expected one component to train, got "
            f"{[each.name for each in ners]}: `costner calibrate` and `tune` take one by its --name"
        )
    train_corpus, dev_corpus = find_corpora(nlp)
    if file_tokens and dev_corpus is None:
        raise ValueError(
            "fit: --file-tokens: expected a development corpus with it, got none: docs that are "
            "held out of the training corpus are read as for training"
        )
    held_out = improves and dev_corpus is None
    if held_out and nlp.config["initialize"]["after_init"] is not None:
        raise ValueError(f"fit: initialize.after_init: {START}")
    if cache is not None:
        if held_out:
            raise ValueError(
                "fit: paths.dev: expected a development corpus with --cache and --calibrate or "
                "--tune, got none: docs of the training corpus can't be held out"
            )
        check_cache(nlp, ner)
        cache.mkdir(parents=True, exist_ok=True)
    examples = prepare(linear, train_corpus, in_memory=cache is None)
    dev_source = str(nlp.config.interpolate().get("paths", {}).get("dev") or "development docs")
    dev: list[Example] = []
    notes: list[str] = []
    if dev_corpus is not None:  # before training, which would be in vain
        to_measure = examples_to_measure(nlp, dev_corpus, file_tokens=file_tokens)
        dev = list(progress(to_measure, desc="read dev", unit="doc"))
        notes = find_faults(nlp, ner, dev, dev_source)

    def save(scores: dict[str, Any], values: Mapping[str, float]) -> None:
        losses = {name: value for name, value in values.items() if isfinite(value)}
        update_meta(training, nlp, {"other_scores": scores, "losses": losses})
        before_to_disk = create_before_to_disk_callback(training["before_to_disk"])
        save_folder(path, before_to_disk(nlp).to_disk)

    def after_epoch(trained: Trained) -> None:
        with nlp.use_params(training["optimizer"].averages or {}):
            save({}, {ner.name: trained.value})

    settings: Any = {"n_seeds": n_seeds, "cache": cache}
    settings |= {} if cache is None else {"on_epoch": after_epoch}
    outcomes: dict[str, Trained] = {}
    for each in ners:
        outcomes[each.name] = train_linear((nlp, each, training), examples, **settings)
        if outcomes[each.name].reason == INTERRUPTED:
            break

    # It is saved without scores if evaluation is interrupted.
    scores: dict[str, Any] = {}
    with suppress(KeyboardInterrupt):
        scores = nlp.evaluate(dev)
    save(scores, {name: outcome.value for name, outcome in outcomes.items()})
    fitted = Fitted(path, outcomes, scores, nlp, ners, dev_corpus is not None, notes=notes)
    if fitted.is_interrupted or not improves:
        return fitted

    # Calibrate and tune on the development docs or, without them, on held-out folds.
    try:
        parameter = "" if tune is None else check_parameter(nlp, ner)
        if held_out:
            examples = [eg for eg in examples if len(eg.predicted)]
            settings = {"n_folds": N_FOLDS, "n_seeds": n_seeds, "desc": "held-out folds"}
            folds = hold_out(nlp.config, examples, ner.labels, **settings)
            devs = [fold.dev for fold in folds]
            fitted = fitted._replace(held_out=score(nlp, ner, devs))
            # Folds have no sentence starts: see `hold_out`.
            bare = [Example(copy_tokens(eg.predicted), eg.reference) for eg in examples]
            ner.set_reading(find_reading(nlp, ner.name, bare))
        else:
            devs = [predict_dev(nlp, ner, dev)]
            ner.set_reading(find_reading(nlp, ner.name, dev, file_tokens=file_tokens))
        if calibrate:
            source = HELD_OUT if held_out else dev_source
            calibration = calibrate_on(devs, nlp, ner, source)
            fitted = fitted._replace(calibration=calibration)
            devs = [each.with_temperature(calibration.temperature) for each in devs]
        if tune is not None:
            fitted = fitted._replace(tuning=tune_on(devs, nlp, ner, parameter, **aim))
    except ValueError as error:
        kept = f"{path} is trained, but neither calibrated nor tuned"
        raise ValueError(f"{error}\n{kept}") from error
    if held_out:
        n_docs = sum(len(each.examples) for each in devs)
        record_scores(nlp, score(nlp, ner, devs), HELD_OUT, n_docs)
    else:
        record_scores(nlp, nlp.evaluate(dev), dev_source, len(dev))
    save_folder(path, nlp.to_disk)
    return fitted


def is_fitted(config: Config) -> bool:
    """Whether `fit` trains a config: its component to train is linear, and there is an end."""
    with suppress(ValueError):
        return bool(load_linear(config.copy()))
    return False


def train_as_fitted(
    config: Config, output_path: Path, log: IO[str], *, n_seeds: int = 1, use_gpu: int = -1
) -> Path:
    """Train and save a pipeline: by `fit` if it can, or by `spacy train`. Returns its path."""
    if not is_fitted(config):
        nlp = init_nlp(config, use_gpu=use_gpu)
        with nullcontext() if log.isatty() else updates_shown(nlp):
            train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
        return output_path / DIR_MODEL
    fitted = fit(config, output_path, n_seeds=n_seeds)
    if fitted.is_interrupted:
        raise KeyboardInterrupt
    log.write(fitted.describe() + "\n")
    return fitted.path


@contextmanager
def updates_shown(nlp: Language) -> Iterator[None]:
    """Show a progress bar of the updates of a pipeline, whose log isn't on the terminal."""
    training = nlp.config.interpolate()["training"]
    update = nlp.update
    total = None
    if training["max_steps"]:
        # spaCy counts steps from 0 to max_steps. A step is an update or, if gradients are
        # accumulated, several.
        total = (training["max_steps"] + 1) * training["accumulate_gradient"]
    bar = progress(desc="train", unit="update", total=total)

    def update_and_count(*args: Any, **kwargs: Any) -> dict[str, float]:
        losses = update(*args, **kwargs)
        bar.update()
        return losses

    vars(nlp)["update"] = update_and_count  # spaCy has no callback after an update
    try:
        with bar:
            yield
    finally:
        del vars(nlp)["update"]


def write_config(output_path: Path, *, train_path: Path | None, **options: Any) -> Path:
    """Write the config that `init` writes for corpora to an output folder. Another config that is
    there is kept, which is an error."""
    if train_path is None:
        raise ValueError("fit: --train: expected a corpus if there is no config, got none")
    path = output_path / "config.cfg"
    text = init(path, train_path=train_path, **options)
    if path.exists() and path.read_text(encoding="utf8") != text:
        raise ValueError(
            f"{path}: expected the config of this command, got another: give it as the config, "
            "remove it, or choose another --output"
        )
    output_path.mkdir(parents=True, exist_ok=True)
    save_text(path, text)
    return path


def check_cache(nlp: Language, ner: CostSensitiveNER) -> None:
    """RAISES (ValueError): If a setting needs docs that are kept, or makes others each time."""
    template, name = linear_part(ner.model)[0].template, nlp.config["training"]["train_corpus"]
    corpus = dot_to_object(nlp.config.interpolate(), name)
    component = f"components.{ner.name}"
    refused: dict[str, Any] = {
        f"{component}.incorrect_spans_key": ner.annotation.incorrect_spans_key,
        f"{component}.model.features.bigrams": template.bigrams,
        f"{component}.model.features.document": template.document,
        **{f"{name}.{setting}": corpus.get(setting) for setting in ("augmenter", "shuffle")},
    }
    for setting, value in refused.items():
        if value:
            raise ValueError(
                f"fit: {setting}: expected none with --cache, which reads docs twice and doesn't "
                f"keep them, got {value}"
            )


def score(nlp: Language, ner: CostSensitiveNER, devs: Sequence[DevPredictions]) -> dict[str, Any]:
    """Score what a component predicts by posteriors that others have computed."""
    examples: list[Example] = []
    for dev in devs:
        copies = [Example(eg.predicted.copy(), eg.reference) for eg in dev.examples]
        predict(ner, [eg.predicted for eg in copies], dev.posterior, ner.confidence)
        examples += copies
    return dict(as_json(Scorer(nlp).score(examples)))
