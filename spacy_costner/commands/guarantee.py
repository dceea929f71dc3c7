"""Guarantee a miss rate, or a share of false alarms, of sets of spans. No retraining."""

import math
from dataclasses import asdict
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import Array1d, Floats1d, Ints1d

from ..decoding import FINEST
from ..features import Features
from ..features.memory import ranges
from ..features.tokens import text_id
from ..metrics import conformal
from ..pipeline.annotations import Confidence, is_new
from ..pipeline.component import CostSensitiveNER
from ..pipeline.token_attrs import trim
from ..tags import Entities
from .check import SHORT
from .dev_predictions import get_component, predict_dev, select

BATCH = 64
FOUND = ("exact", "span", "covered", "touched")
UNITS = ("doc", "entity", "any")
LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The limits whose thresholds are written down, too, for the plot of `report`."""

STRICTNESS = numpy.concatenate([1 - numpy.logspace(-3, -0.31, 40), numpy.linspace(0.5, 0.01, 50)])
STRICTNESS = STRICTNESS.round(4)
"""The thresholds that are tested for false alarms, in this order."""


class Scored(NamedTuple):
    """The spans or the annotated entities of docs.

    label (Ints1d): The index of their label. Shape: (S,)
    doc (Ints1d): Their docs. Shape: (S,)
    score (Floats1d): Of spans the probability, or `numpy.inf` if they are in the set whatever the
        threshold. Of annotated entities the highest threshold at which they are found.
        Shape: (S,)
    right (Array1d): Whether spans are right, annotated entities are ever found. Shape: (S,)
    """

    label: Ints1d
    doc: Ints1d
    score: Floats1d
    right: Array1d


class Part(NamedTuple):
    """What can be promised of all entities, or of those of a label.

    label (str): The label; empty for all.
    docs (int): The calibration docs that count: those with such entities.
    entities (int): Their number.
    threshold (Optional[float]): The least probability of spans in the set; None if the limit can't
        be reached.
    reachable (Optional[float]): The lowest limit that can be promised with these docs.
    docs_needed (Optional[int]): How many such docs the limit takes; None if no number does.
    spans (float): Spans in the set, for each annotated entity.
    """

    label: str
    docs: int
    entities: int
    threshold: Optional[float]
    reachable: Optional[float]
    docs_needed: Optional[int]
    spans: float


class Guarantee(NamedTuple):
    """The result.

    promise (Dict[str, Any]): What is promised: see `guarantee`.
    parts (List[Part]): One for all labels or, per label, one for each.
    left_out (Dict[str, int]): The docs that don't count, by the reason.
    notes (List[str]): What may weaken the promise.
    """

    promise: Dict[str, Any]
    parts: List[Part]
    left_out: Dict[str, int]
    notes: List[str]


def guarantee(
    nlp: Language,
    examples: Iterable[Example],
    *,
    name: str = "ner",
    miss: Optional[float] = None,
    false_alarm: Optional[float] = None,
    confidence: Optional[float] = None,
    found: str = "exact",
    by: str = "doc",
    per_label: bool = False,
    most: Optional[int] = None,
    source: str = "calibration docs",
    on_docs: Callable[[int], Any] = lambda n: None,
) -> Guarantee:
    """Choose the thresholds of a component's set of spans on calibration docs, so that it keeps a
    promise on docs from the same source. The set is in `doc.spans[spans_key + "_guaranteed"]`.

    nlp (Language): The trained pipeline. Its config, its component and its meta are updated.
    examples (Iterable[Example]): The docs. Not training docs, nor docs used to calibrate or tune.
    name (str): The name of the component.
    miss (Optional[float]): The highest share of entities that are not found.
    false_alarm (Optional[float]): In place of it, the highest share of the set that is wrong.
    confidence (Optional[float]): The least probability that the calibration docs are such that
        the promise holds. None: the promise is about the mean over such calibrations; 0.95 for
        false alarms.
    found (str): "exact": a span with the same extent and label is in the set. "span": the extent.
        "covered": each token is in some span. "touched": some token is. Labels count only for
        "exact", or `per_label`. For false alarms the same of a span of the set.
    by (str): "doc": the share of each doc with entities, "entity": of all entities together,
        "any": the share of docs with entities in which any is missed.
    per_label (bool): Whether each label has its own promise, and its own threshold.
    most (Optional[int]): By entity: the most entities that a doc may have.
    source (str): The name of the docs in the promise.
    on_docs (Callable[[int], Any]): Called with the number of docs of each batch that is done.
    RETURNS (Guarantee): The promise, and what else can be promised.
    RAISES (ValueError): If an argument is out of its range, no docs are left, or nothing can be
        promised.
    """
    limit = _check(miss, false_alarm, confidence, found, by, most)
    ner = get_component(nlp, name)
    if false_alarm is not None and confidence is None:
        confidence = 0.95
    used, left_out = leave_out(ner, list(examples))
    spans, gold = score(
        nlp, name, used, found=found, per_label=per_label, is_miss=miss is not None, on_docs=on_docs
    )
    labels = ner.labels if per_label else ("",)
    delta = None if confidence is None else (1 - confidence) / len(labels)
    rule = Rule(miss is not None, by, most or 1, delta, len(used))
    parts = []
    for i, label in enumerate(labels):
        some, of_label = spans, gold
        if per_label:
            some, of_label = (_keep(each, each.label == i) for each in (spans, gold))
        parts.append(rule.part(label, some, of_label, limit))
    if all(part.threshold is None for part in parts):
        raise ValueError(_unreachable(parts, limit, "miss" if rule.is_miss else "false_alarm"))
    promise = {
        "miss": miss,
        "false_alarm": false_alarm,
        "confidence": confidence,
        "found": found,
        "by": by,
        "most": most,
        "per_label": per_label,
        "threshold": 1.0 if per_label else parts[0].threshold,
        "labels": {part.label: part.threshold for part in parts if per_label and part.threshold},
        "source": source,
        "docs": len(used),
        "entities": len(gold.doc),
        "left_out": left_out,
        "levels": [] if per_label else rule.levels(spans, gold, limit),
    }
    notes = find_notes(nlp, source)
    _promise(nlp, ner, promise)
    return Guarantee(promise, parts, left_out, notes)


def _check(
    miss: Optional[float],
    false_alarm: Optional[float],
    confidence: Optional[float],
    found: str,
    by: str,
    most: Optional[int],
) -> float:
    """Check arguments. RETURNS (float): The limit."""
    given = {"miss": miss, "false_alarm": false_alarm}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if len(limits) != 1:
        raise ValueError(f"expected one of miss and false_alarm, got {' and '.join(limits) or '-'}")
    for name, value in {**limits, "confidence": 0.5 if confidence is None else confidence}.items():
        if not 0 < value < 1:
            raise ValueError(f"{name}: expected a number between 0 and 1, got {value!r}")
    for name, word, words in (("found", found, FOUND), ("by", by, UNITS)):
        if word not in words:
            raise ValueError(f"{name}: expected one of {', '.join(words)}, got {word!r}")
    if false_alarm is not None and by != "doc":
        raise ValueError(f"by: expected doc with false_alarm, got {by}")
    if (by == "entity") != (most is not None and most > 0):
        raise ValueError(
            "most: expected, by entity and only then, the most entities that a doc may have, "
            f"fixed before the calibration docs are seen, got {most}"
        )
    return next(iter(limits.values()))


def leave_out(
    ner: CostSensitiveNER, examples: List[Example]
) -> Tuple[List[Example], Dict[str, int]]:
    """Leave out docs that a promise can't be based on.

    ner (CostSensitiveNER): The component.
    examples (List[Example]): The docs.
    RETURNS (Tuple): The other docs, and how many were left out, by the reason: "training docs"
        (known to models with label memory), "docs with missing tags". Docs "without entities" are
        counted, but not left out: no miss rate counts them.
    RAISES (ValueError): If none is left, or none of them has entities.
    """
    trained_on = set(training_docs(ner))
    counts = {"training docs": 0, "docs with missing tags": 0, "docs without entities": 0}
    used = []
    for eg in examples:
        doc = eg.reference
        if len(doc) >= SHORT and text_id(doc) in trained_on:
            counts["training docs"] += 1
        elif not len(doc) or not doc.to_array("ENT_IOB").all():
            counts["docs with missing tags"] += 1
        else:
            used.append(eg)
            counts["docs without entities"] += not doc.ents
    if len(used) == counts["docs without entities"]:
        found = ", ".join(f"{n} {reason}" for reason, n in counts.items() if n) or "none"
        raise ValueError(f"expected annotated docs with entities, not trained on, got {found}")
    return used, counts


def training_docs(ner: CostSensitiveNER) -> List[int]:
    """The hashes of the training docs that a model with label memory keeps."""
    shims = [shim for node in ner.model.walk() for shim in node.shims]
    return [i for shim in shims if isinstance(shim, Features) for i in shim.text_ids.tolist()]


def score(
    nlp: Language,
    name: str,
    examples: List[Example],
    *,
    found: str,
    per_label: bool,
    is_miss: bool,
    on_docs: Callable[[int], Any] = lambda n: None,
) -> Tuple[Scored, Scored]:
    """Score spans and annotated entities.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    examples (List[Example]): Completely annotated docs.
    found (str), per_label (bool): As in `guarantee`.
    is_miss (bool): Whether the set has the predicted entities, whatever the threshold.
    on_docs (Callable[[int], Any]): Called with the number of docs of each batch that is done.
    RETURNS (Tuple[Scored, Scored]): The spans and the annotated entities.
    """
    by_label, scored, n_docs = per_label or found == "exact", [], 0
    for batch in minibatch(examples, BATCH):
        dev = predict_dev(nlp, name, batch)
        spans, probs = dev.posterior.likely_entities(FINEST, least=FINEST)
        if is_miss:
            answer = get_component(nlp, name).decode(dev.posterior).entities
            predicted = trim(answer, dev.posterior.is_space)
            new = is_new(spans, predicted)
            always = numpy.full(len(predicted.begin), numpy.inf)
            spans, probs = _join(predicted, select(spans, new)), numpy.append(always, probs[new])
        n = len(dev.known)
        right = found_at(spans, dev.gold, numpy.ones(len(dev.gold.begin)), found, by_label, n) > 0
        reached = found_at(dev.gold, spans, probs, found, by_label, n)
        ends = numpy.cumsum(dev.posterior.potentials.lengths)
        columns = [
            (each, numpy.searchsorted(ends, each.begin, side="right") + n_docs, values, correct)
            for each, values, correct in ((spans, probs, right), (dev.gold, reached, reached > 0))
        ]
        scored.append([Scored(each.label, *rest) for each, *rest in columns])
        n_docs += len(batch)
        on_docs(len(batch))
    found_spans, gold = (Scored(*map(numpy.concatenate, zip(*parts))) for parts in zip(*scored))
    return found_spans, gold


def _join(first: Entities, second: Entities) -> Entities:
    return Entities(*(numpy.concatenate(pair) for pair in zip(first, second)))


def found_at(
    wanted: Entities, spans: Entities, scores: Floats1d, found: str, by_label: bool, n_tokens: int
) -> Floats1d:
    """The highest threshold at which entities are found by spans with at least that score.

    wanted (Entities): The entities.
    spans (Entities): The spans.
    scores (Floats1d): Their scores, above 0. Shape: (S,)
    found (str): What counts as found: see `guarantee`.
    by_label (bool): Whether only spans with the same label count.
    n_tokens (int): N.
    RETURNS (Floats1d): 0 for those that are never found. Shape: (E,)
    """
    if by_label:  # each label has tokens of its own
        wanted, spans = (
            Entities(begin + shift, end + shift, label)
            for begin, end, label in (wanted, spans)
            for shift in [(label.astype("int64") + 1) * (n_tokens + 1)]
        )
    if found in ("exact", "span"):
        width = int(max((end - begin).max(initial=0) for begin, end, _ in (wanted, spans))) + 1
        keys = [begin.astype("int64") * width + end - begin for begin, end, _ in (wanted, spans)]
        both, which = numpy.unique(numpy.concatenate(keys), return_inverse=True)
        best = numpy.zeros(len(both))
        numpy.maximum.at(best, which[len(keys[0]) :], scores)
        return best[which[: len(keys[0])]]
    last = max(int(end.max(initial=0)) for end in (wanted.end, spans.end))
    best = numpy.zeros(last)
    which, token = ranges(spans.begin, spans.end)
    numpy.maximum.at(best, token, scores[which])
    which, token = ranges(wanted.begin, wanted.end)
    if not len(which):
        return numpy.zeros(0)
    reduce = numpy.minimum if found == "covered" else numpy.maximum
    return reduce.reduceat(best[token], numpy.flatnonzero(numpy.diff(which, prepend=-1)))


class Rule(NamedTuple):
    """How thresholds are chosen.

    is_miss (bool): Whether the limit is of what is missed, or of false alarms.
    by (str): As in `guarantee`.
    most (int): As in `guarantee`.
    delta (Optional[float]): The share of calibrations that may fail; None: see `guarantee`.
    n_docs (int): The number of calibration docs.
    """

    is_miss: bool
    by: str
    most: int
    delta: Optional[float]
    n_docs: int

    def part(self, label: str, spans: Scored, gold: Scored, limit: float) -> Part:
        """What can be promised of some spans and entities."""
        at = self.threshold(spans, gold, limit)
        n_docs = len(numpy.unique(gold.doc)) if self.is_miss else self.n_docs
        low, high = 0.0, 1.0
        while high - low > 1e-4:
            middle = (low + high) / 2
            passed = self.threshold(spans, gold, middle) is not None
            low, high = (low, middle) if passed else (middle, high)
        if self.is_miss:
            mean = self.losses(gold, limit).mean(numpy.asarray([FINEST]))[0]
        else:
            mean = self.risks(spans)[0]
        return Part(
            label=label,
            docs=n_docs,
            entities=len(gold.doc),
            threshold=at,
            reachable=None if high == 1 else math.ceil(high * 1e4) / 1e4,
            docs_needed=conformal.docs_needed(float(mean), limit, delta=self.delta),
            spans=float((spans.score >= (2 if at is None else at)).sum() / max(len(gold.doc), 1)),
        )

    def losses(self, gold: Scored, limit: float) -> conformal.Losses:
        """The losses of docs with entities, for what is missed."""
        return conformal.miss_losses(gold.score, gold.doc, limit, by=self.by, most=self.most)

    def risks(self, spans: Scored) -> Floats1d:
        """The mean share of false alarms, at each of `STRICTNESS`."""
        return conformal.false_alarm_risk(
            spans.score, ~spans.right, spans.doc, self.n_docs, STRICTNESS
        )

    def threshold(self, spans: Scored, gold: Scored, limit: float) -> Optional[float]:
        """The threshold for a limit, rounded down; None if there is none."""
        if not self.is_miss:
            assert self.delta is not None
            p = conformal.p_values(self.risks(spans), limit, self.n_docs)
            n_passed = conformal.fixed_sequence(p, self.delta)
            return float(STRICTNESS[n_passed - 1]) if n_passed else None
        losses = self.losses(gold, limit)
        if not losses.n:
            return None
        at = conformal.threshold(losses, limit, delta=self.delta, floor=FINEST)
        if at is None:
            return None
        # A score of another batch may differ in its last digits.
        digits = 10.0 ** (3 - math.floor(math.log10(at)))
        return max(math.floor(at * digits) / digits, FINEST)

    def levels(self, spans: Scored, gold: Scored, limit: float) -> List[List[float]]:
        """The limits that can be promised, with their thresholds."""
        limits = sorted({*LEVELS, limit})
        found = [(level, self.threshold(spans, gold, level)) for level in limits]
        return [[level, at] for level, at in found if at is not None]


def _keep(scored: Scored, which: Array1d) -> Scored:
    return Scored(*(column[which] for column in scored))


def _unreachable(parts: List[Part], limit: float, what: str) -> str:
    """The message where nothing can be promised."""
    lines = []
    for label, docs, _, _, reachable, needed, _ in parts:
        of = f"{label}: " if label else ""
        could = "nothing" if reachable is None else f"{reachable:.4f} or more"
        enough = (
            f"{limit:g} takes about {needed:,} docs, if they are like these"
            if needed
            else f"no number of docs is enough for {limit:g} with this model"
        )
        lines.append(f"{of}{could} with these {docs:,} docs; {enough}")
    return f"{what}: expected a limit that can be promised, got {limit:g}. " + ". ".join(lines)


def find_notes(nlp: Language, source: str) -> List[str]:
    """What may weaken a promise: calibration docs on which something was chosen.

    nlp (Language): The pipeline.
    source (str): The path of the calibration docs.
    RETURNS (List[str]): Sentences.
    RAISES (ValueError): If it is the path of the training docs.
    """
    paths = nlp.config.interpolate().get("paths", {})
    if paths.get("train") == source:
        raise ValueError(f"expected docs that the pipeline was not trained on, got {source}")
    notes = []
    if paths.get("dev") == source:
        notes.append(f"{source} are the development docs of training, which may be too easy.")
    if nlp.meta.get("performance", {}).get("measured_on", {}).get("source") == source:
        notes.append(f"{source} were used to calibrate or tune, and may be too easy.")
    return notes


def _promise(nlp: Language, ner: CostSensitiveNER, promise: Dict[str, Any]) -> None:
    """Write a promise to a component, its config and the meta."""
    if ner.confidence is None:
        ner.set_confidence(Confidence())
        block = {"@misc": "spacy_costner.Confidence.v1", **asdict(Confidence())}
        block.pop("second_choice")
        nlp.get_pipe_config(ner.name)["confidence"] = block
    ner.meta = nlp.meta
    ner.set_guarantee(promise)
