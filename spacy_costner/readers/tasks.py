"""Tasks: a text and annotated spans of it, as a value of JSON.

They are read in the forms of several annotation tools (see `task_from_json` and
`read_label_studio`), and written in those of `TASK_FORMS`.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ..saving import save_file
from .files import SURROGATE, FilePlace, Values, read_values, shown

SPAN_KEYS = ("spans", "entities", "ents", "labels", "label")
"""Keys of the list of spans: Prodigy, spaCy and Hugging Face, spaCy's `Doc.to_json`, doccano."""

START_KEYS = ("start", "start_offset")
END_KEYS = ("end", "end_offset")
LABEL_KEYS = ("label", "labels", "type")
USED_KEYS = frozenset([*START_KEYS, *END_KEYS, *LABEL_KEYS, "token_start", "token_end"])
ANSWERS = ("accept", "reject", "ignore")

ANNOTATION_KEYS = ("annotations", "completions")
"""Keys of the annotations of a task of Label Studio: now, and before version 1."""

Range = tuple[int, int]
"""Characters of a text or tokens of a doc, from and to."""


class TaskSpan(NamedTuple):
    """An annotated span: its characters, from and to; its label; other keys, such as a score."""

    start: int
    end: int
    label: str
    extra: Mapping[str, Any] = {}


class TaskToken(NamedTuple):
    """A token: its characters, from and to; and whether it begins a sentence, if that is known."""

    start: int
    end: int
    sent_start: bool | None


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


class AnnotatedTask(NamedTuple):
    """A task and its place. Tasks with the same text key, unless it is None, are annotations of one
    text."""

    place: FilePlace
    text_key: int | None
    task: Task


def read_tasks(path: Path) -> Iterator[tuple[FilePlace, Task]]:
    """Read the tasks of a JSON or JSONL file.

    path (Path): The file.
    YIELDS (tuple[FilePlace, Task]): Each task, and its place.
    RAISES (CorpusError): If something isn't a task.
    """
    _, records = read_values(path)
    for place, record in records:
        yield place, task_from_json(record, place)


def task_from_json(record: Any, place: FilePlace) -> Task:
    """Read a task in any of these forms, where a span is [start, end, label] or has these keys:

        {"text": "…", "spans": […]}                   Prodigy, also with tokens and answer
        {"text": "…", "label": […]}                   doccano; "labels" and "entities" too
        ["…", {"entities": […]}]                      spaCy 2
        {"text": "…", "ents": […], "tokens": […]}     spaCy, Doc.to_json

    record (Any): The value of a line of JSON.
    place (FilePlace): The line.
    RETURNS (Task): The task.
    RAISES (CorpusError): If it is no task.
    """
    # The pair of spaCy 2 becomes one object.
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict):
        record = {"text": record[0], **record[1]}
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise place.refuse(f"expected a text and its spans, got {shown(record)}")
    text = record["text"]
    span_key = _find_span_key(record, place)
    missing = record.get("missing", [])
    if not isinstance(missing, list):
        raise place.refuse(f"missing: expected a list of [start, end], got {shown(missing)}")
    if record.get("answer", "accept") not in ANSWERS:
        raise place.refuse(f"answer: expected {', '.join(ANSWERS)}, got {shown(record['answer'])}")
    spans = None
    if span_key is not None:
        spans = spans_from_json(record[span_key], text, span_key, place)
    task_keys = {"text", "tokens", "missing", "has_unknown_spaces", span_key}
    return Task(
        text=text,
        spans=spans,
        tokens=_tokens_from_json(record.get("tokens"), text, place),
        missing=tuple(_range_from_json(pair, len(text), "missing", place) for pair in missing),
        has_unknown_spaces=record.get("has_unknown_spaces") is True,
        extra={key: value for key, value in record.items() if key not in task_keys},
    )


def _find_span_key(record: Mapping[str, Any], place: FilePlace) -> str | None:
    """The key of the spans; None if nobody has annotated the text."""
    present = [key for key in SPAN_KEYS if record.get(key) is not None]
    lists = [key for key in present if isinstance(record[key], list)]
    if present and not lists:
        key = present[0]
        raise place.refuse(f"{key}: expected a list of spans, got {shown(record[key])}")
    # A tool may write several of the keys, and leave those empty that it doesn't use.
    filled = [key for key in lists if record[key]]
    if len(filled) > 1 and record[filled[0]] != record[filled[1]]:
        raise place.refuse(f"expected one list of spans, got {' and '.join(filled)}")
    if filled:
        return filled[0]
    return lists[0] if lists else None


def spans_from_json(values: list[Any], text: str, key: str, place: FilePlace) -> list[TaskSpan]:
    """Read the spans under a key. A span with several labels is read once for each label. Offsets
    may count UTF-16 code units, as JavaScript does, if the texts that some spans have in `extra`
    say so.

    values (list[Any]): The values of the spans.
    text (str): The text.
    key (str): Their key, for errors.
    place (FilePlace): Their place, for errors.
    RETURNS (list[TaskSpan]): The spans.
    RAISES (CorpusError): If something isn't a span of the text.
    """
    n_units = _utf16_length(text)
    spans: list[TaskSpan] = []
    for value in values:
        spans += _span_from_json(value, n_units, key, place)
    if n_units == len(text):
        return spans
    # Some characters are two code units, so offsets may count either. Characters are tried first.
    if not all(has_its_text(text, span) for span in spans):
        in_characters = _spans_in_characters(spans, text)
        if all(has_its_text(text, span) for span in in_characters):
            spans = in_characters
    for span in spans:
        _range_from_json([span.start, span.end], len(text), key, place)
    return spans


def _span_from_json(value: Any, limit: int, key: str, place: FilePlace) -> list[TaskSpan]:
    """Read a span, once for each of its labels. `limit` is the length of the text."""
    extra: Mapping[str, Any] = {}
    if isinstance(value, dict):
        start = _first_value(value, START_KEYS)
        end = _first_value(value, END_KEYS)
        label = _first_value(value, LABEL_KEYS)
        extra = {name: item for name, item in value.items() if name not in USED_KEYS}
    elif isinstance(value, list) and len(value) == 3:
        start, end, label = value
    else:
        got = shown(value)
        raise place.refuse(f"{key}: expected start, end and label of a span, got {got}")
    start, end = _range_from_json([start, end], limit, key, place)
    # A span of Label Studio has a list of labels.
    labels: list[Any] = label if isinstance(label, list) else [label]
    if not labels or not all(isinstance(name, str) and name.strip() for name in labels):
        raise place.refuse(f"{key}: expected the label of a span, got {shown(value)}")
    for name in labels:
        if SURROGATE.search(name):
            raise place.refuse(f"{key}: expected a label that can be UTF-8, got {shown(name)}")
    return [TaskSpan(start, end, name, extra) for name in labels]


def _first_value(record: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """The value of the first of some keys that a record has."""
    for key in keys:
        if key in record:
            return record[key]
    return None


def _range_from_json(value: Any, limit: int, key: str, place: FilePlace) -> Range:
    """Two characters of a text, from and to. `limit` is the length of the text."""
    is_pair = isinstance(value, list) and len(value) == 2
    if not is_pair or type(value[0]) is not int or type(value[1]) is not int:
        raise place.refuse(f"{key}: expected two whole numbers, start and end, got {shown(value)}")
    start, end = value
    if not 0 <= start < end <= limit:
        expected = f"a start before its end in a text of {limit} characters"
        raise place.refuse(f"{key}: expected {expected}, got {start} to {end}")
    return start, end


def has_its_text(text: str, span: TaskSpan) -> bool:
    """Whether a span is where the text is that it has in `extra`. True if it has none."""
    span_text = span.extra.get("text")
    if not isinstance(span_text, str):
        return True
    if span.end > len(text):
        return False
    # Tools may change the white space.
    return span_text.split() == text[span.start : span.end].split()


def _utf16_length(text: str) -> int:
    """The number of UTF-16 code units. Each is two bytes; half of a surrogate pair is one, too."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _utf16_ends(text: str) -> list[int]:
    """Where each character ends in UTF-16, in code units. Shape: (C,)"""
    return list(accumulate(2 if character > "\uffff" else 1 for character in text))


def _spans_in_characters(spans: Iterable[TaskSpan], text: str) -> list[TaskSpan]:
    """Convert the offsets of spans from code units to characters."""
    ends = _utf16_ends(text)
    converted = []
    for span in spans:
        # The characters before a code unit are those that end at it or before.
        start = bisect_right(ends, span.start)
        end = bisect_right(ends, span.end)
        converted.append(span._replace(start=start, end=end))
    return converted


def _tokens_from_json(value: Any, text: str, place: FilePlace) -> list[TaskToken] | None:
    """Read the tokens of a task, and check that they are all words of its text, in order."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(token, dict) for token in value):
        raise place.refuse(f"tokens: expected objects with start and end, got {shown(value)}")
    tokens = []
    for token in value:
        offsets = [token.get("start"), token.get("end")]
        start, end = _range_from_json(offsets, len(text), "tokens", place)
        tokens.append(TaskToken(start, end, token.get("sent_start")))
    for token, (start, end, _) in zip(value, tokens):
        expected = text[start:end]
        if token.get("text", expected) != expected:
            got = shown(token["text"])
            raise place.refuse(f"tokens: expected {expected!r} at {start}, got {got}")
    end_of_text = TaskToken(len(text), len(text), None)
    previous_end = 0
    for start, end, _ in [*tokens, end_of_text]:
        text_between = text[previous_end:start]
        if start < previous_end or text_between.strip():
            got = shown(text_between or text[start:end])
            raise place.refuse(f"tokens: expected all words of the text, once each, got {got}")
        previous_end = end
    return tokens


def is_label_studio(record: Any) -> bool:
    """Whether the first record of a file is a task of Label Studio."""
    return isinstance(record, dict) and isinstance(record.get("data"), dict)


def read_label_studio(records: Values) -> Iterator[AnnotatedTask]:
    """Read the tasks of Label Studio's JSON export, with the annotations of several people.
    Skipped annotations are left out, and if some are marked as ground truth, the others, too.

    records (Values): The records of the file.
    YIELDS (AnnotatedTask): Each annotation.
    RAISES (CorpusError): If a record is no task with a text and annotations.
    """
    for i, (place, record) in enumerate(records):
        if not is_label_studio(record):
            raise place.refuse(f"expected a task of Label Studio, got {shown(record)}")
        text = _label_studio_text(record["data"], place)
        annotations = _label_studio_annotations(record, place)
        if not annotations:
            yield AnnotatedTask(place, i, Task(text))
            continue
        truths = [annotation for annotation in annotations if annotation.get("ground_truth")]
        for annotation in truths or annotations:
            # Relations and other results are not entities.
            labelled = []
            for result in annotation["result"]:
                value = result.get("value") if isinstance(result, dict) else None
                if isinstance(value, dict) and "labels" in value:
                    labelled.append(value)
            spans = spans_from_json(labelled, text, "annotations", place)
            yield AnnotatedTask(place, i, Task(text, spans))


def _label_studio_text(data: Mapping[str, Any], place: FilePlace) -> str:
    """The text under "text", or else the only text of a task."""
    texts = {name: value for name, value in data.items() if isinstance(value, str)}
    if "text" not in texts and len(texts) != 1:
        raise place.refuse(f"data: expected a text under 'text', got {shown([*data])}")
    first_text = next(iter(texts.values()))
    return texts.get("text") or first_text


def _label_studio_annotations(
    record: Mapping[str, Any], place: FilePlace
) -> list[Mapping[str, Any]]:
    """The annotations of a task that nobody has skipped."""
    for key in ANNOTATION_KEYS:
        if key in record:
            break
    else:
        return []
    annotations = record[key]
    if not isinstance(annotations, list) or not all(map(_has_result, annotations)):
        got = shown(annotations)
        raise place.refuse(f"{key}: expected annotations with results, got {got}")
    return [annotation for annotation in annotations if not annotation.get("was_cancelled")]


def _has_result(annotation: Any) -> bool:
    return isinstance(annotation, dict) and isinstance(annotation.get("result"), list)


def task_to_json(task: Task) -> dict[str, Any]:
    """A task in Prodigy's form. Two keys are ours: "missing" and "has_unknown_spaces"."""
    text = task.text
    record: dict[str, Any] = {"text": text}
    token_at_start: dict[int, int] = {}
    token_at_end: dict[int, int] = {}
    if task.tokens is not None:
        record["tokens"] = []
        for i, (start, end, sent_start) in enumerate(task.tokens):
            has_space = text[end : end + 1] == " "
            token = {"text": text[start:end], "start": start, "end": end, "id": i, "ws": has_space}
            if sent_start is not None:
                token["sent_start"] = sent_start
            record["tokens"].append(token)
            token_at_start[start] = i
            token_at_end[end] = i
    if task.spans is not None:
        record["spans"] = []
        for start, end, label, extra in task.spans:
            span = {"start": start, "end": end, "label": label, **extra}
            if start in token_at_start and end in token_at_end:
                span["token_start"] = token_at_start[start]
                span["token_end"] = token_at_end[end]
            record["spans"].append(span)
    if task.missing:
        record["missing"] = [list(characters) for characters in task.missing]
    if task.has_unknown_spaces:
        record["has_unknown_spaces"] = True
    return {**record, **task.extra}


def _task_to_doccano(task: Task) -> dict[str, Any]:
    """A task for doccano: {"text": "…", "label": [[start, end, label], …], "scores": […], …}. Its
    spans can't have scores. doccano shows other keys as metadata of the text."""
    spans = task.spans or []
    labels = [[span.start, span.end, span.label] for span in spans]
    record: dict[str, Any] = {"text": task.text, "label": labels}
    if any("score" in span.extra for span in spans):
        record["scores"] = [span.extra.get("score") for span in spans]
    return {**record, **task.extra}


def _task_to_label_studio(task: Task) -> dict[str, Any]:
    """A task for Label Studio: {"data": {"text": "…", …}, "predictions": [{"result": […]}]}. The
    labeling interface needs <Labels name="label" toName="text"> and <Text name="text"
    value="$text"/>. Offsets count UTF-16 code units, as JavaScript does."""
    text = task.text
    # The code unit before each character, and the one after the last. (C + 1,)
    units = [0, *_utf16_ends(text)]
    results = []
    for i, (start, end, label, extra) in enumerate(task.spans or []):
        value = {
            "start": units[start],
            "end": units[end],
            "text": text[start:end],
            "labels": [label],
        }
        result = {"id": str(i), "from_name": "label", "to_name": "text", "type": "labels"}
        results.append({**result, "value": value, **extra})
    return {"data": {"text": text, **task.extra}, "predictions": [{"result": results}]}


class TaskForm(NamedTuple):
    """How a tool imports tasks: what makes the JSON of a task, and the suffix of files. A file with
    .json is an array, one with .jsonl has a task on each line."""

    to_json: Callable[[Task], dict[str, Any]]
    suffix: str


TASK_FORMS: dict[str, TaskForm] = {
    "prodigy": TaskForm(task_to_json, ".jsonl"),
    "doccano": TaskForm(_task_to_doccano, ".jsonl"),
    "label-studio": TaskForm(_task_to_label_studio, ".json"),
}
"""What annotation tools import."""


def check_task_form(name: str, path: Path) -> None:
    """Check that there is such a form, and that the tool reads a file of this name."""
    if name not in TASK_FORMS:
        raise ValueError(f"format: expected one of {[*TASK_FORMS]}, got {name!r}")
    suffix = TASK_FORMS[name].suffix
    if path.suffix != suffix:
        raise ValueError(f"{path}: expected a name that ends in {suffix}, for {name}")


def write_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Write tasks to a file that an annotation tool imports: see `save_tasks`."""
    to_json, suffix = TASK_FORMS[form]
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
    check_task_form(form, path)
    save_file(path, lambda new_path: write_tasks(new_path, tasks, form))
