"""Learn from annotators who err, where a person has checked some texts.

A model of the checked texts gives a distribution over the tags of each text, and the noise channel
adds the evidence of the answers (see `training.noise_channel`). The exact posterior given text and
answers is the soft target of an unchecked text. A student learns these and the checked texts.

Texts are divided into two folds. The models of a fold learn from the texts outside of it, so that
no text is predicted by a model that has learned from it:

- On checked texts their F shows whether the channel helps, compared with the checked texts alone,
  and with answers that are learned as they are. The confidence of the models of few texts is
  calibrated there, too.
- On unchecked texts the distribution of a student replaces the one of the model of checked texts,
  as a student knows more words. The final soft targets are made with it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import add
from typing import NamedTuple

import numpy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import Array1d, Array2d, Floats3d, Ints1d

from ... import chain
from ...annotation.equal_texts import assign_folds, number_texts
from ...decoding import Temperature
from ...pipeline.scorers import Entity
from ...progress import progress
from ...readers.sentences import copy_without_annotation
from ...tags import Tags
from ...training.noise_channel import (
    Answers,
    Batch,
    Estimate,
    add_evidence,
    count,
    estimate_tables,
    make_answers,
    observed_tag_of,
)
from ...training.soft_targets import SOFT_TARGETS_KEY, expectations
from ...types import Potentials, map_scores
from ..calibration.temperature import fit_temperature, predict_best
from ..evaluation.predictions import DevPredictions, predict_dev
from ..fitting.folds import FoldTraining
from ..fitting.linear_training import LinearPipeline
from .answered_texts import DOCS_PER_BATCH, AnsweredText, AnsweredTexts, observed_tags
from .evidence_weights import CheckedBatch, Weights, fit_weights, make_checked_batch

GOLD = "checked texts alone"
ANSWERS = "answers as they are"
CHANNEL = "noise channel"
WAYS = (GOLD, ANSWERS, CHANNEL)

N_FOLDS = 2

CERTAIN = Temperature()
"""The temperature of students, which have learned from many texts."""

MOST_TEMPERATURE = 3.0
"""The greatest temperature of models of few texts."""


class Way(NamedTuple):
    """A way to learn from checked texts and answers, and its scores on checked texts that its
    models haven't learned from."""

    name: str
    precision: float
    recall: float
    f_score: float


class Corrections(NamedTuple):
    """How the most probable entities given text and answers differ from the voted answers.

    n_added (int): Entities where the answers have none.
    n_dropped (int): Entities of answers where there are none.
    n_changed (int): Entities that overlap with one of the answers, with another label or border.
    """

    n_added: int = 0
    n_dropped: int = 0
    n_changed: int = 0


class ChannelResult(NamedTuple):
    """What was learned of annotators and texts.

    estimate (Estimate): The table of each annotator.
    docs (list[Doc]): The unchecked texts with soft targets.
    corrections (Corrections): How these differ from the voted answers.
    ways (list[Way]): The scores of each way to learn.
    """

    estimate: Estimate
    docs: list[Doc]
    corrections: Corrections
    ways: list[Way]


class Posteriors(NamedTuple):
    """The posterior of a batch of texts given their answers.

    potentials (Potentials): The scores of the chain.
    tags (Tags): The tags of the chain.
    doc_of_sequence (Ints1d): The doc of each sequence. Shape: (B,)
    """

    potentials: Potentials
    tags: Tags
    doc_of_sequence: Ints1d


class Comparison(NamedTuple):
    """The ways to learn, compared on held-out checked texts.

    ways (list[Way]): The scores of each way.
    temperature (Temperature): The temperature of models of checked texts.
    weights_of_models (Weights): The weights of these models, at this temperature, and of
        annotators.
    weights_of_students (Weights): The weights of students and of annotators.
    """

    ways: list[Way]
    temperature: Temperature
    weights_of_models: Weights
    weights_of_students: Weights


@dataclass
class HeldOut:
    """The texts and models of a fold.

    checked (list[AnsweredText]): The checked texts of the fold, which its models haven't seen.
    other_checked (list[AnsweredText]): The checked texts of the other folds.
    other_unchecked (list[AnsweredText]): The unchecked texts of the other folds.
    models (dict[str, LinearPipeline]): The model of each way to learn.
    batches (list[Batch]): The unchecked texts, predicted by the model of checked texts alone.
    tables (list[Floats3d]): The table of each annotator. Shape: (S, C, C)
    """

    checked: list[AnsweredText]
    other_checked: list[AnsweredText]
    other_unchecked: list[AnsweredText]
    models: dict[str, LinearPipeline] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    tables: list[Floats3d] = field(default_factory=list)

    def predict(self, name: str) -> DevPredictions:
        """Predict the checked texts of the fold with the model of a way."""
        model = self.models[name]
        docs = docs_of(self.checked)
        return predict_dev(model.nlp, model.ner, map(Example, copies_for(model, docs), docs))


@dataclass(frozen=True)
class ChannelTraining:
    """Learns from texts with answers. `fold_training` trains its linear models."""

    fold_training: FoldTraining
    texts: AnsweredTexts

    def run(self) -> ChannelResult:
        """Compare the ways to learn, and compute the soft targets of all unchecked texts."""
        comparison = self.compare_ways()
        first_docs = self.make_first_docs(comparison)
        texts, batches = self.predict_folds(first_docs)
        estimate = estimate_tables(batches, self.count_checked(self.texts.checked))
        weighted = weigh(batches, estimate.tables, comparison.weights_of_students)
        return ChannelResult(
            estimate=estimate,
            docs=soft_docs(texts, weighted),
            corrections=self.count_corrections(texts, weighted),
            ways=comparison.ways,
        )

    def compare_ways(self) -> Comparison:
        """Score each way on the checked texts of each fold, and find the weights of models and
        annotators there."""
        folds: list[HeldOut] = []
        fold_of_checked = assign(self.texts.checked)
        fold_of_unchecked = assign(self.texts.unchecked)
        for fold in range(N_FOLDS):
            held_out = HeldOut(
                checked=select(self.texts.checked, fold_of_checked == fold),
                other_checked=select(self.texts.checked, fold_of_checked != fold),
                other_unchecked=select(self.texts.unchecked, fold_of_unchecked != fold),
            )
            held_out.models[GOLD] = self.train(docs_of(held_out.other_checked))
            folds.append(held_out)
        temperature = find_temperature([fold.predict(GOLD) for fold in folds])
        for fold in folds:
            fold.batches = self.make_batches(fold.models[GOLD], fold.other_unchecked, temperature)
            known_counts = self.count_checked(fold.other_checked)
            fold.tables = estimate_tables(fold.batches, known_counts).tables
        weights = self.find_weights(folds, GOLD, temperature)
        for fold in progress(folds, desc="compare", unit="fold"):
            gold = docs_of(fold.other_checked)
            voted = [self.texts.voted_doc(text) for text in fold.other_unchecked]
            fold.models[ANSWERS] = self.train([*gold, *voted])
            weighted = weigh(fold.batches, fold.tables, weights)
            soft = soft_docs(fold.other_unchecked, weighted)
            fold.models[CHANNEL] = self.train([*gold, *soft])
        return Comparison(
            ways=[score_way(name, [fold.predict(name) for fold in folds]) for name in WAYS],
            temperature=temperature,
            weights_of_models=weights,
            weights_of_students=self.find_weights(folds, CHANNEL),
        )

    def find_weights(
        self, folds: Sequence[HeldOut], name: str, temperature: Temperature = CERTAIN
    ) -> Weights:
        """Find the weights of models and annotators on the checked texts of each fold. The models
        are those of the way with this name, at a temperature."""
        checked_batches: list[CheckedBatch] = []
        for fold in folds:
            batches = self.make_batches(fold.models[name], fold.checked, temperature)
            for texts, batch in zip(minibatch(fold.checked, DOCS_PER_BATCH), batches):
                is_gold = self.gold_tags(texts, batch)
                checked_batches.append(make_checked_batch(batch, fold.tables, is_gold))
        return fit_weights(checked_batches)

    def gold_tags(self, texts: Sequence[AnsweredText], batch: Batch) -> Array2d:
        """True for the tags of a chain that agree with the annotation of checked texts.
        Shape: (N, K)"""
        docs = docs_of(texts)
        path = numpy.concatenate(observed_tags(docs, docs, self.texts.labels))
        is_same = path[:, None] == observed_tag_of(batch.tags)
        return is_same | (path < 0)[:, None]

    def make_first_docs(self, comparison: Comparison) -> list[Doc]:
        """Make soft targets of unchecked texts with a model of the checked texts."""
        model = self.train(docs_of(self.texts.checked))
        batches = self.make_batches(model, self.texts.unchecked, comparison.temperature)
        estimate = estimate_tables(batches, self.count_checked(self.texts.checked))
        weighted = weigh(batches, estimate.tables, comparison.weights_of_models)
        return soft_docs(self.texts.unchecked, weighted)

    def predict_folds(self, first_docs: Sequence[Doc]) -> tuple[list[AnsweredText], list[Batch]]:
        """Predict the unchecked texts of each fold with a student of the checked texts and of the
        first soft targets of the other fold. Returns the texts in another order, and their
        batches."""
        fold_of_unchecked = assign(self.texts.unchecked)
        texts: list[AnsweredText] = []
        batches: list[Batch] = []
        for fold in progress(range(N_FOLDS), desc="folds", unit="fold"):
            outside = compress(first_docs, fold_of_unchecked != fold)
            student = self.train([*docs_of(self.texts.checked), *outside])
            texts_of_fold = select(self.texts.unchecked, fold_of_unchecked == fold)
            texts += texts_of_fold
            batches += self.make_batches(student, texts_of_fold)
        return texts, batches

    def train(self, docs: Iterable[Doc]) -> LinearPipeline:
        """Train a model on docs."""
        examples: list[Example] = []
        for doc in docs:
            examples.append(Example(copy_without_annotation(doc, sentences=True), doc))
        return self.fold_training.train(examples)

    def count_checked(self, checked: Sequence[AnsweredText]) -> list[Floats3d]:
        """Count what annotators say of checked texts. Shape for each annotator: (S, C, C)"""
        docs = [text.doc for text in checked]
        true_tags = numpy.concatenate(observed_tags(docs, docs, self.texts.labels))
        # The probability of each true tag. It is 0 for all tags where annotation is missing.
        n_observed = 2 * len(self.texts.labels) + 1
        probs = (true_tags[:, None] == numpy.arange(n_observed)).astype("float64")
        lengths = numpy.asarray([len(doc) for doc in docs])
        return [count(answers, probs) for answers in self.join_answers(checked, lengths)]

    def join_answers(self, texts: Sequence[AnsweredText], lengths: Ints1d) -> list[Answers]:
        """Join the answers of each annotator to texts, whose sequences have these lengths.
        Shape: (B,)"""
        answers: list[Answers] = []
        for annotator in range(len(self.texts.annotators)):
            tags = numpy.concatenate([text.observed[annotator] for text in texts])
            answers.append(make_answers(tags, lengths))
        return answers

    def make_batches(
        self,
        model: LinearPipeline,
        texts: Sequence[AnsweredText],
        temperature: Temperature = CERTAIN,
    ) -> list[Batch]:
        """Compute the distribution of a model over the paths of texts, at a temperature, and join
        their answers."""
        batches: list[Batch] = []
        for batch_of_texts in minibatch(texts, DOCS_PER_BATCH):
            posterior = model.ner.posterior(copies_for(model, docs_of(batch_of_texts)))
            posterior = posterior.with_temperature(temperature)
            answers = self.join_answers(batch_of_texts, posterior.potentials.lengths)
            batch = Batch(posterior.potentials, posterior.tags, answers, posterior.doc_of_sequence)
            batches.append(batch)
        return batches

    def count_corrections(
        self, texts: Sequence[AnsweredText], posteriors: Iterable[Posteriors]
    ) -> Corrections:
        """Count how the most probable entities of texts differ from the voted answers."""
        corrections = Corrections()
        remaining = iter(texts)
        for posterior in posteriors:
            path = chain.best_path(posterior.potentials).tags
            first_token = 0
            for text in islice(remaining, posterior.doc_of_sequence[-1] + 1):
                end = first_token + len(text.doc)
                corrected = self.entities(posterior.tags, path[first_token:end])
                first_token = end
                new = compare(self.texts.vote(text), corrected)
                corrections = Corrections(*map(add, corrections, new))
        return corrections

    def entities(self, tags: Tags, path: Ints1d) -> list[Entity]:
        """The entities of a path of a text. Shape: (T,)"""
        rows = zip(*tags.decode(path, numpy.asarray([len(path)])))
        return [(int(begin), int(end), tags.labels[label]) for begin, end, label in rows]


def compare(voted: Iterable[Entity], corrected: Iterable[Entity]) -> Corrections:
    """Count how the entities of a text differ from the voted answers."""
    voted_entities = set(voted)
    corrected_entities = set(corrected)
    n_added = 0
    n_changed = 0
    for entity in corrected_entities - voted_entities:
        if any(overlap(entity, other) for other in voted_entities):
            n_changed += 1
        else:
            n_added += 1
    n_dropped = 0
    for entity in voted_entities - corrected_entities:
        if not any(overlap(entity, other) for other in corrected_entities):
            n_dropped += 1
    return Corrections(n_added, n_dropped, n_changed)


def overlap(entity: Entity, other: Entity) -> bool:
    """Whether two entities have a token in common."""
    return entity[0] < other[1] and other[0] < entity[1]


def assign(texts: Sequence[AnsweredText]) -> Ints1d:
    """Divide texts into folds, with equal texts in the same fold. Shape: (texts,)"""
    return assign_folds(number_texts(text.doc for text in texts), N_FOLDS, seed=0)


def select(texts: Sequence[AnsweredText], mask: Array1d) -> list[AnsweredText]:
    """The texts where a mask is True. Shape: (texts,)"""
    return list(compress(texts, mask))


def copies_for(model: LinearPipeline, docs: Iterable[Doc]) -> list[Doc]:
    """Copy docs, for a model to predict."""
    return [copy_without_annotation(doc, model.nlp.vocab, sentences=True) for doc in docs]


def docs_of(texts: Iterable[AnsweredText]) -> list[Doc]:
    """The docs of texts."""
    return [text.doc for text in texts]


def find_temperature(predictions: Sequence[DevPredictions]) -> Temperature:
    """Find the temperature of models of few texts, which are too certain, from their predictions
    for other texts. It is at least 1 and at most `MOST_TEMPERATURE`."""
    judged_sets = [predict_best(dev) for dev in predictions]
    if not any(len(judged.is_correct) for judged in judged_sets):
        return Temperature()  # nothing is predicted
    temperature = fit_temperature(judged_sets, per_label=False)
    return Temperature(min(max(temperature.overall, 1.0), MOST_TEMPERATURE))


def score_way(name: str, predictions: Sequence[DevPredictions]) -> Way:
    """Score the predictions of the folds of a way together."""
    n_correct = 0
    n_predicted = 0
    n_gold = 0
    for dev in predictions:
        is_correct = predict_best(dev).is_correct
        n_correct += int(is_correct.sum())
        n_predicted += len(is_correct)
        n_gold += len(dev.gold.begin)
    precision = n_correct / n_predicted if n_predicted else 0.0
    recall = n_correct / n_gold if n_gold else 0.0
    f_score = 2 * n_correct / (n_predicted + n_gold) if n_predicted + n_gold else 0.0
    return Way(name, precision, recall, f_score)


def weigh(
    batches: Iterable[Batch], tables: Sequence[Floats3d], weights: Weights
) -> list[Posteriors]:
    """Compute the posterior of texts given their answers, with weights: see `evidence_weights`.

    batches (Iterable[Batch]): The texts.
    tables (Sequence[Floats3d]): The table of each annotator. Shape: (S, C, C)
    weights (Weights): The weights of the model and of the annotators.
    """
    # The weight of a logarithm is a power.
    powers = [table**weight for table, weight in zip(tables, weights.annotators)]
    posteriors: list[Posteriors] = []
    for batch in batches:
        scores = map_scores(lambda array: array * weights.model, batch.potentials)
        potentials = add_evidence(scores, batch.tags, batch.answers, powers)
        posteriors.append(Posteriors(potentials, batch.tags, batch.doc_of_sequence))
    return posteriors


def soft_docs(texts: Sequence[AnsweredText], posteriors: Iterable[Posteriors]) -> list[Doc]:
    """Copy texts, with soft targets. The posteriors are of the same texts in the same order."""
    docs = [copy_without_annotation(text.doc, sentences=True) for text in texts]
    remaining = iter(docs)
    for posterior in posteriors:
        for targets in expectations(*posterior):
            next(remaining).user_data[SOFT_TARGETS_KEY] = targets
    return docs
