"""Find the mistakes in docs, and rank them by cost.

A mistake has two sides: annotated entities, and the predicted entities that overlap and differ from
them. One of the sides may be empty. An entity is a tuple (begin, end, label), where `end` is
exclusive.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints1d

from ...pipeline.prediction import Prediction
from ...pipeline.scorers import Entity, TagPairs
from ...tags import Entities, concatenate_entities
from ..evaluation.predictions import DevPredictions
from .excerpts import Mark, covering_span, excerpt

WRONG_LABEL = "wrong label"
WRONG_BOUNDARY = "wrong boundary"
LABEL_AND_BOUNDARY = "label and boundary"
MISSING_ENTITY = "missing entity"
SPURIOUS_ENTITY = "spurious entity"

REPORTED_KINDS = (MISSING_ENTITY, SPURIOUS_ENTITY, WRONG_LABEL, WRONG_BOUNDARY, LABEL_AND_BOUNDARY)
"""The kinds of mistakes: see `kind_of_mistake`."""


class Sides(NamedTuple):
    """The entities of a doc and their probabilities. Unknown probabilities are None.

    annotated (dict[Entity, float | None]): The annotated entities.
    predicted (dict[Entity, float | None]): The predicted entities.
    misaligned (Collection[Entity]): The annotated entities that no predicted entity matches, even
        if it has the same tokens and label: see `TagPairs`.
    """

    annotated: dict[Entity, float | None]
    predicted: dict[Entity, float | None]
    misaligned: Collection[Entity]


class Mistake(NamedTuple):
    """A mistake as displayed on the page.

    doc (int): The index of the doc in the corpus, not counting empty docs.
    kind (str): One of `REPORTED_KINDS`.
    cost (float): The cost of the mistake.
    text (str): The text around the mistake.
    annotated (list[Mark]): All annotated entities in the text.
    predicted (list[Mark]): All predicted entities in the text.
    """

    doc: int
    kind: str
    cost: float
    text: str
    annotated: list[Mark]
    predicted: list[Mark]


class TotalsOfKind(NamedTuple):
    """The number and total cost of the mistakes of one kind.

    n_mistakes (int): The number of mistakes.
    cost (float): The sum of their costs.
    """

    n_mistakes: int
    cost: float


class RankedMistake(NamedTuple):
    """A mistake with its two sides. Mistakes are ranked by cost, then by confidence.

    cost (float): The cost of the mistake.
    confidence (float): The model's confidence in the mistake. See `confidence_in`.
    kind (str): One of `REPORTED_KINDS`.
    doc (int): The index of the doc: see `Mistake`.
    annotated (list[Entity]): The annotated entities of the mistake.
    predicted (list[Entity]): The predicted entities of the mistake.
    """

    cost: float
    confidence: float
    kind: str
    doc: int
    annotated: list[Entity]
    predicted: list[Entity]


def rank_mistakes(
    sides_of_docs: Sequence[Sides], pairs: TagPairs, cost_table: Floats2d
) -> list[RankedMistake]:
    """Find the mistakes in docs, and rank them by cost in descending order. If costs are equal,
    mistakes with a higher confidence come first.

    sides_of_docs (Sequence[Sides]): The annotated and predicted entities of each doc.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    cost_table (Floats2d): The cost of each pair of tags. Shape: (K, K)
    RETURNS (list[RankedMistake]): The mistakes.
    """
    # Split the token costs of all docs at the first token of each doc, except for the first doc.
    token_costs = pairs.look_up(cost_table)
    first_tokens = numpy.cumsum(pairs.lengths)[:-1]
    costs_of_docs = numpy.split(token_costs, first_tokens)
    ranked: list[RankedMistake] = []
    for doc_index, (sides, costs) in enumerate(zip(sides_of_docs, costs_of_docs)):
        # If annotated entities overlap, a mistake may overlap with a correct entity.
        correct = {*sides.annotated}.intersection(sides.predicted).difference(sides.misaligned)
        missed = [entity for entity in sides.annotated if entity not in correct]
        spurious = [entity for entity in sides.predicted if entity not in correct]
        for annotated, predicted in group_overlapping(missed, spurious):
            begin, end = covering_span((annotated, predicted))
            can_match = not any(entity in sides.misaligned for entity in annotated)
            mistake = RankedMistake(
                cost=float(costs[begin:end].sum(dtype="float64")),
                confidence=confidence_in(annotated, predicted, sides),
                kind=kind_of_mistake(annotated, predicted, can_match=can_match),
                doc=doc_index,
                annotated=annotated,
                predicted=predicted,
            )
            ranked.append(mistake)
    ranked.sort(key=lambda mistake: (-mistake.cost, -mistake.confidence))
    return ranked


def confidence_in(annotated: Iterable[Entity], predicted: Sequence[Entity], sides: Sides) -> float:
    """Compute the model's confidence in a mistake: the highest probability of its predicted
    entities. If nothing is predicted, it is one minus the highest probability of its annotated
    entities. Unknown probabilities count as 0. `sides` contains all entities of the doc."""
    highest_prob = 0.0
    if predicted:
        for entity in predicted:
            highest_prob = max(highest_prob, sides.predicted[entity] or 0.0)
        return highest_prob
    for entity in annotated:
        highest_prob = max(highest_prob, sides.annotated[entity] or 0.0)
    return 1 - highest_prob


def show_mistake(
    mistake: RankedMistake, dev: DevPredictions, sides_of_docs: Sequence[Sides]
) -> Mistake:
    """Add the surrounding text to a mistake, with all entities in this text, including entities of
    other mistakes.

    mistake (RankedMistake): The mistake.
    dev (DevPredictions): The docs.
    sides_of_docs (Sequence[Sides]): The annotated and predicted entities of each doc.
    RETURNS (Mistake): The mistake as displayed on the page.
    """
    doc = dev.examples[mistake.doc].predicted
    sides = sides_of_docs[mistake.doc]
    text, annotated, predicted = excerpt(
        doc,
        (sides.annotated, sides.predicted),
        (mistake.annotated, mistake.predicted),
        misaligned=sides.misaligned,
    )
    return Mistake(mistake.doc, mistake.kind, mistake.cost, text, annotated, predicted)


def count_kinds(mistakes: Iterable[RankedMistake]) -> dict[str, TotalsOfKind]:
    """Count the mistakes of each kind, and sum their costs.

    mistakes (Iterable[RankedMistake]): The mistakes in all docs.
    RETURNS (dict[str, TotalsOfKind]): The totals by kind, in the order of `REPORTED_KINDS`.
    """
    totals = dict.fromkeys(REPORTED_KINDS, TotalsOfKind(n_mistakes=0, cost=0.0))
    for mistake in mistakes:
        n_mistakes, cost = totals[mistake.kind]
        totals[mistake.kind] = TotalsOfKind(n_mistakes + 1, cost + mistake.cost)
    return totals


def find_sides(dev: DevPredictions, pairs: TagPairs, prediction: Prediction) -> list[Sides]:
    """Collect the annotated and predicted entities of each doc, and their probabilities. A
    predicted entity is omitted if any of its tokens isn't annotated.

    dev (DevPredictions): The docs and their posterior.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    prediction (Prediction): The component's predicted entities and their probabilities.
    RETURNS (list[Sides]): The entities of each doc.
    """
    tags = pairs.tags
    posterior = dev.posterior
    is_unannotated = pairs.gold < 0
    gold_tags = numpy.maximum(pairs.gold, 0)  # treat tokens without annotation as O
    gold = tags.decode(gold_tags, pairs.lengths)
    # Tags can't represent overlapping entities. Labels of the model have the same indices in both.
    has_label = dev.gold.label >= 0
    is_decoded = dev.gold.is_in(gold.trim(posterior.is_space))
    gold = concatenate_entities(gold, dev.gold.select(has_label & ~is_decoded))
    gold = gold.select(numpy.lexsort((-gold.end, gold.begin)))  # sorted, longest first
    predicted = tags.decode(pairs.predicted, pairs.lengths)
    # The number of unannotated tokens before each token, followed by their total number. All tokens
    # of an entity are annotated if this number is the same at its start and its end.
    # Shape: (N + 1,)
    n_unannotated_before = numpy.concatenate([[0], numpy.cumsum(is_unannotated)])
    is_annotated = n_unannotated_before[predicted.begin] == n_unannotated_before[predicted.end]
    predicted = predicted.select(is_annotated)

    # `tags` contains the labels of the model, followed by other labels in the docs. Entities with
    # other labels have no probability. Token indices of entities are relative to the concatenated
    # docs.
    gold_of_model = gold.select(gold.label < len(posterior.tags.labels))
    gold_probs = posterior.entity_probs(gold_of_model).tolist()
    probs = dict(zip(list_entities(gold_of_model, tags.labels), gold_probs))
    # For predicted entities, use the probabilities from the prediction, because the probability of
    # an inner node of a label tree includes all labels below it. Gold entities that aren't
    # predicted keep their probabilities.
    if prediction.probs is not None:
        predicted_entities = list_entities(prediction.entities, prediction.labels)
        probs.update(zip(predicted_entities, prediction.probs.tolist()))

    # Misaligned entities can't be predicted. An entity with the same tokens can.
    misaligned = dict.fromkeys(list_entities(pairs.misaligned, tags.labels), 0.0)
    gold_entities = list_entities(gold, tags.labels)
    annotated_sides = split_by_doc(gold_entities, {**probs, **misaligned}, pairs.lengths)
    predicted_sides = split_by_doc(list_entities(predicted, tags.labels), probs, pairs.lengths)
    misaligned_of_docs = split_by_doc(misaligned, misaligned, pairs.lengths)
    return [Sides(*sides) for sides in zip(annotated_sides, predicted_sides, misaligned_of_docs)]


def split_by_doc(
    entities: Iterable[Entity], probs: Mapping[Entity, float], doc_lengths: Ints1d
) -> list[dict[Entity, float | None]]:
    """Split entities by doc. The input token indices are relative to the concatenated docs, and the
    output indices are relative to each doc. Unknown probabilities are None. Shape of the lengths:
    (B,)"""
    # The first token of each doc, followed by the total number of tokens. Shape: (B + 1,)
    first_tokens = numpy.cumsum([0, *doc_lengths]).tolist()
    probs_of_docs: list[dict[Entity, float | None]] = [{} for _ in doc_lengths]
    for entity in entities:
        begin, end, label = entity
        # Find the last doc that starts at or before the first token of the entity.
        doc_index = bisect_right(first_tokens, begin) - 1
        first_token = first_tokens[doc_index]
        entity_in_doc = (begin - first_token, end - first_token, label)
        probs_of_docs[doc_index][entity_in_doc] = probs.get(entity)
    return probs_of_docs


def list_entities(entities: Entities, labels: Sequence[str]) -> list[Entity]:
    """Convert entities to tuples with label names.

    entities (Entities): The entities, with label indices.
    labels (Sequence[str]): The label names.
    RETURNS (list[Entity]): The entities.
    """
    entities_with_names: list[Entity] = []
    columns = entities.begin.tolist(), entities.end.tolist(), entities.label.tolist()
    for begin, end, label in zip(*columns):
        entities_with_names.append((begin, end, labels[label]))
    return entities_with_names


def group_overlapping(
    gold: Iterable[Entity], predicted: Iterable[Entity]
) -> list[tuple[list[Entity], list[Entity]]]:
    """Divide the gold and predicted entities of a doc into groups of overlapping entities. Two
    entities are in the same group if they overlap, or are connected by a chain of overlapping
    entities. Return the gold and predicted entities of each group, in document order."""
    gold_side = 0
    predicted_side = 1
    entities_and_sides = [(entity, gold_side) for entity in gold]
    entities_and_sides += [(entity, predicted_side) for entity in predicted]
    groups: list[tuple[list[Entity], list[Entity]]] = []
    end_of_group = 0
    for entity, side in sorted(entities_and_sides):
        begin, end, _ = entity
        if not groups or begin >= end_of_group:
            groups.append(([], []))  # the gold side and the predicted side
        last_group = groups[-1]
        last_group[side].append(entity)
        end_of_group = max(end_of_group, end)
    return groups


def kind_of_mistake(
    gold: Sequence[Entity], predicted: Sequence[Entity], *, can_match: bool = True
) -> str:
    """Return the kind of a mistake, one of `REPORTED_KINDS`.

    gold (Sequence[Entity]): The annotated entities of the mistake.
    predicted (Sequence[Entity]): The predicted entities of the mistake.
    can_match (bool): Whether predicted entities can have the boundaries of all annotated entities.
    RETURNS (str): The kind.
    """
    if not predicted:
        return MISSING_ENTITY
    if not gold:
        return SPURIOUS_ENTITY
    gold_spans = [(begin, end) for begin, end, _ in gold]
    predicted_spans = [(begin, end) for begin, end, _ in predicted]
    if can_match and gold_spans == predicted_spans:
        return WRONG_LABEL
    labels = {label for _, _, label in [*gold, *predicted]}
    if len(labels) == 1:
        return WRONG_BOUNDARY
    return LABEL_AND_BOUNDARY
