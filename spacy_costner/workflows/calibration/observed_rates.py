"""Compare guaranteed miss rates with the miss rates observed on other annotated docs."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from thinc.types import Floats1d

from ...metrics import conformal
from ...pipeline.component import CostSensitiveNER
from ...pipeline.guaranteed_sets import group_of
from ..components import get_component
from ..evaluation.recurrence import KnownText
from ..sampling.drawing import Drawing, sample_of
from ..sampling.estimation import MIN_OF_EACH, as_share
from ..sampling.estimators import Count, Interval, estimate_ratio
from .calibration_docs import have_entities, leave_out_unusable
from .scored_spans import ScoredSpans, score_spans


class KeptPromise(NamedTuple):
    """The miss rate of an earlier guarantee, estimated for the texts that docs were drawn from.

    limit (float): The highest guaranteed miss rate.
    miss_rate (Interval): The estimated miss rate with its 95 % interval.
    n_drawings_with_miss (int): The number of draws that selected a doc with a missed entity.
    """

    limit: float
    miss_rate: Interval
    n_drawings_with_miss: int

    def as_text(self) -> str:
        """Describe the miss rate in a sentence, with its interval if enough drawn docs have a
        miss."""
        value, low, high = self.miss_rate
        interval = f"95 % interval {low:.3g} to {high:.3g}"
        if self.n_drawings_with_miss < MIN_OF_EACH:
            interval = (
                f"{self.n_drawings_with_miss} drawn docs with a miss, too few for an interval"
            )
        return (
            f"The previous set was guaranteed to miss at most {self.limit:g}, and misses "
            f"{value:.3g} ({interval})"
        )


class ObservedMissRate(NamedTuple):
    """A limit that can be guaranteed, and the miss rate observed with its thresholds.

    limit (float): The highest guaranteed miss rate.
    miss_rate (float): The observed miss rate.
    spans (float): The number of spans in the set per annotated entity.
    """

    limit: float
    miss_rate: float
    spans: float


def measure_promise(
    nlp: Language,
    ner: CostSensitiveNER,
    drawn_examples: Sequence[Example],
    drawings: Sequence[Drawing],
) -> KeptPromise | None:
    """Estimate the miss rate of a component's current guarantee for the texts that docs were drawn
    from. The estimate is the mean miss rate of the texts with entities.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component of `nlp` with the guarantee.
    drawn_examples (Sequence[Example]): The annotated docs, without duplicates of docs that were
        drawn several times.
    drawings (Sequence[Drawing]): The drawing of each doc, with the number of times it was drawn.
    RETURNS (KeptPromise | None): The guaranteed and the estimated miss rate. None if the component
        has no guaranteed miss rate, or if the guarantee is per label or per group.
    """
    promise = ner.guarantee
    if promise is None or promise.miss is None or promise.per_label or promise.by_group:
        return None
    scored_spans = score_spans(nlp, ner, drawn_examples, terms=promise)
    # An entity is missed if the highest threshold that finds it is below the guaranteed threshold.
    all_docs = ""  # the key of the only group: the guarantee isn't per group
    is_missed = scored_spans.gold["score"] < promise.groups[all_docs].threshold
    n_docs = len(drawn_examples)
    n_entities = numpy.bincount(scored_spans.gold["doc"], minlength=n_docs)
    n_missed = numpy.bincount(scored_spans.gold["doc"], weights=is_missed, minlength=n_docs)
    miss_rates = n_missed / numpy.maximum(n_entities, 1)  # shape: (docs,)
    if promise.by == "any":
        # A doc has a miss rate of 1 if any of its entities is missed.
        miss_rates = numpy.ceil(miss_rates)
    has_entities = (n_entities > 0).astype("float64")

    # Divide the sum of the miss rates of all texts by the number of texts with entities. A doc that
    # was drawn twice counts twice. The expected values of a `Count` could make the interval
    # narrower, but they aren't computed here, so they are all 0.
    times = [drawing.times for drawing in drawings]
    drawn_miss_rates = numpy.repeat(miss_rates, times)
    drawn_has_entities = numpy.repeat(has_entities, times)
    zeros = numpy.zeros(len(drawn_miss_rates))
    sum_of_miss_rates = Count(drawn_miss_rates, expected=zeros, expected_total=0.0)
    n_docs_with_entities = Count(drawn_has_entities, expected=zeros, expected_total=0.0)
    mean_miss_rate = estimate_ratio(sum_of_miss_rates, n_docs_with_entities, sample_of(drawings))
    n_drawings_with_miss = int((drawn_miss_rates > 0).sum())
    return KeptPromise(promise.miss, as_share(mean_miss_rate), n_drawings_with_miss)


def observe(nlp: Language, name: str, examples: Iterable[Example]) -> list[ObservedMissRate]:
    """Compare a component's guarantee with the miss rate of its sets on other annotated docs.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    examples (Iterable[Example]): Annotated docs other than the calibration docs.
    RETURNS (list[ObservedMissRate]): The miss rate for each limit whose thresholds were saved for
        all groups, in ascending order of the limits. Docs of other groups are ignored. Empty if the
        component has no guaranteed miss rate, if the guarantee is per label, or if no usable doc
        has entities: see `leave_out_unusable`.
    RAISES (ValueError): If the component is missing.
    """
    ner = get_component(nlp, name)
    promise = ner.guarantee
    if promise is None or not promise.limits_misses or promise.per_label:
        return []
    # The thresholds of each group, keyed by limit
    levels_of_groups: dict[str | None, dict[float, float]] = {}
    for name_of_group, thresholds in promise.groups.items():
        levels_of_groups[name_of_group] = {limit: level for limit, level in thresholds.levels}

    in_groups = [
        eg for eg in examples if group_of(eg.reference, promise.by_group) in levels_of_groups
    ]
    known = KnownText.from_component(nlp, ner)
    used_examples, counts = leave_out_unusable(ner, known, in_groups, promise.by_group)
    if not have_entities(used_examples, counts):
        return []
    scored = score_spans(nlp, ner, used_examples, terms=promise)

    groups = [group_of(eg.reference, promise.by_group) for eg in used_examples]
    limits_of_all_groups = set.intersection(*map(set, levels_of_groups.values()))
    observed: list[ObservedMissRate] = []
    for limit in sorted(limits_of_all_groups):
        # Use the threshold of the group for each doc. Shape: (docs,)
        doc_thresholds = numpy.asarray([levels_of_groups[group][limit] for group in groups])
        observed.append(observe_limit(scored, limit, doc_thresholds, by=promise.by))
    return observed


def observe_limit(
    scored: ScoredSpans, limit: float, doc_thresholds: Floats1d, *, by: str
) -> ObservedMissRate:
    """Measure the miss rate of the sets at a given limit. The set of a doc contains the spans whose
    scores are at least the threshold of the doc. `by` determines whether misses are counted per
    entity or per doc. Shape of the thresholds: (docs,)"""
    spans, gold = scored.spans, scored.gold
    # `Losses.mean` applies the same threshold to all docs. Dividing the scores of each doc by the
    # doc's threshold makes this common threshold 1.
    relative_scores = gold["score"] / doc_thresholds[gold["doc"]]
    losses = conformal.miss_losses(relative_scores, gold["doc"], by=by)
    (miss_rate,) = losses.mean(numpy.asarray([1.0])).tolist()
    is_in_set = spans["score"] >= doc_thresholds[spans["doc"]]
    return ObservedMissRate(limit, miss_rate, spans=float(is_in_set.sum() / len(gold)))
