"""The prediction of a component for a batch of docs: entities and, if requested, their
probabilities and other spans.

`make_prediction` computes what `doc_writer` writes. A *preset* token was annotated before the
component ran. Begin and end of an entity are tokens, counted over the batch.

In shapes, B is the number of docs, N the number of their tokens, E the number of entities, S the
number of other spans.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.tokens import Span
from thinc.types import Array1d, Floats1d

from ..annotation.tokens import TokenAttrs
from ..decoding import DecodedSpans, Posterior
from ..tags import Entities
from .confidence import Confidence
from .doc_entropy import ShiftMeasures, measure_docs
from .guaranteed_sets import guaranteed_set
from .promises import Promise

ALTERNATIVES = "alternatives"
GUARANTEED = "guaranteed"
"""The attribute "set" of span groups with spans other than the predicted entities."""


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


class Prediction(NamedTuple):
    """The entities of a batch of docs.

    tokens (TokenAttrs): The tokens of the docs, with their preset annotation.
    labels (tuple[str, ...]): The names of all labels: the labels of the chain, and then, if there
        is a label tree, its inner nodes.
    other_labels (Sequence[int]): The labels that the component doesn't write, as indices in
        `labels`.
    entities (Entities): The predicted entities that the component may write, ordered: see
        `is_writable`. They don't begin or end with whitespace.
    probs (Floats1d | None): The probabilities of these entities, if requested. Shape: (E,)
    sets (dict[str, SpanSet]): Other spans, under the keys `ALTERNATIVES` and `GUARANTEED`.
    measures (ShiftMeasures | None): What the test for a shift needs to know, if requested.
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
    """Make the prediction of a batch: choose the decoded entities that the component may write. If
    requested, compute their probabilities, alternatives and guaranteed sets.

    decoded (DecodedSpans): The decoded entities, without whitespace at their ends.
    posterior (Posterior): The probabilities of tags and entities.
    tokens (TokenAttrs): The tokens with their preset annotation.
    confidence (Confidence | None): Which probabilities are written. None: no probabilities.
    promise (Promise | None): The guarantee of a guaranteed set, if there is one.
    groups (Sequence[str | None]): If there is a guarantee, the group of each doc. Length: B
    other_labels (Sequence[int]): The labels whose entities are left out, as indices.
    is_scored (bool): Whether entities get probabilities even without a confidence.
    is_measured (bool): Whether to compute what the test for a shift needs. It is written next to
        the probabilities, and isn't computed without them.
    RETURNS (Prediction): The entities, with all that was requested.
    """
    entities = decoded.entities
    if tokens.has_annotation or other_labels:
        entities = entities.select(is_writable(entities, tokens, other_labels))
    if confidence is None and not is_scored:
        # Probabilities were not requested, and computing them takes longer than the best path.
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
        # Only docs of a group with a guarantee have a guaranteed set.
        spans, span_probs = guaranteed_set(entities, probs, posterior, promise, groups)
        is_writable_span = is_writable(spans, tokens, other_labels)
        sets[GUARANTEED] = SpanSet(
            spans.select(is_writable_span),
            span_probs[is_writable_span],
            has_set=[group in promise.groups for group in groups],
        )

    measures = None
    if is_measured:
        measures = measure_docs(posterior, tokens, other_labels)
    return Prediction(tokens, decoded.labels, other_labels, entities, probs, sets, measures)


def is_writable(entities: Entities, tokens: TokenAttrs, other_labels: Sequence[int]) -> Array1d:
    """True for the entities that the component may write: they have one of its own labels and
    include no preset token. Shape: (E,)"""
    is_allowed = numpy.ones(len(entities.label), dtype=bool)
    if tokens.has_annotation:
        # The number of preset tokens before each token; at last, of all tokens. Shape: (N + 1,)
        n_preset_before = numpy.append(0, tokens.is_annotated.cumsum())
        # The number is the same at both ends of an entity that includes no preset token.
        is_allowed &= n_preset_before[entities.end] == n_preset_before[entities.begin]
    if other_labels:
        is_allowed &= ~numpy.isin(entities.label, other_labels)
    return is_allowed


class Hypothesis(NamedTuple):
    """One analysis of a doc.

    ents (list[Span]): The entities of the doc in this analysis.
    prob (float): The probability that exactly these are the entities of the doc. It is the
        probability of one path of tags. (In IOB2, another path may have the same entities: see
        `k_best`.) For a long doc it may be too small for a float, and is 0.
    log_probability (float): The logarithm of the probability, which is never too small.
    """

    ents: list[Span]
    prob: float
    log_probability: float
