"""Distill teachers into a student.

Teachers are trained pipelines. What they predict for unlabelled text are their answers, and these
become the training corpus of the student, which is smaller or faster. An answer has entities, and
in `doc.spans` the confidence of each likely entity. With soft targets it also has the distribution
of the teachers over tags. The answers may also come from a file.

Where teachers are uncertain, or can't know, annotation is missing in the training corpus: the
student learns nothing there.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.training import Example
from spacy.util import (
    load_model,
    load_model_from_config,
    minibatch,
    resolve_dot_names,
)
from spacy.vocab import Vocab
from thinc.api import Config

from ...annotation.iob import MISSING
from ...annotation.spans import missing_spans
from ...annotation.tokens import first_words
from ...files.saving import check_folder, save_file
from ...pipeline.annotations import Confidence
from ...pipeline.component import CostSensitiveNER
from ...pipeline.scorers import Entity, as_entity
from ...progress import phase, progress
from ...readers import DEFAULTS, ReadOptions, read_docs, read_tasks, read_texts, task_to_doc
from ...readers.context import Context, CorpusInfo
from ...readers.files import shown
from ...readers.sentences import copy_without_annotation
from ...training import soft_targets
from ...training.targets import WEIGHT
from ..components import check_ents, find_components
from ..config.loading import check_is_pipeline
from ..config.trainable import FACTORY, can_be_fitted, component_block
from ..corpora import Corpus, corpus_path, lacks_path
from ..evaluation.recurrence import KnownText, note_recurrence
from ..executors import fingerprint
from ..fitting.trainers import train_pipeline
from .incomplete_answers import OFTEN, find_outside_words, leave_out_unknown

SPANS_KEY = "spacy_costner.answers"
"""The key in `doc.spans` of the likely entities of an answer, with their confidence."""

JSONL = (".jsonl", ".json")
"""The suffixes of a file of answers in place of teachers."""

MIN_PROB = 0.05
"""Entities that a teacher doesn't predict are likely from this probability on."""

DOCS_PER_FILE = 250
"""The docs of a file of answers."""


class Evaluation(NamedTuple):
    """A teacher, all teachers, or the student, on the dev corpus: scores, speed of the whole
    pipeline, and size of its files."""

    name: str
    precision: float
    recall: float
    f_score: float
    tokens_per_second: float
    megabytes: float


class EntityCounts(NamedTuple):
    """The predicted entities of an answer."""

    n_sure: int  # those that stay
    n_missing: int  # those that became missing annotation, as their confidence is too low


class CorpusCounts(NamedTuple):
    """What a corpus of answers has."""

    n_docs: int
    n_entities: int  # those to learn from
    n_missing: int  # those that became missing annotation, as their confidence is too low
    n_unknown: int  # tokens that became missing annotation, as the teacher is incomplete


class Distilled(NamedTuple):
    """A student that was trained and saved."""

    path: Path
    n_docs: int  # those with answers
    n_entities: int  # those that the student learned from
    n_missing: int  # those that became missing annotation, as their confidence is too low
    n_unknown: int  # tokens that became missing annotation, as the teacher is incomplete
    rows: list[Evaluation]  # of each teacher, of all of them if there are several, of the student
    notes: Sequence[str] = ()  # which texts of the development corpus recur


def distill(
    teachers: Sequence[str],
    config: Config,
    raw_paths: Sequence[Path],
    output_path: Path,
    *,
    soft: bool = False,
    incomplete: bool = False,
    min_confidence: float = 0.0,
    gold_path: Path | None = None,
    gold_weight: float = 1.0,
    n_seeds: int = 1,
    reading: ReadOptions = DEFAULTS,
) -> Distilled:
    """Train a student on what teachers predict for unlabelled text, and save it.

    teachers (Sequence[str]): Pipelines that set `doc.ents`, packages or folders; or one JSONL file
        of texts with entities, which anything has made.
    config (Config): The student's config, for `spacy train`. Its `paths.train` will be replaced.
    raw_paths (Sequence[Path]): The text: see `read_texts`. Empty with a JSONL file.
    output_path (Path): The folder of the answers, the corpus made of them, and the student.
    soft (bool): Learn the probabilities of the teachers, not their entities.
    incomplete (bool): The teachers find only some of the entities, as rules do. A token that is in
        none of these is O only if its word is surely outside of entities: see
        `find_outside_words`. Otherwise its annotation is missing.
    min_confidence (float): Where the teachers are less certain that there is an entity, or that
        there is none, annotation is missing: see `leave_out_uncertain`.
    gold_path (Path | None): Annotated corpus to learn from, too.
    gold_weight (float): Weight of each of its docs; a doc of a teacher has 1.
    n_seeds (int): Train a linear student so many times, and average weights.
    reading (ReadOptions): How to read the text and the annotated corpus.
    RETURNS (Distilled): Where the student is, and scores.
    RAISES (ValueError): If arguments, teachers and the student's config don't go together; if
        something in the output folder must not be replaced; if a text or an answer can't be read.
    """
    # Check all that can be checked before teachers are asked
    has_file = check_teachers(
        teachers, raw_paths, soft=soft, incomplete=incomplete, min_confidence=min_confidence
    )
    if n_seeds > 1 and not can_be_fitted(config):
        raise ValueError(f"seeds: expected 1 for a student that `fit` can't train, got {n_seeds}")
    check_student(config, soft=soft)
    for name in ("model-last", "model-best"):  # the folders that training writes
        check_folder(output_path / name)

    # Make the training corpus of the answers
    blank = load_without_components(config)
    pipelines: list[Language] = []
    if not has_file:
        pipelines = [load_teacher(name) for name in teachers]

    def read_all() -> Iterator[Doc]:
        """Read all answers: from the JSONL file, or from the teachers. Teachers make them only the
        first time. Later they are read from where they were saved."""
        if has_file:
            return read_answers(blank, Path(teachers[0]))
        return save_answers(
            pipelines, blank.vocab, raw_paths, output_path, soft=soft, reading=reading
        )

    outside_words: set[str] | None = None  # all words that the teachers don't find are outside
    if incomplete:
        outside_words = find_outside_words(read_all())
    train_path = output_path / "train"
    counts = save_corpus(train_path, read_all(), min_confidence, outside_words)
    if gold_path is not None:
        save_gold(train_path, read_docs(blank, gold_path, reading), gold_weight)

    # Train the student, and compare it with its teachers
    config = config.copy()
    config["paths"]["train"] = str(train_path)
    path = train_pipeline(config, output_path, log=sys.stderr, n_seeds=n_seeds)
    teacher_names = () if has_file else teachers
    student = load_model(path)
    student_config = student.config.interpolate()
    dev_name = student_config["training"]["dev_corpus"]
    (dev_corpus,) = resolve_dot_names(student_config, [dev_name])
    with phase("evaluate"):
        rows = evaluate_all(teacher_names, pipelines, student, dev_corpus)
    notes = note_dev(student, dev_corpus)
    return Distilled(path, **counts._asdict(), rows=rows, notes=notes)


def note_dev(student: Language, dev_corpus: Corpus) -> list[str]:
    """Say which texts of the development corpus recur, if the student is our component: see
    `note_recurrence`."""
    docs = [eg.reference for eg in dev_corpus(student)]
    config = student.config.interpolate()
    source = corpus_path(config, "dev_corpus") or "the development corpus"
    notes: list[str] = []
    for ner in find_components(student).values():
        notes += note_recurrence(KnownText.of_component(student, ner), docs, source)
    return notes


def evaluate_all(
    teachers: Sequence[str],
    pipelines: Sequence[Language],
    student: Language,
    dev_corpus: Corpus,
) -> list[Evaluation]:
    """Evaluate each teacher, all of them together if there are several, and the student, on the dev
    corpus of the student's config.

    teachers (Sequence[str]): The names or folders of the teachers; none if there was a file.
    pipelines (Sequence[Language]): The teachers as `load_teacher` loads them.
    student (Language): The student as it was saved and loaded, so that its size and speed are those
        that you will have.
    dev_corpus (Corpus): The development corpus.
    """
    rows: list[Evaluation] = []
    # Teachers are loaded again to measure their speed: those of `pipelines` are slower, as they
    # compute the probabilities of alternatives, too.
    for name in teachers:
        rows.append(evaluate_pipeline(name, load_model(name), dev_corpus))
    if len(rows) > 1:
        rows.append(evaluate_together(pipelines, rows, dev_corpus))
    rows.append(evaluate_pipeline("student", student, dev_corpus))
    return rows


def check_teachers(
    teachers: Sequence[str],
    raw_paths: Sequence[Path],
    *,
    soft: bool,
    incomplete: bool,
    min_confidence: float,
) -> bool:
    """Check that teachers, text and options go together.

    teachers (Sequence[str]): The names of pipelines, or a file of answers.
    raw_paths (Sequence[Path]): The files of text.
    soft (bool), incomplete (bool), min_confidence (float): The options: see `distill`.
    RETURNS (bool): Whether the teacher is a file of answers.
    RAISES (ValueError): If they don't go together.
    """
    has_file = any(Path(name).suffix in JSONL for name in teachers)
    if has_file and (len(teachers) > 1 or raw_paths):
        got_paths = [*teachers, *map(str, raw_paths)]
        raise ValueError(
            "teacher: expected a file of answers without other teachers and raw text, got "
            f"{got_paths}"
        )
    if not has_file and not raw_paths:
        raise ValueError("raw: expected files of text for the teacher to annotate, got none")
    if soft and (has_file or min_confidence):
        got = teachers[0] if has_file else f"min_confidence {min_confidence}"
        raise ValueError(f"soft: expected pipelines as teachers and no min_confidence, got {got}")
    if soft and incomplete:
        raise ValueError("soft: expected teachers that find all entities, got incomplete")
    return has_file


def check_student(config: Config, *, soft: bool) -> None:
    """Check a student's config before teachers are asked. Only the config is read: the student is
    built once, to be trained.

    RAISES (ValueError): If it can't learn from answers, or there is no development corpus.
    """
    if "${paths.train}" not in config.to_str(interpolate=False):
        raise ValueError("student: expected a config whose training corpus is ${paths.train}")
    complete = Config(Language.default_config).merge(config).interpolate()
    pipeline = complete["nlp"]["pipeline"]
    n_ner = 0
    for name in pipeline:
        block = component_block(complete, name)
        if block["factory"] != FACTORY:
            continue
        n_ner += 1
        spans_key = block.get("spans_key")
        if spans_key is not None:
            raise ValueError(
                f"distill: works on doc.ents, but {name} has the spans_key {spans_key!r}"
            )
    if soft and n_ner != 1:
        raise ValueError(
            f"soft: expected a student with one {FACTORY}, got the pipeline {pipeline}"
        )
    check_dev(complete)


def check_dev(config: Config) -> None:
    """Check, before anything is trained, that there are docs to compare teachers and student on.

    config (Config): The student's config, complete and interpolated.
    RAISES (ValueError): If the path of the development corpus is null.
    """
    name = config["training"]["dev_corpus"]
    if lacks_path(config, name):
        raise ValueError(
            f"distill: {name}: expected a development corpus, to compare teachers and student on, "
            "got none: name one with --paths.dev"
        )


def load_without_components(config: Config) -> Language:
    """Make the pipeline of a config without its components: its tokenizer and its vocab."""
    config = config.copy()
    config["nlp"]["pipeline"] = []
    config["nlp"]["disabled"] = []
    return load_model_from_config(config, auto_fill=True)


def load_teacher(name: str | Path) -> Language:
    """Load a teacher. Our components in it write the probability of each predicted and each likely
    entity to docs: see `MIN_PROB`.

    RAISES (ValueError): If one of them writes to `doc.spans`, and not to `doc.ents`.
    """
    check_is_pipeline(name)
    nlp = load_model(name)
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER):
            check_ents("distill", pipe)
            pipe.set_confidence(Confidence(alternatives=MIN_PROB))
    return nlp


def save_answers(
    teachers: Sequence[Language],
    vocab: Vocab,
    raw_paths: Sequence[Path],
    output_path: Path,
    *,
    soft: bool = False,
    reading: ReadOptions = DEFAULTS,
) -> Iterator[Doc]:
    """Have teachers annotate texts, and save their answers: a file for each `DOCS_PER_FILE` docs,
    in a folder with the fingerprint of teachers and text. If an earlier run has saved a file, it is
    read, and the teachers aren't asked again.

    teachers (Sequence[Language]): The teachers. The first one tokenizes the texts.
    vocab (Vocab): The vocab that the answers get.
    raw_paths (Sequence[Path]): The files of the texts.
    output_path (Path): The folder to make the folder of answers in.
    soft (bool): Whether answers have soft targets.
    reading (ReadOptions): How to read the texts.
    YIELDS (Doc): The answers.
    RAISES (ValueError): If answers are to have soft targets, and a teacher can't compute them, or
        teachers have different labels; if a teacher merges or splits tokens; if a text can't be
        read.
    """
    if soft:
        label_sets = {frozenset(chain_of(teacher).labels) for teacher in teachers}
        if len(label_sets) > 1:
            got = [sorted(labels) for labels in label_sets]
            raise ValueError(f"soft: expected teachers with the same labels, got {got}")
    teacher_paths = [str(teacher.path) for teacher in teachers]
    text_paths = [str(path) for path in raw_paths]
    # The fingerprint also changes with the content of the files under these paths.
    key = fingerprint(teacher_paths, text_paths, soft, *reading.settings().items())
    folder = output_path / f"answers-{key[:12]}"
    texts = chain.from_iterable(read_texts(teachers[0], path, reading) for path in raw_paths)
    bar = progress(texts, desc="teacher", unit="doc")
    for i, docs in enumerate(minibatch(bar, DOCS_PER_FILE)):
        path = folder / f"{i:06}.spacy"
        if not path.exists():
            save_docs(path, ask_teachers(teachers, docs, soft=soft))
        yield from DocBin().from_disk(path).get_docs(vocab)


def chain_of(nlp: Language) -> CostSensitiveNER:
    """The cost_sensitive_ner of a teacher, which can compute a distribution over paths of tags.

    RAISES (ValueError): If it doesn't have exactly one.
    """
    pipes = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, CostSensitiveNER)]
    if len(pipes) != 1:
        raise ValueError(
            "soft: expected teachers with one cost_sensitive_ner, whose distribution is known, got "
            f"the pipeline {nlp.pipe_names}"
        )
    return pipes[0]


def ask_teachers(
    teachers: Sequence[Language], docs: Sequence[Doc], *, soft: bool = False
) -> list[Doc]:
    """Have teachers annotate docs, whose own annotation is not used.

    teachers (Sequence[Language]): The teachers.
    docs (Sequence[Doc]): The docs. They don't change.
    soft (bool): Whether to compute soft targets: of several teachers, the mean distribution.
    RETURNS (list[Doc]): The answers. They have the entities that the teacher predicts or, of
        several teachers, those whose mean probability is above one half. `read_scores` reads the
        probabilities.
    RAISES (ValueError): If a teacher merges or splits tokens.
    """
    docs_of_teachers: list[list[Doc]] = []  # the docs as each teacher has predicted them
    for nlp in teachers:
        # With the sentence starts and the metadata, as `spacy apply` gives docs to a pipeline
        copies = [copy_without_annotation(doc, nlp.vocab, sentences=True) for doc in docs]
        predicted = list(nlp.pipe(copies))
        check_tokens(docs, predicted)
        docs_of_teachers.append(predicted)

    answers: list[Doc] = []
    for doc, *predictions in zip(docs, *docs_of_teachers):
        scores = mean_scores(predictions)
        ents = entities_of(predictions[0]) if len(teachers) == 1 else majority(scores)
        answer = copy_without_annotation(doc, sentences=True)
        answer.set_ents([Span(answer, *entity) for entity in ents])
        write_scores(answer, scores)
        answers.append(answer)
    if soft:
        write_soft_targets(answers, teachers, docs_of_teachers)
    return answers


def write_soft_targets(
    answers: Sequence[Doc], teachers: Sequence[Language], docs_of_teachers: Sequence[Sequence[Doc]]
) -> None:
    """Write the mean distribution of teachers to their answers.

    docs_of_teachers (Sequence[Sequence[Doc]]): The docs as each teacher has predicted them.
    """
    targets_of_teachers: list[Iterator[dict[str, Any]]] = []
    for nlp, docs in zip(teachers, docs_of_teachers):
        posterior = chain_of(nlp).posterior(docs)
        # A doc is one sequence or, if the component cuts docs at sentences, several of them.
        targets_of_docs = soft_targets.expectations(
            posterior.potentials, posterior.tags, posterior.doc_of_sequence
        )
        targets_of_teachers.append(targets_of_docs)
    for answer, *targets in zip(answers, *targets_of_teachers):
        answer.user_data[soft_targets.SOFT_TARGETS_KEY] = soft_targets.mean(targets)


def check_tokens(docs: Sequence[Doc], predicted: Sequence[Doc]) -> None:
    """Check that a teacher has kept the tokens of docs: its entities are copied by their tokens.

    RAISES (ValueError): If it has merged or split some.
    """
    for doc, predicted_doc in zip(docs, predicted):
        if not numpy.array_equal(doc.to_array("ORTH"), predicted_doc.to_array("ORTH")):
            raise ValueError(
                f"teacher: expected one that keeps the {len(doc)} tokens of {first_words(doc)}, "
                f"got {len(predicted_doc)}: leave out components such as merge_entities"
            )


def entities_of(doc: Doc) -> list[Entity]:
    """The entities of a doc."""
    return [as_entity(ent) for ent in doc.ents]


def mean_scores(docs: Sequence[Doc]) -> dict[Entity, float]:
    """Compute the mean confidence of each entity over teachers. A teacher that predicts an entity
    without a score gives it the confidence 1. A teacher that doesn't find it likely gives it 0.

    docs (Sequence[Doc]): The same doc as each teacher has predicted it.
    RETURNS (dict[Entity, float]): The mean confidence by entity.
    """
    means: dict[Entity, float] = {}
    for doc in docs:
        scores = dict.fromkeys(entities_of(doc), 1.0)
        scores.update(read_scores(doc))
        for entity, score in scores.items():
            means[entity] = means.get(entity, 0.0) + score / len(docs)
    return means


def read_scores(doc: Doc) -> dict[Entity, float]:
    """Read the confidence of entities: from all groups of spans of a doc that have scores in their
    `attrs`. spaCy's spancat, a cost_sensitive_ner and `write_scores` write such groups."""
    scores: dict[Entity, float] = {}
    for group in doc.spans.values():
        scores_of_group = group.attrs.get("scores")
        if scores_of_group is None:
            continue
        for span, score in zip(group, scores_of_group):
            scores[as_entity(span)] = float(score)
    return scores


def write_scores(doc: Doc, scores: dict[Entity, float]) -> None:
    """Write the confidence of likely entities, which may overlap, to a doc. `read_scores` reads
    it."""
    spans = [Span(doc, *entity) for entity in scores]
    attrs = {"scores": list(scores.values())}
    doc.spans[SPANS_KEY] = SpanGroup(doc, name=SPANS_KEY, attrs=attrs, spans=spans)


def majority(scores: dict[Entity, float]) -> list[Entity]:
    """The entities that are more probable than not. They don't overlap: the probabilities of the
    entities with the same token sum to 1 at most.

    scores (dict[Entity, float]): The probability of each likely entity.
    """
    chosen_entities: list[Entity] = []
    most_probable_first = sorted(scores, key=lambda entity: -scores[entity])
    for entity in most_probable_first:
        begin, end, _ = entity
        # Of two overlapping entities with one half each, rounding may put both above one half.
        is_free = True
        for chosen_begin, chosen_end, _ in chosen_entities:
            if begin < chosen_end and chosen_begin < end:
                is_free = False
        if scores[entity] > 0.5 and is_free:
            chosen_entities.append(entity)
    return chosen_entities


def read_answers(nlp: Language, path: Path) -> Iterator[Doc]:
    """Read answers from JSONL, as anything may have made them: see `readers.tasks`. A span may have
    a score, from 0 to 1.

    RAISES (CorpusError): If the file can't be read, or a score is no such number.
    """
    context = Context(nlp, DEFAULTS, CorpusInfo())
    for place, task in read_tasks(path):
        doc = task_to_doc(task, place, context)
        scores: dict[Entity, float] = {}
        for task_span in task.spans or ():
            score = task_span.extra.get("score", 1.0)
            # A boolean is an int for `isinstance`.
            if type(score) not in (int, float) or not 0 <= score <= 1:
                raise place.refuse(f"score: expected a number from 0 to 1, got {shown(score)}")
            # The entity of the doc doesn't have the white space at the ends of the span.
            span_text = task.text[task_span.start : task_span.end]
            start = task_span.start + len(span_text) - len(span_text.lstrip())
            end = start + len(span_text.strip())
            span = doc.char_span(start, end, label=task_span.label)
            # It is None if the span begins or ends within a token. Then `task_to_doc` has made its
            # tokens missing annotation.
            if span is not None:
                scores[as_entity(span)] = float(score)
        write_scores(doc, scores)
        if len(doc):
            yield doc


def save_corpus(
    folder: Path, docs: Iterable[Doc], min_confidence: float, outside_words: set[str] | None = None
) -> CorpusCounts:
    """Make a training corpus of answers.

    folder (Path): The folder. Its corpus of an earlier run is removed.
    docs (Iterable[Doc]): The answers.
    min_confidence (float): What a teacher is less sure of becomes missing annotation.
    outside_words (set[str] | None): The words that are outside of entities, for incomplete answers.
        None: the teachers find all entities.
    RETURNS (CorpusCounts): How many docs the corpus has, how many entities are in it, and how many
        are left out as uncertain; and how many tokens are left out, as incomplete answers don't say
        whether they are outside.
    RAISES (ValueError): If there are no answers; if `outside_words` is empty, so that nothing would
        be outside; or if there is a `min_confidence`, and all confidences are 1.
    """
    for old_file in folder.glob("*.spacy"):
        old_file.unlink()
    n_docs = 0
    n_entities = 0
    n_missing = 0
    n_unknown = 0
    has_confidences = False
    for i, batch in enumerate(minibatch(docs, DOCS_PER_FILE)):
        for doc in batch:
            if any(score < 1 for score in read_scores(doc).values()):
                has_confidences = True
            if outside_words is not None:
                n_unknown += leave_out_unknown(doc, outside_words)
            counts = leave_out_uncertain(doc, min_confidence)
            n_docs += 1
            n_entities += counts.n_sure
            n_missing += counts.n_missing
        save_docs(folder / f"{i:06}.spacy", batch)
    if not n_docs:
        raise ValueError("expected text for the teacher to annotate, got no docs")
    if outside_words is not None and not outside_words:
        expected = f"expected words without capitals that are in the texts {OFTEN} times"
        raise ValueError(f"incomplete: {expected}, got none: all tokens would be unknown")
    if min_confidence and not has_confidences:
        raise ValueError(
            "min_confidence: expected a teacher with confidences, such as a cost_sensitive_ner, "
            "several teachers, or spans with a score in JSONL, got none below 1"
        )
    return CorpusCounts(n_docs, n_entities, n_missing, n_unknown)


def save_gold(folder: Path, docs: Iterable[Doc], weight: float) -> None:
    """Add annotated docs to a training corpus. In training each counts `weight` times as much as an
    answer of the teachers."""
    gold = list(docs)
    for doc in gold:
        doc.user_data[WEIGHT] = weight
    save_docs(folder / "gold.spacy", gold)


def leave_out_uncertain(doc: Doc, min_confidence: float) -> EntityCounts:
    """Turn what a teacher isn't sure of into missing annotation, from which a student learns
    nothing. The doc is changed.

    The annotation of a token is missing in two cases. It is in a predicted entity whose confidence
    is below `min_confidence`. Or it is in a likely entity that the teacher doesn't predict, and
    whose absence has a confidence below `min_confidence`. Tokens of the entities that stay keep
    their annotation.

    RETURNS (EntityCounts): How many of the predicted entities stay, and how many don't.
    """
    scores = read_scores(doc)
    predicted = entities_of(doc)
    sure: list[Entity] = []
    unsure: list[Entity] = []
    for entity in predicted:
        if scores.get(entity, 1.0) >= min_confidence:
            sure.append(entity)
        else:
            unsure.append(entity)
    n_missing = len(unsure)
    for entity, score in scores.items():
        if entity not in predicted and score > 1 - min_confidence:
            unsure.append(entity)

    missing = doc.to_array("ENT_IOB") == MISSING  # whether the annotation of each token is
    for begin, end, _ in unsure:
        missing[begin:end] = True
    for begin, end, _ in sure:
        missing[begin:end] = False
    doc.set_ents([Span(doc, *entity) for entity in sure], missing=missing_spans(doc, missing))
    return EntityCounts(n_sure=len(sure), n_missing=n_missing)


def save_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Save docs with their soft targets and weights, which are in their user data."""
    save_file(path, DocBin(docs=docs, store_user_data=True).to_disk)


def evaluate_pipeline(name: str, nlp: Language, corpus: Corpus) -> Evaluation:
    """Evaluate a pipeline that was loaded from disk, and measure its speed and size.

    name (str): The name that its row gets.
    nlp (Language): The pipeline.
    corpus (Corpus): Reads the examples.
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
    """Evaluate what teachers predict together. They run one after another, so their seconds and
    megabytes add up.

    teachers (Sequence[Language]): The teachers, which write probabilities: see `load_teacher`.
    rows (Sequence[Evaluation]): The row of each, with its speed and size.
    corpus (Corpus): Reads the examples.
    """
    examples = list(corpus(teachers[0]))  # tokenized as in `save_answers`
    docs = ask_teachers(teachers, [eg.predicted for eg in examples])
    precision, recall, f_score = score_ents(docs, examples)
    seconds_per_token = 0.0
    megabytes = 0.0
    for row in rows:
        seconds_per_token += 1 / row.tokens_per_second
        megabytes += row.megabytes
    return Evaluation("all teachers", precision, recall, f_score, 1 / seconds_per_token, megabytes)


def score_ents(docs: Iterable[Doc], examples: Iterable[Example]) -> tuple[float, float, float]:
    """Precision, recall and F of the entities of docs, against the references of examples; 0 if
    nothing is annotated."""
    predicted_examples = [Example(doc, eg.reference) for doc, eg in zip(docs, examples)]
    scores = get_ner_prf(predicted_examples)
    return scores["ents_p"] or 0.0, scores["ents_r"] or 0.0, scores["ents_f"] or 0.0
