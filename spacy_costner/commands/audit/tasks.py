"""Suspects as lines of JSON to go through, and the corrections that were accepted."""

from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from spacy.tokens import Doc, Span

from ...readers import Task, TaskSpan, doc_to_task, read_tasks
from ...readers.files import Place
from ...readers.jsonl import spans_from_json
from ..report.mistakes import window
from .suspects import Entity, Suspect

Characters = Tuple[int, int, str]
"""First character, the one after the last, label."""

Change = Tuple[Place, List[Entity], List[Entity]]
"""A line, and the entities that it removes and adds."""


def suspect_to_task(suspect: Suspect, docs: Sequence[Doc]) -> Task:
    """Make a task of a suspect, in Prodigy's form. Its spans are those of the suggestion, and
    those around it. The spans as annotated are under "annotated".

    suspect (Suspect): The place.
    docs (Sequence[Doc]): The docs.
    RETURNS (Task): The sentence or, of a long one, the part around the place. Its key "doc" is the
        number of the doc, and "start" the character of the doc that the text begins with.
    """
    doc = docs[suspect.doc]
    begin, end = window(doc, *suspect.extent)
    start = doc[begin].idx
    task = doc_to_task(doc[begin:end].as_doc())
    spans = task.spans or []
    old, new = (
        [TaskSpan(*_characters(doc, entity, start)) for entity in entities]
        for entities in (suspect.annotated, suspect.suggested)
    )
    kept = [s for s in spans if all(s.end <= other.start or other.end <= s.start for other in old)]
    extra = {
        "annotated": [dict(zip(TaskSpan._fields, span[:3])) for span in spans],
        "doc": suspect.doc,
        "start": start,
        "kind": suspect.kind,
        "score": round(suspect.score, 4),
        "prob_annotated": round(suspect.prob_annotated, 4),
        "prob_suggested": round(suspect.prob_suggested, 4),
        "inconsistent": suspect.is_inconsistent,
        "elsewhere": {"as_annotated": suspect.as_annotated, "as_suggested": suspect.as_suggested},
        "meta": {"kind": suspect.kind, "change": describe(suspect, doc)},
    }
    return task._replace(spans=sorted([*kept, *new], key=lambda span: span[:3]), extra=extra)


def _characters(doc: Doc, entity: Entity, start: int) -> Characters:
    """An entity in characters of a part of its doc."""
    begin, end, label = entity
    return doc[begin].idx - start, doc[end - 1].idx + len(doc[end - 1]) - start, label


def describe(suspect: Suspect, doc: Doc) -> str:
    """The annotation and the suggestion, in a line."""
    sides = [
        ", ".join(f"{doc[b:e].text} {label}" for b, e, label in entities) or "nothing"
        for entities in (suspect.annotated, suspect.suggested)
    ]
    return " -> ".join(sides)


def correct(docs: Sequence[Doc], path: Path) -> Dict[str, int]:
    """Correct a corpus by the accepted lines of an audit.

    A line is accepted unless its answer is "reject" or "ignore". What a line changes is the
    difference between its spans, which may have been edited, and those under "annotated".

    docs (Sequence[Doc]): The docs that were audited. Their entities are corrected.
    path (Path): The lines.
    RETURNS (Dict[str, int]): The number of lines that were "accepted", and "rejected" or ignored.
    RAISES (CorpusError): If something is no line of an audit of these docs, or two lines
        contradict each other; the message names the line.
    """
    changes: Dict[int, List[Change]] = {}
    n_rejected = 0
    for place, task in read_tasks(path):
        if task.extra.get("answer", "accept") == "accept":
            i, removed, added = _read_change(docs, task, place)
            changes.setdefault(i, []).append((place, removed, added))
        else:
            n_rejected += 1
    for i, of_doc in changes.items():
        _change(docs[i], of_doc)
    return {"accepted": sum(map(len, changes.values())), "rejected": n_rejected}


def _read_change(
    docs: Sequence[Doc], task: Task, place: Place
) -> Tuple[int, List[Entity], List[Entity]]:
    """The doc that a line changes, and the entities that are removed from it and added to it."""
    i, start, annotated = (task.extra.get(name) for name in ("doc", "start", "annotated"))
    if type(i) is not int or type(start) is not int or not isinstance(annotated, list):
        raise place.refuse("expected a line of an audit, with doc, start and annotated")
    if not 0 <= i < len(docs):
        raise place.refuse(f"doc: expected less than {len(docs)}, the number of docs, got {i}")
    own = docs[i].text[start : start + len(task.text)]
    if start < 0 or own != task.text:
        raise place.refuse(f"expected the text of doc {i}, {own!r}, got {task.text!r}")
    before, after = (
        {span[:3] for span in spans}
        for spans in (spans_from_json(annotated, own, "annotated", place), task.spans or ())
    )

    def to_tokens(spans: Iterable[Characters]) -> List[Entity]:
        return [_to_tokens(docs[i], span, start, place) for span in sorted(spans)]

    return i, to_tokens(before - after), to_tokens(after - before)


def _to_tokens(doc: Doc, span: Characters, start: int, place: Place) -> Entity:
    found = doc.char_span(start + span[0], start + span[1])
    if found is None:
        text = doc.text[start + span[0] : start + span[1]]
        raise place.refuse(f"spans: expected whole tokens, got {text!r} {span[2]}")
    return found.start, found.end, span[2]


def _change(doc: Doc, changes: List[Change]) -> None:
    """Change the entities of a doc. Tokens without annotation stay so, unless a span is added."""
    kept: Dict[Entity, Any] = {(ent.start, ent.end, ent.label_): ent for ent in doc.ents}
    outside = []
    for place, removed, _ in changes:
        for entity in removed:
            if entity not in kept:
                text = f"{doc[entity[0] : entity[1]].text} {entity[2]}"
                raise place.refuse(f"annotated: expected an entity of the doc, got {text!r}")
            outside.append(doc[entity[0] : entity[1]])
            del kept[entity]
    for place, _, added in changes:
        for begin, end, label in added:
            other = next((e for e in kept if e[0] < end and begin < e[1]), None)
            if other is not None:
                raise place.refuse(
                    f"spans: expected entities without overlap, got {doc[begin:end].text!r} "
                    f"{label} and {doc[other[0] : other[1]].text!r} {other[2]}"
                )
            kept[begin, end, label] = Span(doc, begin, end, label=label)
    is_free = [token.i for span in outside for token in span]
    covered = {i for begin, end, _ in kept for i in range(begin, end)}
    doc.set_ents(
        list(kept.values()),
        outside=[doc[i : i + 1] for i in is_free if i not in covered],
        default="unmodified",
    )
