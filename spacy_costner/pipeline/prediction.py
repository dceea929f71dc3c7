"""The predictions of a component for a batch of docs: entities and, if requested, their
probabilities and other spans.

`make_prediction` computes the prediction, and `doc_writer` writes it to docs. A *preset* token was
annotated before the component ran. The start and the end of an entity are token indices in the
batch.

In shapes, B is the number of docs, N the number of tokens in all of them, E the number of entities,
and S the number of other spans.
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
"""The values of the attribute "set" in span groups that contain alternatives or guaranteed sets
instead of the predicted entities."""


class SpanSet(NamedTuple):
    """A set of spans that is written in addition to the predicted entities: alternatives or
    guaranteed sets.

    spans (Entities): The spans of a batch of docs, sorted by start and end. They may overlap.
    probs (Floats1d): The probabilities of the spans. Shape: (S,)
    has_set (Sequence[bool]): Whether each doc has a set, which may be empty. Length: B
    """

    spans: Entities
    probs: Floats1d
    has_set: Sequence[bool]


class Prediction(NamedTuple):
    """The predicted entities of a batch of docs.

    tokens (TokenAttrs): The tokens of the docs with their preset annotation.
    labels (tuple[str, ...]): The names of all labels: the labels of the chain, followed by the
        inner nodes of the label tree, if any.
    other_labels (Sequence[int]): The labels that the component doesn't write, as indices into
        `labels`.
    entities (Entities): The predicted entities that the component may write (see `is_writable`), in
        order. They don't start or end with whitespace.
    probs (Floats1d | None): The probabilities of these entities, if requested. Shape: (E,)
    sets (dict[str, SpanSet]): Other sets of spans, keyed by `ALTERNATIVES` and `GUARANTEED`.
    measures (ShiftMeasures | None): The measures for the shift test, if requested.
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
    """Create the prediction for a batch: select the decoded entities that the component may write
    and, if requested, compute their probabilities, alternatives and guaranteed sets.

    decoded (DecodedSpans): The decoded entities, without leading and trailing whitespace.
    posterior (Posterior): The probabilities of tags and entities.
    tokens (TokenAttrs): The tokens with their preset annotation.
    confidence (Confidence | None): Which probabilities to write, if any.
    promise (Promise | None): The guarantee for the guaranteed sets, if any.
    groups (Sequence[str | None]): The group of each doc, if there is a guarantee. Length: B
    other_labels (Sequence[int]): The labels of the entities to remove, as indices.
    is_scored (bool): Whether to compute the probabilities of entities even without a confidence.
    is_measured (bool): Whether to compute the measures for the shift test. They are only computed
        together with probabilities.
    RETURNS (Prediction): The entities and the requested probabilities, sets and measures.
    """
    entities = decoded.entities
    if tokens.has_annotation or other_labels:
        entities = entities.select(is_writable(entities, tokens, other_labels))
    if confidence is None and not is_scored:
        # Skip computing the probabilities, which takes longer than finding the best path.
        return Prediction(tokens, decoded.labels, other_labels, entities)
    # `covers` maps inner nodes of a label tree to the labels of the chain below them.
    probs = posterior.entity_probs(entities, decoded.covers)

    sets: dict[str, SpanSet] = {}
    if confidence is not None and confidence.alternatives is not None:
        # Every doc has a set of alternatives, which excludes the predicted entities.
        spans, span_probs = posterior.likely_entities(confidence.alternatives)
        is_alternative = ~spans.is_in(entities) & is_writable(spans, tokens, other_labels)
        sets[ALTERNATIVES] = SpanSet(
            spans.select(is_alternative),
            span_probs[is_alternative],
            has_set=[True] * len(tokens.lengths),
        )
    if confidence is not None and promise is not None:
        # Only docs in groups with a guarantee have a guaranteed set.
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
    """Return a mask of the entities that the component may write: entities that have one of its own
    labels and don't include preset tokens. Shape: (E,)"""
    is_allowed = numpy.ones(len(entities.label), dtype=bool)
    if tokens.has_annotation:
        is_allowed &= ~entities.contain(tokens.is_annotated)
    if other_labels:
        is_allowed &= ~numpy.isin(entities.label, other_labels)
    return is_allowed


class Hypothesis(NamedTuple):
    """A possible analysis of a doc.

    ents (list[Span]): The entities of the doc in this analysis.
    prob (float): The probability of the tag path with these entities. (In IOB2, other paths may
        have the same entities: see `k_best`.) It may underflow to 0 for long docs.
    log_probability (float): The logarithm of the probability, which doesn't underflow.
    """

    ents: list[Span]
    prob: float
    log_probability: float
