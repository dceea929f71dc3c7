"""Online training of the linear model. The updates are the same as with `spacy train`, but the
examples are read only once.

Each step updates the weights on one batch, and each epoch uses all batches once. There are batches
for two segmentations: whole docs, and docs that are cut at their borders. Epochs alternate between
them (see `segmentations`).
"""

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from spacy.training import Example
from thinc.api import Model, Optimizer

from ..features import FeatureBatch
from ..ml import find_features
from ..progress import progress as progress_bar
from ..tags import Tags
from ..types import Potentials, Progress
from .objective import Objective, check_finite
from .segmentations import Segmentations, concatenate
from .targets import Targets

INTERRUPTED = "interrupted"
"""The value of `TrainingResult.reason` if a KeyboardInterrupt ended training."""


class Trainable(Protocol):
    """Weights that can be trained, such as `SparseWeights`."""

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs during training. Returns the scores and a callback that receives the gradient
        with respect to the scores and stores it for `finish_update`."""

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights using the stored gradient."""


class Batch(NamedTuple):
    """A training batch.

    n_sequences (int): The number of sequences in the batch.
    read (Callable): Returns the features and the targets. They may be recomputed on each call.
    """

    n_sequences: int
    read: Callable[[], tuple[FeatureBatch, Targets]]


Batches = Segmentations[list[Batch]]
"""The batches of an epoch, in both segmentations of the docs."""


class TrainingResult(NamedTuple):
    """The result of training, or the state of training after an epoch.

    value (float): The loss of the last complete epoch or, if no epoch is complete, of all steps so
        far. It is averaged over annotated tokens or, if the loss is a ratio over the batch, over
        steps.
    n_epochs (int): The number of complete epochs.
    n_steps (int): The number of steps.
    reason (str): Why training ended.
    progress (Progress): The training progress since the component was initialized.
    """

    value: float
    n_epochs: int
    n_steps: int
    reason: str
    progress: Progress

    def as_text(self) -> str:
        """Return a one-line summary of the result."""
        return (
            f"{self.reason}: {self.n_epochs} epochs, {self.n_steps:,} steps, loss {self.value:.6g}"
        )


OnEpoch = Callable[[TrainingResult], object]
"""A callback that is called after each epoch."""


def keep_in_memory(features: FeatureBatch, targets: Segmentations[Targets]) -> Batches:
    """Create batches from features and targets that stay in memory: one batch for each segmentation
    of the docs, or a single batch if no doc has borders."""

    def to_batches(targets: Targets) -> list[Batch]:
        return [Batch(n_sequences=len(targets.lengths), read=lambda: (features, targets))]

    return targets.map(to_batches)


def read_batches(
    model: Model, objective: Objective, tags: Tags, batches: Iterable[list[Example]]
) -> Batches:
    """Extract the features and create the targets of batches of examples. Batches without tokens
    are skipped.

    model (Model): A linear model whose feature vocabulary has been built, or a hybrid model.
    objective (Objective): The training objective, which creates the targets.
    tags (Tags): The tags of the chain.
    batches (Iterable[list[Example]]): The examples, divided into batches.
    RETURNS (Batches): The batches, in both segmentations.
    RAISES (ValueError): See `Objective.targets`.
    """
    training_batches: list[Batches] = []
    for examples in batches:
        features = find_features(model, [eg.predicted for eg in examples], is_train=True)
        if len(features.rows):
            targets = objective.targets(examples, tags, features.rows)
            training_batches.append(keep_in_memory(features, targets))
    return concatenate(training_batches)


def train(
    weights: Trainable,
    objective: Objective,
    batches: Batches,
    optimizer: Optimizer,
    *,
    max_epochs: int,
    max_steps: int = 0,
    dropout: float = 0.0,
    progress: Progress = Progress(),  # noqa: B008 (immutable)
    shuffle: Callable[[list[Batch]], None] = random.shuffle,
    on_epoch: OnEpoch = lambda trained: None,
    desc: str = "train",
) -> TrainingResult:
    """Train weights by updating them on each batch. The batches are shuffled before each epoch. A
    KeyboardInterrupt ends training and leaves the weights in their current state.

    weights (Trainable): The weights.
    objective (Objective): The training objective.
    batches (Batches): The batches. Their lists are shuffled in place.
    optimizer (Optimizer): The optimizer from the config. For sparse weights, it only determines
        whether averages are kept (see `SparseWeights`). It is also used to train the hidden layer.
        Its schedules advance with each step.
    max_epochs (int): The maximum number of epochs. 0 means no limit.
    max_steps (int): The maximum number of steps. 0 means no limit. At least one of the two limits
        must be set.
    dropout (float): The fraction of the tokens' features to drop at random.
    progress (Progress): The training progress so far.
    shuffle (Callable): Shuffles a list in place.
    on_epoch (OnEpoch): Called after each epoch.
    desc (str): The description of the progress bar.
    RETURNS (TrainingResult): The result of training.
    RAISES (ValueError): If a score is not finite.
    """
    trained = TrainingResult(
        float("nan"), n_epochs=0, n_steps=0, reason="trained", progress=progress
    )
    n_steps = count_steps(batches, max_epochs, max_steps)
    bar = progress_bar(desc=desc, unit="step", total=n_steps)
    try:
        # Without batches, there are no steps, and the loop would never reach `max_steps`.
        while batches.by_doc and (not max_epochs or trained.n_epochs < max_epochs):
            batches_of_epoch = batches.in_epoch(trained.n_epochs)
            # At least 1, because all docs may be excluded if no possible path agrees with gold.
            n_sequences = max(sum(batch.n_sequences for batch in batches_of_epoch), 1)
            shuffle(batches_of_epoch)

            loss_of_epoch = 0.0
            n_annotated_of_epoch = 0
            for batch in batches_of_epoch:
                if max_steps and trained.n_steps == max_steps:
                    return trained._replace(reason="reached max_steps")
                features, targets = batch.read()
                scores, add_gradient = weights.begin_update(features, dropout)
                check_finite(scores, objective.name)
                result, n_annotated = objective.evaluate(targets, scores, trained.progress)
                add_gradient(result.gradient)
                weights.finish_update(optimizer)
                optimizer.step_schedules()  # as in `spacy train`

                # Here, `Progress` counts sequences instead of examples.
                progress = trained.progress.after_update(batch.n_sequences, n_sequences)
                trained = trained._replace(n_steps=trained.n_steps + 1, progress=progress)
                loss_of_epoch += result.value
                n_annotated_of_epoch += n_annotated
                if trained.n_epochs == 0:
                    # No epoch is complete yet: see `TrainingResult.value`.
                    value_so_far = loss_of_epoch / max(n_annotated_of_epoch, 1)
                    trained = trained._replace(value=value_so_far)
                bar.update()

            value = loss_of_epoch / max(n_annotated_of_epoch, 1)
            trained = trained._replace(value=value, n_epochs=trained.n_epochs + 1)
            bar.set_postfix(loss=f"{value:.6g}", refresh=False)
            on_epoch(trained)
    except KeyboardInterrupt:
        return trained._replace(reason=INTERRUPTED)
    finally:
        bar.close()
    return trained


def count_steps(batches: Batches, max_epochs: int, max_steps: int) -> int:
    """Return the number of training steps, for the progress bar, or 0 if there is no limit. See
    `train` for the limits."""
    n_steps_of_epochs = sum(len(batches.in_epoch(epoch)) for epoch in range(max_epochs))
    if n_steps_of_epochs and max_steps:
        return min(n_steps_of_epochs, max_steps)
    if n_steps_of_epochs:
        return n_steps_of_epochs
    return max_steps
