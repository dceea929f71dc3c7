"""Entities that may overlap: the spans under a key of `doc.spans`, as spaCy's `spancat` has them.

Several components can share a key. Each of them has its own labels, and its spans don't overlap
with each other. So a component can learn its spans as if they were the entities of the doc.
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
"""The labels of a component. None: all labels."""


def missing_key(key: str) -> str:
    """The key of `doc.spans` for the tokens whose annotation under `key` is missing. For entities,
    spaCy has an attribute of tokens for missing annotation. For spans it has none, so we keep spans
    of these tokens under their own key."""
    return f"{key}_missing"


def is_missing(doc: Doc, key: str) -> Array1d:
    """True for the tokens whose annotation under a key of `doc.spans` is missing. If the doc
    doesn't have the key, it is missing for all tokens. Shape: (T,)"""
    missing = numpy.full(len(doc), key not in doc.spans)
    for span in doc.spans.get(missing_key(key), ()):
        missing[span.start : span.end] = True
    return missing


def missing_spans(doc: Doc, missing: Array1d) -> list[Span]:
    """Make a span of each token whose annotation is missing, as `Doc.set_ents` expects. `missing`
    is True for these tokens, (T,)."""
    return [doc[i : i + 1] for i in numpy.flatnonzero(missing).tolist()]


def keep_longest(doc: Doc, key: str, labels: Labels = None) -> tuple[list[Span], list[Span]]:
    """Choose spans that don't overlap, as entities must not overlap. Where spans overlap, the
    longest is kept. If several are the longest, the first of these is kept.

    doc (Doc): A doc with spans.
    key (str): The key of its spans.
    labels (Labels): The labels of the spans that count. None: all.
    RETURNS (tuple[list[Span], list[Span]]): The kept spans, and the dropped spans, which overlap
        with kept ones. A second span with the same tokens and label is in neither list.
    """

    def tokens_and_label(span: Span) -> tuple[int, int, int]:
        """The first token of a span, the token after its last one, and the hash of its label."""
        return span.start, span.end, span.label

    # Only the first of spans with the same tokens and label counts.
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
    """Copy a doc, and turn its spans under a key into entities. A component with a `spans_key`
    learns from the copy. If the doc doesn't have the key, all annotation of the copy is missing.

    doc (Doc): An annotated doc, which isn't changed.
    key (str): The key of the spans.
    labels (Labels): The labels of the spans that become entities. None: all.
    own_labels (Labels): The labels that the component writes. All spans with these labels become
        entities (but see `longest`). A span with another label becomes an entity only if it doesn't
        overlap with these. Where such spans overlap, the longest becomes an entity. None: all
        labels are the component's own.
    longest (bool): Whether only the longest span becomes an entity where spans with own labels
        overlap.
    RETURNS (Doc): The copy, with these entities.
    RAISES (ValueError): If spans with own labels overlap, and `longest` is not set.
    """
    copy = doc.copy()
    # Spans with own labels must not overlap, and other spans must not overlap with them.
    labels_without_overlap = labels if own_labels is None else own_labels
    entities, overlapping = keep_longest(copy, key, labels_without_overlap)
    if overlapping and not longest:
        raise ValueError(_overlap_message(copy, key, [*entities, *overlapping]))
    if own_labels is not None:
        entities += _other_spans(copy, key, labels, own_labels, entities)
    is_unannotated = is_missing(copy, key)
    for span in entities:
        is_unannotated[span.start : span.end] = False
    copy.set_ents(entities, missing=missing_spans(copy, is_unannotated), default="outside")
    return copy


def _overlap_message(doc: Doc, key: str, spans: Iterable[Span]) -> str:
    """The error message for overlapping spans, which names the first two that overlap."""
    for span, next_span in pairwise(sorted(spans, key=token_range)):
        if next_span.start < span.end:
            break  # `span` and `next_span` overlap
    return (
        f"doc.spans[{key!r}]: expected spans of one component that don't overlap, got "
        f"{_span_text(span)} and {_span_text(next_span)} in {doc[:8].text!r}: give their labels to "
        "several components, or set filter_spans = true, which keeps the longest"
    )


def _span_text(span: Span) -> str:
    """A span as error messages show it: its label, text and tokens."""
    return f"{span.label_} {span.text!r} ({span.start}-{span.end})"


def _other_spans(
    doc: Doc, key: str, labels: Labels, own_labels: Collection[str], own_spans: Iterable[Span]
) -> list[Span]:
    """Choose the spans under a key that a component learns but doesn't write. Their label is one of
    `labels`, but not of `own_labels`, and they don't overlap with `own_spans`, which all become
    entities. Where they overlap with each other, only the longest is chosen."""
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
    """Write the entities of a doc to a key of `doc.spans`, unless the doc has the key already, or
    its entities are not annotated. Missing annotation stays missing. Returns the same doc."""
    if key not in doc.spans and doc.has_annotation("ENT_IOB"):
        missing = doc.to_array(ENT_IOB) == 0  # spaCy's value for missing annotation
        annotate_spans(doc, key, doc.ents, missing_spans(doc, missing))
    return doc


def annotate_spans(doc: Doc, key: str, spans: Iterable[Span], missing: Sequence[Span]) -> None:
    """Write annotation to a key of `doc.spans`.

    doc (Doc): The doc, which is changed.
    key (str): The key to write to.
    spans (Iterable[Span]): The annotated spans of the doc.
    missing (Sequence[Span]): Spans of the tokens whose annotation is missing: see `missing_spans`.
    """
    doc.spans[key] = list(spans)
    if missing:
        doc.spans[missing_key(key)] = missing
