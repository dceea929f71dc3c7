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


def keep_longest(doc: Doc, key: str, labels: Labels = None) -> tuple[list[Span], list[Span]]:
    """The spans of some labels, of which the longest, or the first of the same length, are kept
    where they overlap. Returns those that are kept, and those that are not."""
    distinct_spans: dict[tuple[int, int, int], Span] = {}
    for span in doc.spans.get(key, ()):
        if labels is None or span.label_ in labels:
            distinct_spans.setdefault((span.start, span.end, span.label), span)
    longest = filter_spans(distinct_spans.values())
    for span in longest:
        del distinct_spans[span.start, span.end, span.label]
    return longest, list(distinct_spans.values())


def spans_as_entities(
    doc: Doc, key: str, labels: Labels = None, *, own_labels: Labels = None, longest: bool = False
) -> Doc:
    """A copy of a doc with its spans of some labels as entities. They are missing in a doc that
    doesn't have the key.

    doc (Doc): The doc.
    key (str): The key of the spans.
    labels (Labels): The labels of the spans that become entities. None: all.
    own_labels (Labels): The labels whose spans are all kept. A span of another label is kept if it
        overlaps with none of them; where such spans overlap, the longest is kept. None: all.
    longest (bool): Whether the longest is kept where spans of these labels overlap.
    RETURNS (Doc): The copy.
    RAISES (ValueError): If they overlap otherwise.
    """
    copy = doc.copy()
    entities, overlapping = keep_longest(copy, key, labels if own_labels is None else own_labels)
    if overlapping and not longest:
        raise ValueError(_describe_overlap(copy, key, [*entities, *overlapping]))
    if own_labels is not None:
        entities += _other_spans(copy, key, labels, own_labels, entities)
    missing = is_missing(copy, key)
    for span in entities:
        missing[span.start : span.end] = False
    missing_tokens = [copy[i : i + 1] for i in numpy.flatnonzero(missing).tolist()]
    copy.set_ents(entities, missing=missing_tokens, default="outside")
    return copy


def _describe_overlap(doc: Doc, key: str, spans: Iterable[Span]) -> str:
    """The message for spans that overlap, with the first two that do."""
    ordered = sorted(spans, key=lambda span: (span.start, span.end))
    for span, next_span in pairwise(ordered):
        if next_span.start < span.end:
            break
    first, second = (f"{s.label_} {s.text!r} ({s.start}-{s.end})" for s in (span, next_span))
    return (
        f"doc.spans[{key!r}]: expected spans of one component that don't overlap, got {first} "
        f"and {second} in {doc[:8].text!r}: give their labels to several components, or set "
        "filter_spans = true, which keeps the longest"
    )


def _other_spans(
    doc: Doc, key: str, labels: Labels, own_labels: Collection[str], own_spans: Iterable[Span]
) -> list[Span]:
    """The spans of other labels that overlap with no own span, and not with each other."""
    own_tokens: set[int] = set()
    for span in own_spans:
        own_tokens.update(range(span.start, span.end))
    candidates: list[Span] = []
    for span in doc.spans.get(key, ()):
        is_other = span.label_ not in own_labels
        is_learned = labels is None or span.label_ in labels
        if is_other and is_learned and own_tokens.isdisjoint(range(span.start, span.end)):
            candidates.append(span)
    return filter_spans(candidates)


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
    """Write the spans of a component in place of other spans of its labels. Spans that others have
    written without scores get NaN.

    doc (Doc): The doc.
    key (str): The key in `doc.spans`.
    spans (Sequence[Span]): The spans.
    scores (Floats1d | None): Their probabilities. Shape: (S,)
    labels (Iterable[str]): The labels of the component.
    """
    if scores is None:
        scores = numpy.full(len(spans), numpy.nan)
    replaced_labels = {*labels}
    attrs: dict[str, Any] = {}
    spans_and_scores = list(zip(spans, scores))
    if key in doc.spans:
        attrs = doc.spans[key].attrs
        other_spans = spans_with_scores(doc.spans[key])
        remaining = [row for row in other_spans if row[0].label_ not in replaced_labels]
        spans_and_scores = remaining + spans_and_scores
    spans_and_scores.sort(key=lambda row: (row[0].start, row[0].end))
    sorted_spans = [span for span, _ in spans_and_scores]
    sorted_scores = numpy.asarray([score for _, score in spans_and_scores], dtype="float64")
    (new_attrs,) = scored_attrs([(sorted_spans, sorted_scores)])
    group = SpanGroup(doc, name=key, attrs={**attrs, **new_attrs}, spans=sorted_spans)
    doc.spans[key] = group


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
        return _read_without_places(group, scores)
    start_chars, end_chars, labels = columns
    if not scores:
        scores = [nan] * len(labels)
    scored_spans = list(map(ScoredSpan, start_chars, end_chars, labels, scores))
    if len(scored_spans) == len(group):
        return scored_spans
    # Others have added spans, or taken some out.
    score_of_place = {span.place: span.score for span in scored_spans}
    present: list[ScoredSpan] = []
    for i in range(len(group)):
        place = _place(group, i)
        if place is not None:
            present.append(ScoredSpan(*place, score_of_place.get(place, nan)))
    return present


def _read_without_places(group: SpanGroup, scores: list[float]) -> list[ScoredSpan]:
    """Read a group whose attributes don't have the characters of its spans."""
    if len(scores) != len(group):
        scores = [nan] * len(group)
    scored_spans: list[ScoredSpan] = []
    for i, score in enumerate(scores):
        place = _place(group, i)
        if place is not None:
            scored_spans.append(ScoredSpan(*place, score))
    return scored_spans


def score_of(group: SpanGroup, place: Place) -> float | None:
    """The score of the span with these characters and this label, of a group that is ordered by
    them. None if it has none."""
    start_chars = group.attrs.get("start_char")
    if start_chars is None:  # saved by 0.3
        scores = {span.place: span.score for span in read_group(group)}
        score = scores.get(place, nan)
        return None if isnan(score) else score
    if group.attrs.get("scores") is None:
        return None
    start_char, end_char, label = place
    # Several spans may begin there: they follow each other.
    i = bisect_left(start_chars, start_char)
    while i < len(start_chars) and start_chars[i] == start_char:
        if group.attrs["end_char"][i] == end_char and group.attrs["label"][i] == label:
            return float(group.attrs["scores"][i])
        i += 1
    return None


def spans_with_scores(group: SpanGroup, alignment_mode: str = "strict") -> list[tuple[Span, float]]:
    """The spans of a group on the tokens that its doc has now, with their scores. A span that ends
    within a token is left out or, if the mode is "expand", has the whole token."""
    scored_spans = read_group(group)
    if len(scored_spans) == len(group) and not is_stale(group):
        return [(span, scored.score) for span, scored in zip(group, scored_spans)]
    ids_of_place: dict[Place, dict[str, Any]] = {}
    for i in range(len(group)):
        place = _place(group, i)
        if place is not None:
            ids_of_place[place] = {"kb_id": group[i].kb_id, "span_id": group[i].id}
    spans_and_scores: list[tuple[Span, float]] = []
    for scored in scored_spans:
        ids = ids_of_place.get(scored.place, {})
        span = group.doc.char_span(*scored.place, alignment_mode=alignment_mode, **ids)
        if span is not None:
            spans_and_scores.append((span, scored.score))
    return spans_and_scores


def realign(doc: Doc) -> None:
    """Put the spans of all groups on the tokens that the doc has now. What reads all of them, as
    `DocBin` does, fails otherwise."""
    for key, group in doc.spans.items():
        if is_stale(group):
            spans = [span for span, _ in spans_with_scores(group)]
            doc.spans[key] = SpanGroup(doc, name=group.name, attrs=group.attrs, spans=spans)


def is_stale(group: SpanGroup) -> bool:
    """Whether the doc has other tokens than when spans were put into a group."""
    for i in range(len(group)):
        place = _place(group, i)
        if place is None:
            return True
        start_char, end_char, _ = place
        tokens = group.doc[group[i].start : group[i].end]
        if tokens.start_char != start_char or tokens.end_char != end_char:
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
    """The scores in the attributes of a group, as an array or a list; empty if there are none."""
    scores = attrs.get("scores")
    return [] if scores is None else numpy.asarray(scores, dtype="float64").tolist()
