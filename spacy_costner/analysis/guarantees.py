"""Guarantee a miss rate, or a share of false alarms, of sets of spans. No retraining.

Spans of a doc with a score of at least a threshold are its set. The thresholds are chosen on
calibration docs by conformal methods (`metrics/conformal.py`), so that the promise holds on docs
from the same source. A promise has a limit, such as a miss rate of at most 0.05. It may be for all
docs together, or for each part: each label, each group of docs, or both.
"""

import math
from collections.abc import Callable, Iterable, Sequence
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

from ..features import Features
from ..features.tokens import text_id
from ..metrics import conformal
from ..pipeline.annotations import group_of, guarantee_scores
from ..pipeline.component import CostSensitiveNER
from ..pipeline.promises import Promise, Terms, Thresholds
from ..pipeline.reading import find_reading
from ..progress import progress
from ..ragged import ranges
from ..tags import Entities
from .checks import SHORT
from .drawing import (
    Drawing,
    check_annotated,
    check_pipeline,
    conformal_weights,
    read_drawings,
    sample_of,
)
from .estimation import MIN_OF_EACH, as_share
from .estimators import Count, Interval, estimate_ratio
from .fitness import check_new_to, find_unknown_labels, is_known_doc, known_sentence_ids
from .predictions import DevPredictions, get_component, predict_dev, turn_on_confidence

BATCH_SIZE = 64
"""The number of docs whose spans are scored together."""

SCORED_SPAN = [("label", "i8"), ("doc", "i8"), ("score", "f8"), ("found", "?")]
"""The columns of a span that may be in a set, or of an annotated entity: see `ScoredSpans`."""

MIN_THRESHOLD = 1e-6
"""The least threshold: the set then has all spans that are searched for."""

LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The limits whose thresholds are written down, too, for the plot of `report`."""

ALARM_THRESHOLDS = numpy.append(
    1 - numpy.logspace(-3, -0.31, 40), numpy.linspace(0.5, 0.01, 50)
).round(4)
"""The thresholds that are tested for false alarms, in this order: from 0.999 down to 0.01. Near 1
they lie closer together, as small changes matter there."""

FindThreshold = Callable[[float], float | None]
"""Finds the threshold that keeps a limit; None if there is none."""


class Part(NamedTuple):
    """What can be promised of the docs of a group, of one label or of all."""

    group: str  # "" without groups
    label: str  # "" for all labels
    docs: int  # the number of docs that count
    entities: int
    threshold: float | None  # the least score in the set; None if the limit can't be promised
    reachable: float | None  # the lowest limit that can be promised with these docs
    docs_needed: int | None  # for the limit; None if no number of docs is enough
    spans: float  # the number of spans in the set for each entity
    levels: list[list[float]]  # [limit, threshold] for this limit and others, in order


class Risk(NamedTuple):
    """The share of misses or of false alarms of the sets of calibration docs.

    n_docs (int): The number of docs that count.
    weight (float): The sum of their weights; their number, if they have none.
    lowest (float): The risk at the threshold where it is lowest.
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
    kept: "Kept | None" = None  # with drawn docs: how the promise before is kept on their texts


class Kept(NamedTuple):
    """How a promise is kept on the texts that docs were drawn from."""

    limit: float  # what was promised
    miss_rate: Interval  # with a confidence of 0.95
    n_missing: int  # the number of drawings of docs that miss an entity

    def as_text(self) -> str:
        """The miss rate in words. Few misses have no interval that could be trusted."""
        value, low, high = self.miss_rate
        interval = f"95 % interval {low:.3g} to {high:.3g}"
        if self.n_missing < MIN_OF_EACH:
            interval = f"{self.n_missing} drawn docs with a miss, too few for an interval"
        return f"The set of before, promised {self.limit:g}, misses {value:.3g} ({interval})"


class ScoredSpans(NamedTuple):
    """The spans that may be in the sets of docs, and the annotated entities: structured arrays with
    the columns of `SCORED_SPAN`.

    spans (ArrayXd): Spans that may be in the sets. The score is infinity if a span is in the set
        whatever the threshold; "found" is whether the span is correct. Shape: (S,)
    gold (ArrayXd): Annotated entities. The score is the highest threshold at which the set finds
        an entity, 0 if there is none; "found" is whether there is one. Shape: (E,)
    entropies (Floats1d): The scores of docs for the test for a shift: see
        `DevPredictions.entropies`. Shape: (B,)
    """

    spans: ArrayXd
    gold: ArrayXd
    entropies: Floats1d


class Observed(NamedTuple):
    """What was promised and what was seen."""

    limit: float  # the miss rate that could be promised
    miss_rate: float
    spans: float  # in the set, for each annotated entity


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
        cover its tokens; their label counts only with --per-label). For false alarms the same of a
        span of the set.
    by (str): What the share is of: doc (the entities of a doc) or any (docs, those with any missed
        entity). Docs without entities don't count.
    per_label (bool): A promise and a threshold for each label.
    by_group (str | None): A key of `doc.user_data`. Docs without one of its values have no set.
        Labels and groups share what may fail.
    drawn (bool): The docs are all those that `estimate --draw` drew from new texts: the promise is
        for these texts, on average over drawings, and replaces one that is broken there.
    file_tokens (bool): Whether the docs were read with the tokens and sentence starts of their
        file. That is kept with the pipeline: `watch` reads in the same way.
    source (str): The name of the docs in the promise.
    RETURNS (Guarantee): The promise, and what else can be promised.
    RAISES (ValueError): If a term is out of its range, no docs are left, or nothing can be
        promised.
    """
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
    if drawn and terms.confidence is not None:
        raise ValueError("drawn: expected a miss rate without a confidence, got one")
    ner = get_component(nlp, name)
    notes = find_notes(nlp, source)
    examples = list(examples)
    notes += find_unknown_labels(nlp, ner, examples, source)
    references = [eg.reference for eg in examples]
    if drawn:
        n_drawings = check_drawn(ner, references)
    else:
        n_drawings = None
        check_not_drawn(references)
        check_new_to(ner, references, source)

    used, not_counted = leave_out(ner, examples, by_group, keep_known=drawn)
    doc_weights = None
    kept = None
    if drawn:
        drawings = [Drawing.from_dict(eg.reference.user_data) for eg in used]
        doc_weights = conformal_weights(drawings)
        kept = measure_promise(nlp, ner, used, drawings)
    scored = score_spans(nlp, ner, used, terms)
    parts = find_parts(ner, scored, used, terms, doc_weights)
    groups = find_thresholds(parts, per_label=per_label)
    if not groups:
        message = unreachable_message(parts, terms)
        if kept is not None:
            message = f"{message}. {kept.as_text()}"
        raise ValueError(message)
    promise = Promise(
        **asdict(terms),
        groups=groups,
        source=source,
        docs=len(used),
        entities=len(scored.gold),
        not_counted=not_counted,
        drawings=n_drawings,
    )

    turn_on_confidence(nlp, ner)
    ner.set_reading(find_reading(nlp, name, used, file_tokens=file_tokens))
    ner.meta = nlp.meta  # where the component writes its promise, too
    ner.set_guarantee(promise)
    of_shift = numpy.arange(len(used))
    if doc_weights is not None:
        of_shift = draw_uniformly(doc_weights)
    docs_of_shift = [used[i].reference for i in of_shift]
    ner.set_shift(docs_of_shift, scored.entropies[of_shift], source, approximate=False)
    return Guarantee(promise, parts, notes, kept)


def find_thresholds(parts: Iterable[Part], *, per_label: bool) -> dict[str, Thresholds]:
    """The thresholds of each group, by its name. Groups of which nothing can be promised have
    none."""
    groups: dict[str, Thresholds] = {}
    for part in parts:
        if part.threshold is None:
            continue
        if per_label:
            # A label that nothing can be promised of has the threshold 1.
            thresholds = groups.setdefault(part.group, Thresholds(1.0, {}))
            thresholds.labels[part.label] = part.threshold
        else:
            groups[part.group] = Thresholds(part.threshold, {}, part.levels)
    return groups


def find_notes(nlp: Language, source: str) -> list[str]:
    """Say what may weaken a promise: that the pipeline was chosen on the calibration docs.

    source (str): The path of the calibration docs.
    RAISES (ValueError): If the pipeline was trained on them.
    """
    paths = nlp.config.interpolate().get("paths", {})
    if paths.get("train") == source:
        raise ValueError(f"expected docs that the pipeline was not trained on, got {source}")
    measured_on = nlp.meta.get("performance", {}).get("measured_on", {})
    path_of_use = {
        "are the development docs of training": paths.get("dev"),
        "were used to calibrate or tune": measured_on.get("source"),
    }
    notes = []
    for use, path in path_of_use.items():
        if path == source:
            notes.append(f"{source} {use}, and may be too easy.")
    return notes


def check_drawn(ner: CostSensitiveNER, docs: Sequence[Doc]) -> int:
    """Check that docs are all those that were drawn for a component, and are annotated. Returns the
    number of drawings."""
    check_annotated(docs)
    drawings = read_drawings(docs)
    check_pipeline(ner, docs, drawings[0])
    return sum(drawing.times for drawing in drawings)


def check_not_drawn(docs: Iterable[Doc]) -> None:
    """RAISES (ValueError): If docs were drawn with unequal probabilities."""
    for doc in docs:
        if Drawing.is_in(doc.user_data):
            raise ValueError(
                "expected docs that are like those to come, got docs that `estimate --draw` drew, "
                "half of them by how unsure the model is: add --drawn"
            )


def draw_uniformly(weights: Floats1d) -> Ints1d:
    """Choose some of the docs that were drawn with unequal probabilities, so that all docs of their
    texts had the same chance: rejection sampling. The test for a shift needs such docs.

    weights (Floats1d): The weights of the docs: see `conformal_weights`. Shape: (D,)
    RETURNS (Ints1d): The numbers of the chosen docs, at least one.
    """
    chances = numpy.random.default_rng(0).random(len(weights))
    # The doc with the largest weight is always chosen.
    return numpy.flatnonzero(chances * weights.max() < weights)


def measure_promise(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], drawings: Sequence[Drawing]
) -> Kept | None:
    """Estimate the miss rate of the set that a component promises now on the texts that docs were
    drawn from. None if it promises no miss rate, or one by label or by group."""
    promise = ner.guarantee
    if promise is None or promise.miss is None or promise.per_label or promise.by_group:
        return None
    scored = score_spans(nlp, ner, examples, promise)
    is_missed = scored.gold["score"] < promise.groups[""].threshold
    n_docs = len(examples)
    n_entities = numpy.bincount(scored.gold["doc"], minlength=n_docs)
    n_missed = numpy.bincount(scored.gold["doc"], is_missed, minlength=n_docs)
    losses = n_missed / numpy.maximum(n_entities, 1)
    if promise.by == "any":
        losses = numpy.ceil(losses)
    # Docs without entities have no miss rate.
    has_entities = (n_entities > 0).astype("float64")
    times = [drawing.times for drawing in drawings]
    drawn_losses = numpy.repeat(losses, times)
    of_losses = Count(drawn_losses, numpy.zeros_like(drawn_losses), 0.0)
    of_docs = Count(numpy.repeat(has_entities, times), numpy.zeros_like(drawn_losses), 0.0)
    miss_rate = estimate_ratio(of_losses, of_docs, sample_of(drawings))
    return Kept(promise.miss, as_share(miss_rate), int((drawn_losses > 0).sum()))


def leave_out(
    ner: CostSensitiveNER,
    examples: Iterable[Example],
    by_group: str | None,
    *,
    keep_known: bool = False,
) -> tuple[list[Example], dict[str, int]]:
    """Leave out docs that a promise can't be based on. They are of three kinds:

    - "training docs". They are known by their sentences or, if the model has label memory, by
      their whole text;
    - "docs with missing tags";
    - docs without a value of the key `by_group`.

    RETURNS (tuple[list[Example], dict[str, int]]): The other docs, and the number of docs of each
        kind. "docs without entities" are counted, too: they stay, but no miss rate counts them.
        With `keep_known` training docs stay: they are among the texts of drawn docs, too.
    RAISES (ValueError): If no docs with entities are left.
    """
    without_group = f"docs without {by_group!r}"
    kinds = ["training docs", "docs with missing tags", "docs without entities"]
    if by_group is not None:
        kinds.append(without_group)
    counts = dict.fromkeys(kinds, 0)
    whole_texts = find_whole_texts(ner)
    known_ids = known_sentence_ids(ner)
    used = []
    for example in examples:
        eg = ner.annotation.as_entities(example, ner.own_labels)
        doc = eg.reference
        # The same short text may come again by chance.
        is_whole_text = len(doc) >= SHORT and text_id(doc) in whole_texts
        is_known = is_whole_text or is_known_doc(known_ids, doc)
        if is_known and not keep_known:
            counts["training docs"] += 1
        elif not len(doc) or not doc.to_array("ENT_IOB").all():  # 0: the tag is missing
            counts["docs with missing tags"] += 1
        elif group_of(doc, by_group) is None:
            counts[without_group] += 1
        else:
            used.append(eg)
            if not doc.ents:
                counts["docs without entities"] += 1
    if len(used) == counts["docs without entities"]:
        n_of_kinds = [f"{n} {kind}" for kind, n in counts.items() if n]
        got = ", ".join(n_of_kinds) or "none"
        raise ValueError(f"expected annotated docs with entities, not trained on, got {got}")
    return used, counts


def find_whole_texts(ner: CostSensitiveNER) -> set[int]:
    """The hashes of the training docs that label memory keeps: see `text_id`."""
    whole_texts: set[int] = set()
    for node in ner.model.walk():
        for shim in node.shims:
            if isinstance(shim, Features):
                whole_texts.update(shim.text_ids.tolist())
    return whole_texts


def score_spans(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], terms: Terms
) -> ScoredSpans:
    """Score the spans that may be in the sets of docs, and their annotated entities."""
    span_tables: list[ArrayXd] = []
    gold_tables: list[ArrayXd] = []
    entropies: list[Floats1d] = []
    n_docs = 0  # in the batches before
    for batch in minibatch(progress(examples, desc="guarantee", unit="doc"), BATCH_SIZE):
        # The spans that may be in the sets, and their scores. Shape: (S,)
        dev = predict_dev(nlp, ner, batch)
        spans, scores = guarantee_scores(dev.posterior, terms)
        if terms.limits_misses:
            predicted = ner.decode(dev.posterior).entities
            spans, scores = add_predicted(dev, predicted, spans, scores)
        has_own_label = ~numpy.isin(spans.label, dev.other_labels)
        spans = spans.select(has_own_label)
        scores = scores[has_own_label]

        # A span is correct if the annotated entities would find it, each with the score 1.
        scores_of_gold = numpy.ones(len(dev.gold.begin))
        is_correct = thresholds_to_find(dev, spans, dev.gold, scores_of_gold, terms) > 0
        # An annotated entity is found if the spans find it at any threshold.
        gold_thresholds = thresholds_to_find(dev, dev.gold, spans, scores, terms)
        is_found = gold_thresholds > 0

        doc_of_span = n_docs + dev.doc_of(spans)
        doc_of_gold = n_docs + dev.doc_of(dev.gold)
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
    """Add the predicted entities to spans with scores. They are always in a set that limits misses,
    as if their score were infinite.

    predicted (Entities): The predicted entities. Some of them may be among the spans.
    spans (Entities): The spans.
    scores (Floats1d): Their scores. Shape: (S,)
    RETURNS (tuple[Entities, Floats1d]): The predicted entities, then the other spans; their scores.
    """
    is_not_predicted = ~numpy.isin(dev.entity_keys(spans), dev.entity_keys(predicted))
    infinite_scores = numpy.full(len(predicted.begin), numpy.inf)
    all_spans = concatenate_entities(predicted, spans.select(is_not_predicted))
    return all_spans, numpy.append(infinite_scores, scores[is_not_predicted])


def concatenate_entities(first: Entities, second: Entities) -> Entities:
    """The first entities, then the second ones."""
    columns = [numpy.concatenate(pair) for pair in zip(first, second)]
    return Entities(*columns)


def thresholds_to_find(
    dev: DevPredictions, wanted: Entities, spans: Entities, scores: Floats1d, terms: Terms
) -> Floats1d:
    """The highest threshold at which the set finds each wanted entity. The set has the spans whose
    score is at least the threshold.

    wanted (Entities): The E entities to find.
    spans (Entities): The S spans.
    scores (Floats1d): The scores of the spans, above 0. Shape: (S,)
    terms (Terms): When an entity is found.
    RETURNS (Floats1d): The thresholds; 0 for an entity that no set finds. Shape: (E,)
    """
    # The units of the wanted entities come first, then those of the spans.
    owners, units = find_units(dev, concatenate_entities(wanted, spans), terms)
    n_wanted = len(wanted.begin)
    is_of_wanted = owners < n_wanted
    wanted_units = units[is_of_wanted]
    span_units = units[~is_of_wanted]
    span_of_unit = owners[~is_of_wanted] - n_wanted

    # The set has a unit up to the highest score of the spans with it: 0 if no span has it.
    highest_scores = numpy.zeros(units.max(initial=0) + 1)
    numpy.maximum.at(highest_scores, span_units, scores[span_of_unit])

    # An entity is found while the set has all of its units: up to the least of their scores. The
    # units of an entity follow each other. Owners rise, so its first unit is where they change.
    first_units = numpy.flatnonzero(numpy.diff(owners[is_of_wanted], prepend=-1))
    return numpy.minimum.reduceat(highest_scores[wanted_units], first_units)


def find_units(dev: DevPredictions, entities: Entities, terms: Terms) -> tuple[Ints1d, Ints1d]:
    """What a set has to have for each entity to be found, as numbered units. By `terms.found` the
    only unit of an entity is the entity itself ("exact"), or its tokens are ("covered"). With a
    promise for each label, a token is another unit for each label.

    RETURNS (tuple[Ints1d, Ints1d]): The index of the entity that each unit is of, ascending, and
        the number of the unit. Entities that need the same have the same unit. Shapes: (U,)
    """
    if terms.found == "exact":
        owners = numpy.arange(len(entities.begin))
        _, units = numpy.unique(dev.entity_keys(entities), return_inverse=True)
        return owners, units
    owners, tokens = ranges(entities.begin, entities.end)
    if not terms.per_label:
        return owners, tokens
    # The numbers of units are (label, token), as an index of a flattened array. Labels begin at -1;
    # above those of the model, all inner nodes count as one.
    n_tokens = len(dev.is_counted)
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
    """What can be promised of each group of docs and, if terms are per label, of each label.
    `doc_weights`: of drawn docs, (D,); see `conformal_weights`."""
    group_of_doc = numpy.asarray([group_of(eg.reference, terms.by_group) for eg in examples])
    groups = numpy.unique(group_of_doc).tolist()
    labels: Sequence[str] = ner.own_labels if terms.per_label else ("",)
    parts = []
    for group, label in product(groups, labels):
        is_in_group = group_of_doc == group  # whether each doc is. Shape: (D,)
        spans = scored.spans[is_in_group[scored.spans["doc"]]]
        gold = scored.gold[is_in_group[scored.gold["doc"]]]
        if terms.per_label:
            index = ner.labels.index(label)
            spans = spans[spans["label"] == index]
            gold = gold[gold["label"] == index]
        part = find_part(
            spans,
            gold,
            n_docs=int(is_in_group.sum()),
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

    spans, gold (ArrayXd): Its spans and annotated entities, as in `ScoredSpans`.
    n_docs (int): The number of docs of its group.
    n_parts (int): The number of parts. If each may fail with the same probability, all promises
        hold with the confidence of the terms.
    terms (Terms): What is to be promised.
    doc_weights (Floats1d | None): The weights of drawn docs. None: all docs have the same.
    RETURNS (Part): The part, without the names of its group and label.
    """
    delta: float | None = None  # the probability that the promise of this part fails
    if terms.confidence is not None:
        delta = (1 - terms.confidence) / n_parts
    if terms.limits_misses:
        risk = miss_risk(gold, terms, delta, doc_weights)
    else:
        assert delta is not None  # `guarantee` gives such terms a confidence
        risk = alarm_risk(spans, n_docs, delta)

    threshold = risk.find_threshold(terms.limit)
    levels: list[list[float]] = []
    for limit in sorted({*LEVELS, terms.limit}):
        threshold_of_limit = risk.find_threshold(limit)
        if threshold_of_limit is not None:
            levels.append([limit, threshold_of_limit])
    # Without a threshold the set has what is always in it, whose score is infinite.
    least_score = numpy.inf if threshold is None else threshold
    is_in_set = spans["score"] >= least_score
    n_in_set = float(is_in_set.sum())
    n_entities = float(len(gold))
    docs_needed = conformal.docs_needed(
        risk.lowest, terms.limit, delta=delta, binary=risk.is_binary
    )
    if doc_weights is not None:
        n_in_set = float(doc_weights[spans["doc"][is_in_set]].sum())
        n_entities = float(doc_weights[gold["doc"]].sum())
        if docs_needed is not None:
            # So far it is a sum of weights.
            docs_needed = math.ceil(docs_needed * risk.n_docs / max(risk.weight, 1e-9))
    return Part(
        group="",
        label="",
        docs=risk.n_docs,
        entities=len(gold),
        threshold=threshold,
        reachable=find_reachable(risk.find_threshold),
        docs_needed=docs_needed,
        spans=n_in_set / (n_entities or 1.0),
        levels=levels,
    )


def miss_risk(
    gold: ArrayXd, terms: Terms, delta: float | None, doc_weights: Floats1d | None
) -> Risk:
    """The share of annotated entities that sets miss. Docs without entities don't count.

    gold (ArrayXd): The annotated entities, as in `ScoredSpans`.
    terms (Terms): What the share is of.
    delta (float | None): The probability that the promise may fail. None: it holds on average.
    doc_weights (Floats1d | None): The weights of drawn docs.
    """
    losses = conformal.miss_losses(gold["score"], gold["doc"], by=terms.by, doc_weights=doc_weights)
    (lowest,) = losses.mean(numpy.asarray([MIN_THRESHOLD])).tolist()
    find_threshold = partial(find_miss_threshold, losses, delta)
    n_docs = len(numpy.unique(gold["doc"]))
    return Risk(n_docs, losses.n, lowest, losses.binary, find_threshold)


def alarm_risk(spans: ArrayXd, n_docs: int, delta: float) -> Risk:
    """The share of the spans of sets that are wrong.

    spans (ArrayXd): The spans, as in `ScoredSpans`.
    n_docs (int): The number of docs.
    delta (float): The probability that the promise may fail.
    """
    is_wrong = ~spans["found"]
    risks = conformal.false_alarm_risk(
        spans["score"], is_wrong, spans["doc"], n_docs, ALARM_THRESHOLDS
    )
    find_threshold = partial(find_alarm_threshold, risks, n_docs, delta)
    # The first threshold is the strictest.
    return Risk(n_docs, n_docs, float(risks[0]), False, find_threshold)


def find_miss_threshold(
    losses: conformal.Losses, delta: float | None, limit: float
) -> float | None:
    """The threshold that keeps a miss rate, rounded down to four digits; None if there is none."""
    threshold = conformal.threshold(losses, limit, delta=delta, floor=MIN_THRESHOLD)
    if threshold is None:
        return None
    # Rounded down: in another batch the score of the same span may differ in its last digits.
    n_before_point = math.floor(math.log10(threshold)) + 1  # digits; 0 for 0.1234, -1 for 0.01234
    power = 10.0 ** (4 - n_before_point)
    rounded_down = math.floor(threshold * power) / power
    return float(f"{max(rounded_down, MIN_THRESHOLD):.4g}")


def find_alarm_threshold(risks: Floats1d, n_docs: int, delta: float, limit: float) -> float | None:
    """The threshold that keeps a share of false alarms: the last of `ALARM_THRESHOLDS` that passes
    its test; None if none does.

    risks (Floats1d): The share of false alarms at each of these thresholds. Shape: (thresholds,)
    """
    p_values = conformal.p_values(risks, limit, n_docs)
    n_passed = conformal.fixed_sequence(p_values, delta)
    if n_passed == 0:
        return None
    return float(ALARM_THRESHOLDS[n_passed - 1])


def find_reachable(find_threshold: FindThreshold) -> float | None:
    """The lowest limit that has a threshold, rounded up to four digits after the point; None if
    there is none below 1."""
    # By bisection. `low` has no threshold. `high` has one, as soon as it is below 1.
    low = 0.0
    high = 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if find_threshold(middle) is None:
            low = middle
        else:
            high = middle
    if high == 1:
        return None
    return math.ceil(high * 1e4) / 1e4


def unreachable_message(parts: Sequence[Part], terms: Terms) -> str:
    """The message where nothing can be promised."""
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
    """Compare the promise of a component with what is missed of other annotated docs.

    nlp (Language): The pipeline.
    name (str): Name of the component.
    examples (Iterable[Example]): The docs.
    RETURNS (list[Observed]): For each limit that could be promised to each group: the miss rate on
        docs of these groups. Empty if nothing is promised, or false alarms, or by label.
    """
    ner = get_component(nlp, name)
    promise = ner.guarantee
    if promise is None or not promise.limits_misses or promise.per_label:
        return []
    # The thresholds of each group by limit, and the limits that all groups have.
    thresholds_of_groups: dict[str | None, dict[float, float]] = {}
    for name_of_group, thresholds in promise.groups.items():
        by_limit: dict[float, float] = {}
        for limit, threshold in thresholds.levels:
            by_limit[limit] = threshold
        thresholds_of_groups[name_of_group] = by_limit
    limits = set.intersection(*[set(by_limit) for by_limit in thresholds_of_groups.values()])

    # The docs of these groups, and the thresholds of each doc by limit
    in_groups: list[Example] = []
    for eg in examples:
        if group_of(eg.reference, promise.by_group) in thresholds_of_groups:
            in_groups.append(eg)
    used, _ = leave_out(ner, in_groups, promise.by_group)
    thresholds_of_docs: list[dict[float, float]] = []
    for eg in used:
        group = group_of(eg.reference, promise.by_group)
        thresholds_of_docs.append(thresholds_of_groups[group])

    spans, gold, _ = score_spans(nlp, ner, used, promise)
    observed = []
    for limit in sorted(limits):
        # Docs of different groups have different thresholds. After a division by that of its doc,
        # the threshold of all scores is 1.
        doc_thresholds = numpy.asarray([by_limit[limit] for by_limit in thresholds_of_docs])  # (D,)
        relative_scores = gold["score"] / doc_thresholds[gold["doc"]]
        losses = conformal.miss_losses(relative_scores, gold["doc"], by=promise.by)
        (miss_rate,) = losses.mean(numpy.ones(1)).tolist()
        is_in_set = spans["score"] >= doc_thresholds[spans["doc"]]
        observed.append(Observed(limit, miss_rate, float(is_in_set.sum() / len(gold))))
    return observed
