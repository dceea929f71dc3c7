"""Check that all settings of a config are known. A mistyped setting raises an error that suggests
the closest name.

spaCy silently ignores unknown settings in [training], [nlp], [initialize] and [pretraining]. In
this module, a block is a section of a config, including its subsections.
"""

import inspect
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

import spacy
from spacy.language import Language
from spacy.schemas import (
    ConfigSchemaInit,
    ConfigSchemaNlp,
    ConfigSchemaPretrain,
    ConfigSchemaTraining,
)
from spacy.util import registry
from thinc.api import Config

SCHEMAS = {
    "training": ConfigSchemaTraining,
    "nlp": ConfigSchemaNlp,
    "initialize": ConfigSchemaInit,
    "pretraining": ConfigSchemaPretrain,
}
"""spaCy's schemas, which define the names of the settings in each section."""

CHECKED = frozenset([*SCHEMAS, "components", "corpora"])
"""The sections whose settings have fixed names. Other sections, such as [paths], may contain any
settings."""


def check_settings(config: Mapping[str, Any], source: object = None) -> None:
    """Check that the settings of a full or partial config are known: the settings of the sections
    in `SCHEMAS`, and of all blocks that refer to a registered function or a component factory.
    Other sections and settings may have any name.

    config (Mapping[str, Any]): The config.
    source (object): The path of the config, to include in error messages. Optional.
    RAISES (ValueError): If a setting is unknown.
    """
    _import_factories()  # `_check_blocks` looks them up in the registry
    for section, schema in SCHEMAS.items():
        # The annotations of a schema are keyed by setting name.
        _check_names(config.get(section, {}), schema.__annotations__, section, source)

    # Each block in [initialize.components] must belong to a component of the pipeline. A partial
    # config without [components] may contain any names there.
    initialized = config.get("initialize", {}).get("components", {})
    components = config.get("components", initialized)
    _check_names(initialized, components, "initialize.components", source)
    _check_blocks(config, path="", source=source)


@cache
def _import_factories() -> None:
    """Import the factories of all installed packages, so that they are registered. spaCy does this
    whenever it creates a pipeline."""
    spacy.blank("xx")


def _check_blocks(block: Mapping[str, Any], path: str, source: object) -> None:
    """Check the settings of all subsections of a block that refer to a registered function or a
    component factory, such as [training.optimizer]. `path` is the name of the block, e.g.
    "training", or an empty string for the whole config. Raises a ValueError if a setting is
    unknown."""
    for name, inner_block in block.items():
        if not isinstance(inner_block, Mapping):
            continue
        inner_path = f"{path}.{name}" if path else name
        _check_blocks(inner_block, inner_path, source)
        parameters = _find_parameters(inner_block)
        if parameters is not None:
            # Exclude keys that aren't settings: "@losses" etc. specify the function, and "*"
            # contains its positional arguments.
            settings = [key for key in inner_block if not key.startswith(("@", "*"))]
            _check_names(settings, parameters, inner_path, source)


def _find_parameters(block: Mapping[str, Any]) -> Collection[str] | None:
    """Find the settings that a block may contain: the parameters of its registered function (e.g.
    specified by "@losses") or of its component factory. Returns None if the block has no function
    or factory, if it isn't registered, or if it accepts settings of any name."""
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
        return None  # the function accepts **kwargs

    if not is_component:
        return list(parameters)
    # The parameters "nlp" and "name" of a factory aren't settings: spaCy passes the pipeline and
    # the name of the component.
    return {"factory", *parameters} - {"nlp", "name"}


def check_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Check that the settings overridden on the command line exist in the config, to detect
    mistyped names. Settings in sections such as [training] are checked by `check_settings`.

    config (Mapping[str, Any]): The config, without interpolated variables.
    overrides (Mapping[str, Any]): The new values of settings, keyed by names such as "paths.train".
    RAISES (ValueError): If a setting or its section doesn't exist.
    """
    full_config = Config(Language.default_config).merge(dict(config))
    config_text = Config(dict(config)).to_str(interpolate=False)
    for path in overrides:
        names_to_check = path.split(".")
        is_variable = f"${{{path}}}" in config_text  # e.g. ${paths.train}
        if is_variable or names_to_check[0] in CHECKED:
            # Only check the section. The setting itself may be missing from the config: overrides
            # can define the value of a variable, and `check_settings` checks the other names.
            names_to_check.pop()
        # Descend from the whole config to the section of the setting.
        block: Any = full_config
        for i, name in enumerate(names_to_check):
            if not isinstance(block, Mapping):
                break  # the value of a setting has no subsections
            section = ".".join(names_to_check[:i])
            _check_names([name], block, section, source=None)
            block = block[name]


def _check_names(
    names: Iterable[str], allowed: Collection[str], section: str, source: object
) -> None:
    """Check that a section, e.g. "training", only contains allowed settings."""
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
        setting = name
        block = "the config"
        if section:
            setting = f"{section}.{name}"
            block = f"[{section}]"
        place = setting
        if source is not None:
            place = f"{source}: {setting}"
        raise ValueError(f"{place}: expected a setting of {block}, got {name!r}: {hint}")
