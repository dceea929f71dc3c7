"""Tasks: a text and annotated spans of it, as a value of JSON.

They are read in the forms of several annotation tools (see `task_from_json` and
`read_label_studio`), and written in those of `FORMS`.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ..saving import save_file
from .files import SURROGATE, Place, Values, read_values, shown

SPAN_KEYS = ("spans", "entities", "ents", "labels", "label")
"""Keys of the list of spans: Prodigy, spaCy and Hugging Face, spaCy's `Doc.to_json`, doccano."""

START_KEYS, END_KEYS = ("start", "start_offset"), ("end", "end_offset")
LABEL_KEYS = ("label", "labels", "type")
USED_KEYS = frozenset([*START_KEYS, *END_KEYS, *LABEL_KEYS, "token_start", "token_end"])
ANSWERS = ("accept", "reject", "ignore")

ANNOTATION_KEYS = ("annotations", "completions")
"""Keys of the annotations of a task of Label Studio: now, and before version 1."""

Range = tuple[int, int]


class TaskSpan(NamedTuple):
    """An annotated span: its characters, from and to; its label; other keys, such as a score."""

    start: int
    end: int
    label: str
    extra: Mapping[str, Any] = {}


TaskToken = tuple[int, int, bool | None]
"""A token: its characters, from and to; and whether it begins a sentence, if that is known."""


class Task(NamedTuple):
    """A text and its annotation.

    text (str): The text.
    spans (list[TaskSpan] | None): The entities. None: nobody has annotated the text.
    tokens (list[TaskToken] | None): The tokens. None: the pipeline's tokenizer finds them.
    missing (tuple[Range, ...]): Other characters, from and to, that nobody has annotated.
    has_unknown_spaces (bool): Whether the text was made of tokens, with single spaces.
    extra (Mapping[str, Any]): Other keys, such as "meta" and "answer".
    """

    text: str
    spans: list[TaskSpan] | None = None
    tokens: list[TaskToken] | None = None
    missing: tuple[Range, ...] = ()
    has_unknown_spaces: bool = False
    extra: Mapping[str, Any] = {}


Annotated = tuple[Place, int | None, Task]
"""A task and its place. Tasks with the same key, unless it is None, are annotations of one text."""


def read_tasks(path: Path) -> Iterator[tuple[Place, Task]]:
    """Read the tasks of a JSON or JSONL file.

    path (Path): The file.
    YIELDS (tuple[Place, Task]): Each task, and its place.
    RAISES (CorpusError): If something isn't a task.
    """
    for place, value in read_values(path)[1]:
        yield place, task_from_json(value, place)


def task_from_json(value: Any, place: Place) -> Task:
    """Read a task in any of these forms, where a span is [start, end, label] or has these keys:

        {"text": "…", "spans": […]}                   Prodigy, also with tokens and answer
        {"text": "…", "label": […]}                   doccano; "labels" and "entities" too
        ["…", {"entities": […]}]                      spaCy 2
        {"text": "…", "ents": […], "tokens": […]}     spaCy, Doc.to_json

    value (Any): The value of a line of JSON.
    place (Place): The line.
    RETURNS (Task): The task.
    RAISES (CorpusError): If it is no task.
    """
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict):
        value = {"text": value[0], **value[1]}
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise place.refuse(f"expected a text and its spans, got {shown(value)}")
    text, key = value["text"], _span_key(value, place)
    known = {"text", "tokens", "missing", "has_unknown_spaces", key}
    missing = value.get("missing", [])
    if not isinstance(missing, list):
        raise place.refuse(f"missing: expected a list of [start, end], got {shown(missing)}")
    if value.get("answer", "accept") not in ANSWERS:
        raise place.refuse(f"answer: expected {', '.join(ANSWERS)}, got {shown(value['answer'])}")
    return Task(
        text=text,
        spans=None if key is None else spans_from_json(value[key], text, key, place),
        tokens=_tokens_from_json(value.get("tokens"), text, place),
        missing=tuple(_range(part, len(text), "missing", place) for part in missing),
        has_unknown_spaces=value.get("has_unknown_spaces") is True,
        extra={name: given for name, given in value.items() if name not in known},
    )


def _span_key(value: Mapping[str, Any], place: Place) -> str | None:
    """The key of the spans; None if nobody has annotated the text."""
    there = [key for key in SPAN_KEYS if value.get(key) is not None]
    lists = [key for key in there if isinstance(value[key], list)]
    filled = [*filter(value.get, lists)]
    if there and not lists:
        raise place.refuse(f"{there[0]}: expected a list of spans, got {shown(value[there[0]])}")
    if len(filled) > 1 and value[filled[0]] != value[filled[1]]:
        raise place.refuse(f"expected one list of spans, got {' and '.join(filled)}")
    return next(iter([*filled, *lists]), None)


def spans_from_json(values: list[Any], text: str, key: str, place: Place) -> list[TaskSpan]:
    """Read the spans under a key. A span with several labels is read once for each label. Offsets
    may count UTF-16 code units, as JavaScript does, if the texts that some spans have in `extra`
    say so.

    RAISES (CorpusError): If something isn't a span of the text.
    """
    units, spans = _utf16(text), []
    for value in values:
        extra: Mapping[str, Any] = {}
        if isinstance(value, dict):
            start, end, label = (
                next((value[key] for key in keys if key in value), None)
                for keys in (START_KEYS, END_KEYS, LABEL_KEYS)
            )
            extra = {name: given for name, given in value.items() if name not in USED_KEYS}
        elif isinstance(value, list) and len(value) == 3:
            start, end, label = value
        else:
            got = shown(value)
            raise place.refuse(f"{key}: expected start, end and label of a span, got {got}")
        start, end = _range([start, end], len(units) // 2, key, place)
        labels: list[Any] = label if isinstance(label, list) else [label]
        if not labels or not all(isinstance(name, str) and name.strip() for name in labels):
            raise place.refuse(f"{key}: expected the label of a span, got {shown(value)}")
        if wrong := [name for name in labels if SURROGATE.search(name)]:
            raise place.refuse(f"{key}: expected a label that can be UTF-8, got {shown(wrong[0])}")
        spans += [TaskSpan(start, end, name, extra) for name in labels]
    if len(units) == 2 * len(text):
        return spans
    if not all(has_its_text(text, span) for span in spans):
        # The characters before a code unit are those that end at it or before.
        ends = _utf16_ends(text)
        others = []
        for span in spans:
            start, end = bisect_right(ends, span.start), bisect_right(ends, span.end)
            others.append(span._replace(start=start, end=end))
        spans = others if all(has_its_text(text, span) for span in others) else spans
    for span in spans:
        _range([span.start, span.end], len(text), key, place)
    return spans


def _range(value: Any, limit: int, key: str, place: Place) -> Range:
    """Two characters of a text, from and to."""
    if not isinstance(value, list) or [*map(type, value)] != [int, int]:
        raise place.refuse(f"{key}: expected two whole numbers, start and end, got {shown(value)}")
    start, end = value
    if not 0 <= start < end <= limit:
        expected = f"a start before its end in a text of {limit} characters"
        raise place.refuse(f"{key}: expected {expected}, got {start} to {end}")
    return start, end


def has_its_text(text: str, span: TaskSpan) -> bool:
    """Whether a span is where its own text is, if it has that."""
    own = span.extra.get("text")
    if not isinstance(own, str):
        return True
    return span.end <= len(text) and own.split() == text[span.start : span.end].split()


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _utf16_ends(text: str) -> list[int]:
    """Where each character ends in UTF-16, in code units. Shape: (C,)"""
    return [*accumulate(2 if character > "\uffff" else 1 for character in text)]


def _tokens_from_json(value: Any, text: str, place: Place) -> list[TaskToken] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(token, dict) for token in value):
        raise place.refuse(f"tokens: expected objects with start and end, got {shown(value)}")
    ranges = [
        _range([one.get("start"), one.get("end")], len(text), "tokens", place) for one in value
    ]
    for token, (start, end) in zip(value, ranges):
        if token.get("text", text[start:end]) != text[start:end]:
            got = shown(token["text"])
            raise place.refuse(f"tokens: expected {text[start:end]!r} at {start}, got {got}")
    for (_, before), (start, end) in pairwise([(0, 0), *ranges, (len(text), len(text))]):
        if start < before or text[before:start].strip():
            got = shown(text[before:start] or text[start:end])
            raise place.refuse(f"tokens: expected all words of the text, once each, got {got}")
    return [(*part, token.get("sent_start")) for part, token in zip(ranges, value)]


def is_label_studio(value: Any) -> bool:
    """Whether the first value of a file is a task of Label Studio."""
    return isinstance(value, dict) and isinstance(value.get("data"), dict)


def read_label_studio(values: Values) -> Iterator[Annotated]:
    """Read the tasks of Label Studio's JSON export, with the annotations of several people.
    Skipped annotations are left out, and if some are marked as ground truth, the others, too."""
    for i, (place, value) in enumerate(values):
        if not is_label_studio(value):
            raise place.refuse(f"expected a task of Label Studio, got {shown(value)}")
        texts = {name: text for name, text in value["data"].items() if isinstance(text, str)}
        if "text" not in texts and len(texts) != 1:
            got = shown([*value["data"]])
            raise place.refuse(f"data: expected a text under 'text', got {got}")
        text = texts.get("text") or next(iter(texts.values()))
        key = next((key for key in ANNOTATION_KEYS if key in value), None)
        given = value[key] if key else []
        are_dicts = isinstance(given, list) and all(isinstance(one, dict) for one in given)
        if not are_dicts or not all(isinstance(one.get("result"), list) for one in given):
            raise place.refuse(f"{key}: expected annotations with results, got {shown(given)}")
        annotations = [one for one in given if not one.get("was_cancelled")]
        truths = [one for one in annotations if one.get("ground_truth")]
        for one in truths or annotations:
            # Relations and other results are not entities.
            results = [result.get("value") for result in one["result"] if isinstance(result, dict)]
            labelled = [span for span in results if isinstance(span, dict) and "labels" in span]
            spans = spans_from_json(labelled, text, "annotations", place)
            yield place, i, Task(text, spans)
        if not annotations:
            yield place, i, Task(text)


def task_to_json(task: Task) -> dict[str, Any]:
    """A task in Prodigy's form. Two keys are ours: "missing" and "has_unknown_spaces"."""
    text = task.text
    value: dict[str, Any] = {"text": text}
    starts, ends = {}, {}
    if task.tokens is not None:
        value["tokens"] = tokens = []
        for i, (start, end, sent_start) in enumerate(task.tokens):
            has_space = text[end : end + 1] == " "
            token = {"text": text[start:end], "start": start, "end": end, "id": i, "ws": has_space}
            tokens.append(token if sent_start is None else {**token, "sent_start": sent_start})
            starts[start] = ends[end] = i
    if task.spans is not None:
        value["spans"] = spans = []
        for start, end, label, extra in task.spans:
            spans.append({"start": start, "end": end, "label": label, **extra})
            if start in starts and end in ends:
                spans[-1].update(token_start=starts[start], token_end=ends[end])
    if task.missing:
        value["missing"] = [list(part) for part in task.missing]
    if task.has_unknown_spaces:
        value["has_unknown_spaces"] = True
    return {**value, **task.extra}


def _task_to_doccano(task: Task) -> dict[str, Any]:
    """A task for doccano: {"text": "…", "label": [[start, end, label], …], "scores": […], …}. Its
    spans can't have scores. doccano shows other keys as metadata of the text."""
    spans = task.spans or []
    value: dict[str, Any] = {"text": task.text, "label": [[*span[:3]] for span in spans]}
    if any("score" in span.extra for span in spans):
        value["scores"] = [span.extra.get("score") for span in spans]
    return {**value, **task.extra}


def _task_to_label_studio(task: Task) -> dict[str, Any]:
    """A task for Label Studio: {"data": {"text": "…", …}, "predictions": [{"result": […]}]}. The
    labeling interface needs <Labels name="label" toName="text"> and <Text name="text"
    value="$text"/>. Offsets count UTF-16 code units, as JavaScript does."""
    text, results = task.text, []
    borders = [0, *_utf16_ends(text)]
    for i, (start, end, label, extra) in enumerate(task.spans or []):
        first, last = borders[start], borders[end]
        value = {"start": first, "end": last, "text": text[start:end], "labels": [label]}
        names = {"id": str(i), "from_name": "label", "to_name": "text", "type": "labels"}
        results.append({**names, "value": value, **extra})
    return {"data": {"text": text, **task.extra}, "predictions": [{"result": results}]}


FORMS: dict[str, tuple[Any, str]] = {
    "prodigy": (task_to_json, ".jsonl"),
    "doccano": (_task_to_doccano, ".jsonl"),
    "label-studio": (_task_to_label_studio, ".json"),
}
"""What annotation tools import: a task as JSON, and the suffix of files: .json for an array."""


def check_form(name: str, path: Path) -> None:
    """Check that there is such a form, and that the tool reads a file of this name."""
    if name not in FORMS:
        raise ValueError(f"format: expected one of {[*FORMS]}, got {name!r}")
    if path.suffix != FORMS[name][1]:
        raise ValueError(f"{path}: expected a name that ends in {FORMS[name][1]}, for {name}")


def write_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Write tasks to a file that an annotation tool imports: see `save_tasks`."""
    to_json, suffix = FORMS[form]
    lines = (json.dumps(to_json(task), ensure_ascii=False) for task in tasks)
    # Python's escape for half of a surrogate pair, such as in metadata, is that of JSON.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        if suffix == ".json":
            file.write("[\n" + ",\n".join(lines) + "\n]\n")
        else:
            file.writelines(f"{line}\n" for line in lines)


def save_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Save tasks to a file that an annotation tool imports. The file is there when it is whole.

    path (Path): The file.
    tasks (Iterable[Task]): The tasks.
    form (str): "prodigy", "doccano" (both JSONL) or "label-studio" (JSON).
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    check_form(form, path)
    save_file(path, lambda new: write_tasks(new, tasks, form))
