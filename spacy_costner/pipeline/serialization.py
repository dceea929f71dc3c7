"""Checks of a saved component: its files have to fit each other and the config.

    ner/cfg      labels, scheme and settings: JSON
    ner/model    the parameters of the model and its features: msgpack

A digest in `cfg` shows that both are from the same save. It covers the bytes of `model`, and `cfg`
except for `EDITABLE`, the settings that may be edited without training.
"""

import hashlib
import json
from collections.abc import Iterable
from copy import deepcopy
from math import inf
from typing import Any

import srsly
from spacy.tokens import Doc
from thinc.api import Model
from thinc.util import get_array_module

from ..decoding import Temperature
from ..tags import SINGLE
from ..training.known_text import unpack_ids
from ..types import Potentials, Progress
from .reading import Reading

Cfg = dict[str, Any]

DIGEST = "digest"

EDITABLE = ("decoding", "confidence", "temperature", "progress", "n_examples")
"""The keys of a saved `cfg` that may be edited. The digest doesn't cover them."""

BEFORE_0_3: Cfg = {
    "outside": SINGLE,
    "guarantee": None,
    "shift": None,
    "untrained": [],
    "reading": None,
    "trained_on": "",
}
"""Keys that a `cfg` saved before 0.3 lacks."""


def sign(cfg: Cfg, model: bytes) -> Cfg:
    """Add the digest of a cfg and the model that is saved with it.

    RAISES (ValueError): If the cfg has text that can't be UTF-8: srsly would end the process.
    """
    try:
        json.dumps(cfg, ensure_ascii=False).encode("utf8")
    except UnicodeEncodeError as error:
        got = repr(error.object[max(0, error.start - 20) : error.end + 20])
        raise ValueError(f"cfg: expected text that can be UTF-8, got {got}") from None
    # The digest is of the cfg as it will be read: JSON doesn't keep all digits of a number.
    return {**cfg, DIGEST: _digest(srsly.json_loads(srsly.json_dumps(cfg)), model)}


def check_digest(cfg: Any, model: bytes, where: str) -> None:
    """Check that a cfg and a model are from the same save, by 0.2 or later."""
    if not isinstance(cfg, dict) or DIGEST not in cfg:
        raise ValueError(
            f"{where}: expected a model saved by 0.2 or later, got no digest in its cfg: train "
            "again, and let other programs edit only " + ", ".join(EDITABLE)
        )
    if cfg[DIGEST] != (digest := _digest(cfg, model)):
        raise ValueError(
            f"{where}: expected the model that was saved with this cfg, digest {cfg[DIGEST]!r}, "
            f"got {digest!r}: one of the two was changed, or is of another save. Of cfg, "
            f"{', '.join(EDITABLE)} may be edited"
        )


def _digest(cfg: Cfg, model: bytes) -> str:
    covered = {name: value for name, value in cfg.items() if name not in (*EDITABLE, DIGEST)}
    digest = hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=16)
    digest.update(model)
    return digest.hexdigest()


def upgrade_cfg(saved: Cfg, own: Cfg) -> Cfg:
    """Check a saved cfg, and that it fits `own`, the cfg that the config gives. Returns it with all
    keys of `own`."""
    cfg = deepcopy({**BEFORE_0_3, **saved})
    for settings in (cfg, cfg["configured"]):
        confidence = settings.get("confidence")
        if isinstance(confidence, dict) and confidence.get("second_choice", 0) is None:
            del confidence["second_choice"]  # 0.2 had it beside `alternatives`
    if missing := [name for name in own if name not in cfg]:
        raise ValueError(f"expected {', '.join(own)}, got no {missing[0]}")
    for name in ("scheme", "outside"):
        if cfg[name] != own[name]:
            raise ValueError(
                f"{name}: expected {cfg[name]!r}, which the model was trained with, got "
                f"{own[name]!r} in the config; train again for another {name}"
            )
    check_keys(cfg["temperature"], Temperature._fields, "temperature")
    check_keys(cfg["temperature"]["labels"], (), "temperature.labels", optional=cfg["labels"])
    upgrade_progress(cfg)
    check_keys(cfg["progress"], Progress._fields, "progress")
    if cfg["reading"] is not None:
        check_keys(cfg["reading"], Reading._fields, "reading")
    overall, of_labels = cfg["temperature"]["overall"], cfg["temperature"]["labels"]
    for name, value in {"overall": overall, **of_labels}.items():
        _check_number(value, f"temperature: {name}", positive=True)
    unpack_ids(cfg["trained_on"])
    _check_number(cfg["n_examples"], "n_examples")
    for name, value in cfg["progress"].items():
        least = 1 if name == "n_examples" else 0
        if type(value) is not int or value < least:
            raise ValueError(
                f"progress: {name}: expected an integer of at least {least}, got {value!r}"
            )
    return cfg


def upgrade_progress(cfg: Cfg) -> None:
    """Have integers in the progress of a cfg that was saved up to 0.3, whose epochs are a sum of
    shares."""
    progress, n_examples = cfg["progress"], cfg["n_examples"]
    if isinstance(progress, dict) and progress.keys() == {"steps", "epochs"}:
        for name, value in {**progress, "n_examples": n_examples}.items():
            _check_number(value, name)
        n_examples = max(int(n_examples), 1)
        epochs, n_seen = divmod(round(progress["epochs"] * n_examples), n_examples)
        steps = int(progress["steps"])
        cfg["progress"] = Progress(steps, epochs, n_seen, n_examples)._asdict()


def check_keys(
    block: Any, names: Iterable[str], where: str, *, optional: Iterable[str] = ()
) -> None:
    """Check the keys of a block of settings: all of `names`, any of `optional`, and no other."""
    needed, allowed = set(names), {*names, *optional}
    if not isinstance(block, dict) or not needed <= set(block) <= allowed:
        raise ValueError(f"{where}: expected a mapping with {sorted(allowed)}, got {block!r}")


def _check_number(value: Any, where: str, *, positive: bool = False) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and 0 <= value < inf) or (positive and not value):
        bound = "above" if positive else "of at least"
        raise ValueError(f"{where}: expected a finite number {bound} 0, got {value!r}")


def load_model(model: Model[list[Doc], Potentials], data: bytes) -> None:
    """Load a model. Raises a ValueError if it was saved with another config, or has weights that
    are not finite."""
    before = [node.attrs.get("columns") for node in model.walk()]
    model.from_bytes(data)
    for node, columns in zip(model.walk(), before):
        if columns != (saved := node.attrs.get("columns")):
            raise ValueError(
                f"{node.name}: expected the attrs of the config, {columns}, got {saved}"
            )
        for name in filter(node.has_param, node.param_names):
            array = node.get_param(name)
            if not get_array_module(array).isfinite(array).all():
                raise ValueError(f"{node.name}: {name}: expected finite weights")
