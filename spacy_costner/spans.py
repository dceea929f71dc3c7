"""Entities that may overlap: the spans under a key of `doc.spans`, as spaCy's `spancat` has them.

Several components share the key, each with some of the labels. The spans of one component don't
overlap, so to it they are the entities of the doc.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import numpy
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import filter_spans
from thinc.types import Array1d, Floats1d

Labels = Collection[str] | None
"""The labels of a component. None: all labels."""


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
    names, group = {*labels}, doc.spans.get(key, SpanGroup(doc))
    before = group.attrs.get("scores", ())
    known = before if len(before) == len(group) else numpy.full(len(group), numpy.nan)
    rows = [(span, p) for span, p in zip(group, known) if span.label_ not in names]
    rows += zip(spans, numpy.full(len(spans), numpy.nan) if scores is None else scores)
    rows.sort(key=lambda row: (row[0].start, row[0].end))
    attrs = {**group.attrs, "scores": numpy.asarray([p for _, p in rows], dtype="float64")}
    doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=[span for span, _ in rows])
