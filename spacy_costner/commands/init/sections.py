"""Configs as text: sections with their comments, which spaCy's parser would drop."""

import json
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import spacy_costner

PACKAGE = Path(spacy_costner.__file__).parent
CONFIGS = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"
"""The configs that are installed with the package; in a clone, the folder beside it."""

HEADER = re.compile(r"\[([^\]]+)\]")


class Section(NamedTuple):
    """A section of a config.

    name (str): Its name, such as "components.ner.loss".
    comment (Tuple[str, ...]): The lines above its name, without "# ".
    body (Tuple[str, ...]): The lines below it, comments included.
    """

    name: str
    comment: Tuple[str, ...] = ()
    body: Tuple[str, ...] = ()

    def with_value(self, setting: str, value: Any) -> "Section":
        """Replace the value of a setting, or add the setting at the end.

        setting (str): The name of the setting.
        value (Any): JSON, or a variable such as "${paths.tree}".
        RETURNS (Section): The new section.
        """
        line = f"{setting} = {as_text(value)}"
        body = [line if re.match(rf"{re.escape(setting)}\s*=", old) else old for old in self.body]
        return self._replace(body=tuple(body if line in body else [*body, line]))


def as_text(value: Any) -> str:
    """A value as a config has it."""
    is_variable = isinstance(value, str) and re.fullmatch(r"\$\{[^}]+\}", value)
    return str(value) if is_variable else json.dumps(value, ensure_ascii=False)


def make_section(name: str, comment: str = "", **settings: Any) -> Section:
    """Build a section.

    name (str): Its name.
    comment (str): What it is, on one line or several.
    **settings (Any): The settings: JSON or variables. `function` is the registered function, such
        as "@misc = spacy_costner.HammingCost.v1".
    RETURNS (Section): The section.
    """
    function = settings.pop("function", None)
    section = Section(name, tuple(comment.splitlines()))
    if function is not None:
        registry, registered = function.split(" = ")
        section = section.with_value(registry, registered)
    for setting, value in settings.items():
        section = section.with_value(setting, value)
    return section


def parse(text: str) -> Tuple[List[str], List[Section]]:
    """Split a config into sections.

    text (str): The config.
    RETURNS (Tuple[List[str], List[Section]]): The comment at its head, a paragraph each, and the
        sections.
    """
    tops: List[Tuple[str, List[str]]] = []
    bodies: List[List[str]] = [[]]
    for line in text.splitlines():
        header = HEADER.fullmatch(line)
        if header is None:
            bodies[-1].append(line)
        else:
            tops.append((header[1], _take_comment(bodies[-1])))
            bodies.append([])
    head = "\n".join(line.removeprefix("#").removeprefix(" ") for line in bodies[0]).strip()
    return re.split(r"\n\n+", head), [
        Section(name, tuple(comment), tuple(filter(None, body)))
        for (name, comment), body in zip(tops, bodies[1:])
    ]


def _take_comment(lines: List[str]) -> List[str]:
    """Remove the comment at the end of a block, which belongs to the next section."""
    start = len(lines)
    while start and lines[start - 1].startswith("#"):
        start -= 1
    comment = [line.removeprefix("#").removeprefix(" ") for line in lines[start:]]
    del lines[start:]
    return comment


def read(name: str) -> Tuple[List[str], List[Section]]:
    """Read a config that is installed with the package.

    name (str): Its path in the folder, without suffix, such as "losses/risk".
    RETURNS (Tuple[List[str], List[Section]]): See `parse`.
    """
    return parse((CONFIGS / f"{name}.cfg").read_text(encoding="utf8"))


def find(sections: Sequence[Section], name: str) -> Optional[Section]:
    """The section of a name, if there is one."""
    return next((section for section in sections if section.name == name), None)


def below(sections: Sequence[Section], name: str) -> List[Section]:
    """The section of a name and those below it."""
    return [each for each in sections if f"{each.name}.".startswith(f"{name}.")]


def rename(sections: Sequence[Section], name: str, new: str) -> List[Section]:
    """Move a section, and those below it, to another name."""
    return [each._replace(name=new + each.name[len(name) :]) for each in below(sections, name)]


def replace(sections: Sequence[Section], name: str, new: Sequence[Section]) -> List[Section]:
    """Replace a section and those below it, where the first of them is.

    RAISES (KeyError): If there is no such section.
    """
    old = below(sections, name)
    if not old:
        raise KeyError(name)
    at = sections.index(old[0])
    kept = [each for each in sections[at:] if each not in old]
    return [*sections[:at], *new, *kept]


def set_values(sections: Sequence[Section], values: Dict[str, Any]) -> List[Section]:
    """Set values by their path, such as "training.max_steps".

    RAISES (KeyError): If there is no such section.
    """
    changed = {section.name: section for section in sections}
    for path, value in values.items():
        name, _, setting = path.rpartition(".")
        changed[name] = changed[name].with_value(setting, value)
    return list(changed.values())


def render(head: Sequence[str], sections: Sequence[Section]) -> str:
    """Write a config.

    head (Sequence[str]): The lines of the comment at its head.
    sections (Sequence[Section]): The sections.
    RETURNS (str): The config.
    """
    blocks = [_comment(head)]
    blocks += [[*_comment(each.comment), f"[{each.name}]", *each.body] for each in sections]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _comment(lines: Sequence[str]) -> List[str]:
    return [f"# {line}".rstrip() for line in lines]
