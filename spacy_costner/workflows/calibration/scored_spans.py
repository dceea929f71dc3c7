"""Score the spans that may be in the sets of docs, and find out which entities they find."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import ArrayXd, Floats1d, Ints1d

from ...pipeline.annotations import guarantee_scores
from ...pipeline.component import CostSensitiveNER
from ...pipeline.promises import Terms
from ...progress import progress
from ...ragged import ranges
from ...tags import Entities
from ..evaluation.predictions import DevPredictions, predict_dev

BATCH_SIZE = 64
"""The number of docs whose spans are scored together."""

SCORED_SPAN = [("label", "i8"), ("doc", "i8"), ("score", "f8"), ("found", "?")]
"""The columns of the arrays in `ScoredSpans`."""


class ScoredSpans(NamedTuple):
    """The spans that may be in the sets of docs, and the annotated entities. Both are structured
    arrays with the columns of `SCORED_SPAN`.

    spans (ArrayXd): Spans that may be in the sets. The score is infinite if a span is in the set
        at every threshold; "found" is whether the span is correct. Shape: (S,)
    gold (ArrayXd): Annotated entities. The score is the highest threshold at which the set still
        finds the entity, or 0 if no set finds it; "found" is whether a set does. Shape: (E,)
    entropies (Floats1d): The scores of docs for the test for a shift: see
        `DevPredictions.entropies`. Shape: (B,)
    """

    spans: ArrayXd
    gold: ArrayXd
    entropies: Floats1d


def score_spans(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], terms: Terms
) -> ScoredSpans:
    """Score the spans that may be in the sets of docs, and the annotated entities of these docs.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): Its component.
    examples (Sequence[Example]): The docs, as `leave_out` returns them: all of their tokens are
        annotated, and none of the docs is empty.
    terms (Terms): What is promised. They say which score a span has, and when an entity is found.
    RETURNS (ScoredSpans): The spans and the entities with their scores; and the measure of each doc
        that the test for a shift compares.
    """
    span_tables: list[ArrayXd] = []
    gold_tables: list[ArrayXd] = []
    entropies: list[Floats1d] = []
    n_docs = 0  # the number of docs in the batches before this one
    for batch in minibatch(progress(examples, desc="guarantee", unit="doc"), BATCH_SIZE):
        # `spans` has all spans that may be in the sets of the batch. Shape of their scores: (S,)
        dev = predict_dev(nlp, ner, batch)
        spans, scores = guarantee_scores(dev.posterior, terms)
        if terms.limits_misses:
            # A set that limits misses always has the predicted entities, too.
            predicted = ner.decode(dev.posterior).entities
            spans, scores = add_predicted(dev, predicted, spans, scores)
        # The component doesn't write spans with other labels. `dev.gold` has none of these.
        has_own_label = ~numpy.isin(spans.label, dev.other_labels)
        spans = spans.select(has_own_label)
        scores = scores[has_own_label]

        # An annotated entity is found if the spans find it at any threshold.
        gold_thresholds = thresholds_to_find(dev, dev.gold, spans, scores, terms)
        is_found = gold_thresholds > 0
        # A span is correct by the same rule, with the roles exchanged: the annotated entities,
        # each with the score 1, find the span.
        scores_of_gold = numpy.ones(len(dev.gold.begin))
        is_correct = thresholds_to_find(dev, spans, dev.gold, scores_of_gold, terms) > 0

        # The columns of `SCORED_SPAN`
        doc_of_span = n_docs + dev.doc_of_entity(spans)
        doc_of_gold = n_docs + dev.doc_of_entity(dev.gold)
        span_columns = [spans.label, doc_of_span, scores, is_correct]
        gold_columns = [dev.gold.label, doc_of_gold, gold_thresholds, is_found]
        span_tables.append(numpy.rec.fromarrays(span_columns, dtype=SCORED_SPAN))
        gold_tables.append(numpy.rec.fromarrays(gold_columns, dtype=SCORED_SPAN))
        entropies.append(dev.entropies())
        n_docs += len(batch)
    return ScoredSpans(
        numpy.concatenate(span_tables), numpy.concatenate(gold_tables), numpy.concatenate(entropies)
    )


def add_predicted(
    dev: DevPredictions, predicted: Entities, spans: Entities, scores: Floats1d
) -> tuple[Entities, Floats1d]:
    """Add the predicted entities to spans with scores. A set that limits misses always has the
    predicted entities, so they get an infinite score.

    dev (DevPredictions): The predictions of the calibration docs.
    predicted (Entities): The predicted entities. Some of them may be among the spans.
    spans (Entities): The spans.
    scores (Floats1d): The scores of the spans. Shape: (S,)
    RETURNS (tuple[Entities, Floats1d]): The predicted entities, followed by the other spans, and
        the scores of all.
    """
    is_not_predicted = ~numpy.isin(dev.entity_keys(spans), dev.entity_keys(predicted))
    infinite_scores = numpy.full(len(predicted.begin), numpy.inf)
    all_spans = concatenate_entities(predicted, spans.select(is_not_predicted))
    return all_spans, numpy.append(infinite_scores, scores[is_not_predicted])


def concatenate_entities(first: Entities, second: Entities) -> Entities:
    """Join two lists of entities: the first entities, followed by the second ones."""
    # The begins of both, then the ends of both, then the labels of both.
    columns = [numpy.concatenate(pair) for pair in zip(first, second)]
    return Entities(*columns)


def thresholds_to_find(
    dev: DevPredictions, wanted: Entities, spans: Entities, scores: Floats1d, terms: Terms
) -> Floats1d:
    """Find the highest threshold at which the set finds each wanted entity. The set has the spans
    whose score is at least the threshold.

    dev (DevPredictions): The docs.
    wanted (Entities): The E entities to find.
    spans (Entities): The S spans.
    scores (Floats1d): The scores of the spans, above 0. Shape: (S,)
    terms (Terms): When an entity is found.
    RETURNS (Floats1d): The thresholds; 0 for an entity that no set finds. Shape: (E,)
    """
    # What each entity and each span consists of, in numbered units: see `find_units`. The units of
    # the wanted entities come first, then the units of the spans.
    owners, units = find_units(dev, concatenate_entities(wanted, spans), terms)
    n_wanted = len(wanted.begin)
    is_of_wanted = owners < n_wanted
    wanted_units = units[is_of_wanted]
    wanted_owners = owners[is_of_wanted]
    span_units = units[~is_of_wanted]
    span_owners = owners[~is_of_wanted] - n_wanted  # as indices of `spans`

    # The set has a unit as long as the threshold is at most the highest score of a span with that
    # unit. A unit that no span has gets the score 0. Shape: (units,)
    highest_scores = numpy.zeros(units.max(initial=0) + 1)
    numpy.maximum.at(highest_scores, span_units, scores[span_owners])

    # The set finds an entity as long as it has all units of the entity: up to the lowest of these
    # scores. The units of an entity follow each other, so the first one is where the owner changes.
    first_units = numpy.flatnonzero(numpy.diff(wanted_owners, prepend=-1))
    return numpy.minimum.reduceat(highest_scores[wanted_units], first_units)


def find_units(dev: DevPredictions, entities: Entities, terms: Terms) -> tuple[Ints1d, Ints1d]:
    """Find the units that a set of spans must have so that it finds each entity.

    With `terms.found = "exact"` an entity has one unit: the entity itself, with its label. With
    "covered" each of its tokens is a unit. In a promise for each label, the same token is another
    unit for each label.

    dev (DevPredictions): The docs.
    entities (Entities): The entities.
    terms (Terms): What is promised.
    RETURNS (tuple[Ints1d, Ints1d]): For each unit of each entity the index of that entity (its
        owner), ascending; and the number of the unit. Two entities that share a unit have the same
        number there. Shapes: (U,)
    """
    if terms.found == "exact":
        owners = numpy.arange(len(entities.begin))
        _, units = numpy.unique(dev.entity_keys(entities), return_inverse=True)
        return owners, units
    # For each token of each entity the index of the entity, and the token
    owners, tokens = ranges(entities.begin, entities.end)
    if not terms.per_label:
        return owners, tokens
    # The number of a unit is the index of (label, token) in a flattened array of the shape (labels,
    # tokens). The label is -1 if the model doesn't have it, so 1 is added. The indices of inner
    # nodes of the label tree follow those of the labels. All inner nodes count as one label.
    n_tokens = len(dev.is_counted)  # it has a truth value for each token of the docs
    labels = numpy.minimum(entities.label, len(dev.posterior.tags.labels))
    units = (labels[owners] + 1) * n_tokens + tokens
    return owners, units
