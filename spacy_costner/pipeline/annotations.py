"""Predicted entities and their probabilities, and writing them to docs.

`make_prediction` computes what is written, `annotate` writes it: entities to `doc.ents` or
`doc.spans`, and span groups with probabilities to `doc.spans`. A preset token was annotated before
the component ran, and stays as it is. Begin and end are tokens, counted over the batch.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import isnan
from typing import Any, NamedTuple

import numpy
from spacy.tokens import Doc, Span, SpanGroup
from spacy.vocab import Vocab
from thinc.types import Array1d, Floats1d, Floats2d, Ints1d

from ..decoding import FINEST, LEAST, DecodedSpans, Posterior, by_label
from ..metrics.shift import Counts
from ..spans import read_group, replace_spans, score_of, scored_attrs
from ..tags import Entities
from ..token_attrs import TokenAttrs, first_words
from ..validation import number
from .promises import Promise, Terms

SOURCE = "cost_sensitive_ner"
"""In the attributes of our span groups, to find the scores of their spans."""

ALTERNATIVES = "alternatives"
GUARANTEED = "guaranteed"
"""What the spans of a group are, if not the predicted entities: "set" in its attributes."""

SMOOTHING = 0.05
"""How much the labels of an extent share their probability in the scores of guaranteed sets."""

ScoredSpans = tuple[list[Span], Floats1d | None]
"""The spans of a doc, and their probabilities, if they have some."""


@dataclass(frozen=True)
class Confidence:
    """Where the probabilities of entities are written: see `make_confidence`."""

    spans_key: str = "confidence"
    extension: str = "confidence"
    alternatives: float | None = None

    def __post_init__(self) -> None:
        where = "spacy_costner.Confidence"
        names = {"spans_key": self.spans_key, "extension": self.extension}
        for setting, name in names.items():
            if not name or not isinstance(name, str):
                raise ValueError(f"{where}: {setting}: expected a name, got {name!r}")
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
    second_choice (None): Not used. spaCy wrote it to the config of pipelines when it had a use.
    RAISES (ValueError): If a name is empty, or a probability is out of its range.
    """
    return Confidence(spans_key, extension, alternatives)


def register(confidence: Confidence) -> None:
    """Register the extension attribute of spans, if no other extension has its name."""
    name = confidence.extension
    if not Span.has_extension(name):
        # Forced, as another thread that loads a pipeline may have registered it meanwhile.
        Span.set_extension(name, getter=confidence_of, force=True)
    elif Span.get_extension(name)[2] is not confidence_of:  # the third is the getter
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
    # Only alternatives and guaranteed sets have the attribute "set": False comes before True.
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
    """The group of the predicted entities of a component, which it wrote to the key of `free_key`:
    this one or, if another component had written there, one with its name. Without a name, whatever
    has this key."""
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


class SpanSet(NamedTuple):
    """Other spans of a batch of docs than the predicted entities.

    spans (Entities): The spans, ordered by begin and end. They may overlap.
    probs (Floats1d): Their probabilities. Shape: (S,)
    has_set (Sequence[bool]): Whether each doc has the set, which may be empty. Length: B
    """

    spans: Entities
    probs: Floats1d
    has_set: Sequence[bool]


class ShiftMeasures(NamedTuple):
    """What the test for a shift takes of each doc of a batch: see `measure`.

    entropies (Floats1d): The entropy of the path for an expected entity. Shape: (B,)
    expected_counts (Floats2d): The expected number of entities of each label that the component
        writes. Shape: (B, labels)
    """

    entropies: Floats1d
    expected_counts: Floats2d


class Prediction(NamedTuple):
    """The entities of a batch of docs.

    tokens (TokenAttrs): The tokens of the docs with preset annotation.
    labels (tuple[str, ...]): The names of all labels; those of the chain come first.
    other_labels (Sequence[int]): The labels whose entities are left out, as indices.
    entities (Entities): The predicted entities, ordered, without white space at their ends and
        without those in preset tokens.
    probs (Floats1d | None): Their probabilities, if asked for. Shape: (E,)
    sets (dict[str, SpanSet]): Other spans, by `ALTERNATIVES` and `GUARANTEED`.
    measures (ShiftMeasures | None): What the test for a shift takes, if asked for.
    """

    tokens: TokenAttrs
    labels: tuple[str, ...]
    other_labels: Sequence[int]
    entities: Entities
    probs: Floats1d | None = None
    sets: dict[str, SpanSet] = {}  # noqa: RUF012 (never changed)
    measures: ShiftMeasures | None = None


def make_prediction(
    decoded: DecodedSpans,
    posterior: Posterior,
    tokens: TokenAttrs,
    confidence: Confidence | None,
    *,
    promise: Promise | None = None,
    groups: Sequence[str | None] = (),
    other_labels: Sequence[int] = (),
    is_scored: bool = False,
    is_measured: bool = False,
) -> Prediction:
    """Leave out decoded entities that are preset or of other labels, and compute what is written
    beside the others.

    decoded (DecodedSpans): The entities, without white space at their ends.
    posterior (Posterior): The probabilities.
    tokens (TokenAttrs): The tokens with their presets.
    confidence (Confidence | None): What is written beside entities. None: nothing.
    promise (Promise | None): The promise of a guaranteed set, if there is one.
    groups (Sequence[str | None]): With a promise, the group of each doc. Shape: (B,)
    other_labels (Sequence[int]): The labels whose entities are left out, as indices.
    is_scored (bool): Whether entities have probabilities also without a confidence.
    is_measured (bool): Whether to compute what the test for a shift takes.
    RETURNS (Prediction): The prediction.
    """
    entities = decoded.entities
    if tokens.has_annotation or other_labels:
        entities = entities.select(is_free(entities, tokens, other_labels))
    if confidence is None and not is_scored:
        # Probabilities take longer than the best path, and nobody has asked for them.
        return Prediction(tokens, decoded.labels, other_labels, entities)
    probs = posterior.entity_probs(entities, decoded.covers)

    sets: dict[str, SpanSet] = {}
    if confidence is not None and confidence.alternatives is not None:
        spans, span_probs = posterior.likely_entities(confidence.alternatives)
        is_alternative = is_new(spans, entities) & is_free(spans, tokens, other_labels)
        sets[ALTERNATIVES] = SpanSet(
            spans.select(is_alternative),
            span_probs[is_alternative],
            has_set=[True] * len(tokens.lengths),
        )
    if confidence is not None and promise is not None:
        spans, span_probs = guaranteed_set(entities, probs, posterior, promise, groups)
        is_free_span = is_free(spans, tokens, other_labels)
        sets[GUARANTEED] = SpanSet(
            spans.select(is_free_span),
            span_probs[is_free_span],
            has_set=[group in promise.groups for group in groups],
        )

    measures = None
    if is_measured:
        measures = measure(posterior, tokens, other_labels)
    return Prediction(tokens, decoded.labels, other_labels, entities, probs, sets, measures)


def is_free(entities: Entities, tokens: TokenAttrs, other_labels: Sequence[int]) -> Array1d:
    """True for the entities that the component may write: those of its own labels without preset
    tokens. Shape: (E,)"""
    is_writable = numpy.ones(len(entities.label), dtype=bool)
    if tokens.has_annotation:
        # The number of preset tokens before each token, and in all. Shape: (N + 1,)
        n_preset_before = numpy.append(0, tokens.is_annotated.cumsum())
        # An entity without preset tokens has as many before its end as before its begin.
        is_writable &= n_preset_before[entities.end] == n_preset_before[entities.begin]
    if other_labels:
        is_writable &= ~numpy.isin(entities.label, other_labels)
    return is_writable


def measure(
    posterior: Posterior, tokens: TokenAttrs, other_labels: Sequence[int] = ()
) -> ShiftMeasures:
    """Measure how sure the model is of each doc, for the test for a shift. Preset tokens don't
    count. A doc that has no others has the entropy NaN.

        H / (1 + n),  H = log Z - E[s(y)],  n = sum_t p(y_t opens an entity)

    A model finds few entities in text that it doesn't know: for each token, H may even be less.
    `Posterior.entropy` has no rounding errors, and takes twenty times as long.
    """
    tags = posterior.tags
    log_partition, _ = posterior.forward_backward.log_partition()
    expected_score, _ = posterior.forward_backward.expectation(posterior.potentials)
    # Rounding may make the entropy of a sure sequence negative.
    entropies = numpy.maximum(log_partition - expected_score, 0.0)
    doc_entropies = numpy.bincount(posterior.doc_of, entropies, minlength=len(tokens.lengths))

    # The probability that a token opens an entity of each label. Shape: (N, labels)
    opening_probs = posterior.chain_marginals @ tags.opens_label
    n_free_tokens = tokens.lengths  # of each doc
    if tokens.has_annotation:
        opening_probs[tokens.is_annotated] = 0
        doc_of_free_token = posterior.doc_of_token[~tokens.is_annotated]
        n_free_tokens = numpy.bincount(doc_of_free_token, minlength=len(tokens.lengths))
    expected_counts = posterior.sum_by_doc(opening_probs)

    scores = doc_entropies / (1 + expected_counts.sum(axis=1))
    scores[n_free_tokens == 0] = numpy.nan
    if other_labels:
        expected_counts = numpy.delete(expected_counts, other_labels, axis=1)
    return ShiftMeasures(scores, expected_counts)


def add_measures(
    doc: Doc, key: str, name: str, labels: Sequence[str], counts: Counts
) -> list[float]:
    """Add what a component has measured of a doc to the expected numbers of entities.

    doc (Doc): A doc that the component has predicted.
    key (str): The key of the span group with its entities.
    name (str): The name of the component.
    labels (Sequence[str]): The labels that it writes.
    counts (Counts): The expected numbers, which are changed.
    RETURNS (list[float]): The score of the doc, or none if all its tokens are preset.
    RAISES (ValueError): If the doc has no such group.
    """
    group = group_of_component(doc, key, name)
    if group is None or "entropy" not in group.attrs or group.attrs.get("scores") is None:
        raise ValueError(
            f"expected docs that the pipeline has predicted, got {first_words(doc)} without an "
            f"entropy in doc.spans[{key!r}].attrs and its scores: run nlp.pipe first"
        )

    # The probability of a predicted entity is the number of correct ones that is expected of it.
    for span in read_group(group):
        _add_counts(counts, span.label, correct=span.score, predicted=1.0)
    for label, expected_number in zip(labels, group.attrs["expected"].tolist()):
        _add_counts(counts, label, annotated=expected_number)
    entropy = group.attrs["entropy"]
    if isnan(entropy):
        return []
    return [entropy]


def _add_counts(
    counts: Counts,
    label: str,
    *,
    correct: float = 0.0,
    predicted: float = 0.0,
    annotated: float = 0.0,
) -> None:
    """Add expected numbers of entities to those of their label."""
    n_correct, n_predicted, n_annotated = counts.get(label, (0.0, 0.0, 0.0))
    counts[label] = [n_correct + correct, n_predicted + predicted, n_annotated + annotated]


def group_of(doc: Doc, key: str | None) -> str | None:
    """The group of a doc, by a key of its `user_data`: None if it has none, "" without a key."""
    if key is None:
        return ""
    value = doc.user_data.get(key)
    if value is None:
        return None
    return str(value)


def guaranteed_set(
    entities: Entities,
    probs: Floats1d,
    posterior: Posterior,
    promise: Promise,
    groups: Sequence[str | None],
) -> tuple[Entities, Floats1d]:
    """The set of a promise: the spans whose score is at least the threshold of the group of their
    doc and, if a miss rate is promised, the predicted entities. Its spans may overlap.

    entities (Entities), probs (Floats1d): The predicted entities, and their probabilities.
        Shape: (E,)
    posterior (Posterior): The probabilities.
    promise (Promise): The promise, with the thresholds of each group.
    groups (Sequence[str | None]): The group of each doc. Shape: (B,)
    RETURNS (tuple[Entities, Floats1d]): The spans, ordered by begin and end, and their
        probabilities. Shape: (S,)
    """
    spans, scores = guarantee_scores(posterior, promise)
    tags = posterior.tags

    # Docs of other groups have no spans in the set. Shape: (B, labels)
    thresholds_of_doc = numpy.full((len(groups), len(tags.labels)), numpy.inf)
    for group, thresholds in promise.groups.items():
        settings = {"threshold": thresholds.threshold, "labels": thresholds.labels}
        docs_of_group = [i for i, group_of_doc in enumerate(groups) if group_of_doc == group]
        thresholds_of_doc[docs_of_group] = by_label("threshold", tags, settings)
    doc_of_span = posterior.doc_of_token[spans.begin]
    is_chosen = scores >= thresholds_of_doc[doc_of_span, spans.label]
    if not promise.limits_misses:
        spans = spans.select(is_chosen)
        return spans, posterior.entity_probs(spans)

    # More spans than predicted entities never miss more: the set has these, too.
    spans = spans.select(is_chosen & is_new(spans, entities))
    united = Entities(
        begin=numpy.append(entities.begin, spans.begin),
        end=numpy.append(entities.end, spans.end),
        label=numpy.append(entities.label, spans.label),
    )
    united_probs = numpy.append(probs, posterior.entity_probs(spans))
    order = numpy.lexsort((united.end, united.begin))  # by begin, and then by end
    return united.select(order), united_probs[order]


def guarantee_scores(posterior: Posterior, terms: Terms) -> tuple[Entities, Floats1d]:
    """Spans that may be in a guaranteed set, and the scores that are compared with thresholds.

        p(b, e, l)                                                            for false alarms
        ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))          if labels count
        sum_k p(b, e, k) / sqrt(max(1, n)), of the most probable label l      otherwise

    S is `SMOOTHING`: models confuse labels more than they think. n is the expected number of
    entities in the doc, if the miss rate is by doc: one of many entities is a smaller share of
    them. Otherwise it is left out. Any score is valid; these need fewer spans than p at the same
    miss rate.

    posterior (Posterior): The probabilities.
    terms (Terms): The terms of the promise.
    RETURNS (tuple[Entities, Floats1d]): The spans, ordered by begin and end, with a probability of
        at least `FINEST` and, if labels count, their other labels; and their scores. Shape: (S,)
    """
    spans, probs = posterior.likely_entities(FINEST, least=FINEST)
    if not terms.limits_misses or not len(probs):
        return spans, probs
    n_labels = len(posterior.tags.labels)
    extents = join_labels(spans, probs, n_labels)

    # The probability that an entity of any label has the extent, (X, 1); and the score of each
    # extent with each label, (X, labels).
    total_probs = extents.label_probs.sum(axis=1, keepdims=True)
    labels_count = terms.per_label or terms.found == "exact"
    if labels_count:
        smoothed_part = SMOOTHING * total_probs / n_labels
        scores = (1 - SMOOTHING) * extents.label_probs + smoothed_part
    else:
        best_label = extents.label_probs.argmax(axis=1)
        is_best_label = numpy.arange(n_labels) == best_label[:, None]
        scores = numpy.where(is_best_label, total_probs, 0.0)

    if terms.by == "doc":
        # n of each doc: for each label, (docs, labels), or for all together, (docs, 1).
        doc_of_extent = posterior.doc_of_token[extents.begin]
        counted_probs = total_probs
        if terms.per_label:
            counted_probs = extents.label_probs
        n_docs = doc_of_extent[-1] + 1  # up to the last one that has extents
        expected_numbers = numpy.zeros((n_docs, counted_probs.shape[1]))
        numpy.add.at(expected_numbers, doc_of_extent, counted_probs)
        divisors = numpy.sqrt(numpy.maximum(expected_numbers, 1))
        scores = scores / divisors[doc_of_extent]

    # A tenth of `FINEST`: the score of a span with this probability may be lower.
    extent, label = numpy.nonzero(scores >= FINEST / 10)
    candidates = Entities(extents.begin[extent], extents.end[extent], label)
    return candidates, scores[extent, label]


class Extents(NamedTuple):
    """Stretches of tokens that may be entities, whatever their label.

    begin (Ints1d): The first token of each. Shape: (X,)
    end (Ints1d): The token after its last. Shape: (X,)
    label_probs (Floats2d): The probability of an entity of each label there. Shape: (X, labels)
    """

    begin: Ints1d
    end: Ints1d
    label_probs: Floats2d


def join_labels(spans: Entities, probs: Floats1d, n_labels: int) -> Extents:
    """Join spans, at least one, to extents. Spans with the same begin and end differ in their label
    and have the same extent. They are ordered by begin and end. `probs` are their probabilities,
    (S,)."""
    begin, end, label = spans
    # Spans of one extent stand next to each other: a new one begins where begin or end changes.
    is_first = numpy.ones(len(begin), dtype=bool)
    is_first[1:] = (begin[1:] != begin[:-1]) | (end[1:] != end[:-1])
    # T F F T is 1 1 1 2: the number of extents up to each span. Extents are numbered from 0.
    extent_of_span = numpy.cumsum(is_first) - 1
    label_probs = numpy.zeros((int(is_first.sum()), n_labels))
    label_probs[extent_of_span, label] = probs
    return Extents(begin[is_first], end[is_first], label_probs)


def is_new(entities: Entities, predicted: Entities) -> Array1d:
    """True for entities that are not predicted anyway. Shape: (E,)"""
    predicted_tuples = set(_as_tuples(predicted))
    is_not_predicted = [entity not in predicted_tuples for entity in _as_tuples(entities)]
    return numpy.asarray(is_not_predicted, dtype=bool)


def _as_tuples(entities: Entities) -> list[tuple[int, int, int]]:
    """Begin, end and label of each entity."""
    begins = entities.begin.tolist()
    ends = entities.end.tolist()
    labels = entities.label.tolist()
    return list(zip(begins, ends, labels))


def annotate(
    docs: Sequence[Doc],
    prediction: Prediction,
    name: str,
    confidence: Confidence | None,
    spans_key: str | None = None,
) -> None:
    """Write predicted entities to docs, with their probabilities and other spans if there is a
    confidence.

    docs (Sequence[Doc]): The docs of the prediction.
    prediction (Prediction): What is written.
    name (str): The name of the component.
    confidence (Confidence | None): Where the probabilities are written.
    spans_key (str | None): The key of `doc.spans` of the entities. None: they are in `doc.ents`.
    """
    lengths = prediction.tokens.lengths
    label_hashes = add_labels(docs, prediction.labels)
    predicted = spans_by_doc(docs, prediction.entities, label_hashes, lengths, prediction.probs)
    if spans_key is None:
        spans_of_docs = [spans for spans, _ in predicted]
        write_entities(docs, spans_of_docs, prediction.tokens)
    else:
        own_labels: list[str] = []
        for i, label in enumerate(prediction.labels):
            if i not in prediction.other_labels:
                own_labels.append(label)
        for doc, (spans, probs) in zip(docs, predicted):
            replace_spans(doc, spans_key, spans, probs, own_labels)
    if confidence is None:
        return

    # The predicted entities with their probabilities, and what the test for a shift takes
    keys = [free_key(doc, confidence.spans_key, name) for doc in docs]
    source = {"source": SOURCE, "component": name}
    attrs_of_docs = [{**source, **measures} for measures in measures_by_doc(prediction)]
    write_groups(docs, keys, predicted, attrs_of_docs)

    # Alternatives and guaranteed sets: under the same key with their name
    for set_name, span_set in prediction.sets.items():
        spans_of_set = spans_by_doc(docs, span_set.spans, label_hashes, lengths, span_set.probs)
        keys_of_set: list[str | None] = []
        for key, has_set in zip(keys, span_set.has_set):
            keys_of_set.append(f"{key}_{set_name}" if has_set else None)
        set_attrs = {**source, "set": set_name}
        write_groups(docs, keys_of_set, spans_of_set, [set_attrs] * len(docs))


def write_groups(
    docs: Sequence[Doc],
    keys: Sequence[str | None],
    spans_of_docs: Sequence[ScoredSpans],
    attrs_of_docs: Sequence[dict[str, Any]],
) -> None:
    """Write the spans of each doc to a group under its key. The attributes of the group are these
    and, for each span, its probability, characters and label. A doc without a key gets none."""
    rows = zip(docs, keys, spans_of_docs, scored_attrs(spans_of_docs), attrs_of_docs)
    for doc, key, (spans, _), span_attrs, attrs in rows:
        if key is not None:
            doc.spans[key] = SpanGroup(doc, name=key, attrs={**span_attrs, **attrs}, spans=spans)


def measures_by_doc(prediction: Prediction) -> list[dict[str, Any]]:
    """What the test for a shift takes of each doc, as attributes of its group, which `add_measures`
    reads. Without measures there are none."""
    measures = prediction.measures
    if measures is None:
        return [{} for _ in prediction.tokens.lengths]
    attrs: list[dict[str, Any]] = []
    for entropy, counts_of_doc in zip(measures.entropies.tolist(), measures.expected_counts):
        attrs.append({"entropy": entropy, "expected": counts_of_doc})
    return attrs


def add_labels(docs: Iterable[Doc], labels: Sequence[str]) -> list[int]:
    """Add labels to the strings of docs, which may have another vocab than the component: a span
    needs its label there. Returns the hashes of the labels, which are the same in all vocabs."""
    hashes: list[int] = []
    last_vocab: Vocab | None = None
    for doc in docs:
        if doc.vocab is not last_vocab:
            last_vocab = doc.vocab
            hashes = [last_vocab.strings.add(label) for label in labels]
    return hashes


def write_entities(
    docs: Sequence[Doc], spans_of_docs: Sequence[list[Span]], tokens: TokenAttrs
) -> None:
    """Write entities to `doc.ents`. Preset tokens stay as they are."""
    if not tokens.has_annotation:
        for doc, spans in zip(docs, spans_of_docs):
            doc.set_ents(spans)
        return
    is_token_free = ~tokens.is_annotated  # of all tokens, (N,)
    begin = 0  # the first token of the doc
    for doc, spans in zip(docs, spans_of_docs):
        end = begin + len(doc)
        set_free_tokens(doc, spans, is_token_free[begin:end])
        begin = end


def set_free_tokens(doc: Doc, spans: list[Span], is_token_free: Array1d) -> None:
    """Set the entities of a doc, some of whose tokens may be preset. Those stay. `is_token_free`:
    True for the others, (T,), which are outside if no span has them."""
    if is_token_free.all():
        doc.set_ents(spans)
        return
    is_outside = is_token_free.copy()
    for span in spans:
        is_outside[span.start : span.end] = False
    # spaCy takes the tokens of O as spans of one token.
    outside = [doc[i : i + 1] for i in numpy.flatnonzero(is_outside).tolist()]
    doc.set_ents(spans, outside=outside, default="unmodified")


def spans_by_doc(
    docs: Iterable[Doc],
    entities: Entities,
    labels: Sequence[Any],
    lengths: Ints1d,
    probs: Floats1d | None = None,
) -> list[ScoredSpans]:
    """The entities of each doc as spans, to write them to the doc.

    docs (Iterable[Doc]): The docs.
    entities (Entities): Their entities, ordered, in the tokens of all docs. Shape: (E,)
    labels (Sequence[Any]): The names of labels, or their hashes, which are faster.
    lengths (Ints1d): The lengths of the docs. Shape: (B,)
    probs (Floats1d | None): The probabilities of the entities. Shape: (E,)
    RETURNS (list[ScoredSpans]): The spans of each doc, and their probabilities, if there are some.
    """
    entity_tuples = _as_tuples(entities)
    doc_ends = lengths.cumsum()
    # How many entities begin before each doc ends. Those of a doc are the ones from this number for
    # the doc before (`first`) to that for the doc itself (`stop`).
    stops = entities.begin.searchsorted(doc_ends).tolist()

    spans_of_docs: list[ScoredSpans] = []
    doc_start = 0  # in tokens
    first = 0
    for doc, doc_end, stop in zip(docs, doc_ends.tolist(), stops):
        spans = [
            Span(doc, begin - doc_start, end - doc_start, label=labels[label])
            for begin, end, label in entity_tuples[first:stop]
        ]
        doc_probs = None
        if probs is not None:
            doc_probs = probs[first:stop]
        spans_of_docs.append((spans, doc_probs))
        doc_start = doc_end
        first = stop
    return spans_of_docs


class Hypothesis(NamedTuple):
    """One analysis of a doc: its entities, and the probability that they are exactly these. Of many
    long docs it is so small that it is 0 as a float, but its logarithm isn't lost."""

    ents: list[Span]
    prob: float
    log_probability: float
