"""Check that the settings of a config are read by something. A mistyped setting is an error that
suggests the nearest name.

spaCy silently ignores unknown settings of [training], [nlp], [initialize] and [pretraining]. In
this file, a block is a section of a config with the sections within it.
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
"""spaCy's schemas of sections: the names of their settings."""

CHECKED = frozenset([*SCHEMAS, "components", "corpora"])
"""The sections whose settings have fixed names. Other sections, such as [paths], may have settings
of any name."""


def check_settings(config: Mapping[str, Any], source: object = None) -> None:
    """Check that the settings of a config, complete or not, are read by something: the settings of
    the sections in `SCHEMAS`, and of all blocks that name a registered function or the factory of a
    component. Other sections and settings may have any name.

    config (Mapping[str, Any]): The config.
    source (object): The file of the config, with which the message of an error begins. None: the
        message names no file.
    RAISES (ValueError): If nothing reads a setting.
    """
    _import_factories()  # `_check_blocks` looks them up in the registry.
    for section, schema in SCHEMAS.items():
        # The annotations of a schema are keyed by the names of its settings.
        _check_names(config.get(section, {}), schema.__annotations__, section, source)

    # Each block in [initialize.components] is for a component of the pipeline. If a part of a
    # config has no [components], any name is allowed there.
    initialized = config.get("initialize", {}).get("components", {})
    components = config.get("components", initialized)
    _check_names(initialized, components, "initialize.components", source)
    _check_blocks(config, path="", source=source)


@cache
def _import_factories() -> None:
    """Import the factories of all installed packages, as spaCy does for each pipeline, so that the
    registry has them."""
    spacy.blank("xx")


def _check_blocks(block: Mapping[str, Any], path: str, source: object) -> None:
    """Check the settings of all blocks within a block that have a registered function or the
    factory of a component, such as [training.optimizer]. The outer block has the name `path`, such
    as "training"; the whole config has the name "". A setting that nothing reads
    is an error."""
    for name, inner_block in block.items():
        if not isinstance(inner_block, Mapping):
            continue
        inner_path = f"{path}.{name}" if path else name
        _check_blocks(inner_block, inner_path, source)
        parameters = _find_parameters(inner_block)
        if parameters is not None:
            # Two names aren't settings: "@losses" says what the function is, and "*" is a block of
            # its positional arguments.
            settings = [key for key in inner_block if not key.startswith(("@", "*"))]
            _check_names(settings, parameters, inner_path, source)


def _find_parameters(block: Mapping[str, Any]) -> Collection[str] | None:
    """Find the settings that a block may have. These are the parameters of its registered function,
    which "@losses" names, for example, or of the factory of its component. None if the block has
    neither function nor factory, if these aren't registered, or if they take settings of any
    name."""
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
        return None  # The function has **settings: any name is allowed.

    if not is_component:
        return list(parameters)
    # A factory also has the parameters "nlp" and "name", which aren't settings: spaCy passes the
    # pipeline and the name of the component.
    return {"factory", *parameters} - {"nlp", "name"}


def check_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Check that the settings that a command line overrides exist in the config, so that a mistyped
    one is noticed. Settings of sections such as [training] are left to `check_settings`.

    config (Mapping[str, Any]): The config, whose variables are not filled in.
    overrides (Mapping[str, Any]): The new values of settings, by names such as "paths.train".
    RAISES (ValueError): If a setting or its section doesn't exist.
    """
    full_config = Config(Language.default_config).merge(dict(config))
    config_text = Config(dict(config)).to_str(interpolate=False)
    for path in overrides:
        names_to_check = path.split(".")
        is_variable = f"${{{path}}}" in config_text  # The config refers to it: ${paths.train}.
        if is_variable or names_to_check[0] in CHECKED:
            # The config may lack the setting itself: the variable gets its value from the
            # overrides, or `check_settings` checks its name. Only its section has to exist.
            names_to_check.pop()
        # Begin with the whole config, and go from one section to the section within it.
        block: Any = full_config
        for i, name in enumerate(names_to_check):
            if not isinstance(block, Mapping):
                break  # The value of a setting has no settings within it.
            section = ".".join(names_to_check[:i])
            _check_names([name], block, section, source=None)
            block = block[name]


def _check_names(
    names: Iterable[str], allowed: Collection[str], section: str, source: object
) -> None:
    """Check that a section, such as "training", has only the settings that are allowed."""
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
