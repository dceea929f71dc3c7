"""Predicted entities and their probabilities, and writing them to docs.

`make_prediction` computes what is written, `annotate_docs` writes it: entities to `doc.ents` or
`doc.spans`, and span groups with probabilities to `doc.spans`. A preset token was annotated before
the component ran, and stays as it is. A free token is not preset. Begin and end are tokens, counted
over the batch.

A *promise* says, for example, that the guaranteed set of a doc misses at most 5 % of its entities
(see `promises`). The spans of the set have to reach a threshold, which may differ between groups of
docs. The test for a shift compares new docs with calibration docs: see `metrics.shift`.

In shapes, B is the number of docs, N the number of their tokens, E the number of entities, S the
number of other spans.
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

from ..annotation.spans import read_group, replace_spans, score_of, scored_attrs
from ..annotation.tokens import TokenAttrs, first_words
from ..decoding import LEAST_PROB, LEAST_PROB_OF_SETS, DecodedSpans, Posterior, by_label
from ..metrics.shift import Counts
from ..tags import Entities
from ..validation import number
from .promises import Promise, Terms

SOURCE = "cost_sensitive_ner"
"""The attribute "source" of span groups that our components have written."""

ALTERNATIVES = "alternatives"
GUARANTEED = "guaranteed"
"""The attribute "set" of span groups with other spans than the predicted entities."""

SMOOTHING = 0.05
"""The share of the probability of an extent that is divided equally among all labels, in the scores
of guaranteed sets: see `guarantee_scores`."""

ScoredSpans = tuple[list[Span], Floats1d | None]
"""The spans of a doc, and their probabilities, if they have some."""


@dataclass(frozen=True)
class Confidence:
    """Where the probabilities of entities are written: see `make_confidence`."""

    spans_key: str = "confidence"
    extension: str = "confidence"
    alternatives: float | None = None

    def __post_init__(self) -> None:
        """Check the settings.

        RAISES (ValueError): If a name is missing, or the probability is out of its range.
        """
        where = "spacy_costner.Confidence"
        names = {"spans_key": self.spans_key, "extension": self.extension}
        for setting, name in names.items():
            if not name or not isinstance(name, str):
                raise ValueError(f"{where}: {setting}: expected a name, got {name!r}")
        # Less probable alternatives would be too many: see `LEAST_PROB`.
        if self.alternatives is not None and not LEAST_PROB <= number(self.alternatives) <= 1:
            raise ValueError(
                f"{where}: alternatives: expected null or a probability from {LEAST_PROB} to 1, "
                f"got {self.alternatives!r}"
            )


def make_confidence(
    *,
    spans_key: str = "confidence",
    extension: str = "confidence",
    alternatives: float | None = None,
    second_choice: float | None = None,
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
    second_choice (float | None): Always null, and without effect. The configs of pipelines that
        0.3.0 saved have it, so spaCy has to know it to load them.
    RAISES (ValueError): If a name is empty, a probability is out of its range, or `second_choice`
        is not null.
    """
    if second_choice is not None:
        raise ValueError(
            "spacy_costner.Confidence: second_choice: expected null, as this setting has no effect "
            f"any more, got {second_choice!r}: delete the line from [components.NAME.confidence]"
        )
    return Confidence(spans_key, extension, alternatives)


def register(confidence: Confidence) -> None:
    """Register the extension attribute of spans.

    RAISES (ValueError): If another extension has its name.
    """
    name = confidence.extension
    if not Span.has_extension(name):
        # `force`: another thread that loads a pipeline may have registered it meanwhile.
        Span.set_extension(name, getter=confidence_of, force=True)
        return
    _default, _method, getter, _setter = Span.get_extension(name)
    if getter is not confidence_of:
        raise ValueError(
            "spacy_costner.Confidence: extension: expected a name that no other extension of "
            f"Span has, got {name!r}: set another one in [components.NAME.confidence]"
        )


def register_default() -> None:
    """Register the default extension for a component that writes no probabilities, so that
    `span._.confidence` is None with a warning, instead of an error. If there is an extension of
    that name, it stays."""
    name = Confidence.extension
    if not Span.has_extension(name):  # for `force` see `register`
        Span.set_extension(name, getter=confidence_of, force=True)


@cache
def warn_once(message: str) -> None:
    """Warn, but only once in a process: the cache remembers which messages were shown."""
    warnings.warn(message, stacklevel=3)


def scored_groups(doc: Doc) -> list[SpanGroup]:
    """The span groups of a doc that our components have written. Groups of predicted entities
    precede those of alternatives and guaranteed sets."""
    groups = [group for group in doc.spans.values() if group.attrs.get("source") == SOURCE]
    # Groups of predicted entities have no attribute "set", and False is sorted before True.
    return sorted(groups, key=lambda group: "set" in group.attrs)


def prob_of(span: Span) -> float | None:
    """Look up the probability that a component has written for an entity. It is found by the
    characters and the label of the entity, so the tokens may have been merged or split since. None:
    the doc has no probability for it."""
    place = (span.start_char, span.end_char, span.label_)
    for group in scored_groups(span.doc):
        prob = score_of(group, place)
        if prob is not None:
            return prob
    return None


def confidence_of(span: Span) -> float | None:
    """The getter of `span._.confidence`: see `prob_of`. If the doc has no probabilities at all, it
    warns and says why."""
    prob = prob_of(span)
    if prob is None and not scored_groups(span.doc):
        warn_once(
            "confidence: None, as the doc has no probabilities. A cost_sensitive_ner writes them, "
            "unless its config has confidence = null instead of the block "
            '[components.NAME.confidence] with @misc = "spacy_costner.Confidence.v1". Copies by '
            "Doc.from_docs, as_doc and to_json don't have them"
        )
    return prob


def group_of_component(doc: Doc, key: str, name: str | None) -> SpanGroup | None:
    """Find the span group of the predicted entities of a component, which was written to the key
    that `free_key` has chosen.

    doc (Doc): The doc.
    key (str): The key of the component's confidence.
    name (str | None): The name of the component. None: the group under the key is taken, whichever
        component has written it.
    RETURNS (SpanGroup | None): The group, if there is one.
    """
    if name is None:
        return doc.spans.get(key)
    for possible_key in (f"{key}_{name}", key):
        group = doc.spans.get(possible_key)
        # A group without the attribute "component", such as one that a user has made, counts, too.
        if group is not None and group.attrs.get("component", name) == name:
            return group
    return None


def free_key(doc: Doc, key: str, name: str) -> str:
    """Choose the key that a component writes probabilities to: `key` or, if another component has
    written there before, `key` with the name of this component, and a warning. A group that no
    component has written, such as one that a user has made, is replaced."""
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
    """Spans of a batch of docs that are written next to the predicted entities: alternatives, or a
    guaranteed set.

    spans (Entities): The spans, ordered by begin and end. They may overlap.
    probs (Floats1d): Their probabilities. Shape: (S,)
    has_set (Sequence[bool]): Whether each doc has the set, which may be empty. Length: B
    """

    spans: Entities
    probs: Floats1d
    has_set: Sequence[bool]


class ShiftMeasures(NamedTuple):
    """What the test for a shift needs to know of each doc of a batch: see `measure`.

    entropies (Floats1d): The entropy of the path of each doc, divided by 1 + the expected number of
        its entities. NaN for a doc without free tokens. Shape: (B,)
    expected_counts (Floats2d): The expected number of entities of each label that the component
        writes. Shape: (B, labels)
    """

    entropies: Floats1d
    expected_counts: Floats2d


class Prediction(NamedTuple):
    """The entities of a batch of docs.

    tokens (TokenAttrs): The tokens of the docs, with their preset annotation.
    labels (tuple[str, ...]): The names of all labels. Those of the chain come first. Inner nodes of
        a label tree may follow.
    other_labels (Sequence[int]): The labels that the component doesn't write, as indices in
        `labels`.
    entities (Entities): The predicted entities, ordered, without those of other labels and those
        that include preset tokens. None begins or ends with white space.
    probs (Floats1d | None): Their probabilities, if asked for. Shape: (E,)
    sets (dict[str, SpanSet]): Other spans, by the keys `ALTERNATIVES` and `GUARANTEED`.
    measures (ShiftMeasures | None): What the test for a shift needs to know, if asked for.
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
    """Make the prediction of a batch: choose the decoded entities that the component may write, and
    compute their probabilities, alternatives and guaranteed sets, as far as they are asked for.

    decoded (DecodedSpans): The decoded entities, without white space at their ends.
    posterior (Posterior): The probabilities.
    tokens (TokenAttrs): The tokens with their preset annotation.
    confidence (Confidence | None): Which probabilities are written. None: none are.
    promise (Promise | None): The promise of a guaranteed set, if there is one.
    groups (Sequence[str | None]): If there is a promise, the group of each doc. Length: B
    other_labels (Sequence[int]): The labels whose entities are left out, as indices.
    is_scored (bool): Whether entities get probabilities even without a confidence.
    is_measured (bool): Whether to compute what the test for a shift needs. It is written next to
        the probabilities, and isn't computed without them.
    RETURNS (Prediction): The prediction.
    """
    entities = decoded.entities
    if tokens.has_annotation or other_labels:
        entities = entities.select(is_writable(entities, tokens, other_labels))
    if confidence is None and not is_scored:
        # Probabilities take longer than the best path, and nobody has asked for them.
        return Prediction(tokens, decoded.labels, other_labels, entities)
    # If labels may be inner nodes of a label tree, `covers` has the labels of the chain below each.
    probs = posterior.entity_probs(entities, decoded.covers)

    sets: dict[str, SpanSet] = {}
    if confidence is not None and confidence.alternatives is not None:
        # Every doc has a set of alternatives. The predicted entities are not in it.
        spans, span_probs = posterior.likely_entities(confidence.alternatives)
        is_alternative = ~spans.is_in(entities) & is_writable(spans, tokens, other_labels)
        sets[ALTERNATIVES] = SpanSet(
            spans.select(is_alternative),
            span_probs[is_alternative],
            has_set=[True] * len(tokens.lengths),
        )
    if confidence is not None and promise is not None:
        # Only docs of a group with a promise have a guaranteed set.
        spans, span_probs = guaranteed_set(entities, probs, posterior, promise, groups)
        is_writable_span = is_writable(spans, tokens, other_labels)
        sets[GUARANTEED] = SpanSet(
            spans.select(is_writable_span),
            span_probs[is_writable_span],
            has_set=[group in promise.groups for group in groups],
        )

    measures = None
    if is_measured:
        measures = measure(posterior, tokens, other_labels)
    return Prediction(tokens, decoded.labels, other_labels, entities, probs, sets, measures)


def is_writable(entities: Entities, tokens: TokenAttrs, other_labels: Sequence[int]) -> Array1d:
    """True for the entities that the component may write: those of its own labels that include no
    preset token. Shape: (E,)"""
    is_allowed = numpy.ones(len(entities.label), dtype=bool)
    if tokens.has_annotation:
        # The number of preset tokens before each token; at last, of all tokens. Shape: (N + 1,)
        n_preset_before = numpy.append(0, tokens.is_annotated.cumsum())
        # The number is the same at both ends of an entity that includes no preset token.
        is_allowed &= n_preset_before[entities.end] == n_preset_before[entities.begin]
    if other_labels:
        is_allowed &= ~numpy.isin(entities.label, other_labels)
    return is_allowed


def measure(
    posterior: Posterior, tokens: TokenAttrs, other_labels: Sequence[int] = ()
) -> ShiftMeasures:
    """Measure how unsure the model is of each doc, for the test for a shift.

    The measure is the entropy H of the path of the doc, divided by 1 + the expected number n of its
    entities:

        H / (1 + n),  H = log Z - E[s(y)],  n = sum_t p(y_t opens an entity)

    Here y is a path, which has the tag y_t at token t and the score s(y), and Z is the sum of
    exp(s(y)) over all paths.

    H is not divided by the number of tokens: in text that a model doesn't know it finds few
    entities, so that H for each token may even be lower. Preset tokens don't count. A doc in which
    all tokens are preset has the measure NaN.

    posterior (Posterior): The probabilities.
    tokens (TokenAttrs): The tokens with their preset annotation.
    other_labels (Sequence[int]): The labels that the component doesn't write, as indices.
    RETURNS (ShiftMeasures): The measures, and the expected numbers of entities.
    """
    tags = posterior.tags
    # The entropy of each sequence that docs are cut into. Preset tokens add nothing to it, as their
    # tags are fixed. Rounding may make the entropy of a sure sequence negative. `Posterior.entropy`
    # has no rounding errors, but takes twenty times as long.
    log_partition, _ = posterior.forward_backward.log_partition()
    expected_score, _ = posterior.forward_backward.expectation(posterior.potentials)
    entropies = numpy.maximum(log_partition - expected_score, 0.0)
    # The entropy of a doc is the sum over its sequences, which `bincount` adds up. Shape: (B,)
    doc_entropies = numpy.bincount(
        posterior.doc_of_sequence, entropies, minlength=len(tokens.lengths)
    )

    # The probability that a token opens an entity of each label. Shape: (N, labels)
    opening_probs = posterior.chain_marginals @ tags.opens_label
    n_free_tokens = tokens.lengths  # the number of tokens of each doc that are not preset, (B,)
    if tokens.has_annotation:
        opening_probs[tokens.is_annotated] = 0
        doc_of_free_token = posterior.doc_of_token[~tokens.is_annotated]
        n_free_tokens = numpy.bincount(doc_of_free_token, minlength=len(tokens.lengths))
    expected_counts = posterior.sum_by_doc(opening_probs)

    entropies_by_entity = doc_entropies / (1 + expected_counts.sum(axis=1))
    entropies_by_entity[n_free_tokens == 0] = numpy.nan
    if other_labels:
        expected_counts = numpy.delete(expected_counts, other_labels, axis=1)
    return ShiftMeasures(entropies_by_entity, expected_counts)


def add_measures(
    doc: Doc, key: str, name: str, labels: Sequence[str], counts: Counts
) -> float | None:
    """Read what a component has measured of a doc and written to its span group: see `measure`. The
    entropy is returned, and the expected numbers of entities are added to those of other docs.

    doc (Doc): A doc that the component has predicted.
    key (str): The key of the component's confidence.
    name (str): The name of the component.
    labels (Sequence[str]): The labels that the component writes.
    counts (Counts): The numbers of the docs before this one, by label. Those of the doc are added.
    RETURNS (float | None): The entropy of the doc, divided by 1 + the expected number of its
        entities. The test for a shift compares it. None if all tokens of the doc are preset.
    RAISES (ValueError): If the doc has no such group, or one without an entropy or scores.
    """
    group = group_of_component(doc, key, name)
    if group is None or "entropy" not in group.attrs or group.attrs.get("scores") is None:
        raise ValueError(
            f"expected docs that the pipeline has predicted, got {first_words(doc)} without an "
            f"entropy in doc.spans[{key!r}].attrs and its scores: run nlp.pipe first"
        )

    # A predicted entity with the probability .9 is expected to be .9 correct entities.
    for span in read_group(group):
        _add_counts(counts, span.label, correct=span.score, predicted=1.0)
    # The attribute has the expected number of annotated entities of each label.
    for label, expected_number in zip(labels, group.attrs["expected"].tolist()):
        _add_counts(counts, label, annotated=expected_number)
    entropy = group.attrs["entropy"]
    if isnan(entropy):
        return None
    return entropy


def _add_counts(
    counts: Counts,
    label: str,
    *,
    correct: float = 0.0,
    predicted: float = 0.0,
    annotated: float = 0.0,
) -> None:
    """Add the expected numbers of some entities to those of their label: how many of them are
    correct, predicted, and annotated."""
    n_correct, n_predicted, n_annotated = counts.get(label, (0.0, 0.0, 0.0))
    counts[label] = [n_correct + correct, n_predicted + predicted, n_annotated + annotated]


def group_of(doc: Doc, key: str | None) -> str | None:
    """The group of docs that a doc belongs to. A promise may have other thresholds for each group.

    doc (Doc): The doc.
    key (str | None): The key of `doc.user_data` whose value names the group. None: all docs are one
        group.
    RETURNS (str | None): The name of the group, which is "" if all docs are one group. None: the
        doc has no value for the key.
    """
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
    """Choose the spans of a guaranteed set. These are the spans whose score reaches the threshold
    of their label in their doc's group. If the promise limits misses, the predicted entities are in
    the set, too. Spans of the set may overlap.

    entities (Entities): The predicted entities. Shape: (E,)
    probs (Floats1d): Their probabilities. Shape: (E,)
    posterior (Posterior): The probabilities.
    promise (Promise): The promise, with the thresholds of each group.
    groups (Sequence[str | None]): The group of each doc. Length: B
    RETURNS (tuple[Entities, Floats1d]): The spans, ordered by begin and end, and their
        probabilities. Shape: (S,)
    """
    spans, scores = guarantee_scores(posterior, terms=promise)
    tags = posterior.tags

    # The threshold of each label in each doc. In docs of a group without a promise it is infinite,
    # so that they have no spans in the set. Shape: (B, labels)
    thresholds_of_doc = numpy.full((len(groups), len(tags.labels)), numpy.inf)
    for group, thresholds in promise.groups.items():
        # `by_label` takes thresholds in the form of the settings of a decoding, and returns one for
        # each label: the row of each doc of the group.
        settings = {"threshold": thresholds.threshold, "labels": thresholds.labels}
        docs_of_group = [i for i, group_of_doc in enumerate(groups) if group_of_doc == group]
        thresholds_of_doc[docs_of_group] = by_label("threshold", tags, settings)
    doc_of_span = posterior.doc_of_token[spans.begin]
    is_chosen = scores >= thresholds_of_doc[doc_of_span, spans.label]
    if not promise.limits_misses:
        spans = spans.select(is_chosen)
        return spans, posterior.entity_probs(spans)

    # A larger set never misses more, so the predicted entities can be added to it.
    spans = spans.select(is_chosen & ~spans.is_in(entities))
    united = Entities(
        begin=numpy.append(entities.begin, spans.begin),
        end=numpy.append(entities.end, spans.end),
        label=numpy.append(entities.label, spans.label),
    )
    united_probs = numpy.append(probs, posterior.entity_probs(spans))
    order = numpy.lexsort((united.end, united.begin))  # by begin, and then by end
    return united.select(order), united_probs[order]


def guarantee_scores(posterior: Posterior, terms: Terms) -> tuple[Entities, Floats1d]:
    """Find the spans that may be in a guaranteed set, and their scores, which are compared with the
    thresholds of the set. With p(b, e, l), the probability of an entity with begin b, end e and
    label l, the score of a span is

        p(b, e, l)                                                     if false alarms are limited
        ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))   if misses are, by label
        sum_k p(b, e, k) / sqrt(max(1, n))                             if misses are, of any label

    The limit is by label if each label has a promise, or an entity counts as found only with its
    label. In the last case only the most probable label l has this score. S is `SMOOTHING`: a model
    confuses labels more often than its probabilities say. n is the expected number of entities in
    the doc, or of those with the label if each label has a promise: if many entities are expected,
    one of them is a small share. If the miss rate is not one by doc, n is left out.

    The promise holds with any score. With these scores, fewer spans reach the threshold for the
    same miss rate than with p alone.

    posterior (Posterior): The probabilities.
    terms (Terms): The terms of the promise.
    RETURNS (tuple[Entities, Floats1d]): The spans, ordered by begin and end, and their scores. The
        spans have a probability of at least `LEAST_PROB_OF_SETS`. If the limit is by label, the
        same tokens are there with other labels, too. Shape of the scores: (number of spans,)
    """
    # Without `least`, this probability would be raised to the least one of alternatives.
    spans, probs = posterior.likely_entities(LEAST_PROB_OF_SETS, least=LEAST_PROB_OF_SETS)
    if not terms.limits_misses or not len(probs):
        return spans, probs
    n_labels = len(posterior.tags.labels)
    extents = join_labels(spans, probs, n_labels)

    # The probability of each of X extents that it is an entity of any label. Shape: (X, 1)
    total_probs = extents.label_probs.sum(axis=1, keepdims=True)
    # The score of each extent with each label. Shape: (X, labels)
    is_by_label = terms.per_label or terms.found == "exact"
    if is_by_label:
        smoothed_part = SMOOTHING * total_probs / n_labels
        scores = (1 - SMOOTHING) * extents.label_probs + smoothed_part
    else:
        best_label = extents.label_probs.argmax(axis=1)
        is_best_label = numpy.arange(n_labels) == best_label[:, None]
        scores = numpy.where(is_best_label, total_probs, 0.0)

    if terms.by == "doc":
        # The probabilities that are summed to n: of each label, or of all labels together.
        counted_probs = extents.label_probs if terms.per_label else total_probs
        n = _expected_numbers(posterior.doc_of_token[extents.begin], counted_probs)
        scores = scores / numpy.sqrt(numpy.maximum(n, 1))

    # `LEAST_PROB_OF_SETS` limits probabilities. Scores are lower, as they are divided by a square
    # root, which is 10 for 100 expected entities. Scores below a tenth of the limit are left out,
    # such as those of labels that have only the smoothed part.
    extent, label = numpy.nonzero(scores >= LEAST_PROB_OF_SETS / 10)
    candidates = Entities(extents.begin[extent], extents.end[extent], label)
    return candidates, scores[extent, label]


def _expected_numbers(doc_of_extent: Ints1d, probs: Floats2d) -> Floats2d:
    """The expected number of entities in the doc of each extent.

    doc_of_extent (Ints1d): The doc of each extent, ascending. There is at least one. Shape: (X,)
    probs (Floats2d): The probability that each extent is an entity, in a column for each label, or
        in one column for all labels. Shape: (X, number of columns)
    RETURNS (Floats2d): The numbers, for each column. Shape: (X, number of columns)
    """
    n_docs = doc_of_extent[-1] + 1  # the docs up to the last one that has extents
    numbers_of_docs = numpy.zeros((n_docs, probs.shape[1]))
    numpy.add.at(numbers_of_docs, doc_of_extent, probs)
    return numbers_of_docs[doc_of_extent]


class Extents(NamedTuple):
    """Extents: stretches of tokens that may be entities with any label.

    begin (Ints1d): The first token of each extent. Shape: (X,)
    end (Ints1d): The token after the last one of each extent. Shape: (X,)
    label_probs (Floats2d): The probability of an entity of each label there. Shape: (X, labels)
    """

    begin: Ints1d
    end: Ints1d
    label_probs: Floats2d


def join_labels(spans: Entities, probs: Floats1d, n_labels: int) -> Extents:
    """Join spans that have the same begin and end, and differ in their label, to extents.

    spans (Entities): At least one span. They are ordered by begin and end. Shape: (S,)
    probs (Floats1d): Their probabilities. Shape: (S,)
    n_labels (int): The number of labels.
    RETURNS (Extents): The extents, in the same order.
    """
    begin, end, label = spans
    # Spans of one extent stand next to each other: a new one begins where begin or end changes.
    is_first = numpy.ones(len(begin), dtype=bool)
    is_first[1:] = (begin[1:] != begin[:-1]) | (end[1:] != end[:-1])
    # The extent of each span, numbered from 0: True, False, False, True becomes 0, 0, 0, 1.
    extent_of_span = numpy.cumsum(is_first) - 1
    label_probs = numpy.zeros((int(is_first.sum()), n_labels))
    label_probs[extent_of_span, label] = probs
    return Extents(begin[is_first], end[is_first], label_probs)


def annotate_docs(
    docs: Sequence[Doc],
    prediction: Prediction,
    name: str,
    confidence: Confidence | None,
    spans_key: str | None = None,
) -> None:
    """Write predicted entities to docs. If there is a confidence, write their probabilities, the
    alternatives and the guaranteed sets as well.

    docs (Sequence[Doc]): The docs of the prediction.
    prediction (Prediction): What is written.
    name (str): The name of the component.
    confidence (Confidence | None): Where the probabilities are written. None: nowhere.
    spans_key (str | None): The key of `doc.spans` for the entities. None: they are written to
        `doc.ents`.
    """
    lengths = prediction.tokens.lengths
    label_hashes = add_labels(docs, prediction.labels)
    predicted = spans_by_doc(docs, prediction.entities, label_hashes, lengths, prediction.probs)
    if spans_key is None:
        spans_of_docs = [spans for spans, _ in predicted]
        write_entities(docs, spans_of_docs, prediction.tokens)
    else:
        # Spans with labels of other components stay in the group.
        own_labels: list[str] = []
        for i, label in enumerate(prediction.labels):
            if i not in prediction.other_labels:
                own_labels.append(label)
        for doc, (spans, probs) in zip(docs, predicted):
            replace_spans(doc, spans_key, spans, probs, own_labels)
    if confidence is None:
        return

    # The group of the predicted entities has their probabilities and the measures for the test for
    # a shift.
    keys = [free_key(doc, confidence.spans_key, name) for doc in docs]
    source = {"source": SOURCE, "component": name}
    attrs_of_docs = [{**source, **measures} for measures in measures_by_doc(prediction)]
    write_groups(docs, keys, predicted, attrs_of_docs)

    # The groups of alternatives and guaranteed sets have the same key with the name of the set
    # after it.
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
    """Write a span group to each doc. Beside the attributes given here, a group has the
    probability, the characters and the label of each of its spans: see `scored_attrs`.

    docs (Sequence[Doc]): The docs.
    keys (Sequence[str | None]): The key of the group in `doc.spans`. None: the doc gets no group.
    spans_of_docs (Sequence[ScoredSpans]): The spans of each doc.
    attrs_of_docs (Sequence[dict[str, Any]]): The attributes of the group of each doc.
    """
    rows = zip(docs, keys, spans_of_docs, scored_attrs(spans_of_docs), attrs_of_docs)
    for doc, key, (spans, _), span_attrs, attrs in rows:
        if key is not None:
            doc.spans[key] = SpanGroup(doc, name=key, attrs={**span_attrs, **attrs}, spans=spans)


def measures_by_doc(prediction: Prediction) -> list[dict[str, Any]]:
    """The measures of each doc for the test for a shift, as attributes of its span group, where
    `add_measures` reads them. If the prediction has no measures, the attributes are empty."""
    measures = prediction.measures
    if measures is None:
        return [{} for _ in prediction.tokens.lengths]
    attrs: list[dict[str, Any]] = []
    for entropy, counts_of_doc in zip(measures.entropies.tolist(), measures.expected_counts):
        attrs.append({"entropy": entropy, "expected": counts_of_doc})
    return attrs


def add_labels(docs: Iterable[Doc], labels: Sequence[str]) -> list[int]:
    """Add labels to the string stores of docs, where spaCy looks for the label of a span. The docs
    may have another vocab than the component.

    RETURNS (list[int]): The hashes of the labels, which are the same in all vocabs.
    """
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
    """Write entities to `doc.ents`. Preset tokens stay as they are.

    docs (Sequence[Doc]): The docs.
    spans_of_docs (Sequence[list[Span]]): The entities of each doc, none of which includes a preset
        token.
    tokens (TokenAttrs): The tokens of all docs, with their preset annotation.
    """
    if not tokens.has_annotation:
        for doc, spans in zip(docs, spans_of_docs):
            doc.set_ents(spans)
        return
    is_token_free = ~tokens.is_annotated  # False for preset tokens, (N,)
    begin = 0  # the first token of the doc, counted over the batch
    for doc, spans in zip(docs, spans_of_docs):
        end = begin + len(doc)
        set_free_tokens(doc, spans, is_token_free[begin:end])
        begin = end


def set_free_tokens(doc: Doc, spans: list[Span], is_token_free: Array1d) -> None:
    """Set the entities of a doc. Its preset tokens stay as they are. A free token is outside if it
    is in no entity.

    doc (Doc): The doc.
    spans (list[Span]): The entities, which consist of free tokens.
    is_token_free (Array1d): True for the tokens that are not preset. Shape: (T,)
    """
    if is_token_free.all():
        doc.set_ents(spans)
        return
    is_outside = is_token_free.copy()
    for span in spans:
        is_outside[span.start : span.end] = False
    # `set_ents` takes the tokens outside of entities as spans.
    outside = [doc[i : i + 1] for i in numpy.flatnonzero(is_outside).tolist()]
    doc.set_ents(spans, outside=outside, default="unmodified")


def spans_by_doc(
    docs: Iterable[Doc],
    entities: Entities,
    labels: Sequence[Any],
    lengths: Ints1d,
    probs: Floats1d | None = None,
) -> list[ScoredSpans]:
    """Make spaCy's spans of the entities of a batch, doc by doc.

    docs (Iterable[Doc]): The docs.
    entities (Entities): The entities of all docs, ordered, with tokens counted over the batch.
        Shape: (E,)
    labels (Sequence[Any]): The names of the labels, or their hashes, which are faster.
    lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
    probs (Floats1d | None): The probabilities of the entities. Shape: (E,)
    RETURNS (list[ScoredSpans]): The spans of each doc, and their probabilities, if `probs` are
        given.
    """
    entity_tuples = entities.as_tuples()
    doc_ends = lengths.cumsum()
    # For each doc, the number of entities that begin before its end. As entities are ordered, those
    # of a doc are entities[first_entity:stop]: `first_entity` is the number for the doc before.
    stops = entities.begin.searchsorted(doc_ends).tolist()

    spans_of_docs: list[ScoredSpans] = []
    doc_start = 0  # the first token of the doc, counted over the batch
    first_entity = 0  # the first entity of the doc
    for doc, doc_end, stop in zip(docs, doc_ends.tolist(), stops):
        spans = [
            Span(doc, begin - doc_start, end - doc_start, label=labels[label])
            for begin, end, label in entity_tuples[first_entity:stop]
        ]
        doc_probs = None
        if probs is not None:
            doc_probs = probs[first_entity:stop]
        spans_of_docs.append((spans, doc_probs))
        doc_start = doc_end
        first_entity = stop
    return spans_of_docs


class Hypothesis(NamedTuple):
    """One analysis of a doc.

    ents (list[Span]): Its entities.
    prob (float): The probability of its path of tags: that these, and no others, are the entities
        of the doc. (In IOB2, another path may have the same entities: see `k_best`.) For a long doc
        it may be too small for a float, and is 0.
    log_probability (float): The logarithm of the probability, which never gets lost.
    """

    ents: list[Span]
    prob: float
    log_probability: float
