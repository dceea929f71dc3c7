"""Read Rasa's training data: example texts for intents, with their entities.

    {"rasa_nlu_data": {"common_examples": [
        {"text": "to Oslo", "entities": [{"start": 3, "end": 7, "entity": "city"}]}]}}

    nlu:
    - intent: go
      examples: |
        - to [Oslo](city)
        - to [the capital]{"entity": "city", "value": "Oslo"}

The second form is YAML. In the older Markdown format, the same examples follow a line such as
"## intent:go". In each example, all entities are annotated.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import srsly

from .files import FilePlace, Values, read_head, read_text, shown
from .tasks import AnnotatedTask, Task, spans_from_json

DATA_KEY = "rasa_nlu_data"
EXAMPLES_KEYS = ("common_examples", "entity_examples", "intent_examples")

YAML_SUFFIXES = (".yml", ".yaml")
MARKDOWN_SUFFIX = ".md"
NLU = re.compile(r"^nlu\s*:", re.MULTILINE)
INTENT = re.compile(r"^## *intent:", re.MULTILINE)
SECTION = re.compile(r"## *(\w+):")
EXAMPLE = re.compile(r"\s*[-*+]\s*(.*\S)\s*")

ENTITY = re.compile(
    r"""
    \[(?P<text>[^\[\]\n]+)\]
    (?:
        \((?P<label>[^:()\n]+)(?::(?:[^()\n]|\([^()\n]*\))*)?\)  # with a value that is ignored
        |(?P<object>\{[^{}\n]+\})
        |(?P<list>\[\{[^\[\]\n]+\}\])
    )
    """,
    re.VERBOSE,
)
"""Matches a text with one or several entities in an example: its label, an object that contains the
label, or a list of such objects."""

MARKUP = re.compile(r"\](\(|\{|\[\{)")
"""Matches markup between the text of an entity and its label."""


def is_rasa(record: Any) -> bool:
    """Check whether the first record of a JSON file contains Rasa's training data."""
    return isinstance(record, dict) and isinstance(record.get(DATA_KEY), dict)


def is_rasa_text(path: Path) -> bool:
    """Check whether a file contains Rasa's training data in YAML or Markdown."""
    if path.suffix in YAML_SUFFIXES:
        return NLU.search(read_head(path)) is not None
    return path.suffix == MARKDOWN_SUFFIX and INTENT.search(read_head(path)) is not None


def read_rasa(records: Values) -> Iterator[AnnotatedTask]:
    """Read the examples of a JSON file.

    records (Values): The records of the file.
    YIELDS (AnnotatedTask): The examples.
    RAISES (CorpusError): If a record doesn't contain Rasa's training data, or an example can't be
        read.
    """
    for place, record in records:
        if not is_rasa(record):
            raise place.refuse(f"expected Rasa's {DATA_KEY}, got {shown(record)}")
        for key in EXAMPLES_KEYS:
            examples = record[DATA_KEY].get(key, [])
            if not isinstance(examples, list):
                raise place.refuse(f"{key}: expected a list of examples, got {shown(examples)}")
            for example in examples:
                yield AnnotatedTask(place, text_key=None, task=_read_example(example, place))


def _read_example(example: Any, place: FilePlace) -> Task:
    """Read a JSON example. The value of an entity isn't compared with its text, because it may be a
    synonym."""
    if not isinstance(example, dict) or not isinstance(example.get("text"), str):
        raise place.refuse(f"expected an example with a text, got {shown(example)}")
    entities = example.get("entities", [])
    if not isinstance(entities, list) or not all(isinstance(entity, dict) for entity in entities):
        raise place.refuse(f"entities: expected a list of entities, got {shown(entities)}")
    json_spans = [[entity.get(key) for key in ("start", "end", "entity")] for entity in entities]
    spans = spans_from_json(json_spans, example["text"], "entities", place)
    return Task(example["text"], spans, extra={"intent": example.get("intent")})


def read_rasa_text(path: Path) -> Iterator[AnnotatedTask]:
    """Read the examples of a YAML or Markdown file.

    path (Path): The YAML or Markdown file.
    YIELDS (AnnotatedTask): The examples.
    RAISES (CorpusError): If the file can't be read.
    """
    lines = read_text(path).split("\n")
    texts = _yaml_examples(path) if path.suffix in YAML_SUFFIXES else _markdown_examples(lines)
    number = 1
    for text in texts:
        # The YAML parser provides no line numbers, so search the next lines for the text.
        with suppress(StopIteration):
            number = next(i for i in range(number, len(lines) + 1) if text in lines[i - 1])
        place = FilePlace(path, number)
        yield AnnotatedTask(place, text_key=None, task=_read_marked(text, place))


def _yaml_examples(path: Path) -> Iterator[str]:
    """Yield the text of each intent example in a YAML file, with its markup."""
    begin = FilePlace(path, number=1)
    try:
        data = srsly.yaml_loads(read_text(path))
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError) as error:
        raise begin.refuse(f"expected YAML: {error}") from None
    items = data.get("nlu") if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise begin.refuse(f"nlu: expected a list, got {shown(items)}")
    for item in items:
        if not isinstance(item, dict) or "intent" not in item:
            continue  # synonyms, regular expressions and lookup tables
        examples = item.get("examples")
        if isinstance(examples, str):
            for line in examples.split("\n"):
                if line.strip() and EXAMPLE.fullmatch(line) is None:
                    expected = "expected lines that begin with -"
                    raise begin.refuse(f"examples: {expected}, got {shown(line)}")
            yield from _marked_lines(examples.split("\n"))
            continue
        if not isinstance(examples, list):
            raise begin.refuse(f"examples: expected lines that begin with -, got {shown(examples)}")
        for example in examples:
            text = example.get("text") if isinstance(example, dict) else None
            if not isinstance(text, str):
                raise begin.refuse(f"examples: expected a text, got {shown(example)}")
            yield text.strip().removeprefix("- ")


def _markdown_examples(lines: list[str]) -> Iterator[str]:
    """Yield the text of each intent example in a Markdown file, with its markup."""
    section = ""
    for line in lines:
        match = SECTION.match(line)
        if match is not None:
            section = match[1]
        elif section == "intent":
            yield from _marked_lines([line])


def _marked_lines(lines: list[str]) -> Iterator[str]:
    """Yield the text of each list item: a line that begins with "-", "*" or "+"."""
    for line in lines:
        match = EXAMPLE.fullmatch(line)
        if match is not None:
            yield match[1]


def _read_marked(marked: str, place: FilePlace) -> Task:
    """Create a task from a text in which entities are marked up. Raises an error if any markup
    remains."""
    text = ""
    json_spans: list[list[Any]] = []
    end = 0  # the end of the last entity
    for match in ENTITY.finditer(marked):
        text += marked[end : match.start()]
        start = len(text)
        text += match["text"]
        for label in _labels_of(match, place):
            json_spans.append([start, len(text), label])
        end = match.end()
    text += marked[end:]
    if MARKUP.search(text):
        raise place.refuse(f"expected entities such as [Oslo](city), got {shown(text)}")
    return Task(text, spans_from_json(json_spans, text, "entities", place))


def _labels_of(match: re.Match[str], place: FilePlace) -> list[Any]:
    """Read the labels of a match of `ENTITY`. The labels in JSON objects aren't checked."""
    if match["label"] is not None:
        return [match["label"]]
    json_text = match["list"] or f"[{match['object']}]"
    entities: list[Any] = []
    with suppress(ValueError, RecursionError):
        entities = json.loads(json_text)
    if not entities or not all(isinstance(entity, dict) for entity in entities):
        raise place.refuse(f"expected entities as JSON objects, got {shown(json_text)}")
    return [entity.get("entity") for entity in entities]
