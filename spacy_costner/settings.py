"""Errors for settings that nothing reads, with the nearest name. spaCy silently drops unknown
settings of [training], [nlp] and [initialize]."""

import inspect
from difflib import get_close_matches
from typing import Any, Collection, Iterator, List, Mapping, Optional, Tuple

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
    """Check that every setting of a config is read by something.

    config (Mapping[str, Any]): A config for `spacy train`, complete or not.
    source (object): The start of the message, such as its file.
    RAISES (ValueError): If there is a setting that nothing reads.
    """
    registry._entry_point_factories.get_all()  # Factories are registered then.
    for section, schema in SCHEMAS.items():
        _check(config.get(section, {}), schema.__annotations__, section, source)
    initialized = config.get("initialize", {}).get("components", {})
    _check(initialized, config.get("components", initialized), "initialize.components", source)
    for section, block in _blocks(config, ""):
        known = _arguments(block)
        if known is not None:
            settings = [name for name in block if name[:1] not in ("@", "*")]
            _check(settings, known, section, source)


def check_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Check that settings of the command line exist in the config.

    config (Mapping[str, Any]): The config as it is in its file, variables not filled in.
    overrides (Mapping[str, Any]): The settings, such as "paths.train".
    RAISES (ValueError): If a section isn't there or, where all names are allowed, nothing refers
        to the setting. Other settings are left to `check_settings`.
    """
    whole = Config(Language.default_config).merge(dict(config))
    text = Config(dict(config)).to_str(interpolate=False)
    for path in overrides:
        place: Any = whole
        names = path.split(".")
        for i, name in enumerate(names):
            is_last = i == len(names) - 1
            is_read = is_last and (names[0] in CHECKED or f"${{{path}}}" in text)
            if not isinstance(place, Mapping) or is_read:
                break
            _check([name], place, ".".join(names[:i]), None)
            place = place[name]


def _check(names: Collection[str], known: Collection[str], section: str, source: object) -> None:
    for name in names:
        if name in known:
            continue
        near = get_close_matches(name, known, n=1)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
        )
        path = f"{section}.{name}" if section else name
        raise ValueError(
            f"{'' if source is None else f'{source}: '}{path}: expected a setting of "
            f"{f'[{section}]' if section else 'the config'}, got {name!r}: {hint}"
        )


def _blocks(block: Mapping[str, Any], path: str) -> Iterator[Tuple[str, Mapping[str, Any]]]:
    """All blocks in a block, with their names."""
    for name, value in block.items():
        if isinstance(value, Mapping):
            inner = f"{path}.{name}" if path else name
            yield inner, value
            yield from _blocks(value, inner)


def _arguments(block: Mapping[str, Any]) -> Optional[List[str]]:
    """The names of settings that the function of a block takes; None if it takes any, or there is
    no function that we know."""
    functions = [(name[1:], value) for name, value in block.items() if name.startswith("@")]
    own: List[str] = []
    if not functions and "factory" in block:
        functions, own = [("factories", block["factory"])], ["factory"]
    if len(functions) != 1:
        return None
    try:
        parameters = inspect.signature(registry.get(*functions[0])).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return own + [p.name for p in parameters if not own or p.name not in ("nlp", "name")]
