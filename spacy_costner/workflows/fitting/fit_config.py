"""The config that `fit` trains with: a given one, or one that `init` makes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spacy.language import Language
from thinc.api import Config

from ...files.saving import save_text
from ...readers import KeptDocs
from ..config.init_options import InitOptions, check_vectors_option
from ..config.initial_config import make_config
from ..config.loading import read_config, with_reading
from ..config.trainable import LINEAR_MODEL
from ..vectors import LearnedVectors, learn_with_corpus
from .fit_corpora import warn_of_problems

NO_CORPUS = "`train_path`: expected a corpus if there is no config, got none"
"""The message of an error."""


def learn_vectors_for(
    raw_paths: Sequence[Path],
    config: Config | Path | None,
    options: InitOptions,
    overrides: Mapping[str, Any],
) -> LearnedVectors:
    """Learn vectors from raw text and the training corpus, and save them in the output folder. The
    language and the corpus are read from the config, if there is one. See `find_config` for the
    other arguments.

    raw_paths (Sequence[Path]): Files and folders of raw text.
    RAISES (ValueError): If there is neither a config nor a corpus. See also `learn_with_corpus`.
    """
    lang = options.lang
    train_path = options.train_path
    if config is None and train_path is None:
        raise ValueError(NO_CORPUS)
    if isinstance(config, Path):
        # The vectors don't depend on the development corpus.
        config = read_with_paths(config, overrides, train_path, dev_path=None)
    if config is not None:
        # What the config lacks, such as the block [paths], has spaCy's default.
        complete = Config(Language.default_config).merge(config).interpolate()
        lang = complete["nlp"]["lang"]
        corpus_path = complete["paths"].get("train")
        train_path = None if corpus_path is None else Path(corpus_path)
    return learn_with_corpus(raw_paths, train_path, options.vectors_folder, lang, options.reading)


def find_config(
    config: Config | Path | None,
    options: InitOptions,
    overrides: Mapping[str, Any],
    kept: KeptDocs,
) -> Config:
    """Find the config to train with. If none is given, `init` makes one. The paths of the corpora
    and the overrides are only put into a config that is a file, the static vectors into any config.

    config (Config | Path | None): The given config.
    options (InitOptions): The options for a new config. A given config gets some of them: the
        corpora, how they are read, and the vectors.
    overrides (Mapping[str, Any]): Other settings, such as {"training.max_epochs": 3}.
    kept (KeptDocs): Keeps the docs of the training corpus if `init` reads them: see `make_config`.
    RAISES (ValueError): See `write_config`, `read_config` and `with_static_vectors`.
    """
    if config is None:
        config = write_config(options, kept)
    # A file still needs its settings; a `Config` object already has all of them.
    if isinstance(config, Path):
        config = read_with_paths(config, overrides, options.train_path, options.dev_path)
    config = with_reading(config, options.reading)
    if options.vectors is not None:
        config = with_static_vectors(config, options.vectors)
    return config


def write_config(options: InitOptions, kept: KeptDocs) -> Path:
    """Let `init` make a config for the corpora, and write it to the output folder. Returns its
    path. See `find_config` for the arguments. Another config in the folder is an error: it is not
    overwritten."""
    if options.train_path is None:
        raise ValueError(NO_CORPUS)
    path = options.output_path
    # Problems are reported when the corpus is read to train on it, or if it comes to nothing.
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
    """Read a config, and override some of its settings. If the path of a corpus is None, the config
    has it."""
    all_overrides = dict(overrides)
    if train_path is not None:
        all_overrides["paths.train"] = str(train_path)
    if dev_path is not None:
        all_overrides["paths.dev"] = str(dev_path)
    return read_config(path, all_overrides)


def with_static_vectors(config: Config, vectors: str) -> Config:
    """Make a copy of a config in which linear models have the static vectors of a pipeline, a
    package or a folder, as inputs. A config without a linear model is an error."""
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
