"""Write suspects as tasks with suggestions to accept or reject, and apply the answers to the
corpus."""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spacy.tokens import Doc, Span

from ...annotation import iob as ent_iob
from ...pipeline.scorers import Entity, as_entity
from ...readers import Task, TaskSpan, doc_to_task, read_tasks
from ...readers.files import FilePlace
from ...readers.tasks import spans_from_json
from ..reports.excerpts import window
from .suspects import Suspect

LEAVE = "leave"


ACCEPT = "accept"


UNANSWERED = (LEAVE, ACCEPT)
"""How to handle suggestions without an answer."""

REJECT = "reject"


IGNORE = "ignore"
"""The answer for a skipped suggestion. It counts as unanswered."""


class AnswerCounts(NamedTuple):
    """The number of suggestions with each answer."""

    accepted: int
    rejected: int
    unanswered: int


class Correction(NamedTuple):
    """The changes to a doc from an accepted suggestion."""

    place: FilePlace  # the line with the suggestion, for error messages
    doc: int  # the index of the doc
    removed: list[Span]  # entities to remove from the doc
    added: list[Span]  # entities to add to the doc


def suspect_to_task(suspect: Suspect, docs: Sequence[Doc]) -> Task:
    """Convert a suspect to a task in Prodigy's format. Its text is the sentence that contains the
    suspect or, if the sentence is long, a part of it. Its spans are the suggested entities, and the
    annotated entities outside of the suspect's span.

    suspect (Suspect): The suspect.
    docs (Sequence[Doc]): The audited docs.
    RETURNS (Task): The task. Its key "annotated" contains the spans of the current annotation. The
        keys "doc", the index of the doc, and "start", the offset of the text in the doc, are used
        to match an answer to its doc.
    """
    doc = docs[suspect.doc]
    begin, end = suspect.span
    first_shown, after_last_shown = window(doc, begin, end)
    task = doc_to_task(doc[first_shown:after_last_shown].as_doc())
    annotated = task.spans or []

    # Character offsets in a task are relative to the first character shown. The suggestion replaces
    # the annotated spans in its span.
    start = doc[first_shown].idx
    place = doc[begin:end]
    place_start = place.start_char - start
    place_end = place.end_char - start
    spans: list[TaskSpan] = []
    for span in annotated:
        if span.end <= place_start or place_end <= span.start:
            spans.append(span)
    for entity_begin, entity_end, label in suspect.suggested:
        ent = doc[entity_begin:entity_end]
        spans.append(TaskSpan(ent.start_char - start, ent.end_char - start, label))
    spans.sort(key=lambda span: span.start)

    annotated_json: list[dict[str, Any]] = []
    for span in annotated:
        annotated_json.append({"start": span.start, "end": span.end, "label": span.label})
    change = f"{entities_text(doc, suspect.annotated)} -> {entities_text(doc, suspect.suggested)}"
    extra = {
        "annotated": annotated_json,
        "doc": suspect.doc,
        "start": start,
        "kind": suspect.kind,
        "score": round(suspect.score, 4),
        "prob_annotated": round(suspect.prob_annotated, 4),
        "prob_suggested": round(suspect.prob_suggested, 4),
        "inconsistent": suspect.is_inconsistent,
        "elsewhere": {"as_annotated": suspect.as_annotated, "as_suggested": suspect.as_suggested},
        "meta": {"kind": suspect.kind, "change": change},  # displayed by Prodigy below the text
    }
    return task._replace(spans=spans, extra=extra)


def entities_text(doc: Doc, entities: Sequence[Entity]) -> str:
    """Format the text and label of each entity."""
    if not entities:
        return "nothing"
    return ", ".join(f"{doc[begin:end].text} {label}" for begin, end, label in entities)


def apply_answers(docs: Sequence[Doc], path: Path, *, unanswered: str = LEAVE) -> AnswerCounts:
    """Apply the accepted suggestions of an audit to the corpus. The change is the difference
    between the spans of a suggestion, which may have been edited, and its "annotated" spans. Tokens
    without annotation stay unannotated, unless they are in an added span.

    docs (Sequence[Doc]): The audited docs. Their entities are modified in place.
    path (Path): A JSONL file with one suggestion per line: see `suspect_to_task`.
    unanswered (str): How to handle suggestions without an answer, or with the answer "ignore":
        "leave" or "accept".
    RETURNS (AnswerCounts): The number of suggestions with each answer.
    RAISES (CorpusError): If a line isn't from an audit of these docs, or if two lines are
        contradictory. The error message names the line.
    RAISES (ValueError): If `unanswered` is neither "leave" nor "accept".
    """
    if unanswered not in UNANSWERED:
        expected = " or ".join(UNANSWERED)
        raise ValueError(f"audit: unanswered: expected {expected}, got {unanswered!r}")
    n_by_answer: Counter[str] = Counter()
    corrections: list[Correction] = []
    for place, task in read_tasks(path):
        answer = task.extra.get("answer") or IGNORE
        if answer == IGNORE and unanswered == ACCEPT:
            answer = ACCEPT
        n_by_answer[answer] += 1
        if answer == ACCEPT:
            corrections.append(read_correction(docs, task, place))

    # The entities of all docs with corrections, keyed by the index of the doc
    ents_of_docs: dict[int, dict[Entity, Span]] = {}
    for correction in corrections:
        doc = docs[correction.doc]
        ents_of_docs[correction.doc] = {as_entity(ent): ent for ent in doc.ents}
    # Remove entities first, because an entity added by one correction may overlap an entity removed
    # by another.
    for correction in corrections:
        remove_ents(ents_of_docs[correction.doc], correction)
    for correction in corrections:
        add_ents(ents_of_docs[correction.doc], correction)
    for i, ents in ents_of_docs.items():
        set_ents(docs[i], ents.values())
    return AnswerCounts(
        accepted=n_by_answer[ACCEPT],
        rejected=n_by_answer[REJECT],
        unanswered=n_by_answer[IGNORE],
    )


def read_correction(docs: Sequence[Doc], task: Task, place: FilePlace) -> Correction:
    """Read the changes of an accepted suggestion: the difference between its spans and its
    "annotated" spans.

    docs (Sequence[Doc]): The audited docs.
    task (Task): The suggestion created by `suspect_to_task`, which may have been edited.
    place (FilePlace): The line with the suggestion, for error messages.
    RETURNS (Correction): The changes.
    RAISES (CorpusError): If the line isn't from an audit of these docs, or if a span to remove or
        add doesn't consist of whole tokens.
    """
    doc_index = task.extra.get("doc")
    start = task.extra.get("start")  # the offset of the text in the doc
    annotated = task.extra.get("annotated")
    # `isinstance` would also accept a bool as an int.
    if type(doc_index) is not int or type(start) is not int or not isinstance(annotated, list):
        raise place.refuse("expected a line of an audit, with doc, start and annotated")
    if not 0 <= doc_index < len(docs):
        n_docs = len(docs)
        raise place.refuse(
            f"doc: expected a number below {n_docs}, the number of docs, got {doc_index}"
        )
    doc = docs[doc_index]
    text = doc.text[start : start + len(task.text)]
    if start < 0 or text != task.text:
        raise place.refuse(f"expected the text of doc {doc_index}, {text!r}, got {task.text!r}")

    # Spans as (start, end, label), with character offsets into the text of the task
    annotated_spans = spans_from_json(annotated, text, key="annotated", place=place)
    annotated_keys = {(span.start, span.end, span.label) for span in annotated_spans}
    corrected_keys = {(span.start, span.end, span.label) for span in task.spans or ()}

    def to_doc_spans(text_spans: Collection[tuple[int, int, str]]) -> list[Span]:
        """Convert spans of the task's text to spans of the doc.

        RAISES (CorpusError): If a span doesn't consist of whole tokens.
        """
        doc_spans: list[Span] = []
        for span_start, span_end, label in sorted(text_spans):
            span = doc.char_span(start + span_start, start + span_end, label=label)
            if span is None:
                raise place.refuse(
                    f"spans: expected whole tokens, got {text[span_start:span_end]!r} {label}"
                )
            doc_spans.append(span)
        return doc_spans

    removed = to_doc_spans(annotated_keys - corrected_keys)
    added = to_doc_spans(corrected_keys - annotated_keys)
    return Correction(place, doc_index, removed, added)


def remove_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Remove the entities of a correction from its doc.

    ents (dict[Entity, Span]): All entities of the doc. The dictionary is modified.
    correction (Correction): The correction.
    RAISES (CorpusError): If an entity to remove isn't in the doc.
    """
    for span in correction.removed:
        if ents.pop(as_entity(span), None) is None:
            text = f"{span.text} {span.label_}"
            raise correction.place.refuse(f"annotated: expected an entity of the doc, got {text!r}")


def add_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Add the entities of a correction to its doc.

    ents (dict[Entity, Span]): All entities of the doc. The dictionary is modified.
    correction (Correction): The correction.
    RAISES (CorpusError): If an entity to add overlaps an existing one.
    """
    for span in correction.added:
        for ent in ents.values():
            if ent.start < span.end and span.start < ent.end:
                raise correction.place.refuse(
                    f"spans: expected entities that don't overlap, got {span.text!r} {span.label_} "
                    f"and {ent.text!r} {ent.label_}"
                )
        ents[as_entity(span)] = span


def set_ents(doc: Doc, ents: Collection[Span]) -> None:
    """Replace the entities of a doc. Tokens without annotation stay unannotated, unless they are in
    one of the new entities."""
    entity_tokens: set[int] = set()
    for ent in ents:
        entity_tokens.update(range(ent.start, ent.end))
    missing: list[Span] = []
    for token in doc:
        if token.ent_iob == ent_iob.MISSING and token.i not in entity_tokens:
            missing.append(doc[token.i : token.i + 1])
    doc.set_ents(list(ents), missing=missing, default="outside")
