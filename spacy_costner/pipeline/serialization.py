"""Saving a component: its files have to fit each other and the config.

    ner/cfg      labels, scheme and settings: JSON
    ner/model    the parameters of the model and its features: msgpack

A digest in `cfg` shows that both are from the same save. It covers the bytes of `model`, and `cfg`
except for `EDITABLE`, the settings that may be edited without training. A part of a saved component
is "cfg", "vocab" or "model".
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
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

from ..decoding import Temperature
from ..ml import first_pass_of, has_linear_part, linear_part
from ..training.known_text import unpack_ids
from ..types import Potentials, Progress

Cfg = dict[str, Any]

DIGEST = "digest"

EDITABLE = ("decoding", "confidence", "temperature", "progress", "n_examples")
"""The keys of a saved `cfg` that may be edited. The digest doesn't cover them."""

OPTIONAL: Cfg = {"reading": None, "trained_on": "", "raw_text": ""}
"""The keys that a saved `cfg` may lack, as they were not always saved, and their values then."""


def new_cfg(scheme: str, outside: str) -> Cfg:
    """Make the `cfg` of a component that isn't trained, but for its settings of prediction. It is
    saved as JSON and may be edited.

    scheme (str), outside (str): The tag scheme, and how it has O: see `Tags`.
    """
    return {
        "labels": [],
        "scheme": scheme,
        "outside": outside,
        "progress": Progress()._asdict(),
        "n_examples": 0,  # of training
        "cost_tables": [],  # those of the losses, as the file of a cost may be gone
        "temperature": Temperature()._asdict(),
        "untrained": [],  # labels that were added since training
        "trained_on": "",  # the packed hashes of the sentences of training
        "raw_text": "",  # those of the raw text that static vectors were learned from
    }


def follow_config(cfg: Cfg, saved: Cfg, configured: Cfg) -> Cfg:
    """Choose the settings of a loaded component: those that were saved, as they may have been
    changed on the component. But where the config was edited since, it is the one to follow.

    cfg (Cfg): The current cfg, whose keys are looked up in the saved one.
    saved (Cfg): The saved cfg. Its key "configured" has what the config said at that time.
    configured (Cfg): What the config says now of some keys.
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
    """Write the files of a component to a directory, without those to exclude."""
    writers: dict[str, Callable[[Path], Any]] = {
        "cfg": lambda file: srsly.write_json(file, cfg),
        "vocab": lambda file: vocab.to_disk(file, exclude=exclude),
        "model": lambda file: file.write_bytes(model),
    }
    to_disk(path, writers, exclude)


def read_files(path: str | Path, name: str, vocab: Vocab, exclude: Iterable[str]) -> dict[str, Any]:
    """Read what `write_files` wrote of a component, by its name. The vocab is loaded at once.
    Returns the content of "cfg" and "model", as far as they are not excluded."""
    readers: dict[str, Callable[[Path], Any]] = {
        "cfg": srsly.read_json,
        "vocab": lambda file: vocab.from_disk(file, exclude=exclude),
        "model": Path.read_bytes,
    }
    saved: dict[str, Any] = {}
    for part, read in readers.items():
        if part not in exclude:
            with reading_part(part, name, f"{path}/"):
                saved[part] = read(Path(path) / part)
    return saved


def pack_parts(cfg: Cfg, model: bytes, vocab: Vocab, exclude: Iterable[str]) -> bytes:
    """Pack a component in bytes, without the parts to exclude."""
    writers: dict[str, Callable[[], bytes]] = {
        "cfg": lambda: srsly.json_dumps(cfg),
        "vocab": lambda: vocab.to_bytes(exclude=exclude),
        "model": lambda: model,
    }
    return to_bytes(writers, exclude)


def unpack_parts(
    bytes_data: bytes, name: str, vocab: Vocab, exclude: Iterable[str]
) -> dict[str, Any]:
    """Read what `pack_parts` packed of a component, by its name. The vocab is loaded at once.
    Returns the content of "cfg" and "model", as far as they are there and not excluded."""
    with reading_part("cfg and model", name, ""):
        parts = srsly.msgpack_loads(bytes_data)
        saved = {part: content for part, content in parts.items() if part not in exclude}
        if "vocab" in saved:
            vocab.from_bytes(saved["vocab"], exclude=exclude)
        if "cfg" in saved:
            saved["cfg"] = srsly.json_loads(saved["cfg"])
    return saved


def sign(cfg: Cfg, model: bytes) -> Cfg:
    """Add the digest of a cfg and the model that is saved with it.

    RAISES (ValueError): If the cfg has text that can't be UTF-8: srsly would end the process.
    """
    try:
        json.dumps(cfg, ensure_ascii=False).encode("utf8")
    except UnicodeEncodeError as error:
        # Twenty characters before and after it show where it stands.
        excerpt = error.object[max(0, error.start - 20) : error.end + 20]
        raise ValueError(f"cfg: expected text that can be UTF-8, got {excerpt!r}") from None
    # The digest is of the cfg as it will be read: JSON doesn't keep all digits of a number.
    cfg_as_read = srsly.json_loads(srsly.json_dumps(cfg))
    return {**cfg, DIGEST: _digest(cfg_as_read, model)}


def check_digest(cfg: Any, model: bytes, where: str) -> None:
    """Check that a cfg and a model are from the same save."""
    editable = ", ".join(EDITABLE)
    if not isinstance(cfg, dict) or DIGEST not in cfg:
        raise ValueError(
            f"{where}: expected a digest of it in its cfg, got none: train again, and let other "
            f"programs edit only {editable}"
        )
    digest = _digest(cfg, model)
    if cfg[DIGEST] != digest:
        raise ValueError(
            f"{where}: expected the model that was saved with this cfg, digest {cfg[DIGEST]!r}, "
            f"got {digest!r}: one of the two was changed, or is of another save. Of cfg, "
            f"{editable} may be edited"
        )


def _digest(cfg: Cfg, model: bytes) -> str:
    """The hash of a model and of the settings that may not be edited without training."""
    covered = {name: value for name, value in cfg.items() if name not in (*EDITABLE, DIGEST)}
    digest = hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16)
    digest.update(model)
    return digest.hexdigest()


@contextmanager
def reading_part(part: str, name: str, folder: str) -> Iterator[None]:
    """Turn any error into a ValueError that names a part of a saved component.

    part (str): The part, such as "cfg".
    name (str): The name of the component.
    folder (str): What precedes the part in the message: the folder with a slash, or nothing.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{name}: {folder}{part}: expected the {part} of a trained cost_sensitive_ner "
            f"with this config, could not read it: {error}"
        ) from error


def check_cfg(saved: Cfg, current: Cfg) -> Cfg:
    """Check a saved cfg, and that it fits the current one, which the config gives.

    RETURNS (dict[str, Any]): A copy of the saved one, with all keys of the current one.
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
    _check_number(cfg["n_examples"], "n_examples")
    cfg["progress"] = _with_whole_epochs(cfg["progress"], cfg["n_examples"])
    _check_progress(cfg["progress"])
    for name in ("trained_on", "raw_text"):
        unpack_ids(cfg[name])  # raises an error if they are damaged
    return cfg


def _check_temperature(temperature: Any, labels: Iterable[str]) -> None:
    """Check that a temperature is an overall number above 0, and one for any of the labels."""
    check_keys(temperature, Temperature._fields, "temperature")
    check_keys(temperature["labels"], (), "temperature.labels", optional=labels)
    _check_number(temperature["overall"], "temperature: overall", positive=True)
    for label, value in temperature["labels"].items():
        _check_number(value, f"temperature: {label}", positive=True)


def _with_whole_epochs(progress: Any, n_examples: float) -> Any:
    """The progress with the epochs as an integer, and the examples of the epoch beside it. Up to
    0.3.0 the epochs were saved as a sum of shares."""
    if not isinstance(progress, dict) or progress.keys() != {"steps", "epochs"}:
        return progress  # as it is saved since then, or damaged: see `_check_progress`
    for name, value in progress.items():
        _check_number(value, name)
    examples_per_epoch = max(int(n_examples), 1)
    n_examples_seen = round(progress["epochs"] * examples_per_epoch)
    converted = Progress(
        steps=int(progress["steps"]),
        epochs=n_examples_seen // examples_per_epoch,
        n_seen=n_examples_seen % examples_per_epoch,
        n_examples=examples_per_epoch,
    )
    return converted._asdict()


def _check_progress(progress: Any) -> None:
    """Check that a saved `Progress` has its four integers."""
    check_keys(progress, Progress._fields, "progress")
    for name, value in progress.items():
        least = 1 if name == "n_examples" else 0
        # Not isinstance: True and False are integers, too.
        if type(value) is not int or value < least:
            raise ValueError(
                f"progress: {name}: expected an integer of at least {least}, got {value!r}"
            )


def check_keys(
    block: Any, names: Iterable[str], where: str, *, optional: Iterable[str] = ()
) -> None:
    """Check the keys of a block of settings: all of `names`, any of `optional`, and no other."""
    needed = set(names)
    allowed = needed.union(optional)
    if not isinstance(block, dict) or not needed <= set(block) <= allowed:
        raise ValueError(f"{where}: expected a mapping with {sorted(allowed)}, got {block!r}")


def _check_number(value: Any, where: str, *, positive: bool = False) -> None:
    """Check that a saved value is a finite number, not negative or, if asked for, above 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_valid = is_number and 0 <= value < inf
    bound = "of at least"
    if positive:
        is_valid = is_valid and value > 0
        bound = "above"
    if not is_valid:
        raise ValueError(f"{where}: expected a finite number {bound} 0, got {value!r}")


def save_model(model: Model[list[Doc], Potentials]) -> bytes:
    """Save a model, as `model.to_bytes` does. Of a trained linear model, or the linear part of a
    hybrid, values of features without weights are left out, unless all are to be kept: scores are
    the same without them. The model itself stays as it is, for training to go on."""
    slim_shims = _select_used(model)
    saved = model.to_dict()
    for node, saved_shims in zip(model.walk(), saved["shims"]):
        for i, shim in enumerate(node.shims):
            if shim.id in slim_shims:
                saved_shims[i] = slim_shims[shim.id].to_bytes()
    to_numpy = partial(model.ops.to_numpy, byte_order="<")
    return srsly.msgpack_dumps(convert_recursive(is_xp_array, to_numpy, saved))


def _select_used(model: Model[list[Doc], Potentials]) -> dict[int, Shim]:
    """The shims of a linear model with the features that have weights only, by the ids of those
    that they replace. None, if all features are to be kept or if none has a weight yet."""
    if not has_linear_part(model):
        return {}
    features, weights = linear_part(model)
    is_trained = features.has_vocab and bool(weights.emissions.any())
    if weights.keep_all or not is_trained:
        return {}
    has_weights = weights.emissions.any(axis=1)  # of each feature, (V,)
    first_pass = first_pass_of(model)
    if first_pass is not None and first_pass.weights.is_allocated:
        has_weights |= first_pass.weights.emissions.any(axis=1)

    slim_features, rows = features.select(has_weights)
    slim_shims: dict[int, Shim] = {
        features.id: slim_features,
        weights.id: weights.select(rows),
    }
    if first_pass is not None and first_pass.weights.is_allocated:
        slim_shims[first_pass.id] = first_pass.select(rows)
    return slim_shims


def load_model(model: Model[list[Doc], Potentials], saved: bytes) -> None:
    """Load a model. Raises a ValueError if it was saved with another config, or has weights that
    are not finite."""
    # `from_bytes` replaces the columns of features, too: those of the config have to be the same.
    columns_of_config = [node.attrs.get("columns") for node in model.walk()]
    model.from_bytes(saved)
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
            if not get_array_module(weights).isfinite(weights).all():
                raise ValueError(f"{node.name}: {name}: expected finite weights")
