"""Convert between the spans under a key in `doc.spans`, which may overlap, and entities.

Several components can share a key, each with different labels. The spans of a single component
don't overlap, so the component can be trained on them as if they were entities.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import numpy
from spacy.attrs import ENT_IOB
from spacy.tokens import Doc, Span
from spacy.util import filter_spans
from thinc.types import Array1d

from .span_groups import token_range

Labels = Collection[str] | None
"""The labels of a component, or None for all labels."""


def missing_key(key: str) -> str:
    """Return the key in `doc.spans` whose spans mark tokens with missing annotation under `key`.
    spaCy's token attribute for missing annotation only applies to entities, so missing span
    annotation is marked by spans under a separate key."""
    return f"{key}_missing"


def is_missing(doc: Doc, key: str) -> Array1d:
    """Return a mask of the tokens with missing annotation under a key in `doc.spans`. If the doc
    doesn't have the key, annotation is missing for all tokens. Shape: (T,)"""
    missing = numpy.full(len(doc), key not in doc.spans)
    for span in doc.spans.get(missing_key(key), ()):
        missing[span.start : span.end] = True
    return missing


def missing_spans(doc: Doc, missing: Array1d) -> list[Span]:
    """Convert a mask of tokens with missing annotation to one span per token, as expected by
    `Doc.set_ents`. Shape: (T,)"""
    return [doc[i : i + 1] for i in numpy.flatnonzero(missing).tolist()]


def keep_longest(doc: Doc, key: str, labels: Labels = None) -> tuple[list[Span], list[Span]]:
    """Select non-overlapping spans. Longer spans are preferred and, among spans of the same length,
    the first span.

    doc (Doc): The doc with the spans.
    key (str): The key of the spans in `doc.spans`.
    labels (Labels): The labels of the spans to consider. If None, all spans are considered.
    RETURNS (tuple[list[Span], list[Span]]): The kept spans, and the dropped spans, which overlap
        with kept spans. Duplicates with the same tokens and label are in neither list.
    """

    def tokens_and_label(span: Span) -> tuple[int, int, int]:
        """Return the start, the end and the label hash of a span."""
        return span.start, span.end, span.label

    # Ignore duplicates with the same tokens and label.
    distinct_spans: dict[tuple[int, int, int], Span] = {}
    for span in doc.spans.get(key, ()):
        if labels is None or span.label_ in labels:
            distinct_spans.setdefault(tokens_and_label(span), span)

    kept_spans = filter_spans(distinct_spans.values())
    dropped_spans = distinct_spans.copy()
    for span in kept_spans:
        del dropped_spans[tokens_and_label(span)]
    return kept_spans, list(dropped_spans.values())


def spans_as_entities(
    doc: Doc, key: str, labels: Labels = None, *, own_labels: Labels = None, longest: bool = False
) -> Doc:
    """Copy a doc and convert the spans under a key to entities. The copy is used for training a
    component with a `spans_key`. If the doc doesn't have the key, the entity annotation of the copy
    is missing.

    doc (Doc): The annotated doc, which isn't modified.
    key (str): The key of the spans in `doc.spans`.
    labels (Labels): The labels of the spans to convert. If None, all spans are converted.
    own_labels (Labels): The labels that the component writes. If None, it writes all labels. Spans
        with other labels are only converted if they don't overlap with spans that have these
        labels. If they overlap with each other, only the longest is converted.
    longest (bool): Whether to convert only the longest of overlapping spans with a label in
        `own_labels`, instead of raising an error.
    RETURNS (Doc): The copy with the entities.
    RAISES (ValueError): If spans with a label in `own_labels` overlap and `longest` is not set.
    """
    copy = doc.copy()
    # Here, only spans with a label in `own_labels` are checked for overlaps.
    labels_without_overlap = labels if own_labels is None else own_labels
    entities, overlapping = keep_longest(copy, key, labels_without_overlap)
    if overlapping and not longest:
        raise ValueError(_overlap_message(copy, key, [*entities, *overlapping]))
    if own_labels is not None:
        entities += _other_spans(copy, key, labels, own_labels, entities)
    is_unannotated = is_missing(copy, key)
    for span in [*entities, *overlapping]:
        is_unannotated[span.start : span.end] = False
    copy.set_ents(entities, missing=missing_spans(copy, is_unannotated), default="outside")
    return copy


def _overlap_message(doc: Doc, key: str, spans: Iterable[Span]) -> str:
    """Format the error message for overlapping spans, with the first two spans that overlap."""
    for span, next_span in pairwise(sorted(spans, key=token_range)):
        if next_span.start < span.end:
            break  # `span` and `next_span` overlap
    return (
        f"doc.spans[{key!r}]: expected spans of one component that don't overlap, got "
        f"{_span_text(span)} and {_span_text(next_span)} in {doc[:8].text!r}: give their labels to "
        "several components, or set filter_spans = true, which keeps the longest"
    )


def _span_text(span: Span) -> str:
    """Format a span for error messages, with its label, text and token indices."""
    return f"{span.label_} {span.text!r} ({span.start}-{span.end})"


def _other_spans(
    doc: Doc, key: str, labels: Labels, own_labels: Collection[str], own_spans: Iterable[Span]
) -> list[Span]:
    """Select the spans under a key that a component learns but doesn't write: spans with labels in
    `labels` but not in `own_labels` that don't overlap with `own_spans`. Of spans that overlap with
    each other, only the longest is selected."""
    own_tokens: set[int] = set()
    for span in own_spans:
        own_tokens.update(range(span.start, span.end))
    candidates: list[Span] = []
    for span in doc.spans.get(key, ()):
        is_other = span.label_ not in own_labels
        is_learned = labels is None or span.label_ in labels
        is_free = own_tokens.isdisjoint(range(span.start, span.end))
        if is_other and is_learned and is_free:
            candidates.append(span)
    return filter_spans(candidates)


def entities_as_spans(doc: Doc, key: str) -> Doc:
    """Copy the entities of a doc to `doc.spans` under a key, unless the key exists or the doc has
    no entity annotation. Missing annotation is preserved. Modifies the doc in place and returns
    it."""
    if key not in doc.spans and doc.has_annotation("ENT_IOB"):
        missing = doc.to_array(ENT_IOB) == 0  # 0 means missing annotation
        annotate_spans(doc, key, doc.ents, missing_spans(doc, missing))
    return doc


def annotate_spans(doc: Doc, key: str, spans: Iterable[Span], missing: Sequence[Span]) -> None:
    """Write span annotation to `doc.spans` under a key.

    doc (Doc): The doc, which is modified in place.
    key (str): The key to write to.
    spans (Iterable[Span]): The annotated spans of the doc.
    missing (Sequence[Span]): The tokens with missing annotation: see `missing_spans`.
    """
    doc.spans[key] = list(spans)
    if missing:
        doc.spans[missing_key(key)] = missing
