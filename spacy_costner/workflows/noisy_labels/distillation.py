"""Distill teachers into a student.

Teachers are trained pipelines. Their predictions for unlabelled text, called answers, are the
training corpus of the student, which is smaller or faster. An answer contains entities and, in
`doc.spans`, the confidence of each likely entity. With soft targets, it also contains the teachers'
distribution over tags. Answers can also be read from a file.

The annotation of tokens for which the teachers are uncertain or incomplete is set to missing, so
the student ignores these tokens in training.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import load_model, load_model_from_config
from thinc.api import Config

from ...files.saving import check_folder
from ...progress import phase
from ...readers import DEFAULTS, ReadOptions, read_docs
from ..components import find_components
from ..config.loading import READER
from ..config.trainable import FACTORY, can_be_fitted, component_block
from ..corpora import Corpus, corpus_path, find_corpora, lacks_path
from ..evaluation.recurrence import KnownText, note_recurrence
from ..fitting.trainers import train_pipeline
from .channel_distillation import LearnedNoise, make_channel_corpus
from .incomplete_answers import find_outside_words
from .student_corpus import save_corpus, save_gold
from .student_evaluation import Evaluation, evaluate_all
from .teachers import load_teacher, read_answers, save_answers

MERGING = ("doc_id", "conflicts")
"""The options for reading with which docs are joined or merged, even those of .spacy files."""

JSONL = (".jsonl", ".json")
"""The suffixes of answer files, which can be passed instead of teachers."""


Noise = Literal["channel"]
"""The model of the teachers' errors."""


class Distilled(NamedTuple):
    """A trained and saved student."""

    path: Path
    n_docs: int  # docs with answers
    n_entities: int  # entities that the student was trained on
    n_missing: int  # entities replaced with missing annotation because of low confidence
    n_unknown: int  # tokens with annotation set to missing because the teacher is incomplete
    rows: list[Evaluation]  # each teacher, all combined if there are several, and the student
    notes: Sequence[str] = ()  # about recurring texts in the development corpus
    noise: LearnedNoise | None = None  # with the noise channel: the annotators' errors


def distill(
    teachers: Sequence[str],
    config: Config,
    raw_paths: Sequence[Path],
    output_path: Path,
    *,
    soft: bool = False,
    incomplete: bool = False,
    noise: Noise | None = None,
    min_confidence: float = 0.0,
    gold_path: Path | None = None,
    gold_weight: float = 1.0,
    n_seeds: int = 1,
    reading: ReadOptions = DEFAULTS,
) -> Distilled:
    """Train a student on the predictions of teachers for unlabelled text, and save it.

    teachers (Sequence[str]): Packages or folders of pipelines that set `doc.ents`, or a single
        JSONL file of texts with entities from any source. With `noise`, corpora in any format, each
        with the answers of one annotator, or pipelines.
    config (Config): The student's training config. Its `paths.train` will be overwritten, and the
        options of its training corpus in `MERGING` apply to the texts, the answers and the
        annotated corpus instead.
    raw_paths (Sequence[Path]): The text files: see `read_texts`. Empty if answers are read from
        JSONL.
    output_path (Path): The output folder for the answers, the training corpus and the student.
    soft (bool): Learn the probabilities of the teachers instead of their entities.
    incomplete (bool): The teachers only find some of the entities, e.g. with rules. A token outside
        of their entities is O only if its word almost never occurs in entities: see
        `find_outside_words`. Otherwise its annotation is missing.
    noise (Literal["channel"] | None): If "channel", use the texts of `gold_path` to estimate the
        errors of each teacher, and learn the probabilities of tags given text and answers: see
        `noise_channel`.
    min_confidence (float): If the teachers' confidence in an entity or in O is lower, annotation is
        treated as missing: see `leave_out_uncertain`.
    gold_path (Path | None): Additional annotated corpus to train on. With `noise`, the texts that
        were checked by a person, some of which were also annotated by the teachers.
    gold_weight (float): Weight of each doc in the annotated corpus. Docs annotated by teachers have
        the weight 1.
    n_seeds (int): Number of times a linear student is trained. The weights are averaged.
    reading (ReadOptions): The options for reading the texts, the answers and the annotated corpus.
        They override the options of the student's training corpus.
    RETURNS (Distilled): The path of the student, and the scores.
    RAISES (ValueError): If the arguments, teachers and student config are incompatible; if
        something in the output folder must not be overwritten; or if a text or an answer can't be
        read.
    """
    # Validate the arguments before running the teachers
    has_file = False
    if noise is None:
        has_file = check_teachers(
            teachers, raw_paths, soft=soft, incomplete=incomplete, min_confidence=min_confidence
        )
    else:
        check_noise(noise, gold_path, soft=soft, incomplete=incomplete, confidence=min_confidence)
    is_fitted = can_be_fitted(config)
    if n_seeds > 1 and not is_fitted:
        raise ValueError(f"seeds: expected 1 for a student that `fit` can't train, got {n_seeds}")
    # With checked texts, `fit` doesn't need a development corpus. The scores come from held-out
    # texts.
    has_soft_targets = soft or noise is not None
    check_student(config, soft=has_soft_targets, needs_dev=noise is None or not is_fitted)
    for name in ("model-last", "model-best"):  # the output folders of training
        check_folder(output_path / name)

    # Create the training corpus from the answers
    config, reading = move_merging(config, reading)
    blank = load_without_components(config)
    train_path = output_path / "train"
    pipelines: list[Language] = []
    learned: LearnedNoise | None = None
    if noise is not None and gold_path is not None:
        counts, learned, notes = make_channel_corpus(
            blank,
            teachers,
            config,
            train_path,
            raw_paths=raw_paths,
            gold_path=gold_path,
            gold_weight=gold_weight,
            reading=reading,
        )
    else:
        if not has_file:
            pipelines = [load_teacher(name) for name in teachers]

        def read_all() -> Iterator[Doc]:
            """Read all answers, either from the JSONL file or from the teachers. The teachers only
            run the first time, and their saved answers are read afterwards."""
            if has_file:
                return read_answers(blank, Path(teachers[0]), reading)
            return save_answers(
                pipelines, blank.vocab, raw_paths, output_path, soft=soft, reading=reading
            )

        # The words that are O outside of the teachers' entities. If None, all words are.
        outside_words: set[str] | None = None
        if incomplete:
            outside_words = find_outside_words(read_all())
        counts = save_corpus(train_path, read_all(), min_confidence, outside_words)
        if gold_path is not None:
            save_gold(train_path, read_docs(blank, gold_path, reading), gold_weight)
        notes = []

    # Train the student, and compare it with its teachers
    config["paths"]["train"] = str(train_path)
    path = train_pipeline(config, output_path, log=sys.stderr, n_seeds=n_seeds)
    student = load_model(path)
    _, dev_corpus = find_corpora(student)
    rows: list[Evaluation] = []
    if dev_corpus is not None:
        # An answer file can't be evaluated on the development corpus.
        teacher_names = teachers if pipelines else ()
        with phase("evaluate"):
            rows = evaluate_all(teacher_names, pipelines, student, dev_corpus)
        notes += note_dev_recurrence(student, dev_corpus)
    return Distilled(path, **counts._asdict(), rows=rows, notes=notes, noise=learned)


def move_merging(config: Config, reading: ReadOptions) -> tuple[Config, ReadOptions]:
    """Move the options in `MERGING` from the training corpus of a config to the options for reading
    the files that the training corpus is created from. If they applied to the created corpus, an
    answer and a gold doc with the same text would be merged.

    config (Config): The student's training config. It isn't modified.
    reading (ReadOptions): The options for reading. They take precedence.
    RETURNS (tuple[Config, ReadOptions]): A copy of the config without the options, and the options
        for reading.
    """
    config = config.copy()
    section, _, name = config["training"].get("train_corpus", "corpora.train").partition(".")
    block = config.get(section, {}).get(name, {})
    if block.get("@readers") != READER:
        return config, reading
    settings = config.interpolate()[section][name]
    for option in MERGING:
        block.pop(option, None)
        if getattr(reading, option) is None:
            reading = replace(reading, **{option: settings.get(option)})
    return config, reading


def note_dev_recurrence(student: Language, dev_corpus: Corpus) -> list[str]:
    """Note recurring texts in the development corpus if the student has a cost-sensitive component:
    see `note_recurrence`."""
    docs = [eg.reference for eg in dev_corpus(student)]
    config = student.config.interpolate()
    source = corpus_path(config, "dev_corpus") or "the development corpus"
    notes: list[str] = []
    for ner in find_components(student).values():
        notes += note_recurrence(KnownText.from_component(student, ner), docs, source)
    return notes


def check_teachers(
    teachers: Sequence[str],
    raw_paths: Sequence[Path],
    *,
    soft: bool,
    incomplete: bool,
    min_confidence: float,
) -> bool:
    """Check that teachers, texts and options are compatible.

    teachers (Sequence[str]): The names of pipelines, or an answer file.
    raw_paths (Sequence[Path]): The text files.
    soft (bool), incomplete (bool), min_confidence (float): The options: see `distill`.
    RETURNS (bool): Whether the teacher is an answer file.
    RAISES (ValueError): If they are incompatible.
    """
    has_file = any(Path(name).suffix in JSONL for name in teachers)
    if has_file and (len(teachers) > 1 or raw_paths):
        got_paths = [*teachers, *map(str, raw_paths)]
        raise ValueError(
            "teacher: expected a file of answers without other teachers and raw text, got "
            f"{got_paths}"
        )
    if not has_file and not raw_paths:
        raise ValueError("raw: expected text files for the teacher to annotate, got none")
    if soft and (has_file or min_confidence):
        got = teachers[0] if has_file else f"min_confidence {min_confidence}"
        raise ValueError(f"soft: expected pipelines as teachers and no min_confidence, got {got}")
    if soft and incomplete:
        raise ValueError("soft: expected teachers that find all entities, got incomplete")
    return has_file


def check_noise(
    noise: str, gold_path: Path | None, *, soft: bool, incomplete: bool, confidence: float
) -> None:
    """Check that the options are compatible with `noise`.

    RAISES (ValueError): If there are no checked texts, or an option has no effect with `noise`.
    """
    if noise != "channel":
        raise ValueError(f"noise: expected channel, got {noise!r}")
    if gold_path is None:
        raise ValueError("gold_path: expected checked texts, got none")
    if soft or incomplete or confidence:
        raise ValueError(
            "noise: expected no `soft`, `incomplete` or `min_confidence`: the noise channel "
            "estimates what teachers miss, and makes soft targets"
        )


def check_student(config: Config, *, soft: bool, needs_dev: bool = True) -> None:
    """Check a student's config before the teachers run. The student isn't built until training.
    `soft` specifies whether the student learns probabilities of tags, which requires a single
    component. `needs_dev` specifies whether a development corpus is required.

    RAISES (ValueError): If the student can't be trained on answers, or there is no development
        corpus.
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
    if needs_dev:
        check_dev(complete)


def check_dev(config: Config) -> None:
    """Check that there is a development corpus for comparing teachers and student.

    config (Config): The student's config, complete and interpolated.
    RAISES (ValueError): If the path of the development corpus is null.
    """
    name = config["training"]["dev_corpus"]
    if lacks_path(config, name):
        raise ValueError(
            f"distill: {name}: expected a development corpus, to compare teachers and student on, "
            "got none: set paths.dev"
        )


def load_without_components(config: Config) -> Language:
    """Load the pipeline of a config without its components, i.e. only the tokenizer and the
    vocab."""
    config = config.copy()
    config["nlp"]["pipeline"] = []
    config["nlp"]["disabled"] = []
    return load_model_from_config(config, auto_fill=True)
