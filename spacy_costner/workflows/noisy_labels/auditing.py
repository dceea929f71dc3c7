"""Rank the places of a corpus by how probably their annotation is wrong.

The docs are divided into folds, and each fold is predicted by a model that was trained on the
others. A place is a few tokens with the entities that are annotated there (none, one or several).
The suggestion is the best alternative to them, by the probabilities of the model. A place with its
suggestion is a suspect. Suspects are written to a file, a line for each, where people accept or
reject the suggestions; `apply_answers` then corrects the corpus.

In this file an entity is (begin, end, label): its first token, the one after its last, its label.
The *extent* of several entities is the first token of any of them, and the one after the last.
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
from thinc.types import Array2d, Floats1d, Floats2d

from ...annotation import iob as ent_iob
from ...decoding import LEAST_PROB, Posterior, Temperature
from ...ml import first_pass_of
from ...pipeline.component import CostSensitiveNER
from ...pipeline.scorers import Entity, as_entity
from ...readers import Task, TaskSpan, doc_to_task, read_tasks
from ...readers.files import FilePlace
from ...readers.sentences import copy_without_annotation
from ...readers.tasks import spans_from_json
from ...tags import Entities, Tags
from ..calibration.temperature import fit_temperature, predict_best
from ..evaluation.recurrence import note_copies
from ..executors import MakeExecutor
from ..fitting.folds import Fold, hold_out
from ..fitting.variants import component_name
from ..reports.excerpts import extent_of, window
from ..reports.mistake_costs import find_cost
from ..reports.mistakes import (
    BOTH,
    BOUNDARY,
    LABEL,
    MISSING,
    SPURIOUS,
    kind_of_mistake,
    list_entities,
)

KINDS = (LABEL, BOUNDARY, MISSING, SPURIOUS)
"""The kinds of mistakes in annotation: see `kind_of_suspect`."""

Phrase = tuple[str, ...]
"""The words of tokens that follow each other."""

MISSING_ODDS = 2.0
"""How much more often annotators overlook an entity than they make another mistake, if the model
gives both the same probabilities. Chosen on made-up mistakes: see docs/audit.md."""

SMOOTHING = 0.2
"""This is added to probabilities before the logarithm. With a lower value, more of the mistakes are
found that were put in at random; with a higher one, more of those that annotators make. It was
chosen on both: see docs/audit.md."""

PROBABLE = 0.5
"""Entities with a higher probability are suggested beside the best alternative of their place. They
don't overlap, as of overlapping entities only one can be more probable than this."""

LEAVE = "leave"
ACCEPT = "accept"
UNANSWERED = (LEAVE, ACCEPT)
"""What may happen to suggestions that have no answer."""

REJECT = "reject"

IGNORE = "ignore"
"""The answer where people skipped a suggestion. It counts as no answer."""

ANNOTATED = "spacy_costner_annotated"
"""A key of `doc.user_data`. Its value is the array of `one_hot_labels`."""

TEMPERATURES = (0.5, 5.0)
"""The lowest and the highest temperature of a fold. Without limits it would be 0 if all predictions
of a fold are right, and infinite if all are wrong."""

MistakeCost = Callable[[Sequence[Entity], Sequence[Entity]], float]
"""Maps the true and the annotated entities of a place to the cost of that mistake."""


class Suspect(NamedTuple):
    """A place whose annotation may be wrong. Tokens of its entities are counted from the first one
    of the doc."""

    doc: int  # the index of the doc
    kind: str  # one of `KINDS`: what the mistake is if the suggestion is right
    score: float  # the log-odds of the suggestion against the annotation: see `rank`
    annotated: list[Entity]  # the annotated entities of the place
    suggested: list[Entity]  # the entities that the place has if the suggestion is right
    # The two probabilities that the score compares. Each is that of a single entity, even if the
    # place has several, or of "no entity": see `Comparison`.
    prob_annotated: float
    prob_suggested: float
    as_annotated: int = 0  # how often other places have the same words with the same annotation
    as_suggested: int = 0  # how often other places have the same words annotated as suggested

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
    """An annotated entity and one alternative to it. Either of them may be "no entity". Tokens are
    counted over all docs of a fold."""

    annotated: list[Entity]  # the annotated entity, or empty for none
    alternative: list[Entity]  # the alternative, which overlaps it, or empty for none
    prob_annotated: float
    prob_alternative: float


class Audit(NamedTuple):
    """The result of an audit.

    suspects (list[Suspect]): All suspects, the most probable mistakes first.
    kinds (dict[str, int]): The number of suspects whose suggestion is more probable than the
        annotation, for each kind in `KINDS`. "inconsistent" is the number of those, of any kind,
        whose words are also more often annotated elsewhere as suggested.
    docs, tokens (int): The number of docs and of tokens.
    entities (int): The number of annotated entities.
    over_borders (int): How many annotated entities cross a border between sequences. No model can
        predict these.
    notes (list[str]): Whether docs are copies of each other.
    """

    suspects: list[Suspect]
    kinds: dict[str, int]
    docs: int
    tokens: int
    entities: int
    over_borders: int
    notes: list[str]


class AnswerCounts(NamedTuple):
    """The number of suggestions with each answer."""

    accepted: int
    rejected: int
    unanswered: int


class Correction(NamedTuple):
    """What an accepted suggestion changes in a doc."""

    place: FilePlace  # the line with the suggestion, for errors
    doc: int  # the index of the doc
    removed: list[Span]  # entities that the doc no longer has
    added: list[Span]  # entities that it gets


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
        cost, probabilities are multiplied by it.
    docs (Sequence[Doc]): The annotated docs, none of them empty. Models see the tokens of these
        docs, so suggestions are made of whole tokens.
    n_folds (int): Number of folds.
    n_seeds (int): Number of trainings for each fold, whose weights are averaged.
    seed (int | None): Random seed with which docs are assigned to folds.
    file_tokens (bool): Have models see the sentence starts of the file, too.
    make_executor (MakeExecutor | None): Makes an executor of a task for each fold, such as
        `local_processes(2)`. None: one fold after another, in this process.
    code_path (Path | None): Python file with registered functions to be imported.
    RETURNS (Audit): All suspects, and their numbers by kind.
    RAISES (ValueError): If the config hasn't one component that can be fitted and writes
        `doc.ents`, has a setting that nothing reads, there are too few docs or no entities, or a
        worker failed.
    """
    name = component_name(config, Path("config"))  # The path is only for an error.
    component_config = config.interpolate()["components"][name]
    make_table, _, cost_name = find_cost(component_config)
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
    mistake_cost = None  # all mistakes cost the same
    if cost_name:
        tags = folds[0].dev.posterior.tags.collapsed  # those of costs, with a single O
        mistake_cost = make_cost(make_table(tags), tags)
    suspects = rank(folds, docs, mistake_cost)

    # Each suspect counts under its kind. Those that are inconsistent count there, too.
    kinds = dict.fromkeys([*KINDS, "inconsistent"], 0)
    for suspect in suspects:
        if suspect.is_probable:  # the others are in the file, but don't count as mistakes
            kinds[suspect.kind] += 1
            kinds["inconsistent"] += int(suspect.is_inconsistent)
    # No model can predict an entity over a border of the chain, such as the end of a sentence.
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
        notes=note_copies(docs, "the corpus"),
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
    fold, which its scores are divided by, is the geometric mean of the temperatures that fit the
    other folds.

    If the features of the config have `document`, the second pass of a model normally sees which
    labels a first pass predicts for other occurrences of a word in the doc. Here it sees the
    annotated labels of these other occurrences instead, in training and in prediction. It never
    sees the label of the word itself.

    See `hold_out` for the arguments.

    RETURNS (list[Fold]): The folds with their predictions.
    RAISES (ValueError): See `hold_out`, or if there are no entities.
    """
    labels: set[str] = set()
    for doc in docs:
        labels.update(ent.label_ for ent in doc.ents)
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")
    sorted_labels = sorted(labels)
    examples = [Example(copy_without_annotation(doc, sentences=True), doc) for doc in docs]
    for eg in examples:
        # `read_labels_of_annotation` has the second pass look for the annotated labels here.
        eg.predicted.user_data[ANNOTATED] = one_hot_labels(eg.reference, sorted_labels)
    folds = hold_out(
        config,
        examples,
        sorted_labels,
        n_folds=n_folds,
        n_seeds=n_seeds,
        seed=seed,
        keeps_starts=keeps_starts,
        prepare_component=read_labels_of_annotation,
        make_executor=make_executor,
        code_path=code_path,
        desc="audit",
    )
    temperatures = means_of_other_folds([find_temperature(fold) for fold in folds])
    calibrated: list[Fold] = []
    for fold, temperature in zip(folds, temperatures):
        dev = fold.dev.with_temperature(Temperature(temperature))
        calibrated.append(fold._replace(dev=dev))
    return calibrated


def one_hot_labels(doc: Doc, labels: Sequence[str]) -> Array2d:
    """The annotated labels of the tokens of a doc as rows with a single True, in column 0 for O and
    in column i + 1 for `labels[i]`. A token without annotation has no True. Shape: (T, L + 1)"""
    column_of_type = {"": 0}  # The `ent_type_` of a token outside entities is empty.
    for i, label in enumerate(labels):
        column_of_type[label] = i + 1
    one_hot = numpy.zeros((len(doc), len(column_of_type)), dtype=bool)
    for token in doc:
        if token.ent_iob != ent_iob.MISSING:
            one_hot[token.i, column_of_type[token.ent_type_]] = True
    return one_hot


def find_temperature(fold: Fold) -> float:
    """Find the temperature of a fold with which the log loss of its predicted entities is lowest:
    see `fit_temperature`. It is 1 if no entity is predicted."""
    predicted = predict_best(fold.dev)
    if not len(predicted.is_correct):
        return 1.0
    return fit_temperature([predicted], per_label=False).overall


def means_of_other_folds(temperatures: Sequence[float]) -> list[float]:
    """For each fold the geometric mean of the temperatures of all other folds, so that its own
    docs have no effect on the temperature that is used for it.

    temperatures (Sequence[float]): The temperatures of at least two folds. Those outside of the
        range `TEMPERATURES` count as its nearest end.
    """
    logs = numpy.log(numpy.clip(temperatures, *TEMPERATURES))
    sums_of_others = logs.sum() - logs
    return numpy.exp(sums_of_others / (len(logs) - 1)).tolist()


def read_labels_of_annotation(ner: CostSensitiveNER) -> None:
    """Have the second pass of a component see the annotated labels of other occurrences of a word,
    where it otherwise sees those that its first pass predicts: see `FirstPass`."""
    first_pass = first_pass_of(ner.model)
    if first_pass is not None:
        first_pass.read_labels = annotated_labels


def annotated_labels(docs: Iterable[Doc]) -> Floats2d:
    """The annotated labels of the tokens of all docs: see `one_hot_labels`. `cross_fit` has put
    them into the docs. Shape: (N, L + 1)"""
    return numpy.concatenate([doc.user_data[ANNOTATED] for doc in docs], dtype="float32")


def rank(
    folds: Sequence[Fold], docs: Sequence[Doc], cost: MistakeCost | None = None
) -> list[Suspect]:
    """Find the best alternative of each place, and sort the places by its score, the most probable
    mistakes first. Of places that overlap, only the one with the highest score is kept.

        score = log(c(b, a) p(b) + SMOOTHING) - log(c(a, b) p(a) + SMOOTHING)

    Here a is the annotation and b the alternative. c(b, a) is the cost of annotating a where b is
    right, divided by the mean cost in the fold; without costs it is 1. p is the probability that
    exactly these tokens are an entity with this label or, for "no entity", that none of them is in
    one. If no entity is annotated, log MISSING_ODDS is added.

    folds (Sequence[Fold]): The predicted folds.
    docs (Sequence[Doc]): The docs of all folds.
    cost (MistakeCost | None): What a mistake costs. None: all mistakes cost the same.
    """
    suspects: list[Suspect] = []
    for fold in folds:
        suspects += find_suspects(fold, cost)
    suspects.sort(key=lambda suspect: -suspect.score)
    return count_elsewhere(suspects, docs)


def find_suspects(fold: Fold, cost: MistakeCost | None) -> Iterator[Suspect]:
    """Find the suspects of a fold, those with the highest score first. A suspect that overlaps an
    earlier one is left out. For the score see `rank`.

    fold (Fold): The predicted fold.
    cost (MistakeCost | None): What a mistake costs. None: all mistakes cost the same.
    YIELDS (Suspect): The suspects.
    """
    # Compare annotated entities with likely ones, all that overlap, and score each comparison.
    posterior = fold.dev.posterior
    labels = posterior.tags.labels
    likely, probs = posterior.likely_entities(LEAST_PROB)
    # Where nobody has annotated, there is no annotation to be wrong.
    is_counted = fold.dev.are_counted(likely)
    likely = likely.select(is_counted)
    probs = probs[is_counted]
    comparisons = compare_annotation(posterior, fold.dev.gold, likely, probs)
    scores = score_comparisons(comparisons, cost)

    gold = list_entities(fold.dev.gold, labels)
    probable = list_entities(likely.select(probs > PROBABLE), labels)
    # The first token of each doc of the fold, and the number of all tokens. Shape: (D + 1,)
    doc_starts = numpy.cumsum([0, *posterior.doc_lengths]).tolist()
    n_tokens = doc_starts[-1]
    is_in_place = numpy.zeros(n_tokens, dtype=bool)  # whether a token is in an earlier suspect
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

        # If the alternative is "no entity", none is suggested. If nothing is annotated, the place
        # has only the tokens of the alternative, so there is no room for others.
        suggested = alternative
        if comparison.annotated and alternative:
            suggested = add_within(alternative, probable, begin, end)
        # The doc of the place is the last one that starts at its first token or before.
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
    """Compare the annotation of a fold with all alternatives. Comparisons are of three kinds:

    - an annotated entity is compared with no entity;
    - an annotated entity is compared with each likely one that overlaps it;
    - no entity is compared with each likely one that overlaps no annotated entity.

    posterior (Posterior): The posterior of the docs of the fold.
    gold (Entities): The annotated entities.
    likely (Entities): The E entities with a probability of at least `LEAST_PROB`, on annotated
        tokens.
    likely_probs (Floats1d): Their probabilities. Shape: (E,)
    """
    annotated = list_entities(gold, posterior.tags.labels)
    prob_of_annotated = dict(zip(annotated, posterior.entity_probs(gold).tolist()))
    # The probability of no entity: that all tokens of an annotated or likely entity are O
    no_entity_probs_gold = posterior.outside_probs(gold.begin, gold.end).tolist()
    no_entity_probs_likely = posterior.outside_probs(likely.begin, likely.end).tolist()

    comparisons: list[Comparison] = []
    for entity, no_entity_prob in zip(annotated, no_entity_probs_gold):
        comparisons.append(
            Comparison(
                annotated=[entity],
                alternative=[],
                prob_annotated=prob_of_annotated[entity],
                prob_alternative=no_entity_prob,
            )
        )
    alternatives = list_entities(likely, posterior.tags.labels)
    for alternative, prob, no_entity_prob in zip(
        alternatives, likely_probs.tolist(), no_entity_probs_likely
    ):
        begin, end, _ = alternative
        overlapping = entities_between(annotated, begin, end)
        if not overlapping:
            comparisons.append(
                Comparison(
                    annotated=[],
                    alternative=[alternative],
                    prob_annotated=no_entity_prob,
                    prob_alternative=prob,
                )
            )
        for entity in overlapping:
            if entity != alternative:
                comparisons.append(
                    Comparison(
                        annotated=[entity],
                        alternative=[alternative],
                        prob_annotated=prob_of_annotated[entity],
                        prob_alternative=prob,
                    )
                )
    return comparisons


def score_comparisons(comparisons: Sequence[Comparison], cost: MistakeCost | None) -> Floats1d:
    """The score of each comparison: the smoothed log odds of the alternative against the
    annotation. With a cost, both probabilities are first multiplied by what the mistake would cost.
    Where nothing is annotated the score is raised, as annotators overlook entities more often than
    they make other mistakes. For the formula see `rank`.

    RETURNS (Floats1d): The scores. Shape: (C,)
    """
    # For each comparison a number for the annotation and a number for the alternative
    pairs_of_probs: list[tuple[float, float]] = []
    pairs_of_costs: list[tuple[float, float]] = []
    has_annotated = numpy.zeros(len(comparisons), dtype=bool)
    for i, (annotated, alternative, prob_annotated, prob_alternative) in enumerate(comparisons):
        has_annotated[i] = bool(annotated)  # `annotated` is a list of entities.
        pairs_of_probs.append((prob_annotated, prob_alternative))
        if cost is not None:
            # If the annotation is right, the mistake would be the alternative, and the other way
            # round.
            cost_if_annotated = cost(annotated, alternative)
            cost_if_alternative = cost(alternative, annotated)
            pairs_of_costs.append((cost_if_annotated, cost_if_alternative))

    weights = numpy.asarray(pairs_of_probs).reshape(-1, 2)  # shape: (C, 2), also if C = 0
    if pairs_of_costs:
        costs = numpy.asarray(pairs_of_costs)
        # Costs are divided by their mean, so that `SMOOTHING` matters as much in any unit of costs.
        # If all of them are 0, they stay 0.
        weights *= costs / max(costs.mean(), 1e-12)
    log_weights = numpy.log(weights + SMOOTHING)
    scores = log_weights[:, 1] - log_weights[:, 0]
    scores[~has_annotated] += numpy.log(MISSING_ODDS)
    return scores


def add_within(
    suggested: list[Entity], probable: list[Entity], begin: int, end: int
) -> list[Entity]:
    """Add the probable entities of a place to those that are suggested there, if they overlap none
    of them. Otherwise a suggestion that splits an entity, say, would have only one of its parts.

    suggested (list[Entity]): The suggested entities, in order. The list isn't changed.
    probable (list[Entity]): All probable entities of the fold, in order.
    begin, end (int): The first token of the place, and the one after its last.
    """
    complete = suggested
    for entity in entities_between(probable, begin, end):
        entity_begin, entity_end, _ = entity
        is_within = begin <= entity_begin and entity_end <= end
        if is_within and not entities_between(complete, entity_begin, entity_end):
            complete = sorted([*complete, entity])
    return complete


def kind_of_suspect(suggested: Sequence[Entity], annotated: Sequence[Entity]) -> str:
    """Name the kind of mistake that the annotation of a place has if the suggestion is right: one
    of `KINDS`. A place where label and boundary are both wrong counts as a wrong boundary.

    suggested (Sequence[Entity]): The suggested entities of the place.
    annotated (Sequence[Entity]): Its annotated entities.
    """
    # `kind_of_mistake` compares gold with predicted entities. Here the suggestion counts as gold.
    kind = kind_of_mistake(suggested, annotated)
    if kind == BOTH:
        return BOUNDARY
    return kind


def shifted(entities: Iterable[Entity], n_tokens: int) -> list[Entity]:
    """Move entities by a number of tokens: to the right, or to the left if it is negative."""
    return [(begin + n_tokens, end + n_tokens, label) for begin, end, label in entities]


def entities_between(entities: list[Entity], begin: int, end: int) -> list[Entity]:
    """The entities that have a token in the range from `begin` to `end`, without `end`.

    entities (list[Entity]): Entities in order that don't overlap.
    """
    # As they don't overlap, their begins and their ends ascend. So the first of them is the first
    # that ends after `begin`, and the last is the last that begins before `end`.
    first_entity = bisect_right(entities, begin, key=lambda entity: entity[1])
    after_last = bisect_left(entities, end, key=lambda entity: entity[0])
    return entities[first_entity:after_last]


def count_elsewhere(suspects: Sequence[Suspect], docs: Sequence[Doc]) -> list[Suspect]:
    """Fill in how often the words of each suspect occur elsewhere in the corpus with the same
    annotation, and with the suggested one. These words are those of the first entity in which
    annotation and suggestion differ: see `find_extent_of_change`."""
    extents = [find_extent_of_change(suspect) for suspect in suspects]
    words_of_suspects: list[Phrase] = []
    for suspect, (begin, end) in zip(suspects, extents):
        words_of_suspects.append(words_between(docs[suspect.doc], begin, end))
    counts = count_annotations(set(words_of_suspects), docs)

    counted_suspects: list[Suspect] = []
    for suspect, extent, words in zip(suspects, extents, words_of_suspects):
        annotated_label = label_by_extent(suspect.annotated).get(extent, "")
        suggested_label = label_by_extent(suspect.suggested).get(extent, "")
        counted_suspects.append(
            suspect._replace(
                as_annotated=counts[words, annotated_label] - 1,  # the place itself doesn't count
                as_suggested=counts[words, suggested_label],
            )
        )
    return counted_suspects


def find_extent_of_change(suspect: Suspect) -> tuple[int, int]:
    """The extent of the first suggested entity that isn't annotated or, if there is none, of the
    first annotated entity that isn't suggested: its first token, and the one after its last."""
    annotated = set(suspect.annotated)
    suggested = set(suspect.suggested)
    differing = suggested - annotated
    if not differing:
        differing = annotated - suggested
    begin, end, _ = min(differing)
    return begin, end


def count_annotations(
    phrases: Collection[Phrase], docs: Iterable[Doc]
) -> Counter[tuple[Phrase, str]]:
    """Count how often each phrase is annotated as an entity of each label in docs.

    phrases (Collection[Phrase]): The phrases.
    docs (Iterable[Doc]): The docs.
    RETURNS (Counter[tuple[Phrase, str]]): The counts by phrase and label. The label "" has those
        where the phrase as a whole is not an entity, though a part of it may be one.
    """
    # The matcher compares the texts of tokens, so it needs no vocab in common with the docs.
    vocab = Vocab()
    matcher = PhraseMatcher(vocab)
    matcher.add("words", [Doc(vocab, words=list(words)) for words in phrases])
    counts: Counter[tuple[Phrase, str]] = Counter()
    for doc in docs:
        label_of_extent = label_by_extent(map(as_entity, doc.ents))
        for _, begin, end in matcher(doc):
            label = label_of_extent.get((begin, end), "")
            counts[words_between(doc, begin, end), label] += 1
    return counts


def words_between(doc: Doc, begin: int, end: int) -> Phrase:
    """The words of the tokens of a doc from `begin` to `end`, without `end`."""
    return tuple(token.text for token in doc[begin:end])


def label_by_extent(entities: Iterable[Entity]) -> dict[tuple[int, int], str]:
    """A dictionary from (begin, end) of each entity to its label."""
    return {(begin, end): label for begin, end, label in entities}


def make_cost(table: Floats2d, tags: Tags) -> MistakeCost:
    """Make a function that computes the cost of a mistake: the sum of the costs of the tags of all
    tokens of its place.

    table (Floats2d): The cost of each pair of tags, [true, annotated]. Shape: (K, K)
    tags (Tags): The tags of the table.
    """

    def encode(entities: Sequence[Entity], begin: int, end: int) -> list[int]:
        """The tags of the tokens from `begin` to `end`, without `end`, if they have these
        entities."""
        # Tokens are counted from the first one of the place.
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
        """The cost of a place that has the annotated entities in place of the true ones."""
        begin, end = extent_of((true, annotated))
        true_tags = encode(true, begin, end)
        annotated_tags = encode(annotated, begin, end)
        return float(table[true_tags, annotated_tags].sum())

    return cost


def suspect_to_task(suspect: Suspect, docs: Sequence[Doc]) -> Task:
    """Make a task of a suspect, in Prodigy's form. Its text is the sentence with the place or, if
    the sentence is long, a part of it. Its spans are those of the suggestion, and the annotated
    ones outside the place.

    suspect (Suspect): The suspect.
    docs (Sequence[Doc]): The docs that were audited.
    RETURNS (Task): The task. Its key "annotated" has the spans as they are annotated. With "doc",
        the index of the doc, and "start", the first character of the text in the doc, an answer
        finds its doc again.
    """
    doc = docs[suspect.doc]
    begin, end = suspect.extent
    first_shown, after_last_shown = window(doc, begin, end)
    task = doc_to_task(doc[first_shown:after_last_shown].as_doc())
    annotated = task.spans or []

    # Characters of a task are counted from the first one that is shown. The suggestion replaces the
    # annotated spans of its place.
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
        "meta": {"kind": suspect.kind, "change": change},  # Prodigy shows it below the text
    }
    return task._replace(spans=spans, extra=extra)


def entities_text(doc: Doc, entities: Sequence[Entity]) -> str:
    """The text and the label of each entity, for people to read."""
    if not entities:
        return "nothing"
    return ", ".join(f"{doc[begin:end].text} {label}" for begin, end, label in entities)


def apply_answers(docs: Sequence[Doc], path: Path, *, unanswered: str = LEAVE) -> AnswerCounts:
    """Correct a corpus by the suggestions of an audit that people have accepted. What a suggestion
    changes is the difference between its spans, which people may have edited, and those under
    "annotated". Tokens without annotation stay so, unless they are in an added span.

    docs (Sequence[Doc]): The docs that were audited. Their entities are corrected.
    path (Path): A JSONL file with a suggestion on each line: see `suspect_to_task`.
    unanswered (str): What happens to suggestions without an answer, or with the answer "ignore":
        "leave" or "accept".
    RETURNS (AnswerCounts): The number of suggestions with each answer.
    RAISES (CorpusError): If a line is not of an audit of these docs, or two lines contradict each
        other. The message names the line.
    RAISES (ValueError): If `unanswered` is something else.
    """
    if unanswered not in UNANSWERED:
        expected = " or ".join(UNANSWERED)
        raise ValueError(f"audit: unanswered: expected {expected}, got {unanswered!r}")
    n_by_answer: Counter[str] = Counter()
    corrections: list[Correction] = []
    for place, task in read_tasks(path):
        answer = task.extra.get("answer") or IGNORE
        if answer == IGNORE and unanswered == ACCEPT:
            answer = ACCEPT
        n_by_answer[answer] += 1
        if answer == ACCEPT:
            corrections.append(read_correction(docs, task, place))

    # The entities of the docs that are corrected, by the index of the doc
    ents_of_docs: dict[int, dict[Entity, Span]] = {}
    for correction in corrections:
        doc = docs[correction.doc]
        ents_of_docs[correction.doc] = {as_entity(ent): ent for ent in doc.ents}
    # All removals come first: what one correction adds may overlap what another one removes.
    for correction in corrections:
        remove_ents(ents_of_docs[correction.doc], correction)
    for correction in corrections:
        add_ents(ents_of_docs[correction.doc], correction)
    for i, ents in ents_of_docs.items():
        set_ents(docs[i], ents.values())
    return AnswerCounts(
        accepted=n_by_answer[ACCEPT],
        rejected=n_by_answer[REJECT],
        unanswered=n_by_answer[IGNORE],
    )


def read_correction(docs: Sequence[Doc], task: Task, place: FilePlace) -> Correction:
    """Read what an accepted suggestion changes: the difference between its spans and those under
    "annotated".

    docs (Sequence[Doc]): The docs that were audited.
    task (Task): The suggestion, as `suspect_to_task` has made it and people may have edited it.
    place (FilePlace): The line with the suggestion, for errors.
    RAISES (CorpusError): If the line is not of an audit of these docs, or a span that is removed or
        added isn't made of whole tokens.
    """
    doc_index = task.extra.get("doc")
    start = task.extra.get("start")  # the character of the doc that the text begins with
    annotated = task.extra.get("annotated")
    # `isinstance` would take True for an int.
    if type(doc_index) is not int or type(start) is not int or not isinstance(annotated, list):
        raise place.refuse("expected a line of an audit, with doc, start and annotated")
    if not 0 <= doc_index < len(docs):
        n_docs = len(docs)
        raise place.refuse(f"doc: expected less than {n_docs}, the number of docs, got {doc_index}")
    doc = docs[doc_index]
    text = doc.text[start : start + len(task.text)]
    if start < 0 or text != task.text:
        raise place.refuse(f"expected the text of doc {doc_index}, {text!r}, got {task.text!r}")

    # Spans as (start, end, label), in characters of the text of the task
    annotated_spans = spans_from_json(annotated, text, key="annotated", place=place)
    annotated_keys = {(span.start, span.end, span.label) for span in annotated_spans}
    corrected_keys = {(span.start, span.end, span.label) for span in task.spans or ()}

    def to_doc_spans(text_spans: Collection[tuple[int, int, str]]) -> list[Span]:
        """Make spans of the doc of spans of the text of the task.

        RAISES (CorpusError): If one isn't made of whole tokens.
        """
        doc_spans: list[Span] = []
        for span_start, span_end, label in sorted(text_spans):
            span = doc.char_span(start + span_start, start + span_end, label=label)
            if span is None:
                raise place.refuse(
                    f"spans: expected whole tokens, got {text[span_start:span_end]!r} {label}"
                )
            doc_spans.append(span)
        return doc_spans

    removed = to_doc_spans(annotated_keys - corrected_keys)
    added = to_doc_spans(corrected_keys - annotated_keys)
    return Correction(place, doc_index, removed, added)


def remove_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Carry out the first part of a correction: remove entities of its doc.

    ents (dict[Entity, Span]): All entities of the doc. The dictionary is changed.
    RAISES (CorpusError): If the doc doesn't have an entity that is to be removed.
    """
    for span in correction.removed:
        if ents.pop(as_entity(span), None) is None:
            text = f"{span.text} {span.label_}"
            raise correction.place.refuse(f"annotated: expected an entity of the doc, got {text!r}")


def add_ents(ents: dict[Entity, Span], correction: Correction) -> None:
    """Carry out the second part of a correction: add entities to its doc.

    ents (dict[Entity, Span]): All entities of the doc. The dictionary is changed.
    RAISES (CorpusError): If an entity that is to be added overlaps another one.
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
    """Replace the entities of a doc. Tokens without annotation stay without it, unless they are in
    one of the new entities."""
    entity_tokens: set[int] = set()
    for ent in ents:
        entity_tokens.update(range(ent.start, ent.end))
    missing: list[Span] = []
    for token in doc:
        if token.ent_iob == ent_iob.MISSING and token.i not in entity_tokens:
            missing.append(doc[token.i : token.i + 1])
    doc.set_ents(list(ents), missing=missing, default="outside")
