"""Forms of tasks for annotation tools, to be written: Prodigy, doccano, Label Studio."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Tuple

from ..saving import save_file
from .jsonl import Task, TaskSpan, task_to_json


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
    <Labels name="label" toName="text"> and <Text name="text" value="$text"/>.

    task (Task): The task.
    RETURNS (Dict[str, Any]): {"data": {"text": "…", …}, "predictions": [{"result": […]}]}
    """
    results = [
        _result(task.text, i, span, start, end)
        for i, (span, start, end) in enumerate(_in_utf_16(task.text, task.spans or []))
    ]
    return {"data": {"text": task.text, **task.extra}, "predictions": [{"result": results}]}


def _result(text: str, i: int, span: TaskSpan, start: int, end: int) -> Dict[str, Any]:
    value = {"start": start, "end": end, "text": text[span.start : span.end]}
    result = {
        "id": str(i),
        "from_name": "label",
        "to_name": "text",
        "type": "labels",
        "value": {**value, "labels": [span.label]},
    }
    return {**result, "score": span.extra["score"]} if "score" in span.extra else result


def _in_utf_16(text: str, spans: List[TaskSpan]) -> Iterator[Tuple[TaskSpan, int, int]]:
    """Spans with their offsets in UTF-16 code units, which JavaScript counts."""
    for span in spans:
        start, end = (
            len(text[:place].encode("utf-16-le", "surrogatepass")) // 2
            for place in (span.start, span.end)
        )
        yield span, start, end


class Form(NamedTuple):
    """What an annotation tool imports.

    to_json (Callable[[Task], Dict[str, Any]]): A task as the tool reads it.
    is_array (bool): Whether the file is a JSON array; if not, a line for each task.
    """

    to_json: Callable[[Task], Dict[str, Any]]
    is_array: bool = False


FORMS: Dict[str, Form] = {
    "prodigy": Form(task_to_json),
    "doccano": Form(to_doccano),
    "label-studio": Form(to_label_studio, is_array=True),
}


def check_form(name: str, path: Path) -> None:
    """Check a form and the name of its file.

    RAISES (ValueError): If there is no such form, or the tool doesn't read a file of that name.
    """
    if name not in FORMS:
        raise ValueError(f"format: expected one of {[*FORMS]}, got {name!r}")
    suffix = ".json" if FORMS[name].is_array else ".jsonl"
    if path.suffix != suffix:
        raise ValueError(f"{path}: expected a name that ends in {suffix}, for {name}")


def save_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Save tasks to a file that an annotation tool imports.

    path (Path): The file.
    tasks (Iterable[Task]): The tasks.
    form (str): "prodigy", "doccano" (both JSONL) or "label-studio" (JSON).
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    check_form(form, path)
    to_json, is_array = FORMS[form]
    values = [json.dumps(to_json(task), ensure_ascii=False) for task in tasks]
    lines = ",\n".join(values) if is_array else "\n".join(values)
    text = f"[\n{lines}\n]\n" if is_array else f"{lines}\n"
    save_file(path, lambda new: new.write_text(text, encoding="utf8", newline="\n"))
