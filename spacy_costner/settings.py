"""Errors for settings that nothing reads, with the nearest name.

spaCy silently drops unknown settings of [training], [nlp] and [initialize]. A block is a section of
a config, with the sections within it.
"""

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
"""Sections whose settings are known by name. Others, such as [paths], may have any."""


def check_settings(config: Mapping[str, Any], source: object = None) -> None:
    """Check that every setting of a config, complete or not, is read by something.

    config (Mapping[str, Any]): The config.
    source (object): What the message of an error begins with, such as the file.
    RAISES (ValueError): If nothing reads a setting.
    """
    spacy.blank("xx")  # which imports the factories of entry points
    for section, schema in SCHEMAS.items():
        _check_names(config.get(section, {}), schema.__annotations__, section, source)

    # [initialize.components] has a block for components of the pipeline. In a part of a config that
    # lacks [components], any name is right.
    initialized = config.get("initialize", {}).get("components", {})
    components = config.get("components", initialized)
    _check_names(initialized, components, "initialize.components", source)
    _check_blocks(config, "", source)


def _check_blocks(block: Mapping[str, Any], path: str, source: object) -> None:
    """Check the settings of each block in a block, at any depth, that has a registered function or
    the factory of a component, such as [training.optimizer]. `path` is the name of the outer block,
    `source` the beginning of messages."""
    for name, inner_block in block.items():
        if not isinstance(inner_block, Mapping):
            continue
        inner_path = f"{path}.{name}" if path else name
        _check_blocks(inner_block, inner_path, source)
        parameters = _find_parameters(inner_block)
        if parameters is not None:
            # "@losses" names the function, and "*" a block of its positional arguments.
            settings = [key for key in inner_block if not key.startswith(("@", "*"))]
            _check_names(settings, parameters, inner_path, source)


def _find_parameters(block: Mapping[str, Any]) -> Collection[str] | None:
    """Find the settings that a block may have: the parameters of its function, as "@losses" names
    it, or of its factory. None if the block has neither, if it isn't registered, or if it takes any
    setting."""
    functions: list[tuple[str, Any]] = []
    for key, value in block.items():
        if key.startswith("@"):
            functions.append((key.removeprefix("@"), value))
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
        return None  # it has **settings

    if not is_component:
        return list(parameters)
    # "nlp" and "name" are no settings: spaCy passes the pipeline and the name of the component.
    return {"factory", *parameters} - {"nlp", "name"}


def check_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Check that settings of the command line exist in the config that they change, so that a
    mistyped one is not lost. Settings of sections such as [training] are left to `check_settings`.

    config (Mapping[str, Any]): The config, whose variables are not filled in.
    overrides (Mapping[str, Any]): The settings, by path: "paths.train", for example.
    RAISES (ValueError): If a setting or its section doesn't exist.
    """
    full_config = Config(Language.default_config).merge(dict(config))
    config_text = Config(dict(config)).to_str(interpolate=False)
    for path in overrides:
        names_to_check = path.split(".")
        is_variable = f"${{{path}}}" in config_text  # "${paths.train}" stands in the config
        if is_variable or names_to_check[0] in CHECKED:
            names_to_check.pop()  # only its section has to exist: the setting may be new
        # Go down from the whole config, one section after another.
        block: Any = full_config
        for i, name in enumerate(names_to_check):
            if not isinstance(block, Mapping):
                break
            section = ".".join(names_to_check[:i])
            _check_names([name], block, section, source=None)
            block = block[name]


def _check_names(
    names: Iterable[str], allowed: Collection[str], section: str, source: object
) -> None:
    """Check that the settings of a section are among those that it may have. `section` is its path,
    empty for the config itself; `source` is the beginning of messages, or None."""
    for name in names:
        if name in allowed:
            continue
        nearest_names = get_close_matches(name, allowed, n=1)
        if nearest_names:
            hint = f"did you mean {nearest_names[0]!r}?"
        elif allowed:
            hint = f"known: {', '.join(sorted(allowed))}"
        else:
            hint = "known: none"
        where = name
        block = "the config"
        if section:
            where = f"{section}.{name}"
            block = f"[{section}]"
        if source is not None:
            where = f"{source}: {where}"
        raise ValueError(f"{where}: expected a setting of {block}, got {name!r}: {hint}")
