"""Tasks to docs and back.

A task is a text with annotated spans (`tasks`). Spans that docs can't have, such as spans that
don't begin and end with tokens, are missing annotation, and are reported. Several annotations of
one text become one doc. Spans of tasks are in characters, `TokenSpan` is in tokens.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, IDX, LENGTH, SENT_START
from spacy.tokens import Doc, Span
from spacy.util import get_words_and_spaces
from thinc.types import Array1d, Ints1d

from ..ent_iob import MISSING
from ..spans import annotate_spans, missing_spans
from ..spans import is_missing as missing_tokens
from .context import Context, CorpusInfo, ReadOptions
from .documents import with_metadata
from .files import SURROGATE, FilePlace, shown
from .sentences import copy_tokens
from .tasks import AnnotatedTask, Range, Task, TaskSpan, TaskToken, has_its_text

KB_ID_KEY = "kb_id"
"""The key of a span's id in a knowledge base: `span.kb_id_`."""

ID_KEY = "id"
"""The key of a span's other id: `span.ent_id_`."""

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
    """The tokens of a span of a task.

    start (int): The first token.
    end (int): The token after the last.
    span (TaskSpan | None): The span. None: the doc can't have it, so the annotation of these tokens
        is missing.
    """

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
        if not task.text:
            context.info.add_problem(EMPTY, place)
            continue
        answer = task.extra.get("answer", "accept")
        # Of several spans it isn't known which of them are wrong.
        has_one_span = task.spans is not None and len(task.spans) == 1
        is_rejected_span = options.incorrect_spans_key and answer == "reject" and has_one_span
        if answer != "accept" and not is_rejected_span:
            context.info.add_problem(NOT_ACCEPTED, place, f"{answer}: {shown(task.text)}")
            continue
        doc = task_to_doc(task, place, context)
        if is_rejected_span:
            _reject_entities(doc, options)
        yield with_metadata(doc, task.extra, options.doc_id)


def _reject_entities(doc: Doc, options: ReadOptions) -> None:
    """Move the entities of a doc to the key of `doc.spans` for rejected spans. What would be right
    in their place isn't known, so all annotation of the doc becomes missing."""
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
    come last, each with its first place."""
    groups: dict[Hashable, list[tuple[FilePlace, Task]]] = {}
    for place, text_key, task in tasks:
        task = _make_explicit(task)
        if text_key is None:  # its text is annotated once
            yield place, task
        else:
            answer = task.extra.get("answer") or "accept"
            group_key = (text_key, task.text, answer)
            groups.setdefault(group_key, []).append((place, task))

    for group in groups.values():
        place, first = group[0]
        annotations = [task for _, task in group]
        merged = _merge_annotations(annotations)
        # Answers to several questions about a text complete each other.
        if len(group) > 1 and not _is_binary(first):
            is_disputed = any(_span_keys(task) != _span_keys(merged) for task in annotations)
            message = DISPUTED if is_disputed else REPEATED
            info.add_problem(message, place, shown(merged.text))
        yield place, merged


def _make_explicit(task: Task) -> Task:
    """Add to a task of Prodigy what its export only implies: a yes-no question says nothing of the
    text but of its span, and an accepted task without spans has no entity."""
    if _is_binary(task):
        return task._replace(spans=task.spans or [], missing=((0, len(task.text)),))
    if task.spans is None and task.extra.get("answer") == "accept":
        return task._replace(spans=[])
    return task


def _merge_annotations(annotations: list[Task]) -> Task:
    """Merge several annotations of one text, at least one. Where some annotate all of its entities,
    only these count: spans that all of them have are kept, and what only some have is missing
    annotation. Otherwise the spans of all yes-no questions are kept."""
    binary: list[Task] = []
    complete: list[Task] = []
    for task in annotations:
        if _is_binary(task):
            binary.append(task)
        elif task.spans is not None:
            complete.append(task)
    best = complete or binary
    if not best:  # nobody has annotated the text
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
        agreed = set.intersection(*map(_span_keys, complete))  # the keys that all annotations have
        for disputed in spans.keys() - agreed:
            start, end, _ = disputed
            missing.add((start, end))
            del spans[disputed]
    return best[0]._replace(spans=list(spans.values()), missing=tuple(sorted(missing)))


def _is_binary(task: Task) -> bool:
    """Whether a task is the answer to a yes-no question about one span: "_is_binary" in Prodigy's
    export."""
    return bool(task.extra.get("_is_binary"))


def _span_key(span: TaskSpan) -> SpanKey:
    """What makes two spans the same, whatever else is said of them."""
    return span.start, span.end, span.label


def _span_keys(task: Task) -> set[SpanKey]:
    """The keys of all spans of a task."""
    return {_span_key(span) for span in task.spans or ()}


def task_to_doc(task: Task, place: FilePlace, context: Context) -> Doc:
    """Make a doc of a task, with the pipeline's tokenizer if the task has no tokens. Its spans
    become entities or, if the options have a `spans_key`, spans under this key.

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
    else:
        _annotate(doc, task, place, context)
    return doc


def _annotate(doc: Doc, task: Task, place: FilePlace, context: Context) -> None:
    """Write the spans of a task, and what nobody has annotated, to its doc: to `doc.ents` or, if
    the options have a `spans_key`, to `doc.spans`. Reports the spans that the doc can't have."""
    spans_key = context.options.spans_key
    offsets = _token_offsets(doc)
    token_spans = _align_spans(doc, offsets, task, place, context.info)
    if spans_key is None:
        token_spans = list(_without_overlap(token_spans, doc, place, context.info))

    is_missing = numpy.zeros(len(doc), dtype=bool)
    for start_char, end_char in task.missing:
        start, end = _touched_tokens(offsets, start_char, end_char)
        is_missing[start:end] = True
    spans = []
    for start, end, span in token_spans:
        if span is None:
            is_missing[start:end] = True
            continue
        if spans_key is None:
            # An entity says what all of its tokens are. Spans may have other spans beside them.
            is_missing[start:end] = False
        spans.append(_make_span(doc, start, end, span, place))

    missing = missing_spans(doc, is_missing)
    if spans_key is None:
        doc.set_ents(spans, missing=missing, default="outside")
    else:
        annotate_spans(doc, spans_key, spans, missing)


def _tokenize(task: Task, context: Context) -> Doc:
    """Make a doc of the text of a task: with the tokens of the task, or else with the pipeline's
    tokenizer. The doc that the tokenizer makes is kept in `context.predicted`, if it is wanted."""
    if task.tokens is None:
        predicted = context.nlp.make_doc(task.text)
        if context.predicted is None:
            return predicted
        doc = copy_tokens(predicted)
        context.predicted[doc] = predicted
        return doc

    text = task.text
    words: list[str] = []
    spaces: list[bool] = []
    for start, end, _ in task.tokens:
        words.append(text[start:end])
        spaces.append(text.startswith(" ", end))
    n_characters = sum(map(len, words)) + sum(spaces)
    if n_characters < len(text):
        # There is other white space between the words, which spaCy has as tokens.
        words, spaces = get_words_and_spaces(words, text)
    if task.has_unknown_spaces:
        return Doc(context.nlp.vocab, words=words)
    return Doc(context.nlp.vocab, words=words, spaces=spaces)


def _set_sent_starts(doc: Doc, tokens: Iterable[TaskToken]) -> None:
    """Set the sentence starts of a doc to those of the tokens of its task. Where a token doesn't
    say whether a sentence starts, it is unknown in the doc, too."""
    if not len(doc):
        return
    # The values of spaCy's SENT_START: 1, -1 for no start, 0 for unknown.
    value_at_char: dict[int, int] = {}
    for token in tokens:
        if token.sent_start in (True, False):
            value_at_char[token.start] = 1 if token.sent_start else -1
    sent_starts = numpy.zeros(len(doc), dtype="int64")
    if value_at_char:
        sent_starts[:] = [value_at_char.get(token.idx, 0) for token in doc]
    doc.from_array([SENT_START], sent_starts.view("uint64"))


def _token_offsets(doc: Doc) -> TokenOffsets:
    """Read the characters of the tokens of a doc."""
    starts = doc.to_array([IDX]).astype("int64").reshape(-1)
    lengths = doc.to_array([LENGTH]).astype("int64").reshape(-1)
    return TokenOffsets(starts, starts + lengths)


def _align_spans(
    doc: Doc, offsets: TokenOffsets, task: Task, place: FilePlace, info: CorpusInfo
) -> list[TokenSpan]:
    """Find the tokens of each span of a task: see `_align`. Of spans with the same tokens and label
    the last is kept."""
    # By first token, end and label. The label is None where the doc can't have the span.
    token_spans: dict[tuple[int, int, str | None], TokenSpan] = {}
    for span in task.spans or ():
        token_span = _align(doc, offsets, task.text, span, place, info)
        label = None
        if token_span.span is not None:
            label = token_span.span.label
        token_spans[token_span.start, token_span.end, label] = token_span
    return list(token_spans.values())


def _align(
    doc: Doc, offsets: TokenOffsets, text: str, span: TaskSpan, place: FilePlace, info: CorpusInfo
) -> TokenSpan:
    """Find the tokens of a span of a task, and report what is wrong with the span. If the doc can't
    have it, these are the tokens whose annotation is missing in its place.

    doc (Doc): The doc, and `offsets` the characters of its tokens.
    text (str): The text of the task, from which the span counts.
    span (TaskSpan): The span.
    place (FilePlace): The place of the task, for the problems.
    info (CorpusInfo): Gets the problems.
    RETURNS (TokenSpan): The tokens.
    """
    span_text = text[span.start : span.end]
    span_and_label = f"{span_text!r} {span.label}"
    if not has_its_text(text, span):
        expected = f"{span_and_label}, expected {span.extra['text']!r}"
        info.add_problem(MISPLACED, place, expected)
        return TokenSpan(0, len(doc), None)  # the entity may be anywhere

    # White space is a token of its own, or of none: a span with it would not align.
    n_leading = len(span_text) - len(span_text.lstrip())
    n_trailing = len(span_text) - len(span_text.rstrip())
    start = span.start + n_leading
    end = span.end - n_trailing
    if start >= end:
        info.add_problem(ONLY_SPACE, place, span_and_label)
        return TokenSpan(0, 0, None)  # no tokens
    if end - start < len(span_text):
        info.add_problem(PADDED, place, span_and_label)

    doc_span = doc.char_span(start, end)
    if doc_span is None:
        first_token, end_token = _touched_tokens(offsets, start, end)
        touched_text = doc[first_token:end_token].text
        info.add_problem(MISALIGNED, place, f"{span_and_label} in {touched_text!r}")
        return TokenSpan(first_token, end_token, None)
    return TokenSpan(doc_span.start, doc_span.end, span)


def _touched_tokens(offsets: TokenOffsets, start: int, end: int) -> Range:
    """Find the tokens that have at least one of the characters from `start` to `end`, as the first
    token and the one after the last."""
    # The first token that ends after the start, and the first that doesn't begin before the end.
    first_token = int(numpy.searchsorted(offsets.ends, start, side="right"))
    end_token = int(numpy.searchsorted(offsets.starts, end, side="left"))
    if first_token >= end_token:  # the characters are all between two tokens
        return 0, 0
    return first_token, end_token


def _without_overlap(
    token_spans: list[TokenSpan], doc: Doc, place: FilePlace, info: CorpusInfo
) -> Iterator[TokenSpan]:
    """Replace spans that overlap, which entities can't, by missing annotation of all their tokens,
    and report them."""
    # Spans that overlap, directly or by others between them, are a group.
    groups: list[list[TokenSpan]] = []
    group_end = 0
    for token_span in sorted(token_spans, key=lambda span: (span.start, span.end)):
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
    """Make a span of tokens, with the label and the ids of a span of the task. `place` is that of
    the task, for errors."""
    kb_id = _read_id(span, KB_ID_KEY, place)
    span_id = _read_id(span, ID_KEY, place)
    return Span(doc, start, end, span.label, kb_id=kb_id, span_id=span_id)


def _read_id(span: TaskSpan, key: str, place: FilePlace) -> str:
    """The id that a span of a task has under a key; "" if it has none, or one that isn't text,
    which spaCy can't have. `place` is that of the task, for errors."""
    span_id = span.extra.get(key)
    if not isinstance(span_id, str):
        return ""
    if SURROGATE.search(span_id):
        expected = "expected ids of spans that can be UTF-8"
        raise place.refuse(f"{expected}, got {shown(span_id)}")
    return span_id


def doc_to_task(doc: Doc, extra: Mapping[str, Any] = {}, *, spans_key: str | None = None) -> Task:
    """Make a task of a doc, to write it in the form of an annotation tool: its tokens, sentence
    starts, entities and missing annotation.

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
        if ent.kb_id_:
            ids[KB_ID_KEY] = ent.kb_id_
        if ent.ent_id_:
            ids[ID_KEY] = ent.ent_id_
        spans.append(TaskSpan(ent.start_char, ent.end_char, ent.label_, ids))

    task = Task(doc.text, None, tokens, has_unknown_spaces=doc.has_unknown_spaces, extra=extra)
    if is_missing.all() and not spans:  # nobody has annotated the doc
        return task
    return task._replace(spans=spans, missing=_missing_ranges(tokens, is_missing))


def _missing_ranges(tokens: Sequence[TaskToken], is_missing: Array1d) -> tuple[Range, ...]:
    """The characters, from and to, of each run of tokens whose annotation is missing. `is_missing`
    has a truth value for each token, (T,)."""
    # A run begins and ends where a token differs from the one before it. The places of F T T F T
    # are 1 3 4 5: begins at even indices, ends at odd ones. (2 * runs,)
    edges = numpy.flatnonzero(numpy.diff(is_missing, prepend=False, append=False)).tolist()
    begins = edges[::2]
    ends = edges[1::2]
    ranges: list[Range] = []
    for begin, end in zip(begins, ends):
        ranges.append((tokens[begin].start, tokens[end - 1].end))
    return tuple(ranges)
