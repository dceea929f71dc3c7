"""Linear models of a config: load and initialize them, train them, hold out folds."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.schemas import ConfigSchemaTraining
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.initialize import get_sourced_components
from spacy.util import (
    dot_to_object,
    fix_random_seed,
    load_model_from_config,
    minibatch,
    registry,
    resolve_dot_names,
)
from spacy.vocab import Vocab
from thinc.api import Config
from thinc.types import Array1d, Ints1d

from ..ml import is_linear, linear_part
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers.sentences import copy_tokens
from ..settings import check_settings
from ..training.eval_frequency import without_evaluation
from ..training.lbfgs import train_at_once
from ..training.online import INTERRUPTED, OnEpoch, Trained, train
from ..training.pieces import batch_pieces
from ..types import Progress
from .predictions import DevPredictions, predict_dev
from .runs import Failed, MakeExecutor, Run, import_once, run_all

START = (
    "expected null without a development corpus, whose docs are held out of the training corpus: "
    "the model to start from may have seen them"
)

FEW, MOST_WEIGHTS = 1000, 2 * 10**7
"""Below this number of sentences, and up to this number of weights, training is on all docs at
once. That takes about 150 bytes a weight."""

SENTENCIZER = Sentencizer()

N_DOCS = 256
"""Number of docs that are annotated together, if the corpus isn't in memory."""

Corpus = Callable[[Language], Iterable[Example]]


Linear = tuple[Language, CostSensitiveNER, dict[str, Any]]
"""A pipeline, its component to train, and the block [training] of its config, resolved."""


def load_linear(config: Config, vocab: Vocab | bool = True) -> Linear:
    """Load the pipeline of a config for `spacy train`, not initialized, to train its linear model.

    RAISES (ValueError): If there is a setting that nothing reads, if another component than ours
        would have to be trained, or if training has no end.
    """
    check_settings(config)
    seed = config.interpolate()["training"].get("seed")
    if seed is not None:
        fix_random_seed(seed)
    nlp = load_model_from_config(config, vocab=vocab, auto_fill=True)
    block = nlp.config.interpolate()["training"]
    training = registry.resolve(block, schema=ConfigSchemaTraining)
    ner = components_to_fit(nlp, training["frozen_components"])[0]
    limits = {name: training[name] for name in ("max_epochs", "max_steps")}
    if not max(limits.values()) > 0 or min(limits.values()) < 0:
        raise ValueError(
            "fit: training: expected max_epochs or max_steps of at least 1, and neither below 0, "
            f"got {limits}"
        )
    return nlp, ner, training


def components_to_fit(nlp: Language, frozen: Iterable[str]) -> list[CostSensitiveNER]:
    """The component of a pipeline that can be trained here; several if they share a `spans_key`.

    RAISES (ValueError): If others are not frozen, or a model is not linear.
    """
    trained: dict[str, Any] = {
        name: pipe
        for name, pipe in nlp.pipeline
        if getattr(pipe, "is_trainable", False) and name not in frozen
    }
    ours = [pipe for pipe in trained.values() if isinstance(pipe, CostSensitiveNER)]
    keys = {ner.annotation.spans_key for ner in ours}
    if len(ours) < max(len(trained), 1) or (len(ours) > 1 and (len(keys) > 1 or None in keys)):
        raise ValueError(
            "fit: nlp.pipeline: expected one component to train, of factory 'cost_sensitive_ner', "
            f"and others in training.frozen_components, got {[*trained]}"
        )
    for ner in ours:
        if not is_linear(ner.model):
            raise ValueError(
                f"fit: components.{ner.name}.model: expected spacy_costner.SparseCRF.v1, got "
                f"{nlp.config['components'][ner.name]['model'].get('@architectures')}"
            )
    return ours


def find_corpora(nlp: Language) -> tuple[Corpus, Corpus | None]:
    """The readers of the training and the development corpus of a config. There is none of the
    latter if its path is null."""
    config = nlp.config.interpolate()
    names = [config["training"][name] for name in ("train_corpus", "dev_corpus")]
    dev = dot_to_object(config, names[1])
    if isinstance(dev, dict) and dev.get("path", "") is None:
        section, _, key = names.pop().partition(".")
        del config[section][key]  # where null is an error
    train_corpus, dev_corpus, *_ = [*resolve_dot_names(config, names), None]
    return train_corpus, dev_corpus


def prepare(linear: Linear, corpus: Corpus, *, in_memory: bool = True) -> Iterable[Example]:
    """Initialize a pipeline, and read its training corpus as the component will see it. In memory
    it is read once, for initialization and for training: spaCy's `init_nlp` reads it twice, and
    that takes longest. If it isn't in memory, the result can be read once."""
    nlp, ner, training = linear
    examples = list(progress(corpus(nlp), desc="read", unit="doc")) if in_memory else []
    frozen = training["frozen_components"]
    sourced = [n for n in get_sourced_components(nlp.config.interpolate()) if n not in frozen]
    if sourced:
        with nlp.select_pipes(enable=sourced):
            nlp.resume_training(sgd=training["optimizer"])
    with nlp.select_pipes(disable=[*frozen, *sourced]), without_evaluation(nlp):
        nlp.initialize(lambda: examples if in_memory else corpus(nlp), sgd=training["optimizer"])
    before = nlp.pipe_names[: nlp.pipe_names.index(ner.name)]
    annotating = [name for name in before if name in training["annotating_components"]]
    batches = [examples] if in_memory else minibatch(corpus(nlp), N_DOCS)
    prepared = chain.from_iterable(annotate(nlp, batch, annotating) for batch in batches)
    return list(prepared) if in_memory else prepared


def annotate(nlp: Language, examples: list[Example], names: list[str]) -> list[Example]:
    """Have components annotate the predicted docs, as `spacy train` does: these are replaced."""
    if names:
        with nlp.select_pipes(enable=names):
            for eg, doc in zip(examples, list(nlp.pipe([eg.predicted for eg in examples]))):
                eg.predicted = doc
    return examples


def count_sentences(doc: Doc) -> int:
    """The number of sentences of a doc. Without sentence starts they end with punctuation."""
    if doc.has_annotation("SENT_START"):
        return sum(1 for _ in doc.sents)
    return sum(SENTENCIZER.predict([doc])[0])


def are_few(docs: Iterable[Doc]) -> bool:
    """Whether docs have fewer than `FEW` sentences."""
    return all(total < FEW for total in accumulate(map(count_sentences, docs)))


def train_linear(
    linear: Linear,
    examples: Iterable[Example],
    *,
    n_seeds: int = 1,
    on_epoch: OnEpoch = lambda trained: None,
    cache: Path | None = None,
    is_small: bool | None = None,
) -> Trained:
    """Train the linear model of a pipeline: on all docs at once if they are few, or else by the
    updates of `spacy train`. At once, weights start from 0, and the loss is minimised with a
    penalty: see `train_at_once`. That needs docs in memory, few weights, and one loss without kinks
    that needs no start.

    The config's batcher makes the batches once, of pieces of long docs: see `read_pieces`. They are
    shuffled in each epoch. Training ends after the config's `max_epochs` or `max_steps`.

    Weights are the mean of `n_seeds` trainings, with the batches in other orders; the last is
    returned. `cache` is a folder for features and targets of tokens, in place of memory. `is_small`
    says whether docs are few; None: if they have fewer than `FEW` sentences.
    """
    _, ner, training = linear
    parts, optimizer = (ner.model, ner.objective, ner.chain_tags), training["optimizer"]
    features, weights = linear_part(ner.model)
    first, *later = ner.objective.loss.stages
    is_possible = first.is_smooth and not (later or first.needs_start or weights.rows.any())
    if is_possible and cache is None and weights.rows.size <= MOST_WEIGHTS:
        examples = list(examples)
        if are_few(eg.reference for eg in examples) if is_small is None else is_small:
            trained = train_at_once(*parts, examples)
            ner.cfg["progress"] = trained.progress._asdict()
            return trained
    batches = batch_pieces(*parts, examples, training["batcher"], random.shuffle, cache)

    def after_epoch(trained: Trained) -> None:
        ner.cfg["progress"] = trained.progress._asdict()
        on_epoch(trained)

    start, before = weights.rows.copy(), Progress(**ner.cfg["progress"])
    total: Any = 0
    for i in range(n_seeds):
        weights.restart(start)
        trained = train(
            weights,
            ner.objective,
            batches,
            optimizer,
            max_epochs=training["max_epochs"],
            max_steps=training["max_steps"],
            dropout=features.dropout,
            progress=before,
            on_epoch=after_epoch,
            desc=f"train {i + 1}/{n_seeds}" if n_seeds > 1 else "train",
        )
        # The mean of several is computed in float64.
        total = total + weights.averaged(optimizer).astype("float64" if n_seeds > 1 else "float32")
        if trained.reason == INTERRUPTED:
            break
    ner.cfg["progress"] = trained.progress._asdict()
    weights.restart((total / (i + 1)).astype("float32"))
    return trained


def fit_linear(linear: Linear, corpus: Corpus, **settings: Any) -> None:
    """Initialize a pipeline and train it, by the settings of `train_linear`.

    RAISES (KeyboardInterrupt): If training is interrupted.
    """
    if train_linear(linear, prepare(linear, corpus), **settings).reason == INTERRUPTED:
        raise KeyboardInterrupt


class Fold(NamedTuple):
    """Docs that were held out: their numbers in the corpus, shape (D,), and their annotation and
    posterior, by a model that was trained on the others."""

    docs: Ints1d
    dev: DevPredictions


def hold_out(
    config: Config,
    examples: Sequence[Example],
    labels: Sequence[str],
    *,
    n_folds: int,
    n_seeds: int = 1,
    seed: int | None = None,
    keeps_starts: bool = False,
    before: Callable[[CostSensitiveNER], object] | None = None,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
    desc: str = "folds",
) -> list[Fold]:
    """Train the linear model of a config once for each fold, on all other docs, as it would be
    trained on all: see `train_linear`. Features, label memory and first pass are made anew.

    No doc may be empty; of predicted docs only the tokens and the user data are taken, and with
    `keeps_starts` their sentence starts. `before` is called with each component before it is
    initialized; workers need to import it, and import the file of `code_path`. Without an executor
    folds are trained in this process, and have the examples.

    RAISES (ValueError): If the config's component can't be fitted, there are too few docs, or a
        worker failed.
    """
    fold_of = assign_folds(len(examples), n_folds, seed)
    settings: Any = {"config": config, "labels": labels, "n_seeds": n_seeds, "before": before}
    settings["is_small"] = are_few(eg.reference for eg in examples)
    settings["keeps_starts"] = keeps_starts
    if make_executor is None:
        turns = progress(range(n_folds), desc=desc, unit="fold")
        return [fit_fold(examples, fold_of == i, **settings) for i in turns]
    sides = [eg.predicted for eg in examples], [eg.reference for eg in examples]
    settings["docs"] = [DocBin(docs=side, store_user_data=True).to_bytes() for side in sides]
    settings["code_path"] = code_path
    runs = [Run(str(i), work, {**settings, "is_held_out": fold_of == i}) for i in range(n_folds)]
    done: dict[str, Fold] = {}
    for run, ended in progress(run_all(runs, make_executor), desc=desc, unit="fold", total=n_folds):
        if isinstance(ended, Failed):
            raise ValueError(f"fold {run.name}: {ended.reason}")
        done[run.name] = ended.value
    return [done[run.name] for run in runs]


def assign_folds(n_docs: int, n_folds: int, seed: int | None = None) -> Ints1d:
    """The fold of each doc, in blocks or, with a seed, drawn by chance. Shape: (D,)

    RAISES (ValueError): If there are fewer folds than 2, or fewer docs than folds.
    """
    if n_folds < 2:
        raise ValueError(f"folds: expected at least 2, got {n_folds}")
    if n_docs < n_folds:
        raise ValueError(
            f"folds: expected at most as many as docs, got {n_folds} folds of {n_docs} docs"
        )
    folds = numpy.arange(n_docs) * n_folds // n_docs
    return folds if seed is None else numpy.random.default_rng(seed).permutation(folds)


def work(docs: list[bytes], config: Config, code_path: Path | None, **settings: Any) -> Fold:
    """Fit a fold in a worker, with predicted and reference docs as two `DocBin`s. No examples are
    returned."""
    import_once(code_path)
    vocab = load_model_from_config(config, auto_fill=True).vocab
    predicted, reference = (DocBin().from_bytes(side).get_docs(vocab) for side in docs)
    fold = fit_fold(list(map(Example, predicted, reference)), config=config, **settings)
    return fold._replace(dev=fold.dev._replace(examples=[]))


def fit_fold(
    examples: Sequence[Example],
    is_held_out: Array1d,
    labels: Sequence[str],
    config: Config,
    keeps_starts: bool,
    before: Callable[[CostSensitiveNER], object] | None,
    **settings: Any,
) -> Fold:
    """Train on the other docs, and predict those that are held out. Shape of these: (D,)"""
    linear = load_linear(config.copy())
    nlp, ner, _ = linear
    # In the config, `initialize` would interpolate a label such as "${paths.train}".
    nlp.config["initialize"]["components"].setdefault(ner.name, {})["labels"] = []
    for label in labels:
        ner.add_label(label)
    if before is not None:
        before(ner)

    def copies(is_chosen: Array1d) -> Iterator[Example]:
        """Some of the examples, with predicted docs of the pipeline's vocab."""
        for eg in compress(examples, is_chosen):
            doc = copy_tokens(eg.predicted, nlp.vocab, sentences=keeps_starts)
            doc.user_data.update(eg.predicted.user_data)
            yield Example(doc, eg.reference)

    fit_linear(linear, lambda nlp: [*copies(~is_held_out)], **settings)
    dev = predict_dev(nlp, ner, copies(is_held_out))
    return Fold(numpy.flatnonzero(is_held_out), dev)
