"""Saving and loading the component. Saved files have to fit each other and the config.

    ner/cfg      labels, scheme and settings: JSON
    ner/model    the parameters of the model and its features: msgpack

A digest in `cfg` shows that both are from the same save. It covers the bytes of `model`, and `cfg`
except for `EDITABLE`, the settings that may be edited without training.
"""

import hashlib
import json
from contextlib import contextmanager
from pathlib import Path
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
    Union,
)

import numpy
import srsly
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc
from spacy.util import to_bytes, to_disk
from thinc.api import Model
from thinc.util import get_array_module

from ..decoding import Temperature
from ..ml import FirstPass, SparseWeights, first_pass_of, linear_part
from ..tags import SINGLE, Tags
from ..types import Potentials, Progress

Cfg = Dict[str, Any]

DIGEST = "digest"
SAVED_ONLY = (DIGEST, "configured", "decoding_tables")
"""The keys that only a saved `cfg` has."""

BEFORE_0_3: Cfg = {"outside": SINGLE, "guarantee": None, "untrained": []}
"""What a saved `cfg` of an earlier version lacks."""

EDITABLE = ("decoding", "confidence", "temperature", "progress", "n_examples")
"""The keys of a saved `cfg` that may be edited. The digest doesn't cover them."""


class SavedPipe(TrainablePipe):
    """A component whose `cfg` and `model` are saved and loaded together."""

    cfg: Cfg

    def _n_tags(self) -> Optional[int]:
        """The number of tags K; None if there are no labels."""
        return None

    def _saved_extras(self) -> Cfg:
        """The additional keys of a saved cfg."""
        return {}

    def _load_cfg(self, saved: Cfg) -> None:
        """Load a saved cfg into the component."""

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Save the component.

        path (Union[str, Path]): A directory.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        """
        cfg, model = self._save(exclude)
        parts: Dict[str, Callable[[Path], Any]] = {
            "cfg": lambda file: srsly.write_json(file, cfg),
            "vocab": lambda file: self.vocab.to_disk(file, exclude=exclude),
            "model": lambda file: file.write_bytes(model),
        }
        to_disk(path, parts, exclude)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Save the component.

        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (bytes): What `from_bytes` takes.
        """
        cfg, model = self._save(exclude)
        parts: Dict[str, Callable[[], bytes]] = {
            "cfg": lambda: srsly.json_dumps(cfg),
            "vocab": lambda: self.vocab.to_bytes(exclude=exclude),
            "model": lambda: model,
        }
        return to_bytes(parts, exclude)

    def _save(self, exclude: Iterable[str]) -> Tuple[Dict[str, Any], bytes]:
        """The contents of the files cfg and model."""
        cfg = {**self.cfg, **self._saved_extras()}
        if "model" in exclude:
            return cfg, b""
        model = self.model.to_bytes()
        return sign(cfg, model), model

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "SavedPipe":
        """Load the component.

        path (Union[str, Path]): The directory that `to_disk` wrote.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (CostSensitiveNER): The component.
        RAISES (ValueError): If a file is missing, damaged, not of such a component or not from
            the same save as the other.
        """
        readers: Dict[str, Callable[[Path], Any]] = {
            "cfg": srsly.read_json,
            "vocab": lambda file: self.vocab.from_disk(file, exclude=exclude),
            "model": Path.read_bytes,
        }
        saved = {}
        for part in (part for part in readers if part not in exclude):
            with self._refusing(part, f"{path}/"):
                saved[part] = readers[part](Path(path) / part)
        return self._load(saved, f"{path}/")

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "SavedPipe":
        """Load the component.

        bytes_data (bytes): What `to_bytes` returned.
        exclude (Iterable[str]): Which of "cfg", "vocab" and "model" to leave out.
        RETURNS (CostSensitiveNER): The component.
        RAISES (ValueError): As `from_disk` does.
        """
        with self._refusing("cfg and model", ""):
            parts = srsly.msgpack_loads(bytes_data)
            saved = {name: parts[name] for name in parts if name not in exclude}
            if "vocab" in saved:
                self.vocab.from_bytes(saved["vocab"], exclude=exclude)
            if "cfg" in saved:
                saved["cfg"] = srsly.json_loads(saved["cfg"])
        return self._load(saved, "")

    def _refusing(self, part: str, where: str) -> ContextManager[None]:
        expected = f"the {part} of a trained cost_sensitive_ner with this config"
        return refusing(f"{self.name}: {where}{part}", expected)

    def _load(self, saved: Dict[str, Any], where: str) -> "SavedPipe":
        """Load the contents of the files, if they fit each other and the config.

        saved (Dict[str, Any]): The contents of "cfg" and "model", if they were read.
        where (str): The directory, for messages.
        """
        if "cfg" in saved:
            with self._refusing("cfg", where):
                check_cfg(saved["cfg"], self.cfg)
            if "model" in saved:
                check_digest(saved["cfg"], saved["model"], f"{self.name}: {where}model")
            with self._refusing("cfg", where):
                self._load_cfg(saved["cfg"])
        with self._refusing("model", where):
            if "model" in saved:
                load_model(self.model, saved["model"])
            check_model(self.model, self._n_tags())
        return self


@contextmanager
def refusing(where: str, expected: str) -> Iterator[None]:
    """Name the file in the message of any error.

    where (str): The file.
    expected (str): Its expected contents.
    RAISES (ValueError): In place of any error.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(f"{where}: expected {expected}, could not read it: {error}") from error


def sign(cfg: Cfg, model: bytes) -> Cfg:
    """Add the digest of a cfg and the model that is saved with it.

    cfg (Cfg): The settings to save.
    model (bytes): The model to save.
    RETURNS (Cfg): The settings with the digest.
    """
    # The digest is of the cfg as it will be read: JSON doesn't keep all digits of a number.
    return {**cfg, DIGEST: _digest(srsly.json_loads(srsly.json_dumps(cfg)), model)}


def check_digest(cfg: Cfg, model: bytes, where: str) -> None:
    """Check that a cfg and a model are from the same save. Older models don't have a digest.

    cfg (Cfg): The saved settings.
    model (bytes): The saved model.
    where (str): The file, for the message.
    RAISES (ValueError): If they are not.
    """
    found = _digest(cfg, model)
    if cfg.get(DIGEST, found) != found:
        raise ValueError(
            f"{where}: expected the model that was saved with this cfg, digest {cfg[DIGEST]!r}, "
            f"got {found!r}: one of the two was changed, or is of another save. Of cfg, "
            f"{', '.join(EDITABLE)} may be edited"
        )


def _digest(cfg: Cfg, model: bytes) -> str:
    covered = {name: value for name, value in cfg.items() if name not in (*EDITABLE, DIGEST)}
    digest = hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16)
    digest.update(model)
    return digest.hexdigest()


def check_cfg(cfg: Any, own: Cfg) -> None:
    """Check a saved cfg, by itself and against the config.

    cfg (Any): The saved cfg.
    own (Cfg): The cfg of the component that was built from the config.
    RAISES (ValueError): If something is missing, of the wrong type or for other tags.
    """
    if not isinstance(cfg, dict):
        raise ValueError(f"expected a mapping, got {cfg!r}")
    cfg = {**BEFORE_0_3, **cfg}
    if missing := [name for name in own if name not in cfg and DIGEST in cfg]:
        raise ValueError(f"expected {', '.join(own)}, got no {missing[0]}")
    cfg = {**own, **cfg}
    labels = cfg["labels"]
    strings = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not strings or "" in labels or len(set(labels)) < len(labels):
        raise ValueError(f"labels: expected a list of distinct strings, got {labels!r}")
    for name in ("scheme", "outside"):
        if cfg[name] != own[name]:
            raise ValueError(
                f"{name}: expected that of the trained model, {cfg[name]!r}, got {own[name]!r} in "
                f"the config; another {name} takes training anew"
            )
    _check_temperature(cfg["temperature"], labels)
    check_names(cfg["progress"], Progress._fields, "progress")
    for name, value in {**cfg["progress"], "n_examples": cfg["n_examples"]}.items():
        _check_number(value, name)
    _check_tables(cfg["cost_tables"], len(Tags(labels, cfg["scheme"])))


def _check_temperature(temperature: Any, labels: List[str]) -> None:
    check_names(temperature, Temperature._fields, "temperature")
    of_labels = temperature["labels"]
    check_names(of_labels, (), "temperature.labels", optional=labels)
    for name, value in {"overall": temperature["overall"], **of_labels}.items():
        _check_number(value, f"temperature: {name}", positive=True)


def check_names(
    block: Any, names: Iterable[str], where: str, *, optional: Optional[Iterable[str]] = None
) -> None:
    """Check the names in a block of settings.

    block (Any): The block.
    names (Iterable[str]): The required names.
    where (str): The block's name, for the message.
    optional (Optional[Iterable[str]]): The optional names.
    RAISES (ValueError): If it is not a mapping, lacks a name or has an unknown one.
    """
    needed, allowed = set(names), {*names, *(optional or ())}
    if not isinstance(block, dict) or not needed <= set(block) <= allowed:
        raise ValueError(f"{where}: expected a mapping with {sorted(allowed)}, got {block!r}")


def _check_number(value: Any, where: str, *, positive: bool = False) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < numpy.inf or (positive and not value):
        bound = "above" if positive else "of at least"
        raise ValueError(f"{where}: expected a finite number {bound} 0, got {value!r}")


def _check_tables(tables: Any, n_tags: int) -> None:
    if not isinstance(tables, list):
        raise ValueError(f"cost_tables: expected a list, got {tables!r}")
    for table in (table for table in tables if table is not None):
        costs = numpy.asarray(table, dtype="float32")
        if costs.shape != (n_tags, n_tags) or not numpy.isfinite(costs).all():
            raise ValueError(
                f"cost_tables: expected finite costs of {n_tags} x {n_tags} tags, got an array of "
                f"shape {costs.shape}"
            )


def load_model(model: Model[List[Doc], Potentials], data: bytes) -> None:
    """Load a model.

    model (Model[List[Doc], Potentials]): The model that was built from the config.
    data (bytes): The saved model.
    RAISES (ValueError): If it was saved with another config.
    """
    before = [node.attrs.get("columns") for node in model.walk()]
    model.from_bytes(data)
    for node, columns in zip(model.walk(), before):
        if columns != node.attrs.get("columns"):
            found = node.attrs["columns"]
            raise ValueError(
                f"{node.name}: expected the attrs of the config, {columns}, got {found}"
            )


def check_model(model: Model[List[Doc], Potentials], n_tags: Optional[int]) -> None:
    """Check that the parts of a model have the same number of tags, and finite weights.

    model (Model[List[Doc], Potentials]): The model.
    n_tags (Optional[int]): K, according to the labels; None if there are none.
    RAISES (ValueError): If they are not.
    """
    if not model.has_dim("nO"):
        return
    expected = model.get_dim("nO") if n_tags is None else n_tags
    found = {"nO": model.get_dim("nO"), **_sizes(model)}
    if wrong := {name: size for name, size in found.items() if size != expected}:
        raise ValueError(f"expected the weights of {expected} tags, got {wrong}")
    for node in model.walk():
        for name in node.param_names:
            if node.has_param(name) and not _is_finite(node.get_param(name)):
                raise ValueError(f"{node.name}: {name}: expected finite weights")
        if len(node.shims) >= 2 and isinstance(node.shims[1], SparseWeights):
            _check_linear(node)


def _check_linear(model: Model) -> None:
    features, weights = linear_part(model)
    are_there = features.has_vocab == weights.is_allocated
    if not are_there or (weights.is_allocated and weights.n_features != len(features)):
        raise ValueError(
            f"expected weights of {len(features)} features, got those of {weights.n_features}"
        )
    if first_pass := first_pass_of(model):
        _check_first_pass(first_pass, weights)


def _check_first_pass(first_pass: FirstPass, weights: SparseWeights) -> None:
    own, n_tags = first_pass.weights, len(first_pass.tags)
    expected = (weights.is_allocated, weights.n_features, n_tags)
    found = (own.is_allocated, own.n_features, own.n_tags)
    if expected != found and (weights.is_allocated or own.is_allocated):
        raise ValueError(
            f"expected a first pass of {weights.n_features} features and {n_tags} tags, "
            f"got one of {own.n_features} features and {own.n_tags} tags"
        )


def _sizes(model: Model) -> Dict[str, int]:
    """The number of tags K according to each array of a CRF that is allocated."""
    sizes = {}
    emissions = model.get_ref("emissions") if model.has_ref("emissions") else None
    for node in model.walk():
        for shim in node.shims:
            if isinstance(shim, SparseWeights) and shim.is_allocated:
                sizes["sparse weights"] = shim.n_tags
        names = ("W", "b") if node is emissions else ("transitions", "start", "end")
        arrays = {name: node.get_param(name) for name in names if node.has_param(name)}
        for name, array in arrays.items():
            sizes.update({f"{name}[{axis}]": size for axis, size in enumerate(array.shape)})
    sizes.pop("W[1]", None)
    return sizes


def _is_finite(array: Any) -> bool:
    return bool(get_array_module(array).isfinite(array).all())
