"""`fit`: train a linear model, and calibrate, tune and save it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from thinc.api import Config

from ...files.saving import check_folder
from ...readers import DEFAULTS, KeptDocs, ReadOptions
from ..config.aims import parse_aim
from ..config.init_options import InitOptions, check_raw_option
from ..saved_strings import save_pipeline
from ..vectors import LearnedVectors
from .fit_config import find_config, learn_vectors_for
from .fit_corpora import OnCorpus, ignore_corpus, read_corpora, report_corpus
from .fitted import Fitted
from .improvement import improve
from .linear_training import load_linear
from .option_checks import check_fit_options
from .pipeline_training import fit_linear, save_fitted, vocab_of_kept

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
    on_corpus: OnCorpus = ignore_corpus,
) -> Fitted:
    """Train a linear model, optionally calibrate and tune it, and save the pipeline. Without a
    config, `init` writes one first. See `fit_linear` for training. The model is evaluated only
    at the end.

    config (Config | Path | None): A config for `spacy train`. A `Config` object is used unchanged:
        paths of corpora and `overrides` only apply to a config file. None: `init` writes a config
        for the corpora to the output folder.
    output_path (Path): The folder for the pipeline, `model-best`.
    lang (str | None): Without a config: code of the language.
    train_path (Path | None): Training corpus, as paths.train.
    dev_path (Path | None): Development corpus, as paths.dev.
    vectors (str | None): Package or folder of a pipeline whose static vectors are inputs.
    raw_paths (list[Path] | None): Text without annotation: learn vectors from it and from the
        training corpus, and use them as inputs. See `learn_vectors`.
    calibrate (bool): Calibrate on the development corpus, or without it on held-out folds.
    tune (str | None): Tune on the development corpus, or without it on held-out folds: f,
        precision=0.9 or recall=0.9. See `workflows.tune`.
    n_seeds (int): Train N times, and average the weights.
    file_tokens (bool): Take tokens and sentence starts of the development docs from the file, as
        `spacy apply` and `annotate` do, not only text, as `spacy evaluate` does.
    cache (Path | None): Folder for features and targets, if memory is too small: docs are read
        twice and not kept, and the pipeline is saved after each epoch.
    reading (ReadOptions): How to read the corpora. These options replace the settings of the
        config.
    overrides (Mapping[str, Any]): Other settings, such as {"training.max_epochs": 3}.
    command (str): The command, for the header of the config that is written.
    on_corpus (Callable[[str, CorpusSummary], None]): Called when a corpus was read, before
        training, with "train" or "dev" and how it was read.
    RETURNS (Fitted): The saved pipeline and the results.
    RAISES (ValueError): If the component of the config can't be trained, or not with these options
        and corpora; if something can't be read, or the output path exists and isn't a pipeline; or
        if the trained pipeline, which is saved then, can't be calibrated or tuned.
    """
    aim = None if tune is None else parse_aim(tune)
    if config is not None and lang is not None:
        raise ValueError("fit: `lang`: expected no config")
    options = InitOptions(
        output_path / "config.cfg",
        lang=lang or "en",
        train_path=train_path,
        dev_path=dev_path,
        vectors=vectors,
        aim=tune,
        reading=reading,
        command=command,
    )
    learned: LearnedVectors | None = None
    if raw_paths:
        check_raw_option(vectors, "linear")
        learned = learn_vectors_for(raw_paths, config, options, overrides)
        options = replace(options, vectors=str(learned.path))
    # Without a config, `init` reads the training corpus. Its docs are kept for training, unless
    # memory is too small.
    kept = KeptDocs(in_memory=cache is None)
    complete_config = find_config(config, options, overrides, kept)

    # Load the pipeline, and check all that can be checked before training.
    path = output_path / DIR_MODEL
    check_folder(path)
    linear = load_linear(complete_config, vocab=vocab_of_kept(kept, overrides))
    needs_improvement = calibrate or aim is not None
    check_fit_options(
        linear,
        needs_improvement=needs_improvement,
        file_tokens=file_tokens,
        has_cache=cache is not None,
        n_seeds=n_seeds,
    )
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)

    corpora = read_corpora(
        linear, kept, in_memory=cache is None, file_tokens=file_tokens, on_corpus=on_corpus
    )
    fitted = fit_linear(linear, corpora, path, n_seeds=n_seeds, cache=cache)
    summaries = dict(corpora.summaries)
    if cache is not None:  # the corpus was read in training
        summaries["train"] = report_corpus("train", corpora.train_info, on_corpus)
    fitted = replace(fitted, learned=learned, corpora=summaries)
    save_fitted(fitted, linear.training)
    if fitted.is_interrupted or not needs_improvement:
        return fitted

    try:
        improved = improve(
            fitted,
            corpora,
            calibrate=calibrate,
            aim=aim,
            n_seeds=n_seeds,
            file_tokens=file_tokens,
        )
    except ValueError as error:
        message = f"{error}\n{path} is trained, but neither calibrated nor tuned"
        raise ValueError(message) from error
    save_pipeline(path, linear.nlp)
    return improved
