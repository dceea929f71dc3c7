"""Entities that may overlap: the spans under a key of `doc.spans`, as spaCy's `spancat` has them.

Several components can share a key. Each of them has its own labels, and its spans don't overlap
with each other. So a component can learn its spans as if they were the entities of the doc.

The second half of the file reads and writes groups of spans with scores, even if tokens were merged
or split later.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import isnan, nan
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import filter_spans
from thinc.types import Array1d, Floats1d

Labels = Collection[str] | None
"""The labels of a component. None: all labels."""

Place = tuple[int, int, str]
"""Begin and end of a span in characters, and its label."""


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
    for span, next_span in pairwise(sorted(spans, key=_token_range)):
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


def replace_spans(
    doc: Doc, key: str, spans: Sequence[Span], scores: Floats1d | None, labels: Iterable[str]
) -> None:
    """Write the spans that a component has predicted to a key of `doc.spans`. They replace all
    spans with labels of the component. Spans with other labels stay, with their scores, or with NaN
    if they have none. (Such a span is lost if tokens were merged later, and it ends within a
    token.)

    doc (Doc): The doc, which is changed.
    key (str): The key to write to.
    spans (Sequence[Span]): The predicted spans of the doc.
    scores (Floats1d | None): The probability of each span. None: they have none. Shape: (S,)
    labels (Iterable[str]): The labels of the component.
    """
    if scores is None:
        scores = numpy.full(len(spans), numpy.nan)
    replaced_labels = {*labels}
    attrs: dict[str, Any] = {}
    spans_and_scores: list[tuple[Span, float]] = []
    if key in doc.spans:
        attrs = doc.spans[key].attrs
        for span, score in spans_with_scores(doc.spans[key]):
            if span.label_ not in replaced_labels:
                spans_and_scores.append((span, score))

    spans_and_scores += zip(spans, scores)
    spans_and_scores.sort(key=lambda span_and_score: _token_range(span_and_score[0]))
    sorted_spans = [span for span, _ in spans_and_scores]
    sorted_scores = numpy.asarray([score for _, score in spans_and_scores], dtype="float64")
    (new_attrs,) = scored_attrs([(sorted_spans, sorted_scores)])  # of one group
    group = SpanGroup(doc, name=key, attrs={**attrs, **new_attrs}, spans=sorted_spans)
    doc.spans[key] = group


def _token_range(span: Span) -> tuple[int, int]:
    """The first token of a span and the token after its last one, by which spans are ordered."""
    return span.start, span.end


# Groups of spans with scores
#
# When tokens are merged or split, spaCy doesn't update span groups. The spans after these tokens
# then have the wrong tokens, or reading them raises an IndexError (E035). But the characters of a
# span stay the same. So we keep the characters of all spans in the attributes of the group, next to
# their scores.


class ScoredSpan(NamedTuple):
    """A span by its characters, with its score.

    start_char (int): The index of its first character in the doc.
    end_char (int): The index after its last character.
    label (str): The label of the span.
    score (float): The score. NaN: the span has none.
    """

    start_char: int
    end_char: int
    label: str
    score: float

    @property
    def place(self) -> Place:
        """The characters and the label, which identify a span."""
        return self.start_char, self.end_char, self.label


def scored_attrs(
    scored: Sequence[tuple[Sequence[Span], Floats1d | None]],
) -> Iterator[dict[str, Any]]:
    """Make the attributes of groups of spans with scores. `read_group` reads them.

    scored (Sequence[tuple[Sequence[Span], Floats1d | None]]): The S spans of each group, and their
        scores. None: they have no scores. Shape of the scores: (S,)
    YIELDS (dict[str, Any]): The attributes of each group: the scores, characters and labels of its
        spans.
    """
    # Making the lists of all groups at once takes half the time.
    all_spans = list(chain.from_iterable(spans for spans, _ in scored))
    start_chars = [span.start_char for span in all_spans]
    end_chars = [span.end_char for span in all_spans]
    labels = [span.label_ for span in all_spans]
    begin = 0
    for spans, scores in scored:
        end = begin + len(spans)
        yield {
            "scores": scores,
            "start_char": start_chars[begin:end],
            "end_char": end_chars[begin:end],
            "label": labels[begin:end],
        }
        begin = end


def read_group(group: SpanGroup) -> list[ScoredSpan]:
    """Read the spans of a group with their scores, even if tokens were merged or split later. Other
    code may have added spans to the group. These have no score, and are left out if they can no
    longer be read."""
    scores = _read_scores(group.attrs)
    start_chars: Any = group.attrs.get("start_char")
    end_chars: Any = group.attrs.get("end_char")
    labels: Any = group.attrs.get("label")
    if start_chars is None or end_chars is None or labels is None:
        return _read_without_places(group, scores)
    if not scores:
        scores = [nan] * len(labels)
    scored_spans = list(map(ScoredSpan, start_chars, end_chars, labels, scores))
    saved_places = list(zip(start_chars, end_chars, labels))
    places = [_place(group, i) for i in range(len(group))]
    # A place is None if its span can no longer be read, as tokens were merged after the span was
    # added. Such a span is taken for the saved one.
    is_same_span = [place in (None, saved) for place, saved in zip(places, saved_places)]
    if len(group) == len(saved_places) and all(is_same_span):
        return scored_spans

    # Other code has added, removed or replaced spans of the group. Only spans that are in the group
    # now are returned.
    score_of_place = dict(zip(saved_places, scores))
    present_spans: list[ScoredSpan] = []
    for place in places:
        if place is not None:
            present_spans.append(ScoredSpan(*place, score_of_place.get(place, nan)))
    return present_spans


def _read_without_places(group: SpanGroup, scores: list[float]) -> list[ScoredSpan]:
    """Read a group whose attributes don't have the characters of its spans, such as a group of
    spaCy's `spancat`. If the numbers of scores and spans differ, the scores are ignored."""
    if len(scores) != len(group):
        scores = [nan] * len(group)
    scored_spans: list[ScoredSpan] = []
    for i, score in enumerate(scores):
        place = _place(group, i)
        if place is not None:
            scored_spans.append(ScoredSpan(*place, score))
    return scored_spans


def score_of(group: SpanGroup, place: Place) -> float | None:
    """Find the score of a span of a group by its characters and label.

    group (SpanGroup): The group. Its spans are ordered by their first characters.
    place (Place): The characters and the label of the span.
    RETURNS (float | None): The score. None: the group doesn't have the span, or the span has no
        score.
    """
    start_chars = group.attrs.get("start_char")
    scores = group.attrs.get("scores")
    if start_chars is None or scores is None:
        return None
    start_char, end_char, label = place
    # Several spans may begin at the same character. They follow each other.
    i = bisect_left(start_chars, start_char)
    while i < len(start_chars) and start_chars[i] == start_char:
        if group.attrs["end_char"][i] == end_char and group.attrs["label"][i] == label:
            score = float(scores[i])
            return None if isnan(score) else score
        i += 1
    return None


def spans_with_scores(group: SpanGroup, alignment_mode: str = "strict") -> list[tuple[Span, float]]:
    """Find the spans of a group, with their scores. If tokens were merged or split later, the spans
    have the current tokens of the doc.

    group (SpanGroup): A group of any component or user.
    alignment_mode (str): How to align a span that ends within a token, as in `Doc.char_span`: with
        "strict" it is left out, with "expand" it gets the whole token.
    RETURNS (list[tuple[Span, float]]): The spans and their scores. NaN: the span has no score.
    """
    scored_spans = read_group(group)
    # If no tokens were merged or split, the spans of the group are right as they are.
    if len(scored_spans) == len(group) and not is_stale(group):
        return [(span, scored_span.score) for span, scored_span in zip(group, scored_spans)]

    # Spans are made again from their characters. A span gets the ids of the span of the group with
    # the same characters and label, if this can still be read.
    ids_of_place: dict[Place, dict[str, Any]] = {}
    for i in range(len(group)):
        place = _place(group, i)
        if place is not None:
            ids_of_place[place] = {"kb_id": group[i].kb_id, "span_id": group[i].id}

    spans_and_scores: list[tuple[Span, float]] = []
    for scored_span in scored_spans:
        ids = ids_of_place.get(scored_span.place, {})
        span = group.doc.char_span(*scored_span.place, alignment_mode=alignment_mode, **ids)
        if span is not None:
            spans_and_scores.append((span, scored_span.score))
    return spans_and_scores


def realign(doc: Doc) -> None:
    """Align the spans of all groups of a doc with its current tokens. The doc is changed: a span
    that now begins or ends within a token is left out. Without this, code that reads all groups,
    such as `DocBin`, fails after tokens were merged or split."""
    for key, group in doc.spans.items():
        if is_stale(group):
            spans = [span for span, _ in spans_with_scores(group)]
            doc.spans[key] = SpanGroup(doc, name=group.name, attrs=group.attrs, spans=spans)


def is_stale(group: SpanGroup) -> bool:
    """Whether a span of a group has the wrong tokens, as tokens of the doc were merged or split. A
    span keeps its characters, and they are compared with the characters of its tokens."""
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
    """The characters and the label of span i of a group. None: the span can't be read, as the doc
    has fewer tokens now."""
    try:
        span = group[i]
    except IndexError:
        return None
    return span.start_char, span.end_char, span.label_


def _read_scores(attrs: Mapping[str, Any]) -> list[float]:
    """Read the scores in the attributes of a group, where they are an array or a list. Empty: the
    group has no scores."""
    scores = attrs.get("scores")
    if scores is None:
        return []
    return numpy.asarray(scores, dtype="float64").tolist()
