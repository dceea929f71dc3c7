"""`fit`: train a linear model, calibrate it and tune it.

Calibration and tuning need docs that the model was not trained on. They are those of the
development corpus. Without one, the training docs are divided into folds, and models that have not
seen a fold predict it: these are the held-out docs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import IO, Any

from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import create_before_to_disk_callback, train, update_meta
from spacy.util import dot_to_object
from thinc.api import Config

from ..features import VectorCoverage
from ..ml import first_pass_of, linear_part
from ..pipeline.component import CostSensitiveNER
from ..pipeline.reading import find_reading, lacks_sentence_starts
from ..progress import progress
from ..readers import copy_tokens, examples_to_measure
from ..readers.sentences import copy_sentences
from ..saving import as_json, check_folder, save_text
from ..training.online import INTERRUPTED, Trained
from .calibration import Calibration, calibrate_on
from .fitness import find_faults
from .initial_config import check_raw_option, check_vectors_option, init
from .loading import read_config
from .predictions import (
    DevPredictions,
    evaluate_dev,
    predict,
    predict_dev,
    record_scores,
    replace_predicted,
)
from .preparation import (
    LINEAR_MODEL,
    SEEN_BY_START,
    Corpus,
    LinearPipeline,
    can_be_fitted,
    components_to_fit,
    find_corpora,
    hold_out,
    ignore_epoch,
    load_linear,
    prepare,
    train_linear,
)
from .saved_strings import save_pipeline
from .tuning import Tuning, check_parameter, parse_aim, tune_on
from .vectors import LearnedVectors, learn_beside

DIR_MODEL = "model-best"

N_FOLDS = 4
"""Folds of the training docs that are held out, if there is no development corpus."""

HELD_OUT = f"{N_FOLDS} held-out folds of the training corpus"

DEV_SCORES = {"f": "F", "p": "precision", "r": "recall"}
"""The scores that are shown, by the ends of their names in `nlp.evaluate`."""

NO_CORPUS = "fit: --train: expected a corpus if there is no config, got none"

STOPPED_MESSAGE = """
Stopped by Ctrl-C: this is the model so far, neither calibrated nor tuned. The same command starts
again. To go on from this model, name it in initialize.after_init: spacy_costner.start_from.v1."""


@dataclass(frozen=True)
class Fitted:
    """A pipeline that was trained and saved."""

    path: Path
    outcomes: Mapping[str, Trained]  # by component: several if they share a `spans_key`
    scores: dict[str, Any]  # on the development corpus, before calibration and tuning
    nlp: Language
    ners: Sequence[CostSensitiveNER]  # the components that were trained
    has_dev: bool  # whether there is a development corpus
    calibration: Calibration | None = None
    tuning: Tuning | None = None
    held_out: dict[str, Any] | None = None  # scores on held-out docs, before both
    notes: Sequence[str] = ()  # what to know of the scores on the development corpus
    learned: LearnedVectors | None = None  # the vectors of raw text

    @property
    def is_interrupted(self) -> bool:
        """Whether training or evaluation was interrupted."""
        if not self.scores:
            return True
        return any(outcome.reason == INTERRUPTED for outcome in self.outcomes.values())

    @property
    def n_weights(self) -> int:
        """The number of weights of all components."""
        n_weights = 0
        for ner in self.ners:
            _, weights = linear_part(ner.model)
            n_weights += weights.rows.size
        return n_weights

    @property
    def vector_coverage(self) -> VectorCoverage | None:
        """How many words of the training docs have a static vector. None if vectors are no inputs.
        Components have the same docs."""
        features, _ = linear_part(self.ners[0].model)
        return features.vector_coverage

    @property
    def n_bytes(self) -> int:
        """The bytes of the saved pipeline."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def training_text(self) -> str:
        """How training ended, on a line for each component."""
        lines: list[str] = []
        for name, outcome in self.outcomes.items():
            line = outcome.as_text()
            if len(self.ners) > 1:
                line = f"{name}: {line}"
            lines.append(line)
        return "\n".join(lines)

    def scores_text(self) -> str:
        """The scores before calibration and tuning, and the docs that they are of."""
        source = "dev"
        scores: dict[str, Any] | None = self.scores
        if not self.has_dev:
            source = HELD_OUT
            scores = self.held_out
        if scores is None:
            return "not evaluated: there is no development corpus"
        prefix = score_prefix(self.ners[0])
        score_texts: list[str] = []
        for letter, word in DEV_SCORES.items():
            score = scores.get(f"{prefix}_{letter}")
            if score is not None:
                score_texts.append(f"{word} {100 * score:.2f}")
        if not score_texts:
            return f"{source}: not scored"
        return f"{source}: {', '.join(score_texts)}"

    def as_dict(self) -> dict[str, Any]:
        """What is printed as JSON."""
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
        }

    def as_text(self) -> str:
        """How training ended, the scores, and what calibration and tuning changed."""
        weights = f"{self.n_weights:,} weights"
        if any(first_pass_of(ner.model) for ner in self.ners):
            weights += ", two passes (features.document)"
        lines: list[str] = []
        if self.learned is not None:
            summary, *skipped = self.learned.summary()
            lines += [f"raw text and training corpus: {summary}", *skipped]
        lines += [self.training_text(), weights]
        coverage = self.vector_coverage
        if coverage is not None:
            lines.append(f"training docs: {coverage.as_text()}")
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
    overrides: Mapping[str, Any] = {},
    command: str = "python -m spacy costner fit",
) -> Fitted:
    """Train a linear model: see `train_linear`. Calibrate and tune it if asked, and save the
    pipeline. The model is evaluated only at the end.

    config (Config | Path | None): A config for `spacy train`. None: the one that `init` writes
        for the corpora, to the output folder.
    output_path (Path): The folder for the pipeline, `model-best`.
    lang (str | None): Without a config: code of the language.
    train_path (Path | None): Training corpus, as --paths.train.
    dev_path (Path | None): Development corpus, as --paths.dev.
    vectors (str | None): Package or folder of a pipeline whose static vectors are inputs.
    raw_paths (list[Path] | None): Text without annotation: learn vectors from it and from the
        training corpus, which are inputs. See `costner vectors`.
    calibrate (bool): Calibrate on --dev, or without it on held-out folds.
    tune (str | None): Tune on the same docs: f, precision=0.9 or recall=0.9. See `costner tune`.
    n_seeds (int): Train so many times, and average weights.
    file_tokens (bool): Take tokens and sentence starts of the development docs from the file, as
        `spacy apply` and `annotate` do, not only text, as `spacy evaluate` does.
    cache (Path | None): Folder for features and targets, if memory is too small: docs are read
        twice and not kept, and the pipeline is saved after each epoch.
    overrides (Mapping[str, Any]): Other settings, such as {"training.max_epochs": 3}.
    command (str): The command, for the head of the config that is written.
    RETURNS (Fitted): The saved pipeline and the results.
    RAISES (ValueError): If the component of the config can't be trained, or not with these options.
    """
    aim = None if tune is None else parse_aim(tune)
    if config is not None and lang is not None:
        raise ValueError("fit: --lang: expected no config with it")
    learned: LearnedVectors | None = None
    if raw_paths:
        check_raw_option(vectors, "linear")
        learned = learn_for_corpus(
            raw_paths, output_path, config, overrides, lang=lang, train_path=train_path
        )
        vectors = str(learned.path)
    if config is None:
        config = write_config(
            output_path,
            lang=lang or "en",
            train_path=train_path,
            dev_path=dev_path,
            vectors=vectors,
            aim=tune,
            command=command,
        )
    if isinstance(config, Path):
        config = read_with_paths(config, overrides, train_path, dev_path)
    if vectors is not None:
        config = with_static_vectors(config, vectors)

    # Load the pipeline, and check all that can be checked before training
    path = output_path / DIR_MODEL
    check_folder(path)
    linear = load_linear(config)
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

    # Read the corpora: also the development docs, as training would be in vain if they had faults
    examples = prepare(linear, train_corpus, in_memory=cache is None)
    paths = nlp.config.interpolate().get("paths", {})
    dev_source = str(paths.get("dev") or "development docs")
    dev: list[Example] = []
    notes: list[str] = []
    if dev_corpus is not None:
        dev_examples = examples_to_measure(nlp, dev_corpus, file_tokens=file_tokens)
        dev = list(progress(dev_examples, desc="read dev", unit="doc"))
        notes = find_faults(nlp, ner, dev, dev_source)

    # Train, evaluate and save
    outcomes = train_components(linear, ners, examples, path, n_seeds=n_seeds, cache=cache)
    # It is saved without scores if evaluation is interrupted.
    scores: dict[str, Any] = {}
    with suppress(KeyboardInterrupt):
        scores_of_dev = nlp.evaluate(dev)
        notes += note_sentence_starts(nlp, ners, dev, dev_source, scores_of_dev)
        scores = scores_of_dev
    losses = {name: outcome.value for name, outcome in outcomes.items()}
    save_trained(path, nlp, training, scores, losses)
    fitted = Fitted(
        path, outcomes, scores, nlp, ners, dev_corpus is not None, notes=notes, learned=learned
    )
    if fitted.is_interrupted or not is_improved:
        return fitted

    # Calibrate and tune
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


def score_prefix(ner: CostSensitiveNER) -> str:
    """What the names of the scores of a component begin with, in `nlp.evaluate`."""
    spans_key = ner.annotation.spans_key
    return "ents" if spans_key is None else f"spans_{spans_key}"


def note_sentence_starts(
    nlp: Language,
    ners: Sequence[CostSensitiveNER],
    dev: Sequence[Example],
    source: str,
    scores: Mapping[str, Any],
) -> list[str]:
    """Evaluate a pipeline with the sentence starts of the annotation, too, if it learned from
    sentence starts and none of its components sets them.

    ners (Sequence[CostSensitiveNER]): Its components that were trained.
    dev (Sequence[Example]): The docs.
    source (str): The name of the docs.
    scores (Mapping[str, Any]): The scores of the pipeline on them.
    RETURNS (list[str]): A sentence with F without and with the starts, or none.
    """
    first_ner = ners[0]
    uses_starts = any(ner.annotation.sentence_boundaries for ner in ners)
    if not uses_starts or not lacks_sentence_starts(nlp, first_ner.name, dev):
        return []
    dev_with_starts: list[Example] = []
    for eg in dev:
        predicted = eg.predicted.copy()
        copy_sentences(eg.reference, predicted)
        dev_with_starts.append(Example(predicted, eg.reference))
    score = f"{score_prefix(first_ner)}_f"
    f = scores.get(score)
    f_with_starts = nlp.evaluate(dev_with_starts).get(score)
    if f is None or f_with_starts is None:
        return []
    return [
        f"{source}: F {100 * f:.2f} without sentence starts, as no component before "
        f"{first_ner.name} sets them, and {100 * f_with_starts:.2f} with those of the annotation: "
        "if that is better, put a senter, sentencizer or parser before it"
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
    path (Path): The folder for the pipeline.
    n_seeds (int): Train each so many times, and average weights.
    cache (Path | None): Folder for features and targets. Training takes long then, so the pipeline
        is saved after each epoch.
    RETURNS (dict[str, Trained]): How training ended for each component, up to the one that Ctrl-C
        stopped.
    """
    nlp, _, training = linear

    def save_unfinished(trained: Trained) -> None:
        """Save the pipeline as it is after an epoch."""
        (ner,) = ners  # a cache is for one component: see `check_options`
        # The averages of the weights are saved, as `spacy train` does.
        with nlp.use_params(training["optimizer"].averages or {}):
            save_trained(path, nlp, training, {}, {ner.name: trained.value})

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
    """Calibrate and tune a pipeline on the development docs or, without them, on what models of
    folds predict for the training docs. Record its scores.

    The component also keeps how these docs were read (`Reading`: with which tokens and sentence
    starts), so that it can warn when it is given docs that were read otherwise.

    fitted (Fitted): The pipeline, which is changed in place, and how it was trained.
    dev (Sequence[Example]): The development docs; empty without a development corpus.
    examples (Iterable[Example]): The training docs, for folds.
    calibrate (bool): Whether to calibrate.
    aim (Mapping[str, float] | None): What to tune for: see `parse_aim`. None: it isn't tuned.
    n_seeds (int): How often models of folds are trained.
    file_tokens (bool): Whether development docs have the tokens and sentence starts of their file.
    dev_source (str): What the development docs are called where the scores are recorded.
    RETURNS (Fitted): The same with calibration, tuning and the scores of folds, if there are any.
    """
    nlp = fitted.nlp
    (ner,) = fitted.ners
    parameter = ""  # what is tuned
    if aim is not None:
        # Checked first: folds would be trained in vain.
        parameter = check_parameter(nlp, ner)

    # Predict docs that the model was not trained on
    if fitted.has_dev:
        source = dev_source
        predictions = [predict_dev(nlp, ner, dev)]
        reading = find_reading(nlp, ner.name, dev, file_tokens=file_tokens)
    else:
        source = HELD_OUT
        nonempty = [eg for eg in examples if len(eg.predicted)]
        predictions = predict_held_out(nlp, ner, nonempty, n_seeds=n_seeds)
        fitted = replace(fitted, held_out=score_predictions(nlp, ner, predictions))
        # Models of folds predict docs without sentence starts, whatever the corpus has: see
        # `hold_out`.
        bare_docs = [copy_tokens(eg.predicted) for eg in nonempty]
        reading = find_reading(nlp, ner.name, replace_predicted(nonempty, bare_docs))
    ner.set_reading(reading)

    if calibrate:
        calibration = calibrate_on(predictions, nlp, ner, source)
        fitted = replace(fitted, calibration=calibration)
        # Of the development docs, or of the docs of each fold
        temperature = calibration.temperature
        predictions = [predicted.with_temperature(temperature) for predicted in predictions]
    if aim is not None:
        tuning = tune_on(predictions, nlp, ner, parameter, **aim)
        fitted = replace(fitted, tuning=tuning)

    # Record the scores with the new temperature and decoding
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
    """Train and save a pipeline: by `fit` if it has only linear models to train, otherwise as
    `spacy train` does. Returns its path.

    config (Config): A config for `spacy train`, with variables filled in.
    output_path (Path): The folder for the pipeline.
    log (IO[str]): Gets what is to be said of training.
    n_seeds (int): For `fit`: train so many times, and average weights.
    use_gpu (int): GPU ID or -1 for CPU.
    RAISES (KeyboardInterrupt): If somebody stopped `fit`: its pipeline is not complete.
    """
    if can_be_fitted(config):
        fitted = fit(config, output_path, n_seeds=n_seeds)
        if fitted.is_interrupted:
            raise KeyboardInterrupt
        log.write(fitted.as_text() + "\n")
        return fitted.path
    nlp = init_nlp(config, use_gpu=use_gpu)
    if log.isatty():  # spaCy prints a table of the scores
        train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    else:
        with updates_shown(nlp):
            train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    return output_path / DIR_MODEL


@contextmanager
def updates_shown(nlp: Language) -> Iterator[None]:
    """Show a progress bar that counts the updates of a pipeline while it is trained. It is for a
    training whose log isn't on the terminal."""
    training = nlp.config.interpolate()["training"]
    update = nlp.update
    total = None
    if training["max_steps"]:
        # spaCy counts steps from 0 to max_steps. A step is an update or, if gradients are
        # accumulated, several.
        total = (training["max_steps"] + 1) * training["accumulate_gradient"]
    bar = progress(desc="train", unit="update", total=total)

    def update_and_count(*args: Any, **kwargs: Any) -> dict[str, float]:
        """Do what `nlp.update` does, and count it."""
        losses = update(*args, **kwargs)
        bar.update()
        return losses

    # spaCy has no callback after an update. An attribute of the object hides the method of its
    # class until it is deleted.
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
) -> LearnedVectors:
    """Learn vectors from raw text and the training corpus, in the language of a config, to the
    output folder: see `fit` for the arguments."""
    if config is None:
        if train_path is None:
            raise ValueError(NO_CORPUS)
        return learn_beside(raw_paths, train_path, output_path, lang or "en")
    if isinstance(config, Path):
        config = read_with_paths(config, overrides, train_path, None)
    complete = Config(Language.default_config).merge(config).interpolate()
    train = complete["paths"].get("train")
    return learn_beside(
        raw_paths, None if train is None else Path(train), output_path, complete["nlp"]["lang"]
    )


def write_config(
    output_path: Path,
    *,
    lang: str,
    train_path: Path | None,
    dev_path: Path | None,
    vectors: str | None,
    aim: str | None,
    command: str,
) -> Path:
    """Write the config that `init` makes for the corpora to the output folder. For the arguments
    see `fit`.

    RAISES (ValueError): If there is no training corpus, or another config in the folder, which is
        not overwritten.
    """
    if train_path is None:
        raise ValueError(NO_CORPUS)
    path = output_path / "config.cfg"
    text = init(
        path,
        lang=lang,
        train_path=train_path,
        dev_path=dev_path,
        vectors=vectors,
        aim=aim,
        command=command,
    )
    if path.exists() and path.read_text(encoding="utf8") != text:
        raise ValueError(
            f"{path}: expected the config of this command, got another: give it as the config, "
            "remove it, or choose another --output"
        )
    output_path.mkdir(parents=True, exist_ok=True)
    save_text(path, text)
    return path


def read_with_paths(
    path: Path, overrides: Mapping[str, Any], train_path: Path | None, dev_path: Path | None
) -> Config:
    """Read a config with other settings: those that are given, and the paths of the corpora."""
    all_overrides = dict(overrides)
    if train_path is not None:
        all_overrides["paths.train"] = str(train_path)
    if dev_path is not None:
        all_overrides["paths.dev"] = str(dev_path)
    return read_config(path, all_overrides)


def with_static_vectors(config: Config, vectors: str) -> Config:
    """Copy a config, and have its linear models take static vectors as inputs.

    config (Config): The config.
    vectors (str): Package or folder of a pipeline with static vectors.
    RAISES (ValueError): If there is no such pipeline, or no linear model in the config.
    """
    check_vectors_option(vectors, "linear")
    changed = config.copy()
    changed.setdefault("initialize", {})["vectors"] = vectors
    n_models = 0
    for block in changed["components"].values():
        model = block.get("model", {})
        if model.get("@architectures") == LINEAR_MODEL:
            features = model.setdefault("features", {"@misc": "spacy_costner.Features.v1"})
            features["include_static_vectors"] = True
            n_models += 1
    if not n_models:
        raise ValueError(
            f"fit: --vectors: expected a component with {LINEAR_MODEL} in the config, there is none"
        )
    return changed


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
    """Check what options need before anything is trained.

    ners (Sequence[CostSensitiveNER]): The components to train.
    is_improved (bool): Whether to calibrate or tune: without a development corpus, on docs that are
        held out.
    RAISES (ValueError): If options don't go together, or a setting of the config with them.
    """
    if len(ners) > 1 and (is_improved or has_cache):
        raise ValueError(
            "fit: --calibrate, --tune, --cache: expected one component to train, got "
            f"{[ner.name for ner in ners]}: `costner calibrate` and `tune` take one by its --name"
        )
    if file_tokens and dev_corpus is None:
        raise ValueError(
            "fit: --file-tokens: expected a development corpus with it, got none: docs that are "
            "held out of the training corpus are read as for training"
        )
    holds_out = is_improved and dev_corpus is None
    if holds_out and nlp.config["initialize"]["after_init"] is not None:
        raise ValueError(f"fit: initialize.after_init: {SEEN_BY_START}")
    if holds_out and has_cache:
        raise ValueError(
            "fit: paths.dev: expected a development corpus with --cache and --calibrate or "
            "--tune, got none: docs of the training corpus can't be held out"
        )
    if has_cache:
        check_cache(nlp, ners[0], n_seeds)


def check_cache(nlp: Language, ner: CostSensitiveNER, n_seeds: int) -> None:
    """Check the settings that don't go with a cache, with which docs are read twice and not kept.
    `n_seeds`: how often the model is trained.

    RAISES (ValueError): If one needs docs that are kept, or makes other docs each time.
    """
    features, _ = linear_part(ner.model)
    corpus_name = nlp.config["training"]["train_corpus"]
    corpus = dot_to_object(nlp.config.interpolate(), corpus_name)
    component = f"components.{ner.name}"
    if n_seeds > 1 and features.template.hidden_window is not None:
        raise ValueError(
            f"fit: --seeds: expected 1 with --cache and a hidden layer ({component}.model.hidden), "
            f"got {n_seeds}: the layer would be trained after all of them, on docs in memory"
        )
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
                f"fit: {setting}: expected none with --cache, which reads docs twice and doesn't "
                f"keep them, got {value}"
            )


def save_trained(
    path: Path,
    nlp: Language,
    training: Mapping[str, Any],
    scores: Mapping[str, Any],
    losses: Mapping[str, float],
) -> None:
    """Save a pipeline as `spacy train` does, with its scores and the loss of each component, if
    that is finite, in its meta."""
    finite = {name: loss for name, loss in losses.items() if isfinite(loss)}
    update_meta(dict(training), nlp, {"other_scores": scores, "losses": finite})
    before_to_disk = create_before_to_disk_callback(training["before_to_disk"])
    save_pipeline(path, before_to_disk(nlp))


def predict_held_out(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], *, n_seeds: int
) -> list[DevPredictions]:
    """Predict training docs, none of them empty, by models of folds that have not seen them."""
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
    """Score the entities of held-out docs. The probabilities are those of the models of the folds;
    entities are decoded from them as the component does. The docs are not modified.

    predictions (Sequence[DevPredictions]): The docs of each fold, and their probabilities.
    """
    examples: list[Example] = []
    for predictions_of_fold in predictions:
        docs = [eg.predicted.copy() for eg in predictions_of_fold.examples]
        predict(ner, docs, predictions_of_fold.posterior, ner.confidence)
        examples += replace_predicted(predictions_of_fold.examples, docs)
    scores = Scorer(nlp).score(examples)
    return dict(as_json(scores))
