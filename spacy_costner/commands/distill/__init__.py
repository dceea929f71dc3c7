"""Distill teachers into a student: train it on what they predict for unlabelled text."""

import sys
from pathlib import Path
from time import perf_counter
from typing import Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_model, load_model_from_config, resolve_dot_names
from thinc.api import Config

from ...pipeline.targets import WEIGHT
from ...readers import read_docs
from ...saving import check_folder
from ...training import Step, fit_online
from ..runs import fingerprint
from .answers import (
    OnAnswers,
    answer,
    chain_of,
    is_file,
    leave_out_uncertain,
    prepare,
    read_file,
    read_raw,
    read_scores,
    save_answers,
    save_docs,
)

Corpus = Callable[[Language], Iterable[Example]]

SPARSE = "spacy_costner.SparseCRF.v1"


class Row(NamedTuple):
    """A teacher, all teachers, or the student, on the dev corpus.

    name (str): Its name.
    precision, recall, f_score (float): Its scores.
    tokens_per_second (float): Of the whole pipeline.
    megabytes (float): The size of its files.
    """

    name: str
    precision: float
    recall: float
    f_score: float
    tokens_per_second: float
    megabytes: float


class Distilled(NamedTuple):
    """A student that was trained and saved.

    path (Path): Where it is.
    n_docs (int): Number of docs with answers.
    n_entities (int): Number of entities in them that the student learned from.
    n_missing (int): Number of entities in them that are missing, as their confidence is too low.
    rows (List[Row]): The scores of teachers and student on the dev corpus.
    """

    path: Path
    n_docs: int
    n_entities: int
    n_missing: int
    rows: List[Row]


class Options(NamedTuple):
    """How to distill.

    soft (bool): Whether the student learns the probabilities of the teachers' paths in place of
        their entities.
    min_confidence (float): Entities with a lower confidence are missing annotation.
    gold_path (Optional[Path]): An annotated corpus that the student learns from, too.
    gold_weight (float): The weight of its docs.
    n_seeds (int): See `fit_online`.
    """

    soft: bool = False
    min_confidence: float = 0.0
    gold_path: Optional[Path] = None
    gold_weight: float = 1.0
    n_seeds: int = 1


def distill(
    teachers: Sequence[str],
    config: Config,
    raw_paths: Sequence[Path],
    output_path: Path,
    options: Options = Options(),  # noqa: B008
    *,
    on_answers: OnAnswers = lambda _: None,
    on_epoch: Callable[[Step], None] = lambda _: None,
) -> Distilled:
    """Train a student on what teachers predict for unlabelled text, and save it.

    teachers (Sequence[str]): Pipelines that set `doc.ents`, packages or folders; or one JSONL file
        of texts with entities, which anything has made.
    config (Config): The student's config, for `spacy train`. Its `paths.train` will be replaced.
    raw_paths (Sequence[Path]): The text: see `read_raw`. None with a JSONL file.
    output_path (Path): The folder of the answers, the corpus made of them, and the student.
    options (Options): How to distill.
    on_answers (Callable): Called with the answers, as they are made.
    on_epoch (Callable): See `fit_online`.
    RETURNS (Distilled): Where the student is, and scores.
    RAISES (ValueError): If arguments don't go together, or with the teachers or the student.
    """
    config = config.copy()
    check(teachers, config, raw_paths, options)
    for name in ("model-last", "model-best"):
        check_folder(output_path / name)
    names = [name for name in teachers if not is_file(name)]
    pipelines = [prepare(load_model(name)) for name in names]
    student = load_model_from_config(config, auto_fill=True)
    files = make_answers(
        teachers, pipelines, student, raw_paths, output_path, options.soft, on_answers
    )
    corpus, n_docs, n_entities, n_missing = make_corpus(student, files, output_path, options)
    config["paths"]["train"] = str(corpus)
    path = train_student(config, output_path, options.n_seeds, on_epoch)
    rows = compare(names, pipelines, path)
    return Distilled(path, n_docs, n_entities, n_missing, rows)


def check(
    teachers: Sequence[str], config: Config, raw_paths: Sequence[Path], options: Options
) -> None:
    """Check the arguments before any work.

    RAISES (ValueError): If they don't go together.
    """
    from_file = [name for name in teachers if is_file(name)]
    if from_file and (len(teachers) > 1 or raw_paths):
        raise ValueError(
            f"teacher: expected a file of answers without other teachers and raw text, got "
            f"{[*teachers, *map(str, raw_paths)]}"
        )
    if not from_file and not raw_paths:
        raise ValueError("raw: expected files of text for the teacher to annotate, got none")
    if options.soft and (from_file or options.min_confidence):
        got = from_file[0] if from_file else f"min_confidence {options.min_confidence}"
        raise ValueError(f"soft: expected pipelines as teachers and no min_confidence, got {got}")
    if options.n_seeds > 1 and not is_linear(config):
        raise ValueError(f"seeds: expected 1 for a student without {SPARSE}, got {options.n_seeds}")
    if "${paths.train}" not in config.to_str(interpolate=False):
        raise ValueError("student: expected a config whose training corpus is ${paths.train}")


def is_linear(config: Config) -> bool:
    """Whether the student is a linear model, which `fit_online` trains."""
    models = [block.get("model", {}) for block in config["components"].values()]
    return SPARSE in [model.get("@architectures") for model in models]


def make_answers(
    teachers: Sequence[str],
    pipelines: Sequence[Language],
    student: Language,
    raw_paths: Sequence[Path],
    output_path: Path,
    soft: bool,
    on_answers: OnAnswers,
) -> List[Path]:
    """Save the answers of teachers, in a folder with the fingerprint of teachers and text. What is
    there from an earlier run is used.

    RAISES (ValueError): If the teachers have no soft targets and are to have, or other labels.
    """
    if soft:
        chain_of(student)
        labels = {frozenset(chain_of(nlp).labels) for nlp in pipelines}
        if len(labels) > 1:
            raise ValueError(
                f"soft: expected teachers with the same labels, got {[*map(sorted, labels)]}"
            )
    places = [str(nlp.path) for nlp in pipelines] or list(teachers)
    configs = [nlp.config.to_str() for nlp in pipelines]
    key = fingerprint(places, configs, [*map(str, raw_paths)], soft)
    folder = output_path / f"answers-{key[:12]}"
    if not pipelines:
        docs = read_file(student, Path(teachers[0]))
        return save_answers(folder, docs, lambda docs: docs, on_answers)
    docs = read_raw(pipelines[0], raw_paths)
    return save_answers(folder, docs, lambda docs: answer(pipelines, docs, soft=soft), on_answers)


def make_corpus(
    student: Language, files: Sequence[Path], output_path: Path, options: Options
) -> Tuple[Path, int, int, int]:
    """Make a training corpus of answers and annotated docs.

    RETURNS (Tuple[Path, int, int, int]): Its folder, and the numbers of `Distilled`.
    RAISES (ValueError): If there are no answers, or all are of confidence 1 and may not be.
    """
    folder, scores = output_path / "train", {1.0}
    n_docs = n_entities = n_missing = 0
    for old in folder.glob("*.spacy"):
        old.unlink()
    for file in files:
        docs = list(DocBin().from_disk(file).get_docs(student.vocab))
        n_docs += len(docs)
        for doc in docs:
            scores.update(read_scores(doc).values())
            kept, left_out = leave_out_uncertain(doc, options.min_confidence)
            n_entities, n_missing = n_entities + kept, n_missing + left_out
        save_docs(folder / file.name, docs)
    if not n_docs:
        raise ValueError("expected text for the teacher to annotate, got no docs")
    if options.min_confidence and scores == {1.0}:
        raise ValueError(
            "min_confidence: expected a teacher with confidences, such as a cost_sensitive_ner, "
            "several teachers, or spans with a score in JSONL, got none below 1"
        )
    if options.gold_path is not None:
        gold = list(read_docs(student, options.gold_path))
        for doc in gold:
            doc.user_data[WEIGHT] = options.gold_weight
        save_docs(folder / "gold.spacy", gold)
    return folder, n_docs, n_entities, n_missing


def train_student(
    config: Config, output_path: Path, n_seeds: int, on_epoch: Callable[[Step], None]
) -> Path:
    """Train and save a student: a linear model as `costner fit --online` does, another one as
    `spacy train` does.

    RETURNS (Path): Where it is.
    """
    if is_linear(config):
        return fit_online(config, output_path, n_seeds=n_seeds, on_epoch=on_epoch).path
    train(init_nlp(config), output_path, stdout=sys.stderr)
    return output_path / "model-best"


def compare(teachers: Sequence[str], pipelines: Sequence[Language], path: Path) -> List[Row]:
    """Evaluate teachers and student on the student's dev corpus.

    teachers (Sequence[str]): The names of the teachers that are pipelines.
    pipelines (Sequence[Language]): The teachers, as they annotate.
    path (Path): The student.
    RETURNS (List[Row]): The teachers; all together, if there are several; the student.
    """
    nlp = load_model(path)
    config = nlp.config.interpolate()
    (corpus,) = resolve_dot_names(config, [config["training"]["dev_corpus"]])
    rows = [evaluate(name, load_model(name), corpus) for name in teachers]
    if len(rows) > 1:
        rows.append(evaluate_together(pipelines, rows, corpus))
    return [*rows, evaluate("student", nlp, corpus)]


def evaluate(name: str, nlp: Language, corpus: Corpus) -> Row:
    """Evaluate a pipeline."""
    examples = list(corpus(nlp))
    begin = perf_counter()
    docs = list(nlp.pipe([eg.predicted for eg in examples]))
    speed = sum(map(len, docs)) / (perf_counter() - begin)
    size = sum(file.stat().st_size for file in nlp.path.rglob("*") if file.is_file()) / 1e6
    return Row(name, *score(docs, examples), speed, size)


def evaluate_together(teachers: Sequence[Language], rows: Sequence[Row], corpus: Corpus) -> Row:
    """Evaluate the mean of teachers, each of which has its row."""
    examples = list(corpus(teachers[0]))
    docs = answer(teachers, [eg.predicted for eg in examples])
    seconds = sum(1 / row.tokens_per_second for row in rows)
    size = sum(row.megabytes for row in rows)
    return Row("all teachers", *score(docs, examples), 1 / seconds, size)


def score(docs: Iterable[Doc], examples: Iterable[Example]) -> Tuple[float, float, float]:
    """Precision, recall and F-score; 0 if nothing is annotated."""
    scores = get_ner_prf([Example(doc, eg.reference) for doc, eg in zip(docs, examples)])
    precision, recall, f_score = (scores[f"ents_{name}"] or 0.0 for name in "prf")
    return precision, recall, f_score
