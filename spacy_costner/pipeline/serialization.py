"""Save and load a component.

A component named `ner` is saved to two files:

    ner/cfg      the labels, the scheme and the settings, in JSON format
    ner/model    the parameters and the features of the model, in msgpack format

The two files must be saved together. This is verified with a digest in `cfg`: a hash of the
contents of `model` and of all settings in `cfg` except the `EDITABLE` ones, which may be edited
without retraining. `cfg` also stores the version of this package. The *parts* of a saved component
are "cfg", "vocab" and "model". A pipeline saves its vocab only once, and excludes it when it saves
its components.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import srsly
from spacy.tokens import Doc
from spacy.util import to_bytes, to_disk
from spacy.vocab import Vocab
from thinc.api import Model
from thinc.shims import Shim
from thinc.util import convert_recursive, get_array_module, is_xp_array

import spacy_costner

from ..decoding import Temperature
from ..ml import first_pass_of, has_linear_part, is_linear, linear_part, load_shims
from ..training.known_text import unpack_ids
from ..types import Potentials, Progress

Cfg = dict[str, Any]
"""The saved settings of a component: see `new_cfg`."""

DIGEST = "digest"
"""The key of the digest in a saved `cfg`."""

EDITABLE = ("decoding", "confidence", "temperature", "progress", "n_examples")
"""The keys of a saved `cfg` that may be edited. The digest doesn't depend on them."""

FORMAT = 1
"""The version of the file format. Increase it if earlier versions of this package would misread
components in the new format. They then raise an error instead."""

OPTIONAL: Cfg = {
    "n_recurring": 0,
    "n_passages": 0,
    "labels_are_given": None,
    "holds_for": None,
}
"""The keys that earlier versions didn't save, with default values for components saved by them. The
first two were added in 0.4.0, the others in 0.5.0."""


def new_cfg(scheme: str, outside: str) -> Cfg:
    """Create the `cfg` of an untrained component. It is saved in JSON format, so all values must be
    JSON-serializable. The component adds "decoding" and "confidence".

    scheme (str): The tag scheme, "BILUO" or "IOB2".
    outside (str): Whether to use a single O tag or several: see `Tags`.
    RETURNS (Cfg): The settings with their initial values.
    """
    return {
        "labels": [],
        "labels_are_given": False,  # whether they were passed to `initialize`; None if unknown
        "scheme": scheme,
        "outside": outside,
        "progress": Progress()._asdict(),
        "n_examples": 0,  # the number of training examples
        "cost_tables": [],  # of the losses; saved because the files of costs may be missing later
        "temperature": Temperature()._asdict(),
        "untrained": [],  # the labels that were added after training
        "trained_on": "",  # the packed hashes of the training passages
        "n_recurring": 0,  # the number of passages that recur: see `Recurring`
        "n_passages": 0,
        "raw_text": "",  # the packed hashes of the sentences that static vectors were trained on
    }


def mark_version(cfg: Cfg) -> Cfg:
    """Return a copy of a cfg that includes the version of this package and of the file format."""
    return {**cfg, "version": spacy_costner.__version__, "format": FORMAT}


def as_read(value: Any) -> Any:
    """Return a JSON value as it will be read from a saved component: srsly writes at most ten
    decimals of a number, and tuples become lists. The result is read without further changes."""
    return srsly.json_loads(srsly.json_dumps(value))


def follow_config(cfg: Cfg, saved: Cfg, configured: Cfg) -> Cfg:
    """Choose the settings of a loaded component. If a setting was changed in the component before
    saving, the saved setting is used, unless the setting was also edited in the config after
    saving. Otherwise, the setting of the config is used. An override that equals the setting of the
    saved config can't be distinguished from it, so it has no effect.

    cfg (Cfg): The cfg of the component before loading. It defines the keys to load.
    saved (Cfg): The saved cfg. Its key "configured" contains the settings that the config had when
        the component was saved.
    configured (Cfg): The settings of the current config.
    RETURNS (Cfg): The cfg of the loaded component.
    """
    loaded = {name: saved[name] for name in cfg}
    for name, settings in configured.items():
        settings_before = saved["configured"].get(name)
        is_edited_in_config = as_read(settings) != settings_before
        is_changed_in_component = saved[name] != settings_before
        # The config has all digits of a number, the saved setting doesn't: see `as_read`.
        if is_edited_in_config or not is_changed_in_component:
            loaded[name] = deepcopy(settings)
    return loaded


def write_files(
    path: str | Path, cfg: Cfg, model: bytes, vocab: Vocab, exclude: Iterable[str]
) -> None:
    """Write the files of a component to a directory.

    path (str | Path): The path of the directory.
    cfg (Cfg): The contents of the file "cfg".
    model (bytes): The contents of the file "model": see `save_model`.
    vocab (Vocab): The vocab to save to the directory "vocab".
    exclude (Iterable[str]): The parts to exclude.
    """
    writers: dict[str, Callable[[Path], Any]] = {
        "cfg": lambda file: srsly.write_json(file, cfg),
        "vocab": lambda file: vocab.to_disk(file, exclude=exclude),
        "model": lambda file: file.write_bytes(model),
    }
    to_disk(path, writers, exclude)


def read_files(path: str | Path, name: str, vocab: Vocab, exclude: Iterable[str]) -> dict[str, Any]:
    """Read the files that were written by `write_files`.

    path (str | Path): The path of the directory.
    name (str): The name of the component, for error messages.
    vocab (Vocab): The vocab of the component. It is loaded in place, unless it is excluded.
    exclude (Iterable[str]): The parts to exclude.
    RETURNS (dict[str, Any]): The contents of "cfg" and "model", unless they are excluded.
    RAISES (ValueError): If a file can't be read.
    """
    readers: dict[str, Callable[[Path], Any]] = {
        "cfg": srsly.read_json,
        "vocab": lambda file: vocab.from_disk(file, exclude=exclude),
        "model": Path.read_bytes,
    }
    saved: dict[str, Any] = {}
    for part, read in readers.items():
        if part not in exclude:
            with reading_part(part, name, folder=f"{path}/"):
                saved[part] = read(Path(path) / part)
    return saved


def pack_parts(cfg: Cfg, model: bytes, vocab: Vocab, exclude: Iterable[str]) -> bytes:
    """Serialize the parts of a component to a bytestring. See `write_files` for the parameters."""
    writers: dict[str, Callable[[], bytes]] = {
        "cfg": lambda: srsly.json_dumps(cfg),
        "vocab": lambda: vocab.to_bytes(exclude=exclude),
        "model": lambda: model,
    }
    return to_bytes(writers, exclude)


def unpack_parts(
    bytes_data: bytes, name: str, vocab: Vocab, exclude: Iterable[str]
) -> dict[str, Any]:
    """Unpack the output of `pack_parts`. Returns the contents of "cfg" and "model", and loads the
    vocab in place, unless they are excluded. See `read_files` for the other parameters."""
    with reading_part("cfg and model", name, folder=""):
        parts = srsly.msgpack_loads(bytes_data)
        saved = {part: content for part, content in parts.items() if part not in exclude}
        if "vocab" in saved:
            vocab.from_bytes(saved["vocab"], exclude=exclude)
        if "cfg" in saved:
            saved["cfg"] = srsly.json_loads(saved["cfg"])
    return saved


def sign(cfg: Cfg, model: bytes) -> Cfg:
    """Add a digest of a cfg and a model to the cfg, before both are saved.

    cfg (Cfg): The cfg, which isn't modified.
    model (bytes): The model, as returned by `save_model`.
    RETURNS (Cfg): A copy of the cfg with the digest.
    RAISES (ValueError): If the cfg contains text that can't be encoded as UTF-8. (srsly would
        crash.)
    """
    try:
        json.dumps(cfg, ensure_ascii=False).encode("utf8")
    except UnicodeEncodeError as error:
        # Include twenty characters of context on each side, so that the text can be located.
        excerpt = error.object[max(0, error.start - 20) : error.end + 20]
        raise ValueError(
            f"cfg: expected text that can be encoded in UTF-8, got {excerpt!r}"
        ) from None
    return {**cfg, DIGEST: _digest(as_read(cfg), model)}


def check_digest(cfg: Any, model: bytes, where: str) -> None:
    """Check that a cfg and a model were saved together.

    cfg (Any): The saved cfg with its digest.
    model (bytes): The saved model.
    where (str): The name of the component and the path of the model, for error messages.
    RAISES (ValueError): If the digest is missing or doesn't match the cfg and the model.
    """
    editable = ", ".join(EDITABLE)
    if not isinstance(cfg, dict) or DIGEST not in cfg:
        raise ValueError(
            f"{where}: expected a digest of the model in its cfg, got none: train again, and let "
            f"other programs edit only {editable}"
        )
    digest = _digest(cfg, model)
    if cfg[DIGEST] != digest:
        raise ValueError(
            f"{where}: expected the model that was saved with this cfg, digest {cfg[DIGEST]!r}, "
            f"got {digest!r}: one of the two was changed, or is from another save. In cfg, only "
            f"{editable} may be edited"
        )


def _digest(cfg: Cfg, model: bytes) -> str:
    """Hash a model and the settings that may not be edited without retraining."""
    covered = {name: value for name, value in cfg.items() if name not in (*EDITABLE, DIGEST)}
    digest = hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16)
    digest.update(model)
    return digest.hexdigest()


@contextmanager
def reading_part(part: str, name: str, folder: str) -> Iterator[None]:
    """Context manager for reading a part of a saved component. Any error is raised as a ValueError
    that includes the name of the part.

    part (str): The part, such as "cfg".
    name (str): The name of the component.
    folder (str): The directory with a trailing slash, or empty if the part is not in a file.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{name}: {folder}{part}: expected the {part} of a trained cost_sensitive_ner with "
            f"this config, but could not read it: {error}"
        ) from error


@contextmanager
def naming_version(cfg: Any) -> Iterator[None]:
    """Context manager for loading a saved component. If the component was saved by a different
    version of the package, both versions and some advice are added to the message of a ValueError.

    cfg (Any): The saved cfg. None if it is excluded.
    """
    try:
        yield
    except ValueError as error:
        current_version = spacy_costner.__version__
        if not isinstance(cfg, dict) or cfg.get("version") == current_version:
            raise
        version = cfg.get("version")
        saved_by = f"saved by spacy-costner {version}, this is {current_version}"
        advice = f"install {version} to read it, or train again"
        if version is None:  # the version has been saved since 0.4.0
            saved_by = f"saved by spacy-costner 0.3.0 or before, this is {current_version}"
            advice = "train again"
        raise ValueError(f"{error} ({saved_by}: {advice})") from error


def check_format(cfg: Any) -> None:
    """Check that the file format of a saved cfg is supported.

    RAISES (ValueError): If the format is newer than `FORMAT`.
    """
    saved_format = cfg.get("format", FORMAT)  # not saved by 0.3.0
    if saved_format > FORMAT:
        raise ValueError(f"format: expected at most {FORMAT}, got {saved_format}")


def check_cfg(saved: Cfg, current: Cfg) -> Cfg:
    """Check that a saved cfg is complete, valid and consistent with the config.

    saved (Cfg): The saved cfg, which isn't modified.
    current (Cfg): The cfg of the component before loading, as created from the config.
    RETURNS (Cfg): A copy of the saved cfg that contains all keys of the current cfg.
    RAISES (ValueError): If a key is missing, or a value is invalid or inconsistent with the config.
    """
    cfg = deepcopy({**OPTIONAL, **saved})
    missing = [name for name in current if name not in cfg]
    if missing:
        raise ValueError(f"expected {', '.join(current)}, got no {missing[0]}: train again")
    for name in ("scheme", "outside"):
        if cfg[name] != current[name]:
            raise ValueError(
                f"{name}: expected {cfg[name]!r}, which the model was trained with, got "
                f"{current[name]!r} in the config; train again for another {name}"
            )
    _check_temperature(cfg["temperature"], cfg["labels"])
    for name in ("n_examples", "n_recurring", "n_passages"):
        _check_number(cfg[name], name)
    _check_progress(cfg["progress"])
    if cfg["labels_are_given"] not in (True, False, None):
        raise ValueError(
            f"labels_are_given: expected true, false or null, got {cfg['labels_are_given']!r}"
        )
    for name in ("trained_on", "raw_text"):
        unpack_ids(cfg[name])  # raises an error if the hashes are damaged
    return cfg


def _check_temperature(temperature: Any, labels: Iterable[str]) -> None:
    """Check that the overall temperature and the temperatures of labels in a saved `Temperature`
    are positive, and that the labels exist."""
    check_keys(temperature, Temperature._fields, "temperature")
    check_keys(temperature["labels"], names=(), where="temperature.labels", optional=labels)
    _check_number(temperature["overall"], "temperature: overall", positive=True)
    for label, value in temperature["labels"].items():
        _check_number(value, f"temperature: {label}", positive=True)


def _check_progress(progress: Any) -> None:
    """Check that a saved `Progress` contains exactly its four fields, with valid integers."""
    check_keys(progress, Progress._fields, "progress")
    for name, value in progress.items():
        least = 1 if name == "n_examples" else 0  # `Progress.passes` divides by it
        # Use `type` instead of `isinstance`, because bool is a subclass of int.
        if type(value) is not int or value < least:
            raise ValueError(
                f"progress: {name}: expected an integer of at least {least}, got {value!r}"
            )


def check_keys(
    block: Any, names: Iterable[str], where: str, *, optional: Iterable[str] = ()
) -> None:
    """Check that a block of settings contains all keys in `names`, and no other keys except those
    in `optional`. `where` is the name of the block, for the error message."""
    needed = set(names)
    allowed_keys = needed.union(optional)
    if not isinstance(block, dict) or not needed <= set(block) <= allowed_keys:
        raise ValueError(f"{where}: expected a mapping with {sorted(allowed_keys)}, got {block!r}")


def _check_number(value: Any, where: str, *, positive: bool = False) -> None:
    """Check that a saved value is a finite number of at least 0 or, with `positive`, above 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_valid = is_number and 0 <= value < inf
    bound = "of at least"
    if positive:
        is_valid = is_valid and value > 0
        bound = "above"
    if not is_valid:
        raise ValueError(f"{where}: expected a finite number {bound} 0, got {value!r}")


def save_model(model: Model[list[Doc], Potentials]) -> bytes:
    """Serialize a model in the format of `model.to_bytes`.

    For a trained linear model, or the linear part of a hybrid, features whose weights are all 0 are
    not saved, unless the setting `keep_all` is true. This doesn't change the scores. The model is
    not modified, so that training can continue with all features.
    """
    # The same steps as in `Model.to_bytes`
    saved = _replace_shims(model, _select_used(model)).to_dict()
    to_numpy = partial(model.ops.to_numpy, byte_order="<")
    return srsly.msgpack_dumps(convert_recursive(is_xp_array, to_numpy, saved))


def _replace_shims(
    model: Model[list[Doc], Potentials], replacements: Mapping[int, Shim]
) -> Model[list[Doc], Potentials]:
    """Create a copy of a model with different shims, only for saving. (In Thinc, a shim is attached
    to a node and manages data that are not parameters, such as the features.) `replacements` is
    keyed by the ids of the old shims. The model is not modified, because other threads may be
    predicting with it."""
    # A shallow copy keeps the node's id, which is used by references.
    replaced = copy(model)
    replaced._layers = [_replace_shims(layer, replacements) for layer in model.layers]
    replaced._shims = [replacements.get(shim.id, shim) for shim in model.shims]
    return replaced


def _select_used(model: Model[list[Doc], Potentials]) -> dict[int, Shim]:
    """Create shims for saving a linear model with only the features that have non-zero weights.
    Returns the new shims, keyed by the ids of the shims to replace. Returns an empty dictionary if
    the model isn't linear, keeps all features or isn't trained."""
    if not has_linear_part(model):
        return {}
    features, weights = linear_part(model)
    # Before training, all weights are 0 and all features would be removed.
    is_trained = features.has_vocab and bool(weights.emissions.any())
    if weights.keep_all or not is_trained:
        return {}
    has_weights = weights.emissions.any(axis=1)  # whether a feature has non-zero weights, (V,)
    # A first pass may have no weights if it reads labels from docs.
    first_pass = first_pass_of(model)
    if first_pass is not None and first_pass.weights.is_allocated:
        has_weights |= first_pass.weights.emissions.any(axis=1)

    # `rows` contains the row index of each kept feature in the weights.
    kept_features, rows = features.select(has_weights)
    kept_shims: dict[int, Shim] = {
        features.id: kept_features,
        weights.id: weights.select(rows),
    }
    if first_pass is not None and first_pass.weights.is_allocated:
        kept_shims[first_pass.id] = first_pass.select(rows)
    return kept_shims


def load_model(model: Model[list[Doc], Potentials], saved: bytes, n_tags: int | None) -> None:
    """Load the weights and the features of a saved model.

    model (Model[list[Doc], Potentials]): The model, which is modified in place.
    saved (bytes): The saved model, as returned by `save_model`.
    n_tags (int | None): The number of tags of the chain, or None if it is unknown.
    RAISES (ValueError): If the model was saved with a different config, its weights are not finite,
        or it has a different number of tags.
    """
    # The attribute "columns" of spaCy's `FeatureExtractor` lists the token attributes that it
    # reads. Loading overwrites it without comparing it with the config.
    columns_of_config = [node.attrs.get("columns") for node in model.walk()]
    # The same steps as in `Model.from_bytes`, except for the shims of a linear CRF
    message = srsly.msgpack_loads(saved)
    message = convert_recursive(is_xp_array, model.ops.asarray, message)
    for node, saved_shims in zip(model.walk(), message["shims"]):
        if is_linear(node):
            load_shims(node, saved_shims, n_tags)
            saved_shims.clear()
    model.from_dict(message)
    for node, columns in zip(model.walk(), columns_of_config):
        saved_columns = node.attrs.get("columns")
        if columns != saved_columns:
            raise ValueError(
                f"{node.name}: expected the attrs of the config, {columns}, got {saved_columns}"
            )
        for name in node.param_names:
            if not node.has_param(name):
                continue
            weights = node.get_param(name)
            xp = get_array_module(weights)
            if not xp.isfinite(weights).all():
                raise ValueError(f"{node.name}: {name}: expected finite weights")
