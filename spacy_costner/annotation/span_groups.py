"""Read and write span groups with scores, even after tokens have been merged or split.

spaCy doesn't update span groups when tokens are merged or split. Later spans in the doc then
consist of the wrong tokens, or reading them raises an IndexError (E035). Because character offsets
remain valid, they are saved in the attributes of the group together with the scores.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isnan, nan
from typing import Any, NamedTuple

import numpy
from spacy.tokens import Doc, Span, SpanGroup
from thinc.types import Floats1d

Place = tuple[int, int, str]
"""A span as a tuple of its start and end character offsets and its label."""


def replace_spans(
    doc: Doc, key: str, spans: Sequence[Span], scores: Floats1d | None, labels: Iterable[str]
) -> None:
    """Write the predicted spans of a component to `doc.spans` under a key. Existing spans with
    labels of the component are replaced. Spans with other labels are kept, with their scores or
    NaN. (They are removed if they start or end within a merged token.)

    doc (Doc): The doc, which is modified in place.
    key (str): The key to write to.
    spans (Sequence[Span]): The predicted spans of the doc.
    scores (Floats1d | None): The probability of each span, if any. Shape: (S,)
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
    spans_and_scores.sort(key=lambda span_and_score: token_range(span_and_score[0]))
    sorted_spans = [span for span, _ in spans_and_scores]
    sorted_scores = numpy.asarray([score for _, score in spans_and_scores], dtype="float64")
    (new_attrs,) = scored_attrs([(sorted_spans, sorted_scores)])  # a single group
    group = SpanGroup(doc, name=key, attrs={**attrs, **new_attrs}, spans=sorted_spans)
    doc.spans[key] = group


def token_range(span: Span) -> tuple[int, int]:
    """Return the start and end tokens of a span, as a sort key."""
    return span.start, span.end


class ScoredSpan(NamedTuple):
    """The character offsets, the label and the score of a span.

    start_char (int): The start character offset of the span.
    end_char (int): The end character offset of the span (exclusive).
    label (str): The label of the span.
    score (float): The score of the span, or NaN.
    """

    start_char: int
    end_char: int
    label: str
    score: float

    @property
    def place(self) -> Place:
        """The character offsets and the label, which identify a span."""
        return self.start_char, self.end_char, self.label


def scored_attrs(
    scored: Sequence[tuple[Sequence[Span], Floats1d | None]],
) -> Iterator[dict[str, Any]]:
    """Create the attributes of span groups with scores, to be read by `read_group`.

    scored (Sequence[tuple[Sequence[Span], Floats1d | None]]): The S spans of each group and their
        scores, if any. Shape of the scores: (S,)
    YIELDS (dict[str, Any]): The attributes of each group: the scores, character offsets and labels
        of its spans.
    """
    # Creating the lists for all groups at once takes half the time.
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
    """Read the spans of a group and their scores, even after tokens have been merged or split.
    Spans that other code has added to the group have no score, and are skipped if they can no
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
    # A place is None if the span can't be read because tokens have been merged. In this case,
    # assume that it is the saved span.
    is_same_span = [place in (None, saved) for place, saved in zip(places, saved_places)]
    if len(group) == len(saved_places) and all(is_same_span):
        return scored_spans

    # Other code has added, removed or replaced spans. Return the current spans of the group.
    score_of_place = dict(zip(saved_places, scores))
    present_spans: list[ScoredSpan] = []
    for place in places:
        if place is not None:
            present_spans.append(ScoredSpan(*place, score_of_place.get(place, nan)))
    return present_spans


def _read_without_places(group: SpanGroup, scores: list[float]) -> list[ScoredSpan]:
    """Read a group without saved character offsets, such as a group written by spaCy's `spancat`.
    The scores are ignored if their number differs from the number of spans."""
    if len(scores) != len(group):
        scores = [nan] * len(group)
    scored_spans: list[ScoredSpan] = []
    for i, score in enumerate(scores):
        place = _place(group, i)
        if place is not None:
            scored_spans.append(ScoredSpan(*place, score))
    return scored_spans


def score_of(group: SpanGroup, place: Place) -> float | None:
    """Look up the score of a span in a group by character offsets and label.

    group (SpanGroup): The group. Its spans must be sorted by start character.
    place (Place): The character offsets and the label of the span.
    RETURNS (float | None): The score, or None if the span is not in the group or has no score.
    """
    start_chars = group.attrs.get("start_char")
    scores = group.attrs.get("scores")
    if start_chars is None or scores is None:
        return None
    start_char, end_char, label = place
    # Check all spans that start at the same character. They are adjacent.
    i = bisect_left(start_chars, start_char)
    while i < len(start_chars) and start_chars[i] == start_char:
        if group.attrs["end_char"][i] == end_char and group.attrs["label"][i] == label:
            score = float(scores[i])
            return None if isnan(score) else score
        i += 1
    return None


def spans_with_scores(group: SpanGroup, alignment_mode: str = "strict") -> list[tuple[Span, float]]:
    """Get the spans of a group and their scores. If tokens have been merged or split, the spans are
    aligned with the current tokens of the doc.

    group (SpanGroup): Any span group.
    alignment_mode (str): How to align spans that start or end within a token: see `Doc.char_span`.
        With "strict", these spans are skipped. With "expand", they are expanded to whole tokens.
    RETURNS (list[tuple[Span, float]]): The spans and their scores, which may be NaN.
    """
    scored_spans = read_group(group)
    # If no tokens have been merged or split, the spans of the group are still correct.
    if len(scored_spans) == len(group) and not is_stale(group):
        return [(span, scored_span.score) for span, scored_span in zip(group, scored_spans)]

    # Recreate the spans from their character offsets. Copy the ids of spans that can still be read.
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
    """Align the spans in all groups of a doc with its current tokens. The doc is modified in place.
    Spans that start or end within a token are removed. This prevents errors in code that reads all
    groups, such as `DocBin`, after tokens have been merged or split."""
    for key, group in doc.spans.items():
        if is_stale(group):
            spans = [span for span, _ in spans_with_scores(group)]
            doc.spans[key] = SpanGroup(doc, name=group.name, attrs=group.attrs, spans=spans)


def is_stale(group: SpanGroup) -> bool:
    """Check whether any span of a group has the wrong tokens because tokens have been merged or
    split. The character offsets of each span are compared with the offsets of its tokens."""
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
    """Return the character offsets and the label of span i of a group, or None if the span can't be
    read because the doc now has fewer tokens."""
    try:
        span = group[i]
    except IndexError:
        return None
    return span.start_char, span.end_char, span.label_


def _read_scores(attrs: Mapping[str, Any]) -> list[float]:
    """Read the scores in the attributes of a group, which may be stored as an array or a list.
    Returns an empty list if the group has no scores."""
    scores = attrs.get("scores")
    if scores is None:
        return []
    return numpy.asarray(scores, dtype="float64").tolist()
