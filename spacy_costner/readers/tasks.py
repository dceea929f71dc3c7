"""Tasks: a text and annotated spans of it, as a value of JSON.

They are read in the forms of several annotation tools (see `task_from_json` and
`read_label_studio`), and written in those of `TASK_FORMS`. A record is the value of JSON of a task,
`json_span` that of a span. Offsets are in characters, unless UTF-16 code units are named.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
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
"""Keys of a span that don't become part of `TaskSpan.extra`."""

ANSWERS = ("accept", "reject", "ignore")

ANNOTATION_KEYS = ("annotations", "completions")
"""Keys of the annotations of a task of Label Studio: now, and before version 1."""

Range = tuple[int, int]
"""Characters of a text or tokens of a doc, from and to."""


class TaskSpan(NamedTuple):
    """An annotated span of a text.

    start (int): Its first character.
    end (int): The character after its last.
    label (str): Its label.
    extra (Mapping[str, Any]): Other keys of its JSON, such as a score.
    """

    start: int
    end: int
    label: str
    extra: Mapping[str, Any] = {}


class TaskToken(NamedTuple):
    """A token of a text.

    start (int): Its first character.
    end (int): The character after its last.
    sent_start (bool | None): Whether it begins a sentence. None: that isn't known.
    """

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
    missing = _missing_from_json(record, place)
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
        missing=missing,
        has_unknown_spaces=record.get("has_unknown_spaces") is True,
        extra={key: value for key, value in record.items() if key not in task_keys},
    )


def _missing_from_json(record: Mapping[str, Any], place: FilePlace) -> tuple[Range, ...]:
    """Read which characters of a text nobody has annotated: "missing", as `task_to_json` writes
    it."""
    pairs = record.get("missing", [])
    if not isinstance(pairs, list):
        raise place.refuse(f"missing: expected a list of [start, end], got {shown(pairs)}")
    n_characters = len(record["text"])
    missing: list[Range] = []
    for pair in pairs:
        missing.append(_range_from_json(pair, n_characters, "missing", place))
    return tuple(missing)


def _find_span_key(record: Mapping[str, Any], place: FilePlace) -> str | None:
    """Find the key under which a task has its spans, as each tool has another; None if nobody has
    annotated the text."""
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
    if lists:
        return lists[0]
    return None


def spans_from_json(json_spans: list[Any], text: str, key: str, place: FilePlace) -> list[TaskSpan]:
    """Read the spans of a text. A span with several labels is read once for each label. Offsets may
    count UTF-16 code units, as JavaScript does, if that fits the texts of the spans, which some
    tools write beside the offsets.

    json_spans (list[Any]): The values of the spans: [start, end, label], or objects.
    text (str): The text.
    key (str): The key of the list, for errors.
    place (FilePlace): The place of the task, for errors.
    RETURNS (list[TaskSpan]): The spans, in characters.
    RAISES (CorpusError): If something isn't a span of the text.
    """
    n_units = utf16_length(text)
    spans: list[TaskSpan] = []
    for json_span in json_spans:
        spans += _span_from_json(json_span, n_units, key, place)
    if n_units == len(text):
        return spans

    # Some characters are two code units, so offsets may count either. Characters are tried first.
    fits = partial(has_its_text, text)
    if not all(map(fits, spans)):
        in_characters = _spans_in_characters(spans, text)
        if all(map(fits, in_characters)):
            spans = in_characters
    # Up to now ends were allowed up to the number of code units.
    for span in spans:
        _range_from_json([span.start, span.end], len(text), key, place)
    return spans


def _span_from_json(json_span: Any, limit: int, key: str, place: FilePlace) -> list[TaskSpan]:
    """Read a span, once for each of its labels. `limit` is the largest end that it may have. `key`
    and `place` are for errors."""
    extra: Mapping[str, Any] = {}
    if isinstance(json_span, dict):
        start = _first_value(json_span, START_KEYS)
        end = _first_value(json_span, END_KEYS)
        label = _first_value(json_span, LABEL_KEYS)
        extra = {name: value for name, value in json_span.items() if name not in USED_KEYS}
    elif isinstance(json_span, list) and len(json_span) == 3:
        start, end, label = json_span
    else:
        got = shown(json_span)
        raise place.refuse(f"{key}: expected start, end and label of a span, got {got}")

    start, end = _range_from_json([start, end], limit, key, place)
    # A span of Label Studio has a list of labels.
    labels: list[Any] = label if isinstance(label, list) else [label]
    if not labels or not all(isinstance(name, str) and name.strip() for name in labels):
        raise place.refuse(f"{key}: expected the label of a span, got {shown(json_span)}")
    for name in labels:
        if SURROGATE.search(name):
            raise place.refuse(f"{key}: expected a label that can be UTF-8, got {shown(name)}")
    return [TaskSpan(start, end, name, extra) for name in labels]


def _first_value(record: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """The value of the first of these keys that a record has; None if it has none of them."""
    for key in keys:
        if key in record:
            return record[key]
    return None


def _range_from_json(pair: Any, limit: int, key: str, place: FilePlace) -> Range:
    """Check that a value is [start, end], two numbers of characters of a text. `limit` is the
    length of the text; `key` and `place` are for errors."""
    is_pair = isinstance(pair, list) and len(pair) == 2
    # `type`, as JSON's true is an instance of int, too.
    if not is_pair or type(pair[0]) is not int or type(pair[1]) is not int:
        raise place.refuse(f"{key}: expected two whole numbers, start and end, got {shown(pair)}")
    start, end = pair
    if not 0 <= start < end <= limit:
        expected = f"a start before its end in a text of {limit} characters"
        raise place.refuse(f"{key}: expected {expected}, got {start} to {end}")
    return start, end


def has_its_text(text: str, span: TaskSpan) -> bool:
    """Whether the offsets of a span fit the text that a tool has written beside them, in `extra`.
    True if there is no such text."""
    span_text = span.extra.get("text")
    if not isinstance(span_text, str):
        return True
    if span.end > len(text):
        return False
    # Tools may change the white space.
    return span_text.split() == text[span.start : span.end].split()


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units, by which JavaScript counts. Each is two bytes.
    "surrogatepass" lets half of a surrogate pair be one, too."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_ends(text: str) -> list[int]:
    """Where each of the C characters of a text ends, in UTF-16 code units: those after U+FFFF, such
    as emoji, are two. Shape: (C,)"""
    return list(accumulate(2 if character > "\uffff" else 1 for character in text))


def range_in_characters(units: Range, ends: Sequence[int]) -> Range:
    """Convert a range of code units of a text to one of characters. `ends` are its `utf16_ends`."""
    start, end = units
    # The characters before a code unit are those that end at it or before.
    return bisect_right(ends, start), bisect_right(ends, end)


def _spans_in_characters(spans: Iterable[TaskSpan], text: str) -> list[TaskSpan]:
    """Convert the offsets of spans from code units to characters."""
    ends = utf16_ends(text)
    converted = []
    for span in spans:
        start, end = range_in_characters((span.start, span.end), ends)
        converted.append(span._replace(start=start, end=end))
    return converted


def _tokens_from_json(json_tokens: Any, text: str, place: FilePlace) -> list[TaskToken] | None:
    """Read the tokens of a task, None if it has none, and check that they are all words of its
    text, in order."""
    if json_tokens is None:
        return None
    is_list = isinstance(json_tokens, list)
    if not is_list or not all(isinstance(token, dict) for token in json_tokens):
        raise place.refuse(f"tokens: expected objects with start and end, got {shown(json_tokens)}")

    tokens = []
    for json_token in json_tokens:
        offsets = [json_token.get("start"), json_token.get("end")]
        start, end = _range_from_json(offsets, len(text), "tokens", place)
        tokens.append(TaskToken(start, end, json_token.get("sent_start")))

    for json_token, (start, end, _) in zip(json_tokens, tokens):
        expected = text[start:end]
        if json_token.get("text", expected) != expected:
            got = shown(json_token["text"])
            raise place.refuse(f"tokens: expected {expected!r} at {start}, got {got}")
    _check_all_words(tokens, text, place)
    return tokens


def _check_all_words(tokens: list[TaskToken], text: str, place: FilePlace) -> None:
    """Check that tokens follow each other, with nothing but white space between them and at both
    ends of the text."""
    end_of_text = TaskToken(len(text), len(text), None)
    previous_end = 0
    for start, end, _ in [*tokens, end_of_text]:
        text_between = text[previous_end:start]
        if start < previous_end or text_between.strip():
            # No text is between tokens that overlap.
            got = shown(text_between or text[start:end])
            raise place.refuse(f"tokens: expected all words of the text, once each, got {got}")
        previous_end = end


def is_label_studio(record: Any) -> bool:
    """Whether the first record of a file is a task of Label Studio: its text is under "data"."""
    return isinstance(record, dict) and isinstance(record.get("data"), dict)


def read_label_studio(records: Values) -> Iterator[AnnotatedTask]:
    """Read the tasks of Label Studio's JSON export, with the annotations of several people.
    Skipped annotations are left out, and if some are marked as ground truth, the others, too.

    records (Values): The records of the file.
    YIELDS (AnnotatedTask): Each annotation.
    RAISES (CorpusError): If a record is no task with a text and annotations.
    """
    for text_key, (place, record) in enumerate(records):
        if not is_label_studio(record):
            raise place.refuse(f"expected a task of Label Studio, got {shown(record)}")
        text = _label_studio_text(record["data"], place)
        extra = {"meta": _label_studio_metadata(record["data"], text)}
        annotations = _label_studio_annotations(record, place)
        if not annotations:
            yield AnnotatedTask(place, text_key, Task(text, extra=extra))
            continue
        truths = [annotation for annotation in annotations if annotation.get("ground_truth")]
        if truths:
            annotations = truths
        for annotation in annotations:
            json_spans = _label_studio_spans(annotation["result"])
            spans = spans_from_json(json_spans, text, "annotations", place)
            yield AnnotatedTask(place, text_key, Task(text, spans, extra=extra))


def _label_studio_text(data: Mapping[str, Any], place: FilePlace) -> str:
    """The text of a task of Label Studio: that under "text" or, if the labeling interface has
    another name for it, the only text of its data."""
    texts = {name: value for name, value in data.items() if isinstance(value, str)}
    if "text" not in texts and len(texts) != 1:
        raise place.refuse(f"data: expected a text under 'text', got {shown([*data])}")
    if texts.get("text"):
        return texts["text"]
    return next(iter(texts.values()))


def _label_studio_metadata(data: Mapping[str, Any], text: str) -> dict[str, Any]:
    """What a task of Label Studio was imported with beside its text; the values of its "meta" are
    among the others."""
    metadata: dict[str, Any] = {}
    if isinstance(data.get("meta"), Mapping):
        metadata.update(data["meta"])
    for key, value in data.items():
        if key != "meta" and value != text:
            metadata[key] = value
    return metadata


def _label_studio_annotations(
    record: Mapping[str, Any], place: FilePlace
) -> list[Mapping[str, Any]]:
    """The annotations of a task of Label Studio, one of each person, but for those that were
    skipped."""
    present = [key for key in ANNOTATION_KEYS if key in record]
    if not present:
        return []
    key = present[0]
    annotations = record[key]
    if not isinstance(annotations, list) or not all(map(_has_result, annotations)):
        got = shown(annotations)
        raise place.refuse(f"{key}: expected annotations with results, got {got}")
    return [annotation for annotation in annotations if not annotation.get("was_cancelled")]


def _has_result(annotation: Any) -> bool:
    """Whether an annotation of Label Studio has the list of what a person has marked."""
    return isinstance(annotation, dict) and isinstance(annotation.get("result"), list)


def _label_studio_spans(results: Iterable[Any]) -> list[Mapping[str, Any]]:
    """The values of the spans among the results of an annotation. Relations and other results are
    no entities."""
    json_spans: list[Mapping[str, Any]] = []
    for result in results:
        if not isinstance(result, dict):
            continue
        value = result.get("value")
        if isinstance(value, dict) and "labels" in value:
            json_spans.append(value)
    return json_spans


def task_to_json(task: Task) -> dict[str, Any]:
    """A task in Prodigy's form, which `task_from_json` reads. Two keys are ours: "missing" and
    "has_unknown_spaces"."""
    text = task.text
    record: dict[str, Any] = {"text": text}
    # The numbers of the tokens that begin and end at a character, for the tokens of spans. Empty if
    # the task has no tokens.
    token_at_start: dict[int, int] = {}
    token_at_end: dict[int, int] = {}
    if task.tokens is not None:
        record["tokens"] = []
        for i, (start, end, sent_start) in enumerate(task.tokens):
            has_space = text.startswith(" ", end)
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
    spans can't have scores, so these are a list beside them. doccano shows other keys as metadata
    of the text."""
    labels = []
    scores = []
    has_scores = False
    for start, end, label, extra in task.spans or []:
        labels.append([start, end, label])
        scores.append(extra.get("score"))
        has_scores = has_scores or "score" in extra
    record: dict[str, Any] = {"text": task.text}
    if task.spans is not None:  # else nobody has annotated the text
        record["label"] = labels
    if has_scores:
        record["scores"] = scores
    return {**record, **task.extra}


def _task_to_label_studio(task: Task) -> dict[str, Any]:
    """A task for Label Studio: {"data": {"text": "…", …}, "predictions": [{"result": […]}]}. The
    labeling interface needs <Labels name="label" toName="text"> and <Text name="text"
    value="$text"/>. Offsets count UTF-16 code units, as JavaScript does."""
    text = task.text
    # The code unit before each character, and the one after the last. (C + 1,)
    units = [0, *utf16_ends(text)]
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
    record: dict[str, Any] = {"data": {"text": text, **task.extra}}
    if task.spans is not None:  # else the annotator begins with nothing
        record["predictions"] = [{"result": results}]
    return record


class TaskForm(NamedTuple):
    """The form of the files of tasks that a tool imports.

    to_json (Callable[[Task], dict[str, Any]]): Makes the JSON of a task.
    suffix (str): ".json" for an array of tasks, ".jsonl" for a task on each line.
    """

    to_json: Callable[[Task], dict[str, Any]]
    suffix: str


TASK_FORMS: dict[str, TaskForm] = {
    "prodigy": TaskForm(task_to_json, ".jsonl"),
    "doccano": TaskForm(_task_to_doccano, ".jsonl"),
    "label-studio": TaskForm(_task_to_label_studio, ".json"),
}
"""What annotation tools import, by the name of the tool."""


def check_task_form(name: str, path: Path) -> None:
    """Check, before any work, that tasks can be written for a tool to a file.

    name (str): The name of the tool: one of `TASK_FORMS`.
    path (Path): The file.
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
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
        if suffix == ".json":  # an array
            file.write("[\n" + ",\n".join(lines) + "\n]\n")
            return
        for line in lines:
            file.write(f"{line}\n")


def save_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Save tasks to a file that an annotation tool imports. The file is there when it is whole.

    path (Path): The file.
    tasks (Iterable[Task]): The tasks.
    form (str): "prodigy", "doccano" (both JSONL) or "label-studio" (JSON).
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    check_task_form(form, path)
    save_file(path, lambda new_path: write_tasks(new_path, tasks, form))
