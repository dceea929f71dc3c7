"""Entities that may overlap: the spans under a key of `doc.spans`, as spaCy's `spancat` has them.

Several components can share a key. Each of them has its own labels, and its spans don't overlap
with each other. So a component can learn its spans as if they were the entities of the doc.

The second half of the file reads and writes groups of spans with scores, even if tokens were merged
or split since.
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
    """The name of the key of `doc.spans` for the tokens whose annotation under `key` is missing.
    For entities, spaCy says of each token whether its annotation is missing. For spans there is no
    such place, so we keep spans of these tokens under a key of their own."""
    return f"{key}_missing"


def is_missing(doc: Doc, key: str) -> Array1d:
    """True for the tokens whose annotation under a key of `doc.spans` is missing. If the doc
    doesn't have the key, that's true of all. Shape: (T,)"""
    missing = numpy.full(len(doc), key not in doc.spans)
    for span in doc.spans.get(missing_key(key), ()):
        missing[span.start : span.end] = True
    return missing


def missing_spans(doc: Doc, missing: Array1d) -> list[Span]:
    """Make a span of each token whose annotation is missing, as `Doc.set_ents` expects. `missing`
    is True for these tokens, (T,)."""
    return [doc[i : i + 1] for i in numpy.flatnonzero(missing).tolist()]


def keep_longest(doc: Doc, key: str, labels: Labels = None) -> tuple[list[Span], list[Span]]:
    """Choose spans that don't overlap, as entities may not. Where spans overlap, the longest is
    kept or, if several are as long, the first.

    doc (Doc): The doc.
    key (str): The key of its spans.
    labels (Labels): The labels of the spans that count. None: all.
    RETURNS (tuple[list[Span], list[Span]]): The spans that are kept; and the dropped spans, each of
        which overlaps with one that is kept. A second span with the same tokens and label is in
        neither list.
    """

    def tokens_and_label(span: Span) -> tuple[int, int, int]:
        """The first token of a span, the token after its last one, and the hash of its label."""
        return span.start, span.end, span.label

    # Of spans with the same tokens and label, only the first is looked at.
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
    """Copy a doc, and make entities of its spans under a key. A component with a `spans_key` learns
    from the copy. If the doc doesn't have the key, all annotation of the copy is missing.

    doc (Doc): The doc.
    key (str): The key of the spans.
    labels (Labels): The labels of the spans that become entities. None: all.
    own_labels (Labels): The labels that the component writes. All spans with these labels become
        entities (but see `longest`). A span with another label becomes one only if it doesn't
        overlap with these entities; where such spans overlap, the longest does. None: all labels
        are the component's own.
    longest (bool): Whether, where spans with own labels overlap, only the longest becomes an
        entity.
    RETURNS (Doc): The copy.
    RAISES (ValueError): If spans with own labels overlap, and `longest` is not set.
    """
    copy = doc.copy()
    # First the spans that the component writes, which must not overlap; then all others.
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
    """The error message for spans of which at least two overlap. It names the first two that do."""
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
    """Choose the spans that a component learns but doesn't write, as they have labels of other
    components. Those that overlap with its own spans are left out. Where the others overlap with
    each other, the longest is chosen.

    doc (Doc): The doc.
    key (str): The key of the spans.
    labels (Labels): The labels that the component learns. None: all.
    own_labels (Collection[str]): The labels that it writes.
    own_spans (Iterable[Span]): The spans with these labels that become entities.
    RETURNS (list[Span]): The chosen spans.
    """
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
    """Write the entities of a doc to a key of `doc.spans`, unless the doc has the key or its
    entities are not annotated. Missing annotation stays missing. Returns the same doc."""
    if key not in doc.spans and doc.has_annotation("ENT_IOB"):
        missing = doc.to_array(ENT_IOB) == 0  # spaCy's value for missing annotation
        annotate_spans(doc, key, doc.ents, missing_spans(doc, missing))
    return doc


def annotate_spans(doc: Doc, key: str, spans: Iterable[Span], missing: Sequence[Span]) -> None:
    """Write annotation to a key of `doc.spans`.

    doc (Doc): The doc.
    key (str): The key.
    spans (Iterable[Span]): The annotated spans.
    missing (Sequence[Span]): Spans of the tokens whose annotation is missing: see `missing_spans`.
    """
    doc.spans[key] = list(spans)
    if missing:
        doc.spans[missing_key(key)] = missing


def replace_spans(
    doc: Doc, key: str, spans: Sequence[Span], scores: Floats1d | None, labels: Iterable[str]
) -> None:
    """Write the spans that a component has predicted to a key of `doc.spans`. They replace all
    spans there with labels of the component. Spans with other labels stay, with their scores, or
    with NaN if they have none. (Such a span is lost if tokens were merged since, so that it ends
    within a token.)

    doc (Doc): The doc.
    key (str): The key.
    spans (Sequence[Span]): The predicted spans.
    scores (Floats1d | None): Their probabilities. None: they have none. Shape: (S,)
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
    """The first token of a span, and the one after its last, by which spans are ordered."""
    return span.start, span.end


# Groups of spans with scores
#
# When tokens are merged or split, spaCy doesn't move the spans of a group. Spans after that place
# then have the wrong tokens, or reading them raises an IndexError (E035). But the characters of a
# span stay the same. So we keep the characters of all spans in the attributes of the group, next to
# their scores.


class ScoredSpan(NamedTuple):
    """A span by its characters, with its score.

    start_char (int): The first character.
    end_char (int): The character after the last.
    label (str): The label.
    score (float): The score. NaN: it has none.
    """

    start_char: int
    end_char: int
    label: str
    score: float

    @property
    def place(self) -> Place:
        """The characters and the label, by which a span is known."""
        return self.start_char, self.end_char, self.label


def scored_attrs(
    scored: Sequence[tuple[Sequence[Span], Floats1d | None]],
) -> Iterator[dict[str, Any]]:
    """Make the attributes of groups of spans with scores. `read_group` reads them.

    scored (Sequence[tuple[Sequence[Span], Floats1d | None]]): The spans of each group; and their
        scores, if they have some. Shape: (S,)
    YIELDS (dict[str, Any]): The attributes of each group: the scores of its spans, their first
        characters, the characters after their last, and their labels.
    """
    # Making lists for all groups at once takes half the time of making them group by group.
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
    """Read the spans of a group with their scores, even if tokens were merged or split since. Other
    code may have added spans to the group. They have no score, and are left out if they can't be
    read any more."""
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
    # A place is None if its span can't be read any more, as tokens were merged after the span was
    # added. Such a span is taken for the one that was saved.
    is_same_span = [place in (None, saved) for place, saved in zip(places, saved_places)]
    if len(group) == len(saved_places) and all(is_same_span):
        return scored_spans

    # Other code has added spans to the group, removed or replaced some. Only spans that are in the
    # group now are returned.
    score_of_place = dict(zip(saved_places, scores))
    present_spans: list[ScoredSpan] = []
    for place in places:
        if place is not None:
            present_spans.append(ScoredSpan(*place, score_of_place.get(place, nan)))
    return present_spans


def _read_without_places(group: SpanGroup, scores: list[float]) -> list[ScoredSpan]:
    """Read a group whose attributes don't have the characters of its spans, as it is from spaCy's
    `spancat`. If there are not as many scores as spans, the scores are ignored."""
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
    RETURNS (float | None): The score. None: the group has no such span, or it has no score.
    """
    start_chars = group.attrs.get("start_char")
    scores = group.attrs.get("scores")
    if start_chars is None or scores is None:
        return None
    start_char, end_char, label = place
    # Several spans may begin at the character. They stand side by side.
    i = bisect_left(start_chars, start_char)
    while i < len(start_chars) and start_chars[i] == start_char:
        if group.attrs["end_char"][i] == end_char and group.attrs["label"][i] == label:
            score = float(scores[i])
            return None if isnan(score) else score
        i += 1
    return None


def spans_with_scores(group: SpanGroup, alignment_mode: str = "strict") -> list[tuple[Span, float]]:
    """Find the spans of a group, with their scores. If tokens were merged or split since, the spans
    have the tokens that the doc has now.

    group (SpanGroup): The group.
    alignment_mode (str): What becomes of a span that ends within a token, as in `Doc.char_span`:
        with "strict" it is left out, with "expand" it gets the whole token.
    RETURNS (list[tuple[Span, float]]): The spans and their scores. NaN stands for no score.
    """
    scored_spans = read_group(group)
    # If no tokens were merged or split, the spans of the group are right as they are.
    if len(scored_spans) == len(group) and not is_stale(group):
        return [(span, scored_span.score) for span, scored_span in zip(group, scored_spans)]

    # Spans are made again from their characters. A span gets the ids that the span of the group
    # with the same characters and label has, if that one can still be read.
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
    """Give the spans of all groups of a doc the tokens that the doc has now. The doc is changed: a
    span that now begins or ends within a token is left out. If tokens were merged or split, code
    that reads all groups, such as `DocBin`, fails otherwise."""
    for key, group in doc.spans.items():
        if is_stale(group):
            spans = [span for span, _ in spans_with_scores(group)]
            doc.spans[key] = SpanGroup(doc, name=group.name, attrs=group.attrs, spans=spans)


def is_stale(group: SpanGroup) -> bool:
    """Whether the tokens of a span of a group are no longer at the characters of the span, as
    tokens of the doc were merged or split. A span remembers its characters."""
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
    """The characters and the label of the span with the index i in a group. None: the span can't be
    read, as the doc has fewer tokens now."""
    try:
        span = group[i]
    except IndexError:
        return None
    return span.start_char, span.end_char, span.label_


def _read_scores(attrs: Mapping[str, Any]) -> list[float]:
    """Read the scores in the attributes of a group, where they are an array or a list. Empty: there
    are none."""
    scores = attrs.get("scores")
    if scores is None:
        return []
    return numpy.asarray(scores, dtype="float64").tolist()
