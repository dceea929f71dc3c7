"""Guarantee a miss rate, or a share of false alarms, of sets of spans. No retraining."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import ArrayXd, Floats1d

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
from .fitness import count_known, find_unknown_labels, is_known_doc, tell_known
from .predictions import DevPredictions, get_component, predict_dev, turn_on_confidence

BATCH = 64

ROW = [("label", "i8"), ("doc", "i8"), ("score", "f8"), ("found", "?")]
"""A span that may be in a set, or an annotated entity: see `score_spans`."""

MOST_KNOWN = 0.25
"""The highest share of sentences that the component was trained on. In the development docs of
Spanish CoNLL-2002 it is 0.14: articles are there twice."""

LOWEST = 1e-6
"""The least threshold: the set then has all spans that are searched for."""

LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The limits whose thresholds are written down, too, for the plot of `report`."""

STRICTNESS = numpy.append(1 - numpy.logspace(-3, -0.31, 40), numpy.linspace(0.5, 0.01, 50)).round(4)
"""The thresholds that are tested for false alarms, in this order."""


class Guarantee(NamedTuple):
    """The result."""

    promise: Promise  # its terms, thresholds and calibration docs
    parts: list[dict[str, Any]]  # one for all labels, or one for each: see `find_part`
    notes: list[str]  # what may weaken the promise


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
    file_tokens: bool = False,
    source: str = "calibration docs",
) -> Guarantee:
    """Choose the thresholds of a component's set of spans on calibration docs, so that it keeps a
    promise on docs from the same source. The set is in `doc.spans[spans_key + "_guaranteed"]`.

    nlp (Language): The trained pipeline. Its config, its component and its meta are updated.
    examples (Iterable[Example]): The docs. Not training docs, nor docs used to calibrate or tune.
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
    ner = get_component(nlp, name)
    notes = find_notes(nlp, source)
    examples = list(examples)
    notes += find_unknown_labels(nlp, ner, examples, source)
    n_known, n_sentences = count_known(ner, [eg.reference for eg in examples])
    if n_known > MOST_KNOWN * n_sentences:
        raise ValueError(
            f"expected docs that the pipeline was not trained on, got {source}, where "
            f"{tell_known(n_known, n_sentences)}"
        )
    used, not_counted = leave_out(ner, examples, by_group)
    spans, gold, entropies = score_spans(nlp, ner, used, terms)
    group_of_doc = numpy.asarray([group_of(eg.reference, by_group) for eg in used])
    values, labels = numpy.unique(group_of_doc).tolist(), ner.own_labels if per_label else ("",)
    groups: dict[str, Thresholds] = {}
    parts = []
    for value, label in product(values, labels):
        i, is_own = ner.labels.index(label) if per_label else 0, group_of_doc == value
        rows = [each[is_own[each["doc"]]] for each in (spans, gold)]
        rows = [each[each["label"] == i] if per_label else each for each in rows]
        sizes = {"n_docs": int(is_own.sum()), "n_parts": len(values) * len(labels)}
        part = {"group": value, "label": label, **find_part(*rows, **sizes, terms=terms)}
        parts.append(part)
        threshold = part["threshold"]
        if threshold is None:
            continue
        if per_label:
            group = groups.setdefault(value, Thresholds(1.0, {}))
            group.labels[label] = threshold
        else:
            groups[value] = Thresholds(threshold, {}, part["levels"])
    if not groups:
        raise ValueError(unreachable(parts, terms))
    promise = Promise(
        **asdict(terms),
        groups=groups,
        source=source,
        docs=len(used),
        entities=len(gold),
        not_counted=not_counted,
    )
    turn_on_confidence(nlp, ner)
    ner.set_reading(find_reading(nlp, name, used, file_tokens=file_tokens))
    ner.meta = nlp.meta
    ner.set_guarantee(promise)
    ner.set_shift([eg.reference for eg in used], entropies, source, approximate=False)
    return Guarantee(promise, parts, notes)


def find_notes(nlp: Language, source: str) -> list[str]:
    """What may weaken a promise: the pipeline was chosen on the calibration docs. If it was trained
    on them, nothing can be promised."""
    paths = nlp.config.interpolate().get("paths", {})
    if paths.get("train") == source:
        raise ValueError(f"expected docs that the pipeline was not trained on, got {source}")
    measured_on = nlp.meta.get("performance", {}).get("measured_on", {})
    uses = {
        "are the development docs of training": paths.get("dev"),
        "were used to calibrate or tune": measured_on.get("source"),
    }
    return [f"{source} {use}, and may be too easy." for use, path in uses.items() if path == source]


def leave_out(
    ner: CostSensitiveNER, examples: Iterable[Example], by_group: str | None
) -> tuple[list[Example], dict[str, int]]:
    """Leave out docs that a promise can't be based on: "training docs", known by their sentences
    or, to models with label memory, by their whole text; "docs with missing tags"; and those
    without a group. Docs "without entities" stay: no miss rate counts them. Returns the other docs,
    and the numbers of docs of these kinds."""
    shims = [shim for node in ner.model.walk() for shim in node.shims]
    whole_texts = set[int]()
    for shim in shims:
        if isinstance(shim, Features):
            whole_texts.update(shim.text_ids.tolist())
    trained_on = {*ner.trained_on.tolist()}
    kinds = ["training docs", "docs with missing tags", "docs without entities"]
    counts = dict.fromkeys([*kinds, *([f"docs without {by_group!r}"] if by_group else [])], 0)
    used = []
    for eg in (ner.annotation.as_entities(eg, ner.own_labels) for eg in examples):
        doc = eg.reference
        is_whole_text = len(doc) >= SHORT and text_id(doc) in whole_texts
        if is_whole_text or is_known_doc(trained_on, doc):
            counts["training docs"] += 1
        elif not len(doc) or not doc.to_array("ENT_IOB").all():
            counts["docs with missing tags"] += 1
        elif group_of(doc, by_group) is None:
            counts[f"docs without {by_group!r}"] += 1
        else:
            used.append(eg)
            counts["docs without entities"] += not doc.ents
    if len(used) == counts["docs without entities"]:
        got = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "none"
        raise ValueError(f"expected annotated docs with entities, not trained on, got {got}")
    return used, counts


def score_spans(
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], terms: Terms
) -> tuple[ArrayXd, ArrayXd, Floats1d]:
    """Score the spans that may be in the sets of docs, and their annotated entities: two tables.
    The "score" of a span is infinity if it is in the set whatever the threshold, that of an entity
    the highest threshold at which it is found; "found" is whether a span is correct, an entity is
    ever found. Also returns the entropies of docs, for the test for a shift. Shape: (B,)"""
    tables: list[Any] = []
    entropies: list[Any] = []
    n_docs = 0
    for batch in minibatch(progress(examples, desc="guarantee", unit="doc"), BATCH):
        dev = predict_dev(nlp, ner, batch)
        spans, scores = guarantee_scores(dev.posterior, terms)
        if terms.miss is not None:  # what is predicted is always in the set
            predicted = ner.decode(dev.posterior).entities.trim(dev.posterior.is_space)
            new = ~numpy.isin(dev.entity_keys(spans), dev.entity_keys(predicted))
            spans = Entities(*map(numpy.concatenate, zip(predicted, spans.select(new))))
            scores = numpy.append(numpy.full(len(predicted.begin), numpy.inf), scores[new])
        is_own = ~numpy.isin(spans.label, dev.other_labels)
        spans, scores = spans.select(is_own), scores[is_own]
        is_correct = found_at(dev, spans, dev.gold, numpy.ones(len(dev.gold.begin)), terms) > 0
        reached = found_at(dev, dev.gold, spans, scores, terms)
        ends = numpy.cumsum(dev.posterior.doc_lengths)
        for some, *values in ((spans, scores, is_correct), (dev.gold, reached, reached > 0)):
            doc = numpy.searchsorted(ends, some.begin, side="right") + n_docs
            tables.append(numpy.rec.fromarrays([some.label, doc, *values], dtype=ROW))
        n_docs += len(batch)
        entropies.append(dev.entropies())
    of_spans, of_gold = numpy.concatenate(tables[::2]), numpy.concatenate(tables[1::2])
    return of_spans, of_gold, numpy.concatenate(entropies)


def found_at(
    dev: DevPredictions, wanted: Entities, spans: Entities, scores: Floats1d, terms: Terms
) -> Floats1d:
    """The highest threshold at which each wanted entity is found by the spans with at least that
    score, above 0; 0 if none finds it. Shape: (E,)"""
    # A wanted entity needs all its cells: itself, its tokens, or its tokens with its label.
    both, n = Entities(*map(numpy.concatenate, zip(wanted, spans))), len(wanted.begin)
    owner, cells = ranges(both.begin, both.end)
    if terms.found == "exact":
        owner = numpy.arange(len(both.begin))
        _, cells = numpy.unique(dev.entity_keys(both), return_inverse=True)
    elif terms.per_label:  # -1, those of the model, inner nodes
        label = numpy.minimum(both.label, len(dev.posterior.tags.labels))
        cells = cells + (label[owner] + 1) * len(dev.is_known)
    is_wanted, best = owner < n, numpy.zeros(cells.max(initial=0) + 1)
    numpy.maximum.at(best, cells[~is_wanted], scores[owner[~is_wanted] - n])
    firsts = numpy.flatnonzero(numpy.diff(owner[is_wanted], prepend=-1))
    return numpy.minimum.reduceat(best[cells[is_wanted]], firsts)


def find_part(
    spans: ArrayXd, gold: ArrayXd, *, n_docs: int, n_parts: int, terms: Terms
) -> dict[str, Any]:
    """What can be promised of scored spans and entities. Several parts share what may fail.
    "threshold" is the least score in the set, None if the limit can't be reached; "reachable" the
    lowest limit that can be promised with these docs, "docs_needed" their number for the limit, or
    None; "spans" those in the set for each entity; "levels" other limits with their thresholds."""
    confidence = terms.confidence
    delta: Any = None if confidence is None else (1 - confidence) / n_parts
    if terms.miss is None:
        limit = terms.limit
        wrong = ~spans["found"]
        is_binary = False
        risks = conformal.false_alarm_risk(spans["score"], wrong, spans["doc"], n_docs, STRICTNESS)
        mean = risks[0]
    else:
        limit = terms.limit
        losses = conformal.miss_losses(gold["score"], gold["doc"], by=terms.by)
        is_binary = losses.binary
        n_docs, mean = losses.n, losses.mean(numpy.asarray([LOWEST]))[0]

    def threshold(limit: float) -> float | None:
        """The threshold that keeps a limit, rounded down; None if there is none."""
        if terms.miss is None:
            p = conformal.p_values(risks, limit, n_docs)
            n_passed = conformal.fixed_sequence(p, delta)
            return float(STRICTNESS[n_passed - 1]) if n_passed else None
        at = conformal.threshold(losses, limit, delta=delta, floor=LOWEST)
        if at is None:
            return None
        # A score of another batch may differ in its last digits.
        digits = 10.0 ** (3 - math.floor(math.log10(at)))
        return float(f"{max(math.floor(at * digits) / digits, LOWEST):.4g}")

    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if threshold(middle) is None else (low, middle)
    at, levels = threshold(limit), [[level, threshold(level)] for level in sorted({*LEVELS, limit})]
    return {
        "docs": n_docs,
        "entities": len(gold),
        "threshold": at,
        "reachable": None if high == 1 else math.ceil(high * 1e4) / 1e4,
        "docs_needed": conformal.docs_needed(float(mean), limit, delta=delta, binary=is_binary),
        "spans": float((spans["score"] >= (2 if at is None else at)).sum() / max(len(gold), 1)),
        "levels": [level for level in levels if level[1] is not None],
    }


def unreachable(parts: Sequence[dict[str, Any]], terms: Terms) -> str:
    """The message where nothing can be promised."""
    name = "false_alarm" if terms.miss is None else "miss"
    limit = f"{terms.limit:g}"
    sentences = [f"{name}: expected a limit that can be promised, got {limit}"]
    for part in parts:
        could = "nothing" if part["reachable"] is None else f"{part['reachable']:.4f} or more"
        enough = f"no number of docs is enough for {limit} with this model"
        if n := part["docs_needed"]:
            enough = f"{limit} takes about {n:,} docs, if they are like these"
        of = "".join(f"{part[key]}: " for key in ("group", "label") if part[key])
        sentences.append(f"{of}{could} with these {part['docs']:,} docs; {enough}")
    return ". ".join(sentences)


def observe(
    nlp: Language, name: str, examples: Iterable[Example]
) -> list[tuple[float, float, float]]:
    """Compare the promise of a component with what is missed of other annotated docs.

    RETURNS (list[tuple[float, float, float]]): For each limit that could be promised to each group:
        the limit, the miss rate on docs of these groups, and the spans in the set for each
        annotated entity. Empty if nothing is promised, or false alarms, or by label.
    """
    ner = get_component(nlp, name)
    promise = ner.guarantee
    if promise is None or promise.miss is None or promise.per_label:
        return []
    groups: dict[str | None, dict[float, float]] = {}
    for value, thresholds in promise.groups.items():
        groups[value] = {limit: threshold for limit, threshold in thresholds.levels}
    key, by = promise.by_group, promise.by
    examples = [eg for eg in examples if group_of(eg.reference, key) in groups]
    used = leave_out(ner, examples, key)[0]
    spans, gold, _ = score_spans(nlp, ner, used, promise)
    rows = []
    for limit in sorted(set.intersection(*map(set, groups.values()))):
        at = numpy.asarray([groups[group_of(eg.reference, key)][limit] for eg in used])
        losses = conformal.miss_losses(gold["score"] / at[gold["doc"]], gold["doc"], by=by)
        in_set = spans["score"] >= at[spans["doc"]]
        rows.append((limit, float(losses.mean(numpy.ones(1))[0]), float(in_set.sum() / len(gold))))
    return rows
