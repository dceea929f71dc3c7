"""Label Studio's JSON export: tasks with the annotations of several people."""

from typing import Any, Dict, Iterator, List, Tuple

from .files import Place, shown
from .jsonl import Task, TaskSpan, spans_from_json
from .tasks import Annotated

ANNOTATION_KEYS = ("annotations", "completions")
"""Keys of a task's annotations: now, and before version 1."""


def is_label_studio(value: Any) -> bool:
    """Whether the first value of a file is a task of Label Studio."""
    return isinstance(value, dict) and isinstance(value.get("data"), dict)


def read_label_studio(values: Iterator[Tuple[Place, Any]]) -> Iterator[Annotated]:
    """Read an export.

    values (Iterator[Tuple[Place, Any]]): The tasks of the export.
    YIELDS (Annotated): Each annotation of each task. Skipped ones are left out, and if some are
        marked as ground truth, the others, too.
    RAISES (CorpusError): If something isn't such a task.
    """
    for i, (place, value) in enumerate(values):
        if not is_label_studio(value):
            raise place.refuse(f"expected a task of Label Studio, got {shown(value)}")
        text = _text(value["data"], place)
        annotations = _annotations(value, place)
        truths = [one for one in annotations if one.get("ground_truth")]
        for one in truths or annotations:
            yield Annotated(place, i, Task(text, _spans(one, text, place)))
        if not annotations:
            yield Annotated(place, i, Task(text))


def _text(data: Dict[str, Any], place: Place) -> str:
    """The text of a task: "text", or the only string of its data."""
    texts = {name: value for name, value in data.items() if isinstance(value, str)}
    if "text" not in texts and len(texts) != 1:
        raise place.refuse(f"data: expected a text under 'text', got {shown([*data])}")
    return texts.get("text") or next(iter(texts.values()))


def _annotations(value: Dict[str, Any], place: Place) -> List[Dict[str, Any]]:
    key = next((key for key in ANNOTATION_KEYS if key in value), None)
    found = value[key] if key else []
    is_list = isinstance(found, list) and all(isinstance(one, dict) for one in found)
    if not is_list or not all(isinstance(one.get("result"), list) for one in found):
        raise place.refuse(f"{key}: expected annotations with results, got {shown(found)}")
    return [one for one in found if not one.get("was_cancelled")]


def _spans(annotation: Dict[str, Any], text: str, place: Place) -> List[TaskSpan]:
    """The labelled spans of an annotation. Relations and other results are not entities."""
    results = [result for result in annotation["result"] if isinstance(result, dict)]
    values = [result.get("value") for result in results]
    labelled = [value for value in values if isinstance(value, dict) and "labels" in value]
    return spans_from_json(labelled, text, "annotations", place)
