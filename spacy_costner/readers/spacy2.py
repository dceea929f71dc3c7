"""Read spaCy 2's JSON training data: documents, which contain paragraphs, sentences and tokens.

    [{"id": 0, "paragraphs": [{"raw": "Kim left", "sentences": [{"tokens": [
        {"orth": "Kim", "ner": "U-PER"}, {"orth": "left", "ner": "O"}]}]}]}]

Tags use the BILUO scheme, with "-" for missing annotation. Each paragraph becomes a doc.

TRAIN_DATA in spaCy's examples, [["Kim left", {"entities": [[0, 3, "PER"]]}]], is read as texts and
spans by `task_from_json`. This module only reads it if it is the value of "annotations" in an
object that also contains "classes".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .files import FilePlace, Values, shown
from .offsets import Range
from .tasks import AnnotatedTask, Task, TaskToken, join_words, spans_from_json, task_from_json

TAG = re.compile(r"([BILU])-(.+)", re.DOTALL)
MISSING_TAGS = (None, "", "-")


def is_spacy2(record: Any) -> bool:
    """Check whether the first record of a file is a spaCy 2 document."""
    return isinstance(record, dict) and isinstance(record.get("paragraphs"), list)


def read_spacy2(records: Values) -> Iterator[AnnotatedTask]:
    """Read the documents of a file.

    records (Values): The records of the file.
    YIELDS (AnnotatedTask): The paragraphs.
    RAISES (CorpusError): If a record isn't a spaCy 2 document, or its tags aren't valid BILUO tags.
    """
    for place, record in records:
        if not is_spacy2(record):
            raise place.refuse(f"expected a spaCy 2 document, got {shown(record)}")
        for paragraph in record["paragraphs"]:
            task = _read_paragraph(paragraph, place)
            yield AnnotatedTask(place, text_key=None, task=task)


def is_train_data(record: Any) -> bool:
    """Check whether the first record of a file contains TRAIN_DATA under "annotations", which is
    how some annotation tools export it."""
    if not isinstance(record, dict) or not isinstance(record.get("annotations"), list):
        return False
    return isinstance(record.get("classes"), list)


def read_train_data(records: Values) -> Iterator[AnnotatedTask]:
    """Read the texts and spans under "annotations". Skipped texts are null."""
    for place, record in records:
        if not is_train_data(record):
            raise place.refuse(f"expected classes and annotations, got {shown(record)}")
        for annotation in record["annotations"]:
            if annotation is not None:
                yield AnnotatedTask(place, None, task_from_json(annotation, place))


def _read_paragraph(paragraph: Any, place: FilePlace) -> Task:
    """Read the text, tokens, sentences and entities of a paragraph."""
    words: list[str] = []
    tags: list[str | None] = []
    begins_sentence: list[bool] = []
    for sentence in _read_list(paragraph, "sentences", place):
        for i, json_token in enumerate(_read_list(sentence, "tokens", place)):
            if not isinstance(json_token, dict) or not isinstance(json_token.get("orth"), str):
                raise place.refuse(f"tokens: expected tokens with 'orth', got {shown(json_token)}")
            words.append(json_token["orth"])
            tags.append(json_token.get("ner"))
            begins_sentence.append(i == 0)

    raw = paragraph.get("raw")
    if raw is None:
        text, tokens = join_words(words, "orth", place)
    else:
        text = raw
        tokens = _find_words(words, raw, place)
    tokens = [token._replace(sent_start=begins) for token, begins in zip(tokens, begins_sentence)]
    if all(tag in MISSING_TAGS for tag in tags):
        return Task(text, spans=None, tokens=tokens, has_unknown_spaces=raw is None)
    json_spans, missing = _read_tags(tags, tokens, place)
    spans = spans_from_json(json_spans, text, "ner", place)
    return Task(text, spans, tokens, tuple(missing), has_unknown_spaces=raw is None)


def _read_list(record: Any, key: str, place: FilePlace) -> list[Any]:
    """Return the list under a key of an object. Raises an error if there is no list."""
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, list):
        raise place.refuse(f"{key}: expected a list, got {shown(record)}")
    return value


def _find_words(words: Sequence[str], text: Any, place: FilePlace) -> list[TaskToken]:
    """Find the words of a text, in order. Raises an error if there is anything but whitespace
    between them."""
    if not isinstance(text, str):
        raise place.refuse(f"raw: expected a text, got {shown(text)}")
    tokens: list[TaskToken] = []
    end = 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or text[end:start].strip() or not word:
            got = shown(text[end : end + len(word) + 1])
            raise place.refuse(f"raw: expected the token {shown(word)}, got {got}")
        end = start + len(word)
        tokens.append(TaskToken(start, end, sent_start=None))
    if text[end:].strip():
        raise place.refuse(f"raw: expected the end of the text, got {shown(text[end:])}")
    return tokens


def _read_tags(
    tags: Sequence[Any], tokens: Sequence[TaskToken], place: FilePlace
) -> tuple[list[list[Any]], list[Range]]:
    """Decode the tags of tokens. Returns the entities as spans [start, end, label], and the ranges
    of characters that are missing annotation."""
    spans: list[list[Any]] = []
    missing: list[Range] = []
    continues = False  # whether the last span continues at the next token
    for tag, token in zip(tags, tokens):
        match = TAG.fullmatch(tag) if isinstance(tag, str) else None
        if match is None:
            if tag not in (*MISSING_TAGS, "O"):
                raise place.refuse(f"ner: expected a tag such as 'B-PER', O or -, got {shown(tag)}")
            if continues:
                raise place.refuse(f"ner: expected I- or L- after B- or I-, got {shown(tag)}")
            if tag != "O":
                missing.append((token.start, token.end))
            continue
        prefix, label = match.groups()
        is_inside = prefix in "IL"
        if continues:
            _, _, label_of_span = spans[-1]
            if not is_inside or label != label_of_span:
                expected = f"I- or L- and {label_of_span!r}"
                raise place.refuse(f"ner: expected {expected}, got {shown(tag)}")
            spans[-1][1] = token.end
        else:
            if is_inside:
                raise place.refuse(f"ner: expected O, B-, U- or -, got {shown(tag)}")
            spans.append([token.start, token.end, label])
        continues = prefix in "BI"
    if continues:
        raise place.refuse("ner: expected the end of the last entity, got the end of the tokens")
    return spans, missing
