"""Tasks: texts with annotated spans, as the JSON of annotation tools has them.

`task_from_json` reads the forms of several tools; that of Label Studio's export is read by the
module `label_studio`. `save_tasks` writes the forms in `TASK_FORMS`. A *record* is what JSON has
for a task, and a *json_span* what it has for a span. Offsets count characters, except where UTF-16
code units are named.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ..files.saving import save_file
from .files import SURROGATE, FilePlace, read_values, shown

SPAN_KEYS = ("spans", "entities", "ents", "labels", "label")
"""The keys under which tools have the list of spans: Prodigy "spans", spaCy 2 and Hugging Face
"entities", spaCy's `Doc.to_json` "ents", doccano "labels" or "label"."""

START_KEYS = ("start", "start_offset")
END_KEYS = ("end", "end_offset")
LABEL_KEYS = ("label", "labels", "type", "entity_group")
"""The keys under which a span may have its label: "entity_group" by pipelines of Hugging Face."""

USED_KEYS = frozenset([*START_KEYS, *END_KEYS, *LABEL_KEYS, "token_start", "token_end"])
"""The keys of a span that `TaskSpan.extra` doesn't have."""

ANSWERS = ("accept", "reject", "ignore")
"""What an annotator can answer to a task in Prodigy."""

NO_SPANS_VIEWS = ("choice", "classification", "compare", "diff", "html", "text")
"""The interfaces of Prodigy that don't ask for spans. Their tasks may have spans, such as matches
of patterns, but nobody has annotated these."""

LOCATION = re.compile(
    r"\s*([a-z][a-z0-9+.-]*://\S+|/?data/(upload|local-files)/\S+|\S+\."
    r"(csv|docx?|gif|html?|jpe?g|jsonl?|md|mp[34]|pdf|png|rtf|te?xt|tsv|wav|xml))\s*",
    re.IGNORECASE,
)
"""Matches a URL, or the name of a file that was uploaded to an annotation tool."""

Range = tuple[int, int]
"""The first character of a stretch of text and the character after its last; or likewise tokens."""


class TaskSpan(NamedTuple):
    """An annotated span of a text.

    start (int): The first character of the span.
    end (int): The character after its last.
    label (str): The label.
    extra (Mapping[str, Any]): The other keys and values of its JSON, such as a score.
    """

    start: int
    end: int
    label: str
    extra: Mapping[str, Any] = {}


class TaskToken(NamedTuple):
    """A token of a text.

    start (int): The first character of the token.
    end (int): The character after its last.
    sent_start (bool | None): Whether it begins a sentence. None: that isn't known.
    """

    start: int
    end: int
    sent_start: bool | None


class Task(NamedTuple):
    """A text and its annotation.

    text (str): The text.
    spans (list[TaskSpan] | None): The entities. None: nobody has annotated the text.
    tokens (list[TaskToken] | None): The tokens. None: the pipeline's tokenizer finds them.
    missing (tuple[Range, ...]): The parts of an annotated text, in characters, that nobody has
        annotated.
    has_unknown_spaces (bool): Whether it is not known if there were spaces between the tokens. The
        text then has a single space between any two.
    extra (Mapping[str, Any]): The other keys and values of its JSON, such as "meta" and "answer".
    """

    text: str
    spans: list[TaskSpan] | None = None
    tokens: list[TaskToken] | None = None
    missing: tuple[Range, ...] = ()
    has_unknown_spaces: bool = False
    extra: Mapping[str, Any] = {}


class AnnotatedTask(NamedTuple):
    """One annotation of a text. Several people may have annotated the same text.

    place (FilePlace): The file and the line or row that it was read from.
    text_key (int | None): A number that all annotations of the text share. None: there is only this
        one.
    task (Task): The text with the annotation.
    """

    place: FilePlace
    text_key: int | None
    task: Task


def read_tasks(path: Path) -> Iterator[tuple[FilePlace, Task]]:
    """Read the tasks of a JSON or JSONL file.

    path (Path): The file.
    YIELDS (tuple[FilePlace, Task]): Each task, and its place.
    RAISES (CorpusError): If the file isn't JSON, or something in it isn't a task.
    """
    _, records = read_values(path)
    for place, record in records:
        yield place, task_from_json(record, place)


def task_from_json(record: Any, place: FilePlace) -> Task:
    """Read a task in any of these forms, where a span is [start, end, label] or has these keys:

        {"text": "…", "spans": […]}                   Prodigy, also with tokens and answer
        {"text": "…", "label": […]}                   doccano; "labels" and "entities" too
        ["…", {"entities": […]}]                      spaCy 2, also ["…", […]]
        {"text": "…", "ents": […], "tokens": […]}     spaCy, Doc.to_json

    record (Any): The value of a line of JSON.
    place (FilePlace): The line.
    RETURNS (Task): The task.
    RAISES (CorpusError): If it is no task.
    """
    # spaCy 2 has a pair, of the text and an object or a list of spans. It becomes one object.
    if isinstance(record, list) and len(record) == 2:
        text, annotation = record
        if isinstance(annotation, list):
            annotation = {"entities": annotation}
        if isinstance(annotation, dict):
            record = {"text": text, **annotation}
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise place.refuse(f"expected a text and its spans, got {shown(record)}")

    text = record["text"]
    if "annotation_id" in record and LOCATION.fullmatch(text):  # JSON-MIN of Label Studio
        raise place.refuse(f"text: expected a text, got a URL or a file name, {shown(text)}")
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


def _check_answer(record: Mapping[str, Any], key: str, place: FilePlace) -> None:
    """Check that the answer to a task or a span of Prodigy, if it has one, is one of `ANSWERS`. The
    answer itself goes into `extra`: `task_docs` decides what it means. `key` names the answer in
    the error message."""
    if record.get("answer", "accept") not in ANSWERS:
        raise place.refuse(f"{key}: expected {', '.join(ANSWERS)}, got {shown(record['answer'])}")


def _missing_from_json(record: Mapping[str, Any], place: FilePlace) -> tuple[Range, ...]:
    """Read which characters of a text nobody has annotated. `task_to_json` writes them under the
    key "missing"."""
    pairs = record.get("missing", [])
    if not isinstance(pairs, list):
        raise place.refuse(f"missing: expected a list of [start, end], got {shown(pairs)}")
    n_characters = len(record["text"])
    missing: list[Range] = []
    for pair in pairs:
        missing.append(_range_from_json(pair, n_characters, "missing", place))
    return tuple(missing)


def _find_span_key(record: Mapping[str, Any], place: FilePlace) -> str | None:
    """Find the key under which a task has the list of its spans: one of `SPAN_KEYS`.

    RETURNS (str | None): The key. None: there is no such list, as nobody has annotated the text.
    RAISES (CorpusError): If there is no list under these keys, but something else, or there are two
        different lists.
    """
    present_keys = [key for key in SPAN_KEYS if record.get(key) is not None]
    list_keys = [key for key in present_keys if isinstance(record[key], list)]
    # The label of a text, which Prodigy's interface "classification" asks for, is no list.
    if present_keys and not list_keys and record.get("_view_id") not in NO_SPANS_VIEWS:
        key = present_keys[0]
        raise place.refuse(f"{key}: expected a list of spans, got {shown(record[key])}")
    # A tool may write several of the keys, and leave the lists empty that it doesn't use.
    filled_keys = [key for key in list_keys if record[key]]
    if len(filled_keys) > 1 and record[filled_keys[0]] != record[filled_keys[1]]:
        raise place.refuse(f"expected one list of spans, got {' and '.join(filled_keys)}")
    if filled_keys:
        return filled_keys[0]
    if list_keys:
        return list_keys[0]
    return None


def spans_from_json(json_spans: list[Any], text: str, key: str, place: FilePlace) -> list[TaskSpan]:
    """Read the spans of a text. A span with several labels becomes a span for each label.

    Some tools write the text of a span with its offsets. If more of these texts are where the
    offsets say if the offsets count UTF-16 code units, as in JavaScript, the offsets are read so.

    json_spans (list[Any]): What JSON has for the spans: lists [start, end, label], or objects.
    text (str): The text.
    key (str): The key of the list, for error messages.
    place (FilePlace): The place of the task, for error messages.
    RETURNS (list[TaskSpan]): The spans, in characters.
    RAISES (CorpusError): If something isn't a span of the text.
    """
    n_units = utf16_length(text)
    spans: list[TaskSpan] = []
    for json_span in json_spans:
        spans += _read_span(json_span, n_units, key, place)
    if n_units == len(text):
        return spans

    # Some characters are two code units, so the offsets may count characters or code units.
    # Characters are tried first.
    converted_spans = _spans_in_characters(spans, text)
    if count_in_place(text, converted_spans) > count_in_place(text, spans):
        spans = converted_spans
    # `_read_span` has allowed ends up to the number of code units. Now they count characters.
    for span in spans:
        _range_from_json([span.start, span.end], len(text), key, place)
    return spans


def _read_span(json_span: Any, limit: int, key: str, place: FilePlace) -> list[TaskSpan]:
    """Read a span, and make a span for each of its labels.

    json_span (Any): What JSON has for the span: a list [start, end, label], or an object.
    limit (int): The largest end that the span may have, in code units.
    key (str): The key of the list of spans, for error messages.
    place (FilePlace): The place of the task, for error messages.
    RETURNS (list[TaskSpan]): The spans, with the offsets as they are in the JSON.
    RAISES (CorpusError): If it isn't a span.
    """
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
    # A span of Label Studio has a list of labels.
    labels: list[Any] = label if isinstance(label, list) else [label]
    if not labels or not all(isinstance(label, str) and label.strip() for label in labels):
        raise place.refuse(f"{key}: expected the label of a span, got {shown(json_span)}")
    for label in labels:
        if SURROGATE.search(label):
            raise place.refuse(f"{key}: expected a label that can be UTF-8, got {shown(label)}")
    return [TaskSpan(start, end, label, extra) for label in labels]


def _first_value(record: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """The value of a record under the first of these keys that it has. None: it has none of
    them."""
    for key in keys:
        if key in record:
            return record[key]
    return None


def _range_from_json(pair: Any, limit: int, key: str, place: FilePlace) -> Range:
    """Check that a value is a list [start, end] of two offsets in a text, and return them. The end
    is at most `limit`, the length of the text in characters or code units. `key` and `place` are
    for error messages."""
    is_pair = isinstance(pair, list) and len(pair) == 2
    # `type` instead of `isinstance`, as True is an instance of int, too.
    if not is_pair or type(pair[0]) is not int or type(pair[1]) is not int:
        raise place.refuse(f"{key}: expected two whole numbers, start and end, got {shown(pair)}")
    start, end = pair
    if not 0 <= start < end <= limit:
        expected = f"a start before its end in a text of {limit} characters"
        raise place.refuse(f"{key}: expected {expected}, got {start} to {end}")
    return start, end


def has_its_text(text: str, span: TaskSpan) -> bool:
    """Whether a span has the text that a tool has written with its offsets, under the key "text".
    True if the tool has written none."""
    quoted_words = words_of_quote(span)
    if not quoted_words:
        return True
    if span.end > len(text):  # its offsets may count code units
        return False
    # Only the words are compared, as a tool may have changed the white space.
    return quoted_words == split_words(text[span.start : span.end])


def count_in_place(text: str, spans: Iterable[TaskSpan]) -> tuple[int, int]:
    """Count the spans that have their text (see `has_its_text`), and those that also have its white
    space: in "a 😀 😀", both the characters and the code units from 2 to 4 have the word "😀", but
    these characters are "😀 "."""
    n_in_place = 0
    n_equal = 0
    for span in spans:
        n_in_place += has_its_text(text, span)
        n_equal += span.extra.get("text") == text[span.start : span.end]
    return n_in_place, n_equal


def words_of_quote(span: TaskSpan) -> list[str]:
    """The words of the text that a tool has written with the offsets of a span. Empty: none."""
    quote = span.extra.get("text")
    return split_words(quote) if isinstance(quote, str) else []


def split_words(text: str) -> list[str]:
    """Split a text at white space, and at the characters `\\n`, which Label Studio writes for a
    line break in a quoted text."""
    return text.replace("\\n", " ").split()


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units, which JavaScript counts instead of characters."""
    # A code unit is two bytes. "surrogatepass" lets half of a surrogate pair count as one, too.
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_ends(text: str) -> list[int]:
    """The end of each character of a text, in UTF-16 code units from the beginning of the text. A
    character above U+FFFF, such as an emoji, is two code units. Length: the number of
    characters."""
    return list(accumulate(2 if character > "\uffff" else 1 for character in text))


def range_in_characters(units: Range, ends: Sequence[int]) -> Range:
    """Convert a range of UTF-16 code units of a text to one of characters.

    units (Range): The first code unit and the one after the last.
    ends (Sequence[int]): The `utf16_ends` of the text: after each character the number of code
        units so far.
    RETURNS (Range): The first character and the one after the last.
    """
    start_unit, end_unit = units
    # The number of characters that end at a code unit or before it is the index of the character
    # that begins there.
    return bisect_right(ends, start_unit), bisect_right(ends, end_unit)


def _spans_in_characters(spans: Iterable[TaskSpan], text: str) -> list[TaskSpan]:
    """Convert the offsets of spans from UTF-16 code units of the text to characters."""
    ends = utf16_ends(text)
    converted = []
    for span in spans:
        start, end = range_in_characters((span.start, span.end), ends)
        converted.append(span._replace(start=start, end=end))
    return converted


def _tokens_from_json(json_tokens: Any, text: str, place: FilePlace) -> list[TaskToken] | None:
    """Read the tokens of a task, and check that they cover its text in order.

    json_tokens (Any): What JSON has under the key "tokens".
    text (str): The text of the task.
    place (FilePlace): The place of the task, for error messages.
    RETURNS (list[TaskToken] | None): The tokens. None: the task has none.
    RAISES (CorpusError): If they aren't tokens, don't cover all words of the text, or have another
        text than is at their offsets.
    """
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

    # A tool may have written the text of a token next to its offsets.
    for json_token, (start, end, _) in zip(json_tokens, tokens):
        expected = text[start:end]
        if json_token.get("text", expected) != expected:
            got = shown(json_token["text"])
            raise place.refuse(f"tokens: expected {expected!r} at {start}, got {got}")
    check_all_words(tokens, text, place)
    return tokens


def check_all_words(tokens: list[TaskToken], text: str, place: FilePlace) -> None:
    """Check that each word of a text is in exactly one token: that tokens don't overlap, and that
    nothing but white space is between them, before the first one and after the last one.

    RAISES (CorpusError): If a word isn't.
    """
    expected = "expected all words of the text, once each"
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
    """Make a text of words, with a space between any two, as it isn't known where spaces were.

    words (Sequence[Any]): The words.
    key (str): Their key, for errors.
    place (FilePlace): Their place, for errors.
    RETURNS (tuple[str, list[TaskToken]]): The text, and its tokens.
    RAISES (CorpusError): If something isn't a word.
    """
    tokens: list[TaskToken] = []
    start = 0
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise place.refuse(f"{key}: expected words, got {shown(word)}")
        tokens.append(TaskToken(start, start + len(word), sent_start=None))
        start += len(word) + 1
    return " ".join(words), tokens


def task_to_json(task: Task) -> dict[str, Any]:
    """Make the record of a task in Prodigy's form, which `task_from_json` reads. Prodigy doesn't
    know the keys "missing" and "has_unknown_spaces": they are for `task_from_json`."""
    record: dict[str, Any] = {"text": task.text}
    if task.tokens is not None:
        record["tokens"] = _tokens_to_json(task.tokens, task.text)
    if task.spans is not None:
        record["spans"] = _spans_to_json(task.spans, task.tokens or ())
    if task.missing:
        record["missing"] = [list(characters) for characters in task.missing]
    if task.has_unknown_spaces:
        record["has_unknown_spaces"] = True
    return _with_extra(record, task)


def _with_extra(record: dict[str, Any], task: Task) -> dict[str, Any]:
    """Add the other keys and values of a task to its record. They replace no key of the record: a
    task that was read from "entities" may also have an empty list of "spans", for example."""
    other_keys = {key: value for key, value in task.extra.items() if key not in record}
    return {**record, **other_keys}


def _tokens_to_json(tokens: Sequence[TaskToken], text: str) -> list[dict[str, Any]]:
    """The tokens of a text as Prodigy has them. "ws" says whether a space follows. Prodigy doesn't
    know "sent_start"."""
    json_tokens: list[dict[str, Any]] = []
    starts = {token.start for token in tokens}
    for i, (start, end, sent_start) in enumerate(tokens):
        has_space = text.startswith(" ", end) and end not in starts
        token = {"text": text[start:end], "start": start, "end": end, "id": i, "ws": has_space}
        if sent_start is not None:
            token["sent_start"] = sent_start
        json_tokens.append(token)
    return json_tokens


def _spans_to_json(spans: Iterable[TaskSpan], tokens: Sequence[TaskToken]) -> list[dict[str, Any]]:
    """The spans of a text as Prodigy has them. A span that begins and ends with tokens has the
    numbers of its first and its last token, too."""
    # The number of the token that begins, or ends, at a character.
    token_at_start = {token.start: i for i, token in enumerate(tokens)}
    token_at_end = {token.end: i for i, token in enumerate(tokens)}
    json_spans: list[dict[str, Any]] = []
    for start, end, label, extra in spans:
        span = {"start": start, "end": end, "label": label, **extra}
        if start in token_at_start and end in token_at_end:
            span["token_start"] = token_at_start[start]
            span["token_end"] = token_at_end[end]
        json_spans.append(span)
    return json_spans


def _task_to_doccano(task: Task) -> dict[str, Any]:
    """Make the record of a task for doccano:

        {"text": "…", "label": [[start, end, label], …], "scores": […], …}

    A span of doccano has no place for a score, so the scores are a list of their own. doccano shows
    other keys as metadata of the text.
    """
    labels = []
    scores = []
    has_scores = False
    for start, end, label, extra in task.spans or []:
        labels.append([start, end, label])
        scores.append(extra.get("score"))
        has_scores = has_scores or "score" in extra
    record: dict[str, Any] = {"text": task.text}
    if task.spans is not None:  # None: nobody has annotated the text
        record["label"] = labels
    if has_scores:
        record["scores"] = scores
    return _with_extra(record, task)


def _task_to_label_studio(task: Task) -> dict[str, Any]:
    """Make the record of a task for Label Studio:

        {"data": {"text": "…", …}, "predictions": [{"result": […]}]}

    The labeling interface of the project needs <Labels name="label" toName="text"> and <Text
    name="text" value="$text"/>. Offsets count UTF-16 code units, as JavaScript does.
    """
    text = task.text
    # For each offset in characters the offset in code units. Length: the number of characters + 1.
    unit_at = [0, *utf16_ends(text)]
    results = []
    for i, (start, end, label, extra) in enumerate(task.spans or []):
        value = {
            "start": unit_at[start],
            "end": unit_at[end],
            "text": text[start:end],
            "labels": [label],
        }
        result = {"id": str(i), "from_name": "label", "to_name": "text", "type": "labels"}
        # The id of a result has to be unique, so it replaces an "id" in `extra`: that one says what
        # the span names, such as a person, and several spans may name the same.
        results.append({**extra, **result, "value": value})
    record: dict[str, Any] = {"data": {"text": text, **task.extra}}
    if task.spans is not None:  # None: annotators begin without predicted spans
        record["predictions"] = [{"result": results}]
    return record


class TaskForm(NamedTuple):
    """The form of the files of tasks that an annotation tool imports.

    to_json (Callable[[Task], dict[str, Any]]): Makes the JSON of a task.
    suffix (str): ".json" for an array of tasks, ".jsonl" for a task on each line.
    """

    to_json: Callable[[Task], dict[str, Any]]
    suffix: str


TASK_FORMS: dict[str, TaskForm] = {
    "prodigy": TaskForm(task_to_json, ".jsonl"),
    "doccano": TaskForm(_task_to_doccano, ".jsonl"),
    "label-studio": TaskForm(_task_to_label_studio, ".json"),
}
"""The form of the files that each annotation tool imports, by the name of the tool."""


def check_task_form(name: str, path: Path) -> None:
    """Check, before any work, that tasks can be written for a tool to a file.

    name (str): The name of the tool: one of `TASK_FORMS`.
    path (Path): The file.
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    if name not in TASK_FORMS:
        raise ValueError(f"format: expected one of {[*TASK_FORMS]}, got {name!r}")
    suffix = TASK_FORMS[name].suffix
    if path.suffix != suffix:
        raise ValueError(f"{path}: expected a name that ends in {suffix}, for {name}")


def write_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Write tasks to a file that an annotation tool imports: see `save_tasks`. If writing fails,
    part of the file is there."""
    to_json, suffix = TASK_FORMS[form]
    lines = (json.dumps(to_json(task), ensure_ascii=False) for task in tasks)
    # Metadata may have half of a surrogate pair, which can't be UTF-8. "backslashreplace" writes it
    # as \udc00, say, which is its escape in JSON, too.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        if suffix == ".json":  # one array of all tasks
            file.write("[\n" + ",\n".join(lines) + "\n]\n")
            return
        for line in lines:
            file.write(f"{line}\n")


def save_tasks(path: Path, tasks: Iterable[Task], form: str = "prodigy") -> None:
    """Save tasks to a file that an annotation tool imports. If saving fails, an earlier file of
    that name stays as it was.

    path (Path): The file.
    tasks (Iterable[Task]): The tasks.
    form (str): "prodigy", "doccano" (both JSONL) or "label-studio" (JSON).
    RAISES (ValueError): If there is no such form, or it has files of another suffix.
    """
    check_task_form(form, path)
    save_file(path, lambda new_path: write_tasks(new_path, tasks, form))
