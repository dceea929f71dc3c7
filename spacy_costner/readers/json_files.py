"""The values of a JSON or JSONL file, each with its line."""

import json
import re
from pathlib import Path
from typing import Any, Iterator, Tuple

from .files import Place, read_text, shown

Values = Iterator[Tuple[Place, Any]]

LINES = frozenset([".jsonl", ".ndjson"])
"""Suffixes of files with a value on each line."""

SPACE = re.compile(r"[ \t\n\r]*")
JSON_BEGIN = re.compile(r'\s*(\{\s*"|\[\s*(\[|\{|"))')


def read_values(path: Path) -> Tuple[str, Values]:
    """Read the values of a JSONL file, or the items of a JSON array, or values one after another.

    path (Path): The file.
    RETURNS (Tuple[str, Values]): "JSONL" or "JSON"; and the values, each with its line.
    RAISES (CorpusError): If something isn't JSON.
    """
    text = read_text(path)
    if path.suffix in LINES or _begins_with_record(text):
        return "JSONL", _lines(text, Place(path, 1))
    return "JSON", _items(text, Place(path, 1))


def looks_like_json(text: str) -> bool:
    """Whether a text begins as JSON does, and not with a token and its columns."""
    return JSON_BEGIN.match(text) is not None


def _begins_with_record(text: str) -> bool:
    """Whether the first line is a record, and not an array of them or the beginning of one."""
    try:
        first = json.loads(text.strip().partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) or (isinstance(first, list) and [*map(type, first[:1])] == [str])


def _lines(text: str, source: Place) -> Values:
    for i, line in enumerate(text.split("\n")):
        if line.strip():
            place = source._replace(number=i + 1)
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError) as error:
                message = getattr(error, "msg", type(error).__name__)
                column = getattr(error, "colno", 1)
                raise place.refuse(
                    f"expected JSON, got {shown(line[max(0, column - 10) :])}: {message}"
                ) from None


def _items(text: str, source: Place) -> Values:
    decoder, at, line = json.JSONDecoder(), _after_space(text, 0), 1
    in_array = text[at] == "["
    line += text.count("\n", 0, at)
    begin, at = at, at + in_array
    while True:
        at = _after_space(text, at)
        line, begin = line + text.count("\n", begin, at), at
        place = source._replace(number=line)
        if not in_array and at == len(text):
            return
        if in_array and text[at : at + 1] == "]":
            return _check_end(text, at + 1, place)
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            number, message = getattr(error, "lineno", line), getattr(error, "msg", str(error))
            here = getattr(error, "pos", at)
            raise place._replace(number=number).refuse(
                f"expected JSON, got {shown(text[here : here + 40])}: {message}"
            ) from None
        yield place, value
        at = _after_space(text, at)
        if in_array and text[at : at + 1] == ",":
            at += 1
        elif in_array and text[at : at + 1] != "]":
            line += text.count("\n", begin, at)
            got = shown(text[at : at + 40]) if at < len(text) else "the end of the file"
            raise place._replace(number=line).refuse(f"expected , or ] after an item, got {got}")


def _after_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _check_end(text: str, at: int, place: Place) -> None:
    rest = _after_space(text, at)
    if rest < len(text):
        line = place.number + text.count("\n", at, rest)
        got = shown(text[rest : rest + 40])
        raise place._replace(number=line).refuse(f"expected the end of the file, got {got}")
