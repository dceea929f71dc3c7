"""Read the labeling config of a Label Studio project, which defines the text and the labels to
annotate.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ..readers.files import shown
from .store import SessionError, field

VARIABLE = re.compile(r"\$([\w\[\].{}]+)", re.ASCII)
"""The pattern of a variable in the value of a <Text> element, such as "$text", or "$author.name"
for a nested value."""


class LabelingInterface(NamedTuple):
    """The part of a project's labeling config that defines how to annotate entities in a text. It
    is used to convert predictions and to read annotations.

    text_name (str): The name of the <Text> element.
    text_value (str): The value of the <Text> element: a variable, such as "$text", or a string that
        contains variables.
    labels (dict[str, str]): Maps each label to the name of its <Labels> element.
    labels_names (tuple[str, ...]): The names of all <Labels> elements for the text.
    other_texts (tuple[str, ...]): The names of other <Text> elements with labels. Their annotations
        are ignored.
    other_names (frozenset[str]): The names of all other elements.
    """

    text_name: str
    text_value: str
    labels: dict[str, str]
    labels_names: tuple[str, ...]
    other_texts: tuple[str, ...]
    other_names: frozenset[str]

    def text_of(self, task: Any) -> str:
        """Get the text of a task.

        task (Any): The task in Label Studio's JSON format.
        RETURNS (str): The text.
        RAISES (SessionError): If the task has no text.
        """
        data = task.get("data") if isinstance(task, dict) else None
        values = data if isinstance(data, dict) else {}

        def text_under(name: str) -> str:
            """Get the text with the given name from the task's data."""
            value = look_up(values, name)
            if not isinstance(value, str):
                expected = f"a task with a text under {name!r} in its data"
                raise SessionError(f"tasks: expected {expected}, got {shown(task)}")
            return value

        # If the value consists of a single variable, its name may contain any characters.
        name = self.text_value.removeprefix("$")
        if self.text_value.startswith("$") and (name in values or not VARIABLE.match(f"${name}")):
            return text_under(name)
        return VARIABLE.sub(lambda variable: text_under(variable[1]), self.text_value)

    def results_of(self, annotation: Mapping[str, Any]) -> list[Any]:
        """Get the results of an annotation for this text. Results of other elements, such as
        choices or labels of another text, are ignored.

        annotation (Mapping[str, Any]): The annotation in Label Studio's JSON format.
        RETURNS (list[Any]): The results.
        RAISES (SessionError): If the annotation has no list of results, if a span has no labels, or
            if labels belong to an element that isn't in the labeling config, for example because
            the element was renamed.
        """
        results: list[Any] = []
        for result in field(annotation, "result", list):
            if not isinstance(result, dict):
                raise SessionError(f"annotations: expected results, got {shown(result)}")
            names = [result.get("from_name"), result.get("to_name")]
            if any(isinstance(name, str) and name in self.other_names for name in names):
                continue
            value = result.get("value")
            has_labels = isinstance(value, dict) and "labels" in value
            is_of_text = names[0] in self.labels_names and names[1] == self.text_name
            if has_labels and not is_of_text:
                expected = f"labels by {[*self.labels_names]} of {self.text_name!r}"
                raise SessionError(f"annotations: expected {expected}, got {shown(names)}")
            if is_of_text and not has_labels:
                raise SessionError(f"annotations: expected a span with labels, got {shown(value)}")
            results.append(result)
        return results


def look_up(values: Mapping[str, Any], path: str) -> Any:
    """Look up the variable `path` in a task's data. If the full path isn't a key, it is split at
    dots and brackets into keys and list indices. Return None if there is no such value."""
    if path in values:
        return values[path]
    value: Any = values
    for name in re.findall(r"[^.\[\]{}]+", path):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def parse_xml(config: Any, expected: str) -> ElementTree.Element:
    """Parse a labeling config. Error messages start with `expected`.

    RAISES (SessionError): If the config isn't valid XML or has a document type declaration.
    """
    # Refuse document type declarations ("<!DOCTYPE"), because their XML entities can expand
    # exponentially. Comments ("<!--") are allowed.
    if not isinstance(config, str) or "<!" in config.replace("<!--", ""):
        raise SessionError(f"{expected}, got {shown(config)}")
    try:
        return ElementTree.fromstring(config)
    # `fromstring` raises a ValueError for text that can't be encoded in UTF-8, and a LookupError
    # for an unknown encoding.
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise SessionError(f"{expected}, got {shown(config)}: {error}") from None


def read_labeling_config(record: Mapping[str, Any], name: str) -> LabelingInterface:
    """Read a labeling config in XML. If several texts have labels, only the labels of the first
    text are used. They may be defined in several <Labels> elements.

    record (Mapping[str, Any]): The JSON object that contains the config.
    name (str): The key of the config in the object.
    RETURNS (LabelingInterface): The text and the labels to annotate.
    RAISES (SessionError): If the config defines no labels for a text in the tasks' data.
    """
    config = record.get(name)
    expected = f'{name}: expected <Labels name="…" toName="…"> and <Text name="…" value="$…">'
    root = parse_xml(config, expected)
    texts = {element.get("name"): element for element in root.iter("Text")}
    elements = [element for element in root.iter("Labels") if element.get("toName") in texts]
    if not elements:
        raise SessionError(f"{expected}, got {shown(config)}")
    text_name = elements[0].get("toName") or ""
    text = texts[text_name]
    text_value = text.get("value") or ""
    if "$" not in text_value:
        raise SessionError(f"{expected}, got the value {shown(text_value)}")
    # With other attribute values, the text is stored at a URL or encoded in base64.
    for attribute, plain in (("valueType", "text"), ("encoding", "none")):
        if text.get(attribute, plain) != plain:
            raise SessionError(
                f"{name}: expected a text in the data of tasks, got one with "
                f"{attribute}={text.get(attribute)!r}"
            )
    labels: dict[str, str] = {}
    labels_names: list[str] = []
    other_texts: list[str] = []
    for element in elements:
        labels_name = element.get("name") or ""
        if element.get("toName") != text_name:
            other_texts.append(element.get("toName") or "")
            continue
        labels_names.append(labels_name)
        for label in element.iter("Label"):
            value = label.get("alias") or label.get("value")
            if value:
                labels.setdefault(value, labels_name)
    names = {element.get("name") or "" for element in root.iter()}
    return LabelingInterface(
        text_name=text_name,
        text_value=text_value,
        labels=labels,
        labels_names=tuple(labels_names),
        other_texts=tuple(dict.fromkeys(other_texts)),
        other_names=frozenset(names.difference(labels_names, ["", text_name])),
    )
