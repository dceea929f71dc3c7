"""Find the mistakes in docs, and rank them by cost.

A mistake has two sides: annotated entities, and the predicted entities that overlap them and differ
from them. One side may be empty. An entity is (begin, end, label): its first token, the token after
its last, its label.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy
from thinc.types import Floats2d, Ints1d

from ...pipeline.prediction import Prediction
from ...pipeline.scorers import Entity, TagPairs
from ...tags import Entities
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
    """The entities of a doc with their probabilities, or None if a probability is unknown.

    annotated (dict[Entity, float | None]): The annotated entities.
    predicted (dict[Entity, float | None]): The predicted entities.
    """

    annotated: dict[Entity, float | None]
    predicted: dict[Entity, float | None]


class Mistake(NamedTuple):
    """A mistake as the page shows it.

    doc (int): The index of the doc in the corpus, without docs that have no tokens.
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
    """The number and the total cost of the mistakes of a kind.

    n_mistakes (int): The number of mistakes.
    cost (float): The sum of their costs.
    """

    n_mistakes: int
    cost: float


class RankedMistake(NamedTuple):
    """A mistake with its two sides. Mistakes are ranked by cost, then by confidence.

    cost (float): The cost of the mistake.
    confidence (float): The confidence of the model: see `confidence_in`.
    kind (str): One of `REPORTED_KINDS`.
    doc (int): The index of the doc: see `Mistake`.
    annotated (list[Entity]): The annotated entities that are part of the mistake.
    predicted (list[Entity]): The predicted entities that are part of the mistake.
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
    """Find the mistakes in docs, and rank them: the costliest first, and of equal costs the most
    confident first.

    sides_of_docs (Sequence[Sides]): The annotated and the predicted entities of each doc.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    cost_table (Floats2d): The cost of each pair of tags. Shape: (K, K)
    RETURNS (list[RankedMistake]): The mistakes.
    """
    # The costs of the tokens of all docs are in one array. `split` divides it at the first token of
    # each doc, except the first doc.
    token_costs = pairs.look_up(cost_table)
    first_tokens = numpy.cumsum(pairs.lengths)[:-1]
    costs_of_docs = numpy.split(token_costs, first_tokens)
    ranked: list[RankedMistake] = []
    for doc_index, (sides, costs) in enumerate(zip(sides_of_docs, costs_of_docs)):
        for annotated, predicted in group_overlapping(*sides):
            if annotated == predicted:
                continue
            begin, end = covering_span((annotated, predicted))
            mistake = RankedMistake(
                cost=float(costs[begin:end].sum(dtype="float64")),
                confidence=confidence_in(annotated, predicted, sides),
                kind=kind_of_mistake(annotated, predicted),
                doc=doc_index,
                annotated=annotated,
                predicted=predicted,
            )
            ranked.append(mistake)
    ranked.sort(key=lambda mistake: (-mistake.cost, -mistake.confidence))
    return ranked


def confidence_in(annotated: Iterable[Entity], predicted: Sequence[Entity], sides: Sides) -> float:
    """Compute the confidence of the model in a mistake: the highest probability of its predicted
    entities or, if it has none, one minus the highest probability of its annotated entities. An
    unknown probability counts as 0. `sides` has all entities of the doc."""
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
    """Add the text around a mistake, and all entities in this text, not only the entities of the
    mistake.

    mistake (RankedMistake): The mistake.
    dev (DevPredictions): The docs.
    sides_of_docs (Sequence[Sides]): The annotated and the predicted entities of each doc.
    RETURNS (Mistake): The mistake as the page shows it.
    """
    doc = dev.examples[mistake.doc].predicted
    sides = sides_of_docs[mistake.doc]
    text, annotated, predicted = excerpt(doc, sides, (mistake.annotated, mistake.predicted))
    return Mistake(mistake.doc, mistake.kind, mistake.cost, text, annotated, predicted)


def count_kinds(mistakes: Iterable[RankedMistake]) -> dict[str, TotalsOfKind]:
    """Count the mistakes of each kind, and sum their costs.

    mistakes (Iterable[RankedMistake]): The mistakes of all docs.
    RETURNS (dict[str, TotalsOfKind]): The totals by kind, in the order of `REPORTED_KINDS`.
    """
    totals = dict.fromkeys(REPORTED_KINDS, TotalsOfKind(n_mistakes=0, cost=0.0))
    for mistake in mistakes:
        n_mistakes, cost = totals[mistake.kind]
        totals[mistake.kind] = TotalsOfKind(n_mistakes + 1, cost + mistake.cost)
    return totals


def find_sides(dev: DevPredictions, pairs: TagPairs, prediction: Prediction) -> list[Sides]:
    """Find the annotated and the predicted entities of each doc, with their probabilities. A
    predicted entity is left out if one of its tokens isn't annotated.

    dev (DevPredictions): The docs with their posterior.
    pairs (TagPairs): The gold and predicted tags of the tokens of all docs.
    prediction (Prediction): The predicted entities of the component, with their probabilities.
    RETURNS (list[Sides]): The entities of each doc.
    """
    tags = pairs.tags
    posterior = dev.posterior
    is_unannotated = pairs.gold < 0
    gold_tags = numpy.maximum(pairs.gold, 0)  # Tokens without annotation get the tag 0, which is O.
    gold = tags.decode(gold_tags, pairs.lengths)
    predicted = tags.decode(pairs.predicted, pairs.lengths)
    # The number of unannotated tokens before each token, and at the end the number of all of them.
    # Shape: (N + 1,). An entity has no unannotated token if this number is equal at its begin and
    # at its end.
    n_unannotated_before = numpy.concatenate([[0], numpy.cumsum(is_unannotated)])
    is_annotated = n_unannotated_before[predicted.begin] == n_unannotated_before[predicted.end]
    predicted = predicted.select(is_annotated)

    # `tags` has the labels of the model, followed by other labels of the docs. Entities with other
    # labels have no probability. The tokens of entities are counted over all docs.
    gold_of_model = gold.select(gold.label < len(posterior.tags.labels))
    gold_probs = posterior.entity_probs(gold_of_model).tolist()
    probs = dict(zip(list_entities(gold_of_model, tags.labels), gold_probs))
    # The probabilities of predicted entities come from the prediction, which knows the labels below
    # an inner node of a label tree. Gold entities that aren't predicted keep their probabilities.
    if prediction.probs is not None:
        predicted_entities = list_entities(prediction.entities, prediction.labels)
        probs.update(zip(predicted_entities, prediction.probs.tolist()))

    annotated_sides = split_by_doc(list_entities(gold, tags.labels), probs, pairs.lengths)
    predicted_sides = split_by_doc(list_entities(predicted, tags.labels), probs, pairs.lengths)
    return [Sides(*sides) for sides in zip(annotated_sides, predicted_sides)]


def split_by_doc(
    entities: Iterable[Entity], probs: Mapping[Entity, float], doc_lengths: Ints1d
) -> list[dict[Entity, float | None]]:
    """Divide entities, whose tokens are counted over all docs, by doc. In the entities of a doc,
    tokens are counted from its first token. An unknown probability is None. Shape of the lengths:
    (B,)"""
    # The first token of each doc, and at the end the number of all tokens. Shape: (B + 1,)
    first_tokens = numpy.cumsum([0, *doc_lengths]).tolist()
    probs_of_docs: list[dict[Entity, float | None]] = [{} for _ in doc_lengths]
    for entity in entities:
        begin, end, label = entity
        # The doc of an entity is the last one that starts at its first token or before.
        doc_index = bisect_right(first_tokens, begin) - 1
        first_token = first_tokens[doc_index]
        entity_in_doc = (begin - first_token, end - first_token, label)
        probs_of_docs[doc_index][entity_in_doc] = probs.get(entity)
    return probs_of_docs


def list_entities(entities: Entities, labels: Sequence[str]) -> list[Entity]:
    """List entities with the names of their labels.

    entities (Entities): The entities, with indices of labels.
    labels (Sequence[str]): The names of the labels.
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
    """Divide the gold and predicted entities of a doc into groups, so that entities of different
    groups don't overlap. Two entities are in the same group if they overlap, or if a chain of
    overlapping entities connects them. Returns the gold and the predicted entities of each group,
    in the order of the doc."""
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


def kind_of_mistake(gold: Sequence[Entity], predicted: Sequence[Entity]) -> str:
    """The kind of a mistake, one of `REPORTED_KINDS`.

    gold (Sequence[Entity]): Its annotated entities.
    predicted (Sequence[Entity]): Its predicted entities.
    RETURNS (str): The kind.
    """
    if not predicted:
        return MISSING_ENTITY
    if not gold:
        return SPURIOUS_ENTITY
    gold_spans = [(begin, end) for begin, end, _ in gold]
    predicted_spans = [(begin, end) for begin, end, _ in predicted]
    if gold_spans == predicted_spans:
        return WRONG_LABEL
    labels = {label for _, _, label in [*gold, *predicted]}
    if len(labels) == 1:
        return WRONG_BOUNDARY
    return LABEL_AND_BOUNDARY
