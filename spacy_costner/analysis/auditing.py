"""Rank the places of a corpus by how probably their annotation is wrong."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Config
from thinc.types import Floats2d

from ..decoding import LEAST, Temperature
from ..ml import first_pass_of
from ..pipeline.component import CostSensitiveNER
from ..readers import Task, TaskSpan, doc_to_task, read_tasks
from ..readers.files import FilePlace
from ..readers.sentences import copy_tokens
from ..readers.tasks import spans_from_json
from ..tags import Entities, Tags
from .calibration import fit_temperature, predict_best
from .comparison import component_name
from .preparation import Fold, hold_out
from .reporting import (
    BOTH,
    BOUNDARY,
    LABEL,
    MISSING,
    SPURIOUS,
    Entity,
    extent_of,
    find_cost,
    kind_of,
    named,
    window,
)
from .runs import MakeExecutor

KINDS = (LABEL, BOUNDARY, MISSING, SPURIOUS)

MISSING_ODDS = 2.0
"""How many times as often an entity is overlooked as another mistake is made, given the same
probabilities. Chosen on made-up mistakes: see docs/audit.md."""

SMOOTHING = 0.2
"""Added to probabilities before the logarithm. Less finds more of the mistakes that are put in by
chance, more those that annotators make. Chosen on both: see docs/audit.md."""

PROBABLE = 0.5
"""The least probability of entities that are suggested beside the best alternative."""

LEAVE, ACCEPT = UNANSWERED = ("leave", "accept")
"""What happens to lines without an answer."""

IGNORE = "ignore"
"""The answer of a place that was skipped: no answer."""

ANNOTATED = "spacy_costner_annotated"
"""In `doc.user_data`: whether each token is annotated as O and as each label. Shape: (T, L + 1)"""

TEMPERATURES = (0.5, 5.0)
"""The range of temperatures: where all predictions are right, or wrong, none fits."""

MistakeCost = Callable[[Sequence[Entity], Sequence[Entity]], float]
"""Takes the true and the annotated entities of a place to the cost of that mistake."""


class Suspect(NamedTuple):
    """A place whose annotation may be wrong."""

    doc: int  # the number of the doc, from 0
    kind: str  # one of `KINDS`: what the mistake is if the suggestion is right
    score: float  # the log-odds of the suggestion against the annotation: see `rank`
    annotated: list[Entity]  # in tokens of the doc
    suggested: list[Entity]
    prob_annotated: float
    prob_suggested: float
    as_annotated: int = 0  # how often the words are annotated so elsewhere in the corpus
    as_suggested: int = 0  # how often the words are annotated elsewhere as the suggestion says

    @property
    def extent(self) -> tuple[int, int]:
        """The first token and the one after the last."""
        return extent_of((self.annotated, self.suggested))


class Audit(NamedTuple):
    """The result of an audit. Kinds count the places where the suggestion is more probable than the
    annotation."""

    suspects: list[Suspect]  # all places, the most probable mistakes first
    kinds: dict[str, int]  # by `KINDS`, and those of all these that are "inconsistent"
    docs: int
    tokens: int
    entities: int  # annotated ones
    over_borders: int  # annotated ones over a border of sequences, which no model predicts


def audit(
    config: Config,
    docs: Sequence[Doc],
    *,
    n_folds: int = 5,
    n_seeds: int = 1,
    seed: int | None = None,
    file_tokens: bool = False,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
) -> Audit:
    """Find probable mistakes in the annotation of docs.

    config (Config): A config of a linear model. Its corpora are not read. If its component has a
        cost, probabilities are weighed by it.
    docs (Sequence[Doc]): The annotated docs, none of them empty. Models see their tokens, which
        suggestions are made of.
    file_tokens (bool): Whether models see their sentence starts, too.
    make_executor (MakeExecutor | None): Makes an executor of a task for each fold, such as
        `local_processes(2)`. None: one fold after another, in this process.
    n_folds (int): Number of folds.
    n_seeds (int): Trainings for each fold, whose weights are averaged.
    seed (int | None): Random seed of the folds.
    code_path (Path | None): Python file with registered functions to be imported.
    RAISES (ValueError): If the config's component can't be fitted, there are too few docs or no
        entities, or a worker failed.
    """
    component = config.interpolate()["components"][component_name(config, Path("config"))]
    settings = {"n_folds": n_folds, "n_seeds": n_seeds, "seed": seed, "code_path": code_path}
    settings["keeps_starts"] = file_tokens
    folds = cross_fit(config, docs, make_executor=make_executor, **settings)
    tags = folds[0].dev.posterior.tags.collapsed
    cost, _, cost_name = find_cost(component)
    suspects = rank(folds, docs, make_cost(cost(tags), tags) if cost_name else None)
    probable = [one for one in suspects if one.prob_suggested > one.prob_annotated]
    kinds = {kind: sum(one.kind == kind for one in probable) for kind in KINDS}
    kinds["inconsistent"] = sum(one.as_suggested > one.as_annotated for one in probable)
    n_entities = sum(len(doc.ents) for doc in docs)
    n_over = sum(int(fold.dev.posterior.crosses_border(fold.dev.gold).sum()) for fold in folds)
    return Audit(suspects, kinds, len(docs), sum(map(len, docs)), n_entities, n_over)


def cross_fit(config: Config, docs: Sequence[Doc], **settings: Any) -> list[Fold]:
    """Audit docs, none of them empty, by models that have not seen them: see `hold_out`. The
    temperature of a fold is the geometric mean of the temperatures that fit the other folds.

    With `document` in its features, the second pass sees the annotation of a word's other
    occurrences in the doc, where it otherwise sees what a first pass predicts. It doesn't see
    that of the word itself, neither in training nor after it.

    RAISES (ValueError): See `hold_out`, or if there are no entities.
    """
    labels = sorted({ent.label_ for doc in docs for ent in doc.ents})
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")
    number = {"": -1, **{label: i for i, label in enumerate(labels)}}
    examples = [Example(copy_tokens(doc, sentences=True), doc) for doc in docs]
    for eg in examples:
        label = [number[token.ent_type_] if token.ent_iob else -2 for token in eg.reference]
        one_hot = numpy.asarray(label)[:, None] == numpy.arange(-1, len(labels))
        eg.predicted.user_data[ANNOTATED] = one_hot
    settings = {"n_folds": 5, **settings, "prepare_component": read_annotation, "desc": "audit"}
    folds = hold_out(config, examples, labels, **settings)

    temperatures = [
        fit_temperature([best], per_label=False).overall if len(best[2]) else 1.0
        for best in (predict_best(fold.dev) for fold in folds)
    ]
    logs = numpy.log(numpy.clip(temperatures, *TEMPERATURES))
    others = map(Temperature, numpy.exp((logs.sum() - logs) / (len(logs) - 1)).tolist())
    return [
        fold._replace(dev=fold.dev.with_temperature(other)) for fold, other in zip(folds, others)
    ]


def read_annotation(ner: CostSensitiveNER) -> None:
    """Have a component's first pass read the labels as annotated: see `FirstPass`."""
    if first_pass := first_pass_of(ner.model):
        first_pass.read_labels = lambda docs: numpy.concatenate(
            [doc.user_data[ANNOTATED] for doc in docs], dtype="float32"
        )


def rank(
    folds: Sequence[Fold], docs: Sequence[Doc], cost: MistakeCost | None = None
) -> list[Suspect]:
    """Find the best alternative of each place, and sort places by its score.

        score = log (c(other, given) p(other) + 0.2) - log (c(given, other) p(given) + 0.2)

    c(a, b) is the cost of annotating b where a is right, over the mean cost, and p is the
    probability of exactly these tokens as an entity of that label, or of no entity in them. For
    places without an annotated entity log 2 is added. Places don't overlap: of those that do, the
    first counts. The most probable mistakes come first."""
    suspects = [suspect for fold in folds for suspect in _suspects_of(fold, cost)]
    return count_elsewhere(sorted(suspects, key=lambda suspect: -suspect.score), docs)


def _suspects_of(fold: Fold, cost: MistakeCost | None) -> Iterator[Suspect]:
    """The places of a fold, by score."""
    dev, posterior = fold.dev, fold.dev.posterior
    likely, probs = posterior.likely_entities(LEAST)
    known = dev.are_counted(likely)
    likely, probs = likely.select(known), probs[known]
    gold, others = (named(entities, posterior.tags.labels) for entities in (dev.gold, likely))

    # What to compare: an annotated entity or none, and another one that overlaps it or none; with
    # the probability of each.
    p_gold = dict(zip(gold, posterior.entity_probs(dev.gold).tolist()))
    p_no_gold = posterior.outside_probs(dev.gold.begin, dev.gold.end).tolist()
    p_no_other = posterior.outside_probs(likely.begin, likely.end).tolist()
    pairs: list[tuple[list[Entity], list[Entity], float, float]]
    pairs = [([given], [], p_gold[given], p_none) for given, p_none in zip(gold, p_no_gold)]
    for other, p, p_none in zip(others, probs.tolist(), p_no_other):
        overlapping = _between(gold, *other[:2])
        pairs += [([given], [other], p_gold[given], p) for given in overlapping if given != other]
        if not overlapping:
            pairs.append(([], [other], p_none, p))

    # Their scores: see `rank`. Shape of the table: (pairs, 2), given and other
    table = numpy.asarray([pair[2:] for pair in pairs]).reshape(-1, 2)
    if cost is not None and pairs:
        costs = numpy.asarray([(cost(a, b), cost(b, a)) for a, b, _, _ in pairs])
        table *= costs / max(costs.mean(), 1e-12)
    score = numpy.diff(numpy.log(table + SMOOTHING)).ravel()
    score += [0.0 if given else numpy.log(MISSING_ODDS) for given, _, _, _ in pairs]

    starts = numpy.cumsum([0, *posterior.doc_lengths]).tolist()
    taken = numpy.zeros(starts[-1], dtype=bool)
    probable = [other for other, p in zip(others, probs) if p > PROBABLE]
    for i in numpy.argsort(-score, kind="stable").tolist():
        given, other, *probs_of_both = pairs[i]
        # All annotated entities that the other one replaces, and probable ones in the same tokens.
        annotated, suggested = _between(gold, *extent_of((given, other))), [*other]
        begin, end = extent_of((annotated, other))
        if taken[begin:end].any():
            continue
        taken[begin:end] = True
        for one in _between(probable, begin, end) if given and other else ():
            if begin <= one[0] and one[1] <= end and not _between(suggested, *one[:2]):
                suggested = sorted([*suggested, one])
        doc = bisect_right(starts, begin) - 1
        kind = kind_of(suggested, annotated).replace(BOTH, BOUNDARY)
        annotated, suggested = (
            [(b - starts[doc], e - starts[doc], label) for b, e, label in entities]
            for entities in (annotated, suggested)
        )
        number = int(fold.docs[doc])
        yield Suspect(number, kind, float(score[i]), annotated, suggested, *probs_of_both)


def _between(entities: list[Entity], begin: int, end: int) -> list[Entity]:
    """The entities with tokens between these, of entities in order and without overlap."""
    first = bisect_right(entities, begin, key=lambda entity: entity[1])
    return entities[first : bisect_left(entities, end, key=lambda entity: entity[0])]


def count_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> list[Suspect]:
    """Count how the same words are annotated elsewhere in the corpus: the words of the first
    entity that annotation and suggestion differ in."""
    keys, counts = [], Counter[tuple[tuple[str, ...], str]]()
    for suspect in suspects:
        annotated, suggested = set(suspect.annotated), set(suspect.suggested)
        begin, end, _ = min(suggested - annotated or annotated - suggested)
        words = tuple(map(str, docs[suspect.doc][begin:end]))
        sides = ({(b, e): label for b, e, label in side} for side in (annotated, suggested))
        keys.append([(words, side.get((begin, end), "")) for side in sides])
    matcher = PhraseMatcher(vocab := Vocab())
    matcher.add("words", [Doc(vocab, words=[*words]) for words in {one[0][0] for one in keys}])
    for doc in docs:
        ents = {(ent.start, ent.end): ent.label_ for ent in doc.ents}
        for _, begin, end in matcher(doc):
            counts[tuple(map(str, doc[begin:end])), ents.get((begin, end), "")] += 1
    return [
        suspect._replace(as_annotated=counts[one] - 1, as_suggested=counts[other])  # not itself
        for suspect, (one, other) in zip(suspects, keys)
    ]


def make_cost(table: Floats2d, tags: Tags) -> MistakeCost:
    """The cost of annotating one entity in place of another: the sum over the tokens of both. The
    table has the cost of each pair of tags, [true, annotated]. Shape: (K, K)"""

    def cost(true: Sequence[Entity], annotated: Sequence[Entity]) -> float:
        first, stop = extent_of((true, annotated))
        paths = []
        for side in (true, annotated):
            columns = [(b - first, e - first, tags.labels.index(label)) for b, e, label in side]
            entities = Entities(*numpy.asarray(columns, dtype="int64").reshape(-1, 3).T)
            paths.append(tags.encode(entities, stop - first))
        return float(table[paths[0], paths[1]].sum())

    return cost


def suspect_to_task(suspect: Suspect, docs: Sequence[Doc]) -> Task:
    """Make a task of a suspect, in Prodigy's form. Its spans are those of the suggestion, and
    those around it. The spans as annotated are under "annotated".

    RETURNS (Task): The sentence or, of a long one, the part around the place. Its key "doc" is the
        number of the doc, and "start" the character of the doc that the text begins with.
    """
    doc = docs[suspect.doc]
    begin, end = window(doc, *suspect.extent)
    start = doc[begin].idx
    task = doc_to_task(doc[begin:end].as_doc())

    def to_span(begin: int, end: int, label: str = "") -> TaskSpan:
        return TaskSpan(doc[begin:end].start_char - start, doc[begin:end].end_char - start, label)

    spans, place = task.spans or [], to_span(*suspect.extent)
    kept = [span for span in spans if span.end <= place.start or place.end <= span.start]
    changed = (
        ", ".join(f"{doc[b:e].text} {label}" for b, e, label in entities) or "nothing"
        for entities in (suspect.annotated, suspect.suggested)
    )
    extra = {
        "annotated": [{"start": s.start, "end": s.end, "label": s.label} for s in spans],
        "doc": suspect.doc,
        "start": start,
        "kind": suspect.kind,
        "score": round(suspect.score, 4),
        "prob_annotated": round(suspect.prob_annotated, 4),
        "prob_suggested": round(suspect.prob_suggested, 4),
        "inconsistent": suspect.as_suggested > suspect.as_annotated,
        "elsewhere": {"as_annotated": suspect.as_annotated, "as_suggested": suspect.as_suggested},
        "meta": {"kind": suspect.kind, "change": " -> ".join(changed)},
    }
    new = [to_span(*entity) for entity in suspect.suggested]
    return task._replace(spans=sorted([*kept, *new], key=lambda span: span.start), extra=extra)


def correct(docs: Sequence[Doc], path: Path, *, unanswered: str = LEAVE) -> dict[str, int]:
    """Correct a corpus by the accepted lines of an audit. What a line changes is the difference
    between its spans, which may have been edited, and those under "annotated". Tokens without
    annotation stay so, unless a span is added.

    docs (Sequence[Doc]): The docs that were audited. Their entities are corrected.
    unanswered (str): What happens to lines without an answer, or with the answer "ignore": "leave"
        or "accept".
    RETURNS (dict[str, int]): The number of lines that were "accepted", "rejected" and "unanswered".
    RAISES (CorpusError): If something is no line of an audit of these docs, or two lines
        contradict each other; the message names the line.
    """
    if unanswered not in UNANSWERED:
        expected = " or ".join(UNANSWERED)
        raise ValueError(f"audit: unanswered: expected {expected}, got {unanswered!r}")
    counts = {"accepted": 0, "rejected": 0, "unanswered": 0}
    accepted: list[tuple[FilePlace, Task]] = []
    for place, task in read_tasks(path):
        answer = task.extra.get("answer", IGNORE)
        if answer == "reject":
            counts["rejected"] += 1
        elif answer == "accept" or unanswered == ACCEPT:
            counts["accepted"] += 1
            accepted.append((place, task))
        else:
            counts["unanswered"] += 1
    changes = [(place, *_read_change(docs, task, place)) for place, task in accepted]
    ents = {i: {entity_of(ent): ent for ent in docs[i].ents} for _, i, _, _ in changes}
    for place, i, removed, _ in changes:
        for span in removed:
            if ents[i].pop(entity_of(span), None) is None:
                text = f"{span.text} {span.label_}"
                raise place.refuse(f"annotated: expected an entity of the doc, got {text!r}")
    for place, i, _, added in changes:
        for span in added:
            for other in ents[i].values():
                if other.start < span.end and span.start < other.end:
                    raise place.refuse(
                        f"spans: expected entities without overlap, got {span.text!r} "
                        f"{span.label_} and {other.text!r} {other.label_}"
                    )
            ents[i][entity_of(span)] = span
    for i, of_doc in ents.items():
        covered = {token for begin, end, _ in of_doc for token in range(begin, end)}
        bare = [token.i for token in docs[i] if not token.ent_iob and token.i not in covered]
        missing = [docs[i][token : token + 1] for token in bare]
        docs[i].set_ents([*of_doc.values()], missing=missing, default="outside")
    return counts


def _read_change(
    docs: Sequence[Doc], task: Task, place: FilePlace
) -> tuple[int, list[Span], list[Span]]:
    """The doc that a line changes, and the entities that are removed from it and added to it."""
    i, start, annotated = (task.extra.get(name) for name in ("doc", "start", "annotated"))
    if type(i) is not int or type(start) is not int or not isinstance(annotated, list):
        raise place.refuse("expected a line of an audit, with doc, start and annotated")
    if not 0 <= i < len(docs):
        raise place.refuse(f"doc: expected less than {len(docs)}, the number of docs, got {i}")
    own = docs[i].text[start : start + len(task.text)]
    if start < 0 or own != task.text:
        raise place.refuse(f"expected the text of doc {i}, {own!r}, got {task.text!r}")
    spans = spans_from_json(annotated, own, "annotated", place), task.spans or ()
    before, after = ({span[:3] for span in side} for side in spans)

    def to_spans(found: set[tuple[int, int, str]]) -> Iterator[Span]:
        for first, stop, label in sorted(found):
            span = docs[i].char_span(start + first, start + stop, label=label)
            if span is None:
                raise place.refuse(f"spans: expected whole tokens, got {own[first:stop]!r} {label}")
            yield span

    return i, [*to_spans(before - after)], [*to_spans(after - before)]


def entity_of(span: Span) -> Entity:
    return span.start, span.end, span.label_
