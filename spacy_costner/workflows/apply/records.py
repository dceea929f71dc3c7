"""Annotated docs as records: dictionaries with ids, entities and other spans."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, SpanGroup

from ...annotation.span_groups import Place, read_group
from ...pipeline.component import CostSensitiveNER
from ...pipeline.confidence import scored_groups
from ...pipeline.prediction import ALTERNATIVES, GUARANTEED
from ...readers import CorpusError
from ...readers.file_parts import TextRow
from ...readers.files import encodable

AnnotatedRow = tuple[TextRow, Doc | Exception]
"""A row of an input with what the pipeline made of it: the annotated doc, or the error."""

SpanLists = dict[str, list[str]]
"""The lists of spans that a record has in addition to its entities. A key is the name of such a
list: "spans", "alternatives" or "guaranteed". The value of "spans" says which groups of `doc.spans`
the list has, by their keys. The other values are empty: there, an attribute of each group says
which list it belongs to."""

Record = dict[str, Any]
"""An answer as a dictionary: a JSON line, or a Parquet row. See `to_record`."""


def span_lists_of(nlp: Language) -> SpanLists:
    """Find which lists of spans the records of a pipeline have. They have "spans" if a component
    has a `spans_key`, "alternatives" if a component writes alternatives, and "guaranteed" if a
    component writes a guaranteed set.

    nlp (Language): The pipeline.
    RETURNS (SpanLists): The names of the lists. The value of "spans" is the `spans_key` of each
        component, the other values are empty: see `SpanLists`.
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
    """Make the record of an answer.

    answer (AnnotatedRow): The row of the input, with its annotated doc or the error of annotating
        it.
    span_lists (SpanLists): The lists of spans that the record gets.
    with_text (bool): Whether it gets the text.
    RETURNS (dict[str, Any]): {"id": …, "text": …, "entities": […]} and the lists of spans, which
        are None if no component has written them; or {"id": …, "text": …, "error": …}. A span has
        "start" and "end", in characters, "label" and "score", which is its probability or None.
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
        else:  # "alternatives" or "guaranteed", which their groups have as their "set"
            groups_of_list[name] = [
                group for group in groups_with_scores if group.attrs.get("set") == name
            ]

    # Several groups may have a score for the same characters and label. The last one that is read
    # here counts. `scored_groups` has predicted entities first, so it is reversed: the score of a
    # predicted entity replaces the probability of an alternative or of a guaranteed set.
    scores: dict[Place, float] = {}
    for group in [*reversed(groups_with_scores), *groups_of_list.get("spans", ())]:
        for span in read_group(group):
            if not math.isnan(span.score):
                scores[span.place] = span.score

    entity_places = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    record["entities"] = spans_to_json(entity_places, scores)
    for name, groups in groups_of_list.items():
        if not groups:
            # No component has written this list to the doc. An empty list would say that one has
            # looked for such spans and found none.
            record[name] = None
            continue
        places: list[Place] = []
        for group in groups:
            places += [span.place for span in read_group(group)]
        record[name] = spans_to_json(places, scores)
    return record


def spans_to_json(places: Iterable[Place], scores: Mapping[Place, float]) -> list[Record]:
    """Make a dictionary for each span. Not all spans have a score."""
    spans: list[Record] = []
    for place in places:
        start, end, label = place
        spans.append({"start": start, "end": end, "label": label, "score": scores.get(place)})
    return spans


def describe_error(error: Exception) -> str:
    """The text of an error for the output. The message alone if it may be from this package.
    Otherwise the class of the error is written before it."""
    if type(error) in (ValueError, CorpusError):
        return encodable(error)
    return encodable(f"{type(error).__name__}: {error}")
