"""Rank the places of a corpus by how probably their annotation is wrong."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Config
from thinc.types import Floats1d, Floats2d

from .. import ent_iob
from ..decoding import LEAST, Posterior, Temperature
from ..ml import first_pass_of
from ..pipeline.component import CostSensitiveNER
from ..pipeline.scorers import Entity, as_entity
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

LEAVE = "leave"
ACCEPT = "accept"
UNANSWERED = (LEAVE, ACCEPT)
"""What may happen to lines without an answer."""

REJECT = "reject"

IGNORE = "ignore"
"""The answer of a place that was skipped, which counts as none."""

ANNOTATED = "spacy_costner_annotated"
"""In `doc.user_data`: whether each token is annotated as O and as each label. Shape: (T, L + 1)"""

TEMPERATURES = (0.5, 5.0)
"""The range of temperatures: where all predictions are right, or wrong, none fits."""

MistakeCost = Callable[[Sequence[Entity], Sequence[Entity]], float]
"""Maps the true and the annotated entities of a place to the cost of that mistake."""


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

    @property
    def is_probable(self) -> bool:
        """Whether the suggestion is more probable than the annotation."""
        return self.prob_suggested > self.prob_annotated

    @property
    def is_inconsistent(self) -> bool:
        """Whether the words are annotated elsewhere as suggested more often than as here."""
        return self.as_suggested > self.as_annotated


class Comparison(NamedTuple):
    """Annotated entities, and what else may be right in their place. Tokens are counted over all
    docs of a fold."""

    annotated: list[Entity]  # one, or none
    alternative: list[Entity]  # one that overlaps it, or none
    prob_annotated: float
    prob_alternative: float


class Audit(NamedTuple):
    """The result of an audit. Kinds count the places where the suggestion is more probable than the
    annotation."""

    suspects: list[Suspect]  # all places, the most probable mistakes first
    kinds: dict[str, int]  # by `KINDS`, and those of all these that are "inconsistent"
    docs: int
    tokens: int
    entities: int  # annotated ones
    over_borders: int  # annotated ones over a border of sequences, which no model predicts


class AnswerCounts(NamedTuple):
    """The number of lines with each answer."""

    accepted: int
    rejected: int
    unanswered: int


class Correction(NamedTuple):
    """What an accepted line changes."""

    place: FilePlace  # of the line
    doc: int  # the number of the doc, from 0
    removed: list[Span]
    added: list[Span]


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
    n_folds (int): Number of folds.
    n_seeds (int): Trainings for each fold, whose weights are averaged.
    seed (int | None): Random seed that assigns docs to folds.
    file_tokens (bool): Have models see the sentence starts of the file, too.
    make_executor (MakeExecutor | None): Makes an executor of a task for each fold, such as
        `local_processes(2)`. None: one fold after another, in this process.
    code_path (Path | None): Python file with registered functions to be imported.
    RETURNS (Audit): All places, and their numbers by kind.
    RAISES (ValueError): If the config's component can't be fitted, there are too few docs or no
        entities, or a worker failed.
    """
    name = component_name(config, Path("config"))
    cost_of_tags, _, cost_name = find_cost(config.interpolate()["components"][name])
    folds = cross_fit(
        config,
        docs,
        n_folds=n_folds,
        n_seeds=n_seeds,
        seed=seed,
        keeps_starts=file_tokens,
        make_executor=make_executor,
        code_path=code_path,
    )
    mistake_cost = None
    if cost_name:
        tags = folds[0].dev.posterior.tags.collapsed
        mistake_cost = make_cost(cost_of_tags(tags), tags)
    suspects = rank(folds, docs, mistake_cost)

    probable = [suspect for suspect in suspects if suspect.is_probable]
    kinds = {kind: sum(suspect.kind == kind for suspect in probable) for kind in KINDS}
    kinds["inconsistent"] = sum(suspect.is_inconsistent for suspect in probable)
    n_over_borders = 0
    for fold in folds:
        n_over_borders += int(fold.dev.posterior.crosses_border(fold.dev.gold).sum())
    return Audit(
        suspects=suspects,
        kinds=kinds,
        docs=len(docs),
        tokens=sum(len(doc) for doc in docs),
        entities=sum(len(doc.ents) for doc in docs),
        over_borders=n_over_borders,
    )


def cross_fit(
    config: Config,
    docs: Sequence[Doc],
    *,
    n_folds: int = 5,
    n_seeds: int = 1,
    seed: int | None = None,
    keeps_starts: bool = False,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
) -> list[Fold]:
    """Predict docs, none of them empty, by models that have not seen them. The temperature of a
    fold is the geometric mean of the temperatures that fit the other folds.

    With `document` in its features, the second pass sees the annotation of a word's other
    occurrences in the doc, where it otherwise sees what a first pass predicts. It doesn't see
    that of the word itself, neither in training nor after it.

    See `hold_out` for the arguments.

    RAISES (ValueError): See `hold_out`, or if there are no entities.
    """
    labels: set[str] = set()
    for doc in docs:
        labels.update(ent.label_ for ent in doc.ents)
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")
    sorted_labels = sorted(labels)
    examples = [Example(copy_tokens(doc, sentences=True), doc) for doc in docs]
    for eg in examples:
        eg.predicted.user_data[ANNOTATED] = one_hot_labels(eg.reference, sorted_labels)
    folds = hold_out(
        config,
        examples,
        sorted_labels,
        n_folds=n_folds,
        n_seeds=n_seeds,
        seed=seed,
        keeps_starts=keeps_starts,
        prepare_component=read_annotation,
        make_executor=make_executor,
        code_path=code_path,
        desc="audit",
    )
    temperatures = means_of_others([find_temperature(fold) for fold in folds])
    return [
        fold._replace(dev=fold.dev.with_temperature(Temperature(temperature)))
        for fold, temperature in zip(folds, temperatures)
    ]


def one_hot_labels(doc: Doc, labels: Sequence[str]) -> Floats2d:
    """Whether each token is annotated as O and as each label; a row of zeros for a token without
    annotation. Shape: (T, L + 1)"""
    columns = {"": 0}
    for i, label in enumerate(labels):
        columns[label] = i + 1
    one_hot = numpy.zeros((len(doc), len(columns)), dtype=bool)
    for token in doc:
        if token.ent_iob != ent_iob.MISSING:
            one_hot[token.i, columns[token.ent_type_]] = True
    return one_hot


def find_temperature(fold: Fold) -> float:
    """The temperature that fits a fold; 1 if no entity is predicted in it."""
    answers = predict_best(fold.dev)
    if not len(answers.is_correct):
        return 1.0
    return fit_temperature([answers], per_label=False).overall


def means_of_others(temperatures: Sequence[float]) -> list[float]:
    """For each temperature the geometric mean of all others, each within `TEMPERATURES`."""
    logs = numpy.log(numpy.clip(temperatures, *TEMPERATURES))
    mean_logs = (logs.sum() - logs) / (len(logs) - 1)
    return numpy.exp(mean_logs).tolist()


def read_annotation(ner: CostSensitiveNER) -> None:
    """Have a component's first pass read the labels as annotated: see `FirstPass`."""
    first_pass = first_pass_of(ner.model)
    if first_pass is not None:
        first_pass.read_labels = annotated_labels


def annotated_labels(docs: Iterable[Doc]) -> Floats2d:
    """The annotated labels of the tokens of all docs, as `one_hot_labels`. Shape: (N, L + 1)"""
    return numpy.concatenate([doc.user_data[ANNOTATED] for doc in docs], dtype="float32")


def rank(
    folds: Sequence[Fold], docs: Sequence[Doc], cost: MistakeCost | None = None
) -> list[Suspect]:
    """Find the best alternative of each place, and sort places by its score.

        score = log (c(b, a) p(b) + 0.2) - log (c(a, b) p(a) + 0.2)

    a is the annotation and b the alternative, c(b, a) is the cost of annotating a where b is right,
    over the mean cost, and p is the probability of exactly these tokens as an entity of that label,
    or of no entity in them. For places without an annotated entity log 2 is added. Places don't
    overlap: of those that do, the first counts. The most probable mistakes come first."""
    suspects: list[Suspect] = []
    for fold in folds:
        suspects += find_suspects(fold, cost)
    suspects.sort(key=lambda suspect: -suspect.score)
    return count_elsewhere(suspects, docs)


def find_suspects(fold: Fold, cost: MistakeCost | None) -> Iterator[Suspect]:
    """The places of a fold, by score."""
    posterior = fold.dev.posterior
    labels = posterior.tags.labels
    gold = named(fold.dev.gold, labels)
    likely, probs = posterior.likely_entities(LEAST)
    is_counted = fold.dev.are_counted(likely)
    likely = likely.select(is_counted)
    probs = probs[is_counted]
    alternatives = named(likely, labels)
    probable = [entity for entity, prob in zip(alternatives, probs) if prob > PROBABLE]

    comparisons = compare_annotation(posterior, fold.dev.gold, likely, probs)
    scores = score_comparisons(comparisons, cost)
    # The first token of each doc, and the number of all tokens. Shape: (D + 1,)
    doc_starts = numpy.cumsum([0, *posterior.doc_lengths]).tolist()
    is_taken = numpy.zeros(doc_starts[-1], dtype=bool)
    for i in numpy.argsort(-scores, kind="stable").tolist():
        comparison = comparisons[i]
        alternative = comparison.alternative
        # The alternative replaces all annotated entities that it overlaps, not only this one.
        begin, end = extent_of((comparison.annotated, alternative))
        annotated = entities_between(gold, begin, end)
        begin, end = extent_of((annotated, alternative))
        if is_taken[begin:end].any():
            continue
        is_taken[begin:end] = True
        suggested = alternative
        if comparison.annotated and alternative:
            suggested = add_within(alternative, probable, begin, end)
        doc = bisect_right(doc_starts, begin) - 1
        yield Suspect(
            doc=int(fold.docs[doc]),
            kind=kind_of_suspect(suggested, annotated),
            score=float(scores[i]),
            annotated=shifted(annotated, -doc_starts[doc]),
            suggested=shifted(suggested, -doc_starts[doc]),
            prob_annotated=comparison.prob_annotated,
            prob_suggested=comparison.prob_alternative,
        )


def compare_annotation(
    posterior: Posterior, gold: Entities, likely: Entities, likely_probs: Floats1d
) -> list[Comparison]:
    """All comparisons: of each annotated entity with none, and with each likely one that overlaps
    it; and of no entity with each likely one that overlaps no annotated one.

    likely (Entities): Likely entities that count.
    likely_probs (Floats1d): Their probabilities. Shape: (E,)
    """
    annotated = named(gold, posterior.tags.labels)
    probs = dict(zip(annotated, posterior.entity_probs(gold).tolist()))
    # Of no entity in the tokens of each
    outside_gold = posterior.outside_probs(gold.begin, gold.end).tolist()
    outside_likely = posterior.outside_probs(likely.begin, likely.end).tolist()

    comparisons = [
        Comparison([entity], [], probs[entity], prob_outside)
        for entity, prob_outside in zip(annotated, outside_gold)
    ]
    alternatives = named(likely, posterior.tags.labels)
    for alternative, prob, prob_outside in zip(alternatives, likely_probs.tolist(), outside_likely):
        begin, end, _ = alternative
        overlapping = entities_between(annotated, begin, end)
        if not overlapping:
            comparisons.append(Comparison([], [alternative], prob_outside, prob))
        for entity in overlapping:
            if entity != alternative:
                comparisons.append(Comparison([entity], [alternative], probs[entity], prob))
    return comparisons


def score_comparisons(comparisons: Sequence[Comparison], cost: MistakeCost | None) -> Floats1d:
    """The score of each comparison: see `rank`. Shape: (C,)"""
    # Of the annotation and of the alternative. Shape: (C, 2)
    pairs_of_probs = [
        (comparison.prob_annotated, comparison.prob_alternative) for comparison in comparisons
    ]
    probs = numpy.asarray(pairs_of_probs).reshape(-1, 2)
    if cost is not None and comparisons:
        # c(a, b) and c(b, a) of the annotation a and the alternative b. Shape: (C, 2)
        pairs_of_costs = [
            (
                cost(comparison.annotated, comparison.alternative),
                cost(comparison.alternative, comparison.annotated),
            )
            for comparison in comparisons
        ]
        costs = numpy.asarray(pairs_of_costs)
        # Relative to the mean, so that `SMOOTHING` has the same weight whatever the unit of costs.
        probs *= costs / max(costs.mean(), 1e-12)
    logs = numpy.log(probs + SMOOTHING)
    scores = logs[:, 1] - logs[:, 0]
    is_annotated = numpy.asarray(
        [bool(comparison.annotated) for comparison in comparisons], dtype=bool
    )
    scores[~is_annotated] += numpy.log(MISSING_ODDS)
    return scores


def add_within(
    suggested: list[Entity], probable: list[Entity], begin: int, end: int
) -> list[Entity]:
    """Add probable entities that lie within a place, and overlap none of those that are there."""
    complete = suggested
    for entity in entities_between(probable, begin, end):
        entity_begin, entity_end, _ = entity
        is_within = begin <= entity_begin and entity_end <= end
        if is_within and not entities_between(complete, entity_begin, entity_end):
            complete = sorted([*complete, entity])
    return complete


def kind_of_suspect(suggested: Sequence[Entity], annotated: Sequence[Entity]) -> str:
    """The kind of the mistake if the suggestion is right: one of `KINDS`. Where label and boundary
    are wrong it is a wrong boundary."""
    kind = kind_of(suggested, annotated)
    return BOUNDARY if kind == BOTH else kind


def shifted(entities: Iterable[Entity], n_tokens: int) -> list[Entity]:
    """Entities so many tokens later."""
    return [(begin + n_tokens, end + n_tokens, label) for begin, end, label in entities]


def entities_between(entities: list[Entity], begin: int, end: int) -> list[Entity]:
    """The entities with tokens between these, of entities in order and without overlap."""
    first = bisect_right(entities, begin, key=lambda entity: entity[1])
    return entities[first : bisect_left(entities, end, key=lambda entity: entity[0])]


def count_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> list[Suspect]:
    """Count how the same words are annotated elsewhere in the corpus: the words of the first
    entity that annotation and suggestion differ in."""
    words_of_suspects: list[tuple[str, ...]] = []
    extents: list[tuple[int, int]] = []
    for suspect in suspects:
        annotated = set(suspect.annotated)
        suggested = set(suspect.suggested)
        begin, end, _ = min(suggested - annotated or annotated - suggested)
        extents.append((begin, end))
        words_of_suspects.append(words_between(docs[suspect.doc], begin, end))

    vocab = Vocab()
    matcher = PhraseMatcher(vocab)
    matcher.add("words", [Doc(vocab, words=list(words)) for words in set(words_of_suspects)])
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()  # by words and label
    for doc in docs:
        label_of_extent = label_by_extent(map(as_entity, doc.ents))
        for _, begin, end in matcher(doc):
            label = label_of_extent.get((begin, end), "")
            counts[words_between(doc, begin, end), label] += 1

    counted: list[Suspect] = []
    for suspect, words, extent in zip(suspects, words_of_suspects, extents):
        annotated_label = label_by_extent(suspect.annotated).get(extent, "")
        suggested_label = label_by_extent(suspect.suggested).get(extent, "")
        counted.append(
            suspect._replace(
                as_annotated=counts[words, annotated_label] - 1,  # without this place
                as_suggested=counts[words, suggested_label],
            )
        )
    return counted


def words_between(doc: Doc, begin: int, end: int) -> tuple[str, ...]:
    """The words of some tokens of a doc."""
    return tuple(token.text for token in doc[begin:end])


def label_by_extent(entities: Iterable[Entity]) -> dict[tuple[int, int], str]:
    """The label of entities by their first token and the one after the last."""
    return {(begin, end): label for begin, end, label in entities}


def make_cost(table: Floats2d, tags: Tags) -> MistakeCost:
    """The cost of annotating one entity in place of another: the sum over the tokens of both. The
    table has the cost of each pair of tags, [true, annotated]. Shape: (K, K)"""

    def encode(entities: Sequence[Entity], begin: int, end: int) -> list[int]:
        """The tags of the tokens between these."""
        columns = numpy.zeros((3, len(entities)), dtype="int64")
        for i, (entity_begin, entity_end, label) in enumerate(entities):
            columns[:, i] = (entity_begin - begin, entity_end - begin, tags.labels.index(label))
        return tags.encode(Entities(*columns), end - begin)

    def cost(true: Sequence[Entity], annotated: Sequence[Entity]) -> float:
        begin, end = extent_of((true, annotated))
        true_tags = encode(true, begin, end)
        annotated_tags = encode(annotated, begin, end)
        return float(table[true_tags, annotated_tags].sum())

    return cost


def suspect_to_task(suspect: Suspect, docs: Sequence[Doc]) -> Task:
    """Make a task of a suspect, in Prodigy's form. Its spans are those of the suggestion, and
    those around it. The spans as annotated are under "annotated".

    suspect (Suspect): The suspect.
    docs (Sequence[Doc]): The docs that were audited.
    RETURNS (Task): The sentence or, of a long one, the part around the place. Its key "doc" is the
        number of the doc, and "start" the character of the doc that the text begins with.
    """
    doc = docs[suspect.doc]
    first, last = window(doc, *suspect.extent)
    start = doc[first].idx
    task = doc_to_task(doc[first:last].as_doc())
    annotated = task.spans or []

    # Characters of the text that is shown, from and to
    place = doc[slice(*suspect.extent)]
    place_start = place.start_char - start
    place_end = place.end_char - start
    spans = [span for span in annotated if span.end <= place_start or place_end <= span.start]
    for begin, end, label in suspect.suggested:
        ent = doc[begin:end]
        spans.append(TaskSpan(ent.start_char - start, ent.end_char - start, label))
    spans.sort(key=lambda span: span.start)

    change = f"{entities_text(doc, suspect.annotated)} -> {entities_text(doc, suspect.suggested)}"
    extra = {
        "annotated": [
            {"start": span.start, "end": span.end, "label": span.label} for span in annotated
        ],
        "doc": suspect.doc,
        "start": start,
        "kind": suspect.kind,
        "score": round(suspect.score, 4),
        "prob_annotated": round(suspect.prob_annotated, 4),
        "prob_suggested": round(suspect.prob_suggested, 4),
        "inconsistent": suspect.is_inconsistent,
        "elsewhere": {"as_annotated": suspect.as_annotated, "as_suggested": suspect.as_suggested},
        "meta": {"kind": suspect.kind, "change": change},
    }
    return task._replace(spans=spans, extra=extra)


def entities_text(doc: Doc, entities: Sequence[Entity]) -> str:
    """The texts of entities, each with its label."""
    if not entities:
        return "nothing"
    return ", ".join(f"{doc[begin:end].text} {label}" for begin, end, label in entities)


def apply_answers(docs: Sequence[Doc], path: Path, *, unanswered: str = LEAVE) -> AnswerCounts:
    """Correct a corpus by the accepted lines of an audit. What a line changes is the difference
    between its spans, which may have been edited, and those under "annotated". Tokens without
    annotation stay so, unless a span is added.

    docs (Sequence[Doc]): The docs that were audited. Their entities are corrected.
    path (Path): The lines, JSONL.
    unanswered (str): What happens to lines without an answer, or with the answer "ignore": "leave"
        or "accept".
    RETURNS (AnswerCounts): The number of lines with each answer.
    RAISES (CorpusError): If something is no line of an audit of these docs, or two lines
        contradict each other; the message names the line.
    """
    if unanswered not in UNANSWERED:
        expected = " or ".join(UNANSWERED)
        raise ValueError(f"audit: unanswered: expected {expected}, got {unanswered!r}")
    n_lines: Counter[str] = Counter()
    corrections: list[Correction] = []
    for place, task in read_tasks(path):
        answer = task.extra.get("answer") or IGNORE
        if answer == IGNORE and unanswered == ACCEPT:
            answer = ACCEPT
        n_lines[answer] += 1
        if answer == ACCEPT:
            corrections.append(read_correction(docs, task, place))

    ents_of_docs: dict[int, dict[Entity, Span]] = {}
    for correction in corrections:
        doc = docs[correction.doc]
        ents_of_docs[correction.doc] = {as_entity(ent): ent for ent in doc.ents}
    # All removals come first: what a line adds may overlap what another one removes.
    for correction in corrections:
        remove_ents(ents_of_docs[correction.doc], correction)
    for correction in corrections:
        add_ents(ents_of_docs[correction.doc], correction)
    for i, ents in ents_of_docs.items():
        set_ents(docs[i], ents.values())
    return AnswerCounts(n_lines[ACCEPT], n_lines[REJECT], n_lines[IGNORE])


def read_correction(docs: Sequence[Doc], task: Task, place: FilePlace) -> Correction:
    """Read what a line changes."""
    i = task.extra.get("doc")
    start = task.extra.get("start")
    annotated = task.extra.get("annotated")
    # A boolean is an int for `isinstance`.
    if type(i) is not int or type(start) is not int or not isinstance(annotated, list):
        raise place.refuse("expected a line of an audit, with doc, start and annotated")
    if not 0 <= i < len(docs):
        raise place.refuse(f"doc: expected less than {len(docs)}, the number of docs, got {i}")
    text = docs[i].text[start : start + len(task.text)]
    if start < 0 or text != task.text:
        raise place.refuse(f"expected the text of doc {i}, {text!r}, got {task.text!r}")
    annotated_spans = spans_from_json(annotated, text, "annotated", place)
    before = {(span.start, span.end, span.label) for span in annotated_spans}
    after = {(span.start, span.end, span.label) for span in task.spans or ()}

    def to_spans(extents: Collection[tuple[int, int, str]]) -> list[Span]:
        """Spans of the doc, of characters of the text."""
        spans: list[Span] = []
        for first, last, label in sorted(extents):
            span = docs[i].char_span(start + first, start + last, label=label)
            if span is None:
                raise place.refuse(
                    f"spans: expected whole tokens, got {text[first:last]!r} {label}"
                )
            spans.append(span)
        return spans

    return Correction(place, i, to_spans(before - after), to_spans(after - before))


def remove_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Remove entities of a doc. RAISES (CorpusError): If the doc doesn't have one of them."""
    for span in correction.removed:
        if ents.pop(as_entity(span), None) is None:
            text = f"{span.text} {span.label_}"
            raise correction.place.refuse(f"annotated: expected an entity of the doc, got {text!r}")


def add_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Add entities to those of a doc. RAISES (CorpusError): If one of them overlaps another."""
    for span in correction.added:
        for ent in ents.values():
            if ent.start < span.end and span.start < ent.end:
                raise correction.place.refuse(
                    f"spans: expected entities without overlap, got {span.text!r} "
                    f"{span.label_} and {ent.text!r} {ent.label_}"
                )
        ents[as_entity(span)] = span


def set_ents(doc: Doc, ents: Collection[Span]) -> None:
    """Replace the entities of a doc. Other tokens without annotation stay so."""
    covered = set(chain.from_iterable(range(ent.start, ent.end) for ent in ents))
    missing = [
        doc[token.i : token.i + 1] for token in doc if not token.ent_iob and token.i not in covered
    ]
    doc.set_ents(list(ents), missing=missing, default="outside")
