"""`fit`: train, calibrate, tune and save a linear model."""

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
"""The subfolder of the output folder for the pipeline, as in `spacy train`."""


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
    """Train a linear model, optionally calibrate and tune it, and save the pipeline. If no config
    is given, `init` creates one first. For details on training, see `fit_linear`. The model is only
    evaluated at the end.

    config (Config | Path | None): A config for `spacy train`. A `Config` object is used as is:
        corpus paths and `overrides` are only applied to config files. If None, `init` writes a
        config for the corpora to the output folder.
    output_path (Path): The output folder. The pipeline is saved in its subfolder `model-best`.
    lang (str | None): Language code, if no config is given.
    train_path (Path | None): Training corpus (paths.train).
    dev_path (Path | None): Development corpus (paths.dev).
    vectors (str | None): Package or folder of a pipeline whose static vectors are used as input.
    raw_paths (list[Path] | None): Unannotated text: learn vectors from it and from the training
        corpus, and use them as input. See `learn_vectors`.
    calibrate (bool): Calibrate on the development corpus or, without one, on held-out folds.
    tune (str | None): Tune on the development corpus or, without one, on held-out folds: f,
        precision=0.9 or recall=0.9. See `workflows.tune`.
    n_seeds (int): Number of training runs whose weights are averaged.
    file_tokens (bool): Use the tokens and sentence starts of the development file, as `spacy apply`
        and `annotate` do, instead of only its text, as `spacy evaluate` does.
    cache (Path | None): Folder for features and targets, if they don't fit into memory: docs are
        read twice and not kept, and the pipeline is saved after each epoch.
    reading (ReadOptions): Options for reading the corpora. They override the settings in the
        config.
    overrides (Mapping[str, Any]): Additional settings, e.g. {"training.max_epochs": 3}.
    command (str): The command to show in the header of the new config.
    on_corpus (Callable[[str, CorpusSummary], None]): Callback that is called after each corpus is
        read, with "train" or "dev" and a summary of the corpus.
    RETURNS (Fitted): The saved pipeline and the results.
    RAISES (ValueError): If the component of the config can't be trained with these options and
        corpora; if a file can't be read; if the output path exists and isn't a pipeline; or if the
        trained pipeline, which is saved first, can't be calibrated or tuned.
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
    # Without a config, `init` reads the training corpus. Keep its docs for training, unless they
    # don't fit into memory.
    kept = KeptDocs(in_memory=cache is None)
    complete_config = find_config(config, options, overrides, kept)

    # Load the pipeline, and run all checks that are possible before training.
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
    if cache is not None:  # the corpus was read during training
        summaries["train"] = report_corpus("train", corpora.train_info, on_corpus)
    fitted = replace(fitted, learned=learned, corpora=summaries)
    save_fitted(fitted, linear.training)
    if fitted.is_interrupted or not needs_improvement:
        return fitted

    try:
        improved = improve(
            fitted,
            corpora,
            complete_config,
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
