"""Score the candidate spans of docs, and compute the threshold up to which each entity is found.

The set of a doc contains the spans whose score is at least a threshold: see `guarantees`. It
complements the *preset* entities of the doc, which were set by earlier components: the set doesn't
contain their tokens, and an entity is found if the set and the preset entities find it together.

The variable `dev` refers to `DevPredictions`: docs with their annotated entities and the model's
posterior, which is used to compute span probabilities. In the structured arrays of this module,
each row is a span or an entity, and "doc" is the index of its calibration doc.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import Array1d, ArrayXd, Floats1d, Ints1d

from ...annotation.tokens import read_presets, read_reference
from ...pipeline.component import CostSensitiveNER
from ...pipeline.guaranteed_sets import guarantee_scores
from ...pipeline.promises import Terms
from ...progress import progress
from ...ragged import ranges
from ...readers import as_spacy_applies
from ...tags import Entities, concatenate_entities
from ..evaluation.predictions import DevPredictions, predict_dev

DOCS_PER_BATCH = 64
"""The number of docs whose spans are scored together."""

SCORED_SPAN = [("label", "i8"), ("doc", "i8"), ("score", "f8"), ("found", "?")]
"""The columns of the arrays in `ScoredSpans`."""


class ScoredSpans(NamedTuple):
    """The candidate spans and the annotated entities of docs. Both are structured arrays with the
    columns of `SCORED_SPAN`.

    spans (ArrayXd): The candidate spans. The score is infinite if the set contains the span at
        every threshold. "found" is True if the span is correct. Shape: (S,)
    gold (ArrayXd): The annotated entities. The score is the highest threshold at which the set
        finds the entity, or 0 if no set finds it. It is infinite if the preset entities find it.
        "found" is True if the score isn't 0. Shape: (E,)
    entropies (Floats1d): Each doc's score for the shift test: see `DevPredictions.entropies`.
        Shape: (B,)
    n_misaligned (int): The number of annotated entities that don't begin and end with tokens of the
        pipeline. No set finds them, unless an entity only has to be covered.
    n_presets (int): The number of preset entities.
    docs (list[Doc]): The docs as passed to the component, with only their tokens and sentence
        starts.
    """

    spans: ArrayXd
    gold: ArrayXd
    entropies: Floats1d
    n_misaligned: int
    n_presets: int
    docs: list[Doc]


class Presets(NamedTuple):
    """The annotation of predicted docs that was set by earlier components.

    is_preset (Array1d): Whether each token is annotated, as a part of an entity or as O. The set
        contains none of these tokens. Shape: (N,)
    entities (Entities): The P preset entities. The label is -1 if it is unknown to the component.
    is_correct (Array1d): Whether each preset entity has the tokens and the label of an annotated
        entity. Shape: (P,)
    """

    is_preset: Array1d
    entities: Entities
    is_correct: Array1d


def score_spans(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], terms: Terms
) -> ScoredSpans:
    """Score the candidate spans and the annotated entities of docs.

    nlp (Language): The pipeline used for prediction.
    ner (CostSensitiveNER): The component of `nlp` that produces the sets.
    examples (Sequence[Example]): Fully annotated, non-empty docs, as returned by
        `leave_out_unusable`.
    terms (Terms): The terms of the guarantee. They determine the scores and when an entity is
        found.
    RETURNS (ScoredSpans): The spans, the entities, the docs, and each doc's score for the shift
        test.
    """
    span_tables: list[ArrayXd] = []
    gold_tables: list[ArrayXd] = []
    entropies: list[Floats1d] = []
    n_misaligned = 0
    n_presets = 0
    docs: list[Doc] = []
    n_docs = 0  # the number of docs in previous batches
    for batch in minibatch(progress(examples, desc="guarantee", unit="doc"), DOCS_PER_BATCH):
        # All candidate spans in the batch. Shape of their scores: (S,)
        dev = predict_dev(nlp, ner, batch, count_presets=True)
        presets = find_presets(nlp, ner, dev)
        spans, scores = guarantee_scores(dev.posterior, terms)
        if terms.limits_misses:
            # A set that limits misses always includes the predicted entities.
            predicted = ner.decode(dev.posterior).entities
            spans, scores = add_predicted(dev, predicted, spans, scores)
        # The component only writes spans with its own labels and without preset tokens. `dev.gold`
        # already excludes other labels.
        has_own_label = ~numpy.isin(spans.label, dev.other_labels)
        is_written = has_own_label & ~spans.contain(presets.is_preset)
        spans = spans.select(is_written)
        scores = scores[is_written]

        # An annotated entity is found if the spans and the preset entities find it at any
        # threshold.
        gold = concatenate_entities(dev.gold, dev.misaligned)
        finding, finding_scores = add_presets(presets, spans, scores, terms)
        gold_thresholds = thresholds_to_find(dev, gold, finding, finding_scores, terms)
        if terms.found == "exact":
            # Spans can cover the tokens of a misaligned entity, but none begins and ends with it.
            gold_thresholds[len(dev.gold.begin) :] = 0
        is_found = gold_thresholds > 0
        # Whether a span is correct is determined by the same rule with the roles reversed: the
        # annotated entities, with a score of 1, must find the span. Misaligned entities find none,
        # because their tokens include other characters.
        scores_of_gold = numpy.ones(len(dev.gold.begin))
        is_correct = thresholds_to_find(dev, spans, dev.gold, scores_of_gold, terms) > 0

        # The columns of `SCORED_SPAN`
        doc_of_span = n_docs + dev.doc_of_entity(spans)
        doc_of_gold = n_docs + dev.doc_of_entity(gold)
        span_columns = [spans.label, doc_of_span, scores, is_correct]
        gold_columns = [gold.label, doc_of_gold, gold_thresholds, is_found]
        span_tables.append(numpy.rec.fromarrays(span_columns, dtype=SCORED_SPAN))
        gold_tables.append(numpy.rec.fromarrays(gold_columns, dtype=SCORED_SPAN))
        entropies.append(dev.entropies())
        n_misaligned += len(dev.misaligned.begin)
        n_presets += len(presets.entities.begin)
        # The docs of all batches with the tensors of earlier components wouldn't fit in memory.
        docs += [as_spacy_applies(eg.predicted) for eg in dev.originals]
        n_docs += len(batch)
    return ScoredSpans(
        numpy.concatenate(span_tables),
        numpy.concatenate(gold_tables),
        numpy.concatenate(entropies),
        n_misaligned,
        n_presets,
        docs,
    )


def find_presets(nlp: Language, ner: CostSensitiveNER, dev: DevPredictions) -> Presets:
    """Find the preset annotation of docs. Preset tokens must count in `dev`."""
    tokens = read_presets([eg.predicted for eg in dev.examples])
    entities = tokens.entities(ner.tags, nlp.vocab.strings).trim(dev.posterior.is_space)
    if not len(entities.begin):
        return Presets(tokens.is_annotated, entities, numpy.zeros(0, dtype=bool))
    # All labels that are unknown to the component have the same index, so also compare the hashes.
    reference = read_reference(dev.examples, tokens)
    has_same_label = tokens.label[entities.begin] == reference.label[entities.begin]
    return Presets(tokens.is_annotated, entities, dev.is_correct(entities) & has_same_label)


def add_presets(
    presets: Presets, spans: Entities, scores: Floats1d, terms: Terms
) -> tuple[Entities, Floats1d]:
    """Add the preset entities that can find annotated entities to scored spans. They don't depend
    on the threshold, so their score is infinite. Returns the preset entities followed by the spans,
    with the scores of both. Shape of the given scores: (S,)"""
    entities = presets.entities
    if terms.found == "exact":
        entities = entities.select(presets.is_correct)
    infinite_scores = numpy.full(len(entities.begin), numpy.inf)
    return concatenate_entities(entities, spans), numpy.append(infinite_scores, scores)


def add_predicted(
    dev: DevPredictions, predicted: Entities, spans: Entities, scores: Floats1d
) -> tuple[Entities, Floats1d]:
    """Add the predicted entities to scored spans. A set that limits misses always includes the
    predicted entities, so their score is infinite. Returns the predicted entities followed by the
    spans that aren't predicted, with the scores of both. Shape of the given scores: (S,)"""
    is_not_predicted = ~numpy.isin(dev.entity_keys(spans), dev.entity_keys(predicted))
    infinite_scores = numpy.full(len(predicted.begin), numpy.inf)
    all_spans = concatenate_entities(predicted, spans.select(is_not_predicted))
    return all_spans, numpy.append(infinite_scores, scores[is_not_predicted])


def thresholds_to_find(
    dev: DevPredictions, wanted: Entities, spans: Entities, scores: Floats1d, terms: Terms
) -> Floats1d:
    """Compute the highest threshold at which the set finds each of E wanted entities, or 0 if no
    set finds it. The set contains a span if the span's score is at least the threshold. All scores
    are positive. Shapes: scores (S,), thresholds (E,)"""
    # Number the units of the wanted entities, followed by the units of the spans: see `find_units`.
    owners, units = find_units(dev, concatenate_entities(wanted, spans), terms)
    n_wanted = len(wanted.begin)
    is_of_wanted = owners < n_wanted
    wanted_units = units[is_of_wanted]
    wanted_owners = owners[is_of_wanted]
    span_units = units[~is_of_wanted]
    span_owners = owners[~is_of_wanted] - n_wanted  # indices into `spans`

    # The set contains a unit as long as the threshold is at most the highest score of a span with
    # that unit. Units without a span get the score 0. Shape: (units,)
    highest_scores = numpy.zeros(units.max(initial=0) + 1)
    numpy.maximum.at(highest_scores, span_units, scores[span_owners])

    # The set finds an entity as long as it contains all units of the entity, so take the lowest
    # score of these units. The units of an entity are consecutive, so its first unit is where the
    # owner changes.
    first_units = numpy.flatnonzero(numpy.diff(wanted_owners, prepend=-1))
    return numpy.minimum.reduceat(highest_scores[wanted_units], first_units)


def find_units(dev: DevPredictions, entities: Entities, terms: Terms) -> tuple[Ints1d, Ints1d]:
    """Number the units of each entity. A set of spans finds an entity if it contains all units of
    the entity.

    If `terms.found` is "exact", the only unit of an entity is the entity itself, including its
    label. If it is "covered", each token of the entity is a unit. With a guarantee for each label,
    the same token is a separate unit for each label.

    Returns the index of the entity that each unit belongs to (its owner), in ascending order, and
    the number of the unit. Units shared by several entities have the same number. Shapes: (U,)"""
    if terms.found == "exact":
        owners = numpy.arange(len(entities.begin))
        _, units = numpy.unique(dev.entity_keys(entities), return_inverse=True)
        return owners, units
    # The entity index and the token index of each token of each entity
    owners, tokens = ranges(entities.begin, entities.end)
    if not terms.per_label:
        return owners, tokens
    # Number a unit by its index in a flattened array of shape (labels, tokens). Unknown labels are
    # -1, so 1 is added. The inner nodes of the label tree have indices after the labels and are all
    # treated as one label.
    n_tokens = len(dev.is_counted)  # shape: (N,)
    labels = numpy.minimum(entities.label, len(dev.posterior.tags.labels))
    units = (labels[owners] + 1) * n_tokens + tokens
    return owners, units
