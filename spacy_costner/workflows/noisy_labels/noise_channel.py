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
from dataclasses import dataclass
from itertools import compress, islice
from operator import add
from typing import NamedTuple

import numpy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import Array1d, Floats3d, Ints1d

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
)
from ...training.soft_targets import SOFT_TARGETS_KEY, expectations
from ..calibration.temperature import fit_temperature, predict_best
from ..evaluation.predictions import DevPredictions, predict_dev
from ..fitting.folds import FoldTraining
from ..fitting.linear_training import LinearPipeline
from .answered_texts import DOCS_PER_BATCH, AnsweredText, AnsweredTexts, observed_tags

GOLD = "checked texts alone"
ANSWERS = "answers as they are"
CHANNEL = "noise channel"

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


@dataclass(frozen=True)
class ChannelTraining:
    """Learns from texts with answers. `fold_training` trains its linear models."""

    fold_training: FoldTraining
    texts: AnsweredTexts

    def run(self) -> ChannelResult:
        """Compare the ways to learn, and compute the soft targets of all unchecked texts."""
        ways, temperature = self.compare_ways()
        first_docs = self.make_first_docs(temperature)
        texts, batches = self.predict_folds(first_docs)
        estimate = estimate_tables(batches, self.count_checked(self.texts.checked))
        return ChannelResult(
            estimate=estimate,
            docs=soft_docs(texts, batches, estimate.tables),
            corrections=self.count_corrections(texts, batches, estimate.tables),
            ways=ways,
        )

    def compare_ways(self) -> tuple[list[Way], Temperature]:
        """Score each way on the checked texts of each fold. Returns the scores, and the temperature
        of models of checked texts."""
        checked = self.texts.checked
        unchecked = self.texts.unchecked
        fold_of_checked = assign(checked)
        fold_of_unchecked = assign(unchecked)
        gold_models: list[LinearPipeline] = []
        predictions: dict[str, list[DevPredictions]] = {GOLD: [], ANSWERS: [], CHANNEL: []}
        for fold in range(N_FOLDS):
            model = self.train(docs_of(select(checked, fold_of_checked != fold)))
            gold_models.append(model)
            predictions[GOLD].append(predict(model, select(checked, fold_of_checked == fold)))
        temperature = find_temperature(predictions[GOLD])
        for fold in progress(range(N_FOLDS), desc="compare", unit="fold"):
            students = self.train_students(
                gold_models[fold],
                temperature,
                select(checked, fold_of_checked != fold),
                select(unchecked, fold_of_unchecked != fold),
            )
            held_out = select(checked, fold_of_checked == fold)
            for name, student in students.items():
                predictions[name].append(predict(student, held_out))
        ways = [score_way(name, of_folds) for name, of_folds in predictions.items()]
        return ways, temperature

    def make_first_docs(self, temperature: Temperature) -> list[Doc]:
        """Make soft targets of unchecked texts with a model of the checked texts."""
        model = self.train(docs_of(self.texts.checked))
        batches = self.make_batches(model, self.texts.unchecked, temperature)
        estimate = estimate_tables(batches, self.count_checked(self.texts.checked))
        return soft_docs(self.texts.unchecked, batches, estimate.tables)

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

    def train_students(
        self,
        gold_model: LinearPipeline,
        temperature: Temperature,
        checked: Sequence[AnsweredText],
        unchecked: Sequence[AnsweredText],
    ) -> dict[str, LinearPipeline]:
        """Train a student on answers as they are, and one by the channel.

        gold_model (LinearPipeline): A model of the checked texts.
        temperature (Temperature): Its temperature.
        checked (Sequence[AnsweredText]), unchecked (Sequence[AnsweredText]): The texts.
        RETURNS (dict[str, LinearPipeline]): The students by the name of the way.
        """
        gold = docs_of(checked)
        voted = [self.texts.voted_doc(text) for text in unchecked]
        batches = self.make_batches(gold_model, unchecked, temperature)
        estimate = estimate_tables(batches, self.count_checked(checked))
        soft = soft_docs(unchecked, batches, estimate.tables)
        return {ANSWERS: self.train([*gold, *voted]), CHANNEL: self.train([*gold, *soft])}

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
        self,
        texts: Sequence[AnsweredText],
        batches: Iterable[Batch],
        tables: Sequence[Floats3d],
    ) -> Corrections:
        """Count how the most probable entities of texts differ from the voted answers."""
        corrections = Corrections()
        remaining = iter(texts)
        for batch in batches:
            potentials = add_evidence(batch.potentials, batch.tags, batch.answers, tables)
            path = chain.best_path(potentials).tags
            first_token = 0
            for text in islice(remaining, batch.doc_of_sequence[-1] + 1):
                end = first_token + len(text.doc)
                corrected = self.entities(batch.tags, path[first_token:end])
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


def predict(model: LinearPipeline, texts: Iterable[AnsweredText]) -> DevPredictions:
    """Predict checked texts."""
    docs = docs_of(texts)
    copies = copies_for(model, docs)
    return predict_dev(model.nlp, model.ner, map(Example, copies, docs))


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


def soft_docs(
    texts: Sequence[AnsweredText], batches: Iterable[Batch], tables: Sequence[Floats3d]
) -> list[Doc]:
    """Copy texts, with the posterior given text and answers as soft targets.

    texts (Sequence[AnsweredText]): The texts.
    batches (Iterable[Batch]): The same texts in batches, in the same order.
    tables (Sequence[Floats3d]): The table of each annotator. Shape: (S, C, C)
    """
    docs = [copy_without_annotation(text.doc, sentences=True) for text in texts]
    remaining = iter(docs)
    for batch in batches:
        potentials = add_evidence(batch.potentials, batch.tags, batch.answers, tables)
        for targets in expectations(potentials, batch.tags, batch.doc_of_sequence):
            next(remaining).user_data[SOFT_TARGETS_KEY] = targets
    return docs
