"""Score the spans that may be in the sets of docs, and compute at which threshold a set
finds each entity.

The set of a doc has the spans whose score is at least a threshold: see `guarantees`.
`DevPredictions`, called `dev`, are docs with their annotated entities and the posterior of the
model, from which the probabilities of spans come. In the structured arrays of this file a row is a
span or an entity, and "doc" is the index of its doc among the calibration docs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import ArrayXd, Floats1d, Ints1d

from ...pipeline.component import CostSensitiveNER
from ...pipeline.guaranteed_sets import guarantee_scores
from ...pipeline.promises import Terms
from ...progress import progress
from ...ragged import ranges
from ...tags import Entities
from ..evaluation.predictions import DevPredictions, predict_dev

DOCS_PER_BATCH = 64
"""The number of docs whose spans are scored together."""

SCORED_SPAN = [("label", "i8"), ("doc", "i8"), ("score", "f8"), ("found", "?")]
"""The columns of the arrays in `ScoredSpans`."""


class ScoredSpans(NamedTuple):
    """The spans that may be in the sets of docs, and the annotated entities. Both are structured
    arrays with the columns of `SCORED_SPAN`.

    spans (ArrayXd): Spans that may be in the sets. The score is infinite if a span is in the set
        at every threshold. "found" is True if the span is correct. Shape: (S,)
    gold (ArrayXd): Annotated entities. The score is the highest threshold at which the set still
        finds the entity, or 0 if no set finds it. "found" is True if a set does. Shape: (E,)
    entropies (Floats1d): The scores of the docs in the test for a shift: see
        `DevPredictions.entropies`. Shape: (B,)
    """

    spans: ArrayXd
    gold: ArrayXd
    entropies: Floats1d


def score_spans(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], terms: Terms
) -> ScoredSpans:
    """Score the spans that may be in the sets of docs, and the annotated entities of these docs.

    nlp (Language): The pipeline that predicts the docs.
    ner (CostSensitiveNER): The component of `nlp` that has the set.
    examples (Sequence[Example]): Docs as `leave_out_unusable` returns them: not empty, with all
        tokens annotated.
    terms (Terms): The terms of the guarantee. The score of a span, and whether an entity is found,
        depend on them.
    RETURNS (ScoredSpans): The spans, the entities, and the scores of docs in the test for a shift.
    """
    span_tables: list[ArrayXd] = []
    gold_tables: list[ArrayXd] = []
    entropies: list[Floats1d] = []
    n_docs = 0  # the number of docs in the batches before this one
    for batch in minibatch(progress(examples, desc="guarantee", unit="doc"), DOCS_PER_BATCH):
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
    predicted entities, so they get an infinite score. Returns the predicted entities, then the
    spans that aren't predicted, and the scores of both. Shape of the scores: (S,) before"""
    is_not_predicted = ~numpy.isin(dev.entity_keys(spans), dev.entity_keys(predicted))
    infinite_scores = numpy.full(len(predicted.begin), numpy.inf)
    all_spans = concatenate_entities(predicted, spans.select(is_not_predicted))
    return all_spans, numpy.append(infinite_scores, scores[is_not_predicted])


def concatenate_entities(first: Entities, second: Entities) -> Entities:
    """Concatenate two sets of entities."""
    # The begins of both, then the ends of both, then the labels of both.
    columns = [numpy.concatenate(pair) for pair in zip(first, second)]
    return Entities(*columns)


def thresholds_to_find(
    dev: DevPredictions, wanted: Entities, spans: Entities, scores: Floats1d, terms: Terms
) -> Floats1d:
    """Find the highest threshold at which the set finds each of E wanted entities: 0 for an entity
    that no set finds. Of S spans, the set has the spans whose score is at least the threshold.
    Scores are above 0. Shapes: scores (S,), thresholds (E,)"""
    # The numbered units of entities and spans: see `find_units`. The units of the wanted entities
    # come first, then the units of the spans.
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
    """Number the units of each entity. A set of spans finds an entity if it has all of its units.

    With `terms.found = "exact"` the only unit of an entity is the entity itself, with its label.
    With "covered" each of its tokens is a unit. If there is a guarantee for each label, the
    same token is a separate unit under each label.

    Returns, for each unit of each entity, the index of the entity (its owner), ascending, and the
    number of the unit. A unit that two entities share has one number. Shapes: (U,)"""
    if terms.found == "exact":
        owners = numpy.arange(len(entities.begin))
        _, units = numpy.unique(dev.entity_keys(entities), return_inverse=True)
        return owners, units
    # For each token of each entity the index of the entity, and the token
    owners, tokens = ranges(entities.begin, entities.end)
    if not terms.per_label:
        return owners, tokens
    # The id of a unit is the index of (label, token) in a flattened array of the shape (labels,
    # tokens). The label is -1 if the model doesn't have it, so 1 is added. The indices of inner
    # nodes of the label tree follow the indices of the labels. All inner nodes count as one label.
    n_tokens = len(dev.is_counted)  # shape: (N,)
    labels = numpy.minimum(entities.label, len(dev.posterior.tags.labels))
    units = (labels[owners] + 1) * n_tokens + tokens
    return owners, units
