"""Predicted entities and their probabilities, and writing them to docs."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.strings import StringStore
from spacy.tokens import Doc, Span, SpanGroup
from thinc.types import Array1d, Floats1d

from ..decoding import FINEST, LEAST, DecodedSpans, Posterior, of_labels
from ..tags import Entities
from ..training.token_attrs import TokenAttrs, trim
from ..validation import number, warn_of_old_name

SOURCE = "cost_sensitive_ner"
"""In the attributes of our span groups, to find the scores of their spans."""

SMOOTHING = 0.05
"""How much the labels of an extent share their probability in the scores of guaranteed sets."""


@dataclass(frozen=True)
class Confidence:
    """Where the probabilities of entities are written.

    spans_key (str): The key of the entities in `doc.spans`. Their probabilities are in the
        group's `attrs["scores"]`, as for spaCy's `spancat`.
    extension (str): The extension attribute of spans for it: `span._.confidence`.
    alternatives (Optional[float]): If given, other entities with at least this probability are in
        `doc.spans`, under the same key with "_alternatives".
    second_choice (Optional[float]): The old name of `alternatives`; the key then ends in
        "_second_choice".
    """

    spans_key: str = "confidence"
    extension: str = "confidence"
    alternatives: Optional[float] = None
    second_choice: Optional[float] = None

    @property
    def least(self) -> Optional[float]:
        """The minimum probability of an alternative; None for no alternatives."""
        return self.second_choice if self.alternatives is None else self.alternatives

    @property
    def alternatives_key(self) -> str:
        """The key in `doc.spans` of the alternatives."""
        name = "second_choice" if self.alternatives is None else "alternatives"
        return f"{self.spans_key}_{name}"

    @property
    def guaranteed_key(self) -> str:
        """The key in `doc.spans` of the guaranteed set."""
        return f"{self.spans_key}_guaranteed"


def make_confidence(
    *,
    spans_key: str = "confidence",
    extension: str = "confidence",
    alternatives: Optional[float] = None,
    second_choice: Optional[float] = None,
) -> Confidence:
    """Build the settings: see `Confidence`.

    RAISES (ValueError): If a name is empty, or a probability is out of its range.
    """
    if second_choice is not None:
        warn_of_old_name("spacy_costner.Confidence: second_choice", "alternatives")
    return checked(Confidence(spans_key, extension, alternatives, second_choice))


def checked(confidence: Confidence) -> Confidence:
    """Check settings.

    RETURNS (Confidence): The same settings.
    RAISES (ValueError): If a name is empty, or a probability is out of its range.
    """
    where = "spacy_costner.Confidence"
    for name in ("spans_key", "extension"):
        value = getattr(confidence, name)
        if not value or not isinstance(value, str):
            raise ValueError(f"{where}: {name}: expected a name, got {value!r}")
    for name in ("alternatives", "second_choice"):
        value = getattr(confidence, name)
        if value is not None and not LEAST <= number(value) <= 1:
            raise ValueError(
                f"{where}: {name}: expected null or a probability from {LEAST} to 1, got {value!r}"
            )
    return confidence


def register(confidence: Confidence) -> None:
    """Register the extension attribute of spans.

    RAISES (ValueError): If there is another extension attribute of that name.
    """
    name = confidence.extension
    if not Span.has_extension(name):
        # Forced, as another thread that loads a pipeline may have registered it meanwhile.
        Span.set_extension(name, getter=confidence_of, force=True)
    elif Span.get_extension(name)[2] is not confidence_of:
        raise ValueError(
            "spacy_costner.Confidence: extension: expected a name that no other extension of "
            f"Span has, got {name!r}"
        )


def confidence_of(span: Span) -> Optional[float]:
    """The probability of an entity, as a component has written it to the doc.

    span (Span): The entity.
    RETURNS (Optional[float]): None if there is none.
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


class ScoredSpans(NamedTuple):
    """Entities of a batch with their probabilities.

    entities (Entities): The entities, ordered by begin and end.
    labels (Tuple[str, ...]): The names of their labels.
    probs (Optional[Floats1d]): Their probabilities. Shape: (E,)
    """

    entities: Entities
    labels: Tuple[str, ...]
    probs: Optional[Floats1d] = None


NOTHING = ScoredSpans(Entities(*numpy.zeros((3, 0), dtype="int32")), (), numpy.zeros(0))
"""No entities."""


class Prediction(NamedTuple):
    """The prediction for a batch of docs.

    tokens (TokenAttrs): Their tokens with preset annotation.
    predicted (ScoredSpans): The predicted entities, without those in preset tokens.
    alternatives (Optional[ScoredSpans]): Other probable entities.
    guaranteed (Optional[ScoredSpans]): The guaranteed set.
    """

    tokens: TokenAttrs
    predicted: ScoredSpans
    alternatives: Optional[ScoredSpans] = None
    guaranteed: Optional[ScoredSpans] = None


def score_spans(
    decoded: DecodedSpans,
    posterior: Posterior,
    tokens: TokenAttrs,
    confidence: Optional[Confidence],
    guarantee: Optional[Dict[str, Any]] = None,
) -> Prediction:
    """Compute the probabilities of decoded entities.

    decoded (DecodedSpans): The entities.
    posterior (Posterior): The probabilities.
    tokens (TokenAttrs): The tokens of the docs.
    confidence (Optional[Confidence]): Which probabilities to compute; None: none.
    guarantee (Optional[Dict[str, Any]]): The promise of a set; None: there is no such set.
    RETURNS (Prediction): The entities without white space at their ends, and without those in
        preset tokens.
    """
    entities = _unset(trim(decoded.entities, tokens.is_space), tokens)
    if confidence is None:
        return Prediction(tokens, ScoredSpans(entities, decoded.labels))
    probs = posterior.entity_probs(entities, decoded.covers)
    predicted = ScoredSpans(entities, decoded.labels, probs)
    prediction = Prediction(tokens, predicted)
    if confidence.least is not None:
        others, probs = posterior.likely_entities(confidence.least)
        other = is_new(others, entities) & _is_unset(others, tokens)
        alternatives = _select(ScoredSpans(others, posterior.tags.labels, probs), other)
        prediction = prediction._replace(alternatives=alternatives)
    if guarantee is not None:
        found = guaranteed_set(predicted, posterior, guarantee)
        found = _select(found, _is_unset(found.entities, tokens))
        prediction = prediction._replace(guaranteed=found)
    return prediction


def guaranteed_set(
    predicted: ScoredSpans, posterior: Posterior, guarantee: Dict[str, Any]
) -> ScoredSpans:
    """The set that a promise is about: the spans with at least the threshold as score and, if a
    miss rate is promised, the predicted entities.

    predicted (ScoredSpans): The predicted entities.
    posterior (Posterior): The probabilities.
    guarantee (Dict[str, Any]): The promise, with its terms, "threshold" and "labels".
    RETURNS (ScoredSpans): The set, ordered by begin and end. Its spans may overlap.
    """
    spans, scores = span_scores(posterior, guarantee)
    chosen = scores >= of_labels("threshold", posterior.tags, guarantee)[spans.label]
    if guarantee["miss"] is not None:
        chosen &= is_new(spans, predicted.entities)
    spans = Entities(*(column[chosen] for column in spans))
    found = ScoredSpans(spans, predicted.labels, posterior.entity_probs(spans))
    if guarantee["miss"] is None:
        return found
    both = [numpy.concatenate(pair) for pair in zip(predicted.entities, found.entities)]
    order = numpy.lexsort((both[1], both[0]))
    assert predicted.probs is not None and found.probs is not None
    probs = numpy.concatenate([predicted.probs, found.probs])[order]
    # The labels that are predicted begin with those of the chain.
    return ScoredSpans(Entities(*(column[order] for column in both)), predicted.labels, probs)


def span_scores(posterior: Posterior, terms: Dict[str, Any]) -> Tuple[Entities, Floats1d]:
    """Spans that may be in a guaranteed set, and the scores that are compared with thresholds.

        p(b, e, l)                                                            for false alarms
        ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))          if labels count
        sum_k p(b, e, k) / sqrt(max(1, n)), of the most probable label l      otherwise

    with S = `SMOOTHING`, as models confuse labels more than they think; and n, for a miss rate by
    doc, the expected number of entities in the doc, as missing one of many misses less of the doc.
    Any score is valid: these need fewer spans than p at the same miss rate.

    posterior (Posterior): The probabilities.
    terms (Dict[str, Any]): "miss", "found", "by" and "per_label".
    RETURNS (Tuple[Entities, Floats1d]): The spans with a probability of at least `FINEST` and, if
        labels count, their other labels, ordered by begin and end; and their scores. Shape: (S,)
    """
    spans, probs = posterior.likely_entities(FINEST, least=FINEST)
    if terms["miss"] is None or not len(probs):
        return spans, probs
    begin, end, label = spans
    is_first = (numpy.diff(begin, prepend=-1) != 0) | (numpy.diff(end, prepend=-1) != 0)
    extent = numpy.cumsum(is_first) - 1
    table = numpy.zeros((int(extent[-1]) + 1, len(posterior.tags.labels)))
    table[extent, label] = probs
    total = table.sum(axis=1, keepdims=True)
    ends = numpy.cumsum(posterior.potentials.lengths)
    doc = numpy.searchsorted(ends, begin[is_first], side="right")
    if terms["per_label"] or terms["found"] == "exact":
        scores = (1 - SMOOTHING) * table + SMOOTHING * total / table.shape[1]
    else:
        scores = total * (numpy.arange(table.shape[1]) == table.argmax(axis=1)[:, None])
    if terms["by"] == "doc":
        n = numpy.zeros((len(ends), table.shape[1] if terms["per_label"] else 1))
        numpy.add.at(n, doc, table if terms["per_label"] else total)
        scores = scores / numpy.sqrt(numpy.maximum(n, 1))[doc]
    extent, label = numpy.nonzero(scores >= FINEST / 10)
    first = numpy.flatnonzero(is_first)[extent]
    return Entities(begin[first], end[first], label), scores[extent, label]


def is_new(entities: Entities, known: Entities) -> Array1d:
    """True for entities that are not among the known ones. Shape: (E,)"""
    there = set(zip(*(column.tolist() for column in known)))
    new = [e not in there for e in zip(*(column.tolist() for column in entities))]
    return numpy.asarray(new, dtype=bool)


def _select(spans: ScoredSpans, which: Array1d) -> ScoredSpans:
    assert spans.probs is not None
    entities = Entities(*(column[which] for column in spans.entities))
    return spans._replace(entities=entities, probs=spans.probs[which])


def _unset(entities: Entities, tokens: TokenAttrs) -> Entities:
    if not tokens.iob.any():
        return entities
    unset = _is_unset(entities, tokens)
    return Entities(*(column[unset] for column in entities))


def _is_unset(entities: Entities, tokens: TokenAttrs) -> Array1d:
    """True for entities without preset tokens. Shape: (E,)"""
    n_set = numpy.concatenate([[0], numpy.cumsum(tokens.is_annotated)])
    return n_set[entities.end] == n_set[entities.begin]


def annotate(
    docs: Sequence[Doc],
    prediction: Prediction,
    strings: StringStore,
    confidence: Optional[Confidence],
) -> None:
    """Write entities to docs. Preset annotation stays as it is.

    docs (Sequence[Doc]): The docs.
    prediction (Prediction): What to write.
    strings (StringStore): The strings of their vocabulary.
    confidence (Optional[Confidence]): Where to write probabilities.
    """
    tokens, predicted = prediction.tokens, prediction.predicted
    ends = numpy.cumsum(tokens.lengths).tolist()
    preset = tokens.is_annotated
    groups = _by_doc(docs, predicted, tokens, strings)
    for doc, end, (spans, probs) in zip(docs, ends, groups):
        _set_ents(doc, spans, preset=preset[end - len(doc) : end])
        if confidence is not None:
            _set_group(doc, confidence.spans_key, spans, probs)
    if confidence is None:
        return
    others = [(confidence.guaranteed_key, prediction.guaranteed)]
    if confidence.least is not None:
        others.append((confidence.alternatives_key, prediction.alternatives))
    for key, found in others:
        if found is not None:
            for doc, (spans, probs) in zip(docs, _by_doc(docs, found, tokens, strings)):
                _set_group(doc, key, spans, probs)


class Hypothesis(NamedTuple):
    """One analysis of a doc.

    ents (List[Span]): Its entities.
    prob (float): The probability that exactly these are the entities.
    """

    ents: List[Span]
    prob: float


def k_best(
    docs: Sequence[Doc], posterior: Posterior, tokens: TokenAttrs, k: int, strings: StringStore
) -> List[List[Hypothesis]]:
    """The k most probable analyses of docs.

    docs (Sequence[Doc]): The docs.
    posterior (Posterior): The probabilities.
    tokens (TokenAttrs): The tokens of the docs.
    k (int): The number of analyses, at least 1.
    strings (StringStore): The strings of their vocabulary.
    RETURNS (List[List[Hypothesis]]): For each doc up to k hypotheses, the most probable first.
    RAISES (ValueError): If k is less than 1.
    """
    (paths, probs), tags = posterior.best_paths(k), posterior.tags.collapsed
    found: List[List[Hypothesis]] = [[] for _ in docs]
    for path, prob in zip(paths, probs):
        entities = trim(tags.decode(path, tokens.lengths), tokens.is_space)
        by_doc = _by_doc(docs, ScoredSpans(entities, tags.labels), tokens, strings)
        for of_doc, (spans, _), p in zip(found, by_doc, prob.tolist()):
            if p > 0:
                of_doc.append(Hypothesis(spans, p))
    return found


def _by_doc(
    docs: Iterable[Doc], predicted: ScoredSpans, tokens: TokenAttrs, strings: StringStore
) -> Iterator[Tuple[List[Span], Optional[Floats1d]]]:
    """The entities of each doc and their probabilities."""
    labels = [strings.add(label) for label in predicted.labels]
    entities = list(zip(*(column.tolist() for column in predicted.entities)))
    ends = numpy.cumsum(tokens.lengths)
    lasts = numpy.searchsorted(predicted.entities.begin, ends).tolist()
    start, first = 0, 0
    for doc, end, last in zip(docs, ends.tolist(), lasts):
        spans = [
            Span(doc, b - start, e - start, label=labels[x]) for b, e, x in entities[first:last]
        ]
        yield spans, None if predicted.probs is None else predicted.probs[first:last]
        start, first = end, last


def _set_group(doc: Doc, key: str, spans: List[Span], probs: Optional[Floats1d]) -> None:
    attrs = {"scores": probs, "source": SOURCE}
    doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=spans)


def _set_ents(doc: Doc, spans: List[Span], preset: Array1d) -> None:
    """Set the entities of a doc. Other tokens become O unless they are preset."""
    if not preset.any():
        doc.set_ents(spans)
        return
    free = ~preset
    for span in spans:
        free[span.start : span.end] = False
    outside = [doc[int(i) : int(i) + 1] for i in numpy.flatnonzero(free)]
    doc.set_ents(spans, outside=outside, default="unmodified")
