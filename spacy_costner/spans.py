"""Entities that may overlap: the spans under a key of `doc.spans`, as spaCy's `spancat` has them.

Several components share the key, each with some of the labels. The spans of one component don't
overlap, so to it they are the entities of the doc.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import isnan, nan
from typing import Any, NamedTuple

import numpy
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import filter_spans
from thinc.types import Array1d, Floats1d

Labels = Collection[str] | None
"""The labels of a component. None: all labels."""

Place = tuple[int, int, str]
"""Begin and end of a span in characters, and its label."""


def missing_key(key: str) -> str:
    """The key of the spans of tokens whose annotation is missing."""
    return f"{key}_missing"


def is_missing(doc: Doc, key: str) -> Array1d:
    """True for the tokens whose annotation under a key is missing: all if the doc doesn't have the
    key. Shape: (T,)"""
    missing = numpy.full(len(doc), key not in doc.spans)
    for span in doc.spans.get(missing_key(key), ()):
        missing[span.start : span.end] = True
    return missing


def without_overlap(doc: Doc, key: str, labels: Labels = None) -> tuple[list[Span], list[Span]]:
    """The spans of some labels, of which the longest, or the first of the same length, are kept
    where they overlap. Returns those that are kept, and those that are not."""
    spans: dict[tuple[int, int, int], Span] = {}
    for span in doc.spans.get(key, ()):
        if labels is None or span.label_ in labels:
            spans.setdefault((span.start, span.end, span.label), span)
    kept = filter_spans(spans.values())
    places = {(span.start, span.end, span.label) for span in kept}
    return kept, [span for place, span in spans.items() if place not in places]


def spans_as_entities(
    doc: Doc, key: str, labels: Labels = None, *, own: Labels = None, longest: bool = False
) -> Doc:
    """A copy of a doc with its spans of some labels as entities. They are missing in a doc that
    doesn't have the key.

    own (Labels): The labels whose spans are all kept. A span of another label is kept if it
        overlaps with none of them; where such spans overlap, the longest is kept. None: all.
    longest (bool): Whether the longest is kept where spans of these labels overlap.
    RAISES (ValueError): If they overlap otherwise.
    """
    copy = doc.copy()
    kept, lost = without_overlap(copy, key, labels if own is None else own)
    if lost and not longest:
        ordered = sorted([*kept, *lost], key=lambda span: (span.start, span.end))
        two = next((a, b) for a, b in pairwise(ordered) if b.start < a.end)
        first, second = (f"{span.label_} {span.text!r} ({span.start}-{span.end})" for span in two)
        raise ValueError(
            f"doc.spans[{key!r}]: expected spans of one component that don't overlap, got {first} "
            f"and {second} in {doc[:8].text!r}: give their labels to several components, or set "
            "filter_spans = true, which keeps the longest"
        )
    if own is not None:
        taken = {i for span in kept for i in range(span.start, span.end)}
        others = [
            span
            for span in copy.spans.get(key, ())
            if span.label_ not in own and (labels is None or span.label_ in labels)
        ]
        kept += filter_spans(s for s in others if taken.isdisjoint(range(s.start, s.end)))
    missing = is_missing(copy, key)
    for span in kept:
        missing[span.start : span.end] = False
    unknown = [copy[i : i + 1] for i in numpy.flatnonzero(missing).tolist()]
    copy.set_ents(kept, missing=unknown, default="outside")
    return copy


def entities_as_spans(doc: Doc, key: str) -> Doc:
    """Add the entities of a doc to its spans, if they are annotated and the doc lacks the key."""
    if key not in doc.spans and doc.has_annotation("ENT_IOB"):
        missing = [doc[token.i : token.i + 1] for token in doc if not token.ent_iob]
        annotate_spans(doc, key, doc.ents, missing)
    return doc


def annotate_spans(doc: Doc, key: str, spans: Iterable[Span], missing: Sequence[Span]) -> None:
    """Write annotated spans, and those whose tokens are not annotated, to a doc."""
    doc.spans[key] = list(spans)
    if missing:
        doc.spans[missing_key(key)] = missing


def replace_spans(
    doc: Doc, key: str, spans: Sequence[Span], scores: Floats1d | None, labels: Iterable[str]
) -> None:
    """Write the spans of a component and their probabilities, (S,), in place of other spans of its
    labels. Spans that others have written without scores get NaN."""
    own_labels = {*labels}
    attrs: dict[str, Any] = {}
    rows: list[tuple[Span, float]] = []
    if key in doc.spans:
        attrs = doc.spans[key].attrs
        rows = [row for row in on_tokens(doc.spans[key]) if row[0].label_ not in own_labels]
    rows += zip(spans, numpy.full(len(spans), numpy.nan) if scores is None else scores)
    rows.sort(key=lambda row: (row[0].start, row[0].end))
    in_order = [span for span, _ in rows]
    probs = numpy.asarray([prob for _, prob in rows], dtype="float64")
    (written,) = scored_attrs([(in_order, probs)])
    doc.spans[key] = SpanGroup(doc, name=key, attrs={**attrs, **written}, spans=in_order)


# Scores of spans. spaCy doesn't move the spans of a group when tokens are merged or split: those of
# later tokens then have the wrong tokens, or raise IndexError (E035) when they are read. Characters
# stay, so they are kept beside the scores.


class ScoredSpan(NamedTuple):
    """A span by its characters, and its score: NaN if it has none."""

    start_char: int
    end_char: int
    label: str
    score: float

    @property
    def place(self) -> Place:
        return self[:3]


def scored_attrs(
    scored: Sequence[tuple[Sequence[Span], Floats1d | None]],
) -> Iterator[dict[str, Any]]:
    """The attributes that `read_group` reads, of groups with spans and their scores, (S,)."""
    # Once for all groups: a list for each would take twice as long.
    all_spans = list(chain.from_iterable(spans for spans, _ in scored))
    start_char = [span.start_char for span in all_spans]
    end_char = [span.end_char for span in all_spans]
    label = [span.label_ for span in all_spans]
    first = 0
    for spans, scores in scored:
        last = first + len(spans)
        yield {
            "scores": scores,
            "start_char": start_char[first:last],
            "end_char": end_char[first:last],
            "label": label[first:last],
        }
        first = last


def read_group(group: SpanGroup) -> list[ScoredSpan]:
    """Read the spans of a group with their scores, also after tokens were merged or split. Spans
    that others have put there then are left out if their tokens are no longer there."""
    scores = _read_scores(group.attrs)
    columns: list[Any] = [group.attrs.get(name) for name in ("start_char", "end_char", "label")]
    if any(column is None for column in columns):  # by spaCy's spancat, or saved by 0.3
        if len(scores) != len(group):
            scores = [nan] * len(group)
        places = [_place(group, i) for i in range(len(group))]
        pairs = zip(places, scores)
        return [ScoredSpan(*place, score) for place, score in pairs if place is not None]
    written = list(map(ScoredSpan, *columns, scores or [nan] * len(columns[0])))
    if len(written) == len(group):
        return written
    # Others have added spans, or taken some out.
    score_of = {span.place: span.score for span in written}
    present = [place for i in range(len(group)) if (place := _place(group, i)) is not None]
    return [ScoredSpan(*place, score_of.get(place, nan)) for place in present]


def score_of(group: SpanGroup, place: Place) -> float | None:
    """The score of the span with these characters and this label, of a group that is ordered by
    them. None if it has none."""
    starts = group.attrs.get("start_char")
    if starts is None:  # saved by 0.3
        scores = {span.place: span.score for span in read_group(group)}
        score = scores.get(place, nan)
        return None if isnan(score) else score
    if group.attrs.get("scores") is None:
        return None
    start_char, end_char, label = place
    for i in range(bisect_left(starts, start_char), len(starts)):
        if starts[i] != start_char:
            break
        if group.attrs["end_char"][i] == end_char and group.attrs["label"][i] == label:
            return float(group.attrs["scores"][i])
    return None


def on_tokens(group: SpanGroup, alignment_mode: str = "strict") -> list[tuple[Span, float]]:
    """The spans of a group on the tokens that its doc has now, with their scores. A span that ends
    within a token is left out or, if the mode is "expand", has the whole token."""
    rows = read_group(group)
    if len(rows) == len(group) and not is_stale(group):
        return [(span, row.score) for span, row in zip(group, rows)]
    ids = {}
    for i in range(len(group)):
        place = _place(group, i)
        if place is not None:
            ids[place] = {"kb_id": group[i].kb_id, "span_id": group[i].id}
    spans = []
    for row in rows:
        span = group.doc.char_span(
            *row.place, alignment_mode=alignment_mode, **ids.get(row.place, {})
        )
        if span is not None:
            spans.append((span, row.score))
    return spans


def realign(doc: Doc) -> None:
    """Put the spans of all groups on the tokens that the doc has now. What reads all of them, as
    `DocBin` does, fails otherwise."""
    for key, group in doc.spans.items():
        if is_stale(group):
            spans = [span for span, _ in on_tokens(group)]
            doc.spans[key] = SpanGroup(doc, name=group.name, attrs=group.attrs, spans=spans)


def is_stale(group: SpanGroup) -> bool:
    """Whether the doc has other tokens than when spans were put into a group."""
    for i in range(len(group)):
        place = _place(group, i)
        if place is None:
            return True
        tokens = group.doc[group[i].start : group[i].end]
        if (tokens.start_char, tokens.end_char) != place[:2]:
            return True
    return False


def _place(group: SpanGroup, i: int) -> Place | None:
    """The characters and the label of a span. None if its doc has fewer tokens now."""
    try:
        span = group[i]
    except IndexError:
        return None
    return span.start_char, span.end_char, span.label_


def _read_scores(attrs: Mapping[str, Any]) -> list[float]:
    scores = attrs.get("scores")
    return [] if scores is None else numpy.asarray(scores, dtype="float64").tolist()
