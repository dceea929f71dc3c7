"""Groups of spans with scores, which can be read even if tokens were merged or split later.

When tokens are merged or split, spaCy doesn't update span groups. The spans after these tokens then
have the wrong tokens, or reading them raises an IndexError (E035). But the characters of a span
stay the same. So we keep the characters of all spans in the attributes of the group, next to their
scores.
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
"""Begin and end of a span in characters, and its label."""


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
    spans_and_scores.sort(key=lambda span_and_score: token_range(span_and_score[0]))
    sorted_spans = [span for span, _ in spans_and_scores]
    sorted_scores = numpy.asarray([score for _, score in spans_and_scores], dtype="float64")
    (new_attrs,) = scored_attrs([(sorted_spans, sorted_scores)])  # of one group
    group = SpanGroup(doc, name=key, attrs={**attrs, **new_attrs}, spans=sorted_spans)
    doc.spans[key] = group


def token_range(span: Span) -> tuple[int, int]:
    """The first token of a span and the token after its last one, by which spans are ordered."""
    return span.start, span.end


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
