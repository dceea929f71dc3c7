"""Tasks to docs and back.

Spans that docs can't have are missing annotation, and are reported. Several annotations of one text
become one doc.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy
from spacy.attrs import ENT_IOB, IDX, LENGTH, SENT_START
from spacy.tokens import Doc, Span
from spacy.util import get_words_and_spaces
from thinc.types import Ints1d

from ..ent_iob import MISSING
from ..spans import annotate_spans, is_missing
from .context import Context, CorpusInfo
from .documents import with_data
from .files import SURROGATE, Place, shown
from .sentences import copy_tokens
from .tasks import Annotated, Range, Task, TaskSpan, has_its_text

ID_KEYS = ("kb_id", "id")
"""Keys of the ids of a span: in a knowledge base, and its own."""

MISALIGNED = "spans don't begin and end with tokens: their tokens are missing annotation"
MISPLACED = "spans are not where their own text is: all of their text is missing annotation"
OVERLAPPING = "spans overlap: their tokens are missing annotation"
PADDED = "spans begin or end with white space: it is left out"
ONLY_SPACE = "spans are only white space: they are left out"
UNANNOTATED = "texts without annotation: it is missing in the whole doc"
DISPUTED = "texts were annotated in several ways: where they differ, annotation is missing"
REPEATED = "texts were annotated several times in the same way: they are read once"
NOT_ACCEPTED = "examples that were rejected or ignored are left out"
EMPTY = "texts are empty: they are left out"

Borders = tuple[Ints1d, Ints1d]
"""The characters at which each token begins and ends. Shapes: (T,)"""

TokenSpan = tuple[int, int, TaskSpan | None]
"""Tokens from and to, and their span. None: their annotation is missing."""


def tasks_to_docs(tasks: Iterable[Annotated], context: Context) -> Iterator[Doc]:
    """Make docs of tasks. If the options have a key of `doc.spans` for rejected spans, the span of
    a rejected task is there, and everything else in its doc is missing annotation."""
    key, spans_key = context.options.incorrect_spans_key, context.options.spans_key
    for place, task in _merge_tasks(tasks, context.info):
        answer = task.extra.get("answer", "accept")
        is_rejected_span = key and answer == "reject" and len(task.spans or ()) == 1
        if not task.text:
            context.info.add_problem(EMPTY, place)
        elif answer != "accept" and not is_rejected_span:
            context.info.add_problem(NOT_ACCEPTED, place, f"{answer}: {shown(task.text)}")
        else:
            doc = task_to_doc(task, place, context)
            if key and is_rejected_span:
                found = doc.ents if spans_key is None else doc.spans.pop(spans_key)
                rejected = [Span(doc, ent.start, ent.end, label=ent.label) for ent in found]
                doc.set_ents([], default="missing")
                doc.spans[key] = rejected
            yield with_data(doc, task.extra, context.options.doc_id)


def _merge_tasks(tasks: Iterable[Annotated], info: CorpusInfo) -> Iterator[tuple[Place, Task]]:
    """Merge annotations of the same text into one, so that no doc contradicts another. Merged tasks
    come last, each with its first place.

    An accepted task without spans has no entity. Spans that all annotations have are kept. What
    only some have is missing annotation. Of yes-no questions ("_is_binary" in Prodigy's export) all
    accepted spans are kept, and the rest of the text is missing annotation.
    """
    groups: dict[Hashable, list[tuple[Place, Task]]] = {}
    for place, key, task in tasks:
        answer = task.extra.get("answer")
        if task.extra.get("_is_binary"):
            task = task._replace(spans=task.spans or [], missing=((0, len(task.text)),))
        elif task.spans is None and answer == "accept":
            task = task._replace(spans=[])
        if key is None:
            yield place, task
        else:
            groups.setdefault((key, task.text, answer or "accept"), []).append((place, task))
    for group in groups.values():
        place, first = group[0]
        answers = [task for _, task in group]
        binary = [task for task in answers if task.extra.get("_is_binary")]
        whole = [task for task in answers if task.spans is not None and task not in binary]
        chosen = whole or binary or [first]
        task = _merge(chosen, bool(whole)) if len(chosen) > 1 else chosen[0]
        if len(group) > 1 and first not in binary:
            is_disputed = any(_keys(other) != _keys(task) for other in answers)
            info.add_problem(DISPUTED if is_disputed else REPEATED, place, shown(task.text))
        yield place, task


def _keys(task: Task) -> set[tuple[int, int, str]]:
    return {span[:3] for span in task.spans or ()}


def _merge(tasks: list[Task], is_whole: bool) -> Task:
    """Merge annotations: of whole texts, or answers to yes-no questions."""
    spans = {span[:3]: span for task in tasks for span in task.spans or ()}
    agreed = set.intersection(*map(_keys, tasks)) if is_whole else {*spans}
    disputed = [(start, end) for start, end, _ in {*spans} - agreed]
    return tasks[0]._replace(
        spans=[span for key, span in spans.items() if key in agreed],
        missing=tuple(sorted({part for task in tasks for part in task.missing}.union(disputed))),
    )


def task_to_doc(task: Task, place: Place, context: Context) -> Doc:
    """Make a doc of a task, with the pipeline's tokenizer if the task has no tokens. The context
    gets the spans that the doc can't have.

    RAISES (CorpusError): If spaCy can't make a doc of the text.
    """
    try:
        doc = _tokenize(task, context)
    except ValueError as error:  # The text is too long, or has surrogates.
        raise place.refuse(f"expected a text that spaCy can read: {error}") from None
    tokens, starts = task.tokens or (), numpy.zeros(len(doc), dtype="int64")
    if known := {start: is_start for start, _, is_start in tokens if is_start in (True, False)}:
        is_start = [known.get(token.idx) for token in doc]
        starts[:] = [0 if here is None else 1 if here else -1 for here in is_start]
    if len(doc):
        doc.from_array([SENT_START], starts.view("uint64"))
    if task.spans is None:
        context.info.add_problem(UNANNOTATED, place)
        return doc
    borders = _borders(doc)
    aligned: dict[tuple[int, int, str | None], TokenSpan] = {}
    for span in task.spans:
        start, end, used = _align(doc, borders, task.text, span, place, context.info)
        aligned[start, end, used and used.label] = (start, end, used)
    parts = [*aligned.values()]
    spans_key, missing = context.options.spans_key, numpy.zeros(len(doc), dtype=bool)
    for part in task.missing:
        start, end = _expand(borders, *part)
        missing[start:end] = True
    if spans_key is None:
        parts = [*_without_overlap(parts, doc, place, context.info)]
    spans = []
    for start, end, used in parts:
        if used is None or spans_key is None:
            missing[start:end] = used is None
        if used is not None:
            given = [used.extra.get(key) for key in ID_KEYS] if used.extra else []
            ids = [name if isinstance(name, str) else "" for name in given] or ["", ""]
            if wrong := [name for name in ids if SURROGATE.search(name)]:
                expected = "expected ids of spans that can be UTF-8"
                raise place.refuse(f"{expected}, got {shown(wrong[0])}")
            spans.append(Span(doc, start, end, used.label, kb_id=ids[0], span_id=ids[1]))
    unknown = [doc[i : i + 1] for i in numpy.flatnonzero(missing).tolist()]
    if spans_key is None:
        doc.set_ents(spans, missing=unknown, default="outside")
    else:
        annotate_spans(doc, spans_key, spans, unknown)
    return doc


def _tokenize(task: Task, context: Context) -> Doc:
    if task.tokens is None:
        predicted = context.nlp.make_doc(task.text)
        if context.predicted is None:
            return predicted
        doc = copy_tokens(predicted)
        context.predicted[doc] = predicted
        return doc
    text = task.text
    words = [text[start:end] for start, end, _ in task.tokens]
    spaces = [text[end : end + 1] == " " for _, end, _ in task.tokens]
    if sum(map(len, words)) + sum(spaces) < len(text):  # White space is a token of the doc, too.
        words, spaces = get_words_and_spaces(words, text)
    return Doc(context.nlp.vocab, words=words, spaces=None if task.has_unknown_spaces else spaces)


def _borders(doc: Doc) -> Borders:
    begins = doc.to_array([IDX]).astype("int64").reshape(-1)
    return begins, begins + doc.to_array([LENGTH]).astype("int64").reshape(-1)


def _align(
    doc: Doc, borders: Borders, text: str, span: TaskSpan, place: Place, info: CorpusInfo
) -> TokenSpan:
    """The tokens of a span."""
    own = text[span.start : span.end]
    if not has_its_text(text, span):
        expected = f"{own!r} {span.label}, expected {span.extra['text']!r}"
        info.add_problem(MISPLACED, place, expected)
        return 0, len(doc), None
    start = span.start + len(own) - len(own.lstrip())
    end = span.end - (len(own) - len(own.rstrip()))
    if start >= end:
        info.add_problem(ONLY_SPACE, place, f"{own!r} {span.label}")
        return 0, 0, None
    if end - start < len(own):
        info.add_problem(PADDED, place, f"{own!r} {span.label}")
    aligned = doc.char_span(start, end)
    if aligned is None:
        first, last = _expand(borders, start, end)
        info.add_problem(MISALIGNED, place, f"{own!r} {span.label} in {doc[first:last].text!r}")
        return first, last, None
    return aligned.start, aligned.end, span


def _expand(borders: Borders, start: int, end: int) -> Range:
    """All tokens that some characters touch, from and to."""
    begins, ends = borders
    first = int(numpy.searchsorted(ends, start, side="right"))
    last = int(numpy.searchsorted(begins, end, side="left"))
    return (first, last) if first < last else (0, 0)


def _without_overlap(
    spans: list[TokenSpan], doc: Doc, place: Place, info: CorpusInfo
) -> Iterator[TokenSpan]:
    """Replace spans that overlap by missing annotation of all their tokens."""
    groups: list[list[TokenSpan]] = []
    stop = 0
    for one in sorted(spans, key=lambda one: one[:2]):
        if one[0] >= stop:
            groups.append([])
        groups[-1].append(one)
        stop = max(stop, one[1])
    for group in groups:
        start, end = group[0][0], max(end for _, end, _ in group)
        yield group[0] if len(group) == 1 else (start, end, None)
        labels = [span.label for _, _, span in group if span is not None]
        if len(labels) > 1:
            text = f"{shown(doc[start:end].text)}: {', '.join(labels)}"
            info.add_problem(OVERLAPPING, place, text)


def doc_to_task(doc: Doc, extra: Mapping[str, Any] = {}, *, spans_key: str | None = None) -> Task:
    """Make a task of a doc: its tokens, sentence starts, entities and missing annotation.

    doc (Doc): The doc. Blocked tokens count as O.
    extra (Mapping[str, Any]): Other keys of the task.
    spans_key (str | None): A key in `doc.spans`, for its spans in place of the entities.
    RETURNS (Task): The task. `task_to_doc` makes the same doc of it.
    """
    sent_start, iob = doc.to_array([SENT_START, ENT_IOB]).T
    unknown = iob == MISSING if spans_key is None else is_missing(doc, spans_key)
    ents: Iterable[Span] = doc.ents if spans_key is None else doc.spans.get(spans_key, ())
    has_sentences = bool(sent_start.any())
    tokens = [
        (token.idx, token.idx + len(token), token.is_sent_start if has_sentences else None)
        for token in doc
    ]
    spans = []
    for ent in ents:
        ids = {name: one for name, one in zip(ID_KEYS, (ent.kb_id_, ent.ent_id_)) if one}
        spans.append(TaskSpan(ent.start_char, ent.end_char, ent.label_, ids))
    if unknown.all() and not spans:
        return Task(doc.text, None, tokens, (), doc.has_unknown_spaces, extra)
    missing: tuple[Range, ...] = ()
    if unknown.any():
        edges = numpy.flatnonzero(numpy.diff(unknown, prepend=False, append=False)).tolist()
        missing = tuple((tokens[b][0], tokens[e - 1][1]) for b, e in zip(edges[::2], edges[1::2]))
    return Task(doc.text, spans, tokens, missing, doc.has_unknown_spaces, extra)
