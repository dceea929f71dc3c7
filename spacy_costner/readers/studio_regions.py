"""Read Label Studio's regions, which are annotated parts of a text.

A *result* is the JSON value of a region or of another answer to a task. The meaning of a region's
offsets depends on the kind of text:

text        start and end count characters
html        globalOffsets count characters of HTML: see `html_text`
dialogue    start and end count utterances; startOffset and endOffset count characters within them

In exports from older versions, offsets count UTF-16 code units instead of characters. The unit is
inferred from the text that a region quotes (`value.text`).

Source: `RichTextRegion.js` and `ParagraphsRegion.js` in Label Studio's editor.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from .files import FilePlace, shown
from .html_text import HtmlText, read_html
from .offsets import Range, range_in_characters, utf16_ends, utf16_length
from .tasks import TaskSpan, count_in_place, spans_from_json, split_words, words_of_quote

Kind = Literal["text", "html", "dialogue"]
"""The kind of a text: a string, a string of HTML, or a list of utterances."""

Result = Mapping[str, Any]
"""The JSON value of a result."""

REGION_TYPES = ("labels", "hypertextlabels", "htmllabels", "paragraphlabels")
"""The types of text regions. The labels of a region are stored under one of these keys, which may
differ from the type of the region."""

HTML_TYPES = ("hypertextlabels", "htmllabels")
"""The types that only HTML regions have. HTML regions may also have the type "labels"."""

UTTERANCE_NUMBER = re.compile(r"\d{1,9}")
"""Matches the number of an utterance, which is saved as a string."""


class StudioText(NamedTuple):
    """A text in a task.

    text (str): The text.
    html (HtmlText | None): Maps characters of the HTML to the text. None if the text isn't HTML.
    utterances (Sequence[str]): The utterances of a dialogue. Each is a line of the text. Empty if
        the text isn't a dialogue.
    """

    text: str
    html: HtmlText | None = None
    utterances: Sequence[str] = ()


def readings_of(value: Any, kind: Kind) -> list[str]:
    """List the ways in which a value can be read as a text of this kind, the most common one first.
    The list is empty if the value isn't a text of this kind.

    value (Any): The JSON value in the data of a task.
    kind (Kind): The kind of text.
    RETURNS (list[str]): For HTML, "page" (the default) and "inline" (for a part of a page): see
        `read_html`. For a dialogue, the keys under which all utterances have a string, such as
        "text" (which comes first) and "author". For a text, only "".
    """
    if kind == "dialogue":
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            return []
        keys: list[str] = []
        for key in value[0] if value else ():
            if all(isinstance(utterance.get(key), str) for utterance in value):
                keys.append(key)
        return sorted(keys, key=lambda key: key != "text")  # "text" comes first
    if not isinstance(value, str):
        return []
    return ["page", "inline"] if kind == "html" else [""]


def read_text(value: Any, kind: Kind, reading: str) -> StudioText:
    """Read a value in the data of a task as a text. `reading` must be one of the readings returned
    by `readings_of`."""
    if kind == "dialogue":
        utterances = [utterance[reading] for utterance in value]
        return StudioText("\n".join(utterances), utterances=utterances)
    if kind == "html":
        html = read_html(value, is_page=reading == "page")
        return StudioText(html.text, html=html)
    return StudioText(value)


def kind_of(result: Result) -> Kind | None:
    """Return the kind of text that a result marks, or None if the result isn't a text region."""
    if result.get("type", "labels") in REGION_TYPES:
        return kind_of_offsets(result)
    return None


def kind_of_offsets(result: Result) -> Kind | None:
    """Return the kind of text that the offsets of a result refer to. Returns None if there are no
    offsets, or if they are in seconds."""
    value = result.get("value")
    if not isinstance(value, dict):
        return None
    start = value.get("start")
    has_path = isinstance(start, str) and start.startswith("/") and "startOffset" in value
    if "globalOffsets" in value or has_path or result.get("type") in HTML_TYPES:
        return "html"
    if "startOffset" in value or result.get("type") == "paragraphlabels":
        return "dialogue"
    is_in_seconds = isinstance(start, float) or isinstance(value.get("end"), float)
    if ("start" in value or "end" in value) and not is_in_seconds:
        return "text"
    return None


def labels_of(result: Result) -> Any:
    """Return the unvalidated labels of a region, or None if it has no labels."""
    for key in REGION_TYPES:
        if key in result["value"]:
            return result["value"][key]
    return None


def element_of(result: Result) -> str | None:
    """Return the name of the element in the labeling interface that a result belongs to, or None if
    unknown."""
    name = result.get("to_name")
    return name if isinstance(name, str) else None


def read_spans(regions: Sequence[Result], text: StudioText, place: FilePlace) -> list[TaskSpan]:
    """Convert regions of a text to spans. A region with several labels becomes one span per label.

    regions (Sequence[Result]): The labeled regions of the text.
    text (StudioText): The text.
    place (FilePlace): The location of the task, for error messages.
    RETURNS (list[TaskSpan]): The spans, with character offsets in the text.
    RAISES (CorpusError): If a region isn't part of the text, or its labels are invalid.
    """
    values = [region["value"] for region in regions]
    counted_text = text.text  # the text that the offsets refer to
    if text.utterances:
        ranges: Sequence[Any] = _ranges_in_dialogue(values, text, place)
    elif text.html is not None:
        counted_text = text.html.content
        ranges = [_global_offsets(value) for value in values]
    else:
        ranges = [(value.get("start"), value.get("end")) for value in values]

    json_spans: list[Mapping[str, Any]] = []
    for region, (start, end) in zip(regions, ranges):
        labels = labels_of(region)
        json_spans.append({**region["value"], "start": start, "end": end, "labels": labels})
    spans = spans_from_json(json_spans, counted_text, "annotations", place)
    if text.html is None:
        return spans
    return [_move_to_text(span, text.html) for span in spans]


def _global_offsets(value: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the unvalidated start and end of an HTML region. Missing values are None."""
    offsets = value.get("globalOffsets")
    if not isinstance(offsets, dict):
        return None, None
    return offsets.get("start"), offsets.get("end")


def _move_to_text(span: TaskSpan, html: HtmlText) -> TaskSpan:
    """Convert a span in the content of HTML to a span in its text."""
    start, end = html.range_in_text(span.start, span.end)
    extra = dict(span.extra)
    # The browser may have added or removed whitespace between words.
    text = html.text[start:end]
    if "".join(words_of_quote(span)) == "".join(split_words(text)):
        extra["text"] = text
    return span._replace(start=start, end=end, extra=extra)


def _ranges_in_dialogue(
    values: Sequence[Mapping[str, Any]], text: StudioText, place: FilePlace
) -> list[Range]:
    """Convert the offsets of regions in a dialogue to character offsets in its text. Raises an
    error if a region isn't part of the dialogue."""
    places = [_places_in_dialogue(value, text.utterances, place) for value in values]
    # The offset of each utterance in the text, where utterances are separated by line breaks.
    lengths = [len(utterance) + 1 for utterance in text.utterances]
    begins = [0, *accumulate(lengths)]

    def to_character(place: tuple[int, int], *, in_units: bool) -> int:
        """Convert an utterance number and an offset in the utterance, which counts characters or
        code units, to a character offset."""
        utterance_number, offset = place
        utterance = text.utterances[utterance_number]
        if in_units:
            offset, _ = range_in_characters((offset, offset), utf16_ends(utterance))
        return begins[utterance_number] + min(offset, len(utterance))

    ranges: list[Range] = []
    for start, end in places:
        ranges.append((to_character(start, in_units=False), to_character(end, in_units=False)))
    if utf16_length(text.text) == len(text.text):
        return ranges
    converted_ranges: list[Range] = []
    for start, end in places:
        converted_ranges.append(
            (to_character(start, in_units=True), to_character(end, in_units=True))
        )

    def in_place(ranges: Sequence[Range]) -> tuple[int, int]:
        """Count the regions that match the text they quote: see `count_in_place`."""
        spans = [TaskSpan(*characters, "", value) for characters, value in zip(ranges, values)]
        return count_in_place(text.text, spans)

    return max(ranges, converted_ranges, key=in_place)  # in case of a tie, the original ranges


def _places_in_dialogue(
    value: Mapping[str, Any], utterances: Sequence[str], place: FilePlace
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Read the start and end of a region in a dialogue. Each consists of an utterance number and an
    offset in the utterance. Raises an error if they don't exist in the dialogue."""
    places: list[tuple[int, int]] = []
    for number_key, offset_key in (("start", "startOffset"), ("end", "endOffset")):
        number: Any = value.get(number_key)
        offset: Any = value.get(offset_key)
        if isinstance(number, str) and UTTERANCE_NUMBER.fullmatch(number):
            number = int(number)
        # `isinstance` can't be used because True is also an instance of int.
        is_utterance = type(number) is int and 0 <= number < len(utterances)
        is_offset = is_utterance and type(offset) is int
        if not is_offset or not 0 <= offset <= utf16_length(utterances[number]):
            dialogue = f"a dialogue of {len(utterances)} utterances"
            got = f"{shown(value.get(number_key))} and {shown(offset)}"
            message = f"expected {number_key} and {offset_key} in {dialogue}, got {got}"
            raise place.refuse(f"annotations: {message}")
        places.append((number, offset))
    return places[0], places[1]
