"""Read GLiNER's training data: JSON with words, and with entities as word indices and labels.

    {"tokenized_text": ["Kim", "left", "New", "York"], "ner": [[0, 0, "person"], [2, 3, "city"]]}

The second number is the index of the last word (inclusive). Entities may overlap.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .files import FilePlace, Values, shown
from .tasks import AnnotatedTask, Task, TaskSpan, TaskToken, join_words, spans_from_json

WORDS_KEY = "tokenized_text"
ENTITIES_KEY = "ner"


def is_gliner(record: Any) -> bool:
    """Check whether the first record of a file is a GLiNER example."""
    return isinstance(record, dict) and isinstance(record.get(WORDS_KEY), list)


def read_gliner(records: Values) -> Iterator[AnnotatedTask]:
    """Read the examples of a file.

    records (Values): The records of the file.
    YIELDS (AnnotatedTask): The examples. An example without a list of entities isn't annotated.
    RAISES (CorpusError): If a record isn't a GLiNER example.
    """
    for place, record in records:
        if not is_gliner(record):
            raise place.refuse(f"expected a GLiNER example, got {shown(record)}")
        text, tokens = join_words(record[WORDS_KEY], WORDS_KEY, place)
        entities = record.get(ENTITIES_KEY)
        if entities is not None and not isinstance(entities, list):
            raise place.refuse(
                f"{ENTITIES_KEY}: expected a list of entities, got {shown(entities)}"
            )
        spans: list[TaskSpan] | None = None
        if entities is not None:
            json_spans = [_entity_to_json(entity, tokens, place) for entity in entities]
            spans = spans_from_json(json_spans, text, ENTITIES_KEY, place)
        extra = {key: record[key] for key in record if key not in (WORDS_KEY, ENTITIES_KEY)}
        task = Task(text, spans, tokens, has_unknown_spaces=True, extra=extra)
        yield AnnotatedTask(place, text_key=None, task=task)


def _entity_to_json(entity: Any, tokens: Sequence[TaskToken], place: FilePlace) -> list[Any]:
    """Convert an entity to a span [start, end, label] in characters. The label isn't validated."""
    expected = f"{ENTITIES_KEY}: expected the first and last of {len(tokens)} words and a label"
    if not isinstance(entity, list) or len(entity) != 3:
        raise place.refuse(f"{expected}, got {shown(entity)}")
    first, last, label = entity
    # `isinstance` can't be used because True is also an instance of int.
    if type(first) is not int or type(last) is not int or not 0 <= first <= last < len(tokens):
        raise place.refuse(f"{expected}, got {shown(entity)}")
    return [tokens[first].start, tokens[last].end, label]
