"""Tasks to docs and back. Spans that docs can't have are missing annotation, and are reported."""

from itertools import groupby
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.attrs import ENT_ID, ENT_IOB, ENT_KB_ID, ENT_TYPE, SENT_START
from spacy.tokens import Doc, Span
from thinc.types import Ints2d

from .files import Place, shown
from .found import Context, Found
from .jsonl import Task, TaskSpan, TaskToken, has_its_text
from .schemes import BEGIN, INSIDE, MISSING, OUTSIDE
from .sentences import copy_tokens

ATTRS = [SENT_START, ENT_IOB, ENT_TYPE, ENT_KB_ID, ENT_ID]

MISALIGNED = "spans don't begin and end with tokens: their tokens are missing annotation"
MISPLACED = "spans are not where their own text is: all of their text is missing annotation"
OVERLAPPING = "spans overlap: their tokens are missing annotation"
PADDED = "spans begin or end with white space: it is left out"
ONLY_SPACE = "spans are only white space: they are left out"
UNANNOTATED = "texts without annotation: it is missing in the whole doc"


class Piece(NamedTuple):
    """Tokens that a span touches.

    start (int): The first token.
    end (int): The token after the last.
    span (Optional[TaskSpan]): The span; None if it can't be used.
    """

    start: int
    end: int
    span: Optional[TaskSpan]


def task_to_doc(task: Task, place: Place, context: Context) -> Doc:
    """Make a doc of a task.

    task (Task): The task.
    place (Place): Its place.
    context (Context): The pipeline's tokenizer is used if the task has no tokens. Gets the spans
        that the doc can't have.
    RETURNS (Doc): The doc.
    RAISES (CorpusError): If spaCy can't make a doc of the text.
    """
    try:
        doc = _tokenize(task, context)
    except ValueError as error:  # The text is too long, or has surrogates.
        raise place.refuse(f"expected a text that spaCy can read: {error}") from None
    found, columns = context.found, numpy.zeros((len(doc), len(ATTRS)), dtype="uint64")
    _mark_sentences(columns, doc, task.tokens or ())
    if task.spans is None:
        found.add_problem(UNANNOTATED, place)
        return doc.from_array(ATTRS, columns) if len(doc) else doc
    columns[:, 1] = OUTSIDE
    for start, end in task.missing:
        piece = _expand(doc, start, end)
        columns[piece.start : piece.end, 1] = MISSING
    pieces: Dict[Any, Piece] = {}
    for span in task.spans:
        piece = _align(doc, task.text, span, place, found)
        pieces[piece.start, piece.end, piece.span and piece.span.label] = piece
    for piece in _without_overlap([*pieces.values()], doc, place, found):
        _mark(columns[piece.start : piece.end], doc, piece.span)
    return doc.from_array(ATTRS, columns) if len(doc) else doc


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
        words, spaces = words_and_spaces(text, task.tokens)
    return Doc(context.nlp.vocab, words=words, spaces=None if task.has_unknown_spaces else spaces)


def words_and_spaces(text: str, tokens: Sequence[TaskToken]) -> Tuple[List[str], List[bool]]:
    """The words of a doc and whether a space follows each. Other white space between tokens is a
    word, too.

    text (str): The text.
    tokens (Sequence[TaskToken]): Its tokens.
    RETURNS (Tuple[List[str], List[bool]]): Words and spaces.
    """
    words: List[str] = []
    spaces: List[bool] = []
    before = 0
    for start, end, _ in [*tokens, TaskToken(len(text), len(text))]:
        gap = text[before:start]
        if words and gap[:1] == " ":
            spaces[-1], gap = True, gap[1:]
        for word in filter(None, (gap, text[start:end])):
            words.append(word)
            spaces.append(False)
        before = end
    return words, spaces


def _mark_sentences(columns: Ints2d, doc: Doc, tokens: Sequence[TaskToken]) -> None:
    known = [token.sent_start for token in tokens]
    if True not in known and False not in known:
        return
    if len(known) < len(doc):
        starts = {token.start: token.sent_start for token in tokens}
        known = [starts.get(token.idx) for token in doc]
    values = [1 if is_start is True else -1 if is_start is False else 0 for is_start in known]
    columns[:, 0] = numpy.asarray(values, dtype="int64").view("uint64")


def _align(doc: Doc, text: str, span: TaskSpan, place: Place, found: Found) -> Piece:
    """The tokens of a span."""
    own = text[span.start : span.end]
    if not has_its_text(text, span):
        found.add_problem(
            MISPLACED, place, f"{own!r} {span.label}, expected {span.extra['text']!r}"
        )
        return Piece(0, len(doc), None)
    start = span.start + len(own) - len(own.lstrip())
    end = span.end - (len(own) - len(own.rstrip()))
    if start >= end:
        found.add_problem(ONLY_SPACE, place, f"{own!r} {span.label}")
        return Piece(0, 0, None)
    if end - start < len(own):
        found.add_problem(PADDED, place, f"{own!r} {span.label}")
    aligned = doc.char_span(start, end)
    if aligned is None:
        piece = _expand(doc, start, end)
        tokens = doc[piece.start : piece.end].text
        found.add_problem(MISALIGNED, place, f"{own!r} {span.label} in {tokens!r}")
        return piece
    return Piece(aligned.start, aligned.end, span)


def _expand(doc: Doc, start: int, end: int) -> Piece:
    """All tokens that some characters touch."""
    touched = [token.i for token in doc if token.idx < end and token.idx + len(token) > start]
    return Piece(touched[0], touched[-1] + 1, None) if touched else Piece(0, 0, None)


def _without_overlap(pieces: List[Piece], doc: Doc, place: Place, found: Found) -> Iterator[Piece]:
    """Replace spans that overlap by one piece without a span."""
    group: List[Piece] = []
    for piece in [*sorted(pieces, key=lambda piece: piece[:2]), Piece(len(doc), len(doc), None)]:
        end = max((one.end for one in group), default=0)
        if group and piece.start >= end:
            yield group[0] if len(group) == 1 else Piece(group[0].start, end, None)
            if sum(one.span is not None for one in group) > 1:
                text = doc[group[0].start : end].text
                labels = ", ".join(one.span.label for one in group if one.span)
                found.add_problem(OVERLAPPING, place, f"{shown(text)}: {labels}")
            group = []
        group.append(piece)


def _mark(columns: Ints2d, doc: Doc, span: Optional[TaskSpan]) -> None:
    """Annotate the tokens of a span. Shape: (T, A)"""
    if span is None:
        columns[:, 1] = MISSING
        return
    columns[:, 1] = INSIDE
    columns[0, 1] = BEGIN
    columns[:, 2] = doc.vocab.strings.add(span.label)
    for column, key in ((3, "kb_id"), (4, "id")) if span.extra else ():
        name = span.extra.get(key)
        if isinstance(name, str):
            columns[:, column] = doc.vocab.strings.add(name)


def doc_to_task(doc: Doc, extra: Mapping[str, Any] = {}) -> Task:
    """Make a task of a doc: its tokens, sentence starts, entities and missing annotation.

    doc (Doc): The doc. Blocked tokens count as O.
    extra (Mapping[str, Any]): Other keys of the task.
    RETURNS (Task): The task. `task_to_doc` makes the same doc of it.
    """
    columns = doc.to_array([SENT_START, ENT_IOB])
    has_sentences = bool(columns[:, 0].any())
    tokens = [
        TaskToken(token.idx, token.idx + len(token), token.is_sent_start if has_sentences else None)
        for token in doc
    ]
    spans = [TaskSpan(ent.start_char, ent.end_char, ent.label_, _ids(ent)) for ent in doc.ents]
    is_missing = columns[:, 1] == MISSING
    missing = tuple(
        (tokens[run[0]].start, tokens[run[-1]].end)
        for is_run, run in _runs(is_missing.tolist())
        if is_run
    )
    return Task(
        text=doc.text,
        spans=None if is_missing.all() else spans,
        tokens=tokens,
        missing=() if is_missing.all() else missing,
        has_unknown_spaces=doc.has_unknown_spaces,
        extra=extra,
    )


def _ids(ent: Span) -> Dict[str, str]:
    ids = {"kb_id": ent.kb_id_, "id": ent.ent_id_}
    return {name: value for name, value in ids.items() if value}


def _runs(values: Sequence[bool]) -> Iterator[Tuple[bool, List[int]]]:
    for value, run in groupby(range(len(values)), values.__getitem__):
        yield value, [*run]
