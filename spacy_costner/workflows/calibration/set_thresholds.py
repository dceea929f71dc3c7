"""Choose the threshold of the set of spans for each part of the docs, so that the set satisfies a
limit: a highest miss rate, or a highest share of false alarms.

A part is a group of docs, a label, or a label in a group. The methods are in
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
"""The lowest threshold that is chosen. The set then has all spans with a score."""

LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The limits whose thresholds are saved with a guarantee, in addition to its own limit, unless it
is a guarantee for each label. `report` plots them."""

ALARM_THRESHOLDS = numpy.append(
    1 - numpy.logspace(-3, -0.31, 40), numpy.linspace(0.5, 0.01, 50)
).round(4)
"""The thresholds that are tested for false alarms, from 0.999 down to 0.01. Above 0.5 their
distance from 1 is on a logarithmic scale, as small changes matter near 1."""

STEPS_OF_LIMITS = 10_000
"""The lowest limit that can be guaranteed is rounded up to a multiple of 1 / STEPS_OF_LIMITS."""

FindThreshold = Callable[[float], float | None]
"""Maps a limit to the threshold that keeps it, or to None if no threshold does."""


class PartThreshold(NamedTuple):
    """The threshold of a part, and the limits that can be guaranteed for it.

    group (str): The name of the group. Empty if the guarantee has no groups.
    label (str): The label. Empty if the part has all labels.
    docs (int): The number of docs that count.
    entities (int): The number of annotated entities.
    threshold (float | None): The lowest score of a span in the set. None if the limit can't be
        guaranteed.
    reachable (float | None): The lowest limit that can be guaranteed with these docs. None if no
        limit below 1 can be.
    docs_needed (int | None): The number of docs with which the limit could be guaranteed. None if
        no number is enough.
    spans (float): The number of spans in the set per annotated entity.
    levels (list[list[float]]): [limit, threshold] of the limit of the guarantee and of `LEVELS`,
        ascending, without limits that can't be guaranteed.
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
    """The risk of the sets of calibration docs: the share of misses, or of false alarms.

    n_docs (int): The number of docs that count.
    weight (float): The sum of the weights of these docs. Without weights it is `n_docs`.
    lowest (float): The lowest risk of any threshold. For false alarms it is the risk of the first
        threshold that is tested, as no threshold can be chosen if that one fails.
    is_binary (bool): Whether the risk of each doc is 0 or 1.
    find_threshold (FindThreshold): Finds the threshold that keeps a limit.
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

    ner (CostSensitiveNER): The component whose labels have the guarantee.
    scored (ScoredSpans): The spans and the annotated entities of all docs: see `score_spans`.
    examples (Sequence[Example]): The D calibration docs.
    terms (Terms): The terms of the guarantee.
    doc_weights (Floats1d | None): The weights of drawn docs: see `conformal_weights`. None: all
        docs have the same weight. Shape: (D,)
    RETURNS (list[PartThreshold]): The parts, by group and label. Parts of which the limit can't be
        guaranteed have no threshold.
    """
    group_of_doc = numpy.asarray([group_of(eg.reference, terms.by_group) for eg in examples])
    groups = numpy.unique(group_of_doc).tolist()
    # Otherwise a part has all labels. An empty string stands for all labels, and for all docs.
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
    """Choose the threshold of one of `n_parts` parts. Its group has `n_docs` docs; `spans` and
    `gold` have its rows of `ScoredSpans`. The names of group and label are left empty. Shape of the
    weights: (D,)"""
    # The highest probability that the guarantee of this part fails. It is divided among the parts,
    # so that all guarantees hold together with the confidence of the terms (Bonferroni).
    delta: float | None = None
    if terms.confidence is not None:
        delta = (1 - terms.confidence) / n_parts
    if terms.limits_misses:
        risk = miss_risk(gold, terms, delta, doc_weights)
    else:
        assert delta is not None  # `guarantee` gives such terms a confidence
        risk = alarm_risk(spans, n_docs, delta)

    threshold = risk.find_threshold(terms.limit)
    # The thresholds of other limits are saved, too: `observe` tries them on other docs.
    levels: list[list[float]] = []
    for limit in sorted({*LEVELS, terms.limit}):
        threshold_of_limit = risk.find_threshold(limit)
        if threshold_of_limit is not None:
            levels.append([limit, threshold_of_limit])
    # Without a threshold the set has only spans with an infinite score: see `add_predicted`.
    least_score = numpy.inf if threshold is None else threshold
    is_in_set = spans["score"] >= least_score
    n_in_set = float(is_in_set.sum())
    n_entities = float(len(gold))
    docs_needed = conformal.docs_needed(
        risk.lowest, terms.limit, delta=delta, binary=risk.is_binary
    )
    if doc_weights is not None:
        # Both numbers are estimates for all texts: each span counts with the weight of its doc.
        n_in_set = float(doc_weights[spans["doc"][is_in_set]].sum())
        n_entities = float(doc_weights[gold["doc"]].sum())
        if docs_needed is not None and risk.n_docs > 0:
            # `docs_needed` gives a sum of weights. Divide it by the mean weight of a doc. If no doc
            # counts, the mean is unknown, and the weight of a doc is taken to be 1.
            docs_needed = math.ceil(docs_needed * risk.n_docs / risk.weight)
    return PartThreshold(
        group="",
        label="",
        docs=risk.n_docs,
        entities=len(gold),
        threshold=threshold,
        reachable=find_reachable(risk.find_threshold),
        docs_needed=docs_needed,
        spans=n_in_set / (n_entities or 1.0),  # without entities: the number of spans
        levels=levels,
    )


def miss_risk(
    gold: ArrayXd, terms: Terms, delta: float | None, doc_weights: Floats1d | None
) -> Risk:
    """The share of annotated entities that sets miss, or of docs with a missed entity, depending on
    `terms.by`. Docs without entities don't count. `delta` is the highest probability that the
    guarantee fails; without it the guarantee holds on average. Shape of the weights: (D,)"""
    losses = conformal.miss_losses(gold["score"], gold["doc"], by=terms.by, doc_weights=doc_weights)
    # The larger the set, the fewer entities it misses: the lowest threshold has the lowest risk.
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
    """The share of spans in the sets of `n_docs` docs that are false alarms. `delta` is the highest
    probability that the guarantee fails."""
    is_wrong = ~spans["found"]
    risks = conformal.false_alarm_risk(
        spans["score"], is_wrong, spans["doc"], n_docs, ALARM_THRESHOLDS
    )
    find_threshold = partial(find_alarm_threshold, risks, n_docs, delta)
    # Each doc has the weight 1, so the sum of weights is the number of docs. Thresholds are tested
    # from the highest down. If the first fails, none can be chosen: its risk is the lowest.
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
    """Find the highest threshold with which a miss rate of at most the limit can be guaranteed,
    rounded down to four significant digits. Returns None if sets miss too much even with the lowest
    threshold. See `miss_risk` for `delta`."""
    threshold = conformal.threshold(losses, limit, delta=delta, floor=MIN_THRESHOLD)
    if threshold is None:
        return None
    # It is rounded down, as the score of the same span may be slightly lower in another batch:
    # 0.012349 becomes 0.01234. The number of digits before the point is 0 for 0.12, -1 for 0.012.
    n_before_point = math.floor(math.log10(threshold)) + 1
    scale = 10.0 ** (4 - n_before_point)
    rounded_down = math.floor(threshold * scale) / scale
    # Rounding errors of the product may make it lower than `MIN_THRESHOLD`. Formatting removes what
    # the division leaves after the fourth digit.
    return float(f"{max(rounded_down, MIN_THRESHOLD):.4g}")


def find_alarm_threshold(risks: Floats1d, n_docs: int, delta: float, limit: float) -> float | None:
    """Find the lowest threshold with which a share of false alarms of at most the limit can be
    guaranteed. `ALARM_THRESHOLDS` are tested from the highest down, and the last one before the
    first failure is chosen (fixed sequence testing). Returns None if the highest one fails. Shape
    of the risks: (thresholds,)"""
    p_values = conformal.p_values(risks, limit, n_docs)
    n_passed = conformal.fixed_sequence(p_values, delta)
    if n_passed == 0:
        return None
    return float(ALARM_THRESHOLDS[n_passed - 1])


def find_reachable(find_threshold: FindThreshold) -> float | None:
    """Find the lowest limit that can be guaranteed, rounded up to a multiple of 1 /
    `STEPS_OF_LIMITS`. Returns None if no limit below 1 can be guaranteed. If a limit can be, so can
    each higher one."""
    # Bisection: the limit lies between `low`, which can't be guaranteed, and `high`, which can be
    # guaranteed unless it is still 1.
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
