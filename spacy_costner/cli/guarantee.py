"""Guarantee a miss rate, or a share of false alarms, of sets of spans. No retraining."""

import math
from typing import Annotated, Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy
from spacy.language import Language
from spacy.training import Example
from thinc.types import Floats1d
from typer import Option

from ..features import Features
from ..features.tokens import text_id
from ..metrics import conformal, text_table
from ..pipeline.annotations import Confidence
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..saving import check_folder, save_folder
from .check import SHORT
from .options import CodeOption, DevArg, GpuOption, ModelArg, NameOption, OutputOption, load
from .output import JsonOption, errors_shown, print_result
from .predictions import FOUND, SpanScores, get_component, score

LOWEST = 1e-6
"""The least threshold: the set then has all spans that are searched for."""

UNITS = ("doc", "entity", "any")
LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""The limits whose thresholds are written down, too, for the plot of `report`."""

STRICTNESS = numpy.concatenate([1 - numpy.logspace(-3, -0.31, 40), numpy.linspace(0.5, 0.01, 50)])
STRICTNESS = STRICTNESS.round(4)
"""The thresholds that are tested for false alarms, in this order."""


class Part(NamedTuple):
    """What can be promised of all entities, or of those of a label.

    label (str): The label; empty for all.
    docs (int): The calibration docs that count: those with such entities.
    entities (int): Their number.
    threshold (Optional[float]): The least score of spans in the set; None if the limit can't
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


class Terms(NamedTuple):
    """What to promise.

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
    """

    miss: Optional[float] = None
    false_alarm: Optional[float] = None
    confidence: Optional[float] = None
    found: str = "exact"
    by: str = "doc"
    per_label: bool = False
    most: Optional[int] = None

    @property
    def limit(self) -> float:
        """The highest miss rate, or share of false alarms."""
        limit = self.false_alarm if self.miss is None else self.miss
        assert limit is not None
        return limit

    def check(self) -> None:
        """RAISES (ValueError): If one is out of its range, or they don't go together."""
        limits = {"miss": self.miss, "false_alarm": self.false_alarm}
        given = [name for name, limit in limits.items() if limit is not None]
        if len(given) != 1:
            raise ValueError(f"expected miss or false_alarm, got {' and '.join(given) or 'none'}")
        for name in (*given, "confidence"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name}: expected a number between 0 and 1, got {value!r}")
        for name, words in (
            ("found", FOUND),
            ("by", UNITS if self.false_alarm is None else ("doc",)),
        ):
            if getattr(self, name) not in words:
                expected = " or ".join(words)
                raise ValueError(f"{name}: expected {expected}, got {getattr(self, name)!r}")
        if (self.by == "entity") != ((self.most or 0) > 0):
            raise ValueError(
                "most: expected, by entity and only then, the most entities that a doc may have, "
                f"fixed before the calibration docs are seen, got {self.most}"
            )


class Guarantee(NamedTuple):
    """The result.

    promise (Dict[str, Any]): The terms, the thresholds ("threshold" and, per label, "labels"), the
        calibration docs ("source", "docs", "entities", "not_counted") and "levels": the thresholds
        of other limits.
    parts (List[Part]): One for all labels or, per label, one for each.
    notes (List[str]): What may weaken the promise.
    """

    promise: Dict[str, Any]
    parts: List[Part]
    notes: List[str]


def guarantee(
    nlp: Language,
    examples: Iterable[Example],
    terms: Terms,
    *,
    name: str = "ner",
    source: str = "calibration docs",
    on_docs: Callable[[int], Any] = lambda n: None,
) -> Guarantee:
    """Choose the thresholds of a component's set of spans on calibration docs, so that it keeps a
    promise on docs from the same source. The set is in `doc.spans[spans_key + "_guaranteed"]`.

    nlp (Language): The trained pipeline. Its config, its component and its meta are updated.
    examples (Iterable[Example]): The docs. Not training docs, nor docs used to calibrate or tune.
    terms (Terms): What to promise.
    name (str): The name of the component.
    source (str): The name of the docs in the promise.
    on_docs (Callable[[int], Any]): Called with the number of docs of each batch that is done.
    RETURNS (Guarantee): The promise, and what else can be promised.
    RAISES (ValueError): If a term is out of its range, no docs are left, or nothing can be
        promised.
    """
    terms.check()
    ner, notes = get_component(nlp, name), find_notes(nlp, source)
    if terms.false_alarm is not None and terms.confidence is None:
        terms = terms._replace(confidence=0.95)
    used, not_counted = leave_out(ner, examples)
    spans, gold = score(nlp, name, used, terms._asdict(), on_docs=on_docs)
    labels = ner.labels if terms.per_label else ("",)
    rule = Rule(terms, len(labels), len(used))
    parts = []
    for i, label in enumerate(labels):
        some, of_label = spans, gold
        if terms.per_label:
            some, of_label = (each.select(each.label == i) for each in (spans, gold))
        parts.append(rule.part(label, some, of_label))
    if all(part.threshold is None for part in parts):
        raise ValueError(_unreachable(parts, terms))
    promise = {
        **terms._asdict(),
        "threshold": 1.0 if terms.per_label else parts[0].threshold,
        "labels": {part.label: part.threshold for part in parts if part.label and part.threshold},
        "source": source,
        "docs": len(used),
        "entities": len(gold.doc),
        "not_counted": not_counted,
        "levels": [] if terms.per_label else rule.levels(spans, gold),
    }
    _promise(nlp, ner, promise)
    return Guarantee(promise, parts, notes)


def leave_out(
    ner: CostSensitiveNER, examples: Iterable[Example]
) -> Tuple[List[Example], Dict[str, int]]:
    """Leave out docs that a promise can't be based on.

    ner (CostSensitiveNER): The component.
    examples (Iterable[Example]): The docs.
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


class Rule(NamedTuple):
    """How thresholds are chosen.

    terms (Terms): What to promise.
    n_labels (int): How many thresholds there will be. They share what may fail.
    n_docs (int): The number of calibration docs.
    """

    terms: Terms
    n_labels: int
    n_docs: int

    @property
    def delta(self) -> Optional[float]:
        """The share of calibrations that may fail; None: the promise is about the mean."""
        confidence = self.terms.confidence
        return None if confidence is None else (1 - confidence) / self.n_labels

    def part(self, label: str, spans: SpanScores, gold: SpanScores) -> Part:
        """What can be promised of some spans and entities."""
        limit = self.terms.limit
        at, low, high = self.threshold(spans, gold, limit), 0.0, 1.0
        while high - low > 1e-4:
            middle = (low + high) / 2
            passed = self.threshold(spans, gold, middle) is not None
            low, high = (low, middle) if passed else (middle, high)
        if self.terms.miss is None:
            n_docs, mean = self.n_docs, self.risks(spans)[0]
        else:
            losses = self.losses(gold, limit)
            n_docs, mean = losses.n, losses.mean(numpy.asarray([LOWEST]))[0]
        return Part(
            label=label,
            docs=n_docs,
            entities=len(gold.doc),
            threshold=at,
            reachable=None if high == 1 else math.ceil(high * 1e4) / 1e4,
            docs_needed=conformal.docs_needed(float(mean), limit, delta=self.delta),
            spans=float((spans.score >= (2 if at is None else at)).sum() / max(len(gold.doc), 1)),
        )

    def losses(self, gold: SpanScores, limit: float) -> conformal.Losses:
        """The losses of docs with entities, for what is missed."""
        return conformal.miss_losses(gold.score, gold.doc, by=self.terms.by)

    def risks(self, spans: SpanScores) -> Floats1d:
        """The mean share of false alarms, at each of `STRICTNESS`."""
        wrong = ~spans.right
        return conformal.false_alarm_risk(spans.score, wrong, spans.doc, self.n_docs, STRICTNESS)

    def threshold(self, spans: SpanScores, gold: SpanScores, limit: float) -> Optional[float]:
        """The threshold for a limit, rounded down; None if there is none."""
        if self.terms.miss is None:
            assert self.delta is not None
            p = conformal.p_values(self.risks(spans), limit, self.n_docs)
            n_passed = conformal.fixed_sequence(p, self.delta)
            return float(STRICTNESS[n_passed - 1]) if n_passed else None
        losses = self.losses(gold, limit)
        at = conformal.threshold(losses, limit, delta=self.delta, floor=LOWEST)
        if at is None:
            return None
        # A score of another batch may differ in its last digits.
        digits = 10.0 ** (3 - math.floor(math.log10(at)))
        return float(f"{max(math.floor(at * digits) / digits, LOWEST):.4g}")

    def levels(self, spans: SpanScores, gold: SpanScores) -> List[List[float]]:
        """The limits that can be promised, with their thresholds."""
        limits = sorted({*LEVELS, self.terms.limit})
        found = [(level, self.threshold(spans, gold, level)) for level in limits]
        return [[level, at] for level, at in found if at is not None]


class Observed(NamedTuple):
    """What other docs show of a promise.

    promised (float): The miss rate that is promised at a threshold.
    miss (float): The miss rate on these docs.
    spans (float): Spans in the set, for each annotated entity.
    """

    promised: float
    miss: float
    spans: float


def observe(nlp: Language, name: str, examples: Iterable[Example]) -> List[Observed]:
    """Compare the promise of a component with what is missed of other docs.

    nlp (Language): The pipeline.
    name (str): The name of the component.
    examples (Iterable[Example]): Annotated docs. Those with missing tags don't count.
    RETURNS (List[Observed]): For each limit that could be promised; empty if none is, or not a
        miss rate of all labels together.
    """
    promise, found = get_component(nlp, name).guarantee, []
    if not promise or promise["miss"] is None or promise["per_label"]:
        return []
    used, _ = leave_out(get_component(nlp, name), examples)
    spans, gold = score(nlp, name, used, promise)
    for limit, at in promise["levels"]:
        miss = observed_miss(gold, at, promise["by"])
        found.append(Observed(limit, miss, float((spans.score >= at).sum() / len(gold.doc))))
    return found


def observed_miss(gold: SpanScores, at: float, by: str) -> float:
    """The miss rate at a threshold, by doc, by entity, or of docs in which any is missed."""
    if by == "entity":
        return float((gold.score < at).mean())
    losses = conformal.miss_losses(gold.score, gold.doc, by=by)
    return float(losses.mean(numpy.asarray([at]))[0])


def _unreachable(parts: List[Part], terms: Terms) -> str:
    """The message where nothing can be promised."""
    limit, lines = terms.limit, []
    for part in parts:
        of = f"{part.label}: " if part.label else ""
        could = "nothing" if part.reachable is None else f"{part.reachable:.4f} or more"
        enough = f"no number of docs is enough for {limit:g} with this model"
        if part.docs_needed:
            enough = f"{limit:g} takes about {part.docs_needed:,} docs, if they are like these"
        lines.append(f"{of}{could} with these {part.docs:,} docs; {enough}")
    what = "false_alarm" if terms.miss is None else "miss"
    return f"{what}: expected a limit that can be promised, got {limit:g}. {'. '.join(lines)}"


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
        nlp.get_pipe_config(ner.name)["confidence"] = {"@misc": "spacy_costner.Confidence.v1"}
    ner.meta = nlp.meta
    ner.set_guarantee(promise)


def guarantee_cli(
    model: ModelArg,
    docs_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    miss: Annotated[
        Optional[float], Option("--miss", help="Highest share of entities that are not found")
    ] = None,
    false_alarm: Annotated[
        Optional[float],
        Option("--false-alarm", help="In place of it: highest share of the set that is wrong"),
    ] = None,
    confidence: Annotated[
        Optional[float],
        Option("--confidence", help="Of the promise, such as 0.95; without it, it is of the mean"),
    ] = None,
    found: Annotated[
        str, Option("--found", help="What counts as found: exact, span, covered, touched")
    ] = "exact",
    by: Annotated[
        str, Option("--by", help="Share of each doc (doc), of all entities (entity), of docs (any)")
    ] = "doc",
    per_label: Annotated[
        bool, Option("--per-label", help="A promise and a threshold for each label")
    ] = False,
    most: Annotated[
        Optional[int], Option("--most", help="With --by entity: most entities that a doc may have")
    ] = None,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Guarantee a miss rate: choose, on calibration docs, the threshold of a set of spans that
    misses at most a share of the entities of other docs from the same source. The set is in
    doc.spans["confidence_guaranteed"]. Use docs that the pipeline was not trained on.
    """
    terms = Terms(miss, false_alarm, confidence, found, by, per_label, most)
    with errors_shown():
        check_folder(output_path)
        terms.check()
        nlp, examples = load(model, docs_path, use_gpu, code_path)
        with progress(desc="guarantee", unit="doc", total=len(examples)) as bar:
            result = guarantee(
                nlp, examples, terms, name=name, source=str(docs_path), on_docs=bar.update
            )
        save_folder(output_path, nlp.to_disk)
    print_result(result, describe(result), print_json, output_path)


def describe(result: Guarantee) -> str:
    """What is promised, and on what."""
    rows = [
        [
            part.label or "all",
            part.docs,
            part.entities,
            "-" if part.threshold is None else f"{part.threshold:g}",
            f"{part.spans:.2f}",
            "-" if part.reachable is None else f"{part.reachable:.4f}",
            "-" if part.docs_needed is None else f"{part.docs_needed:,}",
        ]
        for part in result.parts
    ]
    header = ["label", "docs", "entities", "threshold", "spans/entity", "reachable", "docs needed"]
    lines = [text_table([header, *rows])]
    counts = result.promise["not_counted"].items()
    if not_counted := [f"{n:,} {reason}" for reason, n in counts if n]:
        lines.append(f"\nnot counted: {', '.join(not_counted)}")
    lines += [f"note: {note}" for note in result.notes]
    return "\n".join([*lines, f"\n{in_words(result)}"])


def in_words(result: Guarantee) -> str:
    """The promise as a sentence."""
    promise = result.promise
    limit = promise["miss"] if promise["false_alarm"] is None else promise["false_alarm"]
    what = {
        "doc": f"at most {limit:.3g} of the entities of a doc are missed",
        "entity": f"at most {limit:.3g} of all entities are missed",
        "any": f"at most {limit:.3g} of the docs with entities have one that is missed",
    }[promise["by"]]
    if promise["false_alarm"] is not None:
        what = f"at most {limit:.3g} of the set of a doc is wrong"
    sure = "in the mean over calibrations"
    if promise["confidence"] is not None:
        sure = f"in the mean over docs, with confidence {promise['confidence']:g}"
    each = ", for each label with a threshold" if promise["per_label"] else ""
    return (
        f"Promised of docs like {promise['source']}: {what}, {sure}{each} "
        f"(found: {promise['found']})."
    )
