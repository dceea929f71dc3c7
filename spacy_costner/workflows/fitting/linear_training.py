"""Train the linear model of a config: load the pipeline, initialize it, and train it on all docs,
or once for each of several folds.

A linear model is trained by updates, batch after batch, or on all docs at once if they are few.
Folds are parts of the docs of about the same size. To hold out a fold means to train a model on all
other docs and to predict the docs of the fold. If each fold is held out once, all docs are
predicted by models that have not seen them.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
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
    get_lang_class,
    load_config,
    load_model_from_config,
    minibatch,
    registry,
    resolve_dot_names,
)
from spacy.vocab import Vocab
from thinc.api import Config
from thinc.types import Array1d, Ints1d

from ...annotation.equal_texts import assign_folds, number_texts
from ...ml import WithHiddenLayer, hidden_layer_of, is_linear, linear_part
from ...pipeline.component import CostSensitiveNER
from ...progress import progress
from ...readers.sentences import copy_without_annotation
from ...training.eval_frequency import without_evaluation
from ...training.hidden import are_few_words, train_hidden_layer
from ...training.lbfgs import train_at_once
from ...training.online import INTERRUPTED, OnEpoch, Trained, train
from ...training.pieces import batch_pieces
from ...training.raw_sentences import pipeline_folder
from ..config.unknown_settings import check_settings
from ..evaluation.predictions import DevPredictions, predict_dev
from ..executors import Failed, MakeExecutor, Run, import_once, run_all

FACTORY = "cost_sensitive_ner"
"""The factory of our component."""

LINEAR_MODEL = "spacy_costner.SparseCRF.v1"
"""The architecture of linear models."""

SEEN_BY_START = (
    "expected null without a development corpus, whose docs are held out of the training corpus: "
    "the model to start from may have seen them"
)
"""The message of an error: docs can't be held out if training starts from another model."""

FEW_SENTENCES = 1000
"""Docs with fewer sentences are few: the model is trained on all of them at once."""

MAX_WEIGHTS = 2 * 10**7
"""A model with more weights is not trained on all docs at once, as that takes about 150 bytes of
memory for each weight."""

SENTENCIZER = Sentencizer()
"""Finds the sentences of docs without sentence starts, to count them."""

BATCH_SIZE = 256
"""How many docs are annotated together, if the corpus isn't in memory."""

Corpus = Callable[[Language], Iterable[Example]]
"""A reader of a corpus, as the config has it: see `spacy_costner.read.v1`."""

PrepareComponent = Callable[[CostSensitiveNER], object]
"""Changes a component before it is initialized."""


class LinearPipeline(NamedTuple):
    """A pipeline whose linear model is to be trained."""

    nlp: Language
    ner: CostSensitiveNER  # the component to train
    training: dict[str, Any]  # the block [training] of its config, resolved


def load_linear(config: Config, vocab: Vocab | bool = True) -> LinearPipeline:
    """Load the pipeline of a config for `spacy train`, to train its linear model. The pipeline
    isn't initialized yet. The random seed of the config is set.

    config (Config): The config. If it has several linear models, the first one is taken.
    vocab (Vocab | bool): The vocab of the pipeline. True: a new one.
    RAISES (ValueError): If there is a setting that nothing reads, if `fit` can't train the
        components (see `components_to_fit`), or if training has no end.
    """
    check_settings(config)
    seed = config.interpolate()["training"].get("seed")
    if seed is not None:
        fix_random_seed(seed)
    nlp = load_model_from_config(config, vocab=vocab, auto_fill=True)
    block = nlp.config.interpolate()["training"]
    training = registry.resolve(block, schema=ConfigSchemaTraining)
    ners = components_to_fit(nlp, training["frozen_components"])
    check_end(training)
    return LinearPipeline(nlp, ners[0], training)


def check_end(training: Mapping[str, Any]) -> None:
    """Check that training ends after some number of epochs or steps. spaCy's -1 epochs, for a
    corpus that is a stream, are refused.

    training (Mapping[str, Any]): The settings of the block [training].
    RAISES (ValueError): If it doesn't end, or a limit is below 0.
    """
    limits = {name: training[name] for name in ("max_epochs", "max_steps")}
    # In spaCy, 0 is no limit. So one of the two has to be above 0.
    if max(limits.values()) <= 0 or min(limits.values()) < 0:
        raise ValueError(
            "training: expected max_epochs or max_steps of at least 1, and neither below 0, got "
            f"{limits}"
        )


def components_to_fit(nlp: Language, frozen: Iterable[str]) -> list[CostSensitiveNER]:
    """Find the components of a pipeline that `fit` trains. That is one component, or several that
    have the same `spans_key`.

    frozen (Iterable[str]): The names of components that are not trained.
    RAISES (ValueError): If there is none, if other components would have to be trained, or if a
        model is not linear.
    """
    trainable: list[str] = []
    ners: list[CostSensitiveNER] = []
    for name, pipe in nlp.pipeline:
        # A component may be a function, which has no such attribute.
        is_trainable = getattr(pipe, "is_trainable", False)
        if name in frozen or not is_trainable:
            continue
        trainable.append(name)
        if isinstance(pipe, CostSensitiveNER):
            ners.append(pipe)
    fit_together = are_fitted_together([ner.annotation.spans_key for ner in ners])
    if len(ners) < len(trainable) or not fit_together:
        raise ValueError(
            f"nlp.pipeline: expected one component to train, of factory {FACTORY!r}, and others in "
            f"training.frozen_components, got {trainable}"
        )
    for ner in ners:
        if not is_linear(ner.model):
            architecture = nlp.config["components"][ner.name]["model"].get("@architectures")
            raise ValueError(
                f"components.{ner.name}.model: expected {LINEAR_MODEL}, got {architecture}"
            )
    return ners


def are_fitted_together(spans_keys: Sequence[str | None]) -> bool:
    """Whether `fit` can train components with these `spans_key`s in one run: a single component, or
    several components with the same key."""
    if len(spans_keys) <= 1:
        return len(spans_keys) == 1
    return None not in spans_keys and len(set(spans_keys)) == 1


def can_be_fitted(config: Config) -> bool:
    """Whether `fit` can train the pipeline of a config: all models to train are linear and can be
    fitted together, training has an end, and all settings are known. Only configs are read: no
    pipeline is built."""
    try:
        check_settings(config)
        complete = Config(Language.default_config).merge(config).interpolate()
        check_end(complete["training"])
        blocks = blocks_to_train(complete)
    except ValueError:
        return False
    for block in blocks:
        is_ours = block["factory"] == FACTORY
        if not is_ours or block["model"]["@architectures"] != LINEAR_MODEL:
            return False
    return are_fitted_together([block.get("spans_key") for block in blocks])


def blocks_to_train(config: Config) -> list[dict[str, Any]]:
    """The blocks of the components that training changes: those that have a model and are neither
    frozen nor disabled. Settings that are not in a block are added, with the defaults of its
    factory."""
    language = get_lang_class(config["nlp"]["lang"])
    not_trained = {*config["nlp"]["disabled"], *config["training"]["frozen_components"]}
    blocks: list[dict[str, Any]] = []
    for name in config["nlp"]["pipeline"]:
        if name in not_trained:
            continue
        block = component_block(config, name)
        defaults = language.get_factory_meta(block["factory"]).default_config
        block = {**(defaults or {}), **block}
        if isinstance(block.get("model"), Mapping):
            blocks.append(block)
    return blocks


def component_block(config: Config, name: str) -> dict[str, Any]:
    """The block of a component in an interpolated config. If the component is taken from another
    pipeline (`source`), it is the block in the config of that pipeline."""
    block = config["components"][name]
    if "source" not in block:
        return block
    components = read_pipeline_config(block["source"])["components"]
    name_in_source = block.get("component", name)
    return components[name_in_source]


def read_pipeline_config(name: str) -> Config:
    """Read the config of a trained pipeline, a package or a folder."""
    return load_config(pipeline_folder(name) / "config.cfg", interpolate=True)


def corpus_path(config: Config, setting: str) -> str | None:
    """The path of a corpus in an interpolated config. None if it has no path.

    setting (str): The setting of [training] that names it: "train_corpus" or "dev_corpus".
    """
    block = dot_to_object(config, config["training"][setting])
    return block.get("path") if isinstance(block, dict) else None


def lacks_path(config: Config, corpus_name: str) -> bool:
    """Whether the path of a corpus is null, so that there is no such corpus. (A reader that has no
    path, such as a function of yours, may find its docs elsewhere.)

    config (Config): The config, interpolated.
    corpus_name (str): The name of the corpus in the config, such as "corpora.dev".
    """
    block = dot_to_object(config, corpus_name)
    return isinstance(block, dict) and "path" in block and block["path"] is None


def find_corpora(nlp: Language) -> tuple[Corpus, Corpus | None]:
    """Make the readers of the training corpus and of the development corpus in the config of a
    pipeline. The second one is None if the path of the development corpus is null."""
    config = nlp.config.interpolate()
    train_name = config["training"]["train_corpus"]
    dev_name = config["training"]["dev_corpus"]
    if lacks_path(config, dev_name):
        # `resolve_dot_names` makes all readers of a section, and none can be made for a path of
        # null. So the block of this one is removed.
        section, _, key = dev_name.partition(".")
        del config[section][key]
        (train_corpus,) = resolve_dot_names(config, [train_name])
        return train_corpus, None
    train_corpus, dev_corpus = resolve_dot_names(config, [train_name, dev_name])
    return train_corpus, dev_corpus


def prepare(linear: LinearPipeline, corpus: Corpus, *, in_memory: bool = True) -> Iterable[Example]:
    """Initialize a pipeline, and read its training corpus. Docs get the annotation of the
    `annotating_components` that come before the component, because the component will see it, too,
    when the pipeline predicts.

    linear (LinearPipeline): The pipeline.
    corpus (Corpus): The training corpus.
    in_memory (bool): Whether the corpus is kept in memory. It is then read only once, for
        initialization and for training. That saves much time: spaCy's `init_nlp` reads it twice.
    RETURNS (Iterable[Example]): The examples. If they are not in memory, you can iterate over them
        only once.
    """
    nlp, ner, training = linear
    place_of_ner = nlp.pipe_names.index(ner.name)
    names_before = nlp.pipe_names[:place_of_ner]
    annotating = [name for name in names_before if name in training["annotating_components"]]
    if not in_memory:
        initialize_components(linear, lambda: corpus(nlp))
        return annotate_in_batches(nlp, corpus(nlp), annotating)
    examples = list(progress(corpus(nlp), desc="read", unit="doc"))
    initialize_components(linear, lambda: examples)
    return annotate_predicted(nlp, examples, annotating)


def initialize_components(
    linear: LinearPipeline, get_examples: Callable[[], Iterable[Example]]
) -> None:
    """Initialize the components of a pipeline as `spacy train` does. Frozen components stay as they
    are. Components from trained pipelines aren't initialized either, as their training goes on.

    get_examples (Callable[[], Iterable[Example]]): Returns the training examples.
    """
    nlp, _, training = linear
    frozen = training["frozen_components"]
    sourced = get_sourced_components(nlp.config.interpolate())
    resumed = [name for name in sourced if name not in frozen]
    if resumed:
        with nlp.select_pipes(enable=resumed):
            nlp.resume_training(sgd=training["optimizer"])
    # This training doesn't evaluate, so `eval_frequency` needn't be set.
    with nlp.select_pipes(disable=[*frozen, *resumed]), without_evaluation(nlp):
        nlp.initialize(get_examples, sgd=training["optimizer"])


def annotate_in_batches(
    nlp: Language, examples: Iterable[Example], names: Sequence[str]
) -> Iterator[Example]:
    """Let components annotate the predicted docs, one batch after another, as not all docs are in
    memory. See `annotate_predicted`."""
    for batch in minibatch(examples, BATCH_SIZE):
        yield from annotate_predicted(nlp, batch, names)


def annotate_predicted(
    nlp: Language, examples: list[Example], names: Sequence[str]
) -> list[Example]:
    """Let components annotate the predicted docs, as `spacy train` does with its
    `annotating_components`. The predicted docs of the examples are replaced.

    nlp (Language): The pipeline.
    examples (list[Example]): The examples.
    names (Sequence[str]): The names of these components.
    RETURNS (list[Example]): The same examples.
    """
    if not names:
        return examples
    with nlp.select_pipes(enable=names):
        docs = list(nlp.pipe([eg.predicted for eg in examples]))
    for eg, doc in zip(examples, docs):
        eg.predicted = doc
    return examples


def count_sentences(doc: Doc) -> int:
    """Count the sentences of a doc. If the doc has no sentence starts, a sentence ends at
    punctuation."""
    if doc.has_annotation("SENT_START"):
        return len(list(doc.sents))
    # Whether each token of the only doc starts a sentence
    (starts_sentence,) = SENTENCIZER.predict([doc])
    return sum(starts_sentence)


def are_few(docs: Iterable[Doc]) -> bool:
    """Whether docs have fewer than `FEW_SENTENCES` sentences together. No more docs are read than
    it takes to know that."""
    n_sentences = 0
    for doc in docs:
        n_sentences += count_sentences(doc)
        if n_sentences >= FEW_SENTENCES:
            return False
    return True


def ignore_epoch(trained: Trained) -> None:
    """Do nothing after an epoch: the default of `train_linear`."""


def train_linear(
    linear: LinearPipeline,
    examples: Iterable[Example],
    *,
    n_seeds: int = 1,
    on_epoch: OnEpoch = ignore_epoch,
    cache: Path | None = None,
    is_small: bool | None = None,
) -> Trained:
    """Train the linear model of a pipeline.

    If docs are few, it is trained on all of them at once: weights start from 0, and the loss is
    minimised with a penalty (see `train_at_once`). Docs have to be in memory for that, and the
    component has to allow it (see `can_train_at_once`). Otherwise it is trained by updates, as
    `spacy train` does. After training the weights are made slim, unless the model keeps all of
    them: those that hardly matter become 0, and the others are rounded (see `slim_down`).

    The model may have a hidden layer. Normally it is trained alone, after the weights: see
    `train_hidden_layer`. Both are trained together if training is by updates, with one seed, and
    the docs have many words or are in a cache.

    linear (LinearPipeline): The pipeline, which `prepare` has initialized.
    examples (Iterable[Example]): The docs, as `prepare` returns them.
    n_seeds (int): How often the model is trained, each time with the batches in another order. The
        weights are averaged.
    on_epoch (OnEpoch): Is called with the state of training after each epoch of updates.
    cache (Path | None): A folder for the features and targets of tokens, which are otherwise in
        memory.
    is_small (bool | None): Whether docs are few. None: they are counted here.
    RETURNS (Trained): How the last training of the weights ended. The reason is `INTERRUPTED`, too,
        if the training of the hidden layer was interrupted.
    RAISES (ValueError): If a score is not finite, or `read_pieces` can't cache a doc.
    """
    if cache is not None:
        return train_by_updates(linear, examples, n_seeds=n_seeds, on_epoch=on_epoch, cache=cache)
    _, ner, training = linear
    examples = list(examples)
    if is_small is None:
        is_small = are_few(eg.reference for eg in examples)
    is_at_once = is_small and can_train_at_once(ner)
    trains_layer_alone = False
    if hidden_layer_of(ner.model) is not None:
        trains_layer_alone = is_at_once or n_seeds > 1 or are_few_words(examples)

    # The weights, by updates together with the layer
    if is_at_once:
        trained = train_at_once(ner.model, ner.objective, ner.chain_tags, examples)
        ner.cfg["progress"] = trained.progress._asdict()
        slim_weights(ner)
    else:
        trained = train_by_updates(
            linear,
            examples,
            n_seeds=n_seeds,
            on_epoch=on_epoch,
            trains_hidden_layer=not trains_layer_alone,
        )
    # The layer alone
    if trains_layer_alone and trained.reason != INTERRUPTED:
        layer_trained = train_hidden_layer(
            ner.model,
            ner.objective,
            ner.chain_tags,
            examples,
            training["optimizer"],
            trained.progress,
        )
        if layer_trained.reason == INTERRUPTED:
            trained = trained._replace(reason=INTERRUPTED)
    return trained


def slim_weights(ner: CostSensitiveNER) -> None:
    """Make the weights of a linear model slim: see `slim_down`. That is done right after training,
    so that the weights that are evaluated, calibrated and tuned are those that will be saved."""
    _, weights = linear_part(ner.model)
    weights.restart(weights.slim(weights.rows))


def train_by_updates(
    linear: LinearPipeline,
    examples: Iterable[Example],
    *,
    n_seeds: int,
    on_epoch: OnEpoch,
    cache: Path | None = None,
    trains_hidden_layer: bool = True,
) -> Trained:
    """Train the linear model of a pipeline by updates. See `train_linear` for the arguments.

    Long docs are cut into pieces: see `batch_pieces`. The batcher of the config makes batches of
    these once, and the batches are shuffled in each epoch. Training ends after the `max_epochs` or
    `max_steps` of the config. Then the weights are made slim.

    trains_hidden_layer (bool): Whether a hidden layer is trained, too.
    RETURNS (Trained): How the last training ended.
    """
    _, ner, training = linear
    features, weights = linear_part(ner.model)
    layer = hidden_layer_of(ner.model) if trains_hidden_layer else None
    trainable = weights if layer is None else WithHiddenLayer(weights, layer)
    batches = batch_pieces(
        ner.model,
        ner.objective,
        ner.chain_tags,
        examples,
        training["batcher"],
        shuffle=random.shuffle,
        cache=cache,
    )

    def after_epoch(trained: Trained) -> None:
        """Note in the settings of the component how far training is, and tell the caller."""
        ner.cfg["progress"] = trained.progress._asdict()
        on_epoch(trained)

    optimizer = training["optimizer"]
    first_weights = weights.rows.copy()
    first_progress = ner.progress
    # The weights of several trainings are summed in float64, so that their mean is exact.
    sum_dtype = "float64" if n_seeds > 1 else "float32"
    sum_of_weights = numpy.zeros(first_weights.shape, dtype=sum_dtype)
    n_trainings = 0
    for i in range(n_seeds):
        desc = "train"
        if n_seeds > 1:
            desc = f"train {i + 1}/{n_seeds}"
        weights.restart(first_weights)  # each training begins with the same weights
        trained = train(
            trainable,
            ner.objective,
            batches,
            optimizer,
            max_epochs=training["max_epochs"],
            max_steps=training["max_steps"],
            dropout=features.dropout,
            progress=first_progress,
            on_epoch=after_epoch,
            desc=desc,
        )
        sum_of_weights += weights.averaged(optimizer).astype(sum_dtype)
        n_trainings += 1
        if trained.reason == INTERRUPTED:
            break  # Its weights so far count in the mean.
    # Training may have ended in the middle of an epoch.
    ner.cfg["progress"] = trained.progress._asdict()
    # `restart` sets weights, too: here those of the trained model.
    weights.restart((sum_of_weights / n_trainings).astype("float32"))
    slim_weights(ner)
    if layer is not None:  # There is only one training then: see `train_linear` and `check_cache`.
        layer.restart(layer.averaged(optimizer))
    return trained


def can_train_at_once(ner: CostSensitiveNER) -> bool:
    """Whether a component can be trained on all docs at once. Its loss must not be a schedule, must
    be smooth, and must not need a trained model to start from. Its weights must not be too many,
    and must all be 0, so that no earlier training is lost."""
    _, weights = linear_part(ner.model)
    first_loss, *later_losses = ner.objective.loss.stages
    if later_losses or first_loss.needs_start or not first_loss.is_smooth:
        return False
    return weights.rows.size <= MAX_WEIGHTS and not weights.rows.any()


class Fold(NamedTuple):
    """Docs that were held out, and the predictions for them of a model that was trained on the
    others."""

    docs: Ints1d  # the indices of the held-out docs among all docs. Shape: (D,)
    dev: DevPredictions


@dataclass(frozen=True)
class FoldTraining:
    """How the models of folds are trained. It is the same for all folds, and workers get it
    pickled. `is_small` says whether all docs together are few: each model is trained as one on all
    docs would be. See `hold_out` for the other fields."""

    config: Config
    labels: Sequence[str]
    n_seeds: int
    is_small: bool
    keeps_starts: bool
    prepare_component: PrepareComponent | None

    def fit(self, examples: Sequence[Example], is_held_out: Array1d) -> Fold:
        """Train a model on the docs outside of a fold, and predict the docs of the fold.

        examples (Sequence[Example]): All docs.
        is_held_out (Array1d): Whether each doc is in the fold. Shape: (docs,)
        RAISES (KeyboardInterrupt): If training is interrupted: a part of a fold is of no use.
        """
        linear = load_linear(self.config)
        nlp, ner, _ = linear
        # Labels are added to the component, not to the config: there, `initialize` would take a
        # label such as "${paths.train}" for a variable. The empty list in the config says that
        # there are no others.
        nlp.config["initialize"]["components"].setdefault(ner.name, {})["labels"] = []
        for label in self.labels:
            ner.add_label(label)
        if self.prepare_component is not None:
            self.prepare_component(ner)

        training_examples = list(self.copies(nlp, compress(examples, ~is_held_out)))
        prepared = prepare(linear, lambda nlp: training_examples)
        trained = train_linear(linear, prepared, n_seeds=self.n_seeds, is_small=self.is_small)
        if trained.reason == INTERRUPTED:
            raise KeyboardInterrupt
        held_out_examples = self.copies(nlp, compress(examples, is_held_out))
        # The held-out docs are predicted as development docs are.
        predictions = predict_dev(nlp, ner, held_out_examples)
        return Fold(docs=numpy.flatnonzero(is_held_out), dev=predictions)

    def copies(self, nlp: Language, examples: Iterable[Example]) -> Iterator[Example]:
        """Make examples with the same annotation and with new predicted docs, which have the vocab
        of the pipeline and only the tokens, the user data and, with `keeps_starts`, the sentence
        starts of the old ones."""
        for eg in examples:
            doc = copy_without_annotation(eg.predicted, nlp.vocab, sentences=self.keeps_starts)
            doc.user_data.update(eg.predicted.user_data)
            yield Example(doc, eg.reference)


def hold_out(
    config: Config,
    examples: Sequence[Example],
    labels: Sequence[str],
    *,
    n_folds: int,
    n_seeds: int = 1,
    seed: int | None = None,
    keeps_starts: bool = False,
    prepare_component: PrepareComponent | None = None,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
    desc: str = "folds",
) -> list[Fold]:
    """Divide docs into folds, with equal texts in one fold. For each fold, train the linear model
    of a config on all other docs, and predict the docs of the fold. Each model is trained as one on
    all docs would be: see `train_linear`. Features, label memory (`features.memory`) and first pass
    are made anew for each fold, so that they don't know its docs.

    config (Config): The config.
    examples (Sequence[Example]): The docs, none of them empty. Only the tokens and the user data of
        predicted docs are used.
    labels (Sequence[str]): The labels of the component.
    n_folds (int): Number of folds.
    n_seeds (int): Number of trainings for each fold, whose weights are averaged.
    seed (int | None): Random seed that assigns texts to folds: see `assign_folds`.
    keeps_starts (bool): Whether models also see the sentence starts of predicted docs.
    prepare_component (PrepareComponent | None): Is called with the component of each fold before it
        is initialized. Workers must be able to import it.
    make_executor (MakeExecutor | None): Makes an executor, which has a task for each fold (see
        `run_all`). Its folds have no examples. None: folds are trained in this process, and have
        their examples.
    code_path (Path | None): Python file that workers import.
    desc (str): The text beside the progress bar.
    RETURNS (list[Fold]): The folds.
    RAISES (ValueError): If the component of the config can't be fitted, there are too few folds or
        texts (see `assign_folds`), no token of a fold is annotated, or a worker failed.
    """
    text_of_doc = number_texts(eg.reference for eg in examples)
    fold_of_doc = assign_folds(text_of_doc, n_folds, seed)
    training = FoldTraining(
        config,
        labels,
        n_seeds=n_seeds,
        is_small=are_few(eg.reference for eg in examples),
        keeps_starts=keeps_starts,
        prepare_component=prepare_component,
    )
    if make_executor is None:
        fold_numbers = progress(range(n_folds), desc=desc, unit="fold")
        return [training.fit(examples, fold_of_doc == fold) for fold in fold_numbers]

    runs = make_fold_runs(training, examples, fold_of_doc, code_path)
    fold_of_run: dict[str, Fold] = {}
    ended_runs = run_all(runs, make_executor)
    for run, ended in progress(ended_runs, desc=desc, unit="fold", total=n_folds):
        if isinstance(ended, Failed):
            raise ValueError(f"fold {run.name}: {ended.reason}")
        fold_of_run[run.name] = ended.value
    # Runs may end in another order than they were begun.
    return [fold_of_run[run.name] for run in runs]


def make_fold_runs(
    training: FoldTraining,
    examples: Sequence[Example],
    fold_of_doc: Ints1d,
    code_path: Path | None,
) -> list[Run]:
    """Make a run for each fold. Its worker gets all docs as bytes.

    training (FoldTraining): How models are trained.
    examples (Sequence[Example]): All docs.
    fold_of_doc (Ints1d): The number of the fold of each doc. Shape: (docs,)
    code_path (Path | None): Python file that workers import.
    """
    predicted = pack_docs([eg.predicted for eg in examples])
    reference = pack_docs([eg.reference for eg in examples])
    runs: list[Run] = []
    for fold in numpy.unique(fold_of_doc):
        arguments = {
            "training": training,
            "predicted": predicted,
            "reference": reference,
            "is_held_out": fold_of_doc == fold,
            "code_path": code_path,
        }
        runs.append(Run(str(fold), fit_in_worker, arguments))
    return runs


def pack_docs(docs: Iterable[Doc]) -> bytes:
    """Turn docs into bytes, with their user data, for `fit_in_worker`."""
    return DocBin(docs=docs, store_user_data=True).to_bytes()


def fit_in_worker(
    training: FoldTraining,
    predicted: bytes,
    reference: bytes,
    is_held_out: Array1d,
    code_path: Path | None,
) -> Fold:
    """Train and predict a fold in a worker: see `FoldTraining.fit`. The fold is returned without
    examples, as `hold_out` has them.

    training (FoldTraining): How the model is trained.
    predicted, reference (bytes): The docs of all examples: see `pack_docs`.
    is_held_out (Array1d): Whether each doc is in the fold. Shape: (docs,)
    code_path (Path | None): Python file that is imported first.
    """
    import_once(code_path)
    # A `DocBin` keeps no vocab. Docs get one of the pipeline that is trained, as its language says
    # what the lower case or the shape of a word is.
    vocab = load_model_from_config(training.config, auto_fill=True).vocab
    predicted_docs = DocBin().from_bytes(predicted).get_docs(vocab)
    reference_docs = DocBin().from_bytes(reference).get_docs(vocab)
    examples: list[Example] = []
    for predicted_doc, reference_doc in zip(predicted_docs, reference_docs):
        examples.append(Example(predicted_doc, reference_doc))
    fold = training.fit(examples, is_held_out)
    # The predictions have two lists of examples: see `DevPredictions`.
    dev_without_examples = fold.dev._replace(examples=[], originals=[])
    return fold._replace(dev=dev_without_examples)
