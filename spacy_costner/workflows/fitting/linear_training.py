"""Train the linear model of a config: load the pipeline, initialize it, and train it on all docs.

A linear model is trained by batch updates or, if there are few docs, on all docs at once.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.training import Example
from spacy.training.initialize import get_sourced_components
from spacy.util import fix_random_seed, load_model_from_config, minibatch, registry
from spacy.vocab import Vocab
from thinc.api import Config

from ...ml import WithHiddenLayer, hidden_layer_of, linear_part
from ...pipeline.component import CostSensitiveNER
from ...pipeline.learn_rate import make_optimizer
from ...progress import progress
from ...training.eval_frequency import without_evaluation
from ...training.hidden import are_few_words, train_hidden_layer
from ...training.lbfgs import MOST_ITERATIONS, train_at_once
from ...training.online import INTERRUPTED, OnEpoch, TrainingResult, train
from ...training.pieces import batch_pieces
from ...training.stages import warn_if_last_loss_was_unused
from ..config.trainable import check_end, components_to_fit
from ..config.unknown_settings import check_settings
from ..corpora import Corpus, are_few

MAX_WEIGHTS = 2 * 10**7
"""Models with more weights aren't trained on all docs at once, because this requires about 150
bytes of memory per weight."""

ANNOTATION_BATCH_SIZE = 256
"""The number of docs to annotate together if the corpus isn't in memory."""


class LinearPipeline(NamedTuple):
    """A pipeline with a linear model to train.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): The component to train.
    training (dict[str, Any]): The resolved [training] block of its config.
    sourced (Sequence[str]): The names of the components that are sourced from trained pipelines.
    """

    nlp: Language
    ner: CostSensitiveNER
    training: dict[str, Any]
    sourced: Sequence[str] = ()


def load_linear(config: Config, vocab: Vocab | bool = True) -> LinearPipeline:
    """Load the pipeline of a `spacy train` config to train its linear model. The pipeline isn't
    initialized yet. Sets the random seed given in the config.

    config (Config): The config. If it has several linear models, the first one is used.
    vocab (Vocab | bool): The vocab of the pipeline. If True, a new one is created.
    RAISES (ValueError): If a setting is unknown, if `fit` can't train the components (see
        `components_to_fit`), or if the number of training epochs or steps isn't limited.
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
    # The config of the pipeline contains the settings of sourced components, but not `source`.
    sourced = get_sourced_components(config.interpolate())
    return LinearPipeline(nlp, ners[0], training, [*sourced])


def prepare(linear: LinearPipeline, corpus: Corpus, *, in_memory: bool = True) -> Iterable[Example]:
    """Initialize a pipeline and read its training corpus. The `annotating_components` that run
    before the component annotate the predicted docs, because the component also sees their
    annotations at prediction time.

    linear (LinearPipeline): The pipeline.
    corpus (Corpus): The training corpus.
    in_memory (bool): Whether to keep the corpus in memory. The corpus is then read only once, for
        both initialization and training. This is much faster than spaCy's `init_nlp`, which reads
        it twice.
    RETURNS (Iterable[Example]): The examples. If they aren't in memory, they can only be iterated
        over once.
    """
    nlp, ner, training, _ = linear
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
    """Initialize the components of a pipeline on training examples, as `spacy train` does. Frozen
    components aren't changed. Components sourced from trained pipelines aren't initialized, but
    resume training."""
    nlp, _, training, sourced = linear
    frozen = training["frozen_components"]
    resumed = [name for name in nlp.pipe_names if name in sourced and name not in frozen]
    if resumed:
        with nlp.select_pipes(enable=resumed):
            nlp.resume_training(sgd=training["optimizer"])
    for name in resumed:
        pipe = nlp.get_pipe(name)
        if isinstance(pipe, CostSensitiveNER):
            pipe.resume(get_examples)
    # This training doesn't evaluate, so `eval_frequency` isn't required.
    with nlp.select_pipes(disable=[*frozen, *resumed]), without_evaluation(nlp):
        nlp.initialize(get_examples, sgd=training["optimizer"])


def annotate_in_batches(
    nlp: Language, examples: Iterable[Example], names: Sequence[str]
) -> Iterator[Example]:
    """Annotate the predicted docs batch by batch, because not all docs are in memory. See
    `annotate_predicted`."""
    for batch in minibatch(examples, ANNOTATION_BATCH_SIZE):
        yield from annotate_predicted(nlp, batch, names)


def annotate_predicted(
    nlp: Language, examples: list[Example], names: Sequence[str]
) -> list[Example]:
    """Annotate the predicted docs with the given components, as `spacy train` does with its
    `annotating_components`. Replaces the predicted docs of the examples, and returns the
    examples."""
    if not names:
        return examples
    with nlp.select_pipes(enable=names):
        docs = list(nlp.pipe([eg.predicted for eg in examples]))
    for eg, doc in zip(examples, docs):
        eg.predicted = doc
    return examples


def ignore_epoch(trained: TrainingResult) -> None:
    """Do nothing after an epoch. Default callback of `train_linear`."""


def train_linear(
    linear: LinearPipeline,
    examples: Iterable[Example],
    *,
    n_seeds: int = 1,
    on_epoch: OnEpoch = ignore_epoch,
    cache: Path | None = None,
    is_small: bool | None = None,
    max_iterations: int = MOST_ITERATIONS,
) -> TrainingResult:
    """Train the linear model of a pipeline.

    If there are few docs, the model is trained on all of them at once: weights are initialized to
    0, and the loss is minimised with a penalty (see `train_at_once`). This requires that docs are
    in memory and that the component supports it (see `can_train_at_once`). Otherwise, the model is
    trained by updates, as in `spacy train`. After training, the weights are pruned and quantized,
    unless the model is configured to keep all of them: negligible weights are set to 0, and the
    others are rounded (see `ml.pruning.prune_and_quantize`).

    If the model has a hidden layer, it is usually trained separately, after the weights: see
    `train_hidden_layer`. Both are trained together if the model is trained by updates, with one
    seed, and the docs have many words or are cached.

    linear (LinearPipeline): The pipeline, initialized by `prepare`.
    examples (Iterable[Example]): The examples returned by `prepare`.
    n_seeds (int): The number of training runs, each with the batches in a different order. The
        weights are averaged.
    on_epoch (OnEpoch): Callback that receives the state of training after each epoch of updates.
    cache (Path | None): A folder for the features and targets of tokens. If None, they are kept in
        memory.
    is_small (bool | None): Whether there are few docs. If None, they are counted.
    max_iterations (int): The maximum number of iterations when training on all docs at once.
    RETURNS (TrainingResult): How the last training run of the weights ended. The reason is also
        `INTERRUPTED` if the training of the hidden layer was interrupted.
    RAISES (ValueError): If a score is not finite, or `read_pieces` can't cache a doc.
    """
    if cache is not None:
        return train_by_updates(linear, examples, n_seeds=n_seeds, on_epoch=on_epoch, cache=cache)
    nlp, ner, _, _ = linear
    examples = list(examples)
    if is_small is None:
        is_small = are_few(eg.reference for eg in examples)
    is_at_once = is_small and can_train_at_once(ner)
    trains_layer_alone = False
    if hidden_layer_of(ner.model) is not None:
        trains_layer_alone = is_at_once or n_seeds > 1 or are_few_words(examples)

    # Train the weights, possibly together with the layer
    if is_at_once:
        trained = train_at_once(
            ner.model,
            ner.objective,
            ner.chain_tags,
            examples,
            max_iterations=max_iterations,
        )
        ner.cfg["progress"] = trained.progress._asdict()
        prune_and_quantize(ner)
    else:
        trained = train_by_updates(
            linear,
            examples,
            n_seeds=n_seeds,
            on_epoch=on_epoch,
            trains_hidden_layer=not trains_layer_alone,
        )
    # Train the layer separately
    if trains_layer_alone and trained.reason != INTERRUPTED:
        layer_trained = train_hidden_layer(
            ner.model,
            ner.objective,
            ner.chain_tags,
            examples,
            make_optimizer(nlp),  # the schedules begin anew for the layer
            trained.progress,
        )
        if layer_trained.reason == INTERRUPTED:
            trained = trained._replace(reason=INTERRUPTED)
    return trained


def prune_and_quantize(ner: CostSensitiveNER) -> None:
    """Prune and quantize the weights of a linear model: see `ml.pruning.prune_and_quantize`. This
    is done right after training, so that the model is evaluated, calibrated and tuned with the
    weights that are saved."""
    _, weights = linear_part(ner.model)
    weights.restart(weights.prune_and_quantize(weights.rows))


def train_by_updates(
    linear: LinearPipeline,
    examples: Iterable[Example],
    *,
    n_seeds: int,
    on_epoch: OnEpoch,
    cache: Path | None = None,
    trains_hidden_layer: bool = True,
) -> TrainingResult:
    """Train the linear model of a pipeline by updates, with or without its hidden layer. For the
    arguments, see `train_linear`.

    Long docs are split into pieces: see `batch_pieces`. The config's batcher creates batches of
    pieces once, and the batches are shuffled in each epoch. Training ends after the `max_epochs` or
    `max_steps` of the config. Then the weights are pruned and quantized. Returns how the last
    training run ended."""
    _, ner, training, _ = linear
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

    def after_epoch(trained: TrainingResult) -> None:
        """Record the progress in the settings of the component, and call `on_epoch`."""
        ner.cfg["progress"] = trained.progress._asdict()
        on_epoch(trained)

    optimizer = training["optimizer"]
    first_weights = weights.rows.copy()
    first_progress = ner.progress
    # Sum the weights of several training runs in float64, so that their mean is exact.
    sum_dtype = "float64" if n_seeds > 1 else "float32"
    sum_of_weights = numpy.zeros(first_weights.shape, dtype=sum_dtype)
    n_trainings = 0
    for i in range(n_seeds):
        desc = "train"
        if n_seeds > 1:
            desc = f"train {i + 1}/{n_seeds}"
        weights.restart(first_weights)  # start each run with the same weights
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
            break  # its weights are included in the average
    # Training may have ended in the middle of an epoch.
    ner.cfg["progress"] = trained.progress._asdict()
    if trained.reason != INTERRUPTED:
        warn_if_last_loss_was_unused(ner.objective.loss, training, trained.progress, ner.name)
    # Set the mean weights of the trained models.
    weights.restart((sum_of_weights / n_trainings).astype("float32"))
    prune_and_quantize(ner)
    if layer is not None:  # only trained once: see `train_linear` and `check_cache`
        layer.restart(layer.averaged(optimizer))
    return trained


def can_train_at_once(ner: CostSensitiveNER) -> bool:
    """Check whether a component can be trained on all docs at once. Its loss must be smooth, must
    not be a schedule, and must not require a trained model to start from. The model must not have
    too many weights, and all weights must be 0, so that no previous training is lost."""
    _, weights = linear_part(ner.model)
    first_loss, *later_losses = ner.objective.loss.stages
    if later_losses or first_loss.needs_start or not first_loss.is_smooth:
        return False
    return weights.rows.size <= MAX_WEIGHTS and not weights.rows.any()
