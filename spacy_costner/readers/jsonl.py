"""Tasks: a text and annotated spans of it, as lines of JSON. Commands read and write them.

Tasks are written in Prodigy's form. Other forms are read, too: see `task_from_json`.
"""

import json
from itertools import chain
from pathlib import Path
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from .files import Place, shown
from .json_files import read_values

SPAN_KEYS = ("spans", "entities", "ents", "labels", "label")
"""Keys of the list of spans: Prodigy, spaCy and Hugging Face, spaCy's `Doc.to_json`, doccano."""

START_KEYS, END_KEYS = ("start", "start_offset"), ("end", "end_offset")
LABEL_KEYS = ("label", "labels", "type")
COMPUTED = frozenset(["token_start", "token_end"])
ANSWERS = ("accept", "reject", "ignore")

NOTHING: Mapping[str, Any] = {}

Range = Tuple[int, int]


class TaskSpan(NamedTuple):
    """An annotated span.

    start (int): Its first character.
    end (int): The character after its last.
    label (str): Its label.
    extra (Mapping[str, Any]): Other keys, such as a score.
    """

    start: int
    end: int
    label: str
    extra: Mapping[str, Any] = NOTHING


class TaskToken(NamedTuple):
    """A token of a text.

    start (int): Its first character.
    end (int): The character after its last.
    sent_start (Optional[bool]): Whether a sentence begins here. None: not known.
    """

    start: int
    end: int
    sent_start: Optional[bool] = None


class Task(NamedTuple):
    """A text and its annotation.

    text (str): The text.
    spans (Optional[List[TaskSpan]]): The entities. None: nobody has annotated the text.
    tokens (Optional[List[TaskToken]]): The tokens. None: the pipeline's tokenizer finds them.
    missing (Tuple[Range, ...]): Other characters, from and to, that nobody has annotated.
    has_unknown_spaces (bool): Whether the text was made of tokens, with single spaces.
    extra (Mapping[str, Any]): Other keys, such as "meta" and "answer".
    """

    text: str
    spans: Optional[List[TaskSpan]] = None
    tokens: Optional[List[TaskToken]] = None
    missing: Tuple[Range, ...] = ()
    has_unknown_spaces: bool = False
    extra: Mapping[str, Any] = NOTHING


def read_tasks(path: Path) -> Iterator[Tuple[Place, Task]]:
    """Read the tasks of a JSON or JSONL file.

    path (Path): The file.
    YIELDS (Tuple[Place, Task]): Each task, and its place.
    RAISES (CorpusError): If something isn't a task.
    """
    for place, value in read_values(path)[1]:
        yield place, task_from_json(value, place)


def write_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write tasks to a JSONL file, in Prodigy's form."""
    with path.open("w", encoding="utf8", newline="\n") as file:
        for task in tasks:
            file.write(json.dumps(task_to_json(task), ensure_ascii=False) + "\n")


def task_to_json(task: Task) -> Dict[str, Any]:
    """A task as the value of a line of JSON."""
    value: Dict[str, Any] = {"text": task.text}
    if task.tokens is not None:
        ends = {token.end: i for i, token in enumerate(task.tokens)}
        starts = {token.start: i for i, token in enumerate(task.tokens)}
        value["tokens"] = [_token_to_json(task.text, i, t) for i, t in enumerate(task.tokens)]
    if task.spans is not None:
        value["spans"] = [
            {"start": span.start, "end": span.end, "label": span.label, **span.extra}
            for span in task.spans
        ]
    if task.spans and task.tokens is not None:
        for span in value["spans"]:
            if span["start"] in starts and span["end"] in ends:
                span.update(token_start=starts[span["start"]], token_end=ends[span["end"]])
    if task.missing:
        value["missing"] = [list(part) for part in task.missing]
    if task.has_unknown_spaces:
        value["has_unknown_spaces"] = True
    return {**value, **task.extra}


def _token_to_json(text: str, i: int, token: TaskToken) -> Dict[str, Any]:
    start, end, sent_start = token
    has_space = text[end : end + 1] == " "
    value = {"text": text[start:end], "start": start, "end": end, "id": i, "ws": has_space}
    return value if sent_start is None else {**value, "sent_start": sent_start}


def task_from_json(value: Any, place: Place) -> Task:
    """Read a task in any of these forms, where a span is [start, end, label] or has these keys:

        {"text": "…", "spans": […]}                   Prodigy, also with tokens and answer
        {"text": "…", "label": […]}                   doccano; "labels" and "entities" too
        ["…", {"entities": […]}]                      spaCy 2
        {"text": "…", "ents": […], "tokens": […]}     spaCy, Doc.to_json

    value (Any): The value of a line of JSON.
    place (Place): The line.
    RETURNS (Task): The task.
    RAISES (CorpusError): If it is no task.
    """
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict):
        value = {"text": value[0], **value[1]}
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise place.refuse(f"expected a text and its spans, got {shown(value)}")
    text, key = value["text"], _span_key(value, place)
    known = {"text", "tokens", "missing", "has_unknown_spaces", key}
    missing = value.get("missing", [])
    if not isinstance(missing, list):
        raise place.refuse(f"missing: expected a list of [start, end], got {shown(missing)}")
    if value.get("answer", "accept") not in ANSWERS:
        raise place.refuse(f"answer: expected {', '.join(ANSWERS)}, got {shown(value['answer'])}")
    return Task(
        text=text,
        spans=None if key is None else spans_from_json(value[key], text, key, place),
        tokens=_tokens(value.get("tokens"), text, place),
        missing=tuple(_range(part, len(text), "missing", place) for part in missing),
        has_unknown_spaces=value.get("has_unknown_spaces") is True,
        extra={name: given for name, given in value.items() if name not in known},
    )


def _span_key(value: Mapping[str, Any], place: Place) -> Optional[str]:
    """The key of the spans."""
    there = [key for key in SPAN_KEYS if value.get(key) is not None]
    lists = [key for key in there if isinstance(value[key], list)]
    filled = [key for key in lists if value[key]]
    if there and not lists:
        raise place.refuse(f"{there[0]}: expected a list of spans, got {shown(value[there[0]])}")
    if len(filled) > 1 and value[filled[0]] != value[filled[1]]:
        raise place.refuse(f"expected one list of spans, got {' and '.join(filled)}")
    return next(iter([*filled, *lists]), None)


def spans_from_json(values: List[Any], text: str, key: str, place: Place) -> List[TaskSpan]:
    """Read spans: [start, end, label], or objects with these keys.

    values (List[Any]): The spans.
    text (str): The text.
    key (str): The key of the spans, for error messages.
    place (Place): The line.
    RETURNS (List[TaskSpan]): The spans, one for each of their labels.
    RAISES (CorpusError): If something isn't a span of the text.
    """
    limit = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    spans = [span for value in values for span in _span(value, limit, key, place)]
    if limit > len(text):
        spans = in_code_points(text, spans)
        for span in spans:
            _range([span.start, span.end], len(text), key, place)
    return spans


def _span(value: Any, limit: int, key: str, place: Place) -> List[TaskSpan]:
    """A span; several where it has several labels."""
    extra: Mapping[str, Any] = NOTHING
    if isinstance(value, dict):
        start, end, label = (_first(value, keys) for keys in (START_KEYS, END_KEYS, LABEL_KEYS))
        used = {*START_KEYS, *END_KEYS, *LABEL_KEYS, *COMPUTED}
        extra = {name: given for name, given in value.items() if name not in used}
    elif isinstance(value, list) and len(value) == 3:
        start, end, label = value
    else:
        raise place.refuse(f"{key}: expected start, end and label of a span, got {shown(value)}")
    is_int = type(start) is int and type(end) is int
    if (
        is_int
        and type(label) is str
        and 0 <= start < end <= limit
        and not label.isspace()
        and label
    ):
        return [TaskSpan(start, end, label, extra)]
    labels = label if isinstance(label, list) else [label]
    if not labels or not all(isinstance(name, str) and name.strip() for name in labels):
        raise place.refuse(f"{key}: expected the label of a span, got {shown(value)}")
    start, end = _range([start, end], limit, key, place)
    return [TaskSpan(start, end, name, extra) for name in labels]


def _first(value: Mapping[str, Any], keys: Tuple[str, ...]) -> Any:
    return next((value[key] for key in keys if key in value), None)


def _range(value: Any, limit: int, key: str, place: Place) -> Range:
    """Two characters of a text, from and to."""
    if not isinstance(value, list) or [*map(type, value)] != [int, int]:
        raise place.refuse(f"{key}: expected two whole numbers, start and end, got {shown(value)}")
    start, end = value
    if not 0 <= start < end <= limit:
        raise place.refuse(
            f"{key}: expected a start before its end in a text of {limit} characters, got "
            f"{start} to {end}"
        )
    return start, end


def _tokens(value: Any, text: str, place: Place) -> Optional[List[TaskToken]]:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(token, dict) for token in value):
        raise place.refuse(f"tokens: expected objects with start and end, got {shown(value)}")
    bounds = [(token.get("start"), token.get("end")) for token in value]
    if not _are_words(bounds, text):
        _refuse_tokens(bounds, text, place)
    for (start, end), token in zip(bounds, value):
        if token.get("text", text[start:end]) != text[start:end]:
            raise place.refuse(
                f"tokens: expected {text[start:end]!r} at {start}, got {shown(token['text'])}"
            )
    return [TaskToken(*bound, token.get("sent_start")) for bound, token in zip(bounds, value)]


def _are_words(bounds: Sequence[Tuple[Any, Any]], text: str) -> bool:
    """Whether tokens are all words of a text, in order."""
    flat = [*chain.from_iterable(bounds)]
    if {*map(type, flat)} - {int} or flat != sorted(flat):
        return False
    if flat and (flat[0] < 0 or flat[-1] > len(text) or any(start == end for start, end in bounds)):
        return False
    words = "".join([text[start:end] for start, end in bounds])
    return "".join(words.split()) == "".join(text.split())


def _refuse_tokens(bounds: Sequence[Tuple[Any, Any]], text: str, place: Place) -> None:
    """Say which token is wrong."""
    before = 0
    for bound in [*bounds, (len(text), len(text) + 1)]:
        is_end = bound[1] == len(text) + 1
        start, end = bound if is_end else _range([*bound], len(text), "tokens", place)
        if start < before or text[before:start].strip():
            got = shown(text[before:start] if start >= before else text[start:end])
            raise place.refuse(f"tokens: expected all words of the text, once each, got {got}")
        before = end


def in_code_points(text: str, spans: List[TaskSpan]) -> List[TaskSpan]:
    """Convert offsets that count UTF-16 code units, as JavaScript does, if the texts of the spans
    say that they do.

    text (str): The text.
    spans (List[TaskSpan]): Its spans. Some have their own text in `extra`.
    RETURNS (List[TaskSpan]): The spans, by characters.
    """
    if all(has_its_text(text, span) for span in spans):
        return spans
    units = text.encode("utf-16-le", "surrogatepass")

    def count(n: int) -> int:
        return len(units[: 2 * n].decode("utf-16-le", "ignore"))

    converted = [span._replace(start=count(span.start), end=count(span.end)) for span in spans]
    return converted if all(has_its_text(text, span) for span in converted) else spans


def has_its_text(text: str, span: TaskSpan) -> bool:
    """Whether a span is where its own text is, if it has that."""
    own = span.extra.get("text")
    return not isinstance(own, str) or own.split() == text[span.start : span.end].split()
