"""`fit`: train a linear model, and calibrate and tune it.

Calibration and tuning need predictions for docs that the model was not trained on. These docs are
the development corpus. Without one, the training docs are divided into folds, and each fold is
predicted by a model that was trained on the others: its docs are held out.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import IO, Any

from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.scorer import Scorer
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import create_before_to_disk_callback, train, update_meta
from spacy.util import dot_to_object
from spacy.vocab import Vocab
from thinc.api import Config

from ...features import VectorCoverage
from ...files.saving import as_json, check_folder, save_text
from ...ml import first_pass_of, linear_part
from ...pipeline.component import CostSensitiveNER
from ...pipeline.reading import find_reading, lacks_sentence_starts
from ...progress import phase, progress
from ...readers import (
    DEFAULTS,
    CorpusInfo,
    CorpusSummary,
    KeptDocs,
    ReadOptions,
    copy_without_annotation,
    examples_to_measure,
    with_info,
)
from ...training.online import INTERRUPTED, Trained
from ..calibration.temperature import Calibration, calibrate_on
from ..calibration.tuning import Tuning, check_parameter, tune_on
from ..config.aims import parse_aim
from ..config.initial_config import check_raw_option, check_vectors_option, init
from ..config.loading import read_config, with_reading
from ..config.trainable import LINEAR_MODEL, can_be_fitted, components_to_fit
from ..corpora import Corpus, find_corpora
from ..evaluation.predictions import (
    DevPredictions,
    evaluate_dev,
    predict,
    predict_dev,
    record_scores,
    replace_predicted,
)
from ..evaluation.recurrence import note_copies
from ..evaluation.valid_data import find_faults
from ..saved_strings import save_pipeline
from ..vectors import LearnedVectors, learn_beside
from .folds import SEEN_BY_START, hold_out
from .linear_training import LinearPipeline, ignore_epoch, load_linear, prepare, train_linear

DIR_MODEL = "model-best"
"""The folder of the pipeline, in the output folder. `spacy train` has the same one."""

N_FOLDS = 4
"""Into how many folds the training docs are divided, if there is no development corpus."""

HELD_OUT = f"{N_FOLDS} held-out folds of the training corpus"
"""What the held-out docs are called where scores name the docs that they were measured on."""

DEV_SCORES = {"f": "F", "p": "precision", "r": "recall"}
"""The scores that are shown. In `nlp.evaluate` their names end with these letters: "ents_f"."""

NO_CORPUS = "fit: `train_path`: expected a corpus if there is no config, got none"
"""The message of an error."""

STOPPED_MESSAGE = """
Stopped by Ctrl-C: this is the model so far, neither calibrated nor tuned. The same command starts
again. To go on from this model, name it in initialize.after_init: spacy_costner.start_from.v1."""


@dataclass(frozen=True)
class Fitted:
    """A pipeline that was trained and saved.

    path (Path): The folder with the pipeline.
    outcomes (Mapping[str, Trained]): How training ended for each component, by its name.
    scores (dict[str, Any]): The scores on the development corpus, before calibration and tuning;
        without one, those of no docs. Empty if evaluation was interrupted.
    nlp (Language): The pipeline.
    ners (Sequence[CostSensitiveNER]): The components that were trained. They are several if these
        share a `spans_key`.
    has_dev (bool): Whether there is a development corpus.
    calibration (Calibration | None): The result of the calibration. None: it isn't calibrated.
    tuning (Tuning | None): The result of tuning. None: it isn't tuned.
    held_out (dict[str, Any] | None): The scores on the held-out docs, before calibration and
        tuning. None: no docs were held out.
    notes (Sequence[str]): What may make the scores on the development corpus misleading, and
        whether training docs are copies of each other.
    learned (LearnedVectors | None): The vectors that were learned from raw text, if there is any.
    corpora (Mapping[str, CorpusSummary]): How "train" and "dev" were read, and what they have.
    """

    path: Path
    outcomes: Mapping[str, Trained]
    scores: dict[str, Any]
    nlp: Language
    ners: Sequence[CostSensitiveNER]
    has_dev: bool
    calibration: Calibration | None = None
    tuning: Tuning | None = None
    held_out: dict[str, Any] | None = None
    notes: Sequence[str] = ()
    learned: LearnedVectors | None = None
    corpora: Mapping[str, CorpusSummary] = field(default_factory=dict)

    @property
    def is_interrupted(self) -> bool:
        """Whether training or evaluation was interrupted."""
        # Even without a development corpus there are scores: see `scores`.
        if not self.scores:
            return True
        return any(outcome.reason == INTERRUPTED for outcome in self.outcomes.values())

    @property
    def n_weights(self) -> int:
        """The number of weights of all components. Those of first passes and hidden layers don't
        count."""
        n_weights = 0
        for ner in self.ners:
            _, weights = linear_part(ner.model)
            n_weights += weights.rows.size
        return n_weights

    @property
    def vector_coverage(self) -> VectorCoverage | None:
        """How many words of the training docs have a static vector. None if the model has no static
        vectors as inputs."""
        # All components were trained on the same docs, so the first one stands for all.
        features, _ = linear_part(self.ners[0].model)
        return features.vector_coverage

    @property
    def n_bytes(self) -> int:
        """The size of the saved pipeline in bytes."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def training_text(self) -> str:
        """Say how training ended, with a line for each component."""
        lines: list[str] = []
        for name, outcome in self.outcomes.items():
            line = outcome.as_text()
            if len(self.ners) > 1:
                line = f"{name}: {line}"
            lines.append(line)
        return "\n".join(lines)

    def scores_text(self) -> str:
        """Say which scores the pipeline had before calibration and tuning, and on which docs."""
        source = "dev"
        scores: dict[str, Any] | None = self.scores
        if not self.has_dev:
            source = HELD_OUT
            scores = self.held_out
        if scores is None:
            return "not evaluated: there is no development corpus"
        prefix = score_prefix(self.ners[0])  # Several components have the same `spans_key`.
        score_texts: list[str] = []
        for letter, word in DEV_SCORES.items():
            score = scores.get(f"{prefix}_{letter}")
            if score is not None:
                score_texts.append(f"{word} {100 * score:.2f}")
        if not score_texts:
            return f"{source}: not scored"
        return f"{source}: {', '.join(score_texts)}"

    def as_dict(self) -> dict[str, Any]:
        """The results as a dictionary, which the command prints as JSON."""
        coverage = self.vector_coverage
        return {
            "path": self.path,
            "training": self.training_text(),
            "weights": self.n_weights,
            "vectors": None if coverage is None else coverage._asdict(),
            "raw_text": self.learned,
            "bytes": self.n_bytes,
            "scores": self.scores,
            "calibration": self.calibration,
            "tuning": self.tuning,
            "held_out": self.held_out,
            "notes": self.notes,
            "corpora": {name: corpus._asdict() for name, corpus in self.corpora.items()},
        }

    def as_text(self) -> str:
        """Say how training ended, which scores there are, and what calibration and tuning have
        changed."""
        weights = f"{self.n_weights:,} weights"
        if any(first_pass_of(ner.model) for ner in self.ners):
            weights += ", two passes (features.document)"
        lines: list[str] = []
        if self.learned is not None:
            summary, *other_lines = self.learned.summary()
            lines += [f"raw text and training corpus: {summary}", *other_lines]
        lines += [self.training_text(), weights]
        coverage = self.vector_coverage
        if coverage is not None:
            lines.append(f"training docs: {coverage.as_text()}")
            # The vectors are saved with the pipeline, and may be most of its bytes.
            lines.append(f"pipeline with its vectors: {self.n_bytes / 1e6:.1f} MB")
        lines.append(self.scores_text())
        if self.calibration is not None:
            lines.append(self.calibration.as_text())
        if self.tuning is not None:
            lines.append(self.tuning.as_text())
        lines += [f"note: {note}" for note in self.notes]
        text = "\n".join(lines)
        if self.is_interrupted:
            text += STOPPED_MESSAGE
        return text


def ignore_corpus(name: str, corpus: CorpusSummary) -> None:
    """Do nothing when a corpus was read: the default of `fit`."""


def report_corpus(
    name: str, info: CorpusInfo, on_corpus: Callable[[str, CorpusSummary], None]
) -> CorpusSummary:
    """Report how a corpus was read: its problems are warnings. See `fit` for `on_corpus`."""
    corpus = info.summary()
    on_corpus(name, corpus)
    warn_of_problems(info)
    return corpus


def warn_of_problems(info: CorpusInfo) -> None:
    """Warn of what a corpus has, but docs can't have."""
    for problem in info.problems:
        warnings.warn(problem.as_text(), stacklevel=4)


def fit(
    config: Config | Path | None,
    output_path: Path,
    *,
    lang: str | None = None,
    train_path: Path | None = None,
    dev_path: Path | None = None,
    vectors: str | None = None,
    raw_paths: list[Path] | None = None,
    calibrate: bool = False,
    tune: str | None = None,
    n_seeds: int = 1,
    file_tokens: bool = False,
    cache: Path | None = None,
    reading: ReadOptions = DEFAULTS,
    overrides: Mapping[str, Any] = {},
    command: str = "python -m spacy costner fit",
    on_corpus: Callable[[str, CorpusSummary], None] = ignore_corpus,
) -> Fitted:
    """Train a linear model: see `train_linear`. Calibrate and tune it if asked, and save the
    pipeline. The model is evaluated only at the end.

    config (Config | Path | None): A config for `spacy train`. A `Config` object is taken as it is:
        paths of corpora and `overrides` are only put into a config that is a file. None: the one
        that `init` writes for the corpora, to the output folder.
    output_path (Path): The folder for the pipeline, `model-best`.
    lang (str | None): Without a config: code of the language.
    train_path (Path | None): Training corpus, as --paths.train.
    dev_path (Path | None): Development corpus, as --paths.dev.
    vectors (str | None): Package or folder of a pipeline whose static vectors are inputs.
    raw_paths (list[Path] | None): Text without annotation: learn vectors from it and from the
        training corpus, and take them as inputs. See `costner vectors`.
    calibrate (bool): Calibrate on --dev, or without it on held-out folds.
    tune (str | None): Tune on the same docs: f, precision=0.9 or recall=0.9. See `costner tune`.
    n_seeds (int): Train so many times, and average weights.
    file_tokens (bool): Take tokens and sentence starts of the development docs from the file, as
        `spacy apply` and `annotate` do, not only text, as `spacy evaluate` does.
    cache (Path | None): Folder for features and targets, if memory is too small: docs are read
        twice and not kept, and the pipeline is saved after each epoch.
    reading (ReadOptions): How to read the corpora. These options replace those of the config.
    overrides (Mapping[str, Any]): Other settings, such as {"training.max_epochs": 3}.
    command (str): The command, for the head of the config that is written.
    on_corpus (Callable[[str, CorpusSummary], None]): Called when a corpus was read, before
        training, with "train" or "dev" and how it was read.
    RETURNS (Fitted): The saved pipeline and the results.
    RAISES (ValueError): If the component of the config can't be trained, or not with these options
        and corpora; if something can't be read, or is in the way of the output; or if the trained
        pipeline, which is saved then, can't be calibrated or tuned.
    """
    aim = None if tune is None else parse_aim(tune)
    if config is not None and lang is not None:
        raise ValueError("fit: `lang`: expected no config with it")

    learned: LearnedVectors | None = None
    if raw_paths:
        check_raw_option(vectors, "linear")
        learned = learn_for_corpus(
            raw_paths,
            output_path,
            config,
            overrides,
            lang=lang,
            train_path=train_path,
            reading=reading,
        )
        vectors = str(learned.path)
    # Without a config, `init` reads the training corpus, which is then needed to train on it, too.
    # With a cache it is read again.
    kept = KeptDocs(in_memory=cache is None)
    complete_config = find_config(
        config,
        output_path,
        lang=lang,
        train_path=train_path,
        dev_path=dev_path,
        vectors=vectors,
        aim=tune,
        reading=reading,
        kept=kept,
        overrides=overrides,
        command=command,
    )

    # Load the pipeline, and check all that can be checked before training.
    path = output_path / DIR_MODEL
    check_folder(path)
    linear = load_linear(complete_config, vocab=vocab_of_kept(kept, overrides))
    nlp, ner, training = linear
    ners = components_to_fit(nlp, training["frozen_components"])
    train_corpus, dev_corpus = find_corpora(nlp)
    is_improved = calibrate or aim is not None
    check_options(
        nlp,
        ners,
        dev_corpus,
        is_improved=is_improved,
        file_tokens=file_tokens,
        has_cache=cache is not None,
        n_seeds=n_seeds,
    )
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)

    # Read the corpora. The development docs are read before training, too, so that errors in them
    # are found at once.
    corpora: dict[str, CorpusSummary] = {}
    train_corpus, train_info = with_info(train_corpus, ner.annotation.spans_key, kept)
    try:
        examples = prepare(linear, train_corpus, in_memory=cache is None)
    except ValueError:
        warn_of_problems(train_info)  # they may be the cause
        raise
    if cache is None:  # otherwise it is read in training
        corpora["train"] = report_corpus("train", train_info, on_corpus)
    paths = nlp.config.interpolate().get("paths", {})
    dev_source = str(paths.get("dev") or "development docs")
    dev: list[Example] = []
    notes: list[str] = []
    if dev_corpus is not None:
        dev_corpus, dev_info = with_info(dev_corpus, ner.annotation.spans_key)
        dev_examples = examples_to_measure(nlp, dev_corpus, file_tokens=file_tokens)
        dev = list(progress(dev_examples, desc="read dev", unit="doc"))
        corpora["dev"] = report_corpus("dev", dev_info, on_corpus)
        # Of several components, the first stands for all: they learn from the same docs.
        notes = find_faults(nlp, ner, dev, dev_source)
    if cache is None:  # the docs are in memory
        train_source = str(paths.get("train") or "training docs")
        notes += note_copies((eg.reference for eg in examples), train_source)

    # Train, evaluate and save. If somebody stops the evaluation, the pipeline is saved without
    # scores.
    with phase("train"):
        outcomes = train_components(linear, ners, examples, path, n_seeds=n_seeds, cache=cache)
    if cache is not None:
        corpora["train"] = report_corpus("train", train_info, on_corpus)
    scores: dict[str, Any] = {}
    with suppress(KeyboardInterrupt), phase("evaluate") if dev else nullcontext():
        scores_of_dev = nlp.evaluate(dev)
        notes += note_sentence_starts(nlp, ners, dev, dev_source, scores_of_dev)
        scores = scores_of_dev
    losses = {name: outcome.value for name, outcome in outcomes.items()}
    save_trained(path, nlp, training, scores, losses)
    fitted = Fitted(
        path=path,
        outcomes=outcomes,
        scores=scores,
        nlp=nlp,
        ners=ners,
        has_dev=dev_corpus is not None,
        notes=notes,
        learned=learned,
        corpora=corpora,
    )
    if fitted.is_interrupted or not is_improved:
        return fitted

    # Calibrate and tune, and save again.
    try:
        improved = improve(
            fitted,
            dev,
            examples,
            calibrate=calibrate,
            aim=aim,
            n_seeds=n_seeds,
            file_tokens=file_tokens,
            dev_source=dev_source,
        )
    except ValueError as error:
        message = f"{error}\n{path} is trained, but neither calibrated nor tuned"
        raise ValueError(message) from error
    save_pipeline(path, nlp)
    return improved


def vocab_of_kept(kept: KeptDocs, overrides: Mapping[str, Any]) -> Vocab | bool:
    """The vocab of docs that were read by `init`, for the pipeline that is trained on them. True:
    the pipeline gets a new vocab, as there are no such docs, or as it may read them otherwise: a
    setting of its block [nlp] is overridden, such as the tokenizer."""
    if kept.nlp is None or any(name.startswith("nlp.") for name in overrides):
        return True
    return kept.nlp.vocab


def score_prefix(ner: CostSensitiveNER) -> str:
    """What the names of the scores of a component begin with in the result of `nlp.evaluate`:
    "ents" or, if it has a `spans_key`, "spans_KEY"."""
    spans_key = ner.annotation.spans_key
    return "ents" if spans_key is None else f"spans_{spans_key}"


def note_sentence_starts(
    nlp: Language,
    ners: Sequence[CostSensitiveNER],
    dev: Sequence[Example],
    source: str,
    scores: Mapping[str, Any],
) -> list[str]:
    """Say how good a pipeline would be with spaCy's sentencizer before it. That is only of interest
    if its chain is cut at sentence starts, and only the annotation of the docs has some. The
    pipeline is then evaluated again, with those of the sentencizer.

    nlp (Language): The pipeline.
    ners (Sequence[CostSensitiveNER]): The components that were trained.
    dev (Sequence[Example]): The docs.
    source (str): The name of the docs.
    scores (Mapping[str, Any]): The scores of the pipeline on the docs without sentence starts.
    RETURNS (list[str]): One sentence with F without and with a sentencizer, or nothing.
    """
    first_ner = ners[0]
    uses_starts = any(ner.annotation.sentence_boundaries for ner in ners)
    if not uses_starts or not lacks_sentence_starts(nlp, first_ner.name, dev):
        return []
    # Sentence starts of the annotation would promise more: no component finds just these.
    sentencizer = Sentencizer()
    dev_with_starts = [Example(sentencizer(eg.predicted.copy()), eg.reference) for eg in dev]
    name_of_f = f"{score_prefix(first_ner)}_f"
    f = scores.get(name_of_f)
    f_with_starts = nlp.evaluate(dev_with_starts).get(name_of_f)
    if f is None or f_with_starts is None:
        return []
    return [
        f"{source}: F {100 * f:.2f} without sentence starts, as no component before "
        f"{first_ner.name} sets them, and {100 * f_with_starts:.2f} with those of spaCy's "
        "sentencizer"
    ]


def train_components(
    linear: LinearPipeline,
    ners: Sequence[CostSensitiveNER],
    examples: Iterable[Example],
    path: Path,
    *,
    n_seeds: int,
    cache: Path | None,
) -> dict[str, Trained]:
    """Train the components of a pipeline, one after another.

    linear (LinearPipeline): The pipeline and its settings of training.
    ners (Sequence[CostSensitiveNER]): The components to train.
    examples (Iterable[Example]): The training docs.
    path (Path): The folder for the pipeline. It is only used if there is a cache.
    n_seeds (int): How often each component is trained. The weights are averaged.
    cache (Path | None): Folder for features and targets. With a cache training takes long, so the
        pipeline is saved after each epoch.
    RETURNS (dict[str, Trained]): How training ended for each component. If Ctrl-C stops a
        component, it is the last one.
    """
    nlp, _, training = linear

    def save_unfinished(trained: Trained) -> None:
        """Save the pipeline as it is after an epoch, without scores."""
        (ner,) = ners  # A cache is for one component: see `check_options`.
        # As in `spacy train`, the averages of the weights are saved, not the weights.
        with nlp.use_params(training["optimizer"].averages or {}):
            losses = {ner.name: trained.value}
            save_trained(path, nlp, training, scores={}, losses=losses)

    outcomes: dict[str, Trained] = {}
    for ner in ners:
        outcome = train_linear(
            linear._replace(ner=ner),
            examples,
            n_seeds=n_seeds,
            cache=cache,
            on_epoch=ignore_epoch if cache is None else save_unfinished,
        )
        outcomes[ner.name] = outcome
        if outcome.reason == INTERRUPTED:
            break
    return outcomes


def improve(
    fitted: Fitted,
    dev: Sequence[Example],
    examples: Iterable[Example],
    *,
    calibrate: bool,
    aim: Mapping[str, float] | None,
    n_seeds: int,
    file_tokens: bool,
    dev_source: str,
) -> Fitted:
    """Calibrate and tune a trained pipeline, and record its new scores. This takes predictions for
    the development docs or, without these, for held-out training docs.

    The component also keeps how these docs were read (`Reading`: with which tokens and sentence
    starts), so that it can warn when it is given docs that were read otherwise.

    fitted (Fitted): The pipeline, which is changed in place, and how it was trained.
    dev (Sequence[Example]): The development docs; empty without a development corpus.
    examples (Iterable[Example]): The training docs, which may be divided into folds.
    calibrate (bool): Whether to calibrate.
    aim (Mapping[str, float] | None): What to tune for: see `parse_aim`. None: it isn't tuned.
    n_seeds (int): How often the models of folds are trained.
    file_tokens (bool): Whether development docs have the tokens and sentence starts of their file.
    dev_source (str): The name of the development docs, with which the scores are recorded.
    RETURNS (Fitted): The same pipeline with its calibration, its tuning and, if docs were held out,
        the scores on these.
    RAISES (ValueError): If it can't be calibrated or tuned on these docs: see `calibrate_on`,
        `check_parameter` and `tune_on`. It may be changed by then.
    """
    nlp = fitted.nlp
    (ner,) = fitted.ners  # `check_options` refuses several
    parameter = ""  # the setting of the decoding that is tuned
    if aim is not None:
        # This is checked first, as models of folds may have to be trained below.
        parameter = check_parameter(nlp, ner)

    # Predict docs that the model was not trained on: the development docs, or the docs of each fold
    # by a model of the others.
    if fitted.has_dev:
        source = dev_source
        predictions = [predict_dev(nlp, ner, dev)]
        reading = find_reading(nlp, ner.name, dev, file_tokens=file_tokens)
    else:
        source = HELD_OUT
        # A doc without tokens has nothing to predict.
        nonempty = [eg for eg in examples if len(eg.predicted)]
        predictions = predict_held_out(nlp, ner, nonempty, n_seeds=n_seeds)
        fitted = replace(fitted, held_out=score_predictions(nlp, ner, predictions))
        # Models of folds predict docs without sentence starts, whatever the corpus has: see
        # `hold_out`.
        bare_docs = [copy_without_annotation(eg.predicted) for eg in nonempty]
        reading = find_reading(nlp, ner.name, replace_predicted(nonempty, bare_docs))
    ner.set_reading(reading)

    if calibrate:
        calibration = calibrate_on(predictions, nlp, ner, source)
        fitted = replace(fitted, calibration=calibration)
        temperature = calibration.temperature
        predictions = [predicted.with_temperature(temperature) for predicted in predictions]
    if aim is not None:
        tuning = tune_on(
            predictions,
            nlp,
            ner,
            parameter,
            precision=aim.get("precision"),
            recall=aim.get("recall"),
        )
        fitted = replace(fitted, tuning=tuning)

    # Record the scores with the new temperature and decoding.
    if fitted.has_dev:
        scores = evaluate_dev(nlp, ner, predictions[0])
        n_docs = len(dev)
    else:
        scores = score_predictions(nlp, ner, predictions)
        n_docs = sum(len(predicted.examples) for predicted in predictions)
    record_scores(nlp, scores, source, n_docs)
    return fitted


def train_pipeline(
    config: Config, output_path: Path, log: IO[str], *, n_seeds: int = 1, use_gpu: int = -1
) -> Path:
    """Train and save a pipeline: by `fit` if it can (see `can_be_fitted`), otherwise as `spacy
    train` does.

    config (Config): A config for `spacy train`, with variables filled in.
    output_path (Path): The folder for the pipeline.
    log (IO[str]): The file to which messages about training are written.
    n_seeds (int): How often `fit` trains. The weights are averaged.
    use_gpu (int): GPU ID or -1 for CPU. `fit` always trains on the CPU.
    RETURNS (Path): The folder of the trained pipeline.
    RAISES (KeyboardInterrupt): If somebody stopped `fit`, in training or in evaluation.
    """
    if can_be_fitted(config):
        fitted = fit(config, output_path, n_seeds=n_seeds)
        if fitted.is_interrupted:
            raise KeyboardInterrupt
        log.write(fitted.as_text() + "\n")
        return fitted.path
    nlp = init_nlp(config, use_gpu=use_gpu)
    if log.isatty():
        # spaCy prints a table of the scores, which shows how far training is.
        train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    else:
        with updates_shown(nlp):
            train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    return output_path / DIR_MODEL


@contextmanager
def updates_shown(nlp: Language) -> Iterator[None]:
    """In a `with` block, show a progress bar that counts the updates of a pipeline. It is for
    trainings whose log isn't on the terminal."""
    training = nlp.config.interpolate()["training"]
    update = nlp.update
    total = None
    if training["max_steps"]:
        # spaCy counts steps from 0 up to max_steps, and both are done. A step is one update or, if
        # gradients are accumulated, several.
        n_steps = training["max_steps"] + 1
        total = n_steps * training["accumulate_gradient"]
    bar = progress(desc="train", unit="update", total=total)

    def update_and_count(*args: Any, **kwargs: Any) -> dict[str, float]:
        """Update the pipeline as `nlp.update` does, and count it."""
        losses = update(*args, **kwargs)
        bar.update()
        return losses

    # spaCy has no callback after an update, so the method is replaced: an attribute of the object
    # hides the method of its class until it is deleted.
    vars(nlp)["update"] = update_and_count
    try:
        with bar:
            yield
    finally:
        del vars(nlp)["update"]


def learn_for_corpus(
    raw_paths: Sequence[Path],
    output_path: Path,
    config: Config | Path | None,
    overrides: Mapping[str, Any],
    *,
    lang: str | None,
    train_path: Path | None,
    reading: ReadOptions,
) -> LearnedVectors:
    """Learn vectors from raw text and the training corpus, and save them in the output folder. The
    language and the corpus are those of the config, if there is one. See `fit` for the arguments.

    RAISES (ValueError): If there is neither a config nor a corpus. See also `learn_beside`.
    """
    if config is None:
        if train_path is None:
            raise ValueError(NO_CORPUS)
        return learn_beside(raw_paths, train_path, output_path, lang or "en", reading)
    if isinstance(config, Path):
        # The vectors don't depend on the development corpus.
        config = read_with_paths(config, overrides, train_path, dev_path=None)
    # What the config lacks, such as the block [paths], has spaCy's default.
    complete = Config(Language.default_config).merge(config).interpolate()
    corpus_path = complete["paths"].get("train")
    train_path = None if corpus_path is None else Path(corpus_path)
    return learn_beside(raw_paths, train_path, output_path, complete["nlp"]["lang"], reading)


def find_config(
    config: Config | Path | None,
    output_path: Path,
    *,
    lang: str | None,
    train_path: Path | None,
    dev_path: Path | None,
    vectors: str | None,
    aim: str | None,
    reading: ReadOptions,
    kept: KeptDocs,
    overrides: Mapping[str, Any],
    command: str,
) -> Config:
    """Find the config to train with. If none is given, `init` makes one. The paths of the corpora
    and the overrides are only put into a config that is a file, the static vectors into any config.
    See `fit` for the arguments.

    aim (str | None): What the pipeline is tuned for: the argument `tune` of `fit`.
    kept (KeptDocs): Keeps the docs of the training corpus if `init` reads them: see there.
    RAISES (ValueError): See `write_config`, `read_config` and `with_static_vectors`.
    """
    if config is None:
        config = write_config(
            output_path,
            lang=lang or "en",
            train_path=train_path,
            dev_path=dev_path,
            vectors=vectors,
            aim=aim,
            reading=reading,
            kept=kept,
            command=command,
        )
    # A file still needs its settings; a `Config` object already has all of them.
    if isinstance(config, Path):
        config = read_with_paths(config, overrides, train_path, dev_path)
    config = with_reading(config, reading)
    if vectors is not None:
        config = with_static_vectors(config, vectors)
    return config


def write_config(
    output_path: Path,
    *,
    lang: str,
    train_path: Path | None,
    dev_path: Path | None,
    vectors: str | None,
    aim: str | None,
    reading: ReadOptions,
    kept: KeptDocs,
    command: str,
) -> Path:
    """Let `init` make a config for the corpora, and write it to the output folder. See `fit` for
    the arguments.

    aim (str | None): What the pipeline is tuned for: the argument `tune` of `fit`.
    kept (KeptDocs): Keeps the docs of the training corpus: see `init`.
    RETURNS (Path): The config.
    RAISES (ValueError): If there is no training corpus, or if the folder has another config, which
        is not overwritten. See also `init`.
    """
    if train_path is None:
        raise ValueError(NO_CORPUS)
    path = output_path / "config.cfg"
    # Problems are reported when the corpus is read to train on it, or if it comes to nothing.
    try:
        text = init(
            path,
            lang=lang,
            train_path=train_path,
            dev_path=dev_path,
            vectors=vectors,
            aim=aim,
            reading=reading,
            kept=kept,
            command=command,
        )
    except ValueError:
        warn_of_problems(kept.info)
        raise
    if path.exists() and path.read_text(encoding="utf8") != text:
        raise ValueError(
            f"{path}: expected the config of this command, got another: give it as the config, "
            "remove it, or choose another `output_path`"
        )
    output_path.mkdir(parents=True, exist_ok=True)
    save_text(path, text)
    return path


def read_with_paths(
    path: Path, overrides: Mapping[str, Any], train_path: Path | None, dev_path: Path | None
) -> Config:
    """Read a config, and override some of its settings.

    path (Path): The config.
    overrides (Mapping[str, Any]): The new values of settings, by their names with dots.
    train_path (Path | None), dev_path (Path | None): The paths of the corpora. None: they are those
        of the config.
    RAISES (ValueError): See `read_config`.
    """
    all_overrides = dict(overrides)
    if train_path is not None:
        all_overrides["paths.train"] = str(train_path)
    if dev_path is not None:
        all_overrides["paths.dev"] = str(dev_path)
    return read_config(path, all_overrides)


def with_static_vectors(config: Config, vectors: str) -> Config:
    """Make a copy of a config in which linear models have static vectors as inputs.

    config (Config): The config.
    vectors (str): Package or folder of a pipeline with static vectors.
    RAISES (ValueError): If there is no such pipeline, or no linear model in the config.
    """
    check_vectors_option(vectors, "linear")
    changed_config = config.copy()
    changed_config.setdefault("initialize", {})["vectors"] = vectors
    n_models = 0
    for block in changed_config["components"].values():
        model = block.get("model", {})
        if model.get("@architectures") == LINEAR_MODEL:
            features = model.setdefault("features", {"@misc": "spacy_costner.Features.v1"})
            features["include_static_vectors"] = True
            n_models += 1
    if not n_models:
        raise ValueError(
            f"fit: `vectors`: expected a component with {LINEAR_MODEL} in the config, there is none"
        )
    return changed_config


def check_options(
    nlp: Language,
    ners: Sequence[CostSensitiveNER],
    dev_corpus: Corpus | None,
    *,
    is_improved: bool,
    file_tokens: bool,
    has_cache: bool,
    n_seeds: int,
) -> None:
    """Check, before anything is trained, that the options of `fit` go together and fit the config.

    nlp (Language): The pipeline.
    ners (Sequence[CostSensitiveNER]): The components to train.
    dev_corpus (Corpus | None): The development corpus, if there is one.
    is_improved (bool): Whether the pipeline is to be calibrated or tuned.
    file_tokens (bool): Whether development docs have the tokens of their file.
    has_cache (bool): Whether `fit` has a cache.
    n_seeds (int): How often the components are trained.
    RAISES (ValueError): If they don't fit.
    """
    if len(ners) > 1 and (is_improved or has_cache):
        raise ValueError(
            "fit: `calibrate`, `tune`, `cache`: expected one component to train, got "
            f"{[ner.name for ner in ners]}: `costner calibrate` and `costner tune` take one by its "
            "--name"
        )
    if file_tokens and dev_corpus is None:
        raise ValueError(
            "fit: `file_tokens`: expected a development corpus with it, got none: docs that are "
            "held out of the training corpus are read as for training"
        )
    needs_folds = is_improved and dev_corpus is None
    # This callback may start training from another model, which may have seen all training docs:
    # then the docs of a fold would not be new to the model of the other folds.
    if needs_folds and nlp.config["initialize"]["after_init"] is not None:
        raise ValueError(f"fit: initialize.after_init: {SEEN_BY_START}")
    if needs_folds and has_cache:
        raise ValueError(
            "fit: paths.dev: expected a development corpus with `cache` and `calibrate` or "
            "`tune`, got none: docs of the training corpus can't be held out"
        )
    if has_cache:
        check_cache(nlp, ners[0], n_seeds)


def check_cache(nlp: Language, ner: CostSensitiveNER, n_seeds: int) -> None:
    """Check that no setting prevents a cache. With a cache, docs are read twice and not kept.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component to train.
    n_seeds (int): How often it is trained.
    RAISES (ValueError): If a setting doesn't go with that.
    """
    features, _ = linear_part(ner.model)
    corpus_name = nlp.config["training"]["train_corpus"]
    corpus = dot_to_object(nlp.config.interpolate(), corpus_name)
    component = f"components.{ner.name}"
    if n_seeds > 1 and features.template.hidden_window is not None:
        raise ValueError(
            "fit: `n_seeds`: expected 1 with `cache` and a hidden layer "
            f"({component}.model.hidden), got {n_seeds}: the layer would be trained after all of "
            "them, on docs in memory"
        )
    # The first three need docs, or the whole corpus at once. The others change the docs each time
    # that they are read.
    refused: dict[str, Any] = {
        f"{component}.incorrect_spans_key": ner.annotation.incorrect_spans_key,
        f"{component}.model.features.bigrams": features.template.bigrams,
        f"{component}.model.features.document": features.template.document,
        f"{corpus_name}.augmenter": corpus.get("augmenter"),
        f"{corpus_name}.shuffle": corpus.get("shuffle"),
    }
    for setting, value in refused.items():
        if value:
            raise ValueError(
                f"fit: {setting}: expected none with `cache`, which reads docs twice and doesn't "
                f"keep them, got {value}"
            )


def save_trained(
    path: Path,
    nlp: Language,
    training: Mapping[str, Any],
    scores: Mapping[str, Any],
    losses: Mapping[str, float],
) -> None:
    """Save a pipeline as `spacy train` does. Its meta has the scores, and the losses that are
    finite numbers.

    path (Path): The folder.
    nlp (Language): The pipeline.
    training (Mapping[str, Any]): The settings of the block [training].
    scores (Mapping[str, Any]): The scores; empty if it wasn't evaluated.
    losses (Mapping[str, float]): The loss of each component.
    """
    # JSON has no infinity.
    finite_losses = {name: loss for name, loss in losses.items() if isfinite(loss)}
    update_meta(dict(training), nlp, {"other_scores": scores, "losses": finite_losses})
    before_to_disk = create_before_to_disk_callback(training["before_to_disk"])
    save_pipeline(path, before_to_disk(nlp))


def predict_held_out(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], *, n_seeds: int
) -> list[DevPredictions]:
    """Predict training docs by models that were not trained on them. The docs are divided into
    `N_FOLDS` folds, and a model is trained for each fold on the docs of the others.

    nlp (Language): The pipeline. The models are trained with its config.
    ner (CostSensitiveNER): The component, for its labels.
    examples (Sequence[Example]): The training docs. None of them may be empty.
    n_seeds (int): The number of models for each fold, whose weights are averaged.
    RETURNS (list[DevPredictions]): The predictions of each fold.
    RAISES (ValueError): See `hold_out`.
    """
    folds = hold_out(
        nlp.config,
        examples,
        ner.labels,
        n_folds=N_FOLDS,
        n_seeds=n_seeds,
        desc="held-out folds",
    )
    return [fold.dev for fold in folds]


def score_predictions(
    nlp: Language, ner: CostSensitiveNER, predictions: Sequence[DevPredictions]
) -> dict[str, Any]:
    """Score predictions for held-out docs. The probabilities are those of the models of the folds,
    and the component decodes entities from them. The docs are not changed.

    nlp (Language): The pipeline, which says what is scored.
    ner (CostSensitiveNER): The component.
    predictions (Sequence[DevPredictions]): The predictions of each fold.
    RETURNS (dict[str, Any]): The scores. The components after this one don't run for them.
    """
    examples: list[Example] = []
    for predictions_of_fold in predictions:
        # `predict` writes entities to docs, so it gets copies.
        docs = [eg.predicted.copy() for eg in predictions_of_fold.examples]
        predict(ner, docs, predictions_of_fold.posterior, ner.confidence)
        examples += replace_predicted(predictions_of_fold.examples, docs)
    scores = Scorer(nlp).score(examples)
    return dict(as_json(scores))
