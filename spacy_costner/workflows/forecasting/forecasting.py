"""`forecast`: how good a linear model would be with more training docs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Config

from ...annotation.equal_texts import number_texts
from ...annotation.neighbouring_docs import count_shared_entities
from ...metrics.learning_curves import CONFIDENCE
from ...readers import DEFAULTS, KeptDocs, ReadOptions
from ..config.init_options import InitOptions, check_raw_option
from ..config.trainable import components_to_fit
from ..corpora import are_few
from ..fitting.fit_config import find_config, learn_vectors_for
from ..fitting.fit_corpora import OnCorpus, ignore_corpus, read_training_corpus, report_corpus
from ..fitting.folds import FoldTraining
from ..fitting.linear_training import LinearPipeline, load_linear
from ..fitting.pipeline_training import vocab_of_kept
from .curve_forecast import Forecast, forecast_curve
from .learning_curve import N_FOLDS, measure_curve


def forecast(
    config: Config | Path | None,
    *,
    lang: str | None = None,
    train_path: Path | None = None,
    vectors: str | None = None,
    raw_paths: list[Path] | None = None,
    f: list[float] | None = None,
    confidence: float = CONFIDENCE,
    n_folds: int = N_FOLDS,
    seed: int = 0,
    reading: ReadOptions = DEFAULTS,
    overrides: Mapping[str, Any] = {},
    on_corpus: OnCorpus = ignore_corpus,
) -> Forecast:
    """Forecast how good a linear model would be with more training docs. Models are trained on
    growing parts of the training corpus, and scored on docs that they were not trained on. Without
    a config, they have the one that `init` writes.

    config (Config | Path | None): A config for `spacy train`. A `Config` object is taken as it is:
        the path of the corpus and `overrides` are only put into a config that is a file. None: the
        one that `init` writes for the corpus.
    lang (str | None): Without a config: code of the language.
    train_path (Path | None): Training corpus, as paths.train.
    vectors (str | None): Package or folder of a pipeline whose static vectors are inputs.
    raw_paths (list[Path] | None): Text without annotation: learn vectors from it and from the
        training corpus, and use them as inputs. See `learn_vectors`.
    f (list[float] | None): F to reach, such as 0.8: how many more docs it takes. None: the next two
        multiples of 0.05.
    confidence (float): Probability that an interval contains the score.
    n_folds (int): Number of folds.
    seed (int): Random seed of the order of the docs.
    reading (ReadOptions): How to read the corpus. These options replace the settings of the config.
    overrides (Mapping[str, Any]): Other settings, such as {"training.max_epochs": 3}.
    on_corpus (Callable[[str, CorpusSummary], None]): Called when the corpus was read, before
        training, with "train" and how it was read.
    RETURNS (Forecast): The measured scores, and their forecast.
    RAISES (ValueError): If the component of the config can't be trained, there are several, or it
        starts from another model; if the corpus can't be read, or has no entities or fewer texts
        than folds; or if an F or the confidence isn't between 0 and 1.
    """
    aims = f or []
    for name, share in [("confidence", confidence), *(("f", aim) for aim in aims)]:
        if not 0 < share < 1:
            raise ValueError(f"{name}: expected a number between 0 and 1, got {share}")
    if config is not None and lang is not None:
        raise ValueError("`lang`: expected no config with it")
    with TemporaryDirectory() as folder:  # for the new config and the learned vectors
        options = InitOptions(
            Path(folder, "config.cfg"),
            lang=lang or "en",
            train_path=train_path,
            vectors=vectors,
            reading=reading,
        )
        if raw_paths:
            check_raw_option(vectors, "linear")
            learned = learn_vectors_for(raw_paths, config, options, overrides)
            options = replace(options, vectors=str(learned.path))
        kept = KeptDocs()
        complete_config = find_config(config, options, overrides, kept)
        linear = load_linear(complete_config, vocab=vocab_of_kept(kept, overrides))
        check_component(linear)
        examples, notes = read_examples(linear, kept, on_corpus)
        training = FoldTraining(
            complete_config,
            linear.ner.labels,
            n_seeds=1,
            is_small=are_few(eg.reference for eg in examples),
            keeps_starts=False,
            prepare_component=None,
        )
        curve = measure_curve(training, examples, n_folds=n_folds, seed=seed)
    return forecast_curve(curve, aims=aims, confidence=confidence, notes=notes)


def check_component(linear: LinearPipeline) -> None:
    """Check that folds can be held out: there is one component to train, and it doesn't start from
    another model."""
    nlp, _, training = linear
    ners = components_to_fit(nlp, training["frozen_components"])
    if len(ners) > 1:
        raise ValueError(
            f"forecast: expected one component to train, got {[ner.name for ner in ners]}"
        )
    if nlp.config["initialize"]["after_init"] is not None:
        raise ValueError(
            "forecast: initialize.after_init: expected null: the model to start from may have seen "
            "the docs that are held out"
        )


def read_examples(
    linear: LinearPipeline, kept: KeptDocs, on_corpus: OnCorpus
) -> tuple[list[Example], list[str]]:
    """Read the training corpus of a pipeline, and select the docs with tokens and annotation.

    linear (LinearPipeline): The pipeline, which is initialized here.
    kept (KeptDocs): The docs of the corpus, if they were read before.
    on_corpus (OnCorpus): Called when the corpus was read.
    RETURNS (tuple[list[Example], list[str]]): The examples, and notes about docs that were left
        out, copies, and neighbours that share entities.
    RAISES (ValueError): If the corpus can't be read, doesn't fit the pipeline or has no entities.
    """
    all_examples, info = read_training_corpus(linear, kept)
    report_corpus("train", info, on_corpus)
    annotated: list[Example] = []
    with_entities: list[Doc] = []
    n_left_out = 0
    for eg in all_examples:
        reference = linear.ner.annotation.as_entities(eg).reference
        if not len(reference) or not reference.has_annotation("ENT_IOB"):
            n_left_out += 1
            continue
        annotated.append(eg)
        with_entities.append(reference)
    if not any(doc.ents for doc in with_entities):
        raise ValueError("forecast: expected docs with annotated entities, got none")
    notes: list[str] = []
    if n_left_out:
        notes.append(f"docs without tokens or annotation, which were left out: {n_left_out:,}")
    _, first_docs = numpy.unique(number_texts(with_entities), return_index=True)
    if len(first_docs) < len(annotated):
        n_copies = len(annotated) - len(first_docs)
        notes.append(f"docs whose text another doc has, which count once: {n_copies:,}")
    shared = count_shared_entities(with_entities[i] for i in sorted(first_docs))
    if shared.are_parts:
        notes.append(
            f"neighbouring docs share entities {shared.n_neighbours:,} times, distant docs "
            f"{shared.n_distant:,} times: if they are parts of the same texts, such as sentences, "
            "then F is too high. Make each text a doc"
        )
    return annotated, notes
