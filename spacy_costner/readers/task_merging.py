"""Merge all annotations of a text into one task, so that no docs contradict each other.

Annotation tools write one task per annotator, or one task per yes-no question about a text. In
Prodigy, the interface (*view*) determines the question.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from .conflicts import REPEATED
from .context import CorpusInfo, ReadOptions
from .documents import document_id
from .files import FilePlace, shown
from .offsets import Range
from .tasks import NO_SPANS_VIEWS, AnnotatedTask, Task, TaskSpan

SpanKey = tuple[int, int, str, str]
"""The start, end, label and answer of a span. Spans with the same key are considered equal."""

TextId = tuple[int, str, str | int | None]
"""The text key, the text, and the ID of its document. With the option `doc_id`, the same sentence
in another document is another text."""

GroupKey = tuple[TextId, str, frozenset[SpanKey]]
"""The text, the answer and the rejected spans of annotations that are merged."""

YES_NO_VIEWS = ("ner", "pos", "spans")
"""Prodigy interfaces that display spans and ask whether they are correct."""

MANUAL_VIEWS = ("ner_manual", "pos_manual", "relations", "spans_manual")
"""Prodigy interfaces in which all spans of a text are annotated."""

BINARY_KEY = "_is_binary"
"""The key of Prodigy's tasks for whether a task is a yes-no question."""

DISPUTED = "texts were annotated in several ways: where they differ, annotation is missing"
ONE_BY_ONE = "all spans have an answer: all other tokens are missing annotation"


def answer_to(annotated: Task | TaskSpan) -> str:
    """Return the answer to a Prodigy task or span. The default is "accept"."""
    answer: str = annotated.extra.get("answer", "accept")
    return answer


def merge_tasks(
    tasks: Iterable[AnnotatedTask], info: CorpusInfo, options: ReadOptions
) -> Iterator[list[tuple[FilePlace, Task]]]:
    """Merge all annotations of the same text into one task, so that no docs contradict each other.
    Tasks that reject different spans of a text aren't merged, because these spans may overlap. A
    *text key* is a number that all annotations of a text share.

    If the option `conflicts` is set, complete annotations of a text aren't merged here, because
    `conflicts.merge_texts` merges their docs as this option specifies.

    tasks (Iterable[AnnotatedTask]): The tasks of a file.
    info (CorpusInfo): Collects problems.
    options (ReadOptions): The options, with `conflicts` and `doc_id`.
    YIELDS (list[tuple[FilePlace, Task]]): The tasks of a text with their locations: one task, or
        several complete annotations. Texts without a text key come first. A merged task has the
        location of its first annotation.
    """
    groups: dict[GroupKey, list[tuple[FilePlace, Task]]] = {}
    reviewed_texts: set[TextId] = set()
    for place, text_key, task in tasks:
        if _has_answered_spans(task):
            info.add_problem(ONE_BY_ONE, place, shown(task.text))
        task = _make_explicit(task)
        if text_key is None:  # the text has no other annotations
            yield [(place, task)]
        else:
            # Rejected annotations aren't merged with accepted ones.
            answer = answer_to(task)
            rejected_spans: frozenset[SpanKey] = frozenset()
            if answer == "reject":
                rejected_spans = frozenset(_span_keys(task))
            text_id = (text_key, task.text, document_id(task.extra, options.doc_id))
            group_key = (text_id, answer, rejected_spans)
            groups.setdefault(group_key, []).append((place, task))
            if _is_review(task):
                reviewed_texts.add(text_id)

    for (text_id, answer, _), group in groups.items():
        # If someone has reviewed the annotations of others, only the review is used. It may reject
        # what others accepted.
        if text_id in reviewed_texts:
            group = [(place, task) for place, task in group if _is_review(task)]
            if not group:
                continue
        complete = [(place, task) for place, task in group if _is_complete(task)]
        if options.conflicts is not None and answer == "accept" and len(complete) > 1:
            yield complete
            continue
        place, first_task = group[0]
        annotations = [task for _, task in group]
        merged_task = _merge_annotations(annotations)
        # Answers to different yes-no questions about a text complement each other, so they aren't a
        # problem.
        if len(group) > 1 and not _is_binary(first_task):
            is_disputed = any(_span_keys(task) != _span_keys(merged_task) for task in annotations)
            message = DISPUTED if is_disputed else REPEATED
            info.add_problem(message, place, shown(merged_task.text))
        yield [(place, merged_task)]


def _make_explicit(task: Task) -> Task:
    """Make information explicit that Prodigy's export of a task only implies. A yes-no question
    only refers to some spans, so the rest of the text is missing annotation. If the annotator was
    asked for all spans and the task has no list of spans, the text contains no spans."""
    if view_of(task) in NO_SPANS_VIEWS:
        return task._replace(spans=None)
    if _is_binary(task):
        return task._replace(spans=task.spans or [], missing=((0, len(task.text)),))
    if task.spans is None and task.extra.get("answer") == "accept" and _is_manual(task):
        return task._replace(spans=[])
    return task


def _is_review(task: Task) -> bool:
    """Check whether a Prodigy task reviews the annotations of several people."""
    return task.extra.get("_view_id") == "review"


def view_of(task: Task) -> Any:
    """Return the Prodigy interface in which a task was annotated, or None if unknown."""
    if _is_review(task):
        return task.extra.get("view_id")
    return task.extra.get("_view_id")


def _is_manual(task: Task) -> bool:
    """Check whether the annotator of a Prodigy task was asked to mark all spans. In an interface
    with several blocks, tasks only have tokens if one of the blocks is for spans. A task with
    options is a multiple-choice question."""
    view = view_of(task)
    if view == "blocks":
        return task.tokens is not None
    return view in MANUAL_VIEWS or (view is None and "options" not in task.extra)


def _merge_annotations(annotations: list[Task]) -> Task:
    """Merge one or more annotations of the same text into one task.

    An annotation is complete if all entities of the text were annotated, and binary if it answers a
    yes-no question about one span. If there are complete annotations, binary ones are ignored.
    Spans that all complete annotations contain are kept. If only some of them contain a span, its
    annotation is treated as missing. If all annotations are binary, all their spans are kept.
    """
    binary_tasks: list[Task] = []
    complete_tasks: list[Task] = []
    for task in annotations:
        if _is_binary(task):
            binary_tasks.append(task)
        elif _is_complete(task):
            complete_tasks.append(task)
    counted_tasks = complete_tasks or binary_tasks
    if not counted_tasks:  # the text isn't annotated
        return annotations[0]
    if len(counted_tasks) == 1:
        return counted_tasks[0]

    # The last annotation of a span replaces earlier ones, which may have different values in
    # `extra`, such as the ID of the span.
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


def _is_complete(task: Task) -> bool:
    """Check whether all entities of a task's text were annotated."""
    return task.spans is not None and not _is_binary(task)


def _is_binary(task: Task) -> bool:
    """Check whether a task answers a yes-no question about its spans. In Prodigy's export, this is
    stored under `BINARY_KEY`. In versions without this key, it is inferred from the
    interface. If all spans of a task have an answer, there was a separate question about each
    span."""
    is_binary = task.extra.get(BINARY_KEY)
    if isinstance(is_binary, bool):
        return is_binary
    return view_of(task) in YES_NO_VIEWS or _has_answered_spans(task)


def _has_answered_spans(task: Task) -> bool:
    """Check whether each span of a task has an answer and no other key reveals the question.
    Prodigy merges yes-no questions about the spans of a text into a task of this form."""
    if isinstance(task.extra.get(BINARY_KEY), bool) or view_of(task) is not None:
        return False
    return bool(task.spans) and all("answer" in span.extra for span in task.spans or ())


def _span_key(span: TaskSpan) -> SpanKey:
    """Return the key for comparing spans of a text: see `SpanKey`."""
    return span.start, span.end, span.label, answer_to(span)


def _span_keys(task: Task) -> set[SpanKey]:
    """Return the keys of all spans of a task."""
    return {_span_key(span) for span in task.spans or ()}
