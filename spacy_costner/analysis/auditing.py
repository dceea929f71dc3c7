"""Rank the places of a corpus by how probably their annotation is wrong.

The docs are divided into folds, and a model that has not seen a fold predicts it. A place is a few
tokens, with the annotated entities in them and the best alternative of the model: the suggestion.
The result is a list of suspects, which people accept or reject; `apply_answers` corrects the
corpus. Entities are (begin, end, label), where `begin` is the first token and `end` the one after
the last.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
"""The odds that annotators have overlooked an entity, against another mistake of the same
probabilities. Chosen on made-up mistakes: see docs/audit.md."""

SMOOTHING = 0.2
"""Added to probabilities before the logarithm. With a lower value more mistakes are found that are
put in by chance, with a higher one more that annotators make. Chosen on both: see docs/audit.md."""

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
"""The lowest and the highest temperature. The best one has no limit if all predictions of a fold
are right, or all wrong."""

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
    as_annotated: int = 0  # how often the same words are annotated elsewhere as they are here
    as_suggested: int = 0  # how often the same words are annotated elsewhere as suggested

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

    annotated: list[Entity]  # with one entity, or empty
    alternative: list[Entity]  # with one entity that overlaps it, or empty
    prob_annotated: float
    prob_alternative: float


class Audit(NamedTuple):
    """The result of an audit. Kinds count the places where the suggestion is more probable than the
    annotation."""

    suspects: list[Suspect]  # all places, the most probable mistakes first
    kinds: dict[str, int]  # by `KINDS`, and those of any kind that are "inconsistent"
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
    make_table, _, cost_name = find_cost(config.interpolate()["components"][name])
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
    if cost_name:  # Without a cost in the config, all mistakes cost the same.
        tags = folds[0].dev.posterior.tags.collapsed
        mistake_cost = make_cost(make_table(tags), tags)
    suspects = rank(folds, docs, mistake_cost)

    kinds = dict.fromkeys([*KINDS, "inconsistent"], 0)
    for suspect in suspects:
        if suspect.is_probable:
            kinds[suspect.kind] += 1
            kinds["inconsistent"] += int(suspect.is_inconsistent)
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
    calibrated: list[Fold] = []
    for fold, temperature in zip(folds, temperatures):
        dev = fold.dev.with_temperature(Temperature(temperature))
        calibrated.append(fold._replace(dev=dev))
    return calibrated


def one_hot_labels(doc: Doc, labels: Sequence[str]) -> Floats2d:
    """Whether each token is annotated as O and as each label; a row of zeros for a token without
    annotation. Shape: (T, L + 1)"""
    columns = {"": 0}  # spaCy's type of tokens that are O
    for i, label in enumerate(labels):
        columns[label] = i + 1
    one_hot = numpy.zeros((len(doc), len(columns)), dtype=bool)
    for token in doc:
        if token.ent_iob != ent_iob.MISSING:
            one_hot[token.i, columns[token.ent_type_]] = True
    return one_hot


def find_temperature(fold: Fold) -> float:
    """The temperature with which the confidence of the entities predicted in a fold fits how often
    they are correct; 1 if none is predicted."""
    answers = predict_best(fold.dev)
    if not len(answers.is_correct):
        return 1.0
    return fit_temperature([answers], per_label=False).overall


def means_of_others(temperatures: Sequence[float]) -> list[float]:
    """For each fold the geometric mean of the temperatures of all other folds, each put within
    `TEMPERATURES` before. So a fold has no effect on its own temperature."""
    logs = numpy.log(numpy.clip(temperatures, *TEMPERATURES))
    sums_of_others = logs.sum() - logs
    return numpy.exp(sums_of_others / (len(logs) - 1)).tolist()


def read_annotation(ner: CostSensitiveNER) -> None:
    """Have the second pass of a component see the annotated labels of other occurrences of a word,
    where it otherwise sees those that its first pass predicts: see `FirstPass`."""
    first_pass = first_pass_of(ner.model)
    if first_pass is not None:
        first_pass.read_labels = annotated_labels


def annotated_labels(docs: Iterable[Doc]) -> Floats2d:
    """The annotated labels of the tokens of all docs, which `cross_fit` has put into them: see
    `one_hot_labels`. Shape: (N, L + 1)"""
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
    """Find the places of a fold, each with its best alternative, those with the highest score
    first. Places don't overlap: one that overlaps an earlier one is left out."""
    # All comparisons of an annotated entity with a likely one, and their scores
    posterior = fold.dev.posterior
    labels = posterior.tags.labels
    likely, probs = posterior.likely_entities(LEAST)
    is_counted = fold.dev.are_counted(likely)
    likely = likely.select(is_counted)
    probs = probs[is_counted]
    comparisons = compare_annotation(posterior, fold.dev.gold, likely, probs)
    scores = score_comparisons(comparisons, cost)

    gold = named(fold.dev.gold, labels)
    probable = named(likely.select(probs > PROBABLE), labels)
    # The first token of each doc of the fold, and the number of all tokens. Shape: (D + 1,)
    doc_starts = numpy.cumsum([0, *posterior.doc_lengths]).tolist()
    is_in_place = numpy.zeros(doc_starts[-1], dtype=bool)  # whether a token has its suspect
    highest_first = numpy.argsort(-scores, kind="stable").tolist()
    for i in highest_first:
        comparison = comparisons[i]
        alternative = comparison.alternative
        # The alternative replaces all annotated entities that it overlaps, not only the one that it
        # was compared with. So the place has the tokens of all of them.
        annotated = entities_between(gold, *extent_of((comparison.annotated, alternative)))
        begin, end = extent_of((annotated, alternative))
        if is_in_place[begin:end].any():
            continue
        is_in_place[begin:end] = True

        suggested = alternative
        if comparison.annotated and alternative:
            suggested = add_within(alternative, probable, begin, end)
        # The last doc that starts at the place or before it
        doc_in_fold = bisect_right(doc_starts, begin) - 1
        doc_start = doc_starts[doc_in_fold]
        yield Suspect(
            doc=int(fold.docs[doc_in_fold]),
            kind=kind_of_suspect(suggested, annotated),
            score=float(scores[i]),
            annotated=shifted(annotated, -doc_start),
            suggested=shifted(suggested, -doc_start),
            prob_annotated=comparison.prob_annotated,
            prob_suggested=comparison.prob_alternative,
        )


def compare_annotation(
    posterior: Posterior, gold: Entities, likely: Entities, likely_probs: Floats1d
) -> list[Comparison]:
    """Make all comparisons of a fold. There are three kinds:

    - an annotated entity, or none in its place;
    - an annotated entity, or a likely one that overlaps it;
    - no entity, or a likely one that overlaps no annotated one.

    posterior (Posterior): The probabilities of the fold.
    gold (Entities): The annotated entities.
    likely (Entities): The likely entities on annotated tokens.
    likely_probs (Floats1d): Their probabilities. Shape: (E,)
    """
    annotated = named(gold, posterior.tags.labels)
    probs = dict(zip(annotated, posterior.entity_probs(gold).tolist()))
    # The probability that all tokens of an entity are O, for each annotated and each likely one
    outside_gold = posterior.outside_probs(gold.begin, gold.end).tolist()
    outside_likely = posterior.outside_probs(likely.begin, likely.end).tolist()

    comparisons: list[Comparison] = []
    for entity, prob_outside in zip(annotated, outside_gold):
        comparisons.append(Comparison([entity], [], probs[entity], prob_outside))
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
    # Each pair is of the annotation and of the alternative.
    pairs_of_probs: list[tuple[float, float]] = []
    pairs_of_costs: list[tuple[float, float]] = []
    has_annotated = numpy.zeros(len(comparisons), dtype=bool)
    for i, (annotated, alternative, prob_annotated, prob_alternative) in enumerate(comparisons):
        has_annotated[i] = bool(annotated)
        pairs_of_probs.append((prob_annotated, prob_alternative))
        if cost is not None:
            # If the annotation is right, the alternative is the mistake, and the other way round.
            cost_if_annotated = cost(annotated, alternative)
            cost_if_alternative = cost(alternative, annotated)
            pairs_of_costs.append((cost_if_annotated, cost_if_alternative))

    weights = numpy.asarray(pairs_of_probs).reshape(-1, 2)  # shape: (C, 2)
    if pairs_of_costs:
        costs = numpy.asarray(pairs_of_costs)
        # Relative to the mean, so that `SMOOTHING` has the same weight whatever the unit of costs.
        weights *= costs / max(costs.mean(), 1e-12)
    log_weights = numpy.log(weights + SMOOTHING)
    scores = log_weights[:, 1] - log_weights[:, 0]
    scores[~has_annotated] += numpy.log(MISSING_ODDS)
    return scores


def add_within(
    suggested: list[Entity], probable: list[Entity], begin: int, end: int
) -> list[Entity]:
    """Add the probable entities between two tokens that overlap no suggested one, so that a
    suggestion for one entity doesn't leave out the others of its place.

    suggested (list[Entity]): The suggested entities, in order. The list isn't changed.
    probable (list[Entity]): All probable entities of the fold, in order.
    begin, end (int): The place: its first token, and the one after its last.
    """
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
    # `kind_of` compares gold with predictions: the suggestion is in the place of gold.
    kind = kind_of(suggested, annotated)
    if kind == BOTH:
        return BOUNDARY
    return kind


def shifted(entities: Iterable[Entity], n_tokens: int) -> list[Entity]:
    """The same entities `n_tokens` later, or earlier if the number is negative."""
    return [(begin + n_tokens, end + n_tokens, label) for begin, end, label in entities]


def entities_between(entities: list[Entity], begin: int, end: int) -> list[Entity]:
    """The entities with a token from `begin` to the one before `end`, of entities that are in order
    and don't overlap."""
    # Begins and ends both rise. The first entity is the first that ends after `begin`; the last is
    # the last that begins before `end`.
    first = bisect_right(entities, begin, key=lambda entity: entity[1])
    after_last = bisect_left(entities, end, key=lambda entity: entity[0])
    return entities[first:after_last]


def count_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> list[Suspect]:
    """Fill in how often the words of each suspect are annotated elsewhere in the corpus as they are
    here, and as the suggestion says. The words are those of one entity, in which annotation and
    suggestion differ: see `first_difference`."""
    extents = [first_difference(suspect) for suspect in suspects]
    words_of_suspects: list[tuple[str, ...]] = []
    for suspect, (begin, end) in zip(suspects, extents):
        words_of_suspects.append(words_between(docs[suspect.doc], begin, end))
    counts = count_annotations(set(words_of_suspects), docs)

    counted: list[Suspect] = []
    for suspect, extent, words in zip(suspects, extents, words_of_suspects):
        annotated_label = label_by_extent(suspect.annotated).get(extent, "")
        suggested_label = label_by_extent(suspect.suggested).get(extent, "")
        counted.append(
            suspect._replace(
                as_annotated=counts[words, annotated_label] - 1,  # without this place
                as_suggested=counts[words, suggested_label],
            )
        )
    return counted


def first_difference(suspect: Suspect) -> tuple[int, int]:
    """The first token, and the one after the last, of the first suggested entity that isn't
    annotated. If there is none, of the first annotated one that isn't suggested."""
    annotated = set(suspect.annotated)
    suggested = set(suspect.suggested)
    differing = suggested - annotated
    if not differing:
        differing = annotated - suggested
    begin, end, _ = min(differing)
    return begin, end


def count_annotations(
    phrases: Collection[tuple[str, ...]], docs: Iterable[Doc]
) -> Counter[tuple[tuple[str, ...], str]]:
    """How often each of these sequences of words is an entity of each label in docs. With "" as the
    label: how often it isn't an entity, though a part of it may be one."""
    vocab = Vocab()
    matcher = PhraseMatcher(vocab)
    matcher.add("words", [Doc(vocab, words=list(words)) for words in phrases])
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()
    for doc in docs:
        label_of_extent = label_by_extent(map(as_entity, doc.ents))
        for _, begin, end in matcher(doc):
            label = label_of_extent.get((begin, end), "")
            counts[words_between(doc, begin, end), label] += 1
    return counts


def words_between(doc: Doc, begin: int, end: int) -> tuple[str, ...]:
    """The words of a doc from one token to the one before another."""
    return tuple(token.text for token in doc[begin:end])


def label_by_extent(entities: Iterable[Entity]) -> dict[tuple[int, int], str]:
    """The label of entities by their first token and the one after the last."""
    return {(begin, end): label for begin, end, label in entities}


def make_cost(table: Floats2d, tags: Tags) -> MistakeCost:
    """Make the function that says what a mistake costs: the sum of the costs of the tags, over the
    tokens from the first to the last of its entities.

    table (Floats2d): The cost of each pair of tags, [true, annotated]. Shape: (K, K)
    tags (Tags): The tags of the table.
    """

    def encode(entities: Sequence[Entity], begin: int, end: int) -> list[int]:
        """The tags of the tokens from `begin` to the one before `end`, with these entities."""
        # Numbered from the first token of the place
        begins = [entity_begin - begin for entity_begin, _, _ in entities]
        ends = [entity_end - begin for _, entity_end, _ in entities]
        labels = [tags.labels.index(label) for _, _, label in entities]
        entities_of_place = Entities(
            begin=numpy.asarray(begins, dtype="int64"),
            end=numpy.asarray(ends, dtype="int64"),
            label=numpy.asarray(labels, dtype="int64"),
        )
        return tags.encode(entities_of_place, end - begin)

    def cost(true: Sequence[Entity], annotated: Sequence[Entity]) -> float:
        """What it costs that entities are annotated in place of the true ones."""
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
    begin, end = suspect.extent
    first_shown, after_last_shown = window(doc, begin, end)
    task = doc_to_task(doc[first_shown:after_last_shown].as_doc())
    annotated = task.spans or []

    # The suggestion replaces the annotated spans of its place. Characters of a task are counted
    # from the first one that is shown.
    start = doc[first_shown].idx
    place = doc[begin:end]
    place_start = place.start_char - start
    place_end = place.end_char - start
    spans: list[TaskSpan] = []
    for span in annotated:
        if span.end <= place_start or place_end <= span.start:
            spans.append(span)
    for entity_begin, entity_end, label in suspect.suggested:
        ent = doc[entity_begin:entity_end]
        spans.append(TaskSpan(ent.start_char - start, ent.end_char - start, label))
    spans.sort(key=lambda span: span.start)

    annotated_json: list[dict[str, Any]] = []
    for span in annotated:
        annotated_json.append({"start": span.start, "end": span.end, "label": span.label})
    change = f"{entities_text(doc, suspect.annotated)} -> {entities_text(doc, suspect.suggested)}"
    extra = {
        "annotated": annotated_json,
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
    """The text and the label of each entity, for people."""
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
    n_lines: Counter[str] = Counter()  # by answer
    corrections: list[Correction] = []
    for place, task in read_tasks(path):
        answer = task.extra.get("answer") or IGNORE
        if answer == IGNORE and unanswered == ACCEPT:
            answer = ACCEPT
        n_lines[answer] += 1
        if answer == ACCEPT:
            corrections.append(read_correction(docs, task, place))

    # The entities of each doc that a line corrects, by the number of the doc
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
    """Read what a line changes: the difference between its spans and those under "annotated".

    docs (Sequence[Doc]): The docs that were audited.
    task (Task): The line, as `suspect_to_task` has made it and people have edited it.
    place (FilePlace): Where the line is, for errors.
    RAISES (CorpusError): If it is no line of an audit of these docs.
    """
    doc_number = task.extra.get("doc")
    start = task.extra.get("start")
    annotated = task.extra.get("annotated")
    # A boolean is an int for `isinstance`.
    if type(doc_number) is not int or type(start) is not int or not isinstance(annotated, list):
        raise place.refuse("expected a line of an audit, with doc, start and annotated")
    if not 0 <= doc_number < len(docs):
        n_docs = len(docs)
        raise place.refuse(
            f"doc: expected less than {n_docs}, the number of docs, got {doc_number}"
        )
    doc = docs[doc_number]
    text = doc.text[start : start + len(task.text)]
    if start < 0 or text != task.text:
        raise place.refuse(f"expected the text of doc {doc_number}, {text!r}, got {task.text!r}")

    annotated_spans = spans_from_json(annotated, text, "annotated", place)
    # By their characters in the text of the line, from and to, and their labels
    before = {(span.start, span.end, span.label) for span in annotated_spans}
    after = {(span.start, span.end, span.label) for span in task.spans or ()}

    def to_doc_spans(text_spans: Collection[tuple[int, int, str]]) -> list[Span]:
        """Find the spans of the doc for spans of the line, whose text begins at the character
        `start` of the doc."""
        doc_spans: list[Span] = []
        for span_start, span_end, label in sorted(text_spans):
            span = doc.char_span(start + span_start, start + span_end, label=label)
            if span is None:
                raise place.refuse(
                    f"spans: expected whole tokens, got {text[span_start:span_end]!r} {label}"
                )
            doc_spans.append(span)
        return doc_spans

    removed = to_doc_spans(before - after)
    added = to_doc_spans(after - before)
    return Correction(place, doc_number, removed, added)


def remove_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Remove the entities that a correction removes from those of its doc.

    ents (dict[Entity, Span]): All entities of the doc. The dictionary is changed.
    RAISES (CorpusError): If the doc doesn't have one of them.
    """
    for span in correction.removed:
        if ents.pop(as_entity(span), None) is None:
            text = f"{span.text} {span.label_}"
            raise correction.place.refuse(f"annotated: expected an entity of the doc, got {text!r}")


def add_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Add the entities that a correction adds to those of its doc.

    ents (dict[Entity, Span]): All entities of the doc. The dictionary is changed.
    RAISES (CorpusError): If one of them overlaps another.
    """
    for span in correction.added:
        for ent in ents.values():
            if ent.start < span.end and span.start < ent.end:
                raise correction.place.refuse(
                    f"spans: expected entities without overlap, got {span.text!r} "
                    f"{span.label_} and {ent.text!r} {ent.label_}"
                )
        ents[as_entity(span)] = span


def set_ents(doc: Doc, ents: Collection[Span]) -> None:
    """Replace the entities of a doc. Tokens without annotation stay so, unless they are in one of
    the new entities."""
    entity_tokens: set[int] = set()
    for ent in ents:
        entity_tokens.update(range(ent.start, ent.end))
    missing: list[Span] = []
    for token in doc:
        if token.ent_iob == ent_iob.MISSING and token.i not in entity_tokens:
            missing.append(doc[token.i : token.i + 1])
    doc.set_ents(list(ents), missing=missing, default="outside")
