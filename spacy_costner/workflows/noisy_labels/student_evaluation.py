"""Evaluate a student and its teachers on the same docs."""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import NamedTuple

from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_model

from ..corpora import Corpus
from .teachers import ask_teachers


class Evaluation(NamedTuple):
    """The evaluation of a teacher, all teachers or the student on the development corpus: scores,
    speed of the whole pipeline, and size on disk."""

    name: str
    precision: float
    recall: float
    f_score: float
    tokens_per_second: float
    megabytes: float


def evaluate_all(
    teachers: Sequence[str],
    pipelines: Sequence[Language],
    student: Language,
    dev_corpus: Corpus,
) -> list[Evaluation]:
    """Evaluate each teacher, the combination of several teachers, and the student on the
    development corpus of the student's config.

    teachers (Sequence[str]): The names or folders of the teachers. Empty if answers were read from
        a file.
    pipelines (Sequence[Language]): The teachers loaded by `load_teacher`.
    student (Language): The student, loaded from disk to measure its size and speed.
    dev_corpus (Corpus): The development corpus.
    RETURNS (list[Evaluation]): The evaluations of the teachers, all teachers, and the student.
    """
    rows: list[Evaluation] = []
    # Load the teachers again to measure their speed. The teachers in `pipelines` are slower,
    # because they also compute the probabilities of alternatives.
    for name in teachers:
        rows.append(evaluate_pipeline(name, load_model(name), dev_corpus))
    if len(rows) > 1:
        rows.append(evaluate_together(pipelines, rows, dev_corpus))
    rows.append(evaluate_pipeline("student", student, dev_corpus))
    return rows


def evaluate_pipeline(name: str, nlp: Language, corpus: Corpus) -> Evaluation:
    """Evaluate a pipeline that was loaded from disk, and measure its speed and size.

    name (str): The name to use in the results.
    nlp (Language): The pipeline.
    corpus (Corpus): The evaluation corpus.
    RETURNS (Evaluation): The scores, speed and size.
    """
    examples = list(corpus(nlp))
    start = perf_counter()
    docs = list(nlp.pipe([eg.predicted for eg in examples]))
    seconds = perf_counter() - start
    n_tokens = sum(map(len, docs))
    n_bytes = 0
    for path in nlp.path.rglob("*"):
        if path.is_file():
            n_bytes += path.stat().st_size
    precision, recall, f_score = score_ents(docs, examples)
    return Evaluation(name, precision, recall, f_score, n_tokens / seconds, n_bytes / 1e6)


def evaluate_together(
    teachers: Sequence[Language], rows: Sequence[Evaluation], corpus: Corpus
) -> Evaluation:
    """Evaluate the combined predictions of teachers. The teachers run one after another, so their
    times per token and their sizes are summed.

    teachers (Sequence[Language]): The teachers, which must write probabilities: see `load_teacher`.
    rows (Sequence[Evaluation]): The evaluation of each teacher, for speed and size.
    corpus (Corpus): The evaluation corpus.
    RETURNS (Evaluation): The scores, speed and size.
    """
    examples = list(corpus(teachers[0]))  # tokenized by the first teacher, as in `save_answers`
    docs = ask_teachers(teachers, [eg.predicted for eg in examples])
    precision, recall, f_score = score_ents(docs, examples)
    seconds_per_token = 0.0
    megabytes = 0.0
    for row in rows:
        seconds_per_token += 1 / row.tokens_per_second
        megabytes += row.megabytes
    return Evaluation("all teachers", precision, recall, f_score, 1 / seconds_per_token, megabytes)


class EntityScores(NamedTuple):
    """The scores of the entities in docs."""

    precision: float
    recall: float
    f_score: float


def score_ents(docs: Iterable[Doc], examples: Iterable[Example]) -> EntityScores:
    """Evaluate the entities in docs against the reference docs of the examples. The scores are 0 if
    there is no annotation."""
    predicted_examples = [Example(doc, eg.reference) for doc, eg in zip(docs, examples)]
    scores = get_ner_prf(predicted_examples)
    return EntityScores(
        precision=scores["ents_p"] or 0.0,
        recall=scores["ents_r"] or 0.0,
        f_score=scores["ents_f"] or 0.0,
    )
