"""Guaranteed sets: the spans that a guarantee is about.

A *guarantee* says, for example, that the guaranteed set of a doc misses at most 5 % of its
entities: see `promises`. A span of the set has a score of at least a threshold, which may differ
between labels and between groups of docs.

In shapes, B is the number of docs, E the number of predicted entities, S the number of spans in the
sets, X the number of candidate spans.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.tokens import Doc
from thinc.types import Floats1d, Floats2d, Ints1d

from ..decoding import LEAST_PROB_OF_SETS, Posterior, by_label
from ..tags import Entities
from .promises import Promise, Terms

SMOOTHING = 0.05
"""The share of the probability of a candidate span that is divided equally among all labels, in the
scores of guaranteed sets: see `guarantee_scores`."""


def group_of(doc: Doc, key: str | None) -> str | None:
    """The group of docs that a doc belongs to. A guarantee may have different thresholds for each
    group.

    doc (Doc): A doc with `user_data`.
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
    """Choose the spans of the guaranteed sets. These are the spans whose score reaches the
    threshold of their label in the group of their doc. If the guarantee limits misses, the
    predicted entities are in the set, too. Spans of a set may overlap.

    entities (Entities): The predicted entities of the batch.
    probs (Floats1d): The probabilities of these entities. Shape: (E,)
    posterior (Posterior): The probabilities of all entities of the batch.
    promise (Promise): The guarantee, with the thresholds of each group.
    groups (Sequence[str | None]): The group of each doc. Length: B
    RETURNS (tuple[Entities, Floats1d]): The spans, ordered by begin and end, and their
        probabilities. Shape: (S,)
    """
    spans, scores = guarantee_scores(posterior, terms=promise)
    tags = posterior.tags

    # The threshold of each label in each doc. It is infinite for docs of a group without a
    # guarantee, so that their set is empty. Shape: (B, labels)
    thresholds_of_doc = numpy.full((len(groups), len(tags.labels)), numpy.inf)
    for group, thresholds in promise.groups.items():
        # `by_label` takes thresholds in the form of the settings of a decoding, and returns the
        # threshold of each label: the row of each doc of the group.
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
    thresholds of the set. Let p(b, e, l) be the probability of an entity with begin b, end e and
    label l. The score of a span is

        p(b, e, l)                                                     if false alarms are limited
        ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))   if misses are, by label
        sum_k p(b, e, k) / sqrt(max(1, n))                             if misses are, of any label

    The limit is by label if each label has a guarantee, or an entity counts as found only with its
    label. If it is of any label, only the most probable label l has this score. S is `SMOOTHING`: a
    model confuses labels more often than its probabilities say. n is the expected number of
    entities in the doc, or of entities with label l if each label has a guarantee: if many entities
    are expected, one of them is a small share. n is left out unless the miss rate is by doc.

    The guarantee holds with any score. With these scores, fewer spans reach the threshold for the
    same miss rate than with p alone.

    posterior (Posterior): The probabilities of all entities of the batch.
    terms (Terms): The terms of the guarantee.
    RETURNS (tuple[Entities, Floats1d]): The spans, ordered by begin and end, and their scores. The
        spans have a probability of at least `LEAST_PROB_OF_SETS`. If the limit is by label, the
        same tokens are there with other labels, too. Shape of the scores: (S,)
    """
    # Without `lowest_floor`, the floor would be raised to the least probability of alternatives.
    spans, probs = posterior.likely_entities(LEAST_PROB_OF_SETS, lowest_floor=LEAST_PROB_OF_SETS)
    if not terms.limits_misses or not len(probs):
        return spans, probs
    n_labels = len(posterior.tags.labels)
    candidates = join_labels(spans, probs, n_labels)

    # The probability that each candidate is an entity of any label. Shape: (X, 1)
    total_probs = candidates.label_probs.sum(axis=1, keepdims=True)
    # The score of each candidate with each label. Shape: (X, labels)
    is_by_label = terms.per_label or terms.found == "exact"
    if is_by_label:
        smoothed_part = SMOOTHING * total_probs / n_labels
        scores = (1 - SMOOTHING) * candidates.label_probs + smoothed_part
    else:
        best_label = candidates.label_probs.argmax(axis=1)
        is_best_label = numpy.arange(n_labels) == best_label[:, None]
        scores = numpy.where(is_best_label, total_probs, 0.0)

    if terms.by == "doc":
        # The probabilities that are summed to n: of each label, or of all labels together.
        counted_probs = candidates.label_probs if terms.per_label else total_probs
        n = _expected_numbers(posterior.doc_of_token[candidates.begin], counted_probs)
        scores = scores / numpy.sqrt(numpy.maximum(n, 1))

    # `LEAST_PROB_OF_SETS` limits probabilities. Scores are lower, as they are divided by a square
    # root, which is 10 for 100 expected entities. Scores below a tenth of the limit are left out:
    # for example, labels that have only the smoothed part.
    candidate, label = numpy.nonzero(scores >= LEAST_PROB_OF_SETS / 10)
    spans = Entities(candidates.begin[candidate], candidates.end[candidate], label)
    return spans, scores[candidate, label]


def _expected_numbers(doc_of_candidate: Ints1d, probs: Floats2d) -> Floats2d:
    """The expected number of entities in the doc of each candidate. The probabilities have C
    columns: a column for each label, or one for all labels. The docs of the candidates ascend, and
    there is at least one candidate. Shapes: (X,), (X, C) to (X, C)"""
    n_docs = doc_of_candidate[-1] + 1  # the docs up to the last one that has candidates
    numbers_of_docs = numpy.zeros((n_docs, probs.shape[1]))
    numpy.add.at(numbers_of_docs, doc_of_candidate, probs)
    return numbers_of_docs[doc_of_candidate]


class CandidateSpans(NamedTuple):
    """Candidate spans, each with its probabilities of all labels.

    begin (Ints1d): The first token of each candidate. Shape: (X,)
    end (Ints1d): The token after the last one of each candidate. Shape: (X,)
    label_probs (Floats2d): The probability of an entity of each label there. Shape: (X, labels)
    """

    begin: Ints1d
    end: Ints1d
    label_probs: Floats2d


def join_labels(spans: Entities, probs: Floats1d, n_labels: int) -> CandidateSpans:
    """Join spans with the same begin and end, but different labels, to one candidate. There is at
    least one span, and they are ordered by begin and end. Shape of their probabilities: (S,)"""
    begin, end, label = spans
    # Spans of one candidate follow each other: a new candidate begins where begin or end changes.
    is_first = numpy.ones(len(begin), dtype=bool)
    is_first[1:] = (begin[1:] != begin[:-1]) | (end[1:] != end[:-1])
    # The candidate of each span, numbered from 0: True, False, False, True becomes 0, 0, 0, 1.
    candidate_of_span = numpy.cumsum(is_first) - 1
    label_probs = numpy.zeros((int(is_first.sum()), n_labels))
    label_probs[candidate_of_span, label] = probs
    return CandidateSpans(begin[is_first], end[is_first], label_probs)
