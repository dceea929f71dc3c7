"""Create the training corpus of a student from annotators who make mistakes: see
`noise_channel`."""

from collections.abc import Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.api import Config

from ...readers import ReadOptions, read_docs, read_texts
from ...tags import SINGLE
from ...training.lbfgs import MOST_ITERATIONS
from ...training.soft_targets import count_expected_entities
from ..config.initial_config import init
from ..config.trainable import FACTORY, can_be_fitted
from ..fitting.folds import FoldTraining
from .annotator_errors import AnnotatorErrors, describe_errors
from .answered_texts import AnsweredTexts
from .noise_channel import (
    ANSWERS,
    CHANNEL,
    ChannelTraining,
    Corrections,
    MethodScores,
    choose_method,
)
from .student_corpus import CorpusCounts, remove_corpus, save_gold
from .teachers import DOCS_PER_FILE, save_docs

ALIKE = 0.98
"""If the F-score of one annotator's answers, evaluated against another annotator's, is at least
this high, both sets of answers probably have the same source."""


class LearnedNoise(NamedTuple):
    """The estimated errors of annotators, and the chosen method.

    annotators (list[AnnotatorErrors]): The errors of each annotator.
    n_checked (int): The number of checked texts.
    methods (list[MethodScores]): The scores of each method, on checked texts that its models were
        not trained on.
    kept (str): The name of the method that was chosen to train the student: see `choose_method`.
    corrections (Corrections): The differences between the most probable entities of unchecked texts
        and the answers.
    """

    annotators: list[AnnotatorErrors]
    n_checked: int
    methods: list[MethodScores]
    kept: str
    corrections: Corrections


class ChannelCorpus(NamedTuple):
    """The training corpus of a student, created from annotators' answers. With soft targets, the
    number of entities is the expected number."""

    counts: CorpusCounts
    noise: LearnedNoise
    notes: list[str]


def make_channel_corpus(
    blank: Language,
    annotators: Sequence[str],
    config: Config,
    folder: Path,
    *,
    raw_paths: Sequence[Path],
    gold_path: Path,
    gold_weight: float,
    reading: ReadOptions,
) -> ChannelCorpus:
    """Create the training corpus of a student from annotators who make mistakes.

    blank (Language): A pipeline with the student's tokenizer.
    annotators (Sequence[str]): Corpora with answers, or pipelines.
    config (Config): The student's config.
    folder (Path): The folder of the corpus. The corpus of an earlier run is removed.
    raw_paths (Sequence[Path]): Additional texts, annotated only by pipelines.
    gold_path (Path): The checked texts.
    gold_weight (float): Weight of each checked text. Unchecked texts have the weight 1.
    reading (ReadOptions): The options for reading the corpora.
    RETURNS (ChannelCorpus): The counts of the corpus, the estimated errors, and notes.
    RAISES (ValueError): If texts and answers don't match: see `AnsweredTexts`.
    """
    gold = list(read_docs(blank, gold_path, reading))
    raw = chain.from_iterable(read_texts(blank, path, reading) for path in raw_paths)
    texts = AnsweredTexts(blank, gold, annotators, raw, reading)
    # Soft targets are computed by a linear model. Any student can be trained on them.
    linear_config = config
    if not can_be_fitted(config):
        lang = config.interpolate()["nlp"]["lang"]
        text = init(lang=lang, train_path=gold_path, reading=reading)
        linear_config = Config().from_str(text, interpolate=False)
    result = ChannelTraining(short_training(linear_config, texts.labels), texts).run()
    best = choose_method(result.methods)

    docs: list[Doc] = []  # the unchecked texts for training; none for `GOLD`
    if best.name == CHANNEL:
        docs = result.docs
    elif best.name == ANSWERS:
        docs = [texts.voted_doc(text) for text in texts.unchecked]
    remove_corpus(folder)
    for i, batch in enumerate(minibatch(docs, DOCS_PER_FILE)):
        save_docs(folder / f"{i:06}.spacy", batch)
    save_gold(folder, gold, gold_weight)

    n_entities = 0.0
    for doc in docs:
        n_entities += len(doc.ents) + sum(count_expected_entities(doc).values())
    noise = LearnedNoise(
        annotators=describe_errors(texts, result.estimate.counts),
        n_checked=len(texts.checked),
        methods=result.methods,
        kept=best.name,
        corrections=result.corrections,
    )
    counts = CorpusCounts(len(docs), round(n_entities), n_missing=0, n_unknown=0)
    return ChannelCorpus(counts, noise, note_annotators(texts))


def short_training(config: Config, labels: Sequence[str]) -> FoldTraining:
    """Reduce the training of a linear model. Models for soft targets don't need a second pass (see
    `features.document`), several tags for O, or more than half of the epochs or iterations. All of
    these make training several times slower and don't improve the student.

    config (Config): The config of the model. It isn't modified.
    labels (Sequence[str]): The labels of the model.
    RETURNS (FoldTraining): The reduced training.
    """
    config = config.copy()
    for block in config["components"].values():
        if block.get("factory") == FACTORY:
            block["outside"] = SINGLE
            # The losses of a schedule end earlier, too.
            loss = block.get("loss") or {}
            if loss.get("epochs"):
                loss["epochs"] = [end / 2 for end in loss["epochs"]]
            if loss.get("steps"):
                loss["steps"] = [half(end) for end in loss["steps"]]
        features = block.get("model", {}).get("features", {})
        if features.get("document"):
            features["document"] = {}
    complete = Config(Language.default_config).merge(config).interpolate()
    for limit in ("max_epochs", "max_steps"):
        config["training"][limit] = half(complete["training"][limit])
    return FoldTraining(
        config,
        labels,
        n_seeds=1,
        is_small=None,
        keeps_starts=True,
        prepare_component=None,
        max_iterations=half(MOST_ITERATIONS),
    )


def half(n: int) -> int:
    """Return half of a training limit, rounded up. 0 means no limit and stays 0."""
    return (n + 1) // 2


def note_annotators(texts: AnsweredTexts) -> list[str]:
    """Note unusual annotators: those with several answers for the same text, and pairs with nearly
    identical answers."""
    notes: list[str] = []
    for name, n_repeated in zip(texts.annotators, texts.n_repeated):
        if n_repeated:
            notes.append(f"{name}: {n_repeated} answers are to texts that it had already answered")
    for number, other in combinations(range(len(texts.annotators)), 2):
        if texts.agreement(number, other) >= ALIKE:
            notes.append(
                f"{texts.annotators[number]} and {texts.annotators[other]} have nearly the same "
                "answers: if one was made from the other, leave it out, as both are counted"
            )
    return notes
