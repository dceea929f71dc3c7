"""Tasks to docs and back.

Spans that docs can't have are missing annotation, and are reported. Several annotations of one text
become one doc.
"""

from itertools import groupby
from typing import Any, Dict, Hashable, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

import numpy
from spacy.attrs import ENT_ID, ENT_IOB, ENT_KB_ID, ENT_TYPE, SENT_START
from spacy.tokens import Doc, Span
from spacy.util import get_words_and_spaces

from ..spans import annotate_spans, is_missing
from .context import Context, CorpusInfo
from .documents import with_data
from .files import Place, shown
from .schemes import BEGIN, INSIDE, MISSING, OUTSIDE
from .sentences import copy_tokens
from .tasks import Annotated, Range, Task, TaskSpan, TaskToken, has_its_text

ATTRS = [SENT_START, ENT_IOB, ENT_TYPE, ENT_KB_ID, ENT_ID]

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

TokenSpan = Tuple[int, int, Optional[TaskSpan]]
"""Tokens from and to, and their span. None: their annotation is missing."""


def tasks_to_docs(tasks: Iterable[Annotated], context: Context) -> Iterator[Doc]:
    """Make docs of tasks. If the options have a key of `doc.spans` for rejected spans, the span of
    a rejected task is there, and everything else in its doc is missing annotation."""
    key, spans_key = context.options.incorrect_spans_key, context.options.spans_key
    info = context.info
    for place, task in merge_tasks(tasks, info):
        answer = _answer(task)
        is_rejected_span = answer == "reject" and len(task.spans or ()) == 1
        if not task.text:
            info.add_problem(EMPTY, place)
        elif answer == "accept" or (key and is_rejected_span):
            doc = task_to_doc(task, place, context)
            if key and is_rejected_span:
                found = doc.ents if spans_key is None else doc.spans.pop(spans_key)
                rejected = [Span(doc, ent.start, ent.end, label=ent.label) for ent in found]
                doc.set_ents([], default="missing")
                doc.spans[key] = rejected
            yield with_data(doc, task.extra, context.options.doc_id)
        else:
            info.add_problem(NOT_ACCEPTED, place, f"{answer}: {shown(task.text)}")


def _answer(task: Task) -> str:
    return task.extra.get("answer", "accept")


def merge_tasks(tasks: Iterable[Annotated], info: CorpusInfo) -> Iterator[Tuple[Place, Task]]:
    """Merge annotations of the same text into one, so that no doc contradicts another. Merged tasks
    come last, each with its first place.

    Spans that all annotations have are kept. What only some have is missing annotation. Of yes-no
    questions ("_is_binary" in Prodigy's export) all accepted spans are kept, and the rest of the
    text is missing annotation.
    """
    groups: Dict[Hashable, List[Tuple[Place, Task]]] = {}
    for place, key, task in tasks:
        if key is None:
            yield place, _read_answer(task)
        else:
            groups.setdefault((key, task.text, _answer(task)), []).append((place, task))
    for group in groups.values():
        place, first = group[0]
        answers = [_read_answer(task) for _, task in group]
        task = _merge(answers)
        if len(group) > 1 and not _is_binary(first):
            is_disputed = any(_keys(other) != _keys(task) for other in answers)
            info.add_problem(DISPUTED if is_disputed else REPEATED, place, shown(task.text))
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


def task_to_doc(task: Task, place: Place, context: Context) -> Doc:
    """Make a doc of a task, with the pipeline's tokenizer if the task has no tokens. The context
    gets the spans that the doc can't have.

    RAISES (CorpusError): If spaCy can't make a doc of the text.
    """
    try:
        doc = _tokenize(task, context)
    except ValueError as error:  # The text is too long, or has surrogates.
        raise place.refuse(f"expected a text that spaCy can read: {error}") from None
    columns = numpy.zeros((len(doc), len(ATTRS)), dtype="uint64")
    columns[:, 0] = _sentence_starts(doc, task.tokens or [])
    aligned = {
        (start, end, used and used.label): (start, end, used)
        for span in task.spans or ()
        for start, end, used in [_align(doc, task.text, span, place, context.info)]
    }
    unknown = [_expand(doc, start, end) for start, end in task.missing]
    spans_key = context.options.spans_key
    if task.spans is None:
        context.info.add_problem(UNANNOTATED, place)
    elif spans_key is None:
        columns[:, 1] = OUTSIDE
        for first, last in unknown:
            columns[first:last, 1] = MISSING
        for start, end, used in _without_overlap([*aligned.values()], doc, place, context.info):
            columns[start:end, 1] = MISSING
            if used is not None:
                columns[start:end, 1] = INSIDE
                columns[start, 1] = BEGIN
                columns[start:end, 2] = doc.vocab.strings.add(used.label)
                for column, key in ((3, "kb_id"), (4, "id")) if used.extra else ():
                    if isinstance(name := used.extra.get(key), str):
                        columns[start:end, column] = doc.vocab.strings.add(name)
    doc = doc.from_array(ATTRS, columns) if len(doc) else doc
    if spans_key is not None and task.spans is not None:
        unknown += [(start, end) for start, end, used in aligned.values() if used is None]
        missing = [doc[start:end] for start, end in unknown if start < end]
        spans = [Span(doc, b, e, used.label) for b, e, used in aligned.values() if used is not None]
        annotate_spans(doc, spans_key, spans, missing)
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
    if sum(map(len, words)) + sum(spaces) < len(text):
        words, spaces = get_words_and_spaces(words, text)
    return Doc(context.nlp.vocab, words=words, spaces=None if task.has_unknown_spaces else spaces)


def _sentence_starts(doc: Doc, tokens: List[TaskToken]) -> Any:
    """SENT_START of the tokens of a doc. Shape: (T,)"""
    known = [sent_start for _, _, sent_start in tokens]
    if True not in known and False not in known:
        return 0
    if len(known) < len(doc):  # White space between tokens is a token of the doc, too.
        starts = {start: sent_start for start, _, sent_start in tokens}
        known = [starts.get(token.idx) for token in doc]
    values = [1 if is_start is True else -1 if is_start is False else 0 for is_start in known]
    return numpy.asarray(values, dtype="int64").view("uint64")


def _align(doc: Doc, text: str, span: TaskSpan, place: Place, info: CorpusInfo) -> TokenSpan:
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
        first, last = _expand(doc, start, end)
        info.add_problem(MISALIGNED, place, f"{own!r} {span.label} in {doc[first:last].text!r}")
        return first, last, None
    return aligned.start, aligned.end, span


def _expand(doc: Doc, start: int, end: int) -> Range:
    """All tokens that some characters touch, from and to."""
    touched = [token.i for token in doc if token.idx < end and token.idx + len(token) > start]
    return (touched[0], touched[-1] + 1) if touched else (0, 0)


def _without_overlap(
    spans: List[TokenSpan], doc: Doc, place: Place, info: CorpusInfo
) -> Iterator[TokenSpan]:
    """Replace spans that overlap by missing annotation of all their tokens."""
    group: List[TokenSpan] = []
    last: TokenSpan = (len(doc), len(doc), None)
    for one in [*sorted(spans, key=lambda one: one[:2]), last]:
        stop = max((end for _, end, _ in group), default=0)
        if group and one[0] >= stop:
            begin = group[0][0]
            yield group[0] if len(group) == 1 else (begin, stop, None)
            labels = [span.label for _, _, span in group if span is not None]
            if len(labels) > 1:
                text = f"{shown(doc[begin:stop].text)}: {', '.join(labels)}"
                info.add_problem(OVERLAPPING, place, text)
            group = []
        group.append(one)


def doc_to_task(
    doc: Doc, extra: Mapping[str, Any] = {}, *, spans_key: Optional[str] = None
) -> Task:
    """Make a task of a doc: its tokens, sentence starts, entities and missing annotation.

    doc (Doc): The doc. Blocked tokens count as O.
    extra (Mapping[str, Any]): Other keys of the task.
    spans_key (Optional[str]): A key in `doc.spans`, for its spans in place of the entities.
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
    spans = [TaskSpan(ent.start_char, ent.end_char, ent.label_, _ids(ent)) for ent in ents]
    by_state = groupby(range(len(doc)), unknown.tolist().__getitem__)
    runs = [[*run] for value, run in by_state if value]
    missing = tuple((tokens[run[0]][0], tokens[run[-1]][1]) for run in runs)
    if unknown.all() and not spans:
        return Task(doc.text, None, tokens, (), doc.has_unknown_spaces, extra)
    return Task(doc.text, spans, tokens, missing, doc.has_unknown_spaces, extra)


def _ids(ent: Span) -> Dict[str, str]:
    ids = {"kb_id": ent.kb_id_, "id": ent.ent_id_}
    return {name: value for name, value in ids.items() if value}
