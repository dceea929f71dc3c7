"""From answers back to docs: their entities and, if asked for, how sure of them we are."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.strings import StringStore
from spacy.tokens import Doc, Span, SpanGroup
from thinc.types import Array1d, Floats1d

from .blocks import number
from .decode import LEAST, Answer, Beliefs
from .gold import MISSING, Tokens, trim
from .tags import Entities

SOURCE = "cost_sensitive_ner"
"""Stands in the attributes of our span groups, by which their spans find their scores."""


@dataclass(frozen=True)
class Confidence:
    """How sure the component is of its answers, and where that is written.

    spans_key (str): The key in `doc.spans` of the entities; their probabilities are its
        `attrs["scores"]`, as for spaCy's `spancat`.
    extension (str): The extension attribute of spans that tells it: `span._.confidence`.
    second_choice (Optional[float]): If given, entities that are not answered, but that are
        at least so probable, are in `doc.spans`, under the same key with "_second_choice".
    """

    spans_key: str = "confidence"
    extension: str = "confidence"
    second_choice: Optional[float] = None


def make_confidence(
    *,
    spans_key: str = "confidence",
    extension: str = "confidence",
    second_choice: Optional[float] = None,
) -> Confidence:
    """Build the settings: see `Confidence`.

    RAISES (ValueError): If a name is empty, or the floor is out of its range.
    """
    where = "spacy_costner.Confidence"
    for name, value in (("spans_key", spans_key), ("extension", extension)):
        if not value or not isinstance(value, str):
            raise ValueError(f"{where}: {name}: expected a name, was: {value!r}")
    if second_choice is not None and not LEAST <= number(second_choice) <= 1:
        raise ValueError(
            f"{where}: second_choice: expected null or a probability from {LEAST} to 1, "
            f"was: {second_choice!r}"
        )
    return Confidence(spans_key, extension, second_choice)


def register(confidence: Confidence) -> None:
    """Give spans their extension attribute, if they don't have it already.

    RAISES (ValueError): If something else has an attribute of that name.
    """
    name = confidence.extension
    if not Span.has_extension(name):
        # By force, as another thread that loads a pipeline may have come first.
        Span.set_extension(name, getter=confidence_of, force=True)
    elif Span.get_extension(name)[2] is not confidence_of:
        raise ValueError(
            "spacy_costner.Confidence: extension: expected a name that no other extension of "
            f"Span has, was: {name!r}"
        )


def confidence_of(span: Span) -> Optional[float]:
    """The probability of an entity, as a component wrote it to its doc.

    span (Span): The entity.
    RETURNS (Optional[float]): None if it was not written.
    """
    place = (span.start, span.end)
    for group in span.doc.spans.values():
        if group.attrs.get("source") != SOURCE:
            continue
        first = bisect_left(group, place, key=lambda other: (other.start, other.end))
        for i in range(first, len(group)):
            if (group[i].start, group[i].end) != place:
                break
            if group[i].label == span.label:
                return float(group.attrs["scores"][i])
    return None


class Rated(NamedTuple):
    """Entities of a batch, and how probable they are.

    entities (Entities): The entities, ordered by begin and end.
    labels (Tuple[str, ...]): What their labels are called.
    probs (Optional[Floats1d]): Their probabilities. Shape: (E,)
    """

    entities: Entities
    labels: Tuple[str, ...]
    probs: Optional[Floats1d] = None


NOTHING = Rated(Entities(*numpy.zeros((3, 0), dtype="int32")), (), numpy.zeros(0))
"""No entities."""


class Prediction(NamedTuple):
    """What docs are to be annotated with.

    tokens (Tokens): Their tokens, as they were annotated before.
    answer (Rated): The entities, none of them where something was annotated before.
    second_choice (Optional[Rated]): Others that are probable.
    """

    tokens: Tokens
    answer: Rated
    second_choice: Optional[Rated] = None


def rate(
    answer: Answer, beliefs: Beliefs, tokens: Tokens, confidence: Optional[Confidence]
) -> Prediction:
    """Make annotation of an answer.

    answer (Answer): The answer.
    beliefs (Beliefs): The probabilities.
    tokens (Tokens): The tokens of the docs.
    confidence (Optional[Confidence]): Whether and how to say how sure we are.
    RETURNS (Prediction): The entities that are new, without white space at their ends.
    """
    entities = _unset(trim(answer.entities, tokens.is_space), tokens)
    if confidence is None:
        return Prediction(tokens, Rated(entities, answer.labels))
    rated = Rated(entities, answer.labels, beliefs.entity_probs(entities, answer.covers))
    if confidence.second_choice is None:
        return Prediction(tokens, rated)
    others, probs = beliefs.likely_entities(confidence.second_choice)
    given = set(zip(*(column.tolist() for column in entities)))
    is_other = [e not in given for e in zip(*(column.tolist() for column in others))]
    other = numpy.asarray(is_other, dtype=bool) & _is_unset(others, tokens)
    second = Entities(*(column[other] for column in others))
    return Prediction(tokens, rated, Rated(second, beliefs.tags.labels, probs[other]))


def _unset(entities: Entities, tokens: Tokens) -> Entities:
    if not tokens.iob.any():
        return entities
    unset = _is_unset(entities, tokens)
    return Entities(*(column[unset] for column in entities))


def _is_unset(entities: Entities, tokens: Tokens) -> Array1d:
    """True for the entities none of whose tokens was annotated before. Shape: (E,)"""
    n_set = numpy.concatenate([[0], numpy.cumsum(tokens.iob != MISSING)])
    return n_set[entities.end] == n_set[entities.begin]


def annotate(
    docs: Sequence[Doc],
    prediction: Prediction,
    strings: StringStore,
    confidence: Optional[Confidence],
) -> None:
    """Write entities to docs. What was annotated before stays as it was.

    docs (Sequence[Doc]): The docs.
    prediction (Prediction): What to write.
    strings (StringStore): The strings of their vocabulary.
    confidence (Optional[Confidence]): Where to write probabilities.
    """
    tokens, answer, second_choice = prediction
    ends = numpy.cumsum(tokens.lengths).tolist()
    groups = _by_doc(docs, answer, tokens, strings)
    for doc, end, (spans, probs) in zip(docs, ends, groups):
        _set_ents(doc, spans, preset=tokens.iob[end - len(doc) : end] != MISSING)
        if confidence is not None:
            _set_group(doc, confidence.spans_key, spans, probs)
    if confidence is not None and confidence.second_choice is not None:
        assert second_choice is not None
        key = confidence.spans_key + "_second_choice"
        for doc, (spans, probs) in zip(docs, _by_doc(docs, second_choice, tokens, strings)):
            _set_group(doc, key, spans, probs)


class Reading(NamedTuple):
    """One way to read a doc.

    ents (List[Span]): Its entities.
    prob (float): How probable it is that just these are the entities.
    """

    ents: List[Span]
    prob: float


def readings(
    docs: Sequence[Doc], beliefs: Beliefs, tokens: Tokens, k: int, strings: StringStore
) -> List[List[Reading]]:
    """The most probable ways to read docs.

    docs (Sequence[Doc]): The docs.
    beliefs (Beliefs): The probabilities.
    tokens (Tokens): The tokens of the docs.
    k (int): How many, at least 1.
    strings (StringStore): The strings of their vocabulary.
    RETURNS (List[List[Reading]]): For each doc up to k readings, the most probable first.
    RAISES (ValueError): If k is less than 1.
    """
    tags, probs = beliefs.best_paths(k)
    found: List[List[Reading]] = [[] for _ in docs]
    for path, prob in zip(tags, probs):
        entities = trim(beliefs.tags.decode(path, tokens.lengths), tokens.is_space)
        by_doc = _by_doc(docs, Rated(entities, beliefs.tags.labels), tokens, strings)
        for of_doc, (spans, _), p in zip(found, by_doc, prob.tolist()):
            if p > 0:
                of_doc.append(Reading(spans, p))
    return found


def _by_doc(
    docs: Iterable[Doc], rated: Rated, tokens: Tokens, strings: StringStore
) -> Iterator[Tuple[List[Span], Optional[Floats1d]]]:
    """The entities of each doc and their probabilities."""
    labels = [strings.add(label) for label in rated.labels]
    entities = list(zip(*(column.tolist() for column in rated.entities)))
    ends = numpy.cumsum(tokens.lengths)
    lasts = numpy.searchsorted(rated.entities.begin, ends).tolist()
    start, first = 0, 0
    for doc, end, last in zip(docs, ends.tolist(), lasts):
        spans = [
            Span(doc, b - start, e - start, label=labels[x]) for b, e, x in entities[first:last]
        ]
        yield spans, None if rated.probs is None else rated.probs[first:last]
        start, first = end, last


def _set_group(doc: Doc, key: str, spans: List[Span], probs: Optional[Floats1d]) -> None:
    attrs = {"scores": probs, "source": SOURCE}
    doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=spans)


def _set_ents(doc: Doc, spans: List[Span], preset: Array1d) -> None:
    """Set the entities of a doc, and O elsewhere, where nothing was preset."""
    if not preset.any():
        doc.set_ents(spans)
        return
    free = ~preset
    for span in spans:
        free[span.start : span.end] = False
    outside = [doc[int(i) : int(i) + 1] for i in numpy.flatnonzero(free)]
    doc.set_ents(spans, outside=outside, default="unmodified")
