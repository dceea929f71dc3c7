"""Tasks to docs and back. Spans that docs can't have are missing annotation, and are reported."""

from itertools import groupby
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.attrs import ENT_ID, ENT_IOB, ENT_KB_ID, ENT_TYPE, SENT_START
from spacy.language import Language
from spacy.tokens import Doc, Span
from thinc.types import Ints2d

from .files import Place, shown
from .found import Found
from .jsonl import Task, TaskSpan, TaskToken, has_its_text
from .schemes import BEGIN, INSIDE, MISSING, OUTSIDE

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


def task_to_doc(nlp: Language, task: Task, place: Place, found: Found) -> Doc:
    """Make a doc of a task.

    nlp (Language): The pipeline. Its tokenizer is used if the task has no tokens.
    task (Task): The task.
    place (Place): Its place.
    found (Found): Gets the spans that the doc can't have.
    RETURNS (Doc): The doc.
    RAISES (CorpusError): If spaCy can't make a doc of the text.
    """
    try:
        doc = _tokenize(nlp, task)
    except ValueError as error:  # The text is too long, or has surrogates.
        raise place.refuse(f"expected a text that spaCy can read: {error}") from None
    columns = numpy.zeros((len(doc), len(ATTRS)), dtype="uint64")
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


def _tokenize(nlp: Language, task: Task) -> Doc:
    if task.tokens is None:
        return nlp.make_doc(task.text)
    words: List[str] = []
    spaces: List[bool] = []
    end = 0
    for token in [*task.tokens, TaskToken(len(task.text), len(task.text))]:
        gap = task.text[end : token.start]
        if words and gap[:1] == " ":
            spaces[-1], gap = True, gap[1:]
        for word in filter(None, (gap, task.text[token.start : token.end])):
            words.append(word)
            spaces.append(False)
        end = token.end
    return Doc(nlp.vocab, words=words, spaces=None if task.has_unknown_spaces else spaces)


def _mark_sentences(columns: Ints2d, doc: Doc, tokens: Sequence[TaskToken]) -> None:
    starts = {token.start: token.sent_start for token in tokens if token.sent_start is not None}
    if starts:
        value = [{True: 1, False: -1, None: 0}[starts.get(token.idx)] for token in doc]
        columns[:, 0] = numpy.asarray(value, dtype="int64").view("uint64")


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
    names = (span.label, span.extra.get("kb_id"), span.extra.get("id"))
    columns[:, 1] = INSIDE
    columns[:1, 1] = BEGIN
    columns[:, 2:] = [
        doc.vocab.strings.add(name) if isinstance(name, str) and name else 0 for name in names
    ]


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
