"""Guarantee a miss rate, or a share of false alarms, of sets of spans. No retraining.

The set of a doc has the spans whose score is at least a threshold. The thresholds are chosen on
calibration docs by conformal methods (`metrics/conformal.py`), so that a promise holds on other
docs from the same source. A promise has a limit: for example, that the set misses at most 5 % of
the entities. It may be made for all docs together, or for each part of them: for each label, for
each group of docs, or both.

`DevPredictions`, called `dev`, are docs with their annotated entities, and with the posterior of
the model for them, from which the probabilities of spans come. In structured arrays of this file, a
row is a span or an entity, and "doc" is the index of its doc among the calibration docs.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import ArrayXd, Floats1d, Ints1d

from ...metrics import conformal
from ...pipeline.annotations import group_of, guarantee_scores
from ...pipeline.component import CostSensitiveNER
from ...pipeline.promises import Promise, Terms, Thresholds
from ...pipeline.reading import find_reading
from ...progress import progress
from ...ragged import ranges
from ...tags import Entities
from ..components import get_component
from ..corpora import corpus_path
from ..evaluation.predictions import DevPredictions, predict_dev, turn_on_confidence
from ..evaluation.recurrence import (
    KnownText,
    check_new,
    is_same_path,
    note_recurrence,
    units_of_docs,
)
from ..evaluation.valid_data import find_unknown_labels, is_fully_annotated
from ..sampling.drawing import (
    Drawing,
    check_annotated,
    check_drawn_by,
    conformal_weights,
    read_drawings,
    sample_of,
)
from ..sampling.estimation import MIN_OF_EACH, as_share
from ..sampling.estimators import Count, Interval, estimate_ratio

BATCH_SIZE = 64
"""The number of docs whose spans are scored together."""

SCORED_SPAN = [("label", "i8"), ("doc", "i8"), ("score", "f8"), ("found", "?")]
"""The columns of the arrays in `ScoredSpans`."""

SHORT = 5
"""Docs with fewer tokens, such as numbers and headings, are often equal to training docs by
chance."""

MIN_THRESHOLD = 1e-6
"""The lowest threshold that is chosen. With it the set has all spans that are searched for."""

LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The thresholds of these limits are saved, too, beside the threshold of a promise that isn't one
for each label. `report` plots them."""

ALARM_THRESHOLDS = numpy.append(
    1 - numpy.logspace(-3, -0.31, 40), numpy.linspace(0.5, 0.01, 50)
).round(4)
"""The thresholds that are tested for false alarms, in this order: from 0.999 down to 0.01. Above
0.5 they lie on a logarithmic scale, as small changes matter near 1."""

STEPS_OF_LIMITS = 10_000
"""The lowest limit that can be promised is rounded up to a multiple of 1 / STEPS_OF_LIMITS."""

FindThreshold = Callable[[float], float | None]
"""Maps a limit to the threshold that keeps it, or to None if no threshold does."""


class Part(NamedTuple):
    """What can be promised of one part: the docs of one group, and one label or all labels."""

    group: str  # "" without groups
    label: str  # "" for all labels
    docs: int  # the number of docs that count
    entities: int  # the number of annotated entities
    threshold: float | None  # the least score in the set; None if the limit can't be promised
    reachable: float | None  # the lowest limit that can be promised with these docs
    docs_needed: int | None  # how many docs the limit takes; None if no number is enough
    spans: float  # the number of spans in the set for each annotated entity
    levels: list[list[float]]
    """[limit, threshold] of this limit and of `LEVELS`, ascending. Limits that can't be promised
    are missing."""


class Risk(NamedTuple):
    """The share of misses or of false alarms of the sets of calibration docs.

    n_docs (int): The number of docs that count.
    weight (float): The sum of the weights of these docs. Without weights it is their number.
    lowest (float): The risk at the threshold where it is lowest; for false alarms at the first
        threshold that is tested, as none can be chosen if that fails.
    is_binary (bool): Whether the share of each doc is 0 or 1.
    find_threshold (FindThreshold): Finds the threshold that keeps a limit.
    """

    n_docs: int
    weight: float
    lowest: float
    is_binary: bool
    find_threshold: FindThreshold


class Guarantee(NamedTuple):
    """A promise, and what else can be promised."""

    promise: Promise  # its terms, thresholds and calibration docs
    parts: list[Part]  # by group and label
    notes: list[str]  # what may weaken the promise
    kept: "KeptPromise | None" = None  # with drawn docs: how the earlier promise is kept there
    replaced: Promise | None = None  # the promise that the pipeline had before


class KeptPromise(NamedTuple):
    """How well an earlier promise is kept on the texts that docs were drawn from.

    limit (float): The highest miss rate that was promised.
    miss_rate (Interval): The estimate of the miss rate, with an interval of 95 %.
    n_drawings_with_miss (int): The number of drawings that took a doc with a missed entity.
    """

    limit: float
    miss_rate: Interval
    n_drawings_with_miss: int

    def as_text(self) -> str:
        """The miss rate in words, with its interval if there are enough misses to trust it."""
        value, low, high = self.miss_rate
        interval = f"95 % interval {low:.3g} to {high:.3g}"
        if self.n_drawings_with_miss < MIN_OF_EACH:
            interval = (
                f"{self.n_drawings_with_miss} drawn docs with a miss, too few for an interval"
            )
        return f"The set of before, promised {self.limit:g}, misses {value:.3g} ({interval})"


class ScoredSpans(NamedTuple):
    """The spans that may be in the sets of docs, and the annotated entities. Both are structured
    arrays with the columns of `SCORED_SPAN`.

    spans (ArrayXd): Spans that may be in the sets. The score is infinite if a span is in the set
        at every threshold; "found" is whether the span is correct. Shape: (S,)
    gold (ArrayXd): Annotated entities. The score is the highest threshold at which the set still
        finds the entity, or 0 if no set finds it; "found" is whether a set does. Shape: (E,)
    entropies (Floats1d): The scores of docs for the test for a shift: see
        `DevPredictions.entropies`. Shape: (B,)
    """

    spans: ArrayXd
    gold: ArrayXd
    entropies: Floats1d


class Observed(NamedTuple):
    """A miss rate that could be promised, and the one that was seen on other docs."""

    limit: float  # the miss rate that could be promised
    miss_rate: float  # the miss rate that was seen
    spans: float  # the number of spans in the set for each annotated entity


def guarantee(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    miss: float | None = None,
    false_alarm: float | None = None,
    confidence: float | None = None,
    found: str = "exact",
    by: str = "doc",
    per_label: bool = False,
    by_group: str | None = None,
    drawn: bool = False,
    file_tokens: bool = False,
    source: str = "calibration docs",
) -> Guarantee:
    """Choose the thresholds of a component's set of spans on calibration docs, so that it keeps a
    promise on docs from the same source. The set is in `doc.spans[spans_key + "_guaranteed"]`.

    nlp (Language): The trained pipeline. Its config, its component and its meta are updated.
    examples (Iterable[Example]): The docs. Not training docs, nor docs used to calibrate or tune.
    name (str): Name of the component.
    miss (float | None): Highest share of entities that are missed.
    false_alarm (float | None): In place of --miss: highest share of the set that is wrong.
    confidence (float | None): Probability that the promise holds, such as 0.95. Without it, the
        promise holds on average over calibration docs; with --false-alarm it is 0.95.
    found (str): When an entity is found: exact (a span has its tokens and label) or covered (spans
        cover its tokens; their label counts only with --per-label). For false alarms, a span of the
        set is right by the same rule.
    by (str): Which share of misses is limited: doc (of the entities of a doc) or any (of docs:
        those with any missed entity). Docs without entities don't count.
    per_label (bool): A promise and a threshold for each label.
    by_group (str | None): A key of `doc.user_data`. Docs without one of its values have no set.
        With --confidence, labels and groups share what may fail.
    drawn (bool): The docs are all those that `estimate --draw` drew from new texts: the promise is
        for these texts, on average over drawings, and replaces one that is broken there.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of their
        file. That is kept with the pipeline: `watch` reads in the same way.
    source (str): The name of the docs in the promise.
    RETURNS (Guarantee): The promise, and what else can be promised.
    RAISES (ValueError): If there is no such component, a term is out of its range, the docs were
        trained on or aren't drawn as `drawn` says, no docs with entities are left, none of their
        labels is known, or the limit can't be promised of any part.
    """
    # Only misses, whose share rises with the threshold, can be limited without a confidence.
    if miss is None and confidence is None:
        confidence = 0.95
    terms = Terms(
        miss=miss,
        false_alarm=false_alarm,
        confidence=confidence,
        found=found,
        by=by,
        per_label=per_label,
        by_group=by_group,
    )
    # A promise with a confidence doesn't hold for docs that were drawn with unequal probabilities.
    if drawn and terms.confidence is not None:
        raise ValueError("drawn: expected a miss rate without a confidence, got one")
    ner = get_component(nlp, name)
    examples = list(examples)
    references = [eg.reference for eg in examples]
    known = KnownText.of_component(nlp, ner)
    notes = note_recurrence(known, references, source)
    notes += find_notes(nlp, source)
    notes += find_unknown_labels(nlp, ner, examples, source)
    if drawn:
        n_drawings = check_drawn(nlp, ner, references)
    else:
        n_drawings = None
        check_not_drawn(references)
        check_new(known, references, source)

    used_examples, not_counted = leave_out(ner, known, examples, by_group, keep_all=drawn)
    check_have_entities(used_examples, not_counted)
    doc_weights = None
    kept_promise = None
    if drawn:
        drawings = [Drawing.from_dict(eg.reference.user_data) for eg in used_examples]
        # Docs that were likely to be drawn have lower weights, as they stand for fewer texts.
        doc_weights = conformal_weights(drawings)
        # The promise that the pipeline has now, before it gets another
        kept_promise = measure_promise(nlp, ner, used_examples, drawings)
    scored_spans = score_spans(nlp, ner, used_examples, terms)
    parts = find_parts(ner, scored_spans, used_examples, terms, doc_weights)
    thresholds_of_groups = find_thresholds(parts, per_label=per_label)
    if not thresholds_of_groups:
        message = unreachable_message(parts, terms)
        if kept_promise is not None:
            message = f"{message}. {kept_promise.as_text()}"
        raise ValueError(message)
    promise = Promise(
        **asdict(terms),
        groups=thresholds_of_groups,
        source=source,
        docs=len(used_examples),
        entities=len(scored_spans.gold),
        not_counted=not_counted,
        drawings=n_drawings,
    )

    turn_on_confidence(nlp, ner)
    ner.set_reading(find_reading(nlp, name, used_examples, file_tokens=file_tokens))
    ner.meta = nlp.meta  # The component writes its promise to this dictionary, too.
    earlier_promise = ner.guarantee
    ner.set_guarantee(promise)
    # The docs that new docs are compared with to notice a shift, as indices of `used_examples`
    shift_indices = numpy.arange(len(used_examples))
    if doc_weights is not None:
        shift_indices = draw_uniformly(doc_weights)
    shift_docs = [used_examples[i].reference for i in shift_indices]
    # The scores of `calibrate` are approximate, as the temperature was fitted on the same docs.
    # Here the docs are others.
    ner.set_shift(shift_docs, scored_spans.entropies[shift_indices], source, approximate=False)
    return Guarantee(promise, parts, notes, kept_promise, earlier_promise)


def find_thresholds(parts: Iterable[Part], *, per_label: bool) -> dict[str, Thresholds]:
    """Collect the thresholds of each group of docs.

    parts (Iterable[Part]): What can be promised of each part: a group, or a label in a group.
    per_label (bool): Whether each label has a threshold of its own.
    RETURNS (dict[str, Thresholds]): The thresholds by the name of the group. A group is left out if
        the limit can't be promised of it, or of none of its labels.
    """
    thresholds_of_groups: dict[str, Thresholds] = {}
    for part in parts:
        if part.threshold is None:
            continue
        if per_label:
            # `Thresholds.threshold` is for labels of which the limit can't be promised, and which
            # have no threshold of their own. It is 1, so that as few of their spans as possible are
            # in the set.
            if part.group not in thresholds_of_groups:
                thresholds_of_groups[part.group] = Thresholds(threshold=1.0, labels={})
            thresholds_of_groups[part.group].labels[part.label] = part.threshold
        else:
            thresholds_of_groups[part.group] = Thresholds(
                threshold=part.threshold, labels={}, levels=part.levels
            )
    return thresholds_of_groups


def find_notes(nlp: Language, source: str) -> list[str]:
    """Say what may weaken a promise: the pipeline may have been chosen, calibrated or tuned on the
    calibration docs.

    source (str): The path of the calibration docs.
    RETURNS (list[str]): A sentence for each of these uses. Docs are recognised by their path.
    """
    # `calibrate` and `tune` record here on which docs the scores in the meta were measured.
    measured_on = nlp.meta.get("performance", {}).get("measured_on", {})
    path_of_use = {
        "are the development docs of training": corpus_path(nlp.config.interpolate(), "dev_corpus"),
        "were used to calibrate or tune": measured_on.get("source"),
    }
    notes = []
    for use, path in path_of_use.items():
        if path is not None and is_same_path(path, source):
            notes.append(f"{source} {use}, and may be too easy.")
    return notes


def check_drawn(nlp: Language, ner: CostSensitiveNER, docs: Sequence[Doc]) -> int:
    """Check that docs were drawn for a component, that none of the drawn docs is missing, and that
    all of them are annotated.

    RETURNS (int): The number of drawings.
    RAISES (ValueError): If one of these doesn't hold.
    """
    check_annotated(docs)
    # `read_drawings` refuses docs if some are missing, or if they were drawn for several pipelines.
    # So the first drawing says for which pipeline all of them were drawn.
    drawings = read_drawings(docs)
    check_drawn_by(nlp, ner, docs, drawings[0])
    return sum(drawing.times for drawing in drawings)


def check_not_drawn(docs: Iterable[Doc]) -> None:
    """Check that docs were not drawn with unequal probabilities.

    RAISES (ValueError): If `estimate --draw` drew one of them.
    """
    for doc in docs:
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected docs that are like those to come, got docs that `estimate --draw` drew, "
                "half of them by how unsure the model is: add `drawn`"
            )


def draw_uniformly(weights: Floats1d) -> Ints1d:
    """Choose some of the docs that were drawn with unequal probabilities, so that in the end each
    doc of the texts had the same chance. This is rejection sampling. The test for a shift needs
    such docs.

    weights (Floats1d): The weights of the docs, in proportion to how often each was drawn, divided
        by its probability at a drawing: see `conformal_weights`. Shape: (D,)
    RETURNS (Ints1d): The indices of the chosen docs. There is at least one.
    """
    # A doc is chosen with the probability weight / largest weight. Random numbers are below 1, so
    # the doc with the largest weight is always chosen.
    random_numbers = numpy.random.default_rng(seed=0).random(len(weights))
    return numpy.flatnonzero(random_numbers * weights.max() < weights)


def measure_promise(
    nlp: Language,
    ner: CostSensitiveNER,
    drawn_examples: Sequence[Example],
    drawings: Sequence[Drawing],
) -> KeptPromise | None:
    """Estimate how well a component keeps its present promise on the texts that docs were drawn
    from: the mean miss rate of those texts that have entities.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): Its component.
    drawn_examples (Sequence[Example]): The annotated docs that were drawn, each once.
    drawings (Sequence[Drawing]): How each of them was drawn, and how often.
    RETURNS (KeptPromise | None): The promised and the estimated miss rate, and the number of
        drawings that took a doc with a missed entity. None if the component promises nothing, or no
        miss rate, or one for each label or group.
    """
    promise = ner.guarantee
    if promise is None or promise.miss is None or promise.per_label or promise.by_group:
        return None
    scored_spans = score_spans(nlp, ner, drawn_examples, terms=promise)
    # The set misses an entity if the highest threshold that finds the entity is below the promised
    # one.
    all_docs = ""  # the key of the only group, as the promise is not one for each group
    is_missed = scored_spans.gold["score"] < promise.groups[all_docs].threshold
    n_docs = len(drawn_examples)
    n_entities = numpy.bincount(scored_spans.gold["doc"], minlength=n_docs)
    n_missed = numpy.bincount(scored_spans.gold["doc"], weights=is_missed, minlength=n_docs)
    miss_rates = n_missed / numpy.maximum(n_entities, 1)  # shape: (docs,)
    if promise.by == "any":
        # A doc counts as missed as a whole if one of its entities is.
        miss_rates = numpy.ceil(miss_rates)
    has_entities = (n_entities > 0).astype("float64")

    # The sum of the miss rates of all texts, over the number of texts with entities. Docs that were
    # drawn twice are there twice. A `Count` also has the numbers that the model expects, which can
    # make the interval narrower. They are not computed here, so they are all 0.
    times = [drawing.times for drawing in drawings]
    drawn_miss_rates = numpy.repeat(miss_rates, times)
    drawn_has_entities = numpy.repeat(has_entities, times)
    zeros = numpy.zeros(len(drawn_miss_rates))
    sum_of_miss_rates = Count(drawn_miss_rates, expected=zeros, expected_total=0.0)
    n_docs_with_entities = Count(drawn_has_entities, expected=zeros, expected_total=0.0)
    mean_miss_rate = estimate_ratio(sum_of_miss_rates, n_docs_with_entities, sample_of(drawings))
    n_drawings_with_miss = int((drawn_miss_rates > 0).sum())
    return KeptPromise(promise.miss, as_share(mean_miss_rate), n_drawings_with_miss)


def leave_out(
    ner: CostSensitiveNER,
    known: KnownText,
    examples: Sequence[Example],
    by_group: str | None,
    *,
    keep_all: bool = False,
) -> tuple[list[Example], dict[str, int]]:
    """Leave out docs that a promise can't be based on. They are of four kinds:

    - "training docs": docs with known text;
    - "copies of other docs": docs with the text of an earlier one, if the docs are copies of each
      other: see `units_of_docs`. They show no more than one of them;
    - "docs with missing tags": some tokens have no annotation, or there are no tokens;
    - docs without a value of the key `by_group`.

    ner (CostSensitiveNER): The component.
    known (KnownText): The text that it knows.
    examples (Sequence[Example]): The docs.
    by_group (str | None): The key of `doc.user_data` whose value is the group of a doc.
    keep_all (bool): Whether training docs and copies stay. The texts that docs are drawn from may
        have both, and all drawn docs are needed.
    RETURNS (tuple[list[Example], dict[str, int]]): The docs that stay, with the entities of the
        component in `doc.ents`; and the number of docs of each kind. "docs without entities" are a
        fourth kind: they stay, but a miss rate doesn't count them.
    RAISES (ValueError): If spans of the component overlap: see `Annotation.as_entities`.
    """
    without_group = f"docs without {by_group!r}"
    kinds = [
        "training docs",
        "copies of other docs",
        "docs with missing tags",
        "docs without entities",
    ]
    if by_group is not None:
        kinds.append(without_group)
    counts = dict.fromkeys(kinds, 0)
    docs = [eg.reference for eg in examples]
    is_by_chance = known.explains(known.find_in(docs))
    seen_units: set[int] = set()  # of the docs that stay
    used_examples = []
    for example, unit in zip(examples, units_of_docs(docs).tolist()):
        eg = ner.annotation.as_entities(example, ner.own_labels)
        doc = eg.reference
        # A short text may be equal to a training text by chance.
        is_training_doc = known.knows(doc) and not (is_by_chance and len(doc) < SHORT)
        is_annotated = len(doc) > 0 and is_fully_annotated(doc)
        if is_training_doc and not keep_all:
            counts["training docs"] += 1
        elif unit in seen_units and not keep_all:
            counts["copies of other docs"] += 1
        elif not is_annotated:
            counts["docs with missing tags"] += 1
        elif group_of(doc, by_group) is None:  # never, if `by_group` is None
            counts[without_group] += 1
        else:
            seen_units.add(unit)
            used_examples.append(eg)
            if not doc.ents:
                counts["docs without entities"] += 1
    return used_examples, counts


def have_entities(used_examples: Sequence[Example], counts: Mapping[str, int]) -> bool:
    """Whether at least one of the docs that stay has an entity. The arguments are what `leave_out`
    returns."""
    return len(used_examples) > counts["docs without entities"]


def check_have_entities(used_examples: Sequence[Example], counts: Mapping[str, int]) -> None:
    """Check that at least one of the docs that stay has an entity.

    used_examples (Sequence[Example]): The docs that stay: see `leave_out`.
    counts (Mapping[str, int]): The numbers of docs that `leave_out` counts, by kind: the kinds of
        docs that are left out, and docs that stay without an entity.
    RAISES (ValueError): If none has. The message says how many docs of each kind there are.
    """
    if not have_entities(used_examples, counts):
        n_of_kinds = [f"{n} {kind}" for kind, n in counts.items() if n]
        got = ", ".join(n_of_kinds) or "none"
        raise ValueError(f"expected annotated docs with entities, not trained on, got {got}")


def score_spans(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], terms: Terms
) -> ScoredSpans:
    """Score the spans that may be in the sets of docs, and the annotated entities of these docs.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): Its component.
    examples (Sequence[Example]): The docs, as `leave_out` returns them: all of their tokens are
        annotated, and none of the docs is empty.
    terms (Terms): What is promised. They say which score a span has, and when an entity is found.
    RETURNS (ScoredSpans): The spans and the entities with their scores; and the measure of each doc
        that the test for a shift compares.
    """
    span_tables: list[ArrayXd] = []
    gold_tables: list[ArrayXd] = []
    entropies: list[Floats1d] = []
    n_docs = 0  # the number of docs in the batches before this one
    for batch in minibatch(progress(examples, desc="guarantee", unit="doc"), BATCH_SIZE):
        # `spans` has all spans that may be in the sets of the batch. Shape of their scores: (S,)
        dev = predict_dev(nlp, ner, batch)
        spans, scores = guarantee_scores(dev.posterior, terms)
        if terms.limits_misses:
            # A set that limits misses always has the predicted entities, too.
            predicted = ner.decode(dev.posterior).entities
            spans, scores = add_predicted(dev, predicted, spans, scores)
        # The component doesn't write spans with other labels. `dev.gold` has none of these.
        has_own_label = ~numpy.isin(spans.label, dev.other_labels)
        spans = spans.select(has_own_label)
        scores = scores[has_own_label]

        # An annotated entity is found if the spans find it at any threshold.
        gold_thresholds = thresholds_to_find(dev, dev.gold, spans, scores, terms)
        is_found = gold_thresholds > 0
        # A span is correct by the same rule, with the roles exchanged: the annotated entities,
        # each with the score 1, find the span.
        scores_of_gold = numpy.ones(len(dev.gold.begin))
        is_correct = thresholds_to_find(dev, spans, dev.gold, scores_of_gold, terms) > 0

        # The columns of `SCORED_SPAN`
        doc_of_span = n_docs + dev.doc_of_entity(spans)
        doc_of_gold = n_docs + dev.doc_of_entity(dev.gold)
        span_columns = [spans.label, doc_of_span, scores, is_correct]
        gold_columns = [dev.gold.label, doc_of_gold, gold_thresholds, is_found]
        span_tables.append(numpy.rec.fromarrays(span_columns, dtype=SCORED_SPAN))
        gold_tables.append(numpy.rec.fromarrays(gold_columns, dtype=SCORED_SPAN))
        entropies.append(dev.entropies())
        n_docs += len(batch)
    return ScoredSpans(
        numpy.concatenate(span_tables), numpy.concatenate(gold_tables), numpy.concatenate(entropies)
    )


def add_predicted(
    dev: DevPredictions, predicted: Entities, spans: Entities, scores: Floats1d
) -> tuple[Entities, Floats1d]:
    """Add the predicted entities to spans with scores. A set that limits misses always has the
    predicted entities, so they get an infinite score.

    dev (DevPredictions): The predictions of the calibration docs.
    predicted (Entities): The predicted entities. Some of them may be among the spans.
    spans (Entities): The spans.
    scores (Floats1d): The scores of the spans. Shape: (S,)
    RETURNS (tuple[Entities, Floats1d]): The predicted entities, followed by the other spans, and
        the scores of all.
    """
    is_not_predicted = ~numpy.isin(dev.entity_keys(spans), dev.entity_keys(predicted))
    infinite_scores = numpy.full(len(predicted.begin), numpy.inf)
    all_spans = concatenate_entities(predicted, spans.select(is_not_predicted))
    return all_spans, numpy.append(infinite_scores, scores[is_not_predicted])


def concatenate_entities(first: Entities, second: Entities) -> Entities:
    """Join two lists of entities: the first entities, followed by the second ones."""
    # The begins of both, then the ends of both, then the labels of both.
    columns = [numpy.concatenate(pair) for pair in zip(first, second)]
    return Entities(*columns)


def thresholds_to_find(
    dev: DevPredictions, wanted: Entities, spans: Entities, scores: Floats1d, terms: Terms
) -> Floats1d:
    """Find the highest threshold at which the set finds each wanted entity. The set has the spans
    whose score is at least the threshold.

    dev (DevPredictions): The docs.
    wanted (Entities): The E entities to find.
    spans (Entities): The S spans.
    scores (Floats1d): The scores of the spans, above 0. Shape: (S,)
    terms (Terms): When an entity is found.
    RETURNS (Floats1d): The thresholds; 0 for an entity that no set finds. Shape: (E,)
    """
    # What each entity and each span consists of, in numbered units: see `find_units`. The units of
    # the wanted entities come first, then the units of the spans.
    owners, units = find_units(dev, concatenate_entities(wanted, spans), terms)
    n_wanted = len(wanted.begin)
    is_of_wanted = owners < n_wanted
    wanted_units = units[is_of_wanted]
    wanted_owners = owners[is_of_wanted]
    span_units = units[~is_of_wanted]
    span_owners = owners[~is_of_wanted] - n_wanted  # as indices of `spans`

    # The set has a unit as long as the threshold is at most the highest score of a span with that
    # unit. A unit that no span has gets the score 0. Shape: (units,)
    highest_scores = numpy.zeros(units.max(initial=0) + 1)
    numpy.maximum.at(highest_scores, span_units, scores[span_owners])

    # The set finds an entity as long as it has all units of the entity: up to the lowest of these
    # scores. The units of an entity follow each other, so the first one is where the owner changes.
    first_units = numpy.flatnonzero(numpy.diff(wanted_owners, prepend=-1))
    return numpy.minimum.reduceat(highest_scores[wanted_units], first_units)


def find_units(dev: DevPredictions, entities: Entities, terms: Terms) -> tuple[Ints1d, Ints1d]:
    """Find the units that a set of spans must have so that it finds each entity.

    With `terms.found = "exact"` an entity has one unit: the entity itself, with its label. With
    "covered" each of its tokens is a unit. In a promise for each label, the same token is another
    unit for each label.

    dev (DevPredictions): The docs.
    entities (Entities): The entities.
    terms (Terms): What is promised.
    RETURNS (tuple[Ints1d, Ints1d]): For each unit of each entity the index of that entity (its
        owner), ascending; and the number of the unit. Two entities that share a unit have the same
        number there. Shapes: (U,)
    """
    if terms.found == "exact":
        owners = numpy.arange(len(entities.begin))
        _, units = numpy.unique(dev.entity_keys(entities), return_inverse=True)
        return owners, units
    # For each token of each entity the index of the entity, and the token
    owners, tokens = ranges(entities.begin, entities.end)
    if not terms.per_label:
        return owners, tokens
    # The number of a unit is the index of (label, token) in a flattened array of the shape (labels,
    # tokens). The label is -1 if the model doesn't have it, so 1 is added. The indices of inner
    # nodes of the label tree follow those of the labels. All inner nodes count as one label.
    n_tokens = len(dev.is_counted)  # it has a truth value for each token of the docs
    labels = numpy.minimum(entities.label, len(dev.posterior.tags.labels))
    units = (labels[owners] + 1) * n_tokens + tokens
    return owners, units


def find_parts(
    ner: CostSensitiveNER,
    scored: ScoredSpans,
    examples: Sequence[Example],
    terms: Terms,
    doc_weights: Floats1d | None = None,
) -> list[Part]:
    """Find what can be promised of each part: of each group of docs and, if the terms are per
    label, of each label.

    scored (ScoredSpans): The spans and the annotated entities of all docs.
    examples (Sequence[Example]): The D docs.
    terms (Terms): What is to be promised.
    doc_weights (Floats1d | None): The weights of drawn docs: see `conformal_weights`. None: all
        docs have the same weight. Shape: (D,)
    """
    group_of_doc = numpy.asarray([group_of(eg.reference, terms.by_group) for eg in examples])
    groups = numpy.unique(group_of_doc).tolist()
    # Otherwise a part has all labels. Its name is empty, as is that of a group of all docs.
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
) -> Part:
    """Find what can be promised of one part.

    spans, gold (ArrayXd): The spans and the annotated entities of the part, as in `ScoredSpans`.
    n_docs (int): The number of docs of its group.
    n_parts (int): The number of all parts.
    terms (Terms): What is to be promised.
    doc_weights (Floats1d | None): The weights of drawn docs. None: all docs have the same weight.
        Shape: (D,)
    RETURNS (Part): The part, without the names of its group and label.
    """
    # The highest probability that the promise of this part fails. The parts share what may fail, so
    # that all promises hold together with the confidence of the terms (Bonferroni).
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
    # Without a threshold the set only has spans with an infinite score: see `add_predicted`.
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
            # So far it is a sum of weights. Divide it by the mean weight of a doc. If no doc
            # counts, the mean isn't known, and it stays as if all docs had the weight 1.
            docs_needed = math.ceil(docs_needed * risk.n_docs / risk.weight)
    return Part(
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
    """The share of annotated entities that sets miss, as a function of the threshold. Docs without
    entities don't count.

    gold (ArrayXd): The annotated entities, as in `ScoredSpans`.
    terms (Terms): `terms.by` says whether the share is of the entities of a doc or of docs.
    delta (float | None): The highest probability that the promise fails. None: the promise holds
        on average.
    doc_weights (Floats1d | None): The weights of drawn docs.
    """
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
    """The share of false alarms as a function of the threshold. A false alarm is a span of a set
    that is wrong.

    spans (ArrayXd): The spans, as in `ScoredSpans`.
    n_docs (int): The number of docs.
    delta (float): The highest probability that the promise fails.
    """
    is_wrong = ~spans["found"]
    risks = conformal.false_alarm_risk(
        spans["score"], is_wrong, spans["doc"], n_docs, ALARM_THRESHOLDS
    )
    find_threshold = partial(find_alarm_threshold, risks, n_docs, delta)
    # Each doc has the weight 1, so the sum of weights is the number of docs. Thresholds are tested
    # from the first, the highest. If that fails, none can be chosen, so its risk is what counts.
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
    """Find the highest threshold at which it can be promised that the miss rate of sets is at most
    the limit. It is rounded down to four significant digits.

    losses (conformal.Losses): What sets miss at each threshold.
    delta (float | None): The highest probability that the promise fails. None: the promise holds
        on average.
    limit (float): The highest miss rate that is to be promised.
    RETURNS (float | None): The threshold. None: even the lowest one misses too much.
    """
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
    """Find the lowest threshold at which it can be promised that the share of false alarms is at
    most the limit. The thresholds are tested one after another, from the highest down; the last one
    before the first that fails is chosen (fixed sequence testing).

    risks (Floats1d): The share of false alarms at each of `ALARM_THRESHOLDS`. Shape: (thresholds,)
    n_docs (int): The number of docs.
    delta (float): The highest probability that the promise fails.
    limit (float): The highest share that is to be promised.
    RETURNS (float | None): The threshold. None: even the highest one fails.
    """
    p_values = conformal.p_values(risks, limit, n_docs)
    n_passed = conformal.fixed_sequence(p_values, delta)
    if n_passed == 0:
        return None
    return float(ALARM_THRESHOLDS[n_passed - 1])


def find_reachable(find_threshold: FindThreshold) -> float | None:
    """Find the lowest limit that can be promised. It is rounded up to a multiple of
    1 / `STEPS_OF_LIMITS`.

    find_threshold (FindThreshold): Finds the threshold that keeps a limit. If it finds one for a
        limit, it finds one for each higher limit.
    RETURNS (float | None): The limit. None if no limit below 1 can be promised.
    """
    # Bisection: the limit lies between `low`, which can't be promised, and `high`, which can be,
    # unless it is still 1.
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


def unreachable_message(parts: Sequence[Part], terms: Terms) -> str:
    """The message of the error that the wanted limit can't be promised of any part. It says for
    each part which limit can be promised, and how many docs the wanted limit takes."""
    name = "miss" if terms.limits_misses else "false_alarm"
    limit = f"{terms.limit:g}"
    sentences = [f"{name}: expected a limit that can be promised, got {limit}"]
    for part in parts:
        sentence = ""
        if part.group:
            sentence += f"{part.group}: "
        if part.label:
            sentence += f"{part.label}: "
        if part.reachable is None:
            sentence += "nothing"
        else:
            sentence += f"{part.reachable:.4f} or more"
        sentence += f" with these {part.docs:,} docs; "
        if part.docs_needed:
            sentence += f"{limit} takes about {part.docs_needed:,} docs, if they are like these"
        else:
            sentence += f"no number of docs is enough for {limit} with this model"
        sentences.append(sentence)
    return ". ".join(sentences)


def observe(nlp: Language, name: str, examples: Iterable[Example]) -> list[Observed]:
    """Compare the promise of a component with the miss rate of its sets on other annotated docs.

    nlp (Language): The pipeline.
    name (str): Name of the component.
    examples (Iterable[Example]): The docs.
    RETURNS (list[Observed]): The miss rate of the sets for each limit whose thresholds were saved
        for all groups, ascending. Docs of other groups don't count. Empty if the component
        promises no miss rate, or one for each label, or if no docs with entities count: see
        `leave_out`.
    RAISES (ValueError): If there is no such component.
    """
    ner = get_component(nlp, name)
    promise = ner.guarantee
    if promise is None or not promise.limits_misses or promise.per_label:
        return []
    # The thresholds of each group by limit, and the limits that all groups have.
    thresholds_of_groups: dict[str | None, dict[float, float]] = {}
    for name_of_group, thresholds in promise.groups.items():
        threshold_of_limit: dict[float, float] = {}
        for limit, threshold in thresholds.levels:
            threshold_of_limit[limit] = threshold
        thresholds_of_groups[name_of_group] = threshold_of_limit
    limits = set.intersection(*map(set, thresholds_of_groups.values()))

    # The docs of these groups, and the thresholds of each doc by limit
    in_groups: list[Example] = []
    for eg in examples:
        if group_of(eg.reference, promise.by_group) in thresholds_of_groups:
            in_groups.append(eg)
    known = KnownText.of_component(nlp, ner)
    used_examples, counts = leave_out(ner, known, in_groups, promise.by_group)
    if not have_entities(used_examples, counts):
        return []
    thresholds_of_docs: list[dict[float, float]] = []
    for eg in used_examples:
        group = group_of(eg.reference, promise.by_group)
        thresholds_of_docs.append(thresholds_of_groups[group])

    spans, gold, _ = score_spans(nlp, ner, used_examples, terms=promise)
    observed = []
    for limit in sorted(limits):
        # Each doc has the threshold of its group. Shape: (D,)
        doc_thresholds = numpy.asarray([levels[limit] for levels in thresholds_of_docs])
        # The losses are for one threshold that all docs have in common. If the scores of each doc
        # are divided by the threshold of the doc, this is 1.
        relative_scores = gold["score"] / doc_thresholds[gold["doc"]]
        losses = conformal.miss_losses(relative_scores, gold["doc"], by=promise.by)
        (miss_rate,) = losses.mean(numpy.asarray([1.0])).tolist()
        is_in_set = spans["score"] >= doc_thresholds[spans["doc"]]
        spans_per_entity = float(is_in_set.sum() / len(gold))
        observed.append(Observed(limit, miss_rate, spans=spans_per_entity))
    return observed
