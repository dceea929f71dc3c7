"""Forms of tasks for annotation tools, to be written: Prodigy, doccano, Label Studio."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Tuple

from ..saving import save_file
from .jsonl import Task, task_to_json


def to_doccano(task: Task) -> Dict[str, Any]:
    """A task for doccano. Its spans can't have scores: these are in "scores", which doccano shows
    as metadata of the text, as other keys.

    task (Task): The task.
    RETURNS (Dict[str, Any]): {"text": "…", "label": [[start, end, label], …], "scores": […], …}
    """
    spans = task.spans or []
    value: Dict[str, Any] = {"text": task.text, "label": [[*span[:3]] for span in spans]}
    if any("score" in span.extra for span in spans):
        value["scores"] = [span.extra.get("score") for span in spans]
    return {**value, **task.extra}


def to_label_studio(task: Task) -> Dict[str, Any]:
    """A task for Label Studio: the spans are a prediction. The labeling interface needs
    <Labels name="label" toName="text"> and <Text name="text" value="$text"/>. Offsets are those of
    JavaScript, in UTF-16 code units.

    task (Task): The task.
    RETURNS (Dict[str, Any]): {"data": {"text": "…", …}, "predictions": [{"result": […]}]}
    """
    text, results = task.text, []
    for i, (start, end, label, extra) in enumerate(task.spans or []):
        first, last = (
            len(text[:at].encode("utf-16-le", "surrogatepass")) // 2 for at in (start, end)
        )
        value = {"start": first, "end": last, "text": text[start:end], "labels": [label]}
        names = {"id": str(i), "from_name": "label", "to_name": "text", "type": "labels"}
        results.append({**names, "value": value, **extra})
    return {"data": {"text": text, **task.extra}, "predictions": [{"result": results}]}


FORMS: Dict[str, Tuple[Callable[[Task], Dict[str, Any]], str]] = {
    "prodigy": (task_to_json, ".jsonl"),
    "doccano": (to_doccano, ".jsonl"),
    "label-studio": (to_label_studio, ".json"),
}
"""What annotation tools import: a task as JSON, and the suffix of files: .json for an array."""


def check_form(name: str, path: Path) -> None:
    """Check a form and the name of its file.

    RAISES (ValueError): If there is no such form, or the tool doesn't read a file of that name.
    """
    if name not in FORMS:
        raise ValueError(f"format: expected one of {[*FORMS]}, got {name!r}")
    if path.suffix != FORMS[name][1]:
        raise ValueError(f"{path}: expected a name that ends in {FORMS[name][1]}, for {name}")


def save_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Save tasks to a file that an annotation tool imports.

    path (Path): The file.
    tasks (Iterable[Task]): The tasks.
    form (str): "prodigy", "doccano" (both JSONL) or "label-studio" (JSON).
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    check_form(form, path)
    to_json, suffix = FORMS[form]
    lines = [json.dumps(to_json(task), ensure_ascii=False) for task in tasks]
    text = "\n".join(lines) if suffix == ".jsonl" else "[\n" + ",\n".join(lines) + "\n]"
    save_file(path, lambda new: new.write_text(text + "\n", encoding="utf8", newline="\n"))
