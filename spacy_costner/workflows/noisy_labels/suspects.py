"""Rank the spans of a corpus by how likely their annotation is to be wrong.

A suspect is a span together with a suggestion. The span may contain several annotated entities,
one, or none. The suggestion is the best alternative annotation according to the model.

In this module, an entity is a tuple (begin, end, label), where `end` is exclusive. The span of
several entities extends from the first token of the first entity to the last token of the last.
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
"""The kinds of annotation mistakes: see `kind_of_suspect`."""

MISSING_ODDS = 2.0
"""How many times more likely annotators are to miss an entity than to make another mistake, given
the same model probabilities. Chosen on synthetic mistakes: see docs/audit.md."""

SMOOTHING = 0.2
"""The value added to probabilities before taking the logarithm. Lower values find more of the
mistakes that were inserted at random, and higher values find more of the mistakes that annotators
make. The value is a compromise: see docs/audit.md."""

PROBABLE = 0.5
"""Entities with a higher probability are suggested along with the best alternative for their span.
They don't overlap, because at most one of several overlapping entities can be more probable than
this."""

MistakeCost = Callable[[Sequence[Entity], Sequence[Entity]], float]
"""Maps the true and the annotated entities of a span to the cost of the mistake."""


class Suspect(NamedTuple):
    """A span whose annotation may be wrong. The token indices of its entities are relative to the
    doc."""

    doc: int  # the index of the doc
    kind: str  # one of `SUSPECT_KINDS`: the mistake if the suggestion is right
    score: float  # the log-odds of the suggestion against the annotation: see `rank`
    annotated: list[Entity]  # the annotated entities in the span
    suggested: list[Entity]  # the entities in the span if the suggestion is right
    # The two probabilities compared by the score. Each is the probability of a single entity, even
    # if the span contains several, or of "no entity": see `Comparison`.
    prob_annotated: float
    prob_suggested: float
    as_annotated: int = 0  # how often the words have the same annotation elsewhere
    as_suggested: int = 0  # how often the words have the suggested annotation elsewhere

    @property
    def span(self) -> tuple[int, int]:
        """The index of the first token, and of the token after the last."""
        return covering_span((self.annotated, self.suggested))

    @property
    def is_probable(self) -> bool:
        """Whether the suggestion is more probable than the annotation."""
        return self.prob_suggested > self.prob_annotated

    @property
    def is_inconsistent(self) -> bool:
        """Whether the words have the suggested annotation elsewhere more often than the current
        one."""
        return self.as_suggested > self.as_annotated


class Comparison(NamedTuple):
    """An annotated entity and one alternative. Either of them may be "no entity". Token indices are
    relative to the fold, whose docs are concatenated."""

    annotated: list[Entity]  # the annotated entity; empty for "no entity"
    alternative: list[Entity]  # the overlapping alternative; empty for "no entity"
    prob_annotated: float
    prob_alternative: float


def rank(
    folds: Sequence[Fold], docs: Sequence[Doc], cost: MistakeCost | None = None
) -> list[Suspect]:
    """Find the best alternative for each span, and sort the spans by score, the most probable
    mistakes first. If suspects overlap, only the one with the highest score is kept.

        score = log(c(b, a) p(b) + SMOOTHING) - log(c(a, b) p(a) + SMOOTHING)

    Here, a is the annotation and b the alternative. c(b, a) is the cost of annotating a if b is
    right, divided by the mean cost in the fold, or 1 if there are no costs. p is the probability
    that exactly these tokens form an entity with this label. For "no entity", it is the probability
    that none of the tokens is in an entity. If no entity is annotated, log MISSING_ODDS is added.

    folds (Sequence[Fold]): The folds with their predictions.
    docs (Sequence[Doc]): The docs of all folds.
    cost (MistakeCost | None): The cost function. If None, all mistakes have the same cost.
    RETURNS (list[Suspect]): The suspects, sorted by score.
    """
    suspects: list[Suspect] = []
    for fold in folds:
        suspects += find_suspects(fold, cost)
    suspects.sort(key=lambda suspect: -suspect.score)
    return count_elsewhere(suspects, docs)


def find_suspects(fold: Fold, cost: MistakeCost | None) -> Iterator[Suspect]:
    """Find the suspects of a fold, in descending order of score. A suspect that overlaps an earlier
    one is skipped. See `rank` for the score.

    fold (Fold): The fold with its predictions.
    cost (MistakeCost | None): The cost function. If None, all mistakes have the same cost.
    YIELDS (Suspect): The suspects.
    """
    # Compare the annotated entities with all likely entities that overlap them, and score each
    # comparison.
    posterior = fold.dev.posterior
    labels = posterior.tags.labels
    likely, probs = posterior.likely_entities(LEAST_PROB)
    # Ignore tokens without annotation, because there is no annotation that could be wrong.
    is_counted = fold.dev.are_counted(likely)
    likely = likely.select(is_counted)
    probs = probs[is_counted]
    comparisons = compare_annotation(posterior, fold.dev.gold, likely, probs)
    scores = score_comparisons(comparisons, cost)

    gold = list_entities(fold.dev.gold, labels)
    probable = list_entities(likely.select(probs > PROBABLE), labels)
    # The first token of each doc in the fold, followed by the total number of tokens.
    # Shape: (D + 1,)
    doc_starts = numpy.cumsum([0, *posterior.doc_lengths]).tolist()
    n_tokens = doc_starts[-1]
    is_in_place = numpy.zeros(n_tokens, dtype=bool)  # whether a token is in an earlier suspect
    highest_first = numpy.argsort(-scores, kind="stable").tolist()
    for i in highest_first:
        comparison = comparisons[i]
        alternative = comparison.alternative
        # The alternative replaces all annotated entities that it overlaps, not only the one in this
        # comparison, so the span covers all of them.
        annotated = entities_between(gold, *covering_span((comparison.annotated, alternative)))
        begin, end = covering_span((annotated, alternative))
        if is_in_place[begin:end].any():
            continue
        is_in_place[begin:end] = True

        # If the alternative is "no entity", nothing is suggested. If nothing is annotated, the span
        # only contains the alternative, so there is no room for other entities.
        suggested = alternative
        if comparison.annotated and alternative:
            suggested = add_within(alternative, probable, begin, end)
        # Find the last doc that starts at or before the first token of the span.
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
    """Compare the annotation of a fold with all alternatives. There are three kinds of comparisons:

    - an annotated entity with "no entity";
    - an annotated entity with each likely entity that overlaps it;
    - "no entity" with each likely entity that doesn't overlap an annotated entity.

    posterior (Posterior): The posterior of the docs in the fold.
    gold (Entities): The annotated entities.
    likely (Entities): The E entities that consist of annotated tokens and have a probability of at
        least `LEAST_PROB`.
    likely_probs (Floats1d): The probabilities of the likely entities. Shape: (E,)
    RETURNS (list[Comparison]): The comparisons.
    """
    annotated = list_entities(gold, posterior.tags.labels)
    prob_of_annotated = dict(zip(annotated, posterior.entity_probs(gold).tolist()))
    # The probability of "no entity", i.e. that all tokens of the annotated or likely entity are O
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
    """Compute the score of each comparison: the smoothed log odds of the alternative against the
    annotation. If there is a cost function, both probabilities are first multiplied by the cost of
    the mistake. If nothing is annotated, the score is increased, because annotators are more likely
    to miss an entity than to make another mistake. See `rank` for the formula.

    RETURNS (Floats1d): The scores. Shape: (C,)
    """
    # Pairs of values for the annotation and the alternative
    pairs_of_probs: list[tuple[float, float]] = []
    pairs_of_costs: list[tuple[float, float]] = []
    has_annotated = numpy.zeros(len(comparisons), dtype=bool)
    for i, (annotated, alternative, prob_annotated, prob_alternative) in enumerate(comparisons):
        has_annotated[i] = bool(annotated)  # whether the list is not empty
        pairs_of_probs.append((prob_annotated, prob_alternative))
        if cost is not None:
            # If the annotation is right, the alternative would be the mistake, and vice versa.
            cost_if_annotated = cost(annotated, alternative)
            cost_if_alternative = cost(alternative, annotated)
            pairs_of_costs.append((cost_if_annotated, cost_if_alternative))

    weights = numpy.asarray(pairs_of_probs).reshape(-1, 2)  # shape: (C, 2), also if C = 0
    if pairs_of_costs:
        costs = numpy.asarray(pairs_of_costs)
        # Divide costs by their mean, so that the effect of `SMOOTHING` doesn't depend on the unit
        # of costs. If all costs are 0, they stay 0.
        weights *= costs / max(costs.mean(), 1e-12)
    log_weights = numpy.log(weights + SMOOTHING)
    scores = log_weights[:, 1] - log_weights[:, 0]
    scores[~has_annotated] += numpy.log(MISSING_ODDS)
    return scores


def add_within(
    suggested: list[Entity], probable: list[Entity], begin: int, end: int
) -> list[Entity]:
    """Add the probable entities within a span that don't overlap its suggested entities. Without
    them, if a suggestion splits an annotated entity, only one of the parts would be suggested.

    suggested (list[Entity]): The suggested entities, in order. The list isn't modified.
    probable (list[Entity]): All probable entities of the fold, in order.
    begin, end (int): The first token of the span, and the token after the last.
    RETURNS (list[Entity]): The suggested and the added entities, in order.
    """
    complete = suggested
    for entity in entities_between(probable, begin, end):
        entity_begin, entity_end, _ = entity
        is_within = begin <= entity_begin and entity_end <= end
        if is_within and not entities_between(complete, entity_begin, entity_end):
            complete = sorted([*complete, entity])
    return complete


def kind_of_suspect(suggested: Sequence[Entity], annotated: Sequence[Entity]) -> str:
    """Return the kind of mistake in the annotation of a span if the suggestion is right: one of
    `SUSPECT_KINDS`. If label and boundary are both wrong, it counts as a wrong boundary.

    suggested (Sequence[Entity]): The suggested entities in the span.
    annotated (Sequence[Entity]): The annotated entities in the span.
    RETURNS (str): The kind.
    """
    # `kind_of_mistake` compares gold and predicted entities. Here, the suggestion counts as gold.
    kind = kind_of_mistake(suggested, annotated)
    if kind == LABEL_AND_BOUNDARY:
        return WRONG_BOUNDARY
    return kind


def shifted(entities: Iterable[Entity], n_tokens: int) -> list[Entity]:
    """Shift entities by a number of tokens: to the right, or to the left if the number is
    negative."""
    return [(begin + n_tokens, end + n_tokens, label) for begin, end, label in entities]


def entities_between(entities: list[Entity], begin: int, end: int) -> list[Entity]:
    """Return the entities with at least one token from `begin` to `end` (exclusive).

    entities (list[Entity]): Entities in order, without overlap.
    begin, end (int): The first token of the range, and the token after the last.
    """
    # Entities that don't overlap are sorted by both start and end. The first match is the first
    # entity that ends after `begin`, and the last match is the last entity that begins before
    # `end`.
    first_entity = bisect_right(entities, begin, key=lambda entity: entity[1])
    after_last = bisect_left(entities, end, key=lambda entity: entity[0])
    return entities[first_entity:after_last]


def count_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> list[Suspect]:
    """Add counts to the suspects: how often their words have the current and the suggested
    annotation elsewhere in the corpus. The words are taken from the first entity that differs
    between annotation and suggestion: see `find_changed_span`."""
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
                as_annotated=counts[words, annotated_label] - 1,  # excluding the suspect itself
                as_suggested=counts[words, suggested_label],
            )
        )
    return counted_suspects


def find_changed_span(suspect: Suspect) -> tuple[int, int]:
    """Return the span of the first suggested entity that isn't annotated or, if there is none, of
    the first annotated entity that isn't suggested.

    RETURNS (tuple[int, int]): The first token, and the token after the last.
    """
    annotated = set(suspect.annotated)
    suggested = set(suspect.suggested)
    differing = suggested - annotated
    if not differing:
        differing = annotated - suggested
    begin, end, _ = min(differing)
    return begin, end


def make_cost(table: Floats2d, tags: Tags) -> MistakeCost:
    """Create a function that computes the cost of a mistake: the sum of the tag costs of all tokens
    in its span.

    table (Floats2d): The cost of each pair of tags, [true, annotated]. Shape: (K, K)
    tags (Tags): The tags of the table.
    RETURNS (MistakeCost): The cost function.
    """

    def encode(entities: Sequence[Entity], begin: int, end: int) -> list[int]:
        """Encode entities as the tags of the tokens from `begin` to `end` (exclusive)."""
        # Token indices relative to the span
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
        """Compute the cost of annotating these entities instead of the true ones."""
        begin, end = covering_span((true, annotated))
        true_tags = encode(true, begin, end)
        annotated_tags = encode(annotated, begin, end)
        return float(table[true_tags, annotated_tags].sum())

    return cost
