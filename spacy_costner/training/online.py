"""Online training of the linear model: the updates of `spacy train`, with examples read once.

A step updates the weights with one batch; an epoch takes all batches once.
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


class Trainable(Protocol):
    """Weights that are trained, such as `SparseWeights`: see its methods."""

    def begin_update(
        self, batch: FeatureBatch, dropout: float = 0.0
    ) -> tuple[Potentials, Callable[[Potentials], None]]:
        """Score docs in training. The callback keeps the gradient."""

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update the weights with the kept gradient."""


class Batch(NamedTuple):
    """A batch of training.

    n_sequences (int): The number of its sequences.
    read (Callable): Reads its features and its targets.
    """

    n_sequences: int
    read: Callable[[], tuple[FeatureBatch, Targets]]


Batches = Segmentations[list[Batch]]
"""The batches of an epoch, in both segmentations of the docs."""


class Trained(NamedTuple):
    """The result of online training, or its state after an epoch. `value` is the loss of the last
    complete epoch or, if there is none, of all steps; per annotated token or, if the loss is one
    ratio, per step."""

    value: float
    n_epochs: int
    n_steps: int
    reason: str
    progress: Progress

    def as_text(self) -> str:
        """How training ended, as a line of text."""
        return (
            f"{self.reason}: {self.n_epochs} epochs, {self.n_steps:,} steps, loss {self.value:.6g}"
        )


OnEpoch = Callable[[Trained], object]
"""Called after each epoch."""


def keep_in_memory(features: FeatureBatch, targets: Segmentations[Targets]) -> Batches:
    """The features and the targets of a batch of examples as a batch of each segmentation, which is
    kept in memory."""

    def to_batches(targets: Targets) -> list[Batch]:
        return [Batch(len(targets.lengths), lambda: (features, targets))]

    return targets.map(to_batches)


def read_batches(
    model: Model, objective: Objective, tags: Tags, batches: Iterable[list[Example]]
) -> Batches:
    """Extract the features and make the targets of the batches that have tokens."""
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
) -> Trained:
    """Update weights with each batch, in another order in each epoch. A KeyboardInterrupt ends
    training and keeps the weights so far.

    weights (Trainable): The weights.
    objective (Objective): The training objective.
    batches (Batches): The batches. Their lists are shuffled.
    optimizer (Optimizer): Says whether averages are kept: see `SparseWeights.averaged`. It trains
        the hidden layer.
    max_epochs (int), max_steps (int): When to end; 0 for no limit. Not both 0.
    dropout (float): The share of features that tokens lose.
    progress (Progress): The progress of training before.
    shuffle (Callable): Shuffles a list in place.
    on_epoch (OnEpoch): Called after each epoch.
    desc (str): What the progress bar says.
    RETURNS (Trained): The progress, and why training ended.
    RAISES (ValueError): If a score is not finite.
    """
    trained = Trained(float("nan"), 0, 0, "trained", progress)
    n_steps = count_steps(batches, max_epochs, max_steps)
    bar = progress_bar(desc=desc, unit="step", total=n_steps)
    try:
        while batches.by_doc and (not max_epochs or trained.n_epochs < max_epochs):
            batches_of_epoch = batches.in_epoch(trained.n_epochs)
            n_sequences = max(sum(batch.n_sequences for batch in batches_of_epoch), 1)
            shuffle(batches_of_epoch)

            loss_of_epoch = 0.0
            n_annotated_of_epoch = 0
            for batch in batches_of_epoch:
                if max_steps and trained.n_steps == max_steps:
                    return trained._replace(reason="steps used up")
                features, targets = batch.read()
                scores, add_gradient = weights.begin_update(features, dropout)
                check_finite(scores, objective.name)
                result, n_annotated = objective.evaluate(targets, scores, trained.progress)
                add_gradient(result.gradient)
                weights.finish_update(optimizer)

                progress = trained.progress.after_update(batch.n_sequences, n_sequences)
                trained = trained._replace(n_steps=trained.n_steps + 1, progress=progress)
                loss_of_epoch += result.value
                n_annotated_of_epoch += n_annotated
                if trained.n_epochs == 0:
                    # There is no complete epoch yet, so it is the loss of all steps.
                    value = loss_of_epoch / max(n_annotated_of_epoch, 1)
                    trained = trained._replace(value=value)
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
    """The number of steps of a training; 0 if there is no limit. The limits are as in `train`."""
    n_steps = sum(len(batches.in_epoch(epoch)) for epoch in range(max_epochs))
    if n_steps and max_steps:
        return min(n_steps, max_steps)
    if n_steps:
        return n_steps
    return max_steps
