"""Train and evaluate pipelines on the answers of an annotation session."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import spacy
from spacy.language import Language
from thinc.api import Config

from ..metrics.learning_curves import expect_with_more
from ..metrics.shift import expected_prf
from ..readers import examples_to_measure, make_reader, write_tasks
from ..readers.files import digest
from ..workflows.config.initial_config import init
from ..workflows.corpora import find_corpora
from ..workflows.fitting.linear_training import load_linear, prepare, train_linear
from ..workflows.sampling.expected_counts import expect_counts
from .store import AnnotationStore, Answer

COMPONENT = "ner"
"""The name of the NER component in the pipelines created by `init`."""

LEAST_TEXTS = 10
"""Minimum number of annotated texts for training a model."""

ENOUGH_EVALUATION_TEXTS = 30
"""Minimum number of annotated evaluation texts before the page shows the F-score and recommends
calibration."""

N_NEXT = 100
"""The number of additional training texts for which the page shows the expected F-score."""

MODEL = "model"
"""The directory in the session's folder that contains the last pipeline."""


@dataclass(frozen=True)
class HistoryPoint:
    """The scores of a training run.

    n_texts (int): The number of annotated texts used for training.
    n_entities (int): The number of entities in these texts.
    n_measured (int): The number of annotated evaluation texts.
    f (float | None): The F-score on the evaluation texts. None if there are too few of them, or if
        no entity is annotated or predicted.
    expected_f (float | None): The model's expected F-score on texts without an answer. None if no
        entity is predicted.
    seconds (float): The duration of the training run, in seconds.
    """

    n_texts: int
    n_entities: int
    n_measured: int
    f: float | None
    expected_f: float | None
    seconds: float


class FittedPipeline(NamedTuple):
    """A pipeline trained on answers.

    nlp (Language): The trained pipeline.
    training (dict[str, Any]): The resolved [training] block of its config.
    loss (float): The final training loss. See `training.online.TrainingResult`.
    """

    nlp: Language
    training: dict[str, Any]
    loss: float


class TrainedPipeline(NamedTuple):
    """A pipeline trained on answers, with its scores. See `FittedPipeline` for the other fields.

    point (HistoryPoint): The scores of the training run.
    """

    nlp: Language
    training: dict[str, Any]
    loss: float
    point: HistoryPoint


def fit_answers(
    store: AnnotationStore, answers: Sequence[Answer], *, lang: str, vectors_path: Path | None
) -> FittedPipeline:
    """Train a linear pipeline on answers. This trains the same model as `fit`, but without a hidden
    layer.

    store (AnnotationStore): The store of the session.
    answers (Sequence[Answer]): The answers to train on.
    lang (str): Language code.
    vectors_path (Path | None): The directory of the pipeline with the session's vectors, if any.
    RETURNS (FittedPipeline): The trained pipeline.
    """
    with store.working_folder() as folder:
        # Train on a snapshot, because answers may be added to the session's file in the meantime.
        snapshot = folder / "train.jsonl"
        write_tasks(snapshot, [answer.task for answer in answers])
        vectors = None if vectors_path is None else str(vectors_path)
        text = init(folder / "config.cfg", lang=lang, train_path=snapshot, vectors=vectors)
        # A hidden layer on top of the vectors would double the training time.
        overrides = {"components.ner.model.hidden": 0}
        linear = load_linear(Config().from_str(text, overrides=overrides))
        corpus, _ = find_corpora(linear.nlp)  # the dev corpus isn't used
        examples = prepare(linear, corpus)
    outcome = train_linear(linear, examples)
    # The snapshot no longer exists, so let the config refer to the session's file.
    linear.nlp.config["paths"]["train"] = str(store.train_path)
    return FittedPipeline(linear.nlp, linear.training, outcome.value)


def digest_answers(train_answers: Sequence[Answer], evaluation_answers: Sequence[Answer]) -> str:
    """Compute a digest of the answers that a model is trained and evaluated on. Metadata, such as
    the time of an answer, doesn't change the digest.

    train_answers (Sequence[Answer]): The answers to train on.
    evaluation_answers (Sequence[Answer]): The answers to evaluate on.
    RETURNS (str): The digest as hexadecimal digits.
    """
    return digest(
        [answer.task._replace(extra={}) for answer in train_answers],
        [answer.task._replace(extra={}) for answer in evaluation_answers],
    )


def f_on_answers(store: AnnotationStore, nlp: Language, answers: Sequence[Answer]) -> float | None:
    """Compute the F-score of a pipeline on the given answers.

    store (AnnotationStore): The store of the session.
    nlp (Language): The trained pipeline.
    answers (Sequence[Answer]): The answers to evaluate on.
    RETURNS (float | None): The F-score. None if no entity is annotated or predicted.
    """
    if not answers:
        return None
    with store.working_folder() as folder:
        snapshot = folder / "measure.jsonl"
        write_tasks(snapshot, [answer.task for answer in answers])
        examples = list(examples_to_measure(nlp, make_reader(snapshot)))
    f = nlp.evaluate(examples).get("ents_f")
    return None if f is None else float(f)


def expect_f(nlp: Language, texts: Iterable[str]) -> float | None:
    """Compute the expected F-score of a pipeline on unannotated texts, based on its probabilities.

    nlp (Language): The trained pipeline.
    texts (Iterable[str]): The unannotated texts.
    RETURNS (float | None): The expected F-score. None if no entity is expected or predicted.
    """
    docs = [nlp.make_doc(text) for text in texts]
    # Sums over all docs and labels
    n_correct = 0.0
    n_predicted = 0.0
    n_annotated = 0.0
    for _, counts in expect_counts(nlp, COMPONENT, docs):
        n_correct += float(counts.correct.sum())
        n_predicted += float(counts.predicted.sum())
        n_annotated += float(counts.annotated.sum())
    return expected_prf([n_correct, n_predicted, n_annotated])["f"]


def expect_next(history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Estimate the F-score after annotating `N_NEXT` more texts, based on the last model's F-score.

    history (Sequence[Mapping[str, Any]]): The `HistoryPoint` of each training run, as a dict.
    RETURNS (dict[str, Any] | None): The number of texts and the expected F-score. None if the last
        model's F-score is unknown.
    """
    last = history[-1] if history else {}
    f, n_texts = last.get("f"), last.get("n_texts")
    # The user may have edited the history, so the values may have any type.
    if not isinstance(f, float) or not isinstance(n_texts, int) or n_texts < 1:
        return None
    return {"n_texts": n_texts + N_NEXT, "f": expect_with_more(f, n_texts, N_NEXT)}


def load_session_model(path: Path) -> Language:
    """Load the last pipeline of a session.

    path (Path): The directory of the pipeline.
    RETURNS (Language): The loaded pipeline.
    RAISES (ValueError): If the pipeline can't be loaded, for example because its files were
        modified.
    """
    try:
        return spacy.load(path)
    except Exception as error:
        raise ValueError(
            f"{path}: expected the last pipeline of the session, but could not load it "
            f"({type(error).__name__}: {error}). Remove the folder to train a new pipeline"
        ) from error
