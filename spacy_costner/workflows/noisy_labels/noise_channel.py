"""Learn from annotators who make mistakes, given some checked texts.

A model provides a distribution over the tags of each text, and the noise channel adds the evidence
from the annotators' answers (see `training.noise_channel`). The exact posterior given text and
answers is the soft target of an unchecked text. A student is trained on these soft targets and on
the checked texts.

Texts are divided into two folds, so that no text is predicted by a model that was trained on it:

1. The initial distribution over an unchecked text combines two models. One is trained on the
   checked texts, and the other is trained on the unmodified answers for the texts of the other
   fold.
2. A student is trained for each fold, on the posterior and the checked texts. Its distribution over
   the texts of the other fold replaces the initial one.

Before that, the same procedure is run with the checked texts of each fold held out. The predictions
for these texts are used to estimate how reliable each model and annotator is (see
`evidence_weights`), and whether the channel is better than using only the checked texts, or the
unmodified answers. Methods are compared by the log-probability of the annotation, because F-scores
vary too much on few texts to show that annotators are too weak to be useful.
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
from thinc.types import Array1d, Floats1d, Floats3d, Ints1d

from ... import chain
from ...annotation.equal_texts import assign_folds, number_texts
from ...annotation.tokens import first_words, read_token_attrs
from ...metrics import f_score, precision, recall
from ...pipeline.scorers import Entity
from ...progress import progress
from ...readers.sentences import copy_without_annotation
from ...training.noise_channel import (
    Answers,
    Batch,
    Estimate,
    count_tags,
    estimate_tables,
    make_answers,
    observed_tag_of,
)
from ...training.soft_targets import SOFT_TARGETS_KEY, expectations
from ...types import Potentials
from ..calibration.temperature import predict_best
from ..evaluation.predictions import DevPredictions, predict_dev
from ..fitting.folds import FoldTraining
from ..fitting.linear_training import LinearPipeline
from .answered_texts import (
    DOCS_PER_BATCH,
    AnsweredText,
    AnsweredTexts,
    entities_of_path,
)
from .evidence_weights import (
    CheckedBatch,
    evidence_parts,
    fit_weights,
    log_probs_of_gold,
    pool,
)
from .teachers import overlap

GOLD = "checked texts alone"
ANSWERS = "answers as they are"
CHANNEL = "noise channel"
METHODS = (GOLD, ANSWERS, CHANNEL)
"""The methods for learning from checked texts and answers."""

N_FOLDS = 2


class MethodScores(NamedTuple):
    """The scores of one of `METHODS` on checked texts that its models were not trained on.

    name (str): The name of the method.
    precision (float), recall (float), f_score (float): The scores of the predicted entities.
    log_prob (float): The log-probability of the annotation, in nats per token, after temperature
        scaling.
    lead (float): The difference from the log-probability of the channel.
    lead_error (float): The standard error of the difference, from the differences of the docs.
    """

    name: str
    precision: float
    recall: float
    f_score: float
    log_prob: float
    lead: float
    lead_error: float


class Corrections(NamedTuple):
    """The differences between the most probable entities given text and answers, and the majority
    vote of the answers.

    n_added (int): Number of entities that don't overlap any entity in the majority vote.
    n_dropped (int): Number of entities in the majority vote that don't overlap any corrected
        entity.
    n_changed (int): Number of entities that overlap an entity in the majority vote, but have a
        different label or boundary.
    """

    n_added: int = 0
    n_dropped: int = 0
    n_changed: int = 0


class ChannelResult(NamedTuple):
    """The result of learning from annotators.

    estimate (Estimate): The estimated table of each annotator.
    docs (list[Doc]): The unchecked texts with soft targets.
    corrections (Corrections): The differences from the majority vote of the answers.
    methods (list[MethodScores]): The scores of each method.
    """

    estimate: Estimate
    docs: list[Doc]
    corrections: Corrections
    methods: list[MethodScores]


class Comparison(NamedTuple):
    """A comparison of the methods on held-out checked texts.

    methods (list[MethodScores]): The scores of each method.
    weights_of_models (Floats1d): The weights of the model trained on checked texts and the model
        trained on answers. Shape: (2,)
    first_weights (Floats1d): The weight of the two models combined, and of each annotator.
        Shape: (J + 1,)
    weights_of_students (Floats1d): The weight of the students, and of each annotator.
        Shape: (J + 1,)
    """

    methods: list[MethodScores]
    weights_of_models: Floats1d
    first_weights: Floats1d
    weights_of_students: Floats1d


@dataclass
class Fold:
    """The texts of a fold, and models trained on the texts of the other fold.

    checked (list[AnsweredText]): The checked texts.
    unchecked (list[AnsweredText]): The unchecked texts.
    models (dict[str, LinearPipeline]): The model of each method. The model of `ANSWERS` is not
        trained on any checked texts.
    tables (list[Floats3d]): The table of each annotator, estimated from the texts of the other
        fold. Shape: (S, C, C)
    """

    checked: list[AnsweredText]
    unchecked: list[AnsweredText]
    models: dict[str, LinearPipeline] = field(default_factory=dict)
    tables: list[Floats3d] = field(default_factory=list)

    def predict(self, method: str) -> DevPredictions:
        """Predict the checked texts of the fold with the model of a method."""
        model = self.models[method]
        docs = docs_of(self.checked)
        return predict_dev(model.nlp, model.ner, map(Example, copies_for(model, docs), docs))


@dataclass(frozen=True)
class ChannelTraining:
    """Trains models on texts with answers. `fold_training` defines how the linear models are
    trained."""

    fold_training: FoldTraining
    texts: AnsweredTexts

    def run(self) -> ChannelResult:
        """Compare the methods, and compute soft targets for all unchecked texts."""
        folds = self.make_folds()
        comparison = self.compare_methods(folds)
        first_docs = self.make_first_docs(folds, comparison)
        batches = self.predict_folds(folds, first_docs)
        estimate = estimate_tables(batches, self.count_checked(self.texts.checked))
        posteriors = weigh(batches, estimate.tables, comparison.weights_of_students)
        texts = unchecked_texts(folds)
        return ChannelResult(
            estimate=estimate,
            docs=soft_docs(texts, posteriors),
            corrections=self.count_corrections(texts, posteriors),
            methods=comparison.methods,
        )

    def make_folds(self) -> list[Fold]:
        """Divide the texts into two folds, and train the initial models of each fold."""
        fold_of_checked = assign_to_folds(self.texts.checked)
        fold_of_unchecked = assign_to_folds(self.texts.unchecked)
        folds: list[Fold] = []
        for number in range(N_FOLDS):
            checked = select(self.texts.checked, fold_of_checked == number)
            unchecked = select(self.texts.unchecked, fold_of_unchecked == number)
            folds.append(Fold(checked, unchecked))
        for fold, other in progress(with_other(folds), desc="first models", unit="fold"):
            fold.models[GOLD] = self.train(docs_of(other.checked))
            fold.models[ANSWERS] = self.train(map(self.texts.voted_doc, other.unchecked))
        return folds

    def compare_methods(self, folds: Sequence[Fold]) -> Comparison:
        """Estimate the weights of models and annotators on the checked texts of each fold, and
        score each method on these texts. A student trained with the channel is added to the models
        of each fold."""
        weights_of_models = self.find_weights_of_models(folds)

        # The unchecked texts of the other fold are predicted by the other fold's model of answers,
        # because it was not trained on them.
        batches_of_folds: list[list[Batch]] = []
        checked_batches: list[CheckedBatch] = []
        for fold, other in with_other(folds):
            models = [fold.models[GOLD], other.models[ANSWERS]]
            batches = self.pool_models(models, other.unchecked, weights_of_models)
            fold.tables = estimate_tables(batches, self.count_checked(other.checked)).tables
            batches_of_folds.append(batches)
            models = [fold.models[GOLD], fold.models[ANSWERS]]
            predicted = self.pool_models(models, fold.checked, weights_of_models)
            checked_batches += self.with_evidence(fold, predicted)
        first_weights = fit_weights(checked_batches)

        checked_batches = []
        pairs = progress(with_other(folds), desc="compare", unit="fold")
        for (fold, other), batches in zip(pairs, batches_of_folds):
            soft = soft_docs(other.unchecked, weigh(batches, fold.tables, first_weights))
            fold.models[CHANNEL] = self.train([*docs_of(other.checked), *soft])
            predicted = self.make_batches(fold.models[CHANNEL], fold.checked)
            checked_batches += self.with_evidence(fold, predicted)
        return Comparison(
            methods=self.score_methods(folds),
            weights_of_models=weights_of_models,
            first_weights=first_weights,
            weights_of_students=fit_weights(checked_batches),
        )

    def score_methods(self, folds: Sequence[Fold]) -> list[MethodScores]:
        """Score the models of each method on the checked texts of each fold."""
        n_tokens = sum(len(text.doc) for text in self.texts.checked)
        log_probs = {method: self.find_log_probs(method, folds) for method in METHODS}
        methods: list[MethodScores] = []
        for name in METHODS:
            counts = [count_matches(fold.predict(name)) for fold in folds]
            tp, fp, fn = numpy.sum(counts, axis=0)
            leads = log_probs[name] - log_probs[CHANNEL]
            scores = MethodScores(
                name,
                float(precision(tp, fp)),
                float(recall(tp, fn)),
                float(f_score(tp, fp, fn)),
                log_prob=float(log_probs[name].sum()) / n_tokens,
                lead=float(leads.sum()) / n_tokens,
                lead_error=float(leads.std() * numpy.sqrt(len(leads))) / n_tokens,
            )
            methods.append(scores)
        return methods

    def find_log_probs(self, method: str, folds: Sequence[Fold]) -> Floats1d:
        """Compute the log-probability of the annotation of each checked doc that isn't empty, in
        nats, by the models of a method, after temperature scaling. Shape: (docs,)"""
        batches: list[Batch] = []
        checked_batches: list[CheckedBatch] = []
        for fold in folds:
            predicted = self.make_batches(fold.models[method], fold.checked)
            parts_of_batches = [[batch.potentials] for batch in predicted]
            batches += predicted
            checked_batches += self.with_annotation(fold, predicted, parts_of_batches)
        # A single weight is an inverse temperature. Models trained on few texts are overconfident.
        weight = fit_weights(checked_batches)
        log_probs: list[Floats1d] = []
        for batch, checked in zip(batches, checked_batches):
            log_probs_of_sequences, _ = log_probs_of_gold(checked, weight)
            log_probs.append(numpy.bincount(batch.doc_of_sequence, log_probs_of_sequences))
        return numpy.concatenate(log_probs)

    def find_weights_of_models(self, folds: Sequence[Fold]) -> Floats1d:
        """Estimate the weights of the models trained on checked texts and on answers.
        Shape: (2,)"""
        checked_batches: list[CheckedBatch] = []
        for fold in folds:
            by_gold_model = self.make_batches(fold.models[GOLD], fold.checked)
            by_answer_model = self.make_batches(fold.models[ANSWERS], fold.checked)
            parts_of_batches: list[list[Potentials]] = []
            for batches in zip(by_gold_model, by_answer_model):
                parts_of_batches.append([batch.potentials for batch in batches])
            checked_batches += self.with_annotation(fold, by_gold_model, parts_of_batches)
        return fit_weights(checked_batches)

    def with_evidence(self, fold: Fold, predicted: Sequence[Batch]) -> list[CheckedBatch]:
        """Add the evidence of each annotator to the predicted checked texts of a fold. This is used
        to estimate the weights of the model and the annotators."""
        parts_of_batches: list[list[Potentials]] = []
        for batch in predicted:
            parts_of_batches.append([batch.potentials, *evidence_parts(batch, fold.tables)])
        return self.with_annotation(fold, predicted, parts_of_batches)

    def with_annotation(
        self,
        fold: Fold,
        predicted: Sequence[Batch],
        parts_of_batches: Sequence[Sequence[Potentials]],
    ) -> list[CheckedBatch]:
        """Combine the parts of a fold's checked texts with the gold annotation.

        RAISES (ValueError): If the log-probability of the annotation of a text isn't finite. The
            methods couldn't be compared.
        """
        checked_batches: list[CheckedBatch] = []
        texts_of_batches = minibatch(fold.checked, DOCS_PER_BATCH)
        for texts, batch, parts in zip(texts_of_batches, predicted, parts_of_batches):
            path = numpy.concatenate([text.true_tags for text in texts])
            is_same = path[:, None] == observed_tag_of(batch.tags)
            is_missing = path < 0  # all tags are allowed
            checked = CheckedBatch(parts, is_same | is_missing[:, None])
            check_is_finite(checked, texts, batch.doc_of_sequence)
            checked_batches.append(checked)
        return checked_batches

    def make_first_docs(self, folds: Sequence[Fold], comparison: Comparison) -> list[Doc]:
        """Compute the initial soft targets for the unchecked texts of all folds, using a model
        trained on all checked texts."""
        gold_model = self.train(docs_of(self.texts.checked))
        batches: list[Batch] = []
        for fold in folds:
            models = [gold_model, fold.models[ANSWERS]]
            batches += self.pool_models(models, fold.unchecked, comparison.weights_of_models)
        estimate = estimate_tables(batches, self.count_checked(self.texts.checked))
        posteriors = weigh(batches, estimate.tables, comparison.first_weights)
        return soft_docs(unchecked_texts(folds), posteriors)

    def predict_folds(self, folds: Sequence[Fold], first_docs: Sequence[Doc]) -> list[Batch]:
        """Predict labels for the unchecked texts of each fold with a student trained on all checked
        texts and on the initial soft targets of the other fold."""
        n_first = len(folds[0].unchecked)
        docs_of_others = (first_docs[n_first:], first_docs[:n_first])
        batches: list[Batch] = []
        for fold, docs in progress(list(zip(folds, docs_of_others)), desc="folds", unit="fold"):
            student = self.train([*docs_of(self.texts.checked), *docs])
            batches += self.make_batches(student, fold.unchecked)
        return batches

    def pool_models(
        self, models: Sequence[LinearPipeline], texts: Sequence[AnsweredText], weights: Floats1d
    ) -> list[Batch]:
        """Predict texts with a combination of models: the weighted sum of their scores. Shape of
        the weights: (models,)"""
        pooled: list[Batch] = []
        batches_of_models = [self.make_batches(model, texts) for model in models]
        for batches in zip(*batches_of_models):
            potentials = pool([batch.potentials for batch in batches], weights)
            pooled.append(batches[0]._replace(potentials=potentials))
        return pooled

    def train(self, docs: Iterable[Doc]) -> LinearPipeline:
        """Train a model on docs."""
        # `train` copies the predicted docs without their annotation, so the same doc can be used
        # twice.
        return self.fold_training.train(Example(doc, doc) for doc in docs)

    def count_checked(self, checked: Sequence[AnsweredText]) -> list[Floats3d]:
        """Count the tags that each annotator assigns in checked texts. Shape for each annotator:
        (S, C, C)"""
        true_tags = numpy.concatenate([text.true_tags for text in checked])
        # The probability of each true tag. If annotation is missing, it is 0 for all tags.
        n_observed = 2 * len(self.texts.labels) + 1
        probs = (true_tags[:, None] == numpy.arange(n_observed)).astype("float64")
        lengths = numpy.asarray([len(text.doc) for text in checked])
        return [count_tags(answers, probs) for answers in self.join_answers(checked, lengths)]

    def join_answers(self, texts: Sequence[AnsweredText], lengths: Ints1d) -> list[Answers]:
        """Concatenate each annotator's answers for the texts. `lengths` contains the lengths of the
        texts' sequences. Shape: (B,)"""
        answers: list[Answers] = []
        for annotator in range(len(self.texts.annotators)):
            tags = numpy.concatenate([text.observed[annotator] for text in texts])
            answers.append(make_answers(tags, lengths))
        return answers

    def make_batches(self, model: LinearPipeline, texts: Sequence[AnsweredText]) -> list[Batch]:
        """Compute a model's distribution over the tag paths of texts, and add the annotators'
        answers to each batch. As in training, checked texts are not cut within gold entities,
        because these would be impossible."""
        batches: list[Batch] = []
        for batch_of_texts in minibatch(texts, DOCS_PER_BATCH):
            docs = docs_of(batch_of_texts)
            posterior = model.ner.posterior(copies_for(model, docs))
            # `cut` doesn't split the entities that are set on docs. Unchecked texts have none.
            lengths, doc_of_sequence = model.ner.annotation.cut(docs, read_token_attrs(docs))
            potentials = posterior.potentials._replace(lengths=lengths)
            answers = self.join_answers(batch_of_texts, lengths)
            batches.append(Batch(potentials, posterior.tags, answers, doc_of_sequence))
        return batches

    def count_corrections(
        self, texts: Sequence[AnsweredText], posteriors: Iterable[Batch]
    ) -> Corrections:
        """Count the differences between the most probable entities of texts and the majority
        vote."""
        corrections = Corrections()
        remaining = iter(texts)
        for posterior in posteriors:
            path = chain.best_path(posterior.potentials).tags
            first_token = 0
            for text in islice(remaining, posterior.doc_of_sequence[-1] + 1):
                end = first_token + len(text.doc)
                corrected = entities_of_path(posterior.tags, path[first_token:end])
                first_token = end
                new = count_differences(self.texts.vote(text), corrected)
                corrections = Corrections(*map(add, corrections, new))
        return corrections


def count_differences(voted: Iterable[Entity], corrected: Iterable[Entity]) -> Corrections:
    """Count the differences between the corrected entities of a text and the majority vote."""
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


def with_other(folds: Sequence[Fold]) -> list[tuple[Fold, Fold]]:
    """Pair each fold with the other fold."""
    return list(zip(folds, reversed(folds)))


def unchecked_texts(folds: Sequence[Fold]) -> list[AnsweredText]:
    """Return the unchecked texts of all folds, in the order of the folds."""
    return [text for fold in folds for text in fold.unchecked]


def assign_to_folds(texts: Sequence[AnsweredText]) -> Ints1d:
    """Assign texts to two folds, with identical texts in the same fold. Shape: (texts,)"""
    return assign_folds(number_texts(text.doc for text in texts), N_FOLDS, seed=0)


def select(texts: Sequence[AnsweredText], mask: Array1d) -> list[AnsweredText]:
    """Return the texts for which the mask is True. Shape of the mask: (texts,)"""
    return list(compress(texts, mask))


def copies_for(model: LinearPipeline, docs: Iterable[Doc]) -> list[Doc]:
    """Copy docs without annotation, to be predicted by a model."""
    return [copy_without_annotation(doc, model.nlp.vocab, sentences=True) for doc in docs]


def docs_of(texts: Iterable[AnsweredText]) -> list[Doc]:
    """Return the docs of the given texts."""
    return [text.doc for text in texts]


def count_matches(dev: DevPredictions) -> Floats1d:
    """Count the true positives, false positives and false negatives of predictions. Shape: (3,)"""
    predicted = predict_best(dev)
    n_correct = predicted.is_correct.sum()
    n_predicted = len(predicted.is_correct)
    n_missed = dev.n_annotated - n_correct
    return numpy.asarray([n_correct, n_predicted - n_correct, n_missed], "float64")


def check_is_finite(
    checked: CheckedBatch, texts: Sequence[AnsweredText], doc_of_sequence: Ints1d
) -> None:
    """Check that the log-probability of the annotation of each checked text is finite, with the
    same weight for all parts. `doc_of_sequence` is the text of each sequence. Shape: (B,)

    RAISES (ValueError): If it isn't finite for a text.
    """
    log_probs, _ = log_probs_of_gold(checked, numpy.ones(len(checked.parts)))
    is_finite = numpy.isfinite(log_probs)
    if not is_finite.all():
        sequence = numpy.flatnonzero(~is_finite)[0]
        doc = texts[doc_of_sequence[sequence]].doc
        raise ValueError(
            "gold_path: expected annotation with a finite log-probability, got "
            f"{log_probs[sequence]} for {first_words(doc)}"
        )


def choose_method(methods: Sequence[MethodScores]) -> MethodScores:
    """Choose the noise channel, unless the log-probability of another method is higher by more than
    one standard error. If this applies to several methods, choose the highest log-probability."""
    (channel,) = (method for method in methods if method.name == CHANNEL)
    better = [method for method in methods if method.lead > method.lead_error]
    return max(better, key=lambda method: method.log_prob, default=channel)


def weigh(batches: Iterable[Batch], tables: Sequence[Floats3d], weights: Floats1d) -> list[Batch]:
    """Compute the weighted posterior of texts given their answers: see `evidence_weights`.

    batches (Iterable[Batch]): The texts.
    tables (Sequence[Floats3d]): The table of each annotator. Shape: (S, C, C)
    weights (Floats1d): The weights of the model and of each annotator. Shape: (J + 1,)
    RETURNS (list[Batch]): The texts, with the scores of the posterior.
    """
    posteriors: list[Batch] = []
    for batch in batches:
        potentials = pool([batch.potentials, *evidence_parts(batch, tables)], weights)
        posteriors.append(batch._replace(potentials=potentials))
    return posteriors


def soft_docs(texts: Sequence[AnsweredText], posteriors: Iterable[Batch]) -> list[Doc]:
    """Copy texts, and add soft targets computed from their posteriors, which are in the same
    order."""
    docs = [copy_without_annotation(text.doc, sentences=True) for text in texts]
    remaining = iter(docs)
    for posterior in posteriors:
        targets_of_docs = expectations(
            posterior.potentials, posterior.tags, posterior.doc_of_sequence
        )
        for targets in targets_of_docs:
            next(remaining).user_data[SOFT_TARGETS_KEY] = targets
    return docs
