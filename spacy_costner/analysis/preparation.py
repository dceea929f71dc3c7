"""Linear models of a config: load and initialize them, train them, hold out folds.

A linear model is trained by updates, batch after batch, or on all docs at once if they are few. To
hold out folds is to divide docs into folds, and to predict each fold by a model that was trained on
all the others. So there are predictions of all docs by models that have not seen them.
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

from ..ml import WithHiddenLayer, hidden_layer_of, is_linear, linear_part
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers.sentences import copy_tokens
from ..settings import check_settings
from ..training.eval_frequency import without_evaluation
from ..training.hidden import are_few_words, train_hidden_layer
from ..training.lbfgs import train_at_once
from ..training.online import INTERRUPTED, OnEpoch, Trained, train
from ..training.pieces import batch_pieces
from ..training.raw_sentences import pipeline_folder
from ..types import Progress
from .predictions import DevPredictions, predict_dev
from .runs import Failed, MakeExecutor, Run, import_once, run_all

FACTORY = "cost_sensitive_ner"

LINEAR_MODEL = "spacy_costner.SparseCRF.v1"

SEEN_BY_START = (
    "expected null without a development corpus, whose docs are held out of the training corpus: "
    "the model to start from may have seen them"
)

FEW_SENTENCES = 1000
"""Below this number of sentences training is on all docs at once."""

MAX_WEIGHTS = 2 * 10**7
"""The most weights of a model that is trained on all docs at once: it takes about 150 bytes a
weight."""

SENTENCIZER = Sentencizer()
"""Counts the sentences of docs without sentence starts."""

BATCH_SIZE = 256
"""The number of docs that are annotated together, if the corpus isn't in memory."""

Corpus = Callable[[Language], Iterable[Example]]
"""A reader of the config, such as `spacy_costner.read.v1` makes it."""

PrepareComponent = Callable[[CostSensitiveNER], object]
"""Changes a component before it is initialized."""


class LinearPipeline(NamedTuple):
    """A pipeline whose linear model is to be trained."""

    nlp: Language
    ner: CostSensitiveNER  # the component to train
    training: dict[str, Any]  # the block [training] of its config, resolved


def load_linear(config: Config, vocab: Vocab | bool = True) -> LinearPipeline:
    """Load the pipeline of a config for `spacy train`, to train its linear model. The pipeline
    isn't initialized. Sets the seed of the config.

    config (Config): The config. If it has several linear models, the first one is taken.
    vocab (Vocab | bool): The vocab of the pipeline. True: a new one.
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
    ners = components_to_fit(nlp, training["frozen_components"])
    check_end(training)
    return LinearPipeline(nlp, ners[0], training)


def check_end(training: Mapping[str, Any]) -> None:
    """Check that training by a block [training] has an end.

    RAISES (ValueError): If it has none.
    """
    limits = {name: training[name] for name in ("max_epochs", "max_steps")}
    if max(limits.values()) <= 0 or min(limits.values()) < 0:
        raise ValueError(
            "training: expected max_epochs or max_steps of at least 1, and neither below 0, got "
            f"{limits}"
        )


def components_to_fit(nlp: Language, frozen: Iterable[str]) -> list[CostSensitiveNER]:
    """The component of a pipeline that `fit` trains; several if they share a `spans_key`.

    frozen (Iterable[str]): The names of components that are not trained.
    RAISES (ValueError): If other components would have to be trained, or a model is not linear.
    """
    trainable: list[str] = []
    ners: list[CostSensitiveNER] = []
    for name, pipe in nlp.pipeline:
        is_trainable = getattr(pipe, "is_trainable", False)  # functions don't have it
        if name in frozen or not is_trainable:
            continue
        trainable.append(name)
        if isinstance(pipe, CostSensitiveNER):
            ners.append(pipe)
    is_possible = are_fitted_together([ner.annotation.spans_key for ner in ners])
    if len(ners) < len(trainable) or not is_possible:
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
    """Whether `fit` trains components with these keys: one component with or without a key, or
    several that share one."""
    if len(spans_keys) <= 1:
        return len(spans_keys) == 1
    return None not in spans_keys and len(set(spans_keys)) == 1


def can_be_fitted(config: Config) -> bool:
    """Whether `fit` trains a config: its components to train are linear, and training ends. Only
    the config is read: no pipeline is built."""
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
    """The blocks of the components that training changes: those that have a model and are not
    frozen. Settings that a block doesn't have are the defaults of its factory."""
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
    """The block of a component in an interpolated config. If the component is from another
    pipeline, its block there."""
    block = config["components"][name]
    if "source" not in block:
        return block
    components = read_pipeline_config(block["source"])["components"]
    name_in_source = block.get("component", name)
    return components[name_in_source]


def read_pipeline_config(name: str) -> Config:
    """The config of a trained pipeline, a package or a folder."""
    return load_config(pipeline_folder(name) / "config.cfg", interpolate=True)


def find_corpora(nlp: Language) -> tuple[Corpus, Corpus | None]:
    """The readers of the training and the development corpus of a config. None: there is no
    development corpus, as its path is null."""
    config = nlp.config.interpolate()
    train_name = config["training"]["train_corpus"]
    dev_name = config["training"]["dev_corpus"]
    dev_block = dot_to_object(config, dev_name)
    if isinstance(dev_block, dict) and dev_block.get("path", "") is None:
        # A reader with a path of null can't be made.
        section, _, key = dev_name.partition(".")
        del config[section][key]
        (train_corpus,) = resolve_dot_names(config, [train_name])
        return train_corpus, None
    train_corpus, dev_corpus = resolve_dot_names(config, [train_name, dev_name])
    return train_corpus, dev_corpus


def prepare(linear: LinearPipeline, corpus: Corpus, *, in_memory: bool = True) -> Iterable[Example]:
    """Initialize a pipeline, and read its training corpus as the component will see it.

    linear (LinearPipeline): The pipeline.
    corpus (Corpus): The training corpus.
    in_memory (bool): Whether the corpus is kept in memory. It is then read once, for initialization
        and for training; spaCy's `init_nlp` reads it twice, and that takes longest.
    RETURNS (Iterable[Example]): The examples. If they are not in memory, they can be read once.
    """
    nlp, ner, training = linear
    earlier = nlp.pipe_names[: nlp.pipe_names.index(ner.name)]
    annotating = [name for name in earlier if name in training["annotating_components"]]
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
    are. Components from trained pipelines aren't initialized: their training goes on."""
    nlp, _, training = linear
    frozen = training["frozen_components"]
    sourced = get_sourced_components(nlp.config.interpolate())
    resumed = [name for name in sourced if name not in frozen]
    if resumed:
        with nlp.select_pipes(enable=resumed):
            nlp.resume_training(sgd=training["optimizer"])
    with nlp.select_pipes(disable=[*frozen, *resumed]), without_evaluation(nlp):
        nlp.initialize(get_examples, sgd=training["optimizer"])


def annotate_in_batches(
    nlp: Language, examples: Iterable[Example], names: Sequence[str]
) -> Iterator[Example]:
    """Annotate predicted docs where not all docs are in memory: see `annotate_predicted`."""
    for batch in minibatch(examples, BATCH_SIZE):
        yield from annotate_predicted(nlp, batch, names)


def annotate_predicted(
    nlp: Language, examples: list[Example], names: Sequence[str]
) -> list[Example]:
    """Have components annotate the predicted docs, as `spacy train` does with its
    `annotating_components`. The examples get the new docs."""
    if not names:
        return examples
    with nlp.select_pipes(enable=names):
        docs = list(nlp.pipe([eg.predicted for eg in examples]))
    for eg, doc in zip(examples, docs):
        eg.predicted = doc
    return examples


def count_sentences(doc: Doc) -> int:
    """The number of sentences of a doc. If it has no sentence starts, punctuation ends them."""
    if doc.has_annotation("SENT_START"):
        return len(list(doc.sents))
    (is_start,) = SENTENCIZER.predict([doc])  # for each token
    return sum(is_start)


def are_few(docs: Iterable[Doc]) -> bool:
    """Whether docs have fewer than `FEW_SENTENCES` sentences. Reading stops as soon as there are
    more."""
    n_sentences = 0
    for doc in docs:
        n_sentences += count_sentences(doc)
        if n_sentences >= FEW_SENTENCES:
            return False
    return True


def ignore_epoch(trained: Trained) -> None:
    """Do nothing after an epoch."""


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
    them: see `slim_down`.

    A hidden layer is trained after the weights: see `train_hidden_layer`. Only by updates of many
    words, with one seed, are both trained together.

    examples (Iterable[Example]): The docs, as `prepare` returns them.
    n_seeds (int): Weights are the mean of so many trainings, with the batches in other orders.
    on_epoch (OnEpoch): Called with the state after each epoch of updates.
    cache (Path | None): A folder for features and targets of tokens, in place of memory.
    is_small (bool | None): Whether docs are few. None: if they have fewer than `FEW_SENTENCES`.
    RETURNS (Trained): The end of the last training.
    """
    if cache is not None:
        return train_by_updates(linear, examples, n_seeds=n_seeds, on_epoch=on_epoch, cache=cache)
    _, ner, training = linear
    examples = list(examples)
    if is_small is None:
        is_small = are_few(eg.reference for eg in examples)
    is_at_once = is_small and can_train_at_once(ner)
    trains_layer_alone = hidden_layer_of(ner.model) is not None and (
        is_at_once or n_seeds > 1 or are_few_words(examples)
    )
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
            trains_hidden=not trains_layer_alone,
        )
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
    """Make the weights of a linear model slim after training, so that what is evaluated, calibrated
    and tuned is what is saved: see `slim_down`."""
    _, weights = linear_part(ner.model)
    weights.restart(weights.slim(weights.rows))


def train_by_updates(
    linear: LinearPipeline,
    examples: Iterable[Example],
    *,
    n_seeds: int,
    on_epoch: OnEpoch,
    cache: Path | None = None,
    trains_hidden: bool = True,
) -> Trained:
    """Train the linear model of a pipeline by updates: see `train_linear` for the arguments.

    The batcher of the config makes the batches once. Long docs are cut into pieces before: see
    `read_pieces`. Batches are shuffled in each epoch. Training ends after the `max_epochs` or
    `max_steps` of the config. After it the weights are made slim. `trains_hidden`: whether a hidden
    layer is trained, too.
    """
    _, ner, training = linear
    features, weights = linear_part(ner.model)
    hidden = hidden_layer_of(ner.model) if trains_hidden else None
    trainable = weights if hidden is None else WithHiddenLayer(weights, hidden)
    batches = batch_pieces(
        ner.model,
        ner.objective,
        ner.chain_tags,
        examples,
        training["batcher"],
        random.shuffle,
        cache,
    )

    def after_epoch(trained: Trained) -> None:
        """Keep how far training is, and tell the caller."""
        ner.cfg["progress"] = trained.progress._asdict()
        on_epoch(trained)

    optimizer = training["optimizer"]
    first_weights = weights.rows.copy()
    first_progress = Progress(**ner.cfg["progress"])
    # The sum of the weights of all trainings: in float64, so that their mean is exact.
    sum_dtype = "float64" if n_seeds > 1 else "float32"
    sum_of_weights = numpy.zeros(first_weights.shape, dtype=sum_dtype)
    n_trainings = 0
    for i in range(n_seeds):
        desc = "train"
        if n_seeds > 1:
            desc = f"train {i + 1}/{n_seeds}"
        weights.restart(first_weights)
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
            break
    ner.cfg["progress"] = trained.progress._asdict()
    weights.restart((sum_of_weights / n_trainings).astype("float32"))
    slim_weights(ner)
    if hidden is not None:
        hidden.restart(hidden.averaged(optimizer))
    return trained


def can_train_at_once(ner: CostSensitiveNER) -> bool:
    """Whether a component can be trained on all docs at once. It needs a single loss that is smooth
    and needs no trained model to start from. Its weights have to be few, and all 0."""
    _, weights = linear_part(ner.model)
    first_loss, *later_losses = ner.objective.loss.stages
    if later_losses or first_loss.needs_start or not first_loss.is_smooth:
        return False
    return weights.rows.size <= MAX_WEIGHTS and not weights.rows.any()


class Fold(NamedTuple):
    """Docs that were held out, and what a model predicts that was trained on the others."""

    docs: Ints1d  # the indices of the docs in the corpus. Shape: (D,)
    dev: DevPredictions


@dataclass(frozen=True)
class FoldTraining:
    """How the model of each fold is trained. Workers get it pickled."""

    config: Config
    labels: Sequence[str]
    n_seeds: int
    is_small: bool  # whether the docs of all folds are few
    keeps_starts: bool  # whether the sentence starts of predicted docs are taken, too
    prepare_component: PrepareComponent | None

    def fit(self, examples: Sequence[Example], is_held_out: Array1d) -> Fold:
        """Train on some docs, and predict the others, which are held out.

        examples (Sequence[Example]): All docs.
        is_held_out (Array1d): Whether each is held out. Shape: (docs,)
        """
        linear = load_linear(self.config.copy())
        nlp, ner, _ = linear
        # In the config, `initialize` would interpolate a label such as "${paths.train}".
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
        dev = predict_dev(nlp, ner, held_out_examples)
        return Fold(numpy.flatnonzero(is_held_out), dev)

    def copies(self, nlp: Language, examples: Iterable[Example]) -> Iterator[Example]:
        """Copy examples with new predicted docs, which share the vocab of the pipeline."""
        for eg in examples:
            doc = copy_tokens(eg.predicted, nlp.vocab, sentences=self.keeps_starts)
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
    """Train the linear model of a config once for each fold, on all other docs, in the same way as
    it would be trained on all docs: see `train_linear`. Features, label memory and first pass are
    made anew for each fold, so that they don't know its docs.

    config (Config): The config.
    examples (Sequence[Example]): The docs, none of them empty. Of predicted docs only the tokens
        and the user data are taken.
    labels (Sequence[str]): The labels of the component.
    n_folds (int): Number of folds.
    n_seeds (int): Trainings for each fold, whose weights are averaged.
    seed (int | None): See `assign_folds`.
    keeps_starts (bool): Take the sentence starts of predicted docs, too.
    prepare_component (PrepareComponent | None): Called with the component of each fold before it is
        initialized. Workers need to import it.
    make_executor (MakeExecutor | None): Makes an executor of a task for each fold. None: folds are
        trained in this process, and have the examples.
    code_path (Path | None): Python file that workers import.
    desc (str): What the progress bar says.
    RETURNS (list[Fold]): The folds.
    RAISES (ValueError): If the config's component can't be fitted, there are too few docs, or a
        worker failed.
    """
    fold_of_doc = assign_folds(len(examples), n_folds, seed)
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
    # Runs end in any order.
    return [fold_of_run[run.name] for run in runs]


def make_fold_runs(
    training: FoldTraining,
    examples: Sequence[Example],
    fold_of_doc: Ints1d,
    code_path: Path | None,
) -> list[Run]:
    """Make a run for the worker of each fold, which gets all docs as bytes.

    fold_of_doc (Ints1d): The number of the fold of each doc. Shape: (docs,)
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


def assign_folds(n_docs: int, n_folds: int, seed: int | None = None) -> Ints1d:
    """Assign docs to folds of the same size, up to one doc.

    n_docs (int): The number of docs.
    n_folds (int): The number of folds.
    seed (int | None): Assign docs by chance, with this seed. None: docs that follow each other are
        in the same fold.
    RETURNS (Ints1d): The number of the fold of each doc, from 0. Shape: (docs,)
    RAISES (ValueError): If there are fewer folds than 2, or fewer docs than folds.
    """
    if n_folds < 2:
        raise ValueError(f"folds: expected at least 2, got {n_folds}")
    if n_docs < n_folds:
        raise ValueError(
            f"folds: expected at most as many as docs, got {n_folds} folds of {n_docs} docs"
        )
    blocks = numpy.arange(n_docs) * n_folds // n_docs  # of 5 docs in 2 folds: 0 0 0 1 1
    if seed is None:
        return blocks
    return numpy.random.default_rng(seed).permutation(blocks)


def pack_docs(docs: Iterable[Doc]) -> bytes:
    """Docs as bytes, with their user data, for `fit_in_worker`."""
    return DocBin(docs=docs, store_user_data=True).to_bytes()


def fit_in_worker(
    training: FoldTraining,
    predicted: bytes,
    reference: bytes,
    is_held_out: Array1d,
    code_path: Path | None,
) -> Fold:
    """Train and predict a fold in a worker: see `FoldTraining.fit`. It returns no examples, as the
    command has them.

    predicted, reference (bytes): The docs of all examples: see `pack_docs`.
    """
    import_once(code_path)
    vocab = load_model_from_config(training.config, auto_fill=True).vocab
    predicted_docs = DocBin().from_bytes(predicted).get_docs(vocab)
    reference_docs = DocBin().from_bytes(reference).get_docs(vocab)
    examples: list[Example] = []
    for predicted_doc, reference_doc in zip(predicted_docs, reference_docs):
        examples.append(Example(predicted_doc, reference_doc))
    fold = training.fit(examples, is_held_out)
    dev_without_examples = fold.dev._replace(examples=[], originals=[])
    return fold._replace(dev=dev_without_examples)
