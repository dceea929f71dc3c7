"""Align the spans of tasks with the tokens of docs.

The spans of a task are ranges of characters, and the spans of a doc are ranges of tokens. If a doc
can't represent a span, the span is reported as a problem, and the annotation of its tokens is
treated as missing.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc, Span
from thinc.types import Ints1d

from .context import Context, CorpusInfo
from .files import FilePlace, shown
from .offsets import Range
from .tasks import Task, TaskSpan, has_its_text, words_of_quote

MAX_SHIFT = 10
"""The maximum distance, in characters, between the offsets of a span and its text."""

MISALIGNED = "spans don't begin and end with tokens: their tokens are missing annotation"
MISPLACED = "spans don't match their text: their tokens are missing annotation"
SHIFTED = (
    f"the offsets of spans are off by at most {MAX_SHIFT} characters: the spans are read where "
    "their text is"
)
OVERLAPPING = "spans overlap: their tokens are missing annotation"
PADDED = "spans begin or end with whitespace: the whitespace is left out"
ONLY_SPACE = "spans are only whitespace: they are left out"


class TokenOffsets(NamedTuple):
    """The character offsets at which each token of a doc begins and ends. Shapes: (T,)"""

    starts: Ints1d
    ends: Ints1d


class TokenSpan(NamedTuple):
    """A span of a task, aligned with tokens.

    start (int): The index of the first token.
    end (int): The index after the last token.
    span (TaskSpan | None): The span, or None if the doc can't represent it and the annotation of
        these tokens is missing.
    """

    start: int
    end: int
    span: TaskSpan | None


def token_offsets(doc: Doc) -> TokenOffsets:
    """Get the character offsets at which the tokens of a doc begin and end."""
    starts, lengths = doc.to_array([IDX, LENGTH]).astype("int64").T
    return TokenOffsets(starts, starts + lengths)


def align_spans(
    doc: Doc, offsets: TokenOffsets, task: Task, place: FilePlace, context: Context
) -> list[TokenSpan]:
    """Align each span of a task with the tokens of its doc: see `_align`. If several spans have the
    same tokens and label, because they are equal or differ only in surrounding whitespace, only the
    last one is returned."""
    # Aligned spans, keyed by first token, token after the last, and label. The label is None if the
    # doc can't represent the span.
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
    """Align a span of a task with the tokens of its doc. Problems with the span are reported. A
    doc can't represent spans that don't match token boundaries: see `TokenSpan`."""
    text = task.text
    info = context.info
    span_text = text[span.start : span.end]
    span_and_label = f"{span_text!r} {span.label}"
    if not has_its_text(text, span):
        expected = f"{span_and_label}, expected {span.extra['text']!r}"
        shifted_span = _find_nearby(doc, text, span)
        if shifted_span is None:
            info.add_problem(MISPLACED, place, expected)
            first_token, end_token = touched_tokens(offsets, span.start, span.end)
            return TokenSpan(first_token, end_token, span=None)
        info.add_problem(SHIFTED, place, expected)
        return TokenSpan(shifted_span.start, shifted_span.end, span)

    # Remove leading and trailing whitespace. It doesn't belong to any word, and a span that
    # includes it wouldn't match token boundaries.
    n_leading = len(span_text) - len(span_text.lstrip())
    n_trailing = len(span_text) - len(span_text.rstrip())
    start = span.start + n_leading
    end = span.end - n_trailing
    if start >= end:
        info.add_problem(ONLY_SPACE, place, span_and_label)
        # Whitespace isn't an entity, so no annotation is missing, and the span has no tokens.
        return TokenSpan(start=0, end=0, span=None)
    if end - start < len(span_text):
        info.add_problem(PADDED, place, span_and_label)

    doc_span = doc.char_span(start, end)
    if doc_span is None:
        first_token, end_token = touched_tokens(offsets, start, end)
        touched_text = doc[first_token:end_token].text
        shown_span = f"{span_and_label} in {touched_text!r}"
        info.add_problem(MISALIGNED, place, shown_span)
        if context.alignment is not None:
            is_tokenized = task.tokens is None
            # Use the original offsets, with whitespace, because they may not count characters.
            context.alignment.add_misaligned(
                doc, span.start, span.end, place, shown_span, tokenized=is_tokenized
            )
        return TokenSpan(first_token, end_token, span=None)
    if context.alignment is not None:
        context.alignment.add_aligned()
    return TokenSpan(doc_span.start, doc_span.end, span)


def _find_nearby(doc: Doc, text: str, span: TaskSpan) -> Span | None:
    """Search near the offsets of a span for the text that a tool saved with it, and return the
    matching tokens. Returns None if the text occurs several times or not at all, or if it doesn't
    match token boundaries."""
    # Whitespace between words may differ.
    quote = re.compile(r"\s+".join(map(re.escape, words_of_quote(span))))
    matches = []
    for start in range(max(0, span.start - MAX_SHIFT), span.start + MAX_SHIFT + 1):
        match = quote.match(text, start)
        if match is not None:
            matches.append(match)
    if len(matches) != 1:
        return None
    return doc.char_span(*matches[0].span())


def touched_tokens(offsets: TokenOffsets, start: int, end: int) -> Range:
    """Find the tokens that contain any of the characters from `start` to `end` (exclusive). Returns
    the index of the first token and the index after the last, or (0, 0) if there are no such
    tokens."""
    # The first token that ends after `start`.
    first_token = int(numpy.searchsorted(offsets.ends, start, side="right"))
    # The first token that begins at or after `end`.
    end_token = int(numpy.searchsorted(offsets.starts, end, side="left"))
    if first_token >= end_token:  # all characters are between two tokens
        return 0, 0
    return first_token, end_token


def without_overlap(
    token_spans: list[TokenSpan], doc: Doc, place: FilePlace, info: CorpusInfo
) -> Iterator[TokenSpan]:
    """Remove overlapping spans, because entities can't overlap. They are reported, and the
    annotation of all their tokens is treated as missing.

    token_spans (list[TokenSpan]): The spans of a doc.
    doc (Doc): The doc, whose text is used for reports.
    place (FilePlace): The location of the task, for reports.
    info (CorpusInfo): Collects problems.
    YIELDS (TokenSpan): The spans without overlaps.
    """
    # Group the spans so that each span in a group, except the first, overlaps an earlier one. A
    # span without overlaps forms a group of one.
    groups: list[list[TokenSpan]] = []
    group_end = 0  # the index after the last token of the current group
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
        # Spans that the doc can't represent have already been reported by `_align`.
        labels = [span.label for _, _, span in group if span is not None]
        if len(labels) > 1:
            text = f"{shown(doc[start:end].text)}: {', '.join(labels)}"
            info.add_problem(OVERLAPPING, place, text)
