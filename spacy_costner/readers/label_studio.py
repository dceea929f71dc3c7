"""Read Label Studio's JSON export.

A *record* is a task. It contains the imported *data* and the annotations of one or more people. An
annotation contains *results*. Results can be regions of text with labels (see `studio_regions`),
answers such as choices and relations, which don't affect entities, or other marks, such as
rectangles. It is unknown how other marks relate to the text, so the text's annotation is treated as
missing.

The texts are in one or more *fields* of the data. The fields are inferred from the regions of all
tasks, because each region quotes the text that it marks. An *element* of the labeling interface
displays one field.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .context import CorpusInfo
from .files import CorpusError, FilePlace, Values, shown
from .offsets import Range
from .studio_regions import (
    Kind,
    Result,
    StudioText,
    element_of,
    kind_of,
    kind_of_offsets,
    labels_of,
    read_spans,
    read_text,
    readings_of,
)
from .tasks import LOCATION, AnnotatedTask, Task, has_its_text, words_of_quote

ANNOTATION_KEYS = ("annotations", "completions")
"""The keys under which a task stores its annotations, since version 1 and in earlier versions."""

ANSWER_TYPES = (
    "choices",
    "datetime",
    "number",
    "pairwise",
    "ranker",
    "rating",
    "relation",
    "taxonomy",
    "textarea",
)
"""The types of results that contain no information about entities."""

CLOSING_TAG = re.compile(r"</[a-z][a-z0-9]*>", re.IGNORECASE)
"""Matches a closing HTML tag."""

NAME_OF_KIND: dict[Kind, str] = {
    "text": "a text",
    "html": "HTML",
    "dialogue": "a list of utterances",
}
"""How error messages refer to each kind of text."""

UNLABELED = "regions have no label: their tokens are missing annotation"
WITHOUT_OFFSETS = (
    "HTML regions have no globalOffsets: all other tokens of their text are missing annotation"
)
UNREAD = "regions of type {} are not read: all other tokens of their text are missing annotation"
OF_OTHER_ELEMENTS = "regions of type {} mark something other than the text: they are left out"
LIKE_HTML = "texts have HTML tags, but no region shows how to read them: the tags are read as text"

FieldKey = tuple[str, Kind, str]
"""A field and how to read it: its key in the data, the kind of text, and the reading. See
`read_text`."""

PlacedRecords = Sequence[tuple[FilePlace, Mapping[str, Any]]]
"""The records of a file, with their locations."""


class Field(NamedTuple):
    """A field of the data that contains the texts of an export.

    key (str): The key in the data.
    kind (Kind): The kind of the texts.
    reading (str): How to read the texts: see `readings_of`.
    elements (frozenset[str | None] | None): The elements that display the field. If None, all
        elements do.
    is_sure (bool): Whether regions quote the field or the user has specified it.
    """

    key: str
    kind: Kind
    reading: str
    elements: frozenset[str | None] | None = None
    is_sure: bool = True


class Evidence(NamedTuple):
    """Statistics about the regions in an export, used to infer the text fields.

    kinds (dict[str | None, Counter[Kind]]): The number of regions of each kind, by element.
    quoted_fields (dict[str | None, Counter[FieldKey]]): The number of regions that quote each
        field, by element.
    """

    kinds: dict[str | None, Counter[Kind]]
    quoted_fields: dict[str | None, Counter[FieldKey]]

    def most_frequent_kind(self) -> Kind | None:
        """Return the most frequent kind of region, or None if there are no text regions."""
        total = sum(self.kinds.values(), Counter[Kind]())
        return max(total, key=total.__getitem__, default=None)


def is_label_studio(record: Any) -> bool:
    """Check whether the first record of a file is a Label Studio task, with its text in "data"."""
    return isinstance(record, dict) and isinstance(record.get("data"), dict)


def read_label_studio(
    records: Values, *, text_key: str | None = None, info: CorpusInfo | None = None
) -> Iterator[AnnotatedTask]:
    """Read the tasks of Label Studio's JSON export. A task may be annotated by several people.
    Skipped annotations are omitted. If any annotations of a task are marked as ground truth, only
    these are read. If regions mark several texts of a task, each text becomes a separate task.

    records (Values): The records of the file.
    text_key (str | None): The key of the text in the data. Defaults to the field that the regions
        quote. If they don't quote any field, defaults to "text", or to the only key with a text.
    info (CorpusInfo | None): Collects problems.
    YIELDS (AnnotatedTask): The annotations. A text without annotations is yielded once.
    RAISES (CorpusError): If a record isn't a task with a text, its annotations can't be read, or it
        is unclear which text the regions mark.
    """
    info = CorpusInfo() if info is None else info
    # Read all records first, because the text fields are inferred from the regions of all tasks.
    placed_records = list(records)
    for place, record in placed_records:
        if not is_label_studio(record):
            raise place.refuse(f"expected a Label Studio task, got {shown(record)}")
    evidence = _collect_evidence(placed_records)
    fields = _find_fields(placed_records, evidence, text_key)

    # All annotations of a text share a number, which is their `text_key`.
    text_number = 0
    for place, record in placed_records:
        data = record["data"]
        annotations = _annotations_of(record, place)
        for field in fields or [_guess_field(data, evidence, text_key, place)]:
            if field.key not in data and len(fields) > 1:
                continue  # this task doesn't contain this text
            reader = _TextReader(data, field, _elements_of_others(field, fields), place, info)
            extra = {"meta": _read_metadata(data, field.key)}
            if not annotations:
                yield AnnotatedTask(place, text_number, Task(reader.text.text, extra=extra))
            for annotation in annotations:
                task = reader.read(annotation["result"])._replace(extra=extra)
                if not _asks_for_entities(annotation["result"], evidence):
                    task = task._replace(spans=None)
                yield AnnotatedTask(place, text_number, task)
            text_number += 1


def _asks_for_entities(results: Sequence[Result], evidence: Evidence) -> bool:
    """Check whether an annotator may have been asked for entities. If the export contains no
    labeled regions, results such as the class of a text are all that was asked for."""
    has_only_answers = bool(results) and all(map(_is_answer, results))
    return bool(evidence.kinds) or not has_only_answers


def _annotations_of(record: Mapping[str, Any], place: FilePlace) -> list[Mapping[str, Any]]:
    """Return the annotations of a task, except skipped ones. If any are marked as ground truth,
    only these are returned. The list is empty if the task isn't annotated. Raises an error if an
    annotation has no list of results."""
    present_keys = [key for key in ANNOTATION_KEYS if key in record]
    if not present_keys:
        return []
    key = present_keys[0]
    annotations = record[key]
    if not isinstance(annotations, list) or not all(map(_has_result, annotations)):
        got = shown(annotations)
        raise place.refuse(f"{key}: expected annotations with results, got {got}")
    annotations = [annotation for annotation in annotations if not _is_skipped(annotation)]
    true_annotations = [annotation for annotation in annotations if annotation.get("ground_truth")]
    return true_annotations or annotations


def _is_skipped(annotation: Mapping[str, Any]) -> bool:
    """Check whether the annotator skipped the task. Old versions have a different key."""
    return bool(annotation.get("was_cancelled") or annotation.get("skipped"))


def _has_result(annotation: Any) -> bool:
    """Check whether an annotation contains a list of results."""
    results = annotation.get("result") if isinstance(annotation, dict) else None
    return isinstance(results, list) and all(isinstance(result, dict) for result in results)


def _read_metadata(data: Mapping[str, Any], text_key: str) -> dict[str, Any]:
    """Return the metadata of a task: all its data except the text. The values under "meta" and all
    other values are combined in one dictionary."""
    metadata: dict[str, Any] = {}
    if isinstance(data.get("meta"), Mapping):
        metadata.update(data["meta"])
    for key, value in data.items():
        if key not in ("meta", text_key):
            metadata[key] = value
    return metadata


# Infer which fields contain the texts.


def _collect_evidence(placed_records: PlacedRecords) -> Evidence:
    """Count which fields of the data are quoted by the regions of an export."""
    evidence = Evidence({}, {})
    for place, record in placed_records:
        # The labeled regions of a task, keyed by element and kind.
        regions: dict[tuple[str | None, Kind], list[Result]] = {}
        for annotation in _annotations_of(record, place):
            for result in annotation["result"]:
                kind = kind_of(result)
                if kind is not None and labels_of(result) is not None:
                    regions.setdefault((element_of(result), kind), []).append(result)
        for (element, kind), results in regions.items():
            evidence.kinds.setdefault(element, Counter())[kind] += len(results)
            quoted_fields = _count_quotes(results, kind, record["data"], place)
            evidence.quoted_fields.setdefault(element, Counter()).update(quoted_fields)
    return evidence


def _count_quotes(
    regions: Sequence[Result], kind: Kind, data: Mapping[str, Any], place: FilePlace
) -> dict[FieldKey, int]:
    """Count the regions of a task that quote each field of its data. Fields that no region quotes
    are omitted."""
    n_quotes: dict[FieldKey, int] = {}
    for key, value in data.items():
        for reading in readings_of(value, kind):
            text = read_text(value, kind, reading)
            try:
                spans = read_spans(regions, text, place)
            except CorpusError:  # the regions belong to another field
                continue
            quoting_spans = [span for span in spans if words_of_quote(span)]
            n = sum(has_its_text(text.text, span) for span in quoting_spans)
            if n > 0:
                n_quotes[key, kind, reading] = n
    return n_quotes


def _find_fields(
    placed_records: PlacedRecords, evidence: Evidence, text_key: str | None
) -> list[Field]:
    """Find the fields with texts: the field specified by the user, or all fields that regions
    quote. If no field is quoted, the list is empty and `_guess_field` is used for each task. Raises
    an error if the regions of an element quote two fields equally often."""
    # The elements that display each field.
    elements: dict[FieldKey, set[str | None]] = {}
    for element, n_quotes in evidence.quoted_fields.items():
        if not n_quotes:
            continue
        most = max(n_quotes.values())
        best_fields = [field for field, n in n_quotes.items() if n == most]
        preferred_fields = [field for field in best_fields if field[0] in (text_key, "text")]
        keys = sorted({key for key, _, _ in best_fields})
        if text_key is None and len(keys) > 1 and not preferred_fields:
            first_place, _ = placed_records[0]
            got = " and ".join(map(repr, keys))
            message = f"data: expected regions that quote one text, got {got}"
            raise first_place.refuse(f"{message}: set text_key to one of them")
        # If a field has several readings, the first one is the most common.
        best_field = [*preferred_fields, *best_fields][0]
        elements.setdefault(best_field, set()).add(element)

    fields = [Field(*field, frozenset(names)) for field, names in elements.items()]
    if text_key is not None:
        return [field for field in fields if field.key == text_key]
    return fields


def _guess_field(
    data: Mapping[str, Any], evidence: Evidence, text_key: str | None, place: FilePlace
) -> Field:
    """Guess the text field of a task if no region quotes a field. The key is `text_key` (if set by
    the user), "text", or the only key with a text. The kind is the most frequent kind of region in
    all tasks. Raises an error if the data contains no such text, or if there are several
    candidates."""
    region_kind = evidence.most_frequent_kind()
    kinds: list[Kind] = ["text", "dialogue"] if region_kind is None else [region_kind]
    keys_of_kind: dict[Kind, list[str]] = {}
    for kind in kinds:
        keys_of_kind[kind] = [key for key, value in data.items() if readings_of(value, kind)]
    kind = next((kind for kind in kinds if keys_of_kind[kind]), kinds[0])
    keys = keys_of_kind[kind]

    remedy = "set text_key to the key of the text"
    if text_key is None and len(evidence.kinds) > 1:
        got = " and ".join(sorted(map(repr, evidence.kinds)))
        raise place.refuse(f"data: expected regions of one text, got regions of {got}: {remedy}")
    key = text_key or "text"
    if key not in keys:
        if text_key is not None or len(keys) != 1:
            message = f"data: expected a text under {key!r}, got {shown([*data])}"
            raise place.refuse(message if text_key else f"{message}: {remedy}")
        key = keys[0]
    readings = readings_of(data[key], kind)
    if kind == "dialogue" and "text" not in readings and len(readings) > 1:
        got = shown(readings)
        raise place.refuse(f"data: expected utterances with a text under 'text', got {got}")
    return Field(key, kind, readings[0], is_sure=text_key is not None)


def _elements_of_others(field: Field, fields: Iterable[Field]) -> frozenset[str | None]:
    """Return the elements that display other fields. None, which stands for an unnamed element, is
    excluded because such an element may display any field."""
    elements: set[str | None] = set()
    for other_field in fields:
        if other_field != field:
            elements |= other_field.elements or set()
    return frozenset(elements - {None})


class _TextReader:
    """Reads the annotations of a text in a task.

    text (StudioText): The text.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        field: Field,
        elements_of_others: frozenset[str | None],
        place: FilePlace,
        info: CorpusInfo,
    ) -> None:
        """Read the text of a field from the data of a task. `elements_of_others` are the elements
        that display other texts, which are read separately. Raises an error if the field contains
        no text, or only a URL."""
        self._field = field
        self._elements_of_others = elements_of_others
        self._place = place
        self._info = info
        value = data.get(field.key)
        if field.reading not in readings_of(value, field.kind):
            expected = f"{NAME_OF_KIND[field.kind]} under {field.key!r}, as in other tasks"
            raise place.refuse(f"data: expected {expected}, got {shown(value)}")
        self.text: StudioText = read_text(value, field.kind, field.reading)
        if not field.is_sure:
            self._check_guessed_text()

    def _check_guessed_text(self) -> None:
        """Check a text that isn't quoted by any region. Raises an error if it is a URL or a file
        name. If it looks like HTML, a problem is reported."""
        text = self.text.text
        if LOCATION.fullmatch(text):
            expected = f"expected a text under {self._field.key!r}"
            got = f"got a URL or a file name, {shown(text)}"
            remedy = "export tasks that have their texts, or set text_key if this is the text"
            raise self._place.refuse(f"data: {expected}, {got}: {remedy}")
        if self._field.kind == "text" and CLOSING_TAG.search(text):
            self._info.add_problem(LIKE_HTML, self._place, shown(text))

    def read(self, results: Sequence[Result]) -> Task:
        """Read one person's annotation of the text from the results. Raises an error if a region
        isn't part of the text."""
        regions: list[Result] = []
        unlabeled_regions: list[Result] = []
        has_unread_results = False
        # An answer to a question about a region has the offsets and the ID of the region.
        ids_of_marks = [result.get("id") for result in results if not _is_answer(result)]
        for result in results:
            element = element_of(result)
            if element in self._elements_of_others:
                continue
            is_answer = _is_answer(result)
            kind = kind_of_offsets(result) if is_answer else kind_of(result)
            if is_answer and (kind is None or result.get("id") in ids_of_marks):
                continue  # it isn't about a part of the text, or its region is read separately
            elements = self._field.elements
            is_of_text = elements is None or element is None or element in elements
            if not is_of_text:
                self._report(OF_OTHER_ELEMENTS, result)
            elif kind != self._field.kind:
                self._report(UNREAD, result)
                has_unread_results = True
            elif kind == "html" and "globalOffsets" not in result["value"]:
                self._report(WITHOUT_OFFSETS, result)
                has_unread_results = True
            elif labels_of(result) is None:
                self._report(UNLABELED, result)
                unlabeled_regions.append(_with_any_label(result))
            else:
                regions.append(result)

        text = self.text.text
        spans = read_spans(regions, self.text, self._place)
        unlabeled_spans = read_spans(unlabeled_regions, self.text, self._place)
        missing: list[Range] = [(span.start, span.end) for span in unlabeled_spans]
        if has_unread_results:
            missing.append((0, len(text)))
        return Task(text, spans, missing=tuple(missing))

    def _report(self, message: str, result: Result) -> None:
        """Report the type of a result that isn't read."""
        result_type = shown(result.get("type"))
        self._info.add_problem(message.format(result_type), self._place, shown(self.text.text))


def _is_answer(result: Result) -> bool:
    """Check whether a result is only an answer to a question and doesn't mark any text."""
    return result.get("type") in ANSWER_TYPES


def _with_any_label(region: Result) -> Result:
    """Add a placeholder label to an unlabeled region, so that `read_spans` reads its offsets."""
    return {**region, "value": {**region["value"], "labels": ["?"]}}
