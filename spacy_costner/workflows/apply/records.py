"""Convert annotated docs to dictionaries with IDs, entities and other spans."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, SpanGroup

from ...annotation.span_groups import Place, read_group
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import SPANS_KEY, is_of_predicted, scored_groups
from ...pipeline.prediction import ALTERNATIVES, GUARANTEED
from ...readers import CorpusError
from ...readers.file_parts import TextRow
from ...readers.files import encodable

AnnotatedRow = tuple[TextRow, Doc | Exception]
"""An input row and the annotated doc, or the error if annotation failed."""

SpanLists = dict[str, list[str]]
"""The lists of spans that a record contains in addition to its entities. The possible keys are
"spans", "alternatives" and "guaranteed". The value of "spans" lists the keys of its groups in
`doc.spans`. The other values are empty, because their groups are identified by an attribute."""

Record = dict[str, Any]
"""An answer as a dictionary, which is written as a line of JSON or a Parquet row. See
`to_record`."""


def span_lists_of(nlp: Language) -> SpanLists:
    """Determine which lists of spans to include in a pipeline's records: "spans" if a component has
    a `spans_key`, "alternatives" if a component predicts alternatives, and "guaranteed" if a
    component predicts a guaranteed set.

    nlp (Language): The pipeline.
    RETURNS (SpanLists): The lists of spans. The value of "spans" contains the `spans_key` of each
        component. The other values are empty. See `SpanLists`.
    """
    span_lists: SpanLists = {}
    for _, pipe in nlp.pipeline:
        if not isinstance(pipe, CostSensitiveNER):
            continue
        key = pipe.annotation.spans_key
        if key is not None:
            keys = span_lists.setdefault("spans", [])
            if key not in keys:
                keys.append(key)
        if pipe.confidence is not None and pipe.confidence.alternatives is not None:
            span_lists[ALTERNATIVES] = []
        if pipe.confidence is not None and pipe.guarantee is not None:
            span_lists[GUARANTEED] = []
    return span_lists


def to_record(answer: AnnotatedRow, span_lists: SpanLists, with_text: bool) -> Record:
    """Convert an answer to a record.

    answer (AnnotatedRow): The input row and its annotated doc or error.
    span_lists (SpanLists): The lists of spans to include.
    with_text (bool): Whether to include the text.
    RETURNS (dict[str, Any]): {"id": …, "text": …, "entities": […]} and the lists of spans, or
        {"id": …, "text": …, "error": …} if annotation failed. A list of spans is None if no
        component has written it. Each span has "start" and "end" in characters, a "label", and a
        "score", which is its probability or None.
    """
    row, doc_or_error = answer
    record: Record = {"id": row.id}
    if with_text:
        record["text"] = row.text
    if isinstance(doc_or_error, Exception):
        record["error"] = describe_error(doc_or_error)
        return record
    doc = doc_or_error
    groups_with_scores = scored_groups(doc)
    groups_of_list: dict[str, list[SpanGroup]] = {}
    for name, keys in span_lists.items():
        if name == "spans":
            groups_of_list[name] = [doc.spans[key] for key in keys if key in doc.spans]
        else:  # "alternatives" or "guaranteed", identified by the attribute "set" of a group
            groups_of_list[name] = [
                group for group in groups_with_scores if group.attrs.get("set") == name
            ]

    # Several groups may contain a score for the same offsets and label. Later scores overwrite
    # earlier ones. `scored_groups` returns predicted entities first, so reverse it to let their
    # scores overwrite the scores of alternatives and guaranteed sets.
    scores: dict[Place, float] = {}
    if any(groups_of_list.values()):
        scores = scores_of([*reversed(groups_with_scores), *groups_of_list.get("spans", ())])

    # Another component may have set an entity that equals an alternative, or a span that was
    # predicted with a `spans_key`.
    groups_of_entities: list[SpanGroup] = []
    for group in reversed(groups_with_scores):
        if is_of_predicted(group) and SPANS_KEY not in group.attrs:
            groups_of_entities.append(group)
    entity_places = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    record["entities"] = spans_to_json(entity_places, scores_of(groups_of_entities))
    for name, groups in groups_of_list.items():
        if not groups:
            # No component has written this list. An empty list would mean that a component ran and
            # predicted no such spans.
            record[name] = None
            continue
        places: list[Place] = []
        for group in groups:
            places += [span.place for span in read_group(group)]
        record[name] = spans_to_json(places, scores)
    return record


def scores_of(groups: Iterable[SpanGroup]) -> dict[Place, float]:
    """Read the scores of the spans in several groups. Scores of later groups overwrite earlier
    ones. Spans without a score are left out."""
    scores: dict[Place, float] = {}
    for group in groups:
        for span in read_group(group):
            if not math.isnan(span.score):
                scores[span.place] = span.score
    return scores


def spans_to_json(places: Iterable[Place], scores: Mapping[Place, float]) -> list[Record]:
    """Convert spans to dictionaries. The score of a span is None if it isn't in `scores`."""
    spans: list[Record] = []
    for place in places:
        start, end, label = place
        spans.append({"start": start, "end": end, "label": label, "score": scores.get(place)})
    return spans


def describe_error(error: Exception) -> str:
    """Format an error for the output. The message is prefixed with the error class, except for a
    ValueError or CorpusError, which this package raises."""
    if type(error) in (ValueError, CorpusError):
        return encodable(error)
    return encodable(f"{type(error).__name__}: {error}")
