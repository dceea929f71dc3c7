"""Rank the places of a corpus by how probably their annotation is wrong.

A place is a few tokens with the entities that are annotated there (none, one or several). The
suggestion is the best alternative to them, by the probabilities of the model. A place with its
suggestion is a suspect.

In this file an entity is (begin, end, label): its first token, the one after its last, its label.
The span of several entities goes from the first token of any of them to the one after the last.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from spacy.tokens import Doc
from thinc.types import Floats1d, Floats2d

from ...decoding import LEAST_PROB, Posterior
from ...pipeline.scorers import Entity
from ...tags import Entities, Tags
from ..fitting.folds import Fold
from ..reports.excerpts import covering_span
from ..reports.mistakes import (
    LABEL_AND_BOUNDARY,
    MISSING_ENTITY,
    SPURIOUS_ENTITY,
    WRONG_BOUNDARY,
    WRONG_LABEL,
    kind_of_mistake,
    list_entities,
)
from .phrase_counts import Phrase, count_annotations, label_by_span, words_between

SUSPECT_KINDS = (WRONG_LABEL, WRONG_BOUNDARY, MISSING_ENTITY, SPURIOUS_ENTITY)
"""The kinds of mistakes in annotation: see `kind_of_suspect`."""

MISSING_ODDS = 2.0
"""How much more often annotators overlook an entity than they make another mistake, if the model
gives both the same probabilities. Chosen on made-up mistakes: see docs/audit.md."""

SMOOTHING = 0.2
"""This is added to probabilities before the logarithm. With a lower value, more of the mistakes are
found that were put in at random; with a higher one, more of those that annotators make. It was
chosen on both: see docs/audit.md."""

PROBABLE = 0.5
"""Entities with a higher probability are suggested next to the best alternative of their place.
They don't overlap, as of overlapping entities only one can be more probable than this."""

MistakeCost = Callable[[Sequence[Entity], Sequence[Entity]], float]
"""Maps the true and the annotated entities of a place to the cost of that mistake."""


class Suspect(NamedTuple):
    """A place whose annotation may be wrong. Tokens of its entities are counted from the first one
    of the doc."""

    doc: int  # the index of the doc
    kind: str  # one of `SUSPECT_KINDS`: what the mistake is if the suggestion is right
    score: float  # the log-odds of the suggestion against the annotation: see `rank`
    annotated: list[Entity]  # the annotated entities of the place
    suggested: list[Entity]  # the entities that the place has if the suggestion is right
    # The two probabilities that the score compares. Each is the probability of a single entity,
    # even if the place has several, or of "no entity": see `Comparison`.
    prob_annotated: float
    prob_suggested: float
    as_annotated: int = 0  # how often other places have the same words with the same annotation
    as_suggested: int = 0  # how often other places have the same words annotated as suggested

    @property
    def span(self) -> tuple[int, int]:
        """The first token and the one after the last."""
        return covering_span((self.annotated, self.suggested))

    @property
    def is_probable(self) -> bool:
        """Whether the suggestion is more probable than the annotation."""
        return self.prob_suggested > self.prob_annotated

    @property
    def is_inconsistent(self) -> bool:
        """Whether the words are annotated elsewhere as suggested more often than as here."""
        return self.as_suggested > self.as_annotated


class Comparison(NamedTuple):
    """An annotated entity and one alternative to it. Either of them may be "no entity". Tokens are
    counted over all docs of a fold."""

    annotated: list[Entity]  # the annotated entity, or empty for none
    alternative: list[Entity]  # the alternative, which overlaps it, or empty for none
    prob_annotated: float
    prob_alternative: float


def rank(
    folds: Sequence[Fold], docs: Sequence[Doc], cost: MistakeCost | None = None
) -> list[Suspect]:
    """Find the best alternative of each place, and sort the places by its score, the most probable
    mistakes first. Of places that overlap, only the one with the highest score is kept.

        score = log(c(b, a) p(b) + SMOOTHING) - log(c(a, b) p(a) + SMOOTHING)

    Here a is the annotation and b the alternative. c(b, a) is the cost of annotating a where b is
    right, divided by the mean cost in the fold; without costs it is 1. p is the probability that
    exactly these tokens are an entity with this label or, for "no entity", that none of them is in
    one. If no entity is annotated, log MISSING_ODDS is added.

    folds (Sequence[Fold]): The predicted folds.
    docs (Sequence[Doc]): The docs of all folds.
    cost (MistakeCost | None): What a mistake costs. None: all mistakes cost the same.
    """
    suspects: list[Suspect] = []
    for fold in folds:
        suspects += find_suspects(fold, cost)
    suspects.sort(key=lambda suspect: -suspect.score)
    return count_elsewhere(suspects, docs)


def find_suspects(fold: Fold, cost: MistakeCost | None) -> Iterator[Suspect]:
    """Find the suspects of a fold, those with the highest score first. A suspect that overlaps an
    earlier one is left out. For the score see `rank`.

    fold (Fold): The predicted fold.
    cost (MistakeCost | None): What a mistake costs. None: all mistakes cost the same.
    YIELDS (Suspect): The suspects.
    """
    # Compare annotated entities with likely ones, all that overlap, and score each comparison.
    posterior = fold.dev.posterior
    labels = posterior.tags.labels
    likely, probs = posterior.likely_entities(LEAST_PROB)
    # Where nobody has annotated, there is no annotation to be wrong.
    is_counted = fold.dev.are_counted(likely)
    likely = likely.select(is_counted)
    probs = probs[is_counted]
    comparisons = compare_annotation(posterior, fold.dev.gold, likely, probs)
    scores = score_comparisons(comparisons, cost)

    gold = list_entities(fold.dev.gold, labels)
    probable = list_entities(likely.select(probs > PROBABLE), labels)
    # The first token of each doc of the fold, and the number of all tokens. Shape: (D + 1,)
    doc_starts = numpy.cumsum([0, *posterior.doc_lengths]).tolist()
    n_tokens = doc_starts[-1]
    is_in_place = numpy.zeros(n_tokens, dtype=bool)  # whether a token is in an earlier suspect
    highest_first = numpy.argsort(-scores, kind="stable").tolist()
    for i in highest_first:
        comparison = comparisons[i]
        alternative = comparison.alternative
        # The alternative replaces all annotated entities that it overlaps, not only the one that it
        # was compared with. So the place has the tokens of all of them.
        annotated = entities_between(gold, *covering_span((comparison.annotated, alternative)))
        begin, end = covering_span((annotated, alternative))
        if is_in_place[begin:end].any():
            continue
        is_in_place[begin:end] = True

        # If the alternative is "no entity", none is suggested. If nothing is annotated, the place
        # has only the tokens of the alternative, so there is no room for others.
        suggested = alternative
        if comparison.annotated and alternative:
            suggested = add_within(alternative, probable, begin, end)
        # The doc of the place is the last one that starts at its first token or before.
        doc_in_fold = bisect_right(doc_starts, begin) - 1
        doc_start = doc_starts[doc_in_fold]
        yield Suspect(
            doc=int(fold.docs[doc_in_fold]),
            kind=kind_of_suspect(suggested, annotated),
            score=float(scores[i]),
            annotated=shifted(annotated, -doc_start),
            suggested=shifted(suggested, -doc_start),
            prob_annotated=comparison.prob_annotated,
            prob_suggested=comparison.prob_alternative,
        )


def compare_annotation(
    posterior: Posterior, gold: Entities, likely: Entities, likely_probs: Floats1d
) -> list[Comparison]:
    """Compare the annotation of a fold with all alternatives. Comparisons are of three kinds:

    - an annotated entity is compared with no entity;
    - an annotated entity is compared with each likely one that overlaps it;
    - no entity is compared with each likely one that overlaps no annotated entity.

    posterior (Posterior): The posterior of the docs of the fold.
    gold (Entities): The annotated entities.
    likely (Entities): The E entities with a probability of at least `LEAST_PROB`, on annotated
        tokens.
    likely_probs (Floats1d): Their probabilities. Shape: (E,)
    """
    annotated = list_entities(gold, posterior.tags.labels)
    prob_of_annotated = dict(zip(annotated, posterior.entity_probs(gold).tolist()))
    # The probability of no entity: that all tokens of an annotated or likely entity are O
    no_entity_probs_gold = posterior.outside_probs(gold.begin, gold.end).tolist()
    no_entity_probs_likely = posterior.outside_probs(likely.begin, likely.end).tolist()

    comparisons: list[Comparison] = []
    for entity, no_entity_prob in zip(annotated, no_entity_probs_gold):
        comparisons.append(
            Comparison(
                annotated=[entity],
                alternative=[],
                prob_annotated=prob_of_annotated[entity],
                prob_alternative=no_entity_prob,
            )
        )
    alternatives = list_entities(likely, posterior.tags.labels)
    for alternative, prob, no_entity_prob in zip(
        alternatives, likely_probs.tolist(), no_entity_probs_likely
    ):
        begin, end, _ = alternative
        overlapping = entities_between(annotated, begin, end)
        if not overlapping:
            comparisons.append(
                Comparison(
                    annotated=[],
                    alternative=[alternative],
                    prob_annotated=no_entity_prob,
                    prob_alternative=prob,
                )
            )
        for entity in overlapping:
            if entity != alternative:
                comparisons.append(
                    Comparison(
                        annotated=[entity],
                        alternative=[alternative],
                        prob_annotated=prob_of_annotated[entity],
                        prob_alternative=prob,
                    )
                )
    return comparisons


def score_comparisons(comparisons: Sequence[Comparison], cost: MistakeCost | None) -> Floats1d:
    """The score of each comparison: the smoothed log odds of the alternative against the
    annotation. With a cost, both probabilities are first multiplied by what the mistake would cost.
    Where nothing is annotated the score is raised, as annotators overlook entities more often than
    they make other mistakes. For the formula see `rank`.

    RETURNS (Floats1d): The scores. Shape: (C,)
    """
    # For each comparison a number for the annotation and a number for the alternative
    pairs_of_probs: list[tuple[float, float]] = []
    pairs_of_costs: list[tuple[float, float]] = []
    has_annotated = numpy.zeros(len(comparisons), dtype=bool)
    for i, (annotated, alternative, prob_annotated, prob_alternative) in enumerate(comparisons):
        has_annotated[i] = bool(annotated)  # `annotated` is a list of entities.
        pairs_of_probs.append((prob_annotated, prob_alternative))
        if cost is not None:
            # If the annotation is right, the mistake would be the alternative, and the other way
            # round.
            cost_if_annotated = cost(annotated, alternative)
            cost_if_alternative = cost(alternative, annotated)
            pairs_of_costs.append((cost_if_annotated, cost_if_alternative))

    weights = numpy.asarray(pairs_of_probs).reshape(-1, 2)  # shape: (C, 2), also if C = 0
    if pairs_of_costs:
        costs = numpy.asarray(pairs_of_costs)
        # Costs are divided by their mean, so that `SMOOTHING` matters as much in any unit of costs.
        # If all of them are 0, they stay 0.
        weights *= costs / max(costs.mean(), 1e-12)
    log_weights = numpy.log(weights + SMOOTHING)
    scores = log_weights[:, 1] - log_weights[:, 0]
    scores[~has_annotated] += numpy.log(MISSING_ODDS)
    return scores


def add_within(
    suggested: list[Entity], probable: list[Entity], begin: int, end: int
) -> list[Entity]:
    """Add the probable entities of a place to those that are suggested there, if they overlap none
    of them. Otherwise a suggestion that splits an entity, say, would have only one of its parts.

    suggested (list[Entity]): The suggested entities, in order. The list isn't changed.
    probable (list[Entity]): All probable entities of the fold, in order.
    begin, end (int): The first token of the place, and the one after its last.
    """
    complete = suggested
    for entity in entities_between(probable, begin, end):
        entity_begin, entity_end, _ = entity
        is_within = begin <= entity_begin and entity_end <= end
        if is_within and not entities_between(complete, entity_begin, entity_end):
            complete = sorted([*complete, entity])
    return complete


def kind_of_suspect(suggested: Sequence[Entity], annotated: Sequence[Entity]) -> str:
    """Name the kind of mistake that the annotation of a place has if the suggestion is right: one
    of `SUSPECT_KINDS`. A place where label and boundary are both wrong counts as a wrong boundary.

    suggested (Sequence[Entity]): The suggested entities of the place.
    annotated (Sequence[Entity]): Its annotated entities.
    """
    # `kind_of_mistake` compares gold with predicted entities. Here the suggestion counts as gold.
    kind = kind_of_mistake(suggested, annotated)
    if kind == LABEL_AND_BOUNDARY:
        return WRONG_BOUNDARY
    return kind


def shifted(entities: Iterable[Entity], n_tokens: int) -> list[Entity]:
    """Move entities by a number of tokens: to the right, or to the left if it is negative."""
    return [(begin + n_tokens, end + n_tokens, label) for begin, end, label in entities]


def entities_between(entities: list[Entity], begin: int, end: int) -> list[Entity]:
    """The entities that have a token in the range from `begin` to `end` (exclusive).

    entities (list[Entity]): Entities in order that don't overlap.
    """
    # As they don't overlap, their begins and their ends ascend. So the first of them is the first
    # that ends after `begin`, and the last is the last that begins before `end`.
    first_entity = bisect_right(entities, begin, key=lambda entity: entity[1])
    after_last = bisect_left(entities, end, key=lambda entity: entity[0])
    return entities[first_entity:after_last]


def count_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> list[Suspect]:
    """Fill in how often the words of each suspect occur elsewhere in the corpus with the same
    annotation, and with the suggested one. These are the words of the first entity in which
    annotation and suggestion differ: see `find_changed_span`."""
    changed_spans = [find_changed_span(suspect) for suspect in suspects]
    words_of_suspects: list[Phrase] = []
    for suspect, (begin, end) in zip(suspects, changed_spans):
        words_of_suspects.append(words_between(docs[suspect.doc], begin, end))
    counts = count_annotations(set(words_of_suspects), docs)

    counted_suspects: list[Suspect] = []
    for suspect, changed_span, words in zip(suspects, changed_spans, words_of_suspects):
        annotated_label = label_by_span(suspect.annotated).get(changed_span, "")
        suggested_label = label_by_span(suspect.suggested).get(changed_span, "")
        counted_suspects.append(
            suspect._replace(
                as_annotated=counts[words, annotated_label] - 1,  # the place itself doesn't count
                as_suggested=counts[words, suggested_label],
            )
        )
    return counted_suspects


def find_changed_span(suspect: Suspect) -> tuple[int, int]:
    """The span of the first suggested entity that isn't annotated or, without one, of the first
    annotated entity that isn't suggested: its first token, and the one after its last."""
    annotated = set(suspect.annotated)
    suggested = set(suspect.suggested)
    differing = suggested - annotated
    if not differing:
        differing = annotated - suggested
    begin, end, _ = min(differing)
    return begin, end


def make_cost(table: Floats2d, tags: Tags) -> MistakeCost:
    """Make a function that computes the cost of a mistake: the sum of the costs of the tags of all
    tokens of its place.

    table (Floats2d): The cost of each pair of tags, [true, annotated]. Shape: (K, K)
    tags (Tags): The tags of the table.
    """

    def encode(entities: Sequence[Entity], begin: int, end: int) -> list[int]:
        """The tags of the tokens from `begin` to `end` (exclusive), if they have these entities."""
        # Tokens are counted from the first one of the place.
        begins = [entity_begin - begin for entity_begin, _, _ in entities]
        ends = [entity_end - begin for _, entity_end, _ in entities]
        labels = [tags.labels.index(label) for _, _, label in entities]
        entities_of_place = Entities(
            begin=numpy.asarray(begins, dtype="int64"),
            end=numpy.asarray(ends, dtype="int64"),
            label=numpy.asarray(labels, dtype="int64"),
        )
        return tags.encode(entities_of_place, end - begin)

    def cost(true: Sequence[Entity], annotated: Sequence[Entity]) -> float:
        """The cost of a place that has the annotated entities instead of the true ones."""
        begin, end = covering_span((true, annotated))
        true_tags = encode(true, begin, end)
        annotated_tags = encode(annotated, begin, end)
        return float(table[true_tags, annotated_tags].sum())

    return cost
