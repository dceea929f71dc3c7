"""Select the spans of guaranteed sets.

A *guarantee* (see `promises`) is a statement such as "the guaranteed set of a doc misses at most
5% of its entities". The set contains the spans whose scores reach a threshold. Thresholds may
differ between labels and between groups of docs.

In shapes, B is the number of docs, E the number of predicted entities, S the number of spans in the
sets, and X the number of candidate spans.
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
"""The fraction of a candidate span's probability that is distributed equally over all labels: see
`guarantee_scores`."""


def group_of(doc: Doc, key: str | None) -> str | None:
    """Get the group that a doc belongs to. A guarantee may have different thresholds for each
    group.

    doc (Doc): The doc.
    key (str | None): The key in `doc.user_data` that stores the name of the group. If None, all
        docs belong to the same group.
    RETURNS (str | None): The name of the group, or "" if all docs belong to the same group. None if
        the doc has no value for the key.
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
    """Select the spans of a batch whose scores reach the threshold for their label and the group of
    their doc. If the guarantee limits misses, the predicted entities are included, too. The spans
    of a set may overlap.

    entities (Entities): The predicted entities of the batch.
    probs (Floats1d): The probabilities of these entities. Shape: (E,)
    posterior (Posterior): The probabilities of all possible entities of the batch.
    promise (Promise): The guarantee with the thresholds of each group.
    groups (Sequence[str | None]): The group of each doc. Length: B
    RETURNS (tuple[Entities, Floats1d]): The spans, sorted by start and end, and their
        probabilities. Shape: (S,)
    """
    spans, scores = guarantee_scores(posterior, terms=promise)
    tags = posterior.tags

    # The threshold of each label in each doc. It is infinite for docs in groups without a
    # guarantee, whose sets are empty. Shape: (B, labels)
    thresholds_of_doc = numpy.full((len(groups), len(tags.labels)), numpy.inf)
    for group, thresholds in promise.groups.items():
        # `by_label` expects thresholds in the format of decoding settings. It returns the threshold
        # of each label, which is used for all docs in the group.
        settings = {"threshold": thresholds.threshold, "labels": thresholds.labels}
        docs_of_group = [i for i, group_of_doc in enumerate(groups) if group_of_doc == group]
        thresholds_of_doc[docs_of_group] = by_label("threshold", tags, settings)
    doc_of_span = posterior.doc_of_token[spans.begin]
    is_chosen = scores >= thresholds_of_doc[doc_of_span, spans.label]
    if not promise.limits_misses:
        spans = spans.select(is_chosen)
        return spans, posterior.entity_probs(spans)

    # Adding the predicted entities can't increase the miss rate.
    spans = spans.select(is_chosen & ~spans.is_in(entities))
    united = Entities(
        begin=numpy.append(entities.begin, spans.begin),
        end=numpy.append(entities.end, spans.end),
        label=numpy.append(entities.label, spans.label),
    )
    united_probs = numpy.append(probs, posterior.entity_probs(spans))
    order = numpy.lexsort((united.end, united.begin))  # by start, then by end
    return united.select(order), united_probs[order]


def guarantee_scores(posterior: Posterior, terms: Terms) -> tuple[Entities, Floats1d]:
    """Compute the scores of all candidate spans for a guaranteed set. Let p(b, e, l) be the
    probability of an entity with start b, end e and label l. The score of a span is

        p(b, e, l)                                                     to limit false alarms
        ((1 - S) p(b, e, l) + S mean_k p(b, e, k)) / sqrt(max(1, n))   to limit misses by label
        sum_k p(b, e, k) / sqrt(max(1, n))                             to limit misses of any label

    Misses are limited by label if there is a guarantee for each label, or if entities only count as
    found with the correct label. Otherwise, only the most probable label of a span has a non-zero
    score. S is `SMOOTHING`, which is needed because models confuse labels more often than their
    probabilities suggest. n is the expected number of entities in the doc (with label l, if there
    is a guarantee for each label). Scores are divided by sqrt(max(1, n)) because a single miss
    matters less if many entities are expected. This division is omitted unless the limit is the
    miss rate per doc.

    The guarantee is valid for any choice of score. Compared with p, this choice leads to smaller
    sets at the same miss rate.

    posterior (Posterior): The probabilities of all possible entities of the batch.
    terms (Terms): The terms of the guarantee.
    RETURNS (tuple[Entities, Floats1d]): The spans, sorted by start and end, and their scores. Only
        spans with a probability of at least `LEAST_PROB_OF_SETS` are considered. If misses are
        limited by label, these spans may also be returned with other labels. Shape of the scores:
        (S,)
    """
    # Without `lowest_floor`, the floor would be raised to the minimum probability of alternatives.
    spans, probs = posterior.likely_entities(LEAST_PROB_OF_SETS, lowest_floor=LEAST_PROB_OF_SETS)
    if not terms.limits_misses or not len(probs):
        return spans, probs
    n_labels = len(posterior.tags.labels)
    candidates = join_labels(spans, probs, n_labels)

    # The total probability of each candidate over all labels. Shape: (X, 1)
    total_probs = candidates.label_probs.sum(axis=1, keepdims=True)
    # The score of each label for each candidate. Shape: (X, labels)
    is_by_label = terms.per_label or terms.found == "exact"
    if is_by_label:
        smoothed_part = SMOOTHING * total_probs / n_labels
        scores = (1 - SMOOTHING) * candidates.label_probs + smoothed_part
    else:
        best_label = candidates.label_probs.argmax(axis=1)
        is_best_label = numpy.arange(n_labels) == best_label[:, None]
        scores = numpy.where(is_best_label, total_probs, 0.0)

    if terms.by == "doc":
        # n is the sum of these probabilities, either per label or over all labels.
        counted_probs = candidates.label_probs if terms.per_label else total_probs
        n = _expected_numbers(posterior.doc_of_token[candidates.begin], counted_probs)
        scores = scores / numpy.sqrt(numpy.maximum(n, 1))

    # `LEAST_PROB_OF_SETS` is a limit for probabilities. Scores are lower, because they are divided
    # by a square root, for example by 10 if 100 entities are expected. Therefore, only drop scores
    # below a tenth of the limit. They often belong to labels whose probability was close to 0
    # before smoothing.
    candidate, label = numpy.nonzero(scores >= LEAST_PROB_OF_SETS / 10)
    spans = Entities(candidates.begin[candidate], candidates.end[candidate], label)
    return spans, scores[candidate, label]


def _expected_numbers(doc_of_candidate: Ints1d, probs: Floats2d) -> Floats2d:
    """Compute the expected number of entities in the doc of each candidate. The probabilities have
    one column per label, or a single column for all labels. The candidates are sorted by doc, and
    there is at least one candidate. Shapes: (X,), (X, C) to (X, C)"""
    n_docs = doc_of_candidate[-1] + 1  # up to the last doc with candidates
    numbers_of_docs = numpy.zeros((n_docs, probs.shape[1]))
    numpy.add.at(numbers_of_docs, doc_of_candidate, probs)
    return numbers_of_docs[doc_of_candidate]


class CandidateSpans(NamedTuple):
    """Candidate spans with the probabilities of all labels.

    begin (Ints1d): The first token of each candidate. Shape: (X,)
    end (Ints1d): The end of each candidate (exclusive). Shape: (X,)
    label_probs (Floats2d): The probability of each label for each candidate. Shape: (X, labels)
    """

    begin: Ints1d
    end: Ints1d
    label_probs: Floats2d


def join_labels(spans: Entities, probs: Floats1d, n_labels: int) -> CandidateSpans:
    """Merge spans that only differ in their labels into candidates. There is at least one span, and
    the spans are sorted by start and end. Shape of the probabilities: (S,)"""
    begin, end, label = spans
    # The spans of a candidate are adjacent, so a new candidate starts where `begin` or `end`
    # changes.
    is_first = numpy.ones(len(begin), dtype=bool)
    is_first[1:] = (begin[1:] != begin[:-1]) | (end[1:] != end[:-1])
    # The index of each span's candidate: True, False, False, True becomes 0, 0, 0, 1.
    candidate_of_span = numpy.cumsum(is_first) - 1
    label_probs = numpy.zeros((int(is_first.sum()), n_labels))
    label_probs[candidate_of_span, label] = probs
    return CandidateSpans(begin[is_first], end[is_first], label_probs)
