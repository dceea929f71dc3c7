"""Save and load a component.

A component `ner` has these files:

    ner/cfg      the labels, the scheme and settings, as JSON
    ner/model    the parameters of the model and its features, as msgpack

Both have to be from the same save. A digest in `cfg` shows it: the hash of the bytes of `model` and
of all settings in `cfg` that may not be edited without training. The others are `EDITABLE`. `cfg`
has the version of this package that saved it, too. The *parts* of a saved component are "cfg",
"vocab" and "model". A pipeline saves its vocab once, and excludes it when it saves its components.
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
"""The settings of a component that are saved: see `new_cfg`."""

DIGEST = "digest"
"""The key of the digest in a saved `cfg`."""

EDITABLE = ("decoding", "confidence", "temperature", "progress", "n_examples")
"""The keys of a saved `cfg` that may be edited. The digest doesn't depend on them."""

FORMAT = 1
"""The number of the format in which components are saved. Raise it with a change that would make
earlier versions read a component wrongly. They then refuse it."""

OPTIONAL: Cfg = {"n_recurring": 0, "n_passages": 0}
"""The keys that 0.3.0 didn't save, with their values for its components."""


def new_cfg(scheme: str, outside: str) -> Cfg:
    """Make the `cfg` of a component that isn't trained. It is saved as JSON, so all values have to
    be JSON values. The component adds "decoding" and "confidence".

    scheme (str): The tag scheme, "BILUO" or "IOB2".
    outside (str): Whether O is split: see `Tags`.
    RETURNS (Cfg): The settings, with their values before training.
    """
    return {
        "labels": [],
        "scheme": scheme,
        "outside": outside,
        "progress": Progress()._asdict(),
        "n_examples": 0,  # the number of training examples
        "cost_tables": [],  # of the losses, as the file of a cost may be missing later
        "temperature": Temperature()._asdict(),
        "untrained": [],  # the labels that were added after training
        "trained_on": "",  # the hashes of the passages of training, packed
        "n_recurring": 0,  # the number of passages that recur: see `Recurring`
        "n_passages": 0,
        "raw_text": "",  # the hashes of the sentences behind static vectors, packed
    }


def mark_version(cfg: Cfg) -> Cfg:
    """Add the version of this package, and the number of its format, to a cfg before it is
    saved."""
    return {**cfg, "version": spacy_costner.__version__, "format": FORMAT}


def follow_config(cfg: Cfg, saved: Cfg, configured: Cfg) -> Cfg:
    """Choose the settings of a loaded component. The saved setting counts, as it may have been
    changed on the component before it was saved. But if the setting was edited in the config after
    that, the config counts.

    cfg (Cfg): The cfg of the component before it is loaded. All its keys are loaded.
    saved (Cfg): The saved cfg. Under "configured" it has settings of the config at that time.
    configured (Cfg): The same settings in the current config.
    RETURNS (Cfg): The cfg of the loaded component.
    """
    loaded = {name: saved[name] for name in cfg}
    for name, settings in configured.items():
        if saved["configured"].get(name) != settings:
            loaded[name] = deepcopy(settings)
    return loaded


def write_files(
    path: str | Path, cfg: Cfg, model: bytes, vocab: Vocab, exclude: Iterable[str]
) -> None:
    """Write the files of a component to a directory.

    path (str | Path): The path of the directory.
    cfg (Cfg): The settings, for the file "cfg".
    model (bytes): The model, for the file "model": see `save_model`.
    vocab (Vocab): The vocab, for the folder "vocab".
    exclude (Iterable[str]): The names of the files that are left out.
    """
    writers: dict[str, Callable[[Path], Any]] = {
        "cfg": lambda file: srsly.write_json(file, cfg),
        "vocab": lambda file: vocab.to_disk(file, exclude=exclude),
        "model": lambda file: file.write_bytes(model),
    }
    to_disk(path, writers, exclude)


def read_files(path: str | Path, name: str, vocab: Vocab, exclude: Iterable[str]) -> dict[str, Any]:
    """Read the files that `write_files` has written.

    path (str | Path): The path of the directory.
    name (str): The name of the component, for errors.
    vocab (Vocab): The vocab of the component. Its content is loaded, unless it is excluded.
    exclude (Iterable[str]): The parts that are left out.
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
    """Pack the parts of a component in bytes. For the parameters see `write_files`."""
    writers: dict[str, Callable[[], bytes]] = {
        "cfg": lambda: srsly.json_dumps(cfg),
        "vocab": lambda: vocab.to_bytes(exclude=exclude),
        "model": lambda: model,
    }
    return to_bytes(writers, exclude)


def unpack_parts(
    bytes_data: bytes, name: str, vocab: Vocab, exclude: Iterable[str]
) -> dict[str, Any]:
    """Unpack the result of `pack_parts`. Returns the contents of "cfg" and "model", and loads the
    content of the vocab, unless they are excluded. For the other parameters see `read_files`."""
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

    cfg (Cfg): The cfg, which isn't changed.
    model (bytes): The model, as `save_model` makes it.
    RETURNS (Cfg): A copy of the cfg with the digest.
    RAISES (ValueError): If the cfg has text that can't be UTF-8. srsly would crash.
    """
    try:
        json.dumps(cfg, ensure_ascii=False).encode("utf8")
    except UnicodeEncodeError as error:
        # Twenty characters before and after the wrong one show where it is.
        excerpt = error.object[max(0, error.start - 20) : error.end + 20]
        raise ValueError(
            f"cfg: expected text that can be encoded in UTF-8, got {excerpt!r}"
        ) from None
    # The JSON of srsly doesn't keep all digits of a number, so the digest is made from the cfg that
    # will be read.
    cfg_as_read = srsly.json_loads(srsly.json_dumps(cfg))
    return {**cfg, DIGEST: _digest(cfg_as_read, model)}


def check_digest(cfg: Any, model: bytes, where: str) -> None:
    """Check that a saved cfg and a saved model are from the same save.

    cfg (Any): The saved cfg, with its digest.
    model (bytes): The saved model.
    where (str): The name of the component and the path of the model, for errors.
    RAISES (ValueError): If the digest is missing, or is the digest of another cfg or model.
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
    """Hash a model and the settings that may not be edited without training."""
    covered = {name: value for name, value in cfg.items() if name not in (*EDITABLE, DIGEST)}
    digest = hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16)
    digest.update(model)
    return digest.hexdigest()


@contextmanager
def reading_part(part: str, name: str, folder: str) -> Iterator[None]:
    """Read a part of a saved component in a `with` block. Any error becomes a ValueError that names
    the part.

    part (str): The part, such as "cfg".
    name (str): The name of the component.
    folder (str): The folder with a slash at its end; empty if the part is not in a file.
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
    """Load a saved component in a `with` block. If another version of the package has saved it, a
    ValueError names both versions, and says what to do.

    cfg (Any): The saved cfg. None: it is excluded.
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
        if version is None:  # versions are saved since 0.4.0
            saved_by = f"saved by spacy-costner 0.3.0 or before, this is {current_version}"
            advice = "train again"
        raise ValueError(f"{error} ({saved_by}: {advice})") from error


def check_format(cfg: Any) -> None:
    """Check that this version can read the format of a saved cfg.

    RAISES (ValueError): If the format is a later one.
    """
    saved_format = cfg.get("format", FORMAT)  # 0.3.0 saved none
    if saved_format > FORMAT:
        raise ValueError(f"format: expected at most {FORMAT}, got {saved_format}")


def check_cfg(saved: Cfg, current: Cfg) -> Cfg:
    """Check a saved cfg, and that it fits the config.

    saved (Cfg): The saved cfg, which isn't changed.
    current (Cfg): The cfg of the component before it is loaded, as made from the config.
    RETURNS (Cfg): A copy of the saved cfg, with all keys of the current one.
    RAISES (ValueError): If a key is missing, or a value is wrong or doesn't fit the config.
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
    for name in ("trained_on", "raw_text"):
        unpack_ids(cfg[name])  # raises an error if they are damaged
    return cfg


def _check_temperature(temperature: Any, labels: Iterable[str]) -> None:
    """Check that the overall temperature of a saved `Temperature` is above 0, and the temperatures
    of labels, if there are any."""
    check_keys(temperature, Temperature._fields, "temperature")
    check_keys(temperature["labels"], names=(), where="temperature.labels", optional=labels)
    _check_number(temperature["overall"], "temperature: overall", positive=True)
    for label, value in temperature["labels"].items():
        _check_number(value, f"temperature: {label}", positive=True)


def _check_progress(progress: Any) -> None:
    """Check that a saved `Progress` has its four integers."""
    check_keys(progress, Progress._fields, "progress")
    for name, value in progress.items():
        least = 1 if name == "n_examples" else 0  # `Progress.passes` divides by it
        # `type` instead of `isinstance`, as True and False are integers, too.
        if type(value) is not int or value < least:
            raise ValueError(
                f"progress: {name}: expected an integer of at least {least}, got {value!r}"
            )


def check_keys(
    block: Any, names: Iterable[str], where: str, *, optional: Iterable[str] = ()
) -> None:
    """Check that a block of settings has all keys in `names`, possibly some in `optional`, and no
    others. `where` names the block, for the error."""
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
    """Save a model in the form of `model.to_bytes`.

    A trained linear model, or the linear part of a hybrid, is saved without the features that have
    no weights, unless its setting `keep_all` is true. Scores are the same without them. The model
    itself isn't changed, so that training can continue with all its features.
    """
    # The same steps as in `Model.to_bytes`.
    saved = _replace_shims(model, _select_used(model)).to_dict()
    to_numpy = partial(model.ops.to_numpy, byte_order="<")
    return srsly.msgpack_dumps(convert_recursive(is_xp_array, to_numpy, saved))


def _replace_shims(
    model: Model[list[Doc], Potentials], replacements: Mapping[int, Shim]
) -> Model[list[Doc], Potentials]:
    """Make a model of the same nodes and parameters with other shims, for saving only. (A shim is
    Thinc's word for an object of a node that keeps its own data, such as the features.) The keys of
    `replacements` are the ids of the old shims. The model itself isn't changed, as other threads
    may be predicting with it."""
    # A shallow copy of a node has the same id, by which references find it.
    replaced = copy(model)
    replaced._layers = [_replace_shims(layer, replacements) for layer in model.layers]
    replaced._shims = [replacements.get(shim.id, shim) for shim in model.shims]
    return replaced


def _select_used(model: Model[list[Doc], Potentials]) -> dict[int, Shim]:
    """Make the shims of a linear model with only the features that have weights, to save them
    instead of its own shims. Returns the new shims, keyed by the ids of the shims that they
    replace. Empty: the model is saved as it is, as it isn't linear, keeps all features, or isn't
    trained."""
    if not has_linear_part(model):
        return {}
    features, weights = linear_part(model)
    # Before training all weights are 0, and no feature would be left.
    is_trained = features.has_vocab and bool(weights.emissions.any())
    if weights.keep_all or not is_trained:
        return {}
    has_weights = weights.emissions.any(axis=1)  # whether a feature has a weight for any tag, (V,)
    # A first pass without weights reads labels from docs.
    first_pass = first_pass_of(model)
    if first_pass is not None and first_pass.weights.is_allocated:
        has_weights |= first_pass.weights.emissions.any(axis=1)

    # `rows` has the row of weights of each feature that is kept.
    kept_features, rows = features.select(has_weights)
    kept_shims: dict[int, Shim] = {
        features.id: kept_features,
        weights.id: weights.select(rows),
    }
    if first_pass is not None and first_pass.weights.is_allocated:
        kept_shims[first_pass.id] = first_pass.select(rows)
    return kept_shims


def load_model(model: Model[list[Doc], Potentials], saved: bytes, n_tags: int | None) -> None:
    """Load a model that was saved.

    model (Model[list[Doc], Potentials]): The model, which is changed.
    saved (bytes): The saved model, as `save_model` makes it.
    n_tags (int | None): The number of tags of the chain. None: it isn't known yet.
    RAISES (ValueError): If the model was saved with another config, or has weights that are not
        finite, or another number of tags.
    """
    # spaCy's `FeatureExtractor` has an attribute "columns": the attributes of tokens that it reads.
    # `from_bytes` replaces it, without comparing it with the config.
    columns_of_config = [node.attrs.get("columns") for node in model.walk()]
    # The same steps as in `Model.from_bytes`, but for the shims of a linear CRF.
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
