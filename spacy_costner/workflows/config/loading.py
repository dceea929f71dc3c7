"""Read configs and load trained pipelines, with clearer error messages than spaCy's."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from spacy.cli._util import import_code, setup_gpu
from spacy.language import Language
from spacy.util import dot_to_object, load_config, load_model
from thinc.api import Config, ConfigValidationError

from ...files.saving import clear
from ...readers import ReadOptions
from .unknown_settings import check_overrides

META = "meta.json"
"""The file that identifies a folder as a pipeline."""

READER = "spacy_costner.read.v1"
"""The registered name of `readers.make_reader`."""


def read_config(path: str | Path, overrides: Mapping[str, Any]) -> Config:
    """Read a config for training and override some of its settings.

    path (str | Path): The config file, or the folder of a pipeline with a config.
    overrides (Mapping[str, Any]): New values of settings, keyed by names such as "paths.train".
    RAISES (ValueError): If the file isn't a training config, or lacks one of the overridden
        settings.
    """
    config = open_config(path)
    for name in ("nlp", "training"):
        if name not in config:
            sections = ", ".join(f"[{section}]" for section in config) or "no section"
            raise ValueError(f"{path}: expected a config with [{name}], got {sections}")
    check_overrides(config, overrides)
    # spaCy applies overrides when reading a config, so read the file again.
    return load_config(find_config_file(path), overrides=dict(overrides), interpolate=False)


def find_config_file(path: str | Path) -> Path:
    """Find the file of a config: the path itself or, for the folder of a pipeline, the config in
    this folder. Raises an error for other folders."""
    folder = Path(path)
    if not folder.is_dir():
        return folder
    clear(folder)  # see `load_pipeline`
    file = folder / "config.cfg"
    if not file.is_file():
        raise ValueError(f"{path}: expected a config, got a folder without one{did_you_mean(path)}")
    return file


def with_reading(config: Config, reading: ReadOptions) -> Config:
    """Override the settings for reading the corpora of a config.

    config (Config): The config.
    reading (ReadOptions): The options. They override the settings of our readers in [corpora].
    RETURNS (Config): A copy with the new settings, or the original config if no options are set.
    RAISES (ValueError): If the config doesn't use any of our readers.
    """
    settings = reading.settings()
    if not settings:
        return config
    changed_config = config.copy()
    n_readers = 0
    for block in changed_config.get("corpora", {}).values():
        if block.get("@readers") == READER:
            block.update(settings)
            n_readers += 1
    if n_readers == 0:
        names = " and ".join(settings)
        raise ValueError(f"{names}: expected a config with the reader {READER}, got none")
    return changed_config


def reading_of_corpus(config: Config, name: str, reading: ReadOptions) -> ReadOptions:
    """Return the options with which our reader reads a corpus of a config.

    config (Config): The config, with interpolated variables.
    name (str): The name of the corpus, such as "corpora.train".
    reading (ReadOptions): The options. They override the settings of the reader.
    RETURNS (ReadOptions): The options, or only the given ones for another reader.
    """
    block = dot_to_object(config, name)
    if not isinstance(block, dict) or block.get("@readers") != READER:
        return reading
    names = {option.name for option in fields(ReadOptions)}
    settings = {name: value for name, value in block.items() if name in names}
    if reading.tag_column is not None:
        settings.pop("column", None)  # an alias
    return ReadOptions(**{**settings, **reading.settings()})


def open_config(path: str | Path) -> Config:
    """Read a config without interpolating its variables.

    path (str | Path): The config file, or the folder of a pipeline with a config.
    RAISES (ValueError): If the file isn't a config (for example, if it is a corpus).
    """
    try:
        return load_config(find_config_file(path), interpolate=False)
    except (ConfigValidationError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise ValueError(
            f"{path}: expected a config, got: {text}. Pass a corpus as a setting, such as "
            "paths.train"
        ) from error


def load_pipeline(
    model: str | Path, code_path: str | Path | None = None, use_gpu: int = -1
) -> Language:
    """Load a pipeline. First cleans up after processes that were killed while saving the pipeline:
    see `saving.clear`.

    model (str | Path): The pipeline, a package or a folder.
    code_path (str | Path | None): Python file with registered functions to import.
    use_gpu (int): GPU ID, or -1 for CPU.
    RAISES (ValueError): If the path is a file, or a folder without a pipeline.
    """
    check_is_pipeline(model)
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    return load_model(model)


def check_is_pipeline(model: str | Path) -> None:
    """Check that a path is neither a file nor a folder without a pipeline. The output folder of
    `fit` isn't a pipeline itself, but contains one. First cleans up after processes that were
    killed while saving the pipeline: see `saving.clear`.

    model (str | Path): The pipeline, a package or a folder.
    RAISES (ValueError): If the path is a file, or a folder without a pipeline.
    """
    expected = f"{model}: expected a trained pipeline, a package or a folder"
    path = Path(model)
    if path.is_file():
        raise ValueError(f"{expected}, got a file")
    clear(path)
    if path.is_dir() and not (path / META).is_file():
        raise ValueError(f"{expected}, got a folder without {META}{did_you_mean(path)}")


def did_you_mean(folder: str | Path) -> str:
    """Suggest a pipeline within a folder, e.g. model-best. Returns an empty string if there is
    none."""
    for file in sorted(Path(folder).glob(f"*/{META}")):
        return f": did you mean {file.parent}?"
    return ""
