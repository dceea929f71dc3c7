"""Extract the text around a mistake, and mark the entities in it."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from spacy.tokens import Doc, Span

from ...pipeline.scorers import Entity

MAX_TOKENS = 60
"""The maximum number of tokens in an excerpt. An excerpt is the sentence with the mistake, or a
part of the sentence if it is longer."""

MIN_TOKENS_AROUND = 10
"""The minimum number of tokens around a mistake, even if the mistake itself spans `MAX_TOKENS`
tokens."""


class Mark(NamedTuple):
    """A marked entity in a text.

    start (int): The offset of the first character of the entity in the text.
    end (int): The offset after the last character.
    label (str): The label.
    state (str): "correct", "error" (part of the mistake shown) or "other" (part of another
        mistake).
    prob (float | None): The probability of the entity, or None if unknown.
    """

    start: int
    end: int
    label: str
    state: str
    prob: float | None


def covering_span(sides: Iterable[Iterable[Entity]]) -> tuple[int, int]:
    """Return the smallest span that covers all entities.

    sides (Iterable[Iterable[Entity]]): Lists of entities, such as annotated and predicted entities.
    RETURNS (tuple[int, int]): The first token, and the token after the last.
    """
    begins, ends, _ = zip(*chain.from_iterable(sides))
    return min(begins), max(ends)


class Excerpt(NamedTuple):
    """The text around a mistake, with all entities in it, including entities of other mistakes.

    text (str): The text.
    annotated (list[Mark]): All annotated entities in the text.
    predicted (list[Mark]): All predicted entities in the text.
    """

    text: str
    annotated: list[Mark]
    predicted: list[Mark]


def excerpt(
    doc: Doc,
    sides: Sequence[Mapping[Entity, float | None]],
    mistake: Sequence[Sequence[Entity]],
    *,
    misaligned: Collection[Entity] = (),
) -> Excerpt:
    """Extract the text around a mistake, and mark the annotated and predicted entities in it.

    doc (Doc): The doc with the mistake.
    sides (Sequence[Mapping[Entity, float | None]]): All annotated and all predicted entities of the
        doc, with their probabilities.
    mistake (Sequence[Sequence[Entity]]): The annotated and the predicted entities of the mistake.
    misaligned (Collection[Entity]): The annotated entities that no predicted entity matches.
    RETURNS (Excerpt): The text and its entities.
    """
    mistake_begin, mistake_end = covering_span(mistake)
    begin, end = window(doc, mistake_begin, mistake_end)
    shown = doc[begin:end]
    # Add an ellipsis if the text doesn't begin or end at a sentence boundary.
    mark_before = "… " if begin > 0 and not doc[begin].is_sent_start else ""
    mark_after = " …" if end < len(doc) and not doc[end].is_sent_start else ""
    annotated, predicted = sides
    correct = annotated.keys() & predicted.keys() - misaligned
    annotated_mistake, predicted_mistake = mistake
    n_before = len(mark_before)
    return Excerpt(
        text=mark_before + shown.text + mark_after,
        annotated=mark_entities(shown, annotated, correct, annotated_mistake, n_before=n_before),
        predicted=mark_entities(shown, predicted, correct, predicted_mistake, n_before=n_before),
    )


def mark_entities(
    shown: Span,
    entities: Mapping[Entity, float | None],
    correct: Container[Entity],
    mistaken: Container[Entity],
    *,
    n_before: int,
) -> list[Mark]:
    """Mark the annotated or the predicted entities in the visible part of a doc. `n_before` is the
    number of characters that precede the visible part in the excerpt."""
    marks: list[Mark] = []
    for entity, prob in entities.items():
        begin, end, label = entity
        if end <= shown.start or shown.end <= begin:
            continue
        state = "other"  # part of another mistake in the same text
        if entity in correct:
            state = "correct"
        elif entity in mistaken:
            state = "error"
        visible = shown.doc[max(begin, shown.start) : min(end, shown.end)]
        start_char = n_before + visible.start_char - shown.start_char
        end_char = n_before + visible.end_char - shown.start_char
        marks.append(Mark(start_char, end_char, label, state, prob))
    return marks


def window(doc: Doc, begin: int, end: int) -> tuple[int, int]:
    """Choose the part of a doc to show around a span: its sentences or, if they are too long, a
    limited number of tokens on each side. If sentence boundaries aren't set, the doc is treated as
    a single sentence.

    doc (Doc): The doc.
    begin, end (int): The first token of the span, and the token after the last.
    RETURNS (tuple[int, int]): The first token to show, and the token after the last.
    """
    sentences_begin = 0
    sentences_end = len(doc)
    if doc.has_annotation("SENT_START"):
        sentences_begin = doc[begin].sent.start
        sentences_end = doc[end - 1].sent.end
    if sentences_end - sentences_begin <= MAX_TOKENS:
        return sentences_begin, sentences_end
    n_around = max(MAX_TOKENS - (end - begin), MIN_TOKENS_AROUND)
    n_on_each_side = n_around // 2
    return max(begin - n_on_each_side, sentences_begin), min(end + n_on_each_side, sentences_end)
