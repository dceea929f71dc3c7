"""Tasks to docs and back.

Spans that docs can't have are missing annotation, and are reported. Several annotations of one text
become one doc.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, IDX, LENGTH, SENT_START
from spacy.tokens import Doc, Span
from spacy.util import get_words_and_spaces
from thinc.types import Ints1d

from ..ent_iob import MISSING
from ..spans import annotate_spans
from ..spans import is_missing as missing_tokens
from .context import Context, CorpusInfo, ReadOptions
from .documents import with_metadata
from .files import SURROGATE, FilePlace, shown
from .sentences import copy_tokens
from .tasks import AnnotatedTask, Range, Task, TaskSpan, TaskToken, has_its_text

ID_KEYS = ("kb_id", "id")
"""Keys of the ids of a span: in a knowledge base, and its own."""

SpanKey = tuple[int, int, str]
"""Start, end and label: spans with the same are one."""

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


class TokenOffsets(NamedTuple):
    """The characters at which each token of a doc begins and ends. Shapes: (T,)"""

    starts: Ints1d
    ends: Ints1d


class TokenSpan(NamedTuple):
    """Tokens from and to, and their span. None: their annotation is missing."""

    start: int
    end: int
    span: TaskSpan | None


def tasks_to_docs(tasks: Iterable[AnnotatedTask], context: Context) -> Iterator[Doc]:
    """Make docs of tasks. If the options have a key of `doc.spans` for rejected spans, the span of
    a rejected task is there, and everything else in its doc is missing annotation.

    tasks (Iterable[AnnotatedTask]): The tasks of a file.
    context (Context): What the reader needs. Its info gets what docs can't have.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If spaCy can't make a doc of a text.
    """
    options = context.options
    for place, task in _merge_tasks(tasks, context.info):
        answer = task.extra.get("answer", "accept")
        is_rejected_span = (
            options.incorrect_spans_key and answer == "reject" and len(task.spans or ()) == 1
        )
        if not task.text:
            context.info.add_problem(EMPTY, place)
            continue
        if answer != "accept" and not is_rejected_span:
            context.info.add_problem(NOT_ACCEPTED, place, f"{answer}: {shown(task.text)}")
            continue
        doc = task_to_doc(task, place, context)
        if is_rejected_span:
            _reject_entities(doc, options)
        yield with_metadata(doc, task.extra, options.doc_id)


def _reject_entities(doc: Doc, options: ReadOptions) -> None:
    """Move the entities of a doc to the key of rejected spans. What is right is not known."""
    assert options.incorrect_spans_key is not None
    entities: Iterable[Span] = doc.ents
    if options.spans_key is not None:
        entities = doc.spans.pop(options.spans_key)
    rejected = [Span(doc, ent.start, ent.end, label=ent.label) for ent in entities]
    doc.set_ents([], default="missing")
    doc.spans[options.incorrect_spans_key] = rejected


def _merge_tasks(
    tasks: Iterable[AnnotatedTask], info: CorpusInfo
) -> Iterator[tuple[FilePlace, Task]]:
    """Merge annotations of the same text into one, so that no doc contradicts another. Merged tasks
    come last, each with its first place.

    An accepted task without spans has no entity. Spans that all annotations have are kept. What
    only some have is missing annotation. Of yes-no questions ("_is_binary" in Prodigy's export) all
    accepted spans are kept, and the rest of the text is missing annotation.
    """
    groups: dict[Hashable, list[tuple[FilePlace, Task]]] = {}
    for place, text_key, task in tasks:
        answer = task.extra.get("answer")
        if _is_binary(task):
            # Nothing but the span of the question is annotated.
            task = task._replace(spans=task.spans or [], missing=((0, len(task.text)),))
        elif task.spans is None and answer == "accept":
            task = task._replace(spans=[])
        if text_key is None:
            yield place, task
        else:
            group_key = (text_key, task.text, answer or "accept")
            groups.setdefault(group_key, []).append((place, task))
    for group in groups.values():
        place, first = group[0]
        annotations = [task for _, task in group]
        merged = _merge_annotations(annotations)
        if len(group) > 1 and not _is_binary(first):
            is_disputed = any(_span_keys(task) != _span_keys(merged) for task in annotations)
            info.add_problem(DISPUTED if is_disputed else REPEATED, place, shown(merged.text))
        yield place, merged


def _merge_annotations(annotations: list[Task]) -> Task:
    """Merge annotations of a text. Those of all of its entities say more than answers to yes-no
    questions, and these more than none."""
    binary: list[Task] = []
    complete: list[Task] = []
    for task in annotations:
        if _is_binary(task):
            binary.append(task)
        elif task.spans is not None:
            complete.append(task)
    best = complete or binary
    if not best:
        return annotations[0]
    if len(best) == 1:
        return best[0]
    # What is said of a span beside its label, such as an id, is that of the last annotation.
    spans: dict[SpanKey, TaskSpan] = {}
    missing: set[Range] = set()
    for task in best:
        missing.update(task.missing)
        for span in task.spans or ():
            spans[_span_key(span)] = span
    if complete:
        agreed = set.intersection(*map(_span_keys, complete))
        missing.update((start, end) for start, end, _ in spans.keys() - agreed)
        spans = {key: span for key, span in spans.items() if key in agreed}
    return best[0]._replace(spans=list(spans.values()), missing=tuple(sorted(missing)))


def _is_binary(task: Task) -> bool:
    """Whether a task is the answer to a yes-no question."""
    return bool(task.extra.get("_is_binary"))


def _span_key(span: TaskSpan) -> SpanKey:
    return span.start, span.end, span.label


def _span_keys(task: Task) -> set[SpanKey]:
    return {_span_key(span) for span in task.spans or ()}


def task_to_doc(task: Task, place: FilePlace, context: Context) -> Doc:
    """Make a doc of a task, with the pipeline's tokenizer if the task has no tokens.

    task (Task): The task.
    place (FilePlace): Its place, for errors and problems.
    context (Context): What the reader needs. Its info gets the spans that the doc can't have.
    RETURNS (Doc): The doc.
    RAISES (CorpusError): If spaCy can't make a doc of the text.
    """
    try:
        doc = _tokenize(task, context)
    except ValueError as error:  # The text is too long, or has surrogates.
        raise place.refuse(f"expected a text that spaCy can read: {error}") from None
    _set_sent_starts(doc, task.tokens or ())
    if task.spans is None:
        context.info.add_problem(UNANNOTATED, place)
        return doc
    spans_key = context.options.spans_key
    offsets = _token_offsets(doc)
    token_spans = _align_spans(doc, offsets, task, place, context.info)
    is_missing = numpy.zeros(len(doc), dtype=bool)
    for start_char, end_char in task.missing:
        start, end = _expand(offsets, start_char, end_char)
        is_missing[start:end] = True
    if spans_key is None:
        token_spans = list(_without_overlap(token_spans, doc, place, context.info))
    spans = []
    for start, end, span in token_spans:
        if span is None:
            is_missing[start:end] = True
            continue
        if spans_key is None:
            # Entities say what all of their tokens are. Spans may have other spans beside them.
            is_missing[start:end] = False
        spans.append(_make_span(doc, start, end, span, place))
    missing = [doc[i : i + 1] for i in numpy.flatnonzero(is_missing).tolist()]
    if spans_key is None:
        doc.set_ents(spans, missing=missing, default="outside")
    else:
        annotate_spans(doc, spans_key, spans, missing)
    return doc


def _tokenize(task: Task, context: Context) -> Doc:
    """Make a doc of the text of a task, with its tokens if it has them."""
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
    if task.has_unknown_spaces:
        return Doc(context.nlp.vocab, words=words)
    return Doc(context.nlp.vocab, words=words, spaces=spaces)


def _set_sent_starts(doc: Doc, tokens: Iterable[TaskToken]) -> None:
    """Set the sentence starts that the tokens of a task have. 0 is unknown."""
    value_at_char: dict[int, int] = {}
    for token in tokens:
        if token.sent_start in (True, False):
            value_at_char[token.start] = 1 if token.sent_start else -1
    values = numpy.zeros(len(doc), dtype="int64")
    if value_at_char:
        values[:] = [value_at_char.get(token.idx, 0) for token in doc]
    if len(doc):
        doc.from_array([SENT_START], values.view("uint64"))


def _token_offsets(doc: Doc) -> TokenOffsets:
    starts = doc.to_array([IDX]).astype("int64").reshape(-1)
    lengths = doc.to_array([LENGTH]).astype("int64").reshape(-1)
    return TokenOffsets(starts, starts + lengths)


def _align_spans(
    doc: Doc, offsets: TokenOffsets, task: Task, place: FilePlace, info: CorpusInfo
) -> list[TokenSpan]:
    """The tokens of the spans of a task. Spans with the same tokens and label are one."""
    aligned: dict[tuple[int, int, str | None], TokenSpan] = {}
    for span in task.spans or ():
        token_span = _align(doc, offsets, task.text, span, place, info)
        label = None if token_span.span is None else token_span.span.label
        aligned[token_span.start, token_span.end, label] = token_span
    return list(aligned.values())


def _align(
    doc: Doc, offsets: TokenOffsets, text: str, span: TaskSpan, place: FilePlace, info: CorpusInfo
) -> TokenSpan:
    """The tokens of a span. Reports what is wrong with it."""
    span_text = text[span.start : span.end]
    if not has_its_text(text, span):
        expected = f"{span_text!r} {span.label}, expected {span.extra['text']!r}"
        info.add_problem(MISPLACED, place, expected)
        return TokenSpan(0, len(doc), None)
    # White space is a token of its own, or of none: a span with it would not align.
    start = span.start + len(span_text) - len(span_text.lstrip())
    end = span.end - (len(span_text) - len(span_text.rstrip()))
    if start >= end:
        info.add_problem(ONLY_SPACE, place, f"{span_text!r} {span.label}")
        return TokenSpan(0, 0, None)
    if end - start < len(span_text):
        info.add_problem(PADDED, place, f"{span_text!r} {span.label}")
    doc_span = doc.char_span(start, end)
    if doc_span is None:
        first, last = _expand(offsets, start, end)
        tokens = doc[first:last].text
        info.add_problem(MISALIGNED, place, f"{span_text!r} {span.label} in {tokens!r}")
        return TokenSpan(first, last, None)
    return TokenSpan(doc_span.start, doc_span.end, span)


def _expand(offsets: TokenOffsets, start: int, end: int) -> Range:
    """All tokens that some characters touch, from and to."""
    # The first token that ends after the start, and the first that doesn't begin before the end.
    first = int(numpy.searchsorted(offsets.ends, start, side="right"))
    last = int(numpy.searchsorted(offsets.starts, end, side="left"))
    return (first, last) if first < last else (0, 0)


def _without_overlap(
    token_spans: list[TokenSpan], doc: Doc, place: FilePlace, info: CorpusInfo
) -> Iterator[TokenSpan]:
    """Replace spans that overlap by missing annotation of all their tokens."""
    groups: list[list[TokenSpan]] = []
    group_end = 0
    for token_span in sorted(token_spans, key=lambda token_span: token_span[:2]):
        if token_span.start >= group_end:
            groups.append([])
        groups[-1].append(token_span)
        group_end = max(group_end, token_span.end)
    for group in groups:
        if len(group) == 1:
            yield group[0]
            continue
        start = group[0].start
        end = max(token_span.end for token_span in group)
        yield TokenSpan(start, end, None)
        # Spans that don't align were reported already.
        labels = [span.label for _, _, span in group if span is not None]
        if len(labels) > 1:
            text = f"{shown(doc[start:end].text)}: {', '.join(labels)}"
            info.add_problem(OVERLAPPING, place, text)


def _make_span(doc: Doc, start: int, end: int, span: TaskSpan, place: FilePlace) -> Span:
    """Make a span of tokens, with the label and the ids of a span of the task."""
    ids = []
    for key in ID_KEYS:
        name = span.extra.get(key)
        ids.append(name if isinstance(name, str) else "")
    for name in ids:
        if SURROGATE.search(name):
            expected = "expected ids of spans that can be UTF-8"
            raise place.refuse(f"{expected}, got {shown(name)}")
    kb_id, span_id = ids
    return Span(doc, start, end, span.label, kb_id=kb_id, span_id=span_id)


def doc_to_task(doc: Doc, extra: Mapping[str, Any] = {}, *, spans_key: str | None = None) -> Task:
    """Make a task of a doc: its tokens, sentence starts, entities and missing annotation.

    doc (Doc): The doc. Blocked tokens count as O.
    extra (Mapping[str, Any]): Other keys of the task.
    spans_key (str | None): A key in `doc.spans`, for its spans in place of the entities.
    RETURNS (Task): The task. `task_to_doc` makes the same doc of it.
    """
    sent_start, iob = doc.to_array([SENT_START, ENT_IOB]).T
    has_sentences = bool(sent_start.any())
    if spans_key is None:
        is_missing = iob == MISSING
        ents: Iterable[Span] = doc.ents
    else:
        is_missing = missing_tokens(doc, spans_key)
        ents = doc.spans.get(spans_key, ())
    tokens = []
    for token in doc:
        is_sent_start = token.is_sent_start if has_sentences else None
        tokens.append(TaskToken(token.idx, token.idx + len(token), is_sent_start))
    spans = []
    for ent in ents:
        ids = {}
        for key, name in zip(ID_KEYS, (ent.kb_id_, ent.ent_id_)):
            if name:
                ids[key] = name
        spans.append(TaskSpan(ent.start_char, ent.end_char, ent.label_, ids))
    if is_missing.all() and not spans:
        return Task(doc.text, None, tokens, (), doc.has_unknown_spaces, extra)
    missing: list[Range] = []
    # Missing annotation begins and ends where a token differs from the one before it: begins and
    # ends in turn, (2 * parts,).
    edges = numpy.flatnonzero(numpy.diff(is_missing, prepend=False, append=False)).tolist()
    for begin, end in zip(edges[::2], edges[1::2]):
        missing.append((tokens[begin].start, tokens[end - 1].end))
    return Task(doc.text, spans, tokens, tuple(missing), doc.has_unknown_spaces, extra)
