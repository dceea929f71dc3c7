"""Write tasks in the forms of the files that annotation tools import.

`save_tasks` writes a file in one of `TASK_FORMS`. A *record* is what JSON has for a task.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..files.saving import save_file
from .offsets import utf16_ends
from .tasks import Task, TaskSpan, TaskToken


def task_to_json(task: Task) -> dict[str, Any]:
    """Make the record of a task in Prodigy's form, which `task_from_json` reads. Prodigy doesn't
    know the keys "missing" and "has_unknown_spaces": they are for `task_from_json`."""
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
    """Add the other keys and values of a task to its record. They replace no key of the record: a
    task that was read from "entities" may also have an empty list of "spans", for example."""
    other_keys = {key: value for key, value in task.extra.items() if key not in record}
    return {**record, **other_keys}


def _tokens_to_json(tokens: Sequence[TaskToken], text: str) -> list[dict[str, Any]]:
    """The tokens of a text as Prodigy has them. "ws" says whether a space follows. Prodigy doesn't
    know "sent_start"."""
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
    """The spans of a text as Prodigy has them. A span that begins and ends with tokens has the
    numbers of its first and its last token, too."""
    # The index of the token that begins, or ends, at a character.
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
    """Make the record of a task for doccano:

        {"text": "…", "label": [[start, end, label], …], "scores": […], …}

    A doccano span has no place for a score, so the scores are a separate list. doccano shows other
    keys as metadata of the text.
    """
    labels = []
    scores = []
    has_scores = False
    for start, end, label, extra in task.spans or []:
        labels.append([start, end, label])
        scores.append(extra.get("score"))
        has_scores = has_scores or "score" in extra
    record: dict[str, Any] = {"text": task.text}
    if task.spans is not None:  # None: nobody has annotated the text
        record["label"] = labels
    if has_scores:
        record["scores"] = scores
    return _with_extra(record, task)


def _task_to_label_studio(task: Task) -> dict[str, Any]:
    """Make the record of a task for Label Studio:

        {"data": {"text": "…", …}, "predictions": [{"result": […]}]}

    The labeling interface of the project needs <Labels name="label" toName="text"> and <Text
    name="text" value="$text"/>. Offsets count UTF-16 code units, as JavaScript does.
    """
    text = task.text
    # For each offset in characters the offset in code units. Length: the number of characters + 1.
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
        # The id of a result has to be unique, so it replaces an "id" in `extra`. That is the id
        # of an entity, such as a person, and several spans may have it.
        results.append({**extra, **result, "value": value})
    record: dict[str, Any] = {"data": {"text": text, **task.extra}}
    if task.spans is not None:  # None: annotators begin without predicted spans
        record["predictions"] = [{"result": results}]
    return record


class TaskForm(NamedTuple):
    """The form of the files of tasks that an annotation tool imports.

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
"""The form of the files that each annotation tool imports, keyed by the name of the tool."""


def check_task_form(name: str, path: Path) -> None:
    """Check, before any work, that tasks can be written for a tool to a file.

    name (str): The name of the tool: one of `TASK_FORMS`.
    path (Path): The output file.
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    if name not in TASK_FORMS:
        raise ValueError(f"format: expected one of {[*TASK_FORMS]}, got {name!r}")
    suffix = TASK_FORMS[name].suffix
    if path.suffix != suffix:
        raise ValueError(f"{path}: expected a name that ends in {suffix}, for {name}")


def write_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Write tasks to a file that an annotation tool imports: see `save_tasks`. If writing fails,
    part of the file is left behind."""
    to_json, suffix = TASK_FORMS[form]
    lines = (json.dumps(to_json(task), ensure_ascii=False) for task in tasks)
    # Metadata may have half of a surrogate pair, which can't be UTF-8. "backslashreplace" writes it
    # as \udc00, for example, which is its escape in JSON, too.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        if suffix == ".json":  # one array of all tasks
            file.write("[\n" + ",\n".join(lines) + "\n]\n")
            return
        for line in lines:
            file.write(f"{line}\n")


def save_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Save tasks to a file that an annotation tool imports. If saving fails, an earlier file of
    that name stays as it was.

    path (Path): The output file.
    tasks (Iterable[Task]): The tasks to write.
    form (str): "prodigy", "doccano" (both JSONL) or "label-studio" (JSON).
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    check_task_form(form, path)
    save_file(path, lambda new_path: write_tasks(new_path, tasks, form))
