"""Convert tasks to docs and back.

A task is a text with annotated spans (`tasks`). Its spans count characters, those of a doc tokens.
A doc can't have every span of a task: for example, spans have to begin and end with tokens. Where a
doc can't have a span, the annotation of the tokens there is missing, and the span is reported as a
problem. Several annotations of one text become one doc.
"""

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, IDX, LENGTH, SENT_START
from spacy.tokens import Doc, Span
from spacy.util import get_words_and_spaces
from thinc.types import Array1d, Ints1d

from ..annotation.iob import MISSING
from ..annotation.spans import annotate_spans, missing_spans
from ..annotation.spans import is_missing as missing_tokens
from .context import Context, CorpusInfo
from .documents import with_metadata
from .files import SURROGATE, FilePlace, shown
from .sentences import copy_without_annotation
from .tasks import (
    NO_SPANS_VIEWS,
    AnnotatedTask,
    Range,
    Task,
    TaskSpan,
    TaskToken,
    has_its_text,
    words_of_quote,
)

KB_ID_KEY = "kb_id"
"""The key of a span's id in a knowledge base: `span.kb_id_`."""

ID_KEY = "id"
"""The key of a span's other id: `span.ent_id_`."""

SpanKey = tuple[int, int, str, str]
"""Start, end, label and answer of a span. Spans that are alike in these are the same span."""

MAX_SHIFT = 10
"""How many characters the text of a span may be away from its offsets to be found."""

YES_NO_VIEWS = ("ner", "pos", "spans")
"""Prodigy's interfaces that show spans, and ask if they are right."""

MANUAL_VIEWS = ("ner_manual", "pos_manual", "relations", "spans_manual")
"""Prodigy's interfaces in which a person marks all spans of a text."""

MISALIGNED = "spans don't begin and end with tokens: their tokens are missing annotation"
MISPLACED = "spans are not where their own text is: their tokens are missing annotation"
SHIFTED = f"spans are at most {MAX_SHIFT} characters away from their own text: they are read there"
OVERLAPPING = "spans overlap: their tokens are missing annotation"
PADDED = "spans begin or end with white space: it is left out"
ONLY_SPACE = "spans are only white space: they are left out"
UNANNOTATED = "texts without annotation: it is missing in the whole doc"
DISPUTED = "texts were annotated in several ways: where they differ, annotation is missing"
REPEATED = "texts were annotated several times in the same way: they are read once"
NOT_ACCEPTED = "examples that were rejected or ignored are left out"
NOT_ACCEPTED_SPANS = "spans were rejected or ignored: their tokens are missing annotation"
CONTRADICTED = "spans were accepted and rejected: their tokens are missing annotation"
ONE_BY_ONE = "all spans have an answer: all other tokens are missing annotation"
EMPTY = "texts are empty: they are left out"


class TokenOffsets(NamedTuple):
    """The characters at which each token of a doc begins and ends. Shapes: (T,)"""

    starts: Ints1d
    ends: Ints1d


class TokenSpan(NamedTuple):
    """A stretch of tokens, and the span of a task that has these tokens.

    start (int): The first token.
    end (int): The token after the last.
    span (TaskSpan | None): The span. None: the doc can't have the span that is there in the task,
        so the annotation of these tokens is missing.
    """

    start: int
    end: int
    span: TaskSpan | None


def tasks_to_docs(tasks: Iterable[AnnotatedTask], context: Context) -> Iterator[Doc]:
    """Make docs of tasks. Tasks that were rejected or ignored, and those without text, are left out
    and reported. But if the options have an `incorrect_spans_key`, a task with one span that was
    rejected becomes a doc with the span under that key of `doc.spans`, and all annotation of the
    doc is missing.

    tasks (Iterable[AnnotatedTask]): The tasks of a file.
    context (Context): What the reader needs. The problems are added to its info.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If spaCy can't have a text or the id of a span.
    """
    options = context.options
    for place, task in _merge_tasks(tasks, context.info):
        if not task.text:
            context.info.add_problem(EMPTY, place)
            continue
        answer = _answer(task)
        if answer == "reject" and options.incorrect_spans_key and _is_about_one_span(task):
            task = _with_rejected_span(task)
        elif answer != "accept":
            context.info.add_problem(NOT_ACCEPTED, place, f"{answer}: {shown(task.text)}")
            continue
        doc = task_to_doc(task, place, context)
        with_metadata(doc, task.extra, id_key=options.doc_id)
        yield context.placed(doc, place)


def _answer(annotated: Task | TaskSpan) -> str:
    """The answer to a task of Prodigy, or to one of its spans. It is "accept" if there is none."""
    answer: str = annotated.extra.get("answer", "accept")
    return answer


def _is_about_one_span(task: Task) -> bool:
    """Whether a rejected task says that its span is wrong. If it has several spans, nobody knows
    which of them are wrong. A person who marks all spans of a text rejects the text."""
    return len(task.spans or ()) == 1 and _view(task) not in MANUAL_VIEWS


def _with_rejected_span(task: Task) -> Task:
    """Reject the span of a task that was rejected. The task doesn't say which entities the text has
    instead, so all annotation of the text is missing."""
    rejected_spans: list[TaskSpan] = []
    for span in task.spans or ():
        rejected_spans.append(span._replace(extra={**span.extra, "answer": "reject"}))
    return task._replace(spans=rejected_spans, missing=((0, len(task.text)),))


def _merge_tasks(
    tasks: Iterable[AnnotatedTask], info: CorpusInfo
) -> Iterator[tuple[FilePlace, Task]]:
    """Merge all annotations of the same text into one task, so that no doc contradicts another.
    Tasks that reject different spans of a text are not merged: these spans may overlap. A *text
    key* is a number that all annotations of a text share.

    tasks (Iterable[AnnotatedTask]): The tasks.
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
            answer = _answer(task)
            rejected_spans: frozenset[SpanKey] = frozenset()
            if answer == "reject":
                rejected_spans = frozenset(_span_keys(task))
            group_key = (text_key, task.text, answer, rejected_spans)
            groups.setdefault(group_key, []).append((place, task))

    for group in groups.values():
        # A person who reviews annotations of others decides.
        reviewed = [item for item in group if item[1].extra.get("_view_id") == "review"]
        group = reviewed or group
        place, first_task = group[0]
        annotations = [task for _, task in group]
        merged_task = _merge_annotations(annotations)
        # Answers to several yes-no questions about a text complete each other: that's no problem.
        if len(group) > 1 and not _is_binary(first_task):
            is_disputed = any(_span_keys(task) != _span_keys(merged_task) for task in annotations)
            message = DISPUTED if is_disputed else REPEATED
            info.add_problem(message, place, shown(merged_task.text))
        yield place, merged_task


def _make_explicit(task: Task) -> Task:
    """Add to a task of Prodigy what its export only implies. A yes-no question is about some spans,
    so the annotation of the rest of the text is missing. If a person has marked all spans of a
    text, and the task has no list of spans, the text has none."""
    if _view(task) in NO_SPANS_VIEWS:
        return task._replace(spans=None)
    if _is_binary(task):
        return task._replace(spans=task.spans or [], missing=((0, len(task.text)),))
    if task.spans is None and task.extra.get("answer") == "accept" and _is_manual(task):
        return task._replace(spans=[])
    return task


def _view(task: Task) -> Any:
    """The interface of Prodigy in which a task was annotated. None: it isn't known."""
    view = task.extra.get("_view_id")
    if view == "review":  # the interface that shows the annotations of several people
        return task.extra.get("view_id")
    return view


def _is_manual(task: Task) -> bool:
    """Whether a person was asked for all spans of a text of Prodigy. An interface of several blocks
    shows tokens only if one of the blocks asks for spans. Options are those of a choice."""
    view = _view(task)
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
    """Whether a task is the answer to a yes-no question about its spans. Prodigy's export says so
    under the key "_is_binary" and, in all versions, by the interface. A task of which each span has
    an answer is such a question for each span."""
    is_binary = task.extra.get("_is_binary")
    if isinstance(is_binary, bool):
        return is_binary
    return _view(task) in YES_NO_VIEWS or _has_answered_spans(task)


def _has_answered_spans(task: Task) -> bool:
    """Whether each span of a task has an answer, and nothing else shows what the person was asked.
    Prodigy merges yes-no questions about spans of a text to such a task."""
    if isinstance(task.extra.get("_is_binary"), bool) or _view(task) is not None:
        return False
    return bool(task.spans) and all("answer" in span.extra for span in task.spans or ())


def _span_key(span: TaskSpan) -> SpanKey:
    """The key by which spans of a text are compared: see `SpanKey`."""
    return span.start, span.end, span.label, _answer(span)


def _span_keys(task: Task) -> set[SpanKey]:
    """The keys of all spans of a task."""
    return {_span_key(span) for span in task.spans or ()}


def task_to_doc(task: Task, place: FilePlace, context: Context) -> Doc:
    """Make a doc of a task, with the pipeline's tokenizer if the task has no tokens. Its spans
    become entities or, if the options have a `spans_key`, spans under this key.

    task (Task): The task.
    place (FilePlace): Its place, for errors and problems.
    context (Context): What the reader needs. Spans that the doc can't have are added to its info as
        problems.
    RETURNS (Doc): The doc.
    RAISES (CorpusError): If spaCy can't have the text or the id of a span.
    """
    try:
        doc = _tokenize(task, context)
    except ValueError as error:  # the text is too long, or has surrogates
        raise place.refuse(f"expected a text that spaCy can read: {error}") from None
    _set_sent_starts(doc, task.tokens or ())
    if task.spans is None:
        context.info.add_problem(UNANNOTATED, place)
    else:
        _annotate(doc, task, place, context)
    return doc


def _annotate(doc: Doc, task: Task, place: FilePlace, context: Context) -> None:
    """Write the annotation of a task to its doc: to `doc.ents` or, if the options have a
    `spans_key`, to `doc.spans`. Spans that the doc can't have are reported as problems.

    doc (Doc): The doc.
    task (Task): The task, with spans.
    place (FilePlace): Its place, for errors and problems.
    context (Context): What the reader needs. The problems are added to its info.
    """
    spans_key = context.options.spans_key
    offsets = _token_offsets(doc)
    accepted_task, other_task = _split_by_answer(task)
    token_spans = _align_spans(doc, offsets, accepted_task, place, context)
    other_spans = _align_spans(doc, offsets, other_task, place, context)
    contradicted = _token_span_keys(token_spans) & _token_span_keys(other_spans)
    for start, end, label in sorted(contradicted):
        context.info.add_problem(CONTRADICTED, place, f"{doc[start:end].text!r} {label}")
    token_spans = _without_spans(token_spans, contradicted)
    other_spans = _without_spans(other_spans, contradicted)
    if spans_key is None:
        token_spans = list(_without_overlap(token_spans, doc, place, context.info))

    is_missing = numpy.zeros(len(doc), dtype=bool)  # whether the annotation of a token is missing
    for start_char, end_char in task.missing:
        start, end = _touched_tokens(offsets, start_char, end_char)
        is_missing[start:end] = True
    for start, end, _ in other_spans:
        is_missing[start:end] = True
    spans = []
    for start, end, span in token_spans:
        if span is None:  # the doc can't have the span that the task has here
            is_missing[start:end] = True
            continue
        if spans_key is None:
            # The entity annotates all its tokens. (Under a `spans_key` other spans of these tokens
            # could still be missing.)
            is_missing[start:end] = False
        spans.append(_make_span(doc, start, end, span, place))

    missing = missing_spans(doc, is_missing)
    if spans_key is None:
        doc.set_ents(spans, missing=missing, default="outside")
    elif spans or not is_missing.all():  # otherwise a doc without the key has no annotation
        annotate_spans(doc, spans_key, spans, missing)
    _write_incorrect_spans(doc, other_spans, place, context)


def _split_by_answer(task: Task) -> tuple[Task, Task]:
    """Divide a task into one with the spans that were accepted, and one with those that were
    rejected or ignored."""
    accepted: list[TaskSpan] = []
    others: list[TaskSpan] = []
    for span in task.spans or ():
        if _answer(span) == "accept":
            accepted.append(span)
        else:
            others.append(span)
    return task._replace(spans=accepted), task._replace(spans=others)


def _token_span_keys(token_spans: Iterable[TokenSpan]) -> set[tuple[int, int, str]]:
    """The first token, the one after the last, and the label of each span that a doc can have."""
    return {(start, end, span.label) for start, end, span in token_spans if span is not None}


def _without_spans(
    token_spans: Iterable[TokenSpan], keys: Collection[tuple[int, int, str]]
) -> list[TokenSpan]:
    """Make the annotation of the tokens of some spans missing: of those with one of the keys."""
    kept_spans: list[TokenSpan] = []
    for start, end, span in token_spans:
        if span is not None and (start, end, span.label) in keys:
            span = None
        kept_spans.append(TokenSpan(start, end, span))
    return kept_spans


def _write_incorrect_spans(
    doc: Doc, token_spans: Iterable[TokenSpan], place: FilePlace, context: Context
) -> None:
    """Write spans that were rejected to the `incorrect_spans_key` of `doc.spans`. Report them if
    the options don't have this key, and those that were ignored."""
    key = context.options.incorrect_spans_key
    incorrect_spans: list[Span] = []
    for start, end, span in token_spans:
        if span is None:
            continue
        answer = _answer(span)
        if key is not None and answer == "reject":
            incorrect_spans.append(Span(doc, start, end, span.label))
        else:
            text = f"{answer}: {doc[start:end].text!r} {span.label}"
            context.info.add_problem(NOT_ACCEPTED_SPANS, place, text)
    if key is not None and incorrect_spans:
        doc.spans[key] = incorrect_spans


def _tokenize(task: Task, context: Context) -> Doc:
    """Make a doc of the text of a task, with the tokens of the task or, if it has none, those of
    the pipeline's tokenizer. The doc that the tokenizer makes is kept in `context.predicted`,
    unless this is None, and the new doc is a copy: a spaCy example needs a doc with annotation and
    one without."""
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
    # A space that is the beginning of the next token doesn't belong to the token before.
    starts = {token.start for token in task.tokens}
    for start, end, _ in task.tokens:
        words.append(text[start:end])
        spaces.append(text.startswith(" ", end) and end not in starts)
    n_characters = sum(map(len, words)) + sum(spaces)
    if n_characters < len(text):
        # Words and single spaces are not all of the text. In spaCy, the rest of the white space is
        # tokens, too.
        words, spaces = get_words_and_spaces(words, text)
    if task.has_unknown_spaces:
        # A doc that is made without `spaces` has unknown spaces.
        return Doc(context.nlp.vocab, words=words)
    return Doc(context.nlp.vocab, words=words, spaces=spaces)


def _set_sent_starts(doc: Doc, tokens: Iterable[TaskToken]) -> None:
    """Set the sentence starts of a doc to those of the tokens of its task. They are unknown for
    tokens of the doc at whose first character no token of the task begins, or one that doesn't say
    whether it starts a sentence."""
    if not len(doc):
        return
    # The values of spaCy's SENT_START are 1 for a start, -1 for no start, and 0 for unknown.
    value_at_char: dict[int, int] = {}
    for token in tokens:
        # The JSON of a task may have anything here, and None if it isn't known.
        if token.sent_start in (True, False):
            value_at_char[token.start] = 1 if token.sent_start else -1
    sent_starts = numpy.zeros(len(doc), dtype="int64")
    if value_at_char:
        sent_starts[:] = [value_at_char.get(token.idx, 0) for token in doc]
    # `from_array` takes unsigned numbers: -1 becomes the unsigned number with the same bits.
    doc.from_array([SENT_START], sent_starts.view("uint64"))


def _token_offsets(doc: Doc) -> TokenOffsets:
    """Read at which characters the tokens of a doc begin and end."""
    starts, lengths = doc.to_array([IDX, LENGTH]).astype("int64").T
    return TokenOffsets(starts, starts + lengths)


def _align_spans(
    doc: Doc, offsets: TokenOffsets, task: Task, place: FilePlace, context: Context
) -> list[TokenSpan]:
    """Find the tokens of each span of a task: see `_align`. Of several spans with the same tokens
    and label, which are equal or differ only in the white space around these, the last one is
    returned."""
    # The token spans by first token, token after the last, and label. The label is None if the doc
    # can't have the span.
    distinct_spans: dict[tuple[int, int, str | None], TokenSpan] = {}
    for task_span in task.spans or ():
        token_span = _align(doc, offsets, task, task_span, place, context)
        label = None
        if token_span.span is not None:
            label = task_span.label
        distinct_spans[token_span.start, token_span.end, label] = token_span
    return list(distinct_spans.values())


def _align(
    doc: Doc,
    offsets: TokenOffsets,
    task: Task,
    span: TaskSpan,
    place: FilePlace,
    context: Context,
) -> TokenSpan:
    """Find the tokens of a span of a task. If something is wrong with the span, report it.

    doc (Doc): The doc.
    offsets (TokenOffsets): The characters of its tokens.
    task (Task): The task.
    span (TaskSpan): The span, in characters of the text.
    place (FilePlace): The place of the task, for the problems.
    context (Context): What the reader needs. The problems are added to its info.
    RETURNS (TokenSpan): The tokens with the span. If the doc can't have the span, the tokens whose
        annotation is missing for that reason, without a span.
    """
    text = task.text
    info = context.info
    span_text = text[span.start : span.end]
    span_and_label = f"{span_text!r} {span.label}"
    if not has_its_text(text, span):
        expected = f"{span_and_label}, expected {span.extra['text']!r}"
        shifted_span = _find_nearby(doc, text, span)
        if shifted_span is None:
            info.add_problem(MISPLACED, place, expected)
            first_token, end_token = _touched_tokens(offsets, span.start, span.end)
            return TokenSpan(first_token, end_token, span=None)
        info.add_problem(SHIFTED, place, expected)
        return TokenSpan(shifted_span.start, shifted_span.end, span)

    # White space at the ends of the span belongs to no word. With it the span would not begin and
    # end with tokens.
    n_leading = len(span_text) - len(span_text.lstrip())
    n_trailing = len(span_text) - len(span_text.rstrip())
    start = span.start + n_leading
    end = span.end - n_trailing
    if start >= end:
        info.add_problem(ONLY_SPACE, place, span_and_label)
        # White space alone is no entity, so no annotation is missing: the span has no tokens.
        return TokenSpan(start=0, end=0, span=None)
    if end - start < len(span_text):
        info.add_problem(PADDED, place, span_and_label)

    doc_span = doc.char_span(start, end)
    if doc_span is None:
        first_token, end_token = _touched_tokens(offsets, start, end)
        touched_text = doc[first_token:end_token].text
        shown_span = f"{span_and_label} in {touched_text!r}"
        info.add_problem(MISALIGNED, place, shown_span)
        if context.alignment is not None:
            is_tokenized = task.tokens is None
            # With the white space, as the offsets may count something else than characters.
            context.alignment.add_misaligned(
                doc, span.start, span.end, place, shown_span, tokenized=is_tokenized
            )
        return TokenSpan(first_token, end_token, span=None)
    if context.alignment is not None:
        context.alignment.add_aligned()
    return TokenSpan(doc_span.start, doc_span.end, span)


def _find_nearby(doc: Doc, text: str, span: TaskSpan) -> Span | None:
    """Find the tokens of the text that a tool has written with a span, if this text stands once
    near the offsets of the span.

    doc (Doc): The doc.
    text (str): The text of the task.
    span (TaskSpan): The span, which isn't where its own text is.
    RETURNS (Span | None): The tokens. None: the text stands near the offsets several times or not
        at all, or doesn't begin and end with tokens.
    """
    # White space between the words may differ.
    quote = re.compile(r"\s+".join(map(re.escape, words_of_quote(span))))
    matches = []
    for start in range(max(0, span.start - MAX_SHIFT), span.start + MAX_SHIFT + 1):
        match = quote.match(text, start)
        if match is not None:
            matches.append(match)
    if len(matches) != 1:
        return None
    return doc.char_span(*matches[0].span())


def _touched_tokens(offsets: TokenOffsets, start: int, end: int) -> Range:
    """Find the tokens that have at least one of the characters from `start` up to, and without,
    `end`. Returns the first of these tokens and the one after the last; (0, 0) if there are
    none."""
    # The first token that ends after `start`
    first_token = int(numpy.searchsorted(offsets.ends, start, side="right"))
    # The first token that begins at `end` or after it
    end_token = int(numpy.searchsorted(offsets.starts, end, side="left"))
    if first_token >= end_token:  # all characters are between two tokens
        return 0, 0
    return first_token, end_token


def _without_overlap(
    token_spans: list[TokenSpan], doc: Doc, place: FilePlace, info: CorpusInfo
) -> Iterator[TokenSpan]:
    """Make spans free of overlaps, as entities have to be: where some overlap, the annotation of
    all their tokens becomes missing, and they are reported.

    token_spans (list[TokenSpan]): The spans of a doc.
    doc (Doc): The doc.
    place (FilePlace): The place of its task, for the problems.
    info (CorpusInfo): The problems are added to it.
    YIELDS (TokenSpan): The spans without overlaps.
    """
    # A group is a chain of spans: each overlaps with one before it in the group. A span that
    # overlaps with no other is a group of its own.
    groups: list[list[TokenSpan]] = []
    group_end = 0  # the token after the last one of the current group
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
        yield TokenSpan(start, end, span=None)
        # A stretch without a span was reported by `_align`. It is no problem that it overlaps, too.
        labels = [span.label for _, _, span in group if span is not None]
        if len(labels) > 1:
            text = f"{shown(doc[start:end].text)}: {', '.join(labels)}"
            info.add_problem(OVERLAPPING, place, text)


def _make_span(doc: Doc, start: int, end: int, span: TaskSpan, place: FilePlace) -> Span:
    """Make a span of a doc, with the label and the ids of a span of the task.

    doc (Doc): The doc.
    start (int): The first token.
    end (int): The token after the last.
    span (TaskSpan): The span of the task.
    place (FilePlace): The place of the task, for error messages.
    RETURNS (Span): The span of the doc.
    """
    kb_id = _read_id(span, KB_ID_KEY, place)
    span_id = _read_id(span, ID_KEY, place)
    return Span(doc, start, end, span.label, kb_id=kb_id, span_id=span_id)


def _read_id(span: TaskSpan, key: str, place: FilePlace) -> str:
    """The id that a span of a task has under a key. It is "" if there is none or, as spaCy's ids
    are strings, if it is not a string. `place` is that of the task, for error messages.

    RAISES (CorpusError): If the id can't be UTF-8.
    """
    span_id = span.extra.get(key)
    if not isinstance(span_id, str):
        return ""
    if SURROGATE.search(span_id):
        expected = "expected ids of spans that can be UTF-8"
        raise place.refuse(f"{expected}, got {shown(span_id)}")
    return span_id


def doc_to_task(doc: Doc, extra: Mapping[str, Any] = {}, *, spans_key: str | None = None) -> Task:
    """Make a task of a doc, to write it in the form of an annotation tool. The task has the tokens,
    the sentence starts, the entities and the missing annotation of the doc.

    doc (Doc): The doc. Its blocked tokens count as tokens outside of entities.
    extra (Mapping[str, Any]): Other keys and values of the task.
    spans_key (str | None): A key of `doc.spans`. If given, the spans there are written instead of
        the entities.
    RETURNS (Task): The task. `task_to_doc` makes a doc of it that has all these.
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

    task = Task(
        doc.text,
        spans=None,
        tokens=tokens,
        has_unknown_spaces=doc.has_unknown_spaces,
        extra=extra,
    )
    if is_missing.all() and not spans:  # nobody has annotated the doc
        return task
    return task._replace(spans=spans, missing=_missing_ranges(tokens, is_missing))


def _missing_ranges(tokens: Sequence[TaskToken], is_missing: Array1d) -> tuple[Range, ...]:
    """Find the stretches of text whose annotation is missing: one for each run of tokens that
    follow each other.

    tokens (Sequence[TaskToken]): The tokens of the text.
    is_missing (Array1d): True for the tokens whose annotation is missing. Shape: (T,)
    RETURNS (tuple[Range, ...]): The stretches, in characters.
    """
    # The tokens where the mask changes, if it is False before the first token and after the last
    # one. For False, True, True, False, True these are 1, 3, 4 and 5: one run is the tokens 1 and
    # 2, the other is token 4. Shape: (2 * number of runs,)
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
