"""The training config of `fit`: an existing config, or one created by `init`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spacy.language import Language
from thinc.api import Config

from ...files.saving import save_text
from ...readers import KeptDocs
from ..config.init_options import InitOptions, check_vectors_option
from ..config.initial_config import make_config
from ..config.loading import read_config, reading_of_corpus, with_reading
from ..config.trainable import LINEAR_MODEL
from ..vectors import LearnedVectors, learn_with_corpus
from .fit_corpora import warn_of_problems

NO_CORPUS = "`train_path`: expected a corpus if there is no config, got none"
"""An error message."""


def learn_vectors_for(
    raw_paths: Sequence[Path],
    config: Config | Path | None,
    options: InitOptions,
    overrides: Mapping[str, Any],
) -> LearnedVectors:
    """Learn vectors from raw text and the training corpus, and save them in the output folder. If a
    config is given, it defines the language, the corpus and how to read it. For the other
    arguments, see `find_config`.

    raw_paths (Sequence[Path]): Files and folders with raw text.
    RAISES (ValueError): If neither a config nor a corpus is given. See also `learn_with_corpus`.
    """
    lang = options.lang
    train_path = options.train_path
    reading = options.reading
    if config is None and train_path is None:
        raise ValueError(NO_CORPUS)
    if isinstance(config, Path):
        # The vectors don't depend on the development corpus.
        config = read_with_paths(config, overrides, train_path, dev_path=None)
    if config is not None:
        # Fill in missing settings, such as the [paths] block, with spaCy's defaults.
        complete = Config(Language.default_config).merge(config).interpolate()
        lang = complete["nlp"]["lang"]
        corpus_path = complete["paths"].get("train")
        train_path = None if corpus_path is None else Path(corpus_path)
        reading = reading_of_corpus(complete, complete["training"]["train_corpus"], reading)
    return learn_with_corpus(
        raw_paths, train_path, options.vectors_folder, lang, options.reading, reading
    )


def find_config(
    config: Config | Path | None,
    options: InitOptions,
    overrides: Mapping[str, Any],
    kept: KeptDocs,
) -> Config:
    """Get the config for training. If none is given, it is created by `init`. Corpus paths and
    overrides are only applied to config files, while static vectors are added to any config.

    config (Config | Path | None): The given config.
    options (InitOptions): The options for a new config. Some of them are also applied to a given
        config: the corpora, how to read them, and the vectors.
    overrides (Mapping[str, Any]): Additional settings, e.g. {"training.max_epochs": 3}.
    kept (KeptDocs): Stores the docs of the training corpus if `init` reads them: see `make_config`.
    RAISES (ValueError): See `write_config`, `read_config` and `with_static_vectors`.
    """
    if config is None:
        config = write_config(options, kept)
    # Settings are only applied to files. A `Config` object is already complete.
    if isinstance(config, Path):
        config = read_with_paths(config, overrides, options.train_path, options.dev_path)
    config = with_reading(config, options.reading)
    if options.vectors is not None:
        config = with_static_vectors(config, options.vectors)
    return config


def write_config(options: InitOptions, kept: KeptDocs) -> Path:
    """Create a config for the corpora with `init`, and write it to the output folder. Returns its
    path. For the arguments, see `find_config`. Raises a ValueError if the folder contains a
    different config, which isn't overwritten."""
    if options.train_path is None:
        raise ValueError(NO_CORPUS)
    path = options.output_path
    # Problems are normally reported later, when the corpus is read for training.
    try:
        text = make_config(options, kept)
    except ValueError:
        warn_of_problems(kept.info)
        raise
    if path.exists() and path.read_text(encoding="utf8") != text:
        raise ValueError(
            f"{path}: expected the config of this call, got a different one: pass it as the "
            "config, remove it, or choose another `output_path`"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, text)
    return path


def read_with_paths(
    path: Path, overrides: Mapping[str, Any], train_path: Path | None, dev_path: Path | None
) -> Config:
    """Read a config and override some of its settings. Corpus paths that are None aren't
    overridden."""
    all_overrides = dict(overrides)
    if train_path is not None:
        all_overrides["paths.train"] = str(train_path)
    if dev_path is not None:
        all_overrides["paths.dev"] = str(dev_path)
    return read_config(path, all_overrides)


def with_static_vectors(config: Config, vectors: str) -> Config:
    """Copy a config and add the static vectors of a pipeline (a package or a folder) as input to
    its linear models. Raises a ValueError if the config has no linear model."""
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
            f"`vectors`: expected a component with {LINEAR_MODEL} in the config, got none"
        )
    return changed_config
