"""Report or merge texts that are annotated more than once.

Some annotation tools write one file per annotator, so the same text may occur in several files. If
its annotations contradict each other, a component can't learn from both. `report_conflicts` reports
these texts and keeps all docs. `merge_texts` merges all docs with the same text into one, as
specified by the option `conflicts`.

Annotations are compared by character offsets, because docs with the same text may be tokenized
differently.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB
from spacy.tokens import Doc, Span
from thinc.types import Array1d

from ..annotation.iob import MISSING
from ..annotation.spans import annotate_spans, is_missing, missing_key, missing_spans
from .context import CorpusInfo, Places, SpanScores
from .files import FilePlace, shown
from .token_spans import token_offsets

MAX_TEXTS = 1_000_000
"""The maximum number of texts that `report_conflicts` stores (about 300 bytes each), to limit
memory usage for streamed corpora."""

KEPT = {
    "first": "the first annotation is kept",
    "last": "the last annotation is kept",
    "agree": "where they differ, annotation is missing",
    "majority": "the majority annotation is kept; elsewhere, annotation is missing",
}
"""How each value of the option `conflicts` resolves a conflict, for the report."""

CONFLICT = "texts are annotated in several ways: {}"
ALL_KEPT = f"all are kept (conflicts = {', '.join(KEPT)} would make one doc from each text)"
REPEATED = "texts were annotated several times in the same way: they are read once"

SpanOfText = tuple[int, int, str]
"""The start and end of a span, in characters, and its label."""


class TextAnnotation(NamedTuple):
    """The annotation of a text.

    spans (frozenset[SpanOfText]): The entities, in characters.
    missing (tuple[tuple[int, int], ...]): The ranges of characters that are missing annotation.
    """

    spans: frozenset[SpanOfText]
    missing: tuple[tuple[int, int], ...]

    def lacks(self, span: SpanOfText) -> bool:
        """Check whether the annotation rules out an entity, i.e. neither contains it nor is missing
        there."""
        start, end, _ = span
        is_unknown = any(
            missing_start <= start and end <= missing_end
            for missing_start, missing_end in self.missing
        )
        return span not in self.spans and not is_unknown

    def contradicts(self, other: "TextAnnotation") -> bool:
        """Check whether either annotation contains an entity that the other one rules out."""
        return any(map(other.lacks, self.spans)) or any(map(self.lacks, other.spans))

    def as_text(self, text: str) -> str:
        """Format the entities for the report of a conflict."""
        entities = [f"{text[start:end]} {label}" for start, end, label in sorted(self.spans)]
        return shown(", ".join(entities)) if entities else "no entities"


class AnnotatedDoc(NamedTuple):
    """A doc and its annotation."""

    doc: Doc
    annotation: TextAnnotation


def report_conflicts(
    docs: Iterable[Doc], spans_key: str | None, places: Places, info: CorpusInfo
) -> Iterator[Doc]:
    """Report docs that contradict an earlier doc with the same text, with the locations of both.
    All docs are kept.

    docs (Iterable[Doc]): The docs of a corpus.
    spans_key (str | None): The key of the annotation in `doc.spans`. If None, `doc.ents` is used.
    places (Places): The locations of the docs.
    info (CorpusInfo): Collects conflicts as problems.
    YIELDS (Doc): The docs, unchanged.
    """
    # The location and annotation of the first doc with each text, keyed by the hash of the text.
    first_of_text: dict[int, tuple[FilePlace | None, TextAnnotation]] = {}
    for doc in docs:
        annotation = read_annotation(doc, spans_key)
        if annotation is not None:
            text = doc.text
            place = places.get(doc)
            first = first_of_text.get(hash(text))
            if first is not None:
                first_place, first_annotation = first
                if annotation.contradicts(first_annotation):
                    message = CONFLICT.format(ALL_KEPT)
                    difference = _difference(text, annotation, first_place, first_annotation)
                    info.add_problem(message, place, difference)
            elif len(first_of_text) < MAX_TEXTS:
                first_of_text[hash(text)] = place, annotation
        yield doc


def merge_texts(
    docs: Iterable[Doc],
    conflicts: str,
    spans_key: str | None,
    places: Places,
    info: CorpusInfo,
    *,
    incorrect_spans_key: str | None = None,
    scores: SpanScores | None = None,
) -> Iterator[Doc]:
    """Merge all docs with the same text. Docs without annotation are yielded unchanged.

    docs (Iterable[Doc]): The docs of a corpus. All docs are read before the first one is yielded.
    conflicts (str): How to resolve conflicting annotations: see `ReadOptions.conflicts`.
    spans_key (str | None): The key of the annotation in `doc.spans`. If None, `doc.ents` is used.
    places (Places): The locations of the docs.
    info (CorpusInfo): Collects repeated texts and conflicts as problems.
    incorrect_spans_key (str | None): The key of incorrect spans in `doc.spans`. With "agree" and
        "majority", a merged doc has those of all its docs, except for entities that are kept.
    scores (SpanScores | None): The scores of the docs' spans. With "agree" and "majority", the
        score of an entity is the mean of its scores in the docs that contain it. Entities without a
        score count as 1.
    YIELDS (Doc): The merged docs, in the order in which their texts first occur.
    """
    groups: list[list[AnnotatedDoc]] = []  # docs with the same text form a group
    group_of_text: dict[str, list[AnnotatedDoc]] = {}
    for doc in docs:
        annotation = read_annotation(doc, spans_key)
        if annotation is None:  # the only doc of its group
            groups.append([AnnotatedDoc(doc, TextAnnotation(frozenset(), missing=()))])
            continue
        group = group_of_text.get(doc.text)
        if group is None:
            group = group_of_text[doc.text] = []
            groups.append(group)
        group.append(AnnotatedDoc(doc, annotation))

    for group in groups:
        first_doc = group[0].doc
        if len(group) > 1:
            _report_group(group, conflicts, places, info)
        if conflicts == "last":
            yield group[-1].doc
            continue
        if len(group) > 1 and conflicts != "first":
            _vote(group, spans_key, is_unanimous=conflicts == "agree")
            if incorrect_spans_key is not None:
                _merge_incorrect_spans(group, spans_key, incorrect_spans_key)
            if scores is not None:
                scores[first_doc] = _mean_scores(group, spans_key, scores)
        yield first_doc


def _report_group(
    group: Sequence[AnnotatedDoc], conflicts: str, places: Places, info: CorpusInfo
) -> None:
    """Report all docs that contradict the first doc with the same text. If there are none, report
    that the text is repeated."""
    first_doc, first_annotation = group[0]
    text = first_doc.text
    has_conflict = False
    for doc, annotation in group[1:]:
        if annotation.contradicts(first_annotation):
            has_conflict = True
            message = CONFLICT.format(KEPT[conflicts])
            difference = _difference(text, annotation, places.get(first_doc), first_annotation)
            info.add_problem(message, places.get(doc), difference)
    if not has_conflict:
        info.add_problem(REPEATED, places.get(first_doc), shown(text))


def read_annotation(doc: Doc, spans_key: str | None) -> TextAnnotation | None:
    """Get the annotation of a doc as character offsets.

    doc (Doc): The annotated doc.
    spans_key (str | None): The key of the annotation in `doc.spans`. If None, `doc.ents` is used.
    RETURNS (TextAnnotation | None): The annotation, or None if all of it is missing.
    """
    if spans_key is None:
        is_missing_token = doc.to_array(ENT_IOB) == MISSING
    else:
        is_missing_token = is_missing(doc, spans_key)
    keys = frozenset(map(_span_of_text, _annotated_spans(doc, spans_key)))
    if not is_missing_token.any():
        return TextAnnotation(keys, missing=())
    if is_missing_token.all() and not keys:
        return None
    starts, ends = token_offsets(doc)
    # The indices at which the mask changes. They alternate between the first token of a run of
    # missing tokens and the token after the run.
    edges = numpy.flatnonzero(numpy.diff(is_missing_token, prepend=False, append=False))
    missing = zip(starts[edges[::2]].tolist(), ends[edges[1::2] - 1].tolist())
    return TextAnnotation(keys, tuple(missing))


def _annotated_spans(doc: Doc, spans_key: str | None) -> Iterable[Span]:
    """Return the entities of a doc or, if `spans_key` is set, the spans under this key."""
    return doc.ents if spans_key is None else doc.spans.get(spans_key, ())


def _span_of_text(span: Span) -> SpanOfText:
    """Return the offsets in characters and the label of a span."""
    return span.start_char, span.end_char, span.label_


def _difference(
    text: str, annotation: TextAnnotation, first_place: FilePlace | None, first: TextAnnotation
) -> str:
    """Describe two annotations of a text for the report of a conflict."""
    was = f"{first_place} has {first.as_text(text)}" if first_place else first.as_text(text)
    return f"{shown(text)} has {annotation.as_text(text)}, {was}"


def _vote(group: Sequence[AnnotatedDoc], spans_key: str | None, *, is_unanimous: bool) -> None:
    """Merge the docs with the same text into the first one by voting on each entity. An entity is
    kept if more than half of the votes are for it or, with `is_unanimous`, if none are against it.
    A doc doesn't vote on an entity where the doc's annotation is missing.

    The annotation of a token is missing in the merged doc if it is missing in all docs, or if the
    token is disputed. A token is disputed if at least half of the docs that annotate it (with
    `is_unanimous`: any doc) contain an entity there that isn't kept.
    """
    base = group[0].doc
    annotations = [annotation for _, annotation in group]
    votes = Counter(chain.from_iterable(annotation.spans for annotation in annotations))
    kept: set[SpanOfText] = set()
    for span, n_for in votes.items():
        n_against = sum(annotation.lacks(span) for annotation in annotations)
        if n_against == 0 or (not is_unanimous and n_for > n_against):
            kept.add(span)
    # Kept entities can't overlap in `doc.ents`, because a doc with one of them votes against the
    # other. A span that doesn't match the token boundaries of `base` isn't kept.
    kept = {span for span in kept if base.char_span(span[0], span[1]) is not None}

    # For each character, the number of docs that annotate it, and the number of docs with an entity
    # there that isn't kept. Shapes: (C,)
    n_annotated = numpy.full(len(base.text), len(group))
    n_other = numpy.zeros_like(n_annotated)
    for annotation in annotations:
        for start, end in annotation.missing:
            n_annotated[start:end] -= 1
        has_other = numpy.zeros(len(base.text), dtype=bool)
        for start, end, _ in annotation.spans - kept:
            has_other[start:end] = True
        n_other += has_other
    is_disputed = n_other > 0
    if not is_unanimous:
        is_disputed &= 2 * n_other >= n_annotated
    _replace_entities(base, spans_key, group, kept, is_disputed | (n_annotated == 0))


def _replace_entities(
    base: Doc,
    spans_key: str | None,
    group: Sequence[AnnotatedDoc],
    kept: set[SpanOfText],
    is_missing_char: Array1d,
) -> None:
    """Replace the entities of a doc. The IDs of each entity are copied from the first doc that
    contains it. `is_missing_char` is True for characters with missing annotation. Shape: (C,)"""
    original: dict[SpanOfText, Span] = {}  # the span in the first doc that contains it
    for doc, _ in group:
        for annotated_span in _annotated_spans(doc, spans_key):
            original.setdefault(_span_of_text(annotated_span), annotated_span)
    spans: list[Span] = []
    for key in sorted(kept):
        start, end, label = key
        kb_id, span_id = original[key].kb_id_, original[key].ent_id_
        span = base.char_span(start, end, label=label, kb_id=kb_id, span_id=span_id)
        assert span is not None  # `_vote` has checked it
        spans.append(span)

    # The number of missing characters before each character. A token contains missing characters if
    # this number is larger at its end than at its start. Shape: (C + 1,)
    n_before = numpy.concatenate([[0], numpy.cumsum(is_missing_char)])
    starts, ends = token_offsets(base)
    is_missing_token = n_before[ends] > n_before[starts]
    if spans_key is None:
        for span in spans:
            is_missing_token[span.start : span.end] = False
        base.set_ents(spans, missing=missing_spans(base, is_missing_token), default="outside")
        return
    base.spans.pop(missing_key(spans_key), None)
    annotate_spans(base, spans_key, spans, missing_spans(base, is_missing_token))


def _merge_incorrect_spans(
    group: Sequence[AnnotatedDoc], spans_key: str | None, incorrect_spans_key: str
) -> None:
    """Write the incorrect spans of all docs with the same text to the first one, whose entities
    have been merged. Spans that are among these entities, or don't match the token boundaries of
    the first doc, are omitted."""
    base = group[0].doc
    incorrect: set[SpanOfText] = set()
    for doc, _ in group:
        incorrect.update(map(_span_of_text, doc.spans.get(incorrect_spans_key, ())))
    incorrect.difference_update(map(_span_of_text, _annotated_spans(base, spans_key)))
    spans: list[Span] = []
    for start, end, label in sorted(incorrect):
        span = base.char_span(start, end, label=label)
        if span is not None:
            spans.append(span)
    if spans or incorrect_spans_key in base.spans:
        base.spans[incorrect_spans_key] = spans


def _mean_scores(
    group: Sequence[AnnotatedDoc], spans_key: str | None, scores: SpanScores
) -> dict[tuple[int, int, str], float]:
    """Compute the mean score of each entity of the first doc, whose entities have been merged, over
    all docs that contain the entity. The keys are those of `SpanScores`."""
    scores_of_span: dict[SpanOfText, list[float]] = {}
    for doc, annotation in group:
        score_of_span = dict.fromkeys(annotation.spans, 1.0)
        for (start, end, label), score in scores.get(doc, {}).items():
            tokens = doc[start:end]
            score_of_span[tokens.start_char, tokens.end_char, label] = score
        for key, score in score_of_span.items():
            scores_of_span.setdefault(key, []).append(score)

    means: dict[tuple[int, int, str], float] = {}
    for span in _annotated_spans(group[0].doc, spans_key):
        scores_of_docs = scores_of_span[_span_of_text(span)]
        means[span.start, span.end, span.label_] = sum(scores_of_docs) / len(scores_of_docs)
    return means
