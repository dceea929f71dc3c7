"""Errors for settings that nothing reads, with the nearest name. spaCy silently drops unknown
settings of [training], [nlp] and [initialize]."""

import inspect
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import spacy
from spacy.language import Language
from spacy.schemas import ConfigSchemaInit, ConfigSchemaNlp, ConfigSchemaTraining
from spacy.util import registry
from thinc.api import Config

SCHEMAS = {
    "training": ConfigSchemaTraining,
    "nlp": ConfigSchemaNlp,
    "initialize": ConfigSchemaInit,
}

CHECKED = frozenset([*SCHEMAS, "components", "corpora", "pretraining"])
"""Sections whose settings are known by name. Others, such as [paths], have those they like."""


def check_settings(config: Mapping[str, Any], source: object = None) -> None:
    """Check that every setting of a config, complete or not, is read by something. `source`
    begins the message of the ValueError, such as the file."""
    spacy.blank("xx")  # which imports the factories of entry points
    for section, schema in SCHEMAS.items():
        _check(config.get(section, {}), schema.__annotations__, section, source)
    initialized = config.get("initialize", {}).get("components", {})
    _check(initialized, config.get("components", initialized), "initialize.components", source)
    _check_blocks(config, "", source)


def _check_blocks(block: Mapping[str, Any], path: str, source: object) -> None:
    """Check the settings of all blocks in a block that have a function or a factory that we know,
    unless it takes any setting."""
    for name, value in block.items():
        if not isinstance(value, Mapping):
            continue
        inner = f"{path}.{name}" if path else name
        _check_blocks(value, inner, source)
        functions = [(key[1:], value[key]) for key in value if key.startswith("@")]
        own = not functions and "factory" in value
        try:
            ((registry_name, function),) = [("factories", value["factory"])] if own else functions
            parameters = inspect.signature(registry.get(registry_name, function)).parameters
        except (TypeError, ValueError):
            continue
        if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
            known = [*({*parameters} - {"nlp", "name"} if own else parameters), *["factory"] * own]
            _check([key for key in value if key[:1] not in ("@", "*")], known, inner, source)


def check_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Check that settings of the command line, such as "paths.train", exist in a config whose
    variables are not filled in. Where all names are allowed, something has to refer to them. Other
    settings are left to `check_settings`."""
    whole = Config(Language.default_config).merge(dict(config))
    text = Config(dict(config)).to_str(interpolate=False)
    for path in overrides:
        section: Any = whole
        names = path.split(".")
        is_read = names[0] in CHECKED or f"${{{path}}}" in text
        for i, name in enumerate(names[:-1] if is_read else names):
            if not isinstance(section, Mapping):
                break
            _check([name], section, ".".join(names[:i]), None)
            section = section[name]


def _check(names: Iterable[str], known: Collection[str], section: str, source: object) -> None:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            all_known = ", ".join(sorted(known)) or "none"
            hint = f"did you mean {near[0]!r}?" if near else f"known: {all_known}"
            path, block = (f"{section}.{name}", f"[{section}]") if section else (name, "the config")
            where = path if source is None else f"{source}: {path}"
            raise ValueError(f"{where}: expected a setting of {block}, got {name!r}: {hint}")
