"""Predicted entities and their probabilities, and writing them to docs."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress, repeat
from math import isnan
from operator import add
from typing import Any, NamedTuple

import numpy
from spacy.strings import get_string_id
from spacy.tokens import Doc, Span, SpanGroup
from spacy.vocab import Vocab
from thinc.types import Array1d, Floats1d, Floats2d, Ints1d

from ..decoding import FINEST, LEAST, DecodedSpans, Posterior, by_label
from ..metrics.shift import Counts
from ..ragged import first_tokens, sequence_ids
from ..spans import read_group, replace_spans, score_of, scored_attrs
from ..tags import Entities
from ..token_attrs import TokenAttrs, first_words
from ..validation import number

SOURCE = "cost_sensitive_ner"
"""In the attributes of our span groups, to find the scores of their spans."""

ALTERNATIVES = "alternatives"
GUARANTEED = "guaranteed"
"""What the spans of a group are, if not the predicted entities: "set" in its attributes."""

SMOOTHING = 0.05
"""How much the labels of an extent share their probability in the scores of guaranteed sets."""

Scored = tuple[Entities, Floats1d]
"""Spans, ordered by begin and end, and their probabilities."""


@dataclass(frozen=True)
class Confidence:
    """Where the probabilities of entities are written: see `make_confidence`."""

    spans_key: str = "confidence"
    extension: str = "confidence"
    alternatives: float | None = None

    def __post_init__(self) -> None:
        where = "spacy_costner.Confidence"
        for name, value in (("spans_key", self.spans_key), ("extension", self.extension)):
            if not value or not isinstance(value, str):
                raise ValueError(f"{where}: {name}: expected a name, got {value!r}")
        if self.alternatives is not None and not LEAST <= number(self.alternatives) <= 1:
            raise ValueError(
                f"{where}: alternatives: expected null or a probability from {LEAST} to 1, "
                f"got {self.alternatives!r}"
            )


def make_confidence(
    *,
    spans_key: str = "confidence",
    extension: str = "confidence",
    alternatives: float | None = None,
    second_choice: None = None,
) -> Confidence:
    """Build the settings of where the probabilities of entities are written.

        [components.ner.confidence]
        @misc = "spacy_costner.Confidence.v1"
        alternatives = 0.1

    spans_key (str): The key of the entities in `doc.spans`. Their probabilities are in the
        group's `attrs["scores"]`, as for spaCy's `spancat`.
    extension (str): The extension attribute of spans for it: `span._.confidence`.
    alternatives (float | None): If given, other entities with at least this probability are in
        `doc.spans`, under the same key with "_alternatives".
    second_choice (None): Not used: configs that 0.2 saved have it.
    RAISES (ValueError): If a name is empty, or a probability is out of its range.
    """
    return Confidence(spans_key, extension, alternatives)


def register(confidence: Confidence) -> None:
    """Register the extension attribute of spans, if no other extension has its name."""
    name = confidence.extension
    if not Span.has_extension(name):
        # Forced, as another thread that loads a pipeline may have registered it meanwhile.
        Span.set_extension(name, getter=confidence_of, force=True)
    elif Span.get_extension(name)[2] is not confidence_of:
        raise ValueError(
            "spacy_costner.Confidence: extension: expected a name that no other extension of "
            f"Span has, got {name!r}"
        )


def register_default() -> None:
    """Register the default extension for a component without probabilities, so that reading it says
    why there are none. An extension of that name stays."""
    name = Confidence.extension
    if not Span.has_extension(name):
        Span.set_extension(name, getter=confidence_of, force=True)


@cache
def warn_once(message: str) -> None:
    """Warn, once in a process."""
    warnings.warn(message, stacklevel=3)


def scored_groups(doc: Doc) -> list[SpanGroup]:
    """The groups of a doc that our components have written: the predicted entities first."""
    groups = [group for group in doc.spans.values() if group.attrs.get("source") == SOURCE]
    return sorted(groups, key=lambda group: "set" in group.attrs)


def prob_of(span: Span) -> float | None:
    """The probability of an entity, as a component has written it to the doc, found by its
    characters and label; None if there is none."""
    place = (span.start_char, span.end_char, span.label_)
    for group in scored_groups(span.doc):
        prob = score_of(group, place)
        if prob is not None:
            return prob
    return None


def confidence_of(span: Span) -> float | None:
    """The getter of `span._.confidence`: see `prob_of`. It says why a doc has no probabilities."""
    prob = prob_of(span)
    if prob is None and not scored_groups(span.doc):
        warn_once(
            "confidence: None, as the doc has no probabilities. A cost_sensitive_ner writes them "
            "if its config has the block [components.NAME.confidence] with @misc = "
            '"spacy_costner.Confidence.v1", or after `calibrate`. Copies by Doc.from_docs, as_doc '
            "and to_json don't have them"
        )
    return prob


def group_of_component(doc: Doc, key: str, name: str | None) -> SpanGroup | None:
    """The group of the predicted entities of a component, with this key or, if another component
    has written there, with the key of `free_key`. Without a name, whatever has this key."""
    if name is None:
        return doc.spans.get(key)
    for candidate in (f"{key}_{name}", key):
        group = doc.spans.get(candidate)
        if group is not None and group.attrs.get("component", name) == name:
            return group
    return None


def free_key(doc: Doc, key: str, name: str) -> str:
    """The key that a component writes to: this one or, if another component has written there
    before, with the name of the component."""
    if key not in doc.spans:
        return key
    group = doc.spans[key]
    if group.attrs.get("component", name) == name:
        return key
    warn_once(
        f"{name}: doc.spans[{key!r}] has the probabilities of {group.attrs['component']!r}: those "
        f"of {name!r} are in doc.spans[{key + '_' + name!r}]. For another key, set spans_key in "
        f"[components.{name}.confidence]"
    )
    return f"{key}_{name}"


class Prediction(NamedTuple):
    """The entities of a batch of docs.

    tokens (TokenAttrs): The tokens of the docs with preset annotation.
    labels (tuple[str, ...]): The names of all labels; those of the chain come first.
    others (Sequence[int]): The labels whose entities are left out, as indices.
    entities (Entities): The predicted entities, ordered, without white space at their ends and
        without those in preset tokens.
    probs (Floats1d | None): Their probabilities, if asked for. Shape: (E,)
    sets (dict[str, tuple[Scored, Iterable[bool]]]): Other spans, by `ALTERNATIVES` and
        `GUARANTEED`. Whether each doc has them. Shape: (B,)
    measures (tuple[Floats1d, Floats2d] | None): What the test for a shift takes: see `measure`.
    """

    tokens: TokenAttrs
    labels: tuple[str, ...]
    others: Sequence[int]
    entities: Entities
    probs: Floats1d | None = None
    sets: dict[str, tuple[Scored, Iterable[bool]]] = {}  # noqa: RUF012 (never changed)
    measures: tuple[Floats1d, Floats2d] | None = None


def make_prediction(
    decoded: DecodedSpans,
    posterior: Posterior,
    tokens: TokenAttrs,
    confidence: Confidence | None,
    guarantee: dict[str, Any] | None = None,
    groups: Sequence[str | None] = (),
    others: Sequence[int] = (),
    is_scored: bool = False,
    is_measured: bool = False,
) -> Prediction:
    """Compute the probabilities of decoded entities, if asked for or if there is a confidence; the
    guaranteed set of a promise by the group of each doc; and, if asked for, what the test for a
    shift takes. Entities of the other labels are left out."""
    preset = tokens.is_annotated
    has_preset = preset.any()
    n_preset = numpy.append(0, preset.cumsum()) if has_preset else None

    def is_free(entities: Entities) -> Array1d:
        """True for entities of our labels without preset tokens. Shape: (E,)"""
        is_free = numpy.ones(len(entities.label), dtype=bool)
        if n_preset is not None:
            is_free &= n_preset[entities.end] == n_preset[entities.begin]
        if len(others):
            is_free &= ~numpy.isin(entities.label, others)
        return is_free

    entities = decoded.entities.trim(tokens.is_space)
    if has_preset or len(others):
        entities = entities.select(is_free(entities))
    if confidence is None and not is_scored:
        return Prediction(tokens, decoded.labels, others, entities)
    probs = posterior.entity_probs(entities, decoded.covers)
    sets: dict[str, tuple[Scored, Iterable[bool]]] = {}
    if confidence is not None and confidence.alternatives is not None:
        likely, of_likely = posterior.likely_entities(confidence.alternatives)
        keep = is_new(likely, entities) & is_free(likely)
        sets[ALTERNATIVES] = (likely.select(keep), of_likely[keep]), repeat(True)
    if confidence is not None and guarantee is not None:
        spans, of_spans = guaranteed_set((entities, probs), posterior, guarantee, groups)
        keep, is_promised = is_free(spans), [group in guarantee["groups"] for group in groups]
        sets[GUARANTEED] = (spans.select(keep), of_spans[keep]), is_promised
    measures = measure(posterior, tokens, others) if is_measured else None
    return Prediction(tokens, decoded.labels, others, entities, probs, sets, measures)


def measure(
    posterior: Posterior, tokens: TokenAttrs, others: Sequence[int] = ()
) -> tuple[Floats1d, Floats2d]:
    """What the test for a shift takes of each doc: the entropy of the path for an expected entity,
    NaN if all its tokens are preset, (B,); and the expected number of entities of each label but
    the others, without presets, (B, labels).

        H / (1 + n),  H = log Z - E[s(y)],  n = sum_t p(y_t opens an entity)

    A model finds few entities in text that it doesn't know: for each token, H may even be less.
    `Posterior.entropy` has no rounding errors, and takes twenty times as long.
    """
    fb, tags, lengths = posterior.forward_backward, posterior.tags, tokens.lengths
    entropies = numpy.maximum(fb.log_partition()[0] - fb.expectation(posterior.potentials)[0], 0.0)
    totals = numpy.bincount(posterior.doc_of, entropies, minlength=len(lengths))
    opens = tags.opening & (tags.label_of == numpy.arange(len(tags.labels))[:, None])
    marginals, is_free = posterior.chain_marginals, ~tokens.is_annotated
    opened = opens.astype(marginals.dtype) @ marginals.T  # shape: (labels, N)
    if not is_free.all():
        opened *= is_free
    expected, is_scored = numpy.zeros((len(opens), len(lengths))), lengths > 0
    first = first_tokens(lengths)
    expected[:, is_scored] = numpy.add.reduceat(opened, first, axis=1)
    is_scored[is_scored] = numpy.logical_or.reduceat(is_free, first)
    scores = numpy.where(is_scored, totals, numpy.nan) / (1 + expected.sum(axis=0))
    return scores, numpy.delete(expected, others, axis=0).T


def add_measures(
    doc: Doc, key: str, name: str, labels: Sequence[str], counts: Counts
) -> list[float]:
    """Add what a component has measured of a doc, in its span group with this key, to the expected
    numbers of entities. Returns the score of the doc, or none if all its tokens are preset."""
    group = group_of_component(doc, key, name)
    if group is None or "entropy" not in group.attrs or group.attrs.get("scores") is None:
        raise ValueError(
            f"expected docs that the pipeline has predicted, got {first_words(doc)} without an "
            f"entropy in doc.spans[{key!r}].attrs and its scores: run nlp.pipe first"
        )
    attrs = group.attrs
    rows = [(span.label, (span.score, 1.0, 0.0)) for span in read_group(group)]
    rows += [(label, (0.0, 0.0, n)) for label, n in zip(labels, attrs["expected"].tolist())]
    for label, row in rows:
        counts[label] = [*map(add, counts.get(label, (0.0, 0.0, 0.0)), row)]
    return [] if isnan(attrs["entropy"]) else [attrs["entropy"]]


def group_of(doc: Doc, key: str | None) -> str | None:
    """The group of a doc, by a key of its `user_data`: None if it has none, "" without a key."""
    value = "" if key is None else doc.user_data.get(key)
    return None if value is None else str(value)


def guaranteed_set(
    predicted: Scored, posterior: Posterior, guarantee: dict[str, Any], groups: Sequence[Any]
) -> Scored:
    """The set of a promise: the spans whose score is at least the threshold of the group of their
    doc and, if a miss rate is promised, the predicted entities. Its spans may overlap."""
    entities, probs = predicted
    spans, scores = guarantee_scores(posterior, guarantee)
    terms, tags = guarantee["groups"], posterior.tags
    own = {group: by_label("threshold", tags, terms[group]) for group in terms}
    none = numpy.full(len(tags.labels), numpy.inf)
    at = numpy.asarray([none, *(own.get(group, none) for group in groups)])  # (1 + B, labels)
    doc = sequence_ids(posterior.doc_lengths)[spans.begin]
    chosen = scores >= at[1 + doc, spans.label]
    if guarantee["miss"] is None:
        spans = spans.select(chosen)
        return spans, posterior.entity_probs(spans)
    spans = spans.select(chosen & is_new(spans, entities))
    both = Entities(*map(numpy.concatenate, zip(entities, spans)))
    order = numpy.lexsort((both.end, both.begin))
    return both.select(order), numpy.append(probs, posterior.entity_probs(spans))[order]


def guarantee_scores(posterior: Posterior, terms: dict[str, Any]) -> tuple[Entities, Floats1d]:
    """Spans that may be in a guaranteed set, and the scores that are compared with thresholds.

        p(b, e, l)                                                            for false alarms
        ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))          if labels count
        sum_k p(b, e, k) / sqrt(max(1, n)), of the most probable label l      otherwise

    with S = `SMOOTHING`, as models confuse labels more than they think; and n, for a miss rate by
    doc, the expected number of entities in the doc, as missing one of many misses less of the doc.
    Any score is valid: these need fewer spans than p at the same miss rate. `terms` are "miss",
    "found", "by" and "per_label" of the promise. The spans, ordered by begin and end, are those
    with a probability of at least `FINEST` and, if labels count, their other labels. Shape: (S,)
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
    if terms["per_label"] or terms["found"] == "exact":
        scores = (1 - SMOOTHING) * table + SMOOTHING * total / table.shape[1]
    else:
        scores = total * (numpy.arange(table.shape[1]) == table.argmax(axis=1)[:, None])
    if terms["by"] == "doc":
        doc = sequence_ids(posterior.doc_lengths)[begin[is_first]]
        counted = table if terms["per_label"] else total
        n = numpy.zeros((len(posterior.doc_lengths), counted.shape[1]))
        numpy.add.at(n, doc, counted)
        scores = scores / numpy.sqrt(numpy.maximum(n, 1))[doc]
    extent, label = numpy.nonzero(scores >= FINEST / 10)
    first = numpy.flatnonzero(is_first)[extent]
    return Entities(begin[first], end[first], label), scores[extent, label]


def is_new(entities: Entities, known: Entities) -> Array1d:
    """True for entities that are not among the known ones. Shape: (E,)"""
    there = set(zip(*(column.tolist() for column in known)))
    new = [e not in there for e in zip(*(column.tolist() for column in entities))]
    return numpy.asarray(new, dtype=bool)


def annotate(
    docs: Sequence[Doc],
    prediction: Prediction,
    name: str,
    confidence: Confidence | None,
    spans_key: str | None = None,
) -> None:
    """Write the entities that a component of some name has predicted, and their probabilities if
    there is a confidence, to docs: as their entities or, if there is a key, among their spans."""
    lengths = prediction.tokens.lengths
    hashes = [get_string_id(label) for label in prediction.labels]
    add_labels(docs, prediction.labels)

    def by_doc(entities: Entities, probs: Floats1d | None) -> Iterator[tuple[Doc, Any]]:
        return zip(docs, spans_by_doc(docs, entities, hashes, lengths, probs))

    predicted = list(by_doc(prediction.entities, prediction.probs))
    if spans_key is not None:
        others = {*prediction.others}
        own_labels = [x for i, x in enumerate(prediction.labels) if i not in others]
        for doc, (spans, probs) in predicted:
            replace_spans(doc, spans_key, spans, probs, own_labels)
    elif not prediction.tokens.is_annotated.any():
        for doc, (spans, _) in predicted:
            doc.set_ents(spans)
    else:
        ends = numpy.cumsum(lengths).tolist()
        for (doc, (spans, _)), end in zip(predicted, ends):
            set_free_tokens(doc, spans, ~prediction.tokens.is_annotated[end - len(doc) : end])
    if confidence is None:
        return

    measured: Iterable[dict[str, Any]] = repeat({})
    if prediction.measures is not None:
        entropies, expected = prediction.measures
        rows = zip(entropies.tolist(), expected)
        measured = ({"entropy": entropy, "expected": n} for entropy, n in rows)
    source = {"source": SOURCE, "component": name}
    keys = [free_key(doc, confidence.spans_key, name) for doc in docs]
    for key, doc, (spans, scored), more in zip(keys, docs, with_attrs(predicted), measured):
        attrs = {**scored, **source, **more}
        doc.spans[key] = SpanGroup(doc, name=key, attrs=attrs, spans=spans)
    for set_name, (entities_and_probs, has_set) in prediction.sets.items():
        of_docs = zip(keys, docs, with_attrs(list(by_doc(*entities_and_probs))))
        for key, doc, (spans, scored) in compress(of_docs, has_set):
            attrs = {**scored, **source, "set": set_name}
            set_key = f"{key}_{set_name}"
            doc.spans[set_key] = SpanGroup(doc, name=set_key, attrs=attrs, spans=spans)


def with_attrs(predicted: Sequence[tuple[Doc, Any]]) -> Iterator[tuple[list[Span], dict[str, Any]]]:
    """The spans of each doc, and the attributes of their group."""
    scored = [spans_and_probs for _, spans_and_probs in predicted]
    return zip((spans for spans, _ in scored), scored_attrs(scored))


def add_labels(docs: Iterable[Doc], labels: Iterable[str]) -> None:
    """Add labels to the strings of docs, which may have another vocab than the component: a span
    needs its label there."""
    done: Vocab | None = None
    for doc in docs:
        if doc.vocab is not done:
            done = doc.vocab
            for label in labels:
                done.strings.add(label)


def set_free_tokens(doc: Doc, spans: list[Span], free: Array1d) -> None:
    """Set the entities of a doc, some of whose tokens may be preset. Those stay. `free`: True for
    the others, (T,), which are outside if no span has them."""
    if free.all():
        doc.set_ents(spans)
        return
    for span in spans:
        free[span.start : span.end] = False
    outside = [doc[i : i + 1] for i in numpy.flatnonzero(free).tolist()]
    doc.set_ents(spans, outside=outside, default="unmodified")


def spans_by_doc(
    docs: Iterable[Doc],
    entities: Entities,
    labels: Sequence[Any],
    lengths: Ints1d,
    probs: Floats1d | None = None,
) -> Iterator[tuple[list[Span], Floats1d | None]]:
    """The entities of each doc and their probabilities, (E,). Labels are names, or hashes, which
    are faster."""
    rows = list(zip(*(column.tolist() for column in entities)))
    ends = numpy.cumsum(lengths)
    lasts = numpy.searchsorted(entities.begin, ends).tolist()
    start, first = 0, 0
    for doc, end, last in zip(docs, ends.tolist(), lasts):
        spans = [Span(doc, b - start, e - start, label=labels[x]) for b, e, x in rows[first:last]]
        yield spans, None if probs is None else probs[first:last]
        start, first = end, last


class Hypothesis(NamedTuple):
    """One analysis of a doc: its entities, and the probability that they are exactly these, 0 for
    many long docs; and its logarithm."""

    ents: list[Span]
    prob: float
    log_probability: float
