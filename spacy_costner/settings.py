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
    """Check that every setting of a config, complete or not, is read by something.

    config (Mapping[str, Any]): The config.
    source (object): What the message of an error begins with, such as the file.
    RAISES (ValueError): If nothing reads a setting.
    """
    spacy.blank("xx")  # which imports the factories of entry points
    for section, schema in SCHEMAS.items():
        _check(config.get(section, {}), schema.__annotations__, section, source)
    # A part of a config may lack [components]. Then nothing is known of their names.
    initialized = config.get("initialize", {}).get("components", {})
    _check(initialized, config.get("components", initialized), "initialize.components", source)
    _check_blocks(config, "", source)


def _check_blocks(block: Mapping[str, Any], path: str, source: object) -> None:
    """Check the settings of all blocks in a block that have a function or a factory that we know,
    unless it takes any setting."""
    for name, value in block.items():
        if not isinstance(value, Mapping):
            continue
        inner_path = f"{path}.{name}" if path else name
        _check_blocks(value, inner_path, source)
        parameters = _find_parameters(value)
        if parameters is not None:
            # "@losses" names the function, and "*" a block of its positional arguments.
            settings = [key for key in value if key[:1] not in ("@", "*")]
            _check(settings, parameters, inner_path, source)


def _find_parameters(block: Mapping[str, Any]) -> list[str] | None:
    """The settings that the function or the factory of a block takes. None if the block has none,
    it is not registered, or it takes any setting."""
    functions = [(key[1:], block[key]) for key in block if key.startswith("@")]
    is_component = not functions and "factory" in block
    if is_component:
        functions = [("factories", block["factory"])]
    if len(functions) != 1:
        return None
    registry_name, function_name = functions[0]
    try:
        function = registry.get(registry_name, function_name)
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    if not is_component:
        return list(parameters)
    # spaCy gives a factory the pipeline and the name.
    return ["factory", *(name for name in parameters if name not in ("nlp", "name"))]


def check_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Check that settings of the command line, such as "paths.train", exist in a config whose
    variables are not filled in. Where all names are allowed, something has to refer to them. Other
    settings are left to `check_settings`."""
    full_config = Config(Language.default_config).merge(dict(config))
    text = Config(dict(config)).to_str(interpolate=False)
    for path in overrides:
        names = path.split(".")
        is_variable = f"${{{path}}}" in text
        if is_variable or names[0] in CHECKED:
            names = names[:-1]  # only its section has to exist: the setting may be new
        section: Any = full_config
        for i, name in enumerate(names):
            if not isinstance(section, Mapping):
                break
            _check([name], section, ".".join(names[:i]), None)
            section = section[name]


def _check(names: Iterable[str], known: Collection[str], section: str, source: object) -> None:
    """Check that the settings of a section are among those that are known."""
    for name in names:
        if name in known:
            continue
        nearest = get_close_matches(name, known, n=1)
        if nearest:
            hint = f"did you mean {nearest[0]!r}?"
        else:
            hint = f"known: {', '.join(sorted(known)) or 'none'}"
        path = f"{section}.{name}" if section else name
        block = f"[{section}]" if section else "the config"
        where = path if source is None else f"{source}: {path}"
        raise ValueError(f"{where}: expected a setting of {block}, got {name!r}: {hint}")
