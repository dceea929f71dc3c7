"""Write tasks in the import formats of annotation tools.

`save_tasks` writes a file in one of `TASK_FORMS`. A *record* is the JSON value of a task.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..files.saving import save_file
from .offsets import utf16_ends
from .tasks import Task, TaskSpan, TaskToken


def task_to_json(task: Task) -> dict[str, Any]:
    """Convert a task to a record in Prodigy's format, which `task_from_json` reads. The keys
    "missing" and "has_unknown_spaces" aren't part of Prodigy's format. They are only used by
    `task_from_json`."""
    record: dict[str, Any] = {"text": task.text}
    if task.tokens is not None:
        record["tokens"] = _tokens_to_json(task.tokens, task.text)
    if task.spans is not None:
        record["spans"] = _spans_to_json(task.spans, task.tokens or ())
    if task.missing:
        record["missing"] = [list(characters) for characters in task.missing]
    if task.has_unknown_spaces:
        record["has_unknown_spaces"] = True
    return _with_extra(record, task)


def _with_extra(record: dict[str, Any], task: Task) -> dict[str, Any]:
    """Add a task's other keys and values to its record. Existing keys aren't overwritten, because a
    task that was read from "entities", for example, may also contain an empty list of "spans"."""
    other_keys = {key: value for key, value in task.extra.items() if key not in record}
    return {**record, **other_keys}


def _tokens_to_json(tokens: Sequence[TaskToken], text: str) -> list[dict[str, Any]]:
    """Convert the tokens of a text to Prodigy's format. "ws" is True if a token is followed by a
    space. "sent_start" isn't part of Prodigy's format."""
    json_tokens: list[dict[str, Any]] = []
    starts = {token.start for token in tokens}
    for i, (start, end, sent_start) in enumerate(tokens):
        has_space = text.startswith(" ", end) and end not in starts
        token = {"text": text[start:end], "start": start, "end": end, "id": i, "ws": has_space}
        if sent_start is not None:
            token["sent_start"] = sent_start
        json_tokens.append(token)
    return json_tokens


def _spans_to_json(spans: Iterable[TaskSpan], tokens: Sequence[TaskToken]) -> list[dict[str, Any]]:
    """Convert the spans of a text to Prodigy's format. The indices of the first and last token are
    included if a span matches token boundaries."""
    # The index of the token that begins or ends at a character.
    token_at_start = {token.start: i for i, token in enumerate(tokens)}
    token_at_end = {token.end: i for i, token in enumerate(tokens)}
    json_spans: list[dict[str, Any]] = []
    for start, end, label, extra in spans:
        span = {"start": start, "end": end, "label": label, **extra}
        if start in token_at_start and end in token_at_end:
            span["token_start"] = token_at_start[start]
            span["token_end"] = token_at_end[end]
        json_spans.append(span)
    return json_spans


def _task_to_doccano(task: Task) -> dict[str, Any]:
    """Convert a task to a record in doccano's format:

        {"text": "…", "label": [[start, end, label], …], "scores": […], …}

    A doccano span can't contain a score, so the scores are in a separate list. doccano displays
    other keys as metadata of the text.
    """
    labels = []
    scores = []
    has_scores = False
    for start, end, label, extra in task.spans or []:
        labels.append([start, end, label])
        scores.append(extra.get("score"))
        has_scores = has_scores or "score" in extra
    record: dict[str, Any] = {"text": task.text}
    if task.spans is not None:  # None: the text isn't annotated
        record["label"] = labels
    if has_scores:
        record["scores"] = scores
    return _with_extra(record, task)


def _task_to_label_studio(task: Task) -> dict[str, Any]:
    """Convert a task to a record in Label Studio's format:

        {"data": {"text": "…", …}, "predictions": [{"result": […]}]}

    The labeling interface of the project must contain <Labels name="label" toName="text"> and <Text
    name="text" value="$text"/>. Offsets count UTF-16 code units, as in JavaScript.
    """
    text = task.text
    # The code unit offset of each character offset. Length: the number of characters + 1.
    unit_at = [0, *utf16_ends(text)]
    results = []
    for i, (start, end, label, extra) in enumerate(task.spans or []):
        value = {
            "start": unit_at[start],
            "end": unit_at[end],
            "text": text[start:end],
            "labels": [label],
        }
        result = {"id": str(i), "from_name": "label", "to_name": "text", "type": "labels"}
        # The ID of a result must be unique, so it replaces any "id" in `extra`, which is the ID of
        # an entity such as a person and may be shared by several spans.
        results.append({**extra, **result, "value": value})
    record: dict[str, Any] = {"data": {"text": text, **task.extra}}
    if task.spans is not None:  # None: there are no predictions to start from
        record["predictions"] = [{"result": results}]
    return record


class TaskForm(NamedTuple):
    """The format of files that an annotation tool imports.

    to_json (Callable[[Task], dict[str, Any]]): Converts a task to JSON.
    suffix (str): ".json" for an array of tasks, ".jsonl" for one task per line.
    """

    to_json: Callable[[Task], dict[str, Any]]
    suffix: str


TASK_FORMS: dict[str, TaskForm] = {
    "prodigy": TaskForm(task_to_json, ".jsonl"),
    "doccano": TaskForm(_task_to_doccano, ".jsonl"),
    "label-studio": TaskForm(_task_to_label_studio, ".json"),
}
"""The import format of each annotation tool, keyed by the name of the tool."""


def check_task_form(name: str, path: Path) -> None:
    """Check the format and suffix of an output file before doing any work.

    name (str): The name of the tool: one of `TASK_FORMS`.
    path (Path): The output file.
    RAISES (ValueError): If the format is unknown, or requires a different suffix.
    """
    if name not in TASK_FORMS:
        raise ValueError(f"format: expected one of {[*TASK_FORMS]}, got {name!r}")
    suffix = TASK_FORMS[name].suffix
    if path.suffix != suffix:
        raise ValueError(f"{path}: expected a name that ends in {suffix}, for {name}")


def write_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Write tasks to a file that an annotation tool imports: see `save_tasks`. If writing fails, an
    incomplete file is left behind."""
    to_json, suffix = TASK_FORMS[form]
    lines = (json.dumps(to_json(task), ensure_ascii=False) for task in tasks)
    # Metadata may contain lone surrogates, which can't be encoded in UTF-8. "backslashreplace"
    # writes them as JSON escape sequences, such as \udc00.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        if suffix == ".json":  # one array of all tasks
            file.write("[\n" + ",\n".join(lines) + "\n]\n")
            return
        for line in lines:
            file.write(f"{line}\n")


def save_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Save tasks to a file that an annotation tool imports. If saving fails, an existing file with
    this name isn't modified.

    path (Path): The output file.
    tasks (Iterable[Task]): The tasks to save.
    form (str): "prodigy", "doccano" (both JSONL) or "label-studio" (JSON).
    RAISES (ValueError): If the format is unknown, or requires a different suffix.
    """
    check_task_form(form, path)
    save_file(path, lambda new_path: write_tasks(new_path, tasks, form))
