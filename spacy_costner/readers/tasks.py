"""Read tasks, which are texts with annotated spans, from the JSON of annotation tools.

`task_from_json` reads the formats of several tools. The module `label_studio` reads Label Studio's
export, and `task_forms` writes tasks. A *record* is the JSON value of a task, and a *json_span* is
the JSON value of a span. Offsets count characters, unless UTF-16 code units are mentioned.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .files import SURROGATE, FilePlace, read_values, shown
from .offsets import Range, range_in_characters, utf16_ends, utf16_length

SPAN_KEYS = ("spans", "entities", "ents", "labels", "label")
"""The keys of the list of spans in different tools: "spans" in Prodigy, "entities" in spaCy 2 and
Hugging Face, "ents" in spaCy's `Doc.to_json`, and "labels" or "label" in doccano."""

START_KEYS = ("start", "start_offset")
END_KEYS = ("end", "end_offset")
LABEL_KEYS = ("label", "labels", "type", "entity_group")
"""The possible keys of a span's label. Hugging Face pipelines use "entity_group"."""

USED_KEYS = frozenset([*START_KEYS, *END_KEYS, *LABEL_KEYS, "token_start", "token_end"])
"""The keys of a span that aren't copied to `TaskSpan.extra`."""

ANSWERS = ("accept", "reject", "ignore")
"""The possible answers to a task in Prodigy."""

NO_SPANS_VIEWS = ("choice", "classification", "compare", "diff", "html", "text")
"""Prodigy interfaces in which spans aren't annotated. Tasks may contain spans, such as pattern
matches, but nobody has reviewed them."""

LOCATION = re.compile(
    r"\s*([a-z][a-z0-9+.-]*://\S+|/?data/(upload|local-files)/\S+|\S+\."
    r"(csv|docx?|gif|html?|jpe?g|jsonl?|md|mp[34]|pdf|png|rtf|te?xt|tsv|wav|xml))\s*",
    re.IGNORECASE,
)
"""Matches a URL, or the name of a file that was uploaded to an annotation tool."""


class TaskSpan(NamedTuple):
    """An annotated span of a text.

    start (int): The index of the first character of the span.
    end (int): The index after the last character of the span.
    label (str): The label.
    extra (Mapping[str, Any]): The other keys and values in the JSON, such as a score.
    """

    start: int
    end: int
    label: str
    extra: Mapping[str, Any] = {}


class TaskToken(NamedTuple):
    """A token of a text.

    start (int): The index of the first character of the token.
    end (int): The index after the last character of the token.
    sent_start (bool | None): Whether the token begins a sentence. None if unknown.
    """

    start: int
    end: int
    sent_start: bool | None


class Task(NamedTuple):
    """A text and its annotation.

    text (str): The text.
    spans (list[TaskSpan] | None): The entities, or None if the text isn't annotated.
    tokens (list[TaskToken] | None): The tokens. If None, the text is tokenized by the pipeline.
    missing (tuple[Range, ...]): The ranges of characters that are missing annotation.
    has_unknown_spaces (bool): Whether the original whitespace is unknown. If True, tokens are
        separated by a single space in the text.
    extra (Mapping[str, Any]): The other keys and values in the JSON, such as "meta" and "answer".
    """

    text: str
    spans: list[TaskSpan] | None = None
    tokens: list[TaskToken] | None = None
    missing: tuple[Range, ...] = ()
    has_unknown_spaces: bool = False
    extra: Mapping[str, Any] = {}


class AnnotatedTask(NamedTuple):
    """An annotation of a text. The same text may have been annotated by several people.

    place (FilePlace): The location of the annotation: its file, and its line or row.
    text_key (int | None): A number shared by all annotations of the text, or None if the text has
        no other annotations.
    task (Task): The text and its annotation.
    """

    place: FilePlace
    text_key: int | None
    task: Task


def read_tasks(path: Path) -> Iterator[tuple[FilePlace, Task]]:
    """Read the tasks of a JSON or JSONL file.

    path (Path): The file.
    YIELDS (tuple[FilePlace, Task]): Each task, with its location.
    RAISES (CorpusError): If the file isn't JSON, or a value in it isn't a task.
    """
    _, records = read_values(path)
    for place, record in records:
        yield place, task_from_json(record, place)


def task_from_json(record: Any, place: FilePlace) -> Task:
    """Create a task from a record in any of the following JSON formats. A span is a list [start,
    end, label] or an object with a start, an end and a label:

        {"text": "…", "spans": […]}                   Prodigy, also with tokens and answer
        {"text": "…", "label": […]}                   doccano, also with "labels" or "entities"
        ["…", {"entities": […]}]                      spaCy 2, also ["…", […]]
        {"text": "…", "ents": […], "tokens": […]}     spaCy's Doc.to_json

    record (Any): The JSON value, such as a line of JSONL.
    place (FilePlace): The location of the record, for error messages.
    RETURNS (Task): The text, its spans, and its other values.
    RAISES (CorpusError): If the record isn't a task.
    """
    # In spaCy 2, a record is a pair of a text and an object or list of spans.
    if isinstance(record, list) and len(record) == 2:
        text, annotation = record
        if isinstance(annotation, list):
            annotation = {"entities": annotation}
        if isinstance(annotation, dict):
            record = {"text": text, **annotation}
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise place.refuse(f"expected a text and its spans, got {shown(record)}")

    text = record["text"]
    if "annotation_id" in record:  # Label Studio's JSON-MIN
        if LOCATION.fullmatch(text):
            raise place.refuse(f"text: expected a text, got a URL or a file name, {shown(text)}")
        record = _join_controls(record)
    span_key = _find_span_key(record, place)
    missing = _missing_from_json(record, place)
    _check_answer(record, "answer", place)

    spans = None
    if span_key is not None:
        spans = spans_from_json(record[span_key], text, span_key, place)
    task_keys = {"text", "tokens", "missing", "has_unknown_spaces", span_key}
    return Task(
        text=text,
        spans=spans,
        tokens=_tokens_from_json(record.get("tokens"), text, place),
        missing=missing,
        has_unknown_spaces=record.get("has_unknown_spaces") is True,
        extra={key: value for key, value in record.items() if key not in task_keys},
    )


def _join_controls(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Join the spans of a record in Label Studio's JSON-MIN, which has a list of regions for each
    control that labels texts. The key of a list is the name of the control. The tokens of regions
    without a label are missing annotation."""
    controls: list[str] = []
    for key, value in record.items():
        if isinstance(value, list) and any(map(_has_labels, value)):
            controls.append(key)
    if not controls:
        return record
    # A single control may have any name in SPAN_KEYS, which error messages show.
    key_of_joined = controls[0] if controls[0] in SPAN_KEYS else "spans"
    joined = {key: value for key, value in record.items() if key not in controls}
    joined[key_of_joined] = []
    joined["missing"] = []
    for control in controls:
        for region in record[control]:
            if _is_region(region) and not region.get("labels"):
                joined["missing"].append([region["start"], region["end"]])
            else:
                joined[key_of_joined].append(region)
    return joined


def _is_region(value: Any) -> bool:
    """Check whether a JSON value is a region of a text in Label Studio's JSON-MIN."""
    return isinstance(value, dict) and {"start", "end"}.issubset(value)


def _has_labels(value: Any) -> bool:
    """Check whether a JSON value is a region with labels in Label Studio's JSON-MIN."""
    return _is_region(value) and bool(value.get("labels"))


def _check_answer(record: Mapping[str, Any], key: str, place: FilePlace) -> None:
    """Check that the answer to a Prodigy task or span, if any, is one of `ANSWERS`. The answer is
    stored in `extra` and interpreted by `task_docs`. `key` is the name of the answer in error
    messages."""
    if record.get("answer", "accept") not in ANSWERS:
        raise place.refuse(f"{key}: expected {', '.join(ANSWERS)}, got {shown(record['answer'])}")


def _missing_from_json(record: Mapping[str, Any], place: FilePlace) -> tuple[Range, ...]:
    """Read the character ranges of a text that are missing annotation. `task_to_json` writes them
    under the key "missing"."""
    pairs = record.get("missing", [])
    if not isinstance(pairs, list):
        raise place.refuse(f"missing: expected a list of [start, end], got {shown(pairs)}")
    n_characters = len(record["text"])
    missing: list[Range] = []
    for pair in pairs:
        missing.append(_range_from_json(pair, n_characters, "missing", place))
    return tuple(missing)


def _find_span_key(record: Mapping[str, Any], place: FilePlace) -> str | None:
    """Return the key in `SPAN_KEYS` under which a task stores the list of its spans, or None if
    there is no list, i.e. if the text isn't annotated. Raises an error if the value isn't a list,
    or if there are two different lists."""
    present_keys = [key for key in SPAN_KEYS if record.get(key) is not None]
    list_keys = [key for key in present_keys if isinstance(record[key], list)]
    # In Prodigy's "classification" interface, "label" is the label of the text and not a list.
    if present_keys and not list_keys and record.get("_view_id") not in NO_SPANS_VIEWS:
        key = present_keys[0]
        raise place.refuse(f"{key}: expected a list of spans, got {shown(record[key])}")
    # A tool may write several of the keys, with empty lists for the keys that it doesn't use.
    filled_keys = [key for key in list_keys if record[key]]
    if len(filled_keys) > 1 and record[filled_keys[0]] != record[filled_keys[1]]:
        raise place.refuse(f"expected one list of spans, got {' and '.join(filled_keys)}")
    if filled_keys:
        return filled_keys[0]
    if list_keys:
        return list_keys[0]
    return None


def spans_from_json(json_spans: list[Any], text: str, key: str, place: FilePlace) -> list[TaskSpan]:
    """Create the spans of a text from JSON. A span with several labels is converted to one span per
    label.

    Some tools write the text of each span next to its offsets. If more of these texts match when
    the offsets are read as UTF-16 code units, as in JavaScript, the offsets are converted to
    characters.

    json_spans (list[Any]): The JSON values of the spans: lists [start, end, label] or objects.
    text (str): The text of the task.
    key (str): The key of the list, for error messages.
    place (FilePlace): The location of the task, for error messages.
    RETURNS (list[TaskSpan]): The spans, with character offsets.
    RAISES (CorpusError): If a value isn't a span of the text.
    """
    n_units = utf16_length(text)
    spans: list[TaskSpan] = []
    for json_span in json_spans:
        spans += _read_span(json_span, n_units, key, place)
    if n_units == len(text):
        return spans

    # Some characters consist of two code units, so it is unclear whether the offsets count
    # characters or code units. Characters are preferred.
    converted_spans = _spans_in_characters(spans, text)
    if count_in_place(text, converted_spans) > count_in_place(text, spans):
        spans = converted_spans
    # `_read_span` only checks that ends are valid as code units. Now check them as characters.
    for span in spans:
        _range_from_json([span.start, span.end], len(text), key, place)
    return spans


def _read_span(json_span: Any, limit: int, key: str, place: FilePlace) -> list[TaskSpan]:
    """Read a span from a list [start, end, label] or an object. Returns one span per label, without
    converting its offsets. The end must not exceed `limit`, the length of the text in code units.
    `key`, the key of the list of spans, is used in error messages."""
    extra: Mapping[str, Any] = {}
    if isinstance(json_span, dict):
        start = _first_value(json_span, START_KEYS)
        end = _first_value(json_span, END_KEYS)
        label = _first_value(json_span, LABEL_KEYS)
        extra = {name: value for name, value in json_span.items() if name not in USED_KEYS}
        _check_answer(json_span, f"{key}: answer", place)
    elif isinstance(json_span, list) and len(json_span) == 3:
        start, end, label = json_span
    else:
        got = shown(json_span)
        raise place.refuse(f"{key}: expected start, end and label of a span, got {got}")

    if label is None and "entity" in extra:
        expected = "entities with an aggregation_strategy, such as 'simple', of a pipeline"
        raise place.refuse(f"{key}: expected {expected}, got tags of tokens: {shown(json_span)}")
    start, end = _range_from_json([start, end], limit, key, place)
    # In Label Studio, a span has a list of labels.
    labels: list[Any] = label if isinstance(label, list) else [label]
    if not labels or not all(isinstance(label, str) and label.strip() for label in labels):
        raise place.refuse(f"{key}: expected the label of a span, got {shown(json_span)}")
    for label in labels:
        if SURROGATE.search(label):
            raise place.refuse(
                f"{key}: expected a label that can be encoded in UTF-8, got {shown(label)}"
            )
    return [TaskSpan(start, end, label, extra) for label in labels]


def _first_value(record: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the value of the first of these keys that a record contains, or None if there is
    none."""
    for key in keys:
        if key in record:
            return record[key]
    return None


def _range_from_json(pair: Any, limit: int, key: str, place: FilePlace) -> Range:
    """Check that a value is a list [start, end] of two offsets in a text, and return the offsets.
    The end must not exceed `limit`, the length of the text in characters or code units. `key` and
    `place` are used in error messages."""
    is_pair = isinstance(pair, list) and len(pair) == 2
    # `isinstance` can't be used because True is also an instance of int.
    if not is_pair or type(pair[0]) is not int or type(pair[1]) is not int:
        raise place.refuse(f"{key}: expected two whole numbers, start and end, got {shown(pair)}")
    start, end = pair
    if not 0 <= start < end <= limit:
        expected = f"a start before its end in a text of {limit} characters"
        raise place.refuse(f"{key}: expected {expected}, got {start} to {end}")
    return start, end


def has_its_text(text: str, span: TaskSpan) -> bool:
    """Check whether the text at a span's offsets matches the text that the annotation tool saved
    under the key "text". Returns True if no text was saved."""
    quoted_words = words_of_quote(span)
    if not quoted_words:
        return True
    if span.end > len(text):  # the offsets may count code units
        return False
    # Compare only the words, because tools may change the whitespace.
    return quoted_words == split_words(text[span.start : span.end])


def count_in_place(text: str, spans: Iterable[TaskSpan]) -> tuple[int, int]:
    """Count the spans that match their saved text (see `has_its_text`), and the spans that also
    match its whitespace. The second count is needed for texts such as "a 😀 😀": the word from 2 to
    4 is "😀" in characters and in code units, but the characters also contain a space."""
    n_in_place = 0
    n_equal = 0
    for span in spans:
        n_in_place += has_its_text(text, span)
        n_equal += span.extra.get("text") == text[span.start : span.end]
    return n_in_place, n_equal


def words_of_quote(span: TaskSpan) -> list[str]:
    """Return the words of the text that a tool saved with a span, or an empty list if no text was
    saved."""
    quote = span.extra.get("text")
    return split_words(quote) if isinstance(quote, str) else []


def split_words(text: str) -> list[str]:
    """Split a text at whitespace and at the two characters `\\n`, which Label Studio writes for
    line breaks in quoted text."""
    return text.replace("\\n", " ").split()


def _spans_in_characters(spans: Iterable[TaskSpan], text: str) -> list[TaskSpan]:
    """Convert the offsets of spans from UTF-16 code units to characters."""
    ends = utf16_ends(text)
    converted = []
    for span in spans:
        start, end = range_in_characters((span.start, span.end), ends)
        converted.append(span._replace(start=start, end=end))
    return converted


def _tokens_from_json(json_tokens: Any, text: str, place: FilePlace) -> list[TaskToken] | None:
    """Read the tokens of a task, and check that they cover its text in order. Returns None if the
    task has no tokens. Raises an error if a word isn't covered, or the saved text of a token
    differs from the text at its offsets."""
    if json_tokens is None:
        return None
    is_list = isinstance(json_tokens, list)
    if not is_list or not all(isinstance(token, dict) for token in json_tokens):
        raise place.refuse(f"tokens: expected objects with start and end, got {shown(json_tokens)}")

    tokens = []
    for json_token in json_tokens:
        offsets = [json_token.get("start"), json_token.get("end")]
        start, end = _range_from_json(offsets, len(text), "tokens", place)
        tokens.append(TaskToken(start, end, json_token.get("sent_start")))

    # A tool may have saved the text of each token next to its offsets.
    for json_token, (start, end, _) in zip(json_tokens, tokens):
        expected = text[start:end]
        if json_token.get("text", expected) != expected:
            got = shown(json_token["text"])
            raise place.refuse(f"tokens: expected {expected!r} at {start}, got {got}")
    check_all_words(tokens, text, place)
    return tokens


def check_all_words(tokens: list[TaskToken], text: str, place: FilePlace) -> None:
    """Check that each word of a text is covered by exactly one token. Tokens must not overlap, and
    there may only be whitespace between, before and after them.

    RAISES (CorpusError): If a word isn't covered, or is covered twice.
    """
    expected = "expected each word of the text exactly once"
    end_of_text = TaskToken(start=len(text), end=len(text), sent_start=None)
    previous_end = 0
    for start, end, _ in [*tokens, end_of_text]:
        overlaps = start < previous_end
        if overlaps:
            raise place.refuse(f"tokens: {expected}, got {shown(text[start:end])}")
        text_between = text[previous_end:start]
        if text_between.strip():
            raise place.refuse(f"tokens: {expected}, got {shown(text_between)}")
        previous_end = end


def join_words(words: Sequence[Any], key: str, place: FilePlace) -> tuple[str, list[TaskToken]]:
    """Join words into a text, separated by single spaces, because the original whitespace is
    unknown.

    words (Sequence[Any]): The words of a text, in order.
    key (str): The key of the words, for error messages.
    place (FilePlace): The location of the words, for error messages.
    RETURNS (tuple[str, list[TaskToken]]): The text and its tokens.
    RAISES (CorpusError): If a value isn't a word.
    """
    tokens: list[TaskToken] = []
    start = 0
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise place.refuse(f"{key}: expected words, got {shown(word)}")
        tokens.append(TaskToken(start, start + len(word), sent_start=None))
        start += len(word) + 1
    return " ".join(words), tokens
