"""Distill teachers into a student: their answers become its training corpus."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.training import Example
from spacy.util import (
    dot_to_object,
    load_model,
    load_model_from_config,
    minibatch,
    resolve_dot_names,
)
from thinc.api import Config

from ..pipeline.annotations import Confidence
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers import read_docs, read_tasks, read_texts, task_to_doc
from ..readers.context import DEFAULTS, Context, CorpusInfo
from ..readers.files import shown
from ..readers.sentences import copy_tokens
from ..saving import check_folder, save_file
from ..token_attrs import first_words
from ..training import soft_targets
from ..training.targets import WEIGHT
from .fitting import train_as_fitted
from .predictions import check_ents
from .preparation import is_fitted
from .runs import fingerprint

SPANS_KEY = "spacy_costner.answers"
"""The key in `doc.spans` of what teachers take for entities, with their confidence."""

JSONL = (".jsonl", ".json")

LEAST = 0.05
"""Entities of a lower probability that a teacher doesn't predict are left out."""

N_DOCS = 250
"""The docs of a file of answers."""

Corpus = Callable[[Language], Iterable[Example]]


Entity = tuple[int, int, str]
"""The first token, the token after the last, and the label."""


class Row(NamedTuple):
    """A teacher, all teachers, or the student, on the dev corpus: scores, speed of the whole
    pipeline, and size of its files."""

    name: str
    precision: float
    recall: float
    f_score: float
    tokens_per_second: float
    megabytes: float


class Distilled(NamedTuple):
    """A student that was trained and saved."""

    path: Path
    n_docs: int  # those with answers
    n_entities: int  # those that the student learned from
    n_missing: int  # those that are missing, as their confidence is too low
    rows: list[Row]


def distill(
    teachers: Sequence[str],
    config: Config,
    raw_paths: Sequence[Path],
    output_path: Path,
    *,
    soft: bool = False,
    min_confidence: float = 0.0,
    gold_path: Path | None = None,
    gold_weight: float = 1.0,
    n_seeds: int = 1,
) -> Distilled:
    """Train a student on what teachers predict for unlabelled text, and save it.

    teachers (Sequence[str]): Pipelines that set `doc.ents`, packages or folders; or one JSONL file
        of texts with entities, which anything has made.
    config (Config): The student's config, for `spacy train`. Its `paths.train` will be replaced.
    raw_paths (Sequence[Path]): The text: see `read_texts`. None with a JSONL file.
    output_path (Path): The folder of the answers, the corpus made of them, and the student.
    soft (bool): Learn the probabilities of the teachers, not their entities.
    min_confidence (float): Less certain entities are missing, not O.
    gold_path (Path | None): Annotated corpus to learn from, too.
    gold_weight (float): Its docs' weight.
    n_seeds (int): Train a linear student so many times: see `fit`.
    RETURNS (Distilled): Where the student is, and scores.
    RAISES (ValueError): If arguments don't go together, or with the teachers or the student.
    """
    config = config.copy()
    is_file = [Path(name).suffix in JSONL for name in teachers]
    if any(is_file) and (len(teachers) > 1 or raw_paths):
        raise ValueError(
            f"teacher: expected a file of answers without other teachers and raw text, got "
            f"{[*teachers, *map(str, raw_paths)]}"
        )
    if not any(is_file) and not raw_paths:
        raise ValueError("raw: expected files of text for the teacher to annotate, got none")
    if soft and (any(is_file) or min_confidence):
        got = teachers[0] if any(is_file) else f"min_confidence {min_confidence}"
        raise ValueError(f"soft: expected pipelines as teachers and no min_confidence, got {got}")
    if n_seeds > 1 and not is_fitted(config):
        raise ValueError(f"seeds: expected 1 for a student that `fit` can't train, got {n_seeds}")
    if "${paths.train}" not in config.to_str(interpolate=False):
        raise ValueError("student: expected a config whose training corpus is ${paths.train}")
    for name in ("model-last", "model-best"):
        check_folder(output_path / name)
    student = load_model_from_config(config, auto_fill=True)
    for _, pipe in student.pipeline:
        if isinstance(pipe, CostSensitiveNER):
            check_ents("distill", pipe)
    check_dev(student)
    pipelines = [] if any(is_file) else [load_teacher(name) for name in teachers]
    if pipelines:
        answers = save_answers(pipelines, student, raw_paths, output_path, soft=soft)
    else:
        answers = read_answers(student, Path(teachers[0]))
    corpus = output_path / "train"
    numbers = save_corpus(corpus, answers, min_confidence)
    if gold_path is not None:
        save_gold(corpus, read_docs(student, gold_path), gold_weight)
    config["paths"]["train"] = str(corpus)
    path = train_as_fitted(config, output_path, sys.stderr, n_seeds=n_seeds)

    # Evaluate the teachers, all of them together if there are several, and the student.
    nlp = load_model(path)
    config = nlp.config.interpolate()
    (corpus,) = resolve_dot_names(config, [config["training"]["dev_corpus"]])
    rows = [evaluate(name, load_model(name), corpus) for name in teachers if pipelines]
    if len(rows) > 1:
        rows.append(evaluate_together(pipelines, rows, corpus))
    return Distilled(path, *numbers, [*rows, evaluate("student", nlp, corpus)])


def check_dev(student: Language) -> None:
    """Check, before anything is trained, that there are docs to compare teachers and student on."""
    config = student.config.interpolate()
    name = config["training"]["dev_corpus"]
    block = dot_to_object(config, name)
    if isinstance(block, dict) and block.get("path", "") is None:
        raise ValueError(
            f"distill: {name}: expected a development corpus, to compare teachers and student on, "
            "got none: name one with --paths.dev"
        )


def load_teacher(name: str | Path) -> Language:
    """Load a pipeline that writes probabilities, of other likely entities, too."""
    nlp = load_model(name)
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER):
            check_ents("distill", pipe)
            pipe.set_confidence(Confidence(alternatives=LEAST))
    return nlp


def save_answers(
    pipelines: Sequence[Language],
    student: Language,
    raw_paths: Sequence[Path],
    output_path: Path,
    *,
    soft: bool = False,
) -> Iterator[Doc]:
    """Save the answers of teachers, a file for each `N_DOCS` docs, in a folder with the fingerprint
    of teachers and text. Files that are there from an earlier run are used.

    YIELDS (Doc): The answers, with the vocab of the student.
    RAISES (ValueError): If the teachers have no soft targets and are to have, or other labels.
    """
    if soft:
        chain_of(student)
        labels = {frozenset(chain_of(nlp).labels) for nlp in pipelines}
        if len(labels) > 1:
            got = [*map(sorted, labels)]
            raise ValueError(f"soft: expected teachers with the same labels, got {got}")
    key = fingerprint([str(nlp.path) for nlp in pipelines], [*map(str, raw_paths)], soft)
    texts = (doc for path in raw_paths for doc in read_texts(pipelines[0], path))
    for i, docs in enumerate(minibatch(progress(texts, desc="teacher", unit="doc"), N_DOCS)):
        path = output_path / f"answers-{key[:12]}" / f"{i:06}.spacy"
        if not path.exists():
            _save_docs(path, answer(pipelines, docs, soft=soft))
        yield from DocBin().from_disk(path).get_docs(student.vocab)


def chain_of(nlp: Language) -> CostSensitiveNER:
    """The component that has the distribution of a teacher."""
    pipes = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if len(pipes) != 1:
        raise ValueError(
            "soft: expected teachers with one cost_sensitive_ner, whose distribution is known, got "
            f"the pipeline {nlp.pipe_names}"
        )
    return pipes[0]


def answer(teachers: Sequence[Language], docs: Sequence[Doc], *, soft: bool = False) -> list[Doc]:
    """Have teachers annotate docs, whose own annotation is not used.

    soft (bool): Whether to compute soft targets: of several teachers, the mean distribution.
    RETURNS (list[Doc]): Docs with the entities that a single teacher predicts or, of several, those
        whose mean probability is above one half. `read_scores` reads their probabilities.
    RAISES (ValueError): If a teacher merges or splits tokens.
    """
    predicted = [
        list(nlp.pipe([copy_tokens(doc, nlp.vocab, sentences=True) for doc in docs]))
        for nlp in teachers
    ]
    for of_teacher in predicted:
        check_tokens(docs, of_teacher)
    answers = [copy_tokens(doc, sentences=True) for doc in docs]
    for doc, of_teachers in zip(answers, zip(*predicted)):
        scores = mean_scores(of_teachers)
        ents = entities(of_teachers[0]) if len(teachers) == 1 else majority(scores)
        doc.set_ents([Span(doc, *entity) for entity in ents])
        write_scores(doc, scores)
    if soft:
        targets = []
        for nlp, of_teacher in zip(teachers, predicted):
            posterior = chain_of(nlp).posterior(of_teacher)
            targets.append(
                soft_targets.expectations(posterior.potentials, posterior.tags, posterior.doc_of)
            )
        for doc, of_doc in zip(answers, zip(*targets)):
            doc.user_data[soft_targets.KEY] = soft_targets.mean([*of_doc])
    return answers


def check_tokens(docs: Sequence[Doc], answers: Sequence[Doc]) -> None:
    """RAISES (ValueError): If a teacher's answer has other tokens than its doc, so that the places
    of entities are others."""
    for doc, answered in zip(docs, answers):
        if not numpy.array_equal(doc.to_array("ORTH"), answered.to_array("ORTH")):
            raise ValueError(
                f"teacher: expected one that keeps the {len(doc)} tokens of {first_words(doc)}, "
                f"got {len(answered)}: leave out components such as merge_entities"
            )


def entities(doc: Doc) -> list[Entity]:
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


def mean_scores(docs: Sequence[Doc]) -> dict[Entity, float]:
    """The mean confidence of each entity over teachers: 1 where a teacher predicts it without a
    score, 0 where it isn't among the likely ones."""
    total: dict[Entity, float] = {}
    for doc in docs:
        own = {**dict.fromkeys(entities(doc), 1.0), **read_scores(doc)}
        for entity, score in own.items():
            total[entity] = total.get(entity, 0.0) + score / len(docs)
    return total


def read_scores(doc: Doc) -> dict[Entity, float]:
    """The scores of spans, of any group that has them in its `attrs`, as those of spaCy's spancat
    and of `span._.confidence` do."""
    return {
        (span.start, span.end, span.label_): float(score)
        for group in doc.spans.values()
        if group.attrs.get("scores") is not None
        for span, score in zip(group, group.attrs["scores"])
    }


def write_scores(doc: Doc, scores: dict[Entity, float]) -> None:
    """Write the scores of spans, some of which are entities."""
    spans, attrs = [Span(doc, *entity) for entity in scores], {"scores": [*scores.values()]}
    doc.spans[SPANS_KEY] = SpanGroup(doc, name=SPANS_KEY, attrs=attrs, spans=spans)


def majority(scores: dict[Entity, float]) -> list[Entity]:
    """The entities that are more probable than not. They don't overlap, as each teacher gives the
    entities of a token probabilities that sum to 1 at most."""
    chosen: list[Entity] = []
    for start, end, label in sorted(scores, key=lambda entity: -scores[entity]):
        is_free = all(end <= other[0] or other[1] <= start for other in chosen)
        if scores[start, end, label] > 0.5 and is_free:
            chosen.append((start, end, label))
    return chosen


def read_answers(nlp: Language, path: Path) -> Iterator[Doc]:
    """Read answers from JSONL, as anything may have made them: see `readers.tasks`. A span may have
    a score, from 0 to 1.

    RAISES (CorpusError): If the file can't be read, or a score is no such number.
    """
    context = Context(nlp, DEFAULTS, CorpusInfo())
    for place, task in read_tasks(path):
        doc, scores = task_to_doc(task, place, context), {}
        for span in task.spans or ():
            score, aligned = span.extra.get("score", 1.0), doc.char_span(span.start, span.end)
            if type(score) not in (int, float) or not 0 <= score <= 1:
                raise place.refuse(f"score: expected a number from 0 to 1, got {shown(score)}")
            if aligned is not None:
                scores[aligned.start, aligned.end, span.label] = float(score)
        write_scores(doc, scores)
        if len(doc):
            yield doc


def save_corpus(folder: Path, docs: Iterable[Doc], min_confidence: float) -> tuple[int, int, int]:
    """Make a training corpus of answers.

    RETURNS (tuple[int, int, int]): Numbers of docs, of entities, and of those that are missing.
    RAISES (ValueError): If there are no answers, or all are of confidence 1 and may not be.
    """
    for old in folder.glob("*.spacy"):
        old.unlink()
    numbers, is_scored = numpy.zeros(3, dtype=int), False
    for i, batch in enumerate(minibatch(docs, N_DOCS)):
        for doc in batch:
            is_scored |= any(score < 1 for score in read_scores(doc).values())
            numbers += (1, *leave_out_uncertain(doc, min_confidence))
        _save_docs(folder / f"{i:06}.spacy", batch)
    if not numbers[0]:
        raise ValueError("expected text for the teacher to annotate, got no docs")
    if min_confidence and not is_scored:
        raise ValueError(
            "min_confidence: expected a teacher with confidences, such as a cost_sensitive_ner, "
            "several teachers, or spans with a score in JSONL, got none below 1"
        )
    n_docs, n_entities, n_missing = numbers.tolist()
    return n_docs, n_entities, n_missing


def save_gold(folder: Path, docs: Iterable[Doc], weight: float) -> None:
    """Add annotated docs to a training corpus."""
    gold = list(docs)
    for doc in gold:
        doc.user_data[WEIGHT] = weight
    _save_docs(folder / "gold.spacy", gold)


def leave_out_uncertain(doc: Doc, min_confidence: float) -> tuple[int, int]:
    """Set entities whose confidence is below a minimum to missing, with all their tokens, and so
    those that are not predicted whose confidence is above 1 less that minimum. The doc is changed.
    Returns the number of entities that are left, and of those that are not."""
    scores, ents = read_scores(doc), entities(doc)
    sure = [entity for entity in ents if scores.get(entity, 1.0) >= min_confidence]
    doubtful = doc.to_array("ENT_IOB") == 0
    for entity in {*ents, *scores} - {*sure}:
        if entity in ents or scores[entity] > 1 - min_confidence:
            doubtful[entity[0] : entity[1]] = True
    for start, end, _ in sure:
        doubtful[start:end] = False
    missing = [doc[int(i) : int(i) + 1] for i in numpy.flatnonzero(doubtful)]
    doc.set_ents([Span(doc, *entity) for entity in sure], missing=missing)
    return len(sure), len(ents) - len(sure)


def _save_docs(path: Path, docs: Iterable[Doc]) -> None:
    save_file(path, DocBin(docs=docs, store_user_data=True).to_disk)


def evaluate(name: str, nlp: Language, corpus: Corpus) -> Row:
    examples = list(corpus(nlp))
    begin = perf_counter()
    docs = list(nlp.pipe([eg.predicted for eg in examples]))
    speed = sum(map(len, docs)) / (perf_counter() - begin)
    size = sum(file.stat().st_size for file in nlp.path.rglob("*") if file.is_file()) / 1e6
    return Row(name, *_score(docs, examples), speed, size)


def evaluate_together(teachers: Sequence[Language], rows: Sequence[Row], corpus: Corpus) -> Row:
    """Evaluate the mean of teachers, each of which has its row."""
    examples = list(corpus(teachers[0]))
    docs = answer(teachers, [eg.predicted for eg in examples])
    speed = 1 / sum(1 / row.tokens_per_second for row in rows)
    return Row("all teachers", *_score(docs, examples), speed, sum(row.megabytes for row in rows))


def _score(docs: Iterable[Doc], examples: Iterable[Example]) -> tuple[float, float, float]:
    """Precision, recall and F; 0 if nothing is annotated."""
    scores = get_ner_prf([Example(doc, eg.reference) for doc, eg in zip(docs, examples)])
    precision, recall, f_score = (scores[f"ents_{name}"] or 0.0 for name in "prf")
    return precision, recall, f_score
