"""Convert tasks to docs and back.

A task is a text with annotated spans: see `tasks`. Its spans are ranges of characters, and the
spans of a doc are ranges of tokens: see `token_spans`. Several annotations of the same text are
merged into one doc: see `task_merging`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
from spacy.attrs import ENT_IOB, SENT_START
from spacy.tokens import Doc, Span
from spacy.util import get_words_and_spaces
from thinc.types import Array1d

from ..annotation.iob import MISSING
from ..annotation.spans import annotate_spans, missing_spans
from ..annotation.spans import is_missing as missing_tokens
from .conflicts import merge_texts
from .context import Context, Places
from .documents import with_metadata
from .files import SURROGATE, FilePlace, shown
from .offsets import Range
from .sentences import copy_without_annotation
from .task_merging import BINARY_KEY, MANUAL_VIEWS, answer_to, merge_tasks, view_of
from .tasks import AnnotatedTask, Task, TaskSpan, TaskToken
from .token_spans import TokenSpan, align_spans, token_offsets, touched_tokens, without_overlap

KB_ID_KEY = "kb_id"
"""The key of a span's ID in a knowledge base, `span.kb_id_`."""

ID_KEY = "id"
"""The key of a span's own ID, `span.ent_id_`."""

SCORE_KEY = "score"
"""The key of a span's score, a probability."""

UNANNOTATED = "texts without annotation: it is missing in the whole doc"
NOT_ACCEPTED = "examples that were rejected or ignored are left out"
NOT_ACCEPTED_SPANS = "spans were rejected or ignored: their tokens are missing annotation"
CONTRADICTED = "spans were accepted and rejected: their tokens are missing annotation"
EMPTY = "texts are empty: they are left out"


def tasks_to_docs(tasks: Iterable[AnnotatedTask], context: Context) -> Iterator[Doc]:
    """Create docs from tasks. Rejected or ignored tasks and tasks without text are skipped and
    reported. If the option `incorrect_spans_key` is set, a rejected task with a single span is
    converted to a doc with this span under that key in `doc.spans`. All other annotation of the doc
    is missing.

    tasks (Iterable[AnnotatedTask]): The tasks of a file.
    context (Context): The pipeline and the options. Problems are added to `context.info`.
    YIELDS (Doc): The annotated docs.
    RAISES (CorpusError): If spaCy doesn't support a text or the ID of a span, or a score is
        invalid.
    """
    options = context.options
    for annotations in merge_tasks(tasks, context.info, options):
        docs = list(_annotations_to_docs(annotations, context))
        if options.conflicts is not None and options.doc_id is not None:
            # `read_docs` merges docs after their sentences have been joined, so the annotations of
            # a sentence are merged here.
            places = Places() if context.places is None else context.places
            yield from merge_texts(
                docs,
                options.conflicts,
                options.spans_key,
                places,
                context.info,
                incorrect_spans_key=options.incorrect_spans_key,
            )
        else:
            yield from docs


def _annotations_to_docs(
    annotations: Iterable[tuple[FilePlace, Task]], context: Context
) -> Iterator[Doc]:
    """Create docs from tasks with their locations: see `tasks_to_docs`."""
    options = context.options
    for place, task in annotations:
        if not task.text:
            context.info.add_problem(EMPTY, place)
            continue
        answer = answer_to(task)
        if answer == "reject" and options.incorrect_spans_key and _is_about_one_span(task):
            task = _with_rejected_span(task)
        elif answer != "accept":
            context.info.add_problem(NOT_ACCEPTED, place, f"{answer}: {shown(task.text)}")
            continue
        doc = task_to_doc(task, place, context)
        with_metadata(doc, task.extra, id_key=options.doc_id)
        yield context.placed(doc, place)


def _is_about_one_span(task: Task) -> bool:
    """Check whether a rejected task means that its span is wrong. If there are several spans, it is
    unknown which of them are wrong. In interfaces for annotating all spans, a rejection applies to
    the whole text."""
    return len(task.spans or ()) == 1 and view_of(task) not in MANUAL_VIEWS


def _with_rejected_span(task: Task) -> Task:
    """Mark the span of a rejected task as rejected. The correct entities are unknown, so all
    annotation of the text is missing."""
    rejected_spans: list[TaskSpan] = []
    for span in task.spans or ():
        rejected_spans.append(span._replace(extra={**span.extra, "answer": "reject"}))
    return task._replace(spans=rejected_spans, missing=((0, len(task.text)),))


def task_to_doc(task: Task, place: FilePlace, context: Context) -> Doc:
    """Create a doc from a task. If the task has no tokens, its text is tokenized by the pipeline.
    Spans become entities or, if the option `spans_key` is set, spans under this key.

    task (Task): The text and its spans.
    place (FilePlace): The location of the task, for errors and problems.
    context (Context): The pipeline and the options. Spans that the doc can't represent are added to
        `context.info` as problems.
    RETURNS (Doc): The annotated doc.
    RAISES (CorpusError): If spaCy doesn't support the text or the ID of a span, or a score is
        invalid.
    """
    try:
        doc = _tokenize(task, context)
    except ValueError as error:  # the text is too long or contains surrogates
        raise place.refuse(f"expected a text that spaCy can read: {error}") from None
    _set_sent_starts(doc, task.tokens or ())
    if task.spans is None:
        context.info.add_problem(UNANNOTATED, place)
    else:
        _write_annotation(doc, task, place, context)
    return doc


def _write_annotation(doc: Doc, task: Task, place: FilePlace, context: Context) -> None:
    """Write the annotation of a task to `doc.ents` or, if the option `spans_key` is set, to
    `doc.spans`. Spans that the doc can't represent are reported as problems."""
    spans_key = context.options.spans_key
    offsets = token_offsets(doc)
    accepted_task, other_task = _split_by_answer(task)
    token_spans = align_spans(doc, offsets, accepted_task, place, context)
    other_spans = align_spans(doc, offsets, other_task, place, context)
    contradicted = _token_span_keys(token_spans) & _token_span_keys(other_spans)
    for start, end, label in sorted(contradicted):
        context.info.add_problem(CONTRADICTED, place, f"{doc[start:end].text!r} {label}")
    token_spans = _without_spans(token_spans, contradicted)
    other_spans = _without_spans(other_spans, contradicted)
    if context.scores is not None:
        context.scores[doc] = _read_scores(token_spans, place)
    if spans_key is None:
        token_spans = list(without_overlap(token_spans, doc, place, context.info))

    is_missing = numpy.zeros(len(doc), dtype=bool)  # whether each token is missing annotation
    for start_char, end_char in task.missing:
        start, end = touched_tokens(offsets, start_char, end_char)
        is_missing[start:end] = True
    for start, end, _ in other_spans:
        is_missing[start:end] = True
    spans = []
    for start, end, span in token_spans:
        if span is None:  # the doc can't represent the span
            is_missing[start:end] = True
            continue
        if spans_key is None:
            # All tokens of an entity are annotated. With a `spans_key`, other spans may still be
            # missing there.
            is_missing[start:end] = False
        spans.append(_make_span(doc, start, end, span, place))

    missing = missing_spans(doc, is_missing)
    if spans_key is None:
        doc.set_ents(spans, missing=missing, default="outside")
    elif spans or not is_missing.all():  # without the key, a doc is not annotated at all
        annotate_spans(doc, spans_key, spans, missing)
    _write_incorrect_spans(doc, other_spans, place, context)


def _split_by_answer(task: Task) -> tuple[Task, Task]:
    """Split a task into one with the accepted spans, and one with the rejected and ignored
    spans."""
    accepted: list[TaskSpan] = []
    others: list[TaskSpan] = []
    for span in task.spans or ():
        if answer_to(span) == "accept":
            accepted.append(span)
        else:
            others.append(span)
    return task._replace(spans=accepted), task._replace(spans=others)


def _token_span_keys(token_spans: Iterable[TokenSpan]) -> set[tuple[int, int, str]]:
    """Return the first token, the token after the last, and the label of each aligned span."""
    return {(start, end, span.label) for start, end, span in token_spans if span is not None}


def _without_spans(
    token_spans: Iterable[TokenSpan], keys: Collection[tuple[int, int, str]]
) -> list[TokenSpan]:
    """Replace spans that match one of these keys with missing annotation."""
    kept_spans: list[TokenSpan] = []
    for start, end, span in token_spans:
        if span is not None and (start, end, span.label) in keys:
            span = None
        kept_spans.append(TokenSpan(start, end, span))
    return kept_spans


def _read_scores(
    token_spans: Iterable[TokenSpan], place: FilePlace
) -> dict[tuple[int, int, str], float]:
    """Read the scores of aligned spans that have one. Raises an error if a score isn't a number
    from 0 to 1."""
    scores: dict[tuple[int, int, str], float] = {}
    for start, end, span in token_spans:
        if span is None or SCORE_KEY not in span.extra:
            continue
        score = span.extra[SCORE_KEY]
        # `isinstance` would also accept a bool as an int.
        if type(score) not in (int, float) or not 0 <= score <= 1:
            raise place.refuse(f"{SCORE_KEY}: expected a number from 0 to 1, got {shown(score)}")
        scores[start, end, span.label] = float(score)
    return scores


def _write_incorrect_spans(
    doc: Doc, token_spans: Iterable[TokenSpan], place: FilePlace, context: Context
) -> None:
    """Write rejected spans to `doc.spans` under the `incorrect_spans_key`. Ignored spans are
    reported, and so are rejected spans if the key isn't set."""
    key = context.options.incorrect_spans_key
    incorrect_spans: list[Span] = []
    for start, end, span in token_spans:
        if span is None:
            continue
        answer = answer_to(span)
        if key is not None and answer == "reject":
            incorrect_spans.append(Span(doc, start, end, span.label))
        else:
            text = f"{answer}: {doc[start:end].text!r} {span.label}"
            context.info.add_problem(NOT_ACCEPTED_SPANS, place, text)
    if key is not None and incorrect_spans:
        doc.spans[key] = incorrect_spans


def _tokenize(task: Task, context: Context) -> Doc:
    """Create a doc with the tokens of a task or, if it has none, with the pipeline's tokenizer. The
    doc that the tokenizer creates is stored in `context.predicted`, unless this is None, and a copy
    is returned. A spaCy example requires both a doc with annotation and one without."""
    if task.tokens is None:
        predicted = context.nlp.make_doc(task.text)
        if context.predicted is None:
            return predicted
        doc = copy_without_annotation(predicted)
        context.predicted[doc] = predicted
        return doc

    text = task.text
    words: list[str] = []
    spaces: list[bool] = []
    # A space that belongs to the next token isn't the trailing space of the previous one.
    starts = {token.start for token in task.tokens}
    for start, end, _ in task.tokens:
        words.append(text[start:end])
        spaces.append(text.startswith(" ", end) and end not in starts)
    n_characters = sum(map(len, words)) + sum(spaces)
    if n_characters < len(text):
        # The text contains more than words and single spaces. In spaCy, additional whitespace
        # becomes separate tokens.
        words, spaces = get_words_and_spaces(words, text)
    if task.has_unknown_spaces:
        # Without `spaces`, the doc is marked as having unknown spaces.
        return Doc(context.nlp.vocab, words=words)
    return Doc(context.nlp.vocab, words=words, spaces=spaces)


def _set_sent_starts(doc: Doc, tokens: Iterable[TaskToken]) -> None:
    """Set the sentence starts of a doc from the tokens of its task. The value is unknown if no
    token of the task begins at the same character, or if its `sent_start` is unknown."""
    if not len(doc):
        return
    # The values of spaCy's SENT_START: 1 for a start, -1 for no start, and 0 if unknown.
    value_at_char: dict[int, int] = {}
    for token in tokens:
        # The value is None if unknown. It is read from JSON, so it could also be any other value.
        if token.sent_start in (True, False):
            value_at_char[token.start] = 1 if token.sent_start else -1
    sent_starts = numpy.zeros(len(doc), dtype="int64")
    if value_at_char:
        sent_starts[:] = [value_at_char.get(token.idx, 0) for token in doc]
    # `from_array` expects unsigned integers, so -1 is reinterpreted as one with the same bits.
    doc.from_array([SENT_START], sent_starts.view("uint64"))


def _make_span(doc: Doc, start: int, end: int, span: TaskSpan, place: FilePlace) -> Span:
    """Create a span in a doc, with the label and IDs of a task's span."""
    kb_id = _read_id(span, KB_ID_KEY, place)
    span_id = _read_id(span, ID_KEY, place)
    return Span(doc, start, end, span.label, kb_id=kb_id, span_id=span_id)


def _read_id(span: TaskSpan, key: str, place: FilePlace) -> str:
    """Return the ID of a task's span under a key, or "" if it is missing or not a string. Raises an
    error if it can't be encoded in UTF-8."""
    span_id = span.extra.get(key)
    if not isinstance(span_id, str):
        return ""
    if SURROGATE.search(span_id):
        expected = "expected ids of spans that can be encoded in UTF-8"
        raise place.refuse(f"{expected}, got {shown(span_id)}")
    return span_id


def doc_to_task(
    doc: Doc,
    extra: Mapping[str, Any] = {},
    *,
    spans_key: str | None = None,
    incorrect_spans_key: str | None = None,
) -> Task:
    """Create a task from a doc, for export to an annotation tool. The task contains the doc's
    tokens, sentence starts, entities and missing annotation.

    doc (Doc): The doc. Blocked tokens are treated as outside of entities.
    extra (Mapping[str, Any]): Other keys and values of the task.
    spans_key (str | None): If set, the spans under this key in `doc.spans` are exported instead of
        the entities.
    incorrect_spans_key (str | None): If set, the spans under this key in `doc.spans` are exported
        as rejected spans.
    RETURNS (Task): The task. `task_to_doc` converts it back to a doc, in which the tokens of
        rejected spans are missing annotation, except for tokens of entities.
    RAISES (ValueError): If an incorrect span has no label.
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
    incorrect_spans = _incorrect_task_spans(doc, incorrect_spans_key)
    if incorrect_spans and not spans:
        # If all spans have an answer, the rest of the text would be missing annotation.
        extra = {**extra, BINARY_KEY: False}
    spans += incorrect_spans

    task = Task(
        doc.text,
        spans=None,
        tokens=tokens,
        has_unknown_spaces=doc.has_unknown_spaces,
        extra=extra,
    )
    if is_missing.all() and not spans:  # the doc isn't annotated
        return task
    return task._replace(spans=spans, missing=_missing_ranges(tokens, is_missing))


def _incorrect_task_spans(doc: Doc, key: str | None) -> list[TaskSpan]:
    """Create rejected spans from the spans under a key in `doc.spans`."""
    rejected_spans: list[TaskSpan] = []
    for span in doc.spans.get(key, ()) if key is not None else ():
        if not span.label_:
            raise ValueError(f"doc.spans[{key!r}]: expected spans with a label, got {span.text!r}")
        answer = {"answer": "reject"}
        rejected_spans.append(TaskSpan(span.start_char, span.end_char, span.label_, answer))
    return rejected_spans


def _missing_ranges(tokens: Sequence[TaskToken], is_missing: Array1d) -> tuple[Range, ...]:
    """Find the ranges of characters that are missing annotation, one for each run of missing
    tokens. `is_missing` is True for these tokens. Shape: (T,)"""
    # The indices at which the mask changes, padded with False at both ends. For False, True, True,
    # False, True, they are 1, 3, 4 and 5. The first run consists of tokens 1 and 2, and the second
    # consists of token 4. Shape: (2 * number of runs,)
    has_changed = numpy.diff(is_missing, prepend=False, append=False)
    edges = numpy.flatnonzero(has_changed).tolist()
    begins = edges[::2]
    ends = edges[1::2]
    ranges: list[Range] = []
    for begin, end in zip(begins, ends):
        first_token = tokens[begin]
        last_token = tokens[end - 1]
        ranges.append((first_token.start, last_token.end))
    return tuple(ranges)
