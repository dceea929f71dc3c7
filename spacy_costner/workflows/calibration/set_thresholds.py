"""Choose the threshold for each part of a guarantee, so that the sets of spans satisfy a limit: a
maximum miss rate or a maximum share of false alarms.

A part is a group of docs, a label, or a label within a group. The methods are implemented in
`metrics/conformal.py`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy
from spacy.training import Example
from thinc.types import ArrayXd, Floats1d

from ...metrics import conformal
from ...pipeline.component import CostSensitiveNER
from ...pipeline.guaranteed_sets import group_of
from ...pipeline.promises import Terms
from .scored_spans import ScoredSpans

MIN_THRESHOLD = 1e-6
"""The lowest threshold that can be chosen. At this threshold, the set contains all spans with a
score."""

LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The limits whose thresholds are saved with a guarantee, in addition to the guaranteed limit,
unless the guarantee is per label. `report` plots them."""

ALARM_THRESHOLDS = numpy.append(
    1 - numpy.logspace(-3, -0.31, 40), numpy.linspace(0.5, 0.01, 50)
).round(4)
"""The thresholds tested for false alarms, from 0.999 down to 0.01. Above 0.5, their distances from
1 are spaced logarithmically, because small changes matter near 1."""

STEPS_OF_LIMITS = 10_000
"""The lowest limit that can be guaranteed is rounded up to a multiple of 1 / STEPS_OF_LIMITS."""

FindThreshold = Callable[[float], float | None]
"""Function that maps a limit to a threshold that satisfies it, or to None if no threshold does."""


class PartThreshold(NamedTuple):
    """The threshold of a part, and the limits that can be guaranteed for it.

    group (str): The name of the group. Empty if the guarantee isn't by group.
    label (str): The label. Empty if the part includes all labels.
    docs (int): The number of docs taken into account.
    entities (int): The number of annotated entities.
    threshold (float | None): The minimum score of spans in the set. None if the limit can't be
        guaranteed.
    reachable (float | None): The lowest limit that can be guaranteed with these docs. None if no
        limit below 1 can be guaranteed.
    docs_needed (int | None): The number of docs needed to guarantee the limit. None if no number is
        enough.
    spans (float): The number of spans in the set per annotated entity.
    levels (list[list[float]]): Pairs of [limit, threshold] for the guaranteed limit and `LEVELS`,
        in ascending order. Limits that can't be guaranteed are omitted.
    """

    group: str
    label: str
    docs: int
    entities: int
    threshold: float | None
    reachable: float | None
    docs_needed: int | None
    spans: float
    levels: list[list[float]]


class Risk(NamedTuple):
    """The risk of the calibration docs' sets: the share of misses or of false alarms.

    n_docs (int): The number of docs taken into account.
    weight (float): The sum of the weights of these docs, or `n_docs` if they have no weights.
    lowest (float): The lowest risk at any threshold. For false alarms, it is the risk at the first
        tested threshold, because no threshold can be chosen if the first one fails.
    is_binary (bool): Whether the risk of each doc is 0 or 1.
    find_threshold (FindThreshold): Function that finds a threshold for a limit.
    """

    n_docs: int
    weight: float
    lowest: float
    is_binary: bool
    find_threshold: FindThreshold


def find_parts(
    ner: CostSensitiveNER,
    scored: ScoredSpans,
    examples: Sequence[Example],
    terms: Terms,
    doc_weights: Floats1d | None = None,
) -> list[PartThreshold]:
    """Choose a threshold for each part: for each group of docs and, if the terms are per label, for
    each label.

    ner (CostSensitiveNER): The component whose labels the guarantee covers.
    scored (ScoredSpans): The spans and the annotated entities of all docs: see `score_spans`.
    examples (Sequence[Example]): The D calibration docs.
    terms (Terms): The terms of the guarantee.
    doc_weights (Floats1d | None): The weights of drawn docs: see `conformal_weights`. If None, all
        docs have the same weight. Shape: (D,)
    RETURNS (list[PartThreshold]): The parts, ordered by group and label. The threshold of a part is
        None if the limit can't be guaranteed.
    """
    group_of_doc = numpy.asarray([group_of(eg.reference, terms.by_group) for eg in examples])
    groups = numpy.unique(group_of_doc).tolist()
    # If the terms aren't per label, an empty string represents all labels. Likewise, an empty group
    # represents all docs.
    labels: Sequence[str] = ner.own_labels if terms.per_label else ("",)
    parts = []
    for group, label in product(groups, labels):
        is_doc_in_group = group_of_doc == group  # shape: (D,)
        spans = scored.spans[is_doc_in_group[scored.spans["doc"]]]
        gold = scored.gold[is_doc_in_group[scored.gold["doc"]]]
        if terms.per_label:
            label_index = ner.labels.index(label)
            spans = spans[spans["label"] == label_index]
            gold = gold[gold["label"] == label_index]
        part = find_part(
            spans,
            gold,
            n_docs=int(is_doc_in_group.sum()),
            n_parts=len(groups) * len(labels),
            terms=terms,
            doc_weights=doc_weights,
        )
        parts.append(part._replace(group=group, label=label))
    return parts


def find_part(
    spans: ArrayXd,
    gold: ArrayXd,
    *,
    n_docs: int,
    n_parts: int,
    terms: Terms,
    doc_weights: Floats1d | None = None,
) -> PartThreshold:
    """Choose the threshold of one of `n_parts` parts. `n_docs` is the number of docs in the part's
    group. `spans` and `gold` are the rows of `ScoredSpans` for the part. The group and label are
    left empty. Shape of the weights: (D,)"""
    # The maximum probability that the guarantee of this part fails. It is divided by the number of
    # parts, so that all guarantees hold simultaneously with the required confidence (Bonferroni
    # correction).
    delta: float | None = None
    if terms.confidence is not None:
        delta = (1 - terms.confidence) / n_parts
    if terms.limits_misses:
        risk = miss_risk(gold, terms, delta, doc_weights)
    else:
        assert delta is not None  # `guarantee` sets a confidence for false alarms
        risk = alarm_risk(spans, n_docs, delta)

    threshold = risk.find_threshold(terms.limit)
    # Also save the thresholds of other limits, which `observe` evaluates on other docs.
    levels: list[list[float]] = []
    for limit in sorted({*LEVELS, terms.limit}):
        threshold_of_limit = risk.find_threshold(limit)
        if threshold_of_limit is not None:
            levels.append([limit, threshold_of_limit])
    # Without a threshold, the set only contains spans with an infinite score: see `add_predicted`.
    least_score = numpy.inf if threshold is None else threshold
    is_in_set = spans["score"] >= least_score
    n_in_set = float(is_in_set.sum())
    n_entities = float(len(gold))
    docs_needed = conformal.docs_needed(
        risk.lowest, terms.limit, delta=delta, binary=risk.is_binary
    )
    if doc_weights is not None:
        # Estimate both numbers for all texts by weighting each span with the weight of its doc.
        n_in_set = float(doc_weights[spans["doc"][is_in_set]].sum())
        n_entities = float(doc_weights[gold["doc"]].sum())
        if docs_needed is not None and risk.n_docs > 0:
            # `conformal.docs_needed` returns a sum of weights. Divide it by the mean weight of a
            # doc to get a number of docs. If no doc counts, the mean is unknown and assumed to be
            # 1.
            docs_needed = math.ceil(docs_needed * risk.n_docs / risk.weight)
    return PartThreshold(
        group="",
        label="",
        docs=risk.n_docs,
        entities=len(gold),
        threshold=threshold,
        reachable=find_reachable(risk.find_threshold),
        docs_needed=docs_needed,
        spans=n_in_set / (n_entities or 1.0),  # avoid division by 0
        levels=levels,
    )


def miss_risk(
    gold: ArrayXd, terms: Terms, delta: float | None, doc_weights: Floats1d | None
) -> Risk:
    """Compute the risk of missing entities: the share of entities that are missed, or the share of
    docs with a missed entity, depending on `terms.by`. Docs without entities don't count. `delta`
    is the maximum probability that the guarantee fails; if None, the guarantee holds on average.
    Shape of the weights: (D,)"""
    losses = conformal.miss_losses(gold["score"], gold["doc"], by=terms.by, doc_weights=doc_weights)
    # Larger sets miss fewer entities, so the lowest threshold has the lowest risk.
    (lowest_risk,) = losses.mean(numpy.asarray([MIN_THRESHOLD])).tolist()
    find_threshold = partial(find_miss_threshold, losses, delta)
    n_docs = len(numpy.unique(gold["doc"]))
    return Risk(
        n_docs=n_docs,
        weight=losses.n,
        lowest=lowest_risk,
        is_binary=losses.binary,
        find_threshold=find_threshold,
    )


def alarm_risk(spans: ArrayXd, n_docs: int, delta: float) -> Risk:
    """Compute the risk of false alarms: the share of wrong spans in the sets of `n_docs` docs.
    `delta` is the maximum probability that the guarantee fails."""
    is_wrong = ~spans["found"]
    risks = conformal.false_alarm_risk(
        spans["score"], is_wrong, spans["doc"], n_docs, ALARM_THRESHOLDS
    )
    find_threshold = partial(find_alarm_threshold, risks, n_docs, delta)
    # Each doc has a weight of 1, so the sum of weights is the number of docs. Thresholds are tested
    # in descending order, and none can be chosen if the first one fails. So the lowest risk is the
    # risk at the first threshold.
    return Risk(
        n_docs=n_docs,
        weight=n_docs,
        lowest=float(risks[0]),
        is_binary=False,
        find_threshold=find_threshold,
    )


def find_miss_threshold(
    losses: conformal.Losses, delta: float | None, limit: float
) -> float | None:
    """Find the highest threshold that guarantees a miss rate of at most the limit, rounded down to
    four significant digits. Returns None if even the lowest threshold misses too many entities. For
    `delta`, see `miss_risk`."""
    threshold = conformal.threshold(losses, limit, delta=delta, floor=MIN_THRESHOLD)
    if threshold is None:
        return None
    # Round down, because the score of the same span may be slightly lower in another batch:
    # 0.012349 becomes 0.01234. The number of digits before the decimal point is 0 for 0.12 and -1
    # for 0.012.
    n_before_point = math.floor(math.log10(threshold)) + 1
    scale = 10.0 ** (4 - n_before_point)
    rounded_down = math.floor(threshold * scale) / scale
    # Rounding errors can push the result below `MIN_THRESHOLD` or add further digits, so clip it
    # and format it with four digits.
    return float(f"{max(rounded_down, MIN_THRESHOLD):.4g}")


def find_alarm_threshold(risks: Floats1d, n_docs: int, delta: float, limit: float) -> float | None:
    """Find the lowest threshold that guarantees a share of false alarms of at most the limit. Tests
    `ALARM_THRESHOLDS` in descending order and selects the last one before the first failure (fixed
    sequence testing). Returns None if the highest threshold fails. Shape of the risks:
    (thresholds,)"""
    p_values = conformal.p_values(risks, limit, n_docs)
    n_passed = conformal.fixed_sequence(p_values, delta)
    if n_passed == 0:
        return None
    return float(ALARM_THRESHOLDS[n_passed - 1])


def find_reachable(find_threshold: FindThreshold) -> float | None:
    """Find the lowest limit that can be guaranteed, rounded up to a multiple of 1 /
    `STEPS_OF_LIMITS`. Returns None if no limit below 1 can be guaranteed. If a limit can be
    guaranteed, so can all higher limits."""
    # Bisect between `low`, which can't be guaranteed, and `high`, which can be guaranteed unless it
    # is still 1.
    low = 0.0
    high = 1.0
    while high - low > 1 / STEPS_OF_LIMITS:
        middle = (low + high) / 2
        if find_threshold(middle) is None:
            low = middle
        else:
            high = middle
    if high == 1:
        return None
    return math.ceil(high * STEPS_OF_LIMITS) / STEPS_OF_LIMITS
