"""Read brat standoff: a text in a .txt file, and its annotation in an .ann file with the same name.

    T1	PER 0 7	Kim Lee
    T2	LOC 10 14;20 26	East London

Each entity is on a line with its ID, label, offsets and text. An entity may consist of several
*fragments*, such as the second one above. If there are words between its fragments, the entity is
discontinuous. Lines with relations, events, attributes and notes are ignored. Offsets count the
characters of the .txt file, where "\\r\\n" counts as two.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spacy.tokens import Doc

from .context import Context, CorpusInfo
from .files import BRAT_ANNOTATION, CorpusError, FilePlace, read_text, shown
from .offsets import Range, range_in_characters, utf16_ends, utf16_length
from .task_docs import tasks_to_docs
from .tasks import AnnotatedTask, Task, TaskSpan

FRAGMENT = r"\d{1,15} \d{1,15}"
"""Matches the offsets of a fragment. Very long numbers are excluded because `int` rejects them."""

ENTITY = re.compile(rf"T\S*\t(\S+) ({FRAGMENT}(?:;{FRAGMENT})*)\t(.*)")
"""Matches the line of an entity. The groups are the label, the fragments and the text."""

SPACE = re.compile(r"\s+")

OTHER_LINE = re.compile(r"[REAMN]\S*\t|\*\t|#")
"""Matches the beginning of any other line: a relation, an event, an attribute, a reference to an
external database, an equivalence or a note."""

DISCONTINUOUS = "entities have several fragments: their tokens are missing annotation"


class BratEntity(NamedTuple):
    """An entity in an .ann file.

    place (FilePlace): The line of the entity.
    label (str): The label.
    fragments (list[Range]): The start and end of each fragment. There is at least one fragment.
    text (str): The text of the entity, with a space between fragments.
    """

    place: FilePlace
    label: str
    fragments: list[Range]
    text: str


def read_brat(path: Path, context: Context) -> Iterator[Doc]:
    """Read a text and its annotation as a single doc. Discontinuous entities can't be represented
    in a doc: they are reported as problems, and the annotation of their tokens is treated as
    missing.

    path (Path): The .ann file or the .txt file.
    context (Context): The pipeline and the options. Problems are added to `context.info`.
    RETURNS (Iterator[Doc]): The doc.
    RAISES (CorpusError): If either file is missing or can't be read, or a line is invalid.
    """
    context.info.add_file("brat standoff")
    annotation_path = path.with_suffix(BRAT_ANNOTATION)
    task = _read_task(annotation_path, context.info)
    place = FilePlace(annotation_path, number=1)
    return tasks_to_docs([AnnotatedTask(place, text_key=None, task=task)], context)


def _read_task(path: Path, info: CorpusInfo) -> Task:
    """Read an .ann file and the .txt file next to it as a task. Discontinuous entities are added to
    `info` as problems, and the annotation of their tokens is treated as missing."""
    text_path = path.with_suffix(".txt")
    if not text_path.is_file():
        raise CorpusError(f"{path}: expected its text in {text_path.name}, got no such file")
    # Line endings are kept because "\r\n" counts as two characters.
    text = read_text(text_path, keep_line_ends=True)
    entities_as_written = list(_read_entities(path, limit=utf16_length(text)))
    entities = _in_characters(entities_as_written, text)

    spans: list[TaskSpan] = []
    missing: list[Range] = []
    for entity in entities:
        # `_read_entities` only checks that ends are valid as code units. Now that offsets count
        # characters, check them again.
        last_end = max(end for _, end in entity.fragments)
        if last_end > len(text):
            expected = f"expected offsets in a text of {len(text)} characters"
            raise entity.place.refuse(f"{expected}, got {last_end}")
        fragments = _join_fragments(entity.fragments, text)
        if len(fragments) > 1:
            info.add_problem(DISCONTINUOUS, entity.place, f"{entity.text!r} {entity.label}")
            missing += fragments
            continue
        start, end = fragments[0]
        # Joining overlapping fragments changes their text, which isn't an error. If the text is
        # wrong, it is kept in `extra`, and `tasks_to_docs` searches for it in the doc: see
        # `has_its_text`.
        extra = {} if _has_its_text(entity, text) else {"text": entity.text}
        spans.append(TaskSpan(start, end, entity.label, extra))
    return Task(text, spans, missing=tuple(missing))


def _read_entities(path: Path, limit: int) -> Iterator[BratEntity]:
    """Read the entities of an .ann file without converting their offsets. `limit` is the maximum
    end of a fragment: the length of the text in UTF-16 code units, because the offsets may count
    either code units or characters."""
    # A blank file means that the text contains no entities.
    lines = read_text(path, allow_blank=True).split("\n")
    for number, line in enumerate(lines, start=1):
        place = FilePlace(path, number)
        if not line.strip() or OTHER_LINE.match(line):
            continue
        match = ENTITY.fullmatch(line)
        if match is None:
            expected = "expected an id, TAB, a label, offsets, TAB and a text"
            raise place.refuse(f"{expected}, got {shown(line)}")
        label, offsets, entity_text = match.groups()
        fragments: list[Range] = []
        for fragment in offsets.split(";"):
            start, end = map(int, fragment.split(" "))
            if not start < end <= limit:
                expected = f"a start before its end in a text of {limit} characters"
                raise place.refuse(f"expected {expected}, got {start} to {end}")
            fragments.append((start, end))
        yield BratEntity(place, label, fragments, entity_text)


def _has_its_text(entity: BratEntity, text: str) -> bool:
    """Check whether the text at an entity's offsets matches the text given in the .ann file.
    Whitespace between words may differ, such as a line break instead of a space. Leading and
    trailing whitespace must match, to distinguish characters from code units: in "a 😀 c", code
    units 2 to 4 are "😀", and characters 2 to 4 are "😀 "."""
    fragment_text = " ".join(text[start:end] for start, end in entity.fragments)
    return SPACE.split(fragment_text) == SPACE.split(entity.text)


def _in_characters(entities: list[BratEntity], text: str) -> list[BratEntity]:
    """Convert the offsets of entities to characters if they count UTF-16 code units. Some tools
    count code units because JavaScript does. Offsets are converted if that makes more entities
    match their text."""
    ends = utf16_ends(text)  # the end offset of each character, in code units
    converted: list[BratEntity] = []
    for entity in entities:
        fragments = [range_in_characters(fragment, ends) for fragment in entity.fragments]
        converted.append(entity._replace(fragments=fragments))

    def n_in_place(entities: list[BratEntity]) -> int:
        """Count the entities whose offsets match their text."""
        return sum(_has_its_text(entity, text) for entity in entities)

    return max(entities, converted, key=n_in_place)  # in case of a tie, the original entities


def _join_fragments(fragments: list[Range], text: str) -> list[Range]:
    """Join fragments that overlap or are separated only by whitespace. brat splits an entity at a
    line break even though the entity isn't discontinuous."""
    joined: list[Range] = []
    for start, end in sorted(fragments):
        if joined:
            last_start, last_end = joined[-1]
            if start <= last_end or not text[last_end:start].strip():
                joined[-1] = (last_start, max(last_end, end))
                continue
        joined.append((start, end))
    return joined
