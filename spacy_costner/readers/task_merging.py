"""Merge all annotations of one text into one task, so that no doc contradicts another.

Annotation tools write a task for each annotator, or for each yes-no question about a text. In
Prodigy, the interface (*view*) shows what a person was asked.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from .conflicts import REPEATED
from .context import CorpusInfo
from .files import FilePlace, shown
from .offsets import Range
from .tasks import NO_SPANS_VIEWS, AnnotatedTask, Task, TaskSpan

SpanKey = tuple[int, int, str, str]
"""Start, end, label and answer of a span. Spans with the same key are the same span."""

YES_NO_VIEWS = ("ner", "pos", "spans")
"""Prodigy's interfaces that show spans, and ask if they are right."""

MANUAL_VIEWS = ("ner_manual", "pos_manual", "relations", "spans_manual")
"""Prodigy's interfaces in which a person marks all spans of a text."""

DISPUTED = "texts were annotated in several ways: where they differ, annotation is missing"
ONE_BY_ONE = "all spans have an answer: all other tokens are missing annotation"


def answer_to(annotated: Task | TaskSpan) -> str:
    """The answer to a Prodigy task, or to one of its spans. It is "accept" if the answer is
    missing."""
    answer: str = annotated.extra.get("answer", "accept")
    return answer


def merge_tasks(
    tasks: Iterable[AnnotatedTask], info: CorpusInfo
) -> Iterator[tuple[FilePlace, Task]]:
    """Merge all annotations of the same text into one task, so that no doc contradicts another.
    Tasks that reject different spans of a text are not merged: these spans may overlap. A *text
    key* is a number that all annotations of a text share.

    tasks (Iterable[AnnotatedTask]): The tasks of a file.
    info (CorpusInfo): The problems are added to it.
    YIELDS (tuple[FilePlace, Task]): Tasks and their places: first those without a text key, then
        the merged ones, with the place of their first annotation.
    """
    groups: dict[Hashable, list[tuple[FilePlace, Task]]] = {}
    for place, text_key, task in tasks:
        if _has_answered_spans(task):
            info.add_problem(ONE_BY_ONE, place, shown(task.text))
        task = _make_explicit(task)
        if text_key is None:  # nobody else has annotated the text
            yield place, task
        else:
            # A rejected annotation is not merged with an accepted one.
            answer = answer_to(task)
            rejected_spans: frozenset[SpanKey] = frozenset()
            if answer == "reject":
                rejected_spans = frozenset(_span_keys(task))
            group_key = (text_key, task.text, answer, rejected_spans)
            groups.setdefault(group_key, []).append((place, task))

    for group in groups.values():
        # If a person has reviewed the annotations of others, the review decides.
        reviewed = [
            (place, task) for place, task in group if task.extra.get("_view_id") == "review"
        ]
        group = reviewed or group
        place, first_task = group[0]
        annotations = [task for _, task in group]
        merged_task = _merge_annotations(annotations)
        # Answers to several yes-no questions about a text complement each other: no problem.
        if len(group) > 1 and not _is_binary(first_task):
            is_disputed = any(_span_keys(task) != _span_keys(merged_task) for task in annotations)
            message = DISPUTED if is_disputed else REPEATED
            info.add_problem(message, place, shown(merged_task.text))
        yield place, merged_task


def _make_explicit(task: Task) -> Task:
    """Add to a Prodigy task what its export only implies. A yes-no question is about some spans, so
    the annotation of the rest of the text is missing. If a person has marked all spans of a text,
    and the task has no list of spans, the text has none."""
    if view_of(task) in NO_SPANS_VIEWS:
        return task._replace(spans=None)
    if _is_binary(task):
        return task._replace(spans=task.spans or [], missing=((0, len(task.text)),))
    if task.spans is None and task.extra.get("answer") == "accept" and _is_manual(task):
        return task._replace(spans=[])
    return task


def view_of(task: Task) -> Any:
    """The Prodigy interface in which a task was annotated. None: it is unknown."""
    view = task.extra.get("_view_id")
    if view == "review":  # the interface that shows the annotations of several people
        return task.extra.get("view_id")
    return view


def _is_manual(task: Task) -> bool:
    """Whether a person was asked for all spans of a Prodigy text. An interface of several blocks
    shows tokens only if one of the blocks asks for spans. A task with options is a choice."""
    view = view_of(task)
    if view == "blocks":
        return task.tokens is not None
    return view in MANUAL_VIEWS or (view is None and "options" not in task.extra)


def _merge_annotations(annotations: list[Task]) -> Task:
    """Merge the annotations of one text, at least one, into one task.

    An annotation is complete if a person has looked for all entities of the text, and binary if it
    is the answer to a yes-no question about one span. If there are complete annotations, binary
    ones don't count. A span that all complete annotations have is kept. Where only some have a
    span, annotation becomes missing. If all annotations are binary, all their spans are kept.
    """
    binary_tasks: list[Task] = []
    complete_tasks: list[Task] = []
    for task in annotations:
        if _is_binary(task):
            binary_tasks.append(task)
        elif task.spans is not None:
            complete_tasks.append(task)
    counted_tasks = complete_tasks or binary_tasks
    if not counted_tasks:  # nobody has annotated the text
        return annotations[0]
    if len(counted_tasks) == 1:
        return counted_tasks[0]

    # The last annotation of a span replaces earlier ones. They may differ in `extra`, such as in
    # the id of the span.
    spans: dict[SpanKey, TaskSpan] = {}
    missing: set[Range] = set()
    for task in counted_tasks:
        missing.update(task.missing)
        for span in task.spans or ():
            spans[_span_key(span)] = span

    if complete_tasks:
        agreed_keys = set.intersection(*map(_span_keys, complete_tasks))
        for disputed_key in spans.keys() - agreed_keys:
            start, end, _label, _answer_to_span = disputed_key
            missing.add((start, end))
            del spans[disputed_key]
    return counted_tasks[0]._replace(spans=list(spans.values()), missing=tuple(sorted(missing)))


def _is_binary(task: Task) -> bool:
    """Whether a task is the answer to a yes-no question about its spans. Prodigy's export has this
    under the key "_is_binary", and in all versions the interface shows it. A task whose spans all
    have answers is one such question about each span."""
    is_binary = task.extra.get("_is_binary")
    if isinstance(is_binary, bool):
        return is_binary
    return view_of(task) in YES_NO_VIEWS or _has_answered_spans(task)


def _has_answered_spans(task: Task) -> bool:
    """Whether each span of a task has an answer, and nothing else shows what the person was asked.
    Prodigy merges yes-no questions about the spans of a text into such a task."""
    if isinstance(task.extra.get("_is_binary"), bool) or view_of(task) is not None:
        return False
    return bool(task.spans) and all("answer" in span.extra for span in task.spans or ())


def _span_key(span: TaskSpan) -> SpanKey:
    """The key by which spans of a text are compared: see `SpanKey`."""
    return span.start, span.end, span.label, answer_to(span)


def _span_keys(task: Task) -> set[SpanKey]:
    """The keys of all spans of a task."""
    return {_span_key(span) for span in task.spans or ()}
