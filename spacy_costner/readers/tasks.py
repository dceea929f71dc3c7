"""Files of tasks to docs: answers, and several annotations of one text."""

from typing import Dict, Hashable, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from spacy.tokens import Doc, Span

from .documents import mark
from .files import Place, shown
from .found import Context, Found
from .jsonl import Range, Task
from .offsets import task_to_doc

DISPUTED = "texts were annotated in several ways: where they differ, annotation is missing"
REPEATED = "texts were annotated several times in the same way: they are read once"
NOT_ACCEPTED = "examples that were rejected or ignored are left out"
EMPTY = "texts are empty: they are left out"


class Annotated(NamedTuple):
    """A task in its file.

    place (Place): Its place.
    key (Optional[Hashable]): Tasks with the same key are annotations of the same text. None: there
        are no others.
    task (Task): The task.
    """

    place: Place
    key: Optional[Hashable]
    task: Task


def tasks_to_docs(annotated: Iterable[Annotated], context: Context) -> Iterator[Doc]:
    """Make docs of tasks.

    annotated (Iterable[Annotated]): The tasks.
    context (Context): Its options have the key of `doc.spans` for the span of a rejected task.
        Everything else is missing annotation in that doc.
    YIELDS (Doc): The docs.
    """
    key, found = context.options.incorrect_spans_key, context.found
    for place, task in merge_tasks(annotated, found):
        answer = _answer(task)
        if not task.text:
            found.add_problem(EMPTY, place)
        elif answer == "accept":
            yield mark(task_to_doc(task, place, context), task.extra, context.options.doc_id)
        elif answer == "reject" and key and len(task.spans or ()) == 1:
            doc = _rejected(task_to_doc(task, place, context), key)
            yield mark(doc, task.extra, context.options.doc_id)
        else:
            found.add_problem(NOT_ACCEPTED, place, f"{answer}: {shown(task.text)}")


def _answer(task: Task) -> str:
    return task.extra.get("answer", "accept")


def _rejected(doc: Doc, key: str) -> Doc:
    """Make an incorrect span of the only entity; all else is missing."""
    spans = [Span(doc, ent.start, ent.end, label=ent.label) for ent in doc.ents]
    doc.set_ents([], default="missing")
    doc.spans[key] = spans
    return doc


def merge_tasks(annotated: Iterable[Annotated], found: Found) -> Iterator[Tuple[Place, Task]]:
    """Merge annotations of the same text into one, so that no doc contradicts another.

    Spans that all annotations have are kept. What only some have is missing annotation. Of yes-no
    questions ("_is_binary" in Prodigy's export) all accepted spans are kept, and the rest of the
    text is missing annotation.

    annotated (Iterable[Annotated]): The tasks.
    found (Found): Gets the texts that were annotated several times.
    YIELDS (Tuple[Place, Task]): The tasks. Those with a key come last, each with its first place.
    """
    groups: Dict[Hashable, List[Annotated]] = {}
    for one in annotated:
        if one.key is None:
            yield one.place, _read_answer(one.task)
        else:
            key = (one.key, one.task.text, _answer(one.task))
            groups.setdefault(key, []).append(one)
    for (place, _, first), *others in groups.values():
        tasks = [_read_answer(task) for task in (first, *(other.task for other in others))]
        task = _merge(tasks)
        if others and not _is_binary(first):
            is_disputed = any(_keys(other) != _keys(task) for other in tasks)
            found.add_problem(DISPUTED if is_disputed else REPEATED, place, shown(task.text))
        yield place, task


def _is_binary(task: Task) -> bool:
    return bool(task.extra.get("_is_binary"))


def _read_answer(task: Task) -> Task:
    """An accepted task without spans has no entity. Of yes-no questions only the span is known."""
    if _is_binary(task):
        return task._replace(spans=task.spans or [], missing=((0, len(task.text)),))
    if task.spans is None and task.extra.get("answer") == "accept":
        return task._replace(spans=[])
    return task


def _keys(task: Task) -> Set[Tuple[int, int, str]]:
    return {span[:3] for span in task.spans or ()}


def _merge(tasks: List[Task]) -> Task:
    whole = [task for task in tasks if task.spans is not None and not _is_binary(task)]
    if len(whole) < 2 and (whole or len(tasks) == 1):
        return (whole or tasks)[0]
    chosen = whole or tasks
    spans = {span[:3]: span for task in chosen for span in task.spans or ()}
    agreed = set.intersection(*map(_keys, whole)) if whole else {*spans}
    disputed: List[Range] = [(start, end) for start, end, _ in {*spans} - agreed]
    missing = [part for task in chosen for part in task.missing]
    return chosen[0]._replace(
        spans=[span for key, span in spans.items() if key in agreed],
        missing=tuple(sorted({*missing, *disputed})),
    )
