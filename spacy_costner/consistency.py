"""Whether what was saved of a component fits together, and fits the config.

    ner/cfg      labels, scheme and settings: JSON
    ner/model    the parameters of the model and its features: msgpack

A digest in `cfg` ties both to one save. It covers the bytes of `model` and what of `cfg` is not
to be changed without training; the rest, `FREE`, may be edited by hand.
"""

import hashlib
import json
from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List, Optional

import numpy
import srsly
from spacy.tokens import Doc
from thinc.api import Model
from thinc.util import get_array_module

from .decode import Temperature
from .layers import SparseWeights, linear_part
from .tags import Tags
from .types import Potentials, Progress

Cfg = Dict[str, Any]

DIGEST = "digest"
MADE = (DIGEST, "configured", "decoding_tables")
"""What is in a saved `cfg` only."""

FREE = ("decoding", "confidence", "temperature", "progress", "n_examples")
"""What may be changed in a saved `cfg`. A model saved anew has a digest of its own."""


@contextmanager
def refusing(where: str, expected: str) -> Iterator[None]:
    """Name the file in whatever goes wrong.

    where (str): The file.
    expected (str): What should be there.
    RAISES (ValueError): If anything goes wrong.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(f"{where}: expected {expected}, could not read it: {error}") from error


def sign(cfg: Cfg, model: bytes) -> Cfg:
    """Tie a cfg to the model that is saved with it.

    cfg (Cfg): What is to be saved of settings.
    model (bytes): What is to be saved of the model.
    RETURNS (Cfg): The same with a digest.
    """
    # As it will be read: JSON doesn't keep every digit of a number.
    return {**cfg, DIGEST: _digest(srsly.json_loads(srsly.json_dumps(cfg)), model)}


def check_digest(cfg: Cfg, model: bytes, where: str) -> None:
    """Check that a cfg and a model are of one save. Those without a digest are older.

    cfg (Cfg): What was saved of settings.
    model (bytes): What was saved of the model.
    where (str): What messages call them.
    RAISES (ValueError): If they are not.
    """
    found = _digest(cfg, model)
    if cfg.get(DIGEST, found) != found:
        raise ValueError(
            f"{where}: expected the model that was saved with this cfg, digest {cfg[DIGEST]!r}, "
            f"got {found!r}: one of the two was changed, or is of another save. Of cfg, "
            f"{', '.join(FREE)} may be edited"
        )


def _digest(cfg: Cfg, model: bytes) -> str:
    covered = {name: value for name, value in cfg.items() if name not in (*FREE, DIGEST)}
    digest = hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16)
    digest.update(model)
    return digest.hexdigest()


def check_cfg(cfg: Any, own: Cfg) -> None:
    """Check a cfg by itself and against that of the config.

    cfg (Any): What was saved.
    own (Cfg): That of the component as the config has built it.
    RAISES (ValueError): If something is missing, of the wrong kind or for another scheme.
    """
    if not isinstance(cfg, dict):
        raise ValueError(f"expected a mapping, got {cfg!r}")
    if missing := [name for name in own if name not in cfg and DIGEST in cfg]:
        raise ValueError(f"expected {', '.join(own)}, got no {missing[0]}")
    cfg = {**own, **cfg}
    labels, scheme = cfg["labels"], cfg["scheme"]
    strings = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not strings or "" in labels or len(set(labels)) < len(labels):
        raise ValueError(f"labels: expected a list of distinct strings, got {labels!r}")
    if scheme != own["scheme"]:
        raise ValueError(
            f"scheme: expected that of the trained model, {scheme!r}, got {own['scheme']!r} in the "
            "config; another scheme takes training anew"
        )
    _check_temperature(cfg["temperature"], labels)
    check_names(cfg["progress"], Progress._fields, "progress")
    for name, value in {**cfg["progress"], "n_examples": cfg["n_examples"]}.items():
        _check_number(value, name)
    _check_tables(cfg["cost_tables"], len(Tags(labels, scheme)))


def _check_temperature(temperature: Any, labels: List[str]) -> None:
    check_names(temperature, Temperature._fields, "temperature")
    of_labels = temperature["labels"]
    check_names(of_labels, (), "temperature.labels", optional=labels)
    for name, value in {"overall": temperature["overall"], **of_labels}.items():
        _check_number(value, f"temperature: {name}", positive=True)


def check_names(
    block: Any, names: Iterable[str], where: str, *, optional: Optional[Iterable[str]] = None
) -> None:
    """Check which names a block has.

    block (Any): The block.
    names (Iterable[str]): What it has to have.
    where (str): What messages call it.
    optional (Optional[Iterable[str]]): What it may have besides; None: nothing.
    RAISES (ValueError): If it is no mapping, lacks a name or has another.
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

    model (Model[List[Doc], Potentials]): As the config has built it.
    data (bytes): What was saved.
    RAISES (ValueError): If it is that of another config.
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
    """Check that the parts of a model are of one size, and its weights finite.

    model (Model[List[Doc], Potentials]): The model.
    n_tags (Optional[int]): K of the labels; None if there are none.
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
        if len(node.shims) == 2 and isinstance(node.shims[1], SparseWeights):
            _check_linear(node)


def _check_linear(model: Model) -> None:
    features, weights = linear_part(model)
    if weights.is_allocated and weights.n_features != len(features):
        raise ValueError(
            f"expected weights of {len(features)} features, got those of {weights.n_features}"
        )


def _sizes(model: Model) -> Dict[str, int]:
    """What the arrays of a CRF say of K. Those that are not there say nothing."""
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
