"""`fit`: train a linear model, and calibrate and tune it.

Calibration and tuning need predictions for docs that the model was not trained on. These docs are
the development corpus. Without one, the training docs are divided into folds, and each fold is
predicted by a model that was trained on the others: its docs are held out.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from spacy.training import Example
from thinc.api import Config

from ...files.saving import check_folder
from ...progress import phase, progress
from ...readers import (
    DEFAULTS,
    CorpusSummary,
    KeptDocs,
    ReadOptions,
    examples_to_measure,
    with_info,
)
from ..config.aims import parse_aim
from ..config.init_options import check_raw_option
from ..config.trainable import components_to_fit
from ..corpora import find_corpora
from ..evaluation.recurrence import note_copies
from ..evaluation.valid_data import find_faults
from ..saved_strings import save_pipeline
from ..vectors import LearnedVectors
from .corpus_reports import ignore_corpus, report_corpus, warn_of_problems
from .fit_config import find_config, learn_for_corpus
from .fitted import Fitted
from .improvement import improve
from .linear_training import load_linear, prepare
from .option_checks import check_options
from .pipeline_training import note_sentence_starts, save_trained, train_components, vocab_of_kept

DIR_MODEL = "model-best"
"""The folder of the pipeline, in the output folder. `spacy train` has the same one."""


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
