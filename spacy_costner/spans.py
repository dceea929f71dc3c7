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
from spacy.attrs import ENT_IOB
from spacy.tokens import Doc, Span, SpanGroup
from spacy.util import filter_spans
from thinc.types import Array1d, Floats1d

Labels = Collection[str] | None
"""The labels of a component. None: all labels."""

Place = tuple[int, int, str]
"""Begin and end of a span in characters, and its label."""


def missing_key(key: str) -> str:
    """The key of `doc.spans` for the tokens whose annotation under another key is missing. In
    `doc.ents` spaCy has this by token; spans have no place for it."""
    return f"{key}_missing"


def is_missing(doc: Doc, key: str) -> Array1d:
    """True for the tokens whose annotation under a key of `doc.spans` is missing: all if the doc
    doesn't have the key. Shape: (T,)"""
    missing = numpy.full(len(doc), key not in doc.spans)
    for span in doc.spans.get(missing_key(key), ()):
        missing[span.start : span.end] = True
    return missing


def missing_spans(doc: Doc, missing: Array1d) -> list[Span]:
    """Make a span of each token whose annotation is missing, as `Doc.set_ents` takes them: where
    `missing` is true, (T,)."""
    return [doc[i : i + 1] for i in numpy.flatnonzero(missing).tolist()]


def keep_longest(doc: Doc, key: str, labels: Labels = None) -> tuple[list[Span], list[Span]]:
    """Make spans free of overlaps, as entities have to be: where some overlap, the longest is kept
    or, of the same length, the first.

    doc (Doc): The doc.
    key (str): The key of its spans.
    labels (Labels): The labels of the spans that count. None: all.
    RETURNS (tuple[list[Span], list[Span]]): The spans that are kept, and those that overlap with
        them. Of spans with the same tokens and label the first counts.
    """
    # Each span once, by its tokens and label. In the end those that overlap are left.
    overlapping: dict[tuple[int, int, int], Span] = {}
    for span in doc.spans.get(key, ()):
        if labels is None or span.label_ in labels:
            overlapping.setdefault((span.start, span.end, span.label), span)
    longest = filter_spans(overlapping.values())
    for span in longest:
        del overlapping[span.start, span.end, span.label]
    return longest, list(overlapping.values())


def spans_as_entities(
    doc: Doc, key: str, labels: Labels = None, *, own_labels: Labels = None, longest: bool = False
) -> Doc:
    """Copy a doc with its spans of some labels as entities, from which a component with a
    `spans_key` learns. In a doc without the key their annotation is missing.

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
    all_kept_labels = labels if own_labels is None else own_labels
    entities, overlapping = keep_longest(copy, key, all_kept_labels)
    if overlapping and not longest:
        raise ValueError(_overlap_message(copy, key, [*entities, *overlapping]))
    if own_labels is not None:
        entities += _other_spans(copy, key, labels, own_labels, entities)
    missing = is_missing(copy, key)
    for span in entities:
        missing[span.start : span.end] = False
    copy.set_ents(entities, missing=missing_spans(copy, missing), default="outside")
    return copy


def _overlap_message(doc: Doc, key: str, spans: Iterable[Span]) -> str:
    """The message for spans some of which overlap, with the first two that do."""
    for span, next_span in pairwise(sorted(spans, key=_token_range)):
        if next_span.start < span.end:
            break  # with these two
    return (
        f"doc.spans[{key!r}]: expected spans of one component that don't overlap, got "
        f"{_span_text(span)} and {_span_text(next_span)} in {doc[:8].text!r}: give their labels to "
        "several components, or set filter_spans = true, which keeps the longest"
    )


def _span_text(span: Span) -> str:
    """A span for a message: label, text, and tokens."""
    return f"{span.label_} {span.text!r} ({span.start}-{span.end})"


def _other_spans(
    doc: Doc, key: str, labels: Labels, own_labels: Collection[str], own_spans: Iterable[Span]
) -> list[Span]:
    """The spans of other labels that a component learns beside those of its own labels: those that
    overlap with no own span and, the longest first, not with each other.

    doc (Doc): The doc.
    key (str): The key of the spans.
    labels (Labels): All labels that the component learns. None: any.
    own_labels (Collection[str]): Those of them whose spans are all kept.
    own_spans (Iterable[Span]): The spans of these.
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
    """Add the entities of a doc to its spans, if they are annotated and the doc lacks the key.
    Missing annotation stays missing. Returns the doc."""
    if key not in doc.spans and doc.has_annotation("ENT_IOB"):
        missing = doc.to_array(ENT_IOB) == 0  # spaCy's value of tokens that nobody has annotated
        annotate_spans(doc, key, doc.ents, missing_spans(doc, missing))
    return doc


def annotate_spans(doc: Doc, key: str, spans: Iterable[Span], missing: Sequence[Span]) -> None:
    """Write spans to a doc as its annotation.

    doc (Doc): The doc.
    key (str): The key in `doc.spans`.
    spans (Iterable[Span]): The annotated spans.
    missing (Sequence[Span]): Spans of the tokens that nobody has annotated.
    """
    doc.spans[key] = list(spans)
    if missing:
        doc.spans[missing_key(key)] = missing


def replace_spans(
    doc: Doc, key: str, spans: Sequence[Span], scores: Floats1d | None, labels: Iterable[str]
) -> None:
    """Write the spans that a component has predicted, in place of other spans of its labels. Spans
    of other labels under the key stay; their score is NaN if they have none.

    doc (Doc): The doc.
    key (str): The key in `doc.spans`.
    spans (Sequence[Span]): The spans.
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
    (new_attrs,) = scored_attrs([(sorted_spans, sorted_scores)])  # of the only group
    group = SpanGroup(doc, name=key, attrs={**attrs, **new_attrs}, spans=sorted_spans)
    doc.spans[key] = group


def _token_range(span: Span) -> tuple[int, int]:
    """The first token of a span, and the one after its last: spans are ordered by them."""
    return span.start, span.end


# Groups of spans with scores. spaCy doesn't move the spans of a group when tokens are merged or
# split: those of later tokens then have the wrong tokens, or raise IndexError (E035) when they are
# read. Characters stay, so the attributes of a group keep those of its spans beside their scores.


class ScoredSpan(NamedTuple):
    """A span by its characters, and its score: NaN if it has none."""

    start_char: int
    end_char: int
    label: str
    score: float

    @property
    def place(self) -> Place:
        """Its characters and its label."""
        return self.start_char, self.end_char, self.label


def scored_attrs(
    scored: Sequence[tuple[Sequence[Span], Floats1d | None]],
) -> Iterator[dict[str, Any]]:
    """Make the attributes of groups of spans with scores, from which `read_group` reads them.

    scored (Sequence[tuple[Sequence[Span], Floats1d | None]]): The spans of each group, and their
        scores, or None. Shape: (S,)
    YIELDS (dict[str, Any]): The attributes of each group: a list for the characters at which its
        spans begin, for those at which they end, and for their labels; and the scores.
    """
    # The lists are made once for all groups: making them for each would take twice as long.
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
    """Read the spans of a group with their scores, also after tokens were merged or split. Spans
    that others have put there then are left out if their tokens are no longer there."""
    scores = _read_scores(group.attrs)
    start_chars: Any = group.attrs.get("start_char")
    end_chars: Any = group.attrs.get("end_char")
    labels: Any = group.attrs.get("label")
    if start_chars is None or end_chars is None or labels is None:
        return _read_without_places(group, scores)
    if not scores:
        scores = [nan] * len(labels)
    scored_spans = list(map(ScoredSpan, start_chars, end_chars, labels, scores))
    if len(scored_spans) == len(group):
        return scored_spans

    # Other code has added spans to the group, or taken some out, so its spans say which there are.
    score_of_place = {span.place: span.score for span in scored_spans}
    present: list[ScoredSpan] = []
    for i in range(len(group)):
        place = _place(group, i)
        if place is not None:
            present.append(ScoredSpan(*place, score_of_place.get(place, nan)))
    return present


def _read_without_places(group: SpanGroup, scores: list[float]) -> list[ScoredSpan]:
    """Read a group whose attributes don't have the characters of its spans: one of spaCy's
    `spancat`, or saved by version 0.3. Scores that don't fit the spans are left out."""
    if len(scores) != len(group):
        scores = [nan] * len(group)
    scored_spans: list[ScoredSpan] = []
    for i, score in enumerate(scores):
        place = _place(group, i)
        if place is not None:
            scored_spans.append(ScoredSpan(*place, score))
    return scored_spans


def score_of(group: SpanGroup, place: Place) -> float | None:
    """Find the score of the span of a group that has these characters and this label; None if it
    has no score. The group is ordered by first characters."""
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
    """Find the spans of a group, with their scores, on the tokens that its doc has now: tokens may
    have been merged or split.

    group (SpanGroup): The group.
    alignment_mode (str): As of `Doc.char_span`: a span that ends within a token is left out if it
        is "strict"; it has the whole token if it is "expand".
    RETURNS (list[tuple[Span, float]]): The spans and their scores: NaN for none.
    """
    scored_spans = read_group(group)
    # No tokens were merged or split, and no spans added: those of the group are right.
    if len(scored_spans) == len(group) and not is_stale(group):
        return [(span, scored.score) for span, scored in zip(group, scored_spans)]

    # Spans are made again from their characters. What else a span has is looked up by its place.
    ids_of_place: dict[Place, dict[str, Any]] = {}
    for i in range(len(group)):
        place = _place(group, i)
        if place is not None:  # its tokens are there
            ids_of_place[place] = {"kb_id": group[i].kb_id, "span_id": group[i].id}

    spans_and_scores: list[tuple[Span, float]] = []
    for scored in scored_spans:
        ids = ids_of_place.get(scored.place, {})
        span = group.doc.char_span(*scored.place, alignment_mode=alignment_mode, **ids)
        if span is not None:
            spans_and_scores.append((span, scored.score))
    return spans_and_scores


def realign(doc: Doc) -> None:
    """Put the spans of all groups of a doc on the tokens that it has now, in place. If tokens were
    merged or split, what reads all groups fails otherwise, as `DocBin` does."""
    for key, group in doc.spans.items():
        if is_stale(group):
            spans = [span for span, _ in spans_with_scores(group)]
            doc.spans[key] = SpanGroup(doc, name=group.name, attrs=group.attrs, spans=spans)


def is_stale(group: SpanGroup) -> bool:
    """Whether spans of a group are no longer on their characters, as tokens of the doc were merged
    or split. A span itself remembers its characters."""
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
    """The characters and the label of a span of a group, by its index. None if its doc has fewer
    tokens now, so that the span can't be read."""
    try:
        span = group[i]
    except IndexError:
        return None
    return span.start_char, span.end_char, span.label_


def _read_scores(attrs: Mapping[str, Any]) -> list[float]:
    """The scores in the attributes of a group, as an array or a list; empty if there are none."""
    scores = attrs.get("scores")
    if scores is None:
        return []
    return numpy.asarray(scores, dtype="float64").tolist()
