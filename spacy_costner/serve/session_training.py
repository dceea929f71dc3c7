"""Train and evaluate the pipelines of an annotation session on its answers."""

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
from ..workflows.config.initial_config import init
from ..workflows.corpora import find_corpora
from ..workflows.fitting.linear_training import load_linear, prepare, train_linear
from ..workflows.sampling.expected_counts import expect_counts
from .store import AnnotationStore, Answer

COMPONENT = "ner"
"""The name of the component in the pipelines that `init` writes."""

LEAST_TEXTS = 10
"""The number of annotated texts that a first model needs."""

ENOUGH_EVALUATION_TEXTS = 30
"""From this number of annotated evaluation texts on, the page shows F on them, and advises to
calibrate on them."""

N_NEXT = 100
"""The number of additional texts for which the page shows the expected F."""

MODEL = "model"
"""The folder of the last pipeline, in the folder of the session."""


@dataclass(frozen=True)
class HistoryPoint:
    """The scores of a training.

    n_texts (int): The number of annotated texts that the model was trained on.
    n_entities (int): The number of entities in these texts.
    n_measured (int): The number of annotated evaluation texts.
    f (float | None): F on the evaluation texts. None if they are too few or have no entity.
    expected_f (float | None): The F that the model expects on texts without an answer. None if it
        predicts no entity there.
    seconds (float): The duration of the training.
    """

    n_texts: int
    n_entities: int
    n_measured: int
    f: float | None
    expected_f: float | None
    seconds: float


class FittedPipeline(NamedTuple):
    """A pipeline that was trained on answers.

    nlp (Language): The pipeline.
    training (dict[str, Any]): The block [training] of its config, resolved.
    loss (float): The last loss of the training: see `training.online.TrainingResult`.
    """

    nlp: Language
    training: dict[str, Any]
    loss: float


class TrainedPipeline(NamedTuple):
    """A pipeline that was trained on the answers, with its scores. For the other fields see
    `FittedPipeline`.

    point (HistoryPoint): The scores.
    """

    nlp: Language
    training: dict[str, Any]
    loss: float
    point: HistoryPoint


def fit_answers(
    store: AnnotationStore, answers: Sequence[Answer], *, lang: str, vectors_path: Path | None
) -> FittedPipeline:
    """Train the model of `fit`, but without a hidden layer, on answers.

    store (AnnotationStore): The session.
    answers (Sequence[Answer]): Answers of the session.
    lang (str): Code of the language.
    vectors_path (Path | None): The folder of the vectors of the session.
    RETURNS (FittedPipeline): The pipeline.
    """
    with store.working_folder() as folder:
        # The file of the session may get new answers while it is read.
        snapshot = folder / "train.jsonl"
        write_tasks(snapshot, [answer.task for answer in answers])
        vectors = None if vectors_path is None else str(vectors_path)
        text = init(folder / "config.cfg", lang=lang, train_path=snapshot, vectors=vectors)
        # A hidden layer over the vectors would take twice as long.
        overrides = {"components.ner.model.hidden": 0}
        linear = load_linear(Config().from_str(text, overrides=overrides))
        corpus, _ = find_corpora(linear.nlp)  # The second, for development, is not used.
        examples = prepare(linear, corpus)
    outcome = train_linear(linear, examples)
    # The snapshot is removed now, so the config names the file of the session.
    linear.nlp.config["paths"]["train"] = str(store.train_path)
    return FittedPipeline(linear.nlp, linear.training, outcome.value)


def f_on_answers(store: AnnotationStore, nlp: Language, answers: Sequence[Answer]) -> float | None:
    """Compute F of a pipeline on answers.

    store (AnnotationStore): The session.
    nlp (Language): The trained pipeline.
    answers (Sequence[Answer]): Answers of the session.
    RETURNS (float | None): F. None if no entity is annotated or predicted.
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
    """Compute the F that a pipeline expects on texts.

    nlp (Language): The trained pipeline.
    texts (Iterable[str]): The texts.
    RETURNS (float | None): F. None if the pipeline expects and predicts no entity.
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
    """Expect F of the model after `N_NEXT` more texts, from F of the last model.

    history (Sequence[Mapping[str, Any]]): The fields of the `HistoryPoint` of each training.
    RETURNS (dict[str, Any] | None): The number of texts and F. None if F of the last model wasn't
        measured.
    """
    last = history[-1] if history else {}
    f, n_texts = last.get("f"), last.get("n_texts")
    # Lines of a file that somebody has changed may have anything here.
    if not isinstance(f, float) or not isinstance(n_texts, int) or n_texts < 1:
        return None
    return {"n_texts": n_texts + N_NEXT, "f": expect_with_more(f, n_texts, N_NEXT)}


def load_session_model(path: Path) -> Language:
    """Load the last pipeline of a session.

    path (Path): The folder of the pipeline.
    RETURNS (Language): The pipeline.
    RAISES (ValueError): If the pipeline can't be loaded, for example because somebody has changed
        its files.
    """
    try:
        return spacy.load(path)
    except Exception as error:
        raise ValueError(
            f"{path}: expected the last pipeline of the session, but could not load it "
            f"({type(error).__name__}: {error}). Remove the folder to train a new pipeline"
        ) from error
